"""The registry of dialects: the plain conversation goes through every one of them."""

from __future__ import annotations

import msgspec
import pytest

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Text, ToolCall, ToolResult
from turnkeeper.errors import BadInput
from turnkeeper.provider import dialects


def message(number: int, role: str, *parts: object) -> Message:
    return Message(message_id=f"m{number}", role=role, parts=parts)


FEED = [
    message(1, "user", Text("hi \ud800 there\0")),
    message(2, "assistant", Text("a"), ToolCall("c:1", "na me", {"x": 1}), ToolCall("c:1", "n", None)),
    message(3, "tool", ToolResult("c:1", "ok"), ToolResult("c:1", "")),
    message(4, "user", Text("go")),
]


@pytest.mark.parametrize("dialect", sorted(dialects.DIALECTS))
def test_a_clean_feed_is_accepted_by_its_own_dialect_and_its_ids_map_back(dialect: str) -> None:
    encoded = dialects.encode(dialect, FEED, origin=Origin("p", "m"), instructions="Be brief.")
    assert dialects.validate(dialect, encoded.body) == ()
    assert [original for _, original in encoded.calls] == ["c:1", "c:1"]
    assert len(encoded.ids) == 2
    text = encoded.to_bytes().decode()
    assert "hi \ufffd there" in text
    assert all(name in text for name in encoded.names)


@pytest.mark.parametrize("dialect", sorted(dialects.DIALECTS))
def test_what_was_sent_stays_byte_for_byte_when_more_is_added(dialect: str) -> None:
    options = {"cache": False}
    more = [*FEED, message(5, "assistant", Text("done")), message(6, "user", Text("and?"))]
    fields = dialects.dialect_named(dialect).body_fields
    short = dialects.encode(dialect, FEED, origin=Origin("p", "m"), options=options).body
    long = dialects.encode(dialect, more, origin=Origin("p", "m"), options=options).body
    for field in fields:
        before, after = (msgspec.json.encode(body.get(field, []))[:-1] for body in (short, long))
        assert after.startswith(before)


def test_an_unknown_dialect_is_named_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"no provider 'x'.*anthropic"):
        dialects.validate("x", {})
