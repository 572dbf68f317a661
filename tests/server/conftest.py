"""The HTTP interface over a Keeper in memory, called without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A fresh Keeper and its interface."""
    made = await World.open()
    try:
        yield made
    finally:
        await made.close()
