"""Which new session is ours, where the CLI chooses its id and another one runs in the same folder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
from msgspec.structs import replace

from tests.retained.stage import Stage
from turnkeeper.conversation.events import SessionBound
from turnkeeper.retained.session import Session
from turnkeeper.terminal.pane import PaneIdentity
from turnkeeper.testing.until import until

SAID = "the same words"


class Two:
    """Our process, theirs, and the rollouts of both; each opens what it is told to."""

    def __init__(self, stage: Stage, session: Session) -> None:
        self.session = session
        self.folder = stage.home / ".codex" / "sessions" / f"{datetime.now(UTC):%Y/%m/%d}"
        self.folder.mkdir(parents=True)
        self.cwd = stage.cwd
        self.processes = {name: Popen(["/bin/sh"], stdin=PIPE) for name in ("ours", "theirs")}
        pid = self.processes["ours"].pid
        session.keep.pane = PaneIdentity(socket="", pane_id="%1", pid=pid, started=0.0, mark="m")
        session.keep.launched_at = session.clock.now()

    def write(self, name: str) -> Path:
        """A rollout that holds what we said."""
        meta = {"id": name, "timestamp": datetime.now(UTC).isoformat(), "cwd": str(self.cwd)}
        item = {"type": "UserMessage", "id": "i", "content": [{"type": "text", "text": SAID}]}
        rows: list[Any] = [
            {"type": "session_meta", "payload": meta},
            {"type": "event_msg", "payload": {"type": "item_completed", "item": item}},
        ]
        path = self.folder / f"rollout-2026-12-01T00-00-00-{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    async def opens(self, name: str, redirection: str) -> None:
        """Have a process open a file, and wait until it has."""
        process = self.processes[name]
        assert process.stdin is not None
        files = Path(f"/proc/{process.pid}/fd")
        before = len(list(files.iterdir()))
        process.stdin.write(f"exec {redirection}\n".encode())
        process.stdin.flush()
        await until(lambda: len(list(files.iterdir())) > before, "the file to be open")

    def end(self) -> None:
        for process in self.processes.values():
            process.communicate()


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    stage = await Stage(tmp_path, "codex").start()
    session = await stage.runner.session(stage.conversation_id)
    made = Two(stage, session)
    yield made
    made.end()
    session.keep.pane = None
    await stage.end()


async def harvested(two: Two) -> str | None:
    found = await two.session.harvest(SAID)
    assert not isinstance(found, str), found
    return found.native_id if isinstance(found, SessionBound) else None


async def test_a_session_that_another_process_writes_is_not_ours_though_it_holds_the_same_words(
    two: Two,
) -> None:
    theirs = two.write("theirs")
    await two.opens("theirs", f"3>>{theirs}")
    assert await harvested(two) is None
    ours = two.write("ours")
    await two.opens("ours", f"3>>{ours}")
    assert await harvested(two) == "ours"


async def test_a_session_that_our_process_only_reads_is_not_ours(two: Two) -> None:
    theirs = two.write("theirs")
    await two.opens("theirs", f"3>>{theirs}")
    await two.opens("ours", f"3<{theirs}")
    assert await harvested(two) is None


async def test_a_session_that_nobody_holds_open_is_ours_by_our_words(two: Two) -> None:
    two.write("closed")
    assert await harvested(two) == "closed"


async def test_two_that_nobody_holds_open_leave_it_unbound_and_said(two: Two) -> None:
    two.write("one")
    two.write("two")
    found = await two.session.harvest(SAID)
    assert isinstance(found, str)
    assert "stays unbound" in found


async def test_a_home_that_is_a_link_hides_no_proof(two: Two, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(two.session.where.home)
    ours, theirs = two.write("ours"), two.write("theirs")
    await two.opens("ours", f"3>>{ours}")
    await two.opens("theirs", f"3>>{theirs}")
    two.session.where = replace(two.session.where, home=link, env={})
    assert await harvested(two) == "ours"
