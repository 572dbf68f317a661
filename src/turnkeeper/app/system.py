"""The real clock and the real source of ids."""

from __future__ import annotations

import asyncio
import os
import time

from turnkeeper.conversation.ids import ENTROPY_BYTES, id_of


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
    """Ids from the clock and the system's randomness; within this process they only grow.

    Within one millisecond the next id is the last one plus a random step, so that nobody can guess it.
    """

    def __init__(self) -> None:
        self._last = 0
        self._chance = b""
        self._used = 0

    def _random(self, size: int) -> int:
        """A random number of `size` bytes; the system is asked for many at a time."""
        begin = self._used
        end = begin + size
        if end > len(self._chance):
            self._chance = os.urandom(4096)
            begin, end = 0, size
        self._used = end
        return int.from_bytes(self._chance[begin:end], "big")

    def make(self, prefix: str) -> str:
        """A new id that sorts after all that were made here before."""
        number = int(time.time() * 1000) << 80 | self._random(ENTROPY_BYTES)
        if number <= self._last:
            number = self._last + 1 + self._random(5)
        self._last = number
        return id_of(prefix, number)
