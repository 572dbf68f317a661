"""A small HTTP/1.1 load client for loopback: keep-alive connections, ready bytes, nothing parsed that is not needed.

It runs in a process of its own, so that it takes no time of the server's; run as a module it reads what to do from
its standard input, as JSON, and prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any


class _Connection(asyncio.Protocol):
    """One keep-alive connection: sends the next request when the answer to the last one is whole."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._buffer = b""
        self._sent_at = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        if time.perf_counter() >= self._load.until:
            self._transport.close()
            return
        self._sent_at = time.perf_counter()
        self._transport.write(self._load.request())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            at = head.find(b"content-length: ")
            length = int(head[at + 16 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            status = int(head[9:12])
            self._buffer = self._buffer[end + 4 + length :]
            self._load.answered(status, time.perf_counter() - self._sent_at)
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._load.left()


class _Load:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.until = 0.0
        self.count = 0
        self.statuses: dict[int, int] = {}
        self.seconds: list[float] = []
        self.open = 0
        self.done = asyncio.Event()

    def request(self) -> bytes:
        self.count += 1
        paths = self.spec["paths"]
        body = self.spec["body"].encode()
        head = (
            f"POST {paths[self.count % len(paths)]} HTTP/1.1\r\nHost: {self.spec['host']}\r\n"
            f"Authorization: Bearer {self.spec['token']}\r\nIdempotency-Key: {self.spec['salt']}-{self.count}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return bytes(head.encode() + body)

    def answered(self, status: int, seconds: float) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.seconds.append(seconds)

    def left(self) -> None:
        self.open -= 1
        if self.open == 0:
            self.done.set()


async def load(spec: dict[str, Any]) -> dict[str, Any]:
    """Send for `spec.seconds` over `spec.connections` connections; returns rate, times and statuses."""
    made = _Load(spec)
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    made.until = began + spec["seconds"]
    made.open = spec["connections"]
    host, port = spec["host"].split(":")
    for _ in range(spec["connections"]):
        await loop.create_connection(lambda: _Connection(made), host, int(port))
    await made.done.wait()
    spent = time.perf_counter() - began
    times = sorted(made.seconds)
    return {
        "rate": len(times) / spent,
        "p50_ms": times[len(times) // 2] * 1000 if times else 0.0,
        "p99_ms": times[int(len(times) * 0.99)] * 1000 if times else 0.0,
        "statuses": made.statuses,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(load(json.load(sys.stdin)))))
