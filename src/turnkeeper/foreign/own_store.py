"""Our own store under the doctor: read beside a running server, healed by appended events in a copy.

Our feeds heal themselves each time they are built. Healing a copy writes that down: rows that must not be
replayed are marked, stale confirmations expire, open calls of an idle conversation are closed as unknown.
No row is ever changed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import apsw

from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, LEAKED, TOOL, Message
from turnkeeper.conversation.parts import ToolResult
from turnkeeper.conversation.turns import TurnState
from turnkeeper.errors import BadInput
from turnkeeper.foreign.findings import examine, feed_of
from turnkeeper.foreign.sessions import Session, read_only, refuse_to_overwrite
from turnkeeper.history.feed import find_expired, find_stale_confirmations
from turnkeeper.history.row import DROPPED
from turnkeeper.port.store import Batch
from turnkeeper.projection.order import as_said
from turnkeeper.store.sqlite import SQLiteStore, columns
from turnkeeper.store.sqlite.care import what_is_wrong, write_copy
from turnkeeper.store.sqlite.columns import text_in
from turnkeeper.store.sqlite.opening import APPLICATION_ID, DATABASE_NAME
from turnkeeper.store.sqlite.sql import QUERIES

ACTOR: Final = "turnkeeper"
_EVERYTHING: Final = (1 << 63) - 1


def database_of(path: Path) -> Path | None:
    """The database of our own store at `path` (a data folder or the file itself), or None."""
    database = path / DATABASE_NAME if path.is_dir() else path
    try:
        if not database.is_file():
            return None  # a pipe would be waited for
        with database.open("rb") as file:
            head = file.read(72)
    except OSError:
        return None
    ours = head[:16] == b"SQLite format 3\0" and int.from_bytes(head[68:72], "big") == APPLICATION_ID
    return database if ours else None


def is_ours(path: Path) -> bool:
    """Whether a Turnkeeper store lies at `path`."""
    return database_of(path) is not None


class OwnStore:
    """A store of ours, opened for reading; its server may be running."""

    def __init__(self, path: Path) -> None:
        database = database_of(path)
        if database is None:
            raise BadInput(f"{path} holds no Turnkeeper store")
        self.path = database

    def sessions(self) -> list[Session]:
        """Every conversation with messages."""
        connection = read_only(self.path)
        try:
            cursor = connection.cursor()
            found = []
            for row in cursor.execute(QUERIES["all_conversations"]).fetchall():
                conversation = columns.conversation_out(row)
                messages = _messages(cursor, conversation.conversation_id)
                if messages:
                    ids = [message.message_id for message in messages]
                    found.append(
                        Session(
                            name=conversation.conversation_id,
                            format="turnkeeper",
                            items=list(messages),
                            reads=list(messages),
                            ids=ids,
                        )
                    )
            return found
        except apsw.Error as error:
            raise BadInput(f"{self.path} cannot be read ({error})") from None
        finally:
            connection.close()

    def problems(self) -> list[str]:
        """What is wrong with the file or its tables."""
        connection = read_only(self.path)
        try:
            return list(what_is_wrong(connection.cursor()))
        finally:
            connection.close()

    def heal_copy(self, out: Path, now: float) -> int:
        """Write a copy to the new file `out` with the healing events appended; how many rows were sick."""
        refuse_to_overwrite(out)
        sick = sum(len({f.row for f in examine(s, now=now)}) for s in self.sessions())
        write_copy(self.path, out)
        asyncio.run(_heal(out, self.sessions(), now))
        return sick


def _messages(cursor: apsw.Cursor, conversation_id: str) -> tuple[Message, ...]:
    rows = cursor.execute(QUERIES["messages_after"], (text_in(conversation_id), 0, _EVERYTHING)).fetchall()
    return as_said(tuple([columns.message_out(row) for row in rows]))


async def _heal(out: Path, sessions: list[Session], now: float) -> None:
    store = await SQLiteStore.open(out, exclusive=False)
    try:
        for session in sessions:
            lane = await store.lane(session.name)
            idle = lane is not None and all(turn.state is not TurnState.RUNNING for turn in lane.turns)
            bodies = healing_events(session, now, idle=idle)
            if bodies:
                drafts = tuple(ev.Draft(body, actor=ACTOR) for body in bodies)
                await store.commit(Batch(conversation_id=session.name, drafts=drafts, at=now))
    finally:
        await store.close()


def healing_events(session: Session, now: float, *, idle: bool) -> list[ev.Body]:
    """The events that write down what the feed does to this conversation. Pure."""
    messages = session.read()
    feed = feed_of(session, now)
    bodies: list[ev.Body] = []
    replayed = {message.message_id for message in messages if message.replay}
    marked: set[str] = set()
    kept = {source for sources in feed.sources for source in sources}
    for change in feed.changes:
        message_id = change.message
        if (
            change.action != DROPPED
            or message_id not in replayed
            or message_id in kept
            or message_id in marked
        ):
            continue
        if change.rule in ("compaction", "one_summary", "trailing_duplicate"):
            continue
        marked.add(message_id)
        leaked = change.rule == "leaked_markup"
        bodies.append(
            ev.MessageMarked(message_id, standing=LEAKED if leaked else None, replay=False, why=change.why)
        )
    expired = find_expired(messages)
    for message_id, pattern in find_stale_confirmations(messages, now, expired=expired):
        bodies.append(ev.ConfirmationExpired(message_id, pattern))
    if idle and (closing := _closing(messages, feed.messages)) is not None:
        bodies.append(ev.MessageAppended(closing))
    return bodies


def _closing(messages: list[Message], fed: Any) -> Message | None:
    """The results that close the calls which the newest answer left open."""
    if not fed or fed[-1].role != TOOL:
        return None
    synthetic = tuple(part for part in fed[-1].parts if isinstance(part, ToolResult) and part.synthetic)
    last = next((m for m in reversed(messages) if m.role == ASSISTANT), None)
    stored = {
        p.tool_call_id for m in messages if m.role == TOOL for p in m.parts if isinstance(p, ToolResult)
    }
    missing = tuple(part for part in synthetic if part.tool_call_id not in stored)
    if last is None or not missing:
        return None
    return Message(
        message_id=f"{last.message_id}-closed",
        role=TOOL,
        parts=missing,
        turn_id=last.turn_id,
        attempt=last.attempt,
        round=last.round,
        provenance="turnkeeper",
    )
