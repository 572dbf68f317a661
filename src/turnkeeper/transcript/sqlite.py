"""A CLI's own database, read in one transaction and never written.

A database in WAL mode cannot be opened without its shared-memory file, and SQLite would make that file:
so a database that nobody holds open is read as it lies, one that is open is read through the files that
are there, and one that a crash left with a log and without that file is copied aside first. Nothing that
belongs to the CLI is changed in any of the three.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import apsw

from turnkeeper.transcript.limits import limits
from turnkeeper.transcript.source import Unreadable, reason

T = TypeVar("T")

MAGIC: Final = b"SQLite format 3\x00"
TRIES_MAX: Final = 3
"""How often reading begins again because the CLI opened its database meanwhile."""


def read_once(path: Path, work: Callable[[apsw.Connection], T]) -> T:
    """`work` on one consistent state of the database. Raises Unreadable."""
    try:
        if not path.stat().st_size:
            raise Unreadable(path=path, why="the file is empty")
        for _ in range(TRIES_MAX):
            log, shared = Path(f"{path}-wal"), Path(f"{path}-shm")
            if log.exists() and shared.exists():
                return _transaction(f"{_uri(path)}?mode=ro", work)
            if log.exists() and log.stat().st_size:
                return _aside(path, log, work)
            before = path.stat()
            result = _transaction(f"{_uri(path)}?mode=ro&immutable=1", work)
            after = path.stat()
            if (before.st_mtime_ns, before.st_size) == (
                after.st_mtime_ns,
                after.st_size,
            ) and not log.exists():
                return result
        return _transaction(f"{_uri(path)}?mode=ro", work)
    except OSError as error:
        raise Unreadable(path=path, why=reason(error)) from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Unreadable(path=path, why="another program holds it locked") from error
    except apsw.Error as error:
        raise Unreadable(path=path, why=str(error)) from error


def _uri(path: Path) -> str:
    return f"file:{quote(str(path.absolute()))}"


def _transaction(uri: str, work: Callable[[apsw.Connection], T]) -> T:
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        connection.set_busy_timeout(round(limits().busy_seconds * 1000))
        connection.execute("PRAGMA query_only = 1")
        connection.execute("BEGIN")
        return work(connection)
    finally:
        connection.close()


def _aside(path: Path, log: Path, work: Callable[[apsw.Connection], T]) -> T:
    if path.stat().st_size + log.stat().st_size > limits().copied_bytes_max:
        raise Unreadable(path=path, why="it was left open by a crash and is too large to be copied aside")
    with tempfile.TemporaryDirectory(prefix="turnkeeper-read-") as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(path, copy)
        shutil.copyfile(log, f"{copy}-wal")
        return _transaction(f"{_uri(copy)}?mode=ro", work)


def tables(connection: apsw.Connection) -> dict[str, frozenset[str]]:
    """The tables of a database with the names of their columns."""
    found: dict[str, frozenset[str]] = {}
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for name in names:
        columns = connection.execute("SELECT name FROM pragma_table_info(?)", (name,))
        found[str(name)] = frozenset(str(row[0]) for row in columns)
    return found


def holds(path: Path, start: bytes, *wanted: str) -> bool:
    """Whether a file is a database with these tables."""
    if not start.startswith(MAGIC):
        return False
    try:
        return frozenset(wanted) <= frozenset(read_once(path, tables))
    except Unreadable:
        return False
