"""Cursor CLI: `<home>/chats/<md5 of the folder>/<chat id>/store.db`, else its agent-transcripts.

The database is content-addressed: the newest root lists the ids of the messages in order (protobuf
field 1), each message is JSON. A rewind makes a new root and leaves the old one: messages behind the
first prompt that only old roots know are superseded. Neither keeps an end of a turn; the agent-transcript
beside it has `turn_ended` rows, no tool results and less text, and is read where there is no database.

The database's own row holds an encryption key: it is never read into anything that is shown or stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from turnkeeper.transcript import injected
from turnkeeper.transcript.dialogue import Dialogue
from turnkeeper.transcript.lines import lenient
from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import FINAL, HUMAN, INFERRED, SUPERSEDED, Counters, Reading, Session
from turnkeeper.transcript.source import Look, Unreadable, load, names
from turnkeeper.transcript.sqlite import holds, read_once
from turnkeeper.transcript.tail import Cursor, Tail, end_of_whole, tail_lines, tail_whole
from turnkeeper.transcript.tail import at_end as end_of_lines

NAME: Final = "cursor"
DATABASE: Final = "store.db"


class Piece(msgspec.Struct, gc=False):
    """A piece of a message, in the database's words (`tool-call`) or the transcript's (`tool_use`)."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    tool_name: str | None = msgspec.field(default=None, name="toolName")
    tool_call_id: str | None = msgspec.field(default=None, name="toolCallId")
    name: str | None = None
    id: str | None = None


class Said(msgspec.Struct, gc=False):
    """The message inside a transcript's row."""

    content: str | list[Piece] | None = None


class Row(msgspec.Struct, gc=False):
    """A message, from either store; the first row of a database carries the session."""

    role: str | None = None
    id: str | None = None
    content: str | list[Piece] | None = None
    message: Said | None = None
    type: str | None = None
    status: str | None = None
    blob: str | None = None
    superseded: bool = False
    session: Session | None = None


SKIPPED: Final = {
    "system": "the CLI's own prompt",
    "tool": "a tool's result",
}
"""Roles without anything of the conversation, with the reason."""
ROOT_FIELD_MESSAGES: Final = 1
ID_BYTES: Final = 32
REDACTED: Final = "[REDACTED]"
_QUERY: Final = re.compile(r"<user_query>\n?(.*?)\n?</user_query>", re.DOTALL)
_STAMP: Final = re.compile(r"\A\s*<timestamp>.*?</timestamp>\s*", re.DOTALL)


# --- selection


def message_ids(root: bytes) -> list[str]:
    """The message ids that a root blob lists, in order: field 1, 32 bytes each."""
    ids: list[str] = []
    at = 0
    while at < len(root):
        tag, at = _varint(root, at)
        wire = tag & 7
        if wire == 0:
            _, at = _varint(root, at)
        elif wire == 1:
            at += 8
        elif wire == 2:
            size, at = _varint(root, at)
            if tag >> 3 == ROOT_FIELD_MESSAGES and size == ID_BYTES and at + size <= len(root):
                ids.append(root[at : at + size].hex())
            at += size
        elif wire == 5:
            at += 4
        else:
            break
    return ids


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
        shift += 7
    return value, at


def rows_of(path: Path, counters: Counters) -> list[Row]:
    """The messages of the newest root, and behind them those that only older roots list. Raises Unreadable."""
    return read_once(path, lambda connection: _rows(connection, path, counters))


