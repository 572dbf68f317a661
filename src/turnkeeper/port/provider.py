"""What a model provider must do for the agent loop.

A provider turns a request (already built from a feed, already validated) into a stream of what came
back. It never retries, never waits longer than its deadlines, and never loses a received block. A
failure is raised as `ProviderFailed` with the failure value, made where the cause is still distinguishable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.turns import Failure, Usage


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """How long one model call may take, in seconds. Only data-bearing events reset the stall clock."""

    first_token_seconds: float = 25.0
    stall_seconds: float = 20.0
    total_seconds: float = 180.0


REASONING_DEADLINES = Deadlines(first_token_seconds=120.0, stall_seconds=90.0, total_seconds=1800.0)


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as a model is told of it. `schema` is a JSON Schema of the arguments object."""

    name: str
    description: str
    schema: dict[str, Any]


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. `body` is the provider's own request body, complete, as JSON bytes."""

    body: bytes
    deadlines: Deadlines
    finished_rounds: int = 0
    """Rounds of this turn that finished before, and attempts that failed: what `scripted` plays by."""
    failed_attempts: int = 0
    newest_user_text: str = ""


class TextDelta(msgspec.Struct, frozen=True):
    """More words of the answer."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """More words of the reasoning."""

    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """More of a tool call's arguments, as text."""

    index: int
    name: str
    arguments_text: str


class Activity(msgspec.Struct, frozen=True):
    """Data arrived that is none of the above; it shows that the model works."""

    kind: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the stream: the whole message, its blocks word for word, and what it cost."""

    message: Message
    usage: Usage | None = None
    stop_reason: str | None = None
    request_id: str | None = None


ProviderEvent = TextDelta | ThinkingDelta | CallDelta | Activity | Reply


class ProviderFailed(Exception):
    """The model call failed; `failure` says how. `partial` is what had arrived."""

    def __init__(self, failure: Failure, partial: Message | None = None, usage: Usage | None = None) -> None:
        self.failure = failure
        self.partial = partial
        self.usage = usage
        super().__init__(failure.sentence)


class Broken(Protocol):
    """A rule of a provider that a request of ours broke."""

    @property
    def rule(self) -> str:
        """Its number in the wire rules."""
        ...

    @property
    def path(self) -> str:
        """Where in the body."""
        ...

    @property
    def sentence(self) -> str:
        """What is wrong."""
        ...


class Provider(Protocol):
    """One model API with one model and one account."""

    origin: Origin
    dialect: str
    """Which encode/validate pair builds its requests: anthropic, openai-chat, openai-responses, gemini, mistral."""

    def build(
        self,
        feed: Sequence[Message],
        *,
        instructions: str,
        tools: Sequence[ToolSpec],
        options: dict[str, Any],
    ) -> bytes:
        """The request body for a feed: encoded in this provider's dialect and validated."""
        ...

    @property
    def broken(self) -> Sequence[Broken]:
        """The rules that the request built last broke before it was repaired: a bug of ours, to be journaled."""
        ...

    def stream(self, call: ModelCall) -> AsyncIterator[ProviderEvent]:
        """Make the call. Yields deltas, then exactly one Reply; or raises ProviderFailed."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
