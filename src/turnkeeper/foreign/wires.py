"""Reads plain lists of messages in the providers' own shapes: Anthropic, OpenAI chat, OpenAI Responses, Gemini.

A reader gives one `Message` for each item of the list, with the item's place as its id, and never raises on an
odd item: what it does not know is kept as an opaque part with its block, which goes back only to the same
provider. Anything that is no list of objects is refused with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, Origin
from turnkeeper.conversation.parts import Json, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.errors import BadInput
from turnkeeper.history.wording import SYSTEM_NOTE
from turnkeeper.provider.wire import read_arguments

Item = dict[str, Any]

LOCAL_MODEL: Final = "local"


def origin_of(wire: str) -> Origin:
    """The origin that a plain list's own blocks are taken to come from: the very place they go back to."""
    return Origin(wire, LOCAL_MODEL)


def raw_block(block: Json) -> msgspec.Raw | msgspec.UnsetType:
    """A provider's block word for word, or UNSET when it cannot be JSON."""
    try:
        return msgspec.Raw(msgspec.json.encode(block))
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return msgspec.UNSET


def _words(value: Json) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def listed(value: Json) -> list[Any]:
    """A list as it is, and anything else as none."""
    return value if isinstance(value, list) else []


def _opaque(block: Json) -> Opaque:
    kind = block.get("type") if isinstance(block, dict) else None
    return Opaque(str(kind or "unknown"), block=raw_block(block))


def _message(i: int, role: str, parts: Sequence[Part], origin: Origin, **more: Any) -> Message:
    return Message(message_id=str(i), role=role, parts=tuple(parts), origin=origin, **more)


# --- Anthropic


_TEXT_KEYS = frozenset({"type", "text"})
_USE_KEYS = frozenset({"type", "id", "name", "input"})


def read_anthropic(items: Sequence[Item]) -> list[Message]:
    """Messages of the Anthropic API: `{"role", "content": text or blocks}`."""
    origin = origin_of("anthropic")
    return [_anthropic(i, item, origin) for i, item in enumerate(items)]


def _anthropic(i: int, item: Item, origin: Origin) -> Message:
    role = _words(item.get("role"))
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts: list[Part] = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            parts.append(Text(block) if isinstance(block, str) else _opaque(block))
        elif role == ASSISTANT:
            parts.append(_anthropic_assistant(block))
        else:
            parts.append(_anthropic_user(block))
    if role == SYSTEM:
        # The API has no such role: inside a list it is a note.
        role = USER
        parts = [Text(SYSTEM_NOTE + p.text) if isinstance(p, Text) else p for p in parts]
    return _message(i, role, parts, origin)


def _anthropic_text(block: Item) -> Text:
    odd = block.keys() - _TEXT_KEYS
    marks = block.get("cache_control")
    return Text(
        _words(block.get("text")),
        bound={"cache_control": marks} if isinstance(marks, dict) else None,
        block=raw_block(block) if odd else msgspec.UNSET,
    )


def _anthropic_user(block: Item) -> Part:
    kind = block.get("type")
    if kind == "text":
        return _anthropic_text(block)
    if kind == "tool_result":
        return ToolResult(
            _words(block.get("tool_use_id")), block.get("content"), is_error=block.get("is_error") is True
        )
    return _opaque(block)


def _anthropic_assistant(block: Item) -> Part:
    kind = block.get("type")
    if kind == "text":
        return _anthropic_text(block)
    if kind == "tool_use":
        odd = block.keys() - _USE_KEYS
        return ToolCall(
            _words(block.get("id")),
            _words(block.get("name")),
            block.get("input"),
            block=raw_block(block) if odd else msgspec.UNSET,
        )
    if kind == "thinking":
        signature = block.get("signature")
        return Thinking(
            _words(block.get("thinking")),
            signature=signature if isinstance(signature, str) else None,
            block=raw_block(block) if signature else msgspec.UNSET,
        )
    if kind in ("server_tool_use", "mcp_tool_use"):
        return ToolCall(
            _words(block.get("id")),
            _words(block.get("name")),
            block.get("input"),
            server_side=True,
            block=raw_block(block),
        )
    if isinstance(kind, str) and kind.endswith("tool_result"):
        own = kind != "tool_result"
        return ToolResult(
            _words(block.get("tool_use_id")),
            block.get("content"),
            is_error=block.get("is_error") is True,
            server_side=own,
            block=raw_block(block) if own else msgspec.UNSET,
        )
    return _opaque(block)


# --- OpenAI chat


def read_openai_chat(items: Sequence[Item]) -> list[Message]:
    """Messages of Chat Completions: roles system, developer, user, assistant, tool (and the old function)."""
    origin = origin_of("openai-chat")
    return [_chat(i, item, origin) for i, item in enumerate(items)]


