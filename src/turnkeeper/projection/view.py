"""The outer shapes: what HTTP, the command line and an embedding program are shown (docs: HTTP reference).

Views are projections of rows and events: they can be thrown away and rebuilt. Times become ISO 8601 in
UTC with an explicit offset; nothing is ordered by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from turnkeeper.conversation import codec
from turnkeeper.conversation.events import Event
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Attachment, Json
from turnkeeper.conversation.turns import Conversation, Submission, Turn, TurnState


def iso(at: float | None) -> str | None:
    """`2026-11-30T16:28:33.120Z` for Unix seconds; None stays None."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ReceiptView(msgspec.Struct, frozen=True, kw_only=True):
    """`state` queued|accepted|confirmed|uncertain|failed, with the proof."""

    state: str
    evidence: dict[str, Json] | None = None


class TurnView(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as shown outside. `position` is 1 for the next to run, null once started or ended."""

    turn_id: str
    conversation_id: str
    submission_id: str
    state: str
    reason: str | None
    position: int | None
    receipt: ReceiptView
    attempts: int
    mode: str
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    failure: dict[str, Json] | None = None
    needs: dict[str, Json] | None = None
    parent: str | None = None
    resend_of: str | None = None
    text: str | None = None
    """The submitted words, where the view was asked to carry them (queue rows)."""
    parts: list[Json] | None = None
    key: str | None = None
    """The producer's own name for the submission, where the view carries its words."""


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message of history as shown outside."""

    seq: int
    message_id: str
    turn_id: str | None
    role: str
    parts: list[Json]
    created_at: str | None
    provenance: str
    display: bool
    replay: bool
    standing: str = "complete"
    stop_reason: str | None = None
    error: str | None = None
    attempt: int = 0
    round: int = 0


class ConversationView(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list. `state` running|queued|waiting|failed|idle|paused."""

    conversation_id: str
    title: str
    agent: str
    archived: bool
    created_at: str | None
    active_at: str | None
    last_seq: int
    state: str = "idle"


class LaneView(msgspec.Struct, frozen=True, kw_only=True):
    """The lane at a glance. `phase` idle|held|offered|working|stopping."""

    phase: str
    paused: str | None
    queue_depth: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a client needs to draw a conversation as of `as_of_seq`, apart from older messages."""

    conversation_id: str
    title: str
    agent: str
    archived: bool
    created_at: str | None
    as_of_seq: int
    epoch: str
    lane: LaneView
    queue: list[TurnView]
    running: dict[str, Json] | None
    """{turn: TurnView, text: the whole partial text, thinking, round} of the running turn, or null."""
    parked: list[TurnView]


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The 202 answer. outcome: started | queued | steered."""

    turn_id: str
    submission_id: str
    outcome: str
    position: int | None
    replayed: bool = False


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a turn waits (or does not): who holds the lane, since when, what releases it."""

    turn_id: str
    state: str
    reason: str
    """A stable name: running_turn | ahead_in_queue | paused | parked | starting | ended | stopping."""
    sentence: str
    holder: str | None = None
    since: str | None = None
    releases: str | None = None
    """What ends the wait, in words."""
    deadline: str | None = None


class Durable(msgspec.Struct, frozen=True):
    """A journal event on a stream: `data` is the JSON of its `event_view`, encoded once for all streams."""

    seq: int
    data: bytes


class Volatile(msgspec.Struct, frozen=True):
    """Something to be shown live that is not kept: `kind` delta and the like. It moves no cursor."""

    kind: str
    data: bytes


class Resync(msgspec.Struct, frozen=True):
    """The reader cannot be brought up to date event by event: it loads a snapshot and goes on from there.

    reason: too_old | too_slow | epoch | ahead
    """

    reason: str
    as_of_seq: int
    epoch: str


StreamItem = Durable | Volatile | Resync


def part_views(parts: Iterable[Any]) -> list[Json]:
    """Parts as JSON values, without provider-bound blocks."""
    views: list[Json] = []
    for part in parts:
        bare = part if type(part) is Attachment else msgspec.structs.replace(part, block=msgspec.UNSET)
        value = msgspec.to_builtins(bare)
        value.pop("bound", None)
        views.append(value)
    return views


def message_view(message: Message) -> MessageView:
    """A stored message for the outside."""
    return MessageView(
        seq=message.seq,
        message_id=message.message_id,
        turn_id=message.turn_id,
        role=message.role,
        parts=part_views(message.parts),
        created_at=iso(message.created_at),
        provenance=message.provenance,
        display=message.display,
        replay=message.replay,
        standing=message.standing,
        stop_reason=message.stop_reason,
        error=message.error,
        attempt=message.attempt,
        round=message.round,
    )


def turn_view(turn: Turn, *, position: int | None = None, submission: Submission | None = None) -> TurnView:
    """A turn for the outside; with its submission it carries its words."""
    failure = None if turn.failure is None else msgspec.to_builtins(turn.failure)
    parts = None if submission is None else part_views(submission.request.parts)
    return TurnView(
        turn_id=turn.turn_id,
        conversation_id=turn.conversation_id,
        submission_id=turn.submission_id,
        state=str(turn.state),
        reason=turn.reason if turn.failure is None else turn.failure.sentence,
        position=position if turn.state is TurnState.QUEUED else None,
        receipt=ReceiptView(state=str(turn.receipt.state), evidence=turn.receipt.evidence),
        attempts=turn.attempt,
        mode=str(turn.mode),
        created_at=iso(turn.created_at),
        started_at=iso(turn.started_at),
        ended_at=iso(turn.ended_at),
        failure=failure,
        needs=turn.needs,
        parent=turn.parent,
        resend_of=turn.resend_of,
        text=None if parts is None else "".join(p["text"] for p in parts if p["type"] == "text"),
        parts=parts,
        key=None if submission is None else submission.key,
    )


def conversation_view(conversation: Conversation, state: str = "idle") -> ConversationView:
    """A conversation for a list."""
    return ConversationView(
        conversation_id=conversation.conversation_id,
        title=conversation.title,
        agent=conversation.agent,
        archived=conversation.archived,
        created_at=iso(conversation.created_at),
        active_at=iso(conversation.active_at),
        last_seq=conversation.last_seq,
        state=state,
    )


def event_view(event: Event) -> dict[str, Json]:
    """A journal event for streams and exports: `{seq, kind, at, actor, turn_id, attempt, body}`.

    Provider-bound blocks stay inside; they mean nothing to a client.
    """
    body = codec.decode(codec.encode_body(event.body), object)
    message = body.get("message") if isinstance(body, dict) else None
    if isinstance(message, dict):
        message.pop("envelope", None)
        message["seq"] = event.seq
        message["created_at"] = iso(message.get("created_at"))
        for part in message.get("parts", ()):
            part.pop("block", None)
            part.pop("bound", None)
    return {
        "seq": event.seq,
        "kind": event.kind,
        "at": iso(event.at),
        "actor": event.actor,
        "turn_id": event.turn_id,
        "attempt": event.attempt,
        "body": body,
    }
