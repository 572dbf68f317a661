"""Copilot CLI: `<home>/session-state/<session id>/events.jsonl`, a chain of typed events.

The schema of the file is not published (github/copilot-cli#3551); what is known comes from the types that
the SDK ships. What a person typed is `content`, never `transformedContent`; a queue is not in the file at
all. Its own loader fails at U+2028 and at NULs (#2012, #2217), this one does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from turnkeeper.transcript.dialogue import Dialogue
from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import FINAL, HUMAN, SUPERSEDED, Counters, Reading, Session
from turnkeeper.transcript.source import Look, load, names
from turnkeeper.transcript.tail import Cursor, Tail, tail_lines
from turnkeeper.transcript.tail import at_end as end_of_lines

NAME: Final = "copilot"


class Request(msgspec.Struct, gc=False, rename="camel"):
    """A tool call."""

    tool_call_id: str | None = None
    name: str | None = None


class Context(msgspec.Struct, gc=False):
    """Where a session runs."""

    cwd: str | None = None


class Data(msgspec.Struct, gc=False, rename="camel"):
    """What an event carries."""

    content: str | None = None
    source: str | None = None
    reasoning_text: str | None = None
    tool_requests: list[Request] | None = None
    message_id: str | None = None
    up_to_event_id: str | None = None
    reason: str | None = None
    message: str | None = None
    session_id: str | None = None
    context: Context | None = None
    cwd: str | None = None
    copilot_version: str | None = None


class Row(msgspec.Struct, gc=False, rename="camel"):
    """An event."""

    type: str | None = None
    id: str | None = None
    parent_id: str | None = None
    timestamp: str | None = None
    agent_id: str | None = None
    data: Data | None = None


SKIPPED: Final = {
    "system.message": "the CLI's own prompt",
    "session.start": "the session's own data, read apart",
    "session.resume": "the session's own data, read apart",
    "session.info": "layout",
    "session.idle": "not in the file by rule",
    "session.shutdown": "the program ended",
    "session.model_change": "a setting",
    "session.mode_changed": "a setting",
    "session.context_changed": "the session's own data, read apart",
    "session.handoff": "the session goes on elsewhere",
    "session.task_complete": "a repetition of the answer",
    "session.compaction_start": "the end of it is read",
    "assistant.turn_start": "read for where a turn goes on",
    "assistant.intent": "layout",
    "assistant.usage": "tokens",
    "tool.execution_start": "the call is read",
    "tool.execution_partial_result": "a piece of a result",
    "tool.execution_progress": "a piece of a result",
    "tool.execution_complete": "a tool's result",
    "tool.user_requested": "a tool that a person ran",
    "hook.start": "a hook",
    "hook.end": "a hook",
    "skill.invoked": "an injected text",
}
"""Event types without anything of the conversation, with the reason."""
SKIPPED_GROUPS: Final = ("subagent.", "permission.", "elicitation.")
NOTICES: Final = {
    "session.warning": "warning",
    "session.truncation": "compaction",
    "session.compaction_complete": "compaction",
}


# --- selection


def select(rows: Sequence[Row], counters: Counters) -> tuple[list[int], list[int]]:
    """Events in file order that are live, and those that a rewind took away (from its event on)."""
    live: list[int] = []
    rewound: list[int] = []
    seen: set[str] = set()
    for number, row in enumerate(rows):
        if row.agent_id is not None:
            counters.other_agent += 1
            continue
        if row.id is not None:
            if row.id in seen:
                counters.duplicates += 1
                continue
            seen.add(row.id)
        if row.type == "session.snapshot_rewind" and row.data is not None:
            at = next(
                (n for n, each in enumerate(live) if rows[each].id == row.data.up_to_event_id), len(live)
            )
            rewound += live[at:]
            live = live[:at]
            continue
        live.append(number)
    return live, sorted(rewound)


# --- classification and folding


def fold(rows: Sequence[Row], numbers: Sequence[int], counters: Counters) -> Dialogue:
    """Events into records and turns."""
    talk = Dialogue(ends=True)
    for number in numbers:
        row = rows[number]
        kind = row.type or ""
        data = row.data if row.data is not None else Data()
        if kind == "user.message":
            _person(talk, number, row, data)
        elif kind == "assistant.message":
            talk.thinking(data.reasoning_text or "", number, row.timestamp)
            talk.text(data.content or "", number, data.message_id or row.id, row.timestamp)
            for request in data.tool_requests or ():
                talk.tool(request.name or "", number, request.tool_call_id or "", row.timestamp)
        elif kind == "assistant.reasoning":
            talk.thinking(data.content or "", number, row.timestamp)
        elif kind == "assistant.turn_end":
            if talk.answered:
                talk.settle(number)
        elif kind == "tool.execution_complete":
            talk.returned()
        elif kind == "abort":
            talk.interrupt(number)
            talk.notice("interrupted", data.reason or "", number, row.id, row.timestamp)
        elif kind == "session.error":
            talk.fail(number, data.message or "error")
            talk.notice("api_error", data.message or "", number, row.id, row.timestamp)
        elif kind in NOTICES:
            talk.notice(NOTICES[kind], data.message or data.content or "", number, row.id, row.timestamp)
        else:
            into = (
                counters.skipped if kind in SKIPPED or kind.startswith(SKIPPED_GROUPS) else counters.unknown
            )
            into[kind] = into.get(kind, 0) + 1
    talk.finish()
    return talk


def _person(talk: Dialogue, number: int, row: Row, data: Data) -> None:
    if data.source is not None and data.source.startswith("skill-"):
        return
    if data.content:
        talk.human(data.content, number, row.id, row.timestamp, rides=True)


# --- reading


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The session at `path`. Raises Unreadable."""
    counters = Counters()
    loaded = load(path, Row, counters, start=start, whole=whole)
    reading = build(loaded.rows, loaded.offsets, counters)
    reading.files = names([path])
    reading.session.native_id = reading.session.native_id or path.parent.name
    return reading


