"""What must be remembered of a conversation's CLI between turns and across restarts, as one small value.

It is kept beside the journal, not in it: it says where the pane and the transcript are and how far the transcript was
read. What happened is in the journal (SessionBound, DeliveryNoted, messages).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from turnkeeper.terminal.pane import PaneIdentity
from turnkeeper.transcript.tail import Cursor

KNOWN_ROWS_MAX = 1_000
PAST_MAX = 8
ENDED_MAX = 50


class Ended(msgspec.Struct, frozen=True):
    """A turn that ended without a record of its text: one may still come."""

    turn_id: str
    key: str
    state: str


class Keepsake(msgspec.Struct, kw_only=True):
    """One conversation's CLI."""

    cli: str = ""
    native_id: str | None = None
    chain: list[str] = msgspec.field(default_factory=list)
    """All native sessions, oldest first."""
    spoken: bool = False
    """The native session has taken a text: its file must be there when it is resumed."""
    role: str = ""
    definition: str = ""
    instructions: str = ""
    """Marker of the instructions that the native session knows."""
    cwd: str = ""
    pane: PaneIdentity | None = None
    launches: int = 0
    launched_at: float = 0.0
    transcript: str | None = None
    cursor: Cursor | None = None
    known_rows: list[str] = msgspec.field(default_factory=list)
    past: list[str] = msgspec.field(default_factory=list)
    """Texts that were pasted into the pane of now, without white space."""
    unfinished: bool = False
    last_work_at: float = 0.0
    turn_id: str | None = None
    """The turn that ran last."""
    ended: list[Ended] = msgspec.field(default_factory=list)
    answering: str | None = None
    """The ended turn whose response may still be coming."""
    lost: str | None = None
    """A native session that turned out to be gone; it is healed once."""
    why: str = ""
    """How the session of now came about, for people."""

    @property
    def mark(self) -> str:
        """The pane of now: what was handed to another one is not in this one's memory."""
        return self.pane.mark if self.pane is not None else ""


class Keepsakes(Protocol):
    """Where they are kept: a store's named values."""

    async def put_value(self, name: str, value: bytes) -> None:
        """Keep a small named value."""
        ...

    async def value(self, name: str) -> bytes | None:
        """The value that was put under `name`."""
        ...


def name_of(conversation_id: str) -> str:
    """Under which name a conversation's keepsake is kept."""
    return f"retained/{conversation_id}"


def index_name(agent: str) -> str:
    """Under which name the conversations of an agent that have a CLI are kept."""
    return f"retained-of/{agent}"


def remember(rows: list[str], native_id: str) -> None:
    """Add a row that needs not be looked at again."""
    if native_id:
        rows.append(native_id)
        del rows[:-KNOWN_ROWS_MAX]
