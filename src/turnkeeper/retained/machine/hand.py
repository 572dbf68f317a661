"""What the rows of the hand do: one text, from the first look at the composer to the transcript's word.

In this order (seed 002, and its fault of 2026-09-24): the whole composer is read, blank left-overs are cleared;
paste; Enter; Enter again at most twice, only after the composer was seen to hold the text; then the transcript is
asked; if it can be read, says nothing and the CLI is idle, the composer is emptied and the text pasted once more,
once per turn. Keys never go anywhere that was not read first.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from turnkeeper.retained.machine import effects as e
from turnkeeper.retained.machine import inputs as i
from turnkeeper.retained.machine.ends import fail, failure
from turnkeeper.retained.machine.matching import ours
from turnkeeper.retained.machine.state import Hand, HandPhase, Item, State, TurnPhase
from turnkeeper.retained.signs import BlockKind, Composer, Reading

Effects = list[e.Effect]

BUSY_GRACE_SECONDS = 1.0
"""A CLI that ended a response just now may show it as running for a moment longer."""

RIDER_RETRY_SECONDS = 5.0
"""A CLI that does not take a steer now is asked again after this long, and after a multiple of it."""


def reach(state: State, item: Item, now: float, *, not_before: float = 0.0) -> State:
    """Begin to hand `item` over."""
    return replace(state, hand=Hand(turn_id=item.turn_id, since=now, not_before=not_before))


def next_rider(state: State, now: float) -> State:
    """Reach for the next rider that waits, if nothing is in hand."""
    if state.hand is not None or state.phase is not TurnPhase.WORKING:
        return state
    for item in state.items[1:]:
        if not (item.accepted or item.confirmed or item.lost):
            return reach(state, item, now) if item.enters == 0 else ask_again(state, item, now)
    return state


def ask_again(state: State, item: Item, now: float) -> State:
    """Enter was pressed for `item` before (by a process that is gone, or before a vain recall): ask from now on."""
    asking = Hand(turn_id=item.turn_id, phase=HandPhase.ASKING, since=now)
    return replace(state.with_item(replace(item, entered_at=now)), hand=asking)


def _hand(state: State) -> tuple[Hand, Item]:
    assert state.hand is not None
    return state.hand, state.item(state.hand.turn_id)


def _with(state: State, hand: Hand) -> State:
    return replace(state, hand=hand)


# --- looking and holding


def in_the_way(state: State, item: Item, reading: Reading) -> tuple[str, str, float | None] | None:
    """What stands between the text and the composer: (reason, sentence, when it is over), or None."""
    if reading.block is not None:
        return str(reading.block.kind), reading.block.sentence, reading.block.retry_at
    if reading.person:
        return "person", "Somebody works at this terminal; the message waits until they give it back.", None
    if reading.composer is Composer.TEXT and not ours(state.items, state.past, reading):
        return (
            "draft",
            "Somebody has typed into the terminal; the message waits until that is sent or gone.",
            None,
        )
    if item.own and reading.busy and reading.composer is not Composer.ABSENT:
        return "busy", "The CLI is busy with something else; the message waits until it is idle.", None
    return None


def look(state: State, told: i.Seen, now: float, effects: Effects) -> State:
    """Decide what the composer allows: wait, clear, or paste."""
    hand, item = _hand(state)
    if now < hand.not_before or state.phase not in (TurnPhase.DELIVERING, TurnPhase.WORKING):
        return state
    reading = told.reading
    way = in_the_way(state, item, reading)
    if way is not None:
        reason, sentence, retry_at = way
        if hand.phase is HandPhase.HOLDING and hand.hold == reason:
            return state
        if reason == "busy" and now - hand.since < BUSY_GRACE_SECONDS:
            return _with(state, replace(hand, looks=0))
        effects.append(e.Hold(turn_id=item.turn_id, reason=reason, sentence=sentence, retry_at=retry_at))
        return _with(
            replace(state, hold=reason), replace(hand, phase=HandPhase.HOLDING, hold=reason, looks=0)
        )
    if hand.phase is HandPhase.HOLDING:
        effects.append(e.Release(turn_id=item.turn_id))
        state = replace(state, hold="")
        hand = replace(hand, phase=HandPhase.LOOKING, hold="", since=now, looks=0)
        state = _with(state, hand)
    if reading.composer is Composer.ABSENT:
        return _with(state, replace(hand, looks=0))
    if hand.recalled and reading.composer is Composer.EMPTY:
        # Nothing came back: it was on its way to the model.
        return ask_again(state, replace(item, enters=max(1, item.enters), redone=True), now)
    if reading.composer in (Composer.BLANK, Composer.TEXT):
        hand = replace(hand, recalled=False)
        return _clear(state, hand, item, now, effects)
    if item.doubtful and not state.readable:
        sentence = (
            "The CLI ended after it had taken this message, and left no transcript that says whether the message "
            "reached the model. It was not sent again; look before you repeat it."
        )
        return fail(state, failure("uncertain", sentence, retryable=True), now, effects)
    looks = hand.looks + 1
    if state.fresh and looks < state.timing.ready_looks:
        return _with(state, replace(hand, looks=looks))
    facts = {
        "bytes": len(item.text.encode()),
        "again": item.pastes > 0,
        "redone": item.redone,
    }
    effects.append(e.Note(step="paste", turn_id=item.turn_id, facts=facts))
    effects.append(e.Paste(turn_id=item.turn_id, text=item.text))
    pastes = item.pastes + 1
    state = state.with_item(replace(item, pastes=pastes, given_id=nth(item.given_id, pastes)))
    return _with(state, replace(hand, phase=HandPhase.PASTING, since=now, looks=0))


def nth(given_id: str, number: int) -> str:
    """The id of the `number`th giving: a CLI drops a text whose id it has had before, even one that it gave back."""
    return f"{given_id[:-2]}{number % 256:02x}" if given_id else ""


def _clear(state: State, hand: Hand, item: Item, now: float, effects: Effects) -> State:
    if hand.clears >= state.timing.clears_max:
        if item.own:
            return fail(
                state,
                failure(
                    "pane",
                    "The composer of the CLI could not be emptied; the message was not sent.",
                    retryable=True,
                ),
                now,
                effects,
            )
        return _give_up(state, item)
    effects.append(e.Note(step="clear", turn_id=item.turn_id, facts={"times": hand.clears + 1}))
    effects.append(e.Clear())
    return _with(state, replace(hand, phase=HandPhase.CLEARING, since=now, clears=hand.clears + 1, looks=0))


def _give_up(state: State, item: Item) -> State:
    return replace(state.with_item(replace(item, lost=True)), hand=None)


def waiting_too_long(state: State, told: i.Tick, now: float, effects: Effects) -> State:
    """A CLI that never shows a composer."""
    hand, item = _hand(state)
    if now < hand.since + state.timing.ready_seconds or now < hand.not_before + state.timing.ready_seconds:
        return state
    if not item.own:
        return _give_up(state, item)
    sentence = f"The CLI did not show its composer within {state.timing.ready_seconds:g} s; the message was not sent."
    return fail(state, failure("pane", sentence, retryable=True), now, effects)


def cleared(state: State, told: i.Pressed, now: float, effects: Effects) -> State:
    """The keys for clearing were pressed: look again."""
    hand, _ = _hand(state)
    return _with(state, replace(hand, phase=HandPhase.LOOKING, since=now, looks=0))


# --- paste and Enter


def pasted(state: State, told: i.Pasted, now: float, effects: Effects) -> State:
    """The paste was handed over: Enter after the CLI's own delay."""
    hand, item = _hand(state)
    if told.removed:
        effects.append(e.Note(step="removed", turn_id=item.turn_id, facts={"characters": list(told.removed)}))
    enter_at = now + state.timing.enter_delay_seconds
    return _with(state, replace(hand, phase=HandPhase.ENTERING, since=now, enter_at=enter_at))


