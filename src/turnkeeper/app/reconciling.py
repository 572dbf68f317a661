"""Merging what coding CLIs recorded into a conversation's history: which files, read how, and what came of it.

Explicit, and never a part of reading: somebody asks for it (or a retained turn ends). Nothing is launched.
What was found is told even if it cannot be stored. A session is named by an id that `turnkeeper transcript
find` lists, never by a path.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from turnkeeper.conversation.events import Draft, MessageAppended, SessionBound
from turnkeeper.conversation.messages import Message
from turnkeeper.dispatch import Dispatcher
from turnkeeper.errors import NotFound, NotPossible, TurnkeeperError
from turnkeeper.history.reconcile import Reconciled
from turnkeeper.port.clock import Clock, Ids
from turnkeeper.port.store import Store
from turnkeeper.projection.view import MessageView, message_view
from turnkeeper.retained.adapters import ADAPTERS
from turnkeeper.transcript.find import locate_found
from turnkeeper.transcript.formats import MODULES, reader
from turnkeeper.transcript.place import Roots
from turnkeeper.transcript.record import Reading
from turnkeeper.transcript.recover import Recovered, recover
from turnkeeper.transcript.source import Unreadable

ROWS_SHOWN_MAX: Final = 200
"""Most of the added rows that an answer holds; all of them are in history."""
EVENTS_PER_READ: Final = 1000
TURNS_PER_READ: Final = 500


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What a merge came to."""

    transcripts: list[str]
    """The sessions that were read, oldest first, as `format:native_id`."""
    missing: list[str]
    """Sessions whose file is nowhere."""
    unreadable: dict[str, str]
    """Sessions whose file could not be read, with the reason."""
    matched: int
    """Rows that are messages of ours."""
    added: int
    joined: int
    """Messages of ours that a CLI put together with others into one prompt."""
    ambiguous: int
    """Pairs that could have been others, because words alone do not tell."""
    crossings: int
    """Pairs that stand in another order there; ours was kept."""
    malformed: int
    """Lines that hold no row."""
    torn_tail: bool
    stored: bool
    why: str | None
    """Why it could not be stored."""
    rows: list[MessageView]
    """What was added, in order; the newest, if there is a lot."""


def own_roots() -> Roots:
    """Where this user's CLIs keep their sessions."""
    return Roots(home=Path.home(), env=dict(os.environ))


async def sessions_of(store: Store, conversation_id: str) -> list[str]:
    """The native sessions that a conversation's turns went to, oldest first, as `format:native_id`."""
    found: dict[str, None] = {}
    after = 0
    while True:
        events = await store.events(conversation_id, after=after, limit=EVENTS_PER_READ)
        for event in events:
            if isinstance(event.body, SessionBound) and event.body.native_id is not None:
                found[f"{format_of(event.body.cli)}:{event.body.native_id}"] = None
        if len(events) < EVENTS_PER_READ:
            return list(found)
        after = events[-1].seq


def format_of(cli: str) -> str:
    """The transcript format of a CLI, by its name in the agents file."""
    adapter = ADAPTERS.get(cli)
    return cli if adapter is None else adapter.FORMAT


async def delivered_as(store: Store, conversation_id: str, messages: Sequence[Message]) -> dict[str, str]:
    """From the id of a transcript's row to the message that was delivered as it: what receipts prove."""
    first_of: dict[str, str] = {}
    for message in messages:
        if message.submission_id is not None and message.turn_id is not None:
            first_of.setdefault(message.turn_id, message.message_id)
    found: dict[str, str] = {}
    before: str | None = None
    while True:
        turns = await store.turns(conversation_id, before=before, limit=TURNS_PER_READ)
        for turn in turns:
            record = (turn.receipt.evidence or {}).get("record")
            if isinstance(record, str) and record and turn.turn_id in first_of:
                found[record] = first_of[turn.turn_id]
        if len(turns) < TURNS_PER_READ:
            return found
        before = turns[-1].turn_id


