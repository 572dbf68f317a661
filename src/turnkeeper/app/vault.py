"""What must lie sealed and may be opened again later: the sign-ins of people at the servers of tools.

The key file holds one key a line, the newest first: new values are sealed with it, older ones are opened with
whichever fits, and are sealed anew when they are read. A new key is so put in use without a pause
(`turnkeeper token rotate-key`), and the old ones can go when nothing is left that they opened.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from turnkeeper.port.store import Store

KEY_FILE = "vault.key"
KEYS_MAX = 10
"""Most keys that are kept; the oldest goes for a new one."""


class SealedValues:
    """Small values of the store, sealed (tool/mcp: Vault). Without a data folder the key lives in memory only."""

    def __init__(self, store: Store, data: Path | None) -> None:
        self._store = store
        self._writing = asyncio.Lock()
        self._path = None if data is None else data / KEY_FILE
        keys = [Fernet.generate_key()] if self._path is None else _keys(self._path)
        self._newest = Fernet(keys[0])
        self._all = MultiFernet([Fernet(key) for key in keys])

    async def get(self, name: str) -> bytes | None:
        """The value; None if there is none, or no key opens it any more. One under an older key is sealed anew."""
        sealed = await self._store.value(name)
        if not sealed:
            return None
        try:
            return self._newest.decrypt(sealed)
        except InvalidToken:
            pass
        try:
            value = self._all.decrypt(sealed)
        except InvalidToken:
            return None
        async with self._writing:
            # Only if it still stands: what somebody wrote or took away meanwhile must not be undone by this.
            if await self._store.value(name) == sealed:
                await self._store.put_value(name, self._newest.encrypt(value))
        return value

    async def put(self, name: str, value: bytes | None) -> None:
        """Keep it sealed; None overwrites what was kept."""
        async with self._writing:
            await self._store.put_value(name, b"" if value is None else self._newest.encrypt(value))

    async def rotate(self) -> int:
        """Put a new key in front; the number of keys there are now."""
        if self._path is None:
            return 1
        keys = await asyncio.to_thread(_add_key, self._path)
        self._newest = Fernet(keys[0])
        self._all = MultiFernet([Fernet(key) for key in keys])
        return len(keys)


def _keys(path: Path) -> list[bytes]:
    """The keys of the file, made at first use, readable by its owner only."""
    try:
        found = [line for line in path.read_bytes().split() if line]
    except FileNotFoundError:
        found = []
    return found or _write(path, [Fernet.generate_key()])


def _add_key(path: Path) -> list[bytes]:
    return _write(path, [Fernet.generate_key(), *_keys(path)][:KEYS_MAX])


def _write(path: Path, keys: list[bytes]) -> list[bytes]:
    """Write the file whole, then put it in its place: a crash leaves the old keys or the new ones."""
    part = path.with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(b"\n".join(keys) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return keys
