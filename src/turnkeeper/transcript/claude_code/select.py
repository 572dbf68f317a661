"""Which rows of a Claude Code transcript are live, which were rewound, which are another agent's."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from turnkeeper.transcript.claude_code.rows import CHAINED, SPOKEN, Row, holds_result


class Selection(msgspec.Struct):
    """Which rows are live and which were rewound, as row numbers in file order."""

    live: list[int]
    superseded: list[int]
    by_uuid: dict[str | None, int]
    duplicates: int = 0
    other_agent: int = 0
    provenance: bool = False
    """Whether this file says of its rows who wrote them."""


def select(rows: Sequence[Row]) -> Selection:
    """Live, superseded and foreign rows (reference 2.3 and 2.6).

    The newest spoken row is the leaf; its ancestors are live. A missing parent, a cycle or an assistant
    row without a parent goes on at the nearest earlier spoken row; only a person's row can be a second
    root. A compaction hides nothing. Files without any uuid are live as they stand.
    """
    uuids = [row.uuid for row in rows]
    # The first row of an uuid counts: later ones overwrite it last when the list is read backwards.
    by_uuid = dict(zip(reversed(uuids), range(len(rows) - 1, -1, -1), strict=True))
    by_uuid.pop(None, None)
    copies = len(rows) - uuids.count(None) - len(by_uuid)
    repeated: set[str] = set()
    chained = [number for number, row in enumerate(rows) if row.type in CHAINED]
    if copies:
        repeated = {name for number, name in enumerate(uuids) if name is not None and by_uuid[name] != number}
        chained = [n for n in chained if uuids[n] is None or by_uuid[uuids[n]] == n]
    order = [n for n in chained if not ((row := rows[n]).is_sidechain or row.team_name or row.agent_id)]
    spoken = [n for n in order if rows[n].type in SPOKEN and uuids[n] is not None]
    chosen = Selection(
        order,
        [],
        by_uuid,
        duplicates=copies,
        other_agent=len(chained) - len(order),
        provenance=any(
            (row := rows[n]).origin is not None or row.prompt_source or row.turn_origin for n in order
        ),
    )
    leaf = next((n for n in reversed(spoken) if not rows[n].is_meta), -1)
    if leaf < 0:
        return chosen
    live = _walk(rows, leaf, by_uuid, repeated, spoken)
    missing = [n for n in spoken if not live[n]]
    if missing:
        _take_back(rows, missing, live, by_uuid)
    if not all(map(live.__getitem__, order)):
        _divide(rows, order, live, by_uuid, chosen)
    return chosen


def _divide(
    rows: Sequence[Row],
    order: Sequence[int],
    live: bytearray,
    by_uuid: dict[str | None, int],
    chosen: Selection,
) -> None:
    """Rows that are no ancestors: loose ones and those that hang on a live one are live, the others rewound."""
    alive: list[int] = []
    rewound: list[int] = []
    for number in order:
        row = rows[number]
        if live[number] or row.uuid is None:
            alive.append(number)
        elif row.type in SPOKEN:
            rewound.append(number)
        elif _beside_live(rows, number, live, by_uuid):
            live[number] = 1
            alive.append(number)
        elif row.attachment is not None:
            rewound.append(number)
    chosen.live, chosen.superseded = alive, rewound


def _walk(
    rows: Sequence[Row], leaf: int, by_uuid: dict[str | None, int], repeated: set[str], spoken: list[int]
) -> bytearray:
    live = bytearray(len(rows))

    def earlier(number: int) -> int:
        at = bisect_left(spoken, number) - 1
        while at >= 0 and live[spoken[at]]:
            at -= 1
        return spoken[at] if at >= 0 else -1

    number = leaf
    parents = [row.parent_uuid for row in rows]
    find = by_uuid.get
    while number >= 0:
        live[number] = 1
        parent = parents[number]
        following = -1
        if parent is not None:
            following = find(parent, -1)
        else:
            row = rows[number]
            if row.subtype == "compact_boundary":
                logical = row.logical_parent_uuid
                if logical is not None and logical not in repeated:
                    following = find(logical, -1)
            elif row.type == "user" and not row.is_compact_summary:
                break
        if following < 0 or live[following]:
            following = earlier(number)
        number = following
    return live


def _take_back(
    rows: Sequence[Row], missing: Iterable[int], live: bytearray, by_uuid: dict[str | None, int]
) -> None:
    """Rows of a live row's own response, and the results of its calls, are live too (official SDK 0.2.189)."""
    parents_of: dict[str, set[str | None]] = {}
    for number, is_live in enumerate(live):
        message = rows[number].message
        if is_live and message is not None and message.id is not None:
            parents_of.setdefault(message.id, set()).add(rows[number].parent_uuid)
    for number in missing:
        row = rows[number]
        parent = -1 if row.parent_uuid is None else by_uuid.get(row.parent_uuid, -1)
        if parent < 0 or not live[parent]:
            continue
        message = row.message
        if message is None:
            continue
        if row.type == "user":
            if holds_result(message) and rows[parent].type == "assistant":
                live[number] = 1
            continue
        if message.id is not None and message.id in parents_of:
            before = rows[parent].message
            if row.parent_uuid in parents_of[message.id] or (before is not None and before.id == message.id):
                live[number] = 1
                parents_of[message.id].add(row.parent_uuid)


def _beside_live(rows: Sequence[Row], number: int, live: bytearray, by_uuid: dict[str | None, int]) -> bool:
    """Whether a row that nobody speaks in hangs on a live one."""
    row = rows[number]
    parent = -1 if row.parent_uuid is None else by_uuid.get(row.parent_uuid, -1)
    if parent < 0 or not live[parent]:
        return False
    if row.type != "attachment":
        return True
    above = rows[parent]
    return above.type == "attachment" or (
        above.type == "user" and above.message is not None and holds_result(above.message)
    )
