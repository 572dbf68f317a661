"""The state of one turn on a retained CLI, and the numbers it goes by."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from turnkeeper.conversation.turns import Failure
from turnkeeper.retained.signs import Menu, Sign


class TurnPhase(StrEnum):
    """What the turn as a whole waits for."""

    OPENING = "opening"
    """The pane."""
    DELIVERING = "delivering"
    """A record of its own text."""
    GATED = "gated"
    """It was in the CLI's queue when the response before it ended: evidence that a response of its own comes."""
    WORKING = "working"
    """The end of its response."""
    SETTLING = "settling"
    """An end was seen; what is still being written."""
    STOPPING = "stopping"
    """The CLI to stop."""
    ENDED = "ended"
    """Nothing."""


class HandPhase(StrEnum):
    """What a text on its way into the composer waits for."""

    LOOKING = "looking"
    """A look at the composer."""
    HOLDING = "holding"
    """Something in the way to go: a menu, a draft, a limit, other work."""
    CLEARING = "clearing"
    """Left-overs to be gone."""
    PASTING = "pasting"
    """The paste to be handed over."""
    ENTERING = "entering"
    """The CLI's own delay before Enter, and Enter."""
    ASKING = "asking"
    """The transcript's word."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """All waits, in seconds, and all budgets. Defaults: DESIGN section 5, seed 002, reference retained-clis 4."""

    ready_seconds: float = 60.0
    """A launched CLI shows its composer within this."""
    ready_looks: int = 2
    """So often in a row the composer of a launched CLI must be seen empty: menus come a moment after it."""
    enter_delay_seconds: float = 0.15
    """Between paste and Enter; the adapter's."""
    enter_again_seconds: float = 0.5
    """After this, a composer that still holds the text gets Enter again."""
    enters_max: int = 3
    """Enter, and again at most twice."""
    transcript_ask_seconds: float = 6.0
    unsubmitted_seconds: float = 60.0
    clears_max: int = 5
    evidence_gate_seconds: float = 75.0
    backstop_seconds: float = 1800.0
    pane_check_seconds: float = 5.0
    pane_misses_max: int = 3
    flush_seconds: float = 0.25
    """After an end in the transcript, what may still come."""
    error_settle_seconds: float = 1.5
    """After an error that the CLI may still try again."""
    idle_settle_seconds: float = 4.0
    """An idle CLI with an answer but without an end: seen idle for this long it has ended (BD043, BD118)."""
    idle_silent_seconds: float = 20.0
    """An idle CLI without any answer: seen idle for this long the turn has failed."""
    command_settle_seconds: float = 1.5
    """A command of the CLI that leaves no trace: seen idle for this long it has run."""
    interrupt_again_seconds: float = 2.0
    interrupts_max: int = 3
    stop_seconds: float = 8.0
    recall_seconds: float = 3.0
    """An idle CLI that still shows our text as waiting, for this long, has forgotten it (BD074)."""
    working_seconds: float = 5.0
    """Evidence of work is passed on this often at most."""
    relaunches_max: int = 1
    paste_tries_max: int = 3
    paste_retry_seconds: float = 1.0


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A text to be handed to the CLI. `key` is the text as the transcript will show it, for comparing."""

    turn_id: str
    text: str
    key: str
    own: bool = False
    command: bool = False
    pastes: int = 0
    enters: int = 0
    entered_at: float | None = None
    tried: bool = False
    """It was pasted into an earlier process: a record of it is looked for before it is pasted again."""
    doubtful: bool = False
    """That process took it and is gone: without a readable transcript nobody knows whether it reached the model."""
    redone: bool = False
    """It was pasted a second time because nothing was written after the first."""
    accepted: bool = False
    queued: bool = False
    confirmed: bool = False
    lost: bool = False
    """Handing it over was given up."""
    given_id: str = ""
    """The id under which it is given to a CLI that is driven in its own protocol; such a text is given once."""
    shadowed: bool = False
    """Since its Enter the CLI took a text that is not this one: it may be this one in another form."""


class Hand(msgspec.Struct, frozen=True, kw_only=True):
    """A text on its way. `looks` counts good looks in a row, `clears` attempts to empty the composer."""

    turn_id: str
    phase: HandPhase = HandPhase.LOOKING
    since: float = 0.0
    looks: int = 0
    clears: int = 0
    tries: int = 0
    enter_at: float | None = None
    not_before: float = 0.0
    hold: str = ""
    """What holds it, while HOLDING."""
    recalled: bool = False
    """It was asked back from the CLI's queue: if nothing came back, it is not pasted again."""
    blocked: bool = False
    """While ASKING: something stood over the composer at the last look."""
    busy: bool = False
    """While ASKING: the CLI was busy at the last look."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal knows of this turn's delivery from before (another process, or its time as a rider)."""

    pastes: int = 0
    enters: int = 0
    redone: bool = False
    accepted: bool = False
    confirmed: bool = False
    handed: bool = False
    """It was handed over as a rider; the response that ran then has ended."""
    tried: bool = False
    """An earlier attempt pasted it."""
    said: bool = False
    """Something of its answer is in history."""
    decided: tuple[str, str] | None = None
    """(menu's mark, decision) of a question that was answered."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One turn on a retained CLI."""

    turn_id: str
    phase: TurnPhase
    timing: Timing
    items: tuple[Item, ...]
    """The turn's own text first, then riders in order."""
    known: Known = Known()
    past: tuple[str, ...] = ()
    """Texts of earlier turns that were pasted into this pane, without white space: they may be cleared away."""
    hand: Hand | None = None
    fresh: bool = False
    """The CLI was launched for this turn."""
    readable: bool = False
    """Its transcript could be read."""
    misses: int = 0
    missed_at: float = 0.0
    relaunches: int = 0
    last_work: float = 0.0
    told_work: float = -1e18
    said: bool = False
    """Words of an answer were written since the text was taken."""
    open_calls: tuple[str, ...] = ()
    idle_since: float | None = None
    gate_at: float | None = None
    stuck_since: float | None = None
    """Since when an idle CLI has shown our text as waiting."""
    end: str = ""
    """While SETTLING: ended | failed | interrupted | idle | commanded."""
    end_at: float | None = None
    end_failure: Failure | None = None
    leftover: tuple[Sign, ...] = ()
    unfinished: bool = False
    """The transcript holds a response without an end: the CLI may be at work whatever its screen shows."""
    foreign: bool = False
    """What is being answered now is somebody else's, or of a turn that is over."""
    stop_reason: str = ""
    stop_at: float | None = None
    interrupts: int = 0
    interrupted_at: float = 0.0
    asked: Menu | None = None
    chose_at: float = -1e18
    decided: tuple[str, str] | None = None
    hold: str = ""

    @property
    def over(self) -> bool:
        """Nothing more is to be told."""
        return self.phase is TurnPhase.ENDED

    @property
    def own(self) -> Item:
        """The turn's own text."""
        return self.items[0]

    def item(self, turn_id: str) -> Item:
        """The item of a turn."""
        return next(item for item in self.items if item.turn_id == turn_id)

    def with_item(self, item: Item) -> State:
        """The same with that item in its place."""
        return replace(self, items=tuple(item if one.turn_id == item.turn_id else one for one in self.items))


