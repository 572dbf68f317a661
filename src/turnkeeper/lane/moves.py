"""What each row of the table does: one function per input, given a lane of a phase that allows it.

A move gets the lane, the input, the time, and the list of effects to add to; it returns the next lane.
It raises the error that whoever sent the input shall see; then nothing happened.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from turnkeeper.conversation.events import (
    LanePaused,
    LaneResumed,
    LateAnswered,
    ReceiptMoved,
    SteerReturned,
    SteerTaken,
    TurnCancelled,
    TurnContinued,
    TurnEdited,
    TurnFailed,
    TurnMoved,
    TurnParked,
    TurnRequeued,
    TurnSettled,
)
from turnkeeper.conversation.turns import RECEIPT_MOVES, Failure, Mode, ReceiptState
from turnkeeper.errors import Fenced, NotPossible, NotWaiting, QueueFull, TurnDecided
from turnkeeper.lane import inputs as i
from turnkeeper.lane.effects import Abandon, Effect, Interrupt, Journal, RiderWaits, Say, Start
from turnkeeper.lane.state import FIRST_PLACE, Holder, Lane, Phase, Rider, Slot, deadline_of, resting

Effects = list[Effect]

EXPIRED: dict[str, Any] = {"decision": "expired"}
"""What a parked turn goes on with when nobody decided in time; it is never read as a yes or a no (G11)."""


# --- places


def _behind(lane: Lane) -> int:
    return lane.queue[-1].place + 1 if lane.queue else FIRST_PLACE


def _ahead(lane: Lane) -> int:
    return lane.queue[0].place - 1 if lane.queue else FIRST_PLACE


def _after_interrupts(queue: tuple[Slot, ...]) -> int:
    """How many at the head came to interrupt: they keep their order among each other."""
    for index, slot in enumerate(queue):
        if slot.mode is not Mode.INTERRUPT:
            return index
    return len(queue)


def _reorder(lane: Lane, order: list[Slot], actor: str, effects: Effects) -> tuple[Slot, ...]:
    """`order` with the places dealt out anew; a TurnMoved for each turn whose place changed."""
    places = sorted(slot.place for slot in order)
    dealt: list[Slot] = []
    for slot, place in zip(order, places, strict=True):
        if slot.place != place:
            effects.append(Journal(body=TurnMoved(place), turn_id=slot.turn_id, actor=actor))
        dealt.append(replace(slot, place=place))
    return tuple(dealt)


# --- receipts


def _move_receipt(
    now_is: ReceiptState,
    to: ReceiptState,
    evidence: dict[str, Any],
    turn_id: str,
    attempt: int,
    actor: str,
    effects: Effects,
) -> ReceiptState:
    """Journal that a receipt moved, if that is forward (G14); returns the receipt as it is then."""
    if to not in RECEIPT_MOVES[now_is]:
        return now_is
    effects.append(Journal(body=ReceiptMoved(to, evidence), turn_id=turn_id, attempt=attempt, actor=actor))
    return to


def _close(
    end: Any, turn_id: str, attempt: int, receipt: ReceiptState, effects: Effects, actor: str = "turnkeeper"
) -> None:
    """Journal the end of a turn, and what it means for a receipt that was still open."""
    effects.append(Journal(body=end, turn_id=turn_id, attempt=attempt, actor=actor))
    if isinstance(end, TurnSettled):
        evidence: dict[str, Any] = {"settled": end.reason}
        if end.by is not None:
            evidence["by"] = end.by
        _move_receipt(receipt, ReceiptState.CONFIRMED, evidence, turn_id, attempt, actor, effects)
    elif receipt is ReceiptState.QUEUED:
        reason = end.failure.sentence if isinstance(end, TurnFailed) else end.reason
        _move_receipt(receipt, ReceiptState.FAILED, {"reason": reason}, turn_id, attempt, actor, effects)


# --- beginning and end


def promote(lane: Lane, now: float, effects: Effects) -> Lane:
    """Start the head of a free lane, unless it is paused."""
    assert lane.holder is None
    if lane.paused is not None or not lane.queue:
        return replace(lane, phase=resting(lane))
    head, *rest = lane.queue
    return _start(replace(lane, queue=tuple(rest)), head, now, effects)


def _start(lane: Lane, slot: Slot, now: float, effects: Effects) -> Lane:
    fence = slot.fence + 1
    effects.append(Start(turn_id=slot.turn_id, attempt=slot.attempt, fence=fence, why=slot.why))
    holder = Holder(
        turn_id=slot.turn_id,
        attempt=slot.attempt,
        fence=fence,
        rescues=slot.rescues,
        since=now,
        evidence_at=now,
        user_id=slot.user_id,
        receipt=slot.receipt,
    )
    riders = (
        *[Rider(slot=rider, taken=True) for rider in slot.riders],
        *[rider for rider in lane.riders if not rider.taken],
    )
    return replace(lane, phase=Phase.OFFERED, holder=holder, riders=riders)


def _slot_of_holder(lane: Lane, place: int, why: str) -> Slot:
    """The holder as one who waits again, with the riders it took."""
    holder = lane.holder
    assert holder is not None
    return Slot(
        turn_id=holder.turn_id,
        place=place,
        attempt=holder.attempt,
        fence=holder.fence,
        rescues=holder.rescues,
        why=why,
        user_id=holder.user_id,
        receipt=holder.receipt,
        riders=tuple(rider.slot for rider in lane.riders if rider.taken),
    )


def _return_riders(lane: Lane, effects: Effects) -> Lane:
    """Riders that were not taken become the next turns, in their order, before everybody else."""
    waiting = [rider.slot for rider in lane.riders if not rider.taken]
    place = _ahead(lane) - len(waiting) + 1
    returned: list[Slot] = []
    for index, slot in enumerate(waiting):
        effects.append(Journal(body=SteerReturned(place + index), turn_id=slot.turn_id))
        returned.append(replace(slot, place=place + index))
    return replace(lane, queue=(*returned, *lane.queue), riders=tuple(r for r in lane.riders if r.taken))


def _end(lane: Lane, end: Any, now: float, effects: Effects, *, rider_end: Any = None) -> Lane:
    """Journal the holder's end and that of the riders it took, free the lane, start the next."""
    holder = lane.holder
    assert holder is not None
    _close(end, holder.turn_id, holder.attempt, holder.receipt, effects)
    lane = _return_riders(lane, effects)
    for rider in lane.riders:
        slot = rider.slot
        _close(rider_end or end, slot.turn_id, slot.attempt, slot.receipt, effects)
    return promote(replace(lane, holder=None, riders=(), phase=Phase.IDLE), now, effects)


