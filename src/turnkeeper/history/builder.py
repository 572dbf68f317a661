"""A feed that grows with its conversation: closed turns stay clean, only the open one is done again.

What is closed cannot change by what is appended: it ends on a whole answer and a user's message follows. A few
things reach back all the same, and each is a journaled event that is told to the builder: an expired
confirmation, a message that was marked, a compaction. Then everything is built anew and `epoch` grows.

    builder = FeedBuilder(messages)
    builder.extend(new_messages)
    feed = builder.feed()            # the same as build_feed(all messages), for the price of the open turn

`feed.messages` is a `GrownList`: its closed part is one list that only ever grows, so that an encoder can keep
what it made of it (`closed`, `closed_count`, `epoch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Generic, TypeVar, overload

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, COMPLETE, USER, Message
from turnkeeper.conversation.parts import Attachment, Text, ToolCall
from turnkeeper.history.feed import Feed, compact, finish
from turnkeeper.history.pairing import earlier_calls
from turnkeeper.history.row import DEFAULT_OPTIONS, Change, EarlierCall, FeedOptions, Row, Rows, Run
from turnkeeper.history.rules import settle
from turnkeeper.history.shape import SUMMARY

T = TypeVar("T")


class Closed(list[T], Generic[T]):
    """A list that only grows, with room for what an encoder made of its beginning."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        super().__init__()
        self.kept: Any = None
        """An encoder's own; it goes when the list goes."""


class GrownList(Sequence[T], Generic[T]):
    """The first `closed_count` items of a list that only grows, then those of the open turn."""

    __slots__ = ("closed", "closed_count", "epoch", "open")

    def __init__(self, closed: Closed[T], closed_count: int, open_items: tuple[T, ...], epoch: int) -> None:
        self.closed = closed
        self.closed_count = closed_count
        self.open = open_items
        self.epoch = epoch

    def __len__(self) -> int:
        return self.closed_count + len(self.open)

    def __iter__(self) -> Iterator[T]:
        return chain(islice(self.closed, self.closed_count), self.open)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = index if index >= 0 else len(self) + index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return self.closed[place] if place < self.closed_count else self.open[place - self.closed_count]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class FeedBuilder:
    """Builds the feeds of one conversation, round after round. Not for use by two tasks at once."""

    def __init__(
        self,
        messages: Iterable[Message] = (),
        *,
        expired: frozenset[str] = frozenset(),
        options: FeedOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.epoch = 0
        """Grows whenever what was closed is built anew."""
        self._options = options
        self._expired = expired
        self._raw: list[Message] = []
        self._start()
        self.extend(messages)

    def _start(self) -> None:
        self._closed: Closed[Message] = Closed()
        self._closed_sources: Closed[tuple[str, ...]] = Closed()
        self._closed_changes: list[Change] = []
        self._earlier: dict[str, EarlierCall] = {}
        self._said_before = ""
        self._open: Rows = []

    @property
    def closed_changes(self) -> Sequence[Change]:
        """The changes in the closed turns, oldest first."""
        return self._closed_changes

    @property
    def message_count(self) -> int:
        """How many messages it was given."""
        return len(self._raw)

    def set_options(self, options: FeedOptions) -> None:
        """Use other options from here on. Closed turns keep what was sent, unless the compaction changed."""
        anew = options.compaction != self._options.compaction
        self._options = options
        if anew:
            self._build_anew()

    def expire(self, message_ids: Iterable[str]) -> None:
        """These confirmations are stale from here on (their events were journaled)."""
        fresh = frozenset(message_ids) - self._expired
        if not fresh:
            return
        self._expired |= fresh
        for row in self._open:
            if row.message.message_id in fresh:
                row.looked = row.plain = False
        if not fresh <= {row.message.message_id for row in self._open}:
            self._build_anew()

    def replace(self, messages: Iterable[Message]) -> None:
        """Begin again with these messages: some of them were marked, or their order changed."""
        self._raw = list(messages)
        self._build_anew()

    def _build_anew(self) -> None:
        self.epoch += 1
        self._start()
        rows = [Row(message, (message.message_id,)) for message in self._raw]
        if self._options.compaction is not None:
            run = self._run()
            rows = compact(rows, self._options.compaction, run)
            self._closed_changes += run.changes
        # An older summary is dropped for a newer one, so nothing is closed before the newest has come.
        newest = max((i for i, row in enumerate(rows) if row.message.provenance == SUMMARY), default=-1)
        self._open += rows[: newest + 1]
        for row in rows[newest + 1 :]:
            self._append(row)

    def extend(self, messages: Iterable[Message]) -> None:
        """Add messages that were journaled since."""
        for message in messages:
            self._raw.append(message)
            if message.provenance == SUMMARY and self._closed:
                self._build_anew()
            else:
                self._append(Row(message, (message.message_id,)))

    def _append(self, row: Row) -> None:
        if self._open and _begins_turn(row.message) and _ends_turn(self._open[-1].message):
            self._close()
        self._open.append(row)

    def _run(self, options: FeedOptions | None = None) -> Run:
        return Run(
            self._options if options is None else options,
            self._expired,
            self._earlier,
            opens=not self._closed,
            said_before=self._said_before,
        )

    def _close(self) -> None:
        run = self._run(msgspec.structs.replace(self._options, for_request=False))
        rows = settle(list(self._open), run)
        last = self._open[-1].message
        if not rows or rows[-1].message.role != ASSISTANT or last.message_id not in rows[-1].sources:
            return
        self._earlier.update(run.stripped)
        self._earlier.update(earlier_calls(rows))
        for row in self._open:
            if row.message.role == USER:
                self._said_before = row.message.text
        self._closed += [row.message for row in rows]
        self._closed_sources += [row.sources for row in rows]
        self._closed_changes += run.changes
        self._open = []

    def feed(self) -> Feed:
        """The feed of everything so far. Its `changes` are those of the open turn."""
        run = self._run()
        opened = finish(settle(list(self._open), run), run)
        count = len(self._closed)
        return Feed(
            messages=GrownList(self._closed, count, tuple(opened.messages), self.epoch),
            sources=GrownList(self._closed_sources, count, tuple(opened.sources), self.epoch),
            changes=opened.changes,
            asks=opened.asks or bool(count),
        )


def _begins_turn(message: Message) -> bool:
    """Whether a message certainly stays one of the user's, whatever follows."""
    return (
        message.role == USER
        and message.replay
        and message.provenance != SUMMARY
        and bool(message.parts)
        and all(isinstance(part, Text | Attachment) for part in message.parts)
    )


def _ends_turn(message: Message) -> bool:
    return (
        message.role == ASSISTANT
        and message.replay
        and message.standing == COMPLETE
        and not any(type(part) is ToolCall for part in message.parts)
    )
