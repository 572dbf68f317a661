"""The queue of a Claude Code session: what was lost, and what was taken back (reference 2.4).

Equal texts are counted, not compared: as many enqueues as there are deliveries of that text were
delivered, the first ones first. A removal is no proof of delivery (anthropics/claude-code#88357).
"""

from __future__ import annotations

import msgspec

from turnkeeper.transcript.claude_code.rows import TASK_NOTIFICATION, Row, plain
from turnkeeper.transcript.record import CANCELLED, HUMAN, UNDELIVERED, Record


class _Waiting(msgspec.Struct):
    """What happened to one text."""

    text: str
    first: Record
    asked: list[Record] = msgspec.field(default_factory=list)
    removes: int = 0
    cancels: int = 0
    deliveries: int = 0


class Queue:
    """Told of queue rows and deliveries in file order; `left` is what was not delivered."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._delivered: list[Record] = []

    def operation(self, number: int, row: Row, offset: int) -> None:
        """A `queue-operation` row."""
        text = plain(row.content)[0].strip("\n")
        if text.lstrip().startswith(TASK_NOTIFICATION):
            return
        record = Record(HUMAN, text, number, row.uuid, queued=True, at=row.timestamp, offset=offset)
        operation = row.operation
        if operation == "popAll":
            for name in self._parts(text) or ([text] if text else []):
                self._entry(name, record).cancels += 1
        elif text and operation == "enqueue":
            self._entry(text, record).asked.append(record)
        elif text and operation == "remove":
            self._entry(text, record).removes += 1

    def delivered(self, record: Record) -> None:
        """A person's message that can have come out of the queue."""
        self._delivered.append(record)

    def left(self) -> list[Record]:
        """Texts that were taken back or never reached the model, in order."""
        if not self._waiting:
            return []
        for record in self._delivered:
            for name in self._parts(record.text):
                found = self._waiting[name]
                found.deliveries += record.row > found.first.row
        records: list[Record] = []
        for found in self._waiting.values():
            asked = max(len(found.asked), found.removes, found.cancels)
            places = [*found.asked, *[found.first] * (asked - len(found.asked))]
            for at, place in enumerate(places[found.deliveries :]):
                state = CANCELLED if at < found.cancels else UNDELIVERED
                records.append(msgspec.structs.replace(place, text=found.text, state=state))
        return sorted(records, key=lambda record: record.row)

    def _entry(self, text: str, record: Record) -> _Waiting:
        found = self._waiting.get(text)
        if found is None:
            found = self._waiting[text] = _Waiting(text, record)
        return found

    def _parts(self, text: str) -> list[str]:
        """The queued texts that `text` is, or that it was joined from, in order, a line or a blank line apart."""
        if text in self._waiting:
            return [text]
        found: list[str] = []
        rest = text.strip()
        for name in self._waiting:
            if rest.startswith(name) and (len(rest) == len(name) or rest[len(name)] == "\n"):
                found.append(name)
                rest = rest[len(name) :].lstrip("\n")
        return found if not rest else []
