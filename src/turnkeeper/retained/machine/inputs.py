"""What a retained turn can be told."""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.conversation.turns import Failure
from turnkeeper.retained.machine.state import Item
from turnkeeper.retained.signs import Reading, Sign


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened."""


class Opened(Input, frozen=True, kw_only=True):
    """The pane is there. `same`: it is the pane in which this turn's text was handed over before.

    `last_work_at`: when the session last showed work, for the gate.
    """

    same: bool
    fresh: bool = False
    """It was launched just now: its composer must be seen twice."""
    last_work_at: float = 0.0
    text: str | None = None
    """What is to be pasted, if that is more than the submission's words (a continuity notice, instructions)."""
    key: str | None = None


class CannotOpen(Input, frozen=True, kw_only=True):
    """There is no pane and there will be none."""

    failure: Failure


class Seen(Input, frozen=True, kw_only=True):
    """The pane was looked at; its program runs."""

    reading: Reading


class Missed(Input, frozen=True, kw_only=True):
    """The pane was looked at; the program has ended, or the pane is gone. `sentence` says how."""

    sentence: str


class Gone(Input, frozen=True, kw_only=True):
    """The program that had this turn ended while nobody looked; all that it wrote has been told."""

    sentence: str


class Trouble(Input, frozen=True, kw_only=True):
    """The pane could not be looked at: an error of the terminal, which is never a miss."""

    sentence: str


class Told(Input, frozen=True, kw_only=True):
    """The transcript has grown by these signs. `readable`: it can be read at all."""

    signs: tuple[Sign, ...]
    readable: bool = True


class Pasted(Input, frozen=True, kw_only=True):
    """The paste was handed to the program."""

    removed: tuple[str, ...] = ()


class PasteFailed(Input, frozen=True, kw_only=True):
    """Nothing was pasted, or the CLI said that it does not take it. `dead`: because the program has ended."""

    sentence: str
    dead: bool = False


class Pressed(Input, frozen=True, kw_only=True):
    """The keys that were asked for have been pressed. `took`: by which word the CLI said that it has the text."""

    took: str = ""


class StopAsked(Input, frozen=True, kw_only=True):
    """The turn shall stop. reason: cancelled | interrupted | shutdown | deleted ..."""

    reason: str


class Steer(Input, frozen=True, kw_only=True):
    """A rider waits to be taken along."""

    item: Item


class Unsteer(Input, frozen=True, kw_only=True):
    """A rider was taken back before it was handed over."""

    turn_id: str


class Decided(Input, frozen=True, kw_only=True):
    """A person answered the menu that was asked about. decision: approve | deny, or an option's number."""

    mark: str
    decision: str
    facts: dict[str, Any] | None = None


class Tick(Input, frozen=True, kw_only=True):
    """Time has passed."""


INPUTS: tuple[type[Input], ...] = (
    Opened,
    CannotOpen,
    Seen,
    Missed,
    Gone,
    Trouble,
    Told,
    Pasted,
    PasteFailed,
    Pressed,
    StopAsked,
    Steer,
    Unsteer,
    Decided,
    Tick,
)
