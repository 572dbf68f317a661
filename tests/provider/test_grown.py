"""Closed turns are encoded once: the bytes are those of the whole, for every dialect and whatever is appended."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.history.strategies import histories
from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Text, ToolCall, ToolResult
from turnkeeper.history.builder import FeedBuilder
from turnkeeper.port.provider import ProviderFailed
from turnkeeper.provider import build as build_module
from turnkeeper.provider.build import Builder
from turnkeeper.provider.dialects import DIALECTS

HERE = Origin("anthropic", "m", "acct")


def built(builder: Builder, feed: Any, **how: Any) -> Any:
    try:
        return builder.build(feed, instructions="Be kind.", tools=(), options=how)
    except ProviderFailed as failed:
        return failed.failure


def turn(n: int, *, tool: bool = False) -> list[Message]:
    calls = (ToolCall(f"c{n}", "act", {"n": n}),)
    work = [
        Message(message_id=f"a{n}", role="assistant", parts=calls),
        Message(message_id=f"r{n}", role="tool", parts=(ToolResult(f"c{n}", f"acted {n}"),)),
    ]
    return [
        Message(message_id=f"u{n}", role="user", parts=(Text(f"ask {n}"),)),
        *(work if tool else ()),
        Message(message_id=f"e{n}", role="assistant", parts=(Text(f"answer {n}"),), origin=HERE),
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
@given(history=histories, more=histories, thinking=st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_growing_conversation_is_sent_as_a_whole_one_is(
    dialect: str, history: list[Message], more: list[Message], thinking: bool
) -> None:
    growing, kept = FeedBuilder(), Builder(dialect, HERE)
    told = 0
    said = [
        *turn(0),
        *history,
        *turn(1, tool=True),
        *more,
        *turn(2),
        Message(message_id="last", role="user", parts=(Text("and?"),)),
    ]
    said = [msgspec.structs.replace(message, message_id=f"n{n}") for n, message in enumerate(said)]
    for upto in {len(said) // 3, len(said) // 2, len(said) - 3, len(said)} | {1}:
        if upto > told:
            growing.extend(said[told:upto])
            told = upto
        feed = growing.feed().messages
        fresh = Builder(dialect, HERE)
        assert built(kept, feed, thinking=thinking) == built(fresh, list(feed), thinking=thinking)
        assert kept.names == {**kept.names, **fresh.names}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_closed_turns_are_encoded_once(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    real = build_module.dialect_named(dialect)

    def counting(feed: Any, **how: Any) -> Any:
        encoded.append(len(feed))
        return real.encode(feed, **how)

    builder = Builder(dialect, HERE)
    builder._dialect = msgspec.structs.replace(real, encode=counting)
    growing = FeedBuilder([message for n in range(50) for message in turn(n, tool=True)])
    for n in range(50, 55):
        growing.extend([Message(message_id=f"u{n}", role="user", parts=(Text(f"ask {n}"),))])
        feed = growing.feed().messages
        encoded.clear()
        data = builder.build(feed, instructions="Be kind.", tools=(), options={})
        if n > 50:
            assert max(encoded) <= 5
        assert data == Builder(dialect, HERE).build(list(feed), instructions="Be kind.", tools=(), options={})
        growing.extend(turn(n, tool=True)[1:])


@pytest.mark.parametrize("odd", ["same id", "other options", "marked", "instructions"])
@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat", "gemini"])
def test_what_reaches_back_is_encoded_anew(dialect: str, odd: str) -> None:
    builder = Builder(dialect, HERE)
    first = (
        [Message(message_id="s", role="system", parts=(Text("Speak low."),))] if odd == "instructions" else []
    )
    growing = FeedBuilder([*first, *[message for n in range(3) for message in turn(n, tool=True)]])
    growing.extend([Message(message_id="q", role="user", parts=(Text("q"),))])
    builder.build(growing.feed().messages, instructions="", tools=(), options={})
    options: dict[str, Any] = {}
    if odd == "same id":
        growing.extend(turn(1, tool=True)[1:])
        growing.extend([Message(message_id="q2", role="user", parts=(Text("q2"),))])
    elif odd == "instructions":
        growing.extend([*turn(4)[2:], *turn(5)])
        growing.extend([Message(message_id="q2", role="user", parts=(Text("q2"),))])
    elif odd == "other options":
        options = {"thinking": True}
    else:
        messages = [m for n in range(3) for m in turn(n, tool=True)]
        messages[3] = msgspec.structs.replace(messages[3], replay=False)
        growing.replace([*messages, Message(message_id="q", role="user", parts=(Text("q"),))])
    feed = growing.feed().messages
    given = {"instructions": "", "tools": (), "options": options}
    assert builder.build(feed, **given) == Builder(dialect, HERE).build(list(feed), **given)
