"""Hypothesis strategies for cleaned feeds: in order and paired as the feed rules leave them, odd in all else."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Attachment, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.provider.wire import raw_block

HERE = Origin("here", "m-1", "acc")
"""The origin that requests are built for."""
THERE = Origin("there", "m-2", "acc")

odd_text = st.text(alphabet=st.characters(codec=None), max_size=12)
awkward = st.sampled_from(["a\0b", "\ud800", "x\udc00y", "\ue000d800", "漢字 \U0001f600", "\\u0000", " pad "])
words = st.one_of(st.text(min_size=1, max_size=20), awkward).filter(
    lambda text: text.replace("\0", "").strip()
)
"""Text that is not blank."""

json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | odd_text | awkward,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_text, inner, max_size=3),
    max_leaves=8,
)
arguments = st.one_of(st.dictionaries(odd_text, json_values, max_size=3), json_values)
names = st.one_of(
    st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True),
    st.sampled_from(["", "a.b", "mcp:server/tool", "n" * 300, "é", "1st", "-x", "\ud800"]),
)
ids = st.one_of(
    st.sampled_from(
        ["a", "b", "call_1", "toolu_01", "functions.eval:3", "x" * 391, "", "abcdefgh1", "é", "null"]
    ),
    st.text(min_size=1, max_size=12),
)
files = st.builds(
    Attachment,
    attachment_id=st.just("f_1"),
    name=odd_text,
    media_type=st.sampled_from(["image/png", "application/pdf", "text/plain", "application/zip"]),
    transcript=st.one_of(st.none(), words),
)
raw_blocks = st.dictionaries(st.text(min_size=1, max_size=5), json_values, max_size=2).map(
    lambda more: {**more, "type": "brand_new"}
)


@st.composite
def thoughts(draw: st.DrawFn) -> Thinking:
    """Signed, unsigned, empty, with an item id or not."""
    signature = draw(st.one_of(st.none(), st.just(""), st.just("sig")))
    bound = draw(
        st.one_of(st.none(), st.just({"item_id": "rs_1", "summary": []}), st.just({"field": "reasoning"}))
    )
    return Thinking(draw(odd_text), signature, bound=bound)


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    """Any arguments, as streamed or not."""
    raw = draw(st.one_of(st.none(), st.just('{"x": '), st.just('{"x": 1}'), st.just(""), odd_text))
    bound = draw(st.one_of(st.none(), st.just({"item_id": "fc_1"}), st.just({"thought_signature": "c2ln"})))
    return ToolCall(draw(ids), draw(names), draw(arguments), raw, bound=bound)


results = st.builds(
    ToolResult,
    tool_call_id=st.just(""),
    content=st.one_of(
        odd_text,
        words,
        json_values,
        st.just([{"type": "text", "text": "x"}, {"type": "image", "mimeType": "image/png", "data": "aGk="}]),
    ),
    is_error=st.booleans(),
)
opaque = raw_blocks.map(lambda block: Opaque("brand_new", block=raw_block(block)))
server_call = st.builds(ToolCall, id=ids, name=names, server_side=st.just(True))


@st.composite
def feeds(draw: st.DrawFn, *, ends: int = 1) -> list[list[Message]]:
    """Closed turns and an open one: each a list of messages; joined they are a cleaned feed."""
    number = 0

    def message(role: str, parts: list[Part], **more: Any) -> Message:
        nonlocal number
        number += 1
        return Message(message_id=f"m{number}", role=role, parts=tuple(parts), **more)

    turns: list[list[Message]] = []
    for last in [False] * draw(st.integers(0, 3)) + [True] * ends:
        said: list[Part] = [Text(draw(words))]
        if draw(st.booleans()):
            said.append(draw(st.one_of(files, st.builds(Text, text=words))))
        turn = [message("user", said)]
        for _ in range(draw(st.integers(0, 2))):
            made = draw(st.lists(calls(), min_size=1, max_size=3))
            before = draw(st.lists(st.one_of(thoughts(), st.builds(Text, text=words), opaque), max_size=2))
            turn.append(message("assistant", [*before, *made], **origin(draw)))
            answers = [msgspec.structs.replace(draw(results), tool_call_id=call.id) for call in made]
            if draw(st.booleans()):
                turn.append(message("tool", list(answers)))
            else:
                turn += [message("tool", [answer]) for answer in answers]
            if draw(st.booleans()):
                turn.append(message("user", [Text(draw(words))]))
        if not last:
            more = draw(st.lists(st.one_of(thoughts(), server_call, opaque), max_size=2))
            turn.append(message("assistant", [*more, Text(draw(words))], **origin(draw)))
        turns.append(turn)
    return turns


def origin(draw: st.DrawFn) -> dict[str, Any]:
    """An assistant message came from here, from elsewhere, or from nobody knows where."""
    return {"origin": draw(st.sampled_from([HERE, THERE, None]))}
