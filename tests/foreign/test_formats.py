"""Sessions of other programs and our own store under the doctor: found, judged, healed in a copy."""

from __future__ import annotations

import json
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import EXPIRED, Message
from turnkeeper.conversation.parts import Text, ToolCall
from turnkeeper.foreign.doctor import Report, examine_path, heal_path, warnings_of
from turnkeeper.history.feed import build_feed, find_expired, find_stale_confirmations
from turnkeeper.port.store import Batch
from turnkeeper.store.sqlite import SQLiteStore

NOW = 1_700_000_000.0


def healed(path: Path, out: Path) -> tuple[Report, Report]:
    before = path.read_bytes()
    first = examine_path(path, now=NOW)
    heal_path(path, out, now=NOW)
    assert path.read_bytes() == before
    return first, examine_path(out, now=NOW)


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), "utf-8")
    return path


SICK: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{cut"}}]},
    ],
    "openai-responses": [
        {"role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"text": "well?"}]},
    ],
    "pydantic-ai": [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "hi"}]},
        {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "f", "args": "{}", "tool_call_id": "c1"}]},
    ],
    "vercel": [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
        {"id": "2", "role": "assistant", "parts": [{"type": "step-start"}, {"type": "tool-f", "toolCallId": "c1", "state": "input-available", "input": {}}]},
    ],
    "langchain": [
        {"type": "human", "content": "hi"},
        {"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {}, "id": "c1"}]},
    ],
}  # fmt: skip


HEALTHY: dict[str, list[dict[str, Any]]] = {
    "openai-responses": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "o"},
        {"type": "function_call_output", "call_id": "d", "output": "o"},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "e"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ],
    "openai-chat": [
        {"role": "developer", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": "I look", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "d", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "c", "content": "o"},
        {"role": "tool", "tool_call_id": "d", "content": "o"},
        {"role": "assistant", "content": "done"},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}, {"functionCall": {"name": "g", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": "o"}}}, {"functionResponse": {"name": "g", "response": {"result": "o"}}}]},
        {"role": "model", "parts": [{"text": "done"}]},
        {"role": "user", "parts": [{"text": "thanks"}]},
    ],
    "pydantic-ai": [
        {"kind": "request", "parts": [{"part_kind": "system-prompt", "content": "S"}, {"part_kind": "user-prompt", "content": "q"}]},
        {"kind": "response", "parts": [{"part_kind": "text", "content": "I look"}, {"part_kind": "tool-call", "tool_name": "f", "args": {}, "tool_call_id": "c"}, {"part_kind": "tool-call", "tool_name": "f", "args": "{}", "tool_call_id": "d"}]},
        {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "f", "content": "o", "tool_call_id": "c"}, {"part_kind": "tool-return", "tool_name": "f", "content": {"a": 1}, "tool_call_id": "d"}]},
        {"kind": "response", "parts": [{"part_kind": "text", "content": "done"}]},
    ],
    "vercel": [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "q"}]},
        {"id": "2", "role": "assistant", "parts": [
            {"type": "step-start"}, {"type": "text", "text": "I look", "state": "done"},
            {"type": "tool-f", "toolCallId": "c", "state": "output-available", "input": {}, "output": {"a": 1}},
            {"type": "dynamic-tool", "toolName": "g", "toolCallId": "d", "state": "output-available", "input": {}, "output": "o"},
            {"type": "step-start"}, {"type": "text", "text": "done", "state": "done"},
        ]},
    ],
    "langchain": [
        {"type": "system", "content": "S"}, {"type": "human", "content": "q"},
        {"type": "ai", "content": "I look", "tool_calls": [{"name": "f", "args": {}, "id": "c"}, {"name": "f", "args": {}, "id": "d"}]},
        {"type": "tool", "content": "o", "tool_call_id": "c"}, {"type": "tool", "content": "o", "tool_call_id": "d"},
        {"type": "ai", "content": "done"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_session_with_parallel_calls_is_well(name: str, tmp_path: Path) -> None:
    """Several items of one answer are no "two messages in a row"."""
    path, out = tmp_path / "s.json", tmp_path / "healed.json"
    path.write_text(json.dumps(HEALTHY[name]))
    report = examine_path(path, now=0.0)
    assert (report.format, [finding for found in report.sessions for finding in found.findings]) == (name, [])
    assert heal_path(path, out, now=0.0) == 0
    assert json.loads(out.read_text()) == HEALTHY[name]


def test_parts_of_gemini_that_hold_nothing_are_healed(tmp_path: Path) -> None:
    """Answers hold such parts now and then; sent back they are refused."""
    path, out = tmp_path / "s.json", tmp_path / "healed.json"
    rows = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [{"text": "a"}, {}, {"thought": True}]},
        {"role": "user", "parts": [{"text": "q2"}]},
        {"role": "model", "parts": [{}]},
    ]
    path.write_text(json.dumps(rows))
    assert {finding.row for finding in examine_path(path, now=0.0).sessions[0].findings} == {1, 3}
    heal_path(path, out, now=0.0)
    assert examine_path(out, now=0.0).sessions[0].findings == []
    assert [row["parts"][0]["text"] for row in json.loads(out.read_text())] == ["q", "a", "q2"]


