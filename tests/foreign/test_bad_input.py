"""Lists and files that are huge, deep, circular or sick in their ground: an answer or one line, and nothing written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

import turnkeeper
from turnkeeper import cli
from turnkeeper.foreign import doctor
from turnkeeper.foreign.doctor import examine_path, warnings_of


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
