"""From a transcript to our history: rows are known by what was journaled of them, and what is missing comes once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.transcript.strategies import claude_sessions
from tests.transcript.test_formats import capture
from tests.transcript.writing import ClaudeSession
from turnkeeper.conversation.events import Body, HistoryReconciled, MessageAppended, Noticed
from turnkeeper.conversation.messages import ASSISTANT, INTERRUPTED, TOOL, USER, WORKING, Message
from turnkeeper.conversation.parts import Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.history.feed import build_feed
from turnkeeper.history.reconcile import normal
from turnkeeper.projection.order import in_order
from turnkeeper.projection.timeline import timeline_rows
from turnkeeper.retained.adapter import Memory
from turnkeeper.retained.adapters import ADAPTERS
from turnkeeper.retained.signs import SignKind
from turnkeeper.transcript import claude_code, project
from turnkeeper.transcript.formats import MODULES, read_path, reader
from turnkeeper.transcript.record import Counters, Reading
from turnkeeper.transcript.recover import Recovered, recover
from turnkeeper.transcript.source import load

NUMBERS = itertools.count(1)


def make_id(kind: str) -> str:
    return f"{kind}_{next(NUMBERS)}"


def recovered(
    readings: Sequence[Reading], messages: Sequence[Message], evidence: dict[str, str] | None = None
) -> Recovered:
    return recover(readings, messages, make_id=make_id, now=1.0, evidence=evidence)


def applied(messages: Sequence[Message], bodies: Sequence[Body]) -> list[Message]:
    """History after the events, as a store has it."""
    rows = list(messages)
    for seq, body in enumerate(bodies, max([row.seq for row in messages], default=0) + 1):
        if isinstance(body, MessageAppended):
            rows.append(msgspec.structs.replace(body.message, seq=seq))
        elif isinstance(body, HistoryReconciled):
            known = {message_id: native_id for native_id, message_id, _ in body.matches}
            rows = [
                msgspec.structs.replace(row, native_id=known[row.message_id])
                if row.message_id in known
                else row
                for row in rows
            ]
    return in_order(rows)


def words(messages: Sequence[Message]) -> list[str]:
    return [f"{row.role[0]}:{row.text}" for row in messages if row.text]


def says(row: Message) -> tuple[str, list[str]]:
    """A message without ids: what a person can tell of it."""
    return row.role, [
        normal(part.text) if isinstance(part, Text | Thinking) else part.name
        for part in row.parts
        if isinstance(part, Text | Thinking | ToolCall)
    ]


def read(session: ClaudeSession, tmp_path: Path) -> Reading:
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in session.rows))
    return claude_code.read(path)


def journaled(cli: str, path: Path) -> list[Message]:
    """What a retained turn's own journal holds of the rows of a file: one message for each row."""
    adapter = ADAPTERS[cli]
    rows = load(path, adapter.Row, Counters())
    found: list[Message] = []
    parts: list[Part] = []
    seen: set[str] = set()
    row = ""

    def write(role: str, content: Sequence[Part], native_id: str) -> None:
        if native_id not in seen:
            number = len(found) + 1
            message = Message(message_id=f"m{number}", role=role, parts=tuple(content), seq=number)
            found.append(msgspec.structs.replace(message, native_id=native_id or None))
        seen.add(native_id)

    def close() -> None:
        if parts:
            write(ASSISTANT, parts, row)
            parts.clear()

    for sign in adapter.signs(rows.rows, rows.offsets, Memory()):
        if sign.kind in {SignKind.SAID, SignKind.THOUGHT, SignKind.CALLED}:
            if sign.native_id != row:
                close()
                row = sign.native_id
            parts.append(
                {
                    SignKind.SAID: Text(sign.text),
                    SignKind.THOUGHT: Thinking(sign.text),
                    SignKind.CALLED: ToolCall(sign.call_id, sign.name),
                }[sign.kind]
            )
        elif sign.kind is SignKind.RETURNED:
            close()
            write(TOOL, [ToolResult(sign.call_id, sign.text)], sign.native_id)
        elif sign.kind is SignKind.TAKEN:
            close()
            write(USER, [Text(sign.text)], sign.native_id)
    close()
    return found


