"""Lists and files that are huge, deep, circular or sick in their ground: an answer or one line, and nothing written."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

import turnkeeper
from turnkeeper import cli
from turnkeeper.errors import BadInput
from turnkeeper.foreign import doctor
from turnkeeper.foreign.case import feed_case, parse_case
from turnkeeper.foreign.doctor import examine_path, heal_path, warnings_of


def call(call_id: str, given: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {} if given is None else given}


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def answer(call_id: str, content: Any = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


@pytest.mark.parametrize("size", [4_000_000, pytest.param(100 * 1024 * 1024, marks=pytest.mark.long)])
def test_a_huge_result_goes_through_as_the_very_object(size: int, tmp_path: Path) -> None:
    huge = "x" * size
    rows = [
        said("user", {"type": "text", "text": "go"}),
        said("assistant", call("t1")),
        said("user", answer("t1", huge)),
    ]
    sick = [*rows, {"role": "assistant", "content": ""}]
    cleaned = turnkeeper.clean(sick, provider="anthropic")
    assert cleaned == rows
    assert cleaned[2]["content"][0]["content"] is huge
    (tmp_path / "s.json").write_text(json.dumps(sick), "utf-8")
    assert {f.row for f in examine_path(tmp_path / "s.json", now=0.0).sessions[0].findings} == {3}


def test_ten_thousand_calls_of_one_message_each_get_their_result() -> None:
    count = 10_000
    calls = [call(f"t{i}", {"i": i}) for i in range(count)]
    some = [answer(f"t{i}") for i in range(count) if i % 3]
    rows = [said("user", {"type": "text", "text": "go"}), said("assistant", *calls), said("user", *some)]
    cleaned = turnkeeper.clean([*rows, {"role": "user", "content": "and?"}], provider="anthropic")
    results = [block for block in cleaned[2]["content"] if block["type"] == "tool_result"]
    assert [block["tool_use_id"] for block in results] == [f"t{i}" for i in range(count)]
    assert sum(block["content"] == "ok" for block in results) == len(some)


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


def circle() -> dict[str, Any]:
    ring: dict[str, Any] = {}
    ring["a"] = ring
    return ring


@pytest.mark.parametrize("odd", [nested(50_000), circle()], ids=["deep", "circular"])
def test_a_deep_or_circular_value_is_replaced_and_the_rest_stays(odd: dict[str, Any]) -> None:
    given = said("assistant", call("t1", odd), call("t2"))
    cleaned = turnkeeper.clean(
        [said("user", {"type": "text", "text": "go"}), given, said("user", answer("t1"), answer("t2", odd))],
        provider="anthropic",
    )
    json.dumps(cleaned)
    assert [block["input"] for block in cleaned[1]["content"]] == [{}, {}]
    assert "nested too deep" in cleaned[2]["content"][1]["content"]
    assert given["content"][0]["input"] is odd, "what was handed in is never changed"


@pytest.mark.parametrize("verb", ["feed", "doctor"])
def test_a_deep_file_is_one_line_and_exit_code_2(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "deep.json"
    bad.write_text(
        '{"provider": "anthropic", "history": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}", "utf-8"
    )
    assert cli.run([verb, str(bad)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "nested too deep" in err
    assert list(tmp_path.iterdir()) == [bad]


def test_an_unknown_provider_is_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.json").write_text('[{"role": "user", "content": "hi"}]', "utf-8")
    assert (
        cli.run(["doctor", str(tmp_path / "s.json"), "--provider", "ghost", "--heal", str(tmp_path / "o")])
        == 2
    )
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert not (tmp_path / "o").exists()


# --- the ground that a file stands on


def database(path: Path) -> apsw.Connection:
    """A session file of another program whose log was never taken over into it."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(
        "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT)"
    )
    row = json.dumps({"role": "user", "content": "x" * 4000})
    with connection:
        connection.executemany(
            "INSERT INTO agent_messages (session_id, message_data) VALUES ('s', ?)", [(row,)] * 40
        )
    return connection


def test_a_log_that_lags_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = database(tmp_path / "s.db")
    log = (tmp_path / "s.db-wal").stat().st_size
    monkeypatch.setattr(doctor, "WAL_LAG_BYTES", log)
    assert not any(
        "write-ahead log s.db-wal" in line for line in warnings_of(tmp_path / "s.db", sqlite_version="3.52.0")
    )
    monkeypatch.setattr(doctor, "WAL_LAG_BYTES", log - 1)
    report = examine_path(tmp_path / "s.db", now=0.0)
    assert any("no checkpoint came through" in line for line in report.warnings)
    assert report.sessions[0].session.rows == 40, "what stands only in the log is read"
    connection.close()
    assert not any("no checkpoint" in line for line in warnings_of(tmp_path / "s.db")), (
        "taken over at the close"
    )