def _chat(i: int, item: Item, origin: Origin) -> Message:
    role = _words(item.get("role"))
    if role in (TOOL, "function"):
        name = item.get("name")
        answer = ToolResult(
            _words(item.get("tool_call_id")),
            _chat_content(item.get("content")),
            name=name if isinstance(name, str) else None,
        )
        return _message(i, TOOL, (answer,), origin)
    parts: list[Part] = []
    reasoning = item.get("reasoning_content")
    if role == ASSISTANT and isinstance(reasoning, str) and reasoning:
        parts.append(Thinking(reasoning))
    content = item.get("content")
    if isinstance(content, str) and (content or role != ASSISTANT):
        parts.append(Text(content))  # "" beside calls is how this API says that there are no words
    for piece in content if isinstance(content, list) else ():
        if isinstance(piece, dict) and piece.get("type") == "text":
            parts.append(Text(_words(piece.get("text"))))
        else:
            parts.append(Text(piece) if isinstance(piece, str) else _opaque(piece))
    if role == ASSISTANT:
        refusal = item.get("refusal")
        if isinstance(refusal, str) and refusal and not parts:
            parts.append(Text(refusal))
        calls = listed(item.get("tool_calls"))
        parts += [_chat_call(call) if isinstance(call, dict) else _opaque(call) for call in calls]
        old = item.get("function_call")
        if isinstance(old, dict):
            parts.append(_chat_call({"function": old}))
    return _message(i, SYSTEM if role == "developer" else role, parts, origin)


def _chat_content(content: Json) -> Json:
    """A tool message's content: text, or the words of its pieces."""
    if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
        return "\n".join(_words(piece.get("text")) for piece in content)
    return content


def _chat_call(call: Item) -> ToolCall:
    function = call.get("function")
    function = function if isinstance(function, dict) else call.get("custom")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments", function.get("input"))
    read = read_arguments(arguments) if isinstance(arguments, str) else arguments
    return ToolCall(
        _words(call.get("id")),
        _words(function.get("name")),
        read,
        arguments_raw=arguments if isinstance(arguments, str) else None,
    )


# --- OpenAI Responses


def read_openai_responses(items: Sequence[Item]) -> list[Message]:
    """Items of the Responses API: messages, reasoning, function calls and their outputs."""
    origin = origin_of("openai-responses")
    return [_response_item(i, item, origin) for i, item in enumerate(items)]


def _response_item(i: int, item: Item, origin: Origin) -> Message:
    kind = item.get("type")
    if kind == "function_call":
        arguments = item.get("arguments")
        call = ToolCall(
            _words(item.get("call_id")),
            _words(item.get("name")),
            read_arguments(arguments) if isinstance(arguments, str) else arguments,
            arguments_raw=arguments if isinstance(arguments, str) else None,
            block=raw_block(item),
        )
        return _message(i, ASSISTANT, (call,), origin)
    if kind == "function_call_output":
        answer = ToolResult(_words(item.get("call_id")), _response_output(item.get("output")))
        return _message(i, TOOL, (answer,), origin)
    if kind == "reasoning":
        summary = item.get("summary")
        texts = (
            [_words(p.get("text")) for p in summary if isinstance(p, dict)]
            if isinstance(summary, list)
            else []
        )
        sealed = item.get("encrypted_content")
        thought = Thinking(
            "\n".join(texts),
            signature=sealed if isinstance(sealed, str) else None,
            bound={"item_id": item["id"]} if isinstance(item.get("id"), str) else None,
            block=raw_block(item),
        )
        return _message(i, ASSISTANT, (thought,), origin)
    if kind in (None, "message") and isinstance(item.get("role"), str):
        return _response_message(i, item, origin)
    return _message(i, ASSISTANT, (_opaque(item),), origin)


def _response_message(i: int, item: Item, origin: Origin) -> Message:
    role = item["role"]
    content = item.get("content")
    parts: list[Part] = [Text(content)] if isinstance(content, str) else []
    pieces = content if isinstance(content, list) else []
    whole = (
        raw_block(item)
        if role == ASSISTANT and len(pieces) == 1 and item.get("type") == "message"
        else msgspec.UNSET
    )
    for piece in pieces:
        kind = piece.get("type") if isinstance(piece, dict) else None
        if kind in ("input_text", "output_text", "text"):
            parts.append(Text(_words(piece.get("text")), block=whole))
        elif kind == "refusal":
            parts.append(Text(_words(piece.get("refusal"))))
        else:
            parts.append(_opaque(piece))
    return _message(i, SYSTEM if role == "developer" else role, parts, origin)


