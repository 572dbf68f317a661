"""A unit of work: the rows that a batch changes, over the rows that are stored.

`store_batch` is the whole of a commit apart from the engine: it checks the lane's version and the fence,
gives the events their seq and position, and projects them. Nothing outside the unit changes, so a batch
that is refused leaves no trace; one that is accepted is absorbed into the unit below it (a group commit
puts many batches into one unit), and the engine writes that unit in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from turnkeeper.conversation.events import ConversationCreated, Event, MessageAppended, Submitted
from turnkeeper.conversation.turns import Conversation, TurnState
from turnkeeper.errors import Conflict, Fenced, LaneMoved, NotFound
from turnkeeper.port.store import AttachmentRow, Batch, Fence, OutboxRow, TokenRow, UserRow
from turnkeeper.store.rows import (
    CallRow,
    MarkRow,
    MessageRow,
    OutcomeRow,
    SubmissionRow,
    TurnRow,
    new_conversation,
    project,
)

replace = msgspec.structs.replace


class Stored(Protocol):
    """The rows that are stored already."""

    @property
    def last_position(self) -> int:
        """The position of the newest event of the whole store."""
        ...

    def conversation_row(self, conversation_id: str) -> Conversation | None:
        """The conversation."""
        ...

    def turn_row(self, turn_id: str) -> TurnRow | None:
        """The turn."""
        ...


class ValueRow(msgspec.Struct, frozen=True):
    """A small named value."""

    name: str
    value: bytes


LooseRow = UserRow | TokenRow | AttachmentRow | OutboxRow | ValueRow


class Overlap(Exception):
    """Two units add the same row: they must be stored one after the other for the engine to judge."""


class Unit:
    """Changed rows over `stored`; itself something to lay a further unit over."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self.last_position = stored.last_position
        self.events: list[Event] = []
        self.conversations: dict[str, Conversation] = {}
        self.changed: dict[str, None] = {}
        """Conversations of which more changed than what changes with every event."""
        self.turns: dict[str, TurnRow] = {}
        self.submissions: dict[str, SubmissionRow] = {}
        """Of the turns that are new."""
        self.edits: dict[str, int] = {}
        self.messages: dict[tuple[str, str], MessageRow] = {}
        self.marks: list[MarkRow] = []
        self.ledger: list[CallRow | OutcomeRow] = []
        self.links: dict[tuple[str, str], None] = {}
        self.loose: list[LooseRow] = []
        """Rows that belong to no conversation, to be added or replaced."""

    @property
    def empty(self) -> bool:
        """Whether nothing was changed."""
        return not (self.conversations or self.turns or self.loose)

    # -- reading

    def conversation_row(self, conversation_id: str) -> Conversation | None:
        """The conversation, changed or stored."""
        return self.conversations.get(conversation_id) or self._stored.conversation_row(conversation_id)

    def turn_row(self, turn_id: str) -> TurnRow | None:
        """The turn, changed or stored."""
        return self.turns.get(turn_id) or self._stored.turn_row(turn_id)

    # -- changing

    def put_turn(self, row: TurnRow) -> None:
        """Change a turn."""
        self.turns[row.turn.turn_id] = row

    def add_turn(self, row: TurnRow, submission: SubmissionRow) -> None:
        """Add a turn with its submission."""
        if row.turn.turn_id in self.turns:
            raise Conflict(f"There is already a turn {row.turn.turn_id}.")
        self.turns[row.turn.turn_id] = row
        self.submissions[row.turn.turn_id] = submission

    def edit_submission(self, turn_id: str, position: int) -> None:
        """Note the event that holds the newest parts of a turn's submission."""
        self.edits[turn_id] = position

    def add_message(self, row: MessageRow) -> None:
        """Add a message."""
        key = row.conversation_id, row.message_id
        if key in self.messages:
            raise Conflict(f"There is already a message {row.message_id}.")
        self.messages[key] = row

    def mark_message(self, row: MarkRow) -> None:
        """Change flags of a message."""
        self.marks.append(row)

    def intend_call(self, row: CallRow) -> None:
        """Add a line to the ledger, or open it again."""
        self.ledger.append(row)

    def decide_call(self, row: OutcomeRow) -> None:
        """Note an outcome."""
        self.ledger.append(row)

    def put_link(self, conversation_id: str, attachment_id: str) -> None:
        """Note that the conversation holds the attachment."""
        self.links[conversation_id, attachment_id] = None

    def absorb(self, upper: Unit) -> None:
        """Take over what a unit laid over this one changed. Raises Overlap if it adds what is here already."""
        if not (
            self.turns.keys().isdisjoint(upper.submissions)
            and self.messages.keys().isdisjoint(upper.messages)
        ):
            raise Overlap
        self.last_position = upper.last_position
        self.events += upper.events
        self.conversations |= upper.conversations
        self.changed |= upper.changed
        self.turns |= upper.turns
        self.submissions |= upper.submissions
        self.edits |= upper.edits
        self.messages |= upper.messages
        self.marks += upper.marks
        self.ledger += upper.ledger
        self.links |= upper.links
        self.loose += upper.loose

    def set_conversation(self, conversation_id: str, **columns: Any) -> None:
        """Change columns of a conversation that exists."""
        row = self.conversation_row(conversation_id)
        assert row is not None, conversation_id
        self.conversations[conversation_id] = replace(row, **columns)
        self.changed[conversation_id] = None

    def begin_conversation(self, conversation: Conversation) -> None:
        """Add a conversation."""
        self.conversations[conversation.conversation_id] = conversation
        self.changed[conversation.conversation_id] = None

    def note_events(self, conversation_id: str, seq: int, position: int, at: float) -> None:
        """The newest event of the conversation, and of the store, is now this one."""
        row = self.conversation_row(conversation_id)
        assert row is not None, conversation_id
        self.conversations[conversation_id] = replace(row, last_seq=seq, activity=position, active_at=at)
        self.last_position = position


