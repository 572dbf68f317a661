"""Reads and writes the messages of other frameworks: pydantic-ai, LangChain, Vercel's UI messages.

A `Container` reads one `Message` for each stored item, with the item's place as its id, and makes new items
from messages of a feed. `rebuild` puts a healed list together: an item whose message is in the feed as it was
comes back as the very object; only sick ones are made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from turnkeeper.conversation.messages import (
    ASSISTANT,
    COMPLETE,
    ERRORED,
    INTERRUPTED,
    SYSTEM,
    TOOL,
    USER,
    Message,
)
from turnkeeper.conversation.parts import Attachment, Json, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.foreign.wires import Item, listed, origin_of, raw_block
from turnkeeper.history.feed import Feed
from turnkeeper.provider.wire import KEPT_IDS, CallIds, read_arguments


class Container(msgspec.Struct, frozen=True):
    """How one framework stores its messages."""

    name: str
    read: Callable[[Sequence[Item]], list[Message]]
    make: Callable[[Message], list[Item]]
    """New items for a message of a feed."""


def _words(value: Json) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _keep(kind: Json, item: Json) -> Opaque:
    return Opaque(str(kind or "unknown"), block=raw_block(item))


def _kept(part: Opaque) -> Json:
    return msgspec.json.decode(part.block) if isinstance(part.block, msgspec.Raw) else None


def _arguments(value: Json) -> tuple[Json, str | None]:
    """(arguments, text as stored) of a call whose arguments may be an object or JSON text."""
    if isinstance(value, str):
        return read_arguments(value), value
    return value, None


# --- pydantic-ai


_FAILED_RETURNS: Final = frozenset({"failed", "denied", "retried", "interrupted", "error"})


def read_pydantic_ai(items: Sequence[Item]) -> list[Message]:
    """ModelRequest and ModelResponse as `ModelMessagesTypeAdapter` writes them."""
    origin = origin_of("pydantic-ai")
    found = []
    for i, item in enumerate(items):
        response = item.get("kind") == "response"
        parts = [_pydantic_part(part, response=response) for part in listed(item.get("parts"))]
        standing = COMPLETE
        if response and item.get("state") not in (None, "complete"):
            standing = INTERRUPTED
        if response and item.get("finish_reason") == "error":
            standing = ERRORED
        found.append(
            Message(
                message_id=str(i),
                role=ASSISTANT if response else USER,
                parts=tuple(parts),
                origin=origin,
                standing=standing,
                replay=standing == COMPLETE,
                stop_reason=item.get("finish_reason") if isinstance(item.get("finish_reason"), str) else None,
            )
        )
    return found


def _pydantic_part(part: Json, *, response: bool) -> Part:
    if not isinstance(part, dict):
        return _keep("unknown", part)
    kind = part.get("part_kind")
    content = part.get("content")
    if response:
        if kind == "text":
            return Text(_words(content), block=_sealed(part))
        if kind == "thinking":
            signature = part.get("signature")
            return Thinking(
                _words(content),
                signature=signature if isinstance(signature, str) else None,
                block=raw_block(part),
            )
        if kind == "tool-call":
            arguments, raw = _arguments(part.get("args"))
            if part.get("args") in (None, ""):
                arguments = {}
            return ToolCall(
                _words(part.get("tool_call_id")),
                _words(part.get("tool_name")),
                arguments,
                raw,
                block=_sealed(part),
            )
        return _keep(kind, part)
    if kind == "user-prompt" and isinstance(content, str):
        return Text(content)
    if kind == "tool-return" or (kind in ("retry-prompt", "retry-feedback") and part.get("tool_name")):
        failed = kind != "tool-return" or str(part.get("outcome")) in _FAILED_RETURNS
        name = part.get("tool_name")
        return ToolResult(
            _words(part.get("tool_call_id")),
            "(none)" if content is None else content,
            is_error=failed,
            name=name if isinstance(name, str) else None,
            block=raw_block(part),
        )
    return _keep(kind, part)


def _sealed(part: Item) -> msgspec.Raw | msgspec.UnsetType:
    """The part's JSON, where it holds more than its own words."""
    bound = part.get("id") is not None or part.get("provider_details") is not None
    return raw_block(part) if bound else msgspec.UNSET


