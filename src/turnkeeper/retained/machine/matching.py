"""Which of our texts a record or a composer holds.

Transcripts are compared by key (the adapter's normaliser made both sides), occurrence by occurrence: a record proves
one text, the first in order that still waits for one. Some CLIs join what was queued into one record; then the record
proves all texts that it is made of. Composers are compared without white space, for a screen re-flows text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from turnkeeper.retained.machine.state import Item
from turnkeeper.retained.signs import Composer, Reading

OURS_CHARS = 12
"""A longer piece of a composer is taken for ours if one of our texts contains it; a shorter one must begin it."""


def squash(text: str) -> str:
    """The text without any white space."""
    return "".join(text.split())


def proven(items: Sequence[Item], key: str, given_id: str = "") -> tuple[Item, ...]:
    """The items that a record with this key proves: one that equals it, or several that it joins, in order.

    `given_id`: the id under which the text of the record was given; ours tells equal texts apart.
    """
    waiting = [
        item for item in items if not item.confirmed and (item.enters > 0 or item.accepted or item.tried)
    ]
    named = tuple(item for item in waiting if given_id and item.given_id == given_id)
    if named and named[0].key == key:
        return named
    for item in waiting:
        if item.key == key:
            return (item,)
    for first in range(len(waiting)):
        rest = key
        taken: list[Item] = []
        for item in waiting[first:]:
            if not rest.startswith(item.key):
                break
            taken.append(item)
            rest = rest[len(item.key) :].lstrip("\n")
            if not rest and len(taken) > 1:
                return tuple(taken)
    # A CLI may change what nobody measured: blanks, or letters of another width or composition.
    looks = bare(key)
    return named or tuple(item for item in waiting if bare(item.key) == looks)[:1]


def bare(text: str) -> str:
    """The text without white space and without differences of form."""
    return squash(unicodedata.normalize("NFKC", text))


def ours(items: Sequence[Item], past: Sequence[str], reading: Reading) -> bool:
    """Whether the composer's text is one that we pasted: then it may be cleared. A person's draft never may."""
    pasted = [squash(item.text) for item in items if item.pastes > 0]
    known = [*pasted, *past]
    if reading.composer is not Composer.TEXT or not known:
        return False
    if reading.placeholder:
        return True
    seen = squash(reading.text)
    return any(
        text.startswith(seen) or seen.startswith(text) or (len(seen) >= OURS_CHARS and seen in text)
        for text in known
        if text
    )
