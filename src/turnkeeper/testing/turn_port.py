"""A running turn without a dispatcher: for tests of runners.

`MemoryTurn` keeps its journal in a list and is honest where runners depend on it: a record is durable only
once its `await` returned, a lost lease refuses every write, the ledger and the messages are projections of
the journal. `again` is the same conversation as a new process finds it after a crash, a retry or a decision.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from turnkeeper.conversation import codec
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.events import REACH_BACK, Body, Event
from turnkeeper.conversation.masking import Masker
from turnkeeper.conversation.messages import EXPIRED, SUPERSEDED, USER, Message
from turnkeeper.conversation.parts import Attachment, Part, Text
from turnkeeper.conversation.turns import (
    RECEIPT_MOVES,
    Conversation,
    Principal,
    Receipt,
    ReceiptState,
    Request,
    Submission,
    ToolCallRow,
    Turn,
    TurnState,
)
from turnkeeper.errors import Fenced
from turnkeeper.port.clock import Clock, Ids
from turnkeeper.port.runner import FailedWith, Needs, Offer, Outcome, Rider, Runner, Stopped

replace = msgspec.structs.replace


class MemoryTurn:
    """One attempt at one turn of a conversation that lives in a list of events (port/runner.py)."""

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        *,
        text: str = "",
        parts: tuple[Part, ...] | None = None,
        options: dict[str, Any] | None = None,
        journal: list[Event] | None = None,
        turn_id: str = "t_1",
        why: str = "promoted",
        attempt: int = 1,
        fence: int = 1,
    ) -> None:
        self.clock = clock
        self.ids = ids
        self.journal: list[Event] = [] if journal is None else journal
        self.deltas: list[tuple[str, dict[str, Any]]] = []
        self.commits: list[tuple[str, ...]] = []
        """The kinds of each commit, in order."""
        self.files: dict[str, bytes] = {}
        """By SHA-256: what was kept of the tools' files."""
        self.file_bytes_max = 1_000_000
        self.fenced = False
        self.masker: Masker | None = None
        self.on_commit: Callable[[], None] | None = None
        """Called before each commit: raise here to be a store that cannot."""
        self._stop = asyncio.Event()
        self._reason = ""
        self._riders: list[Rider] = []
        request = Request(
            agent="test",
            parts=(Text(text),) if parts is None else parts,
            principal=Principal(user_id="u_1"),
            options={} if options is None else options,
        )
        turn = Turn(
            turn_id=turn_id,
            conversation_id="c_1",
            submission_id=f"s_{turn_id}",
            state=TurnState.RUNNING,
            place=1,
            attempt=attempt,
            fence=fence,
            user_id="u_1",
            agent="test",
        )
        conversation = Conversation(conversation_id="c_1", owner="u_1", agent="test")
        self.offer = Offer(turn=turn, conversation=conversation, request=request, why=why)
        started = ev.TurnStarted(fence=fence, owner="test", lease_until=clock.now() + 30, why=why)
        if fence == 1:
            self._commit((started, ev.MessageAppended(self._submitted(turn, request))))
        else:
            self._commit((started,))
        self.commits.clear()

    def _submitted(self, turn: Turn, request: Request) -> Message:
        return Message(
            message_id=self.ids.make("m"),
            role=USER,
            parts=request.parts,
            created_at=self.clock.now(),
            turn_id=turn.turn_id,
            submission_id=turn.submission_id,
        )

    def again(self, why: str, *bodies: Body, attempt: int | None = None) -> MemoryTurn:
        """The next attempt at this turn, after `bodies` (a requeue, a decision) were journaled.

        It reads the journal as bytes gave it back: nothing but what was durable goes over.
        """
        self.fenced = True
        journal = [replace(e, body=_through_bytes(e.body)) for e in self.journal]
        now = attempt or self.offer.turn.attempt
        for body in bodies:
            journal.append(self._event(body, len(journal) + 1, now))
        return MemoryTurn(
            self.clock,
            self.ids,
            parts=self.offer.request.parts,
            options=self.offer.request.options,
            journal=journal,
            turn_id=self.offer.turn.turn_id,
            why=why,
            attempt=now,
            fence=self.offer.turn.fence + 1,
        )

    def next_turn(self, text: str, turn_id: str = "t_2") -> MemoryTurn:
        """Another turn of the same conversation."""
        return MemoryTurn(self.clock, self.ids, text=text, journal=self.journal, turn_id=turn_id)

    async def carry_out(self, runner: Runner) -> Outcome:
        """Let `runner` run this turn, and journal its end as the dispatcher would."""
        outcome = await runner.run(self)
        end: Body
        if isinstance(outcome, FailedWith):
            end = ev.TurnFailed(outcome.failure)
        elif isinstance(outcome, Needs):
            end = ev.TurnParked(outcome.needs, held=outcome.hold)
        elif isinstance(outcome, Stopped):
            end = ev.TurnCancelled(self._reason or "stopped")
        else:
            end = ev.TurnSettled(outcome.reason)
        await self._write((*outcome.bodies, end))
        return outcome

    # -- what a runner calls

    async def record(
        self,
        *bodies: Body,
        accepted: dict[str, Any] | None = None,
        confirmed: dict[str, Any] | None = None,
        uncertain: dict[str, Any] | None = None,
    ) -> tuple[Event, ...]:
        """Journal under the fence."""
        moves: list[Body] = []
        state = self.receipt.state
        for to, evidence in (
            (ReceiptState.ACCEPTED, accepted),
            (ReceiptState.UNCERTAIN, uncertain),
            (ReceiptState.CONFIRMED, confirmed),
        ):
            if evidence is not None and to in RECEIPT_MOVES[state]:
                moves.append(ev.ReceiptMoved(to, evidence))
                state = to
        return await self._write((*moves, *bodies))

    async def _write(self, bodies: tuple[Body, ...]) -> tuple[Event, ...]:
        await asyncio.sleep(0)
        if self.fenced:
            raise Fenced(turn_id=self.offer.turn.turn_id)
        if self.on_commit is not None:
            self.on_commit()
        events = self._commit(bodies)
        await asyncio.sleep(0)
        return events

    def _commit(self, bodies: tuple[Body, ...]) -> tuple[Event, ...]:
        first = len(self.journal) + 1
        events = tuple(
            self._event(body, first + index, self.offer.turn.attempt) for index, body in enumerate(bodies)
        )
        self.journal.extend(events)
        self.commits.append(tuple(event.kind for event in events))
        return events

    def _event(self, body: Body, seq: int, attempt: int) -> Event:
        return Event(
            conversation_id="c_1",
            seq=seq,
            at=self.clock.now(),
            actor="agent:test",
            turn_id=self.offer.turn.turn_id,
            attempt=attempt,
            body=body,
            position=seq,
        )

    def delta(self, kind: str, data: dict[str, Any]) -> None:
        """Keep what was shown."""
        self.deltas.append((kind, data))

    @property
    def has_secrets(self) -> bool:
        """There are none here."""
        return False

    def reveal(self, data: bytes) -> bytes:
        """There are no sealed secrets here."""
        return data

    def settled_chars(self, text: str) -> int:
        """Nothing is masked here but where a test says so."""
        return len(text) if self.masker is None else self.masker.settled_chars(text)

    async def keep_file(self, name: str, data: bytes) -> Attachment | None:
        """Keep a file in memory, under its hash."""
        if len(data) > self.file_bytes_max:
            return None
        sha256 = hashlib.sha256(data).hexdigest()
        self.files[sha256] = data
        return Attachment(attachment_id=self.ids.make("a"), name=name, size_bytes=len(data), sha256=sha256)

    def working(self) -> None:
        """Evidence of work."""

    async def messages(self) -> Sequence[Message]:
        """Messages of the journal, marks applied."""
        return self.history()

    def history(self) -> list[Message]:
        """Messages of the journal, marks applied, in order."""
        found: dict[str, Message] = {}
        for event in self.journal:
            body = event.body
            if isinstance(body, ev.MessageAppended):
                found[body.message.message_id] = replace(body.message, seq=event.seq)
            elif isinstance(body, ev.MessageMarked) and body.message_id in found:
                flags = {"standing": body.standing, "replay": body.replay, "display": body.display}
                given = {name: flag for name, flag in flags.items() if flag is not None}
                found[body.message_id] = replace(found[body.message_id], **given)
            elif isinstance(body, ev.ConfirmationExpired) and body.message_id in found:
                found[body.message_id] = replace(found[body.message_id], standing=EXPIRED)
            elif isinstance(body, ev.AttemptSuperseded) and body.message_id in found:
                found[body.message_id] = replace(found[body.message_id], standing=SUPERSEDED, replay=False)
        return list(found.values())

    async def messages_since(self, seq: int) -> Sequence[Message] | None:
        """The messages after `seq`; None if something since then reached back behind it."""
        if any(event.seq > seq and isinstance(event.body, REACH_BACK) for event in self.journal):
            return None
        return [message for message in await self.messages() if message.seq > seq]

    async def ledger(self) -> Sequence[ToolCallRow]:
        """The ledger of the journal."""
        rows: dict[str, ToolCallRow] = {}
        for event in await self.turn_events():
            body = event.body
            if isinstance(body, ev.ToolIntended):
                rows[body.call_id] = ToolCallRow(
                    call_id=body.call_id,
                    turn_id=self.offer.turn.turn_id,
                    conversation_id="c_1",
                    attempt=event.attempt,
                    round=body.round,
                    name=body.name,
                    arguments=body.arguments,
                    effect=body.effect,
                    idempotency_key=body.idempotency_key,
                    intended_at=event.at,
                )
            elif isinstance(body, ev.ToolReturned) and body.call_id in rows:
                rows[body.call_id] = replace(
                    rows[body.call_id],
                    disposition=body.disposition,
                    result=body.result,
                    is_error=body.is_error,
                    decided_at=event.at,
                )
        return list(rows.values())

    async def turn_events(self) -> Sequence[Event]:
        """Everything journaled of this turn."""
        return [event for event in self.journal if event.turn_id == self.offer.turn.turn_id]

    def riders(self) -> Sequence[Rider]:
        """Steers that wait."""
        return tuple(self._riders)

    async def take(self, rider: Rider, *bodies: Body) -> None:
        """Put the rider's message into history."""
        await asyncio.sleep(0)
        if self.fenced:
            raise Fenced(turn_id=self.offer.turn.turn_id)
        self._riders.remove(rider)
        message = self._submitted(rider.turn, rider.submission.request)
        taken = (ev.SteerTaken(self.offer.turn.turn_id), ev.MessageAppended(message), *bodies)
        for body in taken:
            event = self._event(body, len(self.journal) + 1, 1)
            self.journal.append(replace(event, turn_id=rider.turn.turn_id))

    async def hand_over(self, rider: Rider, *bodies: Body, accepted: dict[str, Any] | None = None) -> None:
        """Journal something of a rider that waits on."""
        await asyncio.sleep(0)
        if self.fenced:
            raise Fenced(turn_id=self.offer.turn.turn_id)
        moved = () if accepted is None else (ev.ReceiptMoved(ReceiptState.ACCEPTED, accepted),)
        for body in (*moved, *bodies):
            event = self._event(body, len(self.journal) + 1, 1)
            self.journal.append(replace(event, turn_id=rider.turn.turn_id))

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for."""
        return self._stop.is_set()

    async def wait_stopping(self) -> str:
        """Wait for a stop."""
        await self._stop.wait()
        return self._reason

    # -- what a test calls

    def stop(self, reason: str = "cancelled") -> None:
        """Ask the runner to stop."""
        self._reason = reason
        self._stop.set()

    def steer(self, text: str, turn_id: str = "t_rider") -> None:
        """Let a steer wait for the runner."""
        request = Request(agent="test", parts=(Text(text),), principal=Principal(user_id="u_1"))
        submission = Submission(
            submission_id=f"s_{turn_id}",
            conversation_id="c_1",
            turn_id=turn_id,
            user_id="u_1",
            key=turn_id,
            fingerprint="",
            request=request,
            created_at=self.clock.now(),
        )
        turn = replace(
            self.offer.turn, turn_id=turn_id, submission_id=submission.submission_id, state=TurnState.QUEUED
        )
        self._riders.append(Rider(turn=turn, submission=submission))

    @property
    def receipt(self) -> Receipt:
        """The receipt as of now."""
        receipt = Receipt()
        for event in self.journal:
            body = event.body
            if isinstance(body, ev.ReceiptMoved) and event.turn_id == self.offer.turn.turn_id:
                receipt = Receipt(body.state, body.evidence)
        return receipt

    def bodies(self, *kinds: type[Body]) -> list[Any]:
        """The journaled bodies of these kinds (none: of all), in order."""
        return [e.body for e in self.journal if not kinds or isinstance(e.body, kinds)]


def _through_bytes(body: Any) -> Any:
    return codec.decode_body(body.kind, codec.encode_body(body))
