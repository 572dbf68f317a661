"""What a tool is and what a call of it comes to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from turnkeeper.conversation.turns import Disposition, Effect
from turnkeeper.errors import TurnkeeperError
from turnkeeper.port.provider import ToolSpec

Arguments = dict[str, Any]


class ArgumentsInvalid(TurnkeeperError):
    """The arguments do not fit the tool {tool}: {why}. Nothing was run."""

    code = "arguments_invalid"
    status = 400


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Something an agent can do.

    `invoke(arguments, idempotency_key)` does it; its value is what the model is told. `check(arguments)`
    raises ArgumentsInvalid before anything runs. `did_it_happen(idempotency_key, arguments)` says whether a
    call whose outcome is unknown took effect: True, False, or None if it cannot tell.
    """

    name: str
    description: str
    schema: dict[str, Any]
    effect: Effect
    invoke: Callable[[Arguments, str], Awaitable[Any]]
    check: Callable[[Arguments], None]
    did_it_happen: Callable[[str, Arguments], Awaitable[bool | None]] | None = None
    timeout_seconds: float | None = None
    """None: the setting tool_timeout_seconds."""
    result_bytes_max: int | None = None
    """None: the setting tool_result_bytes_max."""
    must_ask: bool = False
    """A person must approve each call, whatever its effect."""

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model is told of it."""
        return ToolSpec(name=self.name, description=self.description, schema=self.schema)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one call. `content` is never blank: it is what the model reads."""

    disposition: Disposition
    content: str
    is_error: bool = False
    seconds: float = 0.0
    why: str = ""
