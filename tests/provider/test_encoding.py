"""Encoding: whatever a cleaned feed holds, every dialect makes a request that its provider accepts."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provider.feeds import HERE, feeds
from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Attachment, Opaque, Text, Thinking, ToolCall, ToolResult
from turnkeeper.port.provider import ToolSpec
from turnkeeper.provider import dialects, gemini
from turnkeeper.provider.wire import File, raw_block

DIALECTS = sorted(dialects.DIALECTS)
CONVERSATION = {"messages", "input", "contents"}
"""Where a body keeps the conversation, whatever else is part of the request proper."""
EXAMPLES = 100


def encode(dialect: str, feed: list[Message], **how: Any) -> Any:
    how.setdefault("origin", HERE)
    return dialects.encode(dialect, feed, **how)


def joined(turns: list[list[Message]]) -> list[Message]:
    return list(itertools.chain(*turns))


@given(turns=feeds(), thinking=st.booleans())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_clean_feed_is_accepted_stays_stable_keeps_its_words_and_maps_back(
    turns: list[list[Message]], thinking: bool
) -> None:
    for dialect in DIALECTS:
        accepted(dialect, joined(turns), thinking)
        stable(dialect, turns)


def accepted(dialect: str, feed: list[Message], thinking: bool) -> None:
    """The provider takes it, the ids map back, it is the same every time, and a person's words are in it."""
    encoded = encode(dialect, feed, options={"thinking": thinking}, instructions="s")
    assert dialects.validate(dialect, encoded.body) == ()
    made = [part.id for m in feed for part in m.parts if type(part) is ToolCall and not part.server_side]
    assert [original for _, original in encoded.calls] == made
    assert len(encoded.ids) == len(made)
    assert encode(dialect, feed, options={"thinking": thinking}, instructions="s") == encoded
    text = json.dumps(json.loads(encoded.to_bytes()))
    for one in feed:
        for part in one.parts:
            if type(part) is Text and one.role == "user":
                assert json.dumps(well_formed(part.text))[1:-1] in text


def well_formed(text: str) -> str:
    return text.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def stable(dialect: str, turns: list[list[Message]]) -> None:
    """What was sent stays byte for byte when turns are added."""
    options = {"thinking": True, "cache": False}
    (field,) = CONVERSATION & set(dialects.dialect_named(dialect).body_fields)
    whole = msgspec.json.encode(encode(dialect, joined(turns), options=options).body[field])
    for closed in range(1, len(turns)):
        part = msgspec.json.encode(encode(dialect, joined(turns[:closed]), options=options).body[field])
        assert whole.startswith(part[:-1] + b",")


def message(number: int, role: str, *parts: Any, **more: Any) -> Message:
    return Message(message_id=f"m{number}", role=role, parts=parts, **more)


ASK = message(1, "user", Text("hi"))
CALL = ToolCall("a", "n", {"x": 1})
BOUND = message(
    2,
    "assistant",
    Thinking("secret thought", "SIGNATURE", bound={"item_id": "rs_SECRET", "summary": []}),
    Text("so", bound={"item_id": "msg_SECRET"}),
    Opaque("odd", block=raw_block({"type": "odd", "payload": "SECRET"})),
    ToolCall(
        "srv",
        "web_search",
        {},
        server_side=True,
        block=raw_block({"type": "server_tool_use", "id": "SECRET"}),
    ),
    ToolCall("a", "n", {"x": 1}, bound={"item_id": "fc_SECRET", "thought_signature": "SECRET=="}),
    origin=HERE,
)
ANSWER = message(3, "tool", ToolResult("a", "ok"))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "origin",
    [Origin("other", "m-1", "acc"), Origin("here", "other", "acc"), Origin("here", "m-1", "other")],
)
def test_provider_bound_data_stays_behind_as_a_unit_at_any_other_provider_model_or_account(
    dialect: str, origin: Origin
) -> None:
    encoded = encode(dialect, [ASK, BOUND, ANSWER], origin=origin, options={"thinking": True})
    text = encoded.to_bytes().decode()
    assert dialects.validate(dialect, encoded.body) == ()
    for secret in ("SECRET", "SIGNATURE", "secret thought"):
        assert secret not in text
    assert '"so"' in text
    assert {left.what for left in encoded.left_out} >= {"thinking"}
    assert all(left.message_id == "m2" or not left.message_id for left in encoded.left_out)


