"""Goose: `<data home>/goose/sessions/sessions.db` (since 1.10), before that one JSON lines file a session.

Every message has two flags of its own: shown to the person, shown to the model. A compaction takes rows
from the model and adds a summary for it alone; what the person saw stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from turnkeeper.transcript.dialogue import Dialogue
from turnkeeper.transcript.lines import lenient
from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import Counters, Reading, Session
from turnkeeper.transcript.source import Look, Unreadable, load, names
from turnkeeper.transcript.sqlite import holds, read_once, tables
from turnkeeper.transcript.tail import Cursor, Tail, end_of_whole, tail_lines, tail_whole
from turnkeeper.transcript.tail import at_end as end_of_lines

NAME: Final = "goose"
DATABASE: Final = "sessions.db"


class Call(msgspec.Struct, gc=False):
    """A tool call inside its request."""

    name: str | None = None
    value: Call | None = None


class Piece(msgspec.Struct, gc=False, rename="camel"):
    """A piece of a message."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    msg: str | None = None
    tool_call: Call | None = None


class Flags(msgspec.Struct, gc=False, rename="camel"):
    """Who sees a message."""

    user_visible: bool | None = None


class Row(msgspec.Struct, gc=False):
    """A message, or the first line of a file."""

    id: str | int | None = None
    role: str | None = None
    created: float | None = None
    content: list[Piece] | None = None
    metadata: Flags | None = None
    description: str | None = None
    working_dir: str | None = None
    session: Session | None = None


SKIPPED: Final = {
    "toolResponse": "a tool's result",
    "toolConfirmationRequest": "a question that was asked in the terminal",
    "hidden": "a message for the model alone: the summary of a compaction",
    "header": "the session's own data, read apart",
}
"""Pieces without anything of the conversation, with the reason."""


# --- selection


def rows_of(path: Path, session: str | None, counters: Counters) -> list[Row]:
    """The rows of one session of the database; the newest if none is named. Raises Unreadable."""
    return read_once(path, lambda connection: _rows(connection, path, session, counters))


def _rows(connection: apsw.Connection, path: Path, session: str | None, counters: Counters) -> list[Row]:
    have = tables(connection)
    columns = have.get("sessions", frozenset())
    if "id" not in columns or "content_json" not in have.get("messages", frozenset()):
        raise Unreadable(path=path, why="it is no Goose database of a known version")
    wanted = [name for name in ("id", "working_dir", "description", "name") if name in columns]
    found = [
        dict(zip(wanted, row, strict=True))
        for row in connection.execute(f"SELECT {', '.join(wanted)} FROM sessions ORDER BY rowid")  # noqa: S608
    ]
    chosen = next((each for each in reversed(found) if session is None or each["id"] == session), None)
    if chosen is None:
        raise Unreadable(
            path=path, why="it holds no session" if session is None else "it does not hold that session"
        )
    title = chosen.get("description") or chosen.get("name")
    rows = [Row(session=Session(native_id=str(chosen["id"]), cwd=chosen.get("working_dir"), title=title))]
    held = have["messages"]
    fields = [
        name if name in held else f"NULL AS {name}"
        for name in ("id", "message_id", "role", "content_json", "metadata_json", "created_timestamp")
    ]
    for number, message_id, role, content, flags, created in connection.execute(
        f"SELECT {', '.join(fields)} FROM messages WHERE session_id = ? ORDER BY rowid",  # noqa: S608
        (chosen["id"],),
    ):
        row = _decoded({"role": role, "content": content, "metadata": flags, "created": created}, counters)
        if row is not None:
            row.id = message_id or f"message:{number}"
            rows.append(row)
    counters.rows += len(rows) - 1
    return rows


def _decoded(value: dict[str, Any], counters: Counters) -> Row | None:
    try:
        for name in ("content", "metadata"):
            if isinstance(value[name], str | bytes):
                value[name] = msgspec.json.decode(value[name])
    except (msgspec.DecodeError, RecursionError):
        counters.malformed += 1
        return None
    return lenient(value, Row)


# --- classification and folding


def fold(rows: Sequence[Row], counters: Counters) -> Dialogue:
    """Messages into records and turns."""
    talk = Dialogue(ends=False)
    for number, row in enumerate(rows):
        if row.session is not None or row.role is None:
            continue
        if row.metadata is not None and row.metadata.user_visible is False:
            counters.skipped["hidden"] = counters.skipped.get("hidden", 0) + 1
            continue
        native = str(row.id) if row.id is not None else None
        if row.role == "user":
            _person(talk, number, row, native, counters)
        else:
            _answer(talk, number, row, native, counters)
    talk.finish()
    return talk


