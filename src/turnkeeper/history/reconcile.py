"""Merging a CLI's transcript into our own history: nothing lost, nothing doubled, order kept (G15).

Ours and theirs are two accounts of one dialogue, each with rows that the other lacks. Rows are paired

1. by identity: their id is known to be one of our messages, or a delivery's evidence says so;
2. by words, only between two identical rows and only where a row has no identity: unique texts first,
   then the rest, bound from the end, so that a repeated "continue" meets its latest occurrence;
3. as joined: several of ours that a CLI put into one prompt.

What is paired stands once. What only they have goes between the rows it stood between there; what only
we have stays where it is, before theirs in the same gap, and our beginning stays in front. No time is
looked at: a history's last change can be newer than a reply it does not hold (seed 002). Words alone
cannot tell one "yes" from another: a pair that could have been another one is marked, and counted.

Rows that are paired by identity but stand in another order here than there keep our order, with a notice.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from turnkeeper.conversation.events import Body, HistoryReconciled, MessageAppended, Noticed
from turnkeeper.conversation.messages import USER, Message

BY_ID: Final = "native_id"
BY_EVIDENCE: Final = "evidence"
BY_WORDS: Final = "words"
JOINED: Final = "joined"
"""How a pair was found."""

CELLS_MAX: Final = 4096
"""A gap of up to so many possible pairs is aligned exactly."""
EDITS_MAX: Final = 400
"""A larger gap without unique texts is aligned exactly if it differs in no more rows than this."""
REACH_ROWS: Final = 64
"""Beyond that a row looks for its equal no further than this from where it is expected."""
JOIN_ROWS_MAX: Final = 32
"""Most of our rows that are tried as parts of one of theirs."""


class Ours(msgspec.Struct, frozen=True, gc=False):
    """A message of our history. `native_ids` are the ids of their rows that it is known to be.

    `pasted` is the text as the CLI was given it, if that was not word for word `text`.
    """

    message_id: str
    role: str
    text: str
    native_ids: tuple[str, ...] = ()
    pasted: str | None = None


class Theirs(msgspec.Struct, frozen=True, gc=False):
    """A live row of the transcript's conversation. `aliases` are further ids of the same row."""

    native_id: str | None
    role: str
    text: str
    aliases: tuple[str, ...] = ()