def _fail(lane: Lane, failure: Failure, now: float, effects: Effects) -> Lane:
    return _end(lane, TurnFailed(failure), now, effects)


def _holder(lane: Lane, told: i.Reported) -> Holder:
    holder = lane.holder
    if holder is None or holder.turn_id != told.turn_id or holder.fence != told.fence:
        raise Fenced(turn_id=told.turn_id)
    return holder


def _pause(lane: Lane, reason: str, actor: str, effects: Effects) -> Lane:
    if lane.paused is not None:
        return lane
    effects.append(Journal(body=LanePaused(reason), actor=actor))
    return replace(lane, paused=reason, phase=Phase.HELD if lane.holder is None else lane.phase)


# --- producers and people


def submit(lane: Lane, told: i.Submit, now: float, effects: Effects) -> Lane:
    """Store a submission: it starts at once, waits, rides along, or takes the holder's place."""
    body = told.body
    mode = told.mode
    slot = Slot(turn_id=body.turn_id, place=_behind(lane), mode=mode, user_id=told.user_id)
    waiting = len(lane.queue) + sum(not rider.taken for rider in lane.riders)
    starts = lane.phase is Phase.IDLE and not lane.queue
    if not starts and waiting >= lane.rules.queue_cap:
        raise QueueFull(cap=lane.rules.queue_cap)
    if mode is Mode.STEER and lane.phase in (Phase.OFFERED, Phase.WORKING):
        assert lane.holder is not None
        holder_id = lane.holder.turn_id
        effects += (
            Journal(
                body=replace(body, place=slot.place, parent=holder_id),
                turn_id=slot.turn_id,
                attempt=1,
                actor=told.actor,
            ),
            RiderWaits(turn_id=holder_id, rider_id=slot.turn_id),
            Say(turn_id=slot.turn_id, outcome="steered", position=None),
        )
        return replace(lane, riders=(*lane.riders, Rider(slot=slot)))
    if starts:
        effects += (
            Journal(
                body=replace(body, place=slot.place),
                turn_id=slot.turn_id,
                attempt=1,
                actor=told.actor,
            ),
            Say(turn_id=slot.turn_id, outcome="started", position=None),
        )
        return _start(lane, slot, now, effects)
    if mode is not Mode.INTERRUPT:
        position = len(lane.queue) + 1
        effects += (
            Journal(
                body=replace(body, place=slot.place, position=position),
                turn_id=slot.turn_id,
                attempt=1,
                actor=told.actor,
            ),
            Say(turn_id=slot.turn_id, outcome="queued", position=position),
        )
        return replace(lane, queue=(*lane.queue, slot))
    order = list(lane.queue)
    index = _after_interrupts(lane.queue)
    order.insert(index, slot)
    # The newcomer's place goes into its own event; only the others' places are moves.
    moves: Effects = []
    queue = _reorder(lane, order, told.actor, moves)
    place = queue[index].place
    effects.append(
        Journal(
            body=replace(body, place=place, position=index + 1),
            turn_id=slot.turn_id,
            attempt=1,
            actor=told.actor,
        )
    )
    effects += [m for m in moves if not (isinstance(m, Journal) and m.turn_id == slot.turn_id)]
    effects.append(Say(turn_id=slot.turn_id, outcome="queued", position=index + 1))
    lane = replace(lane, queue=queue)
    if lane.holder is not None:
        return _stop(lane, "interrupted", now, effects)
    return lane


