"""The one way from stored messages to what a model is given (G7), with an account of every difference.

`build_feed(messages)` cleans a whole history. The result is a pure function of its arguments: the same
history gives the same bytes, cleaning a feed changes nothing, and appending a turn leaves what was sent
before as it was. What a person sees is the history itself; nothing here touches it (G8).

A conversation that grows round by round uses `FeedBuilder` (`history/builder.py`), which keeps closed turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, EXPIRED, USER, Message
from turnkeeper.conversation.parts import Text, ToolCall
from turnkeeper.history.confirmations import find_confirmation, find_stale_confirmations
from turnkeeper.history.phrases import BUILT_IN, Confirmations
from turnkeeper.history.row import (
    DEFAULT_OPTIONS,
    DROPPED,
    Change,
    Compaction,
    FeedOptions,
    OpenCall,
    Row,
    Rows,
    Run,
)
from turnkeeper.history.rules import settle
from turnkeeper.history.shape import SUMMARY, same_words

__all__ = [
    "APPENDED",
    "BUILT_IN",
    "DEDUPLICATED",
    "NONE",
    "Change",
    "Compaction",
    "Confirmations",
    "Feed",
    "FeedOptions",
    "OpenCall",
    "build_feed",
    "find_compaction",
    "find_confirmation",
    "find_expired",
    "find_last_request",
    "find_stale_confirmations",
]

APPENDED: Final = "appended"
DEDUPLICATED: Final = "deduplicated"
NONE: Final = "none"


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is given, message by message, and how it came about."""

    messages: Sequence[Message]
    sources: Sequence[tuple[str, ...]] = ()
    """For each message of the feed the ids of the stored messages it stands for; empty for an added one."""
    changes: tuple[Change, ...] = ()
    incoming: str = NONE
    """appended | deduplicated | none: what became of the incoming message."""
    asks: bool = True
    """Whether there is anything to send: something to answer, and not only a repeat of what was answered."""


def build_feed(
    messages: Sequence[Message],
    *,
    incoming: Message | None = None,
    expired: frozenset[str] = frozenset(),
    options: FeedOptions = DEFAULT_OPTIONS,
) -> Feed:
    """The feed of a conversation.

    `messages` is the history in journal order, marks applied, the newest user message included unless it is
    given as `incoming`. `expired` holds the ids of messages whose confirmation was journaled as expired.
    """
    run = Run(options, expired)
    rows = [Row(message, (message.message_id,)) for message in messages]
    if options.compaction is not None:
        rows = compact(rows, options.compaction, run)
    outcome = NONE
    asks = True
    if incoming is not None:
        outcome = APPENDED
        if is_redelivered(messages, incoming):
            outcome = DEDUPLICATED
            run.options = msgspec.structs.replace(options, for_request=False)
        else:
            rows.append(Row(incoming, (incoming.message_id,)))
    rows = settle(rows, run)
    if outcome is DEDUPLICATED and rows and rows[-1].message.role == ASSISTANT:
        asks = False
    if outcome is APPENDED and incoming is not None and _was_repeat(run.changes, incoming.message_id):
        outcome = DEDUPLICATED
    return finish(rows, run, incoming=outcome, asks=asks)


def finish(rows: Iterable[Row], run: Run, *, incoming: str = NONE, asks: bool = True) -> Feed:
    """The feed that settled rows make."""
    rows = tuple(rows)
    return Feed(
        messages=tuple([row.message for row in rows]),
        sources=tuple([row.sources for row in rows]),
        changes=tuple(run.changes),
        incoming=incoming,
        asks=asks and any(row.message.role in (USER, ASSISTANT) for row in rows),
    )


def is_redelivered(messages: Iterable[Message], incoming: Message) -> bool:
    """Whether this very delivery is in the history already: by its id, never by its words."""
    wanted = incoming.submission_id
    return wanted is not None and any(m.role == USER and m.submission_id == wanted for m in messages)


def _was_repeat(changes: Iterable[Change], message_id: str) -> bool:
    return any(
        c.message == message_id and c.rule == "trailing_duplicate" and c.action == DROPPED for c in changes
    )


def compact(rows: Rows, compaction: Compaction, run: Run) -> Rows:
    """The summary instead of the messages it covers; a request in them that is not answered stays (G5).

    Origin: a pending request that stood only in the summary (github.com/coder/coder/pull/28645).
    """
    ids = [row.message.message_id for row in rows]
    if compaction.through_message_id not in ids:
        return rows
    cut = ids.index(compaction.through_message_id) + 1
    covered, rest = rows[:cut], rows[cut:]
    pending: Rows = []
    if not any(_answers(row.message) for row in rest):
        answered = max((k for k, row in enumerate(covered) if _answers(row.message)), default=-1)
        pending = [
            row
            for row in covered[answered + 1 :]
            if row.message.role == USER and row.message.provenance != SUMMARY
        ]
    kept = {id(row) for row in pending}
    for row in covered:
        if id(row) not in kept:
            run.note(row, "compaction", DROPPED, "the summary stands for it")
    summary = Message(message_id="", role=USER, parts=(Text(compaction.summary),), provenance=SUMMARY)
    return [Row(summary, ()), *pending, *rest]


def _answers(message: Message) -> bool:
    """Whether a message ends what was asked: one that asks for tools is still at work on it."""
    if message.role != ASSISTANT or not message.replay:
        return False
    return not any(type(part) is ToolCall and not part.server_side for part in message.parts)


def find_compaction(messages: Iterable[Message]) -> Compaction | None:
    """The newest compaction of a conversation: it stands among its messages as a summary."""
    found = None
    for message in messages:
        if message.provenance == SUMMARY and message.through is not None:
            found = Compaction(message.text, message.through)
    return found


def find_expired(messages: Iterable[Message]) -> frozenset[str]:
    """The messages whose confirmation was journaled as expired."""
    return frozenset([message.message_id for message in messages if message.standing == EXPIRED])


def find_last_request(messages: Sequence[Message]) -> Message | None:
    """The newest words of a person: never a summary, a notice or a line of Turnkeeper's own."""
    for message in reversed(messages):
        if message.role == USER and message.replay and message.provenance not in (SUMMARY, "turnkeeper"):
            return message
    return None


def is_same_request(first: Message, second: Message) -> bool:
    """Whether two messages of a user ask for the same, word for word and file for file."""
    return same_words(first.parts, second.parts)
