"""Turns and what surrounds them: submissions, principals, requests, receipts, failures, tool calls.

A turn is one submission until it is settled. Its state and its receipt are two things: the state says
what happens to it, the receipt what a producer can prove of its delivery.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from turnkeeper.conversation.parts import Json, Part


class TurnState(StrEnum):
    """Where a turn stands. Only queued, running and parked can still change."""

    QUEUED = "queued"
    """Stored; waits for its place. Left by promotion, cancel, or a failed check of rights."""
    RUNNING = "running"
    """Holds the lane. Left by answer, failure, cancel or parking; after a crash a rescue takes it over."""
    PARKED = "parked"
    """Waits for a person (approval, sign-in, decision); holds no lane. A decision continues it."""
    SETTLED = "settled"
    """Answered, or answered by the previous response. An end."""
    FAILED = "failed"
    """Ended with a failure. `/retry` makes it the next attempt of the same turn."""
    CANCELLED = "cancelled"
    """Taken back or stopped. An end."""


OPEN_STATES = frozenset({TurnState.QUEUED, TurnState.RUNNING, TurnState.PARKED})
END_STATES = frozenset({TurnState.SETTLED, TurnState.FAILED, TurnState.CANCELLED})


class Mode(StrEnum):
    """How a submission meets a running turn."""

    QUEUE = "queue"
    STEER = "steer"
    INTERRUPT = "interrupt"


class ReceiptState(StrEnum):
    """What can be proved of a delivery. It only moves forward; failed may still become confirmed, late."""

    QUEUED = "queued"
    ACCEPTED = "accepted"
    UNCERTAIN = "uncertain"
    CONFIRMED = "confirmed"
    FAILED = "failed"


RECEIPT_MOVES: dict[ReceiptState, frozenset[ReceiptState]] = {
    ReceiptState.QUEUED: frozenset(
        {ReceiptState.ACCEPTED, ReceiptState.UNCERTAIN, ReceiptState.CONFIRMED, ReceiptState.FAILED}
    ),
    ReceiptState.ACCEPTED: frozenset({ReceiptState.UNCERTAIN, ReceiptState.CONFIRMED, ReceiptState.FAILED}),
    ReceiptState.UNCERTAIN: frozenset({ReceiptState.CONFIRMED, ReceiptState.FAILED}),
    ReceiptState.CONFIRMED: frozenset(),
    ReceiptState.FAILED: frozenset({ReceiptState.CONFIRMED}),
}
"""Which receipt may follow which. A repeat of the present state is not a move."""


class Principal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who asks. `token_id` lets a delayed turn find out whether that token still stands."""

    user_id: str
    scopes: tuple[str, ...] = ()
    token_id: str | None = None
    kind: str = "person"
    """person | producer | operator"""


class Request(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The complete request of a submission. It holds no secret: secrets are resolved when the turn runs."""

    agent: str
    parts: tuple[Part, ...]
    mode: Mode = Mode.QUEUE
    options: dict[str, Json] = msgspec.field(default_factory=dict)
    producer: str = "api"
    principal: Principal
    resend_of: str | None = None


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something failed: a value, made where the cause is still distinguishable."""

    kind: str
    """first_token | stall | total | connection | overloaded | rate_limit | server | refused_request |
    credentials | quota | context | policy | tool | rounds | backstop | pane | rights | config | crash |
    interrupted | unknown ..."""
    retryable: bool
    sentence: str
    measured_seconds: float | None = None
    status: int | None = None
    retry_after_seconds: float | None = None
    detail: str | None = None


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest receipt of a submission and the proof behind it."""

    state: ReceiptState = ReceiptState.QUEUED
    evidence: dict[str, Json] | None = None


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A turn's row: a projection of the journal, kept beside it for look-ups and for the engine's own checks."""

    turn_id: str
    conversation_id: str
    submission_id: str
    state: TurnState
    place: int
    """Order in the queue: smaller runs first. Equal to the seq of its submission unless moved."""
    attempt: int = 1
    fence: int = 0
    owner: str | None = None
    lease_until: float | None = None
    rescues: int = 0
    mode: Mode = Mode.QUEUE
    reason: str | None = None
    failure: Failure | None = None
    needs: dict[str, Json] | None = None
    """What a parked turn waits for: {kind, ...}."""
    parent: str | None = None
    """The running turn that this steer travels with."""
    resend_of: str | None = None
    receipt: Receipt = Receipt()
    user_id: str = ""
    producer: str = "api"
    agent: str = ""
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None


class Submission(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A producer's ask, with its own id and key. `fingerprint` tells a repeat from another body."""

    submission_id: str
    conversation_id: str
    turn_id: str
    user_id: str
    key: str
    fingerprint: str
    request: Request
    created_at: float
    answer: dict[str, Json] | None = None
    """The 202 body that was given, to be given again."""


class Effect(StrEnum):
    """What running a tool may do to the world; from the MCP annotations, none given means it may act."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    ACTS = "acts"
    DESTRUCTIVE = "destructive"


class Disposition(StrEnum):
    """What is known of one tool call."""

    INTENDED = "intended"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    REFUSED = "refused"


class ToolCallRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of the effect ledger: intent before, outcome after."""

    call_id: str
    turn_id: str
    conversation_id: str
    attempt: int
    round: int
    name: str
    arguments: Json
    effect: Effect
    idempotency_key: str
    disposition: Disposition = Disposition.INTENDED
    result: Json = None
    is_error: bool = False
    intended_at: float = 0.0
    decided_at: float | None = None


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The durable thing a person or producer talks to; owns one lane and one journal."""

    conversation_id: str
    owner: str
    agent: str
    title: str = ""
    archived: bool = False
    deleted_at: float | None = None
    created_at: float = 0.0
    active_at: float = 0.0
    """Time of the newest activity; lists sort by `activity`, never by this."""
    activity: int = 0
    """The store-wide position of the newest event; newest activity first."""
    last_seq: int = 0
    lane_version: int = 0
    paused: str | None = None
    """Why the lane is paused (stopped, asked, failed), or None."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a round cost, in tokens. Cached and reasoning tokens are part of input and output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    raw: dict[str, Json] | None = None
