"""Nothing that an agent says can steer the terminal it is printed on."""

from __future__ import annotations

import unicodedata

import pytest

from turnkeeper.cli.safe import printable

ATTACKS = {
    "retitle": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;ZXZpbA==\x1b\\",
    "hide": "\x1b[8mhidden\x1b[0m",
    "eight-bit csi": "\x9b2J",
    "query": "\x1b[6n",
    "rewrite line": "safe\rEVIL",
    "backspace": "abc\x08\x08\x08xyz",
    "bidi": "\u202egnp.exe",
    "half character": "\ud800",
    "nul": "a\x00b",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_terminal_sees_no_control_character(name: str) -> None:
    shown = printable(ATTACKS[name])
    assert all(unicodedata.category(c) not in {"Cc", "Cs"} or c in "\n\t" for c in shown)
    assert "\u202e" not in shown
    shown.encode("utf-8")


def test_the_signs_say_what_was_there() -> None:
    assert printable("\x1b[2J\x00\x7f\x9b\r") == "␛[2J␀␡\\x9b␍"
    assert printable("\ud800 \u202e") == "\\ud800 \\u202e"


def test_plain_text_in_any_language_is_left_as_it_is() -> None:
    text = "Grüße, 你好, مرحبا, 👩‍👩‍👧\n\ttabs and lines\n"
    assert printable(text) == text


def test_windows_line_ends_become_plain_ones() -> None:
    assert printable("a\r\nb") == "a\nb"


def test_every_code_point_below_the_astral_planes_comes_out_encodable_and_inert() -> None:
    shown = printable("".join(map(chr, range(0x10000))))
    shown.encode("utf-8")
    assert not any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in shown)
