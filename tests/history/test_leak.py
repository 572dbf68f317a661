"""Markup that leaked, markup that is only shown, and both cut into chunks at every place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.history.leak_samples import CONTROLS, LEAKS
from tests.history.say import assistant, call, result, roles, tool, user
from turnkeeper.history.feed import build_feed
from turnkeeper.history.leak import (
    DIALECTS,
    LeakScanner,
    clean_tool_name,
    find_leak,
    find_leak_in,
    may_hold_markup,
)


@pytest.mark.parametrize("name", LEAKS)
def test_leaked_markup_is_found(name: str) -> None:
    assert find_leak_in(LEAKS[name]) is not None


@pytest.mark.parametrize("name", CONTROLS)
def test_what_only_looks_like_it_is_not(name: str) -> None:
    assert find_leak_in(CONTROLS[name]) is None


@pytest.mark.parametrize("name", LEAKS)
def test_the_fast_look_never_says_no_to_a_leak(name: str) -> None:
    assert may_hold_markup(LEAKS[name])


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_found_wherever_a_chunk_ends(name: str) -> None:
    text = LEAKS[name]
    for cut in range(1, len(text)):
        scanner = LeakScanner()
        shown = scanner.feed(text[:cut])
        shown = max(shown, scanner.feed(text[cut:]))
        leak = scanner.finish()
        assert leak == find_leak_in(text)
        assert leak is not None
        assert shown <= leak.start


@pytest.mark.parametrize("name", {**LEAKS, **CONTROLS})
def test_a_text_that_comes_letter_by_letter_gets_the_same_verdict(name: str) -> None:
    text = {**LEAKS, **CONTROLS}[name]
    scanner = LeakScanner()
    shown = [scanner.feed(letter) for letter in text]
    assert shown == sorted(shown)
    assert scanner.finish() == find_leak_in(text)
    if name in CONTROLS:
        assert scanner.released == len(text)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_harmless_text_is_held_back_only_for_a_moment(name: str) -> None:
    """Nothing stays hidden longer than a line, or a tag with what may follow it."""
    text = CONTROLS[name]
    scanner = LeakScanner()
    for at, letter in enumerate(text, 1):
        assert at - scanner.feed(letter) <= 260


def test_plain_words_are_shown_at_once() -> None:
    scanner = LeakScanner()
    assert scanner.feed("Hello") == 5
    assert scanner.feed(" world, 2 ") == 15
    assert scanner.feed("<") == 15
    assert scanner.feed(" 3 is true") == 26


def test_the_client_never_sees_a_marker_that_is_split_over_two_chunks() -> None:
    """R099: hello<\u2016DS | ML\u2016tool_calls>world."""
    scanner = LeakScanner()
    assert scanner.feed("hello<\u2016DS") == 5
    assert scanner.feed("ML\u2016tool_calls>world") == 5
    leak = scanner.finish()
    assert leak is not None
    assert (leak.dialect, leak.start) == ("dsml", 5)


def test_markup_beside_a_real_call_is_none() -> None:
    text = LEAKS["tool_call with json"]
    assert find_leak(assistant("a", text, call("c1"))) is None
    scanner = LeakScanner()
    scanner.feed(text)
    assert scanner.finish(has_calls=True) is None


def test_markup_that_the_user_asked_for_is_none_unless_a_call_was_promised() -> None:
    text = LEAKS["tool_call with json"]
    asked = "Please show me how a <tool_call> looks, without a fence."
    assert find_leak_in(text, asked=asked) is None
    assert find_leak_in(text, asked="Please list the files.") is not None
    assert find_leak_in(text, asked=asked, stop_reason="tool_use") is not None


def test_a_fence_that_never_closes_hides_no_promised_call() -> None:
    text = '```\n<invoke name="Read">\n<parameter name="p">a</parameter>\n</invoke>'
    assert find_leak_in(text) is None
    assert find_leak_in(text, stop_reason="tool_use") is not None
    assert find_leak_in(text + "\n```\n", stop_reason="tool_use") is None


def test_a_call_name_loses_the_control_tokens_that_leaked_into_it() -> None:
    assert clean_tool_name("search<|channel|>commentary") == "search"
    assert clean_tool_name("search") == "search"


def test_a_leaked_answer_is_not_fed_and_its_neighbours_are_one() -> None:
    history = [user("m1", "hash it"), assistant("m2", LEAKS["dsml full width"]), user("m3", "and?")]
    feed = build_feed(history)
    assert roles(feed) == ["user"]
    assert [c.rule for c in feed.changes if c.message == "m2"] == ["leaked_markup"]


def test_an_answer_about_markup_stays_in_the_feed() -> None:
    history = [user("m1", "what does qwen write?"), assistant("m2", CONTROLS["fenced"]), user("m3", "thanks")]
    assert roles(build_feed(history)) == ["user", "assistant", "user"]


def test_a_result_that_holds_markup_is_data() -> None:
    history = [
        user("m1", "read the log"),
        assistant("m2", call("c1")),
        tool("m3", result("c1", LEAKS["naked function"])),
        user("m4", "go on"),
    ]
    assert roles(build_feed(history)) == ["user", "assistant", "tool", "user"]


PIECES = (
    (
        "<",
        "tool_call>",
        "\n",
        "`",
        "```",
        "```\n",
        " ",
        "{",
        "invoke name=",
        '"x">',
        "<|",
        "channel|>",
        "a",
        "> ",
    ),
    (
        "- ",
        "1. ",
        "- ```\n",
        "call\n",
        "    ",
        "[TOOL_CALLS]",
        "assistant",
        "final",
        "text ",
        "\uff5c",
        "DSML",
        "~~~\n",
        "</",
        "\t",
    ),
)
pieces = st.lists(st.sampled_from([*PIECES[0], *PIECES[1]]), max_size=25)


@settings(max_examples=1500, deadline=None)
@given(pieces, st.sampled_from([None, "tool_use"]))
def test_cuts_never_change_the_verdict(chunks: list[str], stop_reason: str | None) -> None:
    text = "".join(chunks)
    whole = LeakScanner()
    whole.feed(text)
    verdict = whole.finish(stop_reason=stop_reason)
    scanner = LeakScanner()
    shown = 0
    for chunk in chunks:
        now = scanner.feed(chunk)
        assert shown <= now <= len(text)
        shown = now
    assert scanner.finish(stop_reason=stop_reason) == verdict
    if verdict is not None and verdict == scanner._found:
        assert shown <= verdict.start


def test_the_time_to_scan_is_linear_in_the_text() -> None:
    """Hostile texts: every head begun and never finished, backticks without end, one endless line."""
    for unit in ("<", "`", "<tool_call", "assistan", "``` ", "court\n", "<invoke name=", "    \n"):
        steps = []
        for size in (2_000, 20_000):
            scanner = LeakScanner()
            text = unit * (size // len(unit))
            for at in range(0, len(text), 1000):
                scanner.feed(text[at : at + 1000])
            scanner.finish()
            steps.append(scanner._base)
        assert steps[1] <= 20_000


def test_every_dialect_is_in_the_samples() -> None:
    found = {leak.dialect for text in LEAKS.values() if (leak := find_leak_in(text)) is not None}
    assert {d.name for d in DIALECTS} - found == {"arg_key"}