def build(rows: Sequence[Row], offsets: Sequence[int], counters: Counters) -> Reading:
    """A Reading of rows that were decoded already."""
    live, rewound = select(rows, counters)
    talk = fold(rows, live, counters)
    records = talk.records
    if rewound:
        kept = [r for r in fold(rows, rewound, Counters()).records if r.kind in {HUMAN, FINAL}]
        for record in kept:
            record.state = SUPERSEDED
        records = sorted([*records, *kept], key=lambda record: record.row)
    for record in records:
        record.offset = offsets[record.row]
    session = Session()
    for row in rows:
        data = row.data
        if data is None or row.type not in {"session.start", "session.resume", "session.context_changed"}:
            continue
        session.native_id = session.native_id or data.session_id
        session.cwd = data.cwd or (data.context.cwd if data.context is not None else None) or session.cwd
        if data.copilot_version is not None:
            session.versions = tuple(dict.fromkeys((*session.versions, data.copilot_version)))
    session.newest_at = max([row.timestamp for row in rows if row.timestamp is not None], default=None)
    return Reading(NAME, session=session, records=records, turns=talk.turns, counters=counters)


def primary(paths: Sequence[Path]) -> Path:
    """Of several sessions below one folder, the one that was written to last."""
    return max(paths, key=lambda path: path.stat().st_mtime)


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """The events that were added since `cursor`."""
    return tail_lines(path, Row, cursor)


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind everything that is there now."""
    return end_of_lines(path)


# --- places


def roots(where: Roots) -> tuple[Path, ...]:
    """Copilot CLI's home folders."""
    return where.under("COPILOT_HOME", ".copilot")


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """The event file in the session's own folder."""
    if native_id is None or not usable(native_id):
        return None
    for root in roots(where):
        path = root / "session-state" / native_id / "events.jsonl"
        if path.is_file():
            return Place(NAME, native_id, (path,), root)
    return None


def listing(where: Roots) -> Iterator[Path]:
    """Every event file."""
    for root in roots(where):
        yield from files_below(root / "session-state", suffixes=("events.jsonl",), depth=1)


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    return any(name.startswith(("session.", "assistant.", "user.message")) for name in look.types)
