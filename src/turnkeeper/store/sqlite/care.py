"""Looking after a store: a copy while it runs, a check, and the rebuild of the projections."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import apsw

from turnkeeper.errors import BadInput, StoreFull
from turnkeeper.store.sqlite import columns
from turnkeeper.store.sqlite.faults import translated
from turnkeeper.store.sqlite.opening import connect, new_epoch
from turnkeeper.store.sqlite.sql import QUERIES
from turnkeeper.store.sqlite.stored import StoredRows
from turnkeeper.store.sqlite.tables import write_rows
from turnkeeper.store.unit import Unit, keep_what_no_event_tells, project_all

REBUILD_EVENTS: Final = 2_000
"""Events whose rows are derived and written together."""

PROJECTIONS: Final = {
    "conversation": ("all_conversations", columns.conversation_out),
    "turn": ("all_turns", columns.turn_row_out),
    "submission": ("all_submissions", columns.submission_row_out),
    "message": ("all_messages", columns.message_row_out),
    "tool_call": ("all_calls", columns.call_row_out),
    "attachment_link": ("all_links", lambda row: tuple(map(columns.text_out, row))),
}
"""The tables that can be thrown away: the query that reads each in a stable order, and its rows."""

WRONG: Final = {
    "check_seq": "The journal of conversation {} has gaps.",
    "check_conversation": "Conversation {} has no row, or no events.",
    "check_message": "Message {} does not stand in the event that it names.",
    "check_turn": "Turn {} has no submission, or does not stand in the event that it names.",
    "check_call": "Tool call {} does not stand in the event that it names.",
}
"""Queries that find what must not be, and the sentence for each row found."""


def read_tables(cursor: apsw.Cursor) -> dict[str, list[Any]]:
    """Every projection table."""
    return {
        table: [out(row) for row in cursor.execute(QUERIES[query]).fetchall()]
        for table, (query, out) in PROJECTIONS.items()
    }


def what_is_wrong(cursor: apsw.Cursor) -> tuple[str, ...]:
    """What is wrong with the file or the projections, in sentences."""
    try:
        found = [f"SQLite: {row[0]}" for row in cursor.execute("PRAGMA integrity_check") if row[0] != "ok"]
        for query, sentence in WRONG.items():
            found += [sentence.format(row[0]) for row in cursor.execute(QUERIES[query])]
    except apsw.CorruptError as error:
        return (f"SQLite: {error}",)
    return tuple(found)


def rebuild_tables(cursor: apsw.Cursor, stored: StoredRows) -> None:
    """Derive the projections again, inside a transaction."""
    old = read_tables(cursor)
    for table in PROJECTIONS:
        cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of the list above
    stored.forget()
    position = 0
    while rows := cursor.execute(QUERIES["all_events"], (position, REBUILD_EVENTS)).fetchall():
        unit = Unit(stored)
        project_all([columns.event_out(row) for row in rows], unit)
        write_rows(cursor, unit)
        stored.keep(unit)
        position = unit.last_position
    unit = Unit(stored)
    keep_what_no_event_tells(old["conversation"], old["turn"], unit)
    write_rows(cursor, unit)
    stored.keep(unit)


def write_copy(database: Path, target: Path) -> None:
    """Copy the running store to the new file `target`, whole or not at all, with an epoch of its own.

    The copy reads one moment of the store; writers go on meanwhile.
    """
    if target.exists():
        raise BadInput(f"The file {target} exists already; name a new one for the backup.")
    partial = target.with_name(target.name + ".partial")
    copy: apsw.Connection | None = None
    try:
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        source = connect(database, 5.0, reading=True)
        try:
            copy = connect(partial, 5.0, reading=False)
            with copy.backup("main", source, "main") as backup:
                backup.step(-1)
        finally:
            source.close()
        copy.execute("PRAGMA journal_mode = delete")
        with copy:
            copy.execute(QUERIES["put_value"], ("epoch", new_epoch()))
            copy.execute("DELETE FROM value WHERE name = 'epoch_file'")
        copy.close()
        partial.rename(target)
        folder = os.open(target.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except (apsw.Error, OSError) as error:
        problem = translated(error, str(target), copy)
        if copy is not None:
            copy.close()
        partial.unlink(missing_ok=True)
        if isinstance(problem, StoreFull):
            raise problem from error
        raise BadInput(f"The backup cannot be written to {target} ({error}).") from error
