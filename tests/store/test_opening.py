"""A store that cannot be opened says why in one clear error, and is left as it was."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from turnkeeper.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreInUse,
    StoreNewer,
    StoreUnsafeMount,
)
from turnkeeper.port.store import TokenRow
from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.store.sqlite.mount import kind_of
from turnkeeper.store.sqlite.opening import APPLICATION_ID
from turnkeeper.store.sqlite.sql import migrations
from turnkeeper.testing.conformance.script import Script


async def made(folder: Path) -> Path:
    store = await SQLiteStore.open(folder)
    script = Script(store)
    await script.create()
    await script.say("a", "x")
    await store.close()
    return store.path


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file but the lock, whose text is only for people."""
    return {
        file.name: file.read_bytes() for file in folder.iterdir() if file.suffix not in {".lock", ".db-shm"}
    }


async def refused(folder: Path, kind: type[StoreError], **how: Any) -> StoreError:
    with pytest.raises(kind) as raised:
        await SQLiteStore.open(folder, **how)
    assert type(raised.value) is kind
    return raised.value


async def test_a_new_store_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    store = await SQLiteStore.open(folder)
    await Script(store).create()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    await store.close()


async def test_a_data_folder_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    await made(folder)
    folder.chmod(0o755)
    await made(tmp_path / "other")
    await (await SQLiteStore.open(folder)).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_folder_of_other_things_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    (folder / "notes.txt").write_text("mine")
    await (await SQLiteStore.open(folder)).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


async def test_a_second_server_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "data")
    error = await refused(tmp_path / "data", StoreInUse)
    assert str(os.getpid()) in error.sentence
    await store.close()
    await (await SQLiteStore.open(tmp_path / "data")).close()


async def test_a_server_that_was_killed_leaves_no_lock(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from turnkeeper.store.sqlite import SQLiteStore
async def main():
    store = await SQLiteStore.open(sys.argv[1])
    print("open", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path / "data"), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"open\n"
    error = await refused(tmp_path / "data", StoreInUse)
    assert str(child.pid) in error.sentence
    child.kill()
    await child.wait()
    await (await SQLiteStore.open(tmp_path / "data")).close()


async def test_a_short_command_may_write_beside_a_running_server(tmp_path: Path) -> None:
    server = await SQLiteStore.open(tmp_path / "data")
    script = Script(server)
    await script.create()
    command = await SQLiteStore.open(tmp_path / "data", exclusive=False)
    token = TokenRow(token_id="k1", user_id="u1", sha256="aa", scopes=("read",))
    await command.put_token(token)
    assert command.epoch == server.epoch
    assert await server.token_by_hash("aa") == token
    await Script(command).say("a", "from the command")
    await command.close()
    (event,) = await script.say("b", "from the server")
    assert event.seq == 3
    assert await server.check() == ()
    await server.close()


async def test_a_command_may_make_the_store_before_the_first_server(tmp_path: Path) -> None:
    command = await SQLiteStore.open(tmp_path / "data", exclusive=False)
    server = await SQLiteStore.open(tmp_path / "data")
    assert server.epoch == command.epoch
    await command.close()
    await server.close()


async def test_programs_that_make_the_store_at_once_agree(tmp_path: Path) -> None:
    """One server and commands beside it, all at the first start."""
    for number in range(10):
        stores = await asyncio.gather(
            *(
                SQLiteStore.open(tmp_path / str(number), exclusive=first)
                for first in (True, False, False, False)
            )
        )
        assert len({store.epoch for store in stores}) == 1
        for store in stores:
            await store.close()


async def test_a_command_does_not_migrate_under_a_running_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await SQLiteStore.open(tmp_path / "data")
    steps = [*migrations(), (migrations()[-1][0] + 1, "CREATE TABLE later (x INTEGER)")]
    monkeypatch.setattr("turnkeeper.store.sqlite.opening.migrations", lambda: steps)
    await refused(tmp_path / "data", StoreInUse, exclusive=False)
    await server.close()
    await (await SQLiteStore.open(tmp_path / "data", exclusive=False)).close()


async def test_an_older_store_is_migrated_and_keeps_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(tmp_path / "data")
    number = migrations()[-1][0] + 1
    steps = [*migrations(), (number, "CREATE TABLE later (x INTEGER); INSERT INTO later VALUES (1)")]
    monkeypatch.setattr("turnkeeper.store.sqlite.opening.migrations", lambda: steps)
    store = await SQLiteStore.open(tmp_path / "data")
    assert len(await store.events("c1")) == 2
    await store.close()
    with apsw.Connection(str(tmp_path / "data" / "turnkeeper.db")) as found:
        assert found.pragma("user_version") == number
        assert found.execute("SELECT x FROM later").fetchall() == [(1,)]
    found.close()


async def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await made(tmp_path / "data")
    steps = [*migrations(), (99, "CREATE TABLE later (x INTEGER); INSERT INTO nowhere VALUES (1)")]
    with monkeypatch.context() as patch:
        patch.setattr("turnkeeper.store.sqlite.opening.migrations", lambda: steps)
        await refused(tmp_path / "data", StoreError)
    found = apsw.Connection(str(path))
    assert found.pragma("user_version") == migrations()[-1][0]
    assert found.execute("SELECT 1 FROM sqlite_schema WHERE name = 'later'").fetchall() == []
    found.close()
    await (await SQLiteStore.open(tmp_path / "data")).close()


async def test_a_store_of_a_newer_version_is_refused_unchanged(tmp_path: Path) -> None:
    path = await made(tmp_path / "data")
    newer = apsw.Connection(str(path))
    newer.pragma("user_version", 4711)
    newer.close()
    before = snapshot(path.parent)
    error = await refused(path.parent, StoreNewer)
    assert "4711" in error.sentence
    assert snapshot(path.parent) == before


@pytest.mark.parametrize("content", [b"just some notes\n" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_a_file_that_is_no_database_is_refused_unchanged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "turnkeeper.db").write_bytes(content)
    before = snapshot(tmp_path)
    error = await refused(tmp_path, StoreDamaged)
    assert str(tmp_path) in error.sentence
    assert snapshot(tmp_path) == before


async def test_another_programs_database_is_refused_unchanged(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "turnkeeper.db"))
    other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.close()
    before = snapshot(tmp_path)
    error = await refused(tmp_path, StoreDamaged)
    assert "another program" in error.sentence
    assert snapshot(tmp_path) == before


async def test_a_cut_off_database_is_refused_or_found_by_check(tmp_path: Path) -> None:
    path = await made(tmp_path / "data")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    await refused(path.parent, StoreDamaged)


async def test_check_finds_a_damaged_page(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "data")
    script = Script(store)
    await script.create()
    for number in range(50):
        await script.say(str(number), "x" * 1500)
    assert await store.check() == ()
    await store.close()
    with store.path.open("r+b") as file:
        file.seek(store.path.stat().st_size - 3 * 2048)
        file.write(b"\xa5" * 2048)
    store = await SQLiteStore.open(tmp_path / "data")
    wrong = await store.check()
    assert wrong
    assert wrong[0].startswith("SQLite: ")
    await store.close()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE event SET seq = 9 WHERE seq = 2", "conversation c1 has gaps"),
        ("DELETE FROM conversation", "Conversation c1 has no row"),
        ("UPDATE message SET position = 1", "Message m-a does not stand"),
    ],
)
async def test_check_finds_rows_that_contradict_the_journal(
    tmp_path: Path, statement: str, said: str
) -> None:
    path = await made(tmp_path / "data")
    hand = apsw.Connection(str(path))
    hand.execute(statement)
    hand.close()
    store = await SQLiteStore.open(path.parent)
    assert any(said in sentence for sentence in await store.check())
    await store.close()


