"""No statement of daily use reads a whole table: the cost of one does not depend on how much is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from turnkeeper.store.sqlite.sql import QUERIES, many, migrations

WHOLE = {
    "all_": "rebuild and comparison read everything",
    "check_": "a check reads everything",
    "turns_in": "ended turns of the whole store, for a person who asks for them",
    "open_lanes": "the index of open turns",
    "turns_open": "the index of open turns",
    "outbox_due": "the index of what is due",
    "last_position": "the end of the journal",
}
"""Statements that may read a whole table or index, and why."""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(tmp_path / "plans.db"))
    for _number, script in migrations():
        connection.execute(script)
    yield connection
    connection.close()


def plan(connection: apsw.Connection, sql: str) -> list[str]:
    values = [None] * sql.count("?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.mark.parametrize("name", [name for name in QUERIES if not name.startswith(tuple(WHOLE))])
def test_a_statement_finds_its_rows_by_an_index(connection: apsw.Connection, name: str) -> None:
    steps = plan(connection, QUERIES[name])
    scans = [
        step
        for step in steps
        if step.startswith("SCAN") and not step.startswith(("SCAN CONSTANT", "SCAN json_each"))
    ]
    assert scans == [], steps


@pytest.mark.parametrize(
    ("name", "index"),
    {
        "open_lanes": "turn_open",
        "turns_open": "turn_open",
        "lane_turns": "turn_open",
        "outbox_due": "outbox_due",
        "messages_placed": "message_placed",
        "landmarks": "event_landmark",
    }.items(),
)
def test_a_statement_about_few_rows_reads_only_the_index_of_them(
    connection: apsw.Connection, name: str, index: str
) -> None:
    """What is open, due or placed is little, however much has ended."""
    steps = plan(connection, QUERIES[name])
    assert any(index in step for step in steps), steps


@pytest.mark.parametrize("name", ["messages_before", "messages_after", "events", "turns", "lane_turns"])
def test_a_page_comes_in_the_order_of_its_index(connection: apsw.Connection, name: str) -> None:
    """Sorting would read all rows before the first is given."""
    assert not [
        step for step in plan(connection, QUERIES[name]) if "ORDER BY" in step and name != "lane_turns"
    ]


def test_a_statement_for_many_rows_repeats_its_row() -> None:
    assert many("put_value", 1) == QUERIES["put_value"]
    assert many("put_value", 3).count("(?, ?)") == 3
    assert many("put_value", 3).endswith("excluded.value")