def test_thinking_goes_back_signed_and_first_and_only_while_thinking_is_on() -> None:
    feed = [ASK, BOUND, ANSWER]
    on = encode("anthropic", feed, options={"thinking": True, "max_tokens": 100}).body
    assert on["thinking"] == {"type": "enabled", "budget_tokens": 4096}
    assert on["max_tokens"] > 4096
    assert on["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "secret thought",
        "signature": "SIGNATURE",
    }
    off = encode("anthropic", feed).body
    assert "thinking" not in off
    assert off["messages"][1]["content"][0]["type"] == "text"


@pytest.mark.parametrize(
    "thinking",
    [
        Thinking("cut off", None),
        Thinking("cut off", ""),
        Thinking("", "sig of what was emptied"),
    ],
)
def test_spoiled_thinking_takes_the_sound_thinking_of_its_message_along(thinking: Thinking) -> None:
    answer = message(2, "assistant", Thinking("sound", "sig"), thinking, CALL, origin=HERE)
    encoded = encode("anthropic", [ASK, answer, ANSWER], options={"thinking": True})
    assert [block["type"] for block in encoded.body["messages"][1]["content"]] == ["tool_use"]
    assert "thinking" not in encoded.body
    assert dialects.validate("anthropic", encoded.body) == ()


def test_an_empty_thinking_that_was_received_empty_goes_back() -> None:
    block = {"type": "thinking", "thinking": "", "signature": "sig"}
    answer = message(2, "assistant", Thinking("", "sig", block=raw_block(block)), CALL, origin=HERE)
    body = encode("anthropic", [ASK, answer, ANSWER], options={"thinking": True}).body
    assert body["messages"][1]["content"][0] == block
    assert "thinking" in body


def test_a_tool_cycle_of_another_model_is_continued_without_thinking() -> None:
    foreign = message(2, "assistant", CALL, origin=Origin("other", "x"))
    running = encode("anthropic", [ASK, foreign, ANSWER], options={"thinking": True})
    assert "thinking" not in running.body
    assert [left.rule for left in running.left_out] == ["A18"]
    done = [ASK, foreign, ANSWER, message(4, "assistant", Text("x")), message(5, "user", Text("go"))]
    assert "thinking" in encode("anthropic", done, options={"thinking": True}).body


def test_nothing_follows_a_call_and_server_tools_go_in_pairs() -> None:
    server = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    lone = {"type": "server_tool_use", "id": "s2", "name": "web_search", "input": {}}
    answer = message(
        2,
        "assistant",
        ToolCall("s1", "web_search", server_side=True, block=raw_block(server)),
        ToolResult("s1", [], server_side=True, block=raw_block(found)),
        ToolCall("s2", "web_search", server_side=True, block=raw_block(lone)),
        CALL,
        Text("afterthought"),
        origin=HERE,
    )
    encoded = encode("anthropic", [ASK, answer, ANSWER])
    kinds = [block["type"] for block in encoded.body["messages"][1]["content"]]
    assert kinds == ["server_tool_use", "web_search_tool_result", "text", "tool_use"]
    assert "A21" in {left.rule for left in encoded.left_out}


@pytest.mark.parametrize(
    ("caller", "inline", "marks"), [(0, 0, 2), (1, 0, 3), (3, 0, 4), (4, 0, 4), (0, 6, 4), (2, 3, 4)]
)
@pytest.mark.parametrize("dialect", ["anthropic", "bedrock"])
def test_there_are_never_more_than_four_cache_marks_the_callers_counted(
    dialect: str, caller: int, inline: int, marks: int
) -> None:
    marked = Text("x", bound={"cache_control": {"type": "ephemeral"}})
    feed = [message(1, "user", *[marked] * inline, Text("hi"))]
    body = encode(dialect, feed, instructions="s", options={"caller_marks": caller}).body
    assert dialects.validate(dialect, body) == ()
    assert json.dumps(body).count("cache_control") + caller == marks


def test_deepseek_gets_the_reasoning_of_calls_back_and_a_word_in_its_place_where_there_is_none() -> None:
    own = message(2, "assistant", Thinking("need tool"), CALL, origin=HERE)
    foreign = msgspec.structs.replace(own, origin=None)
    last = message(4, "assistant", Thinking("tell"), Text("Rain."), origin=HERE)
    more = [ANSWER, last, message(5, "user", Text("tomorrow?"))]
    body = encode("deepseek", [ASK, own, *more], options={"thinking": True}).body
    assert body["messages"][1]["reasoning_content"] == "need tool"
    assert "reasoning_content" not in body["messages"][3]
    body = encode("deepseek", [ASK, foreign, *more], options={"thinking": True}).body
    assert body["messages"][1]["reasoning_content"].strip()
    assert "need tool" not in json.dumps(body)
    body = encode("openai-chat", [ASK, own, *more], options={"thinking": True}).body
    assert "reasoning_content" not in json.dumps(body)


