"""What every reader hands on: records, turns and counters, in one schema for all formats.

A `Reading` is what a transcript says: its records in file order, the turns that people began, and what
was skipped. The three projections that people ask for are functions of it, in `project`.
Readers build records and nobody changes them afterwards; they are not frozen because a reader learns
only later whether a text was the answer or the narration before a tool.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

HUMAN: Final = "human"
FINAL: Final = "final"
PROGRESS: Final = "progress"
THINKING: Final = "thinking"
TOOL: Final = "tool"
NOTICE: Final = "notice"
"""Kinds of record. `final` is what the agent answered; `progress` is text beside tool calls; `thinking`
is never an answer and never ends a turn; `tool` is a call, its text the tool's name; `notice` is a typed
line that nobody said, its `code` the type."""

LIVE: Final = "live"
SUPERSEDED: Final = "superseded"
UNDELIVERED: Final = "undelivered"
CANCELLED: Final = "cancelled"
"""States of a record. Rewound and rolled-back rows are superseded: kept, not live. Queued text that never
reached the model is undelivered; queued text that was taken back is cancelled."""

NATIVE: Final = "native"
INFERRED: Final = "inferred"
"""Who says that a record is what it is: the file itself, or our rules."""

RUNNING: Final = "running"
SETTLED: Final = "settled"
INTERRUPTED: Final = "interrupted"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
"""States of a native turn. A turn without an end whose successor has begun is unknown."""

ERRORED: Final = "errored"
"""A record's `status` beside `interrupted`: the answer broke off because of an error."""


Piece = tuple[str | None, str]
"""What one row added to a text: the row's id, and its words."""


class Record(msgspec.Struct, omit_defaults=True, gc=False):
    """One thing that the transcript holds. `row` is the number of its row in the reading, counted from 0.

    `native_id` is the CLI's own id of the row (None in files that have none); `aliases` are further ids
    of the same message (the row that a fork copied, the queue entry that was delivered, our own id if the
    CLI echoes it). `at` is the time as the CLI wrote it (`seconds` reads it): information, never an order.
    """

    kind: str
    text: str
    row: int
    native_id: str | None = None
    turn: str | None = None
    at: str | float | None = None
    code: str = ""
    offset: int = -1
    """Byte at which the row begins in `Reading.files[file]`; -1 where a row has no byte (a database)."""
    state: str = LIVE
    provenance: str = NATIVE
    status: str | None = None
    queued: bool = False
    images: int = 0
    file: int = 0
    aliases: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = ()
    """Of a text that several rows make up: what each of them added."""

    @property
    def role(self) -> str:
        """The speaker, as history names it."""
        return _ROLE[self.kind]


_ROLE: Final = {
    HUMAN: "user",
    FINAL: "assistant",
    PROGRESS: "assistant",
    THINKING: "assistant",
    TOOL: "assistant",
    NOTICE: "notice",
}


class Turn(msgspec.Struct, omit_defaults=True, gc=False):
    """One turn of the CLI. `key` is stable; `human` tells whether a person began it (else the CLI did)."""

    key: str
    state: str = RUNNING
    human: bool = True
    row: int = 0
    reason: str | None = None
    ended_row: int | None = None


class Counters(msgspec.Struct, omit_defaults=True):
    """What a reader passed over, by number. Nothing is passed over without being counted here."""

    rows: int = 0
    malformed: int = 0
    """Complete lines that hold no row."""
    glued: int = 0
    """Rows that stood on a line with others: a line end was lost."""
    duplicates: int = 0
    """Rows that came again with an id that was already read; the first one counts."""
    other_agent: int = 0
    """Rows of sub-agents and side chains."""
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    """Known row types that hold nothing of the conversation (each format names why)."""
    unknown: dict[str, int] = msgspec.field(default_factory=dict)
    """Row types that this version does not know: the early warning of a changed format."""
    wrappers: dict[str, int] = msgspec.field(default_factory=dict)
    """Leading <tags> of user text that the table of injected texts does not know."""
    torn_tail: bool = False
    """The last line has no end and is no whole row: it is read again later."""
    torn_at: int | None = None
    cut_off: bool = False
    """Reading stopped at a bound (a compressed file that grows without end)."""
    unreadable: dict[str, str] = msgspec.field(default_factory=dict)
    """Files of a family that could not be read, with the reason."""


class Session(msgspec.Struct, omit_defaults=True):
    """What a transcript says about itself."""

    native_id: str | None = None
    cwd: str | None = None
    title: str | None = None
    versions: tuple[str, ...] = ()
    parent: str | None = None
    """The session that this one was forked from."""
    newest_at: str | float | None = None
    """The newest time that the CLI claims: it moves a conversation's last activity and nothing else."""


class Reading(msgspec.Struct, omit_defaults=True):
    """All that one transcript holds, in file order."""

    format: str
    session: Session = msgspec.field(default_factory=Session)
    records: list[Record] = msgspec.field(default_factory=list)
    turns: list[Turn] = msgspec.field(default_factory=list)
    counters: Counters = msgspec.field(default_factory=Counters)
    files: tuple[str, ...] = ()
    primary: str | None = None
    """The file that was meant, where a folder holds a fork and its parent."""
    own_from_row: int | None = None
    """In a fork: the first row that its parent does not have."""
    family: bool = False
    """Several files are one thread."""

    @property
    def last_turn(self) -> Turn | None:
        """The newest live turn, begun by a person or by the CLI itself."""
        return self.turns[-1] if self.turns else None


YEAR_10000: Final = 253_402_300_800.0


def seconds(at: str | float | None) -> float | None:
    """A time as a CLI wrote it (ISO 8601, or Unix seconds, milli- or microseconds) in Unix seconds.

    None for what is no time, and for one before 1970 or after the year 9999, which no calendar here can show.
    """
    value = None if at is None else _seconds(at)
    return value if value is not None and 0.0 <= value < YEAR_10000 else None


def _seconds(at: str | float) -> float | None:
    if isinstance(at, str):
        try:
            moment = datetime.fromisoformat(at)
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    try:
        value = float(at)
    except OverflowError:
        return None
    for unit in (1e14, 1e11):
        if value > unit:
            return value / (unit / 1e8)
    return value


def zoneless(at: str | float | None) -> bool:
    """Whether a time names no zone; `seconds` takes it for UTC."""
    if not isinstance(at, str):
        return False
    try:
        return datetime.fromisoformat(at).tzinfo is None
    except ValueError:
        return False
