"""Tools with bad manners, for agents of a case: named in an agents file as `case_tools:NAME`."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

from turnkeeper.tool.function import tool


@tool(effect="read_only", timeout_seconds=3600)
async def late_to_stop(seconds: float, latency: float) -> str:
    """Work for some time; when stopped, take `latency` seconds more to let go."""
    try:
        await asyncio.Event().wait() if seconds <= 0 else await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.sleep(latency))
        raise
    return "worked"


@tool(effect="read_only", timeout_seconds=3600)
def stubborn(seconds: float) -> str:
    """Work in a thread that nobody can stop."""
    threading.Event().wait(seconds)
    return "worked to the end, whatever you said"


@tool
async def ssh_restart(log: str) -> str:
    """Write one line, then take the host down."""
    with Path(log).open("a") as lines:
        lines.write("restarted\n")
        lines.flush()
        os.fsync(lines.fileno())
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


@tool
async def note(path: str, idempotency_key: str) -> str:
    """Append a line that only this call appends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, f"{idempotency_key}\n".encode())
    finally:
        os.close(descriptor)
    return "noted"
