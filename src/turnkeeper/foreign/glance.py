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
from typing import Any, Final, Literal

import msgspec

from turnkeeper.history.leak import find_leak_in, may_hold_markup


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
_ANALYSIS: Final = "\nanalysis"
_SIGNS: Final = (
    "<",
    "[TOOL_CALLS]",
    "assistantfinal",
    "assistantcommentary",
    "assistantanalysis",
    "commentary to=",
    _ANALYSIS,
)
"""What `may_hold_markup` looks for, in texts that are joined by line breaks ("analysis" only where one begins)."""


class Glance(msgspec.Struct, frozen=True):
    """What is known of a session at a glance."""

    format: str
    rows: int
    raws: tuple[msgspec.Raw, ...] = ()
    """Every row as it stands in the file, if some exchange is not healthy."""
    sick: tuple[tuple[int, int], ...] = ()
    """The exchanges that are not certainly healthy, as ranges of rows. None of them depends on another one."""
    items: Sequence[Any] = ()
    """Their rows, one behind the other."""


class _Seen:
    """What a walk collects of the exchanges that it passed, and what it looks for in their texts."""

    __slots__ = (
        "_ids_kept",
        "_names_kept",
        "broken_off",
        "ids",
        "marks",
        "names",
        "results",
        "said",
        "signs",
    )

    def __init__(self, signs: tuple[str, ...] = (), *, broken_off: bool = False) -> None:
        self.ids: list[str] = []
        self.names: list[str] = []
        self.said: list[str] = []
        """Texts of the assistant, also of exchanges that were not passed."""
        self.results: list[str] = []
        self.marks = 0
        self.signs = signs
        """Signs of markup that stand somewhere in the session: each text is looked at by itself."""
        self.broken_off = broken_off
        """Whether some result tells of an interruption: each is looked at by itself."""
        self._ids_kept = self._names_kept = 0

    def keep(self) -> None:
        """An exchange was passed: what was collected of it stays."""
        self._ids_kept, self._names_kept = len(self.ids), len(self.names)

    def forget(self) -> None:
        """An exchange was not passed: its ids and names are no longer here."""
        del self.ids[self._ids_kept :]
        del self.names[self._names_kept :]

    def fits(self) -> bool:
        """Whether every id and name can be sent to every provider, and no id stands twice."""
        ids = set(self.ids)
        return (
            len(ids) == len(self.ids) and all(map(_ID.match, ids)) and all(map(_NAME.match, set(self.names)))
        )

    def again(self) -> _Seen | None:
        """What the next walk has to look for, text by text; None if this one need not be repeated.

        A search in all texts at once takes a fraction of a search in each, and mostly finds nothing.
        """
        said = "\n".join(("", *self.said))
        signs = tuple([sign for sign in _SIGNS if sign in said])
        results = "\n".join(self.results)
        broken_off = "nterrupt" in results or "NTERRUPT" in results
        return _Seen(signs, broken_off=broken_off) if signs or broken_off else None

    def leaks(self, texts: list[str]) -> bool:
        """Whether a message of these texts, without calls, may be a leak, whatever it answers."""
        for text in texts:
            if any(sign in text for sign in self.signs) or (
                _ANALYSIS in self.signs and text.startswith("analysis")
            ):
                return find_leak_in("".join(texts)) is not None
        return False


def glance(data: bytes, providers: Sequence[str] = ()) -> Glance | None:
    """What is certain of the session in `data`; None says nothing.

    Where only the list's own provider is asked about, no text is searched for leaked calls and interruptions:
    nobody refuses those.
    """
    if data.lstrip()[:1] != b"[" or (b"\\" in data and b"\\u0000" in data):
        return None
    shape = _ANTHROPIC if b'"tool_use"' in data else _CHAT if b'"role"' in data else None
    if shape is None:
        return None
    words = set(providers) != {shape.name}
    try:
        raws: list[msgspec.Raw] = []
        try:
            rows = shape.all.decode(data)
        except msgspec.ValidationError:
            raws = _raws.decode(data)
            rows = [_typed(shape, raw) for raw in raws]
        seen = _Seen()
        parts = _parts(shape, rows, seen)
        again = seen.again() if words else None
        if again is not None:
            seen = again
            parts = _parts(shape, rows, seen)
        if not seen.fits() or seen.marks > MARKS_MAX:
            return None
        if not parts:
            return Glance(shape.name, len(rows))
        raws = raws or _raws.decode(data)
        items: list[Any] = []
        sick = _apart(shape, parts, rows, raws, seen, items, words=words)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return None if sick is None else Glance(shape.name, len(rows), tuple(raws), sick, items)


