"""The size of an image from its first bytes: PNG, JPEG, GIF and WebP. Pure; nothing is decoded."""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Final

_JPEG_SIZES: Final = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_JPEG_BARE: Final = frozenset({0x01, *range(0xD0, 0xD9)})


def measure_image(data: bytes) -> tuple[int, int] | None:
    """(width, height) in pixels, or None if the bytes are none of the four kinds or cut short."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height = struct.unpack(">II", data[16:24])
            return width, height
        if data[:6] in (b"GIF87a", b"GIF89a"):
            width, height = struct.unpack("<HH", data[6:10])
            return width, height
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
        if data.startswith(b"\xff\xd8"):
            return _jpeg(data)
    except (struct.error, IndexError):
        return None
    return None


_HEAD_CHARS: Final = 400_000
"""How much of an image's base64 is looked at: JPEG headers can stand behind long metadata."""


def measure_base64(data: str) -> tuple[int, int] | None:
    """`measure_image` for base64 text; None also for what is no base64."""
    try:
        return measure_image(base64.b64decode(data[:_HEAD_CHARS] if len(data) > _HEAD_CHARS else data))
    except (binascii.Error, ValueError):
        return None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return None
        mark = data[at + 1]
        if mark == 0xFF:
            at += 1
            continue
        if mark in _JPEG_BARE:
            at += 2
            continue
        if mark in _JPEG_SIZES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return None