def _stop(lane: Lane, reason: str, now: float, effects: Effects) -> Lane:
    """Ask the holder to stop; a holder that waits for a person has no runner and ends at once."""
    holder = lane.holder
    assert holder is not None
    if lane.phase is Phase.STOPPING:
        return lane
    if lane.phase is Phase.WAITING:
        return _end(lane, TurnCancelled(reason), now, effects)
    effects.append(Interrupt(turn_id=holder.turn_id, fence=holder.fence, reason=reason))
    stopping = replace(
        holder, stop_reason=reason, stop_until=now + lane.rules.stop_grace_seconds, gate_until=None
    )
    return replace(lane, phase=Phase.STOPPING, holder=stopping)


def cancel(lane: Lane, told: i.Cancel, now: float, effects: Effects) -> Lane:
    """Stop the holder, or take a waiting or parked turn back."""
    turn_id = told.turn_id
    if lane.holder is not None and lane.holder.turn_id == turn_id:
        if lane.phase is Phase.STOPPING:
            return lane
        if told.pause and (lane.queue or any(not r.taken for r in lane.riders)):
            lane = _pause(lane, "stopped", told.actor, effects)
        return _stop(lane, told.reason, now, effects)
    for rider in lane.riders:
        if rider.slot.turn_id == turn_id:
            if rider.taken:
                raise TurnDecided(state="running", turn_id=turn_id)
            _still_ours(rider.slot)
            _cancel_slot(rider.slot, told.reason, told.actor, effects)
            return replace(lane, riders=tuple(r for r in lane.riders if r.slot.turn_id != turn_id))
    for slot in (*lane.queue, *lane.parked):
        if slot.turn_id == turn_id:
            _still_ours(slot)
            _cancel_slot(slot, told.reason, told.actor, effects)
            return replace(
                lane,
                queue=tuple(s for s in lane.queue if s is not slot),
                parked=tuple(s for s in lane.parked if s is not slot),
            )
    raise NotWaiting(turn_id=turn_id)


def _still_ours(slot: Slot) -> None:
    """Refuse to change what an agent's own queue holds: it may be answered at any moment."""
    if slot.fence == 0 and slot.receipt is not ReceiptState.QUEUED:
        raise NotPossible(
            why="The agent has this message in its own queue already; stop the running turn to take it back."
        )


