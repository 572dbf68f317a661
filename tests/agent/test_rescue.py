"""A crash at any point of a round with parallel tools: nothing acts twice unknowingly, nothing paid is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.agent.world import World, call, kinds, results, run, until
from turnkeeper.agent.definition import Policies
from turnkeeper.agent.plan import CrashPolicy, Treatment, treat
from turnkeeper.agent.so_far import Call
from turnkeeper.conversation import codec
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.parts import ToolCall
from turnkeeper.conversation.turns import Disposition, Effect
from turnkeeper.port.runner import Answered, FailedWith, Needs
from turnkeeper.testing.turn_port import MemoryTurn
from turnkeeper.tool import Tool, tool, tool_of


class Died(BaseException):
    """The process was killed."""


class Effects:
    """What the outside world saw: it is not rolled back by any crash."""

    def __init__(self) -> None:
        self.acted: list[str] = []
        self.keys: list[str] = []
        self.looked = 0
        self.verdict: Any = True
        self.die_in: str | None = None

    def _maybe_die(self, name: str) -> None:
        if self.die_in == name:
            self.die_in = None
            raise Died

    def tools(self) -> list[Tool]:
        @tool
        async def act(what: str = "x") -> str:
            """Act."""
            self.acted.append(what)
            self._maybe_die("act")
            return f"acted {what}"

        @tool(effect="idempotent")
        async def put(what: str, *, idempotency_key: str) -> str:
            """Put."""
            self.keys.append(idempotency_key)
            self._maybe_die("put")
            return f"put {what}"

        @tool(effect="read_only")
        async def look() -> str:
            """Look."""
            self.looked += 1
            self._maybe_die("look")
            return "seen"

        async def check(key: str, arguments: dict[str, Any]) -> Any:
            if isinstance(self.verdict, BaseException):
                raise self.verdict
            if self.verdict == "hangs":
                await asyncio.sleep(1e9)
            return self.verdict

        @tool(did_it_happen=check)
        async def checked(what: str = "x") -> str:
            """Act, and be able to tell."""
            self.acted.append(f"checked {what}")
            self._maybe_die("checked")
            return "acted and known"

        return [tool_of(f) for f in (act, put, look, checked)]


CALLS = [call("act", {"what": "x"}, "a"), call("put", {"what": "y"}, "p"), call("look", {}, "l")]


def crash_at(turn: MemoryTurn, nth: int, when: str) -> None:
    """Die at the `nth` commit (from 1), just before or just after it became durable."""
    seen = 0

    def visit() -> None:
        nonlocal seen
        seen += 1
        if seen == nth and when == "before":
            raise Died
        if seen == nth + 1 and when == "after":
            raise Died

    turn.on_commit = visit


async def crash(world: World, turn: MemoryTurn) -> MemoryTurn | None:
    """Run until the planned death; the next process's turn, or None if the turn ended before."""
    try:
        await turn.carry_out(world.runner)
    except Died:
        pass
    else:
        return None
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
    return turn.again("rescued")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_crash_at_any_commit_repeats_no_effect(nth: int, when: str) -> None:
    async def main() -> None:
        effects = Effects()
        world = World(tools=effects.tools())

        def play() -> Any:
            return list(CALLS) if not results_of_any(world) else "all done"

        def results_of_any(world: World) -> bool:
            return any(m.role == "tool" for m in world.model.sent[-1])

        world.model.steps = [play] * 9
        turn = world.turn()
        crash_at(turn, nth, when)
        later = await crash(world, turn)
        last = turn if later is None else later
        if later is not None:
            assert isinstance(await later.carry_out(world.runner), Answered)
        assert len(effects.acted) <= 1, "the effect ran twice"
        assert len(set(effects.keys)) == 1, "the same call had two keys"
        ledger = {row.call_id: row for row in await last.ledger()}
        assert set(ledger) == {"a", "p", "l"}
        if ledger["a"].disposition is Disposition.UNKNOWN:
            assert "unknown" in str(results(last)["a"].content)
        else:
            assert ledger["a"].disposition is Disposition.DONE
            assert effects.acted == ["x"]
        assert ledger["p"].disposition is Disposition.DONE
        assert ledger["l"].disposition is Disposition.DONE
        assert last.history()[-1].text == "all done"
        answered = list(results(last))
        assert sorted(answered) == ["a", "l", "p"]

    run(main())


