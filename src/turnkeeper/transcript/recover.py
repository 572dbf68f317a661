"""From a transcript to our history: which messages its rows are, and the events that add those we lack.

A row of the transcript is one message here as it is when it is journaled live: its thinking, its words, its
tool calls. Its identity is the CLI's own id; a row without one is named by its session, its turn and its
number there, so that it is found again. Tool results are not taken over: they are the CLI's.

Pure: files were read before, ids and the time come in, and the answer is events to journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from turnkeeper.conversation import ids
from turnkeeper.conversation.events import Body, MessageAppended, Noticed
from turnkeeper.conversation.messages import (
    ASSISTANT,
    COMPLETE,
    ERRORED,
    INTERRUPTED,
    LEAKED,
    SUPERSEDED,
    USER,
    WORKING,
    Message,
    Origin,
)
from turnkeeper.conversation.parts import Json, Opaque, Part, Text, Thinking, ToolCall
from turnkeeper.history.reconcile import Ours, Reconciled, Theirs, bodies, reconcile
from turnkeeper.transcript import record as records
from turnkeeper.transcript.record import (
    FINAL,
    HUMAN,
    LIVE,
    NOTICE,
    PROGRESS,
    RUNNING,
    THINKING,
    TOOL,
    Reading,
    Record,
)

IMAGE: Final = "image"
"""Kind of the part that stands for a picture whose bytes are in the transcript only."""
ASIDE: Final = "aside"
"""Role of our messages that no words of theirs can be."""
_SORT: Final = {HUMAN: "said", FINAL: "text", PROGRESS: "text", THINKING: "thinking", TOOL: "tool"}
_STANDING: Final = {records.INTERRUPTED: INTERRUPTED, records.ERRORED: ERRORED}


class Row(msgspec.Struct):
    """What one row of a transcript says: records of one identity, in order."""

    format: str
    identity: str
    aliases: tuple[str, ...]
    turn: str | None
    records: list[Record]
    open: bool = False
    """Words of a turn that still runs, with no tool call behind them: they may be the answer or not."""


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What a merge came to. `bodies` are to be journaled, all in one commit; empty if nothing is new."""

    bodies: tuple[Body, ...]
    added: tuple[Message, ...]
    result: Reconciled
    identities: tuple[str, ...]
    """Every row's identity, with those that are also its: none of them needs to be journaled again."""
    newest_at: float | None
    """The newest time that the CLI claims: information, never an order."""


def recover(
    readings: Sequence[Reading],
    messages: Sequence[Message],
    *,
    make_id: Callable[[str], str],
    now: float,
    evidence: Mapping[str, str] | None = None,
) -> Recovered:
    """Merge the sessions of one conversation, oldest first, into `messages` (history, in its order).

    `evidence` maps the id of a transcript's row to the message that was delivered as it (G14); `now` stands in
    for a time that a row does not tell.
    """
    rows = rows_of(readings)
    found = [message_of(row, now=now) for row in rows]
    ours = [ours_of(message) for message in messages]
    theirs = [
        Theirs(row.identity, *_key(message), row.aliases) for row, message in zip(rows, found, strict=True)
    ]
    result = reconcile(ours, theirs, evidence=evidence)
    turns = _turns(result, rows, messages)

    def message_at(at: int) -> Message:
        turn_id = turns.get(rows[at].turn or "")
        return msgspec.structs.replace(found[at], message_id=make_id(ids.MESSAGE), turn_id=turn_id)

    made = bodies(result, ours, theirs, message_at, transcript=_named(readings))
    if made:
        made = (
            *made,
            *[noticed for reading in readings for noticed in _damage(reading)],
            *_zoneless([rows[at] for at in result.added]),
        )
    times = [at for reading in readings if (at := records.seconds(reading.session.newest_at)) is not None]
    return Recovered(
        bodies=made,
        added=tuple(body.message for body in made if isinstance(body, MessageAppended)),
        result=result,
        identities=tuple(dict.fromkeys(name for row in rows for name in (row.identity, *row.aliases))),
        newest_at=max(times, default=None),
    )


def rows_of(readings: Iterable[Reading]) -> list[Row]:
    """The live rows of sessions that follow each other; a row that a later session repeats counts once."""
    found: list[Row] = []
    seen: set[str] = set()
    for reading in readings:
        session = reading.session.native_id or "?"
        counts: dict[tuple[str | None, str], int] = {}
        here: dict[str, Row] = {}
        undecided = _undecided(reading)
        for number, record in enumerate(reading.records):
            if record.kind == NOTICE or record.state != LIVE:
                continue
            for piece in _pieces(record):
                sort = (record.turn, _SORT[record.kind])
                counts[sort] = counts.get(sort, 0) + 1
                ordinal = f"{session}/{record.turn}/{sort[1]}/{counts[sort]}"
                identity = piece.native_id or ordinal
                row = here.get(identity)
                if row is not None:
                    row.records.append(piece)
                    row.aliases = tuple(dict.fromkeys((*row.aliases, *piece.aliases)))
                elif identity not in seen:
                    place = (f"{record.turn}:{record.offset}",) if record.offset >= 0 else ()
                    aliases = (*record.aliases, *place)
                    row = Row(reading.format, identity, aliases, record.turn, [piece], number >= undecided)
                    here[identity] = row
                    found.append(row)
        seen.update(here)
    return found


