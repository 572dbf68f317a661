"""Where rows come from: whole files, families of files, and the errors that reading them may end in.

Nothing here ever opens a file for writing. A file that cannot be read ends in one sentence (Unreadable),
a file that can be read in part is read in part, with counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from turnkeeper.errors import TurnkeeperError
from turnkeeper.transcript.lines import DAMAGED, ZST_SUFFIX, Batch, LineReader, open_bytes
from turnkeeper.transcript.record import Counters

R = TypeVar("R", bound=msgspec.Struct)


class Unreadable(TurnkeeperError):
    """The transcript {path} cannot be read: {why}."""

    code = "transcript_unreadable"
    status = 422


class FormatUnknown(TurnkeeperError):
    """{path} is no transcript of a format that Turnkeeper reads ({known}). Name the format with --format."""

    code = "transcript_format_unknown"


class Look(msgspec.Struct, frozen=True):
    """What the beginning of a file shows: its bytes, and the keys and types of its first rows."""

    start: bytes
    keys: frozenset[str]
    """Names at the top level of the first rows (of a row that breaks off: every name that is there)."""
    types: frozenset[str]


class Rows(msgspec.Struct, Generic[R]):
    """The rows of one file, with the byte at which each begins."""

    rows: list[R]
    offsets: list[int]


def load(path: Path, row: type[R], counters: Counters, *, start: int = 0, whole: bool = True) -> Rows[R]:
    """All rows of `path` from the byte `start`. Raises Unreadable."""
    rows: list[R] = []
    offsets: list[int] = []
    for batch in batches(path, row, counters, start=start, whole=whole):
        rows += batch.rows
        offsets += batch.offsets
    return Rows(rows, offsets)


def batches(
    path: Path, row: type[R], counters: Counters, *, start: int = 0, whole: bool = True
) -> Iterator[Batch[R]]:
    """The rows of `path` from the byte `start`, some at a time. Raises Unreadable."""
    reader = LineReader(row, counters, whole=whole)
    try:
        with open_bytes(path) as stream:
            if start:
                stream.seek(start)
            for batch in reader.read(stream, start=start):
                counters.rows += len(batch.rows)
                yield batch
    except OSError as error:
        raise Unreadable(path=path, why=reason(error)) from error


def reason(error: Exception) -> str:
    """Why a file cannot be read, in a word or two."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def head(path: Path, size: int) -> bytes:
    """The first `size` bytes of the file, decompressed if need be. Raises Unreadable."""
    try:
        with open_bytes(path) as stream:
            return stream.read(size)
    except DAMAGED as error:
        raise Unreadable(path=path, why=reason(error)) from error


def ends(path: Path, row: type[R]) -> list[R]:
    """The rows in the first and the last bytes of a file. Raises Unreadable."""
    decoder = msgspec.json.Decoder(row)
    rows: list[R] = []
    try:
        with open_bytes(path) as stream:
            first = stream.read(ENDS_BYTES)
            size = path.stat().st_size
            last = b""
            if path.suffix != ZST_SUFFIX and size > ENDS_BYTES:
                stream.seek(max(ENDS_BYTES, size - ENDS_BYTES))
                last = stream.read(ENDS_BYTES)
    except DAMAGED as error:
        raise Unreadable(path=path, why=reason(error)) from error
    for line in (*first.split(b"\n"), *last.split(b"\n")):
        try:
            rows.append(decoder.decode(line))
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            continue
    return rows


ENDS_BYTES: Final = 65_536
LOOK_LINES_MAX: Final = 40
_NAME: Final = re.compile(rb'"([A-Za-z_$][\w$]*)"\s*:')


def glance(start: bytes) -> Look:
    """The keys and types of the first rows of a file."""
    keys: set[str] = set()
    types: set[str] = set()
    for line in start.split(b"\n", LOOK_LINES_MAX)[:LOOK_LINES_MAX]:
        try:
            row = msgspec.json.decode(line.strip(b"\x00 \r\t"))
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(row, dict):
            keys.update(row)
            if isinstance(row.get("type"), str):
                types.add(row["type"])
    if not keys:
        keys.update(name.decode() for name in _NAME.findall(start[:4096]))
    return Look(start, frozenset(keys), frozenset(types))


def names(paths: Sequence[Path]) -> tuple[str, ...]:
    """The paths as text, for a Reading."""
    return tuple(str(path) for path in paths)
