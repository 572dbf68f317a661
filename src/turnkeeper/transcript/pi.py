"""Pi: `<agent dir>/sessions/--<folder>--/<time>_<session id>.jsonl`, a tree of entries.

The leaf is the last entry of the file, whatever its type, and the live branch is its ancestry: a move to
another branch writes nothing until the next entry hangs there. A file appears only with the first answer
(0.74) or at once (1.6), so a missing file proves nothing in a first turn. A runtime with its own agent
folder keeps its sessions there and not in `$HOME` (seed 002).

Every answer says how it ended (stopReason), each attempt of a retried one is an entry of its own, and
those that were set aside are named by a `context_edit` entry. Thinking with empty text and a tool call is
visible progress and never an answer (seed 002).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import (
    ERRORED,
    FAILED,
    FINAL,
    HUMAN,
    INTERRUPTED,
    NOTICE,
    PROGRESS,
    RUNNING,
    SETTLED,
    SUPERSEDED,
    THINKING,
    TOOL,
    UNKNOWN,
    Counters,
    Reading,
    Record,
    Session,
    Turn,
)
from turnkeeper.transcript.source import Look, load, names
from turnkeeper.transcript.tail import Cursor, Tail, stem, tail_lines
from turnkeeper.transcript.tail import at_end as end_of_lines

NAME: Final = "pi"


class Block(msgspec.Struct, gc=False):
    """A piece of a message."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None


class Message(msgspec.Struct, gc=False, rename="camel"):
    """What an entry of type message holds."""

    role: str | None = None
    content: str | list[Block] | None = None
    stop_reason: str | None = None
    error_message: str | None = None
    command: str | None = None
    display: bool | None = None


class Row(msgspec.Struct, gc=False, rename="camel"):
    """An entry, or the header."""

    type: str | None = None
    id: str | None = None
    parent_id: str | None = None
    timestamp: str | None = None
    message: Message | None = None
    target_id: str | None = None
    summary: str | None = None
    content: str | list[Block] | None = None
    name: str | None = None
    cwd: str | None = None
    version: int | None = None
    parent_session: str | None = None
    branched_from: str | None = None


SKIPPED: Final = {
    "session": "the header, read apart",
    "model_change": "a setting",
    "thinking_level_change": "a setting",
    "label": "a bookmark",
    "session_info": "the title, read apart",
    "custom": "an extension's own data, shown to nobody",
    "context_edit": "says which attempt was set aside; read apart",
}
"""Entry types without anything of the conversation, with the reason."""
NOTICE_OF_TYPE: Final = {
    "compaction": "compaction",
    "branch_summary": "branch_summary",
    "custom_message": "custom_message",
}
NOTICE_OF_ROLE: Final = {
    "bashExecution": "bash_mode",
    "custom": "custom_message",
    "branchSummary": "branch_summary",
    "compactionSummary": "compaction",
}
SILENT_ROLES: Final = frozenset({"system"})
TOOL_STOP: Final = "toolUse"
PREVIOUS_STOPS: Final = frozenset({TOOL_STOP, "deferred", None})
"""Stop reasons after which the run goes on: a person's message there rides with it."""


# --- selection


class Selection(msgspec.Struct):
    """Live and abandoned entries as row numbers in file order."""

    live: list[int]
    superseded: list[int]
    duplicates: int = 0


def select(rows: Sequence[Row]) -> Selection:
    """The ancestry of the last entry is live. Files without ids are live as they stand."""
    by_id: dict[str, int] = {}
    duplicates = 0
    entries: list[int] = []
    for number, row in enumerate(rows):
        if row.type == "session":
            continue
        if row.id is not None:
            if row.id in by_id:
                duplicates += 1
                continue
            by_id[row.id] = number
        entries.append(number)
    live = bytearray(len(rows))
    number = next((n for n in reversed(entries) if rows[n].id is not None), -1)
    if number < 0:
        return Selection(entries, [], duplicates)
    while number >= 0:
        live[number] = 1
        parent = rows[number].parent_id
        if parent is None:
            break
        following = by_id.get(parent, -1)
        if following < 0 or live[following]:
            following = next((n for n in range(number - 1, -1, -1) if _speaks(rows[n]) and not live[n]), -1)
        number = following
    return Selection(
        [n for n in entries if live[n] or rows[n].id is None],
        [n for n in entries if not live[n] and rows[n].id is not None],
        duplicates,
    )


