"""What was added to a transcript since last time, at the cost of what was added.

The cursor stands behind the last LF, never at the end of the file: a line without its LF may still be
growing. It also holds the file's inode, and hashes of its first bytes and of the bytes just before the
cursor. A file that shrank, was replaced, moved or rewritten in place is read again from its beginning,
and says so (`reset`): a compressed or archived copy, a migration, a title slot on the first line, a
snapshot that replaced all messages. Memory is bounded by what one call takes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final, Generic, TypeVar

import msgspec

from turnkeeper.transcript.lines import ZST_SUFFIX, LineReader, open_bytes
from turnkeeper.transcript.record import Counters
from turnkeeper.transcript.source import Unreadable, reason

R = TypeVar("R", bound=msgspec.Struct)

HEAD_BYTES: Final = 4096
ANCHOR_BYTES: Final = 512
TAKE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Most bytes that one call takes; `Tail.more` tells whether there are others."""


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in a transcript that survives a restart: store it, hand it in again."""

    name: str
    """The file's name without its folder and `.zst`: files are archived and compressed under the same name."""
    inode: int
    offset: int
    size: int
    head_bytes: int
    head: str
    anchor: str
    mark: str = ""
    """For stores that are no line-based files: the newest change that was read."""


class Tail(msgspec.Struct, Generic[R]):
    """The rows since the cursor that was handed in, and the cursor for the next call."""

    rows: list[R]
    offsets: list[int]
    cursor: Cursor
    counters: Counters
    reset: str = ""
    """Why the file was read again from its beginning; empty if it was not."""
    more: bool = False
    replaces: bool = False
    """The rows are the whole window and not an addition to it (stores whose rows change in place)."""

    @property
    def pending(self) -> bool:
        """Whether a line without an end stands behind the cursor."""
        return self.counters.torn_tail


def stem(path: Path) -> str:
    """The name under which a file is known wherever it lies and however it is compressed."""
    return path.name.removesuffix(ZST_SUFFIX)


def tail_lines(
    path: Path, row: type[R], cursor: Cursor | None, *, take_bytes: int = TAKE_BYTES_MAX
) -> Tail[R]:
    """Rows of a line-based file since `cursor` (None: from its beginning). Raises Unreadable."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            why = "" if cursor is None else _changed(path, stream, status, cursor)
            if path.suffix == ZST_SUFFIX:
                return _compressed(path, row, cursor, status, why)
            start = 0 if cursor is None or why else cursor.offset
            counters = Counters()
            reader = LineReader(row, counters, whole=False)
            stream.seek(start)
            rows: list[R] = []
            offsets: list[int] = []
            for batch in reader.read(stream, start=start, limit=take_bytes):
                rows += batch.rows
                offsets += batch.offsets
            end = stream.tell()
            more = end < os.fstat(stream.fileno()).st_size and end - start >= take_bytes
            if more:
                counters.torn_tail, counters.torn_at = False, None
            at = _cursor(path, stream, status, reader.consumed)
    except OSError as error:
        raise Unreadable(path=path, why=reason(error)) from error
    counters.rows = len(rows)
    return Tail(rows, offsets, at, counters, why, more)


def at_end(path: Path) -> Cursor:
    """A cursor behind everything that the file holds now: behind its last LF, not at its size."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            end = status.st_size
            offset = 0
            while end > 0:
                begin = max(0, end - HEAD_BYTES)
                stream.seek(begin)
                found = stream.read(end - begin).rfind(b"\n")
                if found >= 0:
                    offset = begin + found + 1
                    break
                end = begin
            return _cursor(path, stream, status, offset)
    except OSError as error:
        raise Unreadable(path=path, why=reason(error)) from error


def _cursor(path: Path, stream: BinaryIO, status: os.stat_result, offset: int) -> Cursor:
    head_bytes = min(HEAD_BYTES, offset)
    return Cursor(
        name=stem(path),
        inode=status.st_ino,
        offset=offset,
        size=max(status.st_size, offset),
        head_bytes=head_bytes,
        head=_digest(stream, 0, head_bytes),
        anchor=_digest(stream, max(0, offset - ANCHOR_BYTES), min(ANCHOR_BYTES, offset)),
    )


def _changed(path: Path, stream: BinaryIO, status: os.stat_result, cursor: Cursor) -> str:
    if status.st_size < cursor.offset:
        return "truncated"
    if path.suffix == ZST_SUFFIX:
        return "" if (status.st_ino, status.st_size) == (cursor.inode, cursor.size) else "compressed"
    if _digest(stream, 0, cursor.head_bytes) != cursor.head:
        return "rewritten"
    if (
        _digest(stream, max(0, cursor.offset - ANCHOR_BYTES), min(ANCHOR_BYTES, cursor.offset))
        != cursor.anchor
    ):
        return "rewritten"
    if status.st_ino != cursor.inode and cursor.offset == 0:
        return "replaced"
    return ""


def _digest(stream: BinaryIO, start: int, size: int) -> str:
    if size == 0:
        return ""
    stream.seek(start)
    return hashlib.blake2b(stream.read(size), digest_size=16).hexdigest()


def _compressed(path: Path, row: type[R], cursor: Cursor | None, status: os.stat_result, why: str) -> Tail[R]:
    """A compressed file is an ended one: it is read whole, once."""
    counters = Counters()
    rows: list[R] = []
    offsets: list[int] = []
    offset = 0 if cursor is None else cursor.offset
    if cursor is None or why:
        reader = LineReader(row, counters)
        with open_bytes(path) as stream:
            for batch in reader.read(stream):
                rows += batch.rows
                offsets += batch.offsets
        offset = reader.consumed
    at = Cursor(stem(path), status.st_ino, min(offset, status.st_size), status.st_size, 0, "", "")
    return Tail(rows, offsets, at, counters, why)


def tail_whole(
    path: Path, rows: list[R], ids: Sequence[str], cursor: Cursor | None, counters: Counters, *, newest: str
) -> Tail[R]:
    """The window of a store whose rows change in place: everything behind the row that the cursor began at.

    `rows[0]` is the session's own row and always part of the window. Nothing is given if nothing changed.
    """
    begin, seen = [*(cursor.mark if cursor is not None else "").split(" "), "", ""][:2]
    state = hashlib.blake2b(msgspec.json.encode(rows), digest_size=16).hexdigest()
    status = path.stat()
    at = Cursor(path.name, status.st_ino, 0, status.st_size, 0, "", "", f"{begin} {state} {newest}")
    first = ids.index(begin) + 1 if begin in ids else 1
    kept = rows[:1] + rows[max(first, 1) :]
    if cursor is not None and (seen == state or (not seen and len(kept) == 1)):
        return Tail([], [], at, counters)
    return Tail(kept, [-1] * len(kept), at, counters, replaces=True)


def end_of_whole(path: Path, newest: str) -> Cursor:
    """A cursor of such a store behind the row `newest`."""
    status = path.stat()
    return Cursor(path.name, status.st_ino, 0, status.st_size, 0, "", "", newest)


def window_from(cursor: Cursor) -> Cursor:
    """The cursor for a window that begins behind what `cursor` has seen."""
    if not cursor.mark:
        return cursor
    return msgspec.structs.replace(cursor, mark=cursor.mark.split(" ")[-1])
