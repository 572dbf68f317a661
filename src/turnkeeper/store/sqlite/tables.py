"""Writing the changed rows of a unit of work into the tables, with few statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from turnkeeper.conversation.turns import TurnState
from turnkeeper.store.rows import CallRow
from turnkeeper.store.sqlite import columns
from turnkeeper.store.sqlite.sql import QUERIES, ROWS_MAX, many
from turnkeeper.store.unit import Unit


def write_unit(cursor: apsw.Cursor, unit: Unit) -> None:
    """Store the events and changed rows of `unit`, inside a transaction. Raises apsw.ConstraintError."""
    _many(cursor, "insert_event", [columns.event_in(event) for event in unit.events])
    write_rows(cursor, unit)
    for loose in unit.loose:
        query, to_columns = columns.LOOSE_IN[type(loose)]
        cursor.execute(QUERIES[query], to_columns(loose))


def write_rows(cursor: apsw.Cursor, unit: Unit) -> None:
    """Store the changed projections. A turn that leaves the lane is stored before one that takes it."""
    _many(
        cursor, "upsert_conversation", [columns.conversation_in(row) for row in unit.conversations.values()]
    )
    _write_turns(cursor, unit)
    _many(cursor, "insert_submission", [columns.submission_in(row) for row in unit.submissions.values()])
    _many(cursor, "insert_message", [columns.message_in(row) for row in unit.messages.values()])
    _many(cursor, "insert_link", [tuple(map(columns.text_in, link)) for link in unit.links])
    for turn_id, position in unit.edits.items():
        cursor.execute(QUERIES["edit_submission"], (position, columns.text_in(turn_id)))
    for mark in unit.marks:
        cursor.execute(QUERIES["mark_message"], columns.mark_in(mark))
    for line in unit.ledger:
        if isinstance(line, CallRow):
            cursor.execute(QUERIES["intend_call"], columns.call_in(line))
        else:
            cursor.execute(QUERIES["decide_call"], columns.outcome_in(line))


def _write_turns(cursor: apsw.Cursor, unit: Unit) -> None:
    new, leaving, running = [], [], []
    for turn_id, row in unit.turns.items():
        if turn_id in unit.submissions:
            new.append(columns.turn_in(row))
        elif row.turn.state is TurnState.RUNNING:
            running.append(columns.turn_in(row))
        else:
            leaving.append(columns.turn_in(row))
    _many(cursor, "update_turn", leaving)
    _many(cursor, "insert_turn", new)
    _many(cursor, "update_turn", running)


def _many(cursor: apsw.Cursor, query: str, rows: Sequence[columns.Columns]) -> None:
    if not rows:
        return
    start, left, size = 0, len(rows), ROWS_MAX
    while left:
        while size > left:
            size //= 2
        chunk = rows[start : start + size]
        values: Iterable[Any] = chunk[0] if size == 1 else [value for row in chunk for value in row]
        cursor.execute(many(query, size), tuple(values))
        start += size
        left -= size
