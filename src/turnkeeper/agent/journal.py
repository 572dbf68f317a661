"""The turn's journal as the loop writes it: what is to be durable together, and what is known because of it.

`add` takes events that must become durable, at the latest with the next `record` or the turn's outcome; they
count for the loop at once. `record` makes them durable. Nothing that was added is ever dropped: what is
still pending when the turn ends is part of its outcome's bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnkeeper.agent import texts
from turnkeeper.agent.kept import Histories, KeptHistory
from turnkeeper.agent.reply import call_ids
from turnkeeper.agent.so_far import SIGN_IN, Call, TurnSoFar, read_turn, sign
from turnkeeper.conversation import codec
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import EXPIRED, NOTICE, SUPERSEDED, TOOL, Message
from turnkeeper.conversation.parts import Json, Part, Text, ToolResult
from turnkeeper.conversation.turns import Disposition, Effect, ReceiptState
from turnkeeper.errors import Fenced
from turnkeeper.history.builder import FeedBuilder
from turnkeeper.history.feed import (
    BUILT_IN,
    Compaction,
    Confirmations,
    Feed,
    FeedOptions,
    find_compaction,
    find_expired,
)
from turnkeeper.port.runner import Rider, TurnPort
from turnkeeper.tool import Outcome

replace = msgspec.structs.replace


class TurnJournal:
    """Reads and writes the journal of one running turn."""

    def __init__(
        self,
        turn: TurnPort,
        effects: Mapping[str, Effect],
        histories: Histories,
        confirmations: Confirmations = BUILT_IN,
    ) -> None:
        self.turn = turn
        self._histories = histories
        self._read_at: int | None = None
        """The seq up to which the store was read; None: what is known here is not worth keeping."""
        self._read_count = 0
        self._measured = self._chars = 0
        """How much of the history is measured already, by the turn that left it."""
        self._effects = dict(effects)
        self._options = FeedOptions(effects=self._effects, confirmations=confirmations)
        self._builder = FeedBuilder(options=self._options)
        self.so_far = TurnSoFar()
        self.messages: list[Message] = []
        """The conversation's messages with this turn's pending ones, in the order of the journal."""
        self._pending: list[ev.Body] = []
        self._call_ids: set[str] | None = None

    @property
    def call_ids(self) -> set[str]:
        """Every call id of the conversation."""
        if self._call_ids is None:
            self._call_ids = call_ids(self.messages)
        return self._call_ids

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.turn.offer.turn.turn_id

    async def load(self) -> None:
        """Read what the journal says."""
        events = await self.turn.turn_events()
        self.so_far = read_turn(events)
        for call in self.so_far.calls.values():
            # A secret of this turn is journaled as its token; the model repeats the call with the secret.
            shown = self.revealed(call.call.arguments)
            if shown is not call.call.arguments:
                call.signature = sign(call.call.name, shown)
        kept = self._histories.take(self.turn.offer.turn.conversation_id)
        since = None if kept is None else await self.turn.messages_since(kept.seq)
        if kept is not None and since is not None and kept.grow(since):
            self.messages = kept.messages
            self._builder = kept.builder
            self._call_ids = kept.call_ids
            self._measured, self._chars = kept.measured, kept.chars
            self._options = replace(self._options, compaction=kept.compaction)
            self._builder.set_options(self._options)
        else:
            self._read(await self.turn.messages())
        self._read_at = events[-1].seq if events else None
        self._read_count = len(self.messages)

    def leave(self) -> None:
        """Leave what is known of the conversation to its next turn."""
        if self._read_at is not None:
            kept = KeptHistory(
                seq=self._read_at,
                base=self._read_count,
                messages=self.messages,
                builder=self._builder,
                compaction=self._options.compaction,
                call_ids=self._call_ids,
                measured=self._measured,
                chars=self._chars,
            )
            self._histories.give(self.turn.offer.turn.conversation_id, kept)

    def _read(self, messages: Sequence[Message]) -> None:
        self.messages = list(messages)
        self._call_ids = None
        self._options = msgspec.structs.replace(self._options, compaction=find_compaction(messages))
        self._builder = FeedBuilder(messages, expired=find_expired(messages), options=self._options)

    def know_effects(self, effects: Mapping[str, Effect]) -> None:
        """Tools that came later; what is known of one that went stays known, so that no feed changes for it."""
        self._effects.update(effects)

    def revealed(self, value: Json) -> Json:
        """`value` with the turn's own secrets in place of their tokens; the very same object if it holds none."""
        data = codec.encode(value)
        shown = self.turn.reveal(data)
        return value if shown == data else codec.decode(shown, object)

    def feed(self) -> Feed:
        """What a model is given now: the pending messages are part of it."""
        return self._builder.feed()

    @property
    def compaction(self) -> Compaction | None:
        """The summary that feeds begin with, if there is one."""
        return self._options.compaction

    def add(self, *bodies: ev.Body) -> None:
        """Have these made durable with whatever is recorded next; they count from now."""
        at = self.turn.clock.now()
        for body in bodies:
            self._pending.append(body)
            self.so_far.apply(body, at)
            if isinstance(body, ev.MessageAppended):
                self.messages.append(body.message)
                self._builder.extend([body.message])
                if body.message.through is not None:
                    self._options = msgspec.structs.replace(
                        self._options, compaction=find_compaction([body.message])
                    )
                    self._builder.set_options(self._options)
                if self._call_ids is not None:
                    self._call_ids |= call_ids([body.message])
            elif isinstance(body, ev.MessageMarked):
                self._mark(body)
                self._builder.replace(self.messages)
            elif isinstance(body, ev.AttemptSuperseded):
                self._mark(ev.MessageMarked(body.message_id, standing=SUPERSEDED, replay=False))
                self._builder.replace(self.messages)
            elif isinstance(body, ev.ConfirmationExpired):
                self._mark(ev.MessageMarked(body.message_id, standing=EXPIRED))
                self._builder.expire([body.message_id])

    async def record(
        self,
        *bodies: ev.Body,
        accepted: dict[str, Any] | None = None,
        confirmed: dict[str, Any] | None = None,
    ) -> None:
        """Make everything pending durable, and `bodies` after it, in one commit."""
        self.add(*bodies)
        if not self._pending:
            return
        batch = self._pending
        self._pending = []
        try:
            events = await self.turn.record(*batch, accepted=accepted, confirmed=confirmed)
        except Fenced:
            raise
        except Exception:
            self._pending = batch + self._pending
            raise
        self.so_far.confirmed = self.so_far.confirmed or confirmed is not None
        seqs = {e.body.message.message_id: e.seq for e in events if isinstance(e.body, ev.MessageAppended)}
        for index in range(len(self.messages) - 1, -1, -1):
            seq = seqs.pop(self.messages[index].message_id, None)
            if seq is not None:
                self.messages[index] = replace(self.messages[index], seq=seq)
            if not seqs:
                break

    async def take(self, rider: Rider) -> None:
        """Take a steer along: its message stands after everything journaled so far."""
        await self.record()
        await self.turn.take(rider)
        self._read(await self.turn.messages())
        self._read_at = None
        self.so_far.answer = None

    def confirm(self) -> None:
        """Move the receipt to confirmed if what is pending is the first of the model's data."""
        if self.so_far.confirmed:
            return
        for body in self._pending:
            if isinstance(body, ev.MessageAppended) and body.message.provenance == "model":
                evidence = {"kind": "message", "message_id": body.message.message_id}
                self.add(ev.ReceiptMoved(ReceiptState.CONFIRMED, evidence))
                return

    def rest(self) -> tuple[ev.Body, ...]:
        """Everything still pending, for the outcome's own commit."""
        batch, self._pending = tuple(self._pending), []
        return batch

    # -- messages of ours

    def message(self, role: str, *parts: Part, **fields: Any) -> Message:
        """A new message of this turn, attempt and round."""
        given: dict[str, Any] = {
            "message_id": self.turn.ids.make("m"),
            "created_at": self.turn.clock.now(),
            "turn_id": self.turn_id,
            "attempt": self.turn.offer.turn.attempt,
            "round": self.so_far.rounds_finished,
            "provenance": "turnkeeper",
            **fields,
        }
        return Message(role=role, parts=parts, **given)

    def result(self, call: Call, content: Json, disposition: Disposition, **fields: Any) -> Message:
        """A tool message with the result of `call`. `synthetic`: no tool gave it."""
        synthetic = fields.get("synthetic", False)
        part = ToolResult(
            tool_call_id=call.id,
            content=content,
            is_error=fields.get("is_error", True),
            synthetic=synthetic,
            name=call.call.name,
            disposition=str(disposition),
        )
        provenance = "turnkeeper" if synthetic else "tool"
        return self.message(TOOL, part, provenance=provenance, round=call.round)

    def notice(self, text: str) -> Message:
        """A line of ours that the model is to read where it stands."""
        return self.message(NOTICE, Text(text), replay=True)

    # -- calls

    def intend(self, call: Call, effect: Effect) -> None:
        """Have it journaled that `call` is about to run."""
        self.add(
            ev.ToolIntended(
                call_id=call.id,
                name=call.call.name,
                arguments=call.call.arguments,
                effect=effect,
                idempotency_key=f"{self.turn_id}.{call.id}",
                round=call.round,
            )
        )

    def refuse(self, call: Call, content: str, why: str, effect: Effect = Effect.READ_ONLY) -> None:
        """Have it journaled that `call` is not run, and why."""
        if not call.intended:
            self.intend(call, effect)
        refused = Outcome(disposition=Disposition.REFUSED, content=content, is_error=True, why=why)
        self.settle(call, refused, synthetic=True)

    def settle(self, call: Call, outcome: Outcome, *, synthetic: bool = False) -> None:
        """Have the outcome of `call` journaled, and put where the model finds it.

        That is right after the call, unless the conversation went on while the call waited: then what was
        sent stays as it was sent, and the outcome is a notice at the end (DESIGN 5.4).
        """
        placeholder = call.placeholder_id
        self.add(
            ev.ToolReturned(
                call_id=call.id,
                disposition=outcome.disposition,
                result=outcome.content,
                is_error=outcome.is_error,
                seconds=round(outcome.seconds, 3) or None,
                why=outcome.why,
            )
        )
        if placeholder is not None:
            if self._went_on_after(placeholder):
                text = texts.late_outcome(call.call.name, call.id, outcome.content)
                self.add(ev.MessageAppended(self.notice(text)))
                return
            self.add(ev.MessageMarked(placeholder, replay=False, display=False, why="decided"))
        message = self.result(
            call,
            _with_files(outcome),
            outcome.disposition,
            is_error=outcome.is_error,
            synthetic=synthetic,
        )
        self.add(ev.MessageAppended(message))

    def park(self, call: Call, outcome: Outcome, expires_at: float) -> None:
        """Have it journaled that `call` was refused until its person signs in: it has not run, and waits."""
        sign_in = outcome.sign_in
        assert sign_in is not None
        self.add(
            ev.ToolReturned(
                call_id=call.id,
                disposition=outcome.disposition,
                result=outcome.content,
                is_error=True,
                seconds=round(outcome.seconds, 3) or None,
                why=SIGN_IN,
            ),
            ev.ConnectRequested(
                call_id=call.id,
                server=sign_in.server,
                person=sign_in.person,
                expires_at=expires_at,
                why=sign_in.why,
                rejected=sign_in.rejected,
            ),
        )

    def hold_place(self, call: Call, content: str) -> None:
        """Say in the feed that `call` waits; the message is replaced when its outcome comes in time."""
        held = self.result(
            call, content, Disposition.UNKNOWN if call.intended else Disposition.REFUSED, synthetic=True
        )
        self.add(ev.MessageAppended(held))

    def _went_on_after(self, message_id: str) -> bool:
        """Whether another turn's message has entered history after this one."""
        for message in reversed(self.messages):
            if message.message_id == message_id:
                return False
            if message.turn_id != self.turn_id and message.replay:
                return True
        return False

    def _mark(self, body: ev.MessageMarked) -> None:
        for index in range(len(self.messages) - 1, -1, -1):
            message = self.messages[index]
            if message.message_id == body.message_id:
                self.messages[index] = replace(
                    message,
                    standing=message.standing if body.standing is None else body.standing,
                    replay=message.replay if body.replay is None else body.replay,
                    display=message.display if body.display is None else body.display,
                )
                return


def _with_files(outcome: Outcome) -> Json:
    """The content of a result: words, or words and the files beside them by their ids, never their bytes."""
    if not outcome.attachments:
        return outcome.content
    files = [codec.decode(codec.encode(attachment), dict) for attachment in outcome.attachments]
    return [{"type": "text", "text": outcome.content}, *files]