def _speaks(row: Row) -> bool:
    return row.type == "message" and row.id is not None


# --- classification


def plain(content: str | list[Block] | None) -> tuple[str, int]:
    """The words of a message, and how many images came with it."""
    if content is None or isinstance(content, str):
        return content or "", 0
    return (
        "\n".join([block.text for block in content if block.type == "text" and block.text]),
        sum(1 for block in content if block.type == "image"),
    )


def set_aside(rows: Iterable[Row]) -> frozenset[str]:
    """Ids of the attempts that Pi itself took out of the model's context."""
    return frozenset(
        row.target_id for row in rows if row.type == "context_edit" and row.target_id is not None
    )


# --- folding


class Fold:
    """Entries of one branch into records and turns."""

    def __init__(self, rows: Sequence[Row], offsets: Sequence[int]) -> None:
        self._rows = rows
        self._offsets = offsets
        self._edited = set_aside(rows)
        self.records: list[Record] = []
        self.turns: list[Turn] = []
        self.unknown: dict[str, int] = {}
        self._turn: Turn | None = None
        self._steerable = False
        """Whether the newest row is a tool's result: that is where Pi lets a person's message in."""

    def run(self, numbers: Iterable[int]) -> None:
        """Read the rows `numbers` in order."""
        for number in numbers:
            row = self._rows[number]
            kind = row.type or ""
            if kind == "message" and row.message is not None:
                self._message(number, row, row.message)
            elif kind in NOTICE_OF_TYPE:
                self._steerable = False
                text = row.summary if row.summary is not None else plain(row.content)[0]
                self._add(NOTICE, text, number, row).code = NOTICE_OF_TYPE[kind]
            elif kind in SKIPPED:
                self._steerable = False
            else:
                self.unknown[kind] = self.unknown.get(kind, 0) + 1

    def _add(self, kind: str, text: str, number: int, row: Row) -> Record:
        turn = self._turn
        record = Record(
            kind,
            text,
            number,
            row.id,
            turn.key if turn is not None else None,
            at=row.timestamp,
            offset=self._offsets[number],
        )
        self.records.append(record)
        return record

    def _begin(self, number: int, row: Row, *, human: bool) -> Turn:
        if self._turn is not None and self._turn.state == RUNNING:
            self._turn.state = UNKNOWN
        self._turn = Turn(row.id or f"row:{number}", human=human, row=number)
        self.turns.append(self._turn)
        self._steerable = False
        return self._turn

    def _message(self, number: int, row: Row, message: Message) -> None:
        role = message.role or ""
        if role == "user":
            text, images = plain(message.content)
            rides = self._steerable and self._turn is not None and self._turn.state == RUNNING
            if not rides:
                self._begin(number, row, human=True)
            record = self._add(HUMAN, text, number, row)
            record.images, record.queued = images, rides
        elif role == "assistant":
            self._assistant(number, row, message)
        elif role in NOTICE_OF_ROLE:
            text = message.command if message.command is not None else plain(message.content)[0]
            self._add(NOTICE, text, number, row).code = NOTICE_OF_ROLE[role]
        elif role == "toolResult":
            self._steerable = True
        elif role not in SILENT_ROLES:
            name = f"message/{role}"
            self.unknown[name] = self.unknown.get(name, 0) + 1

    def _assistant(self, number: int, row: Row, message: Message) -> None:
        turn = self._turn if self._turn is not None else self._begin(number, row, human=False)
        stop = message.stop_reason
        blocks = (
            [Block("text", message.content)] if isinstance(message.content, str) else message.content or ()
        )
        calls = any(block.type == "toolCall" for block in blocks)
        kind = PROGRESS if calls or stop == TOOL_STOP else FINAL
        spoken: Record | None = None
        for block in blocks:
            if block.type == "thinking" and block.thinking:
                self._add(THINKING, block.thinking, number, row)
            elif block.type == "toolCall":
                self._add(TOOL, block.name or "", number, row).code = block.id or ""
            elif block.type == "text" and block.text and block.text.strip():
                if spoken is not None and kind == FINAL:
                    spoken.text = f"{spoken.text}\n\n{block.text}"
                else:
                    spoken = self._add(kind, block.text, number, row)
        self._steerable = False
        turn.ended_row = None if kind == PROGRESS else number
        turn.reason = None
        if stop == "aborted":
            turn.state, turn.reason = INTERRUPTED, "interrupted"
            if spoken is not None:
                spoken.status = INTERRUPTED
        elif stop == "error":
            self._failed(number, row, message, turn, spoken)
        elif kind == PROGRESS or stop in PREVIOUS_STOPS:
            turn.state = RUNNING
        else:
            turn.state = SETTLED

    def _failed(self, number: int, row: Row, message: Message, turn: Turn, spoken: Record | None) -> None:
        turn.state, turn.reason = FAILED, message.error_message or "error"
        if row.id in self._edited and spoken is None:
            # An attempt that Pi will repeat: the next one says how it ended.
            return
        if spoken is not None:
            spoken.status = ERRORED
        self._add(NOTICE, message.error_message or "", number, row).code = "api_error"


