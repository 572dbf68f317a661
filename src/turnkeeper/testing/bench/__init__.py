"""Speed, shown as ratios inside one run: what we do beside what could be done on the same machine at once.

Absolute numbers wander with the machine; a ratio of two things measured in turns does not. Every bench is
a module here with `async def run() -> list[Row]`; `turnkeeper bench` runs them and prints one table.
Results are kept in docs/performance.md. Nothing here is ever a timed test.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `ratio` is against `of`; `goal` is in words, `met` says whether it holds."""

    name: str
    value: float
    unit: str
    of: str | None = None
    ratio: float | None = None
    goal: str | None = None
    met: bool | None = None
    note: str | None = None


def at_most(name: str, value: float, unit: str, *, of: str, base: float, limit: float) -> Row:
    """A row whose ratio to `base` must not exceed `limit`."""
    ratio = value / base if base else float("inf")
    return Row(
        name=name, value=value, unit=unit, of=of, ratio=ratio, goal=f"≤ {limit:g}×", met=ratio <= limit
    )


def at_least(name: str, value: float, unit: str, *, of: str, base: float, limit: float) -> Row:
    """A row whose ratio to `base` must reach `limit`."""
    ratio = value / base if base else float("inf")
    return Row(
        name=name, value=value, unit=unit, of=of, ratio=ratio, goal=f"≥ {limit:g}×", met=ratio >= limit
    )


def median(values: list[float]) -> float:
    """The middle."""
    return statistics.median(values)


async def in_turns(
    variants: dict[str, Callable[[], Awaitable[float]]], repetitions: int
) -> dict[str, list[float]]:
    """Measure the variants one after another, again and again, so that the machine's moods hit them all alike."""
    found: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(repetitions):
        for name, measure in variants.items():
            found[name].append(await measure())
    return found


def clock() -> float:
    """Seconds of the finest clock."""
    return time.perf_counter()