@pytest.mark.parametrize("name", ["act", "put", "look"])
def test_a_crash_between_two_parallel_tools_is_decided_call_by_call(name: str) -> None:
    async def main() -> None:
        effects = Effects()
        effects.die_in = name
        world = World(list(CALLS), "all done", tools=effects.tools())
        turn = world.turn()
        later = await crash(world, turn)
        assert later is not None
        assert isinstance(await later.carry_out(world.runner), Answered)
        assert effects.acted == ["x"]
        ledger = {row.call_id: row.disposition for row in await later.ledger()}
        assert ledger["p"] is ledger["l"] is Disposition.DONE

    run(main())


def outcomes(effects: Effects, *, name: str = "checked", policies: Policies | None = None) -> World:
    effects.die_in = name
    return World([call(name, {"what": "x"}, "c1")], "done", tools=effects.tools(), policies=policies)


def test_a_tools_own_check_decides_that_it_happened() -> None:
    async def main() -> None:
        effects = Effects()
        world = outcomes(effects)
        later = await crash(world, world.turn())
        assert later is not None
        await later.carry_out(world.runner)
        assert effects.acted == ["checked x"]
        assert results(later)["c1"].is_error is False
        assert (await later.ledger())[0].disposition is Disposition.DONE

    run(main())


def test_a_tools_own_check_decides_that_it_did_not_happen_and_it_runs_again() -> None:
    async def main() -> None:
        effects = Effects()
        effects.verdict = False
        world = outcomes(effects)
        later = await crash(world, world.turn())
        assert later is not None
        await later.carry_out(world.runner)
        assert effects.acted == ["checked x", "checked x"]
        assert results(later)["c1"].content == "acted and known"

    run(main())


@pytest.mark.parametrize(
    "verdict", [None, ValueError("broken"), "hangs"], ids=["cannot tell", "raises", "hangs"]
)
def test_a_check_that_cannot_say_leaves_the_outcome_unknown(verdict: Any) -> None:
    async def main() -> None:
        effects = Effects()
        effects.verdict = verdict
        world = outcomes(effects)
        later = await crash(world, world.turn())
        assert later is not None
        assert isinstance(await later.carry_out(world.runner), Answered)
        assert effects.acted == ["checked x"]
        assert (await later.ledger())[0].disposition is Disposition.UNKNOWN
        assert world.clock.monotonic() <= 10.1

    run(main())


def test_an_identical_call_after_an_unknown_outcome_is_refused() -> None:
    async def main() -> None:
        effects = Effects()
        world = outcomes(effects, name="act")
        world.model.steps = [*world.model.steps[:1], [call("act", {"what": "x"}, "c2")], "looked"]
        later = await crash(world, world.turn())
        assert later is not None
        await later.carry_out(world.runner)
        assert effects.acted == ["x"]
        assert "outcome is unknown" in str(results(later)["c2"].content)

    run(main())


def test_policy_fail_ends_the_turn_and_closes_the_call() -> None:
    async def main() -> None:
        effects = Effects()
        world = outcomes(effects, name="act", policies=Policies(crash=CrashPolicy.FAIL))
        later = await crash(world, world.turn())
        assert later is not None
        outcome = await later.carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure.kind == "crash"
        assert (await later.ledger())[0].disposition is Disposition.UNKNOWN
        assert len(world.model.calls) == 1

    run(main())


async def asked(world: World) -> MemoryTurn:
    later = await crash(world, world.turn())
    assert later is not None
    outcome = await later.carry_out(world.runner)
    assert isinstance(outcome, Needs)
    assert outcome.needs["kind"] == "action_required"
    assert outcome.needs["choices"] == ["it_happened", "it_did_not", "run_again", "give_up"]
    assert outcome.needs["calls"][0]["name"] == "act"
    return later


@pytest.mark.parametrize(
    ("choice", "ran", "disposition"),
    [
        ("it_happened", 1, Disposition.DONE),
        ("it_did_not", 1, Disposition.FAILED),
        ("run_again", 2, Disposition.DONE),
    ],
)
def test_policy_ask_parks_and_obeys_the_answer(choice: str, ran: int, disposition: Disposition) -> None:
    async def main() -> None:
        effects = Effects()
        world = outcomes(effects, name="act", policies=Policies(crash=CrashPolicy.ASK))
        later = await asked(world)
        on = later.again("continued", ev.TurnContinued({"choice": choice}, 0))
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert len(effects.acted) == ran
        assert (await on.ledger())[0].disposition is disposition
        assert [m.role for m in world.model.sent[-1]] == ["user", "assistant", "tool"]

    run(main())


