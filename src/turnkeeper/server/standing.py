"""`server.json`: how the command line finds the server of a data folder on this machine.

It holds an address and a token, so it is 0600, and it is gone when the server has stopped in order.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

import msgspec

STANDING_FILE: Final = "server.json"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What `server.json` says of the running server."""

    url: str
    """The address on this machine."""
    token: str
    token_id: str
    pid: int
    version: str


def write_standing(data: Path, standing: Standing) -> None:
    """Put the file in place."""
    # mkstemp makes it 0600; the rename lets no reader see half of it.
    descriptor, name = tempfile.mkstemp(dir=data, prefix=".server-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(standing))
    Path(name).replace(data / STANDING_FILE)


def read_standing(data: Path) -> Standing | None:
    """What `server.json` says, or None if no server left one (it may be of a server that was killed)."""
    try:
        return msgspec.json.decode((data / STANDING_FILE).read_bytes(), type=Standing)
    except (OSError, msgspec.DecodeError):
        return None


def remove_standing(data: Path) -> None:
    """Take the file away if it is this process's own."""
    standing = read_standing(data)
    if standing is not None and standing.pid == os.getpid():
        (data / STANDING_FILE).unlink(missing_ok=True)
