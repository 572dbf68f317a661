"""The fast look at a file passes nothing in which the careful one finds anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnkeeper.foreign.doctor import examine_path, heal_items
from turnkeeper.foreign.exchanges import Rows, examine_exchanges, heal_exchanges
from turnkeeper.foreign.findings import ALL, check, examine, feed_of
from turnkeeper.foreign.glance import Glance, glance
from turnkeeper.foreign.sessions import JsonSource, Session, format_of
from turnkeeper.testing.bench.feed import make_corpus, stored

TEXTS = (
    "hello",
    "",
    " ",
    "<tool_call>{}</tool_call>",
    "Interrupted by user",
    "a\0b",
    "\ud83d",
    "analysis: ok",
    "日本",
)
text = st.sampled_from(TEXTS[:1] * 12 + TEXTS)
ids = st.sampled_from(("a", "b", "c", "d", "e", "f", "a b", "", "x" * 41, "y" * 70))
names = st.sampled_from(("f", "read_file") * 6 + ("", "a.b", "n" * 80))
arguments = st.sampled_from(({}, {"q": 1}) * 6 + (None, [], {"k": "\0"}, {"k": "\udc00"}))


def anthropic_block(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    if kind == "tool_use":
        return {"type": kind, "id": draw(ids), "name": draw(names), "input": draw(arguments)}
    if kind == "tool_result":
        return {"type": kind, "tool_use_id": draw(ids), "content": draw(text)}
    if kind == "thinking":
        return {"type": kind, "thinking": draw(text), "signature": draw(st.sampled_from(("s", "s", "")))}
    return {"type": "text", "text": draw(text)}


@st.composite
def anthropic_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Mostly whole exchanges, with a row here and there that is spoiled, dropped or doubled."""
    rows: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 3))):
        rows.append({"role": "user", "content": draw(text)})
        for step in range(draw(st.integers(0, 2))):
            call = {
                "type": "tool_use",
                "id": f"c{number}_{step}",
                "name": draw(names),
                "input": draw(arguments),
            }
            said = (
                [anthropic_block(draw, draw(st.sampled_from(("text", "thinking"))))]
                if draw(st.booleans())
                else []
            )
            answer = {"type": "tool_result", "tool_use_id": call["id"], "content": draw(text)}
            rows += [{"role": "assistant", "content": [*said, call]}, {"role": "user", "content": [answer]}]
        rows.append({"role": "assistant", "content": [anthropic_block(draw, "text")]})
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(rows) - 1))
        kind = draw(st.sampled_from(("tool_use", "tool_result", "thinking", "text")))
        odd = {"role": draw(st.sampled_from(("user", "assistant"))), "content": [anthropic_block(draw, kind)]}
        rows[at : at + draw(st.integers(0, 1))] = [odd] * draw(st.integers(0, 2))
    return rows


