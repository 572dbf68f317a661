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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Final

from turnkeeper.transcript.claude_code.classify import Classifier, Unsure
from turnkeeper.transcript.claude_code.fold import Fold
from turnkeeper.transcript.claude_code.queue import Queue
from turnkeeper.transcript.claude_code.rows import CHAINED, NAME, SKIPPED, Identity, Row
from turnkeeper.transcript.claude_code.select import select
from turnkeeper.transcript.claude_code.stream import Stream, Tangled, Titles
from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import FINAL, HUMAN, SUPERSEDED, Counters, Reading, Record, Session, Turn
from turnkeeper.transcript.source import Look, batches, ends, head, load, names
from turnkeeper.transcript.tail import Cursor, Tail, tail_lines
from turnkeeper.transcript.tail import at_end as end_of_lines


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The transcript at `path`. `beside` are files that may be what it was forked from. Raises Unreadable."""
    reading = None
    if not start:
        with suppress(Tangled, Unsure):
            reading = _in_one_pass(path, whole=whole)
    if reading is None:
        counters = Counters()
        loaded = load(path, Row, counters, start=start, whole=whole)
        reading = build(loaded.rows, loaded.offsets, counters)
    reading.files = names([path])
    _introduce(reading, path)
    _relate(reading, path, beside)
    return reading


def _in_one_pass(path: Path, *, whole: bool) -> Reading:
    """As `read`, without holding the rows. Raises Tangled or Unsure if the file is no plain chain."""
    counters = Counters()
    stream = Stream()
    for batch in batches(path, Row, counters, whole=whole):
        stream.feed(batch.rows, batch.offsets)
    records, turns = stream.finish()
    counters.other_agent = stream.other_agent
    return _reading(records, turns, stream.fold, stream.says, stream.types, stream.titles, counters)


def build(rows: Sequence[Row], offsets: Sequence[int], counters: Counters) -> Reading:
    """A Reading of rows that were decoded already."""
    chosen = select(rows)
    says = Classifier(provenance=chosen.provenance)
    queue = Queue()
    titles = Titles()
    for number, row in enumerate(rows):
        titles.learn(row)
        if row.type == "queue-operation":
            queue.operation(number, row, offsets[number])
    fold = Fold(says, queue)
    for number in chosen.live:
        fold.feed(number, rows[number], offsets[number])
    fold.finish()
    records = fold.records
    if chosen.superseded:
        rewound = Fold(says, queue)
        for number in chosen.superseded:
            rewound.feed(number, rows[number], offsets[number])
        rewound.finish(last=False)
        kept = [record for record in rewound.records if record.kind in {HUMAN, FINAL}]
        for record in kept:
            record.state = SUPERSEDED
        records += kept
    records = sorted([*records, *queue.left()], key=lambda record: record.row)
    counters.duplicates += chosen.duplicates
    counters.other_agent += chosen.other_agent
    types = Counter([row.type for row in rows if row.type not in CHAINED or row.type == "progress"])
    return _reading(records, fold.turns, fold, says, types, titles, counters)


_AT: Final = attrgetter("at")
"""When a record says it was written, as text: every row of this format has it so."""
_TITLES: Final = ("custom-title", "ai-title", "summary")
"""Rows that carry a title; what a person chose counts most."""


def _reading(
    records: list[Record],
    turns: list[Turn],
    fold: Fold,
    says: Classifier,
    types: Mapping[str | None, int],
    titles: Titles,
    counters: Counters,
) -> Reading:
    for kind, count in types.items():
        if kind in SKIPPED:
            counters.skipped[kind or ""] = counters.skipped.get(kind or "", 0) + count
        else:
            counters.unknown[str(kind)] = counters.unknown.get(str(kind), 0) + count
    for name, count in fold.unknown.items():
        counters.unknown[name] = counters.unknown.get(name, 0) + count
    for name, count in says.wrappers.items():
        counters.wrappers[name] = counters.wrappers.get(name, 0) + count
    session = Session(title=next((titles.found[name] for name in _TITLES if name in titles.found), None))
    session.newest_at = max(filter(None, map(_AT, records)), default=None)
    return Reading(NAME, session=session, records=records, turns=turns, counters=counters)


def _introduce(reading: Reading, path: Path) -> None:
    """What the first and the last rows say of the session."""
    session = reading.session
    rows = ends(path, Identity)
    session.native_id = next((row.session_id for row in rows if row.session_id is not None), None)
    session.cwd = next((row.cwd for row in rows if row.cwd is not None), None)
    session.versions = tuple(dict.fromkeys([row.version for row in rows if row.version is not None]))
    session.parent = next((row.forked_from.session_id for row in rows if row.forked_from is not None), None)


def _identities(path: Path) -> list[Identity]:
    return load(path, Identity, Counters()).rows


def _relate(reading: Reading, path: Path, beside: Sequence[Path]) -> None:
    """Where a fork's own rows begin: behind the last one that it shares with another file."""
    if reading.session.parent is not None:
        mine = _identities(path)
        copied = [number for number, row in enumerate(mine) if row.forked_from is not None]
        reading.own_from_row = copied[-1] + 1
        return
    if not beside:
        return
    mine = _identities(path)
    first = next((row.uuid for row in mine if row.uuid is not None), None)
    if first is None:
        return
    for other in beside:
        if first.encode() not in head(other, LOOK_BYTES):
            continue
        theirs = _identities(other)
        known = {row.uuid for row in theirs if row.uuid is not None}
        if first in known:
            own = [n for n, row in enumerate(mine) if row.uuid is not None and row.uuid not in known]
            if own:
                reading.own_from_row = own[0]
                parent = next((row.session_id for row in theirs if row.session_id is not None), None)
                reading.session.parent = parent
            return


LOOK_BYTES: Final = 65_536
"""How much of another file is searched for our first row."""


def primary(paths: Sequence[Path]) -> Path:
    """Of several files in one folder, the one that was meant: a fork before what it was forked from.

    A fork copies every row that has a uuid and none of the others, and has no pointer back
    (agentsview#1370): so it is the file that is marked as one, or holds none of the loose rows between
    the copied ones, or holds all rows of the other file and more, or was written to last.
    """

    def rank(path: Path) -> tuple[bool, bool, int, str]:
        rows = _identities(path)
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
