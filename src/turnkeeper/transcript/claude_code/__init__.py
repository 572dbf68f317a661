"""Claude Code: `<config>/projects/<slug of the folder>/<session id>.jsonl`, one JSON row a line.

The file is a tree of rows (uuid, parentUuid) with rows about the session between them. What makes it
hard, and what is done about it (all numbers are sections of the reference on native transcripts):

- A rewind leaves its branch in the file; parallel tools make branches that are none (2.3, 2.6): the live
  branch is walked from the newest row, and rows of a live row's own response are taken back in.
- One response is several rows, or cumulative snapshots of one text (2.3): folded by message id.
- Text typed while a turn runs exists only as an attachment (2.4; seed 002): recovered if a person typed
  it, and the queue's own rows tell what was lost or taken back.
- Half of all `user` rows are not a person (2.5): rows say so themselves, else the table of injected texts
  decides.
- Text is the answer unless a tool call follows before the next turn begins (2.3).

Rows are keyed on `type` alone: newer versions repeat whole messages inside rows of other types.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from turnkeeper.transcript.claude_code.classify import Classifier
from turnkeeper.transcript.claude_code.fold import Fold
from turnkeeper.transcript.claude_code.queue import queue
from turnkeeper.transcript.claude_code.rows import CHAINED, NAME, SKIPPED, Row
from turnkeeper.transcript.claude_code.select import select
from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import FINAL, HUMAN, SUPERSEDED, Counters, Reading, Record, Session
from turnkeeper.transcript.source import Look, load, names
from turnkeeper.transcript.tail import Cursor, Tail, tail_lines
from turnkeeper.transcript.tail import at_end as end_of_lines


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The transcript at `path`. `beside` are files that may be what it was forked from. Raises Unreadable."""
    counters = Counters()
    loaded = load(path, Row, counters, start=start, whole=whole)
    reading = build(loaded.rows, loaded.offsets, counters)
    reading.files = names([path])
    for other in beside:
        own = _own_from(loaded.rows, other)
        if own is not None:
            reading.own_from_row, parent = own
            reading.session.parent = reading.session.parent or parent
            break
    else:
        copied = [number for number, row in enumerate(loaded.rows) if row.forked_from is not None]
        if copied:
            reading.own_from_row = copied[-1] + 1
    return reading


def build(rows: Sequence[Row], offsets: Sequence[int], counters: Counters) -> Reading:
    """A Reading of rows that were decoded already."""
    chosen = select(rows)
    says = Classifier(rows, provenance=chosen.provenance)
    fold = Fold(rows, offsets, chosen, says)
    fold.run(chosen.live)
    records = fold.records
    if chosen.superseded:
        rewound = Fold(rows, offsets, chosen, says)
        rewound.run(chosen.superseded, last=False)
        kept = [record for record in rewound.records if record.kind in {HUMAN, FINAL}]
        for record in kept:
            record.state = SUPERSEDED
        records += kept
    queued = queue(rows, offsets, records)
    if queued or chosen.superseded:
        records = sorted([*records, *queued], key=lambda record: record.row)
    counters.duplicates += chosen.duplicates
    counters.other_agent += chosen.other_agent
    for kind, count in Counter([row.type for row in rows]).items():
        if kind in SKIPPED:
            counters.skipped[kind or ""] = counters.skipped.get(kind or "", 0) + count
        elif kind not in CHAINED:
            counters.unknown[str(kind)] = counters.unknown.get(str(kind), 0) + count
    for name, count in fold.unknown.items():
        counters.unknown[name] = counters.unknown.get(name, 0) + count
    for name, count in says.wrappers.items():
        counters.wrappers[name] = counters.wrappers.get(name, 0) + count
    return Reading(
        NAME, session=_session(rows, records), records=records, turns=fold.turns, counters=counters
    )


