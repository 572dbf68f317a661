"""A CLI's words about the end of a limit, as a moment."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turnkeeper.retained.adapters.looks import limit_note, resets_in
from turnkeeper.retained.resets import moment
from turnkeeper.terminal.screen import read_screen

NOW = datetime(2026, 11, 30, 17, 30, 0, tzinfo=UTC).timestamp()
HOUR = 3600.0


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("6pm", HOUR / 2),
        ("6 PM", HOUR / 2),
        ("5pm", 23.5 * HOUR),
        ("18:05", 35 * 60),
        ("12am", 6.5 * HOUR),
        ("12:15pm", 18.75 * HOUR),
        ("2h 5m", 2 * HOUR + 300),
        ("90 seconds", 90),
        ("2026-11-30T17:31:00Z", 60),
        ("2026-11-30T18:30:00+01:00", 0),
    ],
)
def test_words_mean_the_next_such_moment(words: str, seconds: float) -> None:
    assert moment(words, NOW, 0) == NOW + seconds


def test_a_time_of_day_is_local() -> None:
    assert moment("7pm", NOW, HOUR) == NOW + HOUR / 2


@pytest.mark.parametrize("words", ["25:00", "7", "99pm", "soon", "2026-99-99T00:00:00Z"])
def test_words_that_mean_nothing_give_no_moment(words: str) -> None:
    assert moment(words, NOW, 0) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("usage limit reached, resets 6pm", "6pm"),
        ("You've hit your limit. It resets at 18:05 (UTC)", "18:05"),
        ("Try again in 2h 5m", "2h 5m"),
        ("Your limit resets at 2026-11-30T18:00:00Z", "2026-11-30T18:00:00Z"),
        ("the counter resets often", ""),
    ],
)
def test_the_words_are_found(text: str, words: str) -> None:
    assert resets_in(text) == words


@pytest.mark.parametrize(
    ("screen", "seen"),
    [
        ("some long prefix before usage limit reached, resets 6pm\n", True),
        ("usage limit reached\n", False),
        ("● The usage limit reached its maximum, it resets 6pm\n", False),
        ("❯ why: usage limit reached, resets 6pm\n", False),
        ("usage limit reached, resets 6pm\n" + "● later words\n" * 9, False),
    ],
    ids=["a note", "no end named", "the model's words", "a person's words", "long past"],
)
def test_a_note_above_the_composer_is_a_limit_only_if_it_says_when_it_is_over(
    screen: str, seen: bool
) -> None:
    assert (limit_note(read_screen(screen, "").lines) is not None) is seen