def _cancel_slot(slot: Slot, reason: str, actor: str, effects: Effects) -> None:
    for one in (slot, *slot.riders):
        _close(TurnCancelled(reason), one.turn_id, one.attempt, one.receipt, effects, actor)


def _waiting(lane: Lane, turn_id: str) -> Slot:
    """The slot of a turn that can still be changed: queued, or a rider nobody took."""
    for slot in lane.queue:
        if slot.turn_id == turn_id:
            return slot
    for rider in lane.riders:
        if rider.slot.turn_id == turn_id and not rider.taken:
            return rider.slot
    raise NotWaiting(turn_id=turn_id)


def edit(lane: Lane, told: i.Edit, now: float, effects: Effects) -> Lane:
    """Change the words of a message that waits. A turn that ran before keeps the words it ran with."""
    slot = _waiting(lane, told.turn_id)
    if slot.fence > 0:
        raise NotPossible(why="This turn has run before; its message is in the history already.")
    _still_ours(slot)
    effects.append(Journal(body=TurnEdited(told.parts), turn_id=told.turn_id, actor=told.actor))
    return lane


def move(lane: Lane, told: i.Move, now: float, effects: Effects) -> Lane:
    """Give a queued turn another place."""
    order = [slot for slot in lane.queue if slot.turn_id != told.turn_id]
    moved = [slot for slot in lane.queue if slot.turn_id == told.turn_id]
    if not moved:
        raise NotWaiting(turn_id=told.turn_id)
    if told.before == told.turn_id:
        raise NotPossible(why="A turn cannot be moved before itself.")
    index = len(order)
    if told.before is not None:
        places = [at for at, slot in enumerate(order) if slot.turn_id == told.before]
        if not places:
            raise NotPossible(why="The turn to move before does not wait in this queue.")
        index = places[0]
    order[index:index] = moved
    return replace(lane, queue=_reorder(lane, order, told.actor, effects))


def send_now(lane: Lane, told: i.SendNow, now: float, effects: Effects) -> Lane:
    """Do not let it wait: to the head, along with the holder, or in the holder's place."""
    slot = _waiting(lane, told.turn_id)
    if not any(s.turn_id == told.turn_id for s in lane.queue):
        if told.mode is Mode.STEER:
            effects.append(Say(turn_id=slot.turn_id, outcome="steered", position=None))
            return lane
        effects.append(Journal(body=SteerReturned(_ahead(lane)), turn_id=slot.turn_id, actor=told.actor))
        slot = replace(slot, place=_ahead(lane))
        lane = replace(
            lane,
            riders=tuple(r for r in lane.riders if r.slot.turn_id != slot.turn_id),
            queue=(slot, *lane.queue),
        )
    if told.mode is Mode.STEER and lane.phase in (Phase.OFFERED, Phase.WORKING):
        assert lane.holder is not None
        effects += (
            Journal(
                body=TurnMoved(slot.place, Mode.STEER, parent=lane.holder.turn_id),
                turn_id=slot.turn_id,
                actor=told.actor,
            ),
            RiderWaits(turn_id=lane.holder.turn_id, rider_id=slot.turn_id),
            Say(turn_id=slot.turn_id, outcome="steered", position=None),
        )
        slot = replace(slot, mode=Mode.STEER)
        return replace(
            lane,
            queue=tuple(s for s in lane.queue if s.turn_id != slot.turn_id),
            riders=(*lane.riders, Rider(slot=slot)),
        )
    order = [s for s in lane.queue if s.turn_id != slot.turn_id]
    mode = Mode.INTERRUPT if told.mode is Mode.INTERRUPT else slot.mode
    behind_others = mode is Mode.INTERRUPT and lane.holder is not None
    index = _after_interrupts(tuple(order)) if behind_others else 0
    order.insert(index, replace(slot, mode=mode))
    lane = replace(lane, queue=_reorder(lane, order, told.actor, effects))
    if lane.holder is None:
        effects.append(Say(turn_id=slot.turn_id, outcome="started", position=None))
        first, *rest = lane.queue
        return _start(replace(lane, queue=tuple(rest)), first, now, effects)
    effects.append(Say(turn_id=slot.turn_id, outcome="queued", position=index + 1))
    if told.mode is Mode.INTERRUPT:
        return _stop(lane, "interrupted", now, effects)
    return lane


