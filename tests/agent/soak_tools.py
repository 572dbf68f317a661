"""The tools of the soak's agents: they act where it can be counted, read, hang, raise, and return too much."""

from __future__ import annotations

import asyncio
from collections import Counter

from turnkeeper.tool import tool

ACTED: Counter[str] = Counter()
"""By idempotency key: how often the world was acted on."""


@tool
async def note(n: int, idempotency_key: str) -> str:
    """Act, and leave a trace that only this call leaves."""
    ACTED[idempotency_key] += 1
    return f"noted {n}"


@tool(effect="read_only")
async def peek(n: int) -> str:
    """Look."""
    return f"seen {n}"


@tool(effect="read_only", timeout_seconds=0.3)
async def hang(n: int) -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return f"never {n}"


@tool
async def stumble(n: int, idempotency_key: str) -> str:
    """Fail before acting."""
    msg = f"it broke at {n}"
    raise ValueError(msg)


@tool(effect="read_only", result_bytes_max=2_000)
async def flood(n: int) -> str:
    """Return more than anybody wants to read."""
    return "x" * 50_000
