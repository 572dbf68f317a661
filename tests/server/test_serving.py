"""The server process from inside: what it answers while it starts, and how it stands down."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from turnkeeper.app import Keeper
from turnkeeper.errors import StoreDamaged
from turnkeeper.server.serving import Listening, bind, serve
from turnkeeper.server.standing import Standing, read_standing, write_standing
from turnkeeper.settings import Settings
from turnkeeper.testing.until import until


class Process:
    """`serve` in this process, with a Keeper that opens when the test says so."""

    def __init__(self, data: Path, **settings: object) -> None:
        self.data = data
        self.settings = Settings(**settings)  # type: ignore[arg-type]
        self.go = asyncio.Event()
        self.announced: list[Listening] = []
        self.keeper: Keeper | None = None
        bound = bind("127.0.0.1", 0, remote=False)
        self.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        self.task = asyncio.create_task(
            serve(self._open, self.settings, bound, data=data, announce=self.announced.append)
        )

    async def _open(self) -> Keeper:
        await self.go.wait()
        self.keeper = await Keeper.open(self.data, settings=self.settings)
        return self.keeper

    async def get(self, path: str) -> httpx2.Response:
        async with httpx2.AsyncClient(base_url=self.url) as client:
            return await client.get(path)

    async def listens(self) -> None:
        async def answers() -> bool:
            try:
                await self.get("/healthz")
            except httpx2.TransportError:
                return False
            return True

        await until(answers, "an answer")

    async def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await self.task


async def test_until_interrupted_work_is_taken_up_everything_is_answered_503(tmp_path: Path) -> None:
    process = Process(tmp_path / "data")
    await process.listens()
    assert (await process.get("/healthz")).json() == {"ok": True, "ready": False}
    assert (await process.get("/readyz")).status_code == 503
    early = await process.get("/v1/conversations")
    assert (early.status_code, early.json()["code"], early.json()["retryable"]) == (503, "starting", True)
    assert early.headers["retry-after"] == "1"
    assert process.announced == []
    assert read_standing(process.data) is None
    process.go.set()
    await until(lambda: process.announced, "the announcement")
    assert (await process.get("/readyz")).status_code == 200
    assert (await process.get("/v1/conversations")).status_code == 401
    await process.stop()
    assert read_standing(process.data) is None


async def test_an_opening_that_fails_closes_the_socket_and_is_raised(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "turnkeeper.db").write_bytes(b"no database" * 1000)
    process = Process(data)
    process.go.set()
    with pytest.raises(StoreDamaged):
        await process.task
    with pytest.raises(httpx2.TransportError):
        await process.get("/healthz")


async def test_a_stop_while_opening_is_honoured_after_it(tmp_path: Path) -> None:
    process = Process(tmp_path / "data")
    await process.listens()
    os.kill(os.getpid(), signal.SIGTERM)
    process.go.set()
    await process.task
    assert process.announced == []
    assert process.keeper is not None
    assert process.keeper.ready is False


async def test_a_file_that_is_older_than_a_restored_store_does_not_stop_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    write_standing(data, Standing(url="http://127.0.0.1:1", token="t", token_id="k_gone", pid=1, version="0"))
    process = Process(data)
    process.go.set()
    await until(lambda: process.announced, "the announcement")
    standing = read_standing(data)
    assert standing is not None
    assert standing.url == process.url
    await process.stop()


FLOODS = {
    "one header without end": (b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ", b"y" * 65_536),
    "headers without end": (b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n", b"x: yyyyyyyyyyyy\r\n" * 4_096),
    "an address without end": (b"GET /", b"y" * 65_536),
    "trailers without end": (
        b"POST /v1/conversations HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
        b"x: yyyyyyyyyyyy\r\n" * 4_096,
    ),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_request_that_never_gets_to_its_body_is_cut_off(tmp_path: Path, flood: str) -> None:
    begin, more = FLOODS[flood]
    process = Process(tmp_path / "data")
    await process.listens()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(process.url.rpartition(":")[2]))
    sent = 0
    try:
        writer.write(begin)
        while sent < 30_000_000:
            writer.write(more)
            await writer.drain()
            sent += len(more)
            if reader.at_eof():
                break
    except ConnectionError:
        pass
    finally:
        writer.close()
    assert sent < 30_000_000, "the server took in all of it"
    assert (await process.get("/healthz")).status_code == 200
    process.go.set()
    await until(lambda: process.announced, "the announcement")
    await process.stop()


async def test_a_body_in_small_pieces_is_no_flood_of_headers(tmp_path: Path) -> None:
    process = Process(tmp_path / "data", header_bytes_max=2_000)
    process.go.set()
    await until(lambda: process.announced, "the announcement")
    standing = read_standing(process.data)
    assert standing is not None

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(2_000):
            yield b"ab"

    headers = {"authorization": f"Bearer {standing.token}"}
    async with httpx2.AsyncClient(base_url=process.url) as client:
        answer = await client.post("/v1/attachments?name=a", content=pieces(), headers=headers)
    assert answer.status_code == 201, answer.text
    await process.stop()
