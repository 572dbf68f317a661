"""Texts that nobody typed: the table in `injected.toml`, made fast to ask.

It is asked only about rows whose file does not say who wrote them. A leading `<tag>` that the table does
not know is counted by the readers (`Counters.wrappers`): the early warning that a CLI has changed.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Final

import msgspec

_LEADING_TAG: Final = re.compile(r"<([A-Za-z][\w-]*)[\s>]")
_WHOLE_TAG: Final = re.compile(r"<([A-Za-z][\w-]*)(?:\s[^>]*)?>.*</\1\s*>\s*\Z", re.DOTALL | re.IGNORECASE)


class Injected(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table; the file explains its fields."""

    cli: str
    match: str
    pattern: str
    kind: str
    notice: str
    action: str
    source: str
    begins: bool = False
    since: str | None = None
    until: str | None = None


class Table:
    """The injected texts of one CLI."""

    def __init__(self, rows: tuple[Injected, ...]) -> None:
        self._prefixes = tuple((row.pattern, row) for row in rows if row.match == "prefix")
        self._first_chars = frozenset(pattern[0] for pattern, _ in self._prefixes)
        self._starts = tuple(pattern for pattern, _ in self._prefixes)
        self._tags = {row.pattern.lower(): row for row in rows if row.match == "tag"}
        blocks = "|".join(re.escape(row.pattern) for row in rows if row.match == "tagged")
        self._block = re.compile(rf"\s*<({blocks})(?:\s[^>]*)?>.*?</\1>\s*", re.DOTALL) if blocks else None
        self._known = frozenset(re.split(r"[\s>]", row.pattern.lstrip("<"))[0].lower() for row in rows)

    def strip(self, text: str) -> str:
        """`text` without the leading blocks that the CLI put before a person's words."""
        if self._block is None or "<" not in text[:64]:
            return text
        at = 0
        while found := self._block.match(text, at):
            at = found.end()
        return text[at:] if at else text

    def find(self, text: str) -> Injected | None:
        """The line of the table that makes the whole `text` something nobody typed."""
        head = text.lstrip()[:1]
        if head in self._first_chars:
            start = text.lstrip()
            if start.startswith(self._starts):
                return next(row for pattern, row in self._prefixes if start.startswith(pattern))
        if head == "<" and self._tags and (found := _WHOLE_TAG.match(text.strip())):
            return self._tags.get(found.group(1).lower())
        return None

    def unknown_wrapper(self, text: str) -> str | None:
        """The tag that wraps the whole of `text`, if the table does not know it."""
        found = _WHOLE_TAG.match(text.strip())
        if found is None or found.group(1).lower() in self._known:
            return None
        return found.group(1)

    def unknown_leading(self, text: str) -> str | None:
        """The tag that `text` begins with, if the table does not know it."""
        found = _LEADING_TAG.match(text.lstrip())
        if found is None or found.group(1).lower() in self._known:
            return None
        return found.group(1)


class _File(msgspec.Struct):
    revision: int
    text: list[Injected]


@cache
def _file() -> _File:
    data = resources.files(__package__ or "").joinpath("injected.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(data), _File)


def revision() -> int:
    """Which edition of the table this is; readings that were stored name it."""
    return _file().revision


@cache
def table(cli: str) -> Table:
    """The injected texts of the format `cli`."""
    return Table(tuple(row for row in _file().text if row.cli == cli))
