"""OpenCode: `<data home>/opencode/opencode.db`, rows of session, message and part that change in place.

A user's row is written when it is queued; an answer names the prompt that it answers (parentID), and one
answer can answer several: the prompts before that one ride with it. Rows behind `session.revert` were
taken back. An interrupted or failed answer says so itself; one that a kill cut off never gets an end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from turnkeeper.transcript.dialogue import Dialogue
from turnkeeper.transcript.lines import lenient
from turnkeeper.transcript.place import Place, Roots, usable
from turnkeeper.transcript.record import FINAL, HUMAN, SUPERSEDED, Counters, Reading, Session
from turnkeeper.transcript.source import Look, Unreadable, names
from turnkeeper.transcript.sqlite import holds, read_once, tables
from turnkeeper.transcript.tail import Cursor, Tail, end_of_whole, tail_whole

NAME: Final = "opencode"
DATABASE: Final = "opencode.db"


class Times(msgspec.Struct, gc=False):
    """When something began and ended, as the CLI claims."""

    created: float | str | None = None
    completed: float | str | None = None


class Fault(msgspec.Struct, gc=False):
    """Why an answer broke off."""

    name: str | None = None
    data: dict[str, Any] | None = None


class Data(msgspec.Struct, gc=False):
    """What a message's row says."""

    role: str | None = None
    parent: str | None = msgspec.field(default=None, name="parentID")
    time: Times | None = None
    finish: str | None = None
    error: Fault | None = None
    summary: bool | None = None
    agent: str | None = None


class PartData(msgspec.Struct, gc=False):
    """What a part's row says; inputs and outputs of tools are not read."""

    type: str | None = None
    text: str | None = None
    synthetic: bool | None = None
    ignored: bool | None = None
    tool: str | None = None
    call_id: str | None = msgspec.field(default=None, name="callID")
    mime: str | None = None


class Row(msgspec.Struct, gc=False):
    """A message with its parts, or the session itself (`data` is None)."""

    id: str
    data: Data | None = None
    parts: list[PartData] = msgspec.field(default_factory=list)
    reverted: bool = False
    session: Session | None = None


SKIPPED: Final = {
    "step-start": "layout",
    "step-finish": "tokens",
    "snapshot": "undo data",
    "patch": "undo data",
    "agent": "which agent was asked",
    "subtask": "what a sub-agent was asked",
    "retry": "an attempt that was repeated",
    "file": "a file; counted with the message",
}
"""Part types without anything of the conversation, with the reason."""
ABORTED: Final = "MessageAbortedError"
GOES_ON: Final = frozenset({"tool-calls", "unknown", None})
"""How an answer ends when the turn does not."""


# --- selection


def rows_of(path: Path, session: str | None, counters: Counters) -> list[Row]:
    """The rows of one session, in one transaction; the newest main session if none is named. Raises Unreadable."""
    return read_once(path, lambda connection: _rows(connection, path, session, counters))


def _rows(connection: apsw.Connection, path: Path, session: str | None, counters: Counters) -> list[Row]:
    have = tables(connection)
    columns = have.get("session", frozenset())
    wanted = [
        name
        for name in ("id", "directory", "title", "parent_id", "revert", "time_updated")
        if name in columns
    ]
    if "id" not in wanted or "message" not in have or "part" not in have:
        raise Unreadable(path=path, why="it is no OpenCode database of a known version")
    sessions = [
        dict(zip(wanted, row, strict=True))
        for row in connection.execute(f"SELECT {', '.join(wanted)} FROM session")  # noqa: S608
    ]
    if session is not None:
        sessions = [each for each in sessions if each["id"] == session]
    mains = [each for each in sessions if not each.get("parent_id")] or sessions
    if not mains:
        raise Unreadable(
            path=path, why="it holds no session" if session is None else "it does not hold that session"
        )
    chosen = max(mains, key=lambda each: str(each.get("time_updated") or ""))
    own = Session(
        native_id=str(chosen["id"]),
        cwd=chosen.get("directory"),
        title=chosen.get("title"),
        parent=chosen.get("parent_id"),
    )
    rows = [Row(str(chosen["id"]), session=own)]
    parts: dict[str, list[tuple[str, PartData]]] = {}
    for part_id, message_id, data in connection.execute(
        "SELECT part.id, part.message_id, part.data FROM part JOIN message ON message.id = part.message_id"
        " WHERE message.session_id = ? ORDER BY part.rowid",
        (chosen["id"],),
    ):
        part = _decoded(data, PartData, counters)
        if part is not None:
            parts.setdefault(str(message_id), []).append((str(part_id), part))
    messages: list[Row] = []
    for message_id, data in connection.execute(
        "SELECT id, data FROM message WHERE session_id = ? ORDER BY rowid", (chosen["id"],)
    ):
        decoded = _decoded(data, Data, counters)
        if decoded is not None:
            held = parts.get(str(message_id), [])
            if all(name.startswith("prt_") for name, _ in held):
                held.sort(key=lambda pair: pair[0])
            messages.append(Row(str(message_id), decoded, [part for _, part in held]))
    if all(row.id.startswith("msg_") for row in messages):
        # The CLI's own ids grow with time and are its own order; rows of other makers keep theirs.
        messages.sort(key=lambda row: row.id)
    _mark_reverted(messages, chosen.get("revert"))
    counters.rows += len(messages)
    return [*rows, *messages]


def _decoded(data: Any, kind: type[Any], counters: Counters) -> Any:
    try:
        found = lenient(msgspec.json.decode(data), kind)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        found = None
    if found is None:
        counters.malformed += 1
    return found


