"""Full disks, held locks, refused neighbours: nothing is lost, nothing is doubled, and the store goes on."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from turnkeeper import failpoint
from turnkeeper.conversation.events import Draft, TurnSettled
from turnkeeper.errors import BadInput, Conflict, NotFound, StoreBusy
from turnkeeper.port.store import Batch, KeyTaken
from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.store.sqlite import writer as writer_module
from turnkeeper.testing.conformance.script import Script, said, submitted


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    store = await SQLiteStore.open(tmp_path / "data", busy_timeout_seconds=0.05)
    yield store
    await store.close()


@asynccontextmanager
async def held(store: SQLiteStore) -> AsyncIterator[None]:
    """Keep the writer busy meanwhile, so that what is committed inside lands in one group."""
    entered, free = threading.Event(), threading.Event()

    def wait(_cursor: apsw.Cursor, _stored: Any) -> None:
        entered.set()
        free.wait(10)

    waiting = asyncio.ensure_future(store._writer.run(wait))
    await asyncio.to_thread(entered.wait, 10)
    yield
    await asyncio.sleep(0)
    free.set()
    await waiting


async def together(store: SQLiteStore, *commits: Any) -> list[Any]:
    """Run `commits` in one group; what each returned or raised."""
    async with held(store):
        tasks = [asyncio.ensure_future(commit) for commit in commits]
        await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


def kinds(outcomes: list[Any]) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]


async def set_pages(store: SQLiteStore, spare: int | None) -> None:
    """Let the database grow by `spare` pages and no more (None: freely)."""

    def limit(cursor: apsw.Cursor, _stored: Any) -> None:
        pages = cursor.execute("PRAGMA page_count").fetchall()[0][0]
        cursor.execute(f"PRAGMA max_page_count = {4_000_000_000 if spare is None else pages + spare}")

    await store._writer.run(limit)


async def test_a_group_is_one_transaction(store: SQLiteStore) -> None:
    scripts = [Script(store, f"c{number}") for number in range(100)]
    commits = 0

    def count() -> None:
        nonlocal commits
        commits += 1

    async with held(store):
        failpoint.arm("store.before_commit", lambda: None)
        failpoint._armed["store.before_commit"] = count
        tasks = [asyncio.ensure_future(script.create()) for script in scripts]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    failpoint.disarm()
    assert commits == 2, "one of the job that held the writer, one of all others"


async def test_a_refused_batch_does_not_spoil_its_group(store: SQLiteStore) -> None:
    script = Script(store)
    await script.create()
    await script.submit("a")
    await script.say("x", "x")
    outcomes = await together(
        store,
        script.say("1", "x"),
        script.submit("b", key="k-a"),
        script.say("2", "x"),
        script.say("x", "the id is taken"),
        script.say("3", "x"),
        script.commit(TurnSettled(), turn="t-nobody"),
        script.submit("c", key="same"),
        script.submit("d", key="same"),
        script.say("4", "x"),
    )
    assert kinds(outcomes) == [
        "tuple",
        "KeyTaken",
        "tuple",
        "Conflict",
        "tuple",
        "NotFound",
        "tuple",
        "KeyTaken",
        "tuple",
    ]
    assert outcomes[1].submission.submission_id == "s-a"
    assert outcomes[7].submission.submission_id == "s-c"
    stored = [outcome[0].seq for outcome in outcomes if isinstance(outcome, tuple)]
    assert stored == [4, 5, 6, 7, 8]
    assert await store.check() == ()
    await store.rebuild()


async def test_a_batch_that_cannot_be_applied_fails_alone(store: SQLiteStore) -> None:
    script = Script(store)
    await script.create()
    strange = Batch(conversation_id="c1", drafts=(Draft(said("s", "x"), 7),), at=1.0)  # type: ignore[arg-type]
    outcomes = await together(store, script.say("a", "x"), store.commit(strange), script.say("b", "x"))
    assert kinds(outcomes)[::2] == ["tuple", "tuple"]
    assert isinstance(outcomes[1], Exception)
    assert len(await store.messages("c1")) == 2


async def test_a_full_disk_refuses_what_does_not_fit_and_nothing_else(store: SQLiteStore) -> None:
    script = Script(store)
    await script.create()
    await set_pages(store, 60)
    outcomes = await together(
        store,
        script.say("small", "x"),
        script.say("large", "x" * 1_000_000),
        script.say("small too", "x"),
    )
    assert kinds(outcomes) == ["tuple", "StoreFull", "tuple"]
    assert outcomes[1].retryable
    assert outcomes[1].status == 507
    outcomes = await asyncio.gather(
        *(script.say(str(number), "y" * 1000) for number in range(300)), return_exceptions=True
    )
    assert set(kinds(outcomes)) == {"tuple", "StoreFull"}
    kept = await store.events("c1")
    assert [event.seq for event in kept] == list(range(1, len(kept) + 1))
    assert await store.check() == ()
    await set_pages(store, None)
    (event,) = await script.say("large", "x" * 1_000_000)
    assert event.seq == len(kept) + 1
    assert await store.check() == ()


RLIMIT_CODE = """
import asyncio, resource, sys
from turnkeeper.errors import StoreFull
from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.testing.conformance.script import Script