def pause(lane: Lane, told: i.Pause, now: float, effects: Effects) -> Lane:
    """Let nobody start. Asked twice it is paused once."""
    return _pause(lane, told.reason, told.actor, effects)


def resume(lane: Lane, told: i.Resume, now: float, effects: Effects) -> Lane:
    """Go on with the queue. Asked twice it is resumed once."""
    if lane.paused is None:
        return lane
    effects.append(Journal(body=LaneResumed(), actor=told.actor))
    lane = replace(lane, paused=None)
    if lane.holder is None:
        return promote(replace(lane, phase=Phase.IDLE), now, effects)
    return lane


def retry(lane: Lane, told: i.Retry, now: float, effects: Effects) -> Lane:
    """A failed turn runs again, before everybody who waits: same turn, next attempt, fresh budget."""
    slot = replace(told.slot, attempt=told.slot.attempt + 1, rescues=0, why="retried", place=_ahead(lane))
    effects.append(
        Journal(
            body=TurnRequeued("retried", slot.place, attempt=slot.attempt),
            turn_id=slot.turn_id,
            attempt=slot.attempt,
            actor=told.actor,
        )
    )
    lane = replace(lane, queue=(slot, *lane.queue))
    if lane.holder is None and lane.paused is None:
        effects.append(Say(turn_id=slot.turn_id, outcome="started", position=None))
        return promote(lane, now, effects)
    effects.append(Say(turn_id=slot.turn_id, outcome="queued", position=1))
    return lane


def decide(lane: Lane, told: i.Decide, now: float, effects: Effects) -> Lane:
    """A parked turn goes on: its continuation is the head of the queue, or keeps the lane it held."""
    if lane.holder is not None and lane.holder.turn_id == told.turn_id:
        holder = lane.holder
        if lane.phase is not Phase.WAITING or told.fence not in (None, holder.fence):
            raise NotWaiting(turn_id=told.turn_id)
        effects.append(
            Journal(
                body=TurnContinued(told.decision, FIRST_PLACE),
                turn_id=holder.turn_id,
                attempt=holder.attempt,
                actor=told.actor,
            )
        )
        slot = _slot_of_holder(lane, FIRST_PLACE, "continued")
        return _start(replace(lane, holder=None, phase=Phase.IDLE), slot, now, effects)
    parked = [slot for slot in lane.parked if slot.turn_id == told.turn_id]
    if not parked or told.fence not in (None, parked[0].fence):
        raise NotWaiting(turn_id=told.turn_id)
    slot = replace(parked[0], place=_ahead(lane), why="continued", decide_until=None)
    effects.append(
        Journal(
            body=TurnContinued(told.decision, slot.place),
            turn_id=slot.turn_id,
            attempt=slot.attempt,
            actor=told.actor,
        )
    )
    lane = replace(
        lane,
        parked=tuple(s for s in lane.parked if s.turn_id != slot.turn_id),
        queue=(slot, *lane.queue),
    )
    if lane.holder is None:
        return promote(lane, now, effects)
    return lane


def close(lane: Lane, told: i.Close, now: float, effects: Effects) -> Lane:
    """The conversation was deleted: nobody starts, and the holder stops."""
    lane = _pause(lane, told.reason, told.actor, effects)
    if lane.holder is not None:
        return _stop(lane, told.reason, now, effects)
    return lane


def purge(lane: Lane, told: i.Purge, now: float, effects: Effects) -> Lane:
    """Nobody waits any more."""
    for slot in (*lane.queue, *lane.parked):
        _cancel_slot(slot, told.reason, told.actor, effects)
    return replace(lane, queue=(), parked=())


# --- the holder's runner


