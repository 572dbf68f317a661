"""A turn while it runs: the `TurnPort` that its runner is given.

It is bound to one attempt by its fencing token. What the runner records becomes durable under that token;
once the lease is lost every write raises Fenced, and the runner's task is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from turnkeeper.conversation.events import (
    REACH_BACK,
    AttemptSuperseded,
    Body,
    Draft,
    Event,
    MessageAppended,
    RoundStarted,
)
from turnkeeper.conversation.masking import reveal
from turnkeeper.conversation.messages import ASSISTANT, Message
from turnkeeper.conversation.parts import Attachment
from turnkeeper.conversation.turns import ReceiptState, ToolCallRow
from turnkeeper.lane import inputs
from turnkeeper.port.clock import Clock, Ids
from turnkeeper.port.runner import Offer, Rider
from turnkeeper.port.store import Fence

SINCE_EVENTS_MAX = 2_000
"""Events since the last reading beyond which the whole history is read instead."""

if TYPE_CHECKING:
    from turnkeeper.dispatch.dispatcher import Dispatcher


class RunningTurn:
    """The running attempt of a turn, for its runner (see port/runner.py)."""

    def __init__(self, dispatcher: Dispatcher, offer: Offer, clock: Clock, ids: Ids) -> None:
        self.offer = offer
        self.clock = clock
        self.ids = ids
        self.fence = Fence(offer.turn.turn_id, offer.turn.fence)
        self.task: asyncio.Task[None] | None = None
        self.partial_text: list[str] = []
        self.partial_thinking: list[str] = []
        self.partial_round = 0
        self.sealed: dict[str, str] = {}
        self._dispatcher = dispatcher
        self._stop = asyncio.Event()
        self._stop_reason = ""
        self._riders: list[Rider] = []

    @property
    def conversation_id(self) -> str:
        """The conversation whose lane this turn holds."""
        return self.offer.turn.conversation_id

    @property
    def actor(self) -> str:
        """Who writes its events."""
        return f"agent:{self.offer.request.agent}"

    # -- what the runner calls

    async def record(
        self,
        *bodies: Body,
        accepted: dict[str, Any] | None = None,
        confirmed: dict[str, Any] | None = None,
        uncertain: dict[str, Any] | None = None,
    ) -> tuple[Event, ...]:
        """Journal `bodies` durably and move the receipt. Raises Fenced once the lease is lost."""
        told: list[inputs.Reported] = []
        at: dict[str, Any] = {
            "turn_id": self.fence.turn_id,
            "fence": self.fence.token,
            "actor": self.actor,
        }
        if accepted is not None:
            told.append(inputs.Accept(evidence=accepted, **at))
        if uncertain is not None:
            told.append(inputs.Evidence(state=ReceiptState.UNCERTAIN, evidence=uncertain, **at))
        if confirmed is not None:
            told.append(inputs.Evidence(state=ReceiptState.CONFIRMED, evidence=confirmed, **at))
        return await self._dispatcher.report(self, told, self.drafts(bodies))

    def journaled(self, events: Sequence[Event]) -> None:
        """These are durable now, and about to be known: what they say is no longer a partial answer.

        Told before they are published, so that no snapshot as of them shows words that they end or take back.
        """
        for event in events:
            body = event.body
            if isinstance(body, RoundStarted | AttemptSuperseded) or (
                isinstance(body, MessageAppended) and body.message.role == ASSISTANT
            ):
                self.partial_text.clear()
                self.partial_thinking.clear()
                if isinstance(body, RoundStarted):
                    self.partial_round = body.round

    def drafts(self, bodies: Sequence[Body]) -> tuple[Draft, ...]:
        """Bodies as events of this turn and attempt."""
        turn = self.offer.turn
        return tuple(
            Draft(body, turn_id=turn.turn_id, attempt=turn.attempt, actor=self.actor) for body in bodies
        )

    def delta(self, kind: str, data: dict[str, Any]) -> None:
        """Show something volatile; text and thinking are also kept for snapshots."""
        if kind == "text":
            self.partial_text.append(data["text"])
        elif kind == "thinking":
            self.partial_thinking.append(data["text"])
        shown = {"turn_id": self.fence.turn_id, "attempt": self.offer.turn.attempt, **data}
        self._dispatcher.broadcast.show(self.conversation_id, kind, shown)

    @property
    def has_secrets(self) -> bool:
        """Whether this turn's sender gave secrets with it, or gives them again."""
        return bool(self.sealed)

    def reveal(self, data: bytes) -> bytes:
        """Put this turn's own secrets back where their tokens stand in a request."""
        return reveal(data, self.sealed) if self.sealed else data

    def settled_chars(self, text: str) -> int:
        """How much of a text that still grows may be journaled by itself (conversation/masking.py)."""
        masker = self._dispatcher.masker
        return len(text) if masker is None else masker.settled_chars(text)

    async def keep_file(self, name: str, data: bytes) -> Attachment | None:
        """Keep a file beside the journal, as one of the turn's sender."""
        keep = self._dispatcher.keep_file
        return None if keep is None else await keep(self.offer.turn.user_id, name, data)

    def working(self) -> None:
        """Note evidence of work."""
        self._dispatcher.note_work(self)

    async def messages(self) -> Sequence[Message]:
        """The conversation's messages as of now."""
        return await self._dispatcher.store.messages_after(self.conversation_id)

    async def messages_since(self, seq: int) -> Sequence[Message] | None:
        """The messages after `seq`; None if something since then reached back behind it."""
        store = self._dispatcher.store
        events = await store.events(self.conversation_id, after=seq, limit=SINCE_EVENTS_MAX)
        if len(events) == SINCE_EVENTS_MAX or any(isinstance(event.body, REACH_BACK) for event in events):
            return None
        messages = await store.messages_after(self.conversation_id, after=seq)
        return None if any(message.after is not None for message in messages) else messages

    async def ledger(self) -> Sequence[ToolCallRow]:
        """The effect ledger of this turn."""
        return await self._dispatcher.store.tool_calls(self.fence.turn_id)

    async def turn_events(self) -> Sequence[Event]:
        """Everything journaled of this turn."""
        found: list[Event] = []
        after = 0
        while True:
            page = await self._dispatcher.store.events(
                self.conversation_id, after=after, limit=1000, turn_id=self.fence.turn_id
            )
            found += page
            if len(page) < 1000:
                return found
            after = page[-1].seq

    def riders(self) -> Sequence[Rider]:
        """Steers that wait to be taken along."""
        return tuple(self._riders)

    async def take(self, rider: Rider, *bodies: Body) -> None:
        """Take a rider along: its message enters history now."""
        await self._dispatcher.take_rider(self, rider, self.drafts(bodies))
        self._riders = [waiting for waiting in self._riders if waiting.turn.turn_id != rider.turn.turn_id]

    async def hand_over(self, rider: Rider, *bodies: Body, accepted: dict[str, Any] | None = None) -> None:
        """Journal `bodies` of a rider that waits; with `accepted` it is in the agent's own queue."""
        turn = rider.turn
        drafts = tuple(
            Draft(body, turn_id=turn.turn_id, attempt=turn.attempt, actor=self.actor) for body in bodies
        )
        told: list[inputs.Reported] = []
        if accepted is not None:
            told.append(
                inputs.HandOver(
                    turn_id=self.fence.turn_id,
                    fence=self.fence.token,
                    actor=self.actor,
                    rider_id=turn.turn_id,
                    evidence=accepted,
                )
            )
        await self._dispatcher.report(self, told, drafts)

    @property
    def stopping(self) -> bool:
        """Whether this turn was asked to stop."""
        return self._stop.is_set()

    async def wait_stopping(self) -> str:
        """Return when the turn is asked to stop, with the reason."""
        await self._stop.wait()
        return self._stop_reason

    # -- what the dispatcher calls

    def add_rider(self, rider: Rider) -> None:
        """A steer has come."""
        self._riders.append(rider)

    def drop_rider(self, turn_id: str) -> None:
        """A steer was taken back before it was taken along."""
        self._riders = [waiting for waiting in self._riders if waiting.turn.turn_id != turn_id]

    def stop(self, reason: str) -> None:
        """Ask the runner to stop."""
        if not self._stop.is_set():
            self._stop_reason = reason
            self._stop.set()

    def abandon(self) -> None:
        """End the runner's task; its turn has ended without it."""
        self.stop("abandoned")
        if self.task is not None:
            self.task.cancel()
