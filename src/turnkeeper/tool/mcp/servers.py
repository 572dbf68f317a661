"""All MCP servers of the agents file, and the tools of each for each person.

Lists of tools are kept: fresh for a while, renewed when the server says so or a call is told that its tool is
unknown, and from the last run where the server cannot be asked. A server that cannot be started is left
alone for a moment. One that lets nobody see its tools without a sign-in has one tool until then: `NAME__connect`,
which waits for the sign-in like any other call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from turnkeeper.conversation.turns import Effect
from turnkeeper.outbound import Bounds, Reach
from turnkeeper.port.clock import Clock
from turnkeeper.tool.contract import (
    Arguments,
    NotSent,
    SignIn,
    SignInNeeded,
    SourceTrouble,
    Tool,
    ToolFailed,
)
from turnkeeper.tool.mcp.config import McpServer
from turnkeeper.tool.mcp.connection import Connection
from turnkeeper.tool.mcp.grants import Grant, Grants, Vault
from turnkeeper.tool.mcp.listing import Listed, checker, judge, read_result
from turnkeeper.tool.mcp.notes import Notes
from turnkeeper.tool.mcp.oauth import OAuth
from turnkeeper.tool.mcp.stdio import Child, open_stdio

RETRY_SECONDS: Final = 5.0
"""A server that could not be started, or asked, is not tried again for so long."""
REFUSED_SECONDS: Final = 60.0
"""A server that refused a person is not asked again for so long, unless they have signed in since."""
CONNECTIONS_MAX: Final = 64
"""Most connections that are kept open; of those without a call the one used longest ago is closed for another."""

Key = tuple[str, str]
"""Server and person; "" for the person where everybody shares the connection."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a server may send."""

    message_bytes_max: int = 4_000_000
    flood_bytes_max: int = 32_000_000
    """Most bytes that may come without a request of ours in between."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The list of a server's tools as it lies in the vault, with the place where the server was then."""

    place: str
    tools: tuple[Listed, ...]


