"""The seam between the dispatcher and what carries out a turn.

A runner is offered a turn and reports what happens through the `TurnPort` it is given: events to be
journaled under the turn's fence, and what they mean for the lane (accepted, evidence, progress). It ends
by returning an outcome. The lane cannot tell a model agent, a Python agent and a retained CLI apart.

The dispatcher owns: the lane, the queue, leases, rescue, receipts' order, the ends of turns.
The runner owns: how the answer comes about, and the truth of what it reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from turnkeeper.conversation.events import Body, Event
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Attachment
from turnkeeper.conversation.turns import (
    Conversation,
    Failure,
    Request,
    Submission,
    ToolCallRow,
    Turn,
)
from turnkeeper.port.clock import Clock, Ids


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that now holds its lane."""

    turn: Turn
    conversation: Conversation
    request: Request
    why: str
    """promoted | rescued | retried | resumed | continued | reattached"""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The turn is answered. `bodies` become durable in the same commit as its end.

    `promote_riders`: the riders it took get a response of their own, one after another (a CLI's queue).
    """

    bodies: tuple[Body, ...] = ()
    reason: str = "answered"
    promote_riders: bool = False


class FailedWith(msgspec.Struct, frozen=True, kw_only=True):
    """The turn failed. `bodies` become durable in the same commit."""

    failure: Failure
    bodies: tuple[Body, ...] = ()


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The turn waits for a person. `needs` = {kind: approval|auth|action_required, ...}."""

    needs: dict[str, Any]
    bodies: tuple[Body, ...] = ()
    hold: bool = False
    """Keep the lane meanwhile (agent setting parked = "hold")."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """The turn was asked to stop and did."""

    bodies: tuple[Body, ...] = ()


Outcome = Answered | FailedWith | Needs | Stopped


class Rider(msgspec.Struct, frozen=True, kw_only=True):
    """A steer that waits to be taken along by the running turn."""

    turn: Turn
    submission: Submission


class TurnPort(Protocol):
    """The running turn, as its runner sees it. Every write raises Fenced once the lease is lost."""

    offer: Offer
    clock: Clock
    ids: Ids

    async def record(
        self,
        *bodies: Body,
        accepted: dict[str, Any] | None = None,
        confirmed: dict[str, Any] | None = None,
        uncertain: dict[str, Any] | None = None,
    ) -> tuple[Event, ...]:
        """Journal `bodies` durably. `accepted`, `confirmed`, `uncertain` move the receipt, with this evidence.

        Recording anything is evidence of work for the backstop.
        """
        ...

    def delta(self, kind: str, data: dict[str, Any]) -> None:
        """Show something volatile to who watches live; never durable, never waits."""
        ...

    @property
    def has_secrets(self) -> bool:
        """Whether this turn was given secrets at all: without any, `reveal` changes nothing."""
        ...

    def reveal(self, data: bytes) -> bytes:
        """Put the secrets that this turn was given back where their tokens stand: for its request, never stored."""
        ...

    def settled_chars(self, text: str) -> int:
        """How many characters of a text that still grows may be journaled by themselves: what follows may be the
        beginning of a secret, which no masker could know by a part of it."""
        ...

    def working(self) -> None:
        """Note evidence of work that is not worth an event (the CLI's own busy state, a driver's event)."""
        ...

    async def messages(self) -> Sequence[Message]:
        """The conversation's messages as of now, ascending by seq, this turn's own among them."""
        ...

    async def messages_since(self, seq: int) -> Sequence[Message] | None:
        """The messages after `seq`, in order; None if something since then changed what stood before.

        That is: a message was marked or expired, rows were placed, a summary was made, or so much happened that
        it is better to read the whole.
        """
        ...

    async def ledger(self) -> Sequence[ToolCallRow]:
        """The effect ledger of this turn, over all its attempts."""
        ...

    async def turn_events(self) -> Sequence[Event]:
        """Everything journaled of this turn, over all its attempts."""
        ...

    async def keep_file(self, name: str, data: bytes) -> Attachment | None:
        """Keep a file that a tool gave, beside the journal; None if it is too large or nothing keeps files here."""
        ...

    def riders(self) -> Sequence[Rider]:
        """Steers that wait to be taken along, in order. Take them with `take`."""
        ...

    async def take(self, rider: Rider, *bodies: Body) -> None:
        """Take a rider along: its message enters history now, and it will end with this turn."""
        ...

    async def hand_over(self, rider: Rider, *bodies: Body, accepted: dict[str, Any] | None = None) -> None:
        """Journal `bodies` of a rider that waits. With `accepted` it is in the agent's own queue from now on.

        It can then no longer be changed; it still is not taken along, and if this turn ends before the agent
        takes it, it becomes the next turn.
        """
        ...

    @property
    def stopping(self) -> bool:
        """Whether this turn was asked to stop."""
        ...

    async def wait_stopping(self) -> str:
        """Return when the turn is asked to stop, with the reason (cancelled, interrupted, shutdown, deleted)."""
        ...


class Runner(Protocol):
    """Carries out the turns of one agent.

    A runner whose turns can outlive the server (a CLI in a pane) also has `async outlived(turn: Turn) ->
    bool`: whether that turn still runs outside. Then it is offered again with why = "reattached".
    A runner that cannot take every request has `vet(request: Request) -> None`: it raises the error that whoever
    submits shall see (ReadsAsCommand, BadInput, Forbidden), before anything is stored.
    """

    async def run(self, turn: TurnPort) -> Outcome:
        """Carry out the offered turn to an outcome.

        It must return soon after `turn.wait_stopping()` fires; after a grace period its task is
        cancelled and the turn is ended without it. An exception that it raises fails the turn.
        """
        ...

    async def close(self) -> None:
        """Let go of what outlives turns."""
        ...
