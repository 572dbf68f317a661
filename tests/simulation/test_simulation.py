"""Seeded simulation: the pure lane and the real dispatcher, shaken and judged; planted bugs must be caught.

Seeds that ever failed stand in seeds.txt (one a line: world, seed) and are run for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.testing.simulator import agent_world, dispatch_world, lane_world

LANE_SEEDS = 10_000
DISPATCH_SEEDS = 2_000
AGENT_SEEDS = 60
LONG = 10
"""How many times as many seeds the long soaks run."""
CHUNKS = 10
WORLDS = {"lane": lane_world.run_seed, "dispatch": dispatch_world.run_seed, "agent": agent_world.run_seed}
CAUGHT_WITHIN = 400
"""Every planted bug must be caught by some seed below this."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The worlds break things on purpose; what is logged of it would bury a real failure."""
    logger = logging.getLogger("turnkeeper")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def known_seeds() -> list[tuple[str, int]]:
    lines = (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    pairs = [line.split() for line in lines if line and not line.startswith("#")]
    return [(world, int(seed)) for world, seed in pairs]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_pure_lane_keeps_its_promises(chunk: int) -> None:
    for seed in range(chunk, LANE_SEEDS, CHUNKS):
        lane_world.run_seed(seed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_dispatcher_keeps_its_promises(chunk: int) -> None:
    for seed in range(chunk, DISPATCH_SEEDS, CHUNKS):
        dispatch_world.run_seed(seed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(2))
def test_our_loop_keeps_its_promises(chunk: int) -> None:
    for seed in range(chunk, AGENT_SEEDS, 2):
        agent_world.run_seed(seed)


@pytest.mark.long
@pytest.mark.parametrize("world", WORLDS)
def test_ten_times_as_many_seeds_keep_their_promises(world: str) -> None:
    seeds = {"lane": LANE_SEEDS, "dispatch": DISPATCH_SEEDS, "agent": AGENT_SEEDS}[world]
    for seed in range(seeds, seeds * LONG):
        WORLDS[world](seed)


@pytest.mark.parametrize(("world", "seed"), known_seeds())
def test_a_seed_that_once_failed_passes(world: str, seed: int) -> None:
    WORLDS[world](seed)


@pytest.mark.parametrize("bug", lane_world.BUGS)
def test_a_bug_planted_in_the_lane_is_caught(bug: str) -> None:
    assert caught("lane", bug)


@pytest.mark.parametrize("bug", dispatch_world.BUGS)
def test_a_bug_planted_in_the_dispatcher_is_caught(bug: str) -> None:
    assert caught("dispatch", bug)


@pytest.mark.parametrize("bug", agent_world.BUGS)
def test_a_bug_planted_in_our_loop_is_caught(bug: str) -> None:
    assert caught("agent", bug)


def caught(world: str, bug: str) -> bool:
    for seed in range(CAUGHT_WITHIN):
        try:
            WORLDS[world](seed, bug=bug)
        except (AssertionError, RuntimeError):
            return True
    return False


def test_the_same_seed_is_the_same_run() -> None:
    first, second = lane_world.run_seed(11), lane_world.run_seed(11)
    assert first.lane == second.lane
    assert first.rows == second.rows
