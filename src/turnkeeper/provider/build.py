"""From a feed to the bytes of a request: encode, judge, and if our own rules find fault, repair strictly.

Every request is validated before it is sent. A violation is our bug: it is reported, and the request is
built once more by the strictest path (nothing provider-bound, no thinking). If even that breaks a rule the
call fails with a sentence instead of a 400 that would come back for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.port.provider import ProviderFailed, ToolSpec
from turnkeeper.provider.dialects import dialect_named
from turnkeeper.provider.failures import failure
from turnkeeper.provider.wire import Encoded, Files, Violation

Report = Callable[[Sequence[Violation]], None]
"""Told of rules that one of our own requests broke."""


class Builder:
    """Builds the requests of one provider. `names` maps every changed tool name back to the original."""

    def __init__(
        self,
        dialect: str,
        origin: Origin,
        *,
        files: Files | None = None,
        report: Report | None = None,
        fields: dict[str, Any] | None = None,
    ) -> None:
        self._dialect = dialect_named(dialect)
        self._origin = origin
        self._files = files
        self._report = report
        self._fields = fields or {}
        self.names: dict[str, str] = {}
        self.broken: tuple[Violation, ...] = ()
        """The rules that the request built last broke before it was repaired."""

    def build(
        self,
        feed: Sequence[Message],
        *,
        instructions: str,
        tools: Sequence[ToolSpec],
        options: dict[str, Any],
    ) -> bytes:
        """The request's bytes. Raises ProviderFailed (refused_request) if no valid request can be made."""
        encoded = self.encode(feed, instructions=instructions, tools=tools, options=options)
        return msgspec.json.encode({**encoded.body, **self._fields})

    def encode(
        self,
        feed: Sequence[Message],
        *,
        instructions: str,
        tools: Sequence[ToolSpec],
        options: dict[str, Any],
    ) -> Encoded:
        """The request, valid."""
        encoded, found = self._try(feed, instructions, tools, options)
        self.broken = found
        if found:
            if self._report is not None:
                self._report(found)
            bare = [msgspec.structs.replace(m, origin=None) if m.origin is not None else m for m in feed]
            encoded, found = self._try(bare, instructions, tools, {**options, "thinking": None})
        if found:
            first = found[0]
            why = f"rule {first.rule}: {first.sentence}"
            raise ProviderFailed(failure("refused_request", why=why, status=None, detail=why))
        self.names.update(encoded.names)
        return encoded

    def _try(
        self,
        feed: Sequence[Message],
        instructions: str,
        tools: Sequence[ToolSpec],
        options: dict[str, Any],
    ) -> tuple[Encoded, tuple[Violation, ...]]:
        encoded = self._dialect.encode(
            feed,
            origin=self._origin,
            instructions=instructions,
            tools=tools,
            options=options,
            files=self._files,
        )
        return encoded, self._dialect.validate(encoded.body)