def _typed(shape: _Shape, raw: msgspec.Raw) -> Any:
    try:
        return shape.one.decode(raw)
    except msgspec.ValidationError:
        return None


def _parts(shape: _Shape, rows: Sequence[Any], seen: _Seen) -> list[tuple[int, int]]:
    """The exchanges that are not certainly healthy, as ranges of rows."""
    count = len(rows)
    found: list[tuple[int, int]] = []
    at = 0
    while at < count:
        first = shape.walk(rows, at, seen)
        if first < 0:
            break
        seen.forget()
        at = first + 1
        while at < count and not (shape.opens(rows[at]) and shape.closes(rows[at - 1])):
            at += 1
        found.append((first, at))
    return found


def _apart(
    shape: _Shape,
    parts: Sequence[tuple[int, int]],
    rows: Sequence[Any],
    raws: Sequence[msgspec.Raw],
    seen: _Seen,
    items: list[Any],
    *,
    words: bool,
) -> tuple[tuple[int, int], ...] | None:
    """These exchanges, if none of them depends on another; None if the list has to be looked at in one piece.

    Their rows are added to `items`. Whether markup is a leak hangs on what a person had said just before, so an exchange that may hold some takes
    the one before it along.
    """
    taken = set(seen.ids)
    marks = seen.marks
    together = b"\n".join([raw for first, end in parts for raw in raws[first:end]])
    marks += together.count(b"cache_control")
    if marks > MARKS_MAX:
        return None
    signs = [sign for sign in _SIGNS_IN_BYTES if sign in together] if words else []
    out: list[tuple[int, int]] = []
    for at, end in parts:
        first = at
        ids: set[str] = set()
        here = list(map(_decoder.decode, raws[at:end]))
        for row in here:
            found = shape.ids(row)
            if found is None:
                return None
            ids |= found
        if ids & taken:
            return None  # a call of one exchange is answered, or used again, in another one
        taken |= ids
        if signs and at and any(sign in bytes(raw) for raw in raws[at:end] for sign in signs):
            begin = at - 1
            while begin and not (shape.opens(rows[begin]) and shape.closes(rows[begin - 1])):
                begin -= 1
            if out and begin < out[-1][1]:
                begin = out.pop()[0]
            else:
                here = [*map(_decoder.decode, raws[begin:at]), *here]
            first = begin
        items += here
        out.append((first, end))
    return tuple(out)


_SIGNS_IN_BYTES: Final = (b"\\u00", *[sign.encode() for sign in _SIGNS if sign != _ANALYSIS], b'"analysis')


