"""Servers over http whose tools change: they say so, and their list is asked for again at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.mcp.site import Site, serve
from tests.mcp.test_stdio import MemoryVault
from turnkeeper.app.system import SystemClock
from turnkeeper.outbound import Reach
from turnkeeper.testing.until import until
from turnkeeper.tool import run_tool
from turnkeeper.tool.mcp import McpServer, McpServers
from turnkeeper.tool.mcp.config import check_server

LONG = 1e6
"""No list gets old by itself here."""


@asynccontextmanager
async def servers_of(site: Site) -> AsyncIterator[McpServers]:
    server = check_server("s", McpServer(url=site.mcp_url, auth="none", list_seconds=LONG))
    servers = McpServers({"s": server}, MemoryVault(), SystemClock(), reach=Reach(("127.0.0.1",)))
    try:
        yield servers
    finally:
        await servers.close()


async def names(servers: McpServers) -> set[str]:
    return {tool.name for tool in await servers.tools("s", "ann")}


@pytest.mark.parametrize("old", [True, False], ids=["on its stream", "as it was asked to"])
async def test_a_server_that_says_it_has_other_tools_is_asked_at_once(old: bool) -> None:
    async with serve() as site, servers_of(site) as servers:
        site.old = old
        site.authority.access[""] = None  # type: ignore[assignment]  # who shows no token may call as well
        before = {tool.name: tool for tool in await servers.tools("s", "ann")}
        assert "s__grown" not in before
        await until(lambda: site.streams == 1, "the stream on which it tells of changes")
        await run_tool(
            before["s__grow"], {}, "k", clock=SystemClock(), timeout_seconds=60.0, result_bytes_max=1000
        )

        async def seen() -> bool:
            return "s__grown" in await names(servers)

        await until(seen, "the new tool")


async def test_what_changed_while_nobody_listened_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnkeeper.tool.mcp.connection.LISTEN_AGAIN_SECONDS", 0.05)
    async with serve() as site, servers_of(site) as servers:
        await names(servers)
        await until(lambda: site.streams == 1, "the stream on which it tells of changes")
        await names(servers)
        (connection,) = servers._connections.values()
        assert not connection.list_changed
        ended = site.end_streams()
        assert ended == 1
        await until(lambda: connection.list_changed and site.streams == 1, "the next stream")
        assert connection.alive, "the connection itself goes on"
