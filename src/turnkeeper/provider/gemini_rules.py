"""What Gemini's generateContent refuses: rules G1-G6, over a request body. One pass, no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from turnkeeper.provider.wire import Violation, unsound_json

SKIP_SIGNATURE: Final = "skip_thought_signature_validator"
"""Accepted in place of a thought signature that is not there (G6)."""

Piece = dict[str, Any]
Genuine = Callable[[str], bool]
"""Whether this thought signature was made by this model for this account (G6)."""

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}\Z")


def validate(body: Any, *, genuine: Genuine | None = None, signatures: bool = True) -> tuple[Violation, ...]:
    """Every rule that `body` breaks, in order of place; empty when it would be accepted.

    `signatures=False` is for models before Gemini 3, which do not ask for them (G5).
    """
    found = list(_shape(body))
    if found:
        return tuple(found)
    contents = body["contents"]
    calls: list[Piece] = []
    before = ""
    turn_began = max((i for i, content in enumerate(contents) if _is_plain_user(content)), default=-1)
    for index, content in enumerate(contents):
        path = f"contents[{index}]"
        role = content.get("role", "user")
        made = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if index == 0 and role != "user":
            found.append(Violation("G1", path, "Please ensure that the first content is from the user."))
        if role == "model" and answers:
            found.append(Violation("G3", path, f"{path}: function responses must come from the user."))
        if role == "user" and made:
            found.append(Violation("G1", path, f"{path}: function calls must come from the model."))
        if made and before not in ("user", "function"):
            found.append(
                Violation(
                    "G1",
                    path,
                    "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
                )
            )
        if calls or answers:
            _pair(path, calls, answers, found)
        calls = made
        before = "function" if answers else role
        if made and role == "model":
            _signature(path, content["parts"], found, genuine, wanted=signatures and index > turn_began)
        for at, part in enumerate(content["parts"]):
            signature = part.get("thoughtSignature")
            if genuine is not None and signature not in (None, SKIP_SIGNATURE) and not genuine(signature):
                found.append(Violation("G6", f"{path}.parts[{at}]", "Corrupted thought signature."))
    if calls:
        _pair("contents", calls, [], found)
    if contents[-1].get("role") == "model":
        sentence = "Please ensure that single turn requests end with a user role or a function response."
        found.append(Violation("G4", f"contents[{len(contents) - 1}]", sentence))
    if (unsound := unsound_json(body)) is not None:
        found.append(Violation("A23", "", unsound))
    return tuple(found)


def _shape(body: Any) -> Iterator[Violation]:
    if not isinstance(body, dict):
        yield Violation("shape", "", "Invalid JSON payload received.")
        return
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        yield Violation("shape", "contents", "GenerateContentRequest.contents: contents is not specified")
        return
    for index, content in enumerate(contents):
        path = f"contents[{index}]"
        if not isinstance(content, dict) or content.get("role", "user") not in ("user", "model"):
            yield Violation("G1", path, "Please use a valid role: user, model.")
            continue
        parts = content.get("parts")
        if not isinstance(parts, list) or not parts:
            yield Violation(
                "shape", path, f"GenerateContentRequest.{path}.parts: contents.parts must not be empty."
            )
            continue
        for at, part in enumerate(parts):
            if not isinstance(part, dict) or not (set(part) - {"thought", "thoughtSignature"}):
                sentence = f"GenerateContentRequest.{path}.parts[{at}].data: required oneof field 'data' must have one initialized field"
                yield Violation("shape", f"{path}.parts[{at}]", sentence)
                continue
            for field in ("functionCall", "functionResponse"):
                if field in part:
                    yield from _function(f"{path}.parts[{at}]", field, part[field])


def _function(path: str, field: str, value: Any) -> Iterator[Violation]:
    content = {"functionCall": "args", "functionResponse": "response"}[field]
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("name"), str)
        or not _NAME.match(value["name"])
    ):
        yield Violation("shape", path, f"{path}.{field}.name: Invalid function name.")
    elif not isinstance(value.get(content, {}), dict):
        yield Violation("A8", path, f"{path}.{field}.{content}: must be an object (Struct).")


def _is_plain_user(content: dict[str, Any]) -> bool:
    """Whether it is a user's own message: the turn whose signatures are checked begins there (G5)."""
    return content.get("role", "user") == "user" and any(
        "functionResponse" not in part for part in content["parts"]
    )


def _pair(path: str, calls: list[Piece], answers: list[Piece], found: list[Violation]) -> None:
    if not calls:
        sentence = "Please ensure that function response turn comes immediately after a function call turn."
        found.append(Violation("G3", path, sentence))
        return
    names = sorted(call["name"] for call in calls)
    if len(calls) != len(answers) or names != sorted(answer["name"] for answer in answers):
        sentence = (
            "Please ensure that the number of function response parts is equal to the number of function call parts "
            f"of the function call turn. ({len(calls)} calls, {len(answers)} responses)"
        )
        found.append(Violation("G2", path, sentence))
        return
    wanted = sorted(str(call["id"]) for call in calls if call.get("id"))
    if wanted != sorted(str(answer["id"]) for answer in answers if answer.get("id")):
        found.append(
            Violation("G2", path, "The ids of the function responses do not match those of the calls.")
        )


def _signature(
    path: str, parts: list[Piece], found: list[Violation], genuine: Genuine | None, *, wanted: bool
) -> None:
    at, first = next((at, part) for at, part in enumerate(parts) if "functionCall" in part)
    if wanted and not first.get("thoughtSignature"):
        sentence = f"Function call is missing a thought_signature in functionCall parts. (function call `{first['functionCall']['name']}`, {path})"
        found.append(Violation("G5", f"{path}.parts[{at}]", sentence))
