"""The two tables: what each input does in each phase. An absent row is the error `OutOfPlace`.

Theory of operation. A turn is OPENING until its pane is there, then DELIVERING until the transcript holds its text,
WORKING until its response ends, SETTLING while the last rows are being written. A turn that was in the CLI's own queue
when the response before it ended begins GATED. STOPPING interrupts. While it is DELIVERING (its own text) or WORKING
(a rider's), a hand may hold a text: LOOKING, HOLDING, CLEARING, PASTING, ENTERING, ASKING. Each input goes to the
turn's row first, then to the hand's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from turnkeeper.errors import OutOfPlace
from turnkeeper.retained.machine import hand as h
from turnkeeper.retained.machine import inputs as i
from turnkeeper.retained.machine import turn as t
from turnkeeper.retained.machine.effects import Effect
from turnkeeper.retained.machine.state import HandPhase, State, TurnPhase

Move = Callable[[State, Any, float, list[Effect]], State]

OPENING, DELIVERING, GATED = TurnPhase.OPENING, TurnPhase.DELIVERING, TurnPhase.GATED
WORKING, SETTLING, STOPPING = TurnPhase.WORKING, TurnPhase.SETTLING, TurnPhase.STOPPING
LIVE = (DELIVERING, GATED, WORKING, SETTLING, STOPPING)


def _rows(kind: type[i.Input], move: Move, *phases: TurnPhase) -> dict[tuple[TurnPhase, type[i.Input]], Move]:
    return {(phase, kind): move for phase in phases}


TURN_TABLE: Final[dict[tuple[TurnPhase, type[i.Input]], Move]] = {
    **_rows(i.Opened, t.opened, OPENING),
    **_rows(i.CannotOpen, t.cannot_open, OPENING),
    **_rows(i.Told, t.told, OPENING, *LIVE),
    **_rows(i.Seen, t.seen, *LIVE),
    **_rows(i.Seen, t.stay, OPENING),
    **_rows(i.Missed, t.missed, *LIVE),
    **_rows(i.Missed, t.stay, OPENING),
    **_rows(i.Gone, t.gone, *LIVE),
    **_rows(i.Trouble, t.trouble, OPENING, *LIVE),
    **_rows(i.Pasted, t.stay, DELIVERING, WORKING, SETTLING, STOPPING),
    **_rows(i.PasteFailed, t.stay, DELIVERING, WORKING, SETTLING, STOPPING),
    **_rows(i.Pressed, t.stay, DELIVERING, WORKING, SETTLING, STOPPING),
    **_rows(i.StopAsked, t.stop, OPENING, DELIVERING, GATED, WORKING),
    **_rows(i.StopAsked, t.stop_settling, SETTLING, STOPPING),
    **_rows(i.Steer, t.steer, OPENING, *LIVE),
    **_rows(i.Unsteer, t.unsteer, OPENING, *LIVE),
    **_rows(i.Decided, t.decided, OPENING, *LIVE),
    **_rows(i.Tick, t.tick, OPENING, *LIVE),
}

LOOKING, HOLDING, CLEARING = HandPhase.LOOKING, HandPhase.HOLDING, HandPhase.CLEARING
PASTING, ENTERING, ASKING = HandPhase.PASTING, HandPhase.ENTERING, HandPhase.ASKING

HAND_TABLE: Final[dict[tuple[HandPhase, type[i.Input]], Move]] = {
    (LOOKING, i.Seen): h.look,
    (LOOKING, i.Tick): h.waiting_too_long,
    (HOLDING, i.Seen): h.look,
    (HOLDING, i.Tick): h.stay,
    (CLEARING, i.Seen): h.stay,
    (CLEARING, i.Pressed): h.cleared,
    (CLEARING, i.Tick): h.waiting_too_long,
    (PASTING, i.Seen): h.stay,
    (PASTING, i.Pasted): h.pasted,
    (PASTING, i.PasteFailed): h.paste_failed,
    (PASTING, i.Tick): h.waiting_too_long,
    (ENTERING, i.Seen): h.press_enter,
    (ENTERING, i.Pressed): h.entered,
    (ENTERING, i.PasteFailed): h.paste_failed,
    (ENTERING, i.Tick): h.stay,
    (ASKING, i.Seen): h.ask_screen,
    (ASKING, i.Tick): h.ask_time,
}

ANSWERS: Final = frozenset({i.Pasted, i.PasteFailed, i.Pressed})
"""Inputs that answer an effect of the hand: without a hand they answer nobody, which is no error (it was stopped)."""

HAND_INPUTS: Final = frozenset({kind for _, kind in HAND_TABLE})


def step(state: State, told: i.Input, now: float) -> tuple[State, list[Effect]]:
    """Tell the turn what happened at `now` (Unix seconds); the next state, and what must follow, in order.

    Raises OutOfPlace for an absent row; the state is then unchanged.
    """
    kind = type(told)
    move = TURN_TABLE.get((state.phase, kind))
    if move is None:
        raise OutOfPlace(input=kind.__name__, phase=str(state.phase))
    effects: list[Effect] = []
    hand = state.hand
    after = move(state, told, now, effects)
    if after.hand is not None and after.hand is hand and kind in HAND_INPUTS:
        then = HAND_TABLE.get((after.hand.phase, kind))
        if then is None:
            raise OutOfPlace(input=kind.__name__, phase=str(after.hand.phase))
        after = then(after, told, now, effects)
    return after, effects
