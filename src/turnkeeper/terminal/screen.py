"""How a captured screen becomes lines: words, and which of them are drawn dim.

Hints in an empty composer ("Ask Codex to do anything") look like typed words in plain text; programs draw
them dim. So a capture keeps its colour codes until here, and a line knows its words with and without the
dim ones.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

ESCAPE: Final = re.compile(
    "\x1b\\[([0-9;:]*)m|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[()][A-Z0-9]|\x0e|\x0f"
)


class Line(msgspec.Struct, frozen=True):
    """A line as written, without trailing blanks. `typed` is the same with its dim characters taken out."""

    text: str
    typed: str


class Screen(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on a screen, top to bottom, trailing empty lines dropped."""

    lines: tuple[Line, ...]
    title: str = ""

    @property
    def text(self) -> str:
        """All lines, as text."""
        return "\n".join(line.text for line in self.lines)

    @property
    def bare(self) -> str:
        """All text without any white space: repaints put other blanks between words (Codeman PR#249)."""
        return "".join(self.text.split())


def read_line(raw: str) -> Line:
    """A captured line with its SGR codes as a Line."""
    if "\x1b" not in raw and "\x0e" not in raw:
        text = raw.rstrip()
        return Line(text, text)
    words: list[str] = []
    typed: list[str] = []
    dim = False
    at = 0
    for found in ESCAPE.finditer(raw):
        piece = raw[at : found.start()]
        words.append(piece)
        if not dim:
            typed.append(piece)
        at = found.end()
        if found.group(1) is not None:
            dim = _dim_after(found.group(1), dim=dim)
    words.append(raw[at:])
    if not dim:
        typed.append(raw[at:])
    return Line("".join(words).rstrip(), "".join(typed).rstrip())


def _dim_after(codes: str, *, dim: bool) -> bool:
    numbers = re.split("[;:]", codes) if codes else ["0"]
    index = 0
    while index < len(numbers):
        code = numbers[index]
        if code in {"38", "48", "58"}:
            index += 3 if numbers[index + 1 : index + 2] == ["5"] else 5
            continue
        if code == "2":
            dim = True
        elif code in {"", "0", "22"}:
            dim = False
        index += 1
    return dim


def read_screen(raw: str, title: str = "") -> Screen:
    """A whole capture, lines divided by LF, as a Screen."""
    lines = [read_line(line) for line in raw.split("\n")]
    while lines and not lines[-1].text:
        lines.pop()
    return Screen(lines=tuple(lines), title=title)
