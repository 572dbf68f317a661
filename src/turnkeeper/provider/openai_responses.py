"""The OpenAI Responses dialect: encode a feed into items. Pure; the rules stand in `openai_responses_rules`.

A feed becomes `{model, instructions?, input: [items], tools?, store: false, include}`. Nothing is kept at the
provider: reasoning travels as encrypted content and goes back only to the account that it came from, always
before the item that it belongs to (O3, O7). `fc_` and `msg_` item ids go only beside their reasoning (O4);
calls and outputs are paired by call_id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from turnkeeper.conversation.messages import ASSISTANT, SYSTEM, TOOL, Message, Origin
from turnkeeper.conversation.parts import Attachment, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.port.provider import ToolSpec
from turnkeeper.provider.openai_responses_rules import CALL_ID_CHARS_MAX, validate
from turnkeeper.provider.wire import (
    EMPTY_MESSAGE,
    CallIds,
    Encoded,
    Files,
    LeftOut,
    Names,
    arguments_object,
    arguments_text,
    blank,
    fit_attachment,
    is_bound_here,
    joined_system,
    lay_over,
    read_arguments,
    read_block,
    result_pieces,
    result_text,
    user_block,
    wellformed,
)

__all__ = ["encode", "item_text", "validate"]

DIALECT: Final = "openai-responses"

_KEEP_ID = re.compile(rf"[!-~]{{1,{CALL_ID_CHARS_MAX}}}\Z")
_PASSED: Final = (
    "temperature",
    "top_p",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "service_tier",
    "truncation",
    "prompt_cache_key",
)

Item = dict[str, Any]


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

    Options: max_tokens; reasoning (OpenAI's own object) or reasoning_effort; tool_choice; temperature and
    the like; extra (an object laid over the body).
    """
    encoder = Encoder(origin, options or {}, files)
    for message in feed:
        encoder.add(message)
    return encoder.finish(instructions, tools)


