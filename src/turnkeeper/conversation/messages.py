"""A message: one speaker's contribution, with a role and parts.

Two independent flags: `display` (a person sees it) and `replay` (it may enter a feed). Cleaning what a
model sees never changes what a person sees.
"""

from __future__ import annotations

import msgspec

from turnkeeper.conversation.parts import Part, Text

USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
SYSTEM = "system"
NOTICE = "notice"
ROLES = (USER, ASSISTANT, TOOL, SYSTEM, NOTICE)
"""`notice` is a line of Turnkeeper's own, for people (display true, replay false unless a rule says so)."""

COMPLETE = "complete"
INTERRUPTED = "interrupted"
ERRORED = "errored"
LEAKED = "leaked"
SUPERSEDED = "superseded"
EXPIRED = "expired"
"""Of a user's message: a dangerous confirmation in it has grown stale (ConfirmationExpired)."""
STANDINGS = (COMPLETE, INTERRUPTED, ERRORED, LEAKED, SUPERSEDED, EXPIRED)

WORKING = "working"
"""`stop_reason` of words that a CLI said while it worked on, in a row without a tool call: progress, never
the answer."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a message's provider-bound data came from; it goes back only to an equal origin."""

    provider: str
    model: str = ""
    account: str = ""


class Message(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One contribution. `created_at` is the server's Unix time in seconds and orders nothing."""

    message_id: str
    role: str
    parts: tuple[Part, ...] = ()
    created_at: float = 0.0
    seq: int = 0
    """The journal's seq of the event that put it into history; 0 until it is stored."""
    turn_id: str | None = None
    attempt: int = 0
    round: int = 0
    provenance: str = "submitted"
    """submitted | model | tool | native | inferred | turnkeeper"""
    display: bool = True
    replay: bool = True
    standing: str = COMPLETE
    stop_reason: str | None = None
    error: str | None = None
    origin: Origin | None = None
    envelope: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Fields of the provider's own message beside its blocks, word for word."""
    submission_id: str | None = None
    native_id: str | None = None
    """The id of this row in a CLI's own transcript."""
    through: str | None = None
    """Of the summary of a compaction: feeds hold it instead of all messages up to the one of this id."""
    after: str | None = None
    """The message behind which this one stands in history, where that is not where its seq puts it: a row
    that a CLI's transcript had and we had not. Empty: at the very beginning."""

    @property
    def text(self) -> str:
        """The words, without thinking and tools."""
        return "".join([p.text for p in self.parts if type(p) is Text])