def test_calls_of_uimessages_get_ids_of_their_own(tmp_path: Path) -> None:
    """A message that was stored twice, and calls whose id was lost: each keeps its own result."""
    path, out = tmp_path / "s.json", tmp_path / "healed.json"
    answer = {
        "role": "assistant",
        "parts": [
            {
                "type": "tool-f",
                "toolCallId": "c",
                "state": "output-available",
                "input": {},
                "output": "first",
            },
            {"type": "tool-f", "toolCallId": "c", "state": "input-available", "input": {}},
            {"type": "tool-f", "state": "output-available", "input": {}, "output": "nameless"},
            {"type": "tool-f", "toolCallId": "x", "state": ["odd"], "input": {}},
            {"type": "text", "text": "done", "state": "done"},
        ],
    }
    user = {"role": "user", "parts": [{"type": "text", "text": "q"}]}
    rows = [{"id": str(n), **row} for n, row in enumerate([user, answer, user, answer])]
    path.write_text(json.dumps(rows))
    assert {finding.row for finding in examine_path(path, now=0.0).sessions[0].findings} == {1, 3}
    heal_path(path, out, now=0.0)
    assert examine_path(out, now=0.0).sessions[0].findings == []
    parts = [part for row in json.loads(out.read_text()) for part in row["parts"] if part["type"] == "tool-f"]
    assert len({part["toolCallId"] for part in parts}) == len(parts) == 8
    assert [part.get("output") for part in parts[:3]] == ["first", None, "nameless"]
    assert [part["state"] for part in parts[:4]] == ["output-available", "output-error"] * 2


@pytest.mark.parametrize("name", SICK)
def test_a_json_session_is_recognised_judged_and_healed(name: str, tmp_path: Path) -> None:
    first, second = healed(write(tmp_path / "s.json", SICK[name]), tmp_path / "out.json")
    assert first.format == name
    assert {f.rule for f in first.sessions[0].findings} >= {"results_paired"}
    assert not second.sick
    assert json.loads((tmp_path / "out.json").read_text())[0] == SICK[name][0]


def test_json_lines_stay_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in SICK["openai-chat"]), "utf-8")
    _, second = healed(path, tmp_path / "out.jsonl")
    assert not second.sick


