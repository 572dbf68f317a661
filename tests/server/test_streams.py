"""One event stream at a time, in virtual time: frames, heartbeats, slow readers, revocation, ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import NotFound
from turnkeeper.projection.view import Durable, Resync, StreamItem, Volatile
from turnkeeper.server.stream import EventStream, Streams, frame
from turnkeeper.settings import Settings
from turnkeeper.testing.clock import VirtualClock, run_virtual

READER = Principal("u", ("read",), token_id="k1")


class Tokens:
    """What the streams ask a Keeper: its settings, and whether tokens still stand."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.standing: dict[str, Principal] = {"k1": READER}
        self.broken = False
        self.asked = 0

    async def principal_of_token(self, token_id: str) -> Principal | None:
        self.asked += 1
        if self.broken:
            raise OSError("the disk is away")
        return self.standing.get(token_id)


class Items:
    """A conversation's live items, and whether its watcher was closed."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[StreamItem | Exception | None] = asyncio.Queue()
        self.closed = False

    def put(self, *items: StreamItem | Exception | None) -> None:
        for item in items:
            self._queue.put_nowait(item)

    async def watch(self) -> AsyncIterator[StreamItem]:
        try:
            while (item := await self._queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed = True


class Connection:
    """An ASGI connection whose reader can stop reading and leave."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self._left = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        await self.reading.wait()
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._left.set()

    async def receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._left.set()

    @property
    def text(self) -> str:
        return b"".join(m.get("body", b"") for m in self.sent).decode()

    @property
    def complete(self) -> bool:
        last = self.sent[-1]
        return last["type"] == "http.response.body" and not last.get("more_body", False)


