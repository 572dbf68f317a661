"""The folder of attachments: whatever the disk does comes as an error that can be told and tried again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnkeeper.app.files import FileStore
from turnkeeper.errors import StoreFull


async def test_a_folder_that_takes_no_file_is_a_full_store_and_no_bug(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"picture"

    in_the_way = tmp_path / "attachments"
    in_the_way.write_bytes(b"")
    with pytest.raises(StoreFull):
        await FileStore(in_the_way, 1000).put(chunks())
