"""What the replay rules work on: rows, one run over them, and what the run may know.

A row is a message on its way into a feed together with the ids of the stored messages it stands for. A rule
takes a list of rows and gives a list of rows; it returns the very list it was given when it changes nothing,
so that the fixed point is found by identity. What it changes it tells the run, for a person to read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Opaque, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.conversation.turns import Effect
from turnkeeper.history.phrases import BUILT_IN, Confirmations

DROPPED = "dropped"
REPLACED = "replaced"
REPAIRED = "repaired"
MERGED = "merged"
ADDED = "added"
MOVED = "moved"
ACTIONS = (DROPPED, REPLACED, REPAIRED, MERGED, ADDED, MOVED)


class Change(msgspec.Struct, frozen=True):
    """One thing in which a feed differs from the stored history. `message` is None for what was added."""

    message: str | None
    rule: str
    action: str
    """dropped | replaced | repaired | merged | added | moved"""
    why: str


class OpenCall(msgspec.Struct, frozen=True):
    """What is known of a tool call that has no result."""

    state: str
    """waiting (for a person) | approved (not run yet) | refused | not_started | unknown"""
    why: str = ""
    """For waiting: what it waits for, in words. For refused: by whom or for what."""


class Compaction(msgspec.Struct, frozen=True):
    """A journaled compaction: `summary` stands for all messages up to `through_message_id`."""

    summary: str
    through_message_id: str


class FeedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a feed depends on besides the messages. The same options and messages give the same feed."""

    effects: Mapping[str, Effect] = msgspec.field(default_factory=dict)
    """What each tool may do, by its name; a name that is missing is looked up in `tools.READ_ONLY`."""
    open_calls: Mapping[str, OpenCall] = msgspec.field(default_factory=dict)
    """By call id: what the ledger knows of calls without a result."""
    compaction: Compaction | None = None
    confirmations: Confirmations = BUILT_IN
    """What counts as a dangerous confirmation."""
    for_request: bool = True
    """True: the feed ends on the user's side, so that a model can be asked. False: it ends as history does."""


DEFAULT_OPTIONS = FeedOptions()


class EarlierCall(msgspec.Struct, frozen=True):
    """A call of a closed turn, kept so that a result that comes late finds what it belongs to."""

    name: str
    result: ToolResult


class Row(msgspec.Struct, eq=False):
    """A message on its way into the feed, and the stored messages that it stands for.

    `plain` is the mark of the fast look (`history/look.py`): no rule that looks at single rows would change it.
    `ids` are its calls' ids, or for a tool row the ids that its results answer, once they were read.
    """

    message: Message
    sources: tuple[str, ...]
    plain: bool = False
    looked: bool = False
    ids: list[str] | None = None


Rows = list[Row]


class Run:
    """One run of the rules over some rows: what they may know, and the changes they make."""

    __slots__ = (
        "_neighbours",
        "_neighbours_of",
        "_suspects",
        "_suspects_of",
        "changes",
        "earlier",
        "expired",
        "opens",
        "options",
        "said_before",
        "stripped",
    )

    def __init__(
        self,
        options: FeedOptions = DEFAULT_OPTIONS,
        expired: frozenset[str] = frozenset(),
        earlier: Mapping[str, EarlierCall] | None = None,
        *,
        opens: bool = True,
        said_before: str = "",
    ) -> None:
        self.options = options
        self.expired = expired
        self.earlier: Mapping[str, EarlierCall] = {} if earlier is None else earlier
        self.opens = opens
        """Whether the rows begin the conversation."""
        self.said_before = said_before
        """What the user had said just before the rows, when they do not begin the conversation."""
        self.changes: list[Change] = []
        self.stripped: dict[str, EarlierCall] = {}
        """Calls that were left out: a late result of theirs is still known."""

        self._suspects_of: Rows | None = None
        self._suspects: list[tuple[int, Row]] = []
        self._neighbours_of: Rows | None = None
        self._neighbours: list[int] = []

    def suspects(self, rows: Rows) -> list[tuple[int, Row]]:
        """The rows, with their places, that the fast look did not find plain."""
        if self._suspects_of is not rows:
            self._suspects_of = rows
            self._suspects = [(i, row) for i, row in enumerate(rows) if not row.plain]
        return self._suspects

    def neighbours(self, rows: Rows) -> list[int]:
        """The places of rows that have the same role as the row before them."""
        if self._neighbours_of is not rows:
            self._neighbours_of = rows
            last = ""
            found: list[int] = []
            for i, row in enumerate(rows):
                role = row.message.role
                if role == last:
                    found.append(i)
                last = role
            self._neighbours = found
        return self._neighbours

    def note(self, row: Row, rule: str, action: str, why: str) -> None:
        """Record a change for each stored message that `row` stands for; one that was added has none."""
        for source in row.sources or (None,):
            self.changes.append(Change(source, rule, action, why))


Rule = Callable[[Rows, Run], Rows]


def with_parts(row: Row, parts: tuple[Part, ...], **changed: Any) -> Row:
    """`row` with other parts (and other fields of its message, as given)."""
    return Row(msgspec.structs.replace(row.message, parts=parts, **changed), row.sources)


def blank(text: str) -> bool:
    """Whether `text` has no visible character (wire rule A10)."""
    return not text or text.isspace()


def is_other_reply(first: Message, second: Message) -> bool:
    """Whether two messages of the assistant are known to answer different requests."""
    return (first.turn_id, first.round) != (second.turn_id, second.round)


def client_calls(message: Message) -> list[ToolCall]:
    """The calls that we run, not the provider."""
    return [part for part in message.parts if type(part) is ToolCall and not part.server_side]


def unbound(part: Part) -> Part | None:
    """`part` without data that is bound to a provider; None if nothing is left of it.

    Signed or encrypted reasoning without its seal is worth nothing to its provider, and reasoning is
    dropped as a unit (wire rule 1g.8).
    """
    if isinstance(part, Thinking) or (isinstance(part, Opaque) and part.block is not msgspec.UNSET):
        return None
    if not isinstance(part, Text | ToolCall | ToolResult) or (
        part.block is msgspec.UNSET and part.bound is None
    ):
        return part
    return msgspec.structs.replace(part, block=msgspec.UNSET, bound=None)


def is_bound(message: Message) -> bool:
    """Whether the message holds data that only its own origin may get back."""
    if message.envelope is not msgspec.UNSET:
        return True
    for part in message.parts:
        if isinstance(part, Thinking) or (isinstance(part, Opaque) and part.block is not msgspec.UNSET):
            return True
        if isinstance(part, Text | ToolCall | ToolResult) and not (
            part.block is msgspec.UNSET and part.bound is None
        ):
            return True
    return False
