"""Gemini CLI: `<home>/tmp/<project>/chats/session-<time>-<8>.jsonl`, before that one JSON document.

The file is a log of changes to a list of messages: a record with a known id replaces the earlier one in
place, `$rewindTo` takes a message and all behind it away, `$set.messages` replaces the whole list. A
cancelled or failed prompt is taken back by such a snapshot (capture of 0.61.0): the records that a list
loses are superseded, never gone. Ends of turns are not marked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from turnkeeper.transcript import injected
from turnkeeper.transcript.dialogue import Dialogue
from turnkeeper.transcript.limits import limits
from turnkeeper.transcript.lines import lenient
from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import FINAL, HUMAN, SUPERSEDED, Counters, Reading, Session
from turnkeeper.transcript.source import Look, Unreadable, head, load, names
from turnkeeper.transcript.tail import Cursor, Tail, stem, tail_lines
from turnkeeper.transcript.tail import at_end as end_of_lines

NAME: Final = "gemini"


class Present(msgspec.Struct, gc=False):
    """Something that is there and is not read."""


class Part(msgspec.Struct, gc=False, rename="camel"):
    """A piece of a message."""

    text: str | None = None
    function_response: Present | None = None
    inline_data: Present | None = None
    file_data: Present | None = None


class Call(msgspec.Struct, gc=False):
    """A tool call and how it stands."""

    id: str | None = None
    name: str | None = None
    status: str | None = None


class Thought(msgspec.Struct, gc=False):
    """A thought with its heading."""

    subject: str | None = None
    description: str | None = None


class Row(msgspec.Struct, gc=False, rename="camel"):
    """A line: the header, a message, or a change."""

    id: str | None = None
    type: str | None = None
    timestamp: str | None = None
    content: str | list[Part] | Part | None = None
    display_content: str | list[Part] | Part | None = None
    tool_calls: list[Call] | None = None
    thoughts: list[Thought] | None = None
    session_id: str | None = None
    kind: str | None = None
    set: Change | None = msgspec.field(default=None, name="$set")
    rewind_to: str | None = msgspec.field(default=None, name="$rewindTo")


class Change(msgspec.Struct, gc=False, rename="camel"):
    """What a `$set` line sets."""

    messages: list[Row] | None = None
    summary: str | None = None
    session_id: str | None = None


class Document(msgspec.Struct, gc=False, rename="camel"):
    """A session of the old kind."""

    session_id: str | None = None
    messages: list[Row] | None = None


SKIPPED: Final = {
    "header": "the session's own data, read apart",
    "$set": "changes of the session's own data; lists of messages are read",
}
"""Row types without anything of the conversation, with the reason."""
NOTICES: Final = frozenset({"info", "error", "warning"})
WAITING: Final = frozenset({"validating", "scheduled", "executing", "awaiting_approval", "pending"})
CANCELLED_TEXT: Final = "Request cancelled"


class Entry(msgspec.Struct, gc=False):
    """A message of the list, with the line that first held it."""

    row: int
    message: Row
    offset: int = -1


# --- selection


def select(rows: Sequence[Row], offsets: Sequence[int]) -> tuple[list[Entry], list[Entry]]:
    """The list of messages as it stands at the end, and what it lost on the way, in order."""
    entries: dict[str, Entry] = {}
    lost: dict[str, Entry] = {}
    for number, row in enumerate(rows):
        if row.rewind_to is not None:
            keys = list(entries)
            at = keys.index(row.rewind_to) if row.rewind_to in entries else 0
            for key in keys[at:]:
                lost[key] = entries.pop(key)
        elif row.set is not None:
            if row.set.messages is not None:
                _replace(entries, lost, row.set.messages, number, offsets[number])
        elif row.type is not None:
            key = row.id if row.id is not None else f"row:{number}"
            before = entries.get(key)
            if before is not None:
                before.message = row
            else:
                lost.pop(key, None)
                entries[key] = Entry(number, row, offsets[number])
    return list(entries.values()), sorted(lost.values(), key=lambda entry: entry.row)


def _replace(
    entries: dict[str, Entry], lost: dict[str, Entry], messages: list[Row], number: int, offset: int
) -> None:
    before = dict(entries)
    entries.clear()
    for at, message in enumerate(messages):
        key = message.id if message.id is not None else f"row:{number}.{at}"
        known = before.pop(key, None) or lost.pop(key, None)
        entries[key] = Entry(
            known.row if known is not None else number, message, offset if known is None else known.offset
        )
    lost.update(before)


# --- classification


def words(content: str | list[Part] | Part | None) -> tuple[str, int]:
    """The text of a message and how many files came with it."""
    if content is None or isinstance(content, str):
        return content or "", 0
    parts = [content] if isinstance(content, Part) else content
    return (
        "\n".join([part.text for part in parts if part.text]),
        sum(1 for part in parts if part.inline_data is not None or part.file_data is not None),
    )


def speech(entries: Sequence[Entry], at: int) -> tuple[str, str, int]:
    """(kind, text, images) of a `user` message: human, slash_command, or empty for nobody's words."""
    message = entries[at].message
    text, images = words(message.content)
    if message.display_content is not None:
        text = words(message.display_content)[0] or text
    if not text.strip():
        return (HUMAN, text, images) if images else ("", "", 0)
    if injected.table(NAME).find(text) is not None:
        return "", text, 0
    if text.startswith(("/", "?")) and not _answered(entries, at):
        return "slash_command", text, 0
    return HUMAN, text, images


