"""Each wire rule that a body can show is found by its number, and the sound body beside it is accepted."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

import pytest

from turnkeeper.provider import dialects
from turnkeeper.provider.anthropic_rules import validate as anthropic
from turnkeeper.provider.gemini_rules import validate as gemini

Change = Callable[[Any], None]


def png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return base64.b64encode(head + b"\x08\x02\0\0\0").decode()


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(call_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "n", "input": {}, **more}


def result(call_id: str = "a", content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def thought(**more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": "sig", **more}


def image(width: int, height: int) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": png(width, height)}
    return {"type": "image", "source": source}


ANTHROPIC = {
    "model": "claude",
    "max_tokens": 10,
    "messages": [
        {"role": "user", "content": [text("hi")]},
        {"role": "assistant", "content": [text("so"), use("a"), use("b")]},
        {"role": "user", "content": [result("a"), result("b"), text("and")]},
    ],
}


def put(path: str, value: Any) -> Change:
    """Set `messages.1.content` and the like."""

    def change(body: Any) -> None:
        *way, last = path.split(".")
        for step in way:
            body = body[int(step) if isinstance(body, list) else step]
        body[int(last) if isinstance(body, list) else last] = value

    return change


def assistant(*blocks: Any) -> Change:
    return put("messages.1.content", list(blocks))


def user(*blocks: Any) -> Change:
    return put("messages.2.content", list(blocks))


def both(*changes: Change) -> Change:
    def change(body: Any) -> None:
        for one in changes:
            one(body)

    return change


def add(message: dict[str, Any]) -> Change:
    return lambda body: body["messages"].append(message)


ON = put("thinking", {"type": "enabled", "budget_tokens": 1024})
ONE = both(assistant(use("a")), user(result("a")))

ANTHROPIC_BROKEN: list[tuple[str, str, Change]] = [
    ("A1", "a call without its result", user(result("a"), text("x"))),
    ("A1", "a call at the very end", both(user(result("a"), result("b")), add({"role": "assistant", "content": [use("c")]}))),
    ("A2", "a result of nothing", user(result("a"), result("b"), result("c"))),
    ("A2", "the same result twice", user(result("a"), result("b"), result("b"))),
    ("A2", "a result in the first message", put("messages.0.content", [result("z")])),
    ("A3", "words before results", user(text("x"), result("a"), result("b"))),
    ("A4", "words after a call", assistant(use("a"), use("b"), text("x"))),
    ("A6", "an id used twice", both(assistant(use("a"), use("a")), user(result("a")))),
    ("A7", "an id with a dot", both(assistant(use("a.b")), user(result("a.b")))),
    ("A8", "arguments that are a list", assistant(use("a", input=[]), use("b"))),
    ("A8", "arguments as text", assistant(use("a", input="{}"), use("b"))),
    ("A8", "no arguments", assistant({"type": "tool_use", "id": "a", "name": "n"}, use("b"))),
    ("A9", "a name of 201 characters", assistant(use("a", name="n" * 201), use("b"))),
    ("A9", "an empty name", assistant(use("a", name=""), use("b"))),
    ("A10", "a blank text", put("messages.0.content", [text(" ")])),
    ("A10", "an empty text", put("messages.0.content", [text("")])),
    ("A10", "a blank string", put("messages.0.content", "\n")),
    ("A11", "no content", put("messages.0.content", [])),
    ("A11", "an empty string", put("messages.0.content", "")),
    ("A12", "an error without words", user(result("a", "", is_error=True), result("b"))),
    ("A14", "an assistant at the end", add({"role": "assistant", "content": [text("x")]})),
    ("A17", "thinking without a signature", both(ON, assistant(thought(signature=""), use("a")), user(result("a")))),
    ("A18", "a running tool cycle that began without thinking", both(ON, ONE)),
    ("A18", "thinking while it is off", both(assistant(thought(), use("a")), user(result("a")))),
    ("A19", "thinking alone", both(ON, assistant(thought()), user(text("x")))),
    ("A20", "five cache marks", both(put("system", [text("s", cache_control={"type": "ephemeral"})]), put("cache_control", {"type": "ephemeral"}), user(*[result(c, cache_control={"type": "ephemeral"}) for c in "ab"], text("x", cache_control={"type": "ephemeral"})))),
    ("A20", "a cache mark on thinking", both(ON, assistant(thought(cache_control={"type": "ephemeral"}), use("a")), user(result("a")))),
    ("A21", "a server tool without its result", both(assistant({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}), user(text("x")))),
    ("A21", "a server result without its tool", both(assistant({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}), user(text("x")))),
    ("A22", "an image of 8001 pixels", user(result("a"), result("b"), image(8001, 10))),
    ("A22", "one of two images of 2001 pixels", user(result("a"), result("b"), image(10, 10), image(10, 2001))),
    ("A23", "half a character", put("messages.0.content", "x\ud800")),
    ("A23", "half a character in arguments", assistant(use("a", input={"k": ["\udc00"]}), use("b"))),
    ("A23", "NUL", put("messages.0.content", "x\0")),
    ("shape", "an unknown role", put("messages.0.role", "tool")),
    ("shape", "no max_tokens", lambda body: body.pop("max_tokens")),
    ("shape", "a block that is text", put("messages.0.content", ["x"])),
]  # fmt: skip

ANTHROPIC_SOUND: list[tuple[str, Change]] = [
    ("as it is", lambda body: None),
    ("two assistants in a row (A5)", both(assistant(text("so")), lambda body: body["messages"].insert(2, {"role": "assistant", "content": [use("a"), use("b")]}))),
    ("an assistant first (A5)", lambda body: body["messages"].pop(0)),
    ("text after call is sound where it is merged before it", assistant(text("x"), use("a"), use("b"))),
    ("signed thinking first", both(ON, assistant(thought(), use("a")), user(result("a")))),
    ("redacted thinking first", both(ON, assistant({"type": "redacted_thinking", "data": "x"}, use("a")), user(result("a")))),
    ("a finished turn without thinking", both(ON, add({"role": "assistant", "content": [text("x")]}), add({"role": "user", "content": "go"}))),
    ("an empty result", user(result("a", ""), result("b", []))),
    ("the six characters that spell NUL", put("messages.0.content", "x\\u0000")),
    ("one image of 8000 pixels", user(result("a"), result("b"), image(8000, 10))),
    ("two images of 2000 pixels", user(result("a"), result("b"), image(10, 2000), image(2000, 10))),
    ("an id from another batch later", both(add({"role": "assistant", "content": [use("c")]}), add({"role": "user", "content": [result("c")]}))),
]  # fmt: skip

BEDROCK_BROKEN: list[tuple[str, str, Change]] = [
    ("B1", "an assistant first", lambda body: body["messages"].pop(0)),
    ("B1", "two users in a row", lambda body: body["messages"].insert(0, {"role": "user", "content": "x"})),
    ("B2", "more results than calls", user(result("a"), result("b"), result("c"))),
    ("B3", "one id twice in a message", both(assistant(use("a"), use("a")), user(result("a")))),
    ("B4", "a name with a dot in history", assistant(use("a", name="x.y"), use("b"))),
    ("B4", "a name of 65 characters", assistant(use("a", name="n" * 65), use("b"))),
    ("B5", "a blank text", put("messages.0.content", [text(" ")])),
    ("B5", "a blank result", user(result("a", " "), result("b"))),
    ("B5", "an empty list as result", user(result("a", []), result("b"))),
    ("B5", "a document alone", put("messages.0.content", [{"type": "document", "source": {}}])),
]  # fmt: skip


def chat_call(call_id: str = "a", arguments: Any = "{}", name: Any = "n") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [chat_call("a"), chat_call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "user", "content": "and"},
    ],
}


def calls(*made: Any, **more: Any) -> Change:
    return put("messages.2", {"role": "assistant", "tool_calls": list(made), **more})


def drop(index: int) -> Change:
    return lambda body: body["messages"].pop(index)


def insert(index: int, message: dict[str, Any]) -> Change:
    return lambda body: body["messages"].insert(index, message)


CHAT_BROKEN: list[tuple[str, str, Change]] = [
    ("C1", "a call without its result", drop(4)),
    ("C1", "something between", insert(4, {"role": "user", "content": "x"})),
    ("C2", "a result before its call", lambda body: body["messages"].insert(2, body["messages"].pop(3))),
    ("C2", "a result of nothing", put("messages.4.tool_call_id", "z")),
    ("C2", "the same result twice", insert(5, {"role": "tool", "tool_call_id": "b", "content": "2"})),
    ("C3", "one id twice", calls(chat_call("a"), chat_call("a"))),
    ("C4", "an id of 41 characters", both(calls(chat_call("x" * 41), chat_call("b")), put("messages.3.tool_call_id", "x" * 41))),
    ("C5", "cut arguments", calls(chat_call("a", '{"x'), chat_call("b"))),
    ("C5", "arguments that are a list", calls(chat_call("a", "[]"), chat_call("b"))),
    ("C5", "empty arguments", calls(chat_call("a", ""), chat_call("b"))),
    ("C5", "an object in place of its text", calls(chat_call("a", {}), chat_call("b"))),
    ("C6", "an empty user", put("messages.1.content", "")),
    ("C6", "an assistant of nothing", insert(5, {"role": "assistant", "content": None})),
    ("C6", "an assistant of blanks", insert(5, {"role": "assistant", "content": " "})),
    ("C6", "an empty list of calls", insert(5, {"role": "assistant", "content": "x", "tool_calls": []})),
    ("C6", "empty words beside calls", calls(chat_call("a"), chat_call("b"), content="")),
    ("C6", "an empty result", put("messages.3.content", "")),
    ("O9", "an empty name", calls(chat_call("a", name=""), chat_call("b"))),
    ("A23", "half a character", put("messages.1.content", "\ud800")),
    ("shape", "an unknown role", put("messages.1.role", "human")),
]  # fmt: skip

RESPONSES = {
    "model": "m",
    "input": [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "ok"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
    ],
}


def take(index: int) -> Change:
    return lambda body: body["input"].pop(index)


def place(index: int, item: dict[str, Any]) -> Change:
    return lambda body: body["input"].insert(index, item)


RESPONSES_BROKEN: list[tuple[str, str, Change]] = [
    ("O1", "a call without its output", take(3)),
    ("O2", "an output without its call", both(take(1), take(1))),
    ("O3", "reasoning whose item is gone", both(take(2), take(2), place(2, {"role": "user", "content": "x"}))),
    ("O3", "reasoning at the end", place(6, {"type": "reasoning", "id": "rs_2", "summary": []})),
    ("O4", "a call with its item id and no reasoning", take(1)),
    ("O5", "one item twice", place(2, {"type": "reasoning", "id": "rs_1", "summary": []})),
    ("O5", "one call id twice", place(3, {"type": "function_call", "call_id": "a", "name": "n", "arguments": "{}"})),
    ("O5", "one output twice", place(4, {"type": "function_call_output", "call_id": "a", "output": "ok"})),
    ("O6", "a call id of 65 characters", both(put("input.2.call_id", "x" * 65), put("input.3.call_id", "x" * 65))),
    ("O8", "reasoning without a summary", lambda body: body["input"][1].pop("summary")),
    ("O9", "an empty name", put("input.2.name", "")),
    ("O10", "an empty output text", put("input.4.content", [{"type": "output_text", "text": ""}])),
    ("O10", "no content", put("input.4.content", [])),
    ("C5", "cut arguments", put("input.2.arguments", '{"x')),
    ("A23", "half a character", put("input.0.content", "\ud800")),
    ("shape", "no type", put("input.0", 7)),
]  # fmt: skip

SKIP = "skip_thought_signature_validator"


def made(name: str = "n", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}}, **more}


def back(name: str = "n", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "x"}, **more}}


GEMINI = {
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [made("n", thoughtSignature=SKIP), made("o")]},
        {"role": "user", "parts": [back("n"), back("o")]},
    ]
}


def content(index: int, *parts: Any) -> Change:
    return put(f"contents.{index}.parts", list(parts))


def more(role: str, *parts: Any) -> Change:
    return lambda body: body["contents"].append({"role": role, "parts": list(parts)})


GEMINI_BROKEN: list[tuple[str, str, Change]] = [
    ("G1", "the model first", lambda body: body["contents"].pop(0)),
    ("G1", "a call after the model's own words", lambda body: body["contents"].insert(1, {"role": "model", "parts": [{"text": "x"}]})),
    ("G1", "a role of its own", put("contents.0.role", "assistant")),
    ("G2", "one response for two calls", content(2, back("n"))),
    ("G2", "responses to other calls", content(2, back("n"), back("x"))),
    ("G2", "calls without responses", both(content(2, {"text": "x"}))),
    ("G2", "another id", both(content(1, {"functionCall": {"id": "1", "name": "n", "args": {}}, "thoughtSignature": SKIP}), content(2, back("n", id="2")))),
    ("G3", "responses to nothing", more("user", back("n"))),
    ("G3", "responses in two turns", both(content(2, back("n")), more("user", back("o")))),
    ("G4", "the model last", more("model", {"text": "x"})),
    ("G5", "the first call of a step without its signature", content(1, made("n"), made("o", thoughtSignature=SKIP))),
    ("shape", "no parts", content(0)),
    ("shape", "an empty part", content(0, {})),
    ("A8", "arguments that are a list", content(1, {"functionCall": {"name": "n", "args": []}, "thoughtSignature": SKIP})),
    ("A23", "half a character", content(0, {"text": "\ud800"})),
]  # fmt: skip

NINE = "abcdefgh1"
MISTRAL = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "so", "tool_calls": [chat_call(NINE)]},
        {"role": "tool", "tool_call_id": NINE, "content": "1"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "and"},
    ],
}

MISTRAL_BROKEN: list[tuple[str, str, Change]] = [
    ("M1", "an id of ten characters", both(calls(chat_call("abcdefgh10")), put("messages.3.tool_call_id", "abcdefgh10"))),
    ("M3", "a user after a tool message", drop(4)),
    ("M3", "a system message after an assistant", put("messages.5.role", "system")),
    ("M3", "an assistant first", both(drop(0), drop(0))),
    ("M4", "a call without its result", drop(3)),
    ("M4", "one id twice", calls(chat_call(NINE), chat_call(NINE))),
    ("M4", "a result of nothing", put("messages.3.tool_call_id", "zzzzzzzzz")),
    ("M5", "an assistant at the end", drop(5)),
    ("M5", "a name with a dot", calls(chat_call(NINE, name="x.y"))),
    ("C5", "cut arguments", calls(chat_call(NINE, '{"x'))),
    ("C6", "an assistant of nothing", put("messages.4.content", "")),
    ("A23", "half a character", put("messages.1.content", "\ud800")),
]  # fmt: skip

TABLES = {
    "anthropic": (ANTHROPIC, ANTHROPIC_BROKEN),
    "bedrock": (ANTHROPIC, BEDROCK_BROKEN),
    "openai-chat": (CHAT, CHAT_BROKEN),
    "openai-responses": (RESPONSES, RESPONSES_BROKEN),
    "gemini": (GEMINI, GEMINI_BROKEN),
    "mistral": (MISTRAL, MISTRAL_BROKEN),
}
ROWS = [(dialect, rule, why, change) for dialect, (_, rows) in TABLES.items() for rule, why, change in rows]


@pytest.mark.parametrize(
    ("dialect", "rule", "why", "change"), ROWS, ids=[f"{d}-{r}-{w}" for d, r, w, _ in ROWS]
)
def test_a_broken_rule_is_found_by_its_number(dialect: str, rule: str, why: str, change: Change) -> None:
    body = copy.deepcopy(TABLES[dialect][0])
    assert dialects.validate(dialect, body) == ()
    change(body)
    found = dialects.validate(dialect, body)
    assert rule in {violation.rule for violation in found}, (why, found)
    assert all(violation.sentence for violation in found)


@pytest.mark.parametrize(("why", "change"), ANTHROPIC_SOUND, ids=[why for why, _ in ANTHROPIC_SOUND])
def test_what_the_direct_api_takes_is_no_violation(why: str, change: Change) -> None:
    body = copy.deepcopy(ANTHROPIC)
    change(body)
    assert anthropic(body) == ()


def test_a_model_with_prefill_takes_a_final_assistant_message_without_trailing_space() -> None:
    for words, rules in (("so", []), ("so \n", ["A13"])):
        body = copy.deepcopy(ANTHROPIC)
        body["messages"].append({"role": "assistant", "content": words})
        assert [found.rule for found in anthropic(body, prefill=True)] == rules


def test_signatures_are_asked_of_who_made_them() -> None:
    body = copy.deepcopy(ANTHROPIC)
    both(ON, assistant(thought(), use("a")), user(result("a")))(body)
    assert [found.rule for found in anthropic(body, genuine=lambda _: False)] == ["A15"]
    body["messages"] += [{"role": "assistant", "content": [text("x")]}, {"role": "user", "content": "go"}]
    assert [found.rule for found in anthropic(body, genuine=lambda _: False)] == ["A16"]
    assert anthropic(body, genuine=lambda block: block["signature"] == "sig") == ()


def test_gemini_asks_for_signatures_only_in_the_current_turn_and_only_from_version_3() -> None:
    body = copy.deepcopy(GEMINI)
    content(1, made("n"), made("o"))(body)
    assert [found.rule for found in gemini(body)] == ["G5"]
    assert gemini(body, signatures=False) == ()
    more("model", {"text": "x"})(body)
    more("user", {"text": "next"})(body)
    assert gemini(body) == ()


PICTURE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([PICTURE], None),
        ([PICTURE, {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}}], None),
        ([{"inlineData": {"mimeType": "image/gif", "data": "R0lGODlh"}}], "Unsupported MIME type: image/gif"),
        ([{"inlineData": {"mimeType": "audio/ogg", "data": "T2dnUw=="}}], "Unsupported MIME type: audio/ogg"),
        ([{"inlineData": {"mimeType": "image/png", "data": "not base64!"}}], "Base64 decoding failed"),
        ([{"inlineData": {"data": "iVBORw0KGgo="}}], "not set"),
        ([{"text": "words"}], "not set"),
        ([7], "not set"),
        (7, "Invalid JSON payload"),
    ],
)
def test_gemini_takes_pictures_inside_a_function_response_only_from_version_3(
    pieces: Any, why: str | None
) -> None:
    body = copy.deepcopy(GEMINI)
    (answer,) = [
        p["functionResponse"] for c in body["contents"] for p in c["parts"] if "functionResponse" in p
    ][:1]
    answer["parts"] = pieces
    found = gemini(body)
    assert len(found) == (why is not None)
    assert all(str(why) in violation.sentence for violation in found)
    (older,) = gemini(body, result_media=False)
    assert "`function_response.parts` is not supported" in older.sentence
    assert older.path.endswith("functionResponse.parts")


def test_gemini_takes_no_gif_anywhere() -> None:
    body = copy.deepcopy(GEMINI)
    body["contents"][0]["parts"].append(PICTURE)
    assert gemini(body) == ()
    body["contents"][0]["parts"][-1] = {"inlineData": {"mimeType": "image/gif", "data": "R0lGODlh"}}
    (found,) = gemini(body)
    assert found.sentence == "Unsupported MIME type: image/gif"


def test_reasoning_content_is_wanted_back_by_thinking_models_only() -> None:
    body = copy.deepcopy(CHAT)
    body["thinking"] = {"type": "enabled"}
    assert dialects.validate("openai-chat", body) == ()
    assert [found.rule for found in dialects.validate("deepseek", body)] == ["C7"]
    body["messages"][2]["reasoning_content"] = "hm"
    assert dialects.validate("deepseek", body) == ()


def test_some_chat_templates_want_roles_to_alternate() -> None:
    body = copy.deepcopy(CHAT)
    assert [found.rule for found in dialects.validate("vllm", body)] == ["C8"]
    body["messages"].insert(5, {"role": "assistant", "content": "so"})
    assert dialects.validate("vllm", body) == ()


def test_old_mistral_takes_words_or_calls_and_not_both() -> None:
    assert [found.rule for found in dialects.validate("mistral-v3", copy.deepcopy(MISTRAL))] == ["M2"]


@pytest.mark.parametrize("dialect", sorted(dialects.DIALECTS))
@pytest.mark.parametrize("body", [None, 7, [], {}, {"messages": 7}, {"messages": [7]}, {"contents": [{"parts": [7]}]}, {"input": [None]}, {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": {}}]}])  # fmt: skip
def test_nonsense_in_place_of_a_body_is_a_violation_and_no_exception(dialect: str, body: Any) -> None:
    assert dialects.validate(dialect, body)
