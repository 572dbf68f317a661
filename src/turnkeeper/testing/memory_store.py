"""A store in memory that keeps the same promises as the real ones, for tests and the simulator.

It passes the conformance suite that SQLite passes. It can do what a real engine cannot: `crash()` throws
away everything that was not committed and gives the store that a new process would find, and `fault()`
makes a coming commit fail the way a disk would. A commit takes one turn of the event loop before and one
after the moment it becomes durable, so that a simulator can crash on either side of it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from turnkeeper.conversation import codec
from turnkeeper.conversation.events import (
    LANDMARKS,
    Event,
    MessageAppended,
    Submitted,
    ToolIntended,
    ToolReturned,
    TurnEdited,
)
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.turns import OPEN_STATES, Conversation, Submission, ToolCallRow, Turn, TurnState
from turnkeeper.errors import BadInput, Conflict, LaneMoved, Stopping, TurnkeeperError
from turnkeeper.failpoint import failpoint
from turnkeeper.port.store import (
    AttachmentRow,
    Batch,
    Fence,
    KeyTaken,
    LaneRows,
    OutboxRow,
    TokenRow,
    UserRow,
)
from turnkeeper.projection.order import as_said, with_placed
from turnkeeper.store.rows import (
    CallRow,
    MarkRow,
    MessageRow,
    OutcomeRow,
    SubmissionRow,
    TurnRow,
    flagged,
    submission,
    tool_call,
)
from turnkeeper.store.unit import Unit, keep_what_no_event_tells, project_all, renew, store_batch

T = TypeVar("T")
replace = msgspec.structs.replace


_epochs = itertools.count(1)

_LOOSE = {
    "users": UserRow,
    "tokens": TokenRow,
    "attachments": AttachmentRow,
    "outbox": OutboxRow,
    "values": bytes,
}
"""The tables that no event changes, and what their rows are."""


class _Line(msgspec.Struct, frozen=True):
    """An event in a backup: its body apart, as bytes, so that an unknown kind survives word for word."""

    conversation_id: str
    seq: int
    at: float
    actor: str
    turn_id: str | None
    attempt: int
    kind: str
    body: bytes


def _envelope(event: Event) -> tuple[str, int, float, str, str | None, int]:
    return event.conversation_id, event.seq, event.at, event.actor, event.turn_id, event.attempt


class Crashed(RuntimeError):
    """This store's process is dead; nothing that still runs in it can reach the data."""