class Pair(msgspec.Struct, frozen=True, gc=False):
    """Row `ours` and row `theirs` are one message."""

    ours: int
    theirs: int
    how: str
    ambiguous: bool = False


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """The merged dialogue. `order` has a row number of ours, of theirs, or of both for each message."""

    order: tuple[tuple[int | None, int | None], ...]
    pairs: tuple[Pair, ...]
    added: tuple[int, ...]
    """Rows that only they have, in their order."""
    crossings: int = 0
    """Pairs of identical rows that stand in another order there than here."""
    learned: int = 0
    """Pairs that were not known by identity before, and are from now on."""

    @property
    def ambiguous(self) -> int:
        """How many pairs could have been others."""
        return sum(1 for pair in self.pairs if pair.ambiguous)

    @property
    def joined(self) -> int:
        """How many of our messages are a part of one of their rows."""
        return sum(1 for pair in self.pairs if pair.how == JOINED)

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing to journal."""
        return not self.added and not self.learned


_ODD: Final = re.compile(r"[\r\t\x00-\x08\x0b-\x1f\x7f]|[ ]\n")
_SPACE_AT_END: Final = re.compile(r"[ \t]+(?=\n)")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def normal(text: str) -> str:
    """`text` in the form in which texts are compared: CLIs change line ends, tabs, control characters and ends."""
    text = text.strip()
    if _ODD.search(text) is None:
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    return _SPACE_AT_END.sub("", _CONTROL.sub("", text)).strip()


def reconcile(
    ours: Sequence[Ours], theirs: Sequence[Theirs], *, evidence: Mapping[str, str] | None = None
) -> Reconciled:
    """Merge `theirs` into `ours`. `evidence` maps a native id to the message that was delivered as it.

    Applying the result and reconciling again changes nothing.
    """
    pairs, partner = _by_identity(ours, theirs, evidence or {})
    anchors, crossings = _in_order(pairs)
    found = _in_gaps(ours, theirs, anchors, partner)
    if found or crossings:
        pairs = sorted([*pairs, *found], key=_by_ours)
    return _merged(ours, theirs, pairs, crossings)


def _by_ours(pair: Pair) -> tuple[int, int]:
    return pair.ours, pair.theirs


def _by_identity(
    ours: Sequence[Ours], theirs: Sequence[Theirs], evidence: Mapping[str, str]
) -> tuple[list[Pair], tuple[bytearray, bytearray]]:
    """Pairs that need no guess, and which rows of each side they leave no question about."""
    known: dict[str, int | list[int]] = {}
    for number, row in enumerate(ours):
        for name in row.native_ids:
            before = known.get(name)
            if before is None:
                known[name] = number
            elif isinstance(before, int):
                known[name] = [before, number]
            else:
                before.append(number)
    delivered: dict[str, int] = {}
    if evidence:
        numbers = {row.message_id: number for number, row in enumerate(ours)}
        delivered = {name: numbers[message] for name, message in evidence.items() if message in numbers}
    pairs: list[Pair] = []
    taken, met = bytearray(len(ours)), bytearray(len(theirs))
    for number, there in enumerate(theirs):
        own_id = there.native_id
        found = known.get(own_id) if own_id is not None else None
        if found is None and there.aliases:
            found = next((known[alias] for alias in there.aliases if alias in known), None)
        how = BY_ID
        if found is None and delivered:
            names = (own_id, *there.aliases)
            found = next((delivered[each] for each in names if each is not None and each in delivered), None)
            how = BY_EVIDENCE
        if found is None:
            continue
        for each in (found,) if isinstance(found, int) else found:
            if not taken[each]:
                pairs.append(Pair(each, number, how))
                taken[each] = met[number] = 1
    for number, row in enumerate(ours):
        if row.native_ids:
            # It is some row of theirs, here or in a session that is not this one; its words find no other.
            taken[number] = 1
    return pairs, (taken, met)


def _in_order(pairs: Sequence[Pair]) -> tuple[list[Pair], int]:
    """The longest run of identical pairs that stand in the same order on both sides, and how many do not."""
    before = -1
    for pair in pairs:
        if pair.ours <= before:
            break
        before = pair.ours
    else:
        return list(pairs), 0
    tails: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    for number, pair in enumerate(pairs):
        at = bisect_left(tails, pair.ours)
        back.append(ends[at - 1] if at else -1)
        if at == len(tails):
            tails.append(pair.ours)
            ends.append(number)
        else:
            tails[at], ends[at] = pair.ours, number
    chosen: list[Pair] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = back[number]
    chosen.reverse()
    return chosen, len(pairs) - len(chosen)


def _in_gaps(
    ours: Sequence[Ours],
    theirs: Sequence[Theirs],
    anchors: Sequence[Pair],
    partner: tuple[bytearray, bytearray],
) -> list[Pair]:
    """Pairs of rows without identity, sought between two identical rows and nowhere else."""
    taken, met = partner
    found: list[Pair] = []
    our_from = their_from = 0
    for our_to, their_to in [*[(pair.ours, pair.theirs) for pair in anchors], (len(ours), len(theirs))]:
        if our_to > our_from and their_to > their_from:
            free = [n for n in range(our_from, our_to) if not taken[n]]
            if free:
                there = [n for n in range(their_from, their_to) if not met[n]]
                if there:
                    found += _gap(ours, theirs, free, there)
        our_from, their_from = our_to + 1, max(their_from, their_to + 1)
    return found


def _gap(
    ours: Sequence[Ours], theirs: Sequence[Theirs], here: Sequence[int], there: Sequence[int]
) -> list[Pair]:
    mine = [_key(ours[n].role, ours[n].pasted or ours[n].text) for n in here]
    other = [_key(theirs[n].role, theirs[n].text) for n in there]
    met = align(mine, other)
    counts, other_counts = Counter(mine), Counter(other)
    pairs = [
        Pair(here[a], there[b], BY_WORDS, ambiguous=counts[mine[a]] != other_counts[mine[a]]) for a, b in met
    ]
    if len(met) < len(here) and len(met) < len(there):
        pairs += _joined(ours, theirs, here, there, met)
    return pairs


def _key(role: str, text: str) -> str:
    return f"{role}\n{normal(text)}"


def _joined(
    ours: Sequence[Ours],
    theirs: Sequence[Theirs],
    here: Sequence[int],
    there: Sequence[int],
    met: Sequence[tuple[int, int]],
) -> list[Pair]:
    """Prompts of theirs that are several of ours, in order, with nothing between but white space."""
    used_here, used_there = {a for a, _ in met}, {b for _, b in met}
    bounds = [*met, (len(here), len(there))]
    pairs: list[Pair] = []
    a_from = b_from = 0
    for a_to, b_to in bounds:
        free = [a for a in range(a_from, a_to) if a not in used_here and ours[here[a]].role == USER]
        for b in range(b_from, b_to):
            row = theirs[there[b]]
            if b in used_there or row.role != USER or not free:
                continue
            count = _parts(
                [normal(ours[here[a]].pasted or ours[here[a]].text) for a in free], normal(row.text)
            )
            if count:
                first, length = count
                pairs += [Pair(here[a], there[b], JOINED) for a in free[first : first + length]]
                free = free[first + length :]
        a_from, b_from = a_to + 1, b_to + 1
    return pairs


def _parts(texts: Sequence[str], whole: str) -> tuple[int, int] | None:
    """Which run of at least two `texts` makes up `whole`: (first, how many)."""
    for first in range(len(texts) - 1):
        at = 0
        for count, text in enumerate(texts[first : first + JOIN_ROWS_MAX], 1):
            if not text or not whole.startswith(text, at):
                break
            at += len(text)
            while at < len(whole) and whole[at].isspace():
                at += 1
            if at >= len(whole):
                if count > 1:
                    return first, count
                break
    return None


# --- alignment by words


def align(mine: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Which rows of two lists are equal and in the same order, bound from the end; as pairs of row numbers."""
    pairs: list[tuple[int, int]] = []
    todo = [(0, len(mine), 0, len(other))]
    while todo:
        a, a_end, b, b_end = todo.pop()
        while a_end > a and b_end > b and mine[a_end - 1] == other[b_end - 1]:
            a_end -= 1
            b_end -= 1
            pairs.append((a_end, b_end))
        if a == a_end or b == b_end:
            continue
        anchors = _unique(mine, other, a, a_end, b, b_end)
        if anchors:
            for at, (x, y) in enumerate(anchors):
                pairs.append((x, y))
                x_end, y_end = anchors[at + 1] if at + 1 < len(anchors) else (a_end, b_end)
                todo.append((x + 1, x_end, y + 1, y_end))
            todo.append((a, anchors[0][0], b, anchors[0][1]))
        elif (a_end - a) * (b_end - b) <= CELLS_MAX:
            pairs += _exactly(mine[a:a_end], other[b:b_end], a, b)
        else:
            pairs += _by_edits(mine[a:a_end], other[b:b_end], a, b)
    return sorted(pairs)


