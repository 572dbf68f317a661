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
    if places is None and all(row.after is None for row in rows):
        return rows
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
