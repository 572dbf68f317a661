"""What a structured driver answers: the protocol of one CLI, and nothing else.

A dialect is a module with these names, next to the CLI's adapter, whose names it may replace (how to launch, what is a
command). It knows no pipe and no clock: it is handed rows and says what they mean, and it makes the rows to be written.
What proves a delivery stays the CLI's own transcript; what it says here tells only where a text went and whether it works.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from turnkeeper.retained.adapter import Command, Plan

Row = dict[str, Any]


class HeardKind(StrEnum):
    """What a CLI said over its pipe."""

    READY = "ready"
    """It is in the session `native_id`, whose transcript is `path` if it says so, and can be given texts."""
    BROKEN = "broken"
    """It cannot be used; `text` says why."""
    BUSY = "busy"
    IDLE = "idle"
    TOOK = "took"
    """It has the text that we gave the id `given`: accepted, no more."""
    REFUSED = "refused"
    """It does not take that text now; nothing of it is left there."""
    CONSUMED = "consumed"
    """That text (by id, or by its words) is on its way to the model."""
    DROPPED = "dropped"
    """That text was taken off its queue and reaches nobody."""
    ASKED = "asked"
    WITHDREW = "withdrew"
    """The question `asked` no longer waits for an answer."""
    SAID = "said"
    """Words for who watches."""
    REPLY = "reply"
    """These rows are to be written to it."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question that holds the CLI until it is answered. `yes` and `no` are options; None: it was not understood so."""

    ask_id: str
    """Its id, as text."""
    wire_id: Any
    """Its id, as the protocol wrote it."""
    title: str
    options: tuple[str, ...]
    body: tuple[str, ...] = ()
    yes: int | None = 0
    no: int | None = None
    method: str = ""
    arguments: Any = None
    seconds: float | None = None
    """After so long the CLI answers it by itself."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was said."""

    kind: HeardKind
    given: str = ""
    text: str = ""
    native_id: str = ""
    path: str = ""
    asked: Asked | None = None
    ask_id: str = ""
    rows: tuple[Row, ...] = ()


class Speech(msgspec.Struct, kw_only=True):
    """What must be remembered of one connection."""

    plan: Plan
    native_id: str = ""
    turn: str = ""
    """codex: the turn that runs."""
    waiting: dict[str, str] = msgspec.field(default_factory=dict)
    """Requests of ours that were not answered yet: their id, and what they were for (a text's id, or a word)."""
    count: int = 0
    live: dict[str, bool] = msgspec.field(default_factory=dict)
    """Texts that it has by their ids; True once begun. (claude; codex: steers that wait for the model.)"""

    def ask(self, purpose: str) -> int:
        """The number of a new request."""
        self.count += 1
        self.waiting[str(self.count)] = purpose
        return self.count


class Dialect(Protocol):
    """The protocol of a CLI. The first four names replace those of its adapter."""

    @property
    def COMMANDS(self) -> frozenset[str]:  # noqa: N802 - modules have constants
        """Commands that may be sent with as_command."""
        ...

    def reads_as_command(self, text: str) -> bool:
        """Whether it would take this text for a command, and nothing leaves it unchanged."""
        ...

    def paste_text(self, text: str) -> str:
        """What is given for `text`."""
        ...

    def command(self, plan: Plan) -> Command:
        """How to launch it so that it speaks this protocol."""
        ...

    def hello(self, speech: Speech) -> list[Row]:
        """What is written first; it is answered by READY or BROKEN."""
        ...

    def heard(self, row: Row, speech: Speech) -> list[Heard]:
        """What a row says."""
        ...

    def give(self, text: str, given: str, speech: Speech, *, command: bool) -> list[Row]:
        """Rows that hand a text over under the id `given`: to an idle CLI as a prompt, to a busy one as a steer."""
        ...

    def interrupt(self, speech: Speech) -> list[Row]:
        """Rows that stop what it does; what it has queued comes back to us (DROPPED)."""
        ...

    def answer(self, asked: Asked, option: int) -> list[Row]:
        """Rows that answer a question."""
        ...


SAID_CHARS: Final = 2_000


def said(mark: str, text: str) -> Heard:
    """Words for who watches, bounded."""
    return Heard(kind=HeardKind.SAID, text=f"{mark} {text[:SAID_CHARS]}")


def words_of(content: Any) -> str:
    """The text of a message's content."""
    if isinstance(content, str):
        return content
    blocks: Sequence[Any] = content if isinstance(content, list) else ()
    return "\n".join(str(b["text"]) for b in blocks if isinstance(b, dict) and b.get("text"))