def _response_output(output: Json) -> Json:
    if isinstance(output, list):
        texts = [p.get("text") for p in output if isinstance(p, dict) and p.get("type") == "input_text"]
        if len(texts) == len(output):
            return "\n".join(map(_words, texts))
    return output


# --- Gemini


def read_gemini(items: Sequence[Item]) -> list[Message]:
    """Contents of generateContent: roles user and model, parts in camelCase or snake_case."""
    origin = origin_of("gemini")
    return [_gemini(i, item, origin) for i, item in enumerate(items)]


_NO_DATA: Final = frozenset({"thought", "thoughtSignature", "thought_signature"})
"""What a part of Gemini may have beside the one field that it must have."""


def _either(part: Item, camel: str, snake: str) -> Json:
    return part[camel] if camel in part else part.get(snake)


def _gemini(i: int, item: Item, origin: Origin) -> Message:
    role = _words(item.get("role") or USER)
    parts: list[Part] = []
    for piece in listed(item.get("parts")):
        if not isinstance(piece, dict):
            parts.append(Text(piece) if isinstance(piece, str) else _opaque(piece))
            continue
        call = _either(piece, "functionCall", "function_call")
        response = _either(piece, "functionResponse", "function_response")
        signature = _either(piece, "thoughtSignature", "thought_signature")
        bound = {"thought_signature": signature} if isinstance(signature, str) else None
        if isinstance(call, dict):
            parts.append(
                ToolCall(_words(call.get("id")), _words(call.get("name")), call.get("args"), bound=bound)
            )
        elif isinstance(response, dict):
            name = response.get("name")
            parts.append(
                ToolResult(
                    _words(response.get("id")),
                    _gemini_response(response.get("response")),
                    name=name if isinstance(name, str) else None,
                )
            )
        elif piece.get("thought") is True:
            parts.append(Thinking(_words(piece.get("text"))))
        elif isinstance(piece.get("text"), str):
            odd = piece.keys() - {"text"}
            parts.append(Text(piece["text"], block=raw_block(piece) if odd else msgspec.UNSET))
        elif piece.keys() - _NO_DATA:
            parts.append(Opaque("part", block=raw_block(piece)))
        else:
            parts.append(Opaque("nothing"))  # nobody takes it back, though answers hold such parts
    if role == "function":
        role = TOOL
    return _message(i, ASSISTANT if role == "model" else role, parts, origin)


def _gemini_response(response: Json) -> Json:
    if isinstance(response, dict) and response.keys() == {"result"} and isinstance(response["result"], str):
        return response["result"]
    return response


# --- which shape is it


class Wire(msgspec.Struct, frozen=True):
    """A provider's shape of a list of messages."""

    name: str
    read: Callable[[Sequence[Item]], list[Message]]
    field: str
    """The field of the request body that holds the list."""


WIRES: Final[dict[str, Wire]] = {
    wire.name: wire
    for wire in (
        Wire("anthropic", read_anthropic, "messages"),
        Wire("openai-chat", read_openai_chat, "messages"),
        Wire("openai-responses", read_openai_responses, "input"),
        Wire("gemini", read_gemini, "contents"),
    )
}


def check_items(items: Any) -> list[Item]:
    """`items` as a list of objects. Raises BadInput."""
    if not isinstance(items, list | tuple):
        raise BadInput("messages are a list of objects")
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            raise BadInput(f"message {i} is no object")
    return list(items)


_RESPONSES_TYPES = frozenset(
    {"message", "function_call", "function_call_output", "reasoning", "item_reference"}
)
_ANTHROPIC_TYPES = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "image", "document"}
)
_CHAT_KEYS = frozenset({"tool_calls", "tool_call_id", "function_call", "refusal", "reasoning_content"})


def detect_wire(items: Sequence[Item]) -> str | None:
    """Whose shape a list of messages has; None when it is none of them. Plain text alone counts as chat."""
    chat = False
    for item in items:
        if "parts" in item and item.get("role", "user") in ("user", "model", "function"):
            return "gemini" if "id" not in item else None
        kind = _words(item.get("type"))
        if kind in _RESPONSES_TYPES and (kind != "message" or isinstance(item.get("role"), str)):
            return "openai-responses"
        if item.keys() & _CHAT_KEYS or item.get("role") in (TOOL, "function", "developer"):
            return "openai-chat"
        content = item.get("content")
        if isinstance(content, list):
            kinds = {_words(piece.get("type")) for piece in content if isinstance(piece, dict)}
            if kinds & _ANTHROPIC_TYPES:
                return "anthropic"
            if kinds & {"input_text", "output_text", "input_image"}:
                return "openai-responses"
            if "image_url" in kinds or "input_audio" in kinds:
                return "openai-chat"
            chat = chat or "role" in item
        elif "role" in item:
            chat = True
    return "openai-chat" if chat else None
