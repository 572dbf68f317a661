"""Event streams: what a conversation's watchers are sent, for as long as they listen.

A durable event is sent with `id:` = its seq, so a reader that comes back with the last id it saw misses
nothing and gets nothing twice. Live text, control frames and heartbeats carry no id and move no cursor.
An event's JSON is made once and shared by all streams. One ticker for the whole server sends heartbeats,
closes readers that take nothing any more, and ends streams whose token was revoked.

Two tasks a stream and no buffer of its own: behind a slow reader the stream waits, and what piles up
meanwhile is the Keeper's to bound (it drops the backlog whole and says `resync`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final

from starlette.types import Receive, Scope, Send

from turnkeeper.conversation import codec
from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import TurnkeeperError, Unauthorized
from turnkeeper.projection.view import Durable, Resync, StreamItem
from turnkeeper.server.problem import problem_of
from turnkeeper.server.reply import SAFE_HEADERS, Headers

if TYPE_CHECKING:
    from turnkeeper.app import Keeper
    from turnkeeper.port.clock import Clock

STREAM_HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
    *SAFE_HEADERS,
]

HEARTBEAT: Final = b": heartbeat\n\n"

FAILED: Final = "Something failed inside the server. Its log says what."

log = logging.getLogger("turnkeeper.server")

TICK_SECONDS_MAX: Final = 1.0


def frame(item: StreamItem) -> bytes:
    """The bytes of one item on the wire."""
    if isinstance(item, Durable):
        return b"id: %d\ndata: %b\n\n" % (item.seq, item.data)
    if isinstance(item, Resync):
        return control("resync", codec.wire(item))
    # The item's JSON is an object with at least one member; its kind becomes the first.
    return control("delta", b'{"kind":"%b",%b' % (item.kind.encode(), item.data[1:]))


def control(name: str, data: bytes) -> bytes:
    """A frame without id, so that it never becomes anybody's cursor."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


class Streams:
    """All open streams of one server."""

    def __init__(self, keeper: Keeper, clock: Clock) -> None:
        self._keeper = keeper
        self.clock = clock
        settings = keeper.settings
        self._heartbeat_seconds = settings.sse_heartbeat_seconds
        self._blocked_seconds = settings.stream_blocked_seconds
        self._check_seconds = settings.token_check_seconds
        self._tick_seconds = min(TICK_SECONDS_MAX, self._heartbeat_seconds / 4, self._check_seconds)
        self.hello = b"retry: %d\n\n" % settings.sse_retry_ms
        self.open: set[EventStream] = set()
        self._ticker: asyncio.Task[None] | None = None
        self._beats: set[asyncio.Task[None]] = set()
        self.closed = False

    def answer(self, principal: Principal, items: AsyncIterator[StreamItem]) -> EventStream:
        """The answer that streams `items` to `principal`."""
        return EventStream(self, principal, items)

    def add(self, stream: EventStream) -> None:
        """Begin to care for a stream."""
        self.open.add(stream)
        if self._ticker is None:
            self._ticker = asyncio.create_task(self._tick(), name="streams")

    async def close(self) -> None:
        """End all streams at once; the reader comes back with its cursor."""
        self.closed = True
        if self._ticker is not None:
            self._ticker.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticker
        for stream in list(self.open):
            stream.end()

    async def _tick(self) -> None:
        checked = self.clock.monotonic()
        while True:
            await self.clock.sleep(self._tick_seconds)
            now = self.clock.monotonic()
            for stream in self.open:
                self._look_after(stream, now)
            if now - checked >= self._check_seconds:
                checked = now
                try:
                    await self._check_tokens()
                except Exception:
                    # Checked again at the next turn of the clock; the streams live on until then.
                    log.exception("the tokens of open streams could not be checked")

    def _look_after(self, stream: EventStream, now: float) -> None:
        silent_seconds = now - stream.written_at
        if stream.blocked:
            if silent_seconds >= self._blocked_seconds:
                stream.end()
        elif silent_seconds >= self._heartbeat_seconds:
            beat = asyncio.create_task(stream.write(HEARTBEAT))
            self._beats.add(beat)
            beat.add_done_callback(self._beats.discard)

    async def _check_tokens(self) -> None:
        by_token: dict[str, list[EventStream]] = {}
        for stream in self.open:
            if stream.principal.token_id is not None:
                by_token.setdefault(stream.principal.token_id, []).append(stream)
        for token_id, streams in by_token.items():
            found = await self._keeper.principal_of_token(token_id)
            for stream in streams:
                if found is None or ("read" not in found.scopes and "admin" not in found.scopes):
                    stream.end(Unauthorized())


class EventStream:
    """One reader of one conversation."""

    __slots__ = (
        "_ending",
        "_farewell",
        "_items",
        "_pump",
        "_reader",
        "_send",
        "_streams",
        "blocked",
        "principal",
        "written_at",
    )

    def __init__(self, streams: Streams, principal: Principal, items: AsyncIterator[StreamItem]) -> None:
        self._streams = streams
        self._items = items
        self.principal = principal
        self.written_at = 0.0
        self.blocked = False
        self._ending = False
        self._farewell: TurnkeeperError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the reader leaves, the conversation ends, or `end` is called."""
        self._send = send
        self._reader = asyncio.current_task()
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        if scope["method"] == "HEAD" or self._streams.closed:
            await send({"type": "http.response.body", "body": b""})
            return
        await self.write(self._streams.hello)
        self._pump = asyncio.create_task(self._run())
        self._streams.add(self)
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            # `end` cancels a stream whose reader takes nothing; anybody else who cancels means it.
            if not self._ending:
                raise
        finally:
            self._streams.open.discard(self)
            self._pump.cancel()
            with suppress(asyncio.CancelledError):
                await self._pump

    def end(self, farewell: TurnkeeperError | None = None) -> None:
        """End the stream, telling the reader why if there is an error to tell.

        Called again while the reader does not even take that: at once.
        """
        if self._ending:
            if self.blocked and self._reader is not None:
                self._reader.cancel()
            return
        self._ending = True
        self._farewell = farewell
        self._pump.cancel()
        if self.blocked and self._reader is not None:
            self._reader.cancel()

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while the reader's buffers are full."""
        self.blocked = True
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.blocked = False
        self.written_at = self._streams.clock.monotonic()

    async def _run(self) -> None:
        try:
            async with aclosing(self._items) as items:  # type: ignore[type-var]
                async for item in items:
                    await self.write(frame(item))
        except asyncio.CancelledError:
            if not self._ending or self.blocked:
                raise
        except TurnkeeperError as error:
            self._farewell = error
        except Exception:
            log.exception("a stream of %s failed", self.principal.user_id)
            self._farewell = TurnkeeperError(FAILED)
        if self._farewell is not None:
            await self.write(control("error", codec.wire(problem_of(self._farewell))))
        self.blocked = True
        await self._send({"type": "http.response.body", "body": b""})
        self.blocked = False