# --- reading


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The session at `path`. Raises Unreadable."""
    counters = Counters()
    loaded = load(path, Row, counters, start=start, whole=whole)
    reading = build(loaded.rows, loaded.offsets, counters)
    reading.files = names([path])
    return reading


def build(rows: Sequence[Row], offsets: Sequence[int], counters: Counters) -> Reading:
    """A Reading of rows that were decoded already."""
    chosen = select(rows)
    fold = Fold(rows, offsets)
    fold.run(chosen.live)
    records = fold.records
    if chosen.superseded:
        rewound = Fold(rows, offsets)
        rewound.run(chosen.superseded)
        kept = [record for record in rewound.records if record.kind in {HUMAN, FINAL}]
        for record in kept:
            record.state = SUPERSEDED
        records = sorted([*records, *kept], key=lambda record: record.row)
    counters.duplicates += chosen.duplicates
    session = Session()
    versions: list[str] = []
    for row in rows:
        if row.type == "session":
            session.native_id = session.native_id or row.id
            session.cwd = session.cwd or row.cwd
            session.parent = session.parent or row.parent_session or row.branched_from
            versions.append(str(row.version))
        elif row.type == "session_info":
            session.title = row.name
        if row.type in SKIPPED:
            counters.skipped[row.type] = counters.skipped.get(row.type, 0) + 1
    for name, count in fold.unknown.items():
        counters.unknown[name] = counters.unknown.get(name, 0) + count
    session.versions = tuple(dict.fromkeys(versions))
    session.newest_at = max([row.timestamp for row in rows if row.timestamp is not None], default=None)
    return Reading(NAME, session=session, records=records, turns=fold.turns, counters=counters)


def primary(paths: Sequence[Path]) -> Path:
    """Of several sessions in one folder, the newest by its name."""
    return max(paths, key=stem)


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """The entries that were added since `cursor`."""
    return tail_lines(path, Row, cursor)


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind everything that is there now."""
    return end_of_lines(path)


# --- places


def roots(where: Roots) -> tuple[Path, ...]:
    """Pi's agent folders."""
    return where.under("PI_CODING_AGENT_DIR", ".pi/agent")


def folder_name(cwd: str) -> str:
    """The folder of a working directory's sessions: `--home-ana-demo--`."""
    dashed = cwd.removeprefix("/").translate(str.maketrans("/\\:", "---"))
    return f"--{dashed}--"


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """The file of a session, in the folder of `cwd` or any other below the roots."""
    if native_id is None or not usable(native_id):
        return None
    for root in roots(where):
        found = [
            path
            for path in files_below(root, suffixes=(".jsonl",), depth=3)
            if stem(path).removesuffix(".jsonl").rpartition("_")[2] == native_id
        ]
        if found:
            near = [path for path in found if cwd is not None and path.parent.name == folder_name(cwd)]
            return Place(NAME, native_id, (max(near or found, key=stem),), root)
    return None


def listing(where: Roots) -> Iterator[Path]:
    """Every session file."""
    for root in roots(where):
        yield from files_below(root / "sessions", suffixes=(".jsonl",), depth=2)


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    return "session" in look.types or ({"parentId", "message"} <= look.keys and "model_change" in look.types)
