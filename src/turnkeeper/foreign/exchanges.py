"""Examining and healing only those exchanges of a session that a glance did not find healthy.

The others are neither read as messages nor written anew: in a healed copy they stand byte for byte as in the file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, Message
from turnkeeper.conversation.parts import ToolCall
from turnkeeper.foreign.clean import write
from turnkeeper.foreign.findings import ALL, Finding, check, examine, feed_of, is_own_alone
from turnkeeper.foreign.glance import Glance, ids_of
from turnkeeper.foreign.sessions import Session, write_json
from turnkeeper.foreign.wires import WIRES
from turnkeeper.history.feed import Feed

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


class _Joined:
    """The exchanges that a glance did not pass, as one session: each begins and ends as it does in the whole one."""

    def __init__(self, session: Session, glance: Glance) -> None:
        self.begins: list[int] = []
        """Where each exchange begins in the joined list."""
        self.sick = glance.sick
        """Where each begins and ends in the whole one."""
        count = 0
        for first, end in glance.sick:
            self.begins.append(count)
            count += end - first
        self.session = Session(name=session.name, format=session.format, items=glance.items)

    def parts(self) -> Iterator[tuple[int, int]]:
        """Each exchange as a range of the joined list."""
        return pairwise([*self.begins, len(self.session.items)])

    def place(self, row: int) -> int:
        """Where a row of the joined list stands in the whole one."""
        part = bisect_right(self.begins, row) - 1
        return self.sick[part][0] + row - self.begins[part]

    def divided(self, feed: Feed, rows: int) -> list[Feed] | None:
        """The feed of each exchange, of a session of so many rows.

        None if they touch each other: a message stands for rows of two of them, or the rules left nothing of the
        answer that closed one (it was one with a call that never ran), so that it would run on into the next.
        """
        messages: list[list[Message]] = [[] for _ in self.begins]
        sources: list[list[tuple[str, ...]]] = [[] for _ in self.begins]
        at = 0
        for message, stands in zip(feed.messages, feed.sources, strict=True):
            of = {bisect_right(self.begins, int(row)) - 1 for row in stands}
            if len(of) > 1 or (of and min(of) < at):
                return None
            at = of.pop() if of else at
            messages[at].append(message)
            sources[at].append(stands)
        for (_, stop), (_, end), said, stood in zip(self.parts(), self.sick, messages, sources, strict=True):
            if end == rows:
                continue
            closed = bool(said) and said[-1].role == ASSISTANT and str(stop - 1) in stood[-1]
            if not closed or any(isinstance(part, ToolCall) for part in said[-1].parts):
                return None
        return [
            Feed(messages=tuple(said), sources=tuple(stood))
            for said, stood in zip(messages, sources, strict=True)
        ]

    def check(self) -> list[Finding]:
        """What their own provider refuses of them, as findings of the joined list.

        Exchange by exchange: where a validator meets a fault of shape it looks no further.
        """
        session = self.session
        found: list[Finding] = []
        for begin, end in self.parts():
            part = Session(name=session.name, format=session.format, items=session.items[begin:end])
            found += [_moved(finding, lambda row, by=begin: row + by) for finding in check(part)]  # type: ignore[misc]
        return found

    def examine(self, providers: Sequence[str], feed: Feed | None) -> list[Finding]:
        """What is sick in them, as findings of the whole session."""
        refused = self.check() if self.session.format in providers else []
        found = examine(self.session, providers, feed=feed, refused=refused)
        return [_moved(finding, self.place) for finding in found]


def _moved(finding: Finding, place: Callable[[int], int]) -> Finding:
    """A finding whose rows stand elsewhere, also where its words name them."""
    why = _PLACE.sub(lambda found: f"{found[1]}[{place(int(found[2]))}]", finding.why)
    return msgspec.structs.replace(finding, row=None if finding.row is None else place(finding.row), why=why)


def examine_exchanges(session: Session, glance: Glance, providers: Sequence[str]) -> list[Finding]:
    """What `examine` finds in the whole session."""
    if not glance.sick:
        return []
    joined = _Joined(session, glance)
    feed = None if is_own_alone(session.format, providers) else feed_of(joined.session)
    if feed is not None and joined.divided(feed, len(glance.raws)) is None:
        items = list(map(msgspec.json.decode, glance.raws))
        return examine(Session(name=session.name, format=session.format, items=items), providers)
    found = joined.examine(providers, feed)
    return sorted(found, key=lambda f: (-1 if f.row is None else f.row, f.rule))


def heal_exchanges(session: Session, glance: Glance) -> tuple[list[bytes], int] | None:
    """The rows of the healed session as JSON, and how many were sick; None if the parts do not heal by themselves."""
    wire = WIRES[session.format]
    joined = _Joined(session, glance)
    items = joined.session.items
    feed = feed_of(joined.session)
    feeds = joined.divided(feed, len(glance.raws))
    if feeds is None:
        return None
    sick = {finding.row for finding in joined.examine(ALL, feed)}
    out: list[bytes] = []
    at = 0
    taken: set[str] = set()
    fresh: list[Any] = []
    for (first, end), (begin, stop), part in zip(glance.sick, joined.parts(), feeds, strict=True):
        out += map(bytes, glance.raws[at:first])
        if None in sick or any(row in sick for row in range(first, end)):
            healed = write(part, items[begin:stop], wire, wire.name)
            fresh += healed
            out += map(write_json, healed)
        else:
            out += map(bytes, glance.raws[first:end])
        at = end
    out += map(bytes, glance.raws[at:])
    for item in items:
        taken |= ids_of(glance.format, item) or set()
    for item in fresh:
        found = ids_of(glance.format, item)
        if found is None or not found <= taken:
            return None  # a new id might be another exchange's
    return out, len(sick)
