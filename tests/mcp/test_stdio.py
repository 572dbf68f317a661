"""MCP servers that are our children: one that works, and all the ways in which one can hurt (issue: bad input)."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types
import psutil
import pytest

from turnkeeper.app.system import SystemClock
from turnkeeper.conversation.turns import Disposition, Effect
from turnkeeper.outbound import Reach
from turnkeeper.testing.until import until
from turnkeeper.tool import Outcome, Tool, run_tool
from turnkeeper.tool.contract import ArgumentsInvalid, SourceTrouble
from turnkeeper.tool.mcp import Limits, McpServer, McpServers
from turnkeeper.tool.mcp.config import check_server
from turnkeeper.tool.mcp.listing import SCHEMA_PARTS_MAX, judge

PROGRAM = str(Path(__file__).with_name("programs") / "program.py")


class MemoryVault:
    """Values in memory."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def get(self, name: str) -> bytes | None:
        return self.values.get(name)

    async def put(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value


class World:
    """Servers, and calls of their tools as the loop makes them."""

    def __init__(self, servers: McpServers, file: Path) -> None:
        self.servers = servers
        self.file = file

    async def tools(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in await self.servers.tools("s", "ann")}

    async def call(self, name: str, *, seconds: float = 20.0, **arguments: Any) -> Outcome:
        tool = (await self.tools())[name]
        return await run_tool(
            tool, arguments, "t.c1", clock=SystemClock(), timeout_seconds=seconds, result_bytes_max=10_000
        )

    @property
    def effects(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


@asynccontextmanager
async def world(tmp_path: Path, *ways: str, vault: Any = None, **fields: Any) -> AsyncIterator[World]:
    file = tmp_path / "effects"
    server = check_server(
        "s",
        McpServer(
            command=(sys.executable, "-S", PROGRAM, str(file), *ways), **{"start_seconds": 10.0, **fields}
        ),
    )
    servers = McpServers(
        {"s": server},
        vault or MemoryVault(),
        SystemClock(),
        reach=Reach(),
        limits=Limits(message_bytes_max=200_000, flood_bytes_max=1_000_000),
    )
    try:
        yield World(servers, file)
    finally:
        await servers.close()


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


async def test_tools_come_with_their_effects_and_are_called(tmp_path: Path) -> None:
    before = children()
    async with world(tmp_path, "noise") as w:
        tools = await w.tools()
        assert {name: tool.effect for name, tool in tools.items()} == {
            "s__look": Effect.READ_ONLY,
            "s__note": Effect.ACTS,
            "s__put": Effect.IDEMPOTENT,
            "s__wipe": Effect.DESTRUCTIVE,
            "s__environment": Effect.ACTS,
        }
        outcome = await w.call("s__note", text="hello")
        assert (outcome.disposition, outcome.content, outcome.is_error) == (
            Disposition.DONE,
            "note: hello",
            False,
        )
        assert w.effects == ["note hello"]
    assert children() <= before


async def test_a_picture_in_a_result_is_handed_on_as_a_file(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        outcome = await w.call("s__look", text="picture")
        assert outcome.content.startswith("here\n[file image.png")
        assert [file.data for file in outcome.files] == [b"\x89PNG\r\n\x1a\n"]


async def test_the_configuration_goes_before_what_a_server_claims(tmp_path: Path) -> None:
    overridden = {"look": Effect.DESTRUCTIVE, "wipe": Effect.READ_ONLY}
    async with world(tmp_path, effects=overridden, believe=False, tools=("look", "put", "wipe")) as w:
        effects = {name: tool.effect for name, tool in (await w.tools()).items()}
        assert effects == {
            "s__look": Effect.DESTRUCTIVE,
            "s__put": Effect.ACTS,
            "s__wipe": Effect.READ_ONLY,
        }


async def test_arguments_that_do_not_fit_are_never_sent(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        tool = (await w.tools())["s__note"]
        for wrong in ({}, {"text": 7}):
            with pytest.raises(ArgumentsInvalid):
                tool.check(wrong)
        tool.check({"text": "fits"})
        assert w.effects == []


async def test_a_server_gets_no_variable_that_was_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_SECRET", "s3cret")
    monkeypatch.setenv("NAMED", "n4med")
    async with world(tmp_path, env={"GIVEN": "g"}, env_pass=("NAMED", "ABSENT")) as w:
        seen = json.loads((await w.call("s__environment")).content)
        assert (seen["GIVEN"], seen["NAMED"]) == ("g", "n4med")
        assert "OTHER_SECRET" not in seen


async def test_a_server_that_dies_in_a_call_leaves_its_outcome_unknown_and_is_started_again(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, "die") as w:
        acted = await w.call("s__note", text="a")
        assert acted.disposition is Disposition.UNKNOWN
        assert "out of memory" in acted.content
        assert "inspect" in acted.content
        read = await w.call("s__look", text="b")
        assert read.disposition is Disposition.FAILED
        again = await w.call("s__note", text="c")
        assert again.disposition is Disposition.UNKNOWN
        assert w.effects == ["note a", "note c"]


async def test_a_server_that_dies_at_once_says_why_and_is_left_alone_for_a_moment(tmp_path: Path) -> None:
    async with world(tmp_path, "die-at-once") as w:
        for _ in range(2):
            with pytest.raises(SourceTrouble, match=r"exit 7.*no such account"):
                await w.tools()


async def test_a_program_that_does_not_exist_is_a_trouble_not_a_crash(tmp_path: Path) -> None:
    server = check_server("s", McpServer(command=("/nowhere/server",)))
    servers = McpServers({"s": server}, MemoryVault(), SystemClock(), reach=Reach())
    with pytest.raises(SourceTrouble, match="No such file"):
        await servers.tools("s", "ann")


async def test_a_server_that_hangs_at_its_start_holds_nobody_up(tmp_path: Path) -> None:
    before = children()
    async with world(tmp_path, "hang-at-once", start_seconds=0.3) as w:
        with pytest.raises(SourceTrouble, match="did not start within"):
            await w.tools()
    assert children() <= before


async def test_a_call_that_hangs_ends_with_its_time_and_hurts_no_other(tmp_path: Path) -> None:
    async with world(tmp_path, "hang", timeout_seconds=0.3) as w:
        outcome = await w.call("s__note", text="a")
        assert (outcome.disposition, outcome.why) == (Disposition.UNKNOWN, "time-out")
        assert w.effects == ["note a"]


@pytest.mark.parametrize("way", ["flood-line", "flood-messages"])
async def test_a_server_that_floods_is_ended(tmp_path: Path, way: str) -> None:
    before = children()
    async with world(tmp_path, way) as w:
        outcome = await w.call("s__note", text="a")
        assert outcome.disposition is Disposition.UNKNOWN
        assert "more than it may" in outcome.content
        assert await until(lambda: children() <= before, "the end of the server")


async def test_lies_about_types_hurt_nobody(tmp_path: Path) -> None:
    async with world(tmp_path, "lie") as w:
        tools = await w.tools()
        assert not {"s__no_schema", "s__giant"} & tools.keys()
        assert tools["s__both"].effect is Effect.READ_ONLY
        assert all(len(name) <= 64 and name.isascii() and " " not in name for name in tools)
        outcome = await w.call("s__number")
        assert (outcome.disposition, outcome.is_error) == (Disposition.DONE, True)
        assert "not what it promised" in outcome.content
        began = time.process_time()
        tools["s__bomb"].check({"a": 1})
        tools["s__slow_pattern"].check({"a": "a" * 60 + "b"})
        assert time.process_time() - began < 5.0, "a schema made to hurt"


async def test_a_list_that_breaks_the_protocol_is_a_trouble(tmp_path: Path) -> None:
    async with world(tmp_path, "lie-list") as w:
        with pytest.raises(SourceTrouble, match="cannot be read"):
            await w.tools()


async def test_tools_that_change_in_mid_turn_are_seen_and_the_old_ones_fail_clearly(tmp_path: Path) -> None:
    async with world(tmp_path, "change") as w:
        old = await w.tools()
        assert (await w.call("s__look", text="x")).content == "look: x"
        tools: dict[str, Tool] = await until(_then(w, lambda found: "s__new" in found), "the new tools")
        assert tools.keys() == {"s__new"}
        assert tools["s__new"].effect is Effect.DESTRUCTIVE
        gone = await run_tool(
            old["s__look"],
            {"text": "y"},
            "k",
            clock=SystemClock(),
            timeout_seconds=9.0,
            result_bytes_max=1000,
        )
        assert gone.disposition is Disposition.FAILED
        assert "Unknown tool" in gone.content


def _then(w: World, holds: Callable[[dict[str, Tool]], bool]) -> Any:
    async def look() -> dict[str, Tool] | None:
        found = await w.tools()
        return found if holds(found) else None

    return look


async def test_a_tool_that_changed_is_another_one_for_consent(tmp_path: Path) -> None:
    async with world(tmp_path) as w, world(tmp_path, effects={"wipe": Effect.ACTS}) as other:
        before, after = (await w.tools())["s__wipe"], (await other.tools())["s__wipe"]
        assert before.definition != after.definition
        assert before.definition == (await w.tools())["s__wipe"].definition


async def test_the_list_is_kept_for_when_the_server_cannot_be_asked(tmp_path: Path) -> None:
    vault = MemoryVault()
    async with world(tmp_path, vault=vault) as w:
        assert "s__note" in await w.tools()
    async with world(tmp_path, "die-at-once", vault=vault) as w:
        assert "s__note" in await w.tools()
        outcome = await w.call("s__note", text="a")
        assert (outcome.disposition, outcome.why) == (Disposition.FAILED, "did not happen")
        assert w.effects == []


async def test_calls_beside_each_other_do_not_disturb(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        outcomes = await asyncio.gather(*[w.call("s__note", text=str(n)) for n in range(20)])
        assert {outcome.content for outcome in outcomes} == {f"note: {n}" for n in range(20)}
        assert len(w.effects) == 20


async def test_the_library_of_the_protocol_itself_as_the_other_side(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(
        "from mcp.server.mcpserver import MCPServer\n"
        "from mcp_types import ToolAnnotations\n"
        "server = MCPServer('real')\n"
        "@server.tool(annotations=ToolAnnotations(read_only_hint=True))\n"
        "def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n"
        "server.run()\n"
    )
    server = check_server("real", McpServer(command=(sys.executable, str(program)), start_seconds=60.0))
    servers = McpServers({"real": server}, MemoryVault(), SystemClock(), reach=Reach())
    try:
        (tool,) = await servers.tools("real", "ann")
        assert (tool.name, tool.effect) == ("real__add", Effect.READ_ONLY)
        outcome = await run_tool(
            tool, {"a": 2, "b": 3}, "k", clock=SystemClock(), timeout_seconds=60.0, result_bytes_max=1000
        )
        assert outcome.content == "5"
    finally:
        await servers.close()


def test_a_schema_that_costs_more_than_its_size_is_left_out_and_the_others_stay() -> None:
    # 57 kB, within the limit of bytes, took eight seconds to check.
    heavy = {"type": "object", "allOf": [{} for _ in range(19_000)]}
    began = time.process_time()
    listed = judge(JUDGED, [said("heavy", heavy), said("light", {"type": "object"})])
    assert [one.name for one in listed] == ["light"]
    assert time.process_time() - began < 4


@pytest.mark.parametrize(("more", "kept"), [(0, 1), (1, 0)])
def test_the_parts_of_one_schema_have_their_limit(more: int, kept: int) -> None:
    # The schema itself, its properties, and each of them.
    schema = {"type": "object", "properties": {f"p{i}": {} for i in range(SCHEMA_PARTS_MAX - 2 + more)}}
    assert len(judge(JUDGED, [said("t", schema)])) == kept


def test_the_parts_of_a_whole_list_have_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnkeeper.tool.mcp.listing.LIST_PARTS_MAX", 6)
    schema = {"type": "object", "properties": {"a": {}}}
    assert [one.name for one in judge(JUDGED, [said(f"t{i}", schema) for i in range(4)])] == ["t0", "t1"]


JUDGED = McpServer(name="x", url="http://127.0.0.1/mcp")


def said(name: str, schema: dict[str, Any]) -> Any:
    """A tool as a server names it."""
    return mcp_types.Tool(name=name, input_schema=schema)
