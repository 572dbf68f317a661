"""Bytes into rows: the one way in which line-based transcripts are cut and decoded.

Lines end at LF and nowhere else: U+2028 is legal inside a JSON string (copilot-cli#2012), so neither
`str.splitlines` nor `bytes.splitlines` is used. A whole chunk is decoded at once by a typed decoder that
never builds what it skips (tool bodies are the bulk of every transcript); a chunk with anything odd in it
is decoded again line by line, with care: NULs are dropped, two rows on one line are two rows, a row of a
newer version keeps the fields that can still be read, and a line that is no row is counted and passed
over, so that what follows it is not lost. Memory is bounded by the chunk and the longest line.
"""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Final, Generic, TypeVar, get_args, get_origin

import msgspec
import zstandard

from turnkeeper.transcript.limits import limits
from turnkeeper.transcript.record import Counters

R = TypeVar("R", bound=msgspec.Struct)

CHUNK_BYTES: Final = 256 * 1024
"""How much is decoded at once."""
SALVAGE_TRIES_MAX: Final = 64
"""How many places of a broken line are tried as the beginning of a row."""
ZST_SUFFIX: Final = ".zst"


class Batch(msgspec.Struct, Generic[R]):
    """Rows that were decoded together, with the byte at which each begins."""

    rows: list[R]
    offsets: list[int]


DAMAGED: Final = (OSError, zstandard.ZstdError)
"""What reading a file's bytes may end in: the system refuses them, or what is compressed is no such thing."""


def open_bytes(path: Path) -> BinaryIO:
    """The file's bytes for reading, decompressed if its name says so. Raises OSError."""
    raw = path.open("rb")
    if path.suffix != ZST_SUFFIX:
        return raw
    reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
        raw, read_across_frames=True, closefd=True
    )
    return io.BufferedReader(reader, CHUNK_BYTES)


class LineReader(Generic[R]):
    """Reads a line-based transcript as batches of rows of type `row`.

    `whole` says that the file ended (`show`, a dead process): a last line without LF that is a whole row
    is then a row. While the CLI may still be writing it stays pending (`Counters.torn_tail`).
    """

    def __init__(
        self,
        row: type[R],
        counters: Counters,
        *,
        whole: bool = True,
        chunk_bytes: int = CHUNK_BYTES,
        line_bytes_max: int | None = None,
        bytes_max: int | None = None,
    ) -> None:
        self._type = row
        self._decoder = msgspec.json.Decoder(row)
        self._counters = counters
        self._whole = whole
        self._chunk_bytes = chunk_bytes
        self._line_bytes_max = limits().line_bytes_max if line_bytes_max is None else line_bytes_max
        self._bytes_max = limits().unpacked_bytes_max if bytes_max is None else bytes_max
        self.consumed = 0
        """The byte behind the last LF that was read."""

    def read(self, stream: BinaryIO, *, start: int = 0, limit: int | None = None) -> Iterator[Batch[R]]:
        """Batches of rows from `start` (the stream stands there already) for at most `limit` bytes.

        A first line that is longer than `limit` is read to its end all the same: whoever reads on behind the last
        whole line would else never get past it.
        """
        buffer = bytearray(self._chunk_bytes)
        view = memoryview(buffer)
        filled = 0
        base = self.consumed = start
        dropping = False
        left = self._bytes_max if limit is None else limit
        while True:
            if filled == len(buffer):
                if dropping or len(buffer) >= self._line_bytes_max:
                    # A line that cannot be held: its bytes are let go of until its end comes.
                    base += filled
                    filled, dropping = 0, True
                else:
                    grown = bytearray(min(2 * len(buffer), self._line_bytes_max))
                    grown[:filled] = buffer
                    view.release()
                    buffer, view = grown, memoryview(grown)
            count = self._take(stream, view[filled : filled + max(0, min(len(buffer) - filled, left))])
            if not count:
                if left <= 0 and limit is None and self._take(stream, memoryview(bytearray(1))):
                    self._counters.cut_off = True
                break
            left -= count
            end = buffer.rfind(b"\n", filled, filled + count) + 1
            filled += count
            if end == 0:
                if limit is not None and left <= 0 and self.consumed == start:
                    left = self._chunk_bytes
                continue
            first = 0
            if dropping:
                first = buffer.index(b"\n") + 1
                self._counters.malformed += 1
                dropping = False
            if end > first:
                yield self._decode(buffer, view, first, end, base)
            base += end
            filled -= end
            buffer[:filled] = buffer[end : end + filled]
            self.consumed = base
        if dropping:
            self._counters.torn_tail, self._counters.torn_at = True, self.consumed
        elif filled:
            yield from self._tail(bytes(view[:filled]), base)

    def _take(self, stream: BinaryIO, room: memoryview) -> int:
        try:
            return stream.readinto(room) if room else 0  # type: ignore[attr-defined]
        except (zstandard.ZstdError, EOFError):
            self._counters.cut_off = True
            return 0

    def _tail(self, held: bytes, base: int) -> Iterator[Batch[R]]:
        if self._whole:
            before = self._counters.malformed
            batch = self._line(held, base)
            if self._counters.malformed == before:
                if batch.rows:
                    yield batch
                return
            if held.lstrip(b"\x00 \t\r")[:1] not in {b"{", b""}:
                return  # no row begins like this: it is counted as malformed, not awaited
            self._counters.malformed = before
        self._counters.torn_tail = True
        self._counters.torn_at = base

    def _decode(self, buffer: bytearray, view: memoryview, first: int, end: int, base: int) -> Batch[R]:
        """The rows of whole lines `buffer[first:end]`; `buffer` begins at the byte `base` of the file."""
        try:
            rows = self._decoder.decode_lines(view[first:end])
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            rows = []
        offsets: list[int] = []
        note, find = offsets.append, buffer.find  # of the number 10, a line end: of bytes takes twice as long
        at = first
        while at < end:
            note(base + at)
            at = find(10, at) + 1
        if len(rows) != len(offsets):
            # Something is odd: an empty line, two rows on a line, a row that cannot be read.
            return self._one_by_one(bytes(view[first:end]), base + first)
        return Batch(rows, offsets)

    def _one_by_one(self, block: bytes, base: int) -> Batch[R]:
        rows: list[R] = []
        offsets: list[int] = []
        decode = self._decoder.decode
        for line in block.split(b"\n"):
            if line:
                try:
                    rows.append(decode(line))
                    offsets.append(base)
                except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
                    batch = self._line(line, base)
                    rows += batch.rows
                    offsets += batch.offsets
            base += len(line) + 1
        return Batch(rows, offsets)

    def _line(self, line: bytes, base: int) -> Batch[R]:
        """The rows of one odd line: several glued together, NULs between, a torn row before a whole one."""
        text = line.replace(b"\x00", b"").strip()
        if base == 0:
            text = text.removeprefix(codecs.BOM_UTF8)
        if not text:
            if b"\x00" in line:
                self._counters.malformed += 1
            return Batch([], [])
        values, whole = _values(text)
        rows = [row for row in (lenient(value, self._type) for value in values) if row is not None]
        if len(rows) > 1:
            self._counters.glued += len(rows)
        if not whole or len(rows) < len(values):
            self._counters.malformed += 1
        return Batch(rows, [base] * len(rows))


