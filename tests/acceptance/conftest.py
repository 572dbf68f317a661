"""Real server processes, shared by the tests of a module where they do not disturb each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.testing.server_process import Api, ServerProcess

ESSAY = " ".join(f"word{number}" for number in range(400))

SCRIPT: dict[str, Any] = {
    "rules": [
        {"match": "^essay", "rounds": [{"text": ESSAY, "chars_per_s": 1500}]},
        {"match": "^hold", "rounds": [{"stall_s": 600}]},
        {"match": "^break", "rounds": [{"error": {"status": 400}}]},
        {"match": "^flood", "rounds": [{"text": "flood " * 100_000}]},
        {"match": "^evil", "rounds": [{"text": "\u001b]0;owned\u0007 and \u009b2J \u202egnp"}]},
        {"match": "", "rounds": [{"text": "ok"}]},
    ]
}


def agents_file(folder: Path) -> Path:
    """An agents file whose agent `demo` plays SCRIPT."""
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    agents = folder / "agents.toml"
    agents.write_text(
        '[agents.demo]\nrunner = "model"\nprovider = "scripted"\nmodel = "scripted"\n'
        f"script = {json.dumps(str(script))}\n"
        '[agents.plain]\nrunner = "model"\nprovider = "scripted"\nmodel = "scripted"\n'
        "[agents.demo.deadlines]\nfirst_token_seconds = 900\ntotal_seconds = 900\n"
    )
    return agents


def make_server(folder: Path, **settings: object) -> ServerProcess:
    """A server on `folder` with the scripted agent; not started."""
    return ServerProcess(folder / "data", agents=agents_file(folder), settings=settings)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for the tests of a module."""
    server = make_server(tmp_path_factory.mktemp("server"), resync_events=60)
    asyncio.run(server.start())
    yield server
    server.kill()


@pytest.fixture
async def api(shared: ServerProcess) -> AsyncIterator[Api]:
    """The shared server as its owner."""
    async with Api(shared.url, shared.token()) as made:
        yield made
