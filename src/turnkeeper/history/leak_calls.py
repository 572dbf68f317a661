"""Reads the calls that leaked markup stands for, where that can be done without guessing.

`read_leaked_calls` gives the calls of a leak only if the text, from where the leak begins to its very end, is
nothing but whole calls of a known dialect: something cut, unknown, or followed by words gives nothing, and the
answer is then sampled again. Whether a call may run (its tool, its schema) is not decided here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from turnkeeper.history.leak import Leak

CALLS_MAX: Final = 16
"""Most calls of one leak that are read."""
LEAK_CHARS_MAX: Final = 200_000
"""A longer leak is not read."""

_BARS = str.maketrans({"｜": "|", "‖": "|", "▁": "_"})


class LeakedCall(msgspec.Struct, frozen=True):
    """A call as the markup gives it. `typed`: its values are JSON; else every value is text as written."""

    name: str
    arguments: dict[str, Any]
    typed: bool = True


class _Unreadable(Exception):
    """It is no whole call."""


def read_leaked_calls(text: str, leak: Leak) -> tuple[LeakedCall, ...]:
    """The calls that the rest of `text` from the leak on is made of; none if it is made of anything else."""
    rest = text[leak.start :]
    if len(rest) > LEAK_CHARS_MAX:
        return ()
    even = re.sub(r"\A(?:court|count|call)\n+", "", rest.translate(_BARS))
    for read in (
        _read_xml,
        _read_tool_call,
        _read_mistral,
        _read_kimi,
        _read_deepseek,
        _read_harmony,
        _read_llama,
    ):
        try:
            calls = read(even)
        except _Unreadable:
            continue
        if 0 < len(calls) <= CALLS_MAX:
            return tuple(calls)
    return ()


def fit_to_schema(call: LeakedCall, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call; text becomes what the schema asks for, where it is exactly that as JSON."""
    if call.typed:
        return call.arguments
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
    return {name: _fit(value, known.get(name)) for name, value in call.arguments.items()}


def _fit(value: Any, schema: Any) -> Any:
    wanted = schema.get("type") if isinstance(schema, dict) else None
    kinds = wanted if isinstance(wanted, list) else [wanted]
    if not isinstance(value, str) or "string" in kinds or wanted is None:
        return value
    try:
        return _json(value)
    except _Unreadable:
        return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _Unreadable from None


def _object(text: str) -> dict[str, Any]:
    found = _json(text)
    if not isinstance(found, dict):
        raise _Unreadable
    return found


def _named(found: Any) -> LeakedCall:
    """`{"name": ..., "arguments" | "parameters": {...} or JSON text of it}`."""
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise _Unreadable
    given = found.get("arguments", found.get("parameters", {}))
    arguments = _object(given) if isinstance(given, str) else given
    if not isinstance(arguments, dict) or set(found) - {"name", "arguments", "parameters", "id", "type"}:
        raise _Unreadable
    return LeakedCall(found["name"], arguments)


_BLANK = re.compile(r"\s*")


class _Reader:
    """Takes pieces off a text, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def done(self) -> bool:
        """Whether only blanks are left."""
        return not self._text[self._at :].strip()

    def rest(self) -> str:
        """Everything that is left; nothing is taken."""
        return self._text[self._at :]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """What matches here, blanks before it passed over. Raises _Unreadable."""
        found = self.may(pattern)
        if found is None:
            raise _Unreadable
        return found

    def may(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What matches here, or None; then nothing is taken."""
        blank = _BLANK.match(self._text, self._at)
        start = self._at if blank is None else blank.end()
        found = pattern.match(self._text, start)
        if found is not None:
            self._at = found.end()
        return found

    def until(self, end: str) -> str:
        """Everything up to `end`, which is taken as well. Raises _Unreadable."""
        at = self._text.find(end, self._at)
        if at < 0:
            raise _Unreadable
        piece = self._text[self._at : at]
        self._at = at + len(end)
        return piece


