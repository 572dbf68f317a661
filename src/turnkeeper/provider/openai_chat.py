"""The OpenAI Chat Completions dialect and its compatibles: encode a feed, decode a stream. Pure.

A feed becomes `{model, messages, tools?}`. What differs between OpenAI, DeepSeek, Kimi, vLLM, Ollama and
Mistral stands in one table of variants. Each tool call is followed at once by one tool message per id, in
call order (C1-C3); arguments are always the text of a JSON object (C5); no message is empty (C6); roles
alternate once tool messages are set aside (C8). `validate` stands in `openai_chat_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, SYSTEM, TOOL, Message, Origin
from turnkeeper.conversation.parts import Attachment, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.port.provider import ToolSpec
from turnkeeper.provider.openai_chat_rules import validate
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
    result_text,
    user_block,
    wellformed,
)

__all__ = ["VARIANTS", "Variant", "encode", "validate"]

DIALECT: Final = "openai-chat"

REASONING_FILLER: Final = "(the reasoning of this step is not available)"
"""Stands where a thinking model wants its own reasoning back and there is none of it (C7)."""


AFTER_TOOL: Final = "(tool results received)"
"""What the assistant says between tool results and the user's next words, where nothing else may stand there."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """How one family of servers differs from the others."""

    name: str
    base_url: str = ""
    key_name: str = ""
    """The environment variable that holds the key by default."""
    max_tokens_name: str = "max_tokens"
    id_keep: str = r"[!-~]{1,40}\Z"
    """Which original call ids may stay (C4); others are minted with `id_length` letters and digits."""
    id_length: int = 24
    reasoning_back: str = "never"
    """never | calls | always: which assistant messages carry their reasoning back to the same origin (C7)."""
    reasoning_name: str = "reasoning_content"
    images: bool = True
    pdf: bool = False
    stream_usage: bool = True
    """Whether usage in a stream must be asked for with `stream_options`."""
    after_tool: str | None = None
    """What an assistant message says between a tool message and a user message, if one must stand there (M3)."""
    split_calls: bool = False
    """Whether words and calls go in two messages (M2, tokenizers before V5)."""


VARIANTS: Final[dict[str, Variant]] = {
    variant.name: variant
    for variant in (
        Variant(
            name="openai",
            base_url="https://api.openai.com/v1",
            key_name="OPENAI_API_KEY",
            max_tokens_name="max_completion_tokens",
            pdf=True,
        ),
        Variant(
            name="deepseek",
            base_url="https://api.deepseek.com/v1",
            key_name="DEEPSEEK_API_KEY",
            reasoning_back="calls",
            images=False,
        ),
        Variant(
            name="kimi",
            base_url="https://api.moonshot.ai/v1",
            key_name="MOONSHOT_API_KEY",
            reasoning_back="always",
        ),
        Variant(
            name="vllm",
            base_url="http://127.0.0.1:8000/v1",
            key_name="VLLM_API_KEY",
            after_tool=AFTER_TOOL,  # chat templates that want roles to alternate count no tool message (C8)
        ),
        Variant(
            name="ollama",
            base_url="http://127.0.0.1:11434/v1",
            reasoning_name="reasoning",
        ),
    )
}


def encode(
    feed: Sequence[Message],
    *,
    origin: Origin,
    instructions: str = "",
    tools: Sequence[ToolSpec] = (),
    options: dict[str, Any] | None = None,
    files: Files | None = None,
    variant: Variant = VARIANTS["openai"],
) -> Encoded:
    """The request for a cleaned feed.

    Options: max_tokens; thinking (truthy: the model reasons and wants it back, C7); reasoning_effort;
    tool_choice; temperature and the like; extra (an object laid over the body).
    """
    encoder = Encoder(origin, options or {}, files, variant)
    for message in feed:
        encoder.add(message)
    return encoder.finish(instructions, tools)


