"""Trees of rows: which of them are the ancestry of the newest one."""

from __future__ import annotations

from collections.abc import Sequence


def ancestry(ids: Sequence[str | None], parents: Sequence[str | None], leaf: int) -> bytearray:
    """For each row 1 if it is `leaf` or an ancestor of it, else 0.

    The first row of an id counts. A parent that is not there, or a circle, goes on at the nearest earlier
    row: what came before is never lost because a link is broken.
    """
    by_id: dict[str, int] = {}
    for number, name in enumerate(ids):
        if name is not None:
            by_id.setdefault(name, number)
    live = bytearray(len(ids))
    number = leaf
    while number >= 0:
        live[number] = 1
        parent = parents[number]
        if parent is None:
            break
        following = by_id.get(parent, -1)
        if following < 0 or live[following]:
            following = number - 1
            while following >= 0 and (live[following] or ids[following] is None):
                following -= 1
        number = following
    return live