def _mark_reverted(messages: Sequence[Row], revert: Any) -> None:
    try:
        first = msgspec.json.decode(revert).get("messageID") if revert else None
    except (msgspec.DecodeError, AttributeError, TypeError):
        return
    reverted = False
    for row in messages:
        reverted = reverted or row.id == first
        row.reverted = reverted


# --- classification and folding


def fold(rows: Sequence[Row], counters: Counters) -> Dialogue:
    """Messages into records and turns."""
    # Every answer that the CLI wrote names its prompt; rows of other makers carry no end either.
    talk = Dialogue(ends=any(row.data is not None and row.data.parent is not None for row in rows))
    for number, row in enumerate(rows):
        data = row.data
        if data is None:
            continue
        at = data.time.created if data.time is not None else None
        if data.role == "user":
            _person(talk, number, row, at, counters)
        elif data.role == "assistant":
            _answer(talk, number, row, data, at, counters)
        else:
            name = f"role/{data.role}"
            counters.unknown[name] = counters.unknown.get(name, 0) + 1
    talk.finish()
    return talk


def _person(talk: Dialogue, number: int, row: Row, at: float | str | None, counters: Counters) -> None:
    said = [
        part.text
        for part in row.parts
        if part.type == "text" and part.text and not part.synthetic and not part.ignored
    ]
    images = sum(1 for part in row.parts if part.type == "file" and (part.mime or "").startswith("image/"))
    if any(part.type == "compaction" for part in row.parts):
        talk.notice("compaction", "", number, row.id, at)
    if said or images:
        talk.human("\n".join(said), number, row.id, at, rides=True, images=images)
    _count(row, counters)


def _answer(
    talk: Dialogue, number: int, row: Row, data: Data, at: float | str | None, counters: Counters
) -> None:
    _count(row, counters)
    if data.summary or data.agent == "compaction":
        return
    for part in row.parts:
        if part.type == "reasoning":
            talk.thinking(part.text or "", number, at)
        elif part.type == "text" and not part.synthetic:
            talk.text(part.text or "", number, row.id, at)
        elif part.type == "tool":
            talk.tool(part.tool or "", number, part.call_id or "", at)
    if data.error is not None:
        if data.error.name == ABORTED:
            talk.interrupt(number)
            talk.notice("interrupted", "", number, row.id, at)
        else:
            text = str((data.error.data or {}).get("message", data.error.name))
            talk.fail(number, text)
            talk.notice("api_error", text, number, row.id, at)
    elif data.time is not None and data.time.completed is not None and data.finish not in GOES_ON:
        talk.settle(number)


_READ: Final = frozenset({"text", "reasoning", "tool", "compaction"})


def _count(row: Row, counters: Counters) -> None:
    for part in row.parts:
        name = part.type or "None"
        if name not in _READ:
            into = counters.skipped if name in SKIPPED else counters.unknown
            into[name] = into.get(name, 0) + 1


# --- reading


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The session `session` of the database (None: the newest). Raises Unreadable."""
    counters = Counters()
    rows = rows_of(path, session, counters)
    reading = build(rows, [-1] * len(rows), counters)
    reading.files = names([path])
    return reading


def build(rows: Sequence[Row], offsets: Sequence[int], counters: Counters) -> Reading:
    """A Reading of rows that were read already."""
    talk = fold([row for row in rows if not row.reverted], counters)
    records = talk.records
    reverted = [row for row in rows if row.reverted]
    if reverted:
        kept = [record for record in fold(reverted, counters).records if record.kind in {HUMAN, FINAL}]
        for record in kept:
            record.state = SUPERSEDED
        records = [*records, *kept]
    session = next((row.session for row in rows if row.session is not None), Session())
    times = [record.at for record in records if isinstance(record.at, int | float)]
    session.newest_at = max(times, default=session.newest_at)
    return Reading(NAME, session=session, records=records, turns=talk.turns, counters=counters)


def primary(paths: Sequence[Path]) -> Path:
    """Of several databases in one folder, the one with the CLI's own name."""
    return next((path for path in paths if path.name == DATABASE), paths[0])


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """The messages of a session from the cursor's message on, if anything changed.

    Rows change in place, so the window comes whole each time (`replaces`); it begins behind the message
    that was the newest when the cursor was made.
    """
    counters = Counters()
    rows = rows_of(path, session, counters)
    return tail_whole(path, rows, [row.id for row in rows], cursor, counters, newest=rows[-1].id)


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind the newest message of the session."""
    rows = rows_of(path, session, Counters())
    return end_of_whole(path, rows[-1].id)


# --- places


def roots(where: Roots) -> tuple[Path, ...]:
    """OpenCode's data folders."""
    named = where.env.get("XDG_DATA_HOME")
    own = Path(named) / "opencode" if named else where.home / ".local/share/opencode"
    return tuple(dict.fromkeys((*where.given, own)))


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """The database that holds the session."""
    if native_id is None or not usable(native_id):
        return None
    for root in roots(where):
        path = root / DATABASE
        if path.is_file() and read_once(path, lambda connection: _has(connection, native_id)):
            return Place(NAME, native_id, (path,), root)
    return None


def _has(connection: apsw.Connection, native_id: str) -> bool:
    return "session" in tables(connection) and bool(
        list(connection.execute("SELECT 1 FROM session WHERE id = ?", (native_id,)))
    )


def listing(where: Roots) -> Iterator[Path]:
    """The databases."""
    for root in roots(where):
        if (root / DATABASE).is_file():
            yield root / DATABASE


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    return holds(path, look.start, "session", "message", "part")
