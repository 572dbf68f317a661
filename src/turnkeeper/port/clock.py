"""Time and chance, as things that are handed in."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Tests hand in one that they advance."""

    def now(self) -> float:
        """Unix time in seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""
        ...


class Ids(Protocol):
    """Where ids come from."""

    def make(self, prefix: str) -> str:
        """A new id that starts with `prefix` and sorts after all it gave before."""
        ...
