"""Examining and healing only those exchanges of a session that a glance did not find healthy.

The others are neither read as messages nor written anew: in a healed copy they stand byte for byte as in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, overload

import msgspec

from turnkeeper.foreign.clean import write
from turnkeeper.foreign.findings import Finding, examine, feed_of
from turnkeeper.foreign.glance import Glance, ids_of
from turnkeeper.foreign.sessions import Session, write_json
from turnkeeper.foreign.wires import WIRES

_PLACE = re.compile(r"\b(messages|input|contents)\[(\d+)\]")


class Rows(Sequence[Any]):
    """The items of a session, each decoded when somebody looks at it."""

    def __init__(self, raws: Sequence[msgspec.Raw]) -> None:
        self._raws = raws

    def __len__(self) -> int:
        return len(self._raws)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [msgspec.json.decode(raw) for raw in self._raws[at]]
        return msgspec.json.decode(self._raws[at])


def examine_exchanges(session: Session, glance: Glance, providers: Sequence[str]) -> list[Finding]:
    """What `examine` finds in the whole session."""
    found: list[Finding] = []
    for first, part in _parts(session, glance):
        found += [_moved(finding, first) for finding in examine(part, providers)]
    return sorted(found, key=lambda f: (-1 if f.row is None else f.row, f.rule))


def _parts(session: Session, glance: Glance) -> Iterator[tuple[int, Session]]:
    for first, end in glance.sick:
        items = [msgspec.json.decode(raw) for raw in glance.raws[first:end]]
        yield first, Session(name=session.name, format=session.format, items=items)


def _moved(finding: Finding, by: int) -> Finding:
    """A finding of an exchange that begins at row `by`, as one of the session."""
    if not by:
        return finding
    why = _PLACE.sub(lambda place: f"{place[1]}[{int(place[2]) + by}]", finding.why)
    return msgspec.structs.replace(finding, row=None if finding.row is None else finding.row + by, why=why)


def heal_exchanges(session: Session, glance: Glance) -> tuple[list[bytes], int] | None:
    """The rows of the healed session as JSON, and how many were sick; None if the parts do not heal by themselves."""
    wire = WIRES[session.format]
    out: list[bytes] = []
    count = at = 0
    taken: set[str] = set()
    fresh: list[Any] = []
    for first, part in _parts(session, glance):
        feed = feed_of(part)
        findings = examine(part, feed=feed)
        out += map(bytes, glance.raws[at:first])
        if findings:
            count += len({finding.row for finding in findings})
            healed = write(feed, part.items, wire, wire.name)
            fresh += healed
            out += map(write_json, healed)
        else:
            out += map(bytes, glance.raws[first : first + len(part.items)])
        at = first + len(part.items)
        for item in part.items:
            taken |= ids_of(glance.format, item) or set()
    out += map(bytes, glance.raws[at:])
    for item in fresh:
        found = ids_of(glance.format, item)
        if found is None or not found <= taken:
            return None  # a new id might be another exchange's
    return out, count
