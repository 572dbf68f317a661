"""How much of a CLI's record is read, and how long for: one value for the process, as its settings say.

The readers ask here, so that a bound is the same whoever reads: `transcript show`, a merge, the tail of a running
turn. Whoever loads settings puts them in force before anything is read; without settings the defaults hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from turnkeeper.settings import Settings


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The settings `transcript_<name>`, which say what each is for."""

    line_bytes_max: int = 64 * 1024 * 1024
    unpacked_bytes_max: int = 4 * 1024 * 1024 * 1024
    document_bytes_max: int = 512 * 1024 * 1024
    copied_bytes_max: int = 2 * 1024 * 1024 * 1024
    busy_seconds: float = 2.0
    folder_files_max: int = 4096
    related_files_max: int = 64


_in_force = Limits()


def limits() -> Limits:
    """The limits that are in force now."""
    return _in_force


def put_in_force(new: Limits) -> None:
    """Read by these limits from now on, in the whole process."""
    global _in_force  # noqa: PLW0603
    _in_force = new


def put_settings_in_force(settings: Settings) -> None:
    """Read as the settings say from now on."""
    names = Limits.__struct_fields__
    put_in_force(Limits(**{name: getattr(settings, f"transcript_{name}") for name in names}))
