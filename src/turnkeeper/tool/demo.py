"""The demo tools: what the built-in agent, the tutorial and the tests act with.

They run only under the scripted provider, or where an agent says `demo_tools = true`: `append_file` writes
wherever the server may write.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from turnkeeper.tool.contract import Tool
from turnkeeper.tool.function import tool, tool_of

SLOW_SECONDS_MAX = 3_600.0


@tool
async def append_file(path: str, text: str) -> str:
    """Append text to a file. A relative path starts at the server's current folder."""
    # One small write into the page cache: it survives a kill of this process and needs no thread.
    target = Path(path)
    data = text.encode("utf-8", errors="surrogatepass")
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    return f"appended {len(data)} bytes to {target}"


@tool(effect="read_only")
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@tool(effect="read_only")
async def now() -> str:
    """The time on the server, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@tool(effect="read_only", timeout_seconds=SLOW_SECONDS_MAX)
async def slow(seconds: Annotated[float, msgspec.Meta(ge=0, le=SLOW_SECONDS_MAX)]) -> str:
    """Wait, then answer."""
    await asyncio.sleep(seconds)
    return f"waited {seconds:g} s"


DEMO_TOOLS: dict[str, Tool] = {
    made.name: made for made in (tool_of(append_file), tool_of(echo), tool_of(now), tool_of(slow))
}
