"""One turn on a retained CLI, as a value: launch, compose, offer, watch, end.

`step(state, input, now)` answers with the next state and the effects that must follow. It knows no clock, no pane,
no file and no dispatcher: the shell (`retained.runner`) tells it what it saw, and performs what it asks for, in order.

Two things go on at once, each with a table of its own: the *turn* (is its response coming, has it ended?) and the
*hand* (a text on its way into the composer: the turn's own, or a rider's). Read `state`, `inputs`, `effects`, then
`table`; `turn` and `hand` hold what the rows do.
"""

from __future__ import annotations

from turnkeeper.retained.machine.state import (
    Hand,
    HandPhase,
    Item,
    Known,
    State,
    Timing,
    TurnPhase,
    begin,
    wake_at,
)
from turnkeeper.retained.machine.table import HAND_TABLE, TURN_TABLE, step

__all__ = [
    "HAND_TABLE",
    "TURN_TABLE",
    "Hand",
    "HandPhase",
    "Item",
    "Known",
    "State",
    "Timing",
    "TurnPhase",
    "begin",
    "step",
    "wake_at",
]
