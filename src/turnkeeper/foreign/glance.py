"""A glance at a file: whether it certainly holds a healthy session, in less time than a plain parse takes.

Most files that a doctor is shown are well, or would be but for a few rows. A strict, typed decode reads them
without building dictionaries, and one walk looks at each row once. Careful, never clever: whatever is not
certainly healthy for every provider is left to `findings.examine`, which alone says what is sick. A property
test holds that nothing is ever found in a file that was passed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from turnkeeper.history.leak import may_hold_markup


class _Text(msgspec.Struct, tag="text", tag_field="type", gc=False, forbid_unknown_fields=True):
    text: str
    cache_control: dict[str, str] | None = None


class _Use(msgspec.Struct, tag="tool_use", tag_field="type", gc=False, forbid_unknown_fields=True):
    id: str
    name: str
    input: dict[str, Any]


class _Result(msgspec.Struct, tag="tool_result", tag_field="type", gc=False, forbid_unknown_fields=True):
    tool_use_id: str
    content: str
    is_error: bool = False
    cache_control: dict[str, str] | None = None


class _Thinking(msgspec.Struct, tag="thinking", tag_field="type", gc=False, forbid_unknown_fields=True):
    thinking: str
    signature: str


class _Message(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A message of the Anthropic API."""

    role: Literal["user", "assistant"]
    content: str | list[_Text | _Use | _Result | _Thinking]


class _System(msgspec.Struct, tag="system", tag_field="role", gc=False, forbid_unknown_fields=True):
    content: str


class _User(msgspec.Struct, tag="user", tag_field="role", gc=False, forbid_unknown_fields=True):
    content: str


class _Function(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: str
    arguments: str


class _Call(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    id: str
    function: _Function
    type: Literal["function"]


class _Assistant(msgspec.Struct, tag="assistant", tag_field="role", gc=False, forbid_unknown_fields=True):
    content: str | None = None
    tool_calls: list[_Call] | None = None
    refusal: None = None


class _Tool(msgspec.Struct, tag="tool", tag_field="role", gc=False, forbid_unknown_fields=True):
    tool_call_id: str
    content: str


_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}\Z")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
MARKS_MAX: Final = 4
_MARKUP: Final = (b"<", b"[TOOL_CALLS]", b"assistant", b"commentary to=", b'"analysis')
"""What `may_hold_markup` looks for, as bytes of a file ("analysis" only where a text begins with it)."""

_messages = msgspec.json.Decoder(list[_Message])
_chat = msgspec.json.Decoder(list[_System | _User | _Assistant | _Tool])
_object = msgspec.json.Decoder(dict[str, Any])


class Healthy(msgspec.Struct, frozen=True):
    """What a glance says of a healthy session."""

    format: str
    rows: int


def glance(data: bytes) -> Healthy | None:
    """The format and length of the session in `data`, if it is certainly healthy; None says nothing."""
    if data.lstrip()[:1] != b"[" or b"\\u0000" in data or data.count(b"cache_control") > MARKS_MAX:
        return None
    if b'"tool_use"' in data:
        name, look = "anthropic", _look_at_anthropic
    elif b'"role"' in data:
        name, look = "openai-chat", _look_at_chat
    else:
        return None
    # With escapes, which may spell any of these words, each text is looked at by itself.
    escaped = b"\\u00" in data
    marked = escaped or any(word in data for word in _MARKUP)
    broken_off = escaped or b"nterrupt" in data or b"NTERRUPT" in data
    try:
        rows = look(data, marked, broken_off)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return None if rows is None else Healthy(name, rows)


def _look_at_anthropic(data: bytes, marked: bool, broken_off: bool) -> int | None:
    rows = _messages.decode(data)
    ids: list[str] = []
    names: set[str] = set()
    asked: list[str] = []
    """The calls of the message before."""
    expected = "user"
    for row in rows:
        if row.role != expected:
            return None
        content = row.content
        if expected == "user":
            expected = "assistant"
            if type(content) is str:
                if asked or not content or content.isspace():
                    return None
                continue
            answered = 0
            wanted = len(asked)
            for block in content:
                kind = type(block)
                if kind is _Result:
                    text = block.content  # type: ignore[union-attr]
                    if answered == wanted or block.tool_use_id != asked[answered]:  # type: ignore[union-attr]
                        return None
                    answered += 1
                    if broken_off and ("nterrupt" in text or "NTERRUPT" in text):
                        return None
                elif kind is _Text:
                    text = block.text  # type: ignore[union-attr]
                    if answered != wanted:
                        return None
                else:
                    return None
                if not text or text.isspace():
                    return None
            if not content or answered != wanted:
                return None
            continue
        expected = "user"
        asked = []
        if type(content) is str:
            if not content or content.isspace() or (marked and may_hold_markup(content)):
                return None
            continue
        spoken = False
        for block in content:
            kind = type(block)
            if kind is _Use:
                asked.append(block.id)  # type: ignore[union-attr]
                names.add(block.name)  # type: ignore[union-attr]
            elif asked:
                return None
            elif kind is _Text:
                text = block.text  # type: ignore[union-attr]
                if not text or text.isspace() or (marked and may_hold_markup(text)):
                    return None
                spoken = True
            elif kind is _Thinking:
                if not block.signature or not block.thinking or block.thinking.isspace():  # type: ignore[union-attr]
                    return None
            else:
                return None
        if asked:
            ids += asked
        elif not spoken:
            return None
    if asked and expected == "user":
        return None
    return len(rows) if _are_fit(ids, names) else None


def _look_at_chat(data: bytes, marked: bool, broken_off: bool) -> int | None:
    rows = _chat.decode(data)
    ids: list[str] = []
    names: set[str] = set()
    open_calls: list[str] = []
    """Calls that wait for their results, the next one last."""
    expected: type = _User
    first = 0
    if rows and type(rows[0]) is _System:
        if not rows[0].content or rows[0].content.isspace():
            return None
        first = 1
    for at in range(first, len(rows)):
        row = rows[at]
        kind = type(row)
        text = row.content
        if kind is _Tool:
            if not open_calls or row.tool_call_id != open_calls.pop():  # type: ignore[union-attr]
                return None
            if broken_off and ("nterrupt" in text or "NTERRUPT" in text):  # type: ignore[operator]
                return None
        elif open_calls or kind is not expected:
            return None
        elif kind is _User:
            expected = _Assistant
        else:
            calls = row.tool_calls  # type: ignore[union-attr]
            if calls:
                for call in calls:
                    function = call.function
                    names.add(function.name)
                    open_calls.append(call.id)
                    _object.decode(function.arguments)
                ids += open_calls
                open_calls.reverse()
                if text is None:
                    continue
            elif calls is not None:
                return None
            else:
                expected = _User
            if marked and may_hold_markup(text or ""):
                return None
        if not text or text.isspace():
            return None
    return len(rows) if not open_calls and rows and _are_fit(ids, names) else None


def _are_fit(ids: Iterable[str], names: Iterable[str]) -> bool:
    """Whether every id and name can be sent to every provider, and no id stands twice."""
    count = 0
    seen: set[str] = set()
    for call_id in ids:
        seen.add(call_id)
        count += 1
    return len(seen) == count and all(map(_ID.match, seen)) and all(map(_NAME.match, names))
