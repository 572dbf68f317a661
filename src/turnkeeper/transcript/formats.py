"""The table of formats: which module reads what, and how a path finds its reader.

`read_path` is the one way in for people (`transcript show`): a file is recognised by its beginning, a
folder by the files in it, and several files may be one thread. A registered format without a reader is
impossible here: the table is what `--format`, `find` and the recovery of retained conversations use.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from turnkeeper.transcript.limits import limits
from turnkeeper.transcript.place import Place, Roots, files_below
from turnkeeper.transcript.record import Counters, Reading
from turnkeeper.transcript.source import FormatUnknown, Look, Unreadable, glance, head, reason
from turnkeeper.transcript.tail import Cursor, Tail

HEAD_BYTES: Final = 65_536
"""How much of a file is looked at to recognise its format."""
SUFFIXES: Final = (".jsonl", ".jsonl.zst", ".json", ".db")


class Format(Protocol):
    """What every format's module offers."""

    NAME: str
    SKIPPED: dict[str, str]

    def read(
        self,
        path: Path,
        *,
        beside: Sequence[Path] = (),
        start: int = 0,
        whole: bool = True,
        session: str | None = None,
    ) -> Reading:
        """The transcript at `path`; `beside` are files of the same folder. `session` is asked for where one
        file holds many. Raises Unreadable."""
        ...

    def build(self, rows: Sequence[Any], offsets: Sequence[int], counters: Counters) -> Reading:
        """A Reading of rows that `tail` gave."""
        ...

    def tail(self, path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Any]:
        """The rows since `cursor`. Raises Unreadable."""
        ...

    def at_end(self, path: Path, *, session: str | None = None) -> Cursor:
        """A cursor behind everything that is there now. Raises Unreadable."""
        ...

    def primary(self, paths: Sequence[Path]) -> Path:
        """Which of several files in one folder is meant."""
        ...

    def locate(self, native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
        """Where the session of a native id is kept."""
        ...

    def listing(self, where: Roots) -> Iterator[Path]:
        """Every session file below the roots."""
        ...

    def recognises(self, path: Path, look: Look) -> bool:
        """Whether the beginning of a file reads as this format."""
        ...


MODULES: Final = {
    "claude-code": "claude_code",
    "codex": "codex",
    "pi": "pi",
    "cursor": "cursor",
    "muse": "muse",
    "gemini": "gemini",
    "qwen": "qwen",
    "opencode": "opencode",
    "copilot": "copilot",
    "goose": "goose",
    "droid": "droid",
}
"""Names as `--format` takes them, in the order in which a file is offered to them."""


@cache
def reader(name: str) -> Format:
    """The module of the format `name`. Raises FormatUnknown."""
    if name not in MODULES:
        raise FormatUnknown(f"there is no transcript format {name!r}; Turnkeeper reads {', '.join(MODULES)}")
    return cast("Format", import_module(f"turnkeeper.transcript.{MODULES[name]}"))


def recognise(path: Path) -> str | None:
    """The format of a file, by its beginning. Raises Unreadable."""
    look = glance(head(path, HEAD_BYTES))
    return next((name for name in MODULES if look.start and reader(name).recognises(path, look)), None)


def read_path(path: Path, *, name: str | None = None, session: str | None = None) -> Reading:
    """The transcript that a file or a folder holds. Raises Unreadable or FormatUnknown."""
    try:
        kind = path.stat().st_mode
    except OSError as error:
        raise Unreadable(path=path, why=reason(error)) from error
    folder = stat.S_ISDIR(kind)
    if not folder and not stat.S_ISREG(kind):
        raise Unreadable(path=path, why="it is no regular file: a pipe or a device is not waited for")
    if folder:
        return _read_folder(path, name, session)
    found = name or recognise(path)
    if found is None:
        if path.stat().st_size == 0:
            raise Unreadable(path=path, why="the file is empty")
        raise FormatUnknown(path=path, known=", ".join(MODULES))
    module = reader(found)
    reading = module.read(path, beside=_related(path, found), session=session)
    if not reading.counters.rows and not reading.counters.torn_tail:
        raise Unreadable(path=path, why="it holds no row that can be read")
    return reading


def _related(path: Path, name: str) -> list[Path]:
    """Files of the same folder that may be what `path` was forked or continued from."""
    others = [
        other
        for other in files_below(path.parent, suffixes=SUFFIXES, depth=0)
        if other != path and other.suffix == path.suffix
    ]
    if len(others) > limits().related_files_max:
        return []
    return [other for other in others if _is(other, name)]


def _is(path: Path, name: str) -> bool:
    try:
        return recognise(path) == name
    except Unreadable:
        return False


def _read_folder(folder: Path, name: str | None, session: str | None) -> Reading:
    groups: dict[str, list[Path]] = {}
    refused: dict[str, str] = {}
    for count, path in enumerate(files_below(folder, suffixes=SUFFIXES)):
        if count >= limits().folder_files_max:
            break
        try:
            found = recognise(path)
        except Unreadable as error:
            refused[str(path)] = str(error.facts.get("why", ""))
            continue
        if found is not None and name in {None, found}:
            groups.setdefault(found, []).append(path)
    if not groups:
        why = next(iter(refused.values()), "it holds no transcript")
        raise Unreadable(path=folder, why=why)
    found = max(groups, key=lambda each: len(groups[each]))
    paths = groups[found]
    module = reader(found)
    if len(paths) > limits().related_files_max:
        paths = sorted(paths, key=lambda path: path.stat().st_mtime)[-limits().related_files_max :]
    meant = module.primary(paths) if len(paths) > 1 else paths[0]
    reading = module.read(meant, beside=[path for path in paths if path != meant], session=session)
    if len(paths) > 1:
        reading.primary = meant.name
    reading.counters.unreadable.update(refused)
    return reading
