"""Watching one transcript while its CLI works.

A follower reads from a cursor on: for a retained turn, from the place that the file had reached when the
turn's text was pasted. Each poll costs what was added; the reading is that of the window only, so that a
session of any length is watched at the cost of one turn. Signals that a turn ended (a hook, an idle
composer) come before the CLI has flushed its file (anthropics/claude-code#40655): `settle` waits for the
record, up to two seconds, on the clock that it is handed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from turnkeeper.port.clock import Clock
from turnkeeper.transcript.formats import Format, reader
from turnkeeper.transcript.record import RUNNING, Counters, Reading
from turnkeeper.transcript.source import Unreadable
from turnkeeper.transcript.tail import Cursor, window_from

SETTLE_SECONDS: Final = 2.0
SETTLE_EVERY_SECONDS: Final = 0.1


class Follower:
    """The window of one transcript from a cursor on.

    `path` may not exist yet (Codex and old Pi write their file late): polls find nothing until it does.
    `relocate` is asked for another path when the file is gone: it was archived, or compressed.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        cursor: Cursor | None = None,
        session: str | None = None,
        relocate: Callable[[], Path | None] | None = None,
    ) -> None:
        self._format: Format = reader(name)
        self._session = session
        self.path = path
        self.cursor = cursor
        self.reset = ""
        """Why the file was read again from its beginning since the window began; empty if it was not.
        The window then holds the whole file: what was known before comes again, with the same ids."""
        self._relocate = relocate
        self._rows: list[Any] = []
        self._offsets: list[int] = []
        self._counters = Counters()
        self._reading: Reading | None = None

    def poll(self) -> bool:
        """Take what was added; True if there was anything. Raises Unreadable for a file without rights."""
        changed = False
        while True:
            try:
                tail = self._format.tail(self.path, self.cursor, session=self._session)
            except Unreadable as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
                moved = self._relocate() if self._relocate is not None else None
                if moved is None or moved == self.path:
                    return changed
                self.path = moved
                continue
            self.cursor = tail.cursor
            if tail.reset or tail.replaces:
                self.reset = tail.reset or self.reset
                self._rows, self._offsets, self._counters = [], [], Counters()
                changed = True
            if tail.rows:
                self._rows += tail.rows
                self._offsets += tail.offsets
                changed = True
            self._counters.malformed += tail.counters.malformed
            self._counters.glued += tail.counters.glued
            self._counters.rows += tail.counters.rows
            if changed:
                self._reading = None
            if not tail.more:
                return changed

    @property
    def reading(self) -> Reading:
        """What the window holds."""
        if self._reading is None:
            counters = Counters(
                rows=self._counters.rows, malformed=self._counters.malformed, glued=self._counters.glued
            )
            self._reading = self._format.build(self._rows, self._offsets, counters)
            self._reading.files = (str(self.path),)
        return self._reading

    def advance(self) -> None:
        """Begin a new window behind what was read so far, and let go of that."""
        self.cursor = window_from(self.cursor) if self.cursor is not None else None
        self.reset = ""
        self._rows, self._offsets, self._counters = [], [], Counters()
        self._reading = None


def ended(reading: Reading) -> bool:
    """Whether the newest turn of a reading has an end."""
    turn = reading.last_turn
    return turn is not None and turn.state != RUNNING


async def settle(
    follower: Follower,
    clock: Clock,
    *,
    until: Callable[[Reading], bool] = ended,
    seconds: float = SETTLE_SECONDS,
    every_seconds: float = SETTLE_EVERY_SECONDS,
) -> Reading:
    """Read until `until` holds, for at most `seconds`; returns what there is then."""
    deadline = clock.monotonic() + seconds
    while True:
        follower.poll()
        if until(follower.reading) or clock.monotonic() >= deadline:
            return follower.reading
        await clock.sleep(every_seconds)
