"""Journal events: facts in the past tense, with a gapless `seq` per conversation.

An event is an envelope (who, when, which turn and attempt) around a body of one of the kinds below. The
kind's name is the class's name. A body of a kind that this version does not know is kept word for word
as `Unknown`. Everything a projection needs stands in the events: tables can be rebuilt from them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Json, Part
from turnkeeper.conversation.turns import (
    Disposition,
    Effect,
    Failure,
    Mode,
    ReceiptState,
    Request,
    Usage,
)


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened. Subclasses are the kinds."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = cls.__name__


class Unknown(msgspec.Struct, frozen=True):
    """An event of a kind that a newer version wrote; kept as it is."""

    kind: str
    raw: msgspec.Raw


# --- the conversation itself


class ConversationCreated(Body, frozen=True):
    """The conversation began."""

    owner: str
    agent: str
    title: str = ""


class ConversationRenamed(Body, frozen=True):
    """Its title changed."""

    title: str


class ConversationArchived(Body, frozen=True):
    """It was put into the archive, or taken out again."""

    archived: bool


class ConversationDeleted(Body, frozen=True):
    """It was deleted; for `undo_seconds` it can be brought back."""

    undo_seconds: float


class ConversationRestored(Body, frozen=True):
    """A deletion was undone."""


# --- the life of a turn


class Submitted(Body, frozen=True, kw_only=True):
    """A submission was stored, and with it its turn, queued."""

    submission_id: str
    turn_id: str
    key: str
    fingerprint: str
    request: Request
    place: int = 0
    """0: behind all others (the store fills in the event's own seq)."""
    parent: str | None = None
    """Set when a steer was taken along by this running turn at once."""
    position: int | None = None
    answer: dict[str, Json] | None = None


class TurnStarted(Body, frozen=True):
    """The head of the lane began to run: it holds the lane under this fencing token."""

    fence: int
    owner: str
    lease_until: float
    why: str = "promoted"
    """promoted | rescued | retried | resumed | continued | reattached"""


class TurnEdited(Body, frozen=True):
    """A queued message was changed before it ran."""

    parts: tuple[Part, ...]


class TurnMoved(Body, frozen=True):
    """A queued turn got another place in the queue."""

    place: int
    mode: Mode | None = None
    parent: str | None = None
    """Set when it became a steer of this running turn."""


class TurnSettled(Body, frozen=True):
    """The turn ended answered. reason: answered | answered_by_previous_response | answered_with"""

    reason: str = "answered"
    by: str | None = None


class TurnFailed(Body, frozen=True):
    """The turn ended with a failure; it can be retried."""

    failure: Failure


class TurnCancelled(Body, frozen=True):
    """The turn was stopped or taken back."""

    reason: str
    forced: bool = False


class TurnParked(Body, frozen=True):
    """The turn waits for a person and gave its lane back (unless the agent holds it)."""

    needs: dict[str, Json]
    held: bool = False


class TurnContinued(Body, frozen=True):
    """A decision was made; the turn's continuation is queued at `place`."""

    decision: dict[str, Json]
    place: int


class TurnRequeued(Body, frozen=True):
    """The turn gave its lane back without an end and waits again. why: handed_back | rescued | retried"""

    why: str
    place: int
    attempt: int = 1
    rescues: int = 0


class SteerTaken(Body, frozen=True):
    """The running turn took this rider along; from here on it ends with that turn."""

    parent: str


class SteerReturned(Body, frozen=True):
    """The running turn ended before it took this rider along; it is the next turn now."""

    place: int


class ReceiptMoved(Body, frozen=True):
    """More became known of a delivery."""

    state: ReceiptState
    evidence: dict[str, Json] | None = None


class LanePaused(Body, frozen=True):
    """The queue waits until it is resumed."""

    reason: str


class LaneResumed(Body, frozen=True):
    """The queue goes on."""


class LateAnswered(Body, frozen=True):
    """An answer came after its turn had ended; it is kept and marked, and changes no state."""

    text: str
    state: str


# --- history


class MessageAppended(Body, frozen=True):
    """A message entered history at this seq."""

    message: Message


class MessageMarked(Body, frozen=True):
    """A stored message got other flags: superseded, leaked, interrupted, errored; never other words."""

    message_id: str
    standing: str | None = None
    replay: bool | None = None
    display: bool | None = None
    why: str = ""


class ConfirmationExpired(Body, frozen=True):
    """A dangerous confirmation no longer counts; from here on feeds hold the sentinel in its place.

    The message's standing is `expired` from here on, so that whoever reads messages knows it.
    """

    message_id: str
    pattern: str = ""
    why: str = "stale"
    """stale | restart | steer | model_switch | proposal_gone"""


class HistoryReconciled(Body, frozen=True):
    """A CLI's transcript was merged: which of its rows stand where among our messages.

    `placements` = [[native_id, message_id, after_message_id or null], ...]; rows without an entry were
    matched before. Messages themselves come as MessageAppended in the same commit.
    """

    transcript: str
    placements: tuple[tuple[str, str, str | None], ...] = ()
    matched: int = 0
    ambiguous: int = 0
    matches: tuple[tuple[str, str, str], ...] = ()
    """[[native_id, message_id, how], ...]: messages that were in history and are now known to be these rows."""


class HistoryCompacted(Body, frozen=True):
    """Feeds begin with this summary instead of all messages up to `through_message_id`; display stays whole."""

    summary: str
    through_message_id: str
    model: str = ""
    usage: Usage | None = None
    cost: float | None = None


# --- rounds and tools


class RoundStarted(Body, frozen=True):
    """A model call was sent."""

    round: int
    provider: str = ""
    model: str = ""
    feed_messages: int = 0
    feed_hash: str = ""
    deadlines: dict[str, float] | None = None


class DraftSaved(Body, frozen=True):
    """More text of the answer that is being written: what follows the first `start_chars` characters of its round.

    Each draft holds only what is new, so that a long answer costs the journal its length, not its square.
    """

    round: int
    text: str
    start_chars: int = 0


class RoundFinished(Body, frozen=True):
    """A model call ended."""

    round: int
    stop_reason: str | None = None
    usage: Usage | None = None
    seconds: float = 0.0
    first_token_seconds: float | None = None
    request_id: str | None = None
    cost: float | None = None
    """In the currency of the agent's prices, at the prices of that moment."""


class RoundFailed(Body, frozen=True):
    """A model call ended with a failure. Its half-written text is a message that is not replayed."""

    round: int
    failure: Failure
    usage: Usage | None = None
    cost: float | None = None


class AutoResumed(Body, frozen=True):
    """After a retryable failure the turn went on by itself from what it had; this spends its one chance."""

    failure: Failure
    kept_rounds: int = 0
    kept_results: int = 0
    saved_input_tokens: int = 0
    saved_output_tokens: int = 0


class AttemptSuperseded(Body, frozen=True):
    """One try at a round was set aside for another; it is shown folded, priced, never fed."""

    message_id: str
    why: str
    round: int = 0


class ToolIntended(Body, frozen=True, kw_only=True):
    """A tool is about to run."""

    call_id: str
    name: str
    arguments: Json
    effect: Effect
    idempotency_key: str
    round: int = 0


class ToolReturned(Body, frozen=True, kw_only=True):
    """The outcome of a tool call became known (or was declared unknown)."""

    call_id: str
    disposition: Disposition
    result: Json = ""
    is_error: bool = False
    seconds: float | None = None
    why: str = ""


class ApprovalRequested(Body, frozen=True, kw_only=True):
    """A tool call waits for a yes, bound to this call, name and arguments, for one execution."""

    approval_id: str
    call_id: str
    name: str
    arguments: Json
    expires_at: float
    who: str | None = None
    definition: str = ""
    """Names the tool as it was when the question was asked: a yes is none for a tool that has changed since."""


class ApprovalDecided(Body, frozen=True, kw_only=True):
    """The question was answered, or its time ran out (never read as a no)."""

    approval_id: str
    decision: str
    """approve | deny | expired | withdrawn"""
    by: str = ""


class ConnectRequested(Body, frozen=True, kw_only=True):
    """A server refused a call until its person signs in there: the call has not run, and waits.

    why: not_connected | revoked | scope | moved (the server has another address now than when the person signed
    in). `rejected` names the grant that the server refused, "" for none.
    """

    call_id: str
    server: str
    person: str
    expires_at: float
    why: str = "not_connected"
    rejected: str = ""


class ConnectDecided(Body, frozen=True, kw_only=True):
    """What the calls of this turn that wait for a sign-in at `server` go on with."""

    server: str
    person: str
    outcome: str
    """connected | refused | expired"""
    by: str = ""


# --- turns given to a command-line agent in a terminal


class SessionBound(Body, frozen=True, kw_only=True):
    """From here on the conversation's turns go to this native session of a CLI.

    why: new | resumed | relaunched | role | lost | switched | adopted | reloaded. `sentence` is the reason for people.
    """

    cli: str
    native_id: str | None
    why: str
    sentence: str
    previous: str | None = None
    pane: dict[str, Json] | None = None
    told: bool = False
    """Whether this session is given the recent dialogue in front of its first message (continuity notice)."""


class DeliveryNoted(Body, frozen=True):
    """One step of handing a text to a CLI, journaled before it is done: the evidence chain of a delivery (G14).

    step: paste | enter | clear | repaste | recall | removed | took_back | interrupt | chose | relaunch | handed.
    """

    step: str
    facts: dict[str, Json] | None = None


class DeliveryHeld(Body, frozen=True):
    """The text waits in front of the CLI's composer. `retry_at` is Unix seconds, if that is known."""

    reason: str
    sentence: str
    retry_at: float | None = None


class DeliveryReleased(Body, frozen=True):
    """What stood in the way is gone."""


class Noticed(Body, frozen=True):
    """Something a person should know, of a stable `code`, with the facts."""

    code: str
    text: str
    facts: dict[str, Json] | None = None


REACH_BACK = (
    MessageMarked,
    ConfirmationExpired,
    HistoryReconciled,
    HistoryCompacted,
    AttemptSuperseded,
    Unknown,
)
"""Events after which what stood in history before them may read differently. Who keeps a history reads it anew."""

LANDMARKS = (AutoResumed, SessionBound)
"""Events that are no message and still stand in the timeline between messages."""

KINDS: dict[str, type[Body]] = {cls.__name__: cls for cls in Body.__subclasses__()}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A journal fact. `at` is Unix seconds; `actor` is user:ID, agent:NAME, runner, dispatcher or turnkeeper."""

    conversation_id: str
    seq: int
    at: float
    actor: str
    turn_id: str | None = None
    attempt: int = 0
    body: Body | Unknown
    position: int = 0
    """Place in the whole store, strictly growing; 0 before it is stored."""

    @property
    def kind(self) -> str:
        """The name of the body's kind."""
        return self.body.kind


class Draft(msgspec.Struct, frozen=True):
    """An event before it is stored: the store gives it its seq."""

    body: Body | Unknown
    turn_id: str | None = None
    attempt: int = 0
    actor: str = "turnkeeper"
