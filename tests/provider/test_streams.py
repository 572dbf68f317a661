"""Streams: whatever comes is a Reply or a failure, and what was received goes back as it came."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provider.feeds import HERE
from tests.provider.kits import BACK, open_at, server_for
from turnkeeper.conversation import codec
from turnkeeper.conversation.events import RoundFinished
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Text, ToolCall, ToolResult
from turnkeeper.port.provider import Deadlines, ModelCall, ProviderFailed, Reply
from turnkeeper.provider import dialects
from turnkeeper.provider.anthropic_stream import AnthropicReader
from turnkeeper.provider.gemini_stream import GeminiReader
from turnkeeper.provider.openai_chat_stream import ChatReader
from turnkeeper.provider.openai_responses_stream import ResponsesReader
from turnkeeper.provider.reading import decode
from turnkeeper.provider.script import parse_script
from turnkeeper.testing.model_server.anthropic_wire import AnthropicWire
from turnkeeper.testing.model_server.chat_wire import ChatWire
from turnkeeper.testing.model_server.gemini_wire import GeminiWire
from turnkeeper.testing.model_server.responses_wire import ResponsesWire
from turnkeeper.testing.model_server.wire import Asked

READERS: dict[str, Any] = {
    "anthropic": (AnthropicReader, AnthropicWire()),
    "openai-chat": (ChatReader, ChatWire()),
    "openai-responses": (ResponsesReader, ResponsesWire()),
    "gemini": (GeminiReader, GeminiWire()),
}
ASKED = Asked(model=HERE.model, stream=True, user_texts=("hi",), rounds_since=0)

ODD: tuple[Any, ...] = (
    None, True, 0, 7, -1, 2**70, 1.5, 1e300, "", "x", "\ud800", "\udc00\ud83d", "\ue000d800", "a\0b", "tool_use", "[DONE]",
    [], [None], [[]], {}, {"type": 7}, {"type": "error"}, {"text": None}, {"index": 0}, [{"type": "text"}],
)  # fmt: skip
"""What a field may turn into when a stream is spoiled."""

spoils = st.sampled_from(ODD)
words = st.sampled_from(["x", "two words", " padded ", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "漢字", "\ue000d800", "a\\u0000b", '"quoted\\"', "long " * 50])  # fmt: skip
objects = st.sampled_from(
    [{}, {"x": 1}, {"n": 1.5, "big": 12345678901, "neg": -0.25}, {"deep": {"list": [1, None, True, {"k": "v"}], "é": "ü"}}, {"": ""}, {"type": "odd"}, {"\ue000": "\ue000d800"}]
)  # fmt: skip


def events_of(
    wire: Any, thinking: str, text: str, blocks: list[Any], calls: list[Any]
) -> tuple[list[Any], list[Any]]:
    """(decoded events, blocks) of a whole answer."""
    play = wire.play(parse_script({"rules": []}).round("", 0), ASKED, HERE.account)
    data = [*play.begin()]
    for piece, voice in ((thinking, play.think), (text, play.say)):
        half = len(piece) // 2
        if piece:
            data += [
                *voice(piece[:half], first=True, last=False),
                *voice(piece[half:], first=False, last=True),
            ]
    for block in blocks:
        data += play.block(block)
    for name, arguments in calls:
        data += play.call(None, name, json.dumps(arguments))
    data += play.end("tool_use" if calls else "end_turn")
    lines = [line for piece in data for line in piece.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line[6:]) for line in lines if line != "data: [DONE]"], play.blocks


BLOCKS: dict[str, Any] = {
    "anthropic": st.one_of(
        objects.map(lambda more: {**more, "type": "brand_new_block"}),
        words.map(lambda text: {"type": "text", "text": text, "citations": [{"cited_text": text}]}),
        st.just({"type": "thinking", "thinking": "", "signature": "received empty"}),
        st.just({"type": "redacted_thinking", "data": "b3BhcXVl"}),
        objects.map(lambda more: {"type": "tool_use", "id": "t_1", "name": "n", "input": more, "caller": {"type": "direct"}}),
    ),
    "openai-chat": objects.map(lambda more: {"brand_new_field": more}),
    "openai-responses": st.one_of(
        objects.map(lambda more: {**more, "type": "brand_new_item", "id": "bn_1"}),
        objects.map(lambda more: {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": more}),
    ),
    "gemini": st.one_of(
        objects.map(lambda more: {"brandNewPart": more}),
        words.map(lambda text: {"text": text, "thoughtSignature": "c2ln"}),
        st.just({"text": "", "thoughtSignature": "c2ln"}),
        objects.map(lambda more: {"executableCode": more}),
        objects.map(lambda more: {"functionCall": {"name": "n", "args": more}, "thoughtSignature": "c2ln", "odd": 1}),
    ),
}  # fmt: skip
calls = st.lists(st.tuples(st.sampled_from(["now", "echo"]), objects), max_size=2)


@pytest.mark.parametrize("dialect", READERS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_received_blocks_go_back_byte_for_byte_after_the_store(dialect: str, data: st.DataObject) -> None:
    reader, wire = READERS[dialect]
    thinking, text = data.draw(words), data.draw(words)
    odd = [] if dialect == "openai-chat" else data.draw(st.lists(BLOCKS[dialect], max_size=2, unique_by=str))
    if dialect == "openai-responses":
        odd = odd[:1]
    # an id that stands twice in a message is minted anew (A6): each call here has its own
    odd = [
        {**block, "id": f"t_{n}"} if block.get("type") == "tool_use" else block for n, block in enumerate(odd)
    ]
    odd.sort(key=lambda block: block.get("type") == "tool_use")  # no model thinks behind its last call
    events, sent = events_of(wire, thinking, text, odd, data.draw(calls))
    reply = decode(reader, events, HERE)
    stored = codec.decode_message(codec.encode(msgspec.structs.replace(reply.message, message_id="m2")))
    assert stored == msgspec.structs.replace(reply.message, message_id="m2")
    answers = [
        ToolResult(part.id, "ok") for part in stored.parts if type(part) is ToolCall and not part.server_side
    ]
    after = Message(message_id="m3", role="tool" if answers else "user", parts=(*answers,) or (Text("go"),))
    ask = Message(message_id="m1", role="user", parts=(Text("hi"),))
    encoded = dialects.encode(dialect, [ask, stored, after], origin=HERE, options={"thinking": True})
    assert dialects.validate(dialect, encoded.body) == ()
    back = BACK[dialect](json.loads(encoded.to_bytes()))
    wanted = [block for block in sent if "reasoning_content" not in block]
    if dialect == "anthropic":  # what stands behind the last call goes before the first (A4)
        wanted.sort(key=lambda block: block["type"] == "tool_use")
        back.sort(key=lambda block: block["type"] == "tool_use")
    assert msgspec.json.encode(back) == msgspec.json.encode(wanted)


def outcome(reader: Any, events: list[Any]) -> Reply | ProviderFailed:
    """Either of the two that may come."""
    try:
        reply = decode(reader, events, HERE)
    except ProviderFailed as failed:
        return failed
    body = RoundFinished(1, reply.stop_reason, reply.usage, request_id=reply.request_id)
    assert codec.decode_body("RoundFinished", codec.encode_body(body)) == body
    assert codec.decode_message(codec.encode(reply.message)) == reply.message
    return reply


NAMES = ("type", "error", "choices", "candidates", "message", "index", "delta", "item", "response", "output_index", "content", "usage")  # fmt: skip
TYPES = ("message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "response.completed", "response.output_item.added", "response.output_item.done", "response.failed", "error", "ping", "odd")  # fmt: skip


@given(
    events=st.lists(
        spoils | st.dictionaries(st.sampled_from(NAMES), spoils | st.sampled_from(TYPES), max_size=4),
        max_size=5,
    )
)
@settings(max_examples=400, deadline=None)
def test_any_json_is_a_reply_or_a_failure(events: list[Any]) -> None:
    for reader, _ in READERS.values():
        assert isinstance(outcome(reader, events), Reply | ProviderFailed)


@pytest.mark.parametrize("dialect", READERS)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_good_stream_that_was_spoiled_is_a_reply_or_a_failure(dialect: str, data: st.DataObject) -> None:
    reader, wire = READERS[dialect]
    events, _ = events_of(wire, "hm", "hello", [], [("now", {"x": 1}), ("echo", {})])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(events) - 1))
        match data.draw(st.sampled_from(["drop", "repeat", "swap", "spoil", "graft"])):
            case "drop":
                del events[at]
            case "repeat":
                events.insert(at, events[at])
            case "swap":
                other = data.draw(st.integers(0, len(events) - 1))
                events[at], events[other] = events[other], events[at]
            case "spoil":
                events[at] = spoiled(data, events[at])
            case "graft":
                events.insert(
                    at,
                    {**events[at], str(data.draw(spoils)): data.draw(spoils)}
                    if isinstance(events[at], dict)
                    else 0,
                )
        if not events:
            break
    assert isinstance(outcome(reader, events), Reply | ProviderFailed)


def spoiled(data: st.DataObject, value: Any) -> Any:
    """`value` with something in it replaced by anything."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: spoiled(data, value[key])}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        return [spoiled(data, value[0]), *value[1:]]
    return data.draw(spoils)


