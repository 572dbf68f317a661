"""Time that jumps: an event loop whose clock moves on by itself when nothing is left to do.

Under `VirtualLoop` an `asyncio.sleep(1800)` returns at once in real time and 1,800 s later in virtual
time, in a fixed order: tests wait for nothing and every run of a seed is the same run.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START = 1_800_000_000.0
"""The Unix time at which virtual worlds begin."""


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting, moves the time on."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None and timeout > 0:
            self.loop.jump(timeout)
        if not ready and timeout is None:
            msg = "nothing is left that could ever happen"
            raise RuntimeError(msg)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self._virtual = 0.0
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual

    def jump(self, seconds: float) -> None:
        """Move the time on."""
        self._virtual += seconds


class VirtualClock:
    """The clock of a virtual loop (port/clock.py)."""

    def __init__(self, start: float = START) -> None:
        self._start = start

    def now(self) -> float:
        """Virtual Unix time in seconds."""
        return self._start + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        """Virtual seconds."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of virtual time."""
        await asyncio.sleep(seconds)


class CountedIds:
    """Ids that count up: t_1, t_2, ... in the order they are made (port/clock.py)."""

    def __init__(self) -> None:
        self._count = 0

    def make(self, prefix: str) -> str:
        """The next id."""
        self._count += 1
        return f"{prefix}_{self._count:08d}"


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in virtual time to its end."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        try:
            pending = asyncio.all_tasks(loop)
            for task in pending:
                task.cancel()
            if pending:
                loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        finally:
            loop.close()
