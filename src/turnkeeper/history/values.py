"""Rules about single values: text that no request can carry, arguments that are no object, nameless calls.

One such value in a stored row makes every later request fail, so each is repaired on the way into the feed;
the stored row keeps what was received.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from turnkeeper.conversation.messages import ASSISTANT
from turnkeeper.conversation.parts import Attachment, Json, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.history import wording
from turnkeeper.history.leak import clean_tool_name
from turnkeeper.history.row import REPAIRED, Rows, Run, blank, with_parts

ENCODED_MAX: Final = 3
"""How often arguments may have been made a text: some writers encode what is encoded already."""
DEPTH_MAX: Final = 200
"""Levels of nesting in arguments and results; what is deeper is taken for broken."""

_encoder = msgspec.json.Encoder()


def repair_text(text: str) -> str:
    """`text` with U+FFFD for every NUL and lone surrogate; surrogate pairs become their character (A23)."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd") if "\0" in text else text


def is_shallow(value: Json) -> bool:
    """Whether a value is nested at most `DEPTH_MAX` levels; one that holds itself is not."""
    level: list[Any] = [value] if type(value) is dict or type(value) is list else []
    for _ in range(DEPTH_MAX):
        if not level:
            return True
        below: list[Any] = []
        for item in level:
            below += item.values() if type(item) is dict else item
        found = [item for item in below if type(item) is dict or type(item) is list]
        level = list({id(item): item for item in found}.values()) if len(found) > 1 else found
    return not level


def repair_value(value: Json) -> Json:
    """A copy of a JSON value in which every string, key and number can be sent; what cannot is named."""
    if not is_shallow(value):
        return wording.TOO_DEEP
    return _repaired(value)


def _repaired(value: Json) -> Json:
    kind = type(value)
    if kind is str:
        return repair_text(value)
    if kind is dict:
        return {repair_text(str(key)): _repaired(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [_repaired(item) for item in value]
    if value is None or kind is bool or kind is int or (kind is float and value - value == 0):
        return value
    return repair_text(str(value))


def keep_text_well_formed(rows: Rows, run: Run) -> Rows:
    """Lone surrogates and NUL make a body that is no JSON, and one such row bricks the session (A23, 1g.9)."""
    out: Rows | None = None
    for i, row in run.suspects(rows):
        for part in row.message.parts:
            if not _is_well_formed(part):
                break
        else:
            continue
        if out is None:
            out = list(rows)
        out[i] = with_parts(
            row, tuple([_well_formed(part) for part in row.message.parts]), envelope=msgspec.UNSET
        )
        run.note(
            row, "well_formed_text", REPAIRED, "characters that no request can carry were replaced by U+FFFD"
        )
    return rows if out is None else out


def _is_sendable(text: str) -> bool:
    if text.isascii():
        return "\0" not in text
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _is_well_formed(part: Part) -> bool:
    if type(part) is Text or type(part) is Thinking:
        return _is_sendable(part.text)
    if type(part) is ToolResult:
        content = part.content
        if type(content) is str:
            return _is_sendable(content) and _is_sendable(part.tool_call_id)
        return _is_sendable(part.tool_call_id) and _is_sendable_value(content)
    if type(part) is ToolCall:
        return _is_sendable(part.id) and _is_sendable(part.name) and _is_sendable_value(part.arguments)
    if type(part) is Attachment:
        return _is_sendable(part.name) and _is_sendable(part.transcript or "")
    return True


def _is_sendable_value(value: Json) -> bool:
    """Whether a JSON value can be written into a request as it is."""
    if not value or value is True:
        return True
    if not is_shallow(value):
        return False
    try:
        data = _encoder.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        return False
    return b"\\u0000" not in data or repair_value(value) == value


def _well_formed(part: Part) -> Part:
    if _is_well_formed(part):
        return part
    if type(part) is Text:
        return Text(repair_text(part.text), bound=part.bound)
    if type(part) is Thinking:
        return Thinking(repair_text(part.text))
    if type(part) is ToolResult:
        return msgspec.structs.replace(
            part,
            content=repair_value(part.content),
            tool_call_id=repair_text(part.tool_call_id),
            block=msgspec.UNSET,
        )
    if type(part) is ToolCall:
        return msgspec.structs.replace(
            part,
            id=repair_text(part.id),
            name=repair_text(part.name),
            arguments=repair_value(part.arguments),
            arguments_raw=None,
            block=msgspec.UNSET,
        )
    if type(part) is Attachment:
        return msgspec.structs.replace(
            part,
            name=repair_text(part.name),
            transcript=None if part.transcript is None else repair_text(part.transcript),
        )
    return part


def make_arguments_objects(rows: Rows, run: Run) -> Rows:
    """Arguments are always an object, the one that was executed (wire rules A8, C5, 1g.6).

    Absent, cut, non-object and bottomless ones become an empty object: a guess would be replayed for ever.
    """
    out: Rows | None = None
    for i, row in run.suspects(rows):
        if row.message.role != ASSISTANT:
            continue
        for part in row.message.parts:
            if type(part) is ToolCall and (
                type(part.arguments) is not dict or not is_shallow(part.arguments)
            ):
                break
        else:
            continue
        parts = tuple([_with_object(part) if type(part) is ToolCall else part for part in row.message.parts])
        if out is None:
            out = list(rows)
        out[i] = with_parts(row, parts)
        run.note(row, "arguments_are_objects", REPAIRED, "the stored arguments of a call are no JSON object")
    return rows if out is None else out


def _with_object(call: ToolCall) -> ToolCall:
    arguments: Any = call.arguments
    if not arguments and call.arguments_raw:
        arguments = call.arguments_raw
    for _ in range(ENCODED_MAX):
        if type(arguments) is not str:
            break
        try:
            arguments = msgspec.json.decode(arguments.encode("utf-8", "replace"))
        except (msgspec.MsgspecError, RecursionError):
            arguments = {}
    if type(arguments) is not dict or not is_shallow(arguments):
        arguments = {}
    return msgspec.structs.replace(call, arguments=arguments, arguments_raw=None, block=msgspec.UNSET)


def name_every_call(rows: Rows, run: Run) -> Rows:
    """A call without a name is dropped by serialisers while its result stays (wire rule O9): it gets a name.

    Control tokens that leaked into a name are cut off (github.com/movieclaw/movieclaw/issues/224).
    """
    out: Rows | None = None
    for i, row in run.suspects(rows):
        if row.message.role != ASSISTANT:
            continue
        if not [1 for p in row.message.parts if type(p) is ToolCall and _is_odd(p.name)]:
            continue
        parts = tuple(
            msgspec.structs.replace(
                p, name=clean_tool_name(p.name).strip() or wording.UNNAMED_TOOL, block=msgspec.UNSET
            )
            if type(p) is ToolCall and _is_odd(p.name)
            else p
            for p in row.message.parts
        )
        if out is None:
            out = list(rows)
        out[i] = with_parts(row, parts)
        run.note(row, "calls_have_names", REPAIRED, "a call without a name, or with control tokens in it")
    return rows if out is None else out


def _is_odd(name: str) -> bool:
    return blank(name) or ("<" in name and clean_tool_name(name) != name)