CAPTURED = ("claude", "codex", "codex-k", "pi", "pi-k", "piold")


@pytest.mark.parametrize("cli", CAPTURED)
def test_what_a_retained_turn_journaled_of_a_real_session_is_known_to_be_its_rows(
    cli: str, tmp_path: Path
) -> None:
    name = {"claude": "claude-code"}.get(cli, cli.partition("-")[0].removesuffix("old"))
    path = capture(cli, tmp_path)
    messages = journaled(name, path)
    found = recovered([reader(name).read(path)], messages)
    assert words(found.added) == []
    assert found.bodies == ()
    assert found.result.crossings == found.result.ambiguous == 0
    assert len(found.result.pairs) == sum(1 for message in messages if message.role != TOOL)


@pytest.mark.parametrize("cli", CAPTURED)
def test_every_row_that_the_journal_has_lost_comes_back_to_its_place(cli: str, tmp_path: Path) -> None:
    name = {"claude": "claude-code"}.get(cli, cli.partition("-")[0].removesuffix("old"))
    path = capture(cli, tmp_path)
    whole = journaled(name, path)
    reading = reader(name).read(path)
    for lost in range(len(whole)):
        if whole[lost].role == TOOL:
            continue
        left = [*whole[:lost], *whole[lost + 1 :]]
        found = recovered([reading], left)
        after = applied(left, found.bodies)
        assert len(found.added) == 1
        assert [says(row) for row in after if row.role != TOOL] == [
            says(row) for row in whole if row.role != TOOL
        ]


def test_thinking_words_and_tools_are_progress_and_the_answer_is_the_answer(tmp_path: Path) -> None:
    session = ClaudeSession()
    session.human("do it")
    session.thinking("hm")
    session.tools(2, narration="I look")
    session.answer("done")
    session.duration()
    messages = applied([], recovered([read(session, tmp_path)], []).bodies)
    rows = timeline_rows(messages, {})
    assert [(row.kind, row.text) for row in rows if row.text] == [("user", "do it"), ("answer", "done")]
    steps = [(step.kind, step.text or step.name) for row in rows for step in row.steps]
    assert steps == [("thinking", "hm"), ("text", "I look"), ("tool", "Tool0"), ("tool", "Tool1")]
    assert [message.stop_reason for message in messages if message.text == "I look"] == [WORKING]
    feed = build_feed(messages)
    assert not any(type(part) is ToolCall for message in feed.messages for part in message.parts)


def test_the_last_words_of_a_turn_that_still_runs_are_not_said_to_be_narration(tmp_path: Path) -> None:
    session = ClaudeSession()
    session.human("do it")
    session.tools(1, narration="first")
    session.block("m9", {"type": "text", "text": "and then"}, None)
    messages = recovered([read(session, tmp_path)], []).added
    assert [(row.text, row.stop_reason) for row in messages if row.text] == [
        ("do it", None),
        ("first", WORKING),
        ("and then", None),
    ]


def test_pieces_of_one_text_are_rows_of_their_own(tmp_path: Path) -> None:
    """The journal has the first piece; the second was lost with the process."""
    session = ClaudeSession()
    session.human("go")
    first = session.block("m9", {"type": "text", "text": "one"}, None)
    second = session.block("m9", {"type": "text", "text": "two"}, "end_turn")
    reading = read(session, tmp_path)
    assert [record.text for record in project.conversation(reading)] == ["go", "one\n\ntwo"]
    messages = [
        Message(message_id="m1", role=USER, parts=(Text("go"),), seq=1, native_id=session.rows[0]["uuid"]),
        Message(message_id="m2", role=ASSISTANT, parts=(Text("one"),), seq=2, native_id=first["uuid"]),
    ]
    found = recovered([reading], messages)
    assert [(row.native_id, row.text) for row in found.added] == [(second["uuid"], "two")]


def test_an_answer_that_broke_off_stays_marked_and_out_of_feeds(tmp_path: Path) -> None:
    session = ClaudeSession()
    session.human("go")
    session.block("m9", {"type": "text", "text": "I was say"}, None)
    session.chain(
        "user",
        message={"role": "user", "content": [{"type": "text", "text": "[Request interrupted by user]"}]},
    )
    (broken,) = [row for row in recovered([read(session, tmp_path)], []).added if row.role == ASSISTANT]
    assert (broken.standing, broken.replay, broken.text) == (INTERRUPTED, False, "I was say")