def test_policy_ask_give_up_ends_the_turn() -> None:
    async def main() -> None:
        effects = Effects()
        world = outcomes(effects, name="act", policies=Policies(crash=CrashPolicy.ASK))
        later = await asked(world)
        on = later.again("continued", ev.TurnContinued({"choice": "give_up"}, 0))
        assert isinstance(await on.carry_out(world.runner), FailedWith)
        assert len(world.model.calls) == 1

    run(main())


def test_what_a_person_said_comes_as_a_notice_when_the_conversation_went_on() -> None:
    async def main() -> None:
        effects = Effects()
        world = outcomes(effects, name="act", policies=Policies(crash=CrashPolicy.ASK))
        world.model.steps += ["other answer", "late answer"]
        world.model.steps = [world.model.steps[0], "other answer", "late answer"]
        later = await asked(world)
        other = later.next_turn("meanwhile")
        await other.carry_out(world.runner)
        sent = world.model.sent[-1]
        held = next(m for m in sent if m.role == "tool")
        on = later.again("continued", ev.TurnContinued({"choice": "it_happened"}, 0))
        await on.carry_out(world.runner)
        final = world.model.sent[-1]
        assert final[: len(sent)] == sent, "what was sent stays as it was sent"
        assert held in final
        assert final[-1].role == "user"
        assert "did take effect" in final[-1].text

    run(main())


def test_the_draft_of_a_dead_process_is_shown_and_never_fed() -> None:
    async def main() -> None:
        from tests.agent.world import PlayedModel

        world = World(model=PlayedModel("one two three four", "whole", chunk_seconds=1))
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: len(turn.bodies(ev.DraftSaved)) == 2)
        task.cancel()
        later = turn.again("rescued")
        await later.carry_out(world.runner)
        half = later.history()[1]
        assert half.text == "one two "
        assert (half.display, half.replay, half.standing) == (True, False, "interrupted")
        assert half.message_id not in {m.message_id for m in world.model.sent[-1]}
        assert "RoundFailed" not in kinds(later), "a kill is not a failed round"
        assert world.model.calls[-1].failed_attempts == 0

    run(main())


def test_many_kills_leave_no_pile_of_notices() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def hang() -> str:
            await gate.wait()
            return "never"

        world = World(*[hang] * 6, "done")
        turn = world.turn()
        for _ in range(6):
            calls = len(world.model.calls)
            task = asyncio.ensure_future(turn.carry_out(world.runner))
            await until(lambda calls=calls: len(world.model.calls) > calls)
            task.cancel()
            turn = turn.again("rescued")
        await turn.carry_out(world.runner)
        assert [m.role for m in world.model.sent[-1]] == ["user"]

    run(main())


OPEN = {
    # effect, exists, has_check, policy -> treatment
    (Effect.READ_ONLY, True, False, "resume"): Treatment.RUN_AGAIN,
    (Effect.READ_ONLY, True, False, "ask"): Treatment.RUN_AGAIN,
    (Effect.IDEMPOTENT, True, True, "fail"): Treatment.RUN_AGAIN,
    (Effect.ACTS, True, True, "fail"): Treatment.ASK_TOOL,
    (Effect.DESTRUCTIVE, True, True, "resume"): Treatment.ASK_TOOL,
    (Effect.ACTS, True, False, "resume"): Treatment.CLOSE_UNKNOWN,
    (Effect.ACTS, True, False, "ask"): Treatment.ASK_PERSON,
    (Effect.DESTRUCTIVE, True, False, "fail"): Treatment.FAIL,
    (Effect.READ_ONLY, False, False, "resume"): Treatment.CLOSE_UNKNOWN,
    (Effect.ACTS, False, True, "ask"): Treatment.ASK_PERSON,
}


@pytest.mark.parametrize(("facts", "treatment"), OPEN.items())
def test_an_open_call_is_treated_by_its_effect(facts: Any, treatment: Treatment) -> None:
    effect, exists, has_check, policy = facts
    open_call = Call(call=ToolCall(id="c", name="n"), effect=effect, intended=True)
    assert treat(open_call, exists=exists, has_check=has_check, policy=CrashPolicy(policy)) is treatment


def test_a_call_without_an_intent_has_not_run_and_one_that_waits_goes_on_waiting() -> None:
    never = Call(call=ToolCall(id="c", name="n"))
    asks = Call(call=ToolCall(id="c", name="n"), approval_id="p")
    for policy in CrashPolicy:
        assert treat(never, exists=True, has_check=False, policy=policy) is Treatment.RUN
        assert treat(asks, exists=True, has_check=False, policy=policy) is Treatment.WAIT


SECRET, TOKEN = "sk-very-secret-and-long-0001", "[secret:1f2e3d4c]"