class _Data:
    """What is durable."""

    def __init__(self) -> None:
        self.epoch = f"memory-{next(_epochs)}"
        self.events: list[Event] = []
        self.journals: dict[str, list[Event]] = {}
        self.conversations: dict[str, Conversation] = {}
        self.turns: dict[str, TurnRow] = {}
        self.submissions: dict[str, SubmissionRow] = {}
        self.messages: dict[tuple[str, str], MessageRow] = {}
        self.calls: dict[tuple[str, int, str], CallRow] = {}
        self.links: dict[tuple[str, str], None] = {}
        self.history: dict[str, list[str]] = {}
        self.turns_of: dict[str, list[str]] = {}
        self.lanes: dict[str, dict[str, None]] = {}
        self.submission_turns: dict[str, str] = {}
        self.calls_of: dict[str, list[tuple[str, int, str]]] = {}
        self.keys: dict[tuple[str, str, str], str] = {}
        self.users: dict[str, UserRow] = {}
        self.tokens: dict[str, TokenRow] = {}
        self.attachments: dict[str, AttachmentRow] = {}
        self.outbox: dict[str, OutboxRow] = {}
        self.values: dict[str, bytes] = {}

    # -- the rows that a unit lies over

    @property
    def last_position(self) -> int:
        return len(self.events)

    def conversation_row(self, conversation_id: str) -> Conversation | None:
        return self.conversations.get(conversation_id)

    def turn_row(self, turn_id: str) -> TurnRow | None:
        return self.turns.get(turn_id)

    # -- the engine's own invariants, and keeping

    def check(self, unit: Unit) -> None:
        for row in unit.submissions.values():
            holder = self.keys.get((row.user_id, row.conversation_id, row.key))
            if holder is not None:
                raise KeyTaken(self.submission_of(self.submissions[holder]))
            if row.turn_id in self.turns:
                raise Conflict(f"There is already a turn {row.turn_id}.")
            if row.submission_id in self.submission_turns:
                raise Conflict(f"There is already a submission {row.submission_id}.")
        for conversation_id, message_id in unit.messages:
            if (conversation_id, message_id) in self.messages:
                raise Conflict(f"There is already a message {message_id}.")
        for conversation_id in unit.conversations:
            lane = [*self.lanes.get(conversation_id, {}), *unit.turns]
            running = {
                turn_id
                for turn_id in lane
                if (turn := (unit.turns.get(turn_id) or self.turns[turn_id]).turn).state is TurnState.RUNNING
                and turn.conversation_id == conversation_id
                and turn.parent is None
            }
            if len(running) > 1:
                raise LaneMoved(conversation_id=conversation_id)

    def keep(self, unit: Unit) -> None:
        for event in unit.events:
            self.events.append(event)
            self.journals.setdefault(event.conversation_id, []).append(event)
        self.keep_rows(unit)

    def keep_rows(self, unit: Unit) -> None:
        self.conversations |= unit.conversations
        for turn_id, turn in unit.turns.items():
            if turn_id not in self.turns:
                self.turns_of.setdefault(turn.turn.conversation_id, []).append(turn_id)
            self.turns[turn_id] = turn
            lane = self.lanes.setdefault(turn.turn.conversation_id, {})
            if turn.turn.state in OPEN_STATES:
                lane[turn_id] = None
            else:
                lane.pop(turn_id, None)
        for submitted in unit.submissions.values():
            self.submissions[submitted.turn_id] = submitted
            self.submission_turns[submitted.submission_id] = submitted.turn_id
            self.keys[submitted.user_id, submitted.conversation_id, submitted.key] = submitted.turn_id
        for turn_id, position in unit.edits.items():
            self.submissions[turn_id] = replace(self.submissions[turn_id], edit_position=position)
        for key, message in unit.messages.items():
            self.history.setdefault(key[0], []).append(key[1])
            self.messages[key] = message
        for mark in unit.marks:
            self.mark(mark)
        for line in unit.ledger:
            if isinstance(line, CallRow):
                self.intend(line)
            else:
                self.decide(line)
        self.links |= unit.links

    def mark(self, mark: MarkRow) -> None:
        key = mark.conversation_id, mark.message_id
        row = self.messages.get(key)
        if row is not None and row.position < mark.position:
            self.messages[key] = replace(
                row,
                standing=row.standing if mark.standing is None else mark.standing,
                display=row.display if mark.display is None else mark.display,
                replay=row.replay if mark.replay is None else mark.replay,
                native_id=row.native_id if mark.native_id is None else mark.native_id,
            )

    def intend(self, row: CallRow) -> None:
        key = row.turn_id, row.round, row.call_id
        earlier = self.calls.get(key)
        if earlier is None:
            self.calls_of.setdefault(row.turn_id, []).append(key)
        self.calls[key] = row if earlier is None else replace(row, seq=earlier.seq)

    def decide(self, row: OutcomeRow) -> None:
        keys = [key for key in self.calls_of.get(row.turn_id, ()) if key[2] == row.call_id]
        if keys:
            key = max(keys, key=lambda key: self.calls[key].intent_position)
            self.calls[key] = replace(
                self.calls[key], disposition=row.disposition, outcome_position=row.position
            )

    def at(self, position: int) -> Event:
        return self.events[position - 1]

    def submission_of(self, row: SubmissionRow) -> Submission:
        submitted = self.at(row.position).body
        edited = None if row.edit_position is None else self.at(row.edit_position).body
        assert isinstance(submitted, Submitted)
        assert edited is None or isinstance(edited, TurnEdited)
        return submission(row, submitted, edited)

    def message_of(self, row: MessageRow) -> Message:
        body = self.at(row.position).body
        assert isinstance(body, MessageAppended)
        return flagged(body.message, row.standing, row.display, row.replay, row.native_id)

    def call_of(self, row: CallRow) -> ToolCallRow:
        intended = self.at(row.intent_position)
        returned = None if row.outcome_position is None else self.at(row.outcome_position)
        assert isinstance(intended.body, ToolIntended)
        if returned is None:
            return tool_call(row, intended.body, intended.at, None, None)
        assert isinstance(returned.body, ToolReturned)
        return tool_call(row, intended.body, intended.at, returned.body, returned.at)


