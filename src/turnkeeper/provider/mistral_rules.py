"""What Mistral refuses: rules M1-M5, over a request body, beside what Chat Completions has in common (C2, C5, C6).

The order of roles is mistral-common's own, and one step stricter: no user after a tool message (M3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from turnkeeper.provider.wire import Violation, blank, read_arguments, unsound_json

_ID = re.compile(r"[a-zA-Z0-9]{9}\Z")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")

FOLLOWS: Final[dict[str, frozenset[str]]] = {
    "": frozenset({"system", "user"}),
    "system": frozenset({"user", "assistant", "system"}),
    "user": frozenset({"assistant", "system", "user"}),
    "assistant": frozenset({"assistant", "user", "tool"}),
    "tool": frozenset({"assistant", "tool"}),
}
"""Which role may follow which (M3)."""


def validate(body: Any, *, v3: bool = False) -> tuple[Violation, ...]:
    """Every rule that `body` breaks, in order of place; empty when it would be accepted.

    `v3` is for tokenizers before V5, where an assistant message has words or calls, not both (M2).
    """
    found = list(_shape(body))
    if found:
        return tuple(found)
    before = ""
    expected: list[str] = []
    answered: list[str] = []
    messages = body["messages"]
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        role = message["role"]
        if role not in FOLLOWS[before]:
            found.append(Violation("M3", path, f"Unexpected role '{role}' after role '{before or 'none'}'"))
        if role == "tool":
            _result(path, message, expected, answered, found)
        else:
            _close(path, expected, answered, found)
            expected, answered = [], []
        if role == "assistant":
            expected = _assistant(path, message, found, v3=v3)
        elif role in ("user", "system") and _is_empty(message.get("content")):
            found.append(Violation("C6", path, f"{path}: content must not be empty."))
        before = role
    _close(f"messages[{len(messages) - 1}]", expected, answered, found)
    last = messages[-1]
    if last["role"] not in ("user", "tool") and not (
        last["role"] == "assistant" and last.get("prefix") is True
    ):
        sentence = f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {last['role']}"
        found.append(Violation("M5", f"messages[{len(messages) - 1}]", sentence))
    if (unsound := unsound_json(body)) is not None:
        found.append(Violation("A23", "", unsound))
    return tuple(found)


def _shape(body: Any) -> Iterator[Violation]:
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        yield Violation("shape", "messages", "Conversation must have at least one message")
        return
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Violation("shape", "model", "model: Field required")
    for index, message in enumerate(body["messages"]):
        path = f"messages[{index}]"
        if not isinstance(message, dict) or message.get("role") not in FOLLOWS or not message.get("role"):
            yield Violation("shape", path, f"{path}: unknown role")
        elif not isinstance(message.get("content"), str | list | None):
            yield Violation("shape", path, f"{path}: content must be a string or a list")
        elif isinstance(message.get("content"), list):
            for at, piece in enumerate(message["content"]):
                if not isinstance(piece, dict) or not isinstance(piece.get("type"), str):
                    yield Violation("shape", path, f"{path}.content[{at}]: type is required")


def _is_empty(content: Any) -> bool:
    if content is None or isinstance(content, str):
        return not content or content.isspace()
    return not any(piece["type"] != "text" or not blank(str(piece.get("text", ""))) for piece in content)


def _assistant(path: str, message: dict[str, Any], found: list[Violation], *, v3: bool) -> list[str]:
    calls = message.get("tool_calls") or []
    content = not _is_empty(message.get("content"))
    if not content and not calls:
        found.append(
            Violation("C6", path, "Assistant message must have either content or tool_calls, but not none.")
        )
    if v3 and content and calls:
        found.append(
            Violation("M2", path, "Assistant message must have either content or tool_calls, but not both.")
        )
    ids: list[str] = []
    for at, call in enumerate(calls if isinstance(calls, list) else ()):
        where = f"{path}.tool_calls[{at}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            found.append(Violation("shape", where, f"{where}: function is required"))
            continue
        call_id = call.get("id")
        if not isinstance(call_id, str) or not _ID.match(call_id):
            sentence = f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
            found.append(Violation("M1", where, sentence))
        if call_id in ids:
            found.append(Violation("M4", where, f"Duplicate tool call id {call_id} in assistant message"))
        ids.append(str(call_id))
        name = function.get("name")
        if not isinstance(name, str) or not _NAME.match(name):
            sentence = f"Function name was {name} but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64."
            found.append(Violation("M5", where, sentence))
        arguments = function.get("arguments")
        if not isinstance(arguments, dict) and (
            not isinstance(arguments, str) or not arguments or read_arguments(arguments) is None
        ):
            found.append(Violation("C5", where, f"{where}: arguments must be the text of a JSON object"))
    return ids


def _result(
    path: str, message: dict[str, Any], expected: list[str], answered: list[str], found: list[Violation]
) -> None:
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str) or not _ID.match(call_id):
        found.append(
            Violation(
                "M1", path, f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
            )
        )
    if call_id not in expected:
        found.append(Violation("M4", path, f"Unexpected tool call id {call_id} in tool results"))
    elif call_id in answered:
        found.append(Violation("M4", path, f"Duplicate tool call id {call_id} in tool results"))
    answered.append(str(call_id))
    if _is_empty(message.get("content")):
        found.append(Violation("C6", path, f"{path}: content of a tool message must not be empty"))


def _close(path: str, expected: list[str], answered: list[str], found: list[Violation]) -> None:
    if len(expected) > len(answered):
        sentence = (
            f"Not the same number of function calls and responses ({len(expected)} and {len(answered)})"
        )
        found.append(Violation("M4", path, sentence))
