"""Suites that prove an implementation of a port: run by our tests over every implementation, and by yours.

A suite is a tuple of cases. A case is an async function of a kit, which makes the thing under test; it
returns if the promise holds and raises AssertionError if not. With pytest:

    @pytest.mark.parametrize("case", STORE_CASES, ids=lambda case: case.__name__)
    async def test_my_store_keeps_the_promise(case, tmp_path):
        await case(MyStoreKit(tmp_path))
"""

from __future__ import annotations

from typing import Final

from turnkeeper.testing.conformance import (
    history_cases,
    journal_cases,
    keeping_cases,
    lane_cases,
    turn_cases,
)
from turnkeeper.testing.conformance.kit import CASES, Case, StoreKit

_MODULES: Final = (journal_cases, lane_cases, turn_cases, history_cases, keeping_cases)

STORE_CASES: Final[tuple[Case, ...]] = tuple(CASES)
"""Every promise of a store."""

__all__ = ["STORE_CASES", "Case", "StoreKit"]
