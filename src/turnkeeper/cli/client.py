"""A client of the HTTP interface for the command line: requests, and event streams that come back by themselves.

It is written on the standard library alone, because every verb pays for what it imports. A submission that got
no answer is sent again with the same key until it gets one (`Client.submit`). A stream that breaks is opened
again after the last id that was seen (`Client.follow`), so nothing is missed and nothing comes twice.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from turnkeeper.errors import TurnkeeperError

REQUEST_SECONDS = 60.0
"""Longest wait for the next byte of an answer."""

STREAM_SILENCE_SECONDS = 45.0
"""Three heartbeats: a stream that is silent for so long is lost."""

RESEND_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)

RECONNECT_PAUSES_SECONDS = (0.1, 0.3, 1.0, 2.0, 5.0)

COPY_BYTES = 1 << 16


class Unreachable(TurnkeeperError):
    """The server {url} does not answer ({why}). Start it with `turnkeeper serve`, or give another --url or --data."""

    code = "unreachable"


class Refused(TurnkeeperError):
    """The server refused: {sentence_of_server}"""

    code = "refused"

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.problem = dict(problem)
        super().__init__(str(problem.get("detail") or f"The server answered {status}."))
        self.http_status = status

    @property
    def retry_after_seconds(self) -> float | None:
        """How long the server asks to wait, if it does."""
        value = self.problem.get("retry_after_seconds")
        return None if value is None else float(value)


@dataclass(frozen=True)
class Frame:
    """One event of a stream. `seq` is None for what moves no cursor."""

    name: str
    seq: int | None
    data: Any


class Client:
    """One server, one token. Not for several threads at a time; `another()` gives each its own."""

    def __init__(self, url: str, token: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise TurnkeeperError(f"{url} is no address of a server; write it like http://127.0.0.1:8321.")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._https = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._token = token
        self._sleep = sleep
        self._connection: http.client.HTTPConnection | None = None

    def another(self) -> Client:
        """A client of the same server with a connection of its own."""
        return Client(self.url, self._token, sleep=self._sleep)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- requests

    def get(self, path: str, **query: Any) -> Any:
        """The JSON of a GET. `query` values of None are left out."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._json("GET", f"{path}?{urlencode(given)}" if given else path)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        """The JSON of a POST; header names are written with underscores."""
        return self._json("POST", path, body, {name.replace("_", "-"): v for name, v in headers.items()})

    def delete(self, path: str) -> Any:
        """The JSON of a DELETE."""
        return self._json("DELETE", path)

    def submit(self, conversation_id: str, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message; one that got no answer is sent again with the same key. Raises Refused, Unreachable."""
        pauses = iter(RESEND_PAUSES_SECONDS)
        while True:
            try:
                accepted: dict[str, Any] = self.post(
                    f"/v1/conversations/{quote(conversation_id, safe='')}/turns", body, Idempotency_Key=key
                )
                return accepted
            except (Unreachable, Refused) as error:
                again = isinstance(error, Unreachable) or error.problem.get("code") in {
                    "key_in_flight",
                    "store_busy",
                    "stopping",
                    "starting",
                }
                pause = next(pauses, None) if again else None
                if pause is None:
                    raise
                self._sleep(pause)

    def download(self, path: str, into: IO[bytes], progress: Callable[[int, int | None], None]) -> int:
        """Copy an answer's bytes; `progress(done, total or None)` after each piece. Returns the size."""
        response = self._send("GET", path, None, {})
        total = response.getheader("content-length")
        done = 0
        while piece := response.read(COPY_BYTES):
            into.write(piece)
            done += len(piece)
            progress(done, None if total is None else int(total))
        if total is not None and done != int(total):
            raise Unreachable(url=self.url, why="the answer broke off")
        return done

    def _json(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body).encode("ascii")
        response = self._send(method, path, data, headers or {})
        content = response.read()
        try:
            return json.loads(content) if content else None
        except ValueError:
            raise Unreachable(url=self.url, why="its answer is not JSON") from None

    def _send(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        sent = {"Authorization": f"Bearer {self._token}", **headers}
        if data is not None:
            sent["Content-Type"] = "application/json"
        fresh = self._connection is None
        try:
            response = self._once(method, path, data, sent)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # A kept connection may have been closed by the server while it lay idle: once more, on a new one.
            # What changes something is sent again only by those who have a key for it.
            if fresh or method not in {"GET", "DELETE"}:
                raise Unreachable(url=self.url, why=_why(error)) from None
            try:
                response = self._once(method, path, data, sent)
            except (OSError, http.client.HTTPException) as second:
                self.close()
                raise Unreachable(url=self.url, why=_why(second)) from None
        if response.status >= 400:
            raise Refused(response.status, _problem(response.read()))
        return response

    def _once(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._connect(REQUEST_SECONDS)
        self._connection.request(method, path, body=data, headers=dict(headers))
        return self._connection.getresponse()

    def _connect(self, timeout_seconds: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=timeout_seconds)

    # -- streams

    def events(self, conversation_id: str, *, after: int, epoch: str | None = None) -> Iterator[Frame]:
        """One stream, until it breaks or the server ends it. Raises Refused, Unreachable."""
        query = {"after": str(after)} | ({} if epoch is None else {"epoch": epoch})
        connection = self._connect(STREAM_SILENCE_SECONDS)
        try:
            connection.request(
                "GET",
                f"/v1/conversations/{quote(conversation_id, safe='')}/events?{urlencode(query)}",
                headers={"Authorization": f"Bearer {self._token}", "Accept": "text/event-stream"},
            )
            response = connection.getresponse()
            if response.status >= 400:
                raise Refused(response.status, _problem(response.read()))
            yield from read_frames(response)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(url=self.url, why=_why(error)) from None
        finally:
            connection.close()

    def follow(
        self,
        conversation_id: str,
        *,
        after: int,
        epoch: str | None = None,
        lost: Callable[[], None] = lambda: None,
        found: Callable[[], None] = lambda: None,
    ) -> Iterator[Frame]:
        """Streams for ever, one after the other. `lost` and `found` tell of a connection that broke and came back.

        Raises Refused when the server will not have us any more (revoked token, deleted conversation). After a
        resync frame it goes on from where that frame says.
        """
        cursor, failures = after, 0
        while True:
            try:
                for frame in self.events(conversation_id, after=cursor, epoch=epoch):
                    if failures:
                        failures = 0
                        found()
                    if frame.seq is not None:
                        cursor = frame.seq
                    elif frame.name == "resync":
                        cursor, epoch = frame.data["as_of_seq"], frame.data["epoch"]
                    elif frame.name == "error":
                        raise Refused(int(frame.data.get("status", 500)), frame.data)
                    yield frame
            except Unreachable:
                pass
            except Refused as error:
                if error.http_status < 500 and error.http_status != 429:
                    raise
            if failures == 0:
                lost()
            self._sleep(RECONNECT_PAUSES_SECONDS[min(failures, len(RECONNECT_PAUSES_SECONDS) - 1)])
            failures += 1


def read_frames(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[Frame]:
    """The events of a server-sent event stream; comments and `retry` are passed over."""
    name, seq, data = "message", None, list[str]()
    for raw in lines:
        line = raw.decode("utf-8").rstrip("\r\n")
        if not line:
            if data:
                yield Frame(name, seq, json.loads("\n".join(data)))
            name, seq, data = "message", None, []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "id":
            seq = int(value)
        elif field == "event":
            name = value


def _problem(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
