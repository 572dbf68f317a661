"""What a store must do, whatever engine is below it. `turnkeeper.testing.conformance` proves it.

One verb writes to the journal: `commit`. A batch belongs to one conversation and is stored whole or not
at all; the store gives its events their seq, applies them to the tables that are projections of the
journal (turn, submission, message, tool_call, conversation), and checks in the same transaction

- `lane_version`: the lane was not stepped by anybody else since it was read (else LaneMoved),
- `fence`: the turn still runs under this token (else Fenced),
- the engine's own invariants: one submission per key (else KeyTaken), one running turn per conversation
  (else LaneMoved), every id once (else Conflict), events only of turns that were submitted (else NotFound).

`commit` returns after the data is durable. Reads see every commit that returned before they began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from turnkeeper.conversation.events import Draft, Event
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.turns import Conversation, Submission, ToolCallRow, Turn, TurnState


class Fence(msgspec.Struct, frozen=True):
    """The right to write as the running attempt of a turn."""

    turn_id: str
    token: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one conversation that become durable together. `at` is Unix seconds, for all of them."""

    conversation_id: str
    drafts: tuple[Draft, ...]
    at: float
    lane_version: int | None = None
    """Given by who steps the lane: the version it read. The commit raises it by one."""
    fence: Fence | None = None


class LaneRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane is loaded from: the conversation and its open turns (queued, running, parked), in queue order."""

    conversation: Conversation
    turns: tuple[Turn, ...]


class KeyTaken(Exception):
    """Another submission already has this (user, conversation, key)."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        super().__init__(submission.submission_id)


class UserRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A person or a machine that owns conversations."""

    user_id: str
    name: str
    created_at: float = 0.0
    disabled_at: float | None = None


class TokenRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A bearer token; only its SHA-256 is stored."""

    token_id: str
    user_id: str
    sha256: str
    scopes: tuple[str, ...]
    created_at: float = 0.0
    expires_at: float | None = None
    revoked_at: float | None = None
    label: str = ""


class AttachmentRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One upload of a file. The bytes lie beside the database under their SHA-256."""

    attachment_id: str
    user_id: str
    sha256: str
    name: str
    media_type: str
    size_bytes: int
    created_at: float = 0.0


class OutboxRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something to be sent outside, at least once, with an id that lets the receiver see a repeat."""

    outbox_id: str
    conversation_id: str
    kind: str
    body: dict[str, Any]
    due_at: float
    attempts: int = 0
    done_at: float | None = None


