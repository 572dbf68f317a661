"""What a lane asks for. Journal and Start become durable in one commit; the others are performed after it."""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.conversation.events import Body


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Something must be done."""


class Journal(Effect, frozen=True, kw_only=True):
    """Journal this."""

    body: Body
    turn_id: str | None = None
    attempt: int = 0
    actor: str = "turnkeeper"


class Start(Effect, frozen=True, kw_only=True):
    """Journal that the turn started under this fence (with its message, at its first start), then offer it."""

    turn_id: str
    attempt: int
    fence: int
    why: str
    riding: bool = False
    """A taken rider that becomes the holder: its message is in history already."""


class Interrupt(Effect, frozen=True, kw_only=True):
    """Ask the runner of this attempt to stop."""

    turn_id: str
    fence: int
    reason: str


class Abandon(Effect, frozen=True, kw_only=True):
    """The turn has ended without its runner: end that task, ignore what it still says."""

    turn_id: str
    fence: int


class RiderWaits(Effect, frozen=True, kw_only=True):
    """Tell the holder's runner that a rider waits to be taken."""

    turn_id: str
    rider_id: str


class Say(Effect, frozen=True, kw_only=True):
    """The answer to who sent the input: outcome started | queued | steered, and the position."""

    turn_id: str
    outcome: str
    position: int | None
    facts: dict[str, Any] | None = None