def paste_failed(state: State, told: i.PasteFailed, now: float, effects: Effects) -> State:
    """Nothing was pasted: try again soon, but not for ever. A dead program is the turn's matter (Missed)."""
    hand, item = _hand(state)
    state = state.with_item(replace(item, pastes=max(0, item.pastes - 1)))
    if not told.dead and hand.tries + 1 >= state.timing.paste_tries_max:
        if not item.own:
            return _give_up(state, item)
        sentence = f"The message could not be handed over: {told.sentence}"
        return fail(state, failure("pane", sentence, retryable=True), now, effects)
    later = now + state.timing.paste_retry_seconds
    return _with(
        state,
        replace(hand, phase=HandPhase.LOOKING, since=now, tries=hand.tries + 1, not_before=later, looks=0),
    )


def press_enter(state: State, told: i.Seen, now: float, effects: Effects) -> State:
    """Press Enter when its time has come, at what was looked at just now: a menu may have come up over the composer."""
    hand, item = _hand(state)
    if hand.enter_at is None or now < hand.enter_at:
        return state
    block = told.reading.block
    if block is not None:
        if hand.hold == str(block.kind):
            return state
        effects.append(
            e.Hold(
                turn_id=item.turn_id,
                reason=str(block.kind),
                sentence=block.sentence,
                retry_at=block.retry_at,
            )
        )
        return _with(replace(state, hold=str(block.kind)), replace(hand, hold=str(block.kind)))
    if hand.hold:
        effects.append(e.Release(turn_id=item.turn_id))
        state = replace(state, hold="")
        hand = replace(hand, hold="")
        if told.reading.composer is Composer.EMPTY:
            # What stood in front of the composer swallowed it.
            return _with(state, replace(hand, phase=HandPhase.LOOKING, since=now, looks=0, enter_at=None))
    effects.append(e.Note(step="enter", turn_id=item.turn_id, facts={"times": item.enters + 1}))
    effects.append(e.Enter(turn_id=item.turn_id))
    return _with(state, replace(hand, enter_at=None))


