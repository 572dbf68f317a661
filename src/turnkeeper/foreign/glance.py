"""A glance at a file: what of it is certainly healthy, in less time than a plain parse takes.

Most files that a doctor is shown are well, or would be but for a few rows. A strict, typed decode reads them
without building dictionaries, and one walk looks at each row once. Where that finds fault, the list is divided
into exchanges, from a person's words to the answer before the next ones, and only those that are not healthy
are left to `findings.examine`, which alone says what is sick. Careful, never clever: where an exchange might
depend on another one, or a row is of a rarer kind, nothing is said here and the whole list is examined. Property
tests hold that nothing is ever found in what was passed, and that the parts give what the whole gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
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
_MARKUP: Final = (
    b"<",
    b"[TOOL_CALLS]",
    b"assistantfinal",
    b"assistantcommentary",
    b"assistantanalysis",
    b"commentary to=",
    b'"analysis',
)
"""What `may_hold_markup` looks for, as bytes of a file ("analysis" only where a text begins with it)."""


class Glance(msgspec.Struct, frozen=True):
    """What is known of a session at a glance."""

    format: str
    rows: int
    raws: tuple[msgspec.Raw, ...] = ()
    """Every row as it stands in the file, if some exchange is not healthy."""
    sick: tuple[tuple[int, int], ...] = ()
    """The exchanges that are not certainly healthy, as ranges of rows. None of them depends on another one."""


class _Seen:
    """What a walk collects: the ids of calls, their names."""

    __slots__ = ("ids", "names")

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.names: set[str] = set()

    def fits(self) -> bool:
        """Whether every id and name can be sent to every provider, and no id stands twice."""
        ids = set(self.ids)
        return len(ids) == len(self.ids) and all(map(_ID.match, ids)) and all(map(_NAME.match, self.names))


def glance(data: bytes) -> Glance | None:
    """What is certain of the session in `data`; None says nothing."""
    if data.lstrip()[:1] != b"[" or b"\\u0000" in data or data.count(b"cache_control") > MARKS_MAX:
        return None
    shape = _ANTHROPIC if b'"tool_use"' in data else _CHAT if b'"role"' in data else None
    if shape is None:
        return None
    # With escapes, which may spell any of these words, each text is looked at by itself.
    escaped = b"\\u00" in data
    marked = escaped or any(word in data for word in _MARKUP)
    broken_off = escaped or b"nterrupt" in data or b"NTERRUPT" in data
    raws: list[msgspec.Raw] = []
    try:
        try:
            rows = shape.all.decode(data)
        except msgspec.ValidationError:
            raws = _raws.decode(data)
            rows = [_typed(shape, raw) for raw in raws]
        else:
            seen = _Seen()
            if shape.walk(rows, marked, broken_off, seen):
                return Glance(shape.name, len(rows)) if seen.fits() else None
            raws = _raws.decode(data)
        sick = _divide(shape, rows, raws, marked, broken_off)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return None if sick is None else Glance(shape.name, len(rows), tuple(raws), sick)


def _typed(shape: _Shape, raw: msgspec.Raw) -> Any:
    try:
        return shape.one.decode(raw)
    except msgspec.ValidationError:
        return None


def _divide(
    shape: _Shape, rows: Sequence[Any], raws: Sequence[msgspec.Raw], marked: bool, broken_off: bool
) -> tuple[tuple[int, int], ...] | None:
    """The exchanges that are not healthy; None if they have to be looked at in one piece."""
    begins = [0]
    begins += [i for i in range(1, len(rows)) if shape.opens(rows[i]) and shape.closes(rows[i - 1])]
    begins.append(len(rows))
    seen = _Seen()
    sick: list[tuple[int, int]] = []
    for first, end in pairwise(begins):
        part = rows[first:end]
        here = _Seen()
        if None not in part and shape.walk(part, marked, broken_off, here):
            seen.ids += here.ids
            seen.names |= here.names
        else:
            sick.append((first, end))
    if not seen.fits():
        return None
    taken = set(seen.ids)
    for first, end in sick:
        ids: set[str] = set()
        for raw in raws[first:end]:
            row = bytes(raw)
            if b"\\u00" in row or any(word in row for word in _MARKUP):
                return None  # whether it leaked hangs on what was said before
            found = shape.ids(msgspec.json.decode(row))
            if found is None:
                return None
            ids |= found
        if ids & taken:
            return None  # a call of one exchange is answered, or used again, in another one
        taken |= ids
    return tuple(sick)


def _walk_anthropic(rows: Sequence[Any], marked: bool, broken_off: bool, seen: _Seen) -> bool:
    ids, names = seen.ids, seen.names
    asked: list[str] = []
    """The calls of the message before."""
    expected = "user"
    for row in rows:
        if row.role != expected:
            return False
        content = row.content
        if expected == "user":
            expected = "assistant"
            if type(content) is str:
                if asked or not content or content.isspace():
                    return False
                continue
            answered = 0
            wanted = len(asked)
            for block in content:
                kind = type(block)
                if kind is _Result:
                    text = block.content
                    if answered == wanted or block.tool_use_id != asked[answered]:
                        return False
                    answered += 1
                    if broken_off and ("nterrupt" in text or "NTERRUPT" in text):
                        return False
                elif kind is _Text:
                    text = block.text
                    if answered != wanted:
                        return False
                else:
                    return False
                if not text or text.isspace():
                    return False
            if not content or answered != wanted:
                return False
            continue
        expected = "user"
        asked = []
        if type(content) is str:
            if not content or content.isspace() or (marked and may_hold_markup(content)):
                return False
            continue
        spoken = False
        for block in content:
            kind = type(block)
            if kind is _Use:
                asked.append(block.id)
                names.add(block.name)
            elif asked:
                return False
            elif kind is _Text:
                text = block.text
                if not text or text.isspace() or (marked and may_hold_markup(text)):
                    return False
                spoken = True
            elif kind is _Thinking:
                if not block.signature or not block.thinking or block.thinking.isspace():
                    return False
            else:
                return False
        if asked:
            ids += asked
        elif not spoken:
            return False
    return not (asked and expected == "user")


def _walk_chat(rows: Sequence[Any], marked: bool, broken_off: bool, seen: _Seen) -> bool:
    ids, names = seen.ids, seen.names
    open_calls: list[str] = []
    """Calls that wait for their results, the next one last."""
    expected: type = _User
    first = 0
    if rows and type(rows[0]) is _System:
        if not rows[0].content or rows[0].content.isspace():
            return False
        first = 1
    for at in range(first, len(rows)):
        row = rows[at]
        kind = type(row)
        text = row.content
        if kind is _Tool:
            if not open_calls or row.tool_call_id != open_calls.pop():
                return False
            if broken_off and ("nterrupt" in text or "NTERRUPT" in text):
                return False
        elif open_calls or kind is not expected:
            return False
        elif kind is _User:
            expected = _Assistant
        else:
            calls = row.tool_calls
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
                return False
            else:
                expected = _User
            if marked and may_hold_markup(text or ""):
                return False
        if not text or text.isspace():
            return False
    return not open_calls and bool(rows)


# --- where an exchange begins, and what a row that is not healthy may be


def _opens_anthropic(row: Any) -> bool:
    """Whether a row certainly is a person's words, and nothing but words."""
    if row is None or row.role != "user":
        return False
    content = row.content
    if type(content) is str:
        return bool(content) and not content.isspace()
    return bool(content) and all(type(b) is _Text and b.text and not b.text.isspace() for b in content)


