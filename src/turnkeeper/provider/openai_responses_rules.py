"""What the OpenAI Responses API refuses: rules O1-O10, over a request body. One pass, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from turnkeeper.provider.wire import Violation, read_arguments, unsound_json

CALL_ID_CHARS_MAX: Final = 64

Item = dict[str, Any]
Genuine = Callable[[Item], bool]
"""Whether this reasoning item's encrypted content was made for this account (O7)."""

_OWN_IDS: Final = ("fc_", "msg_")
"""Prefixes of item ids that need their reasoning beside them (O4)."""


def validate(body: Any, *, genuine: Genuine | None = None) -> tuple[Violation, ...]:
    """Every rule that `body` breaks, in order of place; empty when it would be accepted."""
    found = list(_shape(body))
    if found:
        return tuple(found)
    items = body["input"]
    if isinstance(items, list):
        _items(items, found, genuine)
    if (unsound := unsound_json(body)) is not None:
        found.append(Violation("A23", "", unsound))
    return tuple(found)


def _shape(body: Any) -> Iterator[Violation]:
    if not isinstance(body, dict):
        yield Violation("shape", "", "We could not parse the JSON body of your request.")
        return
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Violation("shape", "model", "Missing required parameter: 'model'.")
    items = body.get("input")
    if not isinstance(items, str | list) or not items:
        yield Violation("shape", "input", "Missing required parameter: 'input'.")
        return
    for index, item in enumerate(items if isinstance(items, list) else ()):
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if not isinstance(kind, str):
            yield Violation(
                "shape", f"input[{index}]", f"Invalid value: 'input[{index}]' must be an object with a type."
            )
        elif kind == "message" and item.get("role") not in ("user", "assistant", "system", "developer"):
            yield Violation("shape", f"input[{index}]", f"Invalid value for 'input[{index}].role'.")


def _items(items: list[Item], found: list[Violation], genuine: Genuine | None) -> None:
    calls: dict[str, str] = {}
    answered: set[str] = set()
    item_ids: set[str] = set()
    reasoned = False
    for index, item in enumerate(items):
        path = f"input[{index}]"
        kind = item.get("type", "message")
        item_id = item.get("id")
        if isinstance(item_id, str):
            if item_id in item_ids:
                found.append(
                    Violation(
                        "O5",
                        path,
                        f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.",
                    )
                )
            item_ids.add(item_id)
        if kind == "function_call_output":
            reasoned = False
            _output(path, item, calls, answered, found)
            continue
        if kind == "message" and item.get("role") != "assistant":
            reasoned = False
            _said(path, item, found)
            continue
        if kind == "reasoning":
            reasoned = True
            _reasoning(path, items, index, found)
            if genuine is not None and not genuine(item):
                found.append(
                    Violation(
                        "O7",
                        path,
                        f"The encrypted content of item {item_id} could not be verified (invalid_encrypted_content).",
                    )
                )
            continue
        if isinstance(item_id, str) and item_id.startswith(_OWN_IDS) and not reasoned:
            sentence = (
                f"Item '{item_id}' of type '{kind}' was provided without its required 'reasoning' item."
            )
            found.append(Violation("O4", path, sentence))
        if kind == "message":
            _said(path, item, found)
        elif kind == "function_call":
            _call(path, item, calls, found)
    for call_id, path in calls.items():
        if call_id not in answered:
            found.append(Violation("O1", path, f"No tool output found for function call {call_id}."))


def _reasoning(path: str, items: list[Item], index: int, found: list[Violation]) -> None:
    item = items[index]
    if not isinstance(item.get("summary"), list):
        found.append(Violation("O8", path, f"Missing required parameter: '{path}.summary'."))
    following = items[index + 1] if index + 1 < len(items) else {}
    kind = following.get("type", "message" if following else None)
    if kind in (None, "function_call_output") or (kind == "message" and following.get("role") != "assistant"):
        sentence = (
            f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
        )
        found.append(Violation("O3", path, sentence))


def _call(path: str, item: Item, calls: dict[str, str], found: list[Violation]) -> None:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        found.append(Violation("O1", path, f"Missing required parameter: '{path}.call_id'."))
    else:
        if len(call_id) > CALL_ID_CHARS_MAX:
            sentence = (
                f"Invalid '{path}.call_id': string too long. Expected a string with maximum length "
                f"{CALL_ID_CHARS_MAX}, but got a string with length {len(call_id)} instead."
            )
            found.append(Violation("O6", path, sentence))
        if call_id in calls:
            found.append(Violation("O5", path, f"Duplicate 'call_id' of {call_id} in {path}."))
        calls[call_id] = path
    if not isinstance(item.get("name"), str) or not item["name"]:
        found.append(Violation("O9", path, f"Invalid '{path}.name': empty string."))
    arguments = item.get("arguments")
    if not isinstance(arguments, str) or not arguments or read_arguments(arguments) is None:
        found.append(
            Violation("C5", path, f"Invalid '{path}.arguments': expected the text of a JSON object.")
        )


def _output(path: str, item: Item, calls: dict[str, str], answered: set[str], found: list[Violation]) -> None:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or call_id not in calls:
        found.append(
            Violation("O2", path, f"No tool call found for function call output with call_id {call_id}.")
        )
    elif call_id in answered:
        found.append(Violation("O5", path, f"Duplicate 'call_id' of {call_id} in {path}."))
    else:
        answered.add(call_id)
    if not isinstance(item.get("output"), str | list):
        found.append(Violation("shape", path, f"Missing required parameter: '{path}.output'."))


def _said(path: str, item: Item, found: list[Violation]) -> None:
    content = item.get("content")
    if isinstance(content, str):
        content = [
            {"type": "output_text" if item.get("role") == "assistant" else "input_text", "text": content}
        ]
    if not isinstance(content, list) or not content:
        found.append(Violation("O10", path, f"Invalid '{path}.content': empty."))
        return
    for at, piece in enumerate(content):
        if not isinstance(piece, dict) or not isinstance(piece.get("type"), str):
            found.append(
                Violation("shape", path, f"Invalid '{path}.content[{at}]': expected an object with a type.")
            )
        elif piece["type"] == "output_text" and (
            not isinstance(piece.get("text"), str) or not piece["text"].strip()
        ):
            found.append(Violation("O10", path, f"Invalid '{path}.content[{at}].text': empty string."))