def _person(talk: Dialogue, number: int, row: Row, native: str | None, counters: Counters) -> None:
    pieces = row.content or []
    text = "\n".join([piece.text for piece in pieces if piece.type == "text" and piece.text])
    if any(piece.type == "toolResponse" for piece in pieces):
        talk.returned()
        counters.skipped["toolResponse"] = counters.skipped.get("toolResponse", 0) + 1
    elif text.strip():
        images = sum(1 for piece in pieces if piece.type == "image")
        talk.human(text, number, native, row.created, images=images)


def _answer(talk: Dialogue, number: int, row: Row, native: str | None, counters: Counters) -> None:
    for piece in row.content or ():
        kind = piece.type or ""
        if kind == "text":
            talk.text(piece.text or "", number, native, row.created)
        elif kind in {"thinking", "reasoning"}:
            talk.thinking(piece.thinking or piece.text or "", number, row.created)
        elif kind == "toolRequest":
            call = piece.tool_call
            name = (
                (call.name or (call.value.name if call.value is not None else None))
                if call is not None
                else None
            )
            talk.tool(name or "", number, piece.id or "", row.created)
        elif kind == "systemNotification":
            talk.notice("system_notification", piece.msg or piece.text or "", number, native, row.created)
        else:
            into = counters.skipped if kind in SKIPPED else counters.unknown
            into[kind] = into.get(kind, 0) + 1


# --- reading


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The session `session` of a database (None: the newest), or a file. Raises Unreadable."""
    counters = Counters()
    if path.name.endswith(".db"):
        rows = rows_of(path, session, counters)
        offsets = [-1] * len(rows)
    else:
        loaded = load(path, Row, counters, start=start, whole=whole)
        rows, offsets = loaded.rows, loaded.offsets
    reading = build(rows, offsets, counters)
    reading.files = names([path])
    reading.session.native_id = reading.session.native_id or path.stem
    return reading


def build(rows: Sequence[Row], offsets: Sequence[int], counters: Counters) -> Reading:
    """A Reading of rows that were read already."""
    talk = fold(rows, counters)
    for record in talk.records:
        record.offset = offsets[record.row] if record.row < len(offsets) else -1
    session = next((row.session for row in rows if row.session is not None), None) or Session()
    for row in rows:
        if row.role is None and row.session is None:
            session.cwd, session.title = row.working_dir, row.description
            counters.skipped["header"] = counters.skipped.get("header", 0) + 1
    session.newest_at = max([row.created for row in rows if row.created is not None], default=None)
    return Reading(NAME, session=session, records=talk.records, turns=talk.turns, counters=counters)


def primary(paths: Sequence[Path]) -> Path:
    """Of several files, the database, else the newest by its name."""
    return max(paths, key=lambda path: (path.name == DATABASE, path.name))


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """What was added since `cursor`."""
    if not path.name.endswith(".db"):
        return tail_lines(path, Row, cursor)
    counters = Counters()
    rows = rows_of(path, session, counters)
    return tail_whole(path, rows, [str(row.id) for row in rows], cursor, counters, newest=str(rows[-1].id))


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind everything that is there now."""
    if not path.name.endswith(".db"):
        return end_of_lines(path)
    return end_of_whole(path, str(rows_of(path, session, Counters())[-1].id))


# --- places


def roots(where: Roots) -> tuple[Path, ...]:
    """Goose's data folders."""
    named = where.env.get("XDG_DATA_HOME")
    own = Path(named) / "goose" if named else where.home / ".local/share/goose"
    return tuple(dict.fromkeys((*where.given, own)))


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """The file of a session, or the database that holds it."""
    if native_id is None or not usable(native_id):
        return None
    for root in roots(where):
        folder = root / "sessions"
        if (folder / f"{native_id}.jsonl").is_file():
            return Place(NAME, native_id, (folder / f"{native_id}.jsonl",), root)
        path = folder / DATABASE
        if path.is_file() and read_once(path, lambda connection: _has(connection, native_id)):
            return Place(NAME, native_id, (path,), root)
    return None


def _has(connection: apsw.Connection, native_id: str) -> bool:
    return "sessions" in tables(connection) and bool(
        list(connection.execute("SELECT 1 FROM sessions WHERE id = ?", (native_id,)))
    )


def listing(where: Roots) -> Iterator[Path]:
    """The database and the older files."""
    for root in roots(where):
        yield from files_below(root / "sessions", suffixes=(".jsonl", DATABASE), depth=0)


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    return holds(path, look.start, "sessions", "messages") or {"working_dir", "message_count"} <= look.keys
