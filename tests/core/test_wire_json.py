"""Any text whatever leaves and enters as valid JSON, unchanged."""

from __future__ import annotations

import json

import msgspec
import pytest

from turnkeeper.conversation import codec
from turnkeeper.conversation.events import Event, Noticed
from turnkeeper.projection.view import event_view

TEXTS = ["plain", "a\x00b", "\ud800", "x\udfff\ue000y", "\ue000d800", "é你", "\U0001f600"]


class Said(msgspec.Struct):
    text: str


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_wire_both_ways(text: str) -> None:
    data = codec.wire(Said(text))
    data.decode("utf-8")
    assert json.loads(data) == {"text": text}
    assert codec.unwire(data, Said) == Said(text)
    assert codec.unwire(json.dumps({"text": text}).encode(), Said) == Said(text)


@pytest.mark.parametrize("text", TEXTS)
def test_an_event_view_shows_the_text_that_was_sent(text: str) -> None:
    event = Event(conversation_id="c", seq=1, at=0.0, actor="user:u", body=Noticed("code", text))
    assert event_view(event)["body"]["text"] == text
    assert json.loads(codec.wire(event_view(event)))["body"]["text"] == text


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"text": "\xff"}', b"{'text': 1}", b'{"text": "\\ud8"}', b"[" * 10**5]
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        codec.unwire(data, Said)


def test_a_wrong_shape_is_named() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.text"):
        codec.unwire(b'{"text": 1}', Said)
    with pytest.raises(msgspec.ValidationError, match=r"\$\.text"):
        codec.unwire(b'{"other": "\\ud800", "text": 1}', Said)
