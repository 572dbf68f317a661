"""What the lane does, told as stories: order, steer, interrupt, stop, park, rescue, gate, backstop."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.conversation.events import (
    LanePaused,
    ReceiptMoved,
    SteerReturned,
    SteerTaken,
    Submitted,
    TurnCancelled,
    TurnContinued,
    TurnFailed,
    TurnMoved,
    TurnParked,
    TurnSettled,
)
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Failure, Mode, Principal, Request
from turnkeeper.errors import Fenced, NotPossible, NotWaiting, QueueFull, TurnDecided
from turnkeeper.lane import Lane, Phase, Rules, Slot, inputs, step
from turnkeeper.lane.effects import Abandon, Effect, Interrupt, Journal, Say, Start
from turnkeeper.lane.state import wake_at

REQUEST = Request(agent="demo", parts=(Text("x"),), principal=Principal(user_id="u"))


class Told:
    """A lane that is told things, and what it asked for since the last look."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.lane = Lane(conversation_id="c", rules=rules or Rules())
        self.now = 0.0
        self.effects: list[Effect] = []

    def tell(self, told: inputs.Input, after: float = 1.0) -> list[Effect]:
        self.now += after
        self.lane, self.effects = step(self.lane, told, self.now)
        return self.effects

    def submit(self, turn_id: str, mode: Mode = Mode.QUEUE) -> Say:
        body = Submitted(
            submission_id=f"s-{turn_id}", turn_id=turn_id, key=turn_id, fingerprint="f", request=REQUEST
        )
        self.tell(inputs.Submit(body=body, mode=mode, user_id="u"))
        return next(e for e in self.effects if isinstance(e, Say))

    def report(self, kind: type[inputs.Reported], after: float = 1.0, **facts: Any) -> list[Effect]:
        holder = self.lane.holder
        assert holder is not None
        return self.tell(kind(turn_id=holder.turn_id, fence=holder.fence, **facts), after)

    def bodies(self, kind: type) -> list[Any]:
        return [
            (e.turn_id, e.body) for e in self.effects if isinstance(e, Journal) and isinstance(e.body, kind)
        ]

    @property
    def starts(self) -> list[str]:
        return [e.turn_id for e in self.effects if isinstance(e, Start)]

    @property
    def waiting(self) -> list[str]:
        return [slot.turn_id for slot in self.lane.queue]


FAILURE = Failure("server", retryable=True, sentence="The model failed.")


def test_turns_run_in_stored_order_and_each_end_starts_the_next() -> None:
    told = Told()
    assert told.submit("a").outcome == "started"
    assert (told.submit("b").position, told.submit("c").position) == (1, 2)
    told.report(inputs.Accept, evidence={})
    told.report(inputs.Answer)
    assert told.starts == ["b"]
    assert [turn for turn, _ in told.bodies(TurnSettled)] == ["a"]
    told.report(inputs.Fail, failure=FAILURE)
    assert told.starts == ["c"], "a failure does not stop the queue"
    told.report(inputs.Answer)
    assert told.lane.phase is Phase.IDLE


def test_the_cap_is_exact_and_the_next_one_is_refused() -> None:
    told = Told(Rules(queue_cap=2))
    told.submit("a")
    told.submit("b")
    told.submit("c")
    before = told.lane
    with pytest.raises(QueueFull):
        told.submit("d")
    assert told.lane == before


def test_a_steer_rides_and_ends_with_the_turn_that_took_it() -> None:
    told = Told()
    told.submit("a")
    told.report(inputs.Accept, evidence={})
    assert told.submit("s", Mode.STEER).outcome == "steered"
    told.report(inputs.TakeRider, rider_id="s")
    assert [turn for turn, _ in told.bodies(SteerTaken)] == ["s"]
    told.report(inputs.Answer)
    ends = {turn: body.reason for turn, body in told.bodies(TurnSettled)}
    assert ends == {"a": "answered", "s": "answered_with"}


def test_a_steer_that_loses_the_race_becomes_the_next_turn_before_the_queue() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    told.submit("s", Mode.STEER)
    told.report(inputs.Answer)
    assert told.starts == ["s"]
    assert [turn for turn, _ in told.bodies(SteerReturned)] == ["s"]
    assert told.waiting == ["b"]


def test_a_steer_to_a_free_lane_is_a_turn() -> None:
    assert Told().submit("s", Mode.STEER).outcome == "started"


def test_interrupt_stops_the_holder_and_goes_first_without_pausing() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    assert told.submit("i", Mode.INTERRUPT).position == 1
    assert any(isinstance(e, Interrupt) for e in told.effects)
    told.report(inputs.Halt)
    assert told.starts == ["i"]
    assert told.lane.paused is None


