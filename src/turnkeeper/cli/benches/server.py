"""The HTTP server: accepting turns beside an empty POST, streams' memory, idle cost and fan-out.

The server is this project's own, in a process of its own (run as a module), with one more route that
reads a body and does nothing; the load comes from another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from turnkeeper.testing.bench import Row, at_least, clock, median

CONNECTIONS = 64
CONVERSATIONS = 1000
"""So many that no queue fills up while turns are only accepted."""
SECONDS = 2.0
REPETITIONS = 5
IDLE_STREAMS = 1000
FAN_OUT = 100


async def run() -> list[Row]:
    """All rows of the server's bench."""
    async with _server(runner="settle") as settling, _server(runner="never") as accepting:
        found: dict[str, list[float]] = {"empty": [], "accept": [], "run": []}
        for _ in range(REPETITIONS):
            found["empty"].append(await _rate(accepting, empty=True))
            found["accept"].append(await _rate(accepting))
            found["run"].append(await _rate(settling))
        empty = median(found["empty"])
        of = "empty POST"
        rows = [
            Row(name="empty POST, 64 connections", value=empty, unit="/s"),
            at_least(
                "POST turn, accepting only", median(found["accept"]), "/s", of=of, base=empty, limit=0.45
            ),
            at_least(
                "POST turn, turns running and settling",
                median(found["run"]),
                "/s",
                of=of,
                base=empty,
                limit=0.3,
            ),
        ]
    async with _server(runner="settle") as streaming:
        rows += await _streams(streaming)
    return rows


async def _rate(server: dict[str, Any], *, empty: bool = False) -> float:
    spec = {
        "host": server["host"],
        "token": server["token"],
        "salt": secrets.token_hex(4),
        "body": '{"text":"hello"}',
        "connections": CONNECTIONS,
        "seconds": SECONDS,
        "paths": ["/bench/empty"] if empty else server["paths"],
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "turnkeeper.cli.benches.client",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(json.dumps(spec).encode())
    answer = json.loads(out)
    refused = {status: n for status, n in answer["statuses"].items() if status not in ("202", "204")}
    if refused:
        msg = f"the bench was refused: {refused}"
        raise RuntimeError(msg)
    return float(answer["rate"])


@contextlib.asynccontextmanager
async def _server(*, runner: str) -> AsyncIterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "turnkeeper.cli.benches.server",
            folder,
            runner,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), 30)
            yield {**json.loads(line), "pid": process.pid}
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


# --- streams


async def _streams(server: dict[str, Any]) -> list[Row]:
    path = server["paths"][0].rsplit("/", 1)[0] + "/events"
    pid = server["pid"]
    before = _rss_kb(pid)
    writers = [await _open_stream(server, path) for _ in range(IDLE_STREAMS)]
    await asyncio.sleep(1.0)
    per_stream = (_rss_kb(pid) - before) / IDLE_STREAMS
    ticks, began = _cpu_ticks(pid), clock()
    await asyncio.sleep(20.0)
    idle = (_cpu_ticks(pid) - ticks) / os.sysconf("SC_CLK_TCK") / (clock() - began) * 100
    for _, writer in writers[FAN_OUT:]:
        writer.close()
    await asyncio.sleep(1.0)
    delays = [await _fan_out(server, [reader for reader, _ in writers[:FAN_OUT]]) for _ in range(20)]
    for _, writer in writers[:FAN_OUT]:
        writer.close()
    reach = median(delays) * 1000
    return [
        Row(name="an open stream", value=per_stream, unit="kB", goal="≤ 32 kB", met=per_stream <= 32),
        Row(
            name=f"{IDLE_STREAMS} idle streams with heartbeats",
            value=idle,
            unit="% of a core",
            goal="< 2 %",
            met=idle < 2,
        ),
        Row(
            name=f"one event to {FAN_OUT} streams, the last one",
            value=reach,
            unit="ms",
            goal="≤ 10 ms",
            met=reach <= 10,
        ),
    ]


async def _open_stream(
    server: dict[str, Any], path: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server["host"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: {server['host']}\r\nAuthorization: Bearer {server['token']}\r\n"
        "Accept: text/event-stream\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def _fan_out(server: dict[str, Any], readers: list[asyncio.StreamReader]) -> float:
    """Seconds from the rename's answer beginning to the last stream that showed it."""
    mark = f"mark-{secrets.token_hex(6)}"
    host, port = server["host"].split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    conversation = server["paths"][0].rsplit("/", 1)[0]
    body = json.dumps({"title": mark}).encode()
    waits = [asyncio.ensure_future(reader.readuntil(mark.encode())) for reader in readers]
    began = clock()
    writer.write(
        f"PATCH {conversation} HTTP/1.1\r\nHost: {server['host']}\r\nAuthorization: Bearer {server['token']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await asyncio.gather(*waits)
    spent = clock() - began
    writer.close()
    return spent


def _rss_kb(pid: int) -> float:
    return float(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


# --- the server process


class _Settling:
    """A runner that settles every turn at once (the bench measures the way in, not an agent)."""

    async def run(self, turn: Any) -> Any:
        from turnkeeper.port.runner import Answered

        return Answered()

    async def close(self) -> None:
        return


class _Never:
    """A runner that never answers, so that everything after the first turn only waits."""

    async def run(self, turn: Any) -> Any:
        from turnkeeper.port.runner import Stopped

        await turn.wait_stopping()
        return Stopped()

    async def close(self) -> None:
        return


async def _serve(folder: str, runner: str) -> None:
    import uvicorn

    from turnkeeper.app import OPERATOR, Keeper
    from turnkeeper.conversation.parts import Text
    from turnkeeper.server.application import create_app
    from turnkeeper.server.serving import calm_collector, configure
    from turnkeeper.settings import Settings

    settings = Settings()
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)
    port = listening.getsockname()[1]
    made = _Settling() if runner == "settle" else _Never()
    async with await Keeper.open(folder, settings=settings, runners={"bench": made}) as keeper:
        token, _ = await keeper.create_token()
        paths = []
        for _ in range(CONNECTIONS if runner == "settle" else CONVERSATIONS):
            view = await keeper.create_conversation(OPERATOR, "bench", "bench")
            paths.append(f"/v1/conversations/{view.conversation_id}/turns")
            if runner == "never":
                first = (Text("hold the lane"),)
                await keeper.submit(OPERATOR, view.conversation_id, key="first", parts=first)
        app = create_app(keeper, port=port)

        async def with_empty(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["path"] == "/bench/empty":
                while (await receive()).get("more_body"):
                    pass
                headers = [(b"content-length", b"0")]
                await send({"type": "http.response.start", "status": 204, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
            await app(scope, receive, send)

        calm_collector()
        server = uvicorn.Server(configure(with_empty, settings))
        print(json.dumps({"host": f"127.0.0.1:{port}", "token": token, "paths": paths}), flush=True)
        await server.serve(sockets=[listening])


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(sys.argv[1], sys.argv[2]))