class Masking(MemoryTurn):
    """A turn whose journal holds tokens where its secret stood, as the dispatcher keeps it."""

    async def _write(self, bodies: Any) -> Any:
        masked = [
            codec.decode_body(b.kind, codec.encode_body(b).replace(SECRET.encode(), TOKEN.encode()))
            for b in bodies
        ]
        return await super()._write(tuple(masked))

    def reveal(self, data: bytes) -> bytes:
        return data.replace(TOKEN.encode(), SECRET.encode())

    def again(self, why: str, *bodies: Any, attempt: int | None = None) -> MemoryTurn:
        plain = super().again(why, *bodies, attempt=attempt)
        plain.__class__ = Masking
        return plain


def test_a_secret_argument_is_journaled_as_its_token_run_as_itself_and_not_run_again() -> None:
    async def main() -> None:
        effects = Effects()
        world = World(
            [call("act", {"what": SECRET}, "a"), call("put", {"what": SECRET}, "p")],
            [call("act", {"what": SECRET}, "a2")],
            "done",
            tools=effects.tools(),
        )
        effects.die_in = "put"
        turn = Masking(world.clock, world.ids, text="go")
        with pytest.raises(Died):
            await turn.carry_out(world.runner)
        later = turn.again("rescued")
        assert SECRET not in str(later.journal)
        assert isinstance(await later.carry_out(world.runner), Answered)
        assert effects.acted == [SECRET]
        assert results(later)["p"].content == f"put {TOKEN}"
        assert results(later)["a2"].is_error
        assert SECRET not in str(later.journal)

    run(main())


def test_an_answer_is_about_the_call_that_was_asked_about_and_never_about_a_later_one() -> None:
    async def main() -> None:
        effects = Effects()
        world = outcomes(effects, name="act", policies=Policies(crash=CrashPolicy.ASK))
        world.model.steps[1:] = [[call("act", {"what": "later"}, "z")], "done"]
        later = await asked(world)
        on = later.again("continued", ev.TurnContinued({"choice": "run_again"}, 0))
        on.on_commit = lambda: setattr(effects, "die_in", "act" if effects.acted == ["x", "x"] else None)
        rescued = await crash(world, on)
        assert rescued is not None
        assert effects.acted == ["x", "x", "later"]
        outcome = await rescued.carry_out(world.runner)
        assert effects.acted == ["x", "x", "later"], "nobody said that this one may run again"
        assert isinstance(outcome, Needs)
        assert [asked_["call_id"] for asked_ in outcome.needs["calls"]] == ["z"]

    run(main())


def test_an_answer_that_was_begun_to_be_done_when_the_process_died_is_asked_for_again() -> None:
    async def main() -> None:
        effects = Effects()
        world = outcomes(effects, name="act", policies=Policies(crash=CrashPolicy.ASK))
        later = await asked(world)
        on = later.again("continued", ev.TurnContinued({"choice": "run_again"}, 0))
        effects.die_in = "act"
        rescued = await crash(world, on)
        assert rescued is not None
        outcome = await rescued.carry_out(world.runner)
        assert effects.acted == ["x", "x"]
        assert isinstance(outcome, Needs)

    run(main())


def test_an_answer_that_nobody_had_read_when_the_process_died_is_done_by_the_next() -> None:
    async def main() -> None:
        effects = Effects()
        world = outcomes(effects, name="act", policies=Policies(crash=CrashPolicy.ASK))
        later = await asked(world)
        on = later.again("continued", ev.TurnContinued({"choice": "run_again"}, 0))
        rescued = on.again("rescued")
        assert isinstance(await rescued.carry_out(world.runner), Answered)
        assert effects.acted == ["x", "x"]

    run(main())


def test_an_answer_about_one_call_is_none_about_its_siblings() -> None:
    async def main() -> None:
        effects = Effects()
        effects.die_in = "act"
        world = World(CALLS, "done", tools=effects.tools(), policies=Policies(crash=CrashPolicy.ASK))
        turn = world.turn()
        turn.on_commit = lambda: None
        later = await crash(world, turn)
        assert later is not None
        outcome = await later.carry_out(world.runner)
        assert isinstance(outcome, Needs)
        assert [asked_["call_id"] for asked_ in outcome.needs["calls"]] == ["a"]
        on = later.again("continued", ev.TurnContinued({"choice": "it_happened"}, 0))
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert effects.acted == ["x"]
        found = results(on)
        assert "a person says so" in str(found["a"].content)
        assert found["p"].content == "put y"
        assert found["l"].content == "seen"

    run(main())