def _unique(
    mine: Sequence[str], other: Sequence[str], a: int, a_end: int, b: int, b_end: int
) -> list[tuple[int, int]]:
    """Texts that stand once on each side, as far as they are in the same order."""
    here: dict[str, int] = {}
    for number in range(a, a_end):
        here[mine[number]] = -1 if mine[number] in here else number
    there: dict[str, int] = {}
    for number in range(b, b_end):
        there[other[number]] = -1 if other[number] in there else number
    both = [(at, here[text]) for text, at in there.items() if at >= 0 and here.get(text, -1) >= 0]
    pairs, _ = _in_order([Pair(x, y, BY_WORDS) for y, x in both])
    return [(pair.ours, pair.theirs) for pair in pairs]


def _exactly(mine: Sequence[str], other: Sequence[str], a: int, b: int) -> list[tuple[int, int]]:
    """The longest common subsequence; of several, the one whose rows stand latest."""
    width = len(other) + 1
    lengths = [[0] * width]
    for text in mine:
        above = lengths[-1]
        row = [0] * width
        best = 0
        for at, same in enumerate(other, 1):
            if text == same:
                best = above[at - 1] + 1
            else:
                best = max(best, above[at])
            row[at] = best
        lengths.append(row)
    pairs: list[tuple[int, int]] = []
    x, y = len(mine), len(other)
    while x and y:
        if mine[x - 1] == other[y - 1]:
            x -= 1
            y -= 1
            pairs.append((a + x, b + y))
        elif lengths[x - 1][y] >= lengths[x][y - 1]:
            x -= 1
        else:
            y -= 1
    return pairs


def _by_edits(mine: Sequence[str], other: Sequence[str], a: int, b: int) -> list[tuple[int, int]]:
    """As `_exactly` for long lists that differ in few rows (Myers' greedy walk, from the end)."""
    n, m = len(mine), len(other)
    back, front = mine[::-1], other[::-1]
    edits = min(n + m, EDITS_MAX)
    reach = {1: 0}
    trace: list[dict[int, int]] = []
    for distance in range(edits + 1):
        trace.append(reach.copy())
        for diagonal in range(-distance, distance + 1, 2):
            down = diagonal == -distance or (
                diagonal != distance and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
            )
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            y = x - diagonal
            while x < n and y < m and back[x] == front[y]:
                x += 1
                y += 1
            reach[diagonal] = x
            if x >= n and y >= m:
                return [(a + n - 1 - x, b + m - 1 - y) for x, y in _walked(trace, n, m)]
    return _nearest(mine, other, a, b)


