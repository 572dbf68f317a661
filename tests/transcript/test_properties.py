"""What holds of every transcript, whatever it says."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transcript.strategies import claude_sessions
from tests.transcript.test_cases import FOLDERS, expected
from tests.transcript.writing import ClaudeSession
from turnkeeper.transcript import claude_code, project
from turnkeeper.transcript.claude_code.rows import Row
from turnkeeper.transcript.formats import Format, reader
from turnkeeper.transcript.lines import LineReader
from turnkeeper.transcript.record import LIVE, RUNNING, SUPERSEDED, Counters, Reading
from turnkeeper.transcript.source import Unreadable

FILES = [
    (expected(folder)["format"], path)
    for folder in FOLDERS
    for path in sorted(folder.glob("*.jsonl"))
    if path.name != "persisted.jsonl"
]
PARAMS = [pytest.param(name, path, id=path.parent.name) for name, path in FILES]


def read_bytes(name: str, data: bytes, tmp_path: Path, *, whole: bool = True, suffix: str = "") -> Reading:
    path = tmp_path / f"rollout-2026-09-30T10-00-00-x{suffix}.jsonl"
    path.write_bytes(data)
    return reader(name).read(path, whole=whole)


def spoken(reading: Reading) -> list[tuple[str, str]]:
    return [(record.role, record.text) for record in project.conversation(reading)]


def plain(reading: Reading) -> dict[str, Any]:
    case = project.as_case(reading)
    case.pop("files")
    return case


# -- Claude Code sessions of every shape


@given(claude_sessions())
@settings(max_examples=150, deadline=None)
def test_a_session_reads_as_what_was_said_in_it(session: ClaudeSession) -> None:
    reading = _read_rows(session)
    assert spoken(reading) == session.said
    superseded = [(r.role, r.text) for r in project.set_aside(reading, SUPERSEDED)]
    assert sorted(superseded) == sorted(session.superseded)
    assert all(turn.state == "settled" for turn in reading.turns)


@given(claude_sessions())
@settings(max_examples=150, deadline=None)
def test_one_pass_and_all_rows_at_once_read_the_same(tmp_path_factory: Any, session: ClaudeSession) -> None:
    path = tmp_path_factory.mktemp("one-pass") / "s.jsonl"
    path.write_bytes(session.data())
    one_pass = claude_code.read(path)
    at_once = _read_rows(session)
    assert one_pass.records == at_once.records
    assert one_pass.turns == at_once.turns


def _read_rows(session: ClaudeSession) -> Reading:
    rows = [msgspec.convert(row, Row) for row in session.rows]
    offsets, at = [], 0
    for line in session.lines():
        offsets.append(at)
        at += len(line)
    return claude_code.build(rows, offsets, Counters())


def test_the_one_pass_reader_is_used_for_plain_chains_and_rewinds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else the property above would compare a thing with itself."""

    def never(*_: object) -> None:
        raise AssertionError("the file was read twice")

    monkeypatch.setattr(claude_code, "load", never)
    session = ClaudeSession()
    session.human("a")
    session.tools(3, narration="x", order=[2, 0, 1])
    session.absorbed("b")
    session.answer("c")
    session.duration()
    session.human("d")
    session.answer("e")
    session.rewind(1)
    session.human("f")
    session.answer("g")
    session.compact()
    session.human("h")
    session.answer("i")
    (tmp_path / "s.jsonl").write_bytes(session.data())
    reading = claude_code.read(tmp_path / "s.jsonl")
    assert spoken(reading) == session.said


# -- prefixes


def settled(reading: Reading) -> list[tuple[str, str]]:
    """The live conversation up to the last turn that is over for good: a later turn has begun."""
    if not reading.turns:
        return []
    last = reading.turns[-1]
    return [
        (record.role, record.text)
        for record in project.conversation(reading)
        if record.turn != last.key and record.turn is not None
    ]