def _rows(connection: apsw.Connection, path: Path, counters: Counters) -> list[Row]:
    about = _about(connection)
    newest = about.get("latestRootBlobId")
    blobs = {
        str(key): bytes(data) for key, data in connection.execute("SELECT id, data FROM blobs ORDER BY rowid")
    }
    if not isinstance(newest, str) or newest not in blobs:
        raise Unreadable(path=path, why="its newest root is not there")
    live = message_ids(blobs[newest])
    session = Session(native_id=path.parent.name, title=about.get("name"))
    rows = [Row(session=session)]
    rows += _messages(live, blobs, counters)
    known = frozenset(live)
    lost: dict[str, None] = {}
    for key, data in blobs.items():
        if key == newest or data[:1] in {b"{", b"["}:
            continue
        listed = message_ids(data)
        first = next(
            (n for n, each in enumerate(listed) if each not in known and _is_prompt(blobs.get(each))), None
        )
        if first is not None:
            lost.update(dict.fromkeys(each for each in listed[first:] if each not in known))
    for row in _messages(list(lost), blobs, Counters()):
        row.superseded = True
        rows.append(row)
    counters.rows += len(rows) - 1
    return rows


def _about(connection: apsw.Connection) -> dict[str, Any]:
    for (value,) in connection.execute("SELECT value FROM meta WHERE key = '0'"):
        try:
            found = msgspec.json.decode(bytes.fromhex(value) if isinstance(value, str) else value)
        except (ValueError, TypeError, msgspec.DecodeError):
            continue
        if isinstance(found, dict):
            return {name: found.get(name) for name in ("latestRootBlobId", "name")}
    return {}


def _messages(ids: Sequence[str], blobs: dict[str, bytes], counters: Counters) -> list[Row]:
    rows: list[Row] = []
    for key in ids:
        row = _decoded(blobs.get(key))
        if row is None:
            counters.malformed += 1
            continue
        row.blob = key
        rows.append(row)
    return rows


def _decoded(data: bytes | None) -> Row | None:
    if data is None or not data.lstrip().startswith(b"{"):
        return None
    try:
        return lenient(msgspec.json.decode(data), Row)
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_prompt(data: bytes | None) -> bool:
    row = _decoded(data)
    return row is not None and row.role == "user" and bool(speech(row)[0])


# --- classification


def speech(row: Row) -> tuple[str, bool, int]:
    """What a person typed, whether the row says so itself, and how many images came with it."""
    content = row.message.content if row.message is not None else row.content
    pieces = [Piece("text", content)] if isinstance(content, str) else content or []
    images = sum(1 for piece in pieces if piece.type == "image")
    text = "\n".join([piece.text for piece in pieces if piece.type == "text" and piece.text])
    asked = _QUERY.findall(text)
    if asked:
        return "\n".join(asked), True, images
    text = _STAMP.sub("", text)
    if not text.strip() or injected.table(NAME).find(text) is not None:
        return "", False, images
    return text, False, images


# --- folding


def fold(rows: Sequence[Row], counters: Counters, *, ends: bool) -> Dialogue:
    """Messages into records and turns."""
    talk = Dialogue(ends=ends)
    for number, row in enumerate(rows):
        if row.session is not None:
            continue
        first = len(talk.records)
        if row.type == "turn_ended":
            _ended(talk, number, row)
        elif row.role == "user":
            text, certain, images = speech(row)
            if text or images:
                record = talk.human(text, number, row.blob or row.id, images=images)
                record.provenance = record.provenance if certain else INFERRED
        elif row.role == "assistant":
            _answer(talk, number, row)
        elif row.role in SKIPPED:
            talk.returned()
            counters.skipped[row.role] = counters.skipped.get(row.role, 0) + 1
        else:
            name = row.type or f"role/{row.role}"
            counters.unknown[name] = counters.unknown.get(name, 0) + 1
        if row.superseded:
            for record in talk.records[first:]:
                record.state = SUPERSEDED
    talk.finish()
    return talk


def _ended(talk: Dialogue, number: int, row: Row) -> None:
    if row.status in {"success", None}:
        talk.settle(number)
    elif "abort" in row.status or "cancel" in row.status or "interrupt" in row.status:
        talk.interrupt(number)
        talk.notice("interrupted", row.status, number)
    else:
        talk.fail(number, row.status)
        talk.notice("api_error", row.status, number)