def test_two_interrupts_keep_their_order() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    told.submit("i1", Mode.INTERRUPT)
    told.submit("i2", Mode.INTERRUPT)
    assert told.waiting == ["i1", "i2", "b"]


def test_stop_pauses_the_queue_visibly_and_resume_goes_on() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    told.tell(inputs.Cancel(turn_id="a"))
    assert told.bodies(LanePaused)
    told.report(inputs.Halt)
    assert told.lane.phase is Phase.HELD
    assert told.starts == []
    told.tell(inputs.Resume())
    assert told.starts == ["b"]


def test_stop_with_nobody_behind_pauses_nothing() -> None:
    told = Told()
    told.submit("a")
    told.tell(inputs.Cancel(turn_id="a"))
    told.submit("b")
    told.report(inputs.Halt)
    assert told.starts == ["b"]


def test_stop_can_let_the_queue_go_on() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    told.tell(inputs.Cancel(turn_id="a", pause=False))
    told.report(inputs.Halt)
    assert told.starts == ["b"]


def test_a_deaf_runner_is_ended_after_the_grace_and_not_before() -> None:
    told = Told(Rules(stop_grace_seconds=10.0))
    told.submit("a")
    told.submit("b")
    told.tell(inputs.Cancel(turn_id="a", pause=False))
    assert wake_at(told.lane) == told.now + 10.0
    told.tell(inputs.Tick(), after=9.9)
    assert told.lane.phase is Phase.STOPPING
    told.tell(inputs.Tick(), after=0.1)
    assert [(turn, body.forced) for turn, body in told.bodies(TurnCancelled)] == [("a", True)]
    assert any(isinstance(e, Abandon) for e in told.effects)
    assert told.starts == ["b"]


def test_an_answer_that_came_while_stopping_is_kept() -> None:
    told = Told()
    told.submit("a")
    told.tell(inputs.Cancel(turn_id="a"))
    told.report(inputs.Answer)
    assert [turn for turn, _ in told.bodies(TurnSettled)] == ["a"]


def test_an_old_attempt_cannot_speak() -> None:
    told = Told()
    told.submit("a")
    old = told.lane.holder
    assert old is not None
    told.tell(inputs.Rescue(turn_id="a"))
    before = told.lane
    with pytest.raises(Fenced):
        told.tell(inputs.Answer(turn_id="a", fence=old.fence))
    assert told.lane == before


def test_two_interruptions_are_rescued_the_third_asks_a_person() -> None:
    told = Told()
    told.submit("a")
    for _ in range(2):
        told.tell(inputs.Rescue(turn_id="a"))
        assert told.starts == ["a"]
    told.tell(inputs.Rescue(turn_id="a"))
    ((turn, parked),) = told.bodies(TurnParked)
    assert turn == "a"
    assert parked.needs["kind"] == "action_required"
    assert told.lane.phase is Phase.IDLE


def test_a_planned_stop_costs_no_budget_and_keeps_the_place() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    told.tell(inputs.Rescue(turn_id="a"))
    told.report(inputs.HandBack)
    assert told.waiting == ["a", "b"]
    assert told.lane.queue[0].rescues == 1
    told.tell(inputs.Tick())
    assert told.starts == ["a"]
    start = next(e for e in told.effects if isinstance(e, Start))
    assert start.why == "resumed"


def test_a_parked_turn_frees_the_lane_and_its_continuation_goes_first() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    told.submit("c")
    told.report(inputs.NeedPerson, needs={"kind": "approval"})
    assert told.starts == ["b"]
    told.tell(inputs.Decide(turn_id="a", decision={"decision": "approve"}))
    assert told.waiting == ["a", "c"]
    told.report(inputs.Answer)
    start = next(e for e in told.effects if isinstance(e, Start))
    assert (start.turn_id, start.why) == ("a", "continued")
    with pytest.raises(NotWaiting):
        told.tell(inputs.Decide(turn_id="c", decision={}))


def test_a_turn_that_holds_the_lane_while_it_waits_lets_nobody_by() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    told.report(inputs.NeedPerson, needs={"kind": "approval"}, hold=True)
    assert told.lane.phase is Phase.WAITING
    told.tell(inputs.Tick(), after=10_000.0)
    assert told.lane.phase is Phase.WAITING
    told.tell(inputs.Decide(turn_id="a", decision={"decision": "approve"}))
    assert told.starts == ["a"]


