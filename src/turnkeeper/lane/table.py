"""The table: which input fits a lane of which phase, what it does, and which phases may follow.

Theory of operation. A lane without a holder is IDLE, or HELD while it is paused. A submission to an idle
lane starts at once: the lane is OFFERED until the runner accepts, then WORKING. Stop makes it STOPPING;
the runner halts, or the grace runs out. A turn that needs a person gives the lane back, or keeps it
WAITING. Whatever ends a turn also starts the next one: that is why nearly every row of a busy lane may
lead to OFFERED (the next turn), HELD (it is paused) or IDLE (nobody waits). A taken rider that becomes
the holder is WORKING at once: its CLI has it already.

An absent row is the error `OutOfPlace`: the lane stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from turnkeeper.errors import OutOfPlace
from turnkeeper.lane import inputs as i
from turnkeeper.lane import moves as m
from turnkeeper.lane.effects import Effect
from turnkeeper.lane.state import Lane, Phase, check

IDLE, HELD = Phase.IDLE, Phase.HELD
OFFERED, WORKING, STOPPING, WAITING = Phase.OFFERED, Phase.WORKING, Phase.STOPPING, Phase.WAITING


class Row(msgspec.Struct, frozen=True):
    """What an input does to a lane of a phase, and the phases it may lead to."""

    move: Callable[[Lane, Any, float, list[Effect]], Lane]
    leads_to: frozenset[Phase]


def _rows(
    kind: type[i.Input],
    move: Callable[[Lane, Any, float, list[Effect]], Lane],
    leads: dict[Phase, tuple[Phase, ...]],
) -> dict[tuple[Phase, type[i.Input]], Row]:
    return {(phase, kind): Row(move, frozenset(targets)) for phase, targets in leads.items()}


_NEXT = (IDLE, HELD, OFFERED)
"""What follows an end: nobody, a paused queue, or the next turn."""

_STAY: dict[Phase, tuple[Phase, ...]] = {phase: (phase,) for phase in Phase}

TABLE: Final[dict[tuple[Phase, type[i.Input]], Row]] = {
    **_rows(
        i.Submit,
        m.submit,
        {
            IDLE: (IDLE, OFFERED),
            HELD: (HELD,),
            OFFERED: (OFFERED, STOPPING),
            WORKING: (WORKING, STOPPING),
            STOPPING: (STOPPING,),
            WAITING: (WAITING, *_NEXT),
        },
    ),
    **_rows(
        i.Cancel,
        m.cancel,
        {
            IDLE: (IDLE,),
            HELD: (HELD,),
            OFFERED: (OFFERED, STOPPING),
            WORKING: (WORKING, STOPPING),
            STOPPING: (STOPPING,),
            WAITING: (WAITING, *_NEXT),
        },
    ),
    **_rows(i.Edit, m.edit, _STAY),
    **_rows(i.Move, m.move, _STAY),
    **_rows(
        i.SendNow,
        m.send_now,
        {
            IDLE: (OFFERED,),
            HELD: (OFFERED,),
            OFFERED: (OFFERED, STOPPING),
            WORKING: (WORKING, STOPPING),
            STOPPING: (STOPPING,),
            WAITING: (WAITING, *_NEXT),
        },
    ),
    **_rows(i.Pause, m.pause, {**_STAY, IDLE: (HELD,)}),
    **_rows(i.Resume, m.resume, {**_STAY, HELD: (IDLE, OFFERED)}),
    **_rows(i.Retry, m.retry, {**_STAY, IDLE: (OFFERED,)}),
    **_rows(
        i.Decide,
        m.decide,
        {**_STAY, IDLE: (OFFERED,), WAITING: (OFFERED, WAITING)},
    ),
    **_rows(
        i.Close,
        m.close,
        {
            IDLE: (HELD,),
            HELD: (HELD,),
            OFFERED: (STOPPING,),
            WORKING: (STOPPING,),
            STOPPING: (STOPPING,),
            WAITING: (HELD,),
        },
    ),
    **_rows(i.Purge, m.purge, _STAY),
    **_rows(
        i.Accept,
        m.accept,
        {OFFERED: (WORKING,), WORKING: (WORKING,), STOPPING: (STOPPING,)},
    ),
    **_rows(
        i.Evidence,
        m.evidence,
        {OFFERED: (OFFERED, WORKING), WORKING: (WORKING,), STOPPING: (STOPPING,)},
    ),
    **_rows(
        i.Progress,
        m.progress,
        {OFFERED: (OFFERED,), WORKING: (WORKING,), STOPPING: (STOPPING,)},
    ),
    **_rows(i.TakeRider, m.take_rider, {OFFERED: (OFFERED,), WORKING: (WORKING,)}),
    **_rows(i.HandOver, m.hand_over, {OFFERED: (OFFERED,), WORKING: (WORKING,), STOPPING: (STOPPING,)}),
    **_rows(
        i.NeedPerson,
        m.need_person,
        {OFFERED: (WAITING, *_NEXT), WORKING: (WAITING, *_NEXT)},
    ),
    **_rows(
        i.Answer,
        m.answer,
        {
            OFFERED: (WORKING, *_NEXT),
            WORKING: (WORKING, *_NEXT),
            STOPPING: (WORKING, *_NEXT),
        },
    ),
    **_rows(i.Fail, m.fail, {OFFERED: _NEXT, WORKING: _NEXT, STOPPING: _NEXT}),
    **_rows(i.Halt, m.halt, {STOPPING: _NEXT}),
    **_rows(
        i.HandBack,
        m.hand_back,
        {OFFERED: (IDLE, HELD), WORKING: (IDLE, HELD), STOPPING: (IDLE, HELD)},
    ),
    **_rows(
        i.Rescue,
        m.rescue,
        {OFFERED: _NEXT, WORKING: _NEXT, STOPPING: _NEXT},
    ),
    **_rows(i.Reattach, m.reattach, {OFFERED: (OFFERED,), WORKING: (WORKING,)}),
    **_rows(
        i.Tick,
        m.tick,
        {
            IDLE: (IDLE, OFFERED),
            HELD: (HELD,),
            OFFERED: (OFFERED, IDLE, HELD),
            WORKING: (WORKING, *_NEXT),
            STOPPING: (STOPPING, *_NEXT),
            WAITING: (WAITING, OFFERED),
        },
    ),
    **_rows(i.LateAnswer, m.late_answer, _STAY),
}


def step(lane: Lane, told: i.Input, now: float) -> tuple[Lane, list[Effect]]:
    """Tell the lane what happened at `now` (Unix seconds); returns the next lane and what must follow.

    Journal the Journal and Start effects in one commit, in order, before the next step; then perform the
    rest in order. Each of those is safe to repeat. Raises OutOfPlace for an absent row, and what the move
    says otherwise (QueueFull, NotWaiting, NotPossible, TurnDecided, Fenced); the lane is then unchanged.
    """
    row = TABLE.get((lane.phase, type(told)))
    if row is None:
        raise OutOfPlace(input=type(told).__name__, phase=str(lane.phase))
    effects: list[Effect] = []
    after = row.move(lane, told, now, effects)
    assert after.phase in row.leads_to, (lane.phase, type(told).__name__, after.phase)
    check(after)
    return after, effects
