"""Reading a Claude Code transcript in one pass, without holding its rows.

Nearly every file is a plain chain with parallel tools and a rewind here and there. Such a file is folded
while it is decoded, row by row, and only its records are kept: a gigabyte of tool results costs no
memory. What is checked on the way is that the chain says what file order says:

- a row hangs on the newest row, on a tool result or on its own response of the same segment;
- what a person sent hangs on the end of the segment before it, or on the end of an earlier one: that is
  a rewind, and the segments between are superseded.

Anything else (re-appended rows, missing parents, circles, a second root) raises Tangled, and the file is
read again by `select`, which looks at all rows at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Final

import msgspec

from turnkeeper.transcript.claude_code.classify import Classifier
from turnkeeper.transcript.claude_code.fold import Fold
from turnkeeper.transcript.claude_code.queue import Queue
from turnkeeper.transcript.claude_code.rows import CHAINED, SPOKEN, Row, holds_result
from turnkeeper.transcript.record import FINAL, HUMAN, SUPERSEDED, Record, Turn


class Tangled(Exception):
    """The rows do not follow each other as a chain does."""


_RESULT: Final = "\n result"
_PERSON: Final = "\n person"
_OTHER: Final = "\n other"
"""What a row is, beside the id of a response: no id begins with a line end."""


class Titles(msgspec.Struct):
    """Titles by the type of row that carries them; the last one counts."""

    found: dict[str, str] = msgspec.field(default_factory=dict)

    def learn(self, row: Row) -> None:
        """Note the title that a row may carry."""
        title = row.custom_title or row.ai_title or row.summary
        if title is not None and row.type is not None:
            self.found[row.type] = title


class Stream:
    """Folds rows as they come."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.says = Classifier(provenance=None)
        self.fold = Fold(self.says, self.queue)
        self.types: Counter[str | None] = Counter()
        self.titles = Titles()
        self.other_agent = 0
        self._count = 0
        self._known: dict[str, str] = {}
        self._fresh: list[Row] = []
        """The rows of this segment; those that came newly are looked up only when a row hangs elsewhere."""
        self._newest: str | None = None
        """The newest spoken row, while nothing followed it."""
        self._beside_newest: set[str] = set()
        """The newest spoken row and what followed it in which nobody speaks."""
        self._segments: list[tuple[int, int]] = []
        """(first row, the segment it hangs on) of each; a segment begins with what is no tool's result."""
        self._of_end: dict[str, int] = {}
        """The segment that ends with a row."""
        self._starts: set[str] = set()
        self._leaf = -1

    def feed(self, rows: Sequence[Row], offsets: Sequence[int]) -> None:
        """The next rows. Raises Tangled or Unsure."""
        fold = self.fold
        assistant = fold.assistant
        newest, note = self._newest, self._fresh.append
        here = len(self._segments) - 1
        leaf = self._leaf
        for number, row, offset in zip(count(self._count), rows, offsets, strict=False):
            kind = row.type
            message = row.message
            if message is None or kind not in SPOKEN:
                self._newest = newest
                self._silent(number, row, offset)
                newest = self._newest
                here = len(self._segments) - 1
                continue
            if row.is_sidechain or row.team_name or row.agent_id:
                self.other_agent += 1
                continue
            uuid = row.uuid
            if kind == "assistant":
                if uuid is not None:
                    if row.parent_uuid != newest or newest is None:
                        self._hang(row, message.id or uuid)
                    note(row)
                    newest = uuid
                fold.offset = offset
                assistant(number, row, message)
            elif holds_result(message):
                if uuid is not None:
                    if row.parent_uuid != newest or newest is None:
                        self._hang(row, _RESULT)
                    note(row)
                    newest = uuid
                if fold.waits:
                    fold.feed(number, row, offset)
            else:
                if uuid is not None:
                    self._newest = newest
                    self._segment(number, uuid, row.parent_uuid)
                    here = len(self._segments) - 1
                    newest = uuid
                fold.offset = offset
                fold.user(number, row, message)
                if row.is_meta:
                    continue
            leaf = here
        self._leaf = leaf
        self._newest = newest
        self._count += len(rows)

    def _silent(self, number: int, row: Row, offset: int) -> None:
        """A row in which nobody speaks: of the chain, of the queue, or about the session."""
        kind = row.type
        if kind == "queue-operation":
            self.queue.operation(number, row, offset)
        if kind not in CHAINED or kind == "progress":
            self.types[kind] += 1
        if kind not in CHAINED:
            self.titles.learn(row)
            return
        if row.is_sidechain or row.team_name or row.agent_id:
            self.other_agent += 1
            return
        if row.uuid is not None:
            self._beside(number, row, row.uuid)
        self.fold.feed(number, row, offset)

    def _now(self) -> dict[str, str]:
        """The rows of this segment: the id of their response, or what they are."""
        for row in self._fresh:
            message = row.message
            if row.uuid is not None and message is not None:
                spoke = row.type == "assistant"
                self._known[row.uuid] = (message.id or row.uuid) if spoke else _RESULT
        self._fresh.clear()
        return self._known

    def _hang(self, row: Row, what: str) -> None:
        """A row that does not hang on the newest one: on a result, on its own response, or beside one of those."""
        now = self._now()
        uuid, parent = row.uuid, row.parent_uuid
        above = now.get(parent) if parent is not None else None
        if above is None or uuid in now:
            raise Tangled
        if parent not in self._beside_newest and above not in (what, _RESULT) and what is not _RESULT:
            raise Tangled
        self._beside_newest.clear()

    def _beside(self, number: int, row: Row, uuid: str) -> None:
        """A row of the chain that nobody speaks in."""
        now = self._now()
        parent = row.parent_uuid
        if uuid in now:
            raise Tangled
        if parent is None:
            if not self._segments:
                self._segments.append((number, -1))
            elif row.subtype != "compact_boundary" or row.logical_parent_uuid not in now:
                raise Tangled
        elif parent not in now:
            raise Tangled
        now[uuid] = _OTHER
        if self._newest is not None:
            self._beside_newest.add(self._newest)
        self._beside_newest.add(uuid)
        self._newest = None

    def _segment(self, number: int, uuid: str, parent: str | None) -> None:
        """What is no tool's result begins a segment: at the end of this one, or of an earlier one (a rewind)."""
        if uuid in self._starts:
            raise Tangled
        last = len(self._segments) - 1
        newest = self._newest
        if newest is not None and parent == newest:
            # Nearly always: at the very end of the one before.
            self._of_end[newest] = above = last
        else:
            ends = self._beside_newest if newest is None else {newest}
            if parent is None:
                if last >= 0:
                    raise Tangled
                above = -1
            elif parent in ends:
                above = last
            else:
                above = self._of_end.get(parent, -1)
                if above < 0:
                    raise Tangled
            self._of_end.update(dict.fromkeys(ends, last))
        self._segments.append((number, above))
        self._starts.add(uuid)
        self._fresh.clear()
        self._known = {uuid: _PERSON}
        self._beside_newest.clear()
        self._newest = uuid

    def finish(self) -> tuple[list[Record], list[Turn]]:
        """All records and the live turns."""
        self.fold.finish()
        records, turns = self.fold.records, self.fold.turns
        gone = self._rewound()
        if gone:
            kept: list[Record] = []
            for record in records:
                if _inside(record.row, gone):
                    if record.kind not in {HUMAN, FINAL}:
                        continue
                    record.state = SUPERSEDED
                kept.append(record)
            records = kept
            turns = [turn for turn in turns if not _inside(turn.row, gone)]
        queued = self.queue.left()
        if queued:
            records = sorted([*records, *queued], key=lambda record: record.row)
        return records, turns

    def _rewound(self) -> list[tuple[int, int]]:
        """Row ranges of segments that are no ancestors of the newest spoken row."""
        if all(above == at - 1 for at, (_, above) in enumerate(self._segments)):
            return []
        live: set[int] = set()
        at = self._leaf
        while at >= 0 and at not in live:
            live.add(at)
            at = self._segments[at][1]
        starts = [first for first, _ in self._segments] + [self._count]
        return [(starts[at], starts[at + 1]) for at in range(len(self._segments)) if at not in live]


def _inside(row: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= row < end for first, end in ranges)