@pytest.mark.parametrize(("kind", "warned"), [("nfs", True), ("virtiofs", True), ("ext4", False)])
def test_a_database_on_a_network_mount_is_warned_of(
    kind: str, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database(tmp_path / "s.db").close()
    (tmp_path / "s.json").write_text("[]", "utf-8")
    monkeypatch.setattr(doctor, "fs_kind", lambda path: kind)
    found = warnings_of(tmp_path / "s.db", sqlite_version="3.52.0")
    assert any(f"on a {kind} mount" in line for line in found) == warned
    assert warnings_of(tmp_path / "s.json") == [], "a plain file is safe anywhere"


@pytest.mark.parametrize(
    ("version", "affected"),
    [("3.6.23", False), ("3.7.0", True), ("3.51.2", True), ("3.51.3", False), ("odd", False)],
)
def test_an_affected_sqlite_is_warned_of(version: str, affected: bool, tmp_path: Path) -> None:
    database(tmp_path / "s.db").close()
    found = warnings_of(tmp_path / "s.db", sqlite_version=version)
    assert any(f"SQLite {version}" in line for line in found) == affected


ODD: list[Any] = [
    None, True, -1, 3.5, "", " ", "x", "\ud800", "\x00", [], {}, [[]], [None], {"a": None}, 10**30, "user", "tool",
    "2026-13-45T99:00Z", [1, [2]], {"type": "text"}, {"type": "tool_call"}, {"type": "tool_result"},
]  # fmt: skip

SESSIONS: list[Any] = [
    [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "ok"}]},
    ],
    [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ],
    [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "o"},
    ],
    {
        "contents": [
            {"role": "user", "parts": [{"text": "q"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
        ]
    },
    [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "q"}]},
        {
            "kind": "response",
            "parts": [{"part_kind": "tool-call", "tool_name": "f", "args": "{}", "tool_call_id": "c"}],
        },
        {
            "kind": "request",
            "parts": [{"part_kind": "tool-return", "tool_name": "f", "content": "x", "tool_call_id": "c"}],
        },
    ],
    [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "q"}]},
        {
            "id": "2",
            "role": "assistant",
            "parts": [
                {"type": "tool-f", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1}
            ],
        },
    ],
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to everything inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    for key, piece in inside:
        found += places(piece, (*path, key))
    return found


def bent(value: Any, chance: Random) -> Any:
    """A copy with one to three things in it replaced, doubled or gone."""
    value = deepcopy(value)
    for _ in range(chance.randint(1, 3)):
        ways = places(value)
        if not ways:
            break
        *way, last = chance.choice(ways)
        inside = value
        for key in way:
            inside = inside[key]
        act = chance.random()
        if act < 0.7:
            inside[last] = deepcopy(chance.choice(ODD))
        elif act < 0.85 and isinstance(inside, list):
            inside.insert(last, deepcopy(inside[last]))
        else:
            del inside[last]
    return value


def test_a_case_bent_anywhere_is_answered_or_refused_in_one_sentence() -> None:
    """Found this way: types that are lists, item ids that are objects."""
    folder = Path(__file__).parent.parent / "vectors"
    cases = [json.loads(path.read_text()) for path in sorted(folder.glob("feed*/*.json"))]
    chance = Random(4)
    refused: list[str] = []
    for case in [case for case in cases for _ in range(2)]:
        try:
            report = feed_case(parse_case(json.dumps(bent(case, chance)).encode()))
        except BadInput as error:
            refused.append(error.sentence)
        else:
            json.dumps(report, allow_nan=False)
    assert 0 < len(refused) < len(cases), "most of what is bent can still be answered"
    assert not any("\n" in sentence for sentence in refused)


def test_a_session_bent_anywhere_is_judged_and_healed_or_refused_in_one_sentence(tmp_path: Path) -> None:
    chance = Random(5)
    refused: list[str] = []
    for number in range(120):
        path, out = tmp_path / f"{number}.json", tmp_path / f"{number}-healed.json"
        path.write_text(json.dumps(bent(chance.choice(SESSIONS), chance)))
        try:
            examine_path(path, now=1.8e9)
            heal_path(path, out, now=1.8e9)
        except BadInput as error:
            refused.append(f"{error.sentence}{'! but written' if out.exists() else ''}")
        else:
            json.loads(out.read_bytes())
    assert len(refused) < 60
    assert not any("\n" in sentence or "! but written" in sentence for sentence in refused)
