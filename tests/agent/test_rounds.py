"""Rounds: what is journaled, in which commits, and what a model is given in the next one."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.agent.world import PlayedModel, World, call, kinds, results, run, until
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.turns import Disposition, ReceiptState
from turnkeeper.port.runner import Answered, FailedWith, Stopped
from turnkeeper.tool import tool, tool_of


class Counted:
    """Tools that count how often they ran."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, dict[str, Any]]] = []

        @tool
        async def write(line: str) -> str:
            """Write a line."""
            self.ran.append(("write", {"line": line}))
            return f"wrote {line}"

        @tool(effect="read_only")
        async def read(name: str = "x") -> str:
            """Read."""
            self.ran.append(("read", {"name": name}))
            return f"read {len(self.ran)}"

        @tool(effect="read_only")
        async def wait(seconds: float) -> str:
            """Wait."""
            await asyncio.sleep(seconds)
            self.ran.append(("wait", {"seconds": seconds}))
            return f"waited {seconds}"

        self.tools = [tool_of(write), tool_of(read), tool_of(wait)]


def test_a_plain_answer_costs_one_commit_and_the_end() -> None:
    async def main() -> None:
        world = World("hello there")
        turn = world.turn("hi")
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, Answered)
        assert turn.commits == [
            ("ReceiptMoved", "RoundStarted"),
            ("MessageAppended", "RoundFinished", "ReceiptMoved", "TurnSettled"),
        ]
        assert [m.text for m in turn.history()] == ["hi", "hello there"]
        assert turn.receipt.state is ReceiptState.CONFIRMED
        assert [kind for kind, _ in turn.deltas] == ["text"]

    run(main())


def test_a_round_with_a_tool_costs_two_commits() -> None:
    async def main() -> None:
        counted = Counted()
        world = World([call("write", {"line": "a"}, "w1")], "done", tools=counted.tools)
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert turn.commits == [
            ("ReceiptMoved", "RoundStarted"),
            ("ReceiptMoved", "MessageAppended", "RoundFinished", "ToolIntended"),
            ("ToolReturned", "MessageAppended", "RoundStarted"),
            ("MessageAppended", "RoundFinished", "TurnSettled"),
        ]
        assert counted.ran == [("write", {"line": "a"})]
        assert results(turn)["w1"].content == "wrote a"
        assert [m.role for m in world.model.sent[1]] == ["user", "assistant", "tool"]

    run(main())


def test_parallel_outcomes_are_journaled_as_they_come() -> None:
    async def main() -> None:
        counted = Counted()
        calls = [call("wait", {"seconds": s}, f"w{s}") for s in (3, 1, 2)]
        world = World(calls, "done", tools=counted.tools)
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert [b.call_id for b in turn.bodies(ev.ToolReturned)] == ["w1", "w2", "w3"]
        assert turn.commits[2:5] == [
            ("ToolReturned", "MessageAppended"),
            ("ToolReturned", "MessageAppended"),
            ("ToolReturned", "MessageAppended", "RoundStarted"),
        ]
        assert world.clock.monotonic() < 3.1

    run(main())


def test_a_long_answer_is_drafted_every_half_second() -> None:
    async def main() -> None:
        world = World(model=PlayedModel("one two three four five six", chunk_seconds=0.3))
        turn = world.turn()
        await turn.carry_out(world.runner)
        drafts = [b.text for b in turn.bodies(ev.DraftSaved)]
        assert drafts[0] == "one two "
        assert len(drafts) == 3
        starts = [b.start_chars for b in turn.bodies(ev.DraftSaved)]
        assert starts == [len("".join(drafts[:index])) for index in range(3)]
        assert "one two three four five six ".startswith("".join(drafts))
        first = next(i for i, b in enumerate(turn.journal) if b.kind == "DraftSaved")
        assert turn.journal[first - 1].kind == "ReceiptMoved"

    run(main())


def test_the_drafts_of_a_long_answer_are_together_no_longer_than_the_answer() -> None:
    async def main() -> None:
        text = " ".join("x" * 3000 for _ in range(60))
        world = World(model=PlayedModel(text, chunk_seconds=0.1))
        turn = world.turn()
        await turn.carry_out(world.runner)
        drafts = turn.bodies(ev.DraftSaved)
        assert len(drafts) > 10
        assert text.startswith("".join(b.text for b in drafts).rstrip())

    run(main())


def test_text_that_is_followed_by_silence_is_drafted_all_the_same() -> None:
    async def main() -> None:
        world = World(model=PlayedModel("first last", chunk_seconds=10))
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: bool(turn.bodies(ev.DraftSaved)))
        assert world.clock.monotonic() < 0.6
        await task

    run(main())


