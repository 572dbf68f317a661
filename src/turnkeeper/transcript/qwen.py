"""Qwen Code: `<home>/projects/<folder>/chats/<session id>.jsonl`, a tree of rows that say who wrote them.

The best self-describing format of all: a row of type user has its provenance, and a message that was
typed while a turn ran is a row of its own kind that names the turn it was delivered to. The writer is
buffered (up to eight seconds were seen), so a missing row proves nothing for a while. API errors and
kills leave no row at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from turnkeeper.transcript import injected
from turnkeeper.transcript.branch import ancestry
from turnkeeper.transcript.dialogue import Dialogue
from turnkeeper.transcript.gemini import Present
from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import FINAL, HUMAN, INFERRED, SUPERSEDED, Counters, Reading, Session
from turnkeeper.transcript.source import Look, load, names
from turnkeeper.transcript.tail import Cursor, Tail, stem, tail_lines
from turnkeeper.transcript.tail import at_end as end_of_lines

NAME: Final = "qwen"


class FunctionCall(msgspec.Struct, gc=False):
    """A tool call."""

    id: str | None = None
    name: str | None = None


class Part(msgspec.Struct, gc=False, rename="camel"):
    """A piece of a message; `thought` marks thinking."""

    text: str | None = None
    thought: bool | None = None
    function_call: FunctionCall | None = None
    inline_data: Present | None = None
    file_data: Present | None = None


class Message(msgspec.Struct, gc=False):
    """What was said."""

    role: str | None = None
    parts: list[Part] | None = None


class Payload(msgspec.Struct, gc=False, rename="camel"):
    """What a system row carries; which of it depends on the subtype."""

    display_text: str | None = None
    text: str | None = None
    phase: str | None = None
    raw_command: str | None = None
    title: str | None = None
    custom_title: str | None = None
    status: str | None = None
    outcome: str | None = None
    error: Any = None


class Row(msgspec.Struct, gc=False, rename="camel"):
    """A line."""

    uuid: str | None = None
    parent_uuid: str | None = None
    session_id: str | None = None
    timestamp: str | None = None
    type: str | None = None
    subtype: str | None = None
    provenance: str | None = None
    message: Message | None = None
    system_payload: Payload | None = None
    prompt_id: str | None = None
    agent_id: str | None = None
    cwd: str | None = None
    version: str | None = None


SKIPPED: Final = {
    "at_command": "a file that was read into the prompt",
    "ui_telemetry": "measurements",
    "custom_title": "the title, read apart",
    "branch_checkpoint": "a bookmark",
    "file_history_snapshot": "undo data",
    "rewind": "where the person went back to; the branch shows it",
    "turn_result": "the end of a turn, read apart",
    "realtime_message": "a message of another channel",
}
"""Subtypes without anything of the conversation, with the reason."""
NOTICES: Final = {
    "chat_compression": "compaction",
    "slash_command": "slash_command",
    "notification": "task_notification",
    "cron": "cron",
    "goal_runtime": "goal_runtime",
}
MID_TURN: Final = "mid_turn_user_message"
PERSON: Final = "real_user"


# --- selection


def select(rows: Sequence[Row], counters: Counters) -> tuple[list[int], list[int]]:
    """Live and abandoned rows, as numbers in file order."""
    seen: set[str] = set()
    kept: list[int] = []
    for number, row in enumerate(rows):
        if row.agent_id is not None:
            counters.other_agent += 1
            continue
        if row.uuid is not None:
            if row.uuid in seen:
                counters.duplicates += 1
                continue
            seen.add(row.uuid)
        kept.append(number)
    leaf = next((at for at in range(len(kept) - 1, -1, -1) if rows[kept[at]].uuid is not None), -1)
    if leaf < 0:
        return kept, []
    live = ancestry([rows[n].uuid for n in kept], [rows[n].parent_uuid for n in kept], leaf)
    return (
        [n for n, alive in zip(kept, live, strict=True) if alive or rows[n].uuid is None],
        [n for n, alive in zip(kept, live, strict=True) if not alive and rows[n].uuid is not None],
    )


# --- classification


def words(message: Message | None) -> tuple[str, int]:
    """The words of a message and how many files came with it."""
    parts = (message.parts or ()) if message is not None else ()
    return (
        "\n".join([part.text for part in parts if part.text and not part.thought]),
        sum(1 for part in parts if part.inline_data is not None or part.file_data is not None),
    )


def speech(row: Row, *, provenance: bool) -> tuple[str, bool, int]:
    """What a person typed (empty if nobody did), whether the row says so itself, and files."""
    text, files = words(row.message)
    payload = row.system_payload
    if payload is not None and payload.display_text:
        text = payload.display_text
    if row.provenance is not None:
        return (text, True, files) if row.provenance == PERSON else ("", True, 0)
    if row.subtype == MID_TURN:
        return text or (payload.text or "" if payload is not None else ""), True, files
    if provenance or row.subtype is not None or injected.table(NAME).find(text) is not None:
        return "", False, 0
    return text, False, files


# --- folding


def fold(rows: Sequence[Row], numbers: Sequence[int], counters: Counters) -> Dialogue:
    """Rows of one branch into records and turns."""
    provenance = any(row.provenance is not None for row in rows)
    talk = Dialogue(ends=False)
    for number in numbers:
        row = rows[number]
        if row.type == "user" or row.subtype == MID_TURN:
            text, certain, files = speech(row, provenance=provenance)
            if text.strip() or files:
                record = talk.human(
                    text, number, row.uuid, row.timestamp, rides=row.subtype == MID_TURN, images=files
                )
                record.provenance = record.provenance if certain else INFERRED
            elif row.subtype in NOTICES:
                talk.notice(NOTICES[row.subtype], words(row.message)[0], number, row.uuid, row.timestamp)
        elif row.type == "assistant":
            _answer(talk, number, row)
        elif row.type == "tool_result":
            talk.returned()
        elif row.type == "system":
            _system(talk, number, row, counters)
        else:
            counters.unknown[str(row.type)] = counters.unknown.get(str(row.type), 0) + 1
    talk.finish()
    return talk


def _answer(talk: Dialogue, number: int, row: Row) -> None:
    message = row.message
    spoken: list[str] = []
    for part in (message.parts or ()) if message is not None else ():
        if part.function_call is not None:
            if spoken:
                talk.text("".join(spoken), number, row.uuid, row.timestamp)
                spoken.clear()
            talk.tool(part.function_call.name or "", number, part.function_call.id or "", row.timestamp)
        elif part.text and part.thought:
            talk.thinking(part.text, number, row.timestamp)
        elif part.text:
            spoken.append(part.text)
    if spoken:
        talk.text("".join(spoken), number, row.uuid, row.timestamp)


def _system(talk: Dialogue, number: int, row: Row, counters: Counters) -> None:
    subtype = row.subtype or ""
    payload = row.system_payload
    if subtype == "turn_result":
        state = f"{payload.status or ''} {payload.outcome or ''}".lower() if payload is not None else ""
        if payload is not None and (payload.error or "error" in state or "fail" in state):
            talk.fail(number, state.strip() or "error")
        elif "cancel" in state or "abort" in state or "interrupt" in state:
            talk.interrupt(number)
        else:
            talk.settle(number)
    elif subtype in NOTICES:
        if subtype == "slash_command" and payload is not None and payload.phase == "result":
            return
        text = (
            (payload.display_text or payload.raw_command or payload.text or "") if payload is not None else ""
        )
        talk.notice(NOTICES[subtype], text, number, row.uuid, row.timestamp)
    elif subtype in SKIPPED:
        counters.skipped[subtype] = counters.skipped.get(subtype, 0) + 1
    else:
        name = f"system/{subtype}"
        counters.unknown[name] = counters.unknown.get(name, 0) + 1


# --- reading


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The session at `path`. Raises Unreadable."""
    counters = Counters()
    loaded = load(path, Row, counters, start=start, whole=whole)
    reading = build(loaded.rows, loaded.offsets, counters)
    reading.files = names([path])
    return reading


