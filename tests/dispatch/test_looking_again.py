"""The periodic look at all lanes goes on, whatever one lane or one look comes to (G4)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.errors import StoreBusy
from turnkeeper.lane import inputs


@pytest.mark.parametrize("trouble", [StoreBusy(), RuntimeError("a bug")], ids=["busy", "bug"])
async def test_a_lane_that_cannot_be_looked_at_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    async with await Keeper.open(tmp_path / "data") as keeper:
        names = [(await keeper.create_conversation(OPERATOR, "demo")).conversation_id for _ in range(3)]
        seen: list[str] = []

        async def look(conversation_id: str, actor: Any, now: float) -> None:
            seen.append(conversation_id)
            if conversation_id == names[0]:
                raise trouble

        monkeypatch.setattr(keeper.dispatcher, "_look_at", look)
        await keeper.dispatcher.sweep()
        assert sorted(seen) == sorted(names)


async def test_a_look_that_failed_is_made_again(tmp_path: Path) -> None:
    async with await Keeper.open(tmp_path / "data") as keeper:
        again = asyncio.Event()
        looks = 0

        async def look() -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise RuntimeError("a bug")
            again.set()

        loop = asyncio.ensure_future(keeper.dispatcher._forever(look, lambda: 0.0))
        await asyncio.wait_for(again.wait(), 30)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


async def test_a_deletion_that_could_not_be_finished_is_finished_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Keeper.open(tmp_path / "data") as keeper:
        name = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
        dispatcher = keeper.dispatcher
        dispatcher._purges[name] = 0.0
        told: list[inputs.Input] = []
        answers: list[Exception | None] = [StoreBusy(), None]

        async def tell(conversation_id: str, one: inputs.Input, **_: Any) -> list[Any]:
            told.append(one)
            trouble = answers.pop(0)
            if trouble is not None:
                raise trouble
            return []

        monkeypatch.setattr(dispatcher, "tell", tell)
        await dispatcher.sweep()
        await dispatcher.sweep()
        await dispatcher.sweep()
        assert [type(one) for one in told] == [inputs.Purge, inputs.Purge]
        assert name not in dispatcher._purges
