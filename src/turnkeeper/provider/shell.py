"""The thin shell around a model SDK: sends ready bytes, keeps the deadlines, reads the stream, says what failed.

The SDK makes the connection and decodes the stream; it never retries (max_retries=0) and its own time-outs
are off. Our three timers stand here: first token, stall, total. Only an event that carries data resets the
stall; the time in which our own caller is busy counts against nobody.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from turnkeeper.conversation.messages import ERRORED, Message, Origin
from turnkeeper.conversation.turns import Failure
from turnkeeper.port.provider import Deadlines, ModelCall, ProviderEvent, ProviderFailed, ToolSpec
from turnkeeper.provider.build import Builder, Report
from turnkeeper.provider.exceptions import from_exception
from turnkeeper.provider.failures import failure, from_error
from turnkeeper.provider.reading import (
    REPLY_CHARS_MAX,
    ErrorEvent,
    Garbled,
    MakesReader,
    Oversized,
    Reader,
)
from turnkeeper.provider.wire import Files, Violation

T = TypeVar("T")

CONNECT_SECONDS_MAX: Final = 10.0
"""How long a connection may take to be made; a shorter first-token deadline wins."""
LATE_SECONDS: Final = 0.5
"""How late a timer may be until it is this process that was busy, and not the provider that was silent."""


class Expired(Exception):
    """A deadline passed while waiting; `seconds` were measured."""

    def __init__(self, kind: str, seconds: float) -> None:
        self.kind = kind
        self.seconds = seconds
        super().__init__(kind)


class NotAnApi(Exception):
    """The address answered, but not like a model API."""


class Answer:
    """An answer that has begun: decoded events, the request's id, and what to close."""

    def __init__(
        self, events: AsyncIterator[Any], request_id: str | None, response: Any, whole: Any = None
    ) -> None:
        self.events = events
        self.request_id = request_id
        self.whole = whole
        """The complete answer, where a server ignored that a stream was asked for."""
        self._response = response

    async def close(self) -> None:
        """Let go of the connection."""
        close = getattr(self.events, "close", None) or getattr(self.events, "aclose", None)
        if close is not None:
            await close()
        await self._response.aclose()  # a generator that was never begun closes nothing


async def begin_answer(events: AsyncIterator[Any], response: Any, request_id: str | None) -> Answer:
    """The answer of a 2xx response. Raises NotAnApi; whatever is raised, the connection is let go of."""
    try:
        whole = None
        if check_answer(response.status_code, response.headers.get("content-type", "")) == "json":
            await response.aread()
            whole = response.json()
    except BaseException:
        await response.aclose()
        raise
    return Answer(events, request_id, response, whole)


