"""What an event does to the tables: the one mapping that every store uses.

The tables are projections of the journal. A large body is kept once, in its event; the rows here are thin
and name the event by its `position`. `PROJECT` maps a kind of event to what it changes; a kind that is
not in it changes no row. Whatever a store is made of, it hands `Unit` (unit.py) a way to look at stored
rows, and `Unit` collects the changed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from turnkeeper.conversation.events import (
    AttemptSuperseded,
    Body,
    ConfirmationExpired,
    ConversationArchived,
    ConversationCreated,
    ConversationDeleted,
    ConversationRenamed,
    ConversationRestored,
    DeliveryHeld,
    DeliveryReleased,
    Event,
    HistoryReconciled,
    LanePaused,
    LaneResumed,
    MessageAppended,
    MessageMarked,
    ReceiptMoved,
    SteerReturned,
    SteerTaken,
    Submitted,
    ToolIntended,
    ToolReturned,
    TurnCancelled,
    TurnContinued,
    TurnEdited,
    TurnFailed,
    TurnMoved,
    TurnParked,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from turnkeeper.conversation.messages import EXPIRED, SUPERSEDED, Message
from turnkeeper.conversation.parts import Attachment, Part, ToolResult
from turnkeeper.conversation.turns import (
    END_STATES,
    RECEIPT_MOVES,
    Conversation,
    Disposition,
    Effect,
    Receipt,
    Submission,
    ToolCallRow,
    Turn,
    TurnState,
)
from turnkeeper.errors import NotFound

replace = msgspec.structs.replace


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """A turn and where its events stand: from its `Submitted`, at `seq` and `position`, to `last_seq`.

    `position` orders turns by age. `last_seq` is None until the turn has ended.
    """

    position: int
    seq: int
    last_seq: int | None = None
    turn: Turn


class SubmissionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A submission without its request, which stands in the event at `position` (edited: at `edit_position`)."""

    position: int
    edit_position: int | None = None
    submission_id: str
    conversation_id: str
    turn_id: str
    user_id: str
    token_id: str | None
    key: str
    fingerprint: str
    created_at: float


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message without its parts, which stand in the event at `position`. The flags are those of now."""

    conversation_id: str
    seq: int
    position: int
    message_id: str
    turn_id: str | None
    role: str
    standing: str
    display: bool
    replay: bool
    native_id: str | None = None
    """Which row of a CLI's transcript the message is known to be."""
    placed_after: str | None = None
    """See `Message.after`."""


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the effect ledger. Arguments and result stand in the events at the two positions.

    A call is known by (turn, round, call_id): providers repeat ids between rounds, and a rescue that
    intends a call again in its round means the same call. `seq` is that of the first intent.
    """

    turn_id: str
    round: int
    call_id: str
    conversation_id: str
    seq: int
    attempt: int
    effect: Effect
    idempotency_key: str
    disposition: Disposition
    intent_position: int
    outcome_position: int | None = None


class MarkRow(msgspec.Struct, frozen=True, kw_only=True):
    """New flags, by the event at `position`, of an earlier message; None leaves one as it is."""

    position: int
    conversation_id: str
    message_id: str
    standing: str | None = None
    display: bool | None = None
    replay: bool | None = None
    native_id: str | None = None


class OutcomeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome, in the event at `position`, of the call of this id that was intended last."""

    turn_id: str
    call_id: str
    disposition: Disposition
    position: int


class Rows(Protocol):
    """The rows as they are now. What is added must not exist yet; the engine refuses it otherwise."""

    def turn_row(self, turn_id: str) -> TurnRow | None:
        """The turn."""
        ...

    def put_turn(self, row: TurnRow) -> None:
        """Change a turn."""
        ...

    def add_turn(self, row: TurnRow, submission: SubmissionRow) -> None:
        """Add a turn with its submission."""
        ...

    def edit_submission(self, turn_id: str, position: int) -> None:
        """Note the event that holds the newest parts of a turn's submission."""
        ...

    def add_message(self, row: MessageRow) -> None:
        """Add a message."""
        ...

    def mark_message(self, row: MarkRow) -> None:
        """Change flags of a message; one that is not stored is left alone."""
        ...

    def intend_call(self, row: CallRow) -> None:
        """Add a line to the ledger, or open it again (it keeps its first `seq`)."""
        ...

    def decide_call(self, row: OutcomeRow) -> None:
        """Note an outcome; that of a call which is not in the ledger is left alone."""
        ...

    def put_link(self, conversation_id: str, attachment_id: str) -> None:
        """Note that the conversation holds the attachment."""
        ...

    def set_conversation(self, conversation_id: str, **columns: Any) -> None:
        """Change columns of the conversation that the batch belongs to."""
        ...


