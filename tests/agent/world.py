"""A small world for the loop's tests: a model that plays what it is told, tools that count, virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from turnkeeper.agent.definition import AgentDefinition, Policies
from turnkeeper.agent.loop import ModelRunner
from turnkeeper.conversation.messages import ASSISTANT, TOOL, Message, Origin
from turnkeeper.conversation.parts import Text, ToolCall, ToolResult
from turnkeeper.conversation.turns import Failure, Usage
from turnkeeper.port.provider import (
    ModelCall,
    ProviderEvent,
    ProviderFailed,
    Reply,
    TextDelta,
    ToolSpec,
)
from turnkeeper.provider.wire import Violation
from turnkeeper.settings import Settings
from turnkeeper.testing.clock import CountedIds, VirtualClock, run_virtual
from turnkeeper.testing.turn_port import MemoryTurn
from turnkeeper.tool import Tool

T = TypeVar("T")

Step = Any
"""text | [call, ...] | Failure | a function that makes one of them | ("cut", text, Failure)"""

USAGE = Usage(input_tokens=100, output_tokens=10)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test in virtual time."""
    return run_virtual(main)


def call(name: str, arguments: dict[str, Any] | None = None, id_: str = "") -> ToolCall:
    return ToolCall(id=id_, name=name, arguments={} if arguments is None else arguments)


class PlayedModel:
    """A provider that plays one step per call and keeps what it was sent."""

    def __init__(self, *steps: Step, name: str = "played", chunk_seconds: float = 0.0) -> None:
        self.origin = Origin(provider=name, model=f"{name}-1")
        self.dialect = "test"
        self.steps = list(steps)
        self.sent: list[list[Message]] = []
        self.calls: list[ModelCall] = []
        self.chunk_seconds = chunk_seconds
        self.cancelled = 0
        self.closed = False
        self._feed: list[Message] = []
        self.broken: tuple[Violation, ...] = ()

    def build(
        self,
        feed: Sequence[Message],
        *,
        instructions: str,
        tools: Sequence[ToolSpec],
        options: dict[str, Any],
    ) -> bytes:
        self._feed = list(feed)
        shape = [[m.role, [_shape(p, bound=m.origin == self.origin) for p in m.parts]] for m in feed]
        return json.dumps([instructions, [t.name for t in tools], options, shape]).encode()

    async def stream(self, call: ModelCall) -> AsyncIterator[ProviderEvent]:
        self.sent.append(self._feed)
        self.calls.append(call)
        step = self.steps.pop(0) if self.steps else "nothing is left to play"
        if callable(step):
            step = step()
        try:
            if asyncio.iscoroutine(step):
                step = await step
            if isinstance(step, Failure):
                raise ProviderFailed(step, usage=Usage(input_tokens=100))
            if isinstance(step, Reply):
                for part in step.message.parts:
                    if isinstance(part, Text):
                        yield TextDelta(part.text)
                yield step
                return
            if isinstance(step, tuple) and step[0] == "deltas":
                for words in step[1]:
                    yield TextDelta(words)
                whole = Message(message_id="", role=ASSISTANT, parts=(Text("".join(step[1])),))
                yield Reply(message=whole, usage=USAGE, stop_reason="stop")
                return
            if isinstance(step, tuple) and step[0] == "partial":
                raise ProviderFailed(step[2], partial=step[1])
            if isinstance(step, tuple):
                _, text, failure = step
                async for event in self._words(text):
                    yield event
                raise ProviderFailed(failure, usage=Usage(input_tokens=100, output_tokens=1))
            if isinstance(step, str):
                async for event in self._words(step):
                    yield event
                parts: tuple[Any, ...] = (Text(step),) if step else ()
            else:
                parts = tuple(step)
                for part in parts:
                    if isinstance(part, Text):
                        yield TextDelta(part.text)
            message = Message(message_id="", role=ASSISTANT, parts=parts)
            yield Reply(message=message, usage=USAGE, stop_reason="end_turn", request_id="r")
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _words(self, text: str) -> AsyncIterator[TextDelta]:
        if not self.chunk_seconds:
            yield TextDelta(text)
            return
        for word in text.split(" "):
            yield TextDelta(word + " ")
            await asyncio.sleep(self.chunk_seconds)

    async def close(self) -> None:
        self.closed = True


def _shape(part: Any, *, bound: bool) -> Any:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, ToolCall):
        return [part.id, part.name, part.arguments, str(part.bound) if bound else None]
    if isinstance(part, ToolResult):
        return [part.tool_call_id, part.content, part.is_error]
    return str(part)


class World:
    """One agent, its model, and turns for it."""

    def __init__(
        self,
        *steps: Step,
        tools: Sequence[Tool] = (),
        policies: Policies | None = None,
        fallback: PlayedModel | None = None,
        model: PlayedModel | None = None,
        **settings: Any,
    ) -> None:
        self.clock = VirtualClock()
        self.ids = CountedIds()
        self.model = model or PlayedModel(*steps)
        definition = AgentDefinition(name="test", policies=policies or Policies())
        self.runner = ModelRunner(
            definition,
            self.model,
            tools,
            Settings.model_construct(**{**Settings().model_dump(), **settings}),
            fallback=fallback,
        )

    def turn(self, text: str = "hello", **given: Any) -> MemoryTurn:
        return MemoryTurn(self.clock, self.ids, text=text, **given)


def results(turn: MemoryTurn) -> dict[str, ToolResult]:
    """Every tool result of history that a feed may hold, by call id."""
    return {
        part.tool_call_id: part
        for message in turn.history()
        if message.role == TOOL and message.replay
        for part in message.parts
        if isinstance(part, ToolResult)
    }


def kinds(turn: MemoryTurn) -> list[str]:
    return [event.kind for event in turn.journal]


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until `condition` holds; virtual time goes on meanwhile."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came about")
