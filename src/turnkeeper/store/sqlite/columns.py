"""Rows to and from the columns of the tables.

Text columns may hold anything a person or a provider sent, but not what databases choke on: a lone
surrogate or a NUL is written as U+E000 and four hex digits, as the codec does it (wire rule A23).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from turnkeeper.conversation import codec
from turnkeeper.conversation.events import (
    Event,
    MessageAppended,
    Submitted,
    ToolIntended,
    ToolReturned,
    TurnEdited,
)
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.turns import (
    Conversation,
    Disposition,
    Effect,
    Failure,
    Mode,
    Receipt,
    ReceiptState,
    Submission,
    ToolCallRow,
    Turn,
    TurnState,
)
from turnkeeper.port.store import AttachmentRow, OutboxRow, TokenRow, UserRow
from turnkeeper.store.rows import (
    CallRow,
    MarkRow,
    MessageRow,
    OutcomeRow,
    SubmissionRow,
    TurnRow,
    flagged,
    submission,
    tool_call,
)
from turnkeeper.store.unit import ValueRow

Columns = tuple[Any, ...]


def text_in(text: str) -> str:
    """What a text column holds for `text`."""
    if text.isascii() and "\0" not in text:
        return text
    escaped: str = codec.make_encodable(text)
    return escaped.replace("\0", "\ue0000000")


def text_out(text: str) -> str:
    """The text that `text_in` was given."""
    if "\ue000" not in text:
        return text
    restored: str = codec.restore(text)
    return restored


def _in(text: str | None) -> str | None:
    return None if text is None else text_in(text)


def _out(text: str | None) -> str | None:
    return None if text is None else text_out(text)


def _json(value: Any) -> bytes | None:
    return None if value is None else codec.encode(value)


# --- to columns


def event_in(event: Event) -> Columns:
    """See the table `event`."""
    return (
        event.position,
        text_in(event.conversation_id),
        event.seq,
        event.at,
        text_in(event.actor),
        _in(event.turn_id),
        event.attempt,
        text_in(event.body.kind),
        codec.encode_body(event.body),
    )


def conversation_in(row: Conversation) -> Columns:
    """See the table `conversation`; what changes with every event is not in it."""
    return (
        text_in(row.conversation_id),
        text_in(row.owner),
        text_in(row.agent),
        text_in(row.title),
        row.archived,
        row.deleted_at,
        row.created_at,
        row.lane_version,
        _in(row.paused),
    )


def turn_in(row: TurnRow) -> Columns:
    """See the table `turn`."""
    turn = row.turn
    return (
        row.position,
        row.seq,
        row.last_seq,
        text_in(turn.turn_id),
        text_in(turn.conversation_id),
        text_in(turn.submission_id),
        turn.state.value,
        turn.place,
        turn.attempt,
        turn.fence,
        _in(turn.owner),
        turn.lease_until,
        turn.rescues,
        turn.mode.value,
        _in(turn.reason),
        _json(turn.failure),
        _json(turn.needs),
        _in(turn.parent),
        _in(turn.resend_of),
        turn.receipt.state.value,
        _json(turn.receipt.evidence),
        text_in(turn.user_id),
        text_in(turn.producer),
        text_in(turn.agent),
        turn.created_at,
        turn.started_at,
        turn.ended_at,
    )


def submission_in(row: SubmissionRow) -> Columns:
    """See the table `submission`."""
    return (
        row.position,
        row.edit_position,
        text_in(row.submission_id),
        text_in(row.conversation_id),
        text_in(row.turn_id),
        text_in(row.user_id),
        _in(row.token_id),
        text_in(row.key),
        text_in(row.fingerprint),
        row.created_at,
    )


def message_in(row: MessageRow) -> Columns:
    """See the table `message`."""
    return (
        text_in(row.conversation_id),
        row.seq,
        row.position,
        text_in(row.message_id),
        _in(row.turn_id),
        text_in(row.role),
        text_in(row.standing),
        row.display,
        row.replay,
        _in(row.native_id),
        _in(row.placed_after),
    )


def mark_in(row: MarkRow) -> Columns:
    """See the query `mark_message`."""
    return (
        _in(row.standing),
        row.display,
        row.replay,
        _in(row.native_id),
        text_in(row.conversation_id),
        text_in(row.message_id),
        row.position,
    )


def call_in(row: CallRow) -> Columns:
    """See the table `tool_call`."""
    return (
        text_in(row.turn_id),
        row.round,
        text_in(row.call_id),
        text_in(row.conversation_id),
        row.seq,
        row.attempt,
        row.effect.value,
        text_in(row.idempotency_key),
        row.disposition.value,
        row.intent_position,
        row.outcome_position,
    )


def outcome_in(row: OutcomeRow) -> Columns:
    """See the query `decide_call`."""
    return row.disposition.value, row.position, text_in(row.turn_id), text_in(row.call_id)


def user_in(row: UserRow) -> Columns:
    """See the table `user`."""
    return text_in(row.user_id), text_in(row.name), row.created_at, row.disabled_at


def token_in(row: TokenRow) -> Columns:
    """See the table `token`."""
    return (
        text_in(row.token_id),
        text_in(row.user_id),
        text_in(row.sha256),
        codec.encode(row.scopes),
        row.created_at,
        row.expires_at,
        row.revoked_at,
        text_in(row.label),
    )


def attachment_in(row: AttachmentRow) -> Columns:
    """See the table `attachment`."""
    return (
        text_in(row.attachment_id),
        text_in(row.user_id),
        text_in(row.sha256),
        text_in(row.name),
        text_in(row.media_type),
        row.size_bytes,
        row.created_at,
    )


def outbox_in(row: OutboxRow) -> Columns:
    """See the table `outbox`."""
    return (
        text_in(row.outbox_id),
        text_in(row.conversation_id),
        text_in(row.kind),
        codec.encode(row.body),
        row.due_at,
        row.attempts,
        row.done_at,
    )


LOOSE_IN: dict[type[Any], tuple[str, Callable[[Any], Columns]]] = {
    UserRow: ("put_user", user_in),
    TokenRow: ("put_token", token_in),
    AttachmentRow: ("put_attachment", attachment_in),
    OutboxRow: ("put_outbox", outbox_in),
    ValueRow: ("put_value", lambda row: (text_in(row.name), row.value)),
}
"""Rows that belong to no conversation: the query that stores each, and its columns."""


# --- from columns


def event_out(row: Sequence[Any]) -> Event:
    """From the columns of `event`."""
    position, conversation_id, seq, at, actor, turn_id, attempt, kind, body = row
    return Event(
        conversation_id=text_out(conversation_id),
        seq=seq,
        at=at,
        actor=text_out(actor),
        turn_id=_out(turn_id),
        attempt=attempt,
        body=codec.decode_body(text_out(kind), body),
        position=position,
    )


def conversation_out(row: Sequence[Any]) -> Conversation:
    """From the columns of `conversation` and seq, position and time of its newest event."""
    return Conversation(
        conversation_id=text_out(row[0]),
        owner=text_out(row[1]),
        agent=text_out(row[2]),
        title=text_out(row[3]),
        archived=bool(row[4]),
        deleted_at=row[5],
        created_at=row[6],
        lane_version=row[7],
        paused=_out(row[8]),
        last_seq=row[9],
        activity=row[10],
        active_at=row[11],
    )


def turn_row_out(row: Sequence[Any]) -> TurnRow:
    """From the columns of `turn`."""
    failure, needs, evidence = row[15], row[16], row[20]
    turn = Turn(
        turn_id=text_out(row[3]),
        conversation_id=text_out(row[4]),
        submission_id=text_out(row[5]),
        state=TurnState(row[6]),
        place=row[7],
        attempt=row[8],
        fence=row[9],
        owner=_out(row[10]),
        lease_until=row[11],
        rescues=row[12],
        mode=Mode(row[13]),
        reason=_out(row[14]),
        failure=None if failure is None else codec.decode(failure, Failure),
        needs=None if needs is None else codec.decode(needs, dict[str, Any]),
        parent=_out(row[17]),
        resend_of=_out(row[18]),
        receipt=Receipt(
            ReceiptState(row[19]), None if evidence is None else codec.decode(evidence, dict[str, Any])
        ),
        user_id=text_out(row[21]),
        producer=text_out(row[22]),
        agent=text_out(row[23]),
        created_at=row[24],
        started_at=row[25],
        ended_at=row[26],
    )
    return TurnRow(position=row[0], seq=row[1], last_seq=row[2], turn=turn)


def turn_out(row: Sequence[Any]) -> Turn:
    """The turn alone."""
    return turn_row_out(row).turn


def submission_row_out(row: Sequence[Any]) -> SubmissionRow:
    """From the columns of `submission`."""
    return SubmissionRow(
        position=row[0],
        edit_position=row[1],
        submission_id=text_out(row[2]),
        conversation_id=text_out(row[3]),
        turn_id=text_out(row[4]),
        user_id=text_out(row[5]),
        token_id=_out(row[6]),
        key=text_out(row[7]),
        fingerprint=text_out(row[8]),
        created_at=row[9],
    )


def submission_out(row: Sequence[Any]) -> Submission:
    """From the columns of `submission` and the bodies of its two events."""
    submitted = codec.decode_body("Submitted", row[10])
    edited = None if row[11] is None else codec.decode_body("TurnEdited", row[11])
    assert isinstance(submitted, Submitted)
    assert edited is None or isinstance(edited, TurnEdited)
    return submission(submission_row_out(row), submitted, edited)


def message_row_out(row: Sequence[Any]) -> MessageRow:
    """From the columns of `message`."""
    return MessageRow(
        conversation_id=text_out(row[0]),
        seq=row[1],
        position=row[2],
        message_id=text_out(row[3]),
        turn_id=_out(row[4]),
        role=text_out(row[5]),
        standing=text_out(row[6]),
        display=bool(row[7]),
        replay=bool(row[8]),
        native_id=_out(row[9]),
        placed_after=_out(row[10]),
    )


def message_out(row: Sequence[Any]) -> Message:
    """From (seq, standing, display, replay, native_id, body of the event)."""
    appended = codec.decode_body("MessageAppended", row[5])
    assert isinstance(appended, MessageAppended)
    return flagged(appended.message, text_out(row[1]), bool(row[2]), bool(row[3]), _out(row[4]))


def call_row_out(row: Sequence[Any]) -> CallRow:
    """From the columns of `tool_call`."""
    return CallRow(
        turn_id=text_out(row[0]),
        round=row[1],
        call_id=text_out(row[2]),
        conversation_id=text_out(row[3]),
        seq=row[4],
        attempt=row[5],
        effect=Effect(row[6]),
        idempotency_key=text_out(row[7]),
        disposition=Disposition(row[8]),
        intent_position=row[9],
        outcome_position=row[10],
    )


def tool_call_out(row: Sequence[Any]) -> ToolCallRow:
    """From the columns of `tool_call` and time and body of its two events."""
    intended = codec.decode_body("ToolIntended", row[12])
    returned = None if row[14] is None else codec.decode_body("ToolReturned", row[14])
    assert isinstance(intended, ToolIntended)
    assert returned is None or isinstance(returned, ToolReturned)
    return tool_call(call_row_out(row), intended, row[11], returned, row[13])


def user_out(row: Sequence[Any]) -> UserRow:
    """From the columns of `user`."""
    return UserRow(user_id=text_out(row[0]), name=text_out(row[1]), created_at=row[2], disabled_at=row[3])


def token_out(row: Sequence[Any]) -> TokenRow:
    """From the columns of `token`."""
    return TokenRow(
        token_id=text_out(row[0]),
        user_id=text_out(row[1]),
        sha256=text_out(row[2]),
        scopes=codec.decode(row[3], tuple[str, ...]),
        created_at=row[4],
        expires_at=row[5],
        revoked_at=row[6],
        label=text_out(row[7]),
    )


def attachment_out(row: Sequence[Any]) -> AttachmentRow:
    """From the columns of `attachment`."""
    return AttachmentRow(
        attachment_id=text_out(row[0]),
        user_id=text_out(row[1]),
        sha256=text_out(row[2]),
        name=text_out(row[3]),
        media_type=text_out(row[4]),
        size_bytes=row[5],
        created_at=row[6],
    )


def outbox_out(row: Sequence[Any]) -> OutboxRow:
    """From the columns of `outbox`."""
    return OutboxRow(
        outbox_id=text_out(row[0]),
        conversation_id=text_out(row[1]),
        kind=text_out(row[2]),
        body=codec.decode(row[3], dict[str, Any]),
        due_at=row[4],
        attempts=row[5],
        done_at=row[6],
    )


def states_in(states: Sequence[TurnState]) -> str:
    """A list of states as a JSON array."""
    return msgspec.json.encode([state.value for state in states]).decode()
