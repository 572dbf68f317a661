"""The doctor: looks at a stored session of ours or of another program, says what is sick, and can heal a copy.

    report = examine_path(Path("session.json"), now=time.time())
    heal_path(Path("session.json"), Path("healed.json"), now=time.time())

Nothing is ever written to the file that is looked at.
"""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from turnkeeper.errors import BadInput
from turnkeeper.foreign import own_store
from turnkeeper.foreign.clean import write
from turnkeeper.foreign.containers import CONTAINERS, heal_vercel, rebuild
from turnkeeper.foreign.exchanges import Rows, examine_exchanges, heal_exchanges
from turnkeeper.foreign.findings import ALL, Finding, examine, feed_of
from turnkeeper.foreign.glance import Glance
from turnkeeper.foreign.sessions import (
    FILE_BYTES_MAX,
    JsonSource,
    LangGraphSource,
    Session,
    Source,
    copy_file,
    open_source,
)
from turnkeeper.foreign.wires import WIRES
from turnkeeper.history.feed import Feed
from turnkeeper.store.sqlite.mount import fs_kind, is_unsafe

WAL_BUG: Final = ((3, 7, 0), (3, 51, 2))
"""First and last version of SQLite whose write-ahead log can lose data when it is reset."""
WAL_LAG_BYTES: Final = 64 * 1024 * 1024
"""A log larger than this was not checkpointed for long."""


class SessionReport(msgspec.Struct, kw_only=True):
    """What was found in one session."""

    session: Session
    findings: list[Finding]


class Report(msgspec.Struct, kw_only=True):
    """What was found in a file."""

    path: Path
    format: str
    sessions: list[SessionReport]
    warnings: list[str]
    problems: list[str]
    """What is wrong with the store itself."""

    @property
    def sick(self) -> bool:
        """Whether anything was found that must be healed."""
        return bool(self.problems) or any(report.findings for report in self.sessions)


@contextmanager
def no_collector() -> Iterator[None]:
    """Reading a session makes many objects and no cycles; the collector would walk them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def open_any(path: Path, *, bytes_max: int = FILE_BYTES_MAX) -> Source | own_store.OwnStore:
    """Our own store, or a file of another program. Raises BadInput."""
    return own_store.OwnStore(path) if own_store.is_ours(path) else open_source(path, bytes_max=bytes_max)


@no_collector()
def examine_path(
    path: Path, *, now: float, providers: Sequence[str] = ALL, bytes_max: int = FILE_BYTES_MAX
) -> Report:
    """Look at every session of a file. Raises BadInput."""
    source = open_any(path, bytes_max=bytes_max)
    glanced = source.glance(providers) if isinstance(source, JsonSource) else None
    if glanced is not None:
        session = _glanced(path, glanced)
        report = SessionReport(session=session, findings=examine_exchanges(session, glanced, providers))
        return Report(
            path=path, format=session.format, sessions=[report], warnings=warnings_of(path), problems=[]
        )
    sessions = source.sessions()
    problems = source.problems() if isinstance(source, own_store.OwnStore) else []
    warnings = warnings_of(path)
    if isinstance(source, LangGraphSource):
        warnings += [f"{name}: its checkpoint is not msgpack and was not read" for name in source.skipped]
    reports = [SessionReport(session=s, findings=examine(s, providers, now=_clock(s, now))) for s in sessions]
    formats = sorted({session.format for session in sessions})
    return Report(
        path=path, format=", ".join(formats), sessions=reports, warnings=warnings, problems=problems
    )


def _glanced(path: Path, glance: Glance) -> Session:
    """The session that was glanced at; its items are decoded where somebody looks at them."""
    if not glance.sick:
        return Session(name=path.name, format=glance.format, items=[], reads=[], glanced=glance.rows)
    return Session(name=path.name, format=glance.format, items=Rows(glance.raws))


def _clock(session: Session, now: float) -> float | None:
    """Only our own messages carry the server's time."""
    return now if session.format == "turnkeeper" else None


@no_collector()
def heal_path(path: Path, out: Path, *, now: float, bytes_max: int = FILE_BYTES_MAX) -> int:
    """Write a healed copy to the new file `out`; how many rows were sick. Raises BadInput."""
    source = open_any(path, bytes_max=bytes_max)
    if isinstance(source, own_store.OwnStore):
        return source.heal_copy(out, now)
    glanced = source.glance() if isinstance(source, JsonSource) else None
    if isinstance(source, JsonSource) and glanced is not None:
        if not glanced.sick:
            copy_file(path, out)
            return 0
        healed_rows = heal_exchanges(_glanced(path, glanced), glanced)
        if healed_rows is not None:
            source.write_rows(healed_rows[0], out)
            return healed_rows[1]
    healed: dict[str, list[Any]] = {}
    count = 0
    for session in source.sessions():
        feed = feed_of(session)
        findings = examine(session, feed=feed)
        count += len({finding.row for finding in findings})
        if findings:
            healed[session.name] = heal_items(session, feed)
    source.heal(healed, out)
    return count


def heal_items(session: Session, feed: Feed) -> list[Any]:
    """The session's items, healed: healthy ones are the very objects they were."""
    wire = WIRES.get(session.format)
    if wire is not None:
        return write(feed, session.items, wire, wire.name)
    if session.format == "vercel":
        return heal_vercel(session.items, feed)
    return rebuild(feed, session.read(), session.items, CONTAINERS[session.format].make)


# --- the ground that a file stands on


def warnings_of(path: Path, *, sqlite_version: str | None = None) -> list[str]:
    """What endangers a file: an affected SQLite, a network mount, a log that lags."""
    found: list[str] = []
    folder = path if path.is_dir() else path.parent
    kind = fs_kind(folder.resolve())
    database = own_store.database_of(path)
    is_database = database is not None or _is_sqlite(path)
    if is_unsafe(kind) and is_database:
        found.append(
            f"{folder} is on a {kind} mount, where SQLite's write-ahead log gets damaged; move it to a local disk"
        )
    if not is_database:
        return found
    file = database or path
    ours = database is not None
    version = sqlite_version or (apsw.sqlite_lib_version() if ours else sqlite3.sqlite_version)
    if _has_wal_bug(version) and (ours or _uses_wal(file)):
        who = "Turnkeeper" if ours else "this Python's sqlite3 module"
        found.append(
            f"{who} uses SQLite {version}, which can lose data when the write-ahead log is reset (3.7.0 to 3.51.2): "
            "programs that write this file need a newer one"
        )
    log = file.with_name(file.name + "-wal")
    if log.exists() and log.stat().st_size > WAL_LAG_BYTES:
        found.append(
            f"the write-ahead log {log.name} has {log.stat().st_size // 1024**2} MB: no checkpoint came through for "
            "long; look for a reader that never ends"
        )
    return found


def _has_wal_bug(version: str) -> bool:
    try:
        numbers = tuple(int(piece) for piece in version.split(".")[:3])
    except ValueError:
        return False
    return WAL_BUG[0] <= numbers <= WAL_BUG[1]


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _uses_wal(path: Path) -> bool:
    """Whether a database keeps a write-ahead log: its header says so."""
    try:
        with path.open("rb") as file:
            return file.read(20)[18:20] == b"\2\2"
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