def _begun(batch: Batch, unit: Unit) -> Conversation:
    conversation = unit.conversation_row(batch.conversation_id)
    first = batch.drafts[0].body if batch.drafts else None
    if conversation is None:
        if type(first) is not ConversationCreated:
            raise NotFound(what="conversation")
        conversation = new_conversation(batch.conversation_id, batch.at, first)
        unit.begin_conversation(conversation)
    elif type(first) is ConversationCreated:
        raise Conflict(f"There is already a conversation {batch.conversation_id}.")
    return conversation


def _check_fence(fence: Fence, conversation_id: str, unit: Unit) -> None:
    row = unit.turn_row(fence.turn_id)
    if (
        row is None
        or row.turn.conversation_id != conversation_id
        or row.turn.state is not TurnState.RUNNING
        or row.turn.fence != fence.token
    ):
        raise Fenced(turn_id=fence.turn_id)


def store_batch(batch: Batch, unit: Unit) -> tuple[Event, ...]:
    """Apply `batch` to `unit` (an empty one, laid over the group's) and return its events.

    Errors: NotFound, Conflict (an id that exists already), LaneMoved, Fenced.
    """
    conversation_id = batch.conversation_id
    conversation = _begun(batch, unit)
    if batch.lane_version is not None:
        if batch.lane_version != conversation.lane_version:
            raise LaneMoved(conversation_id=conversation_id)
        unit.set_conversation(conversation_id, lane_version=conversation.lane_version + 1)
    if batch.fence is not None:
        _check_fence(batch.fence, conversation_id, unit)
    seq = conversation.last_seq
    position = unit.last_position
    for draft in batch.drafts:
        seq += 1
        position += 1
        body = draft.body
        if isinstance(body, MessageAppended):
            body = MessageAppended(replace(body.message, seq=seq))
        elif isinstance(body, Submitted) and not body.place:
            body = replace(body, place=seq)
        event = Event(
            conversation_id=conversation_id,
            seq=seq,
            at=batch.at,
            actor=draft.actor,
            turn_id=draft.turn_id,
            attempt=draft.attempt,
            body=body,
            position=position,
        )
        unit.events.append(event)
        project(event, unit)
    if batch.drafts:
        unit.note_events(conversation_id, seq, position, batch.at)
    return tuple(unit.events)


def renew(leases: Iterable[Fence], until: float, unit: Unit) -> tuple[Fence, ...]:
    """Move the leases that are still held to `until`, and return them."""
    held = []
    for fence in leases:
        row = unit.turn_row(fence.turn_id)
        if row is not None and row.turn.state is TurnState.RUNNING and row.turn.fence == fence.token:
            unit.put_turn(replace(row, turn=replace(row.turn, lease_until=until)))
            held.append(fence)
    return tuple(held)


def project_all(events: Iterable[Event], unit: Unit) -> None:
    """Derive the rows of `events`, in order of position, into `unit`: what a rebuild does.

    `lane_version` counts steps of the lane, not events, and is not derived here.
    """
    for event in events:
        body = event.body
        conversation_id = event.conversation_id
        if type(body) is ConversationCreated:
            unit.begin_conversation(new_conversation(conversation_id, event.at, body))
        project(event, unit)
        unit.note_events(conversation_id, event.seq, event.position, event.at)


def keep_what_no_event_tells(
    conversations: Iterable[Conversation], turns: Iterable[TurnRow], unit: Unit
) -> None:
    """Carry over from the old rows what is a fact of the lane and not of the journal: version and leases."""
    for conversation in conversations:
        unit.set_conversation(conversation.conversation_id, lane_version=conversation.lane_version)
    for old in turns:
        row = unit.turn_row(old.turn.turn_id)
        if row is not None and row.turn.fence == old.turn.fence and row.turn.lease_until is not None:
            unit.put_turn(replace(row, turn=replace(row.turn, lease_until=old.turn.lease_until)))