def _session(rows: Sequence[Row], records: Sequence[Record]) -> Session:
    titles: dict[str, str] = {}
    versions: list[str] = []
    session = Session()
    newest = ""
    for row in rows:
        if row.version is not None and (not versions or row.version != versions[-1]):
            versions.append(row.version)
        title = row.custom_title or row.ai_title or row.summary
        if title is not None:
            titles["custom" if row.custom_title else "ai" if row.ai_title else "summary"] = title
        if session.native_id is None and row.session_id is not None:
            session.native_id = row.session_id
        if session.cwd is None and row.cwd is not None:
            session.cwd = row.cwd
        if row.forked_from is not None and session.parent is None:
            session.parent = row.forked_from.session_id
    for record in records:
        if isinstance(record.at, str) and record.at > newest:
            newest = record.at
    session.title = next((titles[name] for name in ("custom", "ai", "summary") if name in titles), None)
    session.versions = tuple(dict.fromkeys(versions))
    session.newest_at = newest or None
    return session


def _own_from(rows: Sequence[Row], other: Path) -> tuple[int, str | None] | None:
    """The first row that `other` does not hold, if `other` is what these rows were copied from."""
    mine = [(number, row.uuid) for number, row in enumerate(rows) if row.uuid is not None]
    if not mine:
        return None
    theirs = load(other, Row, Counters())
    known = {row.uuid for row in theirs.rows if row.uuid is not None}
    if mine[0][1] not in known:
        return None
    for number, uuid in mine:
        if uuid not in known:
            return number, next((row.session_id for row in theirs.rows if row.session_id is not None), None)
    return None


def primary(paths: Sequence[Path]) -> Path:
    """Of several files in one folder, the one that was meant: a fork before what it was forked from.

    A fork copies every row that has a uuid and none of the others, and has no pointer back
    (agentsview#1370): so it is the file that is marked as one, or holds none of the loose rows between
    the copied ones, or holds all rows of the other file and more, or was written to last.
    """

    def rank(path: Path) -> tuple[bool, bool, int, str]:
        rows = load(path, Row, Counters()).rows
        marked = any(row.forked_from is not None or row.session_kind == "bg" for row in rows)
        loose = any(row.uuid is None for row in rows)
        newest = max([row.timestamp for row in rows if row.timestamp is not None], default="")
        return marked, not loose, sum(1 for row in rows if row.uuid is not None), newest

    return max(paths, key=rank)


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """The rows that were added since `cursor`."""
    return tail_lines(path, Row, cursor)


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind everything that is there now."""
    return end_of_lines(path)


# --- places


SLUG_CHARS_MAX: Final = 200


def slug(cwd: str) -> str:
    """The folder name of a working directory: NFC, every character but ASCII letters and digits a dash (2.1).

    The CLI shortens long ones to 200 characters and a hash of its own, so a long one is only a beginning.
    """
    return re.sub(r"[^A-Za-z0-9]", "-", unicodedata.normalize("NFC", cwd))[:SLUG_CHARS_MAX]


def roots(where: Roots) -> tuple[Path, ...]:
    """The CLI's configuration folders."""
    return where.under("CLAUDE_CONFIG_DIR", ".claude")


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """The file of a session: in the folder of `cwd` first, then in any (a project may have moved)."""
    if native_id is None or not usable(native_id):
        return None
    for root in roots(where):
        projects = root / "projects"
        first = [] if cwd is None else [projects / slug(cwd)]
        for path in (folder / f"{native_id}.jsonl" for folder in (*first, *_folders(projects))):
            if path.is_file():
                return Place(NAME, native_id, (path,), root)
    return None


def _folders(projects: Path) -> list[Path]:
    try:
        return sorted(path for path in projects.iterdir() if path.is_dir())
    except OSError:
        return []


def listing(where: Roots) -> Iterator[Path]:
    """Every session file; those of sub-agents lie deeper and are left out."""
    for root in roots(where):
        yield from files_below(root / "projects", suffixes=(".jsonl",), depth=1)


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    named = (
        "parentUuid" in look.keys
        or {"queue-operation", "file-history-snapshot"} & look.types
        or ("message" in look.keys and {"user", "assistant"} & look.types)
    )
    return bool(named) and not {"parentId", "systemPayload", "provenance", "$set"} & look.keys
