"""A feed as a report: what the model is given, what is sent, and every difference from the history.

The shape is that of `turnkeeper feed` and `GET .../feed` (docs: HTTP reference): `feed`, `incoming`, `changes`
and `request`. The request is validated as any other; the report says what a dialect had to leave out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Attachment, Json, Opaque, Text, Thinking, ToolCall, ToolResult
from turnkeeper.history.feed import Feed
from turnkeeper.history.row import DROPPED, REPAIRED, REPLACED, Change
from turnkeeper.port.provider import ProviderFailed, ToolSpec
from turnkeeper.provider.build import Builder
from turnkeeper.provider.dialects import dialect_named
from turnkeeper.provider.wire import Encoded, Files, LeftOut, Violation

_ACTIONS = {
    "call_id": REPLACED,
    "name": REPLACED,
    "arguments": REPAIRED,
    "attachment": REPLACED,
    "text": REPAIRED,
}
"""What happened to the things that a dialect did not send as they stood; the others were dropped."""


def report_feed(
    feed: Feed,
    dialect: str,
    *,
    origin: Origin,
    instructions: str = "",
    tools: Sequence[ToolSpec] = (),
    options: dict[str, Any] | None = None,
    files: Files | None = None,
) -> dict[str, Json]:
    """`{feed, incoming, changes, request}`; `request` is None when there is nothing to send."""
    broken: list[Violation] = []
    builder = Builder(dialect, origin, files=files, report=broken.extend)
    encoded: Encoded | None = None
    refused: str | None = None
    try:
        encoded = builder.encode(feed.messages, instructions=instructions, tools=tools, options=options or {})
    except ProviderFailed as failed:
        refused = failed.failure.sentence
    changes = [_change(change) for change in feed.changes]
    left_out: Iterable[LeftOut] = () if encoded is None else encoded.left_out
    changes += [
        {
            "message": left.message_id or None,
            "rule": f"wire {left.rule}",
            "action": _ACTIONS.get(left.what, DROPPED),
            "why": left.why,
        }
        for left in left_out
    ]
    changes += [
        {"message": None, "rule": f"wire {v.rule}", "action": REPAIRED, "why": f"{v.path}: {v.sentence}"}
        for v in broken
    ]
    if refused is not None:
        changes.append({"message": None, "rule": "request", "action": DROPPED, "why": refused})
    request: dict[str, Json] | None = None
    if encoded is not None and feed.asks and feed.messages:
        fields = dialect_named(dialect).body_fields
        request = {name: encoded.body[name] for name in fields if name in encoded.body}
    return {
        "feed": _messages(feed, encoded),
        "incoming": feed.incoming,
        "changes": changes,
        "request": request,
    }


def _change(change: Change) -> dict[str, Json]:
    return {
        "message": change.message,
        "rule": change.rule,
        "action": change.action,
        "why": change.why,
    }


def _messages(feed: Feed, encoded: Encoded | None) -> list[Json]:
    wire_ids = iter(encoded.calls if encoded is not None else ())
    silent = {left.message_id for left in encoded.left_out if left.what == "thinking"} if encoded else set()
    shown: list[Json] = []
    sent: list[str] = []
    for message, sources in zip(feed.messages, feed.sources, strict=True):
        if message.role != "tool":
            sent = []
        parts: list[Json] = []
        for part in message.parts:
            if isinstance(part, ToolCall) and not part.server_side:
                wire, _original = next(wire_ids, (part.id, part.id))
                sent.append(wire)
                parts.append(_call(part, wire))
            elif isinstance(part, ToolResult) and message.role == "tool":
                parts.append(_result(part, sent.pop(0) if sent else part.tool_call_id))
            elif not (isinstance(part, Thinking) and message.message_id in silent):
                parts.append(_part(part))
        shown.append({"role": message.role, "parts": parts, "sources": list(sources)})
    return shown


_BOUND_SHOWN = ("item_id", "summary", "encrypted_content", "thought_signature")
"""Provider-bound values that a report shows, so that a feed read back is the same feed."""


def _bound(part: Text | Thinking | ToolCall) -> dict[str, Json]:
    return {name: part.bound[name] for name in _BOUND_SHOWN if name in part.bound} if part.bound else {}


def _call(part: ToolCall, wire: str) -> Json:
    return {
        "type": "tool_call",
        "id": wire,
        "original_id": part.id,
        "name": part.name,
        "arguments": part.arguments,
        **_bound(part),
    }


def _result(part: ToolResult, wire: str) -> Json:
    shown: dict[str, Json] = {
        "type": "tool_result",
        "tool_call_id": wire,
        "original_id": part.tool_call_id,
        "content": part.content,
        "is_error": part.is_error,
    }
    if part.synthetic:
        shown["synthetic"] = True
    return shown


def _part(part: Any) -> Json:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text, **_bound(part)}
    if isinstance(part, Thinking):
        shown: dict[str, Json] = {"type": "thinking", "text": part.text}
        if part.signature is not None:
            shown["signature"] = part.signature
        return {**shown, **_bound(part)}
    if isinstance(part, Attachment):
        kind = "image" if part.media_type.startswith("image/") else "file"
        return {"type": kind, "ref": part.attachment_id, **({"name": part.name} if part.name else {})}
    if isinstance(part, Opaque):
        return {"type": part.kind, "data": part.data}
    value = msgspec.to_builtins(part)
    value.pop("block", None)
    value.pop("bound", None)
    return value


def display_parts(message: Message) -> list[Json]:
    """A message's parts in the same shape, ids as stored."""
    return [
        _call(p, p.id)
        if isinstance(p, ToolCall)
        else _result(p, p.tool_call_id)
        if isinstance(p, ToolResult)
        else _part(p)
        for p in message.parts
    ]
