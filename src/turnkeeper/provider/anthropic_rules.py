"""What the Anthropic Messages API refuses: rules A1-A23, and B1-B5 of Bedrock, over a request body.

One pass, no I/O. The same function judges our own requests before they are sent and other people's in the
loopback model server. What only the account's owner can know (whether a signature is genuine, A15, A16) is
asked of `genuine`, if given. Grades and sources: the wire rules page in the docs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from turnkeeper.provider.picture import measure_base64
from turnkeeper.provider.wire import (
    IMAGE_SIDE_MAX,
    IMAGE_SIDE_MAX_MANY,
    Violation,
    blank,
    unsound_json,
)

CACHE_MARKS_MAX: Final = 4
NAME_CHARS_MAX_HISTORY: Final = 200

_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
_BEDROCK_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_THINKING = frozenset({"thinking", "redacted_thinking"})
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})

Block = dict[str, Any]
Genuine = Callable[[Block], bool]
"""Whether this thinking block was made, byte for byte, by this model for this account."""


def validate(
    body: Any, *, bedrock: bool = False, prefill: bool = False, genuine: Genuine | None = None
) -> tuple[Violation, ...]:
    """Every rule that `body` breaks, in order of place; empty when it would be accepted.

    `bedrock` adds B1-B5. `prefill` is for models that still take a final assistant message (A14).
    """
    found = list(_shape(body))
    if found:
        return tuple(found)
    # The direct API joins neighbours of one role before it looks at pairs (A5); Bedrock refuses them (B1).
    messages = body["messages"]
    turns = list(_joined(messages))
    checks = _Checks(found, bedrock=bedrock)
    for path, role, content in turns:
        if role == "assistant":
            checks.assistant(path, content)
        else:
            checks.user(path, content)
    checks.close()
    _ending(body, messages, turns, found, prefill=prefill)
    _thinking(body, turns, found, genuine)
    _marks(body, turns, found)
    if checks.images:
        _images(checks.images, found)
    if bedrock:
        _alternation(messages, found)
    if (unsound := unsound_json(body)) is not None:
        found.append(Violation("A23", "", unsound))
    return tuple(found)


def _shape(body: Any) -> Iterator[Violation]:
    if not isinstance(body, dict):
        yield Violation("shape", "", "The request body must be an object.")
        return
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield Violation("shape", "messages", "messages: at least one message is required.")
        return
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Violation("shape", "model", "model: Field required.")
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield Violation("shape", "max_tokens", "max_tokens: Field required.")
    last = len(messages) - 1
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            yield Violation("shape", path, f'{path}: role must be "user" or "assistant".')
            continue
        content = message.get("content")
        if isinstance(content, str):
            if not content and not (index == last and message["role"] == "assistant"):
                yield Violation("A11", path, f"{path}: all messages must have non-empty content.")
            elif content.isspace():
                yield Violation("A10", path, f"{path}: text content blocks must contain non-whitespace text.")
        elif isinstance(content, list):
            if not content and not (index == last and message["role"] == "assistant"):
                yield Violation("A11", path, f"{path}: all messages must have non-empty content.")
            for at, block in enumerate(content):
                if not isinstance(block, dict) or not isinstance(block.get("type"), str):
                    yield Violation(
                        "shape", f"{path}.content[{at}]", f"{path}.content[{at}]: type is required."
                    )
        else:
            yield Violation("shape", path, f"{path}: content must be a string or a list of blocks.")


def _joined(messages: list[dict[str, Any]]) -> Iterator[tuple[str, str, list[Block]]]:
    """(path, role, blocks) with neighbours of one role joined, as the direct API reads them."""
    role = path = ""
    blocks: list[Block] = []
    for index, message in enumerate(messages):
        content = message["content"]
        if type(content) is str:
            content = [{"type": "text", "text": content}] if content else []
        if message["role"] == role:
            blocks = [*blocks, *content]
            continue
        if role:
            yield path, role, blocks
        role, path, blocks = message["role"], f"messages[{index}]", content
    yield path, role, blocks


class _Checks:
    """The state of the walk: which calls are open, which ids were used."""

    def __init__(self, found: list[Violation], *, bedrock: bool) -> None:
        self.found = found
        self.bedrock = bedrock
        self.open: dict[str, str] = {}
        self.ids: set[str] = set()
        self.images: list[tuple[str, Block]] = []

    def say(self, rule: str, path: str, sentence: str) -> None:
        self.found.append(Violation(rule, path, sentence))

    def close(self) -> None:
        """Calls that are still open were never answered (A1)."""
        if self.open:
            path = next(iter(self.open.values()))
            self.say(
                "A1",
                path,
                f"{path}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(self.open)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
            )
            self.open = {}

    def assistant(self, path: str, content: list[Block]) -> None:
        self.close()
        said = False
        after_call = ""
        server_calls: dict[Any, str] = {}
        for at, block in enumerate(content):
            kind = block["type"]
            if kind == "text":
                self.text(path, at, block)
                said = True
            elif kind == "tool_use":
                self.call(f"{path}.content[{at}]", block, path)
                said = True
                after_call = ""
            elif kind in _THINKING:
                if kind == "thinking" and not block.get("signature"):
                    self.say(
                        "A17",
                        f"{path}.content[{at}]",
                        f"{path}.content[{at}].thinking.signature: Field required.",
                    )
            elif kind in _SERVER_CALLS:
                server_calls[block.get("id")] = f"{path}.content[{at}]"
                said = True
            elif kind == "tool_result":
                self.say(
                    "A2",
                    f"{path}.content[{at}]",
                    f"{path}: `tool_result` blocks can only be in `user` messages.",
                )
            elif kind.endswith("_tool_result"):
                said = True
                if server_calls.pop(block.get("tool_use_id"), None) is None:
                    self.say(
                        "A21",
                        f"{path}.content[{at}]",
                        f"{path}.content[{at}]: unexpected `tool_use_id` found in `{kind}` blocks.",
                    )
            else:
                said = True
            if kind != "tool_use" and kind not in _THINKING and self.open and not after_call:
                after_call = f"{path}.content[{at}]"
        for call_path in server_calls.values():
            self.say(
                "A21",
                call_path,
                f"{call_path}: `server_tool_use` was found without a corresponding tool result block in the same message.",
            )
        if after_call and self.open:
            self.say(
                "A4",
                after_call,
                f"{path}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(self.open)}. (Nothing may follow the last `tool_use` of a message.)",
            )
        if content and not said:
            self.say("A19", path, f"{path}: the message holds only thinking.")

    def call(self, path: str, block: Block, message_path: str) -> None:
        call_id = block.get("id")
        if not isinstance(call_id, str) or not _ID.match(call_id):
            self.say("A7", path, f"{path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            call_id = repr(call_id)
        elif call_id in self.ids:
            rule = "B3" if self.bedrock and call_id in self.open else "A6"
            self.say(rule, path, f"{path}: `tool_use` ids must be unique")
        self.ids.add(call_id)
        self.open[call_id] = message_path
        if type(block.get("input")) is not dict:
            self.say("A8", path, f"{path}.tool_use.input: Input should be a valid dictionary")
        name = block.get("name")
        if not isinstance(name, str) or not name:
            self.say("A9", path, f"{path}.tool_use.name: Field required")
        elif self.bedrock and not _BEDROCK_NAME.match(name):
            self.say("B4", path, f"{path}.toolUse.name: must satisfy pattern [a-zA-Z0-9_-]{{1,64}}")
        elif len(name) > NAME_CHARS_MAX_HISTORY:
            self.say("A9", path, f"{path}.tool_use.name: String should have at most 200 characters")

    def user(self, path: str, content: list[Block]) -> None:
        words = ""
        documents = texts = 0
        for at, block in enumerate(content):
            kind = block["type"]
            if kind == "text":
                self.text(path, at, block)
                texts += 1
                words = words or f"{path}.content[{at}]"
            elif kind == "tool_result":
                self.result(f"{path}.content[{at}]", block, words)
            elif kind == "tool_use":
                self.say(
                    "A1",
                    f"{path}.content[{at}]",
                    f"{path}: `tool_use` blocks can only be in `assistant` messages.",
                )
            elif kind in _THINKING:
                self.say(
                    "A18", f"{path}.content[{at}]", f"{path}: thinking can only be in `assistant` messages."
                )
            else:
                words = words or f"{path}.content[{at}]"
                if kind == "image":
                    self.images.append((f"{path}.content[{at}]", block))
                documents += kind == "document"
        if documents and not texts and self.bedrock:
            self.say("B5", path, f"{path}: a text block is required beside a document.")
        self.close()

    def result(self, path: str, block: Block, words: str) -> None:
        call_id = block.get("tool_use_id")
        if not isinstance(call_id, str) or self.open.pop(call_id, None) is None:
            rule = "B2" if self.bedrock and isinstance(call_id, str) else "A2"
            self.say(
                rule,
                path,
                f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` block "
                "must have a corresponding `tool_use` block in the previous message.",
            )
        if words:
            self.say("A3", path, f"{path}: `tool_result` blocks must stand before other content ({words}).")
        content = block.get("content")
        if isinstance(content, list):
            empty = not content
            for piece in content:
                if not isinstance(piece, dict):
                    self.say("shape", path, f"{path}.content: blocks must be objects.")
                elif piece.get("type") == "text":
                    empty = empty or blank(str(piece.get("text", "")))
                elif piece.get("type") == "image":
                    self.images.append((path, piece))
        elif content is None or isinstance(content, str):
            empty = not content or content.isspace()
        else:
            self.say("shape", path, f"{path}.content: must be a string or a list of blocks.")
            return
        if empty and block.get("is_error"):
            self.say("A12", path, f"{path}: content cannot be empty if `is_error` is true.")
        elif empty and self.bedrock:
            self.say("B5", path, f"{path}: the content of a tool result must not be blank.")

    def text(self, path: str, at: int, block: Block) -> None:
        text = block.get("text")
        if type(text) is not str:
            self.say("shape", f"{path}.content[{at}]", f"{path}.content[{at}].text: Field required.")
        elif not text or text.isspace():
            rule = "B5" if self.bedrock else "A10"
            self.say(
                rule,
                f"{path}.content[{at}]",
                f"{path}: text content blocks must contain non-whitespace text.",
            )


def _ending(
    body: dict[str, Any],
    messages: list[dict[str, Any]],
    turns: list[tuple[str, str, list[Block]]],
    found: list[Violation],
    *,
    prefill: bool,
) -> None:
    if messages[-1]["role"] != "assistant":
        return
    path = f"messages[{len(messages) - 1}]"
    if not prefill:
        found.append(
            Violation(
                "A14",
                path,
                "This model does not support assistant message prefill. The conversation must end with a user message.",
            )
        )
        return
    content = turns[-1][2]
    if content and content[-1]["type"] == "text" and content[-1]["text"] != content[-1]["text"].rstrip():
        found.append(
            Violation("A13", path, f"{path}: final assistant content cannot end with trailing whitespace")
        )


def _thinking(
    body: dict[str, Any],
    turns: list[tuple[str, str, list[Block]]],
    found: list[Violation],
    genuine: Genuine | None,
) -> None:
    thinking = body.get("thinking")
    on = isinstance(thinking, dict) and thinking.get("type") != "disabled"
    latest = next(((path, content) for path, role, content in reversed(turns) if role == "assistant"), None)
    if latest is not None:
        path, content = latest
        thought = [block for block in content if block["type"] in _THINKING]
        in_cycle = turns[-1][1] == "user" and any(block["type"] == "tool_result" for block in turns[-1][2])
        if on and in_cycle and content and content[0]["type"] not in _THINKING:
            found.append(
                Violation(
                    "A18",
                    path,
                    f"{path}: Expected `thinking` or `redacted_thinking`, but found `{content[0]['type']}`. When `thinking` "
                    "is enabled, the final assistant message of a tool cycle must start with a thinking block.",
                )
            )
        if not on and thought:
            found.append(
                Violation(
                    "A18",
                    path,
                    f"{path}: When thinking is disabled, the final assistant message cannot contain thinking.",
                )
            )
    if genuine is None:
        return
    for path, role, content in turns:
        if role != "assistant":
            continue
        for at, block in enumerate(content):
            if block["type"] in _THINKING and not genuine(block):
                rule = "A15" if latest is not None and path == latest[0] else "A16"
                found.append(
                    Violation(
                        rule,
                        f"{path}.content[{at}]",
                        f"{path}.content[{at}]: Invalid `signature` in `thinking` block",
                    )
                )


def _marks(body: dict[str, Any], turns: list[tuple[str, str, list[Block]]], found: list[Violation]) -> None:
    count = 1 if body.get("cache_control") else 0
    system = body.get("system")
    for group in (system if isinstance(system, list) else (), body.get("tools") or ()):
        count += sum(1 for block in group if isinstance(block, dict) and block.get("cache_control"))
    for path, _role, content in turns:
        for at, block in enumerate(content):
            if block.get("cache_control"):
                count += 1
                if block["type"] in _THINKING:
                    found.append(
                        Violation(
                            "A20",
                            f"{path}.content[{at}]",
                            f"{path}: cache_control cannot be set on thinking.",
                        )
                    )
    if count > CACHE_MARKS_MAX:
        found.append(
            Violation(
                "A20",
                "",
                f"A maximum of {CACHE_MARKS_MAX} blocks with cache_control may be provided. Found {count}.",
            )
        )


def _images(images: list[tuple[str, Block]], found: list[Violation]) -> None:
    limit = IMAGE_SIDE_MAX_MANY if len(images) > 1 else IMAGE_SIDE_MAX
    for path, block in images:
        source = block.get("source")
        if (
            not isinstance(source, dict)
            or source.get("type") != "base64"
            or not isinstance(source.get("data"), str)
        ):
            continue
        size = measure_base64(source["data"])
        if size is not None and max(size) > limit:
            found.append(
                Violation(
                    "A22",
                    path,
                    f"{path}: image dimensions exceed the max allowed size: {limit} pixels ({size[0]}x{size[1]})",
                )
            )


def _alternation(messages: list[dict[str, Any]], found: list[Violation]) -> None:
    if messages[0]["role"] != "user":
        found.append(Violation("B1", "messages[0]", "A conversation must start with a user message."))
    for index in range(1, len(messages)):
        if messages[index]["role"] == messages[index - 1]["role"]:
            path = f"messages[{index}]"
            found.append(Violation("B1", path, f"{path}: roles must alternate between user and assistant."))