class Watch:
    """The timers of one call."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._began = time.monotonic()
        self._silent = 0.0
        self.spoke = False

    @property
    def elapsed(self) -> float:
        """Seconds since the request was sent."""
        return time.monotonic() - self._began

    def heard(self) -> None:
        """Data came."""
        self.spoke = True
        self._silent = 0.0

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """The awaited value. Raises Expired at the first deadline that passes."""
        began = time.monotonic()
        d = self._deadlines
        total = self._began + d.total_seconds - began
        left = d.stall_seconds - self._silent if self.spoke else self._began + d.first_token_seconds - began
        due = _Due(max(0.0, min(left, total)), last_seconds=total)
        try:
            async with due.timer:
                return await awaitable
        except TimeoutError:
            if not due.timer.expired():
                raise
            now = time.monotonic()
            if total <= left:
                raise Expired("total", now - self._began) from None
            if self.spoke:
                raise Expired("stall", self._silent + now - began) from None
            raise Expired("first_token", now - self._began) from None
        finally:
            due.handle.cancel()
            self._silent += time.monotonic() - began


class _Due:
    """A deadline that does not count against the provider what this process was late by.

    A process that is crowded looks at its sockets late, and at its timers just as late: then the data may have
    been there all the time. A timer that fires late by more than LATE_SECONDS is set once more for as long as it
    was late, and so on while it fires late; `last_seconds`, the deadline of the whole call, is the end of that.
    """

    def __init__(self, seconds: float, *, last_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._when = self._loop.time() + seconds
        self._last = self._loop.time() + last_seconds
        self.timer = asyncio.timeout(None)
        self.handle = self._loop.call_at(self._when, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        late = now - self._when
        if late > LATE_SECONDS and now < self._last:
            self._when = min(now + late, self._last)
            self.handle = self._loop.call_at(self._when, self._look)
            return
        self.timer.reschedule(now)


class Shell:
    """A provider on an SDK. Subclasses send; the rest stands here."""

    def __init__(
        self,
        *,
        dialect: str,
        origin: Origin,
        base_url: str,
        make_reader: MakesReader,
        fields: dict[str, Any],
        files: Files | None = None,
        report: Report | None = None,
    ) -> None:
        self.dialect = dialect
        self.origin = origin
        self.where = address_of(base_url)
        self._make_reader = make_reader
        self._client: Any = None
        self._opening = threading.Lock()
        self._builder = Builder(dialect, origin, files=files, report=report, fields=fields)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.origin.model} at {self.where}>"

    def build(
        self,
        feed: Sequence[Message],
        *,
        instructions: str,
        tools: Sequence[ToolSpec],
        options: dict[str, Any],
    ) -> bytes:
        """The request body for a feed: encoded in this provider's dialect and validated."""
        return self._builder.build(feed, instructions=instructions, tools=tools, options=options)

    @property
    def broken(self) -> tuple[Violation, ...]:
        """The rules that the request built last broke before it was repaired: a bug of ours."""
        return self._builder.broken

    async def close(self) -> None:
        """Close connections."""
        if self._client is not None:
            client, self._client = self._client, None
            close = getattr(client, "aclose", None) or client.close
            await close()

    async def connect(self) -> None:
        """Load the SDK and make its client, once; loading takes a second and is done off the event loop."""
        if self._client is None:
            await asyncio.to_thread(self._open_once)

    def _open_once(self) -> None:
        with self._opening:
            if self._client is None:
                self._client = self.open_client()

    def open_client(self) -> Any:
        """The client, made. Called once, in a thread."""
        raise NotImplementedError

    async def send(self, body: bytes) -> Answer:
        """Send the request and return when the answer begins. Raises whatever the SDK raises."""
        raise NotImplementedError

    async def stream(self, call: ModelCall) -> AsyncIterator[ProviderEvent]:
        """Make the call. Yields deltas, then exactly one Reply; or raises ProviderFailed."""
        await self.connect()
        reader = self._make_reader(self._builder.names)
        watch = Watch(call.deadlines)
        answer: Answer | None = None
        try:
            try:
                answer = await watch.wait(self.send(call.body))
                if answer.whole is not None:
                    for one in reader.feed_whole(answer.whole):
                        watch.heard()
                        yield one
                while True:
                    try:
                        event = await watch.wait(anext(answer.events))
                    except StopAsyncIteration:
                        break
                    said = reader.feed(event)
                    if said:
                        watch.heard()
                        for one in said:
                            yield one
            except Exception as error:
                # What comes after the end of a whole answer (a usage count, the closing) may be missing.
                if not reader.complete:
                    raise self._failed(error, reader, watch) from error
            if not reader.complete:
                why = "it ended without an end" if watch.spoke else "it ended without a word"
                raise self._given(failure("broken_stream", seconds=watch.elapsed, why=why), reader)
            try:
                reply = reader.reply(self.origin)
            except Garbled as error:
                raise self._failed(error, reader, watch) from error
            if answer is not None and answer.request_id is not None:
                reply = msgspec.structs.replace(reply, request_id=answer.request_id)
            yield reply
        finally:
            if answer is not None:
                await answer.close()

    def _failed(self, error: Exception, reader: Reader, watch: Watch) -> ProviderFailed:
        return self._given(self.classify(error, watch), reader)

    def classify(self, error: Exception, watch: Watch) -> Failure:
        """The failure value of whatever went wrong during a call."""
        if isinstance(error, Expired):
            return failure(error.kind, seconds=error.seconds)
        if isinstance(error, ErrorEvent):
            return from_error(error.body, status=None, where=self.where)
        if isinstance(error, Garbled):
            return failure(
                "broken_stream", seconds=watch.elapsed, why="it was not readable", detail=str(error)
            )
        if isinstance(error, Oversized):
            return failure("oversized", limit=REPLY_CHARS_MAX)
        if isinstance(error, NotAnApi):
            return failure("not_an_api", where=self.where, why=str(error))
        return from_exception(
            error, seconds=watch.elapsed, spoke=watch.spoke, where=self.where, now=time.time()
        )

    def _given(self, why: Failure, reader: Reader) -> ProviderFailed:
        try:
            partial: Message | None = reader.message(self.origin, standing=ERRORED, error=why.kind)
        except Garbled:
            partial = None
        if partial is not None and (not partial.parts or why.kind == "oversized"):
            partial = None
        return ProviderFailed(why, partial=partial, usage=reader.usage)


def address_of(base_url: str) -> str:
    """Scheme, host and port of an address, without anything secret that may stand in it."""
    parts = urlsplit(base_url)
    host = parts.hostname or base_url.rsplit("@", maxsplit=1)[-1]
    return f"{parts.scheme or 'http'}://{host}{'' if parts.port is None else f':{parts.port}'}"


def check_answer(status: int, content_type: str) -> str:
    """What a 2xx answer holds by its content type: stream or json. Raises NotAnApi for anything else."""
    kind = content_type.split(";", maxsplit=1)[0].strip().lower()
    if kind == "text/event-stream":
        return "stream"
    if kind == "application/json":
        return "json"
    if kind in ("", "application/octet-stream", "text/plain", "application/x-ndjson"):
        return "stream"
    raise NotAnApi(f"HTTP status {status} with {'a web page' if kind == 'text/html' else kind}")