class Store(Protocol):
    """The journal, its projections, and the few rows that are no part of any conversation."""

    # -- writing

    async def commit(self, batch: Batch) -> tuple[Event, ...]:
        """Store the batch durably and return its events with their seq and position.

        Errors: NotFound (no such conversation, unless the first draft is ConversationCreated; no such
        turn), LaneMoved, Fenced, KeyTaken, Conflict (an id exists already), StoreBusy, StoreFull, Stopping
        (closed). After an error nothing of the batch is stored. What the batch itself settles (a turn
        that leaves the lane) counts for what follows in it, so an end comes before the next start.
        """
        ...

    async def renew_leases(self, leases: Sequence[Fence], until: float) -> tuple[Fence, ...]:
        """Move the leases of running turns to `until`; return those that are still held."""
        ...

    # -- reading conversations

    async def conversation(self, conversation_id: str) -> Conversation | None:
        """The conversation, a deleted one too."""
        ...

    async def conversations(
        self, owner: str, *, before: int | None = None, limit: int = 50, archived: bool = False
    ) -> tuple[Conversation, ...]:
        """Of `owner`, not deleted, newest activity first; `before` is the `activity` of the last one seen."""
        ...

    async def lane(self, conversation_id: str) -> LaneRows | None:
        """The lane's rows as of now."""
        ...

    async def open_lanes(self) -> tuple[str, ...]:
        """The conversations with a queued or running turn, deleted ones too."""
        ...

    async def events(
        self, conversation_id: str, *, after: int = 0, limit: int = 1000, turn_id: str | None = None
    ) -> tuple[Event, ...]:
        """Events with seq > `after` in order, of one turn if `turn_id` is given."""
        ...

    async def landmarks(
        self, conversation_id: str, *, since: int = 0, before: int | None = None
    ) -> tuple[Event, ...]:
        """The events with `since` <= seq < `before` that a timeline draws between messages (LANDMARKS), in order."""
        ...

    async def messages(
        self, conversation_id: str, *, before: int | None = None, limit: int = 50
    ) -> tuple[Message, ...]:
        """The newest `limit` messages with seq < `before` in the order of history, marks applied.

        That is ascending seq, except for messages that name the one they stand behind (`Message.after`):
        they come with that one, beyond the limit, and are no cursor (projection/order.py).
        """
        ...

    async def messages_after(self, conversation_id: str, *, after: int = 0) -> tuple[Message, ...]:
        """Every message with seq > `after`, in the order of history, marks applied: what feeds are built from."""
        ...

    # -- reading turns

    async def turn(self, turn_id: str) -> Turn | None:
        """The turn's row."""
        ...

    async def turns(
        self,
        conversation_id: str,
        *,
        before: str | None = None,
        limit: int = 50,
        states: Sequence[TurnState] | None = None,
    ) -> tuple[Turn, ...]:
        """Turns of a conversation, newest first; `before` is the turn_id of the last one seen."""
        ...

    async def turns_in(self, states: Sequence[TurnState], *, limit: int = 1000) -> tuple[Turn, ...]:
        """Turns of the whole store in one of `states`, oldest first: for status and rescue."""
        ...

    async def submission(self, submission_id: str) -> Submission | None:
        """The submission with its complete request (as edited last)."""
        ...

    async def submission_by_key(self, user_id: str, conversation_id: str, key: str) -> Submission | None:
        """The submission that this key already has."""
        ...

    async def tool_calls(self, turn_id: str) -> tuple[ToolCallRow, ...]:
        """The effect ledger of a turn, in order of intent."""
        ...

    # -- rows that belong to no conversation

    async def put_user(self, user: UserRow) -> None:
        """Add a user, or replace the row of the same id."""
        ...

    async def user(self, user_id: str) -> UserRow | None:
        """The user."""
        ...

    async def put_token(self, token: TokenRow) -> None:
        """Add a token, or replace the row of the same id."""
        ...

    async def token_by_hash(self, sha256: str) -> TokenRow | None:
        """The token whose secret has this SHA-256."""
        ...

    async def token(self, token_id: str) -> TokenRow | None:
        """The token."""
        ...

    async def put_attachment(self, row: AttachmentRow) -> None:
        """Record an upload."""
        ...

    async def attachment(self, attachment_id: str) -> AttachmentRow | None:
        """The upload."""
        ...

    async def attachment_in(self, conversation_id: str, attachment_id: str) -> bool:
        """Whether a submission or message of this conversation holds the attachment."""
        ...

    async def put_outbox(self, row: OutboxRow) -> None:
        """Add or replace an outbox row."""
        ...

    async def outbox_due(self, now: float, *, limit: int = 100) -> tuple[OutboxRow, ...]:
        """Rows not done and due."""
        ...

    async def put_value(self, name: str, value: bytes) -> None:
        """Keep a small named value of the store itself (epoch, draft texts, caches)."""
        ...

    async def value(self, name: str) -> bytes | None:
        """The value that was put under `name`."""
        ...

    # -- the store itself

    @property
    def epoch(self) -> str:
        """Changes when a store is restored from a backup or moved; a cursor of another epoch is void."""
        ...

    async def backup(self, path: str) -> None:
        """Write a consistent copy to the new file `path` while running; the copy has a new epoch."""
        ...

    async def check(self) -> tuple[str, ...]:
        """What is wrong with the store, in sentences; nothing if it is sound."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go of the files."""
        ...
