"""Finding a session's file by its native id, and listing what is there.

A search has roots: first the folder that Turnkeeper gave the CLI for this conversation, then the user's
own (a runtime with a folder of its own is the miss of seed 002: its transcripts are never in `$HOME`).
A name is compared, never expanded: an id with a slash or a star in it finds nothing. Without a native id
nothing is touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}\Z")
DEPTH_MAX: Final = 8
"""How deep a search goes below its root; links are not followed, so it ends."""


class Place(msgspec.Struct, frozen=True):
    """Where a session is kept: its files in order (a family has several), and which of the roots had it."""

    format: str
    native_id: str
    paths: tuple[Path, ...]
    root: Path


class Roots(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look: `given` by Turnkeeper first, then what the environment and the home folder say."""

    home: Path
    given: tuple[Path, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)

    def under(self, variable: str | None, *defaults: str) -> tuple[Path, ...]:
        """The given roots, then `$variable` or else the `defaults` below home."""
        named = self.env.get(variable) if variable is not None else None
        own = (Path(named),) if named else tuple(self.home / default for default in defaults)
        return tuple(dict.fromkeys((*self.given, *own)))


def usable(native_id: str | None) -> bool:
    """Whether an id can be the name of a file at all."""
    return native_id is not None and _ID.match(native_id) is not None


def files_below(root: Path, *, suffixes: Sequence[str], depth: int = DEPTH_MAX) -> Iterator[Path]:
    """Files below `root` whose names end so, in the order of their names; unreadable folders are passed over."""
    try:
        with os.scandir(root) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    ends = tuple(suffixes)
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth > 0:
                    yield from files_below(Path(entry.path), suffixes=suffixes, depth=depth - 1)
            elif entry.name.endswith(ends) and entry.is_file():
                yield Path(entry.path)
        except OSError:
            continue
