"""What the rows of the turn do: opening, waiting for its record, its response, and its end."""

from __future__ import annotations

from msgspec.structs import replace

from turnkeeper.retained.machine import effects as e
from turnkeeper.retained.machine import hand as h
from turnkeeper.retained.machine import inputs as i
from turnkeeper.retained.machine.ends import answered, fail, failure, over, stopped
from turnkeeper.retained.machine.matching import ours, proven, squash
from turnkeeper.retained.machine.state import Hand, HandPhase, Known, State, TurnPhase
from turnkeeper.retained.signs import ENDS, WORK, Composer, Reading, Sign, SignKind

Effects = list[e.Effect]

CHOOSE_AGAIN_SECONDS = 2.0
"""A menu that still stands this long after its option was chosen is given the keys again."""

NOT_BUSY_SECONDS = 1.0
"""A stopped CLI that is seen idle for this long has stopped."""


# --- opening


def opened(state: State, told: i.Opened, now: float, effects: Effects) -> State:
    """The pane is there: go on where the journal says that this turn was."""
    known = state.known
    state = replace(state, fresh=told.fresh, misses=0, idle_since=None, last_work=now)
    if told.text is not None and told.key is not None:
        state = state.with_item(replace(state.own, text=told.text, key=told.key))
    if state.own.confirmed:
        return h.next_rider(replace(state, phase=TurnPhase.WORKING), now)
    if known.handed and told.same:
        # The gate counts from the last evidence of work: a backlog behind a phantom does not wait again.
        gate_at = max(now, told.last_work_at + state.timing.evidence_gate_seconds)
        own = replace(state.own, accepted=True, enters=max(1, state.own.enters), entered_at=now)
        return replace(state.with_item(own), phase=TurnPhase.GATED, gate_at=gate_at)
    state = replace(state, phase=TurnPhase.DELIVERING)
    own = state.own
    if not told.same:
        # Another process: what the former one had in its composer or its queue is gone with it.
        doubtful = own.enters > 0 or own.accepted
        own = replace(
            own, pastes=0, enters=0, entered_at=None, tried=own.tried or own.pastes > 0, doubtful=doubtful
        )
        return h.reach(state.with_item(own), own, now)
    if own.enters > 0:
        if known.enters >= state.timing.enters_max and not own.accepted:
            # A CLI that takes no steer was given all its Enters; idle, it is given them anew if it still holds the text.
            own = replace(own, enters=1)
            state = state.with_item(own)
        return h.ask_again(state, own, now)
    return h.reach(state, own, now)


def cannot_open(state: State, told: i.CannotOpen, now: float, effects: Effects) -> State:
    """There will be no pane."""
    return fail(state, told.failure, now, effects)


# --- the transcript


def told(state: State, told: i.Told, now: float, effects: Effects) -> State:
    """Read the signs one by one, in their order."""
    if told.readable and not state.readable:
        state = replace(state, readable=True)
    written: list[Sign] = []
    for index, sign in enumerate(told.signs):
        if state.phase is TurnPhase.ENDED:
            break
        state = _sign(state, sign, now, effects, written)
        if state.phase is TurnPhase.ENDED and index + 1 < len(told.signs):
            rest = told.signs[index + 1 :]
            end = effects[-1]
            assert isinstance(end, e.End)
            effects[-1] = replace(end, leftover=(*end.leftover, *rest))
    if written:
        place = len(effects) - 1 if state.phase is TurnPhase.ENDED else len(effects)
        effects.insert(place, e.Write(signs=tuple(written)))
    return h.next_rider(state, now)