_PASSED: Final = (
    "temperature",
    "top_p",
    "stop",
    "seed",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "response_format",
    "service_tier",
    "prompt_cache_key",
)


class Encoder:
    """Builds the messages one by one; what was added never changes when more is added (cache stability)."""

    def __init__(
        self, origin: Origin, options: dict[str, Any], files: Files | None, variant: Variant
    ) -> None:
        self._origin = origin
        self._options = options
        self._files = files
        self._variant = variant
        self._ids = CallIds(re.compile(variant.id_keep), variant.id_length)
        self._names = Names()
        self._system: list[str] = []
        self._messages: list[dict[str, Any]] = []
        self._left: list[LeftOut] = []

    def add(self, message: Message) -> None:
        """Put one message of the feed behind the others."""
        role = message.role
        if role == ASSISTANT:
            self._add_assistant(message)
        elif role == TOOL:
            self._add_results(message)
        elif role == SYSTEM and not self._messages:
            self._system.append(wellformed(message.text))
        else:
            self._add_user(message)

    def _add_user(self, message: Message) -> None:
        pieces: list[dict[str, Any]] = []
        plain = True
        for part in message.parts:
            if type(part) is Text:
                if not blank(part.text):
                    pieces.append({"type": "text", "text": wellformed(part.text)})
            elif type(part) is Attachment:
                piece = self._attach(message, part)
                plain = plain and piece["type"] == "text"
                pieces.append(piece)
            elif (block := user_block(message, part, self._origin)) is not None:
                pieces.append(block)
                plain = False
            else:
                self._leave(message, part, "1g.2", "only words and files stand on the user's side")
        if not pieces:
            pieces.append({"type": "text", "text": EMPTY_MESSAGE})
        content: str | list[dict[str, Any]]
        if not plain:
            content = pieces
        elif len(pieces) == 1:
            content = pieces[0]["text"]
        else:
            content = "\n\n".join([piece["text"] for piece in pieces])
        messages = self._messages
        if messages:
            last = messages[-1]
            if last["role"] == "user":
                last["content"] = _joined(last["content"], content)
                return
            if last["role"] == "tool" and self._variant.after_tool is not None:
                messages.append({"role": "assistant", "content": self._variant.after_tool})
        messages.append({"role": "user", "content": content})

    def _attach(self, message: Message, part: Attachment) -> dict[str, Any]:
        fit = fit_attachment(part, self._files)
        variant = self._variant
        if fit.kind == "image" and variant.images:
            return {"type": "image_url", "image_url": {"url": f"data:{fit.media_type};base64,{fit.value}"}}
        if fit.kind == "pdf" and variant.pdf:
            name = wellformed(part.name or part.attachment_id)
            data = f"data:{fit.media_type};base64,{fit.value}"
            return {"type": "file", "file": {"filename": name, "file_data": data}}
        text = fit.value
        if fit.kind in ("image", "pdf"):
            name = wellformed(part.name or part.attachment_id)
            text = (
                f"[attachment {name} ({part.media_type}) is not shown to you: this model takes no such files]"
            )
        if fit.kind != "text":
            self._leave(message, part, "A22", text)
        return {"type": "text", "text": text}

    def _add_results(self, message: Message) -> None:
        for part in message.parts:
            if type(part) is not ToolResult:
                self._leave(message, part, "1g.2", "only results stand in a tool message")
                continue
            wire = self._ids.result(part.tool_call_id)
            if wire is None:
                self._leave(message, part, "C2", "it answers no open call of the message before")
                continue
            row = {"role": "tool", "tool_call_id": wire, "content": result_text(part)}
            messages = self._messages
            at = len(messages)
            while messages[at - 1]["role"] == "user":  # nothing may stand between a call and its results (C1)
                at -= 1
            messages.insert(at, row)

    def _add_assistant(self, message: Message) -> None:
        self._ids.open_batch()
        bound = is_bound_here(message, self._origin)
        texts: list[str] = []
        calls: list[dict[str, Any]] = []
        reasoning: list[str] = []
        for part in message.parts:
            if type(part) is Text:
                if not blank(part.text):
                    texts.append(wellformed(part.text))
            elif type(part) is ToolCall and not part.server_side:
                calls.append(self._call(message, part, bound=bound))
            elif type(part) is Thinking:
                if bound and self._variant.reasoning_back != "never" and not blank(part.text):
                    reasoning.append(wellformed(part.text))
                else:
                    self._leave(message, part, "1g.8", "reasoning is not sent to this provider")
            elif type(part) is Attachment:
                texts.append(f"[file {wellformed(part.name or part.attachment_id)}]")
            else:
                self._leave(message, part, "1g.8", "it is bound to where it came from")
        if not texts and not calls:
            if reasoning:
                self._left.append(
                    LeftOut(message.message_id, "A19", "thinking", "thinking alone is no message")
                )
            return
        row: dict[str, Any] = {"role": "assistant"}
        if texts:
            row["content"] = texts[0] if len(texts) == 1 else "\n\n".join(texts)
        back = self._variant.reasoning_back
        if back == "always" or (back == "calls" and calls):
            if reasoning:
                row[self._variant.reasoning_name] = "\n\n".join(reasoning)
            elif calls and self._options.get("thinking"):
                row[self._variant.reasoning_name] = REASONING_FILLER
        if calls:
            row["tool_calls"] = calls
        self._push_assistant(row)

    def _push_assistant(self, row: dict[str, Any]) -> None:
        messages = self._messages
        if messages and messages[-1]["role"] == "assistant":
            last = messages[-1]
            for name in ("content", self._variant.reasoning_name):
                if name in row:
                    last[name] = _joined(last.get(name), row[name])
            if "tool_calls" in row:
                last["tool_calls"] = [*last.get("tool_calls", ()), *row["tool_calls"]]
            return
        if self._variant.split_calls and "content" in row and "tool_calls" in row:
            messages.append({"role": "assistant", "content": row.pop("content")})
        messages.append(row)

    def _call(self, message: Message, part: ToolCall, *, bound: bool) -> dict[str, Any]:
        wire = self._ids.call(part.id)
        name = self._names.wire(part.name)
        if wire != part.id:
            self._leave(message, part, "C4", f"its id is sent as {wire}", what="call_id")
        if bound and (block := read_block(part)) is not None:
            function = block.get("function")
            if (
                isinstance(function, dict)
                and block.get("id") == wire
                and function.get("name") == name
                and isinstance(function.get("arguments"), str)
                and read_arguments(function["arguments"]) == arguments_object(part)
                and function["arguments"]
            ):
                return block
        return {
            "id": wire,
            "type": "function",
            "function": {"name": name, "arguments": arguments_text(part)},
        }

    def _leave(self, message: Message, part: Part, rule: str, why: str, *, what: str = "") -> None:
        kind = what or type(part).__name__.lower()
        self._left.append(LeftOut(message.message_id, rule, kind, why))

    def finish(self, instructions: str, tools: Sequence[ToolSpec]) -> Encoded:
        """The request as of now."""
        options = self._options
        system = joined_system(instructions, self._system)
        messages = self._messages
        if system:
            messages = [{"role": "system", "content": system}, *messages]
        body: dict[str, Any] = {"model": self._origin.model, "messages": messages}
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": self._names.wire(tool.name),
                        "description": wellformed(tool.description),
                        "parameters": {"type": "object", **tool.schema},
                    },
                }
                for tool in tools
            ]
        if "max_tokens" in options:
            body[self._variant.max_tokens_name] = options["max_tokens"]
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


def _joined(first: Any, second: Any) -> Any:
    """Two contents of one side as one: words with an empty line between, pieces in order."""
    if not first:
        return second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    pieces: list[dict[str, Any]] = []
    for content in (first, second):
        pieces += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return pieces