@pytest.mark.parametrize("provider", ["anthropic", "openai-chat", "openai-responses", "gemini"])
async def test_any_bytes_from_the_server_are_a_reply_or_a_failure(provider: str) -> None:
    samples: list[str] = []

    @given(raw=st.text(alphabet=st.characters(max_codepoint=255), max_size=60))
    @settings(max_examples=25, deadline=None, database=None)
    def gather(raw: str) -> None:
        samples.append(raw)

    gather()
    samples += [
        "data: {}\n\n",
        "data: []\n\n",
        "data: null\n\n",
        "event: ping\n\n",
        "data: [DONE]\n\n",
        "\n\n\n",
        "id: 1\nretry: 5\n\n",
    ]
    rounds = [{"text": "a", "raw": raw} for raw in samples]
    feed = [Message(message_id="m", role="user", parts=(Text("hi"),))]
    async with server_for(provider, {"rules": [{"match": "", "rounds": rounds}]}) as server:
        opened = open_at(server, provider)
        call = ModelCall(
            body=opened.build(feed, instructions="", tools=(), options={}),
            deadlines=Deadlines(),
            newest_user_text="hi",
        )
        for _ in rounds:
            with pytest.raises(ProviderFailed) as caught:
                async for _ in opened.stream(call):
                    pass
            assert caught.value.failure.kind in ("broken_stream", "server", "unknown"), caught.value.failure
        assert [seen.round for seen in server.requests] == list(range(len(rounds)))
        await opened.close()


