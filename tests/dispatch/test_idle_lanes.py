"""Lanes that nobody needs are forgotten, and none that somebody is about to use: a lane is never there twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.parts import Text
from turnkeeper.port.runner import Outcome, Stopped
from turnkeeper.settings import Settings
from turnkeeper.testing.until import until


class Counting:
    """Holds every lane, and counts how often each turn was begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    async def run(self, turn: Any) -> Outcome:
        self.begun.append(turn.fence.turn_id)
        await turn.wait_stopping()
        return Stopped()

    async def close(self) -> None:
        return


async def test_a_turn_that_starts_on_a_lane_just_loaded_is_run_once_and_stays_known(tmp_path: Path) -> None:
    runner = Counting()
    few = Settings(idle_lanes_max=2)
    async with await Keeper.open(tmp_path / "data", settings=few, runners={"counting": runner}) as keeper:
        dispatcher = keeper.dispatcher
        names = [
            (await keeper.create_conversation(OPERATOR, "counting", "t")).conversation_id for _ in range(20)
        ]
        assert len(dispatcher.lanes) <= 2
        sent = await asyncio.gather(
            *(
                keeper.submit(OPERATOR, name, key=f"{name}-{number}", parts=(Text("hello"),))
                for number in range(2)
                for name in names
            )
        )
        assert [one.outcome for one in sent] == ["started"] * 20 + ["queued"] * 20
        await until(lambda: len(runner.begun) >= 20)
        await dispatcher.sweep()
        assert len(set(runner.begun)) == len(runner.begun) == 20
        assert {name for name in names if (await dispatcher.lanes.actor(name)).running is not None} == set(
            names
        )


async def test_idle_lanes_above_the_limit_are_forgotten_and_loaded_again(tmp_path: Path) -> None:
    async with await Keeper.open(tmp_path / "data", settings=Settings(idle_lanes_max=4)) as keeper:
        dispatcher = keeper.dispatcher
        names = [(await keeper.create_conversation(OPERATOR, "demo")).conversation_id for _ in range(30)]
        assert len(dispatcher.lanes) <= 4
        for name in names:
            assert (await dispatcher.lanes.actor(name)).conversation.conversation_id == name
            assert len(dispatcher.lanes) <= 5
