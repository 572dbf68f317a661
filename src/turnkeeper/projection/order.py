"""The order of history: the journal's order, with rows that were found later put where they belong.

A message stands where its seq puts it, unless it names the message that it stands behind (`Message.after`,
or a placement of `HistoryReconciled`). Placing a row moves no other row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from turnkeeper.conversation.events import Event, HistoryReconciled
from turnkeeper.conversation.messages import Message

AT_THE_BEGINNING = ""
"""`Message.after` of a row that stands before all others."""


def placements(events: Iterable[Event]) -> dict[str, str | None]:
    """From the journal: which message stands behind which (None: at the beginning)."""
    found: dict[str, str | None] = {}
    for event in events:
        if isinstance(event.body, HistoryReconciled):
            found.update({message_id: after for _, message_id, after in event.body.placements})
    return found


def in_order(messages: Iterable[Message], places: Mapping[str, str | None] | None = None) -> list[Message]:
    """Messages in the order in which they were said.

    `messages` come in any order of seq. `places` are placements beside those that the messages carry
    themselves. A row whose anchor is not among `messages` stands where its seq puts it.
    """
    rows = sorted(messages, key=_seq)
    following: list[int] = [-1] * len(rows)
    number_of: dict[str, int] = {}
    head = tail = -1
    for number, row in enumerate(rows):
        anchor = row.after
        if anchor is None and places is not None and row.message_id in places:
            anchor = places[row.message_id] or AT_THE_BEGINNING
        number_of[row.message_id] = number
        if anchor == AT_THE_BEGINNING:
            following[number], head = head, number
            tail = number if tail < 0 else tail
        elif anchor is not None and anchor != row.message_id and anchor in number_of:
            at = number_of[anchor]
            following[number], following[at] = following[at], number
            tail = number if tail == at else tail
        elif tail < 0:
            head = tail = number
        else:
            following[tail] = tail = number
    ordered: list[Message] = []
    number = head
    while number >= 0:
        ordered.append(rows[number])
        number = following[number]
    return ordered


def _seq(message: Message) -> int:
    return message.seq


def as_said(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Messages that come in ascending seq, in the order of history; nearly always the same tuple."""
    if all(message.after is None for message in messages):
        return messages
    return tuple(in_order(messages))


def with_placed(
    page: tuple[Message, ...], placed: Sequence[Message], *, beginning: bool
) -> tuple[Message, ...]:
    """A page of unplaced messages with those of the `placed` that stand in it."""
    if not placed:
        return page
    return tuple(in_order([*page, *rooted(placed, page, beginning=beginning)]))


def cut_page(rows: Sequence[Message], limit: int) -> tuple[list[Message], int | None]:
    """The newest `limit` unplaced messages of `rows` with what is placed behind them, and the older page's cursor.

    The cursor is None if `rows` hold no more. Only the seq of an unplaced message is a cursor.
    """
    unplaced = [number for number, row in enumerate(rows) if row.after is None]
    if len(unplaced) <= limit:
        return list(rows), None
    first = unplaced[-limit] if limit else len(rows)
    return list(rows[first:]), rows[first].seq if limit else None


def rooted(placed: Sequence[Message], among: Iterable[Message], *, beginning: bool) -> list[Message]:
    """Those of the `placed` messages that stand in a window: behind one of its messages, or behind such a row.

    `beginning` tells whether the window holds the beginning of history.
    """
    inside = {message.message_id for message in among}
    if beginning:
        inside.add(AT_THE_BEGINNING)
    found: list[Message] = []
    for message in sorted(placed, key=_seq):
        if message.after in inside:
            inside.add(message.message_id)
            found.append(message)
    return found
