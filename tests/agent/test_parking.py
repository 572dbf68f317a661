"""The loop's side of a call that needs a sign-in, in virtual time: parked, released, crashed at every commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.agent.test_python import PythonWorld
from tests.agent.test_rescue import Died, crash_at
from tests.agent.world import World, call, results, run
from turnkeeper.agent.definition import Policies
from turnkeeper.agent.python import Cancel, ToolCaller
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.turns import Disposition, Effect
from turnkeeper.port.runner import Answered, FailedWith, Needs, Stopped
from turnkeeper.testing.turn_port import MemoryTurn
from turnkeeper.tool import Tool
from turnkeeper.tool.contract import SignIn, SignInNeeded, SourceTrouble


class Site:
    """A source of tools at which one must be signed in."""

    name = "site"

    def __init__(self, effect: Effect = Effect.ACTS) -> None:
        self.signed_in = False
        self.effect = effect
        self.ran: list[str] = []
        self.asked: list[str] = []
        self.trouble: str | None = None
        self.description = "Act."

    async def tools(self, person: str) -> Sequence[Tool]:
        self.asked.append(person)
        if self.trouble is not None:
            raise SourceTrouble(self.trouble)

        async def act(arguments: dict[str, Any], key: str) -> str:
            if not self.signed_in:
                raise SignInNeeded(SignIn(server="site", person=person, rejected=""))
            self.ran.append(arguments.get("what", ""))
            return "acted"

        return [
            Tool(
                name="site__act",
                description=self.description,
                schema={"type": "object"},
                effect=self.effect,
                invoke=act,
                check=lambda arguments: None,
                source="site",
            )
        ]


ACT = call("site__act", {"what": "a"}, "a1")


def at_site(site: Site, *steps: Any, **given: Any) -> World:
    world = World(*steps, **given)
    world.runner.sources = (site,)
    return world


def released(turn: MemoryTurn, outcome: str = "connected") -> MemoryTurn:
    return turn.again(
        "continued",
        ev.ConnectDecided(server="site", person="u_1", outcome=outcome, by="u_1"),
        ev.TurnContinued({"connect": "site", "person": "u_1", "outcome": outcome}, 0),
    )


async def parked(world: World) -> tuple[MemoryTurn, Needs]:
    turn = world.turn("act")
    outcome = await turn.carry_out(world.runner)
    assert isinstance(outcome, Needs)
    assert outcome.needs["kind"] == "auth"
    return turn, outcome


def test_a_refused_call_waits_and_runs_once_where_it_stood() -> None:
    async def main() -> None:
        site = Site()
        world = at_site(site, [ACT], "done")
        turn, outcome = await parked(world)
        (wait,) = outcome.needs["connects"]
        assert (wait["server"], wait["person"], wait["why"]) == ("site", "u_1", "not_connected")
        assert (await turn.ledger())[0].disposition is Disposition.REFUSED
        assert "waits until the person has signed in" in str(results(turn)["a1"].content)
        site.signed_in = True
        on = released(turn)
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert site.ran == ["a"]
        assert results(on)["a1"].content == "acted"
        assert [m.role for m in world.model.sent[-1]] == ["user", "assistant", "tool"]
        assert set(site.asked) == {"u_1"}

    run(main())


def test_a_call_that_is_refused_again_waits_again() -> None:
    async def main() -> None:
        site = Site()
        world = at_site(site, [ACT], "done")
        turn, _ = await parked(world)
        on = released(turn)
        assert isinstance(await on.carry_out(world.runner), Needs)
        site.signed_in = True
        assert isinstance(await released(on).carry_out(world.runner), Answered)
        assert site.ran == ["a"]

    run(main())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_crash_at_any_commit_never_runs_it_twice(nth: int, when: str) -> None:
    async def main() -> None:
        site = Site()
        world = at_site(site, [ACT], "done", "done", "done")
        turn = world.turn("act")
        alive: MemoryTurn | None = turn
        crash_at(turn, nth, when)
        outcome: Any = None
        for _ in range(8):
            assert alive is not None
            try:
                outcome = await alive.carry_out(world.runner)
            except Died:
                alive = alive.again("rescued")
                continue
            if not isinstance(outcome, Needs):
                break
            site.signed_in = True
            alive = released(alive)
        assert isinstance(outcome, Answered)
        assert len(site.ran) <= 1
        said = [row.disposition for row in await alive.ledger()]
        assert said in ([], [Disposition.UNKNOWN], [Disposition.DONE])
        assert (said == [Disposition.DONE]) <= (site.ran == ["a"]) <= (said != [])

    run(main())


def test_two_identical_calls_wait_as_one_and_siblings_run() -> None:
    async def main() -> None:
        site = Site()
        twin, other = call("site__act", {"what": "a"}, "a2"), call("site__act", {"what": "b"}, "b1")
        world = at_site(site, [ACT, twin, other], "done")
        turn, outcome = await parked(world)
        (wait,) = outcome.needs["connects"]
        assert {c["call_id"] for c in wait["calls"]} == {"a1", "b1"}
        site.signed_in = True
        await released(turn).carry_out(world.runner)
        assert sorted(site.ran) == ["a", "b"]

    run(main())


@pytest.mark.parametrize("outcome", ["refused", "expired"])
def test_without_a_sign_in_the_turn_fails_in_our_words_and_a_retry_goes_on(outcome: str) -> None:
    async def main() -> None:
        site = Site()
        world = at_site(site, [ACT], [call("site__act", {"what": "a"}, "a2")], "done")
        turn, _ = await parked(world)
        on = released(turn, outcome)
        ended = await on.carry_out(world.runner)
        assert isinstance(ended, FailedWith)
        assert (ended.failure.kind, ended.failure.retryable) == ("sign_in", True)
        assert len(world.model.sent) == 1, "the model was not asked to say it"
        site.signed_in = True
        again = on.again("retried", ev.TurnRequeued("retried", 0, attempt=2), attempt=2)
        assert isinstance(await again.carry_out(world.runner), Answered)
        assert site.ran == ["a"]

    run(main())


def test_the_time_runs_out_by_the_clock() -> None:
    async def main() -> None:
        site = Site()
        world = at_site(site, [ACT], connect_seconds=600.0)
        turn, outcome = await parked(world)
        assert outcome.needs["expires_at"] == world.clock.now() + 600
        await asyncio.sleep(601)
        on = turn.again("continued", ev.TurnContinued({"decision": "expired"}, 0))
        assert isinstance(await on.carry_out(world.runner), FailedWith)
        assert [b.outcome for b in on.bodies(ev.ConnectDecided)] == ["expired"]

    run(main())


def test_a_tool_that_changed_between_the_question_and_the_yes_does_not_run() -> None:
    async def main() -> None:
        site = Site(Effect.DESTRUCTIVE)
        site.signed_in = True
        world = at_site(site, [ACT], "understood")
        turn = world.turn("act")
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, Needs)
        approval_id = outcome.needs["approvals"][0]["approval_id"]
        site.description = "Delete everything."
        on = turn.again(
            "continued",
            ev.ApprovalDecided(approval_id=approval_id, decision="approve", by="u_1"),
            ev.TurnContinued({"approval_id": approval_id, "decision": "approve"}, 0),
        )
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert site.ran == []
        assert "has changed since" in str(results(on)["a1"].content)

    run(main())


def test_a_source_that_cannot_say_is_told_of_once_and_the_turn_goes_on() -> None:
    async def main() -> None:
        site = Site()
        site.trouble = "it did not start"
        world = at_site(site, [ACT], [ACT], "hello")
        turn = world.turn("hi")
        assert isinstance(await turn.carry_out(world.runner), Answered)
        told = [b for b in turn.bodies(ev.Noticed) if b.code == "tools_missing"]
        assert [b.text for b in told] == ["The tools of site are not available: it did not start."]
        assert "no tool called" in str(results(turn)["a1"].content)

    run(main())


def test_a_stop_while_a_source_hangs_stops_the_turn() -> None:
    async def main() -> None:
        site = Site()

        async def hangs(person: str) -> Sequence[Tool]:
            await asyncio.Event().wait()
            return []

        site.tools = hangs  # type: ignore[method-assign]
        world = at_site(site, "never")
        turn = world.turn("hi")
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await asyncio.sleep(5)
        turn.stop()
        assert isinstance(await task, Stopped)

    run(main())


def test_somebodys_own_agent_parks_in_the_same_way() -> None:
    async def agent(feed: Any, tools: ToolCaller, cancel: Cancel) -> Any:
        reply = await tools.call("site__act", {"what": "a"})
        yield f"it said {reply.content}"

    async def main() -> None:
        site = Site()
        world = PythonWorld(agent, policies=Policies())
        world.runner.sources = (site,)
        turn = world.turn("act")
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, Needs)
        assert outcome.needs["kind"] == "auth"
        site.signed_in = True
        on = released(turn)
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert site.ran == ["a"]
        assert on.history()[-1].text == "it said acted"

    run(main())