def _walked(trace: Sequence[dict[int, int]], n: int, m: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    x, y = n, m
    for distance in range(len(trace) - 1, -1, -1):
        reach = trace[distance]
        diagonal = x - y
        down = diagonal == -distance or (
            diagonal != distance and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
        )
        before = diagonal + 1 if down else diagonal - 1
        from_x = reach.get(before, 0) if distance else 0
        from_y = from_x - before if distance else 0
        while x > from_x and y > from_y:
            x -= 1
            y -= 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs


def _nearest(mine: Sequence[str], other: Sequence[str], a: int, b: int) -> list[tuple[int, int]]:
    """For lists that differ too much: each row from the end takes its nearest equal within reach."""
    places: dict[str, list[int]] = {}
    for number, text in enumerate(other):
        places.setdefault(text, []).append(number)
    pairs: list[tuple[int, int]] = []
    limit = len(other)
    for number in range(len(mine) - 1, -1, -1):
        where = places.get(mine[number])
        if where is None:
            continue
        at = bisect_right(where, limit - 1) - 1
        if at >= 0 and limit - where[at] <= REACH_ROWS:
            limit = where[at]
            pairs.append((a + number, b + limit))
    return pairs


# --- the merged dialogue


def _merged(ours: Sequence[Ours], theirs: Sequence[Theirs], pairs: list[Pair], crossings: int) -> Reconciled:
    of_theirs: dict[int, int] = {}
    for pair in pairs:
        of_theirs.setdefault(pair.theirs, pair.ours)
    partner: dict[int, int] = {}
    for pair in pairs:
        if of_theirs[pair.theirs] == pair.ours:
            partner[pair.ours] = pair.theirs
    order: list[tuple[int | None, int | None]] = []
    added: list[int] = []
    emitted = 0
    furthest = -1

    def ours_up_to(end: int) -> None:
        nonlocal emitted
        while emitted < end:
            order.append((emitted, partner.get(emitted)))
            emitted += 1

    last_of: dict[int, int] = {}
    for pair in pairs:
        last_of[pair.theirs] = max(last_of.get(pair.theirs, -1), pair.ours)
    for number in range(len(theirs)):
        met = last_of.get(number)
        if met is not None:
            if met > furthest:
                # Everything of ours up to this row comes before what follows it there.
                ours_up_to(met + 1)
                furthest = met
            continue
        added.append(number)
        order.append((None, number))
    ours_up_to(len(ours))
    return Reconciled(
        order=_ours_first(order),
        pairs=tuple(pairs),
        added=tuple(added),
        crossings=crossings,
        learned=sum(1 for p in pairs if p.how != BY_ID and theirs[p.theirs].native_id is not None),
    )


def _ours_first(order: list[tuple[int | None, int | None]]) -> tuple[tuple[int | None, int | None], ...]:
    """In one gap, rows that only we have stand before rows that only they have; our beginning is first."""
    result: list[tuple[int | None, int | None]] = []
    waiting: list[tuple[int | None, int | None]] = []
    for entry in order:
        if entry[0] is None:
            waiting.append(entry)
            continue
        if entry[1] is not None:
            result += waiting
            waiting.clear()
        result.append(entry)
    return (*result, *waiting)


# --- what is journaled


def bodies(
    result: Reconciled,
    ours: Sequence[Ours],
    theirs: Sequence[Theirs],
    messages: Callable[[int], Message],
    *,
    transcript: str,
) -> tuple[Body, ...]:
    """The events that make `result` durable; empty if it changes nothing.

    `messages` gives the message for a row of theirs, with its id; `transcript` names where it comes from.
    """
    if result.changes_nothing:
        return ()
    before: str | None = None
    placed: list[tuple[str, str, str | None]] = []
    appended: list[Body] = []
    behind = {entry[0] for entry in result.order if entry[0] is not None}
    left = len(behind)
    for our, their in result.order:
        if our is not None:
            left -= 1
            before = ours[our].message_id
            continue
        if their is None:
            continue
        message = messages(their)
        if left:
            message = msgspec.structs.replace(message, after=before if before is not None else "")
        appended.append(MessageAppended(message))
        placed.append((theirs[their].native_id or "", message.message_id, before))
        before = message.message_id
    learned = tuple(
        (theirs[pair.theirs].native_id or "", ours[pair.ours].message_id, pair.how)
        for pair in result.pairs
        if pair.how != BY_ID and theirs[pair.theirs].native_id is not None
    )
    merged = HistoryReconciled(
        transcript=transcript,
        placements=tuple(placed),
        matched=len(result.pairs),
        ambiguous=result.ambiguous,
        matches=learned,
    )
    noticed: list[Body] = []
    if result.crossings:
        noticed.append(
            Noticed(
                "history_order_differs",
                "The agent's own record has some messages in another order; ours was kept.",
                {"messages": result.crossings, "transcript": transcript},
            )
        )
    return (*appended, merged, *noticed)