def entered(state: State, told: i.Pressed, now: float, effects: Effects) -> State:
    """Enter was pressed: from now on the transcript is asked."""
    hand, item = _hand(state)
    item = replace(item, enters=item.enters + 1, entered_at=now)
    hand = replace(hand, phase=HandPhase.ASKING, since=now, enter_at=None, blocked=False)
    state = _with(state.with_item(item), hand)
    if not told.took:
        return state
    evidence = {"via": told.took, "given": item.given_id}
    return _accepted(state, item, evidence, effects)


def _accepted(state: State, item: Item, evidence: dict[str, Any], effects: Effects) -> State:
    """The CLI has the text: by its composer's word, or by its own."""
    if item.accepted:
        return state
    state = state.with_item(replace(item, accepted=True))
    if not item.own:
        effects.append(e.HandOver(turn_id=item.turn_id, evidence=evidence))
        return replace(state, hand=None)
    effects.append(e.Receipt(state="accepted", evidence=evidence))
    if item.command:
        # Most commands leave no record: that the CLI took it is all there will be.
        return replace(state, phase=TurnPhase.WORKING, hand=None, idle_since=None)
    return state


# --- asking


def ask_screen(state: State, told: i.Seen, now: float, effects: Effects) -> State:
    """What the screen allows while the transcript is silent: Enter again, or the single tick."""
    hand, item = _hand(state)
    reading = told.reading
    assert item.entered_at is not None
    hand = replace(hand, blocked=reading.block is not None, busy=bool(reading.busy))
    state = _with(state, hand)
    if reading.block is not None:
        return state
    since = now - item.entered_at
    timing = state.timing
    holds = reading.composer is Composer.TEXT and ours(state.items, (), reading)
    if holds:
        if since >= timing.enter_again_seconds and _enters_left(state, item):
            return _with(state, replace(hand, phase=HandPhase.ENTERING, enter_at=now))
        if not item.own and since >= timing.transcript_ask_seconds:
            # A steer that the CLI does not take now: out of the composer with it, and again later.
            tries = hand.tries + 1
            later = now + RIDER_RETRY_SECONDS * tries
            effects.append(e.Note(step="clear", turn_id=item.turn_id, facts={"why": "not taken now"}))
            effects.append(e.Clear())
            state = state.with_item(replace(item, enters=0, entered_at=None))
            return _with(
                state,
                replace(hand, phase=HandPhase.CLEARING, since=now, tries=tries, not_before=later, looks=0),
            )
        return state
    if reading.composer is Composer.EMPTY and not item.given_id:
        evidence = {"via": "composer", "pastes": item.pastes, "enters": item.enters}
        return _accepted(state, item, evidence, effects)
    return state


