"""Both kinds of pane do the same things: real tmux, and the scripted fake that simulations use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.terminal.worlds import ScriptedWorld, TmuxWorld
from turnkeeper.testing.conformance.pane import PANE_CASES, PaneWorld

Case = Callable[[PaneWorld], Awaitable[None]]


@pytest.mark.tmux
@pytest.mark.parametrize("case", PANE_CASES, ids=lambda case: case.__name__)
async def test_tmux_keeps_the_promise(case: Case, tmp_path: Path) -> None:
    world = TmuxWorld(tmp_path)
    try:
        await case(world)
    finally:
        await world.end()


@pytest.mark.parametrize("case", PANE_CASES, ids=lambda case: case.__name__)
async def test_the_scripted_pane_keeps_the_promise(case: Case, tmp_path: Path) -> None:
    world = ScriptedWorld(tmp_path)
    try:
        await case(world)
    finally:
        await world.end()
