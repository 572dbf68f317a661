"""Droid: `<home>/sessions/<folder>/<session id>.jsonl`, a tree of messages.

What is known comes from third-party readers: rows of type session_start and message (id, parentId), with
other rows between that hold nothing of the conversation. The first prompt begins with reminders that
nobody typed. Ends of turns are not marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from turnkeeper.transcript import injected
from turnkeeper.transcript.branch import ancestry
from turnkeeper.transcript.dialogue import Dialogue
from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import FINAL, HUMAN, INFERRED, SUPERSEDED, Counters, Reading, Session
from turnkeeper.transcript.source import Look, load, names
from turnkeeper.transcript.tail import Cursor, Tail, tail_lines
from turnkeeper.transcript.tail import at_end as end_of_lines

NAME: Final = "droid"


class Block(msgspec.Struct, gc=False):
    """A piece of a message."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None


class Message(msgspec.Struct, gc=False):
    """What was said."""

    role: str | None = None
    content: str | list[Block] | None = None


class Row(msgspec.Struct, gc=False):
    """A line."""

    type: str | None = None
    id: str | None = None
    parent_id: str | None = msgspec.field(default=None, name="parentId")
    timestamp: str | None = None
    message: Message | None = None
    title: str | None = None
    cwd: str | None = None
    version: str | int | None = None


SKIPPED: Final = {
    "session_start": "the session's own data, read apart",
    "todo_state": "a list of things to do",
}
"""Row types without anything of the conversation, with the reason."""
COMPACTION: Final = "compaction_state"


def select(rows: Sequence[Row], counters: Counters) -> tuple[list[int], list[int]]:
    """Live and abandoned rows, as numbers in file order."""
    seen: set[str] = set()
    kept: list[int] = []
    for number, row in enumerate(rows):
        if row.type == "message" and row.id is not None:
            if row.id in seen:
                counters.duplicates += 1
                continue
            seen.add(row.id)
        kept.append(number)
    spoken = [n for n in kept if rows[n].type == "message" and rows[n].id is not None]
    if not any(rows[n].parent_id is not None for n in spoken):
        return kept, []
    live = ancestry([rows[n].id for n in spoken], [rows[n].parent_id for n in spoken], len(spoken) - 1)
    abandoned = [n for n, alive in zip(spoken, live, strict=True) if not alive]
    gone = frozenset(abandoned)
    return [n for n in kept if n not in gone], abandoned


def fold(rows: Sequence[Row], numbers: Sequence[int], counters: Counters) -> Dialogue:
    """Messages into records and turns."""
    talk = Dialogue(ends=False)
    table = injected.table(NAME)
    for number in numbers:
        row = rows[number]
        message = row.message
        if row.type == COMPACTION:
            talk.notice("compaction", "", number, row.id, row.timestamp)
            continue
        if row.type != "message" or message is None:
            into = counters.skipped if row.type in SKIPPED else counters.unknown
            into[str(row.type)] = into.get(str(row.type), 0) + 1
            continue
        content = message.content
        blocks = [Block("text", content)] if isinstance(content, str) else content or []
        if message.role == "user":
            if any(block.type == "tool_result" for block in blocks):
                talk.returned()
                continue
            said = [table.strip(block.text) for block in blocks if block.type == "text" and block.text]
            text = "\n".join([each for each in said if each.strip()]).strip("\n")
            images = sum(1 for block in blocks if block.type == "image")
            if text or images:
                talk.human(text, number, row.id, row.timestamp, images=images).provenance = INFERRED
            continue
        for block in blocks:
            if block.type == "text":
                talk.text(block.text or "", number, row.id, row.timestamp)
            elif block.type == "thinking":
                talk.thinking(block.thinking or "", number, row.timestamp)
            elif block.type == "tool_use":
                talk.tool(block.name or "", number, block.id or "", row.timestamp)
    talk.finish()
    return talk


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The session at `path`. Raises Unreadable."""
    counters = Counters()
    loaded = load(path, Row, counters, start=start, whole=whole)
    reading = build(loaded.rows, loaded.offsets, counters)
    reading.files = names([path])
    reading.session.native_id = reading.session.native_id or path.stem
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
    for row in rows:
        if row.type == "session_start":
            session.native_id, session.cwd, session.title = row.id, row.cwd, row.title
            session.versions = (str(row.version),) if row.version is not None else ()
    session.newest_at = max([row.timestamp for row in rows if row.timestamp is not None], default=None)
    return Reading(NAME, session=session, records=records, turns=talk.turns, counters=counters)


def primary(paths: Sequence[Path]) -> Path:
    """Of several sessions in one folder, the one that was written to last."""
    return max(paths, key=lambda path: path.stat().st_mtime)


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """The rows that were added since `cursor`."""
    return tail_lines(path, Row, cursor)


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind everything that is there now."""
    return end_of_lines(path)


def roots(where: Roots) -> tuple[Path, ...]:
    """Droid's home folders."""
    return where.under(None, ".factory")


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """The file of a session, whatever its folder."""
    if native_id is None or not usable(native_id):
        return None
    for root in roots(where):
        for path in files_below(root / "sessions", suffixes=(f"{native_id}.jsonl",), depth=2):
            if path.stem == native_id:
                return Place(NAME, native_id, (path,), root)
    return None


def listing(where: Roots) -> Iterator[Path]:
    """Every session file."""
    for root in roots(where):
        yield from files_below(root / "sessions", suffixes=(".jsonl",), depth=2)


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    return "session_start" in look.types