def _enters_left(state: State, item: Item) -> bool:
    per_paste = state.timing.enters_max
    return item.enters < per_paste * (2 if item.redone else 1)


def ask_time(state: State, told: i.Tick, now: float, effects: Effects) -> State:
    """How long the transcript may be silent."""
    hand, item = _hand(state)
    assert item.entered_at is not None
    # Work at something else moves the clock: our text may be next, and its record come only then.
    since = now - max(item.entered_at, state.last_work)
    timing = state.timing
    if not item.own:
        return state if since < timing.unsubmitted_seconds else _give_up(state, item)
    if hand.blocked or hand.busy:
        # What stands in front of it, or the CLI's own work, has a wait of its own.
        return state
    if item.accepted and not state.readable:
        return _no_record(state, item, now, effects) if since >= timing.unsubmitted_seconds else state
    if item.queued and not item.given_id:
        return _recall(state, hand, item, now, effects) if since >= timing.unsubmitted_seconds else state
    if since >= timing.unsubmitted_seconds:
        given = item.given_id and item.accepted
        return (_no_record if given else _not_submitted)(state, item, now, effects)
    # What was given in the CLI's own protocol is never given again: there is no composer to take it back from.
    again = (
        since >= timing.transcript_ask_seconds
        and state.readable
        and not (item.given_id or item.redone or item.command or item.shadowed or state.unfinished)
    )
    if not again:
        return state
    effects.append(e.Note(step="repaste", turn_id=item.turn_id, facts={"silent_seconds": round(since, 3)}))
    state = state.with_item(replace(item, redone=True))
    return _with(state, replace(hand, phase=HandPhase.LOOKING, since=now, looks=0, clears=0, enter_at=None))


def _recall(state: State, hand: Hand, item: Item, now: float, effects: Effects) -> State:
    """An idle CLI has kept it in its queue all the time: take it back, and paste it once more, once."""
    effects.append(e.Note(step="recall", turn_id=item.turn_id, facts={"why": "queued by an idle CLI"}))
    effects.append(e.Recall())
    if item.redone:
        return _not_submitted(state, item, now, effects)
    back = replace(item, queued=False, enters=0, entered_at=None, redone=True)
    return _with(
        state.with_item(back),
        replace(hand, phase=HandPhase.CLEARING, since=now, looks=0, clears=0, recalled=True),
    )


def _no_record(state: State, item: Item, now: float, effects: Effects) -> State:
    """The CLI took it and is idle, and there is no transcript that could say what became of it."""
    seconds = state.timing.unsubmitted_seconds
    evidence = {"via": "given" if item.given_id else "composer", "silent_seconds": seconds}
    effects.append(e.Receipt(state="uncertain", evidence=evidence))
    sentence = (
        f"The CLI took this message, but no record of it could be read in a transcript within {seconds:g} s; whether "
        "it was answered is not known. Look before you repeat it."
    )
    return fail(state, failure("uncertain", sentence, retryable=True, seconds=seconds), now, effects)


def _not_submitted(state: State, item: Item, now: float, effects: Effects) -> State:
    if item.shadowed:
        seconds = state.timing.unsubmitted_seconds
        effects.append(e.Receipt(state="uncertain", evidence={"via": "shadowed", "silent_seconds": seconds}))
        sentence = (
            "After this message was sent the CLI wrote down a text that is not this one; it may be this one in another "
            "form. It was not sent again; look before you repeat it."
        )
        return fail(state, failure("uncertain", sentence, retryable=True, seconds=seconds), now, effects)
    effects.append(e.Note(step="clear", turn_id=item.turn_id, facts={"why": "not submitted"}))
    effects.append(e.Clear())
    seconds = state.timing.unsubmitted_seconds
    sentence = (
        f"The CLI wrote no record of this message within {seconds:g} s after Enter; it was not submitted. "
        "The text is kept."
    )
    return fail(state, failure("not_submitted", sentence, retryable=True, seconds=seconds), now, effects)


def stay(state: State, told: i.Input, now: float, effects: Effects) -> State:
    """Nothing to do in this phase."""
    return state


BLOCKS_THAT_ASK = frozenset({BlockKind.PERMISSION, BlockKind.TRUST, BlockKind.MENU})
"""Menus that a person decides, as an approval, if cursor and options were parsed."""