def _answer(talk: Dialogue, number: int, row: Row) -> None:
    content = row.message.content if row.message is not None else row.content
    pieces = [Piece("text", content)] if isinstance(content, str) else content or []
    for piece in pieces:
        kind = piece.type or ""
        if kind in {"reasoning", "thinking", "redacted-reasoning"}:
            text = piece.thinking or piece.text or ""
            talk.thinking("" if text == REDACTED else text, number)
        elif kind == "text":
            talk.text("" if piece.text == REDACTED else piece.text or "", number, row.blob or row.id)
        elif kind in {"tool-call", "tool_use"}:
            talk.tool(piece.tool_name or piece.name or "", number, piece.tool_call_id or piece.id or "")


# --- reading


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The chat at `path`, a database or an agent-transcript. Raises Unreadable."""
    counters = Counters()
    if path.name.endswith(".db"):
        rows = rows_of(path, counters)
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
    ends = any(row.type == "turn_ended" for row in rows)
    talk = fold([row for row in rows if not row.superseded], counters, ends=ends)
    records = talk.records
    lost = [row for row in rows if row.superseded]
    if lost:
        kept = [r for r in fold(lost, Counters(), ends=False).records if r.kind in {HUMAN, FINAL}]
        records = [*records, *kept]
    for record in records:
        record.offset = offsets[record.row] if record.row < len(offsets) else -1
    session = next((row.session for row in rows if row.session is not None), Session())
    return Reading(NAME, session=session, records=records, turns=talk.turns, counters=counters)


def primary(paths: Sequence[Path]) -> Path:
    """Of several files, the database before the transcript, else the one that was written to last."""
    return max(paths, key=lambda path: (path.name == DATABASE, path.stat().st_mtime))


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """What was added since `cursor`; a database gives its whole window again when its root moves."""
    if not path.name.endswith(".db"):
        return tail_lines(path, Row, cursor)
    counters = Counters()
    rows = rows_of(path, counters)
    newest = next((row.blob for row in reversed(rows) if row.blob is not None and not row.superseded), None)
    return tail_whole(path, rows, [row.blob or "" for row in rows], cursor, counters, newest=newest or "")


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind everything that is there now."""
    if not path.name.endswith(".db"):
        return end_of_lines(path)
    rows = [row for row in rows_of(path, Counters()) if not row.superseded]
    return end_of_whole(path, rows[-1].blob or "")


# --- places


def roots(where: Roots) -> tuple[Path, ...]:
    """Cursor's configuration folders: its own, or the one of the desktop's rules."""
    named = where.env.get("XDG_CONFIG_HOME")
    desktop = (Path(named) if named else where.home / ".config") / "Cursor"
    return tuple(dict.fromkeys((*where.given, where.home / ".cursor", desktop)))


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """The chat's database, else its agent-transcript."""
    if native_id is None or not usable(native_id):
        return None
    for root in roots(where):
        for path in files_below(root / "chats", suffixes=(DATABASE,), depth=2):
            if path.parent.name == native_id:
                return Place(NAME, native_id, (path,), root)
    for root in roots(where):
        for path in files_below(root / "projects", suffixes=(f"{native_id}.jsonl",), depth=4):
            if path.stem == native_id and "agent-transcripts" in path.parts:
                return Place(NAME, native_id, (path,), root)
    return None


def listing(where: Roots) -> Iterator[Path]:
    """Every chat: its database, or its transcript where there is none."""
    seen: set[str] = set()
    for root in roots(where):
        for path in files_below(root / "chats", suffixes=(DATABASE,), depth=2):
            seen.add(path.parent.name)
            yield path
    for root in roots(where):
        for path in files_below(root / "projects", suffixes=(".jsonl",), depth=4):
            if "agent-transcripts" in path.parts and path.stem not in seen:
                yield path


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    if holds(path, look.start, "blobs", "meta"):
        return True
    return (
        {"role", "message"} <= look.keys
        and not {"uuid", "id", "parentUuid"} & look.keys
        and "user" not in look.types
    )