def accept(lane: Lane, told: i.Accept, now: float, effects: Effects) -> Lane:
    """The runner took the turn."""
    holder = _holder(lane, told)
    receipt = _move_receipt(
        holder.receipt,
        ReceiptState.ACCEPTED,
        told.evidence,
        holder.turn_id,
        holder.attempt,
        told.actor,
        effects,
    )
    phase = Phase.WORKING if lane.phase is Phase.OFFERED else lane.phase
    return replace(lane, phase=phase, holder=replace(holder, evidence_at=now, receipt=receipt))


def evidence(lane: Lane, told: i.Evidence, now: float, effects: Effects) -> Lane:
    """More is known of the delivery."""
    holder = _holder(lane, told)
    state = ReceiptState(told.state)
    receipt = _move_receipt(
        holder.receipt, state, told.evidence, holder.turn_id, holder.attempt, told.actor, effects
    )
    if state is not ReceiptState.CONFIRMED:
        return replace(lane, holder=replace(holder, receipt=receipt))
    phase = Phase.WORKING if lane.phase is Phase.OFFERED else lane.phase
    holder = replace(holder, evidence_at=now, gate_until=None, receipt=receipt)
    return replace(lane, phase=phase, holder=holder)


def progress(lane: Lane, told: i.Progress, now: float, effects: Effects) -> Lane:
    """There was evidence of work: the backstop begins anew and the gate is passed."""
    holder = _holder(lane, told)
    return replace(lane, holder=replace(holder, evidence_at=now, gate_until=None))


def take_rider(lane: Lane, told: i.TakeRider, now: float, effects: Effects) -> Lane:
    """The runner takes a rider along; it can no longer be changed."""
    holder = _holder(lane, told)
    for index, rider in enumerate(lane.riders):
        if rider.slot.turn_id == told.rider_id and not rider.taken:
            effects.append(Journal(body=SteerTaken(holder.turn_id), turn_id=told.rider_id, actor=told.actor))
            receipt = _move_receipt(
                rider.slot.receipt,
                ReceiptState.ACCEPTED,
                {"taken_by": holder.turn_id},
                told.rider_id,
                rider.slot.attempt,
                told.actor,
                effects,
            )
            riders = list(lane.riders)
            riders[index] = Rider(slot=replace(rider.slot, receipt=receipt), taken=True)
            return replace(lane, riders=tuple(riders), holder=replace(holder, evidence_at=now))
    raise NotWaiting(turn_id=told.rider_id)


def hand_over(lane: Lane, told: i.HandOver, now: float, effects: Effects) -> Lane:
    """A rider went into the agent's own queue. It waits on, and returns to ours if the agent does not take it."""
    holder = _holder(lane, told)
    for index, rider in enumerate(lane.riders):
        if rider.slot.turn_id == told.rider_id and not rider.taken:
            receipt = _move_receipt(
                rider.slot.receipt,
                ReceiptState.ACCEPTED,
                told.evidence,
                told.rider_id,
                rider.slot.attempt,
                told.actor,
                effects,
            )
            riders = list(lane.riders)
            riders[index] = Rider(slot=replace(rider.slot, receipt=receipt))
            return replace(lane, riders=tuple(riders), holder=replace(holder, evidence_at=now))
    raise NotWaiting(turn_id=told.rider_id)


def need_person(lane: Lane, told: i.NeedPerson, now: float, effects: Effects) -> Lane:
    """The turn waits for a person: it gives the lane back, or keeps it."""
    holder = _holder(lane, told)
    needs = {**told.needs, "held": True} if told.hold else told.needs
    effects.append(
        Journal(
            body=TurnParked(needs, held=told.hold),
            turn_id=holder.turn_id,
            attempt=holder.attempt,
            actor=told.actor,
        )
    )
    if told.hold:
        waiting = replace(holder, decide_until=deadline_of(needs))
        return replace(lane, phase=Phase.WAITING, holder=waiting)
    lane = _return_riders(lane, effects)
    slot = replace(_slot_of_holder(lane, FIRST_PLACE, "continued"), decide_until=deadline_of(needs))
    lane = replace(lane, holder=None, riders=(), phase=Phase.IDLE, parked=(*lane.parked, slot))
    return promote(lane, now, effects)


