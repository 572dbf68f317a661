"""Every format: captures of real CLIs, public samples, databases, places, and rules that no case plays."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.surroundings import VECTORS, samples
from turnkeeper.cli import run
from turnkeeper.errors import TurnkeeperError
from turnkeeper.transcript import claude_code, cursor, injected, limits, opencode, pi, project
from turnkeeper.transcript.find import LOOK_BYTES, MARKS, find, locate_found
from turnkeeper.transcript.follow import Follower
from turnkeeper.transcript.formats import MODULES, read_path, reader
from turnkeeper.transcript.limits import Limits
from turnkeeper.transcript.place import Roots
from turnkeeper.transcript.record import SUPERSEDED, Reading, seconds
from turnkeeper.transcript.source import Unreadable

CAPTURES = VECTORS / "retained-clis"


def capture(cli: str, tmp_path: Path, *, before: str = "zz") -> Path:
    """What the steps of a real session appended, in order, as one file."""
    path = tmp_path / f"{cli}.jsonl"
    with path.open("wb") as file:
        for step in sorted((CAPTURES / cli).glob("*.delta.jsonl")):
            if step.name < before:
                file.write(step.read_bytes().rstrip(b"\n") + b"\n")
    return path


def people(reading: Reading) -> list[str]:
    return [record.text for record in project.conversation(reading) if record.role == "user"]


def answers(reading: Reading) -> list[str]:
    return [record.text for record in project.conversation(reading) if record.role == "assistant"]


# -- captures of real CLIs

CAPTURED = {
    "claude": ("claude-code", 23, "2.1.332"),
    "codex": ("codex", 23, "0.171.0"),
    "codex-k": ("codex", 3, "0.171.0"),
    "pi": ("pi", 24, "3"),
    "pi-k": ("pi", 3, "3"),
    "piold": ("pi", 2, "3"),
}


@pytest.mark.parametrize("cli", CAPTURED)
def test_a_real_session_is_read_whole_and_every_row_kind_is_known(cli: str, tmp_path: Path) -> None:
    name, count, version = CAPTURED[cli]
    reading = reader(name).read(capture(cli, tmp_path))
    assert len(people(reading)) == count
    assert reading.session.versions == (version,)
    assert reading.counters.unknown == {}
    assert reading.counters.wrappers == {}
    assert reading.counters.malformed == 0


@pytest.mark.parametrize("name", MODULES)
def test_every_row_kind_that_is_passed_over_has_a_reason(name: str) -> None:
    skipped = reader(name).SKIPPED
    assert skipped
    assert all(why.strip() for why in skipped.values())


def test_claude_steers_queues_errors_and_interruptions_of_a_real_session(tmp_path: Path) -> None:
    reading = claude_code.read(capture("claude", tmp_path))
    by_text = {record.text: record for record in reading.records}
    assert by_text["steer gamma during tool"].queued
    assert by_text["queued beta"].queued
    assert not by_text["queued alpha\nsecond row"].queued
    assert by_text["partial words before the stall "].status == "interrupted"
    states = [turn.state for turn in reading.turns if turn.human]
    assert states.count("failed") == 1
    assert states.count("interrupted") == 2
    assert states[-1] == "settled"
    assert states[-2] == "unknown"
    assert project.set_aside(reading, "undelivered") == []
    assert [n.code for n in project.notices(reading)] == [
        "api_error",
        "interrupted",
        "interrupted",
        "informational",
        "informational",
        "bash_mode",
    ]
    unwrapped = next(record for record in project.conversation(reading) if "row 0 abc" in record.text)
    assert unwrapped.text.startswith("[[text:big ok]] row 0")


def test_claude_compaction_of_a_real_session_is_one_notice_and_no_speech(tmp_path: Path) -> None:
    reading = claude_code.read(capture("claude-g", tmp_path))
    assert people(reading) == []
    assert [n.code for n in project.notices(reading)] == ["compaction", "local_command"]


def test_codex_keeps_our_own_id_of_a_message(tmp_path: Path) -> None:
    reading = reader("codex").read(capture("codex", tmp_path))
    first = project.conversation(reading)[0]
    assert first.aliases == ("a73ec076-95e5-4218-8817-63d1d8ca17dc",)
    assert [t.state for t in reading.turns if t.human].count("failed") == 1


def test_pi_attempts_that_were_repeated_are_no_failure(tmp_path: Path) -> None:
    reading = pi.read(capture("pi", tmp_path))
    turn = {r.text: r.turn for r in project.conversation(reading)}
    states = {t.key: t.state for t in reading.turns}
    assert states[turn["[[err:529:2:1796050039]] overload"] or ""] == "settled"
    assert states[turn["[[err:400]] bad"] or ""] == "failed"
    assert [n.code for n in project.notices(reading)].count("api_error") == 2
    assert "partial words before the stall " in answers(reading)


def test_gemini_prompts_that_it_took_back_are_kept_as_superseded(tmp_path: Path) -> None:
    reading = reader("gemini").read(capture("gemini", tmp_path, before="81"))
    taken_back = [r.text for r in project.set_aside(reading, SUPERSEDED)]
    assert "[[err:400]] bad" in taken_back
    assert "[[stall:6]] stalls" in taken_back
    assert "queued alpha\nsecond row\n\nqueued beta" in people(reading)
    assert "I will run it" in [r.text for r in project.progress(reading)]
    assert reading.counters.unknown == {}


# -- databases


def opencode_database(path: Path, *, wal: bool = False) -> apsw.Connection:
    """The rows of the real session's captures."""
    connection = apsw.Connection(str(path))
    if wal:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        "create table session (id text primary key, directory text, title text, parent_id text,"
        " revert text, time_created int, time_updated int);"
        "create table message (id text primary key, session_id text, time_created int, time_updated int, data text);"
        "create table part (id text primary key, message_id text, session_id text, time_created int,"
        " time_updated int, data text)"
    )
    known: dict[str, str] = {}
    for step in sorted((CAPTURES / "opencode").glob("*.delta.jsonl")):
        for line in step.read_text("utf-8").splitlines():
            row = json.loads(line)
            if row[0] == "message":
                known[row[1]] = row[2]
                connection.execute("insert or replace into message values (?, ?, ?, ?, ?)", row[1:6])
            elif row[0] == "part":
                session = known.get(row[2], "")
                values = (row[1], row[2], session, row[3], row[4], row[5])
                connection.execute("insert or replace into part values (?, ?, ?, ?, ?, ?)", values)
    # The captures hold a second session; the first one goes on and is the newest.
    for at, session in enumerate(reversed(dict.fromkeys(known.values()))):
        connection.execute(
            "insert into session values (?, '/home/ana/work/opencode', 'A title', null, null, 1, ?)",
            (session, at),
        )
    return connection


