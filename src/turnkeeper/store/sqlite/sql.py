"""Named statements, read from the .sql files once.

`-- name --` on a line of its own begins a statement. `many(name, rows)` repeats the row group of a
statement's `VALUES (...)`, so that one call into SQLite stores many rows: each call gives up Python's
global lock and takes it back, which under load costs more than the row itself.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

_NAME: Final = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_ROW: Final = re.compile(r"^VALUES (\([?, ]+\))", re.MULTILINE)

ROWS_MAX: Final = 64
"""Most rows that one statement stores; the numbers used are the powers of two up to it."""


def _load() -> dict[str, str]:
    text = resources.files(__package__).joinpath("queries.sql").read_text(encoding="utf-8")
    _, *pieces = _NAME.split(text)
    return {name: body.strip() for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


QUERIES: Final[dict[str, str]] = _load()


@cache
def many(name: str, rows: int) -> str:
    """The statement `name` for `rows` rows at once."""
    text = QUERIES[name]
    found = _ROW.search(text)
    assert found is not None, name
    return text[: found.start(1)] + ", ".join([found[1]] * rows) + text[found.end(1) :]


def migrations() -> list[tuple[int, str]]:
    """The numbered migrations, in order: (number, script)."""
    folder = resources.files(__package__).joinpath("migrations")
    scripts = [
        (int(entry.name[:4]), entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(scripts)