def test_what_was_taken_along_before_parking_ends_with_the_continuation() -> None:
    told = Told()
    told.submit("a")
    told.submit("s", Mode.STEER)
    told.report(inputs.TakeRider, rider_id="s")
    told.report(inputs.NeedPerson, needs={"kind": "approval"})
    assert not told.bodies(TurnSettled)
    told.tell(inputs.Decide(turn_id="a", decision={}))
    told.report(inputs.Answer)
    assert {turn for turn, _ in told.bodies(TurnSettled)} == {"a", "s"}


def test_a_rider_that_is_answered_by_the_previous_response_settles_after_the_gate() -> None:
    told = Told(Rules(evidence_gate_seconds=75.0))
    told.submit("a")
    for rider in ("r1", "r2"):
        told.submit(rider, Mode.STEER)
        told.report(inputs.TakeRider, rider_id=rider)
    told.submit("b")
    told.report(inputs.Answer, promote_riders=True)
    assert told.lane.holder is not None
    assert told.lane.holder.turn_id == "r1"
    told.tell(inputs.Tick(), after=74.9)
    assert told.lane.holder is not None
    assert told.lane.holder.turn_id == "r1", "not before the gate"
    told.tell(inputs.Tick(), after=0.1)
    ends = {turn: body.reason for turn, body in told.bodies(TurnSettled)}
    assert ends == dict.fromkeys(("r1", "r2"), "answered_by_previous_response")
    assert told.starts == ["b"]


def test_a_promoted_rider_with_new_evidence_is_not_settled_early() -> None:
    told = Told(Rules(evidence_gate_seconds=75.0))
    told.submit("a")
    told.submit("r", Mode.STEER)
    told.report(inputs.TakeRider, rider_id="r")
    told.report(inputs.Answer, promote_riders=True)
    told.report(inputs.Progress, after=74.0)
    told.tell(inputs.Tick(), after=500.0)
    assert told.lane.holder is not None
    assert told.lane.holder.turn_id == "r"


def test_the_backstop_counts_from_the_last_evidence_of_work() -> None:
    told = Told(Rules(backstop_seconds=1800.0))
    told.submit("a")
    told.submit("b")
    told.report(inputs.Accept, evidence={})
    told.report(inputs.Progress, after=1700.0)
    told.tell(inputs.Tick(), after=1799.9)
    assert told.lane.holder is not None
    assert told.lane.holder.turn_id == "a"
    told.tell(inputs.Tick(), after=0.1)
    ((turn, failed),) = told.bodies(TurnFailed)
    assert (turn, failed.failure.kind) == ("a", "backstop")
    assert "1800 s" in failed.failure.sentence
    assert told.starts == ["b"]


def test_the_hard_limit_is_named_as_time() -> None:
    told = Told(Rules(max_turn_seconds=60.0))
    told.submit("a")
    told.report(inputs.Progress, after=50.0)
    told.tell(inputs.Tick(), after=10.0)
    ((_, failed),) = told.bodies(TurnFailed)
    assert "time limit of 60 s" in failed.failure.sentence


def test_moving_deals_the_places_out_anew() -> None:
    told = Told()
    for turn in ("h", "a", "b", "c"):
        told.submit(turn)
    told.tell(inputs.Move(turn_id="c", before="a"))
    assert told.waiting == ["c", "a", "b"]
    assert len({body.place for _, body in told.bodies(TurnMoved)}) == 3
    told.tell(inputs.Move(turn_id="c", before=None))
    assert told.waiting == ["a", "b", "c"]
    with pytest.raises(NotPossible):
        told.tell(inputs.Move(turn_id="a", before="a"))


def test_send_now_of_a_waiting_turn_in_each_mode() -> None:
    told = Told()
    for turn in ("h", "a", "b", "c"):
        told.submit(turn)
    told.tell(inputs.SendNow(turn_id="c", mode=Mode.QUEUE))
    assert told.waiting == ["c", "a", "b"]
    told.tell(inputs.SendNow(turn_id="b", mode=Mode.STEER))
    assert [rider.slot.turn_id for rider in told.lane.riders] == ["b"]
    told.tell(inputs.SendNow(turn_id="a", mode=Mode.INTERRUPT))
    assert told.lane.phase is Phase.STOPPING
    told.report(inputs.Halt)
    assert told.starts == ["b"], "the rider that was not taken comes first, then who interrupted"


def test_send_now_runs_one_turn_of_a_paused_queue_and_leaves_it_paused() -> None:
    told = Told()
    told.tell(inputs.Pause())
    told.submit("a")
    told.submit("b")
    told.tell(inputs.SendNow(turn_id="b", mode=Mode.QUEUE))
    assert told.starts == ["b"]
    told.report(inputs.Answer)
    assert told.lane.phase is Phase.HELD
    assert told.waiting == ["a"]


