"""The queue of a Claude Code session: what was lost, and what was taken back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from turnkeeper.transcript.claude_code.rows import TASK_NOTIFICATION, Row, plain
from turnkeeper.transcript.record import CANCELLED, HUMAN, UNDELIVERED, Record


class _Waiting(msgspec.Struct):
    text: str
    row: int
    deliveries: int = 0
    cancels: int = 0
    enqueues: int = 0
    removes: int = 0
    rows: list[int] = msgspec.field(default_factory=list)


def queue(rows: Sequence[Row], offsets: Sequence[int], said: Iterable[Record]) -> list[Record]:
    """Queued texts that were taken back, or that never reached the model (reference 2.4).

    Equal texts are counted, not compared: as many enqueues as there are deliveries of that text were
    delivered, the first ones first. A removal is no proof of delivery (anthropics/claude-code#88357).
    """
    waiting: dict[str, _Waiting] = {}

    def entry(text: str, number: int) -> _Waiting:
        found = waiting.get(text)
        if found is None:
            found = waiting[text] = _Waiting(text, number)
        return found

    for number, row in enumerate(rows):
        if row.type != "queue-operation":
            continue
        text = plain(row.content)[0].strip("\n")
        if text.lstrip().startswith(TASK_NOTIFICATION):
            continue
        operation = row.operation
        if operation == "enqueue" and text:
            found = entry(text, number)
            found.enqueues += 1
            found.rows.append(number)
        elif operation == "remove" and text:
            entry(text, number).removes += 1
        elif operation == "popAll":
            names = [text] if text in waiting or not waiting else _parts(text, waiting)
            for name in names or ([text] if text else []):
                found = entry(name, number)
                found.cancels += 1
    if not waiting:
        return []
    for record in said:
        if record.kind == HUMAN:
            row = rows[record.row]
            if row.type == "attachment" or row.prompt_source in {"queued", None}:
                for name in _parts(record.text, waiting):
                    found = waiting[name]
                    if record.row > found.row:
                        found.deliveries += 1
    records: list[Record] = []
    for found in waiting.values():
        asked = max(found.enqueues, found.removes, found.cancels)
        places = [*found.rows, *[found.row] * (asked - len(found.rows))]
        left = places[found.deliveries :]
        for at, number in enumerate(left):
            state = CANCELLED if at < found.cancels else UNDELIVERED
            records.append(
                Record(
                    HUMAN,
                    found.text,
                    number,
                    rows[number].uuid,
                    state=state,
                    queued=True,
                    at=rows[number].timestamp,
                    offset=offsets[number],
                )
            )
    return sorted(records, key=lambda record: record.row)


def _parts(text: str, waiting: dict[str, _Waiting]) -> list[str]:
    """The queued texts that `text` is, or that it was joined from (in order, one a line or with blank lines)."""
    if text in waiting:
        return [text]
    found: list[str] = []
    rest = text.strip()
    for name in waiting:
        if rest.startswith(name) and (len(rest) == len(name) or rest[len(name)] == "\n"):
            found.append(name)
            rest = rest[len(name) :].lstrip("\n")
    return found if not rest else []
