"""Writing the changed rows of a unit of work into the tables, with few statements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import apsw

from turnkeeper.conversation.turns import TurnState
from turnkeeper.store.rows import CallRow
from turnkeeper.store.sqlite import columns
from turnkeeper.store.sqlite.sql import QUERIES, ROWS_MAX, many
from turnkeeper.store.unit import Unit


def write_unit(cursor: apsw.Cursor, unit: Unit) -> None:
    """Store the events and changed rows of `unit`, inside a transaction. Raises apsw.ConstraintError."""
    if unit.events:
        _many(cursor, "insert_event", list(map(columns.event_in, unit.events)))
    write_rows(cursor, unit)
    for loose in unit.loose:
        query, to_columns = columns.LOOSE_IN[type(loose)]
        cursor.execute(QUERIES[query], to_columns(loose))


def write_rows(cursor: apsw.Cursor, unit: Unit) -> None:
    """Store the changed projections. A turn that leaves the lane is stored before one that takes it."""
    if unit.changed:
        changed = [columns.conversation_in(unit.conversations[name]) for name in unit.changed]
        _many(cursor, "upsert_conversation", changed)
    if unit.turns:
        _write_turns(cursor, unit)
    if unit.submissions:
        _many(cursor, "insert_submission", list(map(columns.submission_in, unit.submissions.values())))
    if unit.messages:
        _many(cursor, "insert_message", list(map(columns.message_in, unit.messages.values())))
    if unit.links:
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
    """Run `query` for `rows`, as few times as the powers of two allow."""
    start, left, size = 0, len(rows), ROWS_MAX
    while left:
        while size > left:
            size //= 2
        if size == 1:
            cursor.execute(QUERIES[query], rows[start])
        else:
            cursor.execute(many(query, size), tuple(chain.from_iterable(rows[start : start + size])))
        start += size
        left -= size