def begin(
    own: Item,
    known: Known,
    timing: Timing,
    now: float,
    *,
    past: tuple[str, ...] = (),
    unfinished: bool = False,
) -> State:
    """A turn at its beginning, waiting for the pane. `past` and `unfinished` are left by the turns before."""
    own = replace(
        own,
        own=True,
        pastes=known.pastes,
        enters=known.enters,
        redone=known.redone,
        tried=known.tried,
        accepted=known.accepted,
        confirmed=known.confirmed,
        entered_at=now if known.enters else None,
    )
    return State(
        turn_id=own.turn_id,
        phase=TurnPhase.OPENING,
        timing=timing,
        items=(own,),
        known=known,
        past=past,
        unfinished=unfinished,
        foreign=unfinished,
        last_work=now,
        said=known.said,
        decided=known.decided,
    )


FAST_SECONDS = 0.15
SLOW_SECONDS = 1.0
FAST_FOR_SECONDS = 10.0


def look_at(state: State, looked: float, now: float) -> float:
    """When the pane is worth the next look, after one at `looked`."""
    if state.misses:
        return looked + state.timing.pane_check_seconds
    hand = state.hand
    if hand is not None and hand.phase is HandPhase.ENTERING and hand.enter_at is not None and not hand.hold:
        return hand.enter_at
    if hand is not None and hand.phase is not HandPhase.HOLDING and now < hand.since + FAST_FOR_SECONDS:
        return looked + FAST_SECONDS
    if state.phase in (TurnPhase.STOPPING, TurnPhase.SETTLING):
        return looked + FAST_SECONDS
    return looked + SLOW_SECONDS


def wake_at(state: State, now: float) -> float | None:
    """When after `now` the state must be told the time, whatever else happens; None: never.

    What was due before `now` and did nothing then waits for something else than time.
    """
    if state.phase is TurnPhase.ENDED:
        return None
    timing = state.timing
    times = [state.last_work + timing.backstop_seconds]
    times += [at for at in (state.end_at, state.stop_at, state.gate_at) if at is not None]
    hand = state.hand
    if hand is not None:
        if hand.enter_at is not None:
            times.append(hand.enter_at)
        if hand.phase in (HandPhase.LOOKING, HandPhase.PASTING, HandPhase.CLEARING):
            times.append(hand.since + timing.ready_seconds)
        item = state.item(hand.turn_id)
        if hand.phase is HandPhase.ASKING and item.entered_at is not None:
            times += [
                item.entered_at + timing.transcript_ask_seconds,
                item.entered_at + timing.unsubmitted_seconds,
            ]
    return min([at for at in times if at > now], default=None)
