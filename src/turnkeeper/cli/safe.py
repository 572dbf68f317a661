"""Text from agents, tools and other people, made safe for a terminal.

A terminal obeys escape sequences: it can be made to retitle the window, hide text, answer queries into
the shell's input, or write the clipboard. Nothing that came from outside is printed before `printable`
has turned every control character into a visible sign.
"""

from __future__ import annotations

import re
from typing import Final

_KEPT: Final = "\n\t"

_UNSAFE: Final = re.compile(
    "\r\n"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without newline and tab, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that turn the direction of text
    "\u2028\u2029"  # line ends of their own
    "\ud800-\udfff"  # half characters: they cannot be written at all
    "\ufff9-\ufffb"  # interlinear notes
    "]"
)


def _visible(match: re.Match[str]) -> str:
    found = match.group()
    if found == "\r\n":
        return "\n"
    code = ord(found)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code <= 0x9F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}"


def printable(text: str) -> str:
    """`text` without anything that a terminal would obey: ESC becomes the sign ␛, a lone CR ␍ and so on."""
    return _UNSAFE.sub(_visible, text)