def _walk_anthropic(rows: Sequence[Any], at: int, seen: _Seen) -> int:
    """Walk on from `at`, where an exchange begins: where the first one begins that is not certainly healthy, or -1."""
    ids, names, said, results = seen.ids, seen.names, seen.said, seen.results
    asked: list[str] = []
    """The calls of the message before."""
    expected = "user"
    first = at
    seen.keep()
    for i in range(at, len(rows)):
        row = rows[i]
        if row is None or row.role != expected:
            return first
        content = row.content
        if expected == "user":
            expected = "assistant"
            if type(content) is str:
                if asked or not content or content.isspace():
                    return first
                first = i
                seen.keep()
                continue
            answered = 0
            wanted = len(asked)
            for block in content:
                kind = type(block)
                if kind is _Result:
                    text = block.content
                    if answered == wanted or block.tool_use_id != asked[answered]:
                        return first
                    answered += 1
                    results.append(text)
                    if seen.broken_off and ("nterrupt" in text or "NTERRUPT" in text):
                        return first
                elif kind is _Text:
                    text = block.text
                    if answered != wanted:
                        return first
                else:
                    return first
                if not text or text.isspace():
                    return first
                if block.cache_control is not None:
                    seen.marks += 1
            if not content or answered != wanted:
                return first
            if not wanted:
                first = i
                seen.keep()
            continue
        expected = "user"
        asked = []
        if type(content) is str:
            if not content or content.isspace():
                return first
            said.append(content)
            if seen.signs and seen.leaks([content]):
                return first
            continue
        begun = len(said)
        for block in content:
            kind = type(block)
            if kind is _Use:
                asked.append(block.id)
                names.append(block.name)
            elif asked:
                return first
            elif kind is _Text:
                text = block.text
                if not text or text.isspace():
                    return first
                said.append(text)
                if block.cache_control is not None:
                    seen.marks += 1
            elif kind is _Thinking:
                if not block.signature or not block.thinking or block.thinking.isspace():
                    return first
            else:
                return first
        if asked:
            ids += asked
        elif len(said) == begun or (seen.signs and seen.leaks(said[begun:])):
            return first
    return first if asked and expected == "user" else -1


def _walk_chat(rows: Sequence[Any], at: int, seen: _Seen) -> int:
    """The same for Chat Completions."""
    ids, names, said, results = seen.ids, seen.names, seen.said, seen.results
    open_calls: list[str] = []
    """Calls that wait for their results, the next one last."""
    expected: type = _User
    first = at
    seen.keep()
    if at == 0 and type(rows[0]) is _System:
        if not rows[0].content or rows[0].content.isspace():
            return 0
        at = 1
        if len(rows) == 1:
            return -1
    for i in range(at, len(rows)):
        row = rows[i]
        kind = type(row)
        if kind is _Tool:
            text = row.content
            if not open_calls or row.tool_call_id != open_calls.pop():
                return first
            results.append(text)
            if seen.broken_off and ("nterrupt" in text or "NTERRUPT" in text):
                return first
        elif open_calls or kind is not expected:
            return first
        elif kind is _User:
            text = row.content
            expected = _Assistant
            if i > 1:
                first = i
                seen.keep()
        else:
            text = row.content
            calls = row.tool_calls
            if calls:
                for call in calls:
                    function = call.function
                    names.append(function.name)
                    open_calls.append(call.id)
                    try:
                        _object.decode(function.arguments)
                    except (msgspec.MsgspecError, ValueError):
                        return first
                ids += open_calls
                open_calls.reverse()
                if text is None:
                    continue
            elif calls is not None:
                return first
            else:
                expected = _User
                if seen.signs and seen.leaks([text or ""]):
                    return first
            said.append(text or "")
        if not text or text.isspace():
            return first
    return first if open_calls else -1


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
    if not isinstance(row.get("tool_calls"), list | None) or type(row.get("tool_call_id", "")) is not str:
        return None
    ids: set[str] = set()
    if row["role"] == "tool":
        ids.add(row.get("tool_call_id", ""))
    for call in row.get("tool_calls") or ():
        function = call.get("function") if type(call) is dict else None
        if type(function) is not dict or type(call.get("id")) is not str:
            return None
        ids.add(call["id"])
    return ids


_SIDES: Final = ("user", "assistant")
_BLOCKS: Final = ("text", "tool_use", "tool_result")
_CHAT_ROLES: Final = ("user", "assistant", "tool")
_CHAT_KEYS: Final = frozenset({"role", "content", "tool_calls", "tool_call_id"})


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider's list is looked at."""

    name: str
    all: msgspec.json.Decoder[Any]
    one: msgspec.json.Decoder[Any]
    walk: Callable[[Sequence[Any], int, _Seen], int]
    opens: Callable[[Any], bool]
    closes: Callable[[Any], bool]
    ids: Callable[[Any], set[str] | None]


_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])
_decoder: Final = msgspec.json.Decoder()
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
