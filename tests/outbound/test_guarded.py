"""The guarded client: no private address, however it is dressed; no endless answer (DESIGN section 7)."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpcore2
import httpx2
import pytest

from turnkeeper.errors import AddressRefused, SettingInvalid
from turnkeeper.outbound import Bounds, Reach
from turnkeeper.outbound.client import AnswerTooLarge, open_guarded
from turnkeeper.settings import Settings

LOOPBACK = Reach(["127.0.0.1"])


class Site:
    """A loopback site that answers every request with the same bytes and counts its connections."""

    def __init__(self, answer: bytes, *, endless: bool = False) -> None:
        self.answer = answer
        self.endless = endless
        self.connections = 0
        self.seen: list[bytes] = []
        self.url = ""
        self.hold: asyncio.Event | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            self.seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
            while self.endless:
                writer.write(b"x" * 65_536)
                await writer.drain()
            await writer.drain()
            if self.hold is not None:
                await self.hold.wait()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def site(answer: bytes, *, host: str = "127.0.0.1", endless: bool = False) -> AsyncIterator[Site]:
    made = Site(answer, endless=endless)
    server = await asyncio.start_server(made.serve, host, 0)
    made.url = f"http://{host}:{server.sockets[0].getsockname()[1]}/"
    try:
        yield made
    finally:
        server.close()


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "0.0.0.0", "224.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1",
        "::127.0.0.1", "::10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1", "fec0::1", "2606:4700::5efe:7f00:1",
        "2606:4700::200:5efe:a00:1", "192.88.99.1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "not-an-address",
    ],
)  # fmt: skip
def test_a_private_address_is_refused_however_it_is_written(address: str) -> None:
    assert Reach().refusal(address) is not None


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700::1111", "::ffff:93.184.216.34"])
def test_a_public_address_is_reached(address: str) -> None:
    assert Reach().refusal(address) is None


def test_only_what_is_listed_of_the_private_ones_is_reached() -> None:
    reach = Reach(["10.1.0.0/16", "::1"])
    assert reach.refusal("10.1.2.3") is None
    assert reach.refusal("::ffff:10.1.2.3") is None
    assert reach.refusal("::1") is None
    assert reach.refusal("10.2.0.1") is not None
    assert reach.refusal("127.0.0.1") is not None


def test_a_network_that_is_none_is_refused_as_a_setting() -> None:
    with pytest.raises(SettingInvalid):
        Settings.load(private_addresses_allowed=("10.1.0.0/99",))


async def test_an_unlisted_address_is_not_even_connected_to() -> None:
    async with site(answer(b"secret")) as private, open_guarded(Reach()) as client:
        for url in (private.url, private.url.replace("127.0.0.1", "localhost")):
            with pytest.raises(AddressRefused):
                await client.get(url)
        assert private.connections == 0


async def test_a_redirect_is_looked_at_again() -> None:
    async with site(answer(b"secret"), host="127.0.0.2") as private:
        moved = answer(b"", f"location: {private.url}", status="302 Found")
        async with site(moved) as public, open_guarded(LOOPBACK, follow_redirects=True) as client:
            with pytest.raises(AddressRefused):
                await client.get(public.url)
            assert (public.connections, private.connections) == (1, 0)


async def test_redirects_have_an_end() -> None:
    async with site(b"") as ring, open_guarded(LOOPBACK, follow_redirects=True) as client:
        ring.answer = answer(b"", f"location: {ring.url}", status="302 Found")
        with pytest.raises(httpx2.TooManyRedirects):
            await client.get(ring.url)
        assert ring.connections == 4


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://name:secret@127.0.0.1/"])
async def test_other_ways_of_speaking_are_refused(url: str) -> None:
    async with open_guarded(LOOPBACK) as client:
        with pytest.raises((AddressRefused, httpx2.UnsupportedProtocol)) as caught:
            await client.get(url)
        assert "secret" not in str(caught.value)


async def test_an_endless_answer_ends() -> None:
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    async with (
        site(head, endless=True) as flood,
        open_guarded(LOOPBACK, Bounds(body_bytes_max=100_000)) as client,
    ):
        with pytest.raises(AnswerTooLarge):
            await client.get(flood.url)


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False)])
async def test_the_edge_of_the_size(size: int, fits: bool) -> None:
    async with (
        site(answer(b"x" * size)) as one,
        open_guarded(LOOPBACK, Bounds(body_bytes_max=1000)) as client,
    ):
        if fits:
            assert len((await client.get(one.url)).content) == size
        else:
            with pytest.raises(AnswerTooLarge):
                await client.get(one.url)


async def test_a_packed_answer_that_nobody_asked_for_is_refused() -> None:
    packed = answer(gzip.compress(b"x" * 10_000_000), "content-encoding: gzip")
    async with site(packed) as bomb, open_guarded(LOOPBACK) as client:
        with pytest.raises(AnswerTooLarge):
            await client.get(bomb.url)
        assert b"accept-encoding: identity" in bomb.seen[0].lower()


async def test_a_silent_address_is_given_up() -> None:
    async with site(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n") as silent:
        silent.hold = asyncio.Event()
        async with open_guarded(LOOPBACK, Bounds(silence_seconds=0.05)) as client:
            with pytest.raises(httpx2.ReadTimeout):
                await client.get(silent.url)
        silent.hold.set()


async def test_a_proxy_of_the_surroundings_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(answer(b"through the proxy")) as proxy, site(answer(b"direct")) as one:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with open_guarded(LOOPBACK) as client:
            assert (await client.get(one.url)).content == b"direct"
        assert proxy.connections == 0


async def test_a_name_that_is_never_looked_up_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*given: object, **named: object) -> list[object]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    async with open_guarded(LOOPBACK, Bounds(connect_seconds=0.05)) as client:
        with pytest.raises(httpx2.ConnectTimeout):
            await asyncio.wait_for(client.get("http://slow.example/"), 20)


async def test_a_hundred_addresses_that_do_not_answer_cost_one_connection_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    async def many(*given: object, **named: object) -> list[object]:
        return [(0, 0, 0, "", (f"127.0.0.{last}", 80)) for last in range(1, 101)]

    async def silent(self: object, host: str, port: int, timeout: float, *given: object) -> None:
        tried.append(host)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.Event().wait()
        except TimeoutError:
            raise httpcore2.ConnectTimeout from None

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", many)
    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", silent)
    async with open_guarded(Reach(["127.0.0.0/8"]), Bounds(connect_seconds=0.1)) as client:
        with pytest.raises(httpx2.ConnectTimeout):
            await client.get("http://many.example/")
    assert len(tried) < 50