# --- turns: which columns each event sets


def _started(event: Event, body: TurnStarted, turn: Turn) -> dict[str, Any]:
    return {
        **_OPEN,
        "state": TurnState.RUNNING,
        "fence": body.fence,
        "owner": body.owner,
        "lease_until": body.lease_until,
        "attempt": max(turn.attempt, event.attempt),
        "started_at": event.at,
        "reason": None,
        "needs": None,
        "parent": None,
    }


_OPEN: dict[str, Any] = {"ended_at": None, "failure": None}
_LEFT_LANE: dict[str, Any] = {"owner": None, "lease_until": None}


def _ended(event: Event, state: TurnState, reason: str, **more: Any) -> dict[str, Any]:
    return {**_LEFT_LANE, "state": state, "ended_at": event.at, "reason": reason, "needs": None, **more}


def _waits_again(place: int, **more: Any) -> dict[str, Any]:
    return {
        **_OPEN,
        **_LEFT_LANE,
        "state": TurnState.QUEUED,
        "place": place,
        "needs": None,
        "parent": None,
        **more,
    }


def _receipt(_event: Event, body: ReceiptMoved, turn: Turn) -> dict[str, Any]:
    if body.state not in RECEIPT_MOVES[turn.receipt.state]:
        return {}
    return {"receipt": Receipt(body.state, body.evidence)}


def _needs(body: TurnParked) -> dict[str, Any]:
    return {**body.needs, "held": True} if body.held else body.needs


def _held(_event: Event, body: DeliveryHeld, turn: Turn) -> dict[str, Any]:
    """Why a running turn's text waits before its CLI. A rider's own reason says how it will start: it is kept."""
    if turn.state is not TurnState.RUNNING:
        return {}
    needs = {"kind": "delivery", "reason": body.reason, "sentence": body.sentence, "retry_at": body.retry_at}
    return {"reason": f"held: {body.sentence}", "needs": needs}


def _released(_event: Event, _body: DeliveryReleased, turn: Turn) -> dict[str, Any]:
    return {"reason": None, "needs": None} if turn.state is TurnState.RUNNING else {}


TURN_COLUMNS: dict[type[Body], Callable[[Event, Any, Turn], dict[str, Any]]] = {
    TurnStarted: _started,
    TurnMoved: lambda e, b, t: {
        "place": b.place,
        "mode": t.mode if b.mode is None else b.mode,
        "parent": t.parent if b.parent is None else b.parent,
    },
    TurnSettled: lambda e, b, t: _ended(e, TurnState.SETTLED, b.reason, failure=None),
    TurnFailed: lambda e, b, t: _ended(e, TurnState.FAILED, b.failure.kind, failure=b.failure),
    TurnCancelled: lambda e, b, t: _ended(e, TurnState.CANCELLED, b.reason, failure=None),
    TurnParked: lambda e, b, t: {
        **_OPEN,
        **_LEFT_LANE,
        "state": TurnState.PARKED,
        "needs": _needs(b),
        "reason": b.needs.get("kind"),
    },
    TurnContinued: lambda e, b, t: _waits_again(b.place, reason="continued"),
    TurnRequeued: lambda e, b, t: _waits_again(b.place, reason=b.why, attempt=b.attempt, rescues=b.rescues),
    SteerTaken: lambda e, b, t: {
        **_OPEN,
        "state": TurnState.RUNNING,
        "parent": b.parent,
        "needs": None,
        "started_at": e.at,
        "attempt": max(t.attempt, e.attempt),
    },
    SteerReturned: lambda e, b, t: _waits_again(b.place, reason=None),
    ReceiptMoved: _receipt,
    DeliveryHeld: _held,
    DeliveryReleased: _released,
}