def _sign(state: State, sign: Sign, now: float, effects: Effects, written: list[Sign]) -> State:
    kind = sign.kind
    if kind in ENDS or kind in WORK or kind is SignKind.TAKEN:
        state = replace(state, unfinished=kind not in ENDS, last_work=now)
    if kind in ENDS:
        state = replace(state, foreign=False)
    next_has_begun = state.leftover or kind in (SignKind.TAKEN, SignKind.BEGAN)
    if state.phase is TurnPhase.SETTLING and next_has_begun:
        # Left to whoever runs next, with what follows it.
        return replace(state, leftover=(*state.leftover, sign))
    if kind is SignKind.TAKEN:
        return _taken(state, sign, now, effects, written)
    if kind is SignKind.QUEUED:
        return _queued(state, sign, now, effects)
    if kind is SignKind.TOOK_BACK:
        return _took_back(state, sign, now, effects)
    if kind is SignKind.SWITCHED:
        effects.append(e.Switched(native_id=sign.native_id))
        return _commanded(state, sign, now, effects) if state.own.command else state
    if kind is SignKind.REFUSED:
        return _refused(state, sign, now, effects)
    if kind is SignKind.SUPERSEDED:
        written.append(sign)
        if state.phase is TurnPhase.SETTLING and state.end == "failed":
            # The CLI itself set that attempt aside: it tries again.
            return replace(state, phase=TurnPhase.WORKING, end="", end_at=None, end_failure=None)
        return state
    if kind in (SignKind.COMPACTED, SignKind.COMMANDED) and state.own.command and not state.own.confirmed:
        written.append(sign)
        return _commanded(state, sign, now, effects)
    if kind in ENDS:
        return _end_sign(state, sign, now, effects)
    if kind in WORK:
        return _work(state, sign, now, effects, written)
    return state


def _flush(effects: Effects, written: list[Sign]) -> None:
    if written:
        effects.append(e.Write(signs=tuple(written)))
        written.clear()


def _taken(state: State, sign: Sign, now: float, effects: Effects, written: list[Sign]) -> State:
    """A text reached the model: ours, a rider's, several joined, or somebody else's."""
    items = proven(state.items, sign.text, sign.given_id)
    if not items:
        _flush(effects, written)
        effects.append(e.Foreign(sign=sign))
        if state.own.enters > 0 and not state.own.confirmed:
            state = state.with_item(replace(state.own, shadowed=True))
        return replace(state, last_work=now, foreign=True)
    _flush(effects, written)
    state = replace(state, foreign=False)
    for item in items:
        state = state.with_item(replace(item, confirmed=True, accepted=True))
        if item.own:
            evidence = {
                "via": sign.via or "user",
                "record": sign.native_id,
                "offset": sign.offset,
                "joined": len(items) > 1,
            }
            effects.append(e.Receipt(state="confirmed", evidence=evidence))
            if state.phase in (TurnPhase.DELIVERING, TurnPhase.GATED):
                state = replace(state, phase=TurnPhase.WORKING, gate_at=None, stuck_since=None)
        else:
            effects.append(e.TakeRider(turn_id=item.turn_id, sign=sign))
        if state.hand is not None and state.hand.turn_id == item.turn_id:
            state = replace(state, hand=None)
    return _worked(replace(state, said=False, idle_since=None), now, effects)


def _queued(state: State, sign: Sign, now: float, effects: Effects) -> State:
    """The CLI's own queue record: accepted, no more."""
    for item in state.items:
        if item.key == sign.text and item.enters > 0 and not item.queued and not item.confirmed:
            evidence = {"via": "queue", "offset": sign.offset}
            fresh = not item.accepted
            state = state.with_item(replace(item, queued=True, accepted=True))
            if item.own and fresh:
                effects.append(e.Receipt(state="accepted", evidence=evidence))
            elif not item.own:
                effects.append(e.HandOver(turn_id=item.turn_id, evidence=evidence))
            if state.hand is not None and state.hand.turn_id == item.turn_id and not item.own:
                state = replace(state, hand=None)
            return state
    return state


def _took_back(state: State, sign: Sign, now: float, effects: Effects) -> State:
    """A queued text is in the composer again: it was not delivered, and nothing was lost."""
    for item in state.items:
        if sign.given_id:
            back = item.accepted and item.given_id == sign.given_id
        else:
            back = item.queued and item.key == sign.text
        if back and not item.confirmed:
            effects.append(e.Note(step="took_back", turn_id=item.turn_id, facts={}))
            kept = replace(item, queued=False, enters=0, entered_at=None, lost=not item.own)
            state = state.with_item(kept)
            if kept.own and state.phase in (TurnPhase.DELIVERING, TurnPhase.GATED):
                state = replace(state, phase=TurnPhase.DELIVERING, gate_at=None)
                return h.reach(state, kept, now)
            return state
    return state