class Encoder:
    """Builds the items one by one; what was added never changes when more is added (cache stability)."""

    def __init__(self, origin: Origin, options: dict[str, Any], files: Files | None) -> None:
        self._origin = origin
        self._options = options
        self._files = files
        self._ids = CallIds(_KEEP_ID, 24)
        self._names = Names()
        self._system: list[str] = []
        self._items: list[Item] = []
        self._item_ids: set[str] = set()
        self._left: list[LeftOut] = []

    def add(self, message: Message) -> None:
        """Put one message of the feed behind the others."""
        role = message.role
        if role == ASSISTANT:
            self._add_assistant(message)
        elif role == TOOL:
            self._add_results(message)
        elif role == SYSTEM and not self._items:
            self._system.append(wellformed(message.text))
        else:
            self._add_user(message)

    # -- the user side

    def _add_user(self, message: Message) -> None:
        pieces: list[Item] = []
        for part in message.parts:
            if type(part) is Text:
                if not blank(part.text):
                    pieces.append({"type": "input_text", "text": wellformed(part.text)})
            elif type(part) is Attachment:
                pieces.append(self._attach(message, part))
            elif (block := user_block(message, part, self._origin)) is not None:
                pieces.append(block)
            else:
                self._leave(message, part, "1g.2", "only words and files stand on the user's side")
        if not pieces:
            pieces.append({"type": "input_text", "text": EMPTY_MESSAGE})
        items = self._items
        if items and items[-1].get("role") == "user":
            items[-1]["content"] += pieces
        else:
            items.append({"type": "message", "role": "user", "content": pieces})

    def _attach(self, message: Message, part: Attachment) -> Item:
        fit = fit_attachment(part, self._files)
        if fit.kind == "image":
            return {"type": "input_image", "image_url": f"data:{fit.media_type};base64,{fit.value}"}
        if fit.kind == "pdf":
            name = wellformed(part.name or part.attachment_id)
            data = f"data:{fit.media_type};base64,{fit.value}"
            return {"type": "input_file", "filename": name, "file_data": data}
        if fit.kind == "note":
            self._leave(message, part, "A22", fit.value)
        return {"type": "input_text", "text": fit.value}

    def _add_results(self, message: Message) -> None:
        for part in message.parts:
            if type(part) is not ToolResult:
                self._leave(message, part, "1g.2", "only results stand in a tool message")
                continue
            wire = self._ids.result(part.tool_call_id)
            if wire is None:
                self._leave(message, part, "O2", "it answers no open call of the message before")
                continue
            self._items.append(
                {"type": "function_call_output", "call_id": wire, "output": self._output(part)}
            )

    def _output(self, part: ToolResult) -> str | list[Item]:
        if type(part.content) is str:
            return result_text(part)
        pieces: list[Item] = []
        for kind, value in result_pieces(part, self._files):
            if kind == "image":
                url = f"data:{value['media_type']};base64,{value['data']}"
                pieces.append({"type": "input_image", "image_url": url})
            elif not blank(value):
                pieces.append({"type": "input_text", "text": wellformed(value)})
        return pieces if any(piece["type"] == "input_image" for piece in pieces) else result_text(part)

    # -- the assistant side

    def _add_assistant(self, message: Message) -> None:
        self._ids.open_batch()
        bound = is_bound_here(message, self._origin)
        items: list[Item] = []
        reasoned = False
        for part in message.parts:
            if type(part) is Thinking:
                item = self._reasoning(message, part, bound=bound)
                if item is not None:
                    items.append(item)
                    reasoned = True
            elif type(part) is Text:
                if not blank(part.text):
                    items.append(self._text(part, bound=bound, reasoned=reasoned))
            elif type(part) is ToolCall and not part.server_side:
                items.append(self._call(message, part, bound=bound, reasoned=reasoned))
            elif type(part) is Attachment:
                name = wellformed(part.name or part.attachment_id)
                items.append(_said(f"[file {name}]"))
            else:
                block = read_block(part) if bound else None
                if block is None or not isinstance(block.get("type"), str):
                    self._leave(message, part, "1g.8", "it is bound to where it came from")
                else:
                    items.append(block)
        while items and items[-1]["type"] == "reasoning":  # it must be followed by its item (O3)
            items.pop()
            why = "a reasoning item whose own item is missing"
            self._left.append(LeftOut(message.message_id, "O3", "thinking", why))
        for item in items:
            item_id = item.get("id")
            if item_id is not None and (not isinstance(item_id, str) or item_id in self._item_ids):  # O5
                item = {name: value for name, value in item.items() if name != "id"}  # noqa: PLW2901
                if item["type"] == "reasoning":
                    continue
            elif item_id is not None:
                self._item_ids.add(item_id)
            self._items.append(item)

    def _reasoning(self, message: Message, part: Thinking, *, bound: bool) -> Item | None:
        if not bound:
            self._leave(message, part, "O7", "it came from another model or account")
            return None
        block = read_block(part)
        if block is None:
            more = part.bound or {}
            summary = more.get("summary")
            if not isinstance(summary, list):
                summary = [{"type": "summary_text", "text": wellformed(part.text)}] if part.text else []
            block = {"type": "reasoning", "id": more.get("item_id"), "summary": summary}
            if part.signature:
                block["encrypted_content"] = part.signature
        if not block.get("id") or not block.get("encrypted_content"):
            self._leave(message, part, "O7", "its encrypted content or its id was not kept")
            return None
        return block if isinstance(block.get("summary"), list) else {**block, "summary": []}  # O8

    def _text(self, part: Text, *, bound: bool, reasoned: bool) -> Item:
        block = read_block(part) if bound else None
        if block is not None and item_text(block) == part.text:
            return block if reasoned else {name: value for name, value in block.items() if name != "id"}
        item = _said(wellformed(part.text))
        if bound and reasoned and part.bound is not None and part.bound.get("item_id"):
            item = {"type": "message", "id": part.bound["item_id"], **item, "status": "completed"}
        return item

    def _call(self, message: Message, part: ToolCall, *, bound: bool, reasoned: bool) -> Item:
        wire = self._ids.call(part.id)
        name = self._names.wire(part.name)
        if wire != part.id:
            self._leave(message, part, "O6", f"its id is sent as {wire}", what="call_id")
        block = read_block(part) if bound else None
        if block is not None and (
            block.get("call_id") == wire
            and block.get("name") == name
            and isinstance(block.get("arguments"), str)
            and block["arguments"]
            and read_arguments(block["arguments"]) == arguments_object(part)
        ):
            return block if reasoned else {field: value for field, value in block.items() if field != "id"}
        item: Item = {"type": "function_call"}
        if bound and reasoned and part.bound is not None and part.bound.get("item_id"):
            item["id"] = part.bound["item_id"]
        return {**item, "call_id": wire, "name": name, "arguments": arguments_text(part)}

    def _leave(self, message: Message, part: Part, rule: str, why: str, *, what: str = "") -> None:
        self._left.append(LeftOut(message.message_id, rule, what or type(part).__name__.lower(), why))

    def finish(self, instructions: str, tools: Sequence[ToolSpec]) -> Encoded:
        """The request as of now."""
        options = self._options
        body: dict[str, Any] = {"model": self._origin.model}
        system = joined_system(instructions, self._system)
        if system:
            body["instructions"] = system
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": self._names.wire(tool.name),
                    "description": wellformed(tool.description),
                    "parameters": {"type": "object", **tool.schema},
                    "strict": False,
                }
                for tool in tools
            ]
        body["input"] = self._items
        body["store"] = False
        body["include"] = ["reasoning.encrypted_content"]
        if "max_tokens" in options:
            body["max_output_tokens"] = options["max_tokens"]
        if "reasoning_effort" in options:
            body["reasoning"] = {"effort": options["reasoning_effort"]}
        for name in _PASSED:
            if name in options:
                body[name] = options[name]
        lay_over(body, options)
        return Encoded(
            dialect=DIALECT,
            body=body,
            calls=self._ids.pairs,
            names=dict(self._names.changed),
            left_out=tuple(self._left),
        )


def _said(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def item_text(item: Item) -> str | None:
    """The words of a message item, refusals too; None if it is none."""
    content = item.get("content")
    if item.get("type") != "message" or not isinstance(content, list):
        return None
    words = [piece.get("text") or piece.get("refusal") or "" for piece in content if isinstance(piece, dict)]
    return "".join(word for word in words if isinstance(word, str))
