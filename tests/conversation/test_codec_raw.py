"""Raw provider blocks and awkward characters through the codec, together."""

from __future__ import annotations

import json

import msgspec
import pytest

from turnkeeper.conversation import codec
from turnkeeper.conversation.events import MessageAppended
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Opaque, Text, Thinking, ToolCall, ToolResult
from turnkeeper.history.feed import build_feed
from turnkeeper.projection.view import message_view

RAW = b'{"type":"x","n":1.50,"s":"a\\u0041"}'
TEXTS = ("plain", "lone \ud800 half", "mark \ue000 itself", "\ue000d800", "é 漢 \U0001f600", "nul \0")


@pytest.mark.parametrize("text", TEXTS)
def test_a_message_with_raw_blocks_comes_back_word_for_word_beside_any_text(text: str) -> None:
    raw = msgspec.Raw(RAW)
    message = Message(
        message_id="m",
        role="assistant",
        parts=(
            Text(text, block=raw),
            Thinking(text, signature=text, block=raw),
            ToolCall("i", "n", {text: [text, {"k": text}]}, block=raw),
            ToolResult("i", [{"text": text}], block=raw),
            Opaque("x", {"v": text}, block=raw),
        ),
        envelope=raw,
    )
    for back in (
        codec.decode(codec.encode(message), Message),
        codec.decode_message(codec.encode(message)),
        codec.decode_body("MessageAppended", codec.encode_body(MessageAppended(message))).message,
    ):
        assert back == message
        assert bytes(back.envelope) == RAW
        assert [bytes(part.block) for part in back.parts] == [RAW] * 5


def test_a_block_that_holds_the_mark_keeps_its_value_and_is_never_taken_for_one() -> None:
    block = msgspec.Raw(msgspec.json.encode({"a": "\ue000d800"}))
    message = Message(message_id="m", role="assistant", parts=(Text("\ud800", block=block),))
    back = codec.decode_message(codec.encode(message))
    assert back.text == "\ud800"
    assert msgspec.json.decode(back.parts[0].block) == {"a": "\ue000d800"}


def test_an_absent_block_stays_absent_and_takes_no_room() -> None:
    data = codec.encode(Message(message_id="m", role="user", parts=(Text("x"),)))
    assert b"block" not in data
    assert b"envelope" not in data
    assert codec.decode_message(data).parts[0].block is msgspec.UNSET


@pytest.mark.parametrize("text", TEXTS)
def test_what_a_provider_sent_goes_outside_whatever_stands_beside_it(text: str) -> None:
    raw = msgspec.Raw(RAW)
    parts = (
        Text(text, block=raw),
        ToolCall("i", "n", {text: text}, block=raw),
        Opaque("x", {"v": text}, block=raw),
    )
    message = Message(message_id="m", role="assistant", parts=parts, envelope=raw)
    shown = json.loads(codec.wire(message))
    assert shown["parts"][0]["text"] == text
    assert shown["parts"][0]["block"] == json.loads(RAW)
    views = message_view(message).parts
    assert views[0] == {"type": "text", "text": text}
    assert views[1] == {"type": "tool_call", "id": "i", "name": "n", "arguments": {text: text}}


def test_a_tools_words_beside_its_result_join_it_although_a_provider_gave_them_a_block() -> None:
    parts = (ToolResult("i", "seen"), Text("more", block=msgspec.Raw(RAW)))
    history = [
        Message(message_id="a", role="user", parts=(Text("go"),)),
        Message(message_id="b", role="assistant", parts=(ToolCall("i", "n"),)),
        Message(message_id="c", role="tool", parts=parts),
    ]
    (result,) = build_feed(history).messages[2].parts
    assert "more" in str(result.content)