def _values(text: bytes) -> tuple[list[Any], bool]:
    """The JSON objects that stand on a line, and whether the line holds nothing else."""
    words = text.decode("utf-8", errors="surrogateescape")
    decoder = json.JSONDecoder()
    values: list[Any] = []
    whole = True
    at = 0
    tries = 0
    while at < len(words) and tries < SALVAGE_TRIES_MAX:
        try:
            value, end = decoder.raw_decode(words, at)
        except (ValueError, RecursionError):
            value, end = None, at
        while end < len(words) and words[end].isspace():
            end += 1
        rest_is_rows = end == len(words) or words[end] == "{"
        if isinstance(value, dict) and (whole or (rest_is_rows and _reads_as_row(value))):
            if _undecodable(words[at:end]):
                whole = False
            else:
                values.append(value)
            at = end
            continue
        # Something torn stands here. A row that was glued to it begins at a later brace.
        whole = False
        tries += 1
        at = words.find('{"', at + 1)
        if at < 0:
            break
    return values, whole and at >= len(words)


def _undecodable(words: str) -> bool:
    """Whether the bytes behind `words` were no UTF-8."""
    try:
        words.encode()
    except UnicodeEncodeError:
        return True
    return False


def _reads_as_row(value: dict[str, Any]) -> bool:
    """Whether an object found inside a broken line is a row, and not a part of the torn one."""
    return ("type" in value and ("timestamp" in value or "uuid" in value)) or "recorded_at" in value


_UNFIT: Final = (msgspec.ValidationError, RecursionError, UnicodeEncodeError)
"""What converting a value may end in that does not fit: a lone surrogate is no text where anything but text is wanted."""


def lenient(value: Any, kind: type[R]) -> R | None:
    """`value` as a `kind`, field by field: what does not fit is left out (a newer version wrote it).

    None if it is not an object at all.
    """
    if not isinstance(value, dict):
        return None
    try:
        return msgspec.convert(value, kind)
    except _UNFIT:
        pass
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in value:
            fitted = _fit(value[field.encode_name], field.type)
            if fitted is not _MISFIT:
                given[field.name] = fitted
    try:
        return kind(**given)
    except TypeError:
        return None


_MISFIT: Final = object()


def _fit(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except _UNFIT:
        pass
    for choice in get_args(kind) if get_origin(kind) is UnionType else (kind,):
        if isinstance(choice, type) and issubclass(choice, msgspec.Struct) and isinstance(value, dict):
            fitted = lenient(value, choice)
            if fitted is not None:
                return fitted
        if get_origin(choice) is list and isinstance(value, list):
            return [item for item in (_fit(one, get_args(choice)[0]) for one in value) if item is not _MISFIT]
    return _MISFIT
