"""What a retained turn asks for. The shell performs them in order; a Note is durable before the next one."""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.conversation.turns import Failure
from turnkeeper.retained.signs import Menu, Sign


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Something must be done."""


class Open(Effect, frozen=True, kw_only=True):
    """Find the session's pane, or launch the CLI again on the same native session."""


class Note(Effect, frozen=True, kw_only=True):
    """Journal a step of the delivery, before what follows it is done."""

    step: str
    """paste | enter | repaste | cleared | recalled | interrupt | chose ..."""
    turn_id: str
    facts: dict[str, Any]


class Receipt(Effect, frozen=True, kw_only=True):
    """Move the receipt of the turn: accepted | confirmed | uncertain."""

    state: str
    evidence: dict[str, Any]


class Paste(Effect, frozen=True, kw_only=True):
    """Paste this text; answer with Pasted or PasteFailed."""

    turn_id: str
    text: str


class Enter(Effect, frozen=True, kw_only=True):
    """Press Enter; answer with Pressed."""

    turn_id: str


class Clear(Effect, frozen=True, kw_only=True):
    """Empty the composer; answer with Pressed."""


class Recall(Effect, frozen=True, kw_only=True):
    """Have the CLI put what it queued back into its composer; answer with Pressed."""


class Interrupt(Effect, frozen=True, kw_only=True):
    """Press the CLI's own key for stopping a response; it was seen to be busy just now."""


class Choose(Effect, frozen=True, kw_only=True):
    """Choose an option of a menu, while that same menu stands."""

    menu: Menu
    option: int


class Hold(Effect, frozen=True, kw_only=True):
    """The delivery waits; say why."""

    turn_id: str
    reason: str
    """A stable name: draft | menu | trust | update | login | limit | busy | person | not_ready ..."""
    sentence: str
    retry_at: float | None = None


class Release(Effect, frozen=True, kw_only=True):
    """The delivery goes on."""

    turn_id: str


class HandOver(Effect, frozen=True, kw_only=True):
    """A rider is in the CLI's own queue: accepted, and no longer to be changed."""

    turn_id: str
    evidence: dict[str, Any]


class TakeRider(Effect, frozen=True, kw_only=True):
    """The running response took a rider along."""

    turn_id: str
    sign: Sign


class Write(Effect, frozen=True, kw_only=True):
    """Put what the CLI said and did into history."""

    signs: tuple[Sign, ...]


class Foreign(Effect, frozen=True, kw_only=True):
    """Somebody else's text reached the model: typed at the terminal, or of a turn that is over."""

    sign: Sign


class Switched(Effect, frozen=True, kw_only=True):
    """The CLI goes on in another native session."""

    native_id: str


class Working(Effect, frozen=True, kw_only=True):
    """There was evidence of work."""


class Ask(Effect, frozen=True, kw_only=True):
    """A menu asks for a permission: make it a question to a person and end this run with it."""

    menu: Menu


class End(Effect, frozen=True, kw_only=True):
    """The turn is over for this run. `kind`: answered | failed | stopped | needs.

    `leftover` are signs that belong to whoever runs next.
    """

    kind: str
    reason: str = "answered"
    failure: Failure | None = None
    leftover: tuple[Sign, ...] = ()
