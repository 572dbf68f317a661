"""History and the CLI's own record: read while it grows, merged whole when something may have been missed, never twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.retained.stage import OWNER, Stage
from turnkeeper.errors import NotPossible, StoreBusy
from turnkeeper.retained.runner import RetainedRunner
from turnkeeper.retained.session import Session
from turnkeeper.testing.scripted_cli.quirks import Quirks
from turnkeeper.transcript.tail import at_end

pytestmark = pytest.mark.tmux

CLIS = ("pi", "codex", "claude-code")


@pytest.fixture(params=CLIS)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = await Stage(tmp_path, request.param, Quirks(turn_s=0.1)).start()
    yield stage
    await stage.end()


async def type_into(stage: Stage, text: str) -> None:
    """What a person does at the terminal."""
    pane = (await stage.pane()).identity.pane_id
    await stage.tmux("send-keys", "-l", "-t", pane, text)
    await stage.tmux("send-keys", "-t", pane, "Enter")


async def messages(stage: Stage) -> list[Any]:
    rows, _ = await stage.keeper.messages(OWNER, stage.conversation_id, limit=200)
    return list(rows)


async def test_what_was_journaled_while_it_ran_is_all_that_a_merge_finds(stage: Stage) -> None:
    texts = ["[[think:hm]] [[say:first]] [[tool:ls|0.1]] yes", "yes", "yes", "one\n\ntwo\nthree\nfour"]
    for text in texts:
        await stage.ended(await stage.post(text))
    before = await messages(stage)
    for _ in range(2):
        merged = await stage.keeper.reconcile(OWNER, stage.conversation_id)
        assert (merged.added, merged.stored, merged.unreadable, merged.missing) == (0, True, {}, [])
        assert merged.matched >= 2 * len(texts)
    assert await messages(stage) == before


async def test_what_a_person_types_at_the_terminal_appears_once_and_marked(stage: Stage) -> None:
    await stage.ready()
    await type_into(stage, "typed by hand")
    await stage.until(lambda: _said(stage, "ok typed by hand"), why="it did not come to history")
    merged = await stage.keeper.reconcile(OWNER, stage.conversation_id)
    assert merged.added == 0
    rows = [row for row in await messages(stage) if "typed by hand" in str(row.parts)]
    assert [row.role for row in rows] == ["user", "assistant"]
    assert [(row.turn_id, row.provenance) for row in rows] == [(None, "native")] * 2
    assert (await stage.turn(await stage.post("and mine"))).state in ("queued", "running")


async def test_what_was_typed_while_no_server_ran_is_there_after_the_start_and_nothing_is_launched(
    stage: Stage,
) -> None:
    await stage.ready()
    await stage.pane()
    await stage.stop()
    await type_into(stage, "typed in the dark")
    await stage.until(lambda: _written(stage, b"ok typed in the dark"), why="the CLI did not answer")
    await stage.start()
    await stage.until(lambda: _said(stage, "ok typed in the dark"), why="it was not restored")
    assert (await stage.history())[-2:] == ["u:typed in the dark", "a:ok typed in the dark"]
    assert len(stage.launches()) == 1
    await stage.ended(await stage.post("next"))
    assert (await stage.history()).count("u:typed in the dark") == 1


async def test_rows_that_a_merge_added_are_not_added_by_the_watch(stage: Stage) -> None:
    """The merge comes first: the watch stands still while the CLI is typed into, and misses it; then it reads all again."""
    await stage.ready()
    session = await stage.runner.session(stage.conversation_id)
    await session.lock.acquire()
    await type_into(stage, "seen by the merge")
    await stage.until(lambda: _written(stage, b"ok seen by the merge"), why="the CLI did not answer")
    assert session.tape.path is not None
    session.tape.cursor = at_end(session.tape.path)
    session.lock.release()
    await stage.keeper.reconcile(OWNER, stage.conversation_id)
    assert (await stage.history()).count("u:seen by the merge") == 1
    session.tape.cursor, session.tape._seen = None, None
    await stage.until(lambda: session.tape.cursor is not None, why="the watch did not read again")
    await stage.ended(await stage.post("next"))
    assert (await stage.history()).count("u:seen by the merge") == 1
    assert (await stage.history()).count("a:ok seen by the merge") == 1


async def test_while_a_turn_runs_a_merge_is_refused_at_once(stage: Stage) -> None:
    turn_id = await stage.post("[[seconds:2]] slow")
    await stage.confirmed(turn_id)
    with pytest.raises(NotPossible):
        await stage.keeper.reconcile(OWNER, stage.conversation_id)
    assert (await stage.turn(turn_id)).state == "running"


async def test_a_store_that_is_busy_hides_nothing_for_long(stage: Stage) -> None:
    await stage.ready()
    desk = stage.runner.desk
    assert desk is not None
    append, refused = desk.append, 0

    async def busy(conversation_id: str, *drafts: Any) -> object:
        nonlocal refused
        refused += 1
        if refused <= 2:
            raise StoreBusy
        return await append(conversation_id, *drafts)

    desk.append = busy  # type: ignore[method-assign]
    await type_into(stage, "typed by hand")
    await stage.until(lambda: refused >= 2, why="nothing was to be stored")
    await stage.until(lambda: _said(stage, "ok typed by hand"), why="it was lost")
    assert (await stage.history()).count("u:typed by hand") == 1
    await stage.until(lambda: _untroubled(stage), why="the trouble is over and still told")
    assert (await stage.history()).count("u:typed by hand") == 1


async def _untroubled(stage: Stage) -> bool:
    return (await stage.runner.state(stage.conversation_id))["trouble"] is None


async def test_a_merge_stores_what_the_watch_could_not_and_nothing_comes_twice(stage: Stage) -> None:
    await stage.ready()
    desk = stage.runner.desk
    assert desk is not None
    append, refused, busy = desk.append, 0, True

    async def sometimes(conversation_id: str, *drafts: Any) -> object:
        nonlocal refused
        if busy:
            refused += 1
            raise StoreBusy
        return await append(conversation_id, *drafts)

    desk.append = sometimes  # type: ignore[method-assign]
    await type_into(stage, "typed by hand")
    await stage.until(lambda: _written(stage, b"ok typed by hand"), why="the CLI did not answer")
    await stage.until(lambda: refused >= 1, why="nothing was to be stored")
    await stage.keeper.reconcile(OWNER, stage.conversation_id)
    assert (await stage.history())[-2:] == ["u:typed by hand", "a:ok typed by hand"]
    busy = False
    await stage.until(lambda: _untroubled(stage), why="the trouble is over and still told")
    assert (await stage.history()).count("u:typed by hand") == 1
    assert (await stage.history()).count("a:ok typed by hand") == 1


async def test_after_every_turn_a_short_record_is_merged_whole(stage: Stage) -> None:
    """The watch is made to miss what a person typed: the merge behind the next turn finds it, in its place."""
    await stage.ready()
    session = await stage.runner.session(stage.conversation_id)
    await session.lock.acquire()
    await type_into(stage, "missed by all")
    await stage.until(lambda: _written(stage, b"ok missed by all"), why="the CLI did not answer")
    assert session.tape.path is not None
    session.tape.cursor = at_end(session.tape.path)
    session.lock.release()
    assert (await stage.history()).count("u:missed by all") == 0
    await stage.ended(await stage.post("next"))
    await stage.until(lambda: _said(stage, "ok missed by all"), why="no merge found it")
    assert (await stage.history())[-4:] == ["u:missed by all", "a:ok missed by all", "u:next", "a:ok next"]
    await stage.until(lambda: _is_settled(session), why="it is merged again and again")
    assert (await stage.history()).count("u:missed by all") == 1


async def _is_settled(session: Session) -> bool:
    return not session.unsure


async def test_after_a_failure_the_whole_record_is_merged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    desk = stage.runner.desk
    assert desk is not None
    stage.runner.config = msgspec.structs.replace(stage.runner.config, merge_bytes_max=0)
    merge = desk.reconcile

    async def reconcile(conversation_id: str, *rest: Any) -> object:
        asked.append(conversation_id)
        return await merge(conversation_id, *rest)

    monkeypatch.setattr(desk, "reconcile", reconcile)
    await stage.ready()
    assert asked == [], "a record that is longer than the bound is not read again for a turn that went well"
    turn_id = await stage.post("[[say:some words]] [[crash:3]]")
    assert (await stage.ended(turn_id)).state == "failed"
    await stage.until(lambda: asked, why="nobody merged")
    assert isinstance(stage.runner, RetainedRunner)
    words = [
        row for row in await messages(stage) if "some words" in str(row.parts) and row.role == "assistant"
    ]
    assert len(words) == 1


async def _said(stage: Stage, text: str) -> bool:
    return any(line == f"a:{text}" for line in await stage.history())


def _written(stage: Stage, data: bytes) -> bool:
    return any(data in path.read_bytes() for path in stage.home.rglob("*.jsonl"))