def test_halves_of_a_character_that_came_in_two_events_are_one() -> None:
    events, _ = events_of(AnthropicWire(), "", "x", [], [])
    at = next(i for i, event in enumerate(events) if event["type"] == "content_block_delta")
    events[at : at + 1] = [
        {**events[at], "delta": {"type": "text_delta", "text": half}} for half in ("\ud83d", "\ude00")
    ]
    assert decode(AnthropicReader, events, HERE).message.text.startswith("\U0001f600")


def test_chat_calls_without_an_index_or_with_one_index_for_all_are_told_apart() -> None:
    def chunk(*made: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {
            "id": "c",
            "choices": [{"index": 0, "delta": {"tool_calls": list(made)}, "finish_reason": finish}],
        }

    for index in ({}, {"index": 0}):
        events = [
            chunk({**index, "id": "a", "function": {"name": "n", "arguments": '{"x":'}}),
            chunk({**index, "function": {"arguments": "1}"}}),
            chunk({**index, "id": "b", "function": {"name": "o", "arguments": "{}"}}),
            chunk(finish="tool_calls"),
        ]
        parts = decode(ChatReader, events, HERE).message.parts
        assert [(part.id, part.name, part.arguments) for part in parts] == [
            ("a", "n", {"x": 1}),
            ("b", "o", {}),
        ]


@pytest.mark.parametrize(
    ("dialect", "usage", "expected"),
    [
        (
            "anthropic",
            {"input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 11, "output_tokens": 3, "output_tokens_details": {"thinking_tokens": 2}},
            (23, 3, 7, 11, 2),
        ),
        (
            "openai-chat",
            {"prompt_tokens": 23, "prompt_tokens_details": {"cached_tokens": 7}, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 2}},
            (23, 3, 7, 0, 2),
        ),
        (
            "openai-responses",
            {"input_tokens": 23, "input_tokens_details": {"cached_tokens": 7}, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 2}},
            (23, 3, 7, 0, 2),
        ),
        (
            "gemini",
            {"promptTokenCount": 23, "cachedContentTokenCount": 7, "candidatesTokenCount": 1, "thoughtsTokenCount": 2},
            (23, 3, 7, 0, 2),
        ),
    ],
)  # fmt: skip
def test_cached_and_reasoning_tokens_are_counted_as_parts_of_the_whole(
    dialect: str, usage: dict[str, Any], expected: tuple[int, ...]
) -> None:
    reader, wire = READERS[dialect]
    round_ = msgspec.structs.replace(parse_script({"rules": []}).round("", 0), usage=usage)
    play = wire.play(round_, ASKED, HERE.account)
    data = [*play.begin(), *play.say("x", first=True, last=True), *play.end("end_turn")]
    lines = [line for piece in data for line in piece.decode().split("\n") if line.startswith("data: {")]
    found = decode(reader, [json.loads(line[6:]) for line in lines], HERE).usage
    assert found is not None
    assert (found.input_tokens, found.output_tokens, found.cached_tokens, found.cache_write_tokens, found.reasoning_tokens) == expected  # fmt: skip
    assert found.raw is not None
    assert found.raw.items() >= usage.items()


@pytest.mark.parametrize(
    ("dialect", "said", "reason"),
    [
        ("anthropic", "refusal", "refusal"),
        ("anthropic", "pause_turn", "pause_turn"),
        ("openai-chat", "max_tokens", "max_tokens"),
        ("openai-chat", "refusal", "refusal"),
        ("openai-responses", "max_tokens", "max_tokens"),
        ("openai-responses", "refusal", "refusal"),
        ("gemini", "max_tokens", "max_tokens"),
        ("gemini", "refusal", "refusal"),
        ("gemini", "malformed_function_call", "malformed_function_call"),
    ],
)
def test_stop_reasons_have_one_name(dialect: str, said: str, reason: str) -> None:
    reader, wire = READERS[dialect]
    play = wire.play(parse_script({"rules": []}).round("", 0), ASKED, HERE.account)
    data = [*play.begin(), *play.say("x", first=True, last=True), *play.end(said)]
    lines = [line for piece in data for line in piece.decode().split("\n") if line.startswith("data: {")]
    assert decode(reader, [json.loads(line[6:]) for line in lines], HERE).stop_reason == reason


def test_a_blocked_prompt_is_a_matter_of_policy() -> None:
    with pytest.raises(ProviderFailed) as caught:
        decode(GeminiReader, [{"promptFeedback": {"blockReason": "SAFETY"}}], HERE)
    assert caught.value.failure.kind == "policy"
