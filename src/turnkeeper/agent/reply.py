"""Shaping what a model sent into a message of history: its own blocks stay word for word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Text, ToolCall


def unique_calls(message: Message, taken: Iterable[str], make_id: Callable[[], str]) -> Message:
    """`message` with call ids that are unique among themselves and against `taken`, and none empty.

    Results and the ledger are tied to a call by its id, and some providers repeat or omit them (cases
    R021, R023). The same block sent twice in one message is one call (case R082).
    """
    seen = set(taken)
    in_message: dict[str, ToolCall] = {}
    parts: list[Any] = []
    changed = False
    for part in message.parts:
        if type(part) is not ToolCall or part.server_side:
            parts.append(part)
            continue
        twin = in_message.get(part.id)
        if part.id and twin is not None and twin.name == part.name and twin.arguments == part.arguments:
            changed = True
            continue
        if not part.id or part.id in seen:
            part = msgspec.structs.replace(part, id=make_id())  # noqa: PLW2901
            changed = True
        seen.add(part.id)
        in_message[part.id] = part
        parts.append(part)
    return msgspec.structs.replace(message, parts=tuple(parts)) if changed else message


def calls_of(message: Message) -> list[ToolCall]:
    """The calls that we are to run."""
    return [part for part in message.parts if type(part) is ToolCall and not part.server_side]


def call_ids(messages: Sequence[Message]) -> set[str]:
    """Every call id of these messages; what only a failed attempt asked for is free to be asked for again."""
    return {
        part.id for message in messages if message.replay for part in message.parts if type(part) is ToolCall
    }


def has_answer(message: Message) -> bool:
    """Whether a person can read something in it."""
    return any(type(part) is Text and part.text.strip() for part in message.parts)


def arguments_problem(call: ToolCall) -> bool:
    """Whether the arguments as streamed are no JSON object (wire rules A8, C5)."""
    if not isinstance(call.arguments, dict):
        return True
    raw = call.arguments_raw
    if raw is None or not raw.strip():
        return False
    try:
        return not isinstance(msgspec.json.decode(raw.encode(errors="surrogatepass")), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return not call.arguments
