"""What a tool is and what a call of it comes to."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from turnkeeper.conversation.parts import Attachment
from turnkeeper.conversation.turns import Disposition, Effect
from turnkeeper.errors import TurnkeeperError
from turnkeeper.port.provider import ToolSpec

Arguments = dict[str, Any]

DID_NOT_HAPPEN = "did not happen"
"""`why` of an outcome that says that the call had no effect: an identical one may run."""


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
    source: str = ""
    """The server that it belongs to; "" for a tool of our own."""

    @property
    def definition(self) -> str:
        """Names what this tool says of itself: another one, if anything of it changes."""
        said = msgspec.json.encode(
            [self.name, self.description, self.schema, self.effect, self.source], order="sorted"
        )
        return hashlib.sha256(said).hexdigest()[:16]

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model is told of it."""
        return ToolSpec(name=self.name, description=self.description, schema=self.schema)


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in without which a call cannot run. why: not_connected | revoked | scope | moved."""

    server: str
    person: str
    why: str = "not_connected"
    rejected: str = ""
    """The grant that the server refused; "" if there was none."""


class SignInNeeded(Exception):
    """Raised by `invoke`: the server refused the call until the person signs in. It has not run."""

    def __init__(self, sign_in: SignIn) -> None:
        self.sign_in = sign_in
        super().__init__(f"{sign_in.server} needs a sign-in ({sign_in.why})")


class NotSent(Exception):
    """Raised by `invoke`: the call did not reach whoever carries it out, so it had no effect."""


class OutcomeLost(Exception):
    """Raised by `invoke`: the call was sent, and what became of it cannot be known any more."""


class ResultUnreadable(Exception):
    """Raised by `invoke`: the call ran, and its result is not what the tool promised."""


class ToolFailed(Exception):
    """Raised by `invoke`: the tool says that it failed; the message is what it says."""


class SourceTrouble(Exception):
    """A source of tools cannot say now which tools it has; the message says why."""


class ToolSource(Protocol):
    """Tools that come from elsewhere and may change: an MCP server."""

    name: str

    async def tools(self, person: str) -> Sequence[Tool]:
        """The tools for this person as of now, from a cache while that is fresh. Raises SourceTrouble."""
        ...


class ToolFile(msgspec.Struct, frozen=True):
    """A file that a tool gives: a screenshot, a chart. A tool may return one, or a list of these and words."""

    data: bytes
    name: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one call. `content` is never blank: it is what the model reads."""

    disposition: Disposition
    content: str
    is_error: bool = False
    seconds: float = 0.0
    why: str = ""
    sign_in: SignIn | None = None
    """The call has not run and waits until this sign-in is there."""
    files: tuple[ToolFile, ...] = ()
    """What came beside the words, not kept yet."""
    attachments: tuple[Attachment, ...] = ()
    """The files, once they are kept."""
