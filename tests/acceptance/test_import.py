"""`turnkeeper transcript import` and POST …/reconcile on a real server, with a home folder of the test's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import agents_file
from tests.acceptance.test_verbs import Verbs
from tests.transcript.writing import ClaudeSession
from turnkeeper.testing.server_process import Api, ServerProcess

pytestmark = pytest.mark.process

NATIVE = "8a5f1c9e-0000-4000-8000-000000000001"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with one session of Claude Code; its last line is torn."""
    session = ClaudeSession(NATIVE)
    session.human("hello \u001b[31mred")
    session.answer("hi")
    session.duration()
    folder = tmp_path / "home/.claude/projects/-home-ana-demo"
    folder.mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in session.rows)
    (folder / f"{NATIVE}.jsonl").write_text(lines + '{"type":"user","mess')
    return tmp_path / "home"


@pytest.fixture
def server(tmp_path: Path, home: Path) -> Iterator[ServerProcess]:
    environment = {"HOME": str(home), "CLAUDE_CONFIG_DIR": ""}
    made = ServerProcess(tmp_path / "data", agents=agents_file(tmp_path), environment=environment)
    asyncio.run(made.start())
    yield made
    made.kill()


def test_what_find_lists_is_imported_once(server: ServerProcess, home: Path) -> None:
    verbs = Verbs(server)
    data, verbs.data = verbs.data, []
    (found,) = verbs.json("transcript", "find", "--home", str(home))["sessions"]
    verbs.data = data
    before = [path.read_bytes() for path in home.rglob("*.jsonl")]
    told = verbs.json("transcript", "import", "new", found["id"])
    assert (told["added"], told["matched"], told["torn_tail"], told["stored"]) == (2, 0, True, True)
    c = told["conversation_id"]
    assert verbs.run("transcript", "import", c, found["id"]).stdout == f"{c}: 0 added, 2 known\n"
    assert verbs.run("transcript", "import", c).stdout == f"{c}: 0 added, 0 known\n"
    assert [path.read_bytes() for path in home.rglob("*.jsonl")] == before, "the CLI's files are only read"
    assert "There is no such session" in verbs.refused("transcript", "import", c, "claude-code:nowhere")
    assert "needs a session" in verbs.refused("transcript", "import", "new")
    assert "There is no such" in verbs.refused("transcript", "import", "c_unknown", found["id"])


async def test_reconcile_is_for_the_owner_and_names_no_path(server: ServerProcess) -> None:
    async with Api(server.url, server.token()) as api:
        c = (await api.post("/v1/conversations", {"agent": "demo"})).json()["conversation_id"]
        path = f"/v1/conversations/{c}/reconcile"
        assert (await api.post(path, {"session": f"claude-code:{NATIVE}"})).json()["added"] == 2
        for name in ("/etc/passwd", "claude-code:../../../etc/passwd", f"codex:{NATIVE}"):
            answer = await api.post(path, {"session": name})
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert (await api.post(path, {"session": 1})).status_code == 400
        rows = (await api.get(f"/v1/conversations/{c}/messages"))["messages"]
        assert [(row["role"], row["provenance"]) for row in rows] == [
            ("user", "native"),
            ("assistant", "native"),
        ]
        assert len({row["seq"] for row in rows}) == 2
