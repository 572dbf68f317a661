"""The text of a running answer, shown at once and journaled in time.

Kill -9 may lose the last 500 ms or 4 kB of it and nothing else (DESIGN 5.3). Saving never holds up the
stream: one save is under way at most, and the next one carries all that came meanwhile. Each piece is masked by
itself on its way into the journal, so none ends within what may become a secret (G17): that waits for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from turnkeeper.errors import Unavailable
from turnkeeper.port.clock import Clock

Save = Callable[[str, int], Awaitable[None]]
"""Saves text, which begins after so many characters of the whole. What it cannot store now it keeps, and stores with
the next save, also if that has no text."""
Settled = Callable[[str], int]
"""How many characters of a text that still grows can be no beginning of a secret."""


class DraftKeeper:
    """Collects the text of one model call and has what is new of it saved in time by `save(text, start_chars)`.

    `finish` must be awaited before anything else of the round is journaled.
    """

    def __init__(
        self, save: Save, clock: Clock, *, interval_seconds: float, size_bytes: int, settled: Settled
    ) -> None:
        self._save = save
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._size_bytes = size_bytes
        self._settled = settled
        self._rest = ""
        """What came before the unsaved pieces and was not saved with its own."""
        self._pieces: list[str] = []
        self._saved_pieces = 0
        self._saved_chars = 0
        self._unsaved_bytes = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        """Everything so far."""
        return "".join(self._pieces)

    def add(self, text: str) -> None:
        """More words came. Raises what an earlier save raised."""
        self._pieces.append(text)
        self._unsaved_bytes += len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        if self._task is None:
            self._task = asyncio.create_task(self._keep())
            self._task.add_done_callback(_look_at)
        elif self._task.done():
            self._task.result()
        if self._unsaved_bytes >= self._size_bytes:
            self._wake.set()

    def close(self) -> None:
        """Save nothing more: what was collected is about to be journaled as a message, or nobody asks any more."""
        self._unsaved_bytes = 0
        self._interval_seconds = -1.0
        self._wake.set()

    async def finish(self) -> None:
        """Stop saving; a save under way is waited for. Raises what it raised."""
        task, self._task = self._task, None
        if task is None:
            return
        self._interval_seconds = -1.0
        self._wake.set()
        await task

    async def _keep(self) -> None:
        while self._interval_seconds >= 0:
            timer = asyncio.ensure_future(self._clock.sleep(self._interval_seconds))
            woken = asyncio.ensure_future(self._wake.wait())
            try:
                await asyncio.wait({timer, woken}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
                woken.cancel()
            if self._interval_seconds < 0:
                return
            self._wake.clear()
            if self._unsaved_bytes:
                await self._save_now()

    async def _save_now(self) -> None:
        size, until = self._unsaved_bytes, len(self._pieces)
        grown = self._rest + "".join(self._pieces[self._saved_pieces : until])
        cut = self._settled(grown)
        text, start = grown[:cut], self._saved_chars
        self._unsaved_bytes = 0
        self._saved_pieces, self._saved_chars, self._rest = until, start + cut, grown[cut:]
        try:
            await self._save(text, start)
        except Unavailable:
            # It goes with the next save; the round's own commit says if it never works.
            self._unsaved_bytes += size


def _look_at(task: asyncio.Task[None]) -> None:
    """An error of a save that no longer counts is seen; whatever is journaled next meets it again."""
    if not task.cancelled():
        task.exception()