class Sources(msgspec.Struct):
    """Sessions that were looked for: readings, oldest first, and what is not to be had."""

    names: list[str] = []
    readings: list[Reading] = []
    missing: list[str] = []
    unreadable: dict[str, str] = {}


def read_sessions(names: Sequence[str], where: Roots) -> Sources:
    """Read the sessions of these ids. Blocks; a session that cannot be read hides no other."""
    sources = Sources()
    for name in names:
        try:
            place = locate_found(name, where)
            if place is None:
                sources.missing.append(name)
                continue
            found, paths, native_id = place
            module = reader(found)
            meant = module.primary(paths) if len(paths) > 1 else paths[0]
            reading = module.read(meant, beside=[path for path in paths if path != meant], session=native_id)
        except Unreadable as error:
            sources.unreadable[name] = str(error.facts.get("why", error))
            continue
        reading.session.native_id = reading.session.native_id or native_id
        sources.names.append(name)
        sources.readings.append(reading)
    return sources


async def reconcile_conversation(
    dispatcher: Dispatcher,
    store: Store,
    conversation_id: str,
    *,
    session: str | None,
    where: Roots,
    clock: Clock,
    ids: Ids,
    actor: str,
    rows: Callable[[Sequence[str]], None] | None = None,
) -> Reconciliation:
    """Merge the conversation's own native sessions, or the one that is named, into its history.

    `rows` is told the identities of all rows that history holds after it: who reads the same files need not add them.

    Raises NotFound (the named session is nowhere), Unreadable (it cannot be read), NotPossible (a turn runs:
    it takes what is new from the transcript itself).
    """
    if await dispatcher.holds(conversation_id):
        # Asked again when it counts; before a long record is read for nothing.
        raise NotPossible(why="A turn runs in this conversation; try again when it has ended.")
    names = [session] if session is not None else await sessions_of(store, conversation_id)
    if session is not None and session.partition(":")[0] not in MODULES:
        raise NotFound(what="session")
    sources = await asyncio.to_thread(read_sessions, names, where)
    if session is not None and sources.missing:
        raise NotFound(what="session")
    if session is not None and sources.unreadable:
        raise Unreadable(path=session, why=sources.unreadable[session])
    merges: list[Recovered] = []

    async def missing_from(messages: Sequence[Message]) -> list[Draft]:
        evidence = await delivered_as(store, conversation_id, messages)
        merged = await asyncio.to_thread(
            recover,
            sources.readings,
            messages,
            make_id=ids.make,
            now=clock.now(),
            evidence=evidence,
        )
        merges.append(merged)
        return [
            Draft(
                body, turn_id=body.message.turn_id if isinstance(body, MessageAppended) else None, actor=actor
            )
            for body in merged.bodies
        ]

    why: str | None = None
    added: tuple[Message, ...] = ()
    if sources.readings:
        try:
            events = await dispatcher.complete(conversation_id, missing_from)
            added = tuple(event.body.message for event in events if isinstance(event.body, MessageAppended))
            if rows is not None:
                rows(merges[-1].identities)
        except TurnkeeperError as error:
            if not merges:
                raise
            why, added = error.sentence, merges[-1].added
    return _told(sources, merges[-1].result if merges else NOTHING, added, why)


NOTHING: Final = Reconciled(order=(), pairs=(), added=())


def _told(
    sources: Sources, result: Reconciled, added: tuple[Message, ...], why: str | None
) -> Reconciliation:
    counters = [reading.counters for reading in sources.readings]
    return Reconciliation(
        transcripts=sources.names,
        missing=sources.missing,
        unreadable=sources.unreadable,
        matched=len(result.pairs),
        added=len(added),
        joined=result.joined,
        ambiguous=result.ambiguous,
        crossings=result.crossings,
        malformed=sum(each.malformed for each in counters),
        torn_tail=any(each.torn_tail for each in counters),
        stored=why is None,
        why=why,
        rows=[message_view(message) for message in added[-ROWS_SHOWN_MAX:]],
    )
