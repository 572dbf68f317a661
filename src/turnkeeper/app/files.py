"""Attachments: content-addressed files beside the database.

Bytes are written to a temporary file, synced, and renamed to `attachments/ab/abcd...` by their SHA-256,
so a file is whole or not there. What kind it is, its bytes say, not its sender.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from turnkeeper.errors import BadInput, StoreFull

INLINE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The only types that a browser may draw by itself; everything else is a download."""

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"OggS", "audio/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (8, b"WAVE", "audio/wav"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
)


def media_type(head: bytes) -> str:
    """The type that the first bytes of a file show."""
    for offset, magic, kind in _SIGNATURES:
        if head[offset : offset + len(magic)] == magic and (kind != "image/webp" or head[:4] == b"RIFF"):
            return kind
    try:
        text = head.decode("utf-8", errors="strict" if len(head) < 512 else "ignore")
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "application/octet-stream" if "\x00" in text or not text else "text/plain; charset=utf-8"


class FileStore:
    """The folder of attachments of one store."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max

    def path(self, sha256: str) -> Path:
        """Where the bytes of this hash lie."""
        return self._folder / sha256[:2] / sha256

    async def put(self, chunks: AsyncIterator[bytes]) -> tuple[str, int, str]:
        """Store bytes; returns their SHA-256, size and media type. Raises BadInput over the limit, StoreFull."""
        digest = hashlib.sha256()
        size = 0
        head = b""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd, name = tempfile.mkstemp(dir=self._folder, prefix=".upload-")
        except OSError as error:
            raise StoreFull(f"The file could not be stored: {error.strerror}.") from error
        temporary = Path(name)
        try:
            with os.fdopen(fd, "wb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self._bytes_max:
                        raise BadInput(
                            f"The file is larger than {self._bytes_max} bytes (attachment_bytes_max)."
                        )
                    digest.update(chunk)
                    if len(head) < 512:
                        head += chunk[: 512 - len(head)]
                    file.write(chunk)
                sha256 = digest.hexdigest()
                await asyncio.to_thread(_keep, file, temporary, self.path(sha256))
        except OSError as error:
            raise StoreFull(f"The file could not be stored: {error.strerror}.") from error
        finally:
            await asyncio.to_thread(temporary.unlink, missing_ok=True)
        return sha256, size, media_type(head)


def _keep(file: BinaryIO, temporary: Path, final: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    final.parent.mkdir(exist_ok=True, mode=0o700)
    temporary.replace(final)