def make_pydantic_ai(message: Message) -> list[Item]:
    """A ModelRequest or ModelResponse for a message of a feed."""
    if message.role == ASSISTANT:
        made = [_make_pydantic_response(part) for part in message.parts]
        return [{"kind": "response", "parts": [part for part in made if part is not None]}]
    if message.role == TOOL:
        return [
            {
                "kind": "request",
                "parts": [_make_return(p) for p in message.parts if isinstance(p, ToolResult)],
            }
        ]
    asked: list[Json] = []
    for part in message.parts:
        if isinstance(part, Text):
            asked.append({"part_kind": "user-prompt", "content": part.text})
        elif isinstance(part, Opaque) and (kept := _kept(part)) is not None:
            asked.append(kept)
    return [{"kind": "request", "parts": asked}]


def _make_return(part: ToolResult) -> Json:
    kept = msgspec.json.decode(part.block) if isinstance(part.block, msgspec.Raw) else {}
    if isinstance(kept, dict) and kept.get("tool_call_id") == part.tool_call_id:
        return kept
    return {
        "part_kind": "tool-return",
        "tool_name": part.name or "unknown_tool",
        "tool_call_id": part.tool_call_id,
        "content": part.content,
        "outcome": "failed" if part.is_error else "success",
    }


def _make_pydantic_response(part: Part) -> Json:
    if not isinstance(part, Attachment) and isinstance(part.block, msgspec.Raw):
        return msgspec.json.decode(part.block)
    if isinstance(part, ToolCall):
        return {
            "part_kind": "tool-call",
            "tool_name": part.name,
            "args": part.arguments,
            "tool_call_id": part.id,
        }
    # Reasoning without its seal is worth nothing.
    return {"part_kind": "text", "content": part.text} if isinstance(part, Text) else None


# --- LangChain, and LangGraph with it


_LANGCHAIN_ROLES: Final = {"human": USER, "ai": ASSISTANT, "tool": TOOL, "system": SYSTEM, "function": TOOL}


def plain_langchain(item: Item) -> Item:
    """A message without its wrapping: `{"type", "data": {...}}` and `{"lc": 1, "kwargs": {...}}` are known too."""
    if isinstance(item.get("data"), dict) and "content" not in item:
        return {"type": item.get("type"), **item["data"]}
    if item.get("lc") == 1 and isinstance(item.get("kwargs"), dict):
        return dict(item["kwargs"])
    return item


def read_langchain(items: Sequence[Item]) -> list[Message]:
    """LangChain messages as dictionaries (`message.model_dump()`)."""
    origin = origin_of("langchain")
    found = []
    for i, item in enumerate(items):
        plain = plain_langchain(item)
        kind = _words(plain.get("type"))
        kind = kind.removesuffix("MessageChunk").lower() or kind
        role = _LANGCHAIN_ROLES.get(kind, kind)
        if role == TOOL:
            name = plain.get("name")
            parts: list[Part] = [
                ToolResult(
                    _words(plain.get("tool_call_id")),
                    plain.get("content"),
                    is_error=plain.get("status") == "error",
                    name=name if isinstance(name, str) else None,
                )
            ]
        else:
            parts = _langchain_content(plain.get("content"))
            if role == ASSISTANT:
                parts += _langchain_calls(plain)
        found.append(Message(message_id=str(i), role=role, parts=tuple(parts), origin=origin))
    return found


def _langchain_content(content: Json) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    parts: list[Part] = []
    for piece in content if isinstance(content, list) else ():
        if isinstance(piece, str):
            parts.append(Text(piece))
        elif isinstance(piece, dict) and piece.get("type") in ("text", "output_text"):
            odd = piece.keys() - {"type", "text"}
            parts.append(Text(_words(piece.get("text")), block=raw_block(piece) if odd else msgspec.UNSET))
        elif isinstance(piece, dict) and piece.get("type") == "thinking":
            signature = piece.get("signature")
            parts.append(
                Thinking(
                    _words(piece.get("thinking")),
                    signature=signature if isinstance(signature, str) else None,
                    block=raw_block(piece),
                )
            )
        elif isinstance(piece, dict) and piece.get("type") in ("tool_use", "function_call", "tool_call"):
            continue  # told again, and whole, in tool_calls
        else:
            parts.append(_keep(piece.get("type") if isinstance(piece, dict) else "unknown", piece))
    return parts


