"""Leaked markup is read as calls only where it is nothing but whole calls (healing is never a guess)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history.leak_samples import CONTROLS, LEAKS, NS
from turnkeeper.history.leak import Leak, find_leak_in
from turnkeeper.history.leak_calls import LeakedCall, fit_to_schema, read_leaked_calls


def xml(ns: str = "", wrap: str | None = None) -> str:
    """One call as XML elements of a name space."""
    inner = "".join(
        f'<{ns}parameter name="{key}">{value}</{ns}parameter>\n'
        for key, value in (("path", "a b"), ("n", "3"))
    )
    call = f'<{ns}invoke name="read">\n{inner}</{ns}invoke>'
    return call if wrap is None else f"<{ns}{wrap}>\n{call}\n</{ns}{wrap}>"


JSON = '{"name": "read", "arguments": {"path": "a b", "n": 3}}'
WIDE = "\uff5c"
LOW = "\u2581"

READABLE = {
    "invoke": xml(),
    "invoke after a stray word": "court\n" + xml(),
    "invoke, wrapped": xml(wrap="function_calls"),
    "invoke, name space": xml(NS, "function_calls"),
    "dsml": xml(f"{WIDE}DSML{WIDE}", "tool_calls"),
    "minimax": "<minimax:tool_call>\n" + xml() + "\n</minimax:tool_call>",
    "tool_call": f"<tool_call>\n{JSON}\n</tool_call>",
    "arg_key": "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a b</arg_value>\n"
    "<arg_key>n</arg_key><arg_value>3</arg_value></tool_call>",
    "function": "<tool_call>\n<function=read>\n<parameter=path>\na b\n</parameter>\n<parameter=n>3</parameter>\n"
    "</function>\n</tool_call>",
    "naked function": "<function=read>\n<parameter=path>\na b\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
    "</function>\n</tool_call>",
    "mistral": f"[TOOL_CALLS][{JSON}]",
    "mistral new": '[TOOL_CALLS]read[ARGS]{"path": "a b", "n": 3}',
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
    '{"path": "a b", "n": 3}<|tool_call_end|><|tool_calls_section_end|>',
    "deepseek": f"<{WIDE}tool{LOW}calls{LOW}begin{WIDE}><{WIDE}tool{LOW}call{LOW}begin{WIDE}>function"
    f'<{WIDE}tool{LOW}sep{WIDE}>read\n```json\n{{"path": "a b", "n": 3}}\n```'
    f"<{WIDE}tool{LOW}call{LOW}end{WIDE}><{WIDE}tool{LOW}calls{LOW}end{WIDE}>",
    "harmony": '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"path": "a b", "n": 3}<|call|>',
    "llama": '<|python_tag|>{"name": "read", "parameters": {"path": "a b", "n": 3}}',
}

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}


def read(text: str) -> list[tuple[str, dict[str, object]]]:
    leak = find_leak_in(text)
    assert leak is not None, "it is no leak at all"
    return [(call.name, fit_to_schema(call, SCHEMA)) for call in read_leaked_calls(text, leak)]


@pytest.mark.parametrize("dialect", READABLE)
def test_a_whole_call_is_read_in_every_dialect(dialect: str) -> None:
    wanted = [("read", {"path": "a b", "n": 3})]
    assert read(READABLE[dialect]) == wanted
    assert read(f"I will look.\n{READABLE[dialect]}\n") == wanted


def test_several_calls_are_read_in_their_order() -> None:
    two = xml().replace("a b", "first") + "\n" + xml().replace("a b", "second")
    assert [arguments["path"] for _, arguments in read(two)] == ["first", "second"]
    listed = f"<tool_call>{JSON}</tool_call>\n<tool_call>{JSON.replace('a b', 'c')}</tool_call>"
    assert [arguments["path"] for _, arguments in read(listed)] == ["a b", "c"]


@pytest.mark.parametrize("dialect", READABLE)
def test_what_is_cut_or_goes_on_is_not_read(dialect: str) -> None:
    whole = READABLE[dialect]
    assert read(f"{whole}\nThat was it.") == []
    for length in range(len(whole) - 1, 0, -1):
        cut = whole[:length]
        leak = find_leak_in(cut)
        if leak is not None and read_leaked_calls(cut, leak):
            # Only what closes the outermost element may be missing: the calls themselves are whole.
            assert read(cut) == [("read", {"path": "a b", "n": 3})], cut


@pytest.mark.parametrize("name", [n for n in LEAKS if n not in ("invoke alone", "tool_call with json")])
def test_the_known_leaks_give_whole_calls_or_nothing(name: str) -> None:
    leak = find_leak_in(LEAKS[name])
    assert leak is not None
    for call in read_leaked_calls(LEAKS[name], leak):
        assert call.name in ("ls", "Bash", "Read", "read_file", "x"), call


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "read", "arguments": "no object"}</tool_call>',
        '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "read", "arguments": {}, "and": "more"}</tool_call>',
        "<tool_call>[1, 2]</tool_call>",
        "<function=read><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        "<tool_call>" + "[" * 50_000 + "</tool_call>",
        "[TOOL_CALLS]" + f"[{', '.join([JSON] * 17)}]",
        '<|python_tag|>print("hello")',
    ],
)
def test_what_is_no_call_is_no_call(text: str) -> None:
    assert read_leaked_calls(text, Leak("any", 0)) == ()


def test_text_becomes_what_the_schema_asks_for_and_nothing_else() -> None:
    given = LeakedCall(
        "x", {"s": "3", "n": "3", "b": "true", "o": '{"a": 1}', "bad": "3x", "free": "7"}, typed=False
    )
    schema = {
        "properties": {
            "s": {"type": "string"},
            "n": {"type": "integer"},
            "b": {"type": ["boolean", "null"]},
            "o": {"type": "object"},
            "bad": {"type": "integer"},
        }
    }
    assert fit_to_schema(given, schema) == {
        "s": "3", "n": 3, "b": True, "o": {"a": 1}, "bad": "3x", "free": "7",
    }  # fmt: skip


@given(
    st.text(max_size=60),
    st.sampled_from([*READABLE.values(), *LEAKS.values(), *CONTROLS.values()]),
    st.integers(0, 80),
)
def test_nothing_that_a_model_writes_breaks_the_reading(noise: str, sample: str, at: int) -> None:
    text = sample[:at] + noise + sample[at:]
    assert isinstance(read_leaked_calls(text, Leak("any", min(at, len(text)))), tuple)
