"""A fast look at single rows: which of them certainly need no rule.

Ninety-nine rows of a hundred are healthy. `look` marks them once; the rules that judge single rows then pass
over them, also in the second pass that proves the fixed point. The mark is careful, never clever: what is
not certainly healthy stays a suspect, and a property test holds that no rule changes a plain row.
"""

from __future__ import annotations

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, COMPLETE, TOOL, USER, Message
from turnkeeper.conversation.parts import Text, Thinking, ToolCall, ToolResult
from turnkeeper.history.leak import may_hold_markup
from turnkeeper.history.row import Rows, Run
from turnkeeper.history.shape import SUMMARY

_encoder = msgspec.json.Encoder()
_PLAIN_VALUES = frozenset({int, float, bool, type(None)})


def look(rows: Rows, run: Run) -> None:
    """Mark the rows that were not looked at before."""
    expired = run.expired
    for row in rows:
        if row.looked:
            continue
        message = row.message
        row.looked = True
        role = message.role
        if not message.replay or message.standing != COMPLETE or not message.parts:
            continue
        if role == USER:
            row.plain = (
                message.provenance != SUMMARY
                and (not expired or message.message_id not in expired)
                and _is_plain_user(message)
            )
        elif role == ASSISTANT:
            row.plain = _is_plain_assistant(message)
        elif role == TOOL:
            row.plain = _is_plain_tool(message)


def _is_plain_text(text: str) -> bool:
    """Whether `text` has a visible character and every character can be sent."""
    if not text or text.isspace() or "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_plain_user(message: Message) -> bool:
    return all(type(part) is Text and _is_plain_text(part.text) for part in message.parts)


def _is_plain_assistant(message: Message) -> bool:
    called = False
    spoken = False
    for part in message.parts:
        if type(part) is Text:
            text = part.text
            if called or not _is_plain_text(text) or may_hold_markup(text):
                return False
            spoken = True
        elif type(part) is ToolCall:
            called = True
            if part.server_side or not _is_plain_call(part):
                return False
        elif type(part) is Thinking:
            if called or (part.text and not _is_plain_text(part.text)):
                return False
        else:
            return False
    return called or spoken


def _is_plain_call(call: ToolCall) -> bool:
    name = call.name
    if not (name.isascii() and name.replace("_", "").replace("-", "").isalnum()):
        return False
    if call.id and not _is_plain_text(call.id):
        return False
    arguments = call.arguments
    if type(arguments) is not dict:
        return False
    for key, value in arguments.items():
        if type(key) is not str or (key and not _is_plain_text(key)):
            return False
        kind = type(value)
        if kind is str:
            if value and not _is_sendable(value):
                return False
        elif kind not in _PLAIN_VALUES:
            return False
    return True


def _is_sendable(text: str) -> bool:
    return "\0" not in text and (text.isascii() or _is_plain_text("x" + text))


def _is_plain_tool(message: Message) -> bool:
    for part in message.parts:
        if type(part) is not ToolResult or part.server_side or part.disposition in _UNSURE:
            return False
        content = part.content
        if type(content) is not str or not _is_plain_text(content):
            return False
        if "nterrupt" in content or "NTERRUPT" in content:
            return False
        if part.tool_call_id and not _is_plain_text(part.tool_call_id):
            return False
    return True


_UNSURE = frozenset({"unknown", "interrupted"})