class Scene:
    """One stream with everything around it."""

    def __init__(self, **settings: Any) -> None:
        self.tokens = Tokens(**settings)
        self.streams = Streams(self.tokens, VirtualClock())  # type: ignore[arg-type]
        self.items = Items()
        self.connection = Connection()
        self.stream: EventStream = self.streams.answer(READER, self.items.watch())
        scope = {"type": "http", "method": "GET"}
        self.task = asyncio.create_task(
            self.stream(scope, self.connection.receive, self.connection.send)  # type: ignore[arg-type]
        )

    async def settle(self) -> None:
        """Let everything that can happen now happen."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        await VirtualClock().sleep(seconds)
        await self.settle()

    async def end(self) -> None:
        self.connection.reading.set()
        self.connection.leave()
        await self.task
        await self.streams.close()


def scene(**settings: Any) -> Callable[[Callable[[Scene], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Play a test in virtual time."""

    def wrap(play: Callable[[Scene], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main() -> None:
            made = Scene(**settings)
            await made.settle()
            await play(made)
            await made.end()
            assert made.items.closed

        def test() -> None:
            run_virtual(main())

        test.__doc__ = play.__doc__
        return test

    return wrap


def test_only_durable_events_carry_an_id() -> None:
    assert frame(Durable(7, b'{"seq":7}')) == b'id: 7\ndata: {"seq":7}\n\n'
    assert frame(Volatile("text", b'{"text":"a"}')) == b'event: delta\ndata: {"kind":"text","text":"a"}\n\n'
    assert frame(Resync("too_old", 9, "e")) == (
        b'event: resync\ndata: {"reason":"too_old","as_of_seq":9,"epoch":"e"}\n\n'
    )


@scene()
async def test_items_come_out_as_they_go_in(made: Scene) -> None:
    made.items.put(Durable(1, b"1"), Volatile("text", b'{"a":1}'), Durable(2, b"2"))
    await made.settle()
    body = made.connection.text
    assert body.startswith("retry: 1000\n\n")
    assert body.index("id: 1") < body.index("event: delta") < body.index("id: 2")
    start = made.connection.sent[0]
    headers = dict(start["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"x-accel-buffering"] == b"no"


@scene(sse_heartbeat_seconds=15)
async def test_a_silent_stream_has_heartbeats_without_ids(made: Scene) -> None:
    await made.pass_time(14)
    assert "heartbeat" not in made.connection.text
    await made.pass_time(32)
    assert made.connection.text.count(": heartbeat\n\n") == 3
    assert "id:" not in made.connection.text


@scene()
async def test_a_busy_stream_needs_no_heartbeat(made: Scene) -> None:
    for seq in range(20):
        made.items.put(Durable(seq, b"x"))
        await made.pass_time(5)
    assert "heartbeat" not in made.connection.text


@scene()
async def test_a_reader_that_leaves_ends_its_watcher(made: Scene) -> None:
    assert made.streams.open == {made.stream}
    made.connection.leave()
    await made.settle()
    assert made.task.done()
    assert made.items.closed
    assert made.streams.open == set()


@scene()
async def test_a_revoked_token_ends_its_streams_within_five_seconds(made: Scene) -> None:
    await made.pass_time(30)
    del made.tokens.standing["k1"]
    await made.pass_time(5)
    assert made.connection.complete
    assert made.connection.text.endswith("\n\n")
    last = made.connection.text.strip().split("\n\n")[-1].splitlines()
    assert last[0] == "event: error"
    assert json.loads(last[1].removeprefix("data: "))["code"] == "unauthorized"
    assert made.task.done()


@scene()
async def test_a_token_that_may_not_read_any_more_ends_its_streams(made: Scene) -> None:
    made.tokens.standing["k1"] = Principal("u", ("write",), token_id="k1")
    await made.pass_time(5)
    assert made.connection.complete


@scene()
async def test_a_check_that_fails_is_made_again(made: Scene) -> None:
    made.tokens.broken = True
    await made.pass_time(10)
    assert made.tokens.asked >= 2
    assert not made.task.done()
    made.tokens.broken = False
    del made.tokens.standing["k1"]
    await made.pass_time(5)
    assert made.task.done()


@scene(stream_blocked_seconds=60)
async def test_a_reader_that_takes_nothing_is_closed_after_its_time(made: Scene) -> None:
    made.connection.reading.clear()
    made.items.put(Durable(1, b"x"), Durable(2, b"y"))
    await made.pass_time(59)
    assert not made.task.done()
    await made.pass_time(3)
    assert made.task.done()
    assert made.task.exception() is None
    assert not made.connection.complete


@scene()
async def test_a_slow_reader_makes_the_stream_wait_and_holds_nothing_back(made: Scene) -> None:
    made.connection.reading.clear()
    made.items.put(*(Durable(seq, b"x") for seq in range(50)))
    await made.pass_time(20)
    assert made.items._queue.qsize() == 49, "the stream took one item and waits with it"
    made.connection.reading.set()
    await made.settle()
    await made.pass_time(1)
    assert [line for line in made.connection.text.splitlines() if line.startswith("id:")] == [
        f"id: {seq}" for seq in range(50)
    ]


@scene()
async def test_a_stopping_server_ends_streams_at_once_and_completely(made: Scene) -> None:
    await made.streams.close()
    await made.settle()
    assert made.connection.complete
    assert made.task.done()
    late = Connection()
    await made.streams.answer(READER, Items().watch())(
        {"type": "http", "method": "GET"},
        late.receive,  # type: ignore[arg-type]
        late.send,  # type: ignore[arg-type]
    )
    assert late.complete


@scene()
async def test_a_stopping_server_does_not_wait_for_a_reader_that_takes_nothing(made: Scene) -> None:
    made.connection.reading.clear()
    made.items.put(Durable(1, b"x"))
    await made.settle()
    await made.streams.close()
    await made.settle()
    assert made.task.done()


@scene()
async def test_the_end_of_the_conversation_ends_the_stream(made: Scene) -> None:
    made.items.put(Durable(1, b"x"), None)
    await made.settle()
    assert made.connection.complete
    assert made.task.done()


@pytest.mark.parametrize(
    ("error", "code"), [(NotFound(what="conversation"), "not_found"), (RuntimeError("secret"), "error")]
)
def test_an_error_on_the_way_is_told_as_a_problem_without_an_id(
    error: Exception, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        made = Scene()
        made.items.put(error)
        await made.settle()
        assert made.connection.complete
        name, data = made.connection.text.strip().split("\n\n")[-1].splitlines()
        assert name == "event: error"
        assert json.loads(data.removeprefix("data: "))["code"] == code
        assert "secret" not in data
        await made.end()

    run_virtual(main())
    assert ("secret" in caplog.text) == (code == "error")


@scene()
async def test_other_streams_of_a_token_are_checked_together(made: Scene) -> None:
    more = [Scene() for _ in range(50)]
    for each in more:
        each.stream._streams = made.streams
        made.streams.add(each.stream)
    await made.pass_time(2.1)
    assert made.tokens.asked <= 2
    for each in more:
        await each.end()


@scene(stream_blocked_seconds=60)
async def test_a_revoked_reader_that_takes_not_even_the_farewell_is_closed_all_the_same(made: Scene) -> None:
    made.connection.reading.clear()  # what was written is out; the next write will wait
    del made.tokens.standing["k1"]
    await made.pass_time(5)
    assert made.task.done(), "the stream of a revoked token is open"


@scene(stream_blocked_seconds=60)
async def test_a_finished_stream_whose_reader_takes_nothing_is_closed_after_its_time(made: Scene) -> None:
    made.connection.reading.clear()
    made.items.put(None)
    await made.pass_time(62)
    assert made.task.done()