def test_a_prompt_is_known_by_the_evidence_of_its_delivery_and_its_answer_goes_to_its_turn(
    tmp_path: Path,
) -> None:
    session = ClaudeSession()
    row = session.human("what the CLI made of it")
    session.answer("the answer")
    session.duration()
    sent = Message(message_id="m1", role=USER, parts=(Text("as it was sent"),), seq=1, turn_id="t_1")
    found = recovered([read(session, tmp_path)], [sent], {row["uuid"]: "m1"})
    assert [(row.text, row.turn_id, row.provenance) for row in found.added] == [
        ("the answer", "t_1", "native")
    ]


def test_sessions_that_follow_each_other_keep_their_rows_apart(tmp_path: Path) -> None:
    """A reply of the first session that was lost does not come behind the second session."""
    readings = []
    for name, text in (("s-1", "first"), ("s-2", "second")):
        session = ClaudeSession(name)
        session._count = {"s-1": 0, "s-2": 100}[name]
        session.human(text)
        session.answer(f"to {text}")
        session.duration()
        readings.append(read(session, tmp_path))
    messages = [
        Message(
            message_id=f"m{seq}",
            role=USER,
            parts=(Text(text),),
            seq=seq,
            native_id=reading.records[0].native_id,
        )
        for seq, (text, reading) in enumerate(zip(("first", "second"), readings, strict=True), 1)
    ]
    after = applied(messages, recovered(readings, messages).bodies)
    assert words(after) == ["u:first", "a:to first", "u:second", "a:to second"]


def test_a_row_that_a_later_session_repeats_counts_once(tmp_path: Path) -> None:
    session = ClaudeSession()
    session.human("once")
    reading = read(session, tmp_path)
    assert words(recovered([reading, reading], []).added) == ["u:once"]


@pytest.mark.parametrize(
    "case",
    sorted(
        path.name
        for path in (Path(__file__).parent.parent / "vectors/transcripts").iterdir()
        if path.is_dir()
    ),
)
def test_importing_a_case_twice_changes_nothing_and_loses_nothing(case: str) -> None:
    folder = Path(__file__).parent.parent / "vectors/transcripts" / case
    paths = [path for path in folder.iterdir() if path.name not in {"expected.json", "history.jsonl"}]
    reading = read_path(paths[0] if len(paths) == 1 else folder)
    first = recovered([reading], [])
    after = applied([], first.bodies)
    said = [record.text for record in project.conversation(reading) if record.text]
    got = "\n".join(row.text for row in after)
    at = 0
    for text in said:
        for piece in text.split("\n\n"):
            at = got.index(piece, at) + len(piece)
    again = recovered([reading], after)
    assert again.bodies == ()
    assert len({row.native_id for row in after}) == len(after)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(session=claude_sessions(), data=st.data())
def test_whatever_was_lost_comes_back_once_and_in_its_place(
    tmp_path_factory: Any, session: ClaudeSession, data: st.DataObject
) -> None:
    reading = read(session, tmp_path_factory.mktemp("s"))
    whole = applied([], recovered([reading], []).bodies)
    keep = data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
    known = data.draw(st.booleans())
    kept = [
        row if known else msgspec.structs.replace(row, native_id=None)
        for row, stays in zip(whole, keep, strict=True)
        if stays
    ]
    found = recovered([reading], kept)
    after = applied(kept, found.bodies)
    assert recovered([reading], after).bodies == ()
    if known:
        assert [row.native_id for row in after] == [row.native_id for row in whole]
        assert found.result.ambiguous == 0
    else:
        assert sorted(words(after)) == sorted(words(whole))


# -- delivery cases


