"""Every limit of the readers at its edge: what is exactly as large as it may be is read, one more is not, visibly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import zstandard

from tests.transcript.writing import ClaudeSession
from turnkeeper.cli import run
from turnkeeper.settings import Settings
from turnkeeper.transcript import formats, project
from turnkeeper.transcript import limits as module
from turnkeeper.transcript.formats import read_path
from turnkeeper.transcript.limits import Limits, limits, put_in_force, put_settings_in_force
from turnkeeper.transcript.source import Unreadable
from turnkeeper.transcript.sqlite import read_once


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = limits()
    yield
    put_in_force(before)


def said(path: Path) -> list[str]:
    return [str(project.spoken(record)["text"]) for record in project.conversation(read_path(path))]


def claude(path: Path, *texts: str) -> Path:
    session = ClaudeSession()
    for text in texts:
        session.human(text)
    path.write_bytes(session.data())
    return path


def test_without_settings_the_limits_are_those_of_the_settings() -> None:
    assert Limits() == module._in_force
    defaults = Settings()
    put_settings_in_force(defaults)
    assert limits() == Limits()
    put_settings_in_force(Settings(transcript_busy_seconds=0.5))
    assert limits() == Limits(busy_seconds=0.5)


@pytest.mark.parametrize("over", [0, 1])
def test_the_longest_line(tmp_path: Path, over: int) -> None:
    long = "x" * 600_000
    path = claude(tmp_path / "s.jsonl", "short", long, "last")
    put_in_force(Limits(line_bytes_max=max(map(len, path.read_bytes().split(b"\n"))) + 1 - over))
    reading = read_path(path)
    assert [r.text for r in reading.records] == (["short", "last"] if over else ["short", long, "last"])
    assert reading.counters.malformed == over


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("over", [0, 1])
def test_the_longest_record(tmp_path: Path, packed: bool, over: int) -> None:
    path = claude(tmp_path / "s.jsonl", "one", "two")
    data = path.read_bytes()
    if packed:
        path.unlink()
        path = tmp_path / "s.jsonl.zst"
        path.write_bytes(zstandard.compress(data))
    put_in_force(Limits(unpacked_bytes_max=len(data) - 2 * over))
    reading = read_path(path, name="claude-code")
    assert [r.text for r in reading.records] == (["one", "two"] if not over else ["one"])
    assert reading.counters.cut_off is bool(over)


@pytest.mark.parametrize("over", [0, 1])
def test_the_longest_document(tmp_path: Path, over: int) -> None:
    rows = [
        {"id": f"m{n}", "type": "user", "content": f"q{n}", "timestamp": "2026-09-30T10:00:00Z"}
        for n in (1, 2)
    ]
    path = tmp_path / "session-1.json"
    path.write_text(json.dumps({"sessionId": "g1", "messages": rows}))
    put_in_force(Limits(document_bytes_max=path.stat().st_size - over))
    assert said(path) == ["q1", "q2"]
    put_in_force(Limits(document_bytes_max=path.stat().st_size - 3))
    assert said(path) == ["q1"], "of a document that is cut off its whole messages are read"


@pytest.mark.parametrize("over", [0, 1])
def test_the_largest_database_that_is_copied_aside(tmp_path: Path, over: int) -> None:
    live, left = tmp_path / "live.db", tmp_path / "left.db"
    connection = apsw.Connection(str(live))
    list(connection.execute("PRAGMA journal_mode = WAL; CREATE TABLE t(x); INSERT INTO t VALUES (1)"))
    for end in ("", "-wal"):
        Path(f"{left}{end}").write_bytes(Path(f"{live}{end}").read_bytes())
    connection.close()
    size = sum(Path(f"{left}{end}").stat().st_size for end in ("", "-wal"))
    put_in_force(Limits(copied_bytes_max=size - over))

    def rows(found: apsw.Connection) -> list[Any]:
        return list(found.execute("SELECT x FROM t"))

    if over:
        with pytest.raises(Unreadable, match="too large"):
            read_once(left, rows)
    else:
        assert read_once(left, rows) == [(1,)]


def test_a_locked_database_is_waited_for_as_long_as_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    holder = apsw.Connection(str(path))
    holder.execute("CREATE TABLE t(x)")
    holder.execute("BEGIN EXCLUSIVE; INSERT INTO t VALUES (1)")
    Path(f"{path}-wal").write_bytes(b"")
    Path(f"{path}-shm").write_bytes(b"")
    put_in_force(Limits(busy_seconds=0.001))
    with pytest.raises(Unreadable, match="locked"):
        read_once(path, lambda found: list(found.execute("SELECT x FROM t")))
    holder.close()


@pytest.mark.parametrize("most", [2, 1])
@pytest.mark.parametrize("name", ["folder_files_max", "related_files_max"])
def test_the_most_files_of_a_folder(tmp_path: Path, name: str, most: int) -> None:
    for stem in ("a", "b"):
        claude(tmp_path / f"{stem}.jsonl", stem)
    put_in_force(Limits(**{name: most}))
    assert (read_path(tmp_path).primary is None) is (most == 1)


@pytest.mark.parametrize("most", [2, 1])
def test_the_most_files_that_a_file_is_compared_with(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(formats, "_is", lambda path, _: bool(asked.append(path)))
    for stem in ("a", "b", "c"):
        claude(tmp_path / f"{stem}.jsonl", stem)
    put_in_force(Limits(related_files_max=most))
    read_path(tmp_path / "a.jsonl")
    assert len(asked) == (2 if most == 2 else 0)


@pytest.mark.parametrize(("setting", "verb"), [("case_bytes_max", "feed"), ("session_bytes_max", "doctor")])
@pytest.mark.parametrize("over", [0, 1])
def test_the_largest_file_of_feed_and_doctor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    setting: str,
    verb: str,
    over: int,
) -> None:
    path = tmp_path / "x.json"
    case = {"provider": "anthropic", "history": [], "incoming": {"role": "user", "text": "hello"}}
    path.write_text(json.dumps(case if verb == "feed" else [{"role": "user", "content": "hello"}]))
    monkeypatch.setenv(f"TURNKEEPER_{setting.upper()}", str(path.stat().st_size - over))
    assert run([verb, str(path)]) == (2 if over else 0)
    told = capsys.readouterr()
    assert (setting in told.err, told.out == "") == (bool(over), bool(over))
