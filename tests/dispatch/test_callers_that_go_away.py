"""A caller that goes away while its change is being stored: what was stored is made known all the same (G6)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.events import Draft, MessageAppended
from turnkeeper.conversation.messages import ASSISTANT, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.errors import Fenced
from turnkeeper.projection.view import Durable
from turnkeeper.testing.until import until


@pytest.mark.parametrize("change", ["renamed", "completed"])
async def test_what_was_stored_is_told_although_the_caller_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    async with await Keeper.open(tmp_path / "data") as keeper:
        name = (await keeper.create_conversation(OPERATOR, "demo", "before")).conversation_id
        seen: list[Any] = []
        ready = asyncio.Event()

        async def watch() -> None:
            stream = keeper.dispatcher.broadcast.watch(name, after=0)
            async for item in stream:
                seen.append(item)
                ready.set()

        watching = asyncio.ensure_future(watch())
        await ready.wait()
        seen.clear()
        committing, commit = asyncio.Event(), keeper.store.commit

        async def noticed(batch: Any) -> Any:
            committing.set()
            return await commit(batch)

        monkeypatch.setattr(keeper.store, "commit", noticed)

        async def missing(_: Sequence[Message]) -> Sequence[Draft]:
            message = Message(message_id="m_recorded", role=ASSISTANT, parts=(Text("recorded"),))
            return [Draft(MessageAppended(message))]

        calls: dict[str, Any] = {
            "renamed": lambda: keeper.change_conversation(OPERATOR, name, title="after"),
            "completed": lambda: keeper.dispatcher.complete(name, missing),
        }
        caller = asyncio.ensure_future(calls[change]())
        await committing.wait()
        await asyncio.sleep(0)
        caller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await caller
        await until(lambda: any(isinstance(item, Durable) for item in seen))
        if change == "renamed":
            known = keeper.dispatcher.lanes.known(name)
            assert known is not None
            assert known.title == "after"
        watching.cancel()


async def test_a_rescue_in_the_middle_of_its_commit_is_finished_and_handed_back_by_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.json").write_text('{"rules": [{"match": "", "rounds": [{"stall_s": 600}]}]}')
    agents = tmp_path / "agents.toml"
    agents.write_text('[agents.demo]\nscript = "script.json"\n')
    async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
        dispatcher = keeper.dispatcher
        name = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
        turn_id = (await keeper.submit(OPERATOR, name, key="k", parts=(Text("hello"),))).turn_id
        await until(lambda: dispatcher.running_count == 1, "the turn")
        actor = await dispatcher.lanes.actor(name)
        lost, actor.running = actor.running, None  # as if another process had held it, and were dead
        assert lost is not None
        lost.abandon()
        committing, go, commit = asyncio.Event(), asyncio.Event(), keeper.store.commit

        async def slow(batch: Any) -> Any:
            committing.set()
            stored = await commit(batch)
            await go.wait()
            return stored

        monkeypatch.setattr(keeper.store, "commit", slow)
        looking = asyncio.ensure_future(dispatcher.take_up(name))
        await committing.wait()
        closing = asyncio.ensure_future(dispatcher.close(grace_seconds=0))
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        go.set()
        await closing
        turn = await keeper.store.turn(turn_id)
        assert turn is not None
        assert (str(turn.state), turn.rescues) == ("queued", 1)


@pytest.mark.parametrize("error", [Fenced(turn_id="t_1"), RuntimeError("a bug")], ids=["fenced", "a bug"])
async def test_an_act_that_fails_after_its_caller_went_away_is_told_once_and_a_lost_lane_is_no_news(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    never_retrieved: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: never_retrieved.append(told))
    async with await Keeper.open(tmp_path / "data") as keeper:
        go = asyncio.Event()

        async def act() -> None:
            await go.wait()
            raise error

        caller = asyncio.ensure_future(keeper.dispatcher._whole(act()))
        await asyncio.sleep(0)
        caller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await caller
        go.set()
        await until(lambda: not keeper.dispatcher._acts, "the act")
        gc.collect()
        told = [record for record in caplog.records if record.name == "turnkeeper.dispatch"]
        assert len(told) == (0 if isinstance(error, Fenced) else 1)
        assert never_retrieved == []
