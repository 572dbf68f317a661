"""The model server in a process of its own: for load, for measuring, and for tests of what a user starts.

async with model_server_process({"rules": [...]}) as url: ...
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

START_SECONDS = 60.0


@contextlib.asynccontextmanager
async def model_server_process(script: dict[str, Any] | None = None) -> AsyncIterator[str]:
    """Start `turnkeeper model-server` with this script; gives its address, and ends it."""
    with tempfile.TemporaryDirectory() as folder:
        given: list[str] = []
        if script is not None:
            file = Path(folder) / "script.json"
            file.write_text(json.dumps(script))
            given = ["--script", str(file)]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "turnkeeper",
            "model-server",
            *given,
            "--json",
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
            yield str(json.loads(line)["url"])
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