def _closes_anthropic(row: Any) -> bool:
    """Whether a row certainly is an answer that stays, and asks for nothing."""
    if row is None or row.role != "assistant":
        return False
    content = row.content
    if type(content) is str:
        return bool(content) and not content.isspace() and not may_hold_markup(content)
    return bool(content) and all(
        type(b) is _Text and b.text and not b.text.isspace() and not may_hold_markup(b.text) for b in content
    )


def _ids_anthropic(row: Any) -> set[str] | None:
    """The ids in a row, also of results; None if the row holds anything of a rarer kind."""
    if type(row) is not dict or not row.keys() <= {"role", "content"} or row.get("role") not in _SIDES:
        return None
    content = row.get("content")
    if type(content) is str:
        return set()
    if type(content) is not list:
        return None
    ids: set[str] = set()
    for block in content:
        kind = block.get("type") if type(block) is dict else None
        if kind not in _BLOCKS:
            return None
        if kind != "text":
            found = block.get("id" if kind == "tool_use" else "tool_use_id")
            if type(found) is not str:
                return None
            ids.add(found)
    return ids


def _opens_chat(row: Any) -> bool:
    return type(row) is _User and bool(row.content) and not row.content.isspace()


def _closes_chat(row: Any) -> bool:
    if type(row) is not _Assistant or row.tool_calls is not None:
        return False
    text = row.content or ""
    return bool(text) and not text.isspace() and not may_hold_markup(text)


def _ids_chat(row: Any) -> set[str] | None:
    if type(row) is not dict or not row.keys() <= _CHAT_KEYS or row.get("role") not in _CHAT_ROLES:
        return None
    if type(row.get("content")) not in (str, type(None)):
        return None
    ids: set[str] = set()
    if row["role"] == "tool":
        ids.add(row.get("tool_call_id", ""))
    for call in row.get("tool_calls") or ():
        function = call.get("function") if type(call) is dict else None
        if type(function) is not dict or type(call.get("id")) is not str:
            return None
        ids.add(call["id"])
    return ids if all(type(found) is str for found in ids) else None


_SIDES: Final = ("user", "assistant")
_BLOCKS: Final = ("text", "tool_use", "tool_result")
_CHAT_ROLES: Final = ("user", "assistant", "tool")
_CHAT_KEYS: Final = frozenset({"role", "content", "tool_calls", "tool_call_id"})


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider's list is looked at."""

    name: str
    all: msgspec.json.Decoder[Any]
    one: msgspec.json.Decoder[Any]
    walk: Callable[[Sequence[Any], bool, bool, _Seen], bool]
    opens: Callable[[Any], bool]
    closes: Callable[[Any], bool]
    ids: Callable[[Any], set[str] | None]


_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])
_object: Final = msgspec.json.Decoder(dict[str, Any])
_ANTHROPIC: Final = _Shape(
    name="anthropic",
    all=msgspec.json.Decoder(list[_Message]),
    one=msgspec.json.Decoder(_Message),
    walk=_walk_anthropic,
    opens=_opens_anthropic,
    closes=_closes_anthropic,
    ids=_ids_anthropic,
)
_CHAT: Final = _Shape(
    name="openai-chat",
    all=msgspec.json.Decoder(list[_System | _User | _Assistant | _Tool]),
    one=msgspec.json.Decoder(_System | _User | _Assistant | _Tool),
    walk=_walk_chat,
    opens=_opens_chat,
    closes=_closes_chat,
    ids=_ids_chat,
)


def ids_of(name: str, row: Any) -> set[str] | None:
    """The ids in a row of the format `name`, also of results; None if it holds anything of a rarer kind."""
    return (_ANTHROPIC if name == _ANTHROPIC.name else _CHAT).ids(row)
