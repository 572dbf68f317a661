"""The fake port that tests of runners use passes what the real one passes, over both stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Mode
from turnkeeper.port.runner import Outcome, TurnPort
from turnkeeper.port.store import Batch
from turnkeeper.testing.clock import CountedIds, VirtualClock
from turnkeeper.testing.conformance.turn_port import TURN_PORT_CASES, Body, Case
from turnkeeper.testing.memory_store import MemoryStore
from turnkeeper.testing.turn_port import MemoryTurn
from turnkeeper.testing.until import until


class Probe:
    """A runner made of a function; what it raised is kept."""

    def __init__(self) -> None:
        self.body: Body | None = None
        self.raised: BaseException | None = None

    async def run(self, turn: TurnPort) -> Outcome:
        body, self.body = self.body, None
        assert body is not None
        try:
            return await body(turn)
        except BaseException as error:
            self.raised = error
            raise

    async def close(self) -> None:
        return


class RealKit:
    """The dispatcher's own port, in a Keeper."""

    def __init__(self, keeper: Keeper, probe: Probe, conversation_id: str) -> None:
        self.keeper, self.probe, self.conversation_id = keeper, probe, conversation_id
        self.sent = 0

    async def _send(self, text: str, mode: Mode) -> str:
        self.sent += 1
        made = await self.keeper.submit(
            OPERATOR, self.conversation_id, key=f"k{self.sent}", parts=(Text(text),), mode=mode
        )
        return made.turn_id

    async def carry_out(self, body: Body, text: str = "hello") -> None:
        self.probe.body, self.probe.raised = body, None
        turn_id = await self._send(text, Mode.QUEUE)

        async def over() -> bool:
            if self.probe.raised is not None:
                return True
            return (await self.keeper.turn(OPERATOR, turn_id)).state in ("settled", "failed", "cancelled")

        await until(over, "the end of the turn")
        if self.probe.raised is not None:
            raise self.probe.raised

    async def steer(self, turn: TurnPort, text: str) -> None:
        await self._send(text, Mode.STEER)
        await until(lambda: bool(turn.riders()), "the steer")

    async def stop(self, turn: TurnPort) -> None:
        await self.keeper.cancel(OPERATOR, turn.offer.turn.turn_id)

    async def lose_lease(self, turn: TurnPort) -> None:
        offered = turn.offer.turn
        taken = ev.TurnStarted(offered.fence + 1, "another", 0.0, why="rescued")
        draft = ev.Draft(taken, turn_id=offered.turn_id, attempt=offered.attempt)
        await self.keeper.store.commit(
            Batch(conversation_id=self.conversation_id, drafts=(draft,), at=turn.clock.now())
        )

    async def events(self) -> Sequence[ev.Event]:
        return await self.keeper.store.events(self.conversation_id, limit=1000)


class MemoryKit:
    """`MemoryTurn`."""

    def __init__(self) -> None:
        self.turn = MemoryTurn(VirtualClock(), CountedIds(), text="before")
        self.turn.journal.clear()
        self.count = 0

    async def carry_out(self, body: Body, text: str = "hello") -> None:
        probe = Probe()
        probe.body = body
        self.count += 1
        self.turn = self.turn.next_turn(text, turn_id=f"t_{self.count}")
        await self.turn.carry_out(probe)

    async def steer(self, turn: Any, text: str) -> None:
        turn.steer(text)

    async def stop(self, turn: Any) -> None:
        turn.stop()
        await asyncio.sleep(0)

    async def lose_lease(self, turn: Any) -> None:
        turn.fenced = True

    async def events(self) -> Sequence[ev.Event]:
        return self.turn.journal


@pytest.fixture(params=["memory turn", "memory store", "sqlite"])
async def kit(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param == "memory turn":
        yield MemoryKit()
        return
    probe = Probe()
    (tmp_path / "data").mkdir()
    store = MemoryStore() if request.param == "memory store" else None
    async with await Keeper.open(tmp_path / "data", store=store, runners={"probe": probe}) as keeper:
        conversation = await keeper.create_conversation(OPERATOR, "probe", "t")
        yield RealKit(keeper, probe, conversation.conversation_id)


@pytest.mark.parametrize("case", TURN_PORT_CASES, ids=lambda case: case.__name__)
async def test_the_turn_port_keeps_the_promise(case: Case, kit: Any) -> None:
    await case(kit)