class Shelf:
    """The tools of one server for one person."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.listed: tuple[Listed, ...] | None = None
        self.tools: tuple[Tool, ...] = ()
        self.good_until = 0.0
        self.trouble = ""


class Source:
    """The tools of one server, as an agent takes them (ToolSource)."""

    def __init__(self, servers: McpServers, name: str) -> None:
        self._servers = servers
        self.name = name

    async def tools(self, person: str) -> Sequence[Tool]:
        """The tools for this person as of now. Raises SourceTrouble."""
        return await self._servers.tools(self.name, person)


class McpServers:
    """The servers by name, their connections, and who is signed in."""

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        vault: Vault,
        clock: Clock,
        *,
        reach: Reach,
        bounds: Bounds | None = None,
        limits: Limits | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.servers = dict(servers)
        self._vault = vault
        self._clock = clock
        self._reach = reach
        self._bounds = bounds or Bounds()
        self._limits = limits or Limits()
        self._secrets = dict(secrets or {})
        """The variables that servers name, by name."""
        self.oauth = OAuth(vault, clock, reach=reach, bounds=self._bounds, secrets=self._secrets)
        self.grants = Grants(vault, clock, self.oauth.refresh, self.oauth.revoke, self.fits)
        self._connections: dict[Key, Connection] = {}
        self._locks: dict[Key, asyncio.Lock] = {}
        self._eras: dict[Key, int] = {}
        """How often somebody signed in or out: a connection that was begun before is not used after."""
        self._retired: list[Connection] = []
        """Those on which only the last calls end."""
        self._shelves: dict[Key, Shelf] = {}
        self._troubles: dict[Key, tuple[float, str]] = {}
        self._refused: dict[Key, tuple[float, SignIn]] = {}

    def source(self, name: str) -> Source:
        """The tools of one server, for an agent."""
        assert name in self.servers
        return Source(self, name)

    def fits(self, grant: Grant) -> bool:
        """Whether a grant was given for the server that now bears its name, at the address that it has now."""
        server = self.servers.get(grant.server)
        return server is not None and server.accepts(grant.resource)

    def _key(self, server: McpServer, person: str) -> Key:
        return server.name, person if server.per_person else ""

    # -- tools

    async def tools(self, name: str, person: str) -> tuple[Tool, ...]:
        """The tools of a server for a person. Raises SourceTrouble."""
        server = self.servers[name]
        key = self._key(server, person)
        shelf = self._shelves.setdefault(key, Shelf())
        async with shelf.lock:
            connection = self._connections.get(key)
            changed = connection is not None and connection.list_changed
            if self._clock.monotonic() < shelf.good_until and not changed:
                if shelf.trouble:
                    raise SourceTrouble(shelf.trouble)
                return shelf.tools
            await self._ask(server, person, shelf)
            if shelf.trouble:
                raise SourceTrouble(shelf.trouble)
            return shelf.tools

    async def _ask(self, server: McpServer, person: str, shelf: Shelf) -> None:
        """Ask the server which tools it has, and put them on the shelf; else what is known from before."""
        shelf.trouble = ""
        good_seconds = server.list_seconds
        try:
            connection = await self._connection(server, person)
            # In a thread: a long list takes a while to judge, and everybody else's turns go on meanwhile.
            shelf.listed = await asyncio.to_thread(judge, server, await connection.list())
            kept = Kept(place=server.place, tools=shelf.listed)
            await self._vault.put(_kept_name(server, person), msgspec.json.encode(kept))
        except (SignInNeeded, NotSent, SourceTrouble) as error:
            good_seconds = min(RETRY_SECONDS, good_seconds)
            if shelf.listed is None:
                shelf.listed = await self._kept(server, person)
            if shelf.listed is None and isinstance(error, SignInNeeded):
                shelf.tools = (self._connect_tool(server, person),)
                good_seconds = 0.0
            elif shelf.listed is None:
                shelf.trouble = str(error)
        if shelf.listed is not None:
            shelf.tools = tuple([self._tool(server, person, one) for one in shelf.listed])
        shelf.good_until = self._clock.monotonic() + good_seconds

    async def _kept(self, server: McpServer, person: str) -> tuple[Listed, ...] | None:
        data = await self._vault.get(_kept_name(server, person))
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            kept = None if not data else msgspec.json.decode(data, type=Kept)
            return None if kept is None or kept.place != server.place else kept.tools
        return None

    def _tool(self, server: McpServer, person: str, listed: Listed) -> Tool:
        async def invoke(arguments: Arguments, key: str) -> Any:
            return await self._call(server, person, listed.name, arguments, key)

        return Tool(
            name=listed.shown,
            description=listed.description,
            schema=listed.schema,
            effect=listed.effect,
            invoke=invoke,
            check=checker(listed),
            timeout_seconds=server.timeout_seconds,
            source=server.name,
        )

    def _connect_tool(self, server: McpServer, person: str) -> Tool:
        async def invoke(arguments: Arguments, key: str) -> str:
            connection = await self._connection(server, person)
            listed = await asyncio.to_thread(judge, server, await connection.list())
            self.forget_list(server.name, person)
            return (
                f"Signed in at {server.name}. Its tools: {', '.join(one.shown for one in listed) or 'none'}."
            )

        return Tool(
            name=f"{server.name}__connect",
            description=(
                f"Ask the person to sign in at {server.name}. Its other tools can be used after that. "
                f"Call this as soon as {server.name} is needed; do not tell the person to do it."
            ),
            schema={"type": "object", "properties": {}, "additionalProperties": False},
            effect=Effect.READ_ONLY,
            invoke=invoke,
            check=lambda arguments: None,
            source=server.name,
        )

    def forget_list(self, name: str, person: str) -> None:
        """Ask the server for its tools at the next turn or round."""
        shelf = self._shelves.get(self._key(self.servers[name], person))
        if shelf is not None:
            shelf.good_until = 0.0

    async def _call(
        self, server: McpServer, person: str, name: str, arguments: Arguments, key: str
    ) -> str | list[Any]:
        try:
            connection = await self._connection(server, person)
        except SourceTrouble as error:
            raise NotSent(str(error)) from None
        try:
            result = await connection.call(name, arguments, key)
        except SignInNeeded:
            # It may say what the sign-in has to ask for: without that, a new one would be refused again.
            await self.oauth.remember_challenge(server, person, connection.challenge(key))
            raise
        value = read_result(result)
        if result.is_error:
            text = value if isinstance(value, str) else "\n".join(str(piece) for piece in value)
            if "nknown tool" in text[:200]:
                self.forget_list(server.name, person)
            raise ToolFailed(text or "it said only that it failed")
        return value

    # -- connections

    async def _connection(self, server: McpServer, person: str) -> Connection:
        """The open connection, opened if need be. Raises SignInNeeded, SourceTrouble."""
        key = self._key(server, person)
        async with self._locks.setdefault(key, asyncio.Lock()):
            connection = self._connections.pop(key, None)
            if connection is not None and connection.alive:
                self._connections[key] = connection  # the newest used stands last
                return connection
            if connection is not None:
                await connection.close()
            while True:
                era = self._eras.get(key, 0)
                connection = await self._open(server, person, key)
                if era == self._eras.get(key, 0):
                    break
                await connection.close()  # begun as who is not signed in any more
            self._connections[key] = connection
            await self._make_room()
            return connection

    async def _open(self, server: McpServer, person: str, key: Key) -> Connection:
        await self._may_try(server, person, key)
        connection = self._make(server, person)
        try:
            await connection.open()
        except SignInNeeded as needed:
            until = self._clock.monotonic() + REFUSED_SECONDS
            self._refused[key] = (until, needed.sign_in)
            await self.oauth.remember_challenge(server, person, connection.challenge())
            raise
        except SourceTrouble as trouble:
            self._troubles[key] = (self._clock.monotonic() + RETRY_SECONDS, str(trouble))
            raise
        return connection

    async def _may_try(self, server: McpServer, person: str, key: Key) -> None:
        now = self._clock.monotonic()
        until, why = self._troubles.get(key, (0.0, ""))
        if now < until:
            raise SourceTrouble(why)
        until, sign_in = self._refused.get(key, (0.0, SignIn(server="", person="")))
        if now < until and server.per_person:
            grant = await self.grants.good(server.name, person)
            if ("" if grant is None else grant.generation) == sign_in.rejected:
                raise SignInNeeded(sign_in)

    async def _make_room(self) -> None:
        while len(self._connections) > CONNECTIONS_MAX:
            # Never one with a call on it, whose outcome nobody would learn; nor the newest, just opened for one.
            idle = (key for key, one in list(self._connections.items())[:-1] if not one.calls)
            oldest = next(idle, None)
            if oldest is None:
                return
            await self._connections.pop(oldest).close()

    def _make(self, server: McpServer, person: str) -> Connection:
        if server.url is None:
            child = Child()
            connection = Connection(
                server,
                person,
                lambda: open_stdio(
                    server,
                    child,
                    message_bytes_max=self._limits.message_bytes_max,
                    flood_bytes_max=self._limits.flood_bytes_max,
                ),
                child=child,
            )
            child.ended = connection.end
            return connection
        notes = Notes()
        return Connection(
            server,
            person,
            lambda: self._http(server, person, notes),
            notes=notes,
            trouble=lambda: self.grants.trouble(server.name, person),
            moved=lambda: self.grants.moved(server.name, person),
        )

    @asynccontextmanager
    async def _http(self, server: McpServer, person: str, notes: Notes) -> AsyncIterator[Any]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        from turnkeeper.outbound.client import GuardedTransport
        from turnkeeper.tool.mcp.wire import GrantAuth, Wire

        headers: dict[str, str] = {}
        if server.bearer_env is not None and self._secrets.get(server.bearer_env):
            headers["authorization"] = f"Bearer {self._secrets[server.bearer_env]}"
        # A call's own time limit is the tool's; here only silence before an answer begins is bounded.
        wait = httpx2.Timeout(self._bounds.silence_seconds, read=None, connect=self._bounds.connect_seconds)
        async with httpx2.AsyncClient(
            transport=Wire(GuardedTransport(self._reach, self._bounds), notes),
            timeout=wait,
            headers=headers,
            auth=GrantAuth(self.grants, server.name, person) if server.per_person else None,
            trust_env=False,
        ) as client:
            assert server.url is not None
            async with streamable_http_client(
                server.url, http_client=client, max_sse_event_size=self._limits.message_bytes_max
            ) as streams:
                yield streams

    async def signed_in(self, name: str, person: str) -> None:
        """Somebody signed in or out: what was remembered of them at this server is forgotten.

        Their connection too: the server knows it as who they were before. A call that runs on it may end.
        """
        key = self._key(self.servers[name], person)
        self._refused.pop(key, None)
        self.forget_list(name, person)
        self._eras[key] = self._eras.get(key, 0) + 1
        connection = self._connections.pop(key, None)
        if connection is not None:
            self._retired = [one for one in self._retired if not one.ended] + [connection]
            connection.retire()

    async def close(self) -> None:
        """End every connection, and every server that is our child."""
        connections = [*self._connections.values(), *self._retired]
        self._connections.clear()
        self._retired.clear()
        await asyncio.gather(*[connection.close() for connection in connections])


def _kept_name(server: McpServer, person: str) -> str:
    return f"mcp.tools:{server.name}:{person if server.per_person else ''}"
