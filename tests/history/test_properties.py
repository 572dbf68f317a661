"""What holds for every history, also for nonsense."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.history.say import assistant, user
from tests.history.strategies import HERE, histories, nonsense, number
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Opaque, Text, Thinking, ToolCall, ToolResult
from turnkeeper.history import rules
from turnkeeper.history.builder import FeedBuilder
from turnkeeper.history.feed import Feed, build_feed
from turnkeeper.history.row import FeedOptions
from turnkeeper.provider.dialects import DIALECTS, encode, validate

MANY = settings(max_examples=200, deadline=None)
PLAIN = FeedOptions(for_request=False)
expiries = st.frozensets(st.sampled_from([f"m{i}" for i in range(12)]), max_size=3)


def client_calls(message: Message) -> list[ToolCall]:
    return [p for p in message.parts if isinstance(p, ToolCall) and not p.server_side]


def shape_faults(feed: Sequence[Message]) -> list[str]:
    """What is wrong with a feed by the greatest common denominator (wire rules 1g), read afresh."""
    faults: list[str] = []
    rest = list(feed)
    while rest and rest[0].role == "system":
        rest.pop(0)
    if rest and rest[0].role != "user":
        faults.append("it does not begin with the user")
    if rest and rest[-1].role == "assistant":
        faults.append("it ends with the assistant")
    for a, b in pairwise(rest):
        if a.role == b.role:
            faults.append(f"two {a.role} in a row")
    for i, message in enumerate(rest):
        before = rest[i - 1] if i else None
        if message.role not in ("user", "assistant", "tool"):
            faults.append(f"role {message.role}")
        if not message.parts:
            faults.append("an empty message")
        calls = client_calls(message)
        if message.role == "assistant":
            after = rest[i + 1] if i + 1 < len(rest) else None
            answers = (
                [p.tool_call_id for p in after.parts] if after is not None and after.role == "tool" else []
            )  # type: ignore[union-attr]
            if [c.id for c in calls] != answers:
                faults.append(f"calls {[c.id for c in calls]} and results {answers}")
            seen = False
            for part in message.parts:
                seen = seen or part in calls
                if seen and isinstance(part, Text):
                    faults.append("text after a call")
            if all(isinstance(p, Thinking) for p in message.parts):
                faults.append("thinking only")
        elif calls:
            faults.append(f"a call in a message of {message.role}")
        if message.role == "tool" and (before is None or before.role != "assistant"):
            faults.append("results without calls")
        for part in message.parts:
            faults += part_faults(message, part)
    return faults


def part_faults(message: Message, part: object) -> list[str]:
    faults = []
    if isinstance(part, Text):
        if not part.text.strip():
            faults.append("blank text")
        if "\0" in part.text or any("\ud800" <= c <= "\udfff" for c in part.text):
            faults.append("text that cannot be sent")
    if isinstance(part, ToolResult) and not part.server_side:
        if message.role != "tool":
            faults.append("a result outside a tool message")
        if part.content in ("", None, [], {}) or (isinstance(part.content, str) and not part.content.strip()):
            faults.append("an empty result")
        msgspec.json.encode(part.content)
    if isinstance(part, ToolCall):
        if not isinstance(part.arguments, dict):
            faults.append("arguments that are no object")
        if not part.name:
            faults.append("a call without a name")
        msgspec.json.encode(part.arguments)
    return faults


@MANY
@given(histories, expiries)
def test_every_feed_has_the_shape_that_all_providers_take(
    history: list[Message], expired: frozenset[str]
) -> None:
    assert shape_faults(build_feed(history, expired=expired).messages) == []


@MANY
@given(histories, expiries)
def test_cleaning_a_feed_changes_nothing(history: list[Message], expired: frozenset[str]) -> None:
    once = build_feed(history, expired=expired).messages
    assert build_feed(once, expired=expired).messages == once


@MANY
@given(histories)
def test_every_message_is_in_the_sources_or_in_the_changes(history: list[Message]) -> None:
    feed = build_feed(history)
    told = {s for sources in feed.sources for s in sources} | {c.message for c in feed.changes}
    assert {m.message_id for m in history} <= told


@MANY
@given(histories, expiries)
def test_the_history_itself_is_never_changed(history: list[Message], expired: frozenset[str]) -> None:
    before = msgspec.msgpack.encode([str(m) for m in history])
    build_feed(history, expired=expired)
    assert msgspec.msgpack.encode([str(m) for m in history]) == before


REPLACED_BY = {
    "display_only",
    "expired_confirmation",
    "trailing_duplicate",
    "one_summary",
    "well_formed_text",
    "nothing_empty",
    "system_first",
}


@MANY
@given(histories, expiries)
def test_every_word_of_the_user_is_there_or_replaced_by_a_named_rule(
    history: list[Message], expired: frozenset[str]
) -> None:
    feed = build_feed(history, expired=expired)
    texts = [p.text for m in feed.messages if m.role == "user" for p in m.parts if isinstance(p, Text)]
    told = {(c.message, c.rule) for c in feed.changes}
    for message in history:
        if message.role != "user":
            continue
        for part in message.parts:
            if isinstance(part, Text) and part.text not in texts:
                assert any((message.message_id, rule) in told for rule in REPLACED_BY), (part, feed.changes)


@MANY
@given(histories)
def test_an_executed_call_never_disappears(history: list[Message]) -> None:
    """A call of a whole message that has a real result stays, with it or with a notice of it."""
    feed = build_feed(history)
    fed = [c.id for m in feed.messages for c in client_calls(m)]
    for i, message in enumerate(history):
        if message.role != "assistant" or not message.replay or message.standing != "complete":
            continue
        for part in client_calls(message):
            answered = any(
                isinstance(p, ToolResult)
                and p.tool_call_id == part.id
                and not p.synthetic
                and not p.server_side
                for m in history[i + 1 : i + 2]
                if m.role == "tool" and m.replay
                for p in m.parts
            )
            if answered and "\udc00" not in part.id and part.name != "read_file":
                assert part.id in fed


@MANY
@given(histories, expiries)
def test_the_fast_look_never_hides_a_sick_row(history: list[Message], expired: frozenset[str]) -> None:
    with patch.object(rules, "look", lambda rows, run: None):
        careful = build_feed(history, expired=expired)
    fast = build_feed(history, expired=expired)
    assert fast.messages == careful.messages
    assert fast.changes == careful.changes


healthy_tail = [assistant("a1", "A whole answer.", turn_id="t9"), user("u1", "A new question.")]


@MANY
@given(histories, st.lists(nonsense, max_size=4))
def test_what_was_sent_stays_as_it_was_when_messages_are_added(
    history: list[Message], more: list[Message]
) -> None:
    feed = build_feed(history)
    assume(all(c.rule != "ended_by_user" for c in feed.changes))
    assume(feed.messages and feed.messages[-1].role in ("user", "tool"))
    later = [m for m in number(more, 100) if m.provenance != "summary"]
    after = build_feed([*history, *healthy_tail, *later])
    assert after.messages[: len(feed.messages)] == feed.messages


SUMMED_UP_TWICE = [
    Message(message_id="m0", role="user", parts=(), provenance="summary"),
    Message(message_id="m1", role="assistant", parts=(Text("hello"),), origin=HERE),
    Message(message_id="m2", role="user", parts=(Text("hello"),), provenance="summary"),
]


@MANY
@example(history=SUMMED_UP_TWICE, expired=frozenset(), cut=0)
@example(history=SUMMED_UP_TWICE, expired=frozenset(), cut=2)
@given(history=histories, expired=expiries, cut=st.integers(0, 12))
def test_a_growing_feed_is_the_feed_of_the_whole(
    history: list[Message], expired: frozenset[str], cut: int
) -> None:
    builder = FeedBuilder(history[:cut], expired=expired)
    builder.feed()
    builder.extend(history[cut:])
    grown, whole = builder.feed(), build_feed(history, expired=expired)
    assert list(grown.messages) == list(whole.messages)
    assert list(grown.sources) == list(whole.sources)


THOUGHT = Opaque("odd", block=msgspec.Raw(b'{"type": "redacted_thinking", "data": "zz"}'))


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@settings(max_examples=100, deadline=None)
@given(history=histories)
@example(history=[Message(message_id="m0", role="user", parts=(THOUGHT,), origin=HERE)])
def test_every_dialect_takes_every_history(dialect: str, history: list[Message]) -> None:
    feed: Feed = build_feed(history)
    assume(feed.messages and any(m.role != "system" for m in feed.messages))
    encoded = encode(dialect, feed.messages, origin=HERE, options={"thinking": True})
    assert validate(dialect, encoded.body) == ()
    originals = [c.id for m in feed.messages for c in client_calls(m)]
    assert [original for _, original in encoded.calls] == originals
    assert len({wire for wire, _ in encoded.calls}) == len(originals)
    encoded.to_bytes().decode()
