"""What a lane can be told. Producers and people send some, runners report others, the dispatcher the rest."""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.conversation.events import Submitted
from turnkeeper.conversation.parts import Part
from turnkeeper.conversation.turns import Failure, Mode
from turnkeeper.lane.state import Slot


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened. `actor` says whose act it was, for the journal."""

    actor: str = "turnkeeper"


# --- from producers and people


class Submit(Input, frozen=True, kw_only=True):
    """A new submission, complete; the lane fills in place, parent and position."""

    body: Submitted
    mode: Mode
    user_id: str


class Cancel(Input, frozen=True, kw_only=True):
    """Take a turn back, or stop it. `pause`: the queue behind a stopped turn waits until it is resumed."""

    turn_id: str
    pause: bool = True
    reason: str = "cancelled"


class Edit(Input, frozen=True, kw_only=True):
    """Change a message that waits."""

    turn_id: str
    parts: tuple[Part, ...]


class Move(Input, frozen=True, kw_only=True):
    """Give a waiting turn another place: before `before`, or (None) behind all."""

    turn_id: str
    before: str | None


class SendNow(Input, frozen=True, kw_only=True):
    """Do not wait: next in line (queue), along with the running turn (steer), or in its place (interrupt)."""

    turn_id: str
    mode: Mode


class Pause(Input, frozen=True, kw_only=True):
    """Let nobody start until Resume."""

    reason: str = "asked"


class Resume(Input, frozen=True):
    """Go on with the queue."""


class Retry(Input, frozen=True, kw_only=True):
    """A failed turn shall run again: same turn, next attempt. `slot` is the failed one."""

    slot: Slot


class Decide(Input, frozen=True, kw_only=True):
    """What a parked turn waited for has been decided."""

    turn_id: str
    decision: dict[str, Any]
    fence: int | None = None
    """Of the turn as it was when the question was read: it may have gone on since, and wait for something else now.
    None: whatever it waits for."""


class Close(Input, frozen=True, kw_only=True):
    """The conversation was deleted: stop the holder, start nobody."""

    reason: str = "deleted"


class Purge(Input, frozen=True, kw_only=True):
    """The time to undo a deletion is over: nobody waits any more."""

    reason: str = "deleted"


# --- from the runner of the holder (turn_id and fence must be the holder's)


class Reported(Input, frozen=True, kw_only=True):
    """A report of the holder's runner."""

    turn_id: str
    fence: int


class Accept(Reported, frozen=True, kw_only=True):
    """The runner took the turn; `evidence` says how that is known."""

    evidence: dict[str, Any]


class Evidence(Reported, frozen=True, kw_only=True):
    """It is proved that the turn was taken up (state confirmed), or it has become doubtful (uncertain)."""

    state: str
    evidence: dict[str, Any]


class Progress(Reported, frozen=True):
    """There was evidence of work."""


class TakeRider(Reported, frozen=True, kw_only=True):
    """The runner takes a waiting rider along."""

    rider_id: str


class HandOver(Reported, frozen=True, kw_only=True):
    """A waiting rider is in the agent's own queue: accepted, no longer to be changed, and not yet taken along."""

    rider_id: str
    evidence: dict[str, Any]


class NeedPerson(Reported, frozen=True, kw_only=True):
    """The turn waits for a person. `hold`: it keeps the lane meanwhile."""

    needs: dict[str, Any]
    hold: bool = False


class Answer(Reported, frozen=True, kw_only=True):
    """The turn is answered. `promote_riders`: taken riders get a response of their own, one after another."""

    reason: str = "answered"
    promote_riders: bool = False


class Fail(Reported, frozen=True, kw_only=True):
    """The turn failed."""

    failure: Failure


class Halt(Reported, frozen=True):
    """The runner stopped, as it was asked to."""


class HandBack(Reported, frozen=True):
    """The server stops as planned; the turn goes back to the head of the queue and keeps its budget."""


# --- from the dispatcher


class Rescue(Input, frozen=True, kw_only=True):
    """The holder's process is dead."""

    turn_id: str


class Reattach(Input, frozen=True, kw_only=True):
    """The holder's pane still lives: same attempt, nothing is sent again."""

    turn_id: str


class Tick(Input, frozen=True):
    """Time has passed."""


class LateAnswer(Input, frozen=True, kw_only=True):
    """An answer came to a turn that has ended."""

    turn_id: str
    text: str
    state: str


INPUTS: tuple[type[Input], ...] = (
    Submit,
    Cancel,
    Edit,
    Move,
    SendNow,
    Pause,
    Resume,
    Retry,
    Decide,
    Close,
    Purge,
    Accept,
    Evidence,
    Progress,
    TakeRider,
    HandOver,
    NeedPerson,
    Answer,
    Fail,
    Halt,
    HandBack,
    Rescue,
    Reattach,
    Tick,
    LateAnswer,
)
