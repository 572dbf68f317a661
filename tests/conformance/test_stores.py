"""Every store keeps every promise of the port: memory, SQLite."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.port.store import Store
from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.testing.conformance import STORE_CASES, StoreKit
from turnkeeper.testing.memory_store import MemoryStore


class MemoryKit:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[Any] = []

    async def open(self) -> MemoryStore:
        return MemoryStore()

    async def reopen(self, store: Store) -> MemoryStore:
        assert isinstance(store, MemoryStore)
        return store.reopen()

    async def crash(self, store: Store) -> MemoryStore:
        assert isinstance(store, MemoryStore)
        return store.crash()

    def backup_path(self) -> str:
        return str(self.folder / "backup")

    async def restore(self, path: str) -> MemoryStore:
        return MemoryStore.restore(path)

    async def tables(self, store: Any) -> dict[str, list[Any]]:
        return store.tables()

    async def rebuild(self, store: Any) -> None:
        await store.rebuild()


class SQLiteKit:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[SQLiteStore] = []

    async def _open(self, path: Path) -> SQLiteStore:
        store = await SQLiteStore.open(path)
        self.opened.append(store)
        return store

    async def open(self) -> SQLiteStore:
        return await self._open(self.folder / "data")

    async def reopen(self, store: Store) -> SQLiteStore:
        assert isinstance(store, SQLiteStore)
        await store.close()
        return await self._open(store.path)

    async def crash(self, store: Store) -> SQLiteStore:
        """What lies on the disk while the process still has it open is what a killed one leaves."""
        assert isinstance(store, SQLiteStore)
        other = self.folder / f"crashed-{len(self.opened)}"
        other.mkdir(mode=0o700)
        for file in store.path.parent.glob("turnkeeper.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, other / file.name)
        await store.close()
        for file in other.iterdir():
            shutil.copyfile(file, store.path.parent / file.name)
        return await self._open(store.path)

    def backup_path(self) -> str:
        return str(self.folder / "backup.db")

    async def restore(self, path: str) -> SQLiteStore:
        folder = self.folder / "restored"
        folder.mkdir()
        return await self._open(Path(shutil.move(path, folder / "turnkeeper.db")))

    async def tables(self, store: Any) -> dict[str, list[Any]]:
        return await store.tables()

    async def rebuild(self, store: Any) -> None:
        await store.rebuild()


KITS: dict[str, type[MemoryKit] | type[SQLiteKit]] = {"memory": MemoryKit, "sqlite": SQLiteKit}


@pytest.mark.parametrize("kit_name", KITS)
@pytest.mark.parametrize("case", STORE_CASES, ids=lambda case: case.__name__)
async def test_the_store_keeps_the_promise(case: Any, kit_name: str, tmp_path: Path) -> None:
    kit = KITS[kit_name](tmp_path)
    checked: StoreKit = kit
    try:
        await case(checked)
    finally:
        for store in kit.opened:
            await store.close()
