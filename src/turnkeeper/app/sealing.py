"""Keeps what a person pasted readable for its own turn only, encrypted, with a key of the data folder.

The masked text is what everybody sees. The turn that was given a secret may use it, also after a restart;
when that turn ends, the sealed copy is overwritten.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from turnkeeper.port.store import Store

KEY_FILE = "seal.key"


class Seals:
    """Sealed secrets by turn. Without a data folder they live in memory only."""

    def __init__(self, store: Store, data: Path | None) -> None:
        self._store = store
        self._live: dict[str, dict[str, str]] = {}
        self._cipher = None if data is None else Fernet(_key(data / KEY_FILE))

    async def put(self, turn_id: str, found: dict[str, str]) -> None:
        """Keep the secrets of a turn until it ends."""
        self._live[turn_id] = {**self._live.get(turn_id, {}), **found}
        if self._cipher is not None:
            sealed = self._cipher.encrypt(msgspec.json.encode(self._live[turn_id]))
            await self._store.put_value(f"sealed:{turn_id}", sealed)

    async def of(self, turn_id: str) -> dict[str, str]:
        """The secrets of a turn: token -> secret."""
        if turn_id not in self._live and self._cipher is not None:
            sealed = await self._store.value(f"sealed:{turn_id}")
            if sealed:
                try:
                    opened = self._cipher.decrypt(sealed)
                except InvalidToken:
                    return {}
                self._live[turn_id] = msgspec.json.decode(opened, type=dict[str, str])
        return self._live.get(turn_id, {})

    def holds(self, turn_id: str) -> bool:
        """Whether secrets of the turn are in this process's memory."""
        return turn_id in self._live

    async def forget(self, turn_id: str) -> None:
        """The turn has ended."""
        if self._live.pop(turn_id, None) is not None and self._cipher is not None:
            await self._store.put_value(f"sealed:{turn_id}", b"")


def _key(path: Path) -> bytes:
    """The folder's key, made at first use, readable by its owner only."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        key = Fernet.generate_key()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
        return key
