"""One line for a list of messages that some other program keeps: `turnkeeper.clean(messages, provider=...)`.

The list is in the provider's own shape and comes back in it, acceptable to it. Messages that were healthy come
back as the very objects they were; the given list and its messages are never changed. `explain` tells what was
changed and by which rule.

    import anthropic, turnkeeper
    client.messages.create(model=..., messages=turnkeeper.clean(messages, provider="anthropic"), ...)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Thinking
from turnkeeper.conversation.turns import Effect
from turnkeeper.errors import BadInput
from turnkeeper.foreign.wires import LOCAL_MODEL, WIRES, Item, Wire, check_items, detect_wire
from turnkeeper.history.feed import Feed, build_feed
from turnkeeper.history.row import Change, FeedOptions
from turnkeeper.provider.dialects import DIALECTS, dialect_named

PROVIDERS: Mapping[str, str] = {"openai": "openai-chat", "bedrock": "bedrock"}
"""Names that users say for a dialect."""


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """A cleaned list, and what was done to it."""

    messages: list[Any]
    changes: tuple[Change, ...]
    """`message` is the place of the message in the given list, as text."""
    provider: str


def clean(
    messages: Sequence[Mapping[str, Any]],
    provider: str = "any",
    *,
    for_request: bool = True,
    read_only: Iterable[str] = (),
    expired: Iterable[int] = (),
) -> list[Any]:
    """`messages` as the provider will accept them.

    `provider`: anthropic, bedrock, openai (chat or Responses, whichever shape the list has), openai-chat,
    openai-responses, gemini, mistral, or a variant of openai-chat. `for_request`: end on the user's side, so
    that the list can be sent at once. `read_only`: names of tools that only read; a block of their calls
    that was never answered is left out. `expired`: places of messages whose dangerous confirmation is stale.
    Raises BadInput when the list is no list of messages of that provider.
    """
    return explain(messages, provider, for_request=for_request, read_only=read_only, expired=expired).messages


def explain(
    messages: Sequence[Mapping[str, Any]],
    provider: str = "any",
    *,
    for_request: bool = True,
    read_only: Iterable[str] = (),
    expired: Iterable[int] = (),
) -> Cleaned:
    """`clean`, with every change and the rule that made it."""
    items = check_items(messages)
    wire = wire_for(items, provider)
    dialect = _dialect(wire, provider)
    if not items:
        return Cleaned(messages=[], changes=(), provider=dialect)
    feed = build_feed(
        wire.read(items),
        expired=frozenset(map(str, expired)),
        options=FeedOptions(
            effects=dict.fromkeys(read_only, Effect.READ_ONLY),
            for_request=for_request,
        ),
    )
    return Cleaned(messages=write(feed, items, wire, dialect), changes=feed.changes, provider=dialect)


def wire_for(items: Sequence[Item], provider: str) -> Wire:
    """The shape that a list must have for `provider`. Raises BadInput when it has another."""
    found = detect_wire(items)
    name = PROVIDERS.get(provider, provider)
    if name == "any":
        if found is None and items:
            raise BadInput("this is no list of messages of a provider that is known here")
        return WIRES[found or "openai-chat"]
    if name in ("openai-chat", "openai-responses") and provider == "openai":
        name = found if found in ("openai-chat", "openai-responses") else name
    wanted = name if name in WIRES else "anthropic" if name == "bedrock" else "openai-chat"
    dialect_named(name)
    if found not in (None, wanted) and not (found == "openai-chat" and _is_plain(items)):
        raise BadInput(f"these messages have the shape of {found}, not of {wanted}")
    return WIRES[wanted]


def _is_plain(items: Sequence[Item]) -> bool:
    """Only roles and words: the shape of every provider that has `role` and `content`."""
    return all(
        item.keys() <= {"role", "content", "name"} and item.get("role") in ("user", "assistant", "system")
        for item in items
    )


def _dialect(wire: Wire, provider: str) -> str:
    name = PROVIDERS.get(provider, provider)
    return name if name in DIALECTS and name not in WIRES else wire.name


def write(feed: Feed, items: Sequence[Item], wire: Wire, dialect: str) -> list[Item]:
    """The feed in the provider's shape, with the given items where they say the same."""
    known = dialect_named(dialect)
    origin = Origin(wire.name, LOCAL_MODEL)
    options: dict[str, Any] = {"cache": False, "thinking": _has_thinking(feed.messages)}
    body = known.encode(feed.messages, origin=origin, options=options).body
    encoded: list[Item] = body[wire.field]
    restored = restore(encoded, items, wire.name)
    found = known.validate({**body, wire.field: restored})
    return restored if not found or found == known.validate(body) else encoded


