"""The real clock and the real source of ids."""

from __future__ import annotations

import asyncio
import os
import time

from turnkeeper.conversation.ids import ENTROPY_BYTES, make_id


class SystemClock:
    """This machine's time."""

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class SystemIds:
    """Ids from the clock and the system's randomness; within this process they only grow."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def make(self, prefix: str) -> str:
        """A new id that sorts after all that were made here before."""
        made = make_id(prefix, time.time(), os.urandom(ENTROPY_BYTES))
        last = self._last.get(prefix, "")
        at = time.time()
        while made <= last:
            at += 0.001
            made = make_id(prefix, at, os.urandom(ENTROPY_BYTES))
        self._last[prefix] = made
        return made
