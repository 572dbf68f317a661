"""How a store is opened: folder, mount, lock, identity, migrations, epoch. Each refusal is one clear error.

Nothing is changed in a file that is refused.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from turnkeeper.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreNewer,
    StoreUnsafeMount,
    TurnkeeperError,
)
from turnkeeper.store.sqlite.faults import cannot_open
from turnkeeper.store.sqlite.lock import StoreLock
from turnkeeper.store.sqlite.mount import fs_kind, is_unsafe
from turnkeeper.store.sqlite.sql import QUERIES, migrations

DATABASE_NAME: Final = "turnkeeper.db"
APPLICATION_ID: Final = 0x54726E6B
"""`Trnk` in the header of the file tells our databases from others."""
JOURNAL_SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024
PAGE_BYTES: Final = 2048
"""A commit writes whole pages, several of them for one small event: small pages make it cheaper."""
RETRY_SECONDS: Final = 0.005
STATEMENTS_KEPT: Final = 400


class Opened:
    """An opened store: the writer's connection, where it lies, the lock (or None), and the epoch."""

    def __init__(
        self, connection: apsw.Connection, database: Path, lock: StoreLock | None, epoch: str
    ) -> None:
        self.connection = connection
        self.database = database
        self.lock = lock
        self.epoch = epoch


def place_of(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """(folder, database file) that `path` means: a data folder, or a database file itself."""
    given = Path(path).expanduser()
    if given.is_file() or (given.suffix == ".db" and not given.is_dir()):
        return given.parent, given
    return given, given / DATABASE_NAME


def connect(database: Path, busy_timeout_seconds: float, *, reading: bool) -> apsw.Connection:
    """A connection with the settings that every connection of ours has."""
    connection = apsw.Connection(
        str(database),
        flags=apsw.SQLITE_OPEN_READWRITE | (0 if reading else apsw.SQLITE_OPEN_CREATE),
        statementcachesize=STATEMENTS_KEPT,
    )
    if not reading:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.set_busy_timeout(int(busy_timeout_seconds * 1000))
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute("PRAGMA temp_store = memory")
    if reading:
        connection.execute("PRAGMA query_only = on")
    else:
        connection.execute("PRAGMA synchronous = full")
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_SIZE_LIMIT_BYTES}")
        if sys.platform == "darwin":
            # there fsync alone does not reach the platter
            connection.execute("PRAGMA fullfsync = on")
            connection.execute("PRAGMA checkpoint_fullfsync = on")
    return connection


def open_store(
    path: str | os.PathLike[str],
    *,
    exclusive: bool,
    busy_timeout_seconds: float,
    probe: Callable[[Path], str] = fs_kind,
) -> Opened:
    """Open or make the store at `path`.

    Errors: StoreUnsafeMount, StoreInUse, StoreNewer, StoreDamaged, StoreBusy, StoreFull, StoreError.
    """
    # SQLite does not wait for every lock by itself: not where two would wait for each other, as when
    # several programs make the same new store
    deadline = time.monotonic() + busy_timeout_seconds
    while True:
        try:
            return _open_once(path, exclusive, busy_timeout_seconds, probe)
        except StoreBusy:
            if time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_SECONDS)


def _open_once(
    path: str | os.PathLike[str],
    exclusive: bool,
    busy_timeout_seconds: float,
    probe: Callable[[Path], str],
) -> Opened:
    folder, database = place_of(path)
    lock: StoreLock | None = None
    connection: apsw.Connection | None = None
    try:
        _prepare(folder)
        kind = probe(folder)
        if is_unsafe(kind):
            raise StoreUnsafeMount(path=str(folder), kind=kind)
        if exclusive:
            lock = StoreLock(folder)
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = connect(database, busy_timeout_seconds, reading=False)
        connection.execute("BEGIN")
        found = _recognise(connection, database)
        connection.execute("COMMIT")
        if found < migrations()[-1][0]:
            # a running server of the older version must not find its tables changed
            passing = StoreLock(folder) if found and not exclusive else None
            try:
                _migrate(connection, database)
            finally:
                if passing is not None:
                    passing.release()
        _use_wal(connection, database)
        return Opened(connection, database, lock, _epoch(connection, database))
    except (apsw.Error, OSError, TurnkeeperError) as error:
        known = error if isinstance(error, TurnkeeperError) else cannot_open(error, str(database), connection)
        if connection is not None:
            connection.close()
        if lock is not None:
            lock.release()
        if known is error:
            raise
        raise known from error


def _prepare(folder: Path) -> None:
    """Make the data folder, for its owner alone; an existing one of ours is closed to others."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
    if (folder / DATABASE_NAME).exists() or not any(folder.iterdir()):
        status = folder.stat()
        if status.st_uid == os.getuid() and status.st_mode & 0o077:
            folder.chmod(0o700)


def _value(connection: apsw.Connection, pragma: str) -> int:
    number = connection.pragma(pragma)
    assert isinstance(number, int)
    return number


def _recognise(connection: apsw.Connection, database: Path) -> int:
    """The schema's number, 0 for an empty file; in a transaction, as another program may make it now."""
    found, known = _value(connection, "user_version"), migrations()[-1][0]
    application = _value(connection, "application_id")
    if application != APPLICATION_ID:
        if application or found or connection.execute("SELECT 1 FROM sqlite_schema").fetchall():
            raise StoreDamaged(path=str(database), why="it is another program's database")
        return 0
    if found > known:
        raise StoreNewer(path=str(database), found=found, known=known)
    return found


def _migrate(connection: apsw.Connection, database: Path) -> None:
    """Bring the schema up to date, wholly or not at all."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        present = _recognise(connection, database)
        for number, script in migrations():
            if number > present:
                connection.execute(script)
                connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _use_wal(connection: apsw.Connection, database: Path) -> None:
    mode = connection.execute("PRAGMA journal_mode = wal").fetchall()[0][0]
    if mode != "wal":
        raise StoreError(path=str(database), why=f"its folder allows only journal mode {mode}, not wal")


def _epoch(connection: apsw.Connection, database: Path) -> str:
    """The store's epoch; a new one if there is none, or if the file is not the one it was made for.

    A database file that was copied to another place has another inode.
    """
    file = str(database.stat().st_ino).encode()
    kept = _kept_epoch(connection)
    if kept.get("epoch_file") != file:
        connection.execute("BEGIN IMMEDIATE")
        kept = _kept_epoch(connection)
        if "epoch" not in kept or kept.get("epoch_file", file) != file:
            kept["epoch"] = new_epoch()
        connection.execute(QUERIES["put_value"], ("epoch", kept["epoch"]))
        connection.execute(QUERIES["put_value"], ("epoch_file", file))
        connection.execute("COMMIT")
    return kept["epoch"].decode()


def _kept_epoch(connection: apsw.Connection) -> dict[str, bytes]:
    query = "SELECT name, value FROM value WHERE name = 'epoch' OR name = 'epoch_file'"
    return {str(name): bytes(value) for name, value in connection.execute(query)}


def new_epoch() -> bytes:
    """A value that no other epoch has."""
    return secrets.token_hex(8).encode()
