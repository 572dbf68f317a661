"""Consent: bound to one call, asked in a parked turn, never taken from what is stale (G11)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.agent.world import PlayedModel, World, call, results, run
from turnkeeper.agent.definition import Policies
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.turns import Disposition, Failure, Principal
from turnkeeper.port.runner import Answered, Needs
from turnkeeper.testing.turn_port import MemoryTurn
from turnkeeper.tool import Tool, tool, tool_of


class Shop:
    def __init__(self) -> None:
        self.ran: list[Any] = []

    def tools(self) -> list[Tool]:
        @tool(destructive=True)
        async def drop(name: str) -> str:
            """Drop a database."""
            self.ran.append(("drop", name))
            return f"dropped {name}"

        @tool
        async def note(text: str) -> str:
            """Note something."""
            self.ran.append(("note", text))
            return "noted"

        return [tool_of(drop), tool_of(note)]


DROP = call("drop", {"name": "staging"}, "d1")


async def parked(world: World, turn: MemoryTurn | None = None) -> tuple[MemoryTurn, Needs]:
    turn = turn or world.turn("drop staging")
    outcome = await turn.carry_out(world.runner)
    assert isinstance(outcome, Needs)
    assert outcome.needs["kind"] == "approval"
    return turn, outcome


def decided(turn: MemoryTurn, needs: Needs, decision: str, index: int = 0) -> MemoryTurn:
    approval_id = needs.needs["approvals"][index]["approval_id"]
    return turn.again(
        "continued",
        ev.ApprovalDecided(approval_id=approval_id, decision=decision, by="u_1"),
        ev.TurnContinued({"approval_id": approval_id, "decision": decision}, 0),
    )


def test_a_destructive_call_waits_and_its_siblings_run() -> None:
    async def main() -> None:
        shop = Shop()
        world = World([DROP, call("note", {"text": "x"}, "n1")], tools=shop.tools())
        turn, outcome = await parked(world)
        assert shop.ran == [("note", "x")]
        asked = outcome.needs["approvals"][0]
        assert (asked["call_id"], asked["name"], asked["arguments"]) == ("d1", "drop", {"name": "staging"})
        assert asked["expires_at"] == world.clock.now() + world.runner.settings.approval_seconds
        assert results(turn)["n1"].content == "noted"
        assert "waits for a person's approval" in str(results(turn)["d1"].content)
        assert not [b for b in turn.bodies(ev.ToolIntended) if b.call_id == "d1"]

    run(main())


def test_an_approved_call_runs_once_and_its_result_stands_at_its_place() -> None:
    async def main() -> None:
        shop = Shop()
        world = World([DROP, call("note", {"text": "x"}, "n1")], "gone", tools=shop.tools())
        turn, needs = await parked(world)
        on = decided(turn, needs, "approve")
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert shop.ran == [("note", "x"), ("drop", "staging")]
        sent = world.model.sent[-1]
        assert [m.role for m in sent] == ["user", "assistant", "tool"]
        assert results(on)["d1"].content == "dropped staging"
        assert not results(on)["d1"].is_error
        assert "waits" not in str(sent)

    run(main())


def test_a_denied_call_does_not_run_and_is_not_asked_again_in_this_turn() -> None:
    async def main() -> None:
        shop = Shop()
        again = call("drop", {"name": "staging"}, "d2")
        other = call("drop", {"name": "test"}, "d3")
        world = World([DROP], [again], "understood", [other], tools=shop.tools())
        turn, needs = await parked(world)
        on = decided(turn, needs, "deny")
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert shop.ran == []
        assert "denied" in str(results(on)["d1"].content)
        assert "refused" in str(results(on)["d2"].content)

    run(main())


def test_an_expiry_is_no_refusal_and_it_can_be_asked_again() -> None:
    async def main() -> None:
        shop = Shop()
        again = call("drop", {"name": "staging"}, "d2")
        world = World([DROP], [again], "gone", tools=shop.tools(), approval_seconds=600.0)
        turn, needs = await parked(world)
        on = decided(turn, needs, "expired")
        outcome = await on.carry_out(world.runner)
        assert isinstance(outcome, Needs), "the model asked anew, with a question of its own"
        assert "not a no" in str(results(on)["d1"].content)
        assert outcome.needs["approvals"][0]["approval_id"] != needs.needs["approvals"][0]["approval_id"]
        final = decided(on, outcome, "approve")
        assert isinstance(await final.carry_out(world.runner), Answered)
        assert shop.ran == [("drop", "staging")]

    run(main())


def test_a_question_that_ran_out_while_nobody_looked_expires_when_the_turn_goes_on() -> None:
    async def main() -> None:
        shop = Shop()
        two = [DROP, call("drop", {"name": "test"}, "d2")]
        world = World(two, "ok", tools=shop.tools(), approval_seconds=600.0)
        turn, needs = await parked(world)
        await asyncio.sleep(601)
        on = decided(turn, needs, "approve", index=0)
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert shop.ran == [("drop", "staging")]
        assert [b.decision for b in on.bodies(ev.ApprovalDecided)] == ["approve", "expired"]

    run(main())


def test_one_yes_approves_one_call() -> None:
    async def main() -> None:
        shop = Shop()
        two = [DROP, call("drop", {"name": "test"}, "d2")]
        third = [call("drop", {"name": "third"}, "d3")]
        world = World(two, third, tools=shop.tools())
        turn, needs = await parked(world)
        assert len(needs.needs["approvals"]) == 2
        on = decided(turn, needs, "approve", index=1)
        on, still = await parked(world, on)
        assert shop.ran == [("drop", "test")]
        assert [a["call_id"] for a in still.needs["approvals"]] == ["d1"]
        on = decided(on, still, "approve")
        on, next_ = await parked(world, on)
        assert shop.ran == [("drop", "test"), ("drop", "staging")]
        assert [a["call_id"] for a in next_.needs["approvals"]] == ["d3"]

    run(main())


def test_two_identical_calls_are_one_question() -> None:
    async def main() -> None:
        shop = Shop()
        twin = call("drop", {"name": "staging"}, "d2")
        world = World([DROP, twin], "gone", tools=shop.tools())
        turn, needs = await parked(world)
        assert [asked["call_id"] for asked in needs.needs["approvals"]] == ["d1"]
        assert "waits for a decision" in str(results(turn)["d2"].content)
        on = decided(turn, needs, "approve")
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert shop.ran == [("drop", "staging")]

    run(main())


def test_an_outcome_after_other_turns_is_a_notice_at_the_end() -> None:
    async def main() -> None:
        shop = Shop()
        world = World([DROP], "it is noon", "gone now", tools=shop.tools())
        turn, needs = await parked(world)
        other = turn.next_turn("what time is it?")
        assert isinstance(await other.carry_out(world.runner), Answered)
        between = world.model.sent[-1]
        assert "waits for a person" in str(between)
        on = decided(turn, needs, "approve")
        assert isinstance(await on.carry_out(world.runner), Answered)
        final = world.model.sent[-1]
        assert final[: len(between)] == between, "nothing that was sent changes"
        assert "dropped staging" in final[-1].text
        assert (await on.ledger())[0].disposition is Disposition.DONE

    run(main())


@pytest.mark.parametrize(
    ("policies", "asks"),
    [
        (Policies(), {"d1"}),
        (Policies(trust=("drop",)), set()),
        (Policies(ask=("note",)), {"d1", "n1"}),
        (Policies(ask=("*",)), {"d1", "n1"}),
        (Policies(ask=("drop",), trust=("drop",)), {"d1"}),
    ],
    ids=["destructive", "trusted", "by name", "every", "asked beats trusted"],
)
def test_the_policy_says_which_calls_ask(policies: Policies, asks: set[str]) -> None:
    async def main() -> None:
        shop = Shop()
        world = World([DROP, call("note", {"text": "x"}, "n1")], "ok", tools=shop.tools(), policies=policies)
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert {b.call_id for b in turn.bodies(ev.ApprovalRequested)} == asks

    run(main())


def test_hold_keeps_the_lane_and_the_approver_is_named() -> None:
    async def main() -> None:
        shop = Shop()
        policies = Policies(parked="hold", approver="u_boss", approval_seconds=60)
        world = World([DROP], tools=shop.tools(), policies=policies)
        _, needs = await parked(world)
        assert needs.hold
        assert needs.needs["approvals"][0]["who"] == "u_boss"
        assert needs.needs["expires_at"] == world.clock.now() + 60

    run(main())


def test_a_crash_after_the_approved_call_began_does_not_run_it_again() -> None:
    class Died(BaseException):
        pass

    async def main() -> None:
        shop = Shop()

        @tool(destructive=True)
        async def drop(name: str) -> str:
            """Drop."""
            shop.ran.append(name)
            raise Died

        world = World([DROP], "inspected", tools=[tool_of(drop)])
        turn, needs = await parked(world)
        on = decided(turn, needs, "approve")
        with pytest.raises(Died):
            await on.carry_out(world.runner)
        later = on.again("rescued")
        assert isinstance(await later.carry_out(world.runner), Answered)
        assert shop.ran == ["staging"]
        assert (await later.ledger())[0].disposition is Disposition.UNKNOWN

    run(main())


@pytest.mark.parametrize(("late_seconds", "runs"), [(60.0, True), (60.1, False)])
def test_a_yes_that_waited_for_its_lane_counts_as_long_as_a_confirmation(
    late_seconds: float, runs: bool
) -> None:
    """The yes came in the last second of its question, and the lane was held by others after it."""

    async def main() -> None:
        shop = Shop()
        world = World([DROP], "done", tools=shop.tools(), approval_seconds=30.0)
        turn, needs = await parked(world)
        await asyncio.sleep(30.0)
        on = decided(turn, needs, "approve")
        await asyncio.sleep(late_seconds)
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert shop.ran == ([("drop", "staging")] if runs else [])
        assert ("has expired before it could run" in str(results(on)["d1"].content)) is not runs

    run(main())


def test_a_yes_is_for_the_arguments_that_were_shown_in_whatever_order_their_keys_come() -> None:
    async def main() -> None:
        ran: list[tuple[str, int]] = []

        @tool(destructive=True)
        async def pay(to: str, amount: int) -> str:
            """Pay."""
            ran.append((to, amount))
            return "paid"

        first = call("pay", {"to": "a", "amount": 1}, "p1")
        same = call("pay", {"amount": 1, "to": "a"}, "p2")
        more = call("pay", {"to": "a", "amount": 1000}, "p3")
        world = World([first], [same, more], tools=[tool_of(pay)])
        turn, needs = await parked(world)
        on, asked = await parked(world, decided(turn, needs, "approve"))
        assert ran == [("a", 1)]
        assert [a["call_id"] for a in asked.needs["approvals"]] == ["p3"], (
            "other arguments need a yes of their own"
        )
        assert "p1" in str(results(on)["p2"].content), "the same call is not made twice on one yes"

    run(main())


CONFIRM = "confirm forced reboot"


def test_a_stale_confirmation_is_expired_once_and_later_feeds_hold_the_sentinel() -> None:
    async def main() -> None:
        world = World("OK, restarting", "hello", "again")
        turn = world.turn(CONFIRM)
        await turn.carry_out(world.runner)
        assert not turn.bodies(ev.ConfirmationExpired)
        await asyncio.sleep(61)
        later = turn.next_turn("are you there?")
        await later.carry_out(world.runner)
        sent = world.model.sent[-1]
        assert [m.role for m in sent] == ["user", "assistant", "user"], "alternation is kept"
        assert "EXPIRED" in sent[0].text
        assert CONFIRM not in str(sent)
        assert turn.history()[0].text == CONFIRM, "the display is as it was"
        third = turn.next_turn("and now?", turn_id="t_3")
        await third.carry_out(world.runner)
        assert len(turn.bodies(ev.ConfirmationExpired)) == 1
        assert [m.parts for m in world.model.sent[-1][:3]] == [m.parts for m in sent]

    run(main())


@pytest.mark.parametrize(("age", "expired"), [(59.9, 0), (60.0, 0), (60.1, 1)])
def test_the_edge_of_the_expiry(age: float, expired: int) -> None:
    async def main() -> None:
        world = World("OK", "hello")
        turn = world.turn(CONFIRM)
        await turn.carry_out(world.runner)
        began = turn.history()[0].created_at
        await asyncio.sleep(began + age - world.clock.now())
        await turn.next_turn("are you there?").carry_out(world.runner)
        assert len(turn.bodies(ev.ConfirmationExpired)) == expired

    run(main())


@pytest.mark.parametrize("phrases", [(), ("make it so",)])
def test_a_phrase_of_ones_own_expires_as_the_built_in_ones_do(phrases: tuple[str, ...]) -> None:
    said = "Make it so, number one."

    async def main() -> None:
        world = World("OK", "hello", dangerous_phrases=phrases)
        turn = world.turn(said)
        await turn.carry_out(world.runner)
        began = turn.history()[0].created_at
        await asyncio.sleep(began + 61 - world.clock.now())
        await turn.next_turn("are you there?").carry_out(world.runner)
        assert [body.pattern for body in turn.bodies(ev.ConfirmationExpired)] == list(phrases)
        fed = world.model.sent[-1][0].text
        assert (said in fed) == (not phrases)
        assert ("EXPIRED" in fed) == bool(phrases)

    run(main())


def test_a_rescue_long_after_the_confirmation_does_not_act_on_it() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def hang() -> str:
            await gate.wait()
            return ""

        world = World(hang, "please confirm again")
        turn = world.turn(CONFIRM)
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await asyncio.sleep(61)
        task.cancel()
        later = turn.again("rescued")
        await later.carry_out(world.runner)
        assert "EXPIRED" in world.model.sent[-1][0].text

    run(main())


def cleared(turn: MemoryTurn) -> list[str]:
    return [body.why for body in turn.bodies(ev.ConfirmationExpired)]


def test_a_restart_clears_a_confirmation_however_fresh_it_is() -> None:
    """The very case of seed 001: the act that was confirmed killed the process that carried it out."""

    async def main() -> None:
        gate = asyncio.Event()

        async def dies() -> str:
            await gate.wait()
            return ""

        world = World(dies, "please confirm again")
        turn = world.turn(CONFIRM)
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await asyncio.sleep(1)
        task.cancel()
        reborn = World("please confirm again", "nothing was restarted")
        later = turn.again("rescued")
        assert isinstance(await later.carry_out(reborn.runner), Answered)
        assert CONFIRM not in str(reborn.model.sent[-1])
        assert cleared(later) == ["restart"]
        await later.next_turn("are you there?").carry_out(reborn.runner)
        assert cleared(later) == ["restart"], "journaled once"

    run(main())


def test_a_restart_between_two_turns_clears_the_first_ones_confirmation() -> None:
    async def main() -> None:
        world = World("OK, restarting")
        turn = world.turn(CONFIRM)
        await turn.carry_out(world.runner)
        reborn = World("hello")
        await turn.next_turn("are you there?").carry_out(reborn.runner)
        assert cleared(turn) == ["restart"]
        assert [m.role for m in reborn.model.sent[-1]] == ["user", "assistant", "user"]

    run(main())


def test_a_steer_clears_the_confirmation_before_it() -> None:
    async def main() -> None:
        turns: list[MemoryTurn] = []

        @tool
        async def note(text: str) -> str:
            """Note something, while a person changes their mind."""
            turns[0].steer("wait, not yet")
            return "noted"

        world = World([call("note", {"text": "x"}, "n1")], "as you wish", tools=[tool_of(note)])
        turns.append(turn := world.turn(CONFIRM))
        await turn.carry_out(world.runner)
        assert cleared(turn) == ["steer"]
        assert CONFIRM not in str(world.model.sent[-1])
        assert "wait, not yet" in str(world.model.sent[-1])

    run(main())


def test_another_model_takes_no_confirmation_that_was_not_given_to_it() -> None:
    async def main() -> None:
        world = World("I would restart the host. Confirm?", "restarting", "hello")
        turn = world.turn("restart it")
        await turn.carry_out(world.runner)
        confirm = turn.next_turn(CONFIRM)
        same = await confirm.carry_out(world.runner)
        assert isinstance(same, Answered)
        assert cleared(turn) == [], "the same model may act on it"
        world.runner.provider = PlayedModel("please confirm", name="another")
        await turn.next_turn("go on", turn_id="t_3").carry_out(world.runner)
        assert cleared(turn) == ["model_switch"]

    run(main())


def test_the_fallback_model_takes_no_confirmation_that_was_given_to_the_first() -> None:
    async def main() -> None:
        fallback = PlayedModel("please confirm", name="fallback")
        stalled = Failure(kind="stall", retryable=True, sentence="It stalled.")
        world = World("I would restart it. Confirm?", stalled, fallback=fallback)
        turn = world.turn("restart it")
        await turn.carry_out(world.runner)
        confirm = turn.next_turn(CONFIRM)
        await confirm.carry_out(world.runner)
        assert CONFIRM in str(world.model.sent[-1])
        assert CONFIRM not in str(fallback.sent[-1])
        assert cleared(turn) == ["model_switch"]

    run(main())


def test_a_confirmation_is_bound_to_what_it_confirmed() -> None:
    async def main() -> None:
        world = World("I would restart the host. Confirm?", "OK", "hello")
        turn = world.turn("restart it")
        await turn.carry_out(world.runner)
        confirm = turn.next_turn(CONFIRM)
        await confirm.carry_out(world.runner)
        proposal = next(m for m in turn.history() if m.text.startswith("I would"))
        last = turn.next_turn("and?", turn_id="t_3")
        last.journal.append(last._event(ev.MessageMarked(proposal.message_id, replay=False), 99, 1))
        await last.carry_out(world.runner)
        assert cleared(turn) == ["proposal_gone"]

    run(main())


@pytest.mark.parametrize(
    ("expiry", "producer", "kind", "seconds"),
    [
        ({}, "page", "person", 600.0),
        ({}, "github", "producer", 86_400.0),
        ({"github": 3600.0}, "github", "producer", 3600.0),
        ({"github": 3600.0, "destructive": 60.0}, "github", "producer", 60.0),
        ({"github": 3600.0, "destructive": 60.0, "drop": 5.0}, "github", "producer", 5.0),
        ({"another": 5.0}, "page", "person", 600.0),
    ],
    ids=["looking", "nobody looks", "channel", "risk", "tool", "others"],
)
def test_how_long_a_question_lasts_goes_by_risk_and_channel(
    expiry: dict[str, float], producer: str, kind: str, seconds: float
) -> None:
    async def main() -> None:
        world = World([DROP], tools=Shop().tools(), policies=Policies(expiry=expiry))
        turn = world.turn("drop staging")
        request = msgspec.structs.replace(
            turn.offer.request, producer=producer, principal=Principal(user_id="u_1", kind=kind)
        )
        turn.offer = msgspec.structs.replace(turn.offer, request=request)
        _, needs = await parked(world, turn)
        assert needs.needs["expires_at"] == world.clock.now() + seconds

    run(main())


@pytest.mark.parametrize("limited", ["usage", "rate"])
def test_a_confirmation_does_not_stay_fresh_while_its_turn_waits_for_the_provider(limited: str) -> None:
    async def main() -> None:
        kind, seconds = ("quota", 7200.0) if limited == "usage" else ("rate_limit", 61.0)
        refusal = Failure(kind=kind, retryable=False, sentence="Not now.", retry_after_seconds=seconds)
        world = World(refusal, "please confirm again", policies=Policies(usage_limit="wait"))
        turn = world.turn(CONFIRM)
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert CONFIRM in world.model.sent[0][0].text
        assert CONFIRM not in str(world.model.sent[-1])
        assert "EXPIRED" in world.model.sent[-1][0].text
        assert len(turn.bodies(ev.ConfirmationExpired)) == 1

    run(main())


def test_a_steer_that_confirms_and_waited_too_long_for_a_tool_is_taken_for_nothing() -> None:
    async def main() -> None:
        @tool(effect="read_only")
        async def wait() -> str:
            """Wait."""
            turn.steer(CONFIRM)
            await asyncio.sleep(61)
            return "waited"

        world = World([call("wait", {}, "w1")], "please confirm again", tools=[tool_of(wait)])
        turn = world.turn("look around")
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert CONFIRM not in str(world.model.sent[-1])
        assert "EXPIRED" in world.model.sent[-1][-1].text

    run(main())
