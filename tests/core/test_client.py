"""The command line's client: resending with the same key, coming back with the cursor, reading frames."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from turnkeeper.cli.client import Client, Refused, Unreachable, read_frames

Play = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(*plays: Play) -> Iterator[tuple[str, list[tuple[str, str, dict[str, str], bytes]]]]:
    """A real HTTP server that answers one request after the other as told; the requests it got."""
    left = list(plays)
    got: list[tuple[str, str, dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            got.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            left.pop(0)(self)

        do_GET = do_POST = do_DELETE = handle_any

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass

    running = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", got
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def answer(status: int, body: Any) -> Play:
    def play(handler: BaseHTTPRequestHandler) -> None:
        data = json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return play


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """The request was taken, and no answer comes: it may have been stored or not."""
    handler.close_connection = True
    handler.connection.close()


def stream(text: str) -> Play:
    def play(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.wfile.write(text.encode())
        handler.close_connection = True

    return play


def client(url: str) -> tuple[Client, list[float]]:
    pauses: list[float] = []
    return Client(url, "secret", sleep=pauses.append), pauses


def test_a_send_without_an_answer_is_sent_again_with_the_same_key_and_body() -> None:
    accepted = {"turn_id": "t1", "outcome": "started", "position": None}
    busy = {"code": "key_in_flight", "detail": "still being stored"}
    with server(hang_up, answer(409, busy), answer(202, accepted)) as (url, got):
        one, pauses = client(url)
        assert one.submit("c1", "k1", {"text": "hello \ud800"}) == accepted
        one.close()
    assert len(pauses) == 2
    assert {(method, path, headers["idempotency-key"], body) for method, path, headers, body in got} == {
        ("POST", "/v1/conversations/c1/turns", "k1", b'{"text": "hello \\ud800"}')
    }
    assert all(headers["authorization"] == "Bearer secret" for _, _, headers, _ in got)


def test_a_refusal_is_not_sent_again_and_carries_the_servers_sentence() -> None:
    problem = {"code": "queue_full", "detail": "32 messages are waiting.", "retry_after_seconds": 5}
    with server(answer(429, problem)) as (url, got):
        one, _ = client(url)
        with pytest.raises(Refused, match="32 messages are waiting") as caught:
            one.submit("c1", "k1", {"text": "x"})
        one.close()
    assert (caught.value.http_status, caught.value.retry_after_seconds) == (429, 5.0)
    assert len(got) == 1


def test_a_post_without_a_key_is_never_sent_twice() -> None:
    with server(answer(200, {}), hang_up) as (url, got):
        one, _ = client(url)
        one.post("/v1/turns/t1/retry")
        with pytest.raises(Unreachable):
            one.post("/v1/turns/t1/retry")
    assert len(got) == 2


def test_a_get_survives_a_connection_that_was_closed_while_it_lay_idle() -> None:
    with server(answer(200, {"a": 1}), hang_up, answer(200, {"a": 2})) as (url, _):
        one, _ = client(url)
        assert one.get("/x") == {"a": 1}
        assert one.get("/x") == {"a": 2}
        one.close()


def test_a_server_that_is_not_there_is_said_in_a_sentence() -> None:
    one, pauses = client("http://127.0.0.1:1")
    with pytest.raises(Unreachable, match="connection refused"):
        one.submit("c1", "k1", {"text": "x"})
    assert sum(pauses) > 10, "a restart of the server is waited for"


def test_a_stream_comes_back_with_the_last_id_and_shows_nothing_twice() -> None:
    first = "retry: 1\n\nid: 1\ndata: {}\n\n: heartbeat\n\nevent: delta\ndata: {}\n\nid: 2\ndata: {}\n\nid: 3\ndata"
    second = "id: 3\ndata: {}\n\n"
    with server(stream(first), hang_up, answer(503, {}), stream(second), answer(404, {"detail": "gone"})) as (
        url,
        got,
    ):
        one, _ = client(url)
        told: list[str] = []
        frames: list[tuple[str, int | None]] = []
        following = one.follow(
            "c1", after=0, epoch="e", lost=lambda: told.append("lost"), found=lambda: told.append("found")
        )
        with pytest.raises(Refused, match="gone"):
            frames.extend((frame.name, frame.seq) for frame in following)
    assert frames == [("message", 1), ("delta", None), ("message", 2), ("message", 3)]
    assert [path.partition("?")[2] for _, path, _, _ in got] == [
        "after=0&epoch=e", "after=2&epoch=e", "after=2&epoch=e", "after=2&epoch=e", "after=3&epoch=e",
    ]  # fmt: skip
    assert told == ["lost", "found", "lost"]


def test_after_a_resync_the_new_epoch_and_cursor_are_used() -> None:
    resync = 'event: resync\ndata: {"reason": "epoch", "as_of_seq": 40, "epoch": "new"}\n\n'
    with server(stream(resync), answer(401, {})) as (url, got):
        one, _ = client(url)
        with pytest.raises(Refused):
            list(one.follow("c1", after=3, epoch="old"))
    assert got[1][1].endswith("after=40&epoch=new")


def test_a_revoked_token_ends_following() -> None:
    text = 'event: error\ndata: {"status": 401, "code": "unauthorized", "detail": "No valid token."}\n\n'
    with server(stream(text)) as (url, _):
        one, _ = client(url)
        with pytest.raises(Refused, match="No valid token"):
            list(one.follow("c1", after=0))


def test_frames_are_read_as_the_standard_has_them() -> None:
    lines = [
        b": comment\n",
        b"data: 1\n",
        b"\n",
        b"id:7\r\n",
        b"event:x\n",
        b"data:[1,\n",
        b"data: 2]\n",
        b"\n",
        b"id: 9\n",
        b"\n",
    ]
    assert [(f.name, f.seq, f.data) for f in read_frames(iter(lines))] == [
        ("message", None, 1),
        ("x", 7, [1, 2]),
    ]


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "::"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Exception, match="is no address of a server"):
        Client(url, "t")