def answer(lane: Lane, told: i.Answer, now: float, effects: Effects) -> Lane:
    """The turn is answered, and with it the riders it took, unless they are to be answered one by one."""
    holder = _holder(lane, told)
    taken = [rider for rider in lane.riders if rider.taken]
    if not (told.promote_riders and taken):
        return _end(
            lane,
            TurnSettled(told.reason),
            now,
            effects,
            rider_end=TurnSettled("answered_with", by=holder.turn_id),
        )
    _close(TurnSettled(told.reason), holder.turn_id, holder.attempt, holder.receipt, effects)
    first = taken[0]
    fence = first.slot.fence + 1
    effects.append(
        Start(
            turn_id=first.slot.turn_id,
            attempt=first.slot.attempt,
            fence=fence,
            why="promoted",
            riding=True,
        )
    )
    promoted = Holder(
        turn_id=first.slot.turn_id,
        attempt=first.slot.attempt,
        fence=fence,
        rescues=0,
        since=now,
        evidence_at=now,
        gate_until=now + lane.rules.evidence_gate_seconds,
        user_id=first.slot.user_id,
        receipt=first.slot.receipt,
    )
    riders = tuple(r for r in lane.riders if r is not first)
    for rider in riders:
        slot = rider.slot
        body: Any = SteerTaken(promoted.turn_id)
        if not rider.taken:
            body = TurnMoved(slot.place, parent=promoted.turn_id)
        effects.append(Journal(body=body, turn_id=slot.turn_id, attempt=slot.attempt))
    return replace(lane, holder=promoted, riders=riders, phase=Phase.WORKING)


def fail(lane: Lane, told: i.Fail, now: float, effects: Effects) -> Lane:
    """The turn failed; the queue goes on."""
    holder = _holder(lane, told)
    if lane.phase is Phase.STOPPING:
        assert holder.stop_reason is not None
        return _end(lane, TurnCancelled(holder.stop_reason), now, effects)
    return _fail(lane, told.failure, now, effects)


def halt(lane: Lane, told: i.Halt, now: float, effects: Effects) -> Lane:
    """The runner stopped as asked."""
    holder = _holder(lane, told)
    assert holder.stop_reason is not None
    return _end(lane, TurnCancelled(holder.stop_reason), now, effects)


def hand_back(lane: Lane, told: i.HandBack, now: float, effects: Effects) -> Lane:
    """A planned stop: the turn and its riders wait again, at the head, with their budgets. Nobody starts."""
    holder = _holder(lane, told)
    if lane.phase is Phase.STOPPING:
        assert holder.stop_reason is not None
        lane = _return_riders(lane, effects)
        _cancel_slot(_slot_of_holder(lane, 0, ""), holder.stop_reason, told.actor, effects)
        lane = replace(lane, holder=None, riders=(), phase=Phase.IDLE)
        return replace(lane, phase=resting(lane))
    lane = _return_riders(lane, effects)
    place = _ahead(lane)
    slot = _slot_of_holder(lane, place, "resumed")
    effects.append(
        Journal(
            body=TurnRequeued("resumed", place, attempt=holder.attempt, rescues=holder.rescues),
            turn_id=holder.turn_id,
            attempt=holder.attempt,
        )
    )
    lane = replace(lane, holder=None, riders=(), queue=(slot, *lane.queue), phase=Phase.IDLE)
    return replace(lane, phase=resting(lane))


# --- the dispatcher