def _has_thinking(messages: Sequence[Message]) -> bool:
    return any(isinstance(part, Thinking) for message in messages for part in message.parts)


def restore(encoded: Sequence[Item], items: Sequence[Item], wire: str) -> list[Item]:
    """`encoded` with the given items in place of those that say the same.

    Most of a list is healthy and in its order: one walk over both takes those. What is left over on both sides
    is matched by what it says, wherever it stands.
    """
    out = list(encoded)
    left: list[int] = []
    over: list[Item] = []
    said = [_said(item, wire) for item in items]
    at, count = 0, len(items)
    ahead = NEAR
    for i, item in enumerate(encoded):
        says = _said(item, wire)
        for k in range(at, min(at + ahead, count)):
            if says == said[k]:
                out[i] = items[k]
                if k > at:
                    over += items[at:k]
                at = k + 1
                ahead = NEAR
                break
        else:
            left.append(i)
            ahead += 1
    over += items[at:]
    if not left or not over:
        return out
    waiting: dict[bytes, deque[Item]] = {}
    for item in over:
        key = _key(item, wire)
        if key is not None:
            waiting.setdefault(key, deque()).append(item)
    for i in left:
        same = waiting.get(_key(encoded[i], wire) or b"")
        if same:
            out[i] = same.popleft()
    return out


NEAR: Final = 4
"""How far the walk looks ahead for the item that says the same, one further for each that it did not find:
rows in between were dropped or moved."""


def _key(item: Item, wire: str) -> bytes | None:
    """What an item says, apart from marks and order of keys; None when it cannot be JSON."""
    try:
        return msgspec.json.encode(_said(item, wire), order="sorted")
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return None


_UNSAID = frozenset({"cache_control", "status", "annotations", "logprobs", "refusal", "audio"})
"""Fields of a message or block that are marks, or are empty where they change nothing of what it says."""
_CAMEL = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "thought_signature": "thoughtSignature",
    "inline_data": "inlineData",
    "file_data": "fileData",
}


def _said(item: Item, wire: str) -> Any:
    said = {k: v for k, v in item.items() if k not in _UNSAID and v is not None}
    if wire == "gemini":
        parts = said.get("parts")
        if isinstance(parts, list):
            said["parts"] = [
                {_CAMEL.get(k, k): v for k, v in p.items() if v is not None} if isinstance(p, dict) else p
                for p in parts
            ]
        return said
    if wire == "openai-responses":
        said.pop("id", None)
        if said.get("type") == "message":
            said.pop("type")
    elif wire == "openai-chat" and said.get("role") != "tool":
        said.pop("name", None)
    content = said.get("content")
    if isinstance(content, str):
        said["content"] = [{"type": "text", "text": content}]
    elif isinstance(content, list):
        said["content"] = [_said_block(block) for block in content]
    elif content is None:
        said.pop("content", None)
    if said.get("role") == "developer":
        said["role"] = "system"
    return said


_MARKS = ("cache_control", "annotations", "logprobs")
_PLAIN_BLOCKS = frozenset({"text", "tool_use", "thinking", "tool_result"})


def _said_block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    if str(block.get("type")) in _PLAIN_BLOCKS and not (
        "cache_control" in block
        or "annotations" in block
        or "logprobs" in block
        or "is_error" in block
        or type(block.get("content")) is list
    ):
        return block
    said = {k: v for k, v in block.items() if k not in _MARKS}
    if said.get("type") in ("input_text", "output_text"):
        said["type"] = "text"
    if said.get("is_error") is False:
        said.pop("is_error")
    content = said.get("content")
    if (
        said.get("type") == "tool_result"
        and isinstance(content, list)
        and all(isinstance(p, dict) and p.get("type") == "text" for p in content)
    ):
        said["content"] = "\n".join(str(p.get("text")) for p in content)
    return said