async def main():
    store = await SQLiteStore.open(sys.argv[1])
    script = Script(store)
    await script.create()
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    stored, refused = 0, None
    while refused is None:
        try:
            await script.say(f"n{stored}", "x" * 5000)
            stored += 1
        except StoreFull as error:
            refused = error
    assert stored > 20, stored
    for attempt in range(3):
        try:
            await script.say("again", "x" * 5000)
            raise SystemExit("the disk is full and yet it was stored")
        except StoreFull:
            pass
    assert len(await store.messages_after("c1")) == stored
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await script.say("room", "x" * 5000)
    assert len(await store.messages_after("c1")) == stored + 1
    assert await store.check() == (), await store.check()
    await store.close()
    print(stored + 1)

asyncio.run(main())
"""


async def run_child(code: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )
    out, err = await child.communicate()
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


async def test_a_disk_without_room_refuses_and_the_store_goes_on_when_there_is_room(tmp_path: Path) -> None:
    code, out, err = await run_child(RLIMIT_CODE, str(tmp_path / "data"))
    assert code == 0, err
    store = await SQLiteStore.open(tmp_path / "data")
    assert len(await store.messages_after("c1")) == int(out)
    await store.close()


async def test_a_lock_held_by_another_program_is_a_busy_store(store: SQLiteStore) -> None:
    script = Script(store)
    await script.create()
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")
    outcomes = await asyncio.gather(
        *(script.say(str(number), "x") for number in range(20)), return_exceptions=True
    )
    assert set(kinds(outcomes)) == {"StoreBusy"}
    assert all(outcome.retryable and outcome.retry_after_seconds for outcome in outcomes)
    assert len(await store.events("c1")) == 1, "reads go on"
    other.execute("ROLLBACK")
    other.close()
    (event,) = await script.say("a", "x")
    assert event.seq == 2


async def test_a_lock_that_is_let_go_in_time_is_only_a_wait(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "data", busy_timeout_seconds=30)
    script = Script(store)
    await script.create()
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(script.say("a", "x"))
    await asyncio.to_thread(other.execute, "SELECT 1")
    assert not waiting.done()
    other.execute("ROLLBACK")
    other.close()
    assert (await waiting)[0].seq == 2
    await store.close()


async def test_a_commit_that_fails_before_its_end_leaves_nothing(store: SQLiteStore) -> None:
    script = Script(store)
    await script.create()

    def fail() -> None:
        raise failpoint.Failed

    failpoint.arm("store.before_commit", fail)
    try:
        with pytest.raises(failpoint.Failed):
            await script.say("a", "x")
    finally:
        failpoint.disarm()
    assert len(await store.events("c1")) == 1
    (event,) = await script.say("a", "x")
    assert event.seq == 2
    assert await store.check() == ()


async def test_what_was_stored_by_another_process_is_seen(store: SQLiteStore) -> None:
    """The writer keeps rows in memory; a foreign commit makes it read them again."""
    script = Script(store)
    await script.create()
    await script.submit("a")
    beside = await SQLiteStore.open(store.path.parent, exclusive=False)
    other = Script(beside)
    await other.start("a", fence=5)
    await other.commit(submitted("b"), version=0)
    await beside.close()
    with pytest.raises(KeyTaken):
        await script.submit("b")
    stored = await script.say("x", "x")
    assert stored[0].seq == 5
    lane = await store.lane("c1")
    assert lane is not None
    assert lane.conversation.lane_version == 1
    assert lane.turns[0].fence == 5
    assert await store.check() == ()


CRASH_CODE = """
import asyncio, sys
from turnkeeper import failpoint
from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.testing.conformance.script import Script

