"""What a lane is: its phase, who holds it, who waits, who rides along, who is parked.

Each phase has only the data that is true in it: OFFERED, WORKING, STOPPING and WAITING have a holder,
IDLE and HELD have none. `check` states that and the other invariants; `step` asserts it each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from turnkeeper.conversation.turns import Mode, ReceiptState, Turn, TurnState

FIRST_PLACE: Final = 1 << 20
"""Places grow from here by one; a place before the head is one less. Only their order means something."""


class Phase(StrEnum):
    """What the lane as a whole does."""

    IDLE = "idle"
    """Nobody runs and nobody waits."""
    HELD = "held"
    """Nobody runs; the queue is paused until it is resumed."""
    OFFERED = "offered"
    """A turn holds the lane; its runner has not yet accepted it."""
    WORKING = "working"
    """A turn holds the lane and its runner has accepted it."""
    STOPPING = "stopping"
    """The holder was asked to stop; after the grace it is stopped without its help."""
    WAITING = "waiting"
    """The holder waits for a person and keeps the lane (agent setting parked = "hold")."""


RUNNING_PHASES: Final = frozenset({Phase.OFFERED, Phase.WORKING, Phase.STOPPING, Phase.WAITING})


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers a lane goes by (DESIGN section 5; all in config)."""

    queue_cap: int = 32
    evidence_gate_seconds: float = 75.0
    backstop_seconds: float = 1800.0
    max_turn_seconds: float | None = None
    stop_grace_seconds: float = 10.0
    rescues_max: int = 2


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that waits: in the queue, as a rider, or parked."""

    turn_id: str
    place: int
    mode: Mode = Mode.QUEUE
    attempt: int = 1
    fence: int = 0
    rescues: int = 0
    why: str = "promoted"
    """What its start will be called: promoted | retried | resumed | continued | rescued."""
    user_id: str = ""
    receipt: ReceiptState = ReceiptState.QUEUED
    decide_until: float | None = None
    """Parked: when the question that it waits with expires (never read as an answer)."""
    riders: tuple[Slot, ...] = ()
    """Riders it took along before it gave the lane back; they end with it."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that holds the lane."""

    turn_id: str
    attempt: int
    fence: int
    rescues: int
    since: float
    evidence_at: float
    """When the last evidence of work came; the backstop counts from here."""
    gate_until: float | None = None
    """A promoted rider must show evidence until then, else it was answered by the previous response."""
    stop_reason: str | None = None
    stop_until: float | None = None
    user_id: str = ""
    receipt: ReceiptState = ReceiptState.QUEUED
    decide_until: float | None = None
    """WAITING: when the question that it waits with expires."""


class Rider(msgspec.Struct, frozen=True, kw_only=True):
    """A steer that travels with the holder: waiting to be taken, or taken (then it ends with the holder)."""

    slot: Slot
    taken: bool = False


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """The lane of one conversation. `queue` is in running order: its first is position 1."""

    conversation_id: str
    phase: Phase = Phase.IDLE
    paused: str | None = None
    holder: Holder | None = None
    queue: tuple[Slot, ...] = ()
    riders: tuple[Rider, ...] = ()
    parked: tuple[Slot, ...] = ()
    rules: Rules = Rules()

    def position(self, turn_id: str) -> int | None:
        """1 for the next to run; None if it does not wait in the queue."""
        for index, slot in enumerate(self.queue):
            if slot.turn_id == turn_id:
                return index + 1
        return None


def resting(lane: Lane) -> Phase:
    """The phase of a lane without a holder."""
    return Phase.HELD if lane.paused is not None else Phase.IDLE


def check(lane: Lane) -> None:
    """Assert what must hold of every lane."""
    assert (lane.holder is not None) == (lane.phase in RUNNING_PHASES), lane
    if lane.holder is None:
        assert not lane.riders, lane
        assert lane.phase is resting(lane), lane
    assert (lane.phase is Phase.STOPPING) == (
        lane.holder is not None and lane.holder.stop_reason is not None
    ), lane
    # Written as one plain loop: this runs after every step, and most of its time went into building lists.
    turns = [rider.slot.turn_id for rider in lane.riders]
    if lane.holder is not None:
        turns.append(lane.holder.turn_id)
    before: int | None = None
    for slot in lane.queue:
        turns.append(slot.turn_id)
        if slot.riders:
            turns += [rider.turn_id for rider in slot.riders]
        assert before is None or before < slot.place, lane
        before = slot.place
    for slot in lane.parked:
        turns.append(slot.turn_id)
        if slot.riders:
            turns += [rider.turn_id for rider in slot.riders]
    assert len(turns) == len(set(turns)), lane