def _answered(entries: Sequence[Entry], at: int) -> bool:
    """Whether a message that looks like a command reached the model: an answer follows it."""
    for entry in entries[at + 1 :]:
        if entry.message.type == "gemini":
            return True
        if entry.message.type == "user":
            return False
    return False


# --- folding


def fold(entries: Sequence[Entry]) -> Dialogue:
    """Messages into records and turns."""
    talk = Dialogue(ends=False)
    for at, entry in enumerate(entries):
        message, row = entry.message, entry.row
        first = len(talk.records)
        if message.type == "user":
            kind, text, images = speech(entries, at)
            if kind == HUMAN:
                talk.human(text, row, message.id, message.timestamp, images=images)
            elif kind:
                talk.notice(kind, text, row, message.id, message.timestamp)
        elif message.type == "gemini":
            _answer(talk, message, row)
        elif message.type in NOTICES:
            text = words(message.content)[0]
            talk.notice(message.type, text, row, message.id, message.timestamp)
            if message.type == "error":
                talk.fail(row, text)
            elif text.startswith(CANCELLED_TEXT):
                talk.interrupt(row)
        for record in talk.records[first:]:
            record.offset = entry.offset
    talk.finish()
    return talk


def _answer(talk: Dialogue, message: Row, row: int) -> None:
    for thought in message.thoughts or ():
        talk.thinking(": ".join(filter(None, (thought.subject, thought.description))), row, message.timestamp)
    talk.text(words(message.content)[0], row, message.id, message.timestamp)
    for call in message.tool_calls or ():
        talk.tool(call.name or "", row, call.id or "", message.timestamp)
    if message.tool_calls and not any(call.status in WAITING for call in message.tool_calls):
        talk.returned()