def _refused(state: State, sign: Sign, now: float, effects: Effects) -> State:
    if state.phase is not TurnPhase.DELIVERING or state.own.confirmed or state.own.enters == 0:
        return state
    sentence = f"The CLI does not know the command {sign.name or sign.text}; the message was not delivered."
    return fail(state, failure("refused_command", sentence, retryable=False), now, effects)


def _commanded(state: State, sign: Sign, now: float, effects: Effects) -> State:
    """A command of the CLI ran: that is all the record it makes."""
    own = state.own
    if own.enters == 0:
        return state
    if not own.confirmed:
        state = state.with_item(replace(own, confirmed=True, accepted=True))
        effects.append(e.Receipt(state="confirmed", evidence={"via": "command", "offset": sign.offset}))
    state = _worked(replace(state, phase=TurnPhase.WORKING, hand=None), now, effects)
    return _settle(state, "commanded", now + state.timing.command_settle_seconds)


def _work(state: State, sign: Sign, now: float, effects: Effects, written: list[Sign]) -> State:
    """The CLI works. At what? At ours, once our text was taken, or if it stood in its queue (some never write it)."""
    if state.phase is TurnPhase.DELIVERING:
        unreadable = state.own.accepted and not state.readable
        if not unreadable:
            effects.append(e.Foreign(sign=sign))
            return replace(state, last_work=now)
        state = replace(state, phase=TurnPhase.WORKING, hand=None)
    if state.phase is TurnPhase.GATED:
        if state.foreign:
            effects.append(e.Foreign(sign=sign))
            return replace(state, last_work=now)
        if sign.kind is SignKind.BEGAN:
            return _worked(state, now, effects)
        state = replace(state, phase=TurnPhase.WORKING, gate_at=None)
    if state.phase is TurnPhase.SETTLING:
        state = replace(state, phase=TurnPhase.WORKING, end="", end_at=None, end_failure=None)
    if state.phase is TurnPhase.OPENING:
        effects.append(e.Foreign(sign=sign))
        return state
    written.append(sign)
    calls = state.open_calls
    if sign.kind is SignKind.CALLED:
        calls = (*calls, sign.call_id)
    elif sign.kind is SignKind.RETURNED:
        calls = tuple(call for call in calls if call != sign.call_id)
    said = (
        (state.said or sign.final)
        if sign.kind is SignKind.SAID
        else state.said and sign.kind is not SignKind.CALLED
    )
    state = replace(state, open_calls=calls, said=said, idle_since=None)
    return _worked(state, now, effects)


def _worked(state: State, now: float, effects: Effects) -> State:
    """Evidence of work."""
    if now - state.told_work >= state.timing.working_seconds:
        effects.append(e.Working())
        return replace(state, last_work=now, told_work=now)
    return replace(state, last_work=now)


def _end_sign(state: State, sign: Sign, now: float, effects: Effects) -> State:
    """An end: of our response, once our text was taken; else of something else."""
    if state.phase not in (TurnPhase.WORKING, TurnPhase.SETTLING, TurnPhase.STOPPING):
        return state
    if state.phase is TurnPhase.STOPPING and not state.own.confirmed:
        return state
    timing = state.timing
    if sign.kind is SignKind.ENDED:
        return _settle(state, "ended", now + timing.flush_seconds)
    if sign.kind is SignKind.INTERRUPTED:
        return _settle(state, "interrupted", now + timing.flush_seconds)
    why = failure(
        "provider",
        f"The CLI's model provider refused: {sign.text or 'no reason was given'}",
        retryable=True,
    )
    if sign.status is not None:
        why = replace(why, status=sign.status)
    return replace(_settle(state, "failed", now + timing.error_settle_seconds), end_failure=why)