def _project_turn(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, Body)
    row = _turn_of(event, rows)
    columns = TURN_COLUMNS[type(body)](event, body, row.turn)
    if columns:
        rows.put_turn(replace(row, turn=replace(row.turn, **columns)))


def _turn_of(event: Event, rows: Rows) -> TurnRow:
    row = None if event.turn_id is None else rows.turn_row(event.turn_id)
    if row is None or row.turn.conversation_id != event.conversation_id:
        raise NotFound(what="turn")
    return row


# --- the conversation: which columns each event sets

CONVERSATION_COLUMNS: dict[type[Body], Callable[[Event, Any], dict[str, Any]]] = {
    ConversationRenamed: lambda e, b: {"title": b.title},
    ConversationArchived: lambda e, b: {"archived": b.archived},
    ConversationDeleted: lambda e, b: {"deleted_at": e.at},
    ConversationRestored: lambda e, b: {"deleted_at": None},
    LanePaused: lambda e, b: {"paused": b.reason},
    LaneResumed: lambda e, b: {"paused": None},
}


def _project_conversation(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, Body)
    rows.set_conversation(event.conversation_id, **CONVERSATION_COLUMNS[type(body)](event, body))


# --- the other tables


def _link(parts: Iterable[Part], event: Event, rows: Rows) -> None:
    for part in parts:
        if type(part) is Attachment:
            rows.put_link(event.conversation_id, part.attachment_id)
        elif type(part) is ToolResult and isinstance(part.content, list | tuple):
            for piece in part.content:
                held = piece.get("attachment_id") if isinstance(piece, dict) else None
                if isinstance(held, str):
                    rows.put_link(event.conversation_id, held)


def _submitted(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, Submitted)
    request = body.request
    turn = Turn(
        turn_id=body.turn_id,
        conversation_id=event.conversation_id,
        submission_id=body.submission_id,
        state=TurnState.QUEUED,
        place=body.place or event.seq,
        mode=request.mode,
        parent=body.parent,
        resend_of=request.resend_of,
        user_id=request.principal.user_id,
        producer=request.producer,
        agent=request.agent,
        created_at=event.at,
    )
    rows.add_turn(
        TurnRow(position=event.position, seq=event.seq, turn=turn),
        SubmissionRow(
            position=event.position,
            submission_id=body.submission_id,
            conversation_id=event.conversation_id,
            turn_id=body.turn_id,
            user_id=request.principal.user_id,
            token_id=request.principal.token_id,
            key=body.key,
            fingerprint=body.fingerprint,
            created_at=event.at,
        ),
    )
    _link(request.parts, event, rows)


def _edited(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, TurnEdited)
    rows.edit_submission(_turn_of(event, rows).turn.turn_id, event.position)
    _link(body.parts, event, rows)


def _appended(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, MessageAppended)
    message = body.message
    rows.add_message(
        MessageRow(
            conversation_id=event.conversation_id,
            seq=event.seq,
            position=event.position,
            message_id=message.message_id,
            turn_id=message.turn_id,
            role=message.role,
            standing=message.standing,
            display=message.display,
            replay=message.replay,
            native_id=message.native_id,
            placed_after=message.after,
        )
    )
    _link(message.parts, event, rows)


def _marked(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, MessageMarked)
    rows.mark_message(
        MarkRow(
            position=event.position,
            conversation_id=event.conversation_id,
            message_id=body.message_id,
            standing=body.standing,
            display=body.display,
            replay=body.replay,
        )
    )


def _superseded(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, AttemptSuperseded)
    rows.mark_message(
        MarkRow(
            position=event.position,
            conversation_id=event.conversation_id,
            message_id=body.message_id,
            standing=SUPERSEDED,
            replay=False,
        )
    )


def _expired(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, ConfirmationExpired)
    rows.mark_message(
        MarkRow(
            position=event.position,
            conversation_id=event.conversation_id,
            message_id=body.message_id,
            standing=EXPIRED,
        )
    )