@pytest.mark.parametrize("kind", ["nfs4", "virtiofs", "9p", "cifs", "fuse.sshfs"])
async def test_a_mount_that_damages_the_log_is_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNKEEPER_FS_KIND", kind)
    error = await refused(tmp_path / "data", StoreUnsafeMount)
    assert kind in error.sentence
    assert str(tmp_path / "data") in error.sentence
    assert not (tmp_path / "data" / "turnkeeper.db").exists()
    monkeypatch.setenv("TURNKEEPER_FS_KIND", "ext4")
    await (await SQLiteStore.open(tmp_path / "data")).close()
    await refused(tmp_path / "data", StoreUnsafeMount, probe=lambda _: kind)


def test_the_mount_of_a_folder_is_the_deepest_and_latest_that_holds_it() -> None:
    mounts = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /home rw shared:1 - btrfs /dev/vdb rw
31 30 0:27 / /home/ann/My\040Files rw,nosuid master:2 propagate_from:3 - nfs4 host:/x rw
32 22 0:28 / /mnt rw - tmpfs tmpfs rw
33 22 0:29 / /mnt rw - virtiofs share rw
broken line
"""
    kinds = {
        "/var/lib/tk": "ext4",
        "/home/ann": "btrfs",
        "/homely": "ext4",
        "/home/ann/My Files/data": "nfs4",
        "/home/ann/My Filesystem": "btrfs",
        "/mnt/data": "virtiofs",
    }
    assert {folder: kind_of(Path(folder), mounts) for folder in kinds} == kinds
    assert kind_of(Path("/x"), "") == ""


async def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    error = await refused(tmp_path / "file" / "data", StoreError)
    assert "file" in error.sentence


async def test_a_locked_store_is_busy_after_the_time_out(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    holder = apsw.Connection(str(folder / "turnkeeper.db"))
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreBusy):
        await SQLiteStore.open(folder, busy_timeout_seconds=0.05)
    holder.execute("ROLLBACK")
    holder.close()
    await (await SQLiteStore.open(folder)).close()


async def test_a_copied_store_gets_an_epoch_of_its_own(tmp_path: Path) -> None:
    path = await made(tmp_path / "data")
    store = await SQLiteStore.open(tmp_path / "data")
    epoch = store.epoch
    await store.close()
    (tmp_path / "copy").mkdir()
    shutil.copy(path, tmp_path / "copy")
    copy = await SQLiteStore.open(tmp_path / "copy")
    assert copy.epoch != epoch
    first = copy.epoch
    await copy.close()
    copy = await SQLiteStore.open(tmp_path / "copy")
    assert copy.epoch == first
    await copy.close()


async def test_the_database_is_marked_as_ours_and_journals_durably(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "data")
    found: dict[str, Any] = {}

    def look(cursor: apsw.Cursor, _stored: Any) -> None:
        for name in ("application_id", "journal_mode", "synchronous", "mmap_size", "journal_size_limit"):
            found[name] = cursor.execute(f"PRAGMA {name}").fetchall()

    await store._writer.run(look)
    assert found["application_id"] == [(APPLICATION_ID,)]
    assert found["journal_mode"] == [("wal",)]
    assert found["synchronous"] == [(2,)]
    assert found["mmap_size"] in ([(0,)], [])
    assert found["journal_size_limit"] == [(64 * 1024 * 1024,)]
    await store.close()