def _settle(state: State, end: str, at: float) -> State:
    return replace(state, phase=TurnPhase.SETTLING, end=end, end_at=at, open_calls=())


# --- the screen


def seen(state: State, told: i.Seen, now: float, effects: Effects) -> State:
    """What a look at the living pane says about the turn."""
    reading = told.reading
    state = replace(state, misses=0)
    if reading.busy:
        state = replace(_worked(state, now, effects), idle_since=None)
    elif reading.busy is False and state.idle_since is None:
        state = replace(state, idle_since=now)
    block = reading.block
    if block is not None and block.retry_at is not None and now < block.retry_at:
        state = _worked(state, now, effects)
    if block is not None and block.menu is not None:
        return _menu(state, reading, now, effects)
    if state.decided is not None and block is None:
        state = replace(state, decided=None)
    return _by_phase(state, reading, now, effects)


def _by_phase(state: State, reading: Reading, now: float, effects: Effects) -> State:
    if state.phase is TurnPhase.WORKING:
        return _idle(h.next_rider(state, now), reading, now, effects)
    if state.phase is TurnPhase.GATED:
        return _at_the_gate(state, reading, now, effects)
    if state.phase is TurnPhase.STOPPING:
        return _stopping(state, reading, now, effects)
    if state.phase is TurnPhase.SETTLING and state.end == "failed" and reading.busy:
        return replace(state, end_at=now + state.timing.error_settle_seconds)
    return state


def _menu(state: State, reading: Reading, now: float, effects: Effects) -> State:
    """A parsed menu: answer it as decided, answer it by rule, ask a person, or leave it (a limit ends by itself)."""
    block = reading.block
    assert block is not None
    menu = block.menu
    assert menu is not None
    known = state.asked is not None and state.asked.mark == menu.mark
    option = block.auto
    if state.decided is not None and state.decided[0] == menu.mark:
        option = block.option(state.decided[1])
    if option is not None:
        if known and now - state.chose_at < CHOOSE_AGAIN_SECONDS:
            return state
        facts = {"menu": menu.title, "option": menu.options[option]}
        effects.append(e.Note(step="chose", turn_id=state.turn_id, facts=facts))
        effects.append(e.Choose(menu=menu, option=option))
        return replace(state, asked=menu, chose_at=now)
    if state.phase is TurnPhase.STOPPING:
        return _stopping(state, reading, now, effects)
    if block.kind in h.BLOCKS_THAT_ASK and not known:
        effects.append(e.Ask(menu=menu))
        return over(replace(state, asked=menu), e.End(kind="needs", reason=str(block.kind)), effects)
    return state


def _idle(state: State, reading: Reading, now: float, effects: Effects) -> State:
    """A CLI that is idle although its transcript says no end (BD043), or that never answered."""
    if state.idle_since is None or reading.composer is Composer.ABSENT:
        return state
    if state.hand is not None and state.hand.phase is not HandPhase.HOLDING:
        return state
    idle_for = now - state.idle_since
    timing = state.timing
    if state.own.command:
        if idle_for >= timing.command_settle_seconds:
            return _settle(state, "commanded", now)
    elif state.said and not state.open_calls:
        if idle_for >= timing.idle_settle_seconds:
            return _settle(state, "idle", now)
    elif idle_for >= timing.idle_silent_seconds:
        sentence = (
            f"The CLI has been idle for {idle_for:.0f} s and has written no answer to this message. "
            "What it did so far is kept."
        )
        return fail(state, failure("no_answer", sentence, retryable=True, seconds=idle_for), now, effects)
    return state


