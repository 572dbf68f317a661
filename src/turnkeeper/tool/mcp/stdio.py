"""The stdio transport: a server that is our child, one JSON-RPC message a line, within bounds.

A line may not be longer than a message may be, and what comes without having been asked for may not be more
than a flood's worth: then the server is ended. Its words on stderr are drained; the last of them are kept
for the sentence that says why it died.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from turnkeeper.tool.mcp.config import McpServer

PASSED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""Variables that every server gets; a secret in ours is so never handed on by accident."""
SAID_BYTES = 2_000
STOP_SECONDS = 2.0
"""How long a server may take to end once its stdin is closed."""


class Child:
    """What is known of the process."""

    def __init__(self) -> None:
        self.said = b""
        """The end of what it wrote to stderr."""
        self.flooded = False
        self.exit: int | None = None
        self.ended: Callable[[], None] = lambda: None
        """Called once when it sends nothing more."""

    def why(self) -> str:
        """Why it is gone, for people."""
        if self.flooded:
            return "it sent more than it may and was ended"
        words = self.said.decode("utf-8", "replace").strip().splitlines()
        tail = f": {words[-1][:300]}" if words else ""
        return f"its process ended (exit {self.exit}){tail}" if self.exit is not None else f"it is gone{tail}"


def environment(server: McpServer) -> dict[str, str]:
    """What the process finds in its environment."""
    names = [*PASSED, *server.env_pass]
    return {**{name: os.environ[name] for name in names if name in os.environ}, **server.env}


@asynccontextmanager
async def open_stdio(
    server: McpServer, child: Child, *, message_bytes_max: int, flood_bytes_max: int
) -> AsyncIterator[tuple[Any, Any]]:
    """Start the server and give its streams of messages. Raises OSError if it cannot be started."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    process = await asyncio.create_subprocess_exec(
        *server.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=server.cwd,
        env=environment(server),
        start_new_session=True,
        limit=message_bytes_max,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    to_session, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_session = anyio.create_memory_object_stream[Any](0)
    unasked = 0

    async def read() -> None:
        nonlocal unasked
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async with to_session:
                while line := await _line(stdout):
                    unasked += len(line)
                    if unasked > flood_bytes_max:
                        break
                    if not line.strip():
                        continue
                    with contextlib.suppress(ValueError):  # a stray print is no message
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                        await to_session.send(SessionMessage(message))
                child.flooded = process.returncode is None and not stdout.at_eof()
                if child.flooded:
                    _kill(process)
            child.ended()

    async def write() -> None:
        nonlocal unasked
        with contextlib.suppress(ConnectionError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            async with from_session:
                async for message in from_session:
                    unasked = 0
                    data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(data.encode() + b"\n")
                    await stdin.drain()

    async def listen() -> None:
        while said := await stderr.read(4096):
            child.said = (child.said + said)[-SAID_BYTES:]

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        group.start_soon(listen)
        try:
            yield from_server, to_server
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
                child.exit = process.returncode
                for stream in (from_server, to_server, to_session, from_session):
                    stream.close()
            group.cancel_scope.cancel()


async def _line(stdout: asyncio.StreamReader) -> bytes:
    """The next line; nothing at the end, and nothing for a line that is longer than it may be."""
    try:
        return await stdout.readline()
    except ValueError:
        return b""


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its stdin, give it a moment, then end it with all that it started."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), STOP_SECONDS if process.returncode is None else 0.1)
    _kill(process)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    # A pipe that was not read to its end keeps the transport open; nothing public closes it.
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


def _kill(process: asyncio.subprocess.Process) -> None:
    # It leads a session of its own, so its group is it and what it started; nobody else can be in it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