def _reconciled(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, HistoryReconciled)
    for native_id, message_id, _ in body.matches:
        rows.mark_message(
            MarkRow(
                position=event.position,
                conversation_id=event.conversation_id,
                message_id=message_id,
                native_id=native_id,
            )
        )


def _intended(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, ToolIntended)
    rows.intend_call(
        CallRow(
            turn_id=_turn_of(event, rows).turn.turn_id,
            round=body.round,
            call_id=body.call_id,
            conversation_id=event.conversation_id,
            seq=event.seq,
            attempt=event.attempt,
            effect=body.effect,
            idempotency_key=body.idempotency_key,
            disposition=Disposition.INTENDED,
            intent_position=event.position,
        )
    )


def _returned(event: Event, rows: Rows) -> None:
    body = event.body
    assert isinstance(body, ToolReturned)
    rows.decide_call(
        OutcomeRow(
            turn_id=_turn_of(event, rows).turn.turn_id,
            call_id=body.call_id,
            disposition=body.disposition,
            position=event.position,
        )
    )


PROJECT: dict[type[Any], Callable[[Event, Rows], None]] = {
    **dict.fromkeys(TURN_COLUMNS, _project_turn),
    **dict.fromkeys(CONVERSATION_COLUMNS, _project_conversation),
    Submitted: _submitted,
    TurnEdited: _edited,
    MessageAppended: _appended,
    MessageMarked: _marked,
    AttemptSuperseded: _superseded,
    ConfirmationExpired: _expired,
    HistoryReconciled: _reconciled,
    ToolIntended: _intended,
    ToolReturned: _returned,
}


def project(event: Event, rows: Rows) -> None:
    """Change the rows as `event` says. Raises NotFound if it needs a turn that was never submitted."""
    change = PROJECT.get(type(event.body))
    if change is not None:
        change(event, rows)
    row = None if event.turn_id is None else rows.turn_row(event.turn_id)
    if row is not None:
        last_seq = event.seq if row.turn.state in END_STATES else None
        if row.last_seq != last_seq:
            rows.put_turn(replace(row, last_seq=last_seq))


# --- from rows and event bodies back to the nouns


def new_conversation(conversation_id: str, at: float, body: ConversationCreated) -> Conversation:
    """The row of a conversation that begins."""
    return Conversation(
        conversation_id=conversation_id,
        owner=body.owner,
        agent=body.agent,
        title=body.title,
        created_at=at,
        active_at=at,
    )


def flagged(message: Message, standing: str, display: bool, replay: bool, native_id: str | None) -> Message:
    """The message with what its row knows better."""
    if (
        message.standing == standing
        and message.display == display
        and message.replay == replay
        and message.native_id == native_id
    ):
        return message
    return replace(message, standing=standing, display=display, replay=replay, native_id=native_id)


def submission(row: SubmissionRow, submitted: Submitted, edited: TurnEdited | None) -> Submission:
    """The submission with its complete request, as edited last."""
    request = submitted.request
    return Submission(
        submission_id=row.submission_id,
        conversation_id=row.conversation_id,
        turn_id=row.turn_id,
        user_id=row.user_id,
        key=row.key,
        fingerprint=row.fingerprint,
        request=request if edited is None else replace(request, parts=edited.parts),
        created_at=row.created_at,
        answer=submitted.answer,
    )


def tool_call(
    row: CallRow,
    intended: ToolIntended,
    intended_at: float,
    returned: ToolReturned | None,
    decided_at: float | None,
) -> ToolCallRow:
    """The line of the ledger with arguments and result."""
    return ToolCallRow(
        call_id=row.call_id,
        turn_id=row.turn_id,
        conversation_id=row.conversation_id,
        attempt=row.attempt,
        round=row.round,
        name=intended.name,
        arguments=intended.arguments,
        effect=row.effect,
        idempotency_key=row.idempotency_key,
        disposition=row.disposition,
        result=None if returned is None else returned.result,
        is_error=False if returned is None else returned.is_error,
        intended_at=intended_at,
        decided_at=decided_at,
    )
