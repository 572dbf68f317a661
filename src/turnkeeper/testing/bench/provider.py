"""What a long conversation costs to feed and send, beside a plain HTTP client that sends the very same bytes.

10,000 messages of about 600 bytes, then turn after turn: a question, the feed, the request's bytes, the call
through the real SDK, the stream to its end. The other side is a sink in a process of its own that reads a body
and answers with a fixed stream, so that nothing but the two clients is measured. The SDK's own `create`, given
the same messages as dictionaries, is shown for what it adds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from turnkeeper.conversation.messages import ASSISTANT, USER, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.history.builder import FeedBuilder
from turnkeeper.port.clock import Clock
from turnkeeper.port.provider import Deadlines, ModelCall, Provider, Reply
from turnkeeper.provider.opening import open_provider
from turnkeeper.testing.bench import Row, at_most, clock, in_turns, median
from turnkeeper.testing.bench.feed import make_corpus
from turnkeeper.testing.clock import VirtualClock

MESSAGES: Final = 10_000
SHORT: Final = 100
REPETITIONS: Final = 7
KEY_NAME: Final = "TURNKEEPER_BENCH_KEY"

SINK: Final = """
import asyncio, json, sys
ANSWERS = json.loads(sys.argv[1])
async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\\r\\n\\r\\n")).decode("latin-1")
            path = head.split(" ", 2)[1]
            size = next(int(line.split(":")[1]) for line in head.split("\\r\\n") if line.lower().startswith("content-length"))
            while size > 0:
                size -= len(await reader.read(min(size, 1 << 20)))
            answer = ANSWERS["chat" if "chat" in path else "anthropic"].encode()
            writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(answer) + answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 21)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
"""A server that reads a request and gives a fixed stream; it looks at nothing."""


def _sse(*events: tuple[str, Any]) -> str:
    return "".join(
        f"event: {name}\ndata: {data if isinstance(data, str) else json.dumps(data)}\n\n"
        for name, data in events
    )


def _chat(delta: dict[str, Any], finish: str | None = None) -> tuple[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return "message", {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }


ANSWERS: Final = {
    "chat": _sse(_chat({"role": "assistant", "content": "It is done."}), _chat({}, "stop"), ("message", "[DONE]")),
    "anthropic": _sse(
        ("message_start", {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It is done."}}),
        ("content_block_stop", {"type": "content_block_stop", "index": 0}),
        ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
        ("message_stop", {"type": "message_stop"}),
    ),
}  # fmt: skip
WIRES: Final = {"openai-chat": "/v1/chat/completions", "anthropic": "/v1/messages"}


@contextlib.asynccontextmanager
async def _sink() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SINK, json.dumps(ANSWERS), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class _Talk:
    """A conversation of so many messages that goes on, turn by turn."""

    def __init__(self, provider: Provider, count: int) -> None:
        self.provider = provider
        corpus = make_corpus(count, sick=0.0)
        while corpus[-1].role != ASSISTANT:
            corpus.pop()
        self.corpus = corpus
        self.feed = FeedBuilder(corpus)
        self.turns = 0
        self.body = b""

    def say(self, role: str) -> Message:
        self.turns += 1
        text = Text(f"{role} says a few words more, number {self.turns}")
        return Message(message_id=f"n{self.turns}", role=role, parts=(text,), created_at=1.0)

    async def turn(self) -> float:
        """Milliseconds of one turn: question, feed, bytes, call, answer."""
        began = clock()
        self.feed.extend([self.say(USER)])
        await self.ask()
        self.feed.extend([self.say(ASSISTANT)])
        return (clock() - began) * 1000

    async def cold(self) -> float:
        """The same where nothing was kept: after a start of the server."""
        began = clock()
        self.feed = FeedBuilder([*self.corpus, self.say(USER)])
        await self.ask()
        return (clock() - began) * 1000

    async def ask(self) -> None:
        feed = self.feed.feed().messages
        self.body = self.provider.build(feed, instructions="Be kind.", tools=(), options={})
        call = ModelCall(body=self.body, deadlines=Deadlines(), newest_user_text="")
        async for event in self.provider.stream(call):
            if isinstance(event, Reply):
                return
        msg = "the bench's sink gave no answer"
        raise RuntimeError(msg)


async def run() -> list[Row]:
    """All rows."""
    os.environ[KEY_NAME] = "any"
    rows: list[Row] = []
    async with _sink() as url:
        for name, path in WIRES.items():
            rows += await _wire(url, name, path)
    return rows


async def _wire(url: str, name: str, path: str) -> list[Row]:
    import httpx2

    base = f"{url}/v1" if name == "openai-chat" else url
    system_clock: Clock = VirtualClock()
    provider = open_provider(name, clock=system_clock, model="m", base_url=base, api_key_env=KEY_NAME)
    long, short, cold = _Talk(provider, MESSAGES), _Talk(provider, SHORT), _Talk(provider, MESSAGES)
    await long.turn()
    await short.turn()
    async with httpx2.AsyncClient(timeout=60) as client:

        async def plain() -> float:
            began = clock()
            headers = {"content-type": "application/json", "authorization": "Bearer any"}
            async with client.stream("POST", url + path, content=long.body, headers=headers) as response:
                async for _ in response.aiter_lines():
                    pass
            return (clock() - began) * 1000

        await plain()
        measured: dict[str, Callable[[], Awaitable[float]]] = {
            "plain": plain,
            "long": long.turn,
            "short": short.turn,
            "cold": cold.cold,
            "create": await _create(name, base, long.body),
        }
        found = {key: median(value) for key, value in (await in_turns(measured, REPETITIONS)).items()}
    await provider.close()
    megabytes = len(long.body) / 1e6
    return [
        Row(name=f"{name}: plain HTTP client, {megabytes:.1f} MB", value=found["plain"], unit="ms"),
        at_most(
            f"{name}: ours, next turn of {MESSAGES:,} messages",
            found["long"],
            "ms",
            of="plain HTTP client",
            base=found["plain"],
            limit=2.0,
        ),
        Row(
            name=f"{name}: ours, first turn after a start",
            value=found["cold"],
            unit="ms",
            of="plain HTTP client",
            ratio=found["cold"] / found["plain"],
        ),
        Row(name=f"{name}: ours, next turn of {SHORT} messages", value=found["short"], unit="ms"),
        Row(
            name=f"{name}: the SDK's own create, same messages",
            value=found["create"],
            unit="ms",
            of="plain HTTP client",
            ratio=found["create"] / found["plain"],
        ),
    ]


async def _create(name: str, base: str, body: bytes) -> Callable[[], Awaitable[float]]:
    """The SDK as it is usually called, with the request as dictionaries."""
    fields = json.loads(body)
    client: Any
    if name == "openai-chat":
        from openai import AsyncOpenAI

        client = AsyncOpenAI(base_url=base, api_key="any", timeout=120)
        create = client.chat.completions.create
    else:
        from anthropic import AsyncAnthropic

        client = AsyncAnthropic(base_url=base, api_key="any", timeout=120)
        create = client.messages.create

    async def measure() -> float:
        began = clock()
        async for _ in await create(**fields):
            pass
        return (clock() - began) * 1000

    return measure