async def main():
    store = await SQLiteStore.open(sys.argv[1])
    script = Script(store)
    await script.create()
    failpoint.arm_from_environment()
    for number in range(100):
        await script.say(str(number), "x")
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["store.before_commit", "store.after_commit"])
async def test_a_kill_around_the_commit_loses_nothing_that_was_acknowledged(
    tmp_path: Path, name: str
) -> None:
    code, out, err = await run_child(
        CRASH_CODE, str(tmp_path / "data"), TURNKEEPER_FAILPOINT=f"{name}:8:kill"
    )
    assert code == -9, err
    acknowledged = len(out.splitlines())
    assert acknowledged == 7
    store = await SQLiteStore.open(tmp_path / "data")
    found = [message.message_id for message in await store.messages_after("c1")]
    assert found == [f"m-{number}" for number in range(acknowledged + (name == "store.after_commit"))]
    assert await store.check() == ()
    (event,) = await Script(store).say("next", "x")
    assert event.seq == len(found) + 2
    await store.close()


async def test_the_log_is_copied_into_the_database_and_does_not_grow(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "CHECKPOINT_PAGES", 50)
    script = Script(store)
    await script.create()
    wal = store.path.with_name(store.path.name + "-wal")
    sizes = []
    for number in range(200):
        await script.say(str(number), "x" * 2000)
        sizes.append(wal.stat().st_size)
    assert max(sizes) < 200 * 2072
    assert await store.check() == ()


async def test_a_closed_loop_does_not_stop_the_writer(tmp_path: Path) -> None:
    """A commit whose waiter is gone is stored, and others go on."""
    store = await SQLiteStore.open(tmp_path / "data")
    await Script(store).create()

    def elsewhere() -> None:
        async def leave() -> None:
            async with held(store):
                task = asyncio.ensure_future(Script(store).say("left", "x"))
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(leave())

    await asyncio.to_thread(elsewhere)
    await Script(store).say("here", "x")
    assert [message.message_id for message in await store.messages("c1")] == ["m-left", "m-here"]
    await store.close()


async def test_a_backup_that_cannot_be_written_says_so_and_leaves_nothing(
    store: SQLiteStore, tmp_path: Path
) -> None:
    await Script(store).create()
    with pytest.raises(BadInput) as raised:
        await store.backup(str(tmp_path / "nowhere" / "copy.db"))
    assert "nowhere" in raised.value.sentence
    target = tmp_path / "copy.db"
    (tmp_path / "copy.db.partial").write_text("left by a crash")
    await store.backup(str(target))
    assert target.exists()
    assert not (tmp_path / "copy.db.partial").exists()


async def test_errors_of_use_are_our_own(store: SQLiteStore) -> None:
    """What other rooms catch is in the error tree."""
    script = Script(store)
    with pytest.raises(NotFound):
        await script.say("a", "x")
    await script.create()
    with pytest.raises(Conflict):
        await script.create()
    assert StoreBusy().status == 503
