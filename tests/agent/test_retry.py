"""Seed 003: a failure of the provider costs one resume that keeps everything; a tool never acts twice."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from tests.agent.test_rounds import Counted
from tests.agent.world import PlayedModel, World, call, kinds, results, run, until
from turnkeeper.agent.definition import Policies
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.parts import Attachment
from turnkeeper.conversation.turns import Disposition, Failure, ReceiptState
from turnkeeper.port.runner import Answered, FailedWith, Needs, Stopped
from turnkeeper.tool import tool, tool_of

STALL = Failure(kind="stall", retryable=True, sentence="No data came for 20 s.", measured_seconds=20.0)
WRONG_KEY = Failure(kind="credentials", retryable=False, sentence="The key was refused.", status=401)
TOTAL = Failure(kind="total", retryable=False, sentence="The call took 180 s.", measured_seconds=180.0)
RETRIED = ev.TurnRequeued("retried", 0, attempt=2)


def limited(seconds: float | None) -> Failure:
    return Failure(
        kind="rate_limit", retryable=True, sentence="Too many.", status=429, retry_after_seconds=seconds
    )


def write(n: str = "a", id_: str = "w1") -> list[object]:
    return [call("write", {"line": n}, id_)]


def test_a_stall_after_tools_resumes_and_the_write_runs_once_across_both_attempts() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(write(), ("cut", "Half of the ans", STALL), "Added.", tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert counted.ran == [("write", {"line": "a"})]
        resumed = turn.bodies(ev.AutoResumed)[0]
        assert (resumed.kept_rounds, resumed.kept_results) == (1, 1)
        assert (resumed.saved_input_tokens, resumed.saved_output_tokens) == (100, 10)
        last = world.model.sent[-1]
        assert [m.role for m in last] == ["user", "assistant", "tool"]
        assert last[-1].parts[0].content == "wrote a", "the model is given what came of it"
        assert all("Half" not in m.text for m in last)
        half = next(m for m in turn.history() if m.text == "Half of the ans")
        assert (half.display, half.replay, half.standing) == (True, False, "errored")

    run(main())


def test_the_write_runs_twice_without_the_kept_round() -> None:
    """The same turn with its kept rounds taken away: this is what the test above would see without the fix."""

    async def main() -> None:
        counted = Counted()
        world = World(write(), STALL, tools=counted.tools, auto_resumes_max=0)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), FailedWith)
        world.model.steps = [write(), "Added."]
        fresh = world.turn("hello", turn_id="t_9")
        await fresh.carry_out(world.runner)
        assert len(counted.ran) == 2

    run(main())


def test_the_resume_is_spent_in_the_commit_that_starts_the_attempt() -> None:
    async def main() -> None:
        world = World(STALL, STALL, STALL)
        turn = world.turn()
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure == STALL
        assert len(world.model.calls) == 2
        assert turn.commits[1] == ("RoundFailed", "AutoResumed", "Noticed", "RoundStarted")
        again = turn.again("retried", RETRIED, attempt=2)
        assert isinstance(await again.carry_out(world.runner), FailedWith)
        assert len(world.model.calls) == 3, "found spent the second time"

    run(main())


@pytest.mark.parametrize("failure", [WRONG_KEY, TOTAL, limited(None)], ids=lambda f: f.kind)
def test_a_failure_that_cannot_be_retried_is_returned_once_at_once(failure: Failure) -> None:
    async def main() -> None:
        world = World(failure, "never")
        turn = world.turn()
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure == failure
        assert len(world.model.calls) == 1
        assert not turn.bodies(ev.AutoResumed)
        assert world.clock.monotonic() == 0

    run(main())


def test_failed_results_are_kept_too() -> None:
    async def main() -> None:
        ran: list[int] = []

        @tool
        async def breaks() -> str:
            """Break."""
            ran.append(1)
            raise OSError("no such host")

        again_: list[object] = [call("breaks", {}, "b2")]
        world = World([call("breaks", {}, "b1")], STALL, again_, "sorry", tools=[tool_of(breaks)])
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert len(ran) == 1
        assert "no such host" in str(results(turn)["b1"].content)
        assert results(turn)["b2"].is_error
        assert "b1" in str(results(turn)["b2"].content)

    run(main())


def test_an_identical_call_is_refused_whatever_the_order_of_its_keys() -> None:
    async def main() -> None:
        ran: list[str] = []

        @tool
        async def send(to: str, text: str) -> str:
            """Send."""
            ran.append(to)
            return "sent"

        world = World(
            [call("send", {"to": "a", "text": "x"}, "s1")],
            [call("send", {"text": "x", "to": "a"}, "s2"), call("send", {"text": "x", "to": "b"}, "s3")],
            "done",
            tools=[tool_of(send)],
        )
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert ran == ["a", "b"]
        refused = results(turn)["s2"]
        assert refused.is_error
        assert "s1" in str(refused.content)
        ledger = {row.call_id: row.disposition for row in await turn.ledger()}
        assert ledger == {"s1": Disposition.DONE, "s2": Disposition.REFUSED, "s3": Disposition.DONE}

    run(main())


def test_a_refusal_ends_with_the_turn() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(write(), "ok", write(id_="w2"), "ok", tools=counted.tools)
        await world.turn().carry_out(world.runner)
        await world.turn(turn_id="t_2").carry_out(world.runner)
        assert len(counted.ran) == 2

    run(main())


def test_a_read_may_repeat_once_something_with_an_effect_ran_since() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(
            [call("read", {}, "r1")],
            [call("read", {}, "r2"), *write()],
            [call("read", {}, "r3")],
            [call("read", {}, "r4"), *write("b", "w2")],
            "done",
            tools=counted.tools,
        )
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert [name for name, _ in counted.ran] == ["read", "write", "read", "write"]
        found = {call_id: result.is_error for call_id, result in results(turn).items()}
        assert found == {"r1": False, "r2": True, "w1": False, "r3": False, "r4": True, "w2": False}

    run(main())


def test_a_round_in_which_nothing_was_executed_ends_the_loop() -> None:
    async def main() -> None:
        counted = Counted()
        steps = [write(id_=f"w{n}") for n in range(9)]
        world = World(*steps, tools=counted.tools)
        turn = world.turn()
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure.kind == "loop"
        assert len(counted.ran) == 1
        assert len(world.model.calls) == 3
        assert len(results(turn)) == 3

    run(main())


def test_after_refused_repeats_the_model_may_still_answer() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(write(), write(id_="w2"), "It is written.", tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert turn.history()[-1].text == "It is written."

    run(main())


def test_waits_for_a_rate_limit_are_as_long_as_asked_and_at_most_three() -> None:
    async def main() -> None:
        world = World(*[limited(30)] * 9)
        turn = world.turn()
        outcome = await turn.carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert len(world.model.calls) == 4
        assert world.clock.monotonic() == pytest.approx(90, abs=1)
        assert [b.code for b in turn.bodies(ev.Noticed)] == ["waits_for_provider"] * 3

    run(main())


@pytest.mark.parametrize(("waits", "calls"), [((200, 100), 3), ((200, 101), 2), ((301,), 1)])
def test_waits_together_are_at_most_five_minutes(waits: tuple[float, ...], calls: int) -> None:
    async def main() -> None:
        world = World(*[limited(seconds) for seconds in waits], "ok")
        await world.turn().carry_out(world.runner)
        assert len(world.model.calls) == calls

    run(main())


def test_a_wait_survives_a_restart_and_is_not_begun_anew() -> None:
    async def main() -> None:
        world = World(limited(100), "ok")
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: bool(turn.bodies(ev.Noticed)))
        await asyncio.sleep(60)
        task.cancel()
        later = turn.again("rescued")
        assert isinstance(await later.carry_out(world.runner), Answered)
        assert world.clock.monotonic() == pytest.approx(100, abs=1)

    run(main())


def test_a_wait_can_be_stopped() -> None:
    async def main() -> None:
        world = World(limited(100), "never")
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: bool(turn.bodies(ev.Noticed)))
        turn.stop()
        assert isinstance(await task, Stopped)
        assert len(world.model.calls) == 1

    run(main())


def test_a_refused_request_is_sent_again_only_if_it_changes() -> None:
    refused = Failure(kind="refused_request", retryable=False, sentence="Invalid signature.", status=400)

    async def main() -> None:
        plain = World(refused, "never")
        assert isinstance(await plain.turn().carry_out(plain.runner), FailedWith)
        assert len(plain.model.calls) == 1

        counted = Counted()
        signed = call("write", {"line": "a"}, "w1")
        signed = msgspec.structs.replace(signed, bound={"signature": "x"})
        world = World([signed], refused, "ok", tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert len(world.model.calls) == 3

        world = World([signed], refused, refused, refused, tools=counted.tools)
        assert isinstance(await world.turn().carry_out(world.runner), FailedWith)
        assert len(world.model.calls) == 3

    run(main())


def test_a_retry_by_a_person_goes_on_from_the_kept_results_without_the_text() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(write(), STALL, STALL, "Added.", tools=counted.tools)
        turn = world.turn("append a line")
        assert isinstance(await turn.carry_out(world.runner), FailedWith)
        await asyncio.sleep(1800)
        again = turn.again("retried", RETRIED, attempt=2)
        assert isinstance(await again.carry_out(world.runner), Answered)
        assert len(counted.ran) == 1
        assert [m.role for m in world.model.sent[-1]] == ["user", "assistant", "tool"]

    run(main())


def test_a_persons_retry_brings_no_second_resume() -> None:
    """One per turn (issue: automatic resume; ADR 62): who retries into the same outage is told so at once."""

    async def main() -> None:
        counted = Counted()
        world = World(write(), STALL, STALL, STALL, "Added.", tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), FailedWith)
        assert len(turn.bodies(ev.AutoResumed)) == 1
        again = turn.again("retried", RETRIED, attempt=2)
        assert isinstance(await again.carry_out(world.runner), FailedWith)
        assert len(again.bodies(ev.AutoResumed)) == 1
        last = again.again("retried", ev.TurnRequeued("retried", 0, attempt=3), attempt=3)
        assert isinstance(await last.carry_out(world.runner), Answered)
        assert counted.ran == [("write", {"line": "a"})], "what was done is kept over all of them"

    run(main())


def test_after_the_resume_window_a_retry_says_how_old_the_results_are_and_asks() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(write(), STALL, STALL, "Added.", tools=counted.tools)
        turn = world.turn()
        await turn.carry_out(world.runner)
        await asyncio.sleep(1801)
        again = turn.again("retried", RETRIED, attempt=2)
        outcome = await again.carry_out(world.runner)
        assert isinstance(outcome, Needs)
        assert outcome.needs["age_seconds"] == 1801
        assert outcome.needs["choices"] == ["go_on", "start_over", "give_up"]
        assert len(world.model.calls) == 3
        on = again.again("continued", ev.TurnContinued({"choice": "go_on"}, 0))
        assert isinstance(await on.carry_out(world.runner), Answered)
        assert len(counted.ran) == 1

    run(main())


def test_a_person_may_start_over_and_then_the_same_call_runs_again() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(write(), STALL, STALL, write(id_="w2"), "Added.", tools=counted.tools)
        turn = world.turn()
        await turn.carry_out(world.runner)
        await asyncio.sleep(1801)
        again = turn.again("retried", RETRIED, attempt=2)
        assert isinstance(await again.carry_out(world.runner), Needs)
        over = again.again("continued", ev.TurnContinued({"choice": "start_over"}, 0))
        assert isinstance(await over.carry_out(world.runner), Answered)
        assert len(counted.ran) == 2

    run(main())


def test_a_spoken_turn_is_retried_from_its_recording() -> None:
    async def main() -> None:
        spoken = (Attachment(attachment_id="f_1", media_type="audio/ogg", transcript="make it blue"),)
        world = World(STALL, STALL, "Blue.")
        turn = world.turn(parts=spoken)
        await turn.carry_out(world.runner)
        again = turn.again("retried", RETRIED, attempt=2)
        assert isinstance(await again.carry_out(world.runner), Answered)
        assert world.model.sent[-1][0].parts == spoken

    run(main())


def test_the_fallback_model_takes_the_resumed_attempt() -> None:
    async def main() -> None:
        spare = PlayedModel("from the spare", name="spare")
        world = World(STALL, "never", fallback=spare)
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert turn.history()[-1].text == "from the spare"
        assert [b.provider for b in turn.bodies(ev.RoundStarted)] == ["played", "spare"]
        assert turn.history()[-1].origin == spare.origin

    run(main())


def test_a_retry_after_other_turns_ends_the_feed_on_what_is_to_be_done() -> None:
    async def main() -> None:
        world = World(STALL, STALL, "second answer", "first answer")
        turn = world.turn("first question")
        await turn.carry_out(world.runner)
        other = turn.next_turn("second question")
        await other.carry_out(world.runner)
        again = turn.again("retried", RETRIED, attempt=2)
        await again.carry_out(world.runner)
        last = world.model.sent[-1][-1]
        assert last.role == "user"
        assert "first question" in last.text
        assert world.model.calls[-1].newest_user_text == "first question"

    run(main())


def test_the_receipt_is_accepted_with_the_request_and_confirmed_with_the_first_data() -> None:
    async def main() -> None:
        world = World(("cut", "Half", STALL), "whole")
        turn = world.turn()
        await turn.carry_out(world.runner)
        moves = [b.state for b in turn.bodies(ev.ReceiptMoved)]
        assert moves == [ReceiptState.ACCEPTED, ReceiptState.CONFIRMED]
        assert kinds(turn).count("RoundStarted") == 2

    run(main())


def test_a_resume_is_announced_with_what_was_kept() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(write(), STALL, "done", tools=counted.tools)
        turn = world.turn()
        await turn.carry_out(world.runner)
        notice = turn.bodies(ev.Noticed)[0]
        assert notice.code == "chat.auto_resumed"
        assert notice.facts == {"rounds": 1, "results": 1, "failure": "stall"}
        assert STALL.sentence in notice.text

    run(main())


def carrying_on() -> Policies:
    return Policies(usage_limit="wait")


def test_a_log_that_cannot_be_written_blocks_no_resume() -> None:
    """The announcement is part of the commit that starts the attempt; nothing on that way waits for a log."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the disk is full")

    async def main() -> None:
        counted = Counted()
        world = World(write(), STALL, "Added.", tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert len(turn.bodies(ev.AutoResumed)) == 1

    logger, handler = logging.getLogger("turnkeeper"), Broken()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        run(main())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_a_usage_limit_that_resets_is_waited_for_only_where_the_agent_says_so() -> None:
    async def main() -> None:
        world = World(limited(7200), "never")
        assert isinstance(await world.turn().carry_out(world.runner), FailedWith)
        assert world.clock.monotonic() == 0

        world = World(limited(7200), "at last", policies=carrying_on())
        turn = world.turn()
        began = world.clock.monotonic()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert world.clock.monotonic() - began == pytest.approx(7200, abs=1)
        assert turn.bodies(ev.Noticed)[0].code == "waits_for_reset"
        assert "carries on by itself" in turn.bodies(ev.Noticed)[0].text

    run(main())


def test_carrying_on_happens_once_survives_a_restart_and_can_be_stopped() -> None:
    async def main() -> None:
        world = World(limited(7200), limited(7200), "never", policies=carrying_on())
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: bool(turn.bodies(ev.Noticed)))
        await asyncio.sleep(3600)
        task.cancel()
        later = turn.again("rescued")
        assert isinstance(await later.carry_out(world.runner), FailedWith)
        assert world.clock.monotonic() == pytest.approx(7200, abs=2)
        assert len(world.model.calls) == 2

        world = World(limited(7200), "never", policies=carrying_on())
        turn = world.turn()
        task = asyncio.ensure_future(turn.carry_out(world.runner))
        await until(lambda: bool(turn.bodies(ev.Noticed)))
        turn.stop()
        assert isinstance(await task, Stopped)

    run(main())


