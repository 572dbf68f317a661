"""The rows of the page while the lane moves under them, and at the edges of a page of rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.test_keeper import GatedRunner, ended, gated, keeper, say
from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.testing.until import until

__all__ = ["gated", "keeper"]


async def test_a_turn_that_starts_while_the_rows_are_read_is_among_them(
    keeper: Keeper, gated: GatedRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History is read just before the second turn starts, and the answer held until it has started."""
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    first = await say(keeper, c, "first")
    await say(keeper, c, "second")
    await until(lambda: "first" in gated.ran, "the first turn to run")
    read = keeper.store.messages

    async def and_then_the_second_starts(*args: Any, **more: Any) -> Any:
        found = await read(*args, **more)
        gated.gate("first").set()
        await ended(keeper, first.turn_id)
        await until(lambda: "second" in gated.ran, "the second turn to run")
        return found

    monkeypatch.setattr(keeper.store, "messages", and_then_the_second_starts)
    rows = (await keeper.timeline(OPERATOR, c)).rows
    said = [row.text for row in rows if row.kind in ("user", "queued")]
    assert said == ["first", "second"]
    gated.gate("second").set()


@pytest.mark.parametrize("rows", [199, 200, 201])
async def test_the_newest_answer_stands_last_at_the_edge_of_a_page(
    keeper: Keeper, gated: GatedRunner, rows: int
) -> None:
    """At 199, 200 and 201 rows: the newest durable answer is the last row, and no older row is out of reach."""
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    said = []
    if rows % 2:
        stopped = await say(keeper, c, "stopped")
        await keeper.cancel(OPERATOR, stopped.turn_id)
        await ended(keeper, stopped.turn_id)
        said.append("stopped")
    for number in range(rows // 2):
        gated.gate(f"n{number}").set()
        await ended(keeper, (await say(keeper, c, f"n{number}")).turn_id)
        said.append(f"n{number}")
    limit = keeper.settings.live_tail_rows
    page = await keeper.timeline(OPERATOR, c, limit=limit)
    assert page.rows[-1].text == f"ok n{rows // 2 - 1}"
    assert page.rows[0].kind == "user"
    found = list(page.rows)
    while page.next is not None:
        page = await keeper.timeline(OPERATOR, c, before=page.next, limit=limit)
        found = [*page.rows, *found]
    assert len(found) == rows
    assert [row.text for row in found if row.kind == "user"] == said