class Lines:
    """The simplified lines of a delivery case as the rows that Claude Code writes."""

    def __init__(self) -> None:
        self.session = ClaudeSession()

    def add(self, line: dict[str, Any]) -> None:
        getattr(self, line["type"].replace("-", "_"))(line)

    def user(self, line: dict[str, Any]) -> None:
        self.session.human(line["text"])

    def assistant(self, line: dict[str, Any]) -> None:
        block: dict[str, Any] = {"type": "text", "text": line.get("text")}
        if "tool" in line:
            block = {"type": "tool_use", "id": "t1", "name": line["tool"], "input": {}}
        row = self.session.block(line.get("id") or self.session.new_id("m"), block, None)
        if "uuid" in line:
            row["uuid"] = self.session.tip = line["uuid"]

    def queue_operation(self, line: dict[str, Any]) -> None:
        self.session.loose(type="queue-operation", operation=line["op"], content=line["text"])

    def attachment(self, line: dict[str, Any]) -> None:
        attachment = {"type": line["kind"], "prompt": line["text"], "commandMode": "prompt"}
        if line["human"]:
            attachment |= {"origin": {"kind": "human"}, "humanTurn": True}
        self.session.chain("attachment", attachment=attachment)


def case_session(number: str) -> ClaudeSession:
    (path,) = (Path(__file__).parent.parent / "vectors/delivery-transcripts").glob(f"{number}-*.json")
    lines = Lines()
    for step in json.loads(path.read_bytes())["steps"]:
        for line in step.get("lines", ()):
            lines.add(line)
    return lines.session


def test_BD121_a_text_typed_while_a_tool_ran_is_recovered_and_internal_rows_are_not(tmp_path: Path) -> None:
    """https://github.com/kenn-io/agentsview/issues/401"""
    after = applied([], recovered([read(case_session("121"), tmp_path)], []).bodies)
    assert words(after) == ["u:start", "a:working", "u:also check X", "a:done, X too"]


def test_BD123_rows_of_one_message_come_once_each_and_importing_again_changes_nothing(tmp_path: Path) -> None:
    """https://github.com/eltmon/overdeck/issues/696"""
    reading = read(case_session("123"), tmp_path)
    messages: list[Message] = []
    journal: list[list[Body]] = []
    for _ in range(3):
        bodies = recovered([reading], messages).bodies
        journal.append(list(bodies))
        messages = applied(messages, bodies)
    assert words(messages) == ["a:Part one.", "a:Part two."]
    assert len({message.native_id for message in messages}) == len(messages) == 3
    assert journal[1:] == [[], []]


def test_BD120_records_on_one_line_come_in_order_and_are_noticed_once(tmp_path: Path) -> None:
    """https://github.com/QwenLM/qwen-code/issues/3606"""
    session = ClaudeSession()
    for text in ("one", "two", "three"):
        session.human(text)
    first, second, third = (json.dumps(row) for row in session.rows)
    path = tmp_path / "s.jsonl"
    path.write_text(f"{first}{second}\n{third}\n")
    reading = claude_code.read(path)
    found = recovered([reading], [])
    after = applied([], found.bodies)
    assert words(after) == ["u:one", "u:two", "u:three"]
    noticed = [body for body in found.bodies if isinstance(body, Noticed)]
    assert [body.facts for body in noticed] == [{"transcript": "claude-code:s-1", "glued": 2}]
    assert recovered([reading], after).bodies == ()


def test_BD136_a_time_without_a_zone_is_taken_for_utc_and_that_is_said(tmp_path: Path) -> None:
    """https://github.com/chatwoot/chatwoot/issues/11010"""
    session = ClaudeSession()
    session.human("old")["timestamp"] = "2026-03-01T09:00:00"
    session.human("new")["timestamp"] = "2026-03-01T06:00:00-03:00"
    found = recovered([read(session, tmp_path)], [])
    assert [row.created_at for row in found.added] == [1772355600.0, 1772355600.0]
    assert [body.facts for body in found.bodies if isinstance(body, Noticed)] == [{"messages": 1}]


# -- no CLI without a way back


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_registered_cli_has_a_reader_and_a_way_back(name: str, tmp_path: Path) -> None:
    adapter = ADAPTERS[name]
    assert adapter.FORMAT in MODULES, f"the CLI {name} is registered, and nobody reads its transcripts"
    path = capture({"claude-code": "claude"}.get(name, name), tmp_path)
    reading = reader(adapter.FORMAT).read(path)
    back = applied([], recovered([reading], []).bodies)
    assert [row.text for row in back if row.role == USER and row.text] == [
        record.text for record in project.conversation(reading) if record.role == USER and record.text
    ]
