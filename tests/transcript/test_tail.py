"""The tail: offset, inode, hashes; torn, glued, rewritten, moved, compressed files; signals before the flush."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.transcript.writing import ClaudeSession
from turnkeeper.transcript import claude_code, codex, project, tail
from turnkeeper.transcript.claude_code.rows import Row
from turnkeeper.transcript.follow import SETTLE_SECONDS, Follower, ended, settle
from turnkeeper.transcript.lines import LineReader, open_bytes
from turnkeeper.transcript.record import RUNNING, SETTLED, Counters
from turnkeeper.transcript.source import Unreadable
from turnkeeper.transcript.tail import HEAD_BYTES, Cursor, at_end, tail_lines


def session_of(turns: int = 2) -> ClaudeSession:
    session = ClaudeSession()
    for turn in range(turns):
        session.human(f"question {turn}")
        session.tools(2, narration="Looking.")
        session.answer(f"answer {turn}")
        session.duration()
    return session


def texts(rows: list[Row]) -> list[str]:
    return [
        str(row.message.content)
        for row in rows
        if row.message is not None and isinstance(row.message.content, str)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.jsonl"


def test_the_cursor_stands_behind_the_last_line_end_and_not_at_the_size(path: Path) -> None:
    data = session_of().data()
    path.write_bytes(data + b'{"type":"user","uu')
    tail = tail_lines(path, Row, None)
    assert tail.pending
    assert tail.cursor.offset == len(data)
    with path.open("ab") as file:
        file.write(b'id":"late","message":{"content":"late"}}\n')
    following = tail_lines(path, Row, tail.cursor)
    assert texts(following.rows) == ["late"]
    assert following.offsets == [len(data)]
    assert not following.reset
    assert not following.pending


def test_a_line_may_break_off_inside_a_character(path: Path) -> None:
    line = '{"type":"user","message":{"content":"naïve"}}\n'.encode()
    cut = line.index("ï".encode()) + 1
    path.write_bytes(line[:cut])
    tail = tail_lines(path, Row, None)
    assert (tail.rows, tail.cursor.offset, tail.counters.malformed) == ([], 0, 0)
    path.write_bytes(line)
    assert texts(tail_lines(path, Row, tail.cursor).rows) == ["naïve"]


def test_nothing_new_costs_nothing_and_gives_nothing(path: Path) -> None:
    path.write_bytes(session_of().data())
    cursor = tail_lines(path, Row, None).cursor
    again = tail_lines(path, Row, cursor)
    assert (again.rows, again.reset, again.cursor) == ([], "", cursor)


Change = Callable[[Path, bytes], None]


def truncate(path: Path, data: bytes) -> None:
    path.write_bytes(data[: len(data) // 3])


def replace_by_another(path: Path, data: bytes) -> None:
    other = path.with_name("new")
    other.write_bytes(data.replace(b"question", b"QUESTION") + data)
    other.replace(path)


def rewrite_the_first_line(path: Path, data: bytes) -> None:
    path.write_bytes(data.replace(b"question 0", b"QUESTION 0"))


def rewrite_before_the_cursor(path: Path, data: bytes) -> None:
    at = len(data) - 40
    path.write_bytes(data[:at] + data[at:].replace(b"1", b"7") + b'{"type":"mode"}\n')


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (truncate, "truncated"),
        (replace_by_another, "rewritten"),
        (rewrite_the_first_line, "rewritten"),
        (rewrite_before_the_cursor, "rewritten"),
    ],
)
def test_a_file_that_is_not_the_old_one_with_more_is_read_again(path: Path, change: Change, why: str) -> None:
    data = session_of(20).data()
    assert len(data) > HEAD_BYTES
    path.write_bytes(data)
    cursor = tail_lines(path, Row, None).cursor
    change(path, data)
    tail = tail_lines(path, Row, cursor)
    assert tail.reset == why
    assert len(tail.rows) == sum(
        1 for line in path.read_bytes().split(b"\n") if line.startswith(b"{") and line.endswith(b"}")
    )


def test_a_copy_of_the_same_bytes_is_the_same_file(path: Path) -> None:
    """An archive keeps the name and moves the bytes: what was read is not read again."""
    session = session_of()
    path.write_bytes(session.data())
    cursor = tail_lines(path, Row, None).cursor
    other = path.with_name("copy")
    session.human("one more")
    other.write_bytes(session.data())
    tail = tail_lines(other, Row, cursor)
    assert tail.reset == ""
    assert texts(tail.rows) == ["one more"]


def test_a_large_addition_is_taken_in_bounded_pieces(path: Path) -> None:
    path.write_bytes(session_of(40).data())
    rows, cursor, calls = [], None, 0
    while True:
        tail = tail_lines(path, Row, cursor, take_bytes=5000)
        rows += tail.rows
        cursor = tail.cursor
        calls += 1
        if not tail.more:
            break
    assert calls > 5
    assert rows == tail_lines(path, Row, None).rows


def test_a_cursor_survives_being_stored(path: Path) -> None:
    import msgspec

    path.write_bytes(session_of().data())
    cursor = at_end(path)
    stored = msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor)
    assert stored == cursor
    assert tail_lines(path, Row, stored).rows == []


@pytest.mark.parametrize("size", [0, 1, 5000])
def test_the_end_is_found_behind_the_last_line_end(path: Path, size: int) -> None:
    data = session_of().data()
    path.write_bytes(data + b"x" * size)
    assert at_end(path).offset == len(data)


def test_the_end_of_a_file_without_any_line_end_is_its_beginning(path: Path) -> None:
    path.write_bytes(b"x" * 10_000)
    assert at_end(path).offset == 0


# -- lines


def test_two_records_on_a_line_are_two_records(path: Path) -> None:
    """BD120 (qwen-code#3606)."""
    rows = [b'{"type":"user","uuid":"%d","message":{"content":"t%d"}}' % (n, n) for n in range(4)]
    path.write_bytes(rows[0] + rows[1] + b"\n" + rows[2] + b"\n" + rows[3] + b"\n")
    tail = tail_lines(path, Row, None)
    assert texts(tail.rows) == ["t0", "t1", "t2", "t3"]
    assert tail.counters.glued == 2
    assert tail.counters.malformed == 0
    assert tail.offsets == [0, 0, len(rows[0] + rows[1]) + 1, len(rows[0] + rows[1] + rows[2]) + 2]


def test_a_row_glued_to_a_torn_one_is_saved(path: Path) -> None:
    """BD119 in a CLI's file: the next append lands on the torn line."""
    torn = '{"type":"assistant","uuid":"a","message":{"content":[{"type":"text","text":"na\u00ef'.encode()[
        :-1
    ]
    path.write_bytes(
        torn
        + b'{"type":"user","uuid":"b","message":{"content":"kept"}}\n{"type":"user","message":{"content":"next"}}\n'
    )
    tail = tail_lines(path, Row, None)
    assert texts(tail.rows) == ["kept", "next"]
    assert tail.counters.malformed == 1


def test_zeros_are_passed_over(path: Path) -> None:
    path.write_bytes(
        b'\x00\x00{"type":"user","message":{"content":"a"}}\x00\n\x00\x00\n{"type":"user","message":{"content":"b"}}\n'
    )
    tail = tail_lines(path, Row, None)
    assert texts(tail.rows) == ["a", "b"]
    assert tail.counters.malformed == 1


def test_a_separator_inside_a_text_ends_no_line(path: Path) -> None:
    text = "one\u2028two\u2029three\x85four\x0bfive".replace("\x0b", "\\u000b")
    path.write_text('{"type":"user","message":{"content":"' + text + '"}}\n', encoding="utf-8")
    assert texts(tail_lines(path, Row, None).rows) == [text.replace("\\u000b", "\x0b")]


def test_a_line_that_cannot_be_held_is_counted_and_what_follows_is_read(path: Path) -> None:
    good = b'{"type":"user","message":{"content":"a"}}\n'
    path.write_bytes(good + b'{"x":"' + b"y" * 5000 + b'"}\n' + good)
    counters = Counters()
    lines = LineReader(Row, counters, chunk_bytes=256, line_bytes_max=1024)
    with path.open("rb") as stream:
        batches = list(lines.read(stream))
    assert [texts(batch.rows) for batch in batches if batch.rows] == [["a"], ["a"]]
    assert counters.malformed == 1
    assert batches[-1].offsets == [len(good) + 5000 + 9]


@pytest.mark.parametrize("over", [0, 1])
def test_the_longest_line_is_held_exactly(path: Path, over: int) -> None:
    limit = 1024
    line = b'{"type":"user","message":{"content":"%s"}}\n'
    line = line % (b"y" * (limit - len(line % b"") + over))
    path.write_bytes(line)
    counters = Counters()
    with path.open("rb") as stream:
        rows = [
            row
            for batch in LineReader(Row, counters, chunk_bytes=64, line_bytes_max=limit).read(stream)
            for row in batch.rows
        ]
    assert len(line) == limit + over
    assert (len(rows), counters.malformed) == ((1, 0) if over == 0 else (0, 1))


@pytest.mark.parametrize("length", [4999, 5000, 5001, 12_345])
@pytest.mark.parametrize("limit", [1024, 64 * 1024])
def test_a_line_that_is_longer_than_one_look_takes_is_passed_and_stops_nothing(
    path: Path, length: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held (limit above it) or counted as malformed: what comes behind it is read in any case."""
    monkeypatch.setattr(tail, "LineReader", partial(LineReader, chunk_bytes=256, line_bytes_max=limit))
    line = b'{"type":"user","message":{"content":"%s"}}\n'
    long = line % (b"y" * (length - len(line % b"")))
    good = line % b"a"
    path.write_bytes(long + good + long + good)
    rows: list[Any] = []
    malformed = 0
    cursor = None
    for _ in range(6):
        found = tail_lines(path, Row, cursor, take_bytes=5000)
        cursor, malformed = found.cursor, malformed + found.counters.malformed
        rows += found.rows
        if not found.more:
            break
    else:
        pytest.fail("it stands before the long line for ever")
    short = [text for text in texts(rows) if len(text) < 10]
    assert (short, malformed, len(rows)) == ((["a"] * 2, 2, 2) if limit < length else (["a"] * 2, 0, 4))


def test_memory_is_bounded_by_the_chunk_and_not_by_the_file(path: Path) -> None:
    session = ClaudeSession()
    session.human("q")
    session.tools(1)
    session.answer("a")
    row = dict(session.rows[2])
    row["message"] = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x" * 20_000}],
    }
    with path.open("wb") as file:
        file.write(session.data())
        previous = session.tip
        for number in range(2000):
            file.write(json.dumps({**row, "uuid": f"r{number}", "parentUuid": previous}).encode() + b"\n")
            previous = f"r{number}"
    size = path.stat().st_size
    assert size > 40_000_000
    tracemalloc.start()
    reading = claude_code.read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reading.counters.rows == 2000 + len(session.rows)
    assert peak < 6_000_000, peak


# -- compressed and archived


def codex_lines(count: int) -> bytes:
    rows = [{"timestamp": "t", "type": "session_meta", "payload": {"id": "T", "cwd": "/w"}}]
    for number in range(count):
        turn = f"turn{number}"
        rows += [
            {"timestamp": "t", "type": "event_msg", "payload": {"type": "task_started", "turn_id": turn}},
            {
                "timestamp": "t",
                "type": "event_msg",
                "payload": {"type": "user_message", "message": f"q{number}"},
            },
            {
                "timestamp": "t",
                "type": "event_msg",
                "payload": {"type": "agent_message", "message": f"a{number}"},
            },
            {
                "timestamp": "t",
                "type": "event_msg",
                "payload": {"type": "task_complete", "turn_id": turn, "last_agent_message": f"a{number}"},
            },
        ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_a_compressed_rollout_reads_as_the_plain_one(tmp_path: Path) -> None:
    data = codex_lines(30)
    plain = tmp_path / "rollout-2026-09-30T10-00-00-T.jsonl"
    plain.write_bytes(data)
    packed = tmp_path / "z" / "rollout-2026-09-30T10-00-00-T.jsonl.zst"
    packed.parent.mkdir()
    packed.write_bytes(zstandard.compress(data[:1000]) + zstandard.compress(data[1000:]))
    wanted, got = codex.read(plain), codex.read(packed)
    assert [r.text for r in got.records] == [r.text for r in wanted.records]
    assert len(got.turns) == 30


def test_a_compressed_file_that_breaks_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    data = codex_lines(3000)
    packed = tmp_path / "rollout-2026-09-30T10-00-00-T.jsonl.zst"
    packed.write_bytes(zstandard.compress(data)[:-2000])
    reading = codex.read(packed)
    assert 0 < len(reading.turns) < 3000
    assert reading.counters.cut_off or reading.counters.torn_tail


def test_a_compressed_file_without_end_is_cut_off(tmp_path: Path) -> None:
    packed = tmp_path / "bomb.jsonl.zst"
    packed.write_bytes(zstandard.compress(b'{"type":"x"}\n' * 1_000_000))
    assert packed.stat().st_size < 10_000
    counters = Counters()
    with open_bytes(packed) as stream:
        rows = sum(len(batch.rows) for batch in LineReader(Row, counters, bytes_max=1_000_000).read(stream))
    assert counters.cut_off
    assert 0 < rows <= 1_000_000 / 13


def test_a_follower_finds_a_file_that_was_archived_and_compressed(tmp_path: Path) -> None:
    name = "rollout-2026-09-30T10-00-00-T.jsonl"
    live, archived = tmp_path / name, tmp_path / "archived" / f"{name}.zst"
    live.write_bytes(codex_lines(2))
    follower = Follower("codex", live, relocate=lambda: archived if archived.exists() else None)
    assert follower.poll()
    live.unlink()
    assert not follower.poll()
    archived.parent.mkdir()
    archived.write_bytes(zstandard.compress(codex_lines(3)))
    assert follower.poll()
    assert follower.reset == "truncated"
    assert [turn.key for turn in follower.reading.turns] == ["turn0", "turn1", "turn2"]
    assert not follower.poll()


# -- watching


def test_a_window_begins_at_its_cursor(path: Path) -> None:
    session = session_of(3)
    path.write_bytes(session.data())
    follower = Follower("claude-code", path, cursor=at_end(path))
    assert not follower.poll()
    assert follower.reading.records == []
    before = len(session.data())
    session.human("now")
    session.tools(1, narration="Hm.")
    path.write_bytes(session.data())
    assert follower.poll()
    assert [r.text for r in project.conversation(follower.reading)] == ["now"]
    assert follower.reading.records[0].offset == before
    assert follower.reading.last_turn is not None
    assert follower.reading.last_turn.state == RUNNING
    session.answer("done")
    path.write_bytes(session.data())
    follower.poll()
    assert [r.text for r in project.conversation(follower.reading)] == ["now", "done"]
    assert ended(follower.reading)
    follower.advance()
    assert follower.reading.records == []


def test_a_file_that_is_not_there_yet_is_waited_for(path: Path) -> None:
    follower = Follower("pi", path)
    assert not follower.poll()
    path.write_bytes(b'{"type":"session","id":"p"}\n')
    assert follower.poll()


def test_a_file_without_rights_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(session_of().data())
    follower = Follower("claude-code", path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(Unreadable, match="permission denied"):
        follower.poll()


def test_a_rewritten_file_gives_its_whole_again_and_says_why(path: Path) -> None:
    session = session_of(2)
    path.write_bytes(session.data())
    follower = Follower("claude-code", path, cursor=at_end(path))
    path.write_bytes(session.data().replace(b"question 0", b"QUESTION 0"))
    assert follower.poll()
    assert follower.reset == "rewritten"
    assert len(project.conversation(follower.reading)) == 4


class Stepping:
    """A clock that moves when someone sleeps on it, and tells of it."""

    def __init__(self, slept: Callable[[float], None]) -> None:
        self.at = 100.0
        self._slept = slept

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        self._slept(self.at - 100.0)


async def test_an_end_that_is_signalled_before_the_flush_is_waited_for(path: Path) -> None:
    """BD118 (claude-code#40655): the block before the answer is never taken for the answer."""
    session = ClaudeSession()
    session.human("x")
    session.block("m", {"type": "text", "text": "narration"}, None)
    path.write_bytes(session.data())
    session.tools(1)
    session.answer("FINAL")
    follower = Follower("claude-code", path)
    seen: list[list[str]] = []

    def slept(seconds: float) -> None:
        seen.append([r.text for r in project.conversation(follower.reading)])
        if seconds >= 1.8:
            path.write_bytes(session.data())

    clock = Stepping(slept)
    reading = await settle(follower, clock)
    assert [r.text for r in project.conversation(reading)] == ["x", "FINAL"]
    assert all(words == ["x"] for words in seen)
    assert 1.8 <= clock.at - 100 <= SETTLE_SECONDS


async def test_what_never_comes_is_waited_for_two_seconds_and_no_longer(path: Path) -> None:
    session = ClaudeSession()
    session.human("x")
    path.write_bytes(session.data())
    clock = Stepping(lambda _: None)
    reading = await settle(Follower("claude-code", path), clock)
    assert not ended(reading)
    assert clock.at - 100 == pytest.approx(SETTLE_SECONDS, abs=0.11)


def test_reading_never_writes(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(session_of().data())
    os.utime(path, (1, 1))
    before = sorted((p.name, p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.iterdir())
    claude_code.read(path)
    tail_lines(path, Row, None)
    assert sorted((p.name, p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.iterdir()) == before
    assert claude_code.read(path).turns[-1].state == SETTLED


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_damage(path: Path) -> None:
    session = session_of()
    path.write_bytes(b"\xef\xbb\xbf" + session.data().replace(b"\n", b"\r\n"))
    reading = claude_code.read(path)
    assert [
        (r["role"], r["text"]) for r in map(project.spoken, project.conversation(reading))
    ] == session.said
    assert reading.counters.malformed == 0