def _at_the_gate(state: State, reading: Reading, now: float, effects: Effects) -> State:
    """It was handed over while another response ran. Is a response of its own coming?"""
    if reading.busy:
        gate_at = now + state.timing.evidence_gate_seconds
        return replace(state, gate_at=max(gate_at, state.gate_at or gate_at), stuck_since=None)
    own = state.own
    if ours((replace(own, pastes=1),), (), reading):
        # It went back into the composer: it reached nobody.
        own = replace(own, pastes=1, enters=0, entered_at=None)
        state = replace(state.with_item(own), phase=TurnPhase.DELIVERING, gate_at=None)
        return h.reach(state, own, now)
    head = squash(own.text)
    shown = any(head.startswith(squash(line).rstrip("…")) for line in reading.queued if squash(line))
    if not shown:
        return replace(state, stuck_since=None)
    if state.stuck_since is None:
        return replace(state, stuck_since=now)
    if state.unfinished or now - state.stuck_since < state.timing.recall_seconds:
        return state
    effects.append(
        e.Note(step="recall", turn_id=own.turn_id, facts={"why": "idle with the text still queued"})
    )
    effects.append(e.Recall())
    own = replace(own, pastes=1, enters=0, entered_at=None)
    recalling = Hand(turn_id=own.turn_id, phase=HandPhase.CLEARING, since=now, recalled=True)
    return replace(
        state.with_item(own), phase=TurnPhase.DELIVERING, gate_at=None, stuck_since=None, hand=recalling
    )


def _stopping(state: State, reading: Reading, now: float, effects: Effects) -> State:
    """Interrupt what was seen to be busy just now; a key that comes late could end an idle CLI (BD073)."""
    timing = state.timing
    if reading.busy:
        due = now - state.interrupted_at >= timing.interrupt_again_seconds
        if due and state.interrupts < timing.interrupts_max:
            facts = {"times": state.interrupts + 1}
            effects.append(e.Note(step="interrupt", turn_id=state.turn_id, facts=facts))
            effects.append(e.Interrupt())
            return replace(state, interrupts=state.interrupts + 1, interrupted_at=now)
        return state
    own = state.own
    if not own.confirmed and ours((own,), (), reading):
        effects.append(e.Note(step="clear", turn_id=own.turn_id, facts={"why": "stopped before it was sent"}))
        effects.append(e.Clear())
        return stopped(state, effects)
    if state.idle_since is not None and now - state.idle_since >= NOT_BUSY_SECONDS:
        if state.interrupts == 0 and state.said:
            return _settle(state, "idle", now)
        return stopped(state, effects)
    return state


# --- death


def missed(state: State, told: i.Missed, now: float, effects: Effects) -> State:
    """The program has ended. Before anything was pasted it is launched again; else three looks in a row must say so."""
    timing = state.timing
    untouched = state.phase is TurnPhase.DELIVERING and state.own.pastes == 0
    if untouched and state.relaunches < timing.relaunches_max:
        effects.append(e.Note(step="relaunch", turn_id=state.turn_id, facts={"why": told.sentence}))
        effects.append(e.Open())
        return replace(state, phase=TurnPhase.OPENING, hand=None, relaunches=state.relaunches + 1, misses=0)
    if state.misses and now - state.missed_at < timing.pane_check_seconds * 0.9:
        return state
    state = replace(state, misses=state.misses + 1, missed_at=now)
    if state.misses < timing.pane_misses_max:
        return state
    if state.phase is TurnPhase.GATED:
        # It was only in that program's memory: it reached nobody, and is sent to the next one.
        effects.append(e.Note(step="relaunch", turn_id=state.turn_id, facts={"why": told.sentence}))
        effects.append(e.Open())
        own = replace(state.own, pastes=0, enters=0, entered_at=None, queued=False)
        return replace(
            state.with_item(own),
            phase=TurnPhase.OPENING,
            known=Known(accepted=True),
            gate_at=None,
            misses=0,
        )
    sentence = f"The CLI's pane is gone: {told.sentence}. What it did so far is kept."
    return fail(state, failure("pane", sentence, retryable=True), now, effects)


def gone(state: State, told: i.Gone, now: float, effects: Effects) -> State:
    """The process that was answering ended while nobody looked (a reboot): there is nothing to wait for."""
    if state.phase is TurnPhase.SETTLING:
        return _finish(state, now, effects)
    sentence = f"The CLI's pane is gone: {told.sentence}. What it did so far is kept."
    return fail(state, failure("pane", sentence, retryable=True), now, effects)