def rescue(lane: Lane, told: i.Rescue, now: float, effects: Effects) -> Lane:
    """The holder's process died: twice the turn goes on by itself, then a person decides (DESIGN 5.5)."""
    holder = lane.holder
    if holder is None or holder.turn_id != told.turn_id:
        raise NotWaiting(turn_id=told.turn_id)
    if lane.phase is Phase.STOPPING:
        assert holder.stop_reason is not None
        return _end(lane, TurnCancelled(holder.stop_reason), now, effects)
    rescues = holder.rescues + 1
    if rescues > lane.rules.rescues_max:
        needs = {
            "kind": "action_required",
            "why": "interrupted",
            "interruptions": rescues,
            "offers": ["retry", "give_up"],
        }
        return need_person(
            lane,
            i.NeedPerson(turn_id=holder.turn_id, fence=holder.fence, needs=needs),
            now,
            effects,
        )
    effects.append(
        Journal(
            body=TurnRequeued("rescued", _ahead(lane), attempt=holder.attempt, rescues=rescues),
            turn_id=holder.turn_id,
            attempt=holder.attempt,
        )
    )
    fence = holder.fence + 1
    effects.append(Start(turn_id=holder.turn_id, attempt=holder.attempt, fence=fence, why="rescued"))
    rescued = replace(holder, fence=fence, rescues=rescues, since=now, evidence_at=now, gate_until=None)
    return replace(lane, phase=Phase.OFFERED, holder=rescued)


def reattach(lane: Lane, told: i.Reattach, now: float, effects: Effects) -> Lane:
    """The pane still lives: the same attempt goes on under a new fence; no budget is spent."""
    holder = lane.holder
    if holder is None or holder.turn_id != told.turn_id:
        raise NotWaiting(turn_id=told.turn_id)
    fence = holder.fence + 1
    effects.append(Start(turn_id=holder.turn_id, attempt=holder.attempt, fence=fence, why="reattached"))
    return replace(lane, holder=replace(holder, fence=fence, evidence_at=now))


def tick(lane: Lane, told: i.Tick, now: float, effects: Effects) -> Lane:
    """Re-check everything that depends on time, and start whoever waits in a free lane (G4)."""
    for slot in lane.parked:
        if slot.decide_until is not None and now >= slot.decide_until:
            lane = decide(lane, i.Decide(turn_id=slot.turn_id, decision=EXPIRED), now, effects)
    holder = lane.holder
    if holder is None:
        return promote(lane, now, effects)
    if lane.phase is Phase.STOPPING:
        assert holder.stop_until is not None
        assert holder.stop_reason is not None
        if now < holder.stop_until:
            return lane
        effects.append(Abandon(turn_id=holder.turn_id, fence=holder.fence))
        return _end(lane, TurnCancelled(holder.stop_reason, forced=True), now, effects)
    if lane.phase is Phase.WAITING:
        if holder.decide_until is not None and now >= holder.decide_until:
            return decide(lane, i.Decide(turn_id=holder.turn_id, decision=EXPIRED), now, effects)
        return lane
    rules = lane.rules
    if holder.gate_until is not None and now >= holder.gate_until:
        effects.append(Abandon(turn_id=holder.turn_id, fence=holder.fence))
        end = TurnSettled("answered_by_previous_response")
        return _end(lane, end, now, effects, rider_end=end)
    if rules.max_turn_seconds is not None and now >= holder.since + rules.max_turn_seconds:
        effects.append(Abandon(turn_id=holder.turn_id, fence=holder.fence))
        return _fail(lane, _too_long(rules.max_turn_seconds), now, effects)
    if now >= holder.evidence_at + rules.backstop_seconds:
        effects.append(Abandon(turn_id=holder.turn_id, fence=holder.fence))
        return _fail(lane, _no_evidence(now - holder.evidence_at), now, effects)
    return lane


def _too_long(seconds: float) -> Failure:
    return Failure(
        kind="max_turn_time",
        retryable=False,
        sentence=f"The turn took longer than the time limit of {seconds:g} s (max_turn_seconds) "
        "and was ended. What it did so far is kept.",
        measured_seconds=seconds,
    )


def _no_evidence(seconds: float) -> Failure:
    return Failure(
        kind="backstop",
        retryable=False,
        sentence=f"There was no sign of work for {seconds:.0f} s (backstop_seconds); the turn was "
        "ended so that the messages behind it can run. What it did so far is kept.",
        measured_seconds=seconds,
    )


def late_answer(lane: Lane, told: i.LateAnswer, now: float, effects: Effects) -> Lane:
    """Keep an answer that came after the end; no state changes."""
    effects.append(Journal(body=LateAnswered(told.text, told.state), turn_id=told.turn_id, actor=told.actor))
    return lane