# --- reading


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The session at `path`. Raises Unreadable."""
    counters = Counters()
    if path.suffix == ".json":
        rows = _document(path, counters)
        offsets = [-1] * len(rows)
    else:
        loaded = load(path, Row, counters, start=start, whole=whole)
        rows, offsets = loaded.rows, loaded.offsets
    reading = build(rows, offsets, counters)
    reading.files = names([path])
    return reading


def _document(path: Path, counters: Counters) -> list[Row]:
    """The messages of a session of the old kind: one JSON document, which has to be held whole."""
    data = head(path, limits().document_bytes_max)
    try:
        document = msgspec.json.decode(data, type=Document)
        messages = document.messages or []
        session = document.session_id
    except (msgspec.DecodeError, msgspec.ValidationError):
        messages, session = _torn_document(data, counters), None
    counters.rows += len(messages)
    return [Row(session_id=session), *messages]


def _torn_document(data: bytes, counters: Counters) -> list[Row]:
    """The messages of a document that breaks off, or that a newer version wrote."""
    text = data.decode("utf-8", errors="replace")
    decoder = json.JSONDecoder()
    rows: list[Row] = []
    at = text.find("[", text.find('"messages"'))
    while 0 <= at < len(text) - 1:
        at += 1
        while at < len(text) and (text[at].isspace() or text[at] == ","):
            at += 1
        if text[at : at + 1] == "]":
            return rows
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        row = lenient(value, Row)
        if row is None:
            counters.malformed += 1
        else:
            rows.append(row)
        at = end - 1
    counters.torn_tail, counters.torn_at = True, None
    return rows


def build(rows: Sequence[Row], offsets: Sequence[int], counters: Counters) -> Reading:
    """A Reading of rows that were decoded already."""
    entries, lost = select(rows, offsets)
    talk = fold(entries)
    records = talk.records
    if lost:
        kept = [record for record in fold(lost).records if record.kind in {HUMAN, FINAL}]
        for record in kept:
            record.state = SUPERSEDED
        records = [*records, *kept]
    session = Session()
    for row in rows:
        session.native_id = session.native_id or row.session_id
        if row.set is not None:
            session.title = row.set.summary or session.title
            session.native_id = session.native_id or row.set.session_id
            counters.skipped["$set"] = counters.skipped.get("$set", 0) + (row.set.messages is None)
        elif row.type is None and row.rewind_to is None:
            counters.skipped["header"] = counters.skipped.get("header", 0) + 1
    for entry in (*entries, *lost):
        kind = entry.message.type
        if kind not in {"user", "gemini", *NOTICES}:
            counters.unknown[str(kind)] = counters.unknown.get(str(kind), 0) + 1
    session.newest_at = max([record.at for record in records if isinstance(record.at, str)], default=None)
    return Reading(NAME, session=session, records=records, turns=talk.turns, counters=counters)


def primary(paths: Sequence[Path]) -> Path:
    """Of several sessions in one folder, the newest by its name."""
    return max(paths, key=stem)


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """The rows that were added since `cursor`."""
    if path.suffix == ".json":
        raise Unreadable(path=path, why="a session that is one document is read whole, not followed")
    return tail_lines(path, Row, cursor)


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind everything that is there now."""
    return end_of_lines(path)


# --- places


def roots(where: Roots) -> tuple[Path, ...]:
    """Gemini CLI's home folders."""
    return where.under("GEMINI_CLI_HOME", ".gemini")


SHORT_ID_CHARS: Final = 8


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """The file of a session: its name holds the first eight characters of the id, its header all of it."""
    if native_id is None or not usable(native_id):
        return None
    short = native_id[:SHORT_ID_CHARS]
    for root in roots(where):
        found = [
            path
            for path in files_below(root / "tmp", suffixes=(f"-{short}.jsonl", f"-{short}.json"), depth=3)
            if native_id.encode() in _header(path)
        ]
        if found:
            return Place(NAME, native_id, (max(found, key=stem),), root)
    return None


def _header(path: Path) -> bytes:
    try:
        return head(path, 65_536)
    except Unreadable:
        return b""


def listing(where: Roots) -> Iterator[Path]:
    """Every session file."""
    for root in roots(where):
        for path in files_below(root / "tmp", suffixes=(".jsonl", ".json"), depth=2):
            if path.parent.name == "chats":
                yield path


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    if path.suffix == ".json":
        return "messages" in look.keys and bool({"sessionId", "lastUpdated", "startTime"} & look.keys)
    return bool({"$set", "$rewindTo"} & look.keys or {"sessionId", "startTime"} <= look.keys)
