"""Call ids that every provider takes, for frameworks that hand them on as they are.

An id that is unique, short and plain stays as it is; any other gets a new one, and its result with it.
"""

from __future__ import annotations

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, TOOL, Message
from turnkeeper.conversation.parts import Part, ToolCall, ToolResult
from turnkeeper.history.feed import Feed
from turnkeeper.history.row import REPLACED, Change
from turnkeeper.provider.wire import KEPT_IDS, CallIds, Names


def remint(feed: Feed) -> Feed:
    """The same feed with ids and names that can be sent, and a change for each that could not."""
    ids = CallIds(KEPT_IDS, 24)
    names = Names()
    changes: list[Change] = []
    messages: list[Message] = []
    wires: list[str] = []
    for message in feed.messages:
        parts = message.parts
        if message.role == ASSISTANT:
            ids.open_batch()
            wires = []
            new = tuple([_call(part, ids, names, wires, message, changes) for part in parts])
            messages.append(_with(message, new))
        elif message.role == TOOL:
            new = tuple(
                [
                    msgspec.structs.replace(part, tool_call_id=wire, block=msgspec.UNSET)
                    if isinstance(part, ToolResult) and part.tool_call_id != wire
                    else part
                    for part, wire in zip(parts, wires, strict=False)
                ]
            )
            messages.append(_with(message, new))
        else:
            messages.append(message)
    return msgspec.structs.replace(feed, messages=tuple(messages), changes=(*feed.changes, *changes))


def _with(message: Message, parts: tuple[Part, ...]) -> Message:
    same = all(a is b for a, b in zip(parts, message.parts, strict=False))
    return (
        message
        if same and len(parts) == len(message.parts)
        else msgspec.structs.replace(message, parts=parts)
    )


def _call(
    part: Part, ids: CallIds, names: Names, wires: list[str], message: Message, changes: list[Change]
) -> Part:
    if not isinstance(part, ToolCall) or part.server_side:
        return part
    wire, name = ids.call(part.id), names.wire(part.name)
    wires.append(wire)
    if wire == part.id and name == part.name:
        return part
    why = (
        f"the call id {part.id[:60]!r} was used before or cannot be sent"
        if wire != part.id
        else "a tool's name"
    )
    changes.append(Change(message.message_id or None, "call_ids", REPLACED, why))
    return msgspec.structs.replace(part, id=wire, name=name, block=msgspec.UNSET)
