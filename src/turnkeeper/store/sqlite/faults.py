"""What SQLite's errors mean to who asked: one table from the engine's errors to ours."""

from __future__ import annotations

import errno
from typing import Final

import apsw

from turnkeeper.errors import StoreBusy, StoreDamaged, StoreError, StoreFull, Unavailable

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def translated(error: Exception, path: str, connection: apsw.Connection | None = None) -> Exception:
    """Our error for one that SQLite or the system raised while the store at `path` was used.

    An error of another origin is returned as it is.
    """
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy()
    if isinstance(error, apsw.FullError) or _system_errno(error, connection) in _FULL:
        return StoreFull()
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreDamaged(path=path, why=str(error))
    if isinstance(error, apsw.Error | OSError):
        return Unavailable(f"The store {path} cannot be used ({error}). Nothing was stored; try again.")
    return error


def cannot_open(error: Exception, path: str, connection: apsw.Connection | None = None) -> Exception:
    """Our error for one that happened while the store at `path` was opened."""
    found = translated(error, path, connection)
    if type(found) is Unavailable:
        return StoreError(path=path, why=str(error))
    return found


def _system_errno(error: Exception, connection: apsw.Connection | None) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    if isinstance(error, apsw.IOError) and connection is not None:
        return connection.system_errno
    return None
