"""The default store: one SQLite file, durable at every commit, without a server.

`SQLiteStore.open(folder)` gives it. Writes go through one thread with group commit (writer.py); reads use
connections of their own and never wait for writes. A short read runs where it is called, as handing it to
a thread costs more than the read; a long one runs in a thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import apsw

from turnkeeper.conversation.events import Event
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.turns import OPEN_STATES, Conversation, Submission, ToolCallRow, Turn, TurnState
from turnkeeper.errors import Stopping
from turnkeeper.port.store import (
    AttachmentRow,
    Batch,
    Fence,
    LaneRows,
    OutboxRow,
    TokenRow,
    UserRow,
)
from turnkeeper.projection.order import as_said, with_placed
from turnkeeper.store.sqlite import columns
from turnkeeper.store.sqlite.care import read_tables, rebuild_tables, what_is_wrong, write_copy
from turnkeeper.store.sqlite.columns import text_in
from turnkeeper.store.sqlite.faults import translated
from turnkeeper.store.sqlite.mount import fs_kind
from turnkeeper.store.sqlite.opening import Opened, connect, open_store
from turnkeeper.store.sqlite.sql import QUERIES
from turnkeeper.store.sqlite.writer import GROUP_MAX, Writer
from turnkeeper.store.unit import LooseRow, Unit, ValueRow, renew, store_batch

T = TypeVar("T")

INLINE_ROWS: Final = 64
"""Most rows that are read where the caller runs; more are read in a thread."""
FOREVER: Final = (1 << 63) - 1
"""Above every seq and position."""


class SQLiteStore:
    """Satisfies `turnkeeper.port.store.Store`. Make one with `open`."""

    def __init__(self, opened: Opened, busy_timeout_seconds: float, group_max: int) -> None:
        self.path = opened.database
        self._epoch = opened.epoch
        self._lock = opened.lock
        self._busy_timeout_seconds = busy_timeout_seconds
        self._writer = Writer(opened.connection, str(opened.database), group_max)
        self._local = threading.local()
        self._readers: list[apsw.Connection] = []
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="turnkeeper-reader")
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        exclusive: bool = True,
        busy_timeout_seconds: float = 5.0,
        group_max: int = GROUP_MAX,
        probe: Callable[[Path], str] = fs_kind,
    ) -> Self:
        """Open or make the store in the data folder `path` (or at a database file).

        `exclusive` refuses a second server on the same folder; a command that writes a little beside a
        running server passes False. `busy_timeout_seconds` is how long a write waits for a lock that
        another program holds. `group_max` is how many commits may share a transaction. `probe` tells the kind of a folder's file system.

        Errors: StoreInUse, StoreNewer, StoreDamaged, StoreUnsafeMount, StoreBusy, StoreFull, StoreError.
        """
        opened = await asyncio.to_thread(
            open_store,
            path,
            exclusive=exclusive,
            busy_timeout_seconds=busy_timeout_seconds,
            probe=probe,
        )
        return cls(opened, busy_timeout_seconds, group_max)

    # -- writing

    async def commit(self, batch: Batch) -> tuple[Event, ...]:
        """See the port."""
        return await self._writer.store(lambda unit: store_batch(batch, unit))

    async def renew_leases(self, leases: Sequence[Fence], until: float) -> tuple[Fence, ...]:
        """See the port."""
        return await self._writer.store(lambda unit: renew(leases, until, unit))

    async def _put(self, row: LooseRow) -> None:
        def change(unit: Unit) -> None:
            unit.loose.append(row)

        await self._writer.store(change)

    # -- how reads run

    def _reader(self) -> apsw.Cursor:
        if self._closed:
            raise Stopping
        cursor: apsw.Cursor | None = getattr(self._local, "cursor", None)
        if cursor is None:
            connection = connect(self.path, self._busy_timeout_seconds, reading=True)
            self._readers.append(connection)
            cursor = self._local.cursor = connection.cursor()
        return cursor

    def _read(self, query: str, values: tuple[Any, ...], out: Callable[[Sequence[Any]], T]) -> tuple[T, ...]:
        try:
            rows = self._reader().execute(QUERIES[query], values).fetchall()
        except apsw.Error as error:
            raise translated(error, str(self.path)) from error
        return tuple([out(row) for row in rows])

    def _one(self, query: str, values: tuple[Any, ...], out: Callable[[Sequence[Any]], T]) -> T | None:
        rows = self._read(query, values, out)
        return rows[0] if rows else None

    async def _in_thread(self, read: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise Stopping
        return await asyncio.get_running_loop().run_in_executor(self._threads, read, *arguments)

    async def _page(
        self,
        query: str,
        values: tuple[Any, ...],
        limit: int,
        out: Callable[[Sequence[Any]], T],
        cursor: Callable[[T], int],
    ) -> tuple[T, ...]:
        """Up to `limit` rows. `values[1]` is the cursor that the rows lie beyond, the limit comes last."""
        limit = max(limit, 0)
        first = self._read(query, (*values, min(limit, INLINE_ROWS)), out)
        if len(first) < INLINE_ROWS or limit <= INLINE_ROWS:
            return first
        beyond = (values[0], cursor(first[-1]), *values[2:], limit - INLINE_ROWS)
        return first + await self._in_thread(self._read, query, beyond, out)

    # -- reading conversations

    async def conversation(self, conversation_id: str) -> Conversation | None:
        """See the port."""
        return self._one("conversation", (text_in(conversation_id),), columns.conversation_out)

    async def conversations(
        self, owner: str, *, before: int | None = None, limit: int = 50, archived: bool = False
    ) -> tuple[Conversation, ...]:
        """See the port."""
        values = (text_in(owner), archived, FOREVER if before is None else before, max(limit, 0))
        return await self._in_thread(self._read, "conversations", values, columns.conversation_out)

    async def lane(self, conversation_id: str) -> LaneRows | None:
        """See the port."""
        reader = self._reader()
        reader.execute("BEGIN")
        try:
            conversation = self._one("conversation", (text_in(conversation_id),), columns.conversation_out)
            if conversation is None:
                return None
            turns = self._read("lane_turns", (text_in(conversation_id),), columns.turn_out)
            return LaneRows(conversation=conversation, turns=turns)
        finally:
            reader.execute("COMMIT")

    async def open_lanes(self) -> tuple[str, ...]:
        """See the port."""
        return self._read("open_lanes", (), lambda row: columns.text_out(row[0]))

    async def events(
        self, conversation_id: str, *, after: int = 0, limit: int = 1000, turn_id: str | None = None
    ) -> tuple[Event, ...]:
        """See the port."""
        seq: Callable[[Event], int] = lambda event: event.seq  # noqa: E731
        if turn_id is None:
            values: tuple[Any, ...] = (text_in(conversation_id), after)
            return await self._page("events", values, limit, columns.event_out, seq)
        names = text_in(conversation_id), text_in(turn_id)
        span = self._one("turn_span", names[::-1], lambda row: (row[0], row[1]))
        if span is None:
            values = (names[0], after, FOREVER, names[1], max(limit, 0))
            return await self._in_thread(self._read, "events_of_turn", values, columns.event_out)
        first, last = span
        values = (names[0], max(after, first - 1), FOREVER if last is None else last, names[1])
        return await self._page("events_of_turn", values, limit, columns.event_out, seq)

    async def landmarks(
        self, conversation_id: str, *, since: int = 0, before: int | None = None
    ) -> tuple[Event, ...]:
        """See the port."""
        values = (text_in(conversation_id), since, FOREVER if before is None else before)
        return self._read("landmarks", values, columns.event_out)

    async def messages(
        self, conversation_id: str, *, before: int | None = None, limit: int = 50
    ) -> tuple[Message, ...]:
        """See the port."""
        values = (text_in(conversation_id), FOREVER if before is None else before)
        page = await self._page(
            "messages_before", values, limit, columns.message_out, lambda message: message.seq
        )
        placed = self._read("messages_placed", values[:1], columns.message_out) if page else ()
        return with_placed(page[::-1], placed, beginning=len(page) < limit)

    async def messages_after(self, conversation_id: str, *, after: int = 0) -> tuple[Message, ...]:
        """See the port."""
        values = (text_in(conversation_id), after)
        page = await self._page(
            "messages_after", values, FOREVER, columns.message_out, lambda message: message.seq
        )
        return as_said(page)

    # -- reading turns

    async def turn(self, turn_id: str) -> Turn | None:
        """See the port."""
        return self._one("turn", (text_in(turn_id),), columns.turn_out)

    async def turns(
        self,
        conversation_id: str,
        *,
        before: str | None = None,
        limit: int = 50,
        states: Sequence[TurnState] | None = None,
    ) -> tuple[Turn, ...]:
        """See the port."""
        position: int | None = FOREVER
        if before is not None:
            position = self._one("turn_position", (text_in(before),), lambda row: int(row[0]))
            if position is None:
                return ()
        head = (text_in(conversation_id), position)
        if states is None:
            return await self._in_thread(self._read, "turns", (*head, max(limit, 0)), columns.turn_out)
        values = (*head, columns.states_in(states), max(limit, 0))
        return await self._in_thread(self._read, "turns_of_states", values, columns.turn_out)

    async def turns_in(self, states: Sequence[TurnState], *, limit: int = 1000) -> tuple[Turn, ...]:
        """See the port."""
        query = "turns_open" if OPEN_STATES.issuperset(states) else "turns_in"
        values = (columns.states_in(states), max(limit, 0))
        return await self._in_thread(self._read, query, values, columns.turn_out)

    async def submission(self, submission_id: str) -> Submission | None:
        """See the port."""
        return self._one("submission", (text_in(submission_id),), columns.submission_out)

    async def submission_by_key(self, user_id: str, conversation_id: str, key: str) -> Submission | None:
        """See the port."""
        values = (text_in(conversation_id), text_in(user_id), text_in(key))
        return self._one("submission_by_key", values, columns.submission_out)

    async def tool_calls(self, turn_id: str) -> tuple[ToolCallRow, ...]:
        """See the port."""
        return self._read("tool_calls", (text_in(turn_id),), columns.tool_call_out)

    # -- rows that belong to no conversation

    async def put_user(self, user: UserRow) -> None:
        """See the port."""
        await self._put(user)

    async def user(self, user_id: str) -> UserRow | None:
        """See the port."""
        return self._one("user", (text_in(user_id),), columns.user_out)

    async def put_token(self, token: TokenRow) -> None:
        """See the port."""
        await self._put(token)

    async def token_by_hash(self, sha256: str) -> TokenRow | None:
        """See the port."""
        return self._one("token_by_hash", (text_in(sha256),), columns.token_out)

    async def token(self, token_id: str) -> TokenRow | None:
        """See the port."""
        return self._one("token", (text_in(token_id),), columns.token_out)

    async def put_attachment(self, row: AttachmentRow) -> None:
        """See the port."""
        await self._put(row)

    async def attachment(self, attachment_id: str) -> AttachmentRow | None:
        """See the port."""
        return self._one("attachment", (text_in(attachment_id),), columns.attachment_out)

    async def attachment_in(self, conversation_id: str, attachment_id: str) -> bool:
        """See the port."""
        values = (text_in(conversation_id), text_in(attachment_id))
        return bool(self._read("attachment_in", values, bool))

    async def put_outbox(self, row: OutboxRow) -> None:
        """See the port."""
        await self._put(row)

    async def outbox_due(self, now: float, *, limit: int = 100) -> tuple[OutboxRow, ...]:
        """See the port."""
        return self._read("outbox_due", (now, max(limit, 0)), columns.outbox_out)

    async def put_value(self, name: str, value: bytes) -> None:
        """See the port."""
        await self._put(ValueRow(name, value))

    async def value(self, name: str) -> bytes | None:
        """See the port."""
        return self._one("value", (text_in(name),), lambda row: bytes(row[0]))

    # -- the store itself

    @property
    def epoch(self) -> str:
        """See the port."""
        return self._epoch

    async def backup(self, path: str) -> None:
        """See the port. Attachments lie beside the database and are not in the copy."""
        await self._in_thread(write_copy, self.path, Path(path))

    async def check(self) -> tuple[str, ...]:
        """See the port."""
        return await self._in_thread(lambda: what_is_wrong(self._reader()))

    async def rebuild(self) -> None:
        """Throw the projections away and derive them from the journal again, in one transaction."""
        await self._writer.run(rebuild_tables)

    async def tables(self) -> dict[str, list[Any]]:
        """Every projection table, rows in a stable order, to be compared."""
        return await self._in_thread(lambda: read_tables(self._reader()))

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()
        self._threads.shutdown(wait=True)
        for connection in self._readers:
            connection.close()
        self._readers.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