def test_gemini_gets_each_signature_back_in_its_part_or_the_documented_stand_in() -> None:
    signed = ToolCall("a", "n", {}, bound={"thought_signature": "TS1"})
    answers = message(3, "tool", ToolResult("a", "ok"), ToolResult("b", "ok"))
    for origin, signature in ((HERE, "TS1"), (None, "skip_thought_signature_validator")):
        feed = [ASK, message(2, "assistant", signed, ToolCall("b", "o", {}), origin=origin), answers]
        first, second = encode("gemini", feed).body["contents"][1]["parts"]
        assert first["thoughtSignature"] == signature
        assert "thoughtSignature" not in second


def test_responses_items_keep_their_ids_only_beside_their_reasoning() -> None:
    bare = message(
        2,
        "assistant",
        Text("so", bound={"item_id": "msg_1"}),
        ToolCall("a", "n", {}, bound={"item_id": "fc_1"}),
        origin=HERE,
    )
    assert '"id"' not in json.dumps(encode("openai-responses", [ASK, bare, ANSWER]).body)
    full = msgspec.structs.replace(
        bare, parts=(Thinking("hm", "enc", bound={"item_id": "rs_1"}), *bare.parts)
    )
    items = encode("openai-responses", [ASK, full, ANSWER]).body["input"]
    assert [item.get("id") for item in items[1:4]] == ["rs_1", "msg_1", "fc_1"]
    assert items[1]["summary"] == [{"type": "summary_text", "text": "hm"}]
    alone = msgspec.structs.replace(bare, parts=(Thinking("hm", "enc", bound={"item_id": "rs_1"}),))
    assert len(encode("openai-responses", [ASK, alone, message(4, "user", Text("x"))]).body["input"]) == 1


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\0" * 5


def pictures(*sizes: tuple[int, int]) -> tuple[list[Message], Any]:
    parts = [Attachment(f"f{i}", f"p{i}.png", "image/png", 100, sha256=str(i)) for i, _ in enumerate(sizes)]
    data = {f"f{i}": File(png(*size)) for i, size in enumerate(sizes)}
    return [message(1, "user", Text("see"), *parts)], lambda part: data.get(part.attachment_id)


@pytest.mark.parametrize(
    ("sizes", "kinds"),
    [
        ([(8000, 10)], ["text", "image"]),
        ([(8001, 10)], ["text", "text"]),
        ([(2000, 10), (10, 2000)], ["text", "image", "image"]),
        ([(2001, 10), (10, 10)], ["text", "text", "image"]),
        ([(10, 10), (10, 2001)], ["text", "image", "text"]),
    ],
)
def test_an_image_over_a_limit_is_replaced_by_a_note_that_says_so(
    sizes: list[tuple[int, int]], kinds: list[str]
) -> None:
    feed, files = pictures(*sizes)
    encoded = encode("anthropic", feed, files=files)
    assert [block["type"] for block in encoded.body["messages"][0]["content"]] == kinds
    assert dialects.validate("anthropic", encoded.body) == ()
    notes = kinds.count("text") - 1
    assert len(encoded.left_out) == notes
    assert encoded.to_bytes().count(b"is not shown to you") == notes


@pytest.mark.parametrize("dialect", DIALECTS)
def test_files_go_out_as_the_provider_takes_them_or_as_a_note(dialect: str) -> None:
    data = {
        "pic": File(png(10, 10)),
        "doc": File(b"%PDF-1.7"),
        "txt": File("grüße".encode()),
        "zip": File(b"PK"),
    }
    kinds = {"pic": "image/png", "doc": "application/pdf", "txt": "text/plain", "zip": "application/zip"}
    parts = [Attachment(name, name, kind, 9) for name, kind in kinds.items()]
    parts.append(Attachment("gone", "gone.png", "image/png", 9))
    parts.append(Attachment("voice", "voice", "audio/ogg", 9, transcript="spoken words"))
    encoded = encode(dialect, [message(1, "user", *parts)], files=lambda part: data.get(part.attachment_id))
    assert dialects.validate(dialect, encoded.body) == ()
    text = json.dumps(encoded.body, ensure_ascii=False)
    assert "grüße" in text
    assert "spoken words" in text
    assert "gone.png" in text
    assert "zip" in text
    assert ("iVBOR" in text) == (dialect != "deepseek")


