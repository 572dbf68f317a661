"""Reading a provider's stream: what every dialect's reader shares. Pure; the shell hands in decoded events.

A reader takes one event at a time and says what it means (deltas). At any moment it can give the message
so far, each block as it came. Whatever is fed, it raises nothing but the three exceptions below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from turnkeeper.conversation import codec
from turnkeeper.conversation.messages import ASSISTANT, COMPLETE, Message, Origin
from turnkeeper.conversation.parts import Part
from turnkeeper.conversation.turns import Usage
from turnkeeper.port.provider import (
    Activity,
    CallDelta,
    ProviderEvent,
    ProviderFailed,
    Reply,
    TextDelta,
    ThinkingDelta,
)
from turnkeeper.provider.failures import failure, from_error
from turnkeeper.provider.wire import raw_block

REPLY_CHARS_MAX: Final = 8_000_000
"""The most that one answer may hold; beyond it the call fails as oversized."""

_NOT_DATA: Final = ("ping", "keepalive", "keep_alive", "keep-alive", "heartbeat")
"""Events of these names say nothing of the model's work (a stall is measured through them)."""


class Garbled(Exception):
    """The stream holds something that makes no sense."""


class ErrorEvent(Exception):
    """The provider said inside the stream that it failed; `body` is what it said."""

    def __init__(self, body: Any) -> None:
        self.body = body
        super().__init__()


class Oversized(Exception):
    """The answer is longer than REPLY_CHARS_MAX."""


_NONSENSE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class Reader:
    """The base of the readers. Subclasses say what an event means in `take`."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self.names: Mapping[str, str] = names or {}
        self.complete = False
        """Whether the stream said that the answer is whole."""
        self.stop_reason: str | None = None
        """In Anthropic's words: end_turn, tool_use, max_tokens, stop_sequence, refusal, pause_turn ..."""
        self.usage: Usage | None = None
        self.request_id: str | None = None
        self.envelope: dict[str, Any] = {}
        self._unknown: list[Any] = []
        self._chars = 0

    def feed(self, event: Any) -> list[ProviderEvent]:
        """What this event means; nothing for one that carries no data. Raises Garbled, ErrorEvent, Oversized."""
        try:
            said = self.take(event)
        except _NONSENSE as error:
            raise Garbled(f"{type(error).__name__} at an event of the stream") from error
        for one in said:
            if isinstance(one, TextDelta | ThinkingDelta):
                self._chars += len(one.text)
            elif isinstance(one, CallDelta):
                self._chars += len(one.arguments_text)
        if self._chars > REPLY_CHARS_MAX:
            raise Oversized
        return said

    def feed_whole(self, answer: Any) -> list[ProviderEvent]:
        """What a complete answer means that came unstreamed."""
        raise Garbled("an answer came in one piece where a stream was asked for")

    def take(self, event: Any) -> list[ProviderEvent]:
        """Read one event."""
        raise NotImplementedError

    def parts(self) -> tuple[Part, ...]:
        """The parts so far."""
        raise NotImplementedError

    def message(self, origin: Origin, *, standing: str = COMPLETE, error: str | None = None) -> Message:
        """The message so far. Its id and time are given by who journals it."""
        try:
            parts = self.parts()
        except _NONSENSE as problem:
            raise Garbled(f"{type(problem).__name__} at the end of the stream") from problem
        envelope = dict(self.envelope)
        if self._unknown:
            envelope["events"] = self._unknown
        message = Message(
            message_id="",
            role=ASSISTANT,
            parts=parts,
            provenance="model",
            standing=standing,
            replay=standing == COMPLETE,
            error=error,
            stop_reason=self.stop_reason,
            origin=origin,
            envelope=raw_block(envelope) if envelope else msgspec.UNSET,
        )
        try:  # what cannot be read back must never be journaled: one such row would brick the conversation
            codec.decode_message(codec.encode(message))
        except (msgspec.MsgspecError, *_NONSENSE) as problem:
            raise Garbled(f"{type(problem).__name__} in a field of the answer") from problem
        return message

    def reply(self, origin: Origin) -> Reply:
        """The whole answer. Raises Garbled if its parts make no sense."""
        return Reply(
            message=self.message(origin),
            usage=self.usage,
            stop_reason=self.stop_reason,
            request_id=self.request_id if isinstance(self.request_id, str) else None,
        )

    def unknown(self, kind: Any, event: Any) -> list[ProviderEvent]:
        """Keep an event of a kind that this version does not know."""
        name = str(kind)
        self._unknown.append(event)
        self._chars += len(msgspec.json.encode(event))
        return [] if any(word in name.lower() for word in _NOT_DATA) else [Activity(name)]


class MakesReader(Protocol):
    """Makes the reader of a dialect."""

    def __call__(self, names: Mapping[str, str] | None = None) -> Reader:
        """`names` maps tool names as sent to the original ones."""
        ...


def decode(make_reader: MakesReader, events: Iterable[Any], origin: Origin) -> Reply:
    """The reply that these events make. Raises ProviderFailed as a shell would, without its measurements."""
    reader = make_reader()
    try:
        for event in events:
            reader.feed(event)
        if reader.complete:
            return reader.reply(origin)
    except ErrorEvent as error:
        raise ProviderFailed(from_error(error.body, status=None)) from error
    except Garbled as error:
        raise ProviderFailed(failure("broken_stream", why=str(error))) from error
    except Oversized as error:
        raise ProviderFailed(failure("oversized", limit=REPLY_CHARS_MAX)) from error
    raise ProviderFailed(failure("broken_stream", why="it ended without an end"))


def text_of(value: Any) -> str:
    """A string of the stream, or Garbled."""
    if not isinstance(value, str):
        raise Garbled("a field that should be text is not")
    return value


def count(value: Any) -> int:
    """A number of tokens; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def join_surrogates(text: str) -> str:
    """`text` in which the two halves of a character that came in two events are one character again."""
    if text.isascii():
        return text
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