def trouble(state: State, told: i.Trouble, now: float, effects: Effects) -> State:
    """An error of the terminal is no miss (BD104)."""
    return state


# --- stopping and time


def stop(state: State, told: i.StopAsked, now: float, effects: Effects) -> State:
    """Stop: at once if nothing of it is with the CLI, else by the CLI's own key."""
    state = replace(state, stop_reason=told.reason)
    if told.reason == "shutdown":
        return stopped(state, effects)
    hand = state.hand
    if state.phase is TurnPhase.DELIVERING and state.own.enters == 0:
        if hand is not None and hand.phase in (HandPhase.PASTING, HandPhase.ENTERING):
            effects.append(e.Clear())
        return stopped(state, effects)
    if state.phase in (TurnPhase.OPENING, TurnPhase.GATED):
        return stopped(state, effects)
    stop_at = now + state.timing.stop_seconds
    return replace(state, phase=TurnPhase.STOPPING, stop_at=stop_at, hand=None, idle_since=None)


def stop_settling(state: State, told: i.StopAsked, now: float, effects: Effects) -> State:
    """It is ending by itself already."""
    if told.reason == "shutdown":
        return stopped(replace(state, stop_reason=told.reason), effects)
    return replace(state, stop_reason=told.reason)


def steer(state: State, told: i.Steer, now: float, effects: Effects) -> State:
    """A rider waits."""
    if any(item.turn_id == told.item.turn_id for item in state.items):
        return state
    return h.next_rider(replace(state, items=(*state.items, told.item)), now)


def unsteer(state: State, told: i.Unsteer, now: float, effects: Effects) -> State:
    """A rider was taken back; what has been pasted of it is cleared by whoever comes next."""
    kept = [item for item in state.items if item.turn_id != told.turn_id or item.own or item.enters > 0]
    gone = len(kept) < len(state.items)
    if gone and state.hand is not None and state.hand.turn_id == told.turn_id:
        if state.hand.phase in (HandPhase.PASTING, HandPhase.ENTERING):
            effects.append(e.Clear())
        state = replace(state, hand=None)
    return replace(state, items=tuple(kept))


def decided(state: State, told: i.Decided, now: float, effects: Effects) -> State:
    """A person answered; it is typed when that same menu is seen."""
    return replace(state, decided=(told.mark, told.decision))


def tick(state: State, told: i.Tick, now: float, effects: Effects) -> State:
    """Whatever depends on time."""
    if state.phase is TurnPhase.SETTLING:
        assert state.end_at is not None
        return state if now < state.end_at else _finish(state, now, effects)
    if state.phase is TurnPhase.STOPPING:
        assert state.stop_at is not None
        return state if now < state.stop_at else stopped(state, effects)
    if state.phase is TurnPhase.GATED:
        assert state.gate_at is not None
        if now >= state.gate_at and state.stuck_since is None:
            return answered(state, effects, "answered_by_previous_response")
    silent = now - state.last_work
    if silent >= state.timing.backstop_seconds:
        cause = f" It was held: {state.hold}." if state.hold else ""
        sentence = (
            f"The CLI has shown no sign of work for {silent:.0f} s (backstop_seconds); the turn was ended so that "
            f"the messages behind it can run.{cause} What it did so far is kept."
        )
        return fail(state, failure("backstop", sentence, retryable=True, seconds=silent), now, effects)
    return state


def _finish(state: State, now: float, effects: Effects) -> State:
    if state.stop_reason and not (state.end == "ended" and state.said):
        return stopped(state, effects)
    if state.end == "failed":
        assert state.end_failure is not None
        return fail(state, state.end_failure, now, effects)
    if state.end == "interrupted":
        sentence = "The response was interrupted at the terminal. What it did so far is kept."
        return fail(state, failure("interrupted", sentence, retryable=True), now, effects)
    ran = state.end == "commanded" or (state.own.command and not state.said)
    return answered(state, effects, "command_ran" if ran else "answered")


def stay(state: State, told: i.Input, now: float, effects: Effects) -> State:
    """Nothing to do in this phase."""
    return state