_SPACE = r"(?:antml:|\|DSML\||\|\|DSML\|\|)?"
_WRAP = re.compile(rf"</?{_SPACE}(?:function_calls|tool_calls|minimax:tool_call)>")
_INVOKE = re.compile(rf"""<{_SPACE}invoke name=["']([^"'\n]{{1,150}})["']\s*>""")
_PARAMETER = re.compile(rf"""<({_SPACE})parameter name=["']([^"'\n]{{1,150}})["'][^>\n]{{0,40}}>""")
_INVOKE_END = re.compile(rf"</{_SPACE}invoke>")


def _read_xml(text: str) -> list[LeakedCall]:
    """`<invoke name="x"><parameter name="a">1</parameter></invoke>`, with or without what stands around it."""
    reader, calls = _Reader(text), list[LeakedCall]()
    while not reader.done:
        if reader.may(_WRAP):
            continue
        name = reader.take(_INVOKE)[1]
        arguments: dict[str, Any] = {}
        while (found := reader.may(_PARAMETER)) is not None:
            if found[2] in arguments:
                raise _Unreadable
            arguments[found[2]] = reader.until(f"</{found[1]}parameter>")
        reader.take(_INVOKE_END)
        calls.append(LeakedCall(name, arguments, typed=False))
    return calls


_CALL = re.compile(r"<\|?tool_call>")
_CALL_END = re.compile(r"</tool_call>|<tool_call\|>")
_CALLS_WRAP = re.compile(r"</?tool_calls>")
_FUNCTION = re.compile(r"<function=([\w.:-]{1,100})>")
_FUNCTION_START = re.compile(r"(?=<function=)")
_FUNCTION_END = re.compile(r"</function>")
_EQUALS = re.compile(r"<parameter=([\w.:-]{1,100})>")
_KEYED = re.compile(r"([\w.:-]{1,100})[ \t]*(?=\n|<arg_key>|</tool_call>)")
_ARG_KEY = re.compile(r"<arg_key>")
_ARG_VALUE = re.compile(r"<arg_value>")
_JSON_START = re.compile(r"(?=[{\[])")


def _read_tool_call(text: str) -> list[LeakedCall]:
    """`<tool_call>` around JSON, around `<function=x>`, or around arg_key and arg_value; and a naked `<function=x>`."""
    reader, calls = _Reader(text), list[LeakedCall]()
    while not reader.done:
        if reader.may(_CALLS_WRAP):
            continue
        wrapped = reader.may(_CALL) is not None
        if wrapped and reader.may(_JSON_START):
            said = _json(reader.until("</tool_call>"))
            calls += [_named(one) for one in (said if isinstance(said, list) else [said])]
            continue
        naked = reader.may(_FUNCTION_START) is not None
        if not (wrapped or naked):
            raise _Unreadable
        calls.append(_function(reader) if naked else _keyed(reader))
        if wrapped:
            reader.take(_CALL_END)
        else:
            reader.may(_CALL_END)
    return calls


def _function(reader: _Reader) -> LeakedCall:
    name = reader.take(_FUNCTION)[1]
    arguments: dict[str, Any] = {}
    while (found := reader.may(_EQUALS)) is not None:
        if found[1] in arguments:
            raise _Unreadable
        value = reader.until("</parameter>")
        # The form puts each value on lines of its own.
        arguments[found[1]] = value.removeprefix("\n").removesuffix("\n")
    reader.take(_FUNCTION_END)
    return LeakedCall(name, arguments, typed=False)


def _keyed(reader: _Reader) -> LeakedCall:
    name = reader.take(_KEYED)[1]
    arguments: dict[str, Any] = {}
    while reader.may(_ARG_KEY) is not None:
        key = reader.until("</arg_key>").strip()
        reader.take(_ARG_VALUE)
        if key in arguments:
            raise _Unreadable
        arguments[key] = reader.until("</arg_value>")
    return LeakedCall(name, arguments, typed=False)


