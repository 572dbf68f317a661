"""Short words for messages in tests: `user("1", "hi")`, `assistant("2", "text", call("c1"))`, `tool("3", result("c1", "x"))`."""

from __future__ import annotations

from typing import Any

from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Part, Text, ToolCall, ToolResult
from turnkeeper.history.feed import Feed


def parts_of(items: tuple[Part | str, ...]) -> tuple[Part, ...]:
    return tuple(Text(item) if isinstance(item, str) else item for item in items)


def user(message_id: str, *items: Part | str, **fields: Any) -> Message:
    return Message(message_id=message_id, role="user", parts=parts_of(items), **fields)


def assistant(message_id: str, *items: Part | str, **fields: Any) -> Message:
    return Message(message_id=message_id, role="assistant", parts=parts_of(items), **fields)


def tool(message_id: str, *items: Part | str, **fields: Any) -> Message:
    return Message(message_id=message_id, role="tool", parts=parts_of(items), **fields)


def call(call_id: str, name: str = "act", arguments: Any = None, **fields: Any) -> ToolCall:
    return ToolCall(call_id, name, {} if arguments is None else arguments, **fields)


def result(call_id: str, content: Any, **fields: Any) -> ToolResult:
    return ToolResult(call_id, content, **fields)


def picture(feed: Feed) -> list[Any]:
    """A feed as plain values: [(role, [text | "name(id)" | "id -> content"]), ...]."""
    return [(m.role, [_part(p) for p in m.parts]) for m in feed.messages]


def _part(part: Part) -> str:
    if isinstance(part, ToolCall):
        return f"{part.name}({part.id})"
    if isinstance(part, ToolResult):
        return f"{part.tool_call_id} -> {part.content}"
    return str(getattr(part, "text", None) or part)


def roles(feed: Feed) -> list[str]:
    return [m.role for m in feed.messages]