async def test_an_openai_agents_database_is_healed_in_a_copy(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agents = pytest.importorskip("agents")
    session = agents.SQLiteSession("u1", tmp_path / "s.db")
    await session.add_items(SICK["openai-responses"])
    session.close()
    first = examine_path(tmp_path / "s.db", now=NOW)
    heal_path(tmp_path / "s.db", tmp_path / "out.db", now=NOW)
    assert first.sick
    assert not examine_path(tmp_path / "out.db", now=NOW).sick
    again = agents.SQLiteSession("u1", tmp_path / "out.db")
    assert [item.get("type") for item in await again.get_items()] == [
        None,
        "function_call",
        "function_call_output",
    ]
    again.close()


def test_a_langgraph_database_is_healed_without_unpickling_and_read_by_langgraph_again(
    tmp_path: Path,
) -> None:
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import START, MessagesState, StateGraph

    def graph(path: Path) -> tuple[Any, sqlite3.Connection]:
        connection = sqlite3.connect(path, check_same_thread=False)
        call = {"name": "f", "args": {}, "id": "c1", "type": "tool_call"}
        flow = StateGraph(MessagesState)
        flow.add_node("n", lambda _: {"messages": [AIMessage("", tool_calls=[call])]})
        flow.add_edge(START, "n")
        return flow.compile(checkpointer=SqliteSaver(connection)), connection

    config: Any = {"configurable": {"thread_id": "t1"}}
    app, connection = graph(tmp_path / "s.db")
    app.invoke({"messages": [HumanMessage("hi")]}, config)
    connection.close()
    assert examine_path(tmp_path / "s.db", now=NOW).sick
    heal_path(tmp_path / "s.db", tmp_path / "out.db", now=NOW)
    assert not examine_path(tmp_path / "out.db", now=NOW).sick
    app, connection = graph(tmp_path / "out.db")
    assert [m.type for m in app.get_state(config).values["messages"]] == ["human", "ai", "tool"]
    connection.close()


async def _store(folder: Path, *messages: Message) -> None:
    store = await SQLiteStore.open(folder)
    drafts = (
        ev.Draft(ev.ConversationCreated("owner", "demo")),
        *(ev.Draft(ev.MessageAppended(m)) for m in messages),
    )
    await store.commit(Batch(conversation_id="c1", drafts=drafts, at=NOW - 3600))
    await store.close()


def said(message_id: str, role: str, *parts: Any, at: float = NOW - 3600) -> Message:
    return Message(message_id=message_id, role=role, parts=parts, created_at=at)


async def test_the_incident_tail_is_harmless_after_the_store_was_reopened(tmp_path: Path) -> None:
    await _store(
        tmp_path,
        said("m1", "user", Text("please restart the host")),
        said("m2", "assistant", Text("Confirm with: confirm forced reboot")),
        said("m3", "user", Text("confirm forced reboot")),
        said("m4", "assistant", Text("OK, restarting.")),
    )
    store = await SQLiteStore.open(tmp_path)
    messages = await store.messages_after("c1")
    stale = find_stale_confirmations(messages, NOW)
    assert [message_id for message_id, _ in stale] == ["m3"]
    drafts = tuple(ev.Draft(ev.ConfirmationExpired(*found)) for found in stale)
    await store.commit(Batch(conversation_id="c1", drafts=drafts, at=NOW))
    await store.close()
    store = await SQLiteStore.open(tmp_path)
    messages = await store.messages_after("c1")
    await store.close()
    assert [m.standing for m in messages if m.message_id == "m3"] == [EXPIRED]
    feed = build_feed(messages, incoming=said("m5", "user", Text("hi")), expired=find_expired(messages))
    assert [m.role for m in feed.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert "EXPIRED" in feed.messages[2].text
    assert messages[2].text == "confirm forced reboot"


async def test_our_own_store_is_healed_by_events_in_a_copy(tmp_path: Path) -> None:
    await _store(
        tmp_path,
        said("m1", "user", Text("go")),
        said("m2", "assistant", Text('<tool_call>\n{"name": "f"}\n</tool_call>')),
        said("m3", "user", Text("again")),
        said("m4", "assistant", ToolCall("c1", "deploy")),
    )
    import asyncio

    report = await asyncio.to_thread(examine_path, tmp_path, now=NOW)
    assert {f.rule for f in report.sessions[0].findings} >= {"leaked_markup", "results_paired"}
    out = tmp_path / "healed.db"
    await asyncio.to_thread(heal_path, tmp_path, out, now=NOW)
    after = await asyncio.to_thread(examine_path, out, now=NOW)
    assert {f.rule for s in after.sessions for f in s.findings} <= {"merge_neighbours"}
    assert after.problems == []


def test_an_affected_sqlite_and_a_network_mount_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    assert any("SQLite 3.40.1" in line for line in warnings_of(path, sqlite_version="3.40.1"))
    assert warnings_of(path, sqlite_version="3.51.3") == []
    monkeypatch.setenv("TURNKEEPER_FS_KIND", "nfs4")
    assert any("nfs4" in line for line in warnings_of(path, sqlite_version="3.51.3"))
