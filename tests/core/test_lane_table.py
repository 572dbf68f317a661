"""The table of the lane: every phase with every input, the present rows and the absent ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from turnkeeper.conversation.events import Submitted
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Failure, Mode, Principal, Request
from turnkeeper.errors import NotWaiting, OutOfPlace
from turnkeeper.lane import TABLE, Holder, Lane, Phase, Slot, inputs, step
from turnkeeper.lane.diagram import mermaid, page
from turnkeeper.lane.inputs import INPUTS
from turnkeeper.lane.state import Rider, check

NOW = 1000.0


def lane_in(phase: Phase) -> Lane:
    """A lane of `phase` in which everything that can wait does: t1 holds, r1 rides, q1 q2 wait, p1 is parked."""
    holder = Holder(turn_id="t1", attempt=1, fence=3, rescues=0, since=900.0, evidence_at=990.0)
    if phase is Phase.STOPPING:
        holder = msgspec.structs.replace(holder, stop_reason="cancelled", stop_until=1010.0)
    held = phase in (Phase.IDLE, Phase.HELD)
    lane = Lane(
        conversation_id="c",
        phase=phase,
        paused="asked" if phase is Phase.HELD else None,
        holder=None if held else holder,
        riders=() if held else (Rider(slot=Slot(turn_id="r1", place=1)),),
        queue=() if phase is Phase.IDLE else (Slot(turn_id="q1", place=5), Slot(turn_id="q2", place=6)),
        parked=(Slot(turn_id="p1", place=2, why="continued"),),
    )
    check(lane)
    return lane


def some(kind: type[inputs.Input]) -> inputs.Input:
    """An input of `kind` that names turns of `lane_in`."""
    request = Request(agent="demo", parts=(Text("x"),), principal=Principal(user_id="u"))
    body = Submitted(submission_id="s", turn_id="n1", key="k", fingerprint="f", request=request)
    at = {"turn_id": "t1", "fence": 3}
    made = {
        inputs.Submit: lambda: inputs.Submit(body=body, mode=Mode.QUEUE, user_id="u"),
        inputs.Cancel: lambda: inputs.Cancel(turn_id="p1"),
        inputs.Edit: lambda: inputs.Edit(turn_id="q1", parts=(Text("y"),)),
        inputs.Move: lambda: inputs.Move(turn_id="q2", before="q1"),
        inputs.SendNow: lambda: inputs.SendNow(turn_id="q2", mode=Mode.QUEUE),
        inputs.Pause: inputs.Pause,
        inputs.Resume: inputs.Resume,
        inputs.Retry: lambda: inputs.Retry(slot=Slot(turn_id="f1", place=0, fence=1)),
        inputs.Decide: lambda: inputs.Decide(turn_id="p1", decision={"choice": "yes"}),
        inputs.Close: inputs.Close,
        inputs.Purge: inputs.Purge,
        inputs.Accept: lambda: inputs.Accept(evidence={}, **at),
        inputs.Evidence: lambda: inputs.Evidence(state="confirmed", evidence={}, **at),
        inputs.Progress: lambda: inputs.Progress(**at),
        inputs.TakeRider: lambda: inputs.TakeRider(rider_id="r1", **at),
        inputs.HandOver: lambda: inputs.HandOver(rider_id="r1", evidence={}, **at),
        inputs.NeedPerson: lambda: inputs.NeedPerson(needs={"kind": "approval"}, **at),
        inputs.Answer: lambda: inputs.Answer(**at),
        inputs.Fail: lambda: inputs.Fail(failure=Failure("server", True, "x"), **at),
        inputs.Halt: lambda: inputs.Halt(**at),
        inputs.HandBack: lambda: inputs.HandBack(**at),
        inputs.Rescue: lambda: inputs.Rescue(turn_id="t1"),
        inputs.Reattach: lambda: inputs.Reattach(turn_id="t1"),
        inputs.Tick: inputs.Tick,
        inputs.LateAnswer: lambda: inputs.LateAnswer(turn_id="old", text="late", state="failed"),
    }
    return made[kind]()


PAIRS = [(phase, kind) for phase in Phase for kind in INPUTS]


@pytest.mark.parametrize(("phase", "kind"), [pair for pair in PAIRS if pair not in TABLE])
def test_an_absent_row_is_the_error_and_leaves_the_lane(phase: Phase, kind: type[inputs.Input]) -> None:
    lane = lane_in(phase)
    with pytest.raises(OutOfPlace) as caught:
        step(lane, some(kind), NOW)
    assert kind.__name__ in caught.value.sentence
    assert str(phase) in caught.value.sentence
    assert lane == lane_in(phase)


@pytest.mark.parametrize(("phase", "kind"), [pair for pair in PAIRS if pair in TABLE])
def test_a_present_row_leads_where_it_says(phase: Phase, kind: type[inputs.Input]) -> None:
    lane = lane_in(phase)
    if phase is Phase.IDLE and kind in (inputs.Edit, inputs.Move, inputs.SendNow):
        with pytest.raises(NotWaiting):  # nobody waits there whom it could be about
            step(lane, some(kind), NOW)
        return
    after, _ = step(lane, some(kind), NOW)
    assert after.phase in TABLE[(phase, kind)].leads_to
    check(after)


def test_every_input_has_a_row_somewhere() -> None:
    assert {kind for _, kind in TABLE} == set(INPUTS)
    assert set(inputs.Input.__subclasses__()) - {inputs.Reported} | set(
        inputs.Reported.__subclasses__()
    ) == set(INPUTS)


def test_the_page_of_the_lane_is_drawn_from_the_table() -> None:
    written = (Path(__file__).parents[2] / "docs" / "lane.md").read_text()
    assert written == page(), "docs/lane.md is old: run `python -m turnkeeper.lane.diagram > docs/lane.md`"
    assert "stateDiagram-v2" in mermaid()