_TOOL_CALLS = re.compile(r"\[TOOL_CALLS\]")
_ARGS = re.compile(r"([\w.-]{1,64})\s*(?:\[CALL_ID\][\w-]{1,64}\s*)?(?:\[ARGS\])?")


def _read_mistral(text: str) -> list[LeakedCall]:
    """`[TOOL_CALLS]` before a list of calls, or before each of them as `name[ARGS]{...}`."""
    reader = _Reader(text)
    reader.take(_TOOL_CALLS)
    rest = text[len("[TOOL_CALLS]") :].strip()
    if rest.startswith("["):
        return [_named(one) for one in _json(rest)]
    calls = []
    for piece in rest.split("[TOOL_CALLS]"):
        inner = _Reader(piece)
        name = inner.take(_ARGS)[1]
        calls.append(LeakedCall(name, _object(inner.rest())))
    return calls


_KIMI = re.compile(
    r"(?:functions\.)?([\w.-]{1,100}?)(?::\d{1,6})?\s*<\|tool_call_argument_begin\|>\s*(\{.*?\})\s*<\|tool_call_end\|>",
    re.DOTALL,
)


def _read_kimi(text: str) -> list[LeakedCall]:
    """`<|tool_call_begin|>functions.x:0<|tool_call_argument_begin|>{...}<|tool_call_end|>`."""
    body = (
        text.strip().removeprefix("<|tool_calls_section_begin|>").removesuffix("<|tool_calls_section_end|>")
    )
    if "<|tool_call_begin|>" not in body:
        raise _Unreadable
    first, *pieces = body.split("<|tool_call_begin|>")
    if first.strip():
        raise _Unreadable
    calls = []
    for piece in pieces:
        found = _KIMI.fullmatch(piece.strip())
        if found is None:
            raise _Unreadable
        calls.append(LeakedCall(found[1], _object(found[2])))
    return calls


_DEEPSEEK = re.compile(
    r"(?:function\s*<\|tool_sep\|>\s*)?([\w.-]{1,100})\s*(?:<\|tool_sep\|>)?\s*(?:```json)?\s*(\{.*\})\s*(?:```)?\s*",
    re.DOTALL,
)


def _read_deepseek(text: str) -> list[LeakedCall]:
    """`<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>x` and a block of JSON."""
    body = text.strip().removeprefix("<|tool_calls_begin|>").removesuffix("<|tool_calls_end|>")
    first, *pieces = body.split("<|tool_call_begin|>")
    if first.strip() or not pieces:
        raise _Unreadable
    calls = []
    for piece in pieces:
        inside, end, after = piece.partition("<|tool_call_end|>")
        found = _DEEPSEEK.fullmatch(inside.strip())
        if not end or after.strip() or found is None:
            raise _Unreadable
        calls.append(LeakedCall(found[1], _object(found[2])))
    return calls


_HARMONY = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>\w{1,20}\s+to=functions\.([\w.-]{1,100})\s*(?:<\|constrain\|>\s*\w{0,20})?"
    r"\s*<\|message\|>(\{.*\})\s*(?:<\|call\|>)",
    re.DOTALL,
)


def _read_harmony(text: str) -> list[LeakedCall]:
    """`<|channel|>commentary to=functions.x<|message|>{...}<|call|>`."""
    found = _HARMONY.fullmatch(text.strip())
    if found is None:
        raise _Unreadable
    return [LeakedCall(found[1], _object(found[2]))]


def _read_llama(text: str) -> list[LeakedCall]:
    """`<|python_tag|>{"name": "x", "parameters": {...}}`."""
    body = text.strip()
    if not body.startswith("<|python_tag|>"):
        raise _Unreadable
    return [_named(_json(body.removeprefix("<|python_tag|>").removesuffix("<|eom_id|>")))]
