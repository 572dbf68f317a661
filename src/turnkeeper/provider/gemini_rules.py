"""What Gemini's generateContent refuses: rules G1-G8, over a request body. One pass, no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from turnkeeper.provider.wire import Violation, unsound_json

SKIP_SIGNATURE: Final = "skip_thought_signature_validator"
"""Accepted in place of a thought signature that is not there (G6)."""

UNTAKEN_IMAGES: Final = frozenset({"image/gif"})
"""Kinds of images that are refused everywhere, though they are images (github.com/su-kaka/gcli2api/issues/297)."""
RESULT_MEDIA: Final = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""Kinds of files that may stand inside a function response."""

Piece = dict[str, Any]
Genuine = Callable[[str], bool]
"""Whether this thought signature was made by this model for this account (G6)."""

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}\Z")
_VERSION = re.compile(r"(?:^|/)gemini-(\d+)")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}\Z")


def takes_result_media(model: str) -> bool:
    """Whether a model takes files inside function responses: Gemini 3 and later; others refuse the whole request.

    github.com/google-gemini/gemini-cli/issues/19436. A name that does not say its version is taken for an older one.
    """
    named = _VERSION.search(model)
    return named is not None and int(named[1]) >= 3


def validate(
    body: Any, *, genuine: Genuine | None = None, signatures: bool = True, result_media: bool = True
) -> tuple[Violation, ...]:
    """Every rule that `body` breaks, in order of place; empty when it would be accepted.

    `signatures=False` is for models before Gemini 3, which do not ask for them (G5), and so is
    `result_media=False`: they take no files inside function responses.
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
            found += _media(f"{path}.parts[{at}]", part, result_media=result_media)
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


def _media(path: str, part: Piece, *, result_media: bool) -> Iterator[Violation]:
    """Files as they may stand: beside the words, and inside a function response, never as its neighbours (G2)."""
    if "inlineData" in part:
        yield from _inline(f"{path}.inlineData", part["inlineData"], None)
    pieces = part.get("functionResponse", {}).get("parts")
    if pieces is None:
        return
    if not result_media:
        sentence = (
            "Unable to submit request because `function_response.parts` is not supported for this model."
        )
        yield Violation("G7", f"{path}.functionResponse.parts", sentence)
    elif not isinstance(pieces, list):
        yield Violation("shape", f"{path}.functionResponse.parts", "Invalid JSON payload received.")
    else:
        for at, piece in enumerate(pieces):
            inline = piece.get("inlineData") if isinstance(piece, dict) else None
            yield from _inline(f"{path}.functionResponse.parts[{at}].inlineData", inline, RESULT_MEDIA)


def _inline(path: str, inline: Any, taken: frozenset[str] | None) -> Iterator[Violation]:
    given = inline if isinstance(inline, dict) else {}
    kind, data = given.get("mimeType"), given.get("data")
    if not isinstance(kind, str) or not isinstance(data, str) or not kind or not data:
        yield Violation("shape", path, f"{path}: required fields mimeType and data are not set.")
        return
    if kind in UNTAKEN_IMAGES or (taken is not None and kind not in taken):
        yield Violation("G8", path, f"Unsupported MIME type: {kind}")
    # The first characters tell base64 from other text; the whole is the server's to decode.
    if not _BASE64.match(data[:64]):
        yield Violation(
            "shape", path, f"Invalid value at '{path}.data' (TYPE_BYTES), Base64 decoding failed."
        )


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
