"""How a turn ends: with an answer, a failure, a stop, or a question to a person."""

from __future__ import annotations

from msgspec.structs import replace

from turnkeeper.conversation.turns import Failure
from turnkeeper.retained.machine import effects as e
from turnkeeper.retained.machine.state import State, TurnPhase

Effects = list[e.Effect]


def failure(kind: str, sentence: str, *, retryable: bool, seconds: float | None = None) -> Failure:
    """A failure of a retained turn."""
    return Failure(
        kind=kind,
        retryable=retryable,
        sentence=sentence,
        measured_seconds=None if seconds is None else round(seconds, 3),
    )


def over(state: State, effect: e.End, effects: Effects) -> State:
    """The turn is over for this run."""
    if state.hold:
        effects.append(e.Release(turn_id=state.turn_id))
    effects.append(replace(effect, leftover=state.leftover))
    return replace(state, phase=TurnPhase.ENDED, hand=None, hold="", leftover=())


def fail(state: State, why: Failure, now: float, effects: Effects) -> State:
    """The turn failed. A stop that was asked for wins: then it stopped."""
    if state.stop_reason:
        return over(state, e.End(kind="stopped", reason=state.stop_reason), effects)
    return over(state, e.End(kind="failed", reason=why.kind, failure=why), effects)


def answered(state: State, effects: Effects, reason: str = "answered") -> State:
    """The turn is answered."""
    return over(state, e.End(kind="answered", reason=reason), effects)


def stopped(state: State, effects: Effects) -> State:
    """The turn stopped, as it was asked to."""
    return over(state, e.End(kind="stopped", reason=state.stop_reason), effects)