def test_a_turn_that_was_taken_can_be_neither_edited_nor_taken_back() -> None:
    told = Told()
    told.submit("a")
    told.submit("s", Mode.STEER)
    told.report(inputs.TakeRider, rider_id="s")
    for told_input in (inputs.Edit(turn_id="s", parts=(Text("y"),)), inputs.Edit(turn_id="a", parts=())):
        with pytest.raises(NotWaiting):
            told.tell(told_input)
    with pytest.raises(TurnDecided):
        told.tell(inputs.Cancel(turn_id="s"))


def test_what_an_agent_has_in_its_own_queue_cannot_be_changed_and_returns_if_it_is_not_taken() -> None:
    told = Told()
    told.submit("a")
    told.report(inputs.Accept, evidence={})
    told.submit("b", Mode.STEER)
    told.submit("c", Mode.STEER)
    told.report(inputs.HandOver, rider_id="b", evidence={"via": "composer"})
    assert told.bodies(ReceiptMoved) == [("b", ReceiptMoved("accepted", {"via": "composer"}))]
    with pytest.raises(NotPossible, match="in its own queue"):
        told.tell(inputs.Edit(turn_id="b", parts=(Text("other"),)))
    with pytest.raises(NotPossible, match="in its own queue"):
        told.tell(inputs.Cancel(turn_id="b"))
    told.tell(inputs.Cancel(turn_id="c"))
    told.report(inputs.Fail, failure=FAILURE)
    assert [turn_id for turn_id, _ in told.bodies(SteerReturned)] == ["b"]
    assert told.starts == ["b"]
    with pytest.raises(Fenced):
        told.tell(inputs.HandOver(turn_id="a", fence=1, rider_id="b", evidence={}))


def test_a_retry_is_the_next_attempt_and_goes_first() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    told.tell(inputs.Retry(slot=Slot(turn_id="f", place=3, attempt=1, fence=2)))
    assert told.waiting == ["f", "b"]
    told.report(inputs.Answer)
    start = next(e for e in told.effects if isinstance(e, Start))
    assert (start.turn_id, start.attempt, start.fence, start.why) == ("f", 2, 3, "retried")


def test_deleting_stops_the_holder_and_starts_nobody_until_it_is_undone() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    told.tell(inputs.Close())
    told.report(inputs.Halt)
    assert told.lane.phase is Phase.HELD
    told.tell(inputs.Purge())
    assert [turn for turn, _ in told.bodies(TurnCancelled)] == ["b"]


def test_receipts_only_move_forward() -> None:
    told = Told()
    told.submit("a")
    told.report(inputs.Accept, evidence={"by": "x"})
    told.report(inputs.Evidence, state="confirmed", evidence={"row": 1})
    told.report(inputs.Accept, evidence={"by": "y"})
    assert not told.bodies(ReceiptMoved)
    told.tell(inputs.Rescue(turn_id="a"))
    told.report(inputs.Accept, evidence={"by": "z"})
    assert not told.bodies(ReceiptMoved)


def test_a_turn_that_was_never_accepted_has_a_failed_receipt_with_the_reason() -> None:
    told = Told()
    told.submit("a")
    told.report(inputs.Fail, failure=FAILURE)
    ((_, moved),) = told.bodies(ReceiptMoved)
    assert (moved.state, moved.evidence) == ("failed", {"reason": "The model failed."})


def test_a_question_that_nobody_decided_expires_at_its_time_and_the_turn_goes_on() -> None:
    told = Told()
    told.submit("a")
    told.submit("b")
    told.report(inputs.NeedPerson, needs={"kind": "approval", "expires_at": told.now + 31.0})
    told.report(inputs.Answer)
    assert wake_at(told.lane) == told.lane.parked[0].decide_until
    told.tell(inputs.Tick(), after=28.9)
    assert [slot.turn_id for slot in told.lane.parked] == ["a"]
    told.tell(inputs.Tick(), after=0.1)
    assert told.starts == ["a"]
    ((_, continued),) = told.bodies(TurnContinued)
    assert continued.decision == {"decision": "expired"}


def test_a_held_question_expires_too() -> None:
    told = Told()
    told.submit("a")
    told.report(inputs.NeedPerson, needs={"kind": "approval", "expires_at": told.now + 11.0}, hold=True)
    told.tell(inputs.Tick(), after=9.9)
    assert told.lane.phase is Phase.WAITING
    told.tell(inputs.Tick(), after=0.1)
    assert told.starts == ["a"]
