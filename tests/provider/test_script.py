"""Scripts: what is read, what is refused and how it is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.errors import ScriptInvalid
from turnkeeper.provider.script import PATTERN_SECONDS_MAX, load_script, parse_script


def rules(*rounds: dict[str, Any], match: str = "") -> dict[str, Any]:
    return {"rules": [{"match": match, "rounds": list(rounds)}]}


def test_the_first_rule_that_is_found_wins_and_without_one_the_answer_is_ok_and_the_text() -> None:
    script = parse_script(
        {
            "rules": [
                {"match": "restart", "rounds": [{"text": "a"}]},
                {"match": "re", "rounds": [{"text": "b"}]},
            ]
        }
    )
    assert script.round("please restart", 0).text == "a"
    assert script.round("really", 0).text == "b"
    assert script.round("hello", 0).text == "ok hello"


def test_behind_the_last_round_a_fault_repeats_and_anything_else_is_answered() -> None:
    faulty = parse_script(rules({"text": "a"}, {"error": {"status": 529}}))
    assert faulty.round("x", 0).text == "a"
    assert faulty.round("x", 1).error == faulty.round("x", 9).error
    assert faulty.round("x", 9).error.status == 529
    calling = parse_script(rules({"tool_calls": [{"name": "echo"}]}))
    assert calling.round("x", 1).text == "ok x"


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("not json", ["not JSON"]),
        ("[]", ["an object with a list of rules"]),
        ('{"rules": {}}', ["an object with a list of rules"]),
        ('{"rules": [], "rule": 1}', ["unknown field 'rule'", "Remove it"]),
        (
            rules({"text": "a"}, {"txt": "b"}),
            ["rule 1, round 2", "unknown field `txt`", "Known fields", "chars_per_s"],
        ),
        ({"rules": [{"match": "a", "rounds": [], "x": 1}]}, ["rule 1", "unknown field `x`", "match, rounds"]),
        ({"rules": [{"rounds": []}]}, ["rule 1", "match"]),
        (rules({"text": "a"}, match="a("), ["rule 1", "'a('", "regular expression"]),
        (rules({"error": {"status": "many"}}), ["rule 1, round 1", "int"]),
        (rules({"tool_calls": [{"name": "x", "args": {}}]}), ["rule 1, round 1", "args"]),
        (rules({"garbage": "soup"}), ["unknown garbage 'soup'", "half_json"]),
        (rules({"stall_s": -1}), ["must be positive"]),
        (rules({"text": "a", "chars_per_s": 0}), ["must be positive"]),
    ],
)
def test_a_bad_script_is_refused_with_the_file_the_rule_and_what_to_do(
    tmp_path: Path, content: str | dict[str, Any], parts: list[str]
) -> None:
    path = tmp_path / "script.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ScriptInvalid) as caught:
        load_script(path)
    for part in [str(path), *parts]:
        assert part in caught.value.sentence


def test_a_missing_script_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ScriptInvalid, match="cannot be read"):
        load_script(tmp_path / "none.json")


def test_a_pattern_that_explodes_is_stopped_in_bounded_time_and_named() -> None:
    script = parse_script(rules({"text": "a"}, match=r"(a|aa|b?a)+\1+$"))
    with pytest.raises(ScriptInvalid) as caught:
        script.round("a" * 5000 + "!", 0)
    assert str(PATTERN_SECONDS_MAX) in caught.value.sentence
    assert "rule 1" in caught.value.sentence
