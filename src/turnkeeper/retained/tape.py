"""Reading a CLI's transcript as signs, at the cost of what was added.

The cursor that is handed out is the durable one: it stays behind the last sign whose consequences are journaled. What
was read twice is told apart by the ids of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnkeeper.retained.adapter import Adapter, Memory
from turnkeeper.retained.signs import Sign
from turnkeeper.transcript.source import Unreadable
from turnkeeper.transcript.tail import Cursor, tail_lines


class Tape:
    """One session file being read."""

    def __init__(self, adapter: Adapter, path: Path | None, cursor: Cursor | None = None) -> None:
        self.adapter = adapter
        self.path = path
        self.cursor = cursor
        self.readable = False
        self.trouble = ""
        self.reset = False
        """The last poll read the file again from its beginning: it was rewritten or replaced."""
        self.unknown = 0
        """Rows of a shape that no adapter knows; a merge of the whole record reads what can be read of them."""
        self._memory = Memory()
        self._seen: tuple[int, int] | None = None

    @property
    def size_bytes(self) -> int:
        """How long the file was when it was read last; 0 if it never was."""
        return 0 if self._seen is None else self._seen[1]

    def poll(self) -> list[Sign]:
        """Signs since the last call. A file that is not there yet has none, and is not readable."""
        self.reset = False
        if self.path is None:
            return []
        try:
            status = self.path.stat()
        except OSError:
            self.readable = False
            return []
        now = (status.st_ino, status.st_size)
        if now == self._seen:
            return []
        try:
            tail = tail_lines(self.path, self.adapter.Row, self.cursor)
        except Unreadable as error:
            self.readable, self.trouble = False, error.sentence
            return []
        self.readable, self.trouble = True, ""
        self.cursor = tail.cursor
        self.reset = bool(tail.reset)
        if not tail.more:
            self._seen = now
        return self._signs(tail.rows, tail.offsets)

    def _signs(self, rows: Sequence[Any], offsets: Sequence[int]) -> list[Sign]:
        """What rows say. One of a shape that is not known here (a newer version) says nothing, hides no other and is counted."""
        found: list[Sign] = []
        for row, offset in zip(rows, offsets, strict=True):
            try:
                found += self.adapter.signs((row,), (offset,), self._memory)
            except (AttributeError, TypeError, ValueError, LookupError):
                self.unknown += 1
        return found