def build(rows: Sequence[Row], offsets: Sequence[int], counters: Counters) -> Reading:
    """A Reading of rows that were decoded already."""
    live, abandoned = select(rows, counters)
    talk = fold(rows, live, counters)
    records = talk.records
    if abandoned:
        kept = [r for r in fold(rows, abandoned, Counters()).records if r.kind in {HUMAN, FINAL}]
        for record in kept:
            record.state = SUPERSEDED
        records = sorted([*records, *kept], key=lambda record: record.row)
    for record in records:
        record.offset = offsets[record.row]
    session = Session()
    versions: list[str] = []
    for row in rows:
        session.native_id = session.native_id or row.session_id
        session.cwd = session.cwd or row.cwd
        if row.version is not None:
            versions.append(row.version)
        if row.subtype == "custom_title" and row.system_payload is not None:
            session.title = row.system_payload.custom_title or row.system_payload.title
    session.versions = tuple(dict.fromkeys(versions))
    session.newest_at = max([row.timestamp for row in rows if row.timestamp is not None], default=None)
    return Reading(NAME, session=session, records=records, turns=talk.turns, counters=counters)


def primary(paths: Sequence[Path]) -> Path:
    """Of several sessions in one folder, the one that was written to last."""
    return max(paths, key=lambda path: (path.stat().st_mtime, stem(path)))


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """The rows that were added since `cursor`."""
    return tail_lines(path, Row, cursor)


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind everything that is there now."""
    return end_of_lines(path)


# --- places


def roots(where: Roots) -> tuple[Path, ...]:
    """Qwen Code's home folders."""
    return where.under(None, ".qwen")


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """The file of a session, whatever its project."""
    if native_id is None or not usable(native_id):
        return None
    for root in roots(where):
        for path in files_below(root / "projects", suffixes=(f"{native_id}.jsonl",), depth=2):
            if path.stem == native_id:
                return Place(NAME, native_id, (path,), root)
    return None


def listing(where: Roots) -> Iterator[Path]:
    """Every session file."""
    for root in roots(where):
        for path in files_below(root / "projects", suffixes=(".jsonl",), depth=2):
            if path.parent.name == "chats":
                yield path


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    return "parentUuid" in look.keys and (
        bool({"systemPayload", "provenance"} & look.keys)
        or (b'"parts"' in look.start and "isSidechain" not in look.keys)
    )
