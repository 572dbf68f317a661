"""Public delivery cases that concern the loop: what a compaction shows, and a history that others poisoned."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import msgspec

from tests.agent.test_compaction import limited
from tests.agent.world import World, run
from turnkeeper.agent.definition import AgentDefinition
from turnkeeper.agent.loop import ModelRunner
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, USER, Message
from turnkeeper.conversation.parts import Text, ToolCall
from turnkeeper.port.provider import Deadlines
from turnkeeper.port.runner import Answered, FailedWith
from turnkeeper.provider.opening import open_provider
from turnkeeper.settings import Settings
from turnkeeper.testing.clock import CountedIds
from turnkeeper.testing.model_server import ModelServer
from turnkeeper.testing.turn_port import MemoryTurn


def test_bd132_a_compaction_takes_nothing_from_what_a_person_sees() -> None:
    async def main() -> None:
        prompts = [f"long prompt {n} " + "x" * 500 for n in range(12)]

        def reply() -> str:
            asked = world.model.calls[-1].newest_user_text
            return "SUMMARY" if asked.startswith("[Turnkeeper]") else f"ok {asked[:13]}"

        world = limited(World(*[reply] * 60), 1_000)
        turn = world.turn(prompts[0], turn_id="t_0")
        await turn.carry_out(world.runner)
        for n, prompt in enumerate(prompts[1:], 1):
            turn = turn.next_turn(prompt, turn_id=f"t_{n}")
            assert isinstance(await turn.carry_out(world.runner), Answered)
        assert turn.bodies(ev.HistoryCompacted)
        shown = [m for m in turn.history() if m.display]
        assert [m.text for m in shown if m.role == USER] == prompts
        assert [m.text for m in shown if m.role == ASSISTANT] == [f"ok {p[:13]}" for p in prompts]

    run(main())


class RealClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)


def test_bd156_a_poisoned_history_is_accepted_by_a_strict_provider_even_for_its_summary(
    monkeypatch: Any,
) -> None:
    monkeypatch.setenv("SOME_KEY", "any")
    rules = [
        {"match": "summary that will stand", "rounds": [{"text": "SUMMARY"}]},
        {"match": "", "rounds": [{"text": "going on"}]},
    ]

    async def main(wire: str) -> tuple[ModelServer, MemoryTurn]:
        clock, ids = RealClock(), CountedIds()
        async with ModelServer({"rules": rules}) as server:
            url = server.url if wire == "anthropic" else f"{server.url}/v1"
            provider = open_provider(wire, clock=clock, model="m", base_url=url, api_key_env="SOME_KEY")
            definition = AgentDefinition(name="test", context_tokens_max=1_000)
            runner = ModelRunner(definition, provider, [], Settings())
            turn = MemoryTurn(clock, ids, text="go on", journal=_poisoned(clock), turn_id="t_new")
            assert isinstance(await turn.carry_out(runner), Answered)
            later = turn.next_turn("and on " + "x" * 4_000, turn_id="t_later")
            assert isinstance(await later.carry_out(runner), Answered)
            await runner.close()
        return server, later

    for wire in ("anthropic", "openai-chat"):
        server, later = asyncio.run(main(wire))
        statuses = [seen.status for seen in server.requests]
        assert statuses == [200] * len(statuses), "no 400, not even for the summary"
        assert len(statuses) > 2
        assert [v for seen in server.requests for v in seen.violations] == []
        assert later.bodies(ev.HistoryCompacted)
        interrupted = next(m for m in later.history() if any(isinstance(p, ToolCall) for p in m.parts))
        assert interrupted.display
        assert "inspect" in json.dumps(server.requests[0].json).lower()


def _poisoned(clock: Any) -> list[ev.Event]:
    messages = (
        Message(message_id="p1", role=USER, parts=(Text("do it " + "y" * 4_000),), turn_id="t_0"),
        Message(message_id="p2", role=ASSISTANT, parts=(ToolCall("t1", "run", {"a": 1}),), turn_id="t_0"),
    )
    return [
        ev.Event(
            conversation_id="c_1",
            seq=n,
            at=clock.now(),
            actor="x",
            turn_id="t_0",
            body=ev.MessageAppended(msgspec.structs.replace(message, created_at=clock.now())),
        )
        for n, message in enumerate(messages, 1)
    ]


def test_r105_pings_do_not_count_as_data(monkeypatch: Any) -> None:
    """Public feed case R105: comment lines kept the connection busy, and the stall was never seen."""
    monkeypatch.setenv("SOME_KEY", "any")
    script = {"rules": [{"match": "", "rounds": [{"text": "x", "stall_s": 600, "pings": True}] * 2}]}

    async def main(wire: str) -> MemoryTurn:
        clock = RealClock()
        async with ModelServer(script) as server:
            url = server.url if wire == "anthropic" else f"{server.url}/v1"
            provider = open_provider(wire, clock=clock, model="m", base_url=url, api_key_env="SOME_KEY")
            deadlines = Deadlines(first_token_seconds=20, stall_seconds=0.3, total_seconds=60)
            definition = AgentDefinition(name="test", deadlines=deadlines)
            runner = ModelRunner(definition, provider, [], Settings())
            turn = MemoryTurn(clock, CountedIds(), text="do the work")
            outcome = await turn.carry_out(runner)
            assert isinstance(outcome, FailedWith)
            assert outcome.failure.kind == "stall"
            await runner.close()
        return turn

    for wire in ("anthropic", "openai-chat"):
        turn = asyncio.run(main(wire))
        assert len(turn.bodies(ev.AutoResumed)) == 1
        assert [m.text for m in turn.history() if m.standing == "errored"] == ["x", "x"]