def test_opencode_queued_prompts_ride_with_the_one_that_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    opencode_database(path).close()
    reading = read_path(path)
    assert reading.format == "opencode"
    assert reading.session.title == "A title"
    by_text = {record.text: record for record in project.conversation(reading)}
    assert not by_text["queued alpha\nsecond row"].queued
    assert by_text["queued beta"].queued
    assert by_text["queued beta"].turn == by_text["queued alpha\nsecond row"].turn
    assert by_text["steer gamma during tool"].queued
    assert reading.counters.unknown == {}
    states = {t.key: t.state for t in reading.turns}
    assert states[by_text["[[err:400]] bad"].turn or ""] in {"failed", "unknown"}
    assert "recovered after 2 failures" in answers(reading)


def test_opencode_rows_behind_a_revert_are_superseded(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    connection = opencode_database(path)
    whole = read_path(path)
    conversation = project.conversation(whole)
    first = next(r for r in conversation if r.text.startswith("# [[text:hash]]"))
    connection.execute("update session set revert = ?", (json.dumps({"messageID": first.native_id}),))
    connection.close()
    reverted = read_path(path)
    at = conversation.index(first)
    assert [r.text for r in project.conversation(reverted)] == [r.text for r in conversation[:at]]
    assert [r.text for r in project.set_aside(reverted, SUPERSEDED)] == [r.text for r in conversation[at:]]


@pytest.mark.parametrize("state", ["closed", "open", "crashed"])
def test_a_database_is_read_whoever_holds_it_and_never_touched(state: str, tmp_path: Path) -> None:
    path = tmp_path / "a" / "opencode.db"
    path.parent.mkdir()
    connection = opencode_database(path, wal=True)
    if state == "closed":
        connection.close()
    elif state == "crashed":
        # A crash leaves the log without the shared memory.
        other = tmp_path / "b"
        other.mkdir()
        for name in ("opencode.db", "opencode.db-wal"):
            (other / name).write_bytes((path.parent / name).read_bytes())
        path = other / "opencode.db"

    def files() -> dict[str, bytes]:
        return {
            each.name: each.read_bytes() for each in path.parent.iterdir() if not each.name.endswith("-shm")
        }

    before = files()
    names = sorted(each.name for each in path.parent.iterdir())
    reading = read_path(path)
    assert len(people(reading)) > 20
    assert files() == before
    assert sorted(each.name for each in path.parent.iterdir()) == names
    connection.close()


def test_a_database_that_is_written_while_it_is_read_gives_one_state(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    connection = opencode_database(path, wal=True)
    before = people(read_path(path))
    with connection:
        connection.execute("delete from part")
        assert people(read_path(path)) == before
    assert people(read_path(path)) == []
    connection.close()


def test_a_database_held_locked_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_in_force", Limits(busy_seconds=0.001))
    path = tmp_path / "opencode.db"
    connection = opencode_database(path)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("update session set title = 'x'")
    connection.execute("COMMIT")
    Path(f"{path}-shm").touch()
    with pytest.raises(Unreadable, match=r"locked|disk I/O|malformed|unable"):
        reader("opencode").read(path)
    connection.close()


@pytest.mark.parametrize(
    "data", [b"", b"SQLite format 3\x00" + b"\x00" * 500, b"SQLite format 3\x00" + os.urandom(4096)]
)
def test_a_database_that_is_none_is_said(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(data)
    with pytest.raises(TurnkeeperError):
        read_path(path, name="opencode")


def test_a_session_of_a_database_is_chosen_by_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "opencode.db"
    connection = opencode_database(path)
    connection.execute("insert into session values ('ses_other', '/w', 'Other', null, null, 1, 3)")
    connection.execute(
        'insert into message values (\'msg_z\', \'ses_other\', 1, 1, \'{"role":"user","time":{"created":1}}\')'
    )
    connection.execute(
        "insert into part values ('prt_z', 'msg_z', 'ses_other', 1, 1, '{\"type\":\"text\",\"text\":\"other\"}')"
    )
    connection.close()
    assert run(["transcript", "show", str(path), "--session", "ses_other"]) == 0
    assert json.loads(capsys.readouterr().out)["conversation"] == [{"role": "user", "text": "other"}]
    assert run(["transcript", "show", str(path), "--session", "none"]) == 2
    assert "does not hold that session" in capsys.readouterr().err


def test_a_database_is_followed_from_a_message_on(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    connection = opencode_database(path)
    follower = Follower("opencode", path, cursor=opencode.at_end(path))
    follower.poll()
    assert follower.reading.records == []
    assert not follower.poll()
    session = opencode.read(path).session.native_id
    connection.execute(
        'insert into message values (\'msg_zz1\', ?, 1, 1, \'{"role":"user","time":{"created":1}}\')',
        (session,),
    )
    connection.execute(
        'insert into part values (\'prt_zz1\', \'msg_zz1\', ?, 1, 1, \'{"type":"text","text":"new"}\')',
        (session,),
    )
    assert follower.poll()
    assert people(follower.reading) == ["new"]
    answer = {"role": "assistant", "parentID": "msg_zz1", "time": {"created": 2}}
    connection.execute("insert into message values ('msg_zz2', ?, 1, 1, ?)", (session, json.dumps(answer)))
    connection.execute(
        'insert into part values (\'prt_zz2\', \'msg_zz2\', ?, 1, 1, \'{"type":"text","text":"half"}\')',
        (session,),
    )
    assert follower.poll()
    assert answers(follower.reading) == []
    answer |= {"time": {"created": 2, "completed": 3}, "finish": "stop"}
    connection.execute("update message set data = ? where id = 'msg_zz2'", (json.dumps(answer),))
    connection.execute(
        'update part set data = \'{"type":"text","text":"half and half"}\' where id = \'prt_zz2\''
    )
    assert follower.poll()
    assert answers(follower.reading) == ["half and half"]
    follower.advance()
    assert not follower.poll()
    assert follower.reading.records == []
    connection.close()


# -- Cursor


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class CursorChat:
    """A store.db as Cursor makes it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.connection = apsw.Connection(str(path))
        self.connection.execute(
            "create table blobs (id text primary key, data blob); create table meta (key text primary key, value text)"
        )

    def blob(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self.connection.execute("insert or ignore into blobs values (?, ?)", (name, data))
        return name

    def message(self, role: str, *content: Any) -> str:
        return self.blob(
            json.dumps(
                {
                    "role": role,
                    "id": "1",
                    "content": content[0] if content and isinstance(content[0], str) else list(content),
                }
            ).encode()
        )

    def root(self, *ids: str) -> None:
        data = (
            b"".join(b"\x0a" + varint(32) + bytes.fromhex(each) for each in ids)
            + b"\x42"
            + varint(5)
            + b"turns"
            + b"\x48"
            + varint(300)
        )
        about = {
            "agentId": "chat-1",
            "latestRootBlobId": self.blob(data),
            "name": "New Agent",
            "blobEncryptionKey": "SECRET-KEY",
        }
        self.connection.execute(
            "insert or replace into meta values ('0', ?)", (json.dumps(about).encode().hex(),)
        )


def ask(text: str) -> dict[str, str]:
    return {"type": "text", "text": f"<timestamp>now</timestamp>\n<user_query>\n{text}\n</user_query>"}


def test_cursor_follows_its_newest_root_and_keeps_what_was_rewound(tmp_path: Path) -> None:
    path = tmp_path / ".cursor/chats/abc/chat-1/store.db"
    chat = CursorChat(path)
    info = chat.message("user", {"type": "text", "text": "<user_info>\nOS: x\n</user_info>"})
    first = chat.message("user", ask("count the files"))
    looks = chat.message(
        "assistant",
        {"type": "reasoning", "text": "need ls"},
        {"type": "text", "text": "Looking."},
        {"type": "tool-call", "toolCallId": "t", "toolName": "Shell", "args": {}},
    )
    result = chat.message("tool", {"type": "tool-result", "toolCallId": "t", "result": "3"})
    says = chat.message("assistant", {"type": "text", "text": "Three."})
    wrong = chat.message("user", ask("delete them"))
    gone = chat.message("assistant", {"type": "text", "text": "Deleted."})
    chat.root(info, first, looks, result, says, wrong, gone)
    better = chat.message("user", ask("keep them"))
    kept = chat.message("assistant", "Kept.")
    chat.root(info, first, looks, result, says, better, kept)
    reading = read_path(path)
    assert [(r.role, r.text) for r in project.conversation(reading)] == [
        ("user", "count the files"),
        ("assistant", "Three."),
        ("user", "keep them"),
        ("assistant", "Kept."),
    ]
    assert [r.text for r in project.set_aside(reading, SUPERSEDED)] == ["delete them", "Deleted."]
    assert [r.text for r in project.progress(reading)] == ["need ls", "Looking.", "Shell"]
    assert reading.session.native_id == "chat-1"
    assert "SECRET-KEY" not in json.dumps(project.as_case(reading))
    place = cursor.locate("chat-1", Roots(home=tmp_path))
    assert place is not None
    assert place.paths == (path,)
    follower = Follower("cursor", path, cursor=cursor.at_end(path))
    follower.poll()
    more = chat.message("user", ask("thanks"))
    chat.root(info, first, looks, result, says, better, kept, more)
    assert follower.poll()
    assert people(follower.reading) == ["thanks"]
    chat.connection.close()


def test_cursor_without_a_database_reads_its_agent_transcript(tmp_path: Path) -> None:
    path = tmp_path / ".cursor/projects/p/agent-transcripts/chat-2/chat-2.jsonl"
    path.parent.mkdir(parents=True)
    rows = [
        {"role": "user", "message": {"content": [ask("go")]}},
        {
            "role": "assistant",
            "message": {
                "content": [
                    {"type": "thinking", "thinking": "[REDACTED]"},
                    {"type": "text", "text": "Going."},
                    {"type": "tool_use", "name": "Shell", "id": "t"},
                ]
            },
        },
        {"role": "assistant", "message": {"content": [{"type": "text", "text": "Gone."}]}},
        {"type": "turn_ended", "status": "success"},
        {"role": "user", "message": {"content": [ask("again")]}},
        {"role": "assistant", "message": {"content": [{"type": "text", "text": "Go"}]}},
        {"type": "turn_ended", "status": "aborted"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reading = read_path(path)
    assert [project.spoken(r) for r in project.conversation(reading)] == [
        {"role": "user", "text": "go"},
        {"role": "assistant", "text": "Gone."},
        {"role": "user", "text": "again"},
        {"role": "assistant", "text": "Go", "status": "interrupted"},
    ]
    assert [t.state for t in reading.turns] == ["settled", "interrupted"]
    place = cursor.locate("chat-2", Roots(home=tmp_path))
    assert place is not None
    assert place.paths == (path,)


# -- rules without a public case


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_qwen_says_who_wrote_a_row(tmp_path: Path) -> None:
    def row(uuid: str, parent: str | None, kind: str, **more: Any) -> dict[str, Any]:
        return {
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": "q",
            "timestamp": "2026-09-30T10:00:00Z",
            "type": kind,
            **more,
        }

    def said(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"message": {"role": role, "parts": list(parts)}}

    path = write(
        tmp_path / "q.jsonl",
        row("1", None, "user", provenance="hook", **said("user", {"text": "injected"})),
        row("2", "1", "user", provenance="real_user", **said("user", {"text": "list"})),
        row(
            "3",
            "2",
            "assistant",
            **said(
                "model",
                {"text": "hm", "thought": True},
                {"text": "Looking."},
                {"functionCall": {"id": "t", "name": "ls"}},
            ),
        ),
        row("4", "3", "tool_result", **said("user", {"functionResponse": {"id": "t"}})),
        row(
            "5",
            "4",
            "system",
            subtype="mid_turn_user_message",
            systemPayload={"displayText": "only py"},
            **said("user", {"text": "only py (expanded)"}),
        ),
        row("6", "5", "assistant", **said("model", {"text": "a.py"})),
        row("7", "6", "user", provenance="real_user", **said("user", {"text": "abandoned"})),
        row(
            "8",
            "6",
            "system",
            subtype="slash_command",
            systemPayload={"phase": "invocation", "rawCommand": "/stats"},
        ),
        row("9", "8", "system", subtype="slash_command", systemPayload={"phase": "result"}),
        row("10", "9", "system", subtype="chat_compression"),
        row("11", "10", "user", provenance="real_user", **said("user", {"text": "thanks"})),
        row("12", "11", "assistant", **said("model", {"text": "Any time."})),
        row("13", "12", "system", subtype="new_thing"),
    )
    reading = read_path(path)
    assert reading.format == "qwen"
    assert [project.spoken(r) for r in project.conversation(reading)] == [
        {"role": "user", "text": "list"},
        {"role": "user", "text": "only py", "queued": True},
        {"role": "assistant", "text": "a.py"},
        {"role": "user", "text": "thanks"},
        {"role": "assistant", "text": "Any time."},
    ]
    assert [r.text for r in project.progress(reading)] == ["hm", "Looking.", "ls"]
    assert [r.text for r in project.set_aside(reading, SUPERSEDED)] == ["abandoned"]
    assert [n.code for n in project.notices(reading)] == ["slash_command", "compaction"]
    assert reading.counters.unknown == {"system/new_thing": 1}


def test_copilot_events(tmp_path: Path) -> None:
    def event(number: int, kind: str, **data: Any) -> dict[str, Any]:
        return {
            "type": kind,
            "id": f"e{number}",
            "parentId": f"e{number - 1}",
            "timestamp": "2026-09-30T10:00:00Z",
            "data": data,
        }

    path = write(
        tmp_path / "events.jsonl",
        event(1, "session.start", sessionId="c", context={"cwd": "/w"}, copilotVersion="1.0"),
        event(2, "user.message", content="go", transformedContent="<wrapped>go</wrapped>"),
        event(3, "user.message", content="a skill", source="skill-x"),
        event(4, "assistant.turn_start"),
        event(5, "assistant.message", content="Looking.", toolRequests=[{"toolCallId": "t", "name": "bash"}]),
        {**event(6, "assistant.message", content="sub"), "agentId": "sub-1"},
        event(7, "tool.execution_complete"),
        event(8, "assistant.turn_end"),
        event(9, "assistant.turn_start"),
        event(10, "assistant.message", content="Done.", reasoningText="thought"),
        event(11, "assistant.turn_end"),
        event(12, "user.message", content="wrong"),
        event(13, "session.snapshot_rewind", upToEventId="e12"),
        event(14, "user.message", content="right"),
        event(15, "abort", reason="user"),
    )
    reading = read_path(path)
    assert reading.format == "copilot"
    assert [r.text for r in project.conversation(reading)] == ["go", "Done.", "right"]
    assert [r.text for r in project.progress(reading)] == ["Looking.", "bash", "thought"]
    assert [r.text for r in project.set_aside(reading, SUPERSEDED)] == ["wrong"]
    assert [t.state for t in reading.turns] == ["settled", "interrupted"]
    assert reading.counters.unknown == {}
    assert reading.counters.other_agent == 1
    assert reading.session.cwd == "/w"


def test_droid_strips_the_reminders_before_a_prompt(tmp_path: Path) -> None:
    def message(name: str, parent: str | None, role: str, *content: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "message",
            "id": name,
            "parentId": parent,
            "timestamp": "2026-09-30T10:00:00Z",
            "message": {"role": role, "content": list(content)},
        }

    path = write(
        tmp_path / "d.jsonl",
        {"type": "session_start", "id": "d", "title": "T", "cwd": "/w", "version": 2},
        message(
            "1",
            None,
            "user",
            {"type": "text", "text": "<system-reminder>x</system-reminder>"},
            {"type": "text", "text": "fix it"},
        ),
        message(
            "2",
            "1",
            "assistant",
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "t", "name": "Read"},
        ),
        message("3", "2", "user", {"type": "tool_result", "text": "out"}),
        message("4", "3", "assistant", {"type": "text", "text": "Fixed."}),
    )
    reading = read_path(path)
    assert reading.format == "droid"
    assert [r.text for r in project.conversation(reading)] == ["fix it", "Fixed."]
    assert reading.session.title == "T"


def test_muse_steers_and_stops(tmp_path: Path) -> None:
    def record(number: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"r{number}",
            "stream": {"kind": "session", "id": "S"},
            "recorded_at": 1790000000000000 + number,
            "payload_type": kind,
            "payload": payload,
        }

    def run_event(number: int, **event: Any) -> dict[str, Any]:
        return record(number, "runtime.session", {"kind": "run", "run_id": "r1", "event": event})

    def intent(number: int, name: str, text: str) -> dict[str, Any]:
        return record(
            number,
            "runtime.user_intent.accepted",
            {"intent_id": name, "refill_blocks": [{"kind": "text", "text": text}]},
        )

    path = write(
        tmp_path / "session.jsonl",
        intent(1, "r1", "go"),
        run_event(2, kind="started", prompt="go"),
        intent(3, "r2", "and faster"),
        run_event(4, kind="assistant_message_committed", text="Half", message_id="m"),
        run_event(5, kind="terminal", terminal="cancelled_by_user"),
    )
    reading = read_path(path)
    assert [project.spoken(r) for r in project.conversation(reading)] == [
        {"role": "user", "text": "go"},
        {"role": "user", "text": "and faster", "queued": True},
        {"role": "assistant", "text": "Half", "status": "interrupted"},
    ]
    assert [t.state for t in reading.turns] == ["interrupted"]


def codex(*payloads: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"timestamp": "2026-09-30T10:00:00Z", "ordinal": n, "type": kind, "payload": payload}
        for n, (kind, payload) in enumerate(payloads)
    ]


def codex_turn(turn: str, question: str, answer: str | None) -> list[tuple[str, dict[str, Any]]]:
    rows: list[tuple[str, dict[str, Any]]] = [
        ("event_msg", {"type": "task_started", "turn_id": turn}),
        ("event_msg", {"type": "user_message", "message": question}),
    ]
    if answer is not None:
        rows.append(("event_msg", {"type": "agent_message", "message": answer}))
    return [*rows, ("event_msg", {"type": "task_complete", "turn_id": turn, "last_agent_message": answer})]


META = ("session_meta", {"id": "T", "cwd": "/w", "cli_version": "0.150.0"})


def test_codex_rollbacks_aborts_and_missing_answers(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rollout-2026-09-30T10-00-00-T.jsonl",
        *codex(
            META,
            *codex_turn("1", "keep", "Kept."),
            *codex_turn("2", "wrong", "Wrong."),
            ("event_msg", {"type": "task_started", "turn_id": "3"}),
            ("event_msg", {"type": "user_message", "message": "wronger"}),
            ("event_msg", {"type": "agent_message", "message": "I was abou"}),
            ("event_msg", {"type": "turn_aborted", "reason": "interrupted"}),
            ("event_msg", {"type": "thread_rolled_back", "num_turns": 2}),
            ("event_msg", {"type": "task_started", "turn_id": "4"}),
            ("event_msg", {"type": "user_message", "message": "stop me"}),
            ("event_msg", {"type": "agent_message", "message": "As I was say"}),
            ("event_msg", {"type": "turn_aborted", "turn_id": "4", "reason": "interrupted"}),
            *codex_turn("5", "fail", None),
        ),
    )
    reading = read_path(path)
    assert [project.spoken(r) for r in project.conversation(reading)] == [
        {"role": "user", "text": "keep"},
        {"role": "assistant", "text": "Kept."},
        {"role": "user", "text": "stop me"},
        {"role": "assistant", "text": "As I was say", "status": "interrupted"},
        {"role": "user", "text": "fail"},
    ]
    assert [r.text for r in project.set_aside(reading, SUPERSEDED)] == [
        "wrong",
        "Wrong.",
        "wronger",
        "I was abou",
    ]
    assert [t.state for t in reading.turns] == ["settled", "interrupted", "failed"]
    assert [n.code for n in project.notices(reading)] == ["interrupted"]


@pytest.mark.parametrize("base", [{"thread_id": "T", "end_ordinal_exclusive": 5}, None])
def test_codex_continuations_are_one_thread(base: dict[str, Any] | None, tmp_path: Path) -> None:
    write(
        tmp_path / "rollout-2026-09-30T10-00-00-T.jsonl",
        *codex(META, *codex_turn("1", "one", "1."), *codex_turn("2", "two", "2.")),
    )
    meta = ("session_meta", {"id": "T", "cwd": "/w", **({"history_base": base} if base else {})})
    write(
        tmp_path / "rollout-2026-09-30T11-00-00-T_R.jsonl",
        *codex(
            meta,
            ("compacted", {"message": "", "replacement_history": [{"role": "user", "content": "never"}]}),
            *codex_turn("3", "three", "3."),
        ),
    )
    reading = read_path(tmp_path)
    assert reading.family
    kept = ["one", "1.", "three", "3."] if base else ["one", "1.", "two", "2.", "three", "3."]
    assert [r.text for r in project.conversation(reading)] == kept
    assert [r.text for r in project.set_aside(reading, SUPERSEDED)] == (["two", "2."] if base else [])
    assert [n.code for n in project.notices(reading)] == ["compaction"]
    place = reader("codex").locate("T", Roots(home=tmp_path, given=(tmp_path / "none",)))
    assert place is None


def test_codex_narration_of_a_turn_that_ended_well_is_its_answer(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rollout-2026-09-30T10-00-00-T.jsonl",
        *codex(
            META,
            ("event_msg", {"type": "task_started", "turn_id": "1"}),
            ("event_msg", {"type": "user_message", "message": "q"}),
            ("event_msg", {"type": "agent_message", "message": "All is well.", "phase": "commentary"}),
            ("event_msg", {"type": "task_complete", "turn_id": "1", "last_agent_message": "All is well."}),
            ("event_msg", {"type": "task_started", "turn_id": "2"}),
            ("event_msg", {"type": "user_message", "message": "r"}),
            ("event_msg", {"type": "task_complete", "turn_id": "2", "last_agent_message": "Told only here."}),
        ),
    )
    assert [r.text for r in project.conversation(read_path(path))] == [
        "q",
        "All is well.",
        "r",
        "Told only here.",
    ]


def test_codex_never_shows_what_it_would_take_back(tmp_path: Path) -> None:
    """The model's copy of a message is written before the screen's: while a turn runs it is no source."""
    rows = codex(
        META,
        ("event_msg", {"type": "task_started", "turn_id": "1"}),
        (
            "response_item",
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "<new_context>x</new_context>"}],
            },
        ),
        (
            "response_item",
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        ),
        ("event_msg", {"type": "user_message", "message": "q"}),
    )
    for count, wanted in ((3, []), (4, []), (5, ["q"])):
        path = write(tmp_path / f"rollout-2026-09-30T10-00-0{count}-T.jsonl", *rows[:count])
        assert people(reader("codex").read(path, whole=False)) == wanted


# -- Claude Code


def claude(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    out = []
    for number, row in enumerate(rows):
        out.append(
            {
                "uuid": f"u{number}",
                "parentUuid": f"u{number - 1}" if number else None,
                "timestamp": f"2026-09-30T10:00:{number:02}Z",
                **row,
            }
        )
    return out


def user(text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, **more}


def agent(text: str, stop: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    return {
        "type": "assistant",
        "message": {
            "id": f"m{text}",
            "role": "assistant",
            "content": [{"type": "text", "text": text}],
            "stop_reason": stop,
        },
        **more,
    }


def op(operation: str, **more: Any) -> dict[str, Any]:
    return {"type": "queue-operation", "operation": operation, "uuid": None, "parentUuid": None, **more}


def read_rows(tmp_path: Path, *rows: dict[str, Any]) -> Reading:
    return claude_code.read(write(tmp_path / "s.jsonl", *rows))


def test_queued_texts_that_never_reached_the_model_are_told_apart(tmp_path: Path) -> None:
    reading = read_rows(
        tmp_path,
        *claude(user("go", origin={"kind": "human"})),
        op("enqueue", content="taken back"),
        op("popAll", content="taken back"),
        op("enqueue", content="lost"),
        op("dequeue"),
        op("enqueue", content="removed"),
        op("remove", content="removed"),
        op("enqueue", content="twice"),
        op("enqueue", content="twice"),
        op("dequeue"),
        {**user("twice", promptSource="queued", origin={"kind": "human"}), "uuid": "q", "parentUuid": "u0"},
        op("enqueue", content="<task-notification>x</task-notification>"),
        op("enqueue", content='<pasted_content id="1">\npasted\n</pasted_content id="1">'),
    )
    case = project.as_case(reading)
    assert case["undelivered"] == ["lost", "removed", "twice", "pasted"]
    assert case["cancelled"] == ["taken back"]
    assert [row["text"] for row in case["conversation"]] == ["go", "twice"]


def test_what_is_typed_again_by_hand_delivers_nothing_from_the_queue(tmp_path: Path) -> None:
    reading = read_rows(
        tmp_path,
        *claude(user("go", origin={"kind": "human"})),
        op("enqueue", content="again"),
        {**user("again", promptSource="typed", origin={"kind": "human"}), "uuid": "q", "parentUuid": "u0"},
    )
    assert project.as_case(reading)["undelivered"] == ["again"]


def test_queued_texts_that_became_one_prompt_were_delivered(tmp_path: Path) -> None:
    reading = read_rows(
        tmp_path,
        *claude(user("go", origin={"kind": "human"})),
        op("enqueue", content="a b"),
        op("enqueue", content="c"),
        {
            **user("a b\n\nc", promptSource="queued", origin={"kind": "human"}),
            "uuid": "q",
            "parentUuid": "u0",
        },
    )
    assert project.as_case(reading)["undelivered"] == []


def test_a_second_root_of_a_person_abandons_all_before(tmp_path: Path) -> None:
    rows = claude(
        user("old", origin={"kind": "human"}),
        agent("Old."),
        user("new", origin={"kind": "human"}),
        agent("New."),
    )
    rows[2]["parentUuid"] = None
    reading = read_rows(tmp_path, *rows)
    assert [r.text for r in project.conversation(reading)] == ["new", "New."]
    assert [r.text for r in project.set_aside(reading, SUPERSEDED)] == ["old", "Old."]


def test_a_missing_parent_and_a_side_chain_lose_nothing(tmp_path: Path) -> None:
    rows = claude(
        user("one", origin={"kind": "human"}),
        {"type": "progress", "data": {}},
        agent("1."),
        user("side", isSidechain=True),
        agent("side answer", isSidechain=True),
        user("two", origin={"kind": "human"}),
        agent("2."),
    )
    rows[5]["parentUuid"] = "nowhere"
    rows[3]["parentUuid"] = None
    reading = read_rows(tmp_path, *rows)
    assert [r.text for r in project.conversation(reading)] == ["one", "1.", "two", "2."]
    assert project.set_aside(reading, SUPERSEDED) == []
    assert reading.counters.other_agent == 2


def test_rows_without_ids_and_roles_stand_in_file_order(tmp_path: Path) -> None:
    reading = read_rows(
        tmp_path,
        {"type": "user", "message": {"content": "a"}},
        {
            "type": "assistant",
            "message": {
                "content": [
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "t", "name": "Read"},
                ]
            },
        },
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t"}]}},
        {"type": "assistant", "message": {"content": "A."}},
    )
    assert [r.text for r in project.conversation(reading)] == ["a", "A."]
    assert [t.state for t in reading.turns] == ["settled"]


@pytest.mark.parametrize("marked", [True, False])
def test_a_fork_shows_all_and_knows_its_own(marked: bool, tmp_path: Path) -> None:
    shared = claude(user("one", origin={"kind": "human"}), agent("1."))
    title = {"type": "custom-title", "customTitle": "Parent"}
    write(
        tmp_path / "p.jsonl",
        shared[0],
        title,
        shared[1],
        {
            **user("parent only", origin={"kind": "human"}),
            "uuid": "p",
            "parentUuid": "u1",
            "timestamp": "2026-09-30T12:00:00Z",
        },
    )
    copied = (
        [
            {
                **row,
                "uuid": f"f{n}",
                "parentUuid": f"f{n - 1}" if n else None,
                "forkedFrom": {"sessionId": "p", "messageUuid": row["uuid"]},
            }
            for n, row in enumerate(shared)
        ]
        if marked
        else shared
    )
    last = copied[-1]["uuid"]
    write(
        tmp_path / "f.jsonl",
        *copied,
        {**user("two", origin={"kind": "human"}), "uuid": "own", "parentUuid": last},
        {**agent("2."), "uuid": "own2", "parentUuid": "own"},
    )
    reading = read_path(tmp_path)
    assert reading.primary == "f.jsonl"
    assert [r.text for r in project.conversation(reading)] == ["one", "1.", "two", "2."]
    assert [r.text for r in project.own(reading)] == ["two", "2."]
    if marked:
        assert project.conversation(reading)[0].aliases == ("u0",)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<tick>12</tick>", "nobody"),
        ("<goal>win</goal>", "nobody"),
        ("<channel a>x</channel>", "peer_message"),
        ("<cross-session-message>x</cross-session-message>", "peer_message"),
        ("<session-start-hook>x</session-start-hook>", "nobody"),
        ("Caveat: x", "nobody"),
        ("<ide_selection>x</ide_selection>", "nobody"),
        ("<some_new_tag>x</some_new_tag>", "nobody"),
        ("<div>x</div> and more", "human"),
        ("less < than", "human"),
    ],
)
def test_who_speaks_in_a_row_that_does_not_say_so(text: str, kind: str, tmp_path: Path) -> None:
    reading = read_rows(tmp_path, *claude(user("first", origin={"kind": "human"}), agent("1."), user(text)))
    spoken = [r.text for r in project.conversation(reading)][2:]
    codes = [n.code for n in project.notices(reading)]
    assert (spoken, codes) == {"nobody": ([], []), "human": ([text], [])}.get(kind, ([], [kind]))


def test_an_unknown_tag_in_a_file_that_says_nothing_is_taken_for_a_person_and_counted(tmp_path: Path) -> None:
    reading = read_rows(tmp_path, *claude(user("<some_new_tag>x</some_new_tag>"), agent("ok")))
    assert people(reading) == ["<some_new_tag>x</some_new_tag>"]
    assert project.conversation(reading)[0].provenance == "inferred"
    assert reading.counters.wrappers == {"some_new_tag": 1}


def test_a_paste_inside_a_message_is_unwrapped_where_it_stands(tmp_path: Path) -> None:
    text = 'see\n\n<pasted_content id="1">\na\nb\n</pasted_content id="1">\nand\n\n<pasted_content id="1">\nc\n</pasted_content id="1">\n'
    reading = read_rows(tmp_path, *claude(user(text, origin={"kind": "human"})))
    assert people(reading) == ["see\na\nb\nand\nc"] or people(reading) == ["see\na\nband\nc"]


def test_the_table_of_injected_texts_is_data_with_an_edition() -> None:
    assert injected.revision() >= 1
    for name in ("claude-code", "codex", "gemini", "cursor", "droid", "qwen"):
        assert injected.table(name) is injected.table(name)
    table = injected.table("codex")
    assert table.find("<Environment_Context>\n x\n</ENVIRONMENT_CONTEXT>") is not None
    assert table.find("<environment_context> and then my words") is None


# -- places


def home(tmp_path: Path) -> dict[str, Path]:
    """One session of each line-based CLI in a home folder."""
    places = {
        "claude-code": ".claude/projects/-home-ana-demo/c1.jsonl",
        "codex": ".codex/sessions/2026/09/30/rollout-2026-09-30T10-00-00-x1.jsonl",
        "pi": ".pi/agent/sessions/--home-ana-demo--/2026-09-30T10-00-00-000Z_p1.jsonl",
        "gemini": ".gemini/tmp/abc/chats/session-2026-09-30T10-00-g1.jsonl",
        "muse": ".local/share/muse/sessions/2026/09/30/m1/session.jsonl",
        "qwen": ".qwen/projects/-home-ana-demo/chats/q1.jsonl",
        "copilot": ".copilot/session-state/o1/events.jsonl",
        "droid": ".factory/sessions/-home-ana-demo/d1.jsonl",
    }
    vectors = VECTORS / "transcripts"
    data = {
        "claude-code": (vectors / "01-claude-stream-split/session.jsonl").read_bytes(),
        "codex": next((vectors / "13-codex-legacy-duplicates").glob("*.jsonl")).read_bytes(),
        "pi": next((vectors / "18-pi-tree").glob("*.jsonl")).read_bytes(),
        "gemini": next((vectors / "19-gemini-rewind").glob("*.jsonl")).read_bytes().replace(b"g-1", b"g1"),
        "muse": (vectors / "20-muse-streams/session.jsonl").read_bytes(),
    }
    made = {}
    for name, place in places.items():
        made[name] = tmp_path / place
        made[name].parent.mkdir(parents=True)
        made[name].write_bytes(data.get(name, b'{"type":"x","timestamp":"2026-09-30T10:00:00.000Z"}\n'))
    return made


IDS = {
    "claude-code": "c1",
    "codex": "x1",
    "pi": "p1",
    "gemini": "g1",
    "muse": "m1",
    "qwen": "q1",
    "copilot": "o1",
    "droid": "d1",
}


@pytest.mark.parametrize("name", IDS)
def test_a_session_is_found_by_its_native_id(name: str, tmp_path: Path) -> None:
    made = home(tmp_path)
    place = reader(name).locate(IDS[name], Roots(home=tmp_path))
    assert place is not None
    assert place.paths == (made[name],)
    assert reader(name).locate("zz", Roots(home=tmp_path)) is None


@pytest.mark.parametrize("name", IDS)
def test_the_folder_that_turnkeeper_gave_comes_first(name: str, tmp_path: Path) -> None:
    """Seed 002: a runtime with its own folder keeps its sessions there, and the lookup in $HOME never sees them."""
    own, other = tmp_path / "run", tmp_path / "home"
    theirs, ours = home(other), home(own)
    root = {
        "claude-code": ".claude",
        "codex": ".codex",
        "pi": ".pi/agent",
        "gemini": ".gemini",
        "muse": ".local/share/muse",
        "qwen": ".qwen",
        "copilot": ".copilot",
        "droid": ".factory",
    }[name]
    where = Roots(home=other, given=(own / root,))
    place = reader(name).locate(IDS[name], where)
    assert place is not None
    assert place.paths == (ours[name],)
    ours[name].unlink()
    place = reader(name).locate(IDS[name], where)
    assert place is not None
    assert place.paths == (theirs[name],)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("native", [None, "", "../c1", "c*", "a/b", "\x00", "x" * 300])
def test_without_a_usable_id_nothing_is_touched(
    name: str, native: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the disk was touched")

    monkeypatch.setattr(os, "scandir", never)
    monkeypatch.setattr(Path, "is_file", never)
    monkeypatch.setattr(Path, "iterdir", never)
    assert reader(name).locate(native, Roots(home=Path("/nowhere"))) is None


def test_claude_is_found_in_any_project_folder(tmp_path: Path) -> None:
    """BD111 (claude-code#41344): the project moved; the id did not."""
    made = home(tmp_path)["claude-code"]
    place = claude_code.locate("c1", Roots(home=tmp_path), cwd="/home/ana/elsewhere")
    assert place is not None
    assert place.paths == (made,)


def test_the_slug_of_a_folder_is_the_clis_own() -> None:
    assert (
        claude_code.slug("/Users/mipl/ai-work/mcp-agent.builder_go")
        == "-Users-mipl-ai-work-mcp-agent-builder-go"
    )
    assert claude_code.slug("/a.b") == claude_code.slug("/a-b")
    assert claude_code.slug("/e\u0301") == "--"
    assert len(claude_code.slug("/" + "x" * 500)) == 200
    assert pi.folder_name("/home/ana/work:a") == "--home-ana-work-a--"


def test_codex_finds_all_rollouts_of_a_thread_whatever_the_day(tmp_path: Path) -> None:
    names = [
        "2026/09/30/rollout-2026-09-30T23-59-00-T.jsonl",
        "2026/10/01/rollout-2026-10-01T00-01-00-T_R.jsonl",
    ]
    for name in names:
        path = tmp_path / ".codex/sessions" / name
        path.parent.mkdir(parents=True)
        path.write_text("{}\n")
    old = tmp_path / ".codex/archived_sessions/rollout-2026-09-29T10-00-00-T_A.jsonl.zst"
    old.parent.mkdir()
    old.write_bytes(b"")
    place = reader("codex").locate("T", Roots(home=tmp_path))
    assert place is not None
    assert [path.name for path in place.paths] == [old.name, *[Path(name).name for name in names]]


def test_environment_variables_name_the_folders(tmp_path: Path) -> None:
    made = home(tmp_path)
    where = Roots(
        home=tmp_path / "empty",
        env={
            "CLAUDE_CONFIG_DIR": str(tmp_path / ".claude"),
            "CODEX_HOME": str(tmp_path / ".codex"),
            "PI_CODING_AGENT_DIR": str(tmp_path / ".pi/agent"),
        },
    )
    for name in ("claude-code", "codex", "pi"):
        place = reader(name).locate(IDS[name], where)
        assert place is not None
        assert place.paths == (made[name],)


# -- find


def test_find_lists_every_session_with_what_its_ends_say(tmp_path: Path) -> None:
    made = home(tmp_path)
    found = {session.format: session for session in find(Roots(home=tmp_path))}
    assert set(found) == set(made)
    claude_session = found["claude-code"]
    assert (claude_session.id, claude_session.cwd, claude_session.turns) == (
        "claude-code:c1",
        "/home/ana/demo",
        1,
    )
    assert claude_session.last_activity == seconds("2026-09-30T10:00:08.000Z")
    assert claude_session.size_bytes == made["claude-code"].stat().st_size
    assert (found["codex"].title, found["codex"].turns) == ("fix the bug", 2)
    assert (found["pi"].cwd, found["pi"].title, found["pi"].turns) == (
        "/home/ana/demo",
        "group them by companies",
        4,
    )
    assert (found["muse"].cwd, found["muse"].title, found["muse"].turns) == (
        "/home/ana/demo",
        "check the tests",
        1,
    )
    assert all(session.whole for session in found.values())


def test_find_says_of_a_long_session_that_it_saw_its_ends_only(tmp_path: Path) -> None:
    path = home(tmp_path)["claude-code"]
    data = path.read_bytes()
    path.write_bytes(
        data
        + b'{"type":"user","x":"'
        + b"y" * 200_000
        + b'"}\n'
        + b'{"type":"custom-title","customTitle":"Named"}\n'
    )
    (session,) = find(Roots(home=tmp_path), names=["claude-code"])
    assert not session.whole
    assert session.title == "Named"


@pytest.mark.parametrize(("more", "whole"), [(0, True), (1, False)])
def test_find_counts_a_session_of_one_look_whole_and_one_byte_more_in_part(
    tmp_path: Path, more: int, whole: bool
) -> None:
    path = home(tmp_path)["claude-code"]
    data = path.read_bytes()
    filler = b'{"type":"mode","x":"'
    room = LOOK_BYTES + more - len(data) - len(filler) - 3
    path.write_bytes(data + filler + b"y" * room + b'"}\n')
    assert path.stat().st_size == LOOK_BYTES + more
    (session,) = find(Roots(home=tmp_path), names=["claude-code"])
    assert (session.whole, session.cwd) == (whole, "/home/ana/demo")


def test_find_takes_the_titles_at_the_end_for_all_and_else_looks_for_older_ones(tmp_path: Path) -> None:
    path = home(tmp_path)["claude-code"]
    early = b'{"type":"custom-title","customTitle":"Old"}\n'
    filler = b'{"type":"mode","x":"' + b"y" * 90_000 + b'"}\n'
    path.write_bytes(early + filler)
    assert [session.title for session in find(Roots(home=tmp_path), names=["claude-code"])] == ["Old"]
    late = b'{"type":"custom-title","customTitle":"New"}\n{"type":"last-prompt","lastPrompt":"and now?"}\n'
    path.write_bytes(early + filler + late)
    assert [session.title for session in find(Roots(home=tmp_path), names=["claude-code"])] == ["New"]


def test_find_lists_databases_and_what_cannot_be_read(tmp_path: Path) -> None:
    database = tmp_path / ".local/share/opencode/opencode.db"
    database.parent.mkdir(parents=True)
    opencode_database(database).close()
    broken = tmp_path / ".local/share/goose/sessions/sessions.db"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no database at all, but long enough")
    found = {session.format: session for session in find(Roots(home=tmp_path))}
    assert found["goose"].unreadable
    listed = [session for session in find(Roots(home=tmp_path)) if session.format == "opencode"]
    assert {session.title for session in listed} == {"A title"}
    assert max(session.turns for session in listed) > 20


def test_find_ends_at_links_that_loop(tmp_path: Path) -> None:
    projects = tmp_path / ".claude/projects"
    projects.mkdir(parents=True)
    (projects / "loop").symlink_to(projects, target_is_directory=True)
    (projects / "self.jsonl").symlink_to(projects / "self.jsonl")
    assert list(find(Roots(home=tmp_path))) == []
    day = tmp_path / ".codex/sessions/2026"
    day.mkdir(parents=True)
    (day / "rollout-2026-01-01T00-00-00-0199a000-0000-7000-8000-000000000001.jsonl").write_text("{}\n")
    (day / "again").symlink_to(day, target_is_directory=True)
    assert len(list(find(Roots(home=tmp_path)))) == 1, "a session is listed once, however it is reached"


def test_an_id_that_find_listed_is_found_again_and_a_path_is_not(tmp_path: Path) -> None:
    made = home(tmp_path)
    where = Roots(home=tmp_path)
    for session in find(where):
        if session.format in IDS:
            found = locate_found(session.id, where)
            assert found is not None
            assert found[1] == (made[session.format],)
    for bad in (str(made["codex"]), "codex:", "codex:../x", "word:c1", f"claude-code:{made['claude-code']}"):
        assert locate_found(bad, where) is None


def test_the_find_verb_prints_what_a_terminal_can_bear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home(tmp_path)["claude-code"]
    with path.open("ab") as file:
        file.write(
            json.dumps({"type": "custom-title", "customTitle": "a\u001b]0;x\u0007b\nc"}).encode() + b"\n"
        )
    assert run(["transcript", "find", "--home", str(tmp_path), "--format", "claude-code"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "\x1b" not in out
    assert "\u241b" in out
    assert run(["transcript", "find", "--home", str(tmp_path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["sessions"]
    assert listed[0]["last_activity"] >= listed[-1].get("last_activity", 0)


def test_every_line_based_format_has_marks_to_be_listed_by() -> None:
    assert set(MARKS) == set(MODULES) - {"opencode"}


# -- public samples


def sample_files() -> Iterator[Path]:
    folder = samples()
    if folder is not None:
        yield from sorted(
            p for p in folder.rglob("*.json*") if p.name != "summary.json" and "grok" not in p.parts
        )


def test_public_samples_are_read(tmp_path: Path) -> None:
    files = list(sample_files())
    if not files:
        pytest.skip(
            "the public samples do not stand beside this checkout (TURNKEEPER_SAMPLES names another place)"
        )
    unknown: dict[str, dict[str, int]] = {}
    for path in files:
        reading = read_path(path)
        assert reading.records, path
        if reading.counters.unknown:
            unknown[path.name] = reading.counters.unknown
    assert unknown == {"session.jsonl": {"unknown_future_entry_type": 1}}
    folder = samples()
    assert folder is not None
    for sql, name in (("goose/sessions/goose.sql", "sessions.db"), ("opencode/opencode.sql", "opencode.db")):
        path = tmp_path / name
        connection = apsw.Connection(str(path))
        connection.execute((folder / "deja-vu" / sql).read_text("utf-8"))
        connection.close()
        reading = read_path(path)
        assert [r.text for r in project.conversation(reading)] == [
            "inspect the sqlite fixture",
            "the sqlite rows are readable",
        ]


Reader = Callable[[Path], Reading]
