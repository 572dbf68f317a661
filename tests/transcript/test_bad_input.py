"""What can be read is read, with counts of what was not; a file that cannot be is one line; nobody's file is written to."""

from __future__ import annotations

import json
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.transcript.writing import ClaudeSession
from turnkeeper import cli
from turnkeeper.transcript.formats import MODULES, read_path, reader
from turnkeeper.transcript.source import Unreadable
from turnkeeper.transcript.tail import tail_lines

MB = 1024 * 1024


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter, so that only a file's own rights decide."""
    with tempfile.TemporaryDirectory(prefix="sessions-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], None]]:
    """Rights bite nobody who is root: once it is called, the test goes on as a user who owns nothing.

    What the verb imports on its way it imports before that: our own files may be root's too.
    """
    (tmp_path / "warm.jsonl").write_bytes(session())
    shown(tmp_path / "warm.jsonl", capsys)
    refused(tmp_path / "nowhere.jsonl", capsys)
    root = os.geteuid() == 0
    yield (lambda: os.seteuid(65_534)) if root else (lambda: None)
    if root:
        os.seteuid(0)


def session(text: str = "hello", session_id: str = "s-1") -> bytes:
    made = ClaudeSession(session_id)
    made.human(text)
    return b"".join(json.dumps(row).encode() + b"\n" for row in made.rows)


def shown(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli.run(["transcript", "show", str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    case: dict[str, Any] = json.loads(out)
    return case


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run(["transcript", "show", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_a_file_without_rights_is_said_and_hides_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str], nobody: Callable[[], None]
) -> None:
    (folder / "a.jsonl").write_bytes(session())
    (folder / "a.jsonl").chmod(0o644)
    (folder / "b.jsonl").write_bytes(session("secret", "s-2"))
    (folder / "b.jsonl").chmod(0o000)
    nobody()
    assert "permission denied" in refused(folder / "b.jsonl", capsys)
    case = shown(folder, capsys)
    assert [row["text"] for row in case["conversation"]] == ["hello"]
    assert case["counters"]["unreadable"] == {str(folder / "b.jsonl"): "permission denied"}


def test_a_folder_without_rights_hides_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str], nobody: Callable[[], None]
) -> None:
    (folder / "open").mkdir(mode=0o755)
    (folder / "open" / "a.jsonl").write_bytes(session())
    (folder / "shut").mkdir(mode=0o000)
    nobody()
    assert [row["text"] for row in shown(folder, capsys)["conversation"]] == ["hello"]


def test_a_file_whose_reading_fails_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Opening goes well and reading does not: what a broken disk does. The memory of a process at 0 is such a file."""
    (tmp_path / "s.jsonl").symlink_to("/proc/self/mem")
    assert "error" in refused(tmp_path / "s.jsonl", capsys)


def test_links_that_loop_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.jsonl").write_bytes(session())
    (tmp_path / "round.jsonl").symlink_to("round.jsonl")
    (tmp_path / "deeper").symlink_to(tmp_path)
    assert [row["text"] for row in shown(tmp_path, capsys)["conversation"]] == ["hello"]
    assert "symbolic links" in refused(tmp_path / "round.jsonl", capsys)


@pytest.mark.parametrize("verb", [["transcript", "show"], ["doctor"]])
def test_a_pipe_is_not_waited_for(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "s.jsonl")
    assert cli.run([*verb, str(tmp_path / "s.jsonl")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no regular file" in err


@pytest.mark.parametrize("name", list(MODULES))
@pytest.mark.parametrize("data", [b"", b"\x00" * 4096, os.urandom(4096), b"{" * 9000, b'{"type": "user"'])
def test_what_is_no_transcript_is_refused_or_counted_in_every_format(
    name: str, data: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(data)
    try:
        reading = read_path(path, name=name)
    except Unreadable as error:
        assert "\n" not in error.sentence  # noqa: PT017 - either end is right
    else:
        assert reading.records == []
        assert reading.counters.torn_tail or reading.counters.malformed
    assert path.read_bytes() == data


@pytest.mark.parametrize("size", [256 * MB, pytest.param(1024 * MB, marks=pytest.mark.long)])
def test_a_huge_file_is_read_in_bounded_memory(size: int, tmp_path: Path) -> None:
    """A row before and a row behind a hole of up to a gigabyte: NULs, as a crash leaves them behind."""
    path = tmp_path / "s.jsonl"
    made = ClaudeSession()
    for text in ("before", "after", "later"):
        made.human(text)
    before, after, later = (json.dumps(row).encode() + b"\n" for row in made.rows)
    with path.open("wb") as file:
        file.write(before)
        file.truncate(size)
        file.seek(size)
        file.write(b"\n" + after)
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    claude = reader("claude-code")
    reading = claude.read(path)
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - highest) / 1024
    assert [record.text for record in reading.records] == ["before", "after"]
    assert reading.counters.malformed == 1
    assert grown_mb < 400, "the longest line that is held is 64 MB"
    place = claude.at_end(path)
    with path.open("ab") as file:
        file.write(later)
    tail = claude.tail(path, place)
    assert len(tail.rows) == 1
    assert tail.cursor.offset == path.stat().st_size
    assert len(tail_lines(path, type(tail.rows[0]), None).rows) == 1, "one call takes no more than its bound"


ODD_FILES = [
    b"",
    b"\x00" * 100,
    b"\xff\xfe",
    b"[]",
    b'"timestamp":',
    b'{"timestamp":"nope","cwd":5}',
    b'{"timestamp":[1],"cwd":"' + b"x" * 9000,
    b'{"timestamp":1e400}',
    b'{"timestamp":99999999999999999999999}',
    b'{"timestamp":' + b"9" * 400 + b"}",
    b'{"timestamp":"0001-01-01T00:00:00+23:00"}',
    b'{"timestamp":"9999-12-31T23:59:59-23:00"}',
    b'{"timestamp":-1e18}',
    b'{"timestamp":"2026-01-01T00:00:00Z","cwd":"/w\\ud800","type":"user"}\n',
]


def test_find_lists_every_file_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also times that no calendar has, and what calls itself compressed and is not."""
    places = (
        ".claude/projects/-w/{0}.jsonl",
        ".codex/sessions/2026/01/01/rollout-2026-01-01T00-00-00-{0}.jsonl",
        ".codex/archived_sessions/rollout-2026-01-02T00-00-00-{0}.jsonl.zst",
        ".pi/agent/sessions/--w--/2026_{0}.jsonl",
        ".gemini/tmp/p/chats/session-{0}.json",
        ".copilot/session-state/{0}/events.jsonl",
        ".cursor/chats/p/{0}/store.db",
        ".factory/sessions/p/{0}.jsonl",
    )
    for number, data in enumerate(ODD_FILES):
        for place in places:
            path = tmp_path / place.format(f"{number:08x}-0000-4000-8000-000000000000")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert cli.run(["transcript", "find", "--home", str(tmp_path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["sessions"]
    assert len(listed) == len(ODD_FILES) * len(places)
    assert cli.run(["transcript", "find", "--home", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(listed)


def test_what_is_called_compressed_and_is_not_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rollout-2026-01-02T00-00-00-x.jsonl.zst"
    path.write_bytes(b"junk")
    assert cli.run(["transcript", "show", str(path)]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