@pytest.mark.parametrize(
    ("model", "inside"),
    [
        ("gemini-3-pro", True),
        ("models/gemini-3.5-flash", True),
        ("gemini-10-pro", True),
        ("gemini-2.5-pro", False),
        ("gemini-flash-latest", False),
        ("tuned", False),
    ],
)
def test_a_picture_in_a_result_stands_inside_its_function_response_where_the_model_takes_it(
    model: str, inside: bool
) -> None:
    gif = base64.b64encode(b"GIF89a").decode()
    shots = [
        {"type": "text", "text": "two shots"},
        {"type": "image", "data": base64.b64encode(png(10, 10)).decode(), "mimeType": "image/png"},
        {"type": "image", "data": gif, "mimeType": "image/gif"},
    ]
    feed = [
        message(1, "user", Text("look"), Attachment("gif", "cat.gif", "image/gif", 9)),
        message(2, "assistant", ToolCall("a", "shot", {}), ToolCall("b", "shot", {})),
        message(3, "tool", ToolResult("a", shots), ToolResult("b", "none", is_error=True)),
    ]
    encoded = gemini.encode(feed, origin=Origin("gemini", model, "a"), files=lambda part: File(b"GIF89a"))
    assert gemini.validate(encoded.body, result_media=inside) == ()
    first, second = [part["functionResponse"] for part in encoded.body["contents"][-1]["parts"]]
    assert [piece["inlineData"]["mimeType"] for piece in first.get("parts", [])] == ["image/png"] * inside
    assert first["response"]["output"].startswith("two shots")
    assert "image/gif left out" in first["response"]["output"]
    assert ("image/png left out" in first["response"]["output"]) != inside
    assert "parts" not in second
    assert gif not in encoded.to_bytes().decode()
    assert "cat.gif" in json.dumps(encoded.body["contents"][0]), "what is not sent is said"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_odd_tool_names_are_sanitised_alike_in_definitions_and_history_and_map_back(dialect: str) -> None:
    names = ["a.b", "a/b", "a b", "ok", "1st", "", "é", "x" * 100, "x" * 101]
    tools = [ToolSpec(name=name, description="d", schema={}) for name in names if name]
    made = [ToolCall(str(i), name, {}) for i, name in enumerate(names)]
    answers = [ToolResult(str(i), "ok") for i, _ in enumerate(names)]
    feed = [ASK, message(2, "assistant", *made), message(3, "tool", *answers)]
    encoded = encode(dialect, feed, tools=tools)
    assert dialects.validate(dialect, encoded.body) == ()
    text = encoded.to_bytes().decode()
    assert len(encoded.names) == len(set(encoded.names.values()))
    assert set(encoded.names.values()) >= set(names) - {"ok", "1st"}
    for wire in encoded.names:
        assert f'"{wire}"' in text


def test_options_reach_the_body_but_never_replace_the_conversation() -> None:
    options = {
        "max_tokens": 99,
        "temperature": 0.5,
        "nonsense": 1,
        "extra": {
            "brand_new": True,
            "messages": [],
            "system": "x",
            "input": [],
            "contents": [],
            "model": "y",
        },
    }
    for dialect in DIALECTS:
        body = encode(dialect, [ASK], options=options).body
        assert body["brand_new"] is True
        assert "99" in json.dumps(body)
        assert "0.5" in json.dumps(body)
        assert "nonsense" not in body
        assert body.get("model", "m-1") == "m-1"
        assert "hi" in json.dumps(body)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_arguments_go_out_as_they_were_executed_whatever_was_streamed(dialect: str) -> None:
    for arguments, raw, sent in (
        ({"x": 1}, '{"x": 1}', {"x": 1}),
        ({"x": 2}, '{"x": 1}', {"x": 2}),
        (None, '{"x": "cut', {}),
        ([], None, {}),
        ({}, "", {}),
    ):
        made = ToolCall(
            "a", "n", arguments, raw, block=raw_block({"type": "function_call", "arguments": raw})
        )
        body = encode(dialect, [ASK, message(2, "assistant", made, origin=HERE), ANSWER]).body
        text = json.dumps(body)
        assert (
            any(
                json.dumps(form)[1:-1] in text
                for form in (json.dumps(sent), json.dumps(sent, separators=(",", ":")))
            )
            or json.dumps(sent) in text
        )
        assert "cut" not in text
