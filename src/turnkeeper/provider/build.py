"""From a feed to the bytes of a request: encode, judge, and if our own rules find fault, repair strictly.

Every request is validated before it is sent. A violation is our bug: it is reported, and the request is
built once more by the strictest path (nothing provider-bound, no thinking). If even that breaks a rule the
call fails with a sentence instead of a 400 that would come back for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from turnkeeper.conversation.messages import SYSTEM, USER, Message, Origin
from turnkeeper.conversation.parts import Attachment, Text, ToolCall, ToolResult
from turnkeeper.history.builder import GrownList
from turnkeeper.port.provider import ProviderFailed, ToolSpec
from turnkeeper.provider.dialects import dialect_named
from turnkeeper.provider.failures import failure
from turnkeeper.provider.wire import Encoded, Files, Violation

Report = Callable[[Sequence[Violation]], None]
"""Told of rules that one of our own requests broke."""


INSTRUCTIONS = ("system", "developer")
"""Roles of the message at the front in which some wires put the instructions."""


class _Prefix:
    """The closed turns of a conversation as they stand in a request."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        """Where and how they were encoded."""
        self.count = 0
        """Messages of the feed in it."""
        self.data = bytearray()
        """Their JSON, without the brackets."""
        self._ids: set[str] = set()

    def takes(self, messages: Sequence[Message]) -> bool:
        """Whether these can stand behind it without a look at it.

        Not with instructions of its own, which go to the front; not if a call has an id that was there before (it is sent under another one), and not with files or
        marks for the cache, which are counted over the whole request.
        """
        ids: list[str] = []
        for message in messages:
            if message.role == SYSTEM:
                return False
            for part in message.parts:
                if type(part) is Text:
                    if part.bound is not None:
                        return False
                elif type(part) is ToolCall:
                    ids.append(part.id)
                elif type(part) is Attachment or (type(part) is ToolResult and type(part.content) is not str):
                    return False
        return self._ids.isdisjoint(ids)

    def add(self, messages: Sequence[Message], data: bytes) -> None:
        """Closed turns more."""
        self.count += len(messages)
        if self.data:
            self.data += b","
        self.data += data
        self._ids.update(part.id for message in messages for part in message.parts if type(part) is ToolCall)


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
        if isinstance(feed, GrownList):
            grown = self._build_grown(feed, instructions, tools, options)
            if grown is not None:
                return grown
        encoded = self.encode(feed, instructions=instructions, tools=tools, options=options)
        return msgspec.json.encode({**encoded.body, **self._fields})

    def _build_grown(
        self,
        feed: GrownList[Message],
        instructions: str,
        tools: Sequence[ToolSpec],
        options: dict[str, Any],
    ) -> bytes | None:
        """The same bytes, for the price of the open turn: closed turns are encoded and judged once.

        None where the open turn could change what a closed one looks like on the wire, or is not in order by
        itself: then the whole is built anew, and judged as a whole.
        """
        field = self._dialect.turns_field
        key = msgspec.json.encode([self._dialect.name, self._origin, options], enc_hook=repr, order="sorted")
        kept = feed.closed.kept
        if not isinstance(kept, _Prefix) or kept.key != key or kept.count > feed.closed_count:
            kept = _Prefix(key)
        fresh = feed.closed[kept.count : feed.closed_count]
        opened = feed.open
        if not opened or opened[0].role != USER or not feed.closed_count:
            return None
        if not kept.takes(fresh) or not kept.takes(opened):
            return None
        encoded, found = self._try([*fresh, *opened], instructions, tools, options)
        if found or not isinstance(encoded.body.get(field), list):
            return None
        turns: list[Any] = encoded.body[field]
        lead = turns[:1] if turns and turns[0].get("role") in INSTRUCTIONS else []
        turns = turns[len(lead) :]
        if fresh:
            without_marks = {**options, "cache": False}  # a mark stands on the last block of a request
            alone = self._dialect.encode(
                fresh,
                origin=self._origin,
                instructions="",
                tools=(),
                options=without_marks,
                files=self._files,
            )
            closed = turns[: len(alone.body[field])]
            if closed != alone.body[field]:
                return None
            kept.add(fresh, b",".join([msgspec.json.encode(turn) for turn in closed]))
            turns = turns[len(closed) :]
            feed.closed.kept = kept
        self.names.update(encoded.names)
        before = b"".join([msgspec.json.encode(turn) + b"," for turn in lead])
        whole = b"".join((b"[", before, kept.data, b",", msgspec.json.encode(turns)[1:]))
        return msgspec.json.encode({**encoded.body, field: msgspec.Raw(whole), **self._fields})

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