def _undecided(reading: Reading) -> int:
    """The first record behind the newest tool call of a turn that still runs."""
    turn = reading.last_turn
    number = len(reading.records)
    if turn is None or turn.state != RUNNING:
        return number
    while (
        number and reading.records[number - 1].turn == turn.key and reading.records[number - 1].kind != TOOL
    ):
        number -= 1
    return number


def _pieces(record: Record) -> Iterable[Record]:
    if not record.pieces:
        return (record,)
    return [
        msgspec.structs.replace(record, native_id=native_id, text=text, pieces=())
        for native_id, text in record.pieces
    ]


def message_of(row: Row, *, now: float) -> Message:
    """The message that a row is, without an id of ours. `now` stands in for a time that it does not tell."""
    first = row.records[0]
    parts: list[Part] = []
    for number, record in enumerate(row.records):
        if record.kind == THINKING:
            parts.append(Thinking(record.text))
        elif record.kind == TOOL:
            # The CLI ran it by itself, and what it returned stays with the CLI.
            call = record.code or f"{row.identity}:{number}"
            parts.append(ToolCall(id=call, name=record.text, server_side=True))
        elif record.text:
            parts.append(Text(record.text))
        parts += [Opaque(IMAGE)] * record.images
    status = next((record.status for record in row.records if record.status is not None), None)
    kinds = {record.kind for record in row.records}
    working = PROGRESS in kinds and FINAL not in kinds and not row.open
    at = records.seconds(first.at)
    return Message(
        message_id="",
        role=USER if first.kind == HUMAN else ASSISTANT,
        parts=tuple(parts),
        created_at=at if at is not None else now,
        provenance=first.provenance,
        replay=status is None,
        standing=COMPLETE if status is None else _STANDING[status],
        stop_reason=WORKING if working else None,
        origin=None if first.kind == HUMAN else Origin(provider=row.format),
        native_id=row.identity,
    )


def ours_of(message: Message) -> Ours:
    """A message of history as a row of the merge."""
    role, text = _key(message)
    if message.standing in {LEAKED, SUPERSEDED}:
        role = ASIDE
    return Ours(message.message_id, role, text, () if message.native_id is None else (message.native_id,))


def _key(message: Message) -> tuple[str, str]:
    """(role, text) by which a message is compared where it has no identity: thinking only meets thinking."""
    if message.text.strip() or message.role not in {USER, ASSISTANT}:
        return message.role, message.text
    thoughts = [part.text for part in message.parts if type(part) is Thinking]
    if thoughts:
        return "thinking", "\n".join(thoughts)
    return "calls", "\n".join([part.name for part in message.parts if type(part) is ToolCall])


def _turns(result: Reconciled, rows: Sequence[Row], messages: Sequence[Message]) -> dict[str, str]:
    """Which turn of ours each turn of theirs is: that of the person's message that began it."""
    found: dict[str, str] = {}
    for pair in result.pairs:
        turn, turn_id = rows[pair.theirs].turn, messages[pair.ours].turn_id
        if turn is not None and turn_id is not None and turn not in found:
            found[turn] = turn_id
    return found


def _damage(reading: Reading) -> list[Body]:
    """What could not be read as it should be: said once, with the merge that met it."""
    counters = reading.counters
    facts: dict[str, Json] = {"transcript": _named([reading])}
    if counters.malformed:
        facts["malformed"] = counters.malformed
    if counters.glued:
        facts["glued"] = counters.glued
    if counters.cut_off:
        facts["cut_off"] = True
    if len(facts) == 1:
        return []
    return [
        Noticed(
            "transcript_damaged",
            "The agent's own record is damaged; what could be read of it is here.",
            facts,
        )
    ]


def _zoneless(added: Sequence[Row]) -> list[Body]:
    """A time without a zone is taken for UTC, and that is said (chatwoot#11010)."""
    count = sum(1 for row in added if records.zoneless(row.records[0].at))
    if not count:
        return []
    sentence = "The agent's own record tells times without a zone; they were taken for UTC."
    return [Noticed("times_without_zone", sentence, {"messages": count})]


def _named(readings: Sequence[Reading]) -> str:
    return " ".join(f"{reading.format}:{reading.session.native_id or '?'}" for reading in readings)
