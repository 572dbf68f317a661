"""Plain lists come back as their provider takes them; the doctor says what is sick and heals a copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import turnkeeper
from turnkeeper import cli
from turnkeeper.errors import BadInput

ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
    {"role": "user", "content": "steer"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "and?"},
]


def test_a_sick_list_is_cleaned_and_healthy_messages_are_the_very_objects() -> None:
    before = json.dumps(ANTHROPIC)
    cleaned = turnkeeper.clean(ANTHROPIC, provider="anthropic")
    assert cleaned[0] is ANTHROPIC[0]
    assert cleaned[2]["content"][0]["type"] == "tool_result"
    assert [message["role"] for message in cleaned] == ["user", "assistant", "user"]
    assert json.dumps(ANTHROPIC) == before


def test_a_list_of_another_shape_is_refused_in_one_sentence() -> None:
    with pytest.raises(BadInput):
        turnkeeper.clean(ANTHROPIC, provider="gemini")
    with pytest.raises(BadInput):
        turnkeeper.clean("text", provider="anthropic")  # type: ignore[arg-type]


def test_the_doctor_finds_what_is_sick_and_the_healed_copy_is_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session, healed = tmp_path / "s.json", tmp_path / "healed.json"
    session.write_text(json.dumps(ANTHROPIC), "utf-8")
    assert cli.run(["doctor", str(session), "--json", "--heal", str(healed)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert {finding["row"] for finding in report["sessions"][0]["sick"]} >= {1, 3}
    assert cli.run(["doctor", str(healed), "--json"]) == 0
    assert json.loads(session.read_text("utf-8")) == ANTHROPIC


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"7", b'["a"]', b"[" * 100_000])
def test_what_cannot_be_read_is_one_line_and_exit_code_2(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes(content)
    for verb in ("doctor", "feed"):
        assert cli.run([verb, str(bad)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1


@pytest.mark.parametrize("kind", ["redacted_thinking", "thinking", "tool_use", "server_tool_use"])
def test_what_only_the_model_may_say_never_goes_out_on_the_users_side(kind: str) -> None:
    block = {
        "type": kind,
        "id": "t1",
        "name": "f",
        "input": {},
        "data": "zz",
        "thinking": "x",
        "signature": "s",
    }
    said = {"role": "user", "content": [{"type": "text", "text": "hi"}, block]}
    cleaned = turnkeeper.clean([said], provider="anthropic")
    assert cleaned == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