class MemoryStore:
    """Satisfies `turnkeeper.port.store.Store` with dictionaries."""

    def __init__(self) -> None:
        self._data = _Data()
        self._faults: deque[TurnkeeperError] = deque()
        self._state = "open"

    # -- what only a fake can do

    def crash(self) -> MemoryStore:
        """Kill this store's process: the store that the next process finds holds what was committed."""
        found = MemoryStore()
        found._data = self._data
        self._data = _Data()
        self._state = "crashed"
        return found

    def reopen(self) -> MemoryStore:
        """The same store after a clean stop."""
        found = self.crash()
        self._state = "closed"
        return found

    def fault(self, error: TurnkeeperError) -> None:
        """Let the next commit that has no earlier fault fail with `error`."""
        self._faults.append(error)

    def tables(self) -> dict[str, list[Any]]:
        """Every projection table, rows in a stable order, to be compared."""
        data = self._data
        return {
            "conversation": sorted(data.conversations.values(), key=lambda row: row.conversation_id),
            "turn": sorted(data.turns.values(), key=lambda row: row.position),
            "submission": sorted(data.submissions.values(), key=lambda row: row.position),
            "message": sorted(data.messages.values(), key=lambda row: row.position),
            "tool_call": sorted(data.calls.values(), key=lambda row: (row.turn_id, row.seq)),
            "attachment_link": sorted(data.links),
        }

    async def rebuild(self) -> None:
        """Throw the projections away and derive them from the journal again."""
        old, new = self._data, _Data()
        unit = Unit(new)
        project_all(old.events, unit)
        keep_what_no_event_tells(old.conversations.values(), old.turns.values(), unit)
        for name in ("epoch", "events", "journals", *_LOOSE):
            setattr(new, name, getattr(old, name))
        new.keep_rows(unit)
        self._data = new

    # -- writing

    def _open(self) -> _Data:
        if self._state == "crashed":
            raise Crashed
        if self._state == "closed":
            raise Stopping
        return self._data

    async def _write(self, change: Callable[[Unit], T]) -> T:
        self._open()
        await asyncio.sleep(0)
        data = self._open()
        if self._faults:
            raise self._faults.popleft()
        unit = Unit(data)
        result = change(unit)
        data.check(unit)
        failpoint("store.before_commit")
        data.keep(unit)
        failpoint("store.after_commit")
        await asyncio.sleep(0)
        self._open()
        return result

    async def commit(self, batch: Batch) -> tuple[Event, ...]:
        """See the port."""
        return await self._write(lambda unit: store_batch(batch, unit))

    async def renew_leases(self, leases: Sequence[Fence], until: float) -> tuple[Fence, ...]:
        """See the port."""
        return await self._write(lambda unit: renew(leases, until, unit))

    async def _put(self, table: dict[str, T], key: str, row: T) -> None:
        await self._write(lambda _: None)
        table[key] = row

    # -- reading conversations

    async def conversation(self, conversation_id: str) -> Conversation | None:
        """See the port."""
        return self._open().conversations.get(conversation_id)

    async def conversations(
        self, owner: str, *, before: int | None = None, limit: int = 50, archived: bool = False
    ) -> tuple[Conversation, ...]:
        """See the port."""
        rows = [
            row
            for row in self._open().conversations.values()
            if row.owner == owner
            and row.archived == archived
            and row.deleted_at is None
            and (before is None or row.activity < before)
        ]
        return tuple(sorted(rows, key=lambda row: -row.activity)[: max(limit, 0)])

    async def lane(self, conversation_id: str) -> LaneRows | None:
        """See the port."""
        data = self._open()
        conversation = data.conversations.get(conversation_id)
        if conversation is None:
            return None
        rows = [data.turns[turn_id] for turn_id in data.lanes.get(conversation_id, {})]
        rows.sort(key=lambda row: (row.turn.place, row.position))
        return LaneRows(conversation=conversation, turns=tuple(row.turn for row in rows))

    async def open_lanes(self) -> tuple[str, ...]:
        """See the port."""
        data = self._open()
        return tuple(
            sorted(
                conversation_id
                for conversation_id, lane in data.lanes.items()
                if any(data.turns[turn_id].turn.state is not TurnState.PARKED for turn_id in lane)
            )
        )

    async def events(
        self, conversation_id: str, *, after: int = 0, limit: int = 1000, turn_id: str | None = None
    ) -> tuple[Event, ...]:
        """See the port."""
        journal = self._open().journals.get(conversation_id, [])[max(after, 0) :]
        if turn_id is not None:
            row = self._data.turns.get(turn_id)
            first = row.seq if row is not None and row.turn.conversation_id == conversation_id else 1
            journal = [event for event in journal if event.turn_id == turn_id and event.seq >= first]
        return tuple(journal[: max(limit, 0)])

    async def landmarks(
        self, conversation_id: str, *, since: int = 0, before: int | None = None
    ) -> tuple[Event, ...]:
        """See the port."""
        journal = self._open().journals.get(conversation_id, [])
        return tuple(
            event
            for event in journal[max(since - 1, 0) : None if before is None else max(before - 1, 0)]
            if isinstance(event.body, LANDMARKS)
        )

    def _messages(self, conversation_id: str) -> list[MessageRow]:
        data = self._open()
        return [data.messages[conversation_id, key] for key in data.history.get(conversation_id, [])]

    async def messages(
        self, conversation_id: str, *, before: int | None = None, limit: int = 50
    ) -> tuple[Message, ...]:
        """See the port."""
        known = self._messages(conversation_id)
        rows = [row for row in known if row.placed_after is None and (before is None or row.seq < before)]
        page = rows[len(rows) - max(min(limit, len(rows)), 0) :]
        placed = [row for row in known if row.placed_after is not None] if page else []
        out = self._data.message_of
        return with_placed(
            tuple(map(out, page)), tuple(map(out, placed)), beginning=len(page) < max(limit, 0)
        )

    async def messages_after(self, conversation_id: str, *, after: int = 0) -> tuple[Message, ...]:
        """See the port."""
        rows = [row for row in self._messages(conversation_id) if row.seq > after]
        return as_said(tuple(self._data.message_of(row) for row in rows))

    # -- reading turns

    async def turn(self, turn_id: str) -> Turn | None:
        """See the port."""
        row = self._open().turns.get(turn_id)
        return None if row is None else row.turn

    async def turns(
        self,
        conversation_id: str,
        *,
        before: str | None = None,
        limit: int = 50,
        states: Sequence[TurnState] | None = None,
    ) -> tuple[Turn, ...]:
        """See the port."""
        data = self._open()
        last = None if before is None else data.turns.get(before)
        if before is not None and last is None:
            return ()
        rows = [
            row
            for row in (data.turns[key] for key in reversed(data.turns_of.get(conversation_id, ())))
            if (states is None or row.turn.state in states) and (last is None or row.position < last.position)
        ]
        return tuple(row.turn for row in rows[: max(limit, 0)])

    async def turns_in(self, states: Sequence[TurnState], *, limit: int = 1000) -> tuple[Turn, ...]:
        """See the port."""
        rows = [row for row in self._open().turns.values() if row.turn.state in states]
        rows.sort(key=lambda row: row.position)
        return tuple(row.turn for row in rows[: max(limit, 0)])

    async def submission(self, submission_id: str) -> Submission | None:
        """See the port."""
        data = self._open()
        turn_id = data.submission_turns.get(submission_id)
        return None if turn_id is None else data.submission_of(data.submissions[turn_id])

    async def submission_by_key(self, user_id: str, conversation_id: str, key: str) -> Submission | None:
        """See the port."""
        data = self._open()
        turn_id = data.keys.get((user_id, conversation_id, key))
        return None if turn_id is None else data.submission_of(data.submissions[turn_id])

    async def tool_calls(self, turn_id: str) -> tuple[ToolCallRow, ...]:
        """See the port."""
        data = self._open()
        rows = [data.calls[key] for key in data.calls_of.get(turn_id, ())]
        return tuple(data.call_of(row) for row in rows)

    # -- rows that belong to no conversation

    async def put_user(self, user: UserRow) -> None:
        """See the port."""
        await self._put(self._open().users, user.user_id, user)

    async def user(self, user_id: str) -> UserRow | None:
        """See the port."""
        return self._open().users.get(user_id)

    async def put_token(self, token: TokenRow) -> None:
        """See the port."""
        found = await self.token_by_hash(token.sha256)
        if found is not None and found.token_id != token.token_id:
            raise Conflict(f"There is already a token of this secret ({found.token_id}).")
        await self._put(self._open().tokens, token.token_id, token)

    async def token_by_hash(self, sha256: str) -> TokenRow | None:
        """See the port."""
        return next((row for row in self._open().tokens.values() if row.sha256 == sha256), None)

    async def token(self, token_id: str) -> TokenRow | None:
        """See the port."""
        return self._open().tokens.get(token_id)

    async def put_attachment(self, row: AttachmentRow) -> None:
        """See the port."""
        await self._put(self._open().attachments, row.attachment_id, row)

    async def attachment(self, attachment_id: str) -> AttachmentRow | None:
        """See the port."""
        return self._open().attachments.get(attachment_id)

    async def attachment_in(self, conversation_id: str, attachment_id: str) -> bool:
        """See the port."""
        return (conversation_id, attachment_id) in self._open().links

    async def put_outbox(self, row: OutboxRow) -> None:
        """See the port."""
        await self._put(self._open().outbox, row.outbox_id, row)

    async def outbox_due(self, now: float, *, limit: int = 100) -> tuple[OutboxRow, ...]:
        """See the port."""
        rows = [row for row in self._open().outbox.values() if row.done_at is None and row.due_at <= now]
        return tuple(sorted(rows, key=lambda row: (row.due_at, row.outbox_id))[: max(limit, 0)])

    async def put_value(self, name: str, value: bytes) -> None:
        """See the port."""
        await self._put(self._open().values, name, value)

    async def value(self, name: str) -> bytes | None:
        """See the port."""
        return self._open().values.get(name)

    # -- the store itself

    @property
    def epoch(self) -> str:
        """See the port."""
        return self._data.epoch

    async def backup(self, path: str) -> None:
        """See the port. The copy is a text file for `MemoryStore.restore`."""
        data = self._open()
        head = {name: msgspec.to_builtins(getattr(data, name)) for name in _LOOSE}
        head["rows"] = msgspec.to_builtins([list(data.conversations.values()), list(data.turns.values())])
        lines = [codec.encode(head)]
        lines += [
            codec.encode(_Line(*_envelope(event), event.kind, codec.encode_body(event.body)))
            for event in data.events
        ]
        try:
            with open(path, "xb") as file:  # noqa: ASYNC230, PTH123 - a test's file
                file.write(b"\n".join(lines))
        except FileExistsError:
            raise BadInput(f"The file {path} exists already; name a new one for the backup.") from None

    @classmethod
    def restore(cls, path: str) -> MemoryStore:
        """The store that a backup holds."""
        found = cls()
        head, *lines = Path(path).read_bytes().split(b"\n")
        loose = codec.decode(head, dict[str, Any])
        conversations, turns = msgspec.convert(loose["rows"], tuple[list[Conversation], list[TurnRow]])
        data = found._data
        for name, kind in _LOOSE.items():
            setattr(data, name, msgspec.convert(loose[name], dict[str, kind]))  # type: ignore[valid-type]
        unit = Unit(data)
        for position, line in enumerate(lines, 1):
            kept = codec.decode(line, _Line)
            unit.events.append(
                Event(
                    conversation_id=kept.conversation_id,
                    seq=kept.seq,
                    at=kept.at,
                    actor=kept.actor,
                    turn_id=kept.turn_id,
                    attempt=kept.attempt,
                    body=codec.decode_body(kept.kind, kept.body),
                    position=position,
                )
            )
        project_all(unit.events, unit)
        keep_what_no_event_tells(conversations, turns, unit)
        data.keep(unit)
        return found

    async def check(self) -> tuple[str, ...]:
        """See the port."""
        data = self._open()
        wrong = []
        for conversation_id, journal in data.journals.items():
            if [event.seq for event in journal] != list(range(1, len(journal) + 1)):
                wrong.append(f"The journal of conversation {conversation_id} has gaps.")
        before = self.tables()
        await self.rebuild()
        wrong += [
            f"The table {name} differs from the journal."
            for name, rows in self.tables().items()
            if rows != before[name]
        ]
        return tuple(wrong)

    async def close(self) -> None:
        """See the port."""
        if self._state == "open":
            self._state = "closed"