def wake_at(lane: Lane) -> float | None:
    """When the lane must be told the time again, whatever else happens; None: never."""
    holder = lane.holder
    times = [slot.decide_until for slot in lane.parked if slot.decide_until is not None]
    if holder is None:
        return min(times, default=None)
    if lane.phase is Phase.STOPPING:
        assert holder.stop_until is not None
        times.append(holder.stop_until)
    elif lane.phase is Phase.WAITING:
        if holder.decide_until is not None:
            times.append(holder.decide_until)
    else:
        times.append(holder.evidence_at + lane.rules.backstop_seconds)
        if holder.gate_until is not None:
            times.append(holder.gate_until)
        if lane.rules.max_turn_seconds is not None:
            times.append(holder.since + lane.rules.max_turn_seconds)
    return min(times, default=None)


def deadline_of(needs: dict[str, Any] | None) -> float | None:
    """When the question of a parked turn expires: `expires_at` of its needs."""
    at = (needs or {}).get("expires_at")
    return float(at) if isinstance(at, int | float) else None


def slot_of(turn: Turn, why: str = "promoted") -> Slot:
    """The slot of a stored turn."""
    return Slot(
        turn_id=turn.turn_id,
        place=turn.place,
        mode=turn.mode,
        attempt=turn.attempt,
        fence=turn.fence,
        rescues=turn.rescues,
        why=why,
        user_id=turn.user_id,
        receipt=turn.receipt.state,
        decide_until=deadline_of(turn.needs),
    )


def load(conversation_id: str, paused: str | None, turns: Sequence[Turn], now: float, rules: Rules) -> Lane:
    """The lane that the open `turns` describe. A running turn is WORKING until the dispatcher rescues it.

    A queue that waits although nobody runs and nothing is paused is started by the next Tick.
    """
    holder: Holder | None = None
    phase = Phase.HELD if paused is not None else Phase.IDLE
    queue: list[Slot] = []
    parked: list[Slot] = []
    taken: dict[str, list[Slot]] = {}
    waiting: dict[str, list[Slot]] = {}
    for turn in turns:
        if turn.parent is not None:
            group = taken if turn.state is TurnState.RUNNING else waiting
            group.setdefault(turn.parent, []).append(slot_of(turn))
        elif turn.state is TurnState.RUNNING or (turn.needs or {}).get("held"):
            assert holder is None, turn
            phase = Phase.WORKING if turn.state is TurnState.RUNNING else Phase.WAITING
            holder = Holder(
                turn_id=turn.turn_id,
                attempt=turn.attempt,
                fence=turn.fence,
                rescues=turn.rescues,
                since=turn.started_at or now,
                evidence_at=now,
                user_id=turn.user_id,
                receipt=turn.receipt.state,
                decide_until=deadline_of(turn.needs),
            )
        elif turn.state is TurnState.PARKED:
            parked.append(slot_of(turn, "continued"))
        else:
            queue.append(slot_of(turn, turn.reason or "promoted"))
    riders: tuple[Rider, ...] = ()
    if holder is not None:
        riders = (
            *[Rider(slot=slot, taken=True) for slot in taken.pop(holder.turn_id, ())],
            *[Rider(slot=slot) for slot in waiting.pop(holder.turn_id, ())],
        )
    known = {slot.turn_id for slot in (*queue, *parked)}
    for group in (waiting, taken):
        for parent, slots in group.items():
            if group is waiting or parent not in known:
                queue += slots  # their turn is gone: they run by themselves, never lost (G5)

    def with_riders(slot: Slot) -> Slot:
        return replace(slot, riders=tuple(taken.get(slot.turn_id, ())))

    return Lane(
        conversation_id=conversation_id,
        phase=phase,
        paused=paused,
        holder=holder,
        queue=tuple(sorted(map(with_riders, queue), key=lambda slot: slot.place)),
        riders=riders,
        parked=tuple(map(with_riders, parked)),
        rules=rules,
    )
