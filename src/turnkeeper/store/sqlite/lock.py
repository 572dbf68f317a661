"""One server per store: a lock file that holds the owner's process id.

The lock is the kernel's (flock), so it ends with its process however that dies; the text in the file only
tells a person who it is.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from turnkeeper.errors import StoreInUse

LOCK_NAME: Final = "turnkeeper.lock"


class StoreLock:
    """The lock of the data folder, held from construction to `release`. Raises StoreInUse."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise StoreInUse(path=str(folder), pid=pid) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another server in."""
        os.close(self._file)
