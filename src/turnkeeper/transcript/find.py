"""Which sessions are on this machine: CLI, folder, title, last activity, turns, size.

Only the first and last 64 kB of a file are read, and nothing of them is decoded but single values: a
machine has thousands of sessions, some of a gigabyte. `whole` says whether `turns` was counted in the whole
file; of one that is longer than 64 kB it counts the prompts in the first and last 4 kB, and says no more than
"at least". Databases are asked. A file that cannot be read is listed with the reason and hides no other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import apsw
import msgspec

from turnkeeper.transcript.codex import ids_of
from turnkeeper.transcript.formats import MODULES, reader
from turnkeeper.transcript.lines import DAMAGED, ZST_SUFFIX, open_bytes
from turnkeeper.transcript.place import Roots
from turnkeeper.transcript.record import seconds
from turnkeeper.transcript.source import Unreadable, reason
from turnkeeper.transcript.sqlite import read_once, tables
from turnkeeper.transcript.tail import stem

LOOK_BYTES: Final = 65_536
COUNT_BYTES: Final = 4096
"""How much of each end of a long file prompts are counted in."""
TITLE_BYTES: Final = 4096
"""How much of the end of a file is searched first, where a CLI writes its titles again at the end."""
VALUE_BYTES_MAX: Final = 4096
"""Longest single value that is decoded."""
TITLE_CHARS_MAX: Final = 120


class Found(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One session. `id` is what the API takes: a path never is."""

    id: str
    format: str
    native_id: str
    cwd: str | None = None
    title: str | None = None
    last_activity: float | None = None
    """Unix seconds: the newest time that the CLI claims, else the file's."""
    turns: int = 0
    whole: bool = True
    size_bytes: int = 0
    path: str = ""
    unreadable: str | None = None


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Where single values stand in the bytes of a format. A title is taken from the first mark that is there."""

    cwd: bytes = b'"cwd":'
    titles: tuple[tuple[bytes, bool], ...] = ()
    """(mark, whether its last place counts)."""
    titles_at_end: bool = False
    """Whether the CLI writes all titles again at the end: those that stand there are all that count."""
    prompts: tuple[bytes, ...] = ()
    not_prompts: tuple[bytes, ...] = ()
    time: bytes = b'"timestamp":'
    native_id: bytes | None = None


MARKS: Final = {
    "claude-code": Marks(
        titles=(
            (b'"customTitle":', True),
            (b'"aiTitle":', True),
            (b'"lastPrompt":', True),
            (b'"summary":', True),
        ),
        titles_at_end=True,
        prompts=(b'"type":"user"',),
        not_prompts=(b'"type":"tool_result"', b'"isMeta":true'),
    ),
    "codex": Marks(
        titles=((b'"thread_name":', True), (b'"type":"user_message","message":', False)),
        prompts=(b'"type":"task_started"', b'"type":"turn_started"'),
    ),
    "pi": Marks(
        titles=(
            (b'"type":"session_info"', True),
            (b'"role":"user","content":[{"type":"text","text":', False),
        ),
        prompts=(b'"role":"user"',),
    ),
    "cursor": Marks(prompts=(b'"role":"user"',)),
    "muse": Marks(
        titles=((b'"refill_blocks":[{"kind":"text","text":', False),),
        prompts=(b'"runtime.user_intent.accepted"',),
        time=b'"recorded_at":',
    ),
    "gemini": Marks(
        cwd=b'"projectRoot":',
        titles=((b'"summary":', True), (b'"type":"user","content":[{"text":', True)),
        prompts=(b'"type":"user"', b'"type": "user"'),
        not_prompts=(b'"functionResponse"', b"<session_context>"),
        native_id=b'"sessionId":',
    ),
    "qwen": Marks(
        titles=((b'"customTitle":', True),),
        prompts=(b'"provenance":"real_user"', b'"mid_turn_user_message"'),
    ),
    "copilot": Marks(
        titles=((b'"type":"user.message","data":{"content":', False),), prompts=(b'"user.message"',)
    ),
    "goose": Marks(
        cwd=b'"working_dir":',
        titles=((b'"description":', False),),
        prompts=(b'"role":"user"',),
        time=b'"created":',
    ),
    "droid": Marks(
        titles=((b'"title":', False),), prompts=(b'"role":"user"',), not_prompts=(b'"type":"tool_result"',)
    ),
}


def find(where: Roots, *, names: Sequence[str] = tuple(MODULES)) -> Iterator[Found]:
    """Every session of the given formats below the roots, in no particular order."""
    for name in names:
        for path in reader(name).listing(where):
            yield from look(name, path)


def look(name: str, path: Path) -> list[Found]:
    """The session in a file, or those in a database."""
    try:
        if path.name.endswith(".db"):
            return _database(name, path)
        return [_file(name, path)]
    except Unreadable as error:
        why = str(error.facts.get("why", error))
    except DAMAGED as error:
        why = reason(error)
    own = _own_id(name, path, b"")
    return [Found(id=f"{name}:{own}", format=name, native_id=own, path=str(path), unreadable=why)]


def _file(name: str, path: Path) -> Found:
    marks = MARKS[name]
    text = os.fspath(path)
    first, last, status, whole = _ends(text)
    native = _own_id(name, path, first)
    counted = first if whole else first[:COUNT_BYTES] + b"\n" + (last or first)[-COUNT_BYTES:]
    turns = sum([counted.count(mark) for mark in marks.prompts])
    if turns:
        turns -= sum([counted.count(mark) for mark in marks.not_prompts])
    at = seconds(_value(first, last, marks.time, from_end=True))
    return Found(
        id=f"{name}:{native}",
        format=name,
        native_id=native,
        cwd=_text(first, last, marks.cwd, from_end=False),
        title=_title(first, last, marks),
        last_activity=at if at is not None else status.st_mtime,
        turns=max(turns, 0),
        whole=whole,
        size_bytes=status.st_size,
        path=text,
    )


def _title(first: bytes, last: bytes, marks: Marks) -> str | None:
    if marks.titles_at_end:
        end = (last or first)[-TITLE_BYTES:]
        for mark, from_end in marks.titles:
            title = _text(end, b"", mark, from_end=from_end)
            if title:
                return title[:TITLE_CHARS_MAX]
    for mark, from_end in marks.titles:
        title = _text(first, last, mark, from_end=from_end)
        if title:
            return title[:TITLE_CHARS_MAX]
    return None


def _ends(path: str) -> tuple[bytes, bytes, os.stat_result, bool]:
    """The first and the last bytes of a file (none if the first reach its end), and whether the first are all."""
    if path.endswith(ZST_SUFFIX):
        packed = Path(path)
        with open_bytes(packed) as stream:
            first = stream.read(2 * LOOK_BYTES)
        return first, b"", packed.stat(), len(first) <= LOOK_BYTES
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        size = status.st_size
        first = os.pread(handle, LOOK_BYTES, 0)
        if size <= LOOK_BYTES:
            return first, b"", status, True
        return first, os.pread(handle, LOOK_BYTES, max(LOOK_BYTES, size - LOOK_BYTES)), status, False
    finally:
        os.close(handle)


_DECODER: Final = json.JSONDecoder()


def _value(first: bytes, last: bytes, mark: bytes, *, from_end: bool) -> str | float | None:
    for data in (last, first) if from_end else (first, last):
        at = data.rfind(mark) if from_end else data.find(mark)
        if at >= 0:
            break
    else:
        return None
    begin = at + len(mark)
    if data[begin : begin + 1] == b'"':
        end = data.find(b'"', begin + 1, begin + VALUE_BYTES_MAX)
        if end > 0:
            plain = data[begin + 1 : end]
            if b"\\" not in plain:
                return plain.decode("utf-8", errors="replace")
    text = data[at + len(mark) : at + len(mark) + VALUE_BYTES_MAX].decode("utf-8", errors="replace").lstrip()
    try:
        value, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        # A long text breaks off in the middle of the part that was looked at.
        return text[1:] if text.startswith('"') and '"' not in text[1:] else None
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _text(first: bytes, last: bytes, mark: bytes, *, from_end: bool) -> str | None:
    value = _value(first, last, mark, from_end=from_end)
    return " ".join(value.split()) if isinstance(value, str) else None


def _own_id(name: str, path: Path, first: bytes) -> str:
    base = stem(path).removesuffix(".jsonl").removesuffix(".json")
    if name == "codex":
        return ids_of(path)[0] or base
    if name == "pi":
        return base.rpartition("_")[2]
    if name in {"muse", "copilot"} or path.name == "store.db":
        return path.parent.name
    mark = MARKS[name].native_id if name in MARKS else None
    if mark is None:
        return base
    found = _value(first, b"", mark, from_end=False)
    return found if isinstance(found, str) else base


# --- databases


def _database(name: str, path: Path) -> list[Found]:
    size = path.stat().st_size
    modified = path.stat().st_mtime
    if name == "cursor":
        reading = reader(name).read(path)
        own = path.parent.name
        return [
            Found(
                id=f"{name}:{own}",
                format=name,
                native_id=own,
                title=reading.session.title,
                last_activity=modified,
                turns=sum(1 for turn in reading.turns if turn.human),
                size_bytes=size,
                path=str(path),
            )
        ]
    rows = read_once(path, _opencode_rows if name == "opencode" else _goose_rows)
    return [
        Found(
            id=f"{name}:{own}",
            format=name,
            native_id=str(own),
            cwd=cwd,
            title=title,
            last_activity=seconds(at) if at is not None else modified,
            turns=int(turns),
            size_bytes=size,
            path=str(path),
        )
        for own, cwd, title, at, turns in rows
    ]


Listed = tuple[str, str | None, str | None, str | float | None, int]


def _opencode_rows(connection: apsw.Connection) -> list[Listed]:
    have = tables(connection).get("session", frozenset())
    chosen = ", ".join(
        name if name in have else "NULL" for name in ("id", "directory", "title", "time_updated")
    )
    only_main = "WHERE parent_id IS NULL" if "parent_id" in have else ""
    return [
        tuple(row)
        for row in connection.execute(
            f"SELECT {chosen}, (SELECT count(*) FROM message WHERE message.session_id = session.id"  # noqa: S608
            f" AND json_extract(message.data, '$.role') = 'user') FROM session {only_main}"
        )
    ]


def _goose_rows(connection: apsw.Connection) -> list[Listed]:
    have = tables(connection).get("sessions", frozenset())
    chosen = ", ".join(
        name if name in have else "NULL" for name in ("id", "working_dir", "description", "updated_at")
    )
    return [
        tuple(row)
        for row in connection.execute(
            f"SELECT {chosen}, (SELECT count(*) FROM messages WHERE messages.session_id = sessions.id"  # noqa: S608
            " AND role = 'user' AND content_json NOT LIKE '%toolResponse%') FROM sessions"
        )
    ]


def locate_found(found_id: str, where: Roots) -> tuple[str, tuple[Path, ...], str] | None:
    """(format, files, native id) of an id that `find` listed; None if it is not there."""
    name, _, native = found_id.partition(":")
    if name not in MODULES or not native:
        return None
    place = reader(name).locate(native, where)
    return None if place is None else (name, place.paths, native)