@pytest.mark.parametrize(("name", "path"), PARAMS)
def test_any_byte_prefix_reads_as_a_prefix(name: str, path: Path, tmp_path: Path) -> None:
    """What belongs to turns that are over never changes, unless a rewind says so."""
    data = path.read_bytes()
    whole = reader(name).read(path)
    known = spoken(whole) + [(r.role, r.text) for r in project.set_aside(whole, SUPERSEDED)]
    steps = {
        *range(0, len(data), max(1, len(data) // 120)),
        *[at + 1 for at, b in enumerate(data) if b == 10],
    }
    for end in sorted(steps):
        part = read_bytes(name, data[:end], tmp_path, whole=False)
        words = settled(part)
        assert all(row in known for row in words), (end, words)
        if not project.set_aside(whole, SUPERSEDED):
            assert spoken(whole)[: len(words)] == words, end


@given(claude_sessions(rewinds=False, max_turns=4), st.data())
@settings(max_examples=60, deadline=None)
def test_a_session_cut_anywhere_is_a_prefix_of_what_was_said(
    tmp_path_factory: Any, session: ClaudeSession, data: st.DataObject
) -> None:
    whole = session.data()
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    reading = read_bytes("claude-code", cut, tmp_path_factory.mktemp("cut"), whole=False)
    words = spoken(reading)
    if reading.turns and reading.turns[-1].state == RUNNING:
        words = [
            w
            for w, r in zip(words, project.conversation(reading), strict=True)
            if r.turn != reading.turns[-1].key
        ]
    assert session.said[: len(words)] == words


# -- chunks, repetition, clocks


@pytest.mark.parametrize(("name", "path"), PARAMS)
def test_chunks_of_any_size_read_the_same(name: str, path: Path) -> None:
    data = path.read_bytes()
    module: Any = reader(name)
    wanted: list[Any] | None = None
    for size in (1, 2, 3, 7, 64, 1000, len(data), len(data) + 1):
        counters = Counters()
        lines = LineReader(module.Row, counters, chunk_bytes=size)
        rows: list[Any] = []
        offsets: list[int] = []
        for batch in lines.read(io.BytesIO(data)):
            rows += batch.rows
            offsets += batch.offsets
        got = [rows, offsets, counters]
        wanted = wanted or got
        assert got == wanted
        for row_offset in offsets:
            assert data[row_offset : row_offset + 1] in {b"{", b"\x00"} or data[row_offset:].lstrip(
                b"\x00"
            ).startswith(b"{")


@pytest.mark.parametrize(("name", "path"), PARAMS)
def test_following_a_file_piece_by_piece_reads_what_one_read_reads(
    name: str, path: Path, tmp_path: Path
) -> None:
    from turnkeeper.transcript.follow import Follower

    data = path.read_bytes()
    if not data.endswith(b"\n"):
        data = data[: data.rfind(b"\n") + 1]
    copy = tmp_path / path.name
    copy.write_bytes(data)
    wanted = plain(reader(name).read(copy))
    copy.unlink()
    follower = Follower(name, copy)
    chance = random.Random(7)
    at = 0
    with copy.open("ab") as file:
        while at < len(data):
            step = chance.randrange(1, 900)
            file.write(data[at : at + step])
            file.flush()
            at += step
            follower.poll()
    got = plain(follower.reading)
    for key in ("session", "own_rows_after_prefix"):
        wanted.pop(key, None)
        got.pop(key, None)
    assert got == wanted
    assert follower.poll() is False


@pytest.mark.parametrize(("name", "path"), PARAMS)
def test_times_order_nothing(name: str, path: Path, tmp_path: Path) -> None:
    chance = random.Random(3)
    lines = path.read_bytes().split(b"\n")
    shuffled = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            shuffled.append(line)
            continue
        for key in ("timestamp", "recorded_at", "startTime", "lastUpdated"):
            if key in row:
                row[key] = (
                    chance.randrange(10**15)
                    if key == "recorded_at"
                    else f"20{chance.randrange(10, 99)}-01-01T00:00:00Z"
                )
        shuffled.append(json.dumps(row).encode())
    wanted, got = plain(reader(name).read(path)), plain(read_bytes(name, b"\n".join(shuffled), tmp_path))
    for case in (wanted, got):
        case.pop("session")
        case["counters"].pop("torn_at", None)
    assert got == wanted


# -- nothing crashes


@given(st.binary(max_size=400), st.sampled_from([name for name, _ in FILES]))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused_and_never_crash(tmp_path_factory: Any, data: bytes, name: str) -> None:
    read_bytes(name, data, tmp_path_factory.mktemp("bytes"))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_file_damaged_anywhere_is_read_in_part(tmp_path_factory: Any, data: st.DataObject) -> None:
    name, path = data.draw(st.sampled_from(FILES))
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "nul", "newline", "no newline"]))
        if kind == "flip":
            whole[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del whole[at : at + data.draw(st.integers(1, 50))]
        elif kind == "nul":
            whole[at:at] = b"\x00\x00"
        elif kind == "newline":
            whole[at:at] = b"\n"
        elif (end := whole.find(b"\n", at)) >= 0:
            del whole[end]
        if not whole:
            return
    reading = read_bytes(name, bytes(whole), tmp_path_factory.mktemp("damaged"))
    project.as_case(reading)


HALVES = st.sampled_from(["\ud800", "a\udfff"])
"""Texts that were cut inside a character."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | HALVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_rows_of_a_newer_version_never_crash_a_reader(tmp_path_factory: Any, data: st.DataObject) -> None:
    """A field of any row may become anything at all."""
    name, path = data.draw(st.sampled_from(FILES))
    rows = []
    for line in path.read_bytes().split(b"\n"):
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    for _ in range(data.draw(st.integers(1, 3))):
        target = data.draw(st.sampled_from(rows))
        while True:
            key = data.draw(st.sampled_from(sorted(target)))
            if isinstance(target[key], dict) and target[key] and data.draw(st.booleans()):
                target = target[key]
                continue
            target[key] = data.draw(JSON)
            break
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    reading = read_bytes(name, lines, tmp_path_factory.mktemp("newer"))
    assert reading.counters.rows + reading.counters.malformed >= len(rows) - 1


def test_what_is_read_twice_is_the_same() -> None:
    for name, path in FILES:
        module: Format = reader(name)
        assert module.read(path) == module.read(path)


@pytest.mark.parametrize("name", ["claude-code", "pi", "qwen", "droid"])
def test_circles_and_double_ids_end(name: str, tmp_path: Path) -> None:
    rows = []
    for number in range(6):
        row = {
            "timestamp": "2026-09-30T10:00:00Z",
            "message": {"role": "user", "content": f"t{number}", "parts": [{"text": f"t{number}"}]},
        }
        link = {"uuid": f"u{number % 5}", "parentUuid": f"u{(number + 1) % 5}", "type": "user"}
        if name in {"pi", "droid"}:
            link = {"id": link["uuid"], "parentId": link["parentUuid"], "type": "message"}
        rows.append({**row, **link})
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    reading = read_bytes(name, data, tmp_path)
    assert [r.text for r in reading.records if r.state == LIVE] == [f"t{n}" for n in range(5)]
    assert reading.counters.duplicates == 1


def test_an_empty_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no such file"):
        claude_code.read(tmp_path / "none.jsonl")
