"""The Gemini generateContent dialect: encode a feed into contents. Pure; the rules stand in `gemini_rules`.

A feed becomes `{contents, systemInstruction?, tools?, generationConfig?}`; the model stands in the address.
Roles are user and model and alternate; all responses of a step stand in the one user turn behind it, in call
order (G1-G3). A thought signature goes back in the very part that it came in, only to its own origin; the
first call of a step that has none gets the documented stand-in (G5, G6). A picture in a result stands inside its
function response, where the model takes that (Gemini 3); beside it, it would be one response too many.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from turnkeeper.conversation.messages import ASSISTANT, SYSTEM, TOOL, Message, Origin
from turnkeeper.conversation.parts import Attachment, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.port.provider import ToolSpec
from turnkeeper.provider.gemini_rules import (
    RESULT_MEDIA,
    SKIP_SIGNATURE,
    UNTAKEN_IMAGES,
    takes_result_media,
    validate,
)
from turnkeeper.provider.wire import (
    EMPTY_MESSAGE,
    EMPTY_RESULT,
    CallIds,
    Encoded,
    Files,
    LeftOut,
    Names,
    arguments_object,
    blank,
    fit_attachment,
    is_bound_here,
    joined_system,
    kind_note,
    lay_over,
    read_block,
    result_pieces,
    result_text,
    user_block,
    wellformed,
)

__all__ = ["encode", "validate"]

DIALECT: Final = "gemini"

_KEEP_ID = re.compile(r"[!-~]{1,64}\Z")
_CONFIG: Final = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "stop_sequences": "stopSequences",
    "seed": "seed",
}
"""Option -> field of generationConfig."""

Piece = dict[str, Any]


def encode(
    feed: Sequence[Message],
    *,
    origin: Origin,
    instructions: str = "",
    tools: Sequence[ToolSpec] = (),
    options: dict[str, Any] | None = None,
    files: Files | None = None,
) -> Encoded:
    """The request for a cleaned feed.

    Options: max_tokens; thinking (Gemini's thinkingConfig, or True for thoughts in the answer); tool_choice
    (Gemini's functionCallingConfig); temperature and the like; extra (an object laid over the body).
    """
    encoder = Encoder(origin, options or {}, files)
    for message in feed:
        encoder.add(message)
    return encoder.finish(instructions, tools)


class Encoder:
    """Builds the contents one by one; what was added never changes when more is added (cache stability)."""

    def __init__(self, origin: Origin, options: dict[str, Any], files: Files | None) -> None:
        self._origin = origin
        self._options = options
        self._files = files
        self._result_media = takes_result_media(origin.model)
        self._ids = CallIds(_KEEP_ID, 24)
        self._names = Names(letter_first=True)
        self._system: list[str] = []
        self._contents: list[dict[str, Any]] = []
        self._responses = 0
        self._open: dict[str, Piece] = {}
        self._left: list[LeftOut] = []

    def add(self, message: Message) -> None:
        """Put one message of the feed behind the others."""
        role = message.role
        if role == ASSISTANT:
            self._add_assistant(message)
        elif role == TOOL:
            self._add_results(message)
        elif role == SYSTEM and not self._contents:
            self._system.append(wellformed(message.text))
        else:
            self._add_user(message)

    def _add_user(self, message: Message) -> None:
        pieces: list[Piece] = []
        for part in message.parts:
            if type(part) is Text:
                if not blank(part.text):
                    pieces.append({"text": wellformed(part.text)})
            elif type(part) is Attachment:
                pieces.append(self._attach(message, part))
            elif (block := user_block(message, part, self._origin)) is not None:
                pieces.append(block)
            else:
                self._leave(message, part, "1g.2", "only words and files stand on the user's side")
        self._push("user", pieces or [{"text": EMPTY_MESSAGE}])

    def _attach(self, message: Message, part: Attachment) -> Piece:
        fit = fit_attachment(part, self._files)
        if fit.kind in ("image", "pdf") and fit.media_type in UNTAKEN_IMAGES:
            note = kind_note(part)
            self._leave(message, part, "G8", note)
            return {"text": note}
        if fit.kind in ("image", "pdf"):
            return {"inlineData": {"mimeType": fit.media_type, "data": fit.value}}
        if fit.kind == "note":
            self._leave(message, part, "A22", fit.value)
        return {"text": fit.value}

    def _add_results(self, message: Message) -> None:
        pieces: list[Piece] = []
        for part in message.parts:
            if type(part) is not ToolResult:
                self._leave(message, part, "1g.2", "only results stand in a tool message")
                continue
            wire = self._ids.result(part.tool_call_id)
            call = self._open.pop(wire, None) if wire is not None else None
            if call is None:
                self._leave(message, part, "G3", "it answers no open call of the turn before")
                continue
            field = "error" if part.is_error else "output"
            words, media = self._result(part)
            response: Piece = {"name": call["name"], "response": {field: words}}
            if media:
                response["parts"] = media
            if "id" in call:
                response = {"id": call["id"], **response}
            pieces.append({"functionResponse": response})
        if not pieces:
            return
        contents = self._contents
        if contents[-1]["role"] == "user":
            contents[-1]["parts"][self._responses : self._responses] = pieces
        else:
            contents.append({"role": "user", "parts": pieces})
            self._responses = 0
        self._responses += len(pieces)

    def _result(self, part: ToolResult) -> tuple[str, list[Piece]]:
        """The words of a result, and its pictures for a model that takes them there.

        No $ref from the words to a picture: the Gemini API answers those with a 400
        (github.com/googleapis/python-genai/issues/2792).
        """
        if type(part.content) is str or not self._result_media:
            return result_text(part), []
        words: list[str] = []
        media: list[Piece] = []
        for kind, value in result_pieces(part, self._files):
            if kind != "image":
                words.append(str(value))
            elif value["media_type"] in RESULT_MEDIA:
                media.append({"inlineData": {"mimeType": value["media_type"], "data": value["data"]}})
            else:
                words.append(f"[image {value['media_type']} left out: this kind is not taken]")
        said = "\n".join(words)
        return (EMPTY_RESULT if blank(said) else wellformed(said)), media

    def _add_assistant(self, message: Message) -> None:
        self._ids.open_batch()
        self._open = {}
        bound = is_bound_here(message, self._origin)
        pieces: list[Piece] = []
        called = False
        for part in message.parts:
            if type(part) is ToolCall and not part.server_side:
                pieces.append(self._call(message, part, bound=bound, first=not called))
                called = True
            elif type(part) is Text:
                block = read_block(part) if bound else None
                if block is not None and block.get("text") == part.text:
                    pieces.append(block)  # an empty text may carry a signature
                elif not blank(part.text):
                    pieces.append({"text": wellformed(part.text)})
            elif type(part) is Attachment:
                pieces.append({"text": f"[file {wellformed(part.name or part.attachment_id)}]"})
            elif type(part) is Thinking and bound and part.text and read_block(part) is None:
                pieces.append({"text": wellformed(part.text), "thought": True})
            else:
                block = read_block(part) if bound else None
                if block is None:
                    self._leave(message, part, "1g.8", "it is bound to where it came from")
                else:
                    pieces.append(block)
        if any(not piece.get("thought") for piece in pieces):
            self._push("model", pieces)  # thoughts alone are no turn

    def _call(self, message: Message, part: ToolCall, *, bound: bool, first: bool) -> Piece:
        wire = self._ids.call(part.id)
        name = self._names.wire(part.name)
        arguments = arguments_object(part)
        block = read_block(part) if bound else None
        call = block.get("functionCall") if block is not None else None
        if (
            block is None
            or not isinstance(call, dict)
            or call.get("name") != name
            or (call.get("args") or {}) != arguments
        ):
            # The signature stays with its part also where only the name had to change on the wire (G5).
            same = isinstance(call, dict) and (call.get("args") or {}) == arguments
            signature = block.get("thoughtSignature") if block is not None and same else None
            block = {"functionCall": {"name": name, "args": arguments}}
            if bound and not signature:
                signature = (part.bound or {}).get("thought_signature")
            if signature:
                block["thoughtSignature"] = signature
        if first and not block.get("thoughtSignature"):
            block["thoughtSignature"] = SKIP_SIGNATURE
            if bound:
                why = "its thought signature was not kept; the stand-in is sent"
                self._leave(message, part, "G6", why, what="signature")
        self._open[wire] = block["functionCall"]
        return block

    def _push(self, role: str, pieces: list[Piece]) -> None:
        contents = self._contents
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += pieces
        else:
            contents.append({"role": role, "parts": pieces})
            self._responses = 0

    def _leave(self, message: Message, part: Part, rule: str, why: str, *, what: str = "") -> None:
        self._left.append(LeftOut(message.message_id, rule, what or type(part).__name__.lower(), why))

    def finish(self, instructions: str, tools: Sequence[ToolSpec]) -> Encoded:
        """The request as of now."""
        options = self._options
        body: dict[str, Any] = {}
        system = joined_system(instructions, self._system)
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if tools:
            declared = [
                {
                    "name": self._names.wire(tool.name),
                    "description": wellformed(tool.description),
                    "parametersJsonSchema": {"type": "object", **tool.schema},
                }
                for tool in tools
            ]
            body["tools"] = [{"functionDeclarations": declared}]
        body["contents"] = self._contents
        config = {field: options[name] for name, field in _CONFIG.items() if name in options}
        thinking = options.get("thinking")
        if thinking:
            config["thinkingConfig"] = thinking if isinstance(thinking, dict) else {"includeThoughts": True}
        if config:
            body["generationConfig"] = config
        if "tool_choice" in options:
            body["toolConfig"] = {"functionCallingConfig": options["tool_choice"]}
        lay_over(body, options)
        return Encoded(
            dialect=DIALECT,
            body=body,
            calls=self._ids.pairs,
            names=dict(self._names.changed),
            left_out=tuple(self._left),
        )