def test_four_kilobytes_are_drafted_at_once() -> None:
    async def main() -> None:
        world = World(model=PlayedModel("x" * 5000 + " y", chunk_seconds=0.1))
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert len(turn.bodies(ev.DraftSaved)[0].text) == 5001
        assert world.clock.monotonic() < 0.3

    run(main())


def test_the_limit_on_rounds_ends_the_turn_with_a_reason() -> None:
    async def main() -> None:
        counted = Counted()
        steps = [[call("write", {"line": str(n)}, f"c{n}")] for n in range(9)]
        world = World(*steps, tools=counted.tools, rounds_max=3)
        turn = world.turn()
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure.kind == "rounds"
        assert "rounds_max" in outcome.failure.sentence
        assert len(counted.ran) == 3
        assert len(results(turn)) == 3

    run(main())


def test_a_steer_is_taken_along_at_the_next_round() -> None:
    async def main() -> None:
        counted = Counted()
        world = World([call("wait", {"seconds": 5}, "w")], "done", tools=counted.tools)
        turn = world.turn("go")
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: bool(turn.bodies(ev.ToolIntended)))
        turn.steer("faster")
        await task
        assert [m.text for m in world.model.sent[1] if m.role == "user"] == ["go", "faster"]
        assert kinds(turn).index("ToolReturned") < kinds(turn).index("SteerTaken")

    run(main())


def test_a_stop_in_mid_stream_keeps_the_half_text_for_the_eye_only() -> None:
    async def main() -> None:
        world = World(model=PlayedModel("one two three four", chunk_seconds=1))
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: len(turn.deltas) == 2)
        turn.stop()
        outcome = await task
        assert isinstance(outcome, Stopped)
        half = turn.history()[-1]
        assert half.text == "one two "
        assert (half.display, half.replay, half.standing) == (True, False, "interrupted")
        assert world.model.cancelled == 1

    run(main())


def test_a_stop_while_tools_run_says_what_is_not_known() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        @tool
        async def act() -> str:
            """Act."""
            await gate.wait()
            return "done"

        @tool(effect="read_only")
        async def look() -> str:
            """Look."""
            await gate.wait()
            return "seen"

        calls = [call("act", {}, "a"), call("look", {}, "l")]
        world = World(calls, tools=[tool_of(act), tool_of(look)])
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: len(turn.bodies(ev.ToolIntended)) == 2)
        turn.stop()
        assert isinstance(await task, Stopped)
        ledger = {row.call_id: row for row in await turn.ledger()}
        assert ledger["a"].disposition is Disposition.UNKNOWN
        assert ledger["l"].disposition is Disposition.FAILED
        assert "unknown" in str(results(turn)["a"].content)

    run(main())


def test_a_planned_stop_leaves_running_calls_open_and_the_next_process_decides() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        ran: list[str] = []

        @tool(effect="read_only")
        async def look() -> str:
            """Look."""
            ran.append("look")
            await gate.wait()
            return "seen"

        world = World([call("look", {}, "l")], "ok", tools=[tool_of(look)])
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: ran == ["look"])
        turn.stop("shutdown")
        assert isinstance(await task, Stopped)
        assert not turn.bodies(ev.ToolReturned)
        gate.set()
        later = turn.again("promoted")
        assert isinstance(await later.carry_out(world.runner), Answered)
        assert ran == ["look", "look"]
        assert results(later)["l"].content == "seen"

    run(main())


def test_an_answer_without_a_word_is_a_failure_that_is_tried_once_more() -> None:
    async def main() -> None:
        world = World("", "here I am")
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert turn.bodies(ev.RoundFailed)[0].failure.kind == "empty"
        assert len(turn.bodies(ev.AutoResumed)) == 1

        silent = World("", "")
        again = silent.turn()
        outcome = await again.carry_out(silent.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure.kind == "empty"

    run(main())


def test_an_error_of_the_store_fails_the_turn_and_loses_no_outcome() -> None:
    async def main() -> None:
        counted = Counted()
        world = World([call("write", {"line": "a"}, "w1")], "never", tools=counted.tools)
        turn = world.turn()

        def refuse() -> None:
            if counted.ran:
                turn.on_commit = None
                raise RuntimeError("no space")

        turn.on_commit = refuse
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert "no space" in outcome.failure.sentence
        assert results(turn)["w1"].content == "wrote a"
        assert len(world.model.calls) == 1

    run(main())
