"""Nonsense from models: unknown tools, broken and giant arguments, repeated ids, two hundred calls at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.agent.test_rounds import Counted
from tests.agent.world import World, call, results, run
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.parts import Text, Thinking, ToolCall
from turnkeeper.conversation.turns import Disposition
from turnkeeper.port.runner import Answered
from turnkeeper.tool import tool, tool_of


def played(*calls: ToolCall, **settings: Any) -> tuple[World, Counted]:
    counted = Counted()
    return World(list(calls), "done", tools=counted.tools, **settings), counted


BROKEN = {
    "cut in the middle": ToolCall("x", "write", {}, arguments_raw='{"line": "a'),
    "no object": ToolCall("x", "write", {}, arguments_raw='["a"]'),
    "a number": ToolCall("x", "write", 7),
    "null": ToolCall("x", "write", None),
    "a list": ToolCall("x", "write", ["a"]),
    "missing": ToolCall("x", "write", {}),
    "wrong type": ToolCall("x", "write", {"line": {"a": 1}}),
    "more than asked": ToolCall("x", "write", {"line": "a", "file": "b"}),
    "nested too deep": ToolCall("x", "write", {}, arguments_raw='{"line":' + "[" * 5000),
}


@pytest.mark.parametrize("name", BROKEN)
def test_arguments_that_cannot_be_used_are_refused_in_words_and_nothing_runs(name: str) -> None:
    async def main() -> None:
        world, counted = played(BROKEN[name])
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert counted.ran == []
        assert results(turn)["x"].is_error
        assert "write" in str(results(turn)["x"].content)
        assert (await turn.ledger())[0].disposition is Disposition.REFUSED

    run(main())


def test_the_limit_on_arguments_is_exact() -> None:
    async def main() -> None:
        for size, ran in ((100, 1), (101, 0)):
            raw = '{"line": "' + "x" * (size - 12) + '"}'
            assert len(raw) == size
            big = ToolCall("x", "write", {"line": "x" * (size - 12)}, arguments_raw=raw)
            world, counted = played(big, arguments_bytes_max=100)
            turn = world.turn()
            await turn.carry_out(world.runner)
            assert len(counted.ran) == ran
        assert "arguments_bytes_max" in str(results(turn)["x"].content)

    run(main())


def test_an_unknown_tool_is_answered_with_the_names_of_those_there_are() -> None:
    async def main() -> None:
        world, _ = played(call("rm_rf", {}, "x"))
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert "The tools are: write, read, wait." in str(results(turn)["x"].content)

    run(main())


def test_a_model_that_repeats_a_nonsense_call_does_not_go_on_for_ever() -> None:
    async def main() -> None:
        counted = Counted()
        steps = [[call("rm_rf", {}, f"x{n}")] for n in range(20)]
        world = World(*steps, tools=counted.tools)
        await world.turn().carry_out(world.runner)
        assert len(world.model.calls) <= 3

    run(main())


def test_ids_that_are_empty_or_repeated_are_made_anew_and_each_call_has_its_result() -> None:
    async def main() -> None:
        counted = Counted()
        first = [
            call("write", {"line": "a"}),
            call("write", {"line": "b"}),
            call("write", {"line": "c"}, "same"),
        ]
        second = [call("write", {"line": "d"}, "same")]
        world = World(first, second, "done", tools=counted.tools)
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert sorted(line["line"] for _, line in counted.ran) == ["a", "b", "c", "d"]
        asked = [p for m in turn.history() for p in m.parts if isinstance(p, ToolCall)]
        assert len({p.id for p in asked}) == 4
        assert all(p.id for p in asked)
        found = results(turn)
        assert [found[p.id].content for p in asked] == [f"wrote {x}" for x in "abcd"]
        assert len({row.idempotency_key for row in await turn.ledger()}) == 4

    run(main())


def test_the_same_block_twice_in_one_message_is_one_call() -> None:
    async def main() -> None:
        world, counted = played(call("write", {"line": "a"}, "x"), call("write", {"line": "a"}, "x"))
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert len(counted.ran) == 1
        assert len([p for m in turn.history() for p in m.parts if isinstance(p, ToolCall)]) == 1

    run(main())


def test_two_hundred_calls_at_once_run_a_few_at_a_time_and_each_is_answered() -> None:
    async def main() -> None:
        now = most = 0

        @tool
        async def act(n: int) -> str:
            """Act."""
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(1)
            now -= 1
            return f"acted {n}"

        calls = [call("act", {"n": n}, f"c{n}") for n in range(200)]
        world = World(calls, "done", tools=[tool_of(act)])
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert most == 16
        assert len(results(turn)) == 200
        assert all(r.content == f"acted {k[1:]}" for k, r in results(turn).items())

    run(main())


def test_calls_beyond_the_limit_of_a_message_are_refused_visibly() -> None:
    async def main() -> None:
        counted = Counted()
        calls = [call("write", {"line": str(n)}, f"c{n}") for n in range(5)]
        world = World(calls, "done", tools=counted.tools, calls_per_round_max=3)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert len(counted.ran) == 3
        assert "calls_per_round_max" in str(results(turn)["c4"].content)

    run(main())


def test_calls_that_the_provider_runs_itself_are_not_ours() -> None:
    async def main() -> None:
        counted = Counted()
        own = ToolCall("srv", "write", {"line": "a"}, server_side=True)
        world = World([Text("searched"), own], tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert counted.ran == []
        assert not turn.bodies(ev.ToolIntended)

    run(main())


@pytest.mark.parametrize(
    "parts", [(), (Thinking("hm"),), (Text(" \n"),)], ids=["nothing", "thoughts", "blanks"]
)
def test_an_answer_that_says_nothing_is_no_answer(parts: tuple[Any, ...]) -> None:
    async def main() -> None:
        world = World(list(parts), "said")
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert turn.bodies(ev.RoundFailed)[0].failure.kind == "empty"
        assert turn.history()[-1].text == "said"

    run(main())


def test_nul_and_lone_surrogates_go_through_a_tool_as_they_are() -> None:
    async def main() -> None:
        counted = Counted()
        world = World([call("write", {"line": "a\x00b"}, "x")], "done\x00\ud800", tools=counted.tools)
        turn = world.turn("nul \x00 and \ud800")
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert results(turn)["x"].content == "wrote a\x00b"
        later = turn.again("rescued")
        assert later.history()[-1].text == "done\x00\ud800"

    run(main())
