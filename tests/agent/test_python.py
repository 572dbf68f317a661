"""runner = "python": somebody's async generator gets drafts, ledger, receipts, approval and resume."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.agent.test_rescue import Died, crash_at
from tests.agent.test_rounds import Counted
from tests.agent.world import kinds, results, run, until
from turnkeeper.agent.definition import AgentDefinition, Policies
from turnkeeper.agent.exceptions import AgentFailed, failure_of
from turnkeeper.agent.python import Cancel, PythonRunner, Thought, ToolBegan, ToolCaller, ToolEnded, Used
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.turns import Disposition, Failure, ReceiptState
from turnkeeper.errors import Fenced
from turnkeeper.port.runner import Answered, FailedWith, Needs, Stopped
from turnkeeper.settings import Settings
from turnkeeper.testing.clock import CountedIds, VirtualClock
from turnkeeper.testing.turn_port import MemoryTurn
from turnkeeper.tool import Tool, tool, tool_of


class PythonWorld:
    def __init__(
        self, function: Any, tools: Any = (), *, policies: Policies | None = None, **settings: Any
    ) -> None:
        self.clock = VirtualClock()
        self.ids = CountedIds()
        definition = AgentDefinition(
            name="mine", runner="python", function="mine:agent", policies=policies or Policies()
        )
        chosen = Settings.model_construct(**{**Settings().model_dump(), **settings})
        self.runner = PythonRunner(definition, function, tools, chosen)

    def turn(self, text: str = "hello", **given: Any) -> MemoryTurn:
        return MemoryTurn(self.clock, self.ids, text=text, **given)


def test_text_thoughts_and_usage_become_an_answer() -> None:
    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        assert feed[-1].text == "hi"
        yield Thought("hm")
        yield "Hello, "
        await asyncio.sleep(1)
        yield "you."
        yield Used(input_tokens=7, output_tokens=3)

    async def main() -> None:
        world = PythonWorld(agent)
        turn = world.turn("hi")
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert turn.history()[-1].text == "Hello, you."
        assert [b.text for b in turn.bodies(ev.DraftSaved)] == ["Hello, "]
        finished = turn.bodies(ev.RoundFinished)[0]
        assert (finished.usage.input_tokens, finished.usage.output_tokens) == (7, 3)
        assert [kind for kind, _ in turn.deltas] == ["thinking", "text", "text"]
        assert turn.receipt.state is ReceiptState.CONFIRMED

    run(main())


def test_tools_run_under_the_ledger_and_outcomes_come_back() -> None:
    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        yield "Writing. "
        first = await tools.call("write", {"line": "a"})
        again = await tools.call("write", {"line": "a"})
        wrong = await tools.call("write", {"lines": 1})
        none = await tools.call("nothing")
        both = await asyncio.gather(tools.call("write", {"line": "b"}), tools.call("wait", {"seconds": 1}))
        yield f"{first.content}|{again.is_error}|{wrong.is_error}|{none.is_error}|{both[0].content}"

    async def main() -> None:
        counted = Counted()
        world = PythonWorld(agent, counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert turn.history()[-1].text == "wrote a|True|True|True|wrote b"
        assert [name for name, _ in counted.ran] == ["write", "write", "wait"]
        ledger = [row.disposition for row in await turn.ledger()]
        assert ledger == [
            Disposition.DONE,
            Disposition.REFUSED,
            Disposition.REFUSED,
            Disposition.REFUSED,
            Disposition.DONE,
            Disposition.DONE,
        ]
        assert turn.history()[1].text == "Writing. "
        for intent in turn.bodies(ev.ToolIntended):
            assert len([b for b in turn.bodies(ev.ToolReturned) if b.call_id == intent.call_id]) == 1

    run(main())


async def two_steps(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
    yield "Working. "
    one = await tools.call("write", {"line": "one"})
    two = await tools.call("write", {"line": "two"})
    yield f"{one.content}, {two.content}"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 7))
def test_a_crash_at_any_commit_runs_no_tool_again(nth: int, when: str) -> None:
    async def main() -> None:
        counted = Counted()
        world = PythonWorld(two_steps, counted.tools)
        turn = world.turn()
        crash_at(turn, nth, when)
        try:
            await turn.carry_out(world.runner)
        except Died:
            turn = turn.again("rescued")
            assert isinstance(await turn.carry_out(world.runner), Answered)
        written = [arguments["line"] for _, arguments in counted.ran]
        assert len(written) == len(set(written)), "a line was written twice"
        assert turn.history()[-1].text.count(",") >= 1
        for row in await turn.ledger():
            assert row.disposition in (Disposition.DONE, Disposition.UNKNOWN, Disposition.REFUSED)

    run(main())


def test_a_failure_resumes_once_with_the_kept_results() -> None:
    tries: list[int] = []

    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        tries.append(len(feed))
        reply = await tools.call("write", {"line": "a"})
        yield f"{reply.content}, kept={reply.kept}"
        if len(tries) == 1:
            raise ConnectionResetError("gone")

    async def main() -> None:
        counted = Counted()
        world = PythonWorld(agent, counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert tries == [1, 3], "the second call was given what was done"
        assert len(counted.ran) == 1
        assert turn.history()[-1].text == "wrote a, kept=True"
        assert len(turn.bodies(ev.AutoResumed)) == 1
        half = [m for m in turn.history() if m.standing == "errored"]
        assert [m.text for m in half] == ["wrote a, kept=False"]

    run(main())


class Status(Exception):
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code
        super().__init__(f"status {status_code}")


class APIConnectionError(Exception):
    pass


def _wrapped() -> Exception:
    outer = RuntimeError("framework")
    outer.__cause__ = Status(529)
    return outer


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (Status(529), "overloaded", True),
        (Status(500), "server", True),
        (Status(401), "credentials", False),
        (Status(404), "refused_request", False),
        (_wrapped(), "overloaded", True),
        (APIConnectionError("x"), "connection", True),
        (TimeoutError(), "connection", True),
        (ValueError("mine"), "agent", False),
        (AgentFailed(Failure(kind="quota", retryable=False, sentence="No credit.")), "quota", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_what_an_exception_means(error: Exception, kind: str, retryable: bool) -> None:
    found = failure_of(error, "mine")
    assert (found.kind, found.retryable) == (kind, retryable)


def test_an_error_of_its_own_ends_the_turn_at_once() -> None:
    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        yield "Half"
        raise ValueError("my bug")

    async def main() -> None:
        world = PythonWorld(agent)
        turn = world.turn()
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert "my bug" in outcome.failure.sentence
        assert "AutoResumed" not in kinds(turn)
        assert turn.history()[-1].text == "Half"
        assert not turn.history()[-1].replay

    run(main())


async def silent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
    return
    yield ""


async def no_generator(feed: Any, tools: ToolCaller, cancel: Cancel) -> str:
    return "text"


async def odd(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
    yield 7


async def ends_what_never_began(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
    yield ToolEnded(call_id="x", content="y")


@pytest.mark.parametrize(
    ("agent", "kind", "words"),
    [
        (silent, "empty", "without a word"),
        (no_generator, "config", "not an async generator"),
        (odd, "config", "yielded int"),
        (ends_what_never_began, "config", "had not begun"),
    ],
)
def test_agents_that_do_not_keep_the_contract(agent: Any, kind: str, words: str) -> None:
    async def main() -> None:
        world = PythonWorld(agent)
        outcome = await world.turn().carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure.kind == kind
        assert words in outcome.failure.sentence

    run(main())


def test_a_stop_reaches_the_agent_and_half_a_text_is_kept() -> None:
    heard: list[str] = []

    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        yield "Half "
        heard.append(await cancel.wait())
        yield "and a goodbye"

    async def main() -> None:
        world = PythonWorld(agent)
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: bool(turn.deltas))
        turn.stop("cancelled")
        assert isinstance(await task, Stopped)
        assert heard == ["cancelled"]
        assert turn.history()[-1].text == "Half and a goodbye"
        assert not turn.history()[-1].replay

    run(main())


def test_a_stop_that_is_not_heard_cancels_the_agent_and_its_tool() -> None:
    @tool
    async def act() -> str:
        """Act."""
        await asyncio.Event().wait()
        return ""

    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        await tools.call("act")
        yield "never"

    async def main() -> None:
        world = PythonWorld(agent, [tool_of(act)])
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: bool(turn.bodies(ev.ToolIntended)))
        turn.stop()
        assert isinstance(await task, Stopped)
        assert (await turn.ledger())[0].disposition is Disposition.UNKNOWN
        assert world.clock.monotonic() < 3

    run(main())


def destructive(ran: list[str]) -> Tool:
    @tool(destructive=True)
    async def drop(name: str) -> str:
        """Drop."""
        ran.append(name)
        return f"dropped {name}"

    return tool_of(drop)


def test_a_call_that_needs_a_yes_parks_the_turn_and_goes_on_after_it() -> None:
    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        both = await asyncio.gather(tools.call("drop", {"name": "x"}), tools.call("wait", {"seconds": 5}))
        yield both[0].content

    async def main() -> None:
        ran: list[str] = []
        counted = Counted()
        world = PythonWorld(agent, [destructive(ran), *counted.tools])
        turn = world.turn()
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, Needs)
        assert ran == []
        assert len(counted.ran) == 1, "the sibling's work is kept"
        approval_id = outcome.needs["approvals"][0]["approval_id"]
        on = turn.again("continued", ev.ApprovalDecided(approval_id=approval_id, decision="approve"))
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert ran == ["x"]
        assert len(counted.ran) == 1
        assert on.history()[-1].text == "dropped x"

    run(main())


def test_tools_that_the_agent_runs_itself_are_in_the_ledger_with_intent_before() -> None:
    seen: list[Any] = []

    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        for attempt in ("first", "second"):
            verdict = yield ToolBegan(call_id="own-1", name="mail", arguments={"to": "a"})
            seen.append(verdict)
            if verdict is None:
                yield ToolEnded(call_id="own-1", content=f"sent at the {attempt}")
        yield "done"

    async def main() -> None:
        world = PythonWorld(agent)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert seen[0] is None
        assert seen[1].is_error
        assert "made before" in seen[1].content
        assert next(r.content for r in results(turn).values()) == "sent at the first"
        order = kinds(turn)
        assert order.index("ToolIntended") < order.index("ToolReturned")

    run(main())


def test_a_crash_inside_a_tool_of_its_own_is_an_unknown_outcome() -> None:
    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        verdict = yield ToolBegan(call_id="own-1", name="mail", arguments={"to": "a"})
        if verdict is None:
            raise Died
        yield verdict.content

    async def main() -> None:
        world = PythonWorld(agent)
        turn = world.turn()
        with pytest.raises(Died):
            await turn.carry_out(world.runner)
        later = turn.again("rescued")
        assert isinstance(await later.carry_out(world.runner), Answered)
        assert "outcome of mail is unknown" in later.history()[-1].text
        assert (await later.ledger())[0].disposition is Disposition.UNKNOWN

    run(main())


def test_the_limit_on_rounds_holds_here_too() -> None:
    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        for n in range(100):
            await tools.call("write", {"line": str(n)})
        yield "never"

    async def main() -> None:
        counted = Counted()
        world = PythonWorld(agent, counted.tools, rounds_max=3)
        outcome = await world.turn().carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure.kind == "rounds"
        assert len(counted.ran) == 3

    run(main())


def test_a_lost_lease_ends_the_agent() -> None:
    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        yield "Half"
        await asyncio.sleep(2)
        await tools.call("write", {"line": "a"})
        yield "never"

    async def main() -> None:
        counted = Counted()
        world = PythonWorld(agent, counted.tools)
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: bool(turn.deltas))
        turn.fenced = True
        with pytest.raises(Fenced):
            await task
        assert counted.ran == []

    run(main())