@pytest.mark.parametrize(("limit", "calls"), [(110, 1), (111, 2), (None, 3)])
def test_the_limit_on_tokens_ends_the_turn_at_its_edge(limit: int | None, calls: int) -> None:
    async def main() -> None:
        counted = Counted()
        world = World(write(), write("b", "w2"), "done", tools=counted.tools, turn_tokens_max=limit)
        outcome = await world.turn().carry_out(world.runner)
        assert len(world.model.calls) == calls
        assert isinstance(outcome, FailedWith) == (limit is not None)

    run(main())


def test_a_persons_retry_has_the_limit_on_tokens_anew() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(write(), write("b", "w2"), "done", tools=counted.tools, turn_tokens_max=110)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), FailedWith)
        again = turn.again("retried", RETRIED, attempt=2)
        await again.carry_out(world.runner)
        assert len(world.model.calls) == 2, "it goes on from what was paid for, by as much again"

    run(main())


def test_starting_over_is_done_once_and_a_crash_after_it_keeps_what_was_done_since() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(write(), STALL, STALL, write(id_="w2"), tools=counted.tools)
        turn = world.turn()
        await turn.carry_out(world.runner)
        await asyncio.sleep(1801)
        again = turn.again("retried", RETRIED, attempt=2)
        assert isinstance(await again.carry_out(world.runner), Needs)
        over = again.again("continued", ev.TurnContinued({"choice": "start_over"}, 0))
        hang = asyncio.Event()
        world.model.steps.append(hang.wait)
        task = asyncio.ensure_future(over.carry_out(world.runner))
        await until(lambda: len(world.model.calls) == 5)
        task.cancel()
        assert len(counted.ran) == 2
        rescued = over.again("rescued")
        world.model.steps[:] = [write(id_="w3"), "Added."]
        assert isinstance(await rescued.carry_out(world.runner), Answered)
        assert len(counted.ran) == 2, "the write since the start over is not made again"
        assert len(rescued.bodies(ev.Noticed)) == len(over.bodies(ev.Noticed))

    run(main())