def _langchain_calls(plain: Item) -> list[Part]:
    calls: list[Part] = []
    for call in (*listed(plain.get("tool_calls")), *listed(plain.get("invalid_tool_calls"))):
        if isinstance(call, dict):
            arguments, raw = _arguments(call.get("args"))
            calls.append(ToolCall(_words(call.get("id")), _words(call.get("name")), arguments, raw))
    return calls


def make_langchain(message: Message) -> list[Item]:
    """LangChain messages for a message of a feed; each result is a message of its own."""
    if message.role == TOOL:
        return [
            {
                "type": "tool",
                "content": part.content,
                "tool_call_id": part.tool_call_id,
                "name": part.name,
                "status": "error" if part.is_error else "success",
            }
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
    kind = {USER: "human", ASSISTANT: "ai", SYSTEM: "system"}[message.role]
    pieces: list[Json] = []
    for part in message.parts:
        block = getattr(part, "block", None)
        if isinstance(block, msgspec.Raw):
            pieces.append(msgspec.json.decode(block))
        elif isinstance(part, Text):
            pieces.append({"type": "text", "text": part.text})
    words = [
        piece["text"] for piece in pieces if isinstance(piece, dict) and piece.keys() == {"type", "text"}
    ]
    content: Json = "\n\n".join(words) if len(words) == len(pieces) else pieces
    made: Item = {"type": kind, "content": content}
    if message.role == ASSISTANT:
        made["tool_calls"] = [
            {"name": part.name, "args": part.arguments, "id": part.id, "type": "tool_call"}
            for part in message.parts
            if isinstance(part, ToolCall)
        ]
        made["invalid_tool_calls"] = []
    return [made]


# --- Vercel AI SDK


_VERCEL_WITHOUT_OUTPUT: Final = frozenset(
    {"input-streaming", "input-available", "approval-requested", "call"}
)


def read_vercel(items: Sequence[Item]) -> list[Message]:
    """UIMessages: an assistant's message holds all its steps, each call with its output beside it."""
    origin = origin_of("vercel")
    found = []
    for i, item in enumerate(items):
        role = _words(item.get("role"))
        parts: list[Part] = []
        for piece in listed(item.get("parts")):
            parts += _vercel_part(piece, role)
        found.append(Message(message_id=str(i), role=role, parts=tuple(parts), origin=origin))
    return found


def vercel_tool_name(piece: Item) -> str:
    """The tool of a part such as `{"type": "tool-search"}` or `{"type": "dynamic-tool", "toolName"}`."""
    kind = _words(piece.get("type"))
    return (
        _words(piece.get("toolName"))
        if kind in ("dynamic-tool", "tool-invocation")
        else kind.removeprefix("tool-")
    )


def _vercel_state(piece: Item) -> str | None:
    state = piece.get("state")
    return state if isinstance(state, str) else None


def _vercel_part(piece: Json, role: str) -> list[Part]:
    if not isinstance(piece, dict):
        return [_keep("unknown", piece)]
    kind = _words(piece.get("type"))
    if kind == "text":
        return [Text(_words(piece.get("text")))]
    if kind == "step-start" or kind.startswith(("source", "data-")):
        return []
    if role == ASSISTANT and kind == "reasoning":
        return [Thinking(_words(piece.get("text")), block=raw_block(piece))]
    if role == ASSISTANT and (kind == "dynamic-tool" or kind.startswith("tool-")):
        call_id = _words(piece.get("toolCallId"))
        call = ToolCall(call_id, vercel_tool_name(piece), piece.get("input"))
        state = _vercel_state(piece)
        if state in _VERCEL_WITHOUT_OUTPUT or state is None:
            return [call]
        failed = state in ("output-error", "output-denied")
        content = piece.get("errorText") if failed else piece.get("output")
        return [call, ToolResult(call_id, "(no output)" if content is None else content, is_error=failed)]
    return [_keep(kind, piece)]


def make_vercel(message: Message) -> list[Item]:
    """A UIMessage for a message of a feed that stands for none."""
    return [
        {
            "id": f"turnkeeper-{message.message_id or 'added'}",
            "role": message.role if message.role in (USER, ASSISTANT, SYSTEM) else USER,
            "parts": [{"type": "text", "text": p.text} for p in message.parts if isinstance(p, Text)],
        }
    ]


def heal_vercel(items: Sequence[Item], feed: Feed) -> list[Item]:
    """UIMessages healed in place: open calls end in an error that says what is known, blank parts go."""
    said = {
        part.tool_call_id: part
        for message in feed.messages
        for part in message.parts
        if isinstance(part, ToolResult) and part.synthetic
    }
    present = {source for sources in feed.sources for source in sources}
    ids = CallIds(KEPT_IDS, 24)
    healed: list[Item] = []
    for i, item in enumerate(items):
        if str(i) not in present and item.get("role") != SYSTEM:
            continue
        ids.open_batch()
        parts = [_heal_vercel_part(piece, said, ids) for piece in listed(item.get("parts"))]
        kept = [piece for piece in parts if piece is not None]
        if not any(isinstance(p, dict) and p.get("type") not in ("step-start", "reasoning") for p in kept):
            if item.get("role") != USER:
                continue
            kept = [{"type": "text", "text": "(empty message)"}]
        healed.append(item if kept == item.get("parts") else {**item, "parts": kept})
    return healed


def _heal_vercel_part(piece: Json, said: Mapping[str, ToolResult], ids: CallIds) -> Json:
    if not isinstance(piece, dict):
        return None
    kind = _words(piece.get("type"))
    if kind in ("text", "reasoning") and not _words(piece.get("text")).strip():
        return None
    if kind == "dynamic-tool" or kind.startswith("tool-"):
        changed = dict(piece)
        if not isinstance(piece.get("input"), dict):
            changed["input"] = {}
        call_id = _words(piece.get("toolCallId"))
        result = said.get(call_id)
        changed["toolCallId"] = ids.call(call_id)
        if result is not None and _vercel_state(piece) in (*_VERCEL_WITHOUT_OUTPUT, None):
            changed |= {"state": "output-error", "errorText": result.content}
            changed.pop("output", None)
        return piece if changed == piece else changed
    return piece


# --- all of them


CONTAINERS: Final[dict[str, Container]] = {
    container.name: container
    for container in (
        Container("pydantic-ai", read_pydantic_ai, make_pydantic_ai),
        Container("langchain", read_langchain, make_langchain),
        Container("vercel", read_vercel, make_vercel),
    )
}


def detect_container(items: Sequence[Item]) -> str | None:
    """Whose messages these are, or None."""
    for item in items:
        if item.get("kind") in ("request", "response") and isinstance(item.get("parts"), list):
            return "pydantic-ai"
        plain = plain_langchain(item)
        kind = _words(plain.get("type")).removesuffix("MessageChunk").lower()
        if kind in _LANGCHAIN_ROLES and "content" in plain and "role" not in plain:
            return "langchain"
        if isinstance(item.get("parts"), list) and "id" in item and isinstance(item.get("role"), str):
            return "vercel"
    return None


def rebuild(
    feed: Feed, reads: Sequence[Message], items: Sequence[Any], make: Callable[[Message], Iterable[Any]]
) -> list[Any]:
    """The healed list: `items` where the feed says the same, new ones where it does not.

    `reads` are the messages that `items` were read as; their ids are the places of the items.
    """
    out: list[Any] = []
    rows = list(zip(feed.messages, feed.sources, strict=True))
    i = 0
    while i < len(rows):
        sources = rows[i][1]
        j = i + 1
        while sources and j < len(rows) and rows[j][1] == sources:
            j += 1
        fed = [part for message, _ in rows[i:j] for part in message.parts]
        stored = [part for source in sources for part in reads[int(source)].parts]
        if sources and len(fed) == len(stored) and all(a is b for a, b in zip(fed, stored, strict=True)):
            out += [items[int(source)] for source in sources]
        else:
            for message, _ in rows[i:j]:
                out += make(message)
        i = j
    return out
