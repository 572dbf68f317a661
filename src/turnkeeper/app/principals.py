"""Whose bearer token it is, remembered for a moment, because every request asks.

What is remembered is never older than `seconds` and never outlives the token's own end. A token that is
revoked in this process is forgotten at once; one that is revoked elsewhere is honoured for `seconds` at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from turnkeeper.conversation.turns import Principal

REMEMBERED_MAX: Final = 10_000


class _Known(msgspec.Struct, frozen=True):
    principal: Principal
    until: float


class Principals:
    """SHA-256 of a secret -> its principal. `monotonic` gives seconds that never go back."""

    def __init__(self, *, seconds: float, monotonic: Callable[[], float]) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._known: dict[str, _Known] = {}

    def recall(self, sha256: str) -> Principal | None:
        """The principal, if it was found good a moment ago."""
        known = self._known.get(sha256)
        if known is None or known.until <= self._monotonic():
            return None
        return known.principal

    def remember(self, sha256: str, principal: Principal, *, left_seconds: float | None) -> None:
        """Keep what was just looked up; `left_seconds` until the token's own end, if it has one."""
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        seconds = self._seconds if left_seconds is None else min(self._seconds, left_seconds)
        self._known[sha256] = _Known(principal, self._monotonic() + seconds)

    def forget(self, token_id: str) -> None:
        """The token means nothing any more."""
        self._known = {
            sha256: known for sha256, known in self._known.items() if known.principal.token_id != token_id
        }