@st.composite
def chat_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The same for Chat Completions."""
    rows: list[dict[str, Any]] = [{"role": "system", "content": draw(text)}] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 3))):
        rows.append({"role": "user", "content": draw(text)})
        for step in range(draw(st.integers(0, 2))):
            calls = [
                {
                    "id": f"c{number}_{step}_{k}",
                    "type": "function",
                    "function": {
                        "name": draw(names),
                        "arguments": draw(st.sampled_from(("{}",) * 8 + ("", "[]", "{"))),
                    },
                }
                for k in range(draw(st.integers(1, 2)))
            ]
            rows.append(
                {"role": "assistant", "content": draw(st.sampled_from((None, "hm", ""))), "tool_calls": calls}
            )
            rows += [{"role": "tool", "tool_call_id": call["id"], "content": draw(text)} for call in calls]
        rows.append({"role": "assistant", "content": draw(text)})
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(rows) - 1))
        odd = draw(st.sampled_from(("user", "assistant", "tool", "system")))
        row = {"role": odd, "content": draw(text), **({"tool_call_id": draw(ids)} if odd == "tool" else {})}
        rows[at : at + draw(st.integers(0, 1))] = [row] * draw(st.integers(0, 2))
    return rows


@settings(max_examples=300, deadline=None)
@given(rows=st.one_of(anthropic_lists(), chat_lists()))
@example(rows=[{"role": "user", "content": "x"}, {"role": "assistant", "content": "\u003ctool_call>{}"}])
@example(
    rows=[
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]
)
def test_nothing_is_found_in_what_a_glance_passed(rows: list[dict[str, Any]]) -> None:
    data = json.dumps(rows).encode()
    found = glance(data)
    if found is None or found.sick:
        return
    assert found == Glance(str(format_of(rows)), len(rows))
    assert examine(Session(name="s", format=found.format, items=json.loads(data))) == []


@settings(max_examples=300, deadline=None)
@given(rows=st.one_of(anthropic_lists(), chat_lists()))
@example(  # what closes the first exchange is left out with the look-up that never ran
    rows=[
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read_file", "input": {}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
    ]
)
@example(  # whether the third answer is a leak hangs on the words before the second
    rows=[
        {"role": "user", "content": "show me a <tool_call> example"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "ok"},
    ]
)
def test_the_parts_give_what_the_whole_gives(rows: list[dict[str, Any]]) -> None:
    data = json.dumps(rows).encode()
    found = glance(data)
    if found is None or not found.sick:
        return
    whole = Session(name="s", format=found.format, items=json.loads(data))
    assert format_of(rows) == found.format
    parts = Session(name="s", format=found.format, items=Rows(found.raws))
    feed = feed_of(whole)
    in_parts, at_once = examine_exchanges(parts, found, ALL), examine(whole, feed=feed)
    assert [finding for finding in at_once if finding not in in_parts] == []
    # A validator that met a fault of shape looks no further: in parts it sees the other exchanges too.
    shape = {"shape", "A10", "A11"} & {finding.rule.removeprefix("wire ") for finding in at_once}
    more = [finding for finding in in_parts if finding not in at_once]
    assert more == [] or (shape and all(finding.rule.startswith("wire ") for finding in more))
    healed = heal_exchanges(parts, found)
    if healed is not None and at_once:
        # In parts a healthy exchange stays row for row; written anew, both are the same.
        again = Session(name="s", format=found.format, items=[json.loads(row) for row in healed[0]])
        assert heal_items(again, feed_of(again)) == heal_items(whole, feed)


@settings(max_examples=200, deadline=None)
@given(rows=st.one_of(anthropic_lists(), chat_lists()))
def test_its_own_provider_alone_refuses_in_parts_what_it_refuses_of_the_whole(
    rows: list[dict[str, Any]],
) -> None:
    data = json.dumps(rows).encode()
    name = str(format_of(rows))
    found = glance(data, (name,))
    if found is None:
        return
    assert found.format == name
    whole = check(Session(name="s", format=name, items=json.loads(data)))
    in_parts = examine_exchanges(Session(name="s", format=name, items=Rows(found.raws)), found, (name,))
    assert [finding for finding in whole if finding not in in_parts] == []
    more = [finding for finding in in_parts if finding not in whole]
    assert more == [] or {"shape", "A10", "A11"} & {finding.wire_rules[0] for finding in whole}


@pytest.mark.parametrize("sick", [0.0, 0.013])
def test_a_healthy_session_is_passed_at_a_glance_and_a_sick_one_is_not(tmp_path: Path, sick: float) -> None:
    rows = stored(make_corpus(600, sick=sick))
    (tmp_path / "s.json").write_text(json.dumps(rows), "utf-8")
    passed = JsonSource(tmp_path / "s.json").glance()
    assert passed is not None
    assert bool(passed.sick) == (sick > 0.0)
    report = examine_path(tmp_path / "s.json", now=0.0)
    assert report.sick == (sick > 0.0)
    assert report.sessions[0].session.rows == len(rows)


def test_a_chat_session_is_passed_at_a_glance_too() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    rows = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "assistant", "content": "done"},
    ]
    assert glance(json.dumps(rows).encode()) == Glance("openai-chat", 5)
