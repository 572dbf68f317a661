"""A lane that another writer moved is taken over as it is stored, and what runs here goes on if it still holds it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.events import Draft, LanePaused, TurnCancelled
from turnkeeper.conversation.parts import Text
from turnkeeper.port.runner import Answered, Outcome
from turnkeeper.port.store import Batch
from turnkeeper.testing.until import until


class Gated:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun = 0

    async def run(self, turn: Any) -> Outcome:
        self.begun += 1
        await self.open.wait()
        return Answered()

    async def close(self) -> None:
        return


async def moved_by_another(keeper: Keeper, conversation_id: str, *drafts: Draft) -> None:
    """Somebody else steps the lane in the store; this process is not told."""
    stored = await keeper.store.conversation(conversation_id)
    assert stored is not None
    batch = Batch(
        conversation_id=conversation_id,
        drafts=drafts,
        at=keeper.clock.now(),
        lane_version=stored.lane_version,
    )
    await keeper.store.commit(batch)


async def settled(keeper: Keeper, turn_id: str) -> bool:
    return (await keeper.turn(OPERATOR, turn_id)).state == "settled"


@pytest.mark.parametrize("by", ["end", "submit"])
async def test_a_turn_ends_on_a_lane_that_another_writer_paused(tmp_path: Path, by: str) -> None:
    runner = Gated()
    async with await Keeper.open(tmp_path / "data", runners={"gated": runner}) as keeper:
        c = (await keeper.create_conversation(OPERATOR, "gated", "t")).conversation_id
        first = await keeper.submit(OPERATOR, c, key="1", parts=(Text("one"),))
        await until(lambda: runner.begun == 1)
        await moved_by_another(keeper, c, Draft(LanePaused("elsewhere")))
        if by == "submit":
            await keeper.submit(OPERATOR, c, key="2", parts=(Text("two"),))
        runner.open.set()
        await until(lambda: settled(keeper, first.turn_id))
        assert (await keeper.conversation(OPERATOR, c)).lane.paused == "elsewhere"
        assert runner.begun == 1


async def test_a_turn_that_another_writer_ended_is_let_go_here(tmp_path: Path) -> None:
    runner = Gated()
    async with await Keeper.open(tmp_path / "data", runners={"gated": runner}) as keeper:
        c = (await keeper.create_conversation(OPERATOR, "gated", "t")).conversation_id
        first = await keeper.submit(OPERATOR, c, key="1", parts=(Text("one"),))
        await until(lambda: runner.begun == 1)
        await moved_by_another(keeper, c, Draft(TurnCancelled("elsewhere"), turn_id=first.turn_id, attempt=1))
        runner.open.set()
        second = await keeper.submit(OPERATOR, c, key="2", parts=(Text("two"),))
        await until(lambda: settled(keeper, second.turn_id))
        assert (await keeper.turn(OPERATOR, first.turn_id)).reason == "elsewhere"
        assert runner.begun == 2
