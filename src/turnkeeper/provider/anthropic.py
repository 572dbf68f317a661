"""The Anthropic Messages dialect: encode a feed, decode a stream. Pure; the shell is `sdk_anthropic`.

A feed becomes `{model, max_tokens, system?, messages, tools?, thinking?}`. Sides alternate strictly
(Bedrock wants it, B1, the direct API merges anyhow, A5): tool results and the words after them share one
user message, results first (A1-A3). Thinking, signatures and server-side tools go back only to the origin
they came from, whole messages' worth at a time (A15-A18, A21). `validate` stands in `anthropic_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from turnkeeper.conversation.messages import ASSISTANT, SYSTEM, TOOL, Message, Origin
from turnkeeper.conversation.parts import Attachment, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.port.provider import ToolSpec
from turnkeeper.provider.anthropic_rules import CACHE_MARKS_MAX, validate
from turnkeeper.provider.wire import (
    EMPTY_MESSAGE,
    EMPTY_RESULT,
    CallIds,
    Encoded,
    Files,
    LeftOut,
    Names,
    arguments_object,
    big_image_note,
    blank,
    fit_attachment,
    is_bound_here,
    joined_system,
    lay_over,
    read_block,
    result_pieces,
    result_text,
    user_block,
    wellformed,
)

__all__ = ["encode", "validate"]

DIALECT: Final = "anthropic"

MAX_TOKENS_DEFAULT: Final = 8192
"""`max_tokens` is required; options may set another."""
THINKING_BUDGET_DEFAULT: Final = 4096

_KEEP_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")  # A7
_THINKING = frozenset({"thinking", "redacted_thinking"})
_ASSISTANTS: Final = _THINKING | {"tool_use", "server_tool_use", "mcp_tool_use"}
_PASSED: Final = (
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "metadata",
    "service_tier",
    "output_config",
)

Block = dict[str, Any]


def encode(
    feed: Sequence[Message],
    *,
    origin: Origin,
    instructions: str = "",
    tools: Sequence[ToolSpec] = (),
    options: dict[str, Any] | None = None,
    files: Files | None = None,
    bedrock: bool = False,
) -> Encoded:
    """The request for a cleaned feed.

    Options: max_tokens; thinking (True, "adaptive" or Anthropic's own object) and thinking_budget; cache
    (default True), caller_marks (cache marks that the caller adds itself); tool_choice; temperature and the
    like; extra (an object laid over the body). A text's `bound["cache_control"]` is a caller's mark too.
    """
    encoder = Encoder(origin, options or {}, files, bedrock=bedrock)
    for message in feed:
        encoder.add(message)
    return encoder.finish(instructions, tools)


class Encoder:
    """Builds the messages one by one; what was added never changes when more is added (cache stability)."""

    def __init__(
        self, origin: Origin, options: dict[str, Any], files: Files | None, *, bedrock: bool
    ) -> None:
        self._origin = origin
        self._options = options
        self._files = files
        self._bedrock = bedrock
        self._thinking_on = thinking_parameter(options) is not None
        self._ids = CallIds(_KEEP_ID, 24)
        self._names = Names()
        self._system: list[str] = []
        self._messages: list[dict[str, Any]] = []
        self._results = 0
        self._left: list[LeftOut] = []
        self._marks: list[Block] = []
        self._images = 0
        self._big: list[tuple[list[Block], int, Attachment, str]] = []

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

    # -- the user side

    def _add_user(self, message: Message) -> None:
        blocks: list[Block] = []
        for part in message.parts:
            if type(part) is Text:
                if not blank(part.text):
                    blocks.append(self._text(part))
            elif type(part) is Attachment:
                self._attach(message, part, blocks)
            elif (block := user_block(message, part, self._origin)) is not None and _is_the_users(block):
                blocks.append(block)
            else:
                self._leave(message, part, "1g.2", "only words and files stand on the user's side")
        if not blocks:
            blocks.append({"type": "text", "text": EMPTY_MESSAGE})
        self._push("user", blocks)

    def _add_results(self, message: Message) -> None:
        blocks: list[Block] = []
        for part in message.parts:
            if type(part) is not ToolResult:
                self._leave(message, part, "1g.2", "only results stand in a tool message")
                continue
            wire = self._ids.result(part.tool_call_id)
            if wire is None:
                self._leave(message, part, "A2", "it answers no open call of the message before")
                continue
            block: Block = {"type": "tool_result", "tool_use_id": wire, "content": self._result(part)}
            if part.is_error:
                block["is_error"] = True
            blocks.append(block)
        if not blocks:
            return
        messages = self._messages
        if messages and messages[-1]["role"] == "user":
            content: list[Block] = messages[-1]["content"]
            content[self._results : self._results] = blocks
        else:
            messages.append({"role": "user", "content": blocks})
            self._results = 0
        self._results += len(blocks)

    def _result(self, part: ToolResult) -> str | list[Block]:
        if type(part.content) is str:
            return result_text(part)
        blocks: list[Block] = []
        pictured = False
        for kind, value in result_pieces(part, self._files):
            if kind == "image":
                self._images += 1
                if value.get("big") is not None:
                    self._big.append((blocks, len(blocks), value["big"], ""))
                source = {"type": "base64", "media_type": value["media_type"], "data": value["data"]}
                blocks.append({"type": "image", "source": source})
                pictured = True
            elif not blank(value):
                blocks.append({"type": "text", "text": wellformed(value)})
        if not pictured:
            return result_text(part)
        return blocks or EMPTY_RESULT

    def _attach(self, message: Message, part: Attachment, blocks: list[Block]) -> None:
        fit = fit_attachment(part, self._files)
        if fit.kind == "image":
            self._images += 1
            if fit.big:
                self._big.append((blocks, len(blocks), part, message.message_id))
            source = {"type": "base64", "media_type": fit.media_type, "data": fit.value}
            blocks.append({"type": "image", "source": source})
        elif fit.kind == "pdf":
            source = {"type": "base64", "media_type": fit.media_type, "data": fit.value}
            name = wellformed(part.name or part.attachment_id)
            # A document needs a text block beside it (B5).
            blocks += [{"type": "text", "text": f"[file {name}]"}, {"type": "document", "source": source}]
        else:
            if fit.kind == "note":
                self._leave(message, part, "A22", fit.value)
            blocks.append({"type": "text", "text": fit.value})

    # -- the assistant side

    def _add_assistant(self, message: Message) -> None:
        self._ids.open_batch()
        bound = is_bound_here(message, self._origin)
        blocks: list[Block] = []
        called = False
        plain = True  # words, then calls: in the provider's order as they are
        for part in message.parts:
            if type(part) is Text:
                if not blank(part.text):
                    blocks.append(self._bound_text(part) if bound else self._text(part))
                    plain = plain and not called
                continue
            if type(part) is ToolCall and not part.server_side:
                blocks.append(self._call(message, part, bound=bound))
                called = True
                continue
            plain = False
            if type(part) is ToolCall:
                self._add_bound_block(message, part, blocks, bound=bound, what="server_tool")
            elif type(part) is Thinking:
                self._add_thinking(message, part, blocks, bound=bound)
            elif type(part) is Attachment:
                blocks.append(
                    {"type": "text", "text": f"[file {wellformed(part.name or part.attachment_id)}]"}
                )
            else:
                what = "server_tool" if type(part) is ToolResult else "opaque"
                self._add_bound_block(message, part, blocks, bound=bound, what=what)
        if not plain:
            blocks = self._whole_units(message, blocks)
            if all(block["type"] in _THINKING for block in blocks):
                return  # thinking alone is no message (A19)
        if blocks:
            self._push("assistant", blocks)

    def _call(self, message: Message, part: ToolCall, *, bound: bool) -> Block:
        wire = self._ids.call(part.id)
        name = self._names.wire(part.name)
        arguments = arguments_object(part)
        if wire != part.id:
            self._leave(message, part, "A7", f"its id is sent as {wire}", what="call_id")
        if bound and (block := read_block(part)) is not None:
            same = block.get("id") == wire and block.get("name") == name and block.get("input") == arguments
            if same:
                return block
        return {"type": "tool_use", "id": wire, "name": name, "input": arguments}

    def _add_thinking(self, message: Message, part: Thinking, blocks: list[Block], *, bound: bool) -> None:
        if not bound:
            self._leave(message, part, "A16", "it came from another model or account")
            return
        if not self._thinking_on:
            self._leave(message, part, "A18", "thinking is off for this request")
            return
        block = read_block(part)
        if block is not None and block.get("type") == "thinking" and block.get("thinking") != part.text:
            block = {"type": "thinking", "spoiled": True}
        if block is None and part.signature and part.text and wellformed(part.text) == part.text:
            block = {"type": "thinking", "thinking": part.text, "signature": part.signature}
        # An unsigned block (A17), or one whose words were lost (A15), spoils the message's other thinking too.
        blocks.append(block if block is not None else {"type": "thinking", "spoiled": True})

    def _whole_units(self, message: Message, blocks: list[Block]) -> list[Block]:
        """Bring the blocks of one message into the provider's order, dropping what goes only as a unit."""
        kinds = [block["type"] for block in blocks]
        if len(blocks) < 2:
            if kinds and "spoiled" in blocks[0]:
                return []
            return blocks
        if not _THINKING.isdisjoint(kinds) and (
            kinds[0] not in _THINKING or any("spoiled" in block for block in blocks)
        ):
            why = "a thinking block of this message is unsigned, altered or not at its start"
            self._left.append(LeftOut(message.message_id, "A17", "thinking", why))
            blocks = [block for block in blocks if block["type"] not in _THINKING]
        if any(kind == "server_tool_use" or kind.endswith("_tool_result") for kind in kinds):
            blocks = self._paired_server_tools(message, blocks)
        last_call = max((i for i, block in enumerate(blocks) if block["type"] == "tool_use"), default=None)
        if last_call is not None and last_call < len(blocks) - 1:
            # Nothing may follow the last tool_use (A4).
            first_call = next(i for i, block in enumerate(blocks) if block["type"] == "tool_use")
            tail = [block for block in blocks[last_call + 1 :] if block["type"] not in _THINKING]
            blocks = [*blocks[:first_call], *tail, *blocks[first_call : last_call + 1]]
        return blocks

    def _paired_server_tools(self, message: Message, blocks: list[Block]) -> list[Block]:
        calls = {block.get("id") for block in blocks if block["type"] in _SERVER_CALLS}
        answers = {block.get("tool_use_id") for block in blocks if _is_server_result(block)}
        kept = []
        for block in blocks:
            alone = (block["type"] in _SERVER_CALLS and block.get("id") not in answers) or (
                _is_server_result(block) and block.get("tool_use_id") not in calls
            )
            if alone:
                why = "a server-side call and its result go only together"
                self._left.append(LeftOut(message.message_id, "A21", "server_tool", why))
            else:
                kept.append(block)
        return kept

    def _add_bound_block(
        self, message: Message, part: Part, blocks: list[Block], *, bound: bool, what: str
    ) -> None:
        block = read_block(part) if bound else None
        if block is None or not isinstance(block.get("type"), str):
            self._leave(message, part, "1g.8", "it is bound to where it came from", what=what)
        else:
            blocks.append(block)

    # -- shared

    def _text(self, part: Text) -> Block:
        block: Block = {"type": "text", "text": wellformed(part.text)}
        if part.bound is not None and isinstance(part.bound.get("cache_control"), dict):
            block["cache_control"] = part.bound["cache_control"]
            self._marks.append(block)
        return block

    def _bound_text(self, part: Text) -> Block:
        block = read_block(part)
        if block is not None and block.get("text") == part.text:
            return block
        return self._text(part)

    def _push(self, role: str, blocks: list[Block]) -> None:
        messages = self._messages
        if messages and messages[-1]["role"] == role:
            offset = len(messages[-1]["content"])
            for index, (home, at, part, message_id) in enumerate(self._big):
                if home is blocks:
                    self._big[index] = (messages[-1]["content"], offset + at, part, message_id)
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
            self._results = 0

    def _leave(self, message: Message, part: Part, rule: str, why: str, *, what: str = "") -> None:
        self._left.append(LeftOut(message.message_id, rule, what or _WHAT.get(type(part), "part"), why))

    # -- the whole

    def finish(self, instructions: str, tools: Sequence[ToolSpec]) -> Encoded:
        """The request as of now."""
        options = self._options
        if self._images > 1:
            for content, at, part, message_id in self._big:
                note = big_image_note(part)
                content[at] = {"type": "text", "text": note}
                self._left.append(LeftOut(message_id, "A22", "attachment", note))
        body: dict[str, Any] = {
            "model": self._origin.model,
            "max_tokens": options.get("max_tokens", MAX_TOKENS_DEFAULT),
        }
        system = joined_system(instructions, self._system)
        if system:
            body["system"] = [{"type": "text", "text": system}]
        if tools:
            body["tools"] = [
                {
                    "name": self._names.wire(tool.name),
                    "description": wellformed(tool.description),
                    "input_schema": {"type": "object", **tool.schema},
                }
                for tool in tools
            ]
        body["messages"] = self._messages
        self._set_thinking(body)
        for name in _PASSED:
            if name in options and not (name == "temperature" and "thinking" in body):
                body[name] = options[name]
        choice = options.get("tool_choice")
        if choice is not None:
            body["tool_choice"] = {"type": choice} if isinstance(choice, str) else choice
        self._set_marks(body)
        lay_over(body, options)
        return Encoded(
            dialect=DIALECT,
            body=body,
            calls=self._ids.pairs,
            names=dict(self._names.changed),
            left_out=tuple(self._left),
        )

    def _set_thinking(self, body: dict[str, Any]) -> None:
        """Thinking goes on unless the running tool cycle was begun without it (A18)."""
        thinking = thinking_parameter(self._options)
        if thinking is None:
            return
        messages = self._messages
        if self._results and messages and messages[-1]["role"] == "user":
            cycle = messages[-2]["content"] if len(messages) > 1 else []
            if not cycle or cycle[0]["type"] not in _THINKING:
                why = "the running tool cycle began without thinking, so this request goes without it"
                self._left.append(LeftOut("", "A18", "thinking", why))
                return
        budget = thinking.get("budget_tokens")
        if isinstance(budget, int) and body["max_tokens"] <= budget:
            body["max_tokens"] = budget + MAX_TOKENS_DEFAULT
        body["thinking"] = thinking

    def _set_marks(self, body: dict[str, Any]) -> None:
        """At most four cache marks, the caller's own first, its newest before its older ones (A20)."""
        room = max(0, CACHE_MARKS_MAX - int(self._options.get("caller_marks", 0)))
        for block in self._marks[: max(0, len(self._marks) - room)]:
            del block["cache_control"]
        room -= min(room, len(self._marks))
        if self._options.get("cache", True) is not True:
            return
        mark = {"type": "ephemeral"}
        if room and "system" in body:
            body["system"][0]["cache_control"] = mark
            room -= 1
        if not room or not self._messages:
            return
        if not self._bedrock:
            # One mark for the whole request keeps the bytes of the messages as they were.
            body["cache_control"] = mark
            return
        last = self._messages[-1]["content"][-1]
        if last["type"] not in _THINKING and "cache_control" not in last:
            self._messages[-1]["content"][-1] = {**last, "cache_control": mark}


_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_WHAT: dict[type, str] = {
    Text: "text",
    Thinking: "thinking",
    ToolCall: "call",
    ToolResult: "result",
    Attachment: "attachment",
    Opaque: "opaque",
}


def _is_the_users(block: Block) -> bool:
    """Whether a block may stand on the user's side: not thinking, calls and their results (A1, A2, A18)."""
    kind = block.get("type")
    return isinstance(kind, str) and kind not in _ASSISTANTS and not kind.endswith("tool_result")


def _is_server_result(block: Block) -> bool:
    kind: str = block["type"]
    return kind != "tool_result" and kind.endswith("_tool_result")


def thinking_parameter(options: dict[str, Any]) -> dict[str, Any] | None:
    """The `thinking` parameter that the options ask for, or None when thinking is off."""
    wish = options.get("thinking")
    if isinstance(wish, dict):
        return None if wish.get("type") == "disabled" else wish
    if wish == "adaptive":
        return {"type": "adaptive"}
    if wish is True or wish == "enabled":
        return {"type": "enabled", "budget_tokens": options.get("thinking_budget", THINKING_BUDGET_DEFAULT)}
    return None
