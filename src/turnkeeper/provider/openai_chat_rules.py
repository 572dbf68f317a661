"""What Chat Completions and its strict compatibles refuse: rules C1-C9, over a request body.

One pass, no I/O; it judges our own requests and, in the loopback model server, other people's. Which rules
hold depends on the variant: OpenAI itself takes two users in a row, many chat templates do not (C8).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from turnkeeper.provider.wire import Violation, blank, read_arguments, unsound_json

CALL_ID_CHARS_MAX: Final = 40
ROLES: Final = ("system", "developer", "user", "assistant", "tool")

ALTERNATING: Final = frozenset({"vllm"})
"""Variants whose chat templates demand that user and assistant alternate (C8)."""
WANTS_REASONING: Final = frozenset({"deepseek", "kimi"})
"""Variants that want the reasoning of calls back while they think (C7)."""


def validate(body: Any, *, variant: str = "openai", thinking: bool | None = None) -> tuple[Violation, ...]:
    """Every rule that `body` breaks, in order of place; empty when it would be accepted.

    `thinking` tells whether the model reasons; None reads it from the body (C7).
    """
    found = list(_shape(body))
    if found:
        return tuple(found)
    messages = body["messages"]
    if thinking is None:
        wish = body.get("thinking")
        thinking = isinstance(wish, dict) and wish.get("type") == "enabled"
    open_calls: dict[str, str] = {}
    said = ""
    for index, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            _result(index, message, open_calls, found)
            continue
        if open_calls:
            _unanswered(open_calls, found)
        path = f"messages[{index}]"
        if role == "assistant":
            open_calls = _assistant(path, message, found)
            if thinking and open_calls and variant in WANTS_REASONING:
                reasoning = message.get("reasoning_content")
                if not isinstance(reasoning, str) or blank(reasoning):
                    sentence = f"{path}: The `reasoning_content` in the thinking mode must be passed back to the API."
                    found.append(Violation("C7", path, sentence))
        elif _is_empty(message.get("content")):
            found.append(Violation("C6", path, f"{path}: content must not be empty for role {role}."))
        if variant in ALTERNATING:
            if role == said and not message.get("tool_calls"):
                sentence = f"{path}: Conversation roles must alternate user/assistant/user/assistant/..."
                found.append(Violation("C8", path, sentence))
            if not said and role == "assistant":
                found.append(
                    Violation(
                        "C8",
                        path,
                        f"{path}: After the optional system message, conversation roles must start with user.",
                    )
                )
        if role == "user" or (role == "assistant" and not message.get("tool_calls")):
            said = role  # templates count a call and its results as a part of the answer that follows
    if open_calls:
        _unanswered(open_calls, found)
    if (unsound := unsound_json(body)) is not None:
        found.append(Violation("A23", "", unsound))
    return tuple(found)


def _shape(body: Any) -> Iterator[Violation]:
    if not isinstance(body, dict):
        yield Violation("shape", "", "We could not parse the JSON body of your request.")
        return
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Violation("shape", "model", "you must provide a model parameter")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield Violation("shape", "messages", "[] is too short - 'messages'")
        return
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            yield Violation(
                "shape", path, f"Invalid value for '{path}.role'. Supported values are: {', '.join(ROLES)}."
            )
            continue
        content = message.get("content")
        if content is not None and not isinstance(content, str | list):
            yield Violation("shape", path, f"Invalid type for '{path}.content': expected a string or a list.")
        elif isinstance(content, list):
            for at, piece in enumerate(content):
                if not isinstance(piece, dict) or not isinstance(piece.get("type"), str):
                    yield Violation(
                        "shape",
                        path,
                        f"Invalid type for '{path}.content[{at}]': expected an object with a type.",
                    )


def _is_empty(content: Any) -> bool:
    if content is None or content == "":
        return True
    if isinstance(content, str):
        return content.isspace()
    return not any(piece["type"] != "text" or not blank(str(piece.get("text", ""))) for piece in content)


def _assistant(path: str, message: dict[str, Any], found: list[Violation]) -> dict[str, str]:
    calls = message.get("tool_calls")
    if "tool_calls" in message and (not isinstance(calls, list) or not calls):
        found.append(
            Violation("C6", path, f"Invalid '{path}.tool_calls': empty array. Expected at least one call.")
        )
        calls = None
    if not calls:
        if _is_empty(message.get("content")):
            sentence = f"{path}: Invalid assistant message: content or tool_calls must be set"
            found.append(Violation("C6", path, sentence))
        return {}
    if message.get("content") is not None and _is_empty(message["content"]):
        found.append(Violation("C6", path, f"{path}: content of an assistant message must not be empty."))
    opened: dict[str, str] = {}
    for at, call in enumerate(calls):
        where = f"{path}.tool_calls[{at}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            found.append(Violation("shape", where, f"Missing required parameter: '{where}.function'."))
            continue
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id:
            found.append(Violation("C1", where, f"Missing required parameter: '{where}.id'."))
            call_id = where
        elif len(call_id) > CALL_ID_CHARS_MAX:
            sentence = (
                f"Invalid '{where}.id': string too long. Expected a string with maximum length {CALL_ID_CHARS_MAX}, "
                f"but got a string with length {len(call_id)} instead."
            )
            found.append(Violation("C4", where, sentence))
        if call_id in opened:
            found.append(
                Violation("C3", where, f"Duplicate value for 'tool_call_id' of {call_id} in {path}.")
            )
        opened[call_id] = path
        name = function.get("name")
        if not isinstance(name, str) or not name:
            found.append(Violation("O9", where, f"Invalid '{where}.function.name': empty string."))
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            found.append(Violation("C5", where, f"Missing required parameter: '{where}.function.arguments'."))
        elif arguments == "" or read_arguments(arguments) is None:
            sentence = f"{where}: Assistant tool call arguments must be valid JSON and an object."
            found.append(Violation("C5", where, sentence))
    return opened


def _result(index: int, message: dict[str, Any], open_calls: dict[str, str], found: list[Violation]) -> None:
    path = f"messages[{index}]"
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str) or open_calls.pop(call_id, None) is None:
        sentence = (
            f"Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'. "
            f"({path}, tool_call_id {call_id!r})"
        )
        found.append(Violation("C2", path, sentence))
    if _is_empty(message.get("content")):
        found.append(Violation("C6", path, f"{path}: content of a tool message must not be empty."))


def _unanswered(open_calls: dict[str, str], found: list[Violation]) -> None:
    path = next(iter(open_calls.values()))
    sentence = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(open_calls)} ({path})"
    )
    found.append(Violation("C1", path, sentence))
    open_calls.clear()
