"""The guarded HTTP client: every connection is looked at when it is made, every answer has its bounds.

No proxy, no `.netrc`, no cookie of the surroundings is used. Bodies are asked for unpacked, because a small
packed body can be a large one; a body that comes packed all the same is refused.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpcore2
import httpx2
from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream

from turnkeeper.errors import AddressRefused
from turnkeeper.outbound.addresses import Bounds, Reach

REDIRECTS_MAX = 3


class AnswerTooLarge(httpx2.ReadError):
    """The body is larger than it may be, or packed."""


class _GuardedNetwork(AsyncNetworkBackend):
    """Connects to what a name stands for now, and only if all of it may be reached."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the shape is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        """A connection to the first address of `host` that answers, all within `timeout` seconds.

        Raises AddressRefused, ConnectError, ConnectTimeout.
        """
        try:
            # One bound around it all: a name may be slow to look up, and may stand for a hundred dead addresses.
            async with asyncio.timeout(timeout):
                return await self._connect(host, port, timeout, local_address, socket_options)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"{host} did not answer within {timeout:g} s") from error

    async def _connect(
        self,
        host: str,
        port: int,
        timeout: float | None,  # noqa: ASYNC109 - the shape is httpcore's
        local_address: str | None,
        socket_options: Iterable[Any] | None,
    ) -> AsyncNetworkStream:
        addresses = await self._addresses(host, port)
        for address in addresses:
            why = self._reach.refusal(address)
            if why is not None:
                raise AddressRefused(url=host, why=why)
        trouble: Exception | None = None
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                trouble = error
        assert trouble is not None
        raise trouble

    async def _addresses(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"the name {host} is not known: {error}") from error
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the shape is httpcore's
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        """Never: a socket file is no address that anybody may supply."""
        raise AddressRefused(url=path, why="it is a socket file")

    async def sleep(self, seconds: float) -> None:
        """Wait between two tries."""
        await asyncio.sleep(seconds)


class _BoundedStream(httpx2.AsyncByteStream):
    """A body that ends with AnswerTooLarge once it is longer than it may be."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit_bytes: int) -> None:
        self._inner = inner
        self._limit_bytes = limit_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._inner:
            size += len(piece)
            if size > self._limit_bytes:
                raise AnswerTooLarge(f"the answer is longer than {self._limit_bytes} bytes")
            yield piece

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._inner.aclose()


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """The transport of guarded clients. Raises AddressRefused, AnswerTooLarge, and httpx2's own errors."""

    def __init__(self, reach: Reach, bounds: Bounds) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(trust_env=False),
            network_backend=_GuardedNetwork(reach),
        )
        self._bounds = bounds

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request, redirects not followed."""
        if request.url.scheme not in ("http", "https"):
            raise AddressRefused(url=str(request.url)[:200], why="only http and https are spoken")
        if request.url.userinfo:
            raise AddressRefused(url=request.url.host, why="it carries a name or password")
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        packed = response.headers.get("content-encoding", "identity")
        if packed.lower() != "identity":
            await response.aclose()
            raise AnswerTooLarge(f"the answer is packed ({packed[:20]}), although that was not asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _BoundedStream(response.stream, self._bounds.body_bytes_max)
        return response


def open_guarded(
    reach: Reach, bounds: Bounds | None = None, *, follow_redirects: bool = False
) -> httpx2.AsyncClient:
    """A client that keeps to `reach` and `bounds`; to be closed by who opened it."""
    bounds = bounds or Bounds()
    return httpx2.AsyncClient(
        transport=GuardedTransport(reach, bounds),
        timeout=httpx2.Timeout(bounds.silence_seconds, connect=bounds.connect_seconds),
        follow_redirects=follow_redirects,
        max_redirects=REDIRECTS_MAX,
        trust_env=False,
    )
