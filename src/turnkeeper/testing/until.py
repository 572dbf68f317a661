"""Waiting in tests: for a condition, with a deadline and a sentence; never for a time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

LOOK_SECONDS = 0.02
"""Between two looks. Only how soon a test goes on depends on it, never whether it passes."""


@overload
async def until(condition: Callable[[], Awaitable[T]], what: str = ..., *, seconds: float = ...) -> T: ...
@overload
async def until(condition: Callable[[], T], what: str = ..., *, seconds: float = ...) -> T: ...
async def until(condition: Callable[[], Any], what: str = "the condition", *, seconds: float = 30.0) -> Any:
    """Return the first true value of `condition`; raise TimeoutError naming `what` and the last value.

    `seconds` is how long a broken run may take, not how long a good one does: be generous.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            msg = f"{what} did not come within {seconds:g} s; last seen: {value!r}"
            raise TimeoutError(msg)
        await asyncio.sleep(LOOK_SECONDS)


class Pace:
    """A timetable in real time, scaled: `await pace.at(12)` returns when its second 12 has come.

    For playing a story whose moments matter (a public case, a demonstration); a test that waits for
    something to happen uses `until`.
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self._began = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds of the timetable that have passed."""
        return (time.monotonic() - self._began) / self.scale

    async def at(self, second: float) -> None:
        """Return at that second, or at once if it is over."""
        await asyncio.sleep(max(0.0, (second - self.now) * self.scale))
