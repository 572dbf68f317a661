"""Who is signed in at which server of tools, and what waits for that: begin, finish, refuse, end, release.

One sign-in lets go on all turns that wait for it, of that person at that server. That is decided on state,
not on the moment: turns that wait are looked at again at boot, after each sign-in and every now and then, so
that one that was parked just as the sign-in came, or just before a crash, is not forgotten (G4).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from turnkeeper.conversation.rights import ANYWHERE, Right, authorise
from turnkeeper.conversation.turns import Principal
from turnkeeper.dispatch import Dispatcher, sign_ins
from turnkeeper.errors import ConnectInvalid, NotFound
from turnkeeper.port.clock import Clock
from turnkeeper.port.store import Store
from turnkeeper.projection.view import iso
from turnkeeper.tool.mcp import Finished, McpServers

if TYPE_CHECKING:
    from turnkeeper.tool.mcp.oauth import Begun

log = logging.getLogger("turnkeeper.app")


class Connections:
    """The sign-ins of one Keeper."""

    def __init__(
        self, servers: McpServers, dispatcher: Dispatcher, store: Store, clock: Clock, look_seconds: float
    ) -> None:
        self.servers = servers
        self._dispatcher = dispatcher
        self._store = store
        self._clock = clock
        self._look_seconds = look_seconds
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Let go on what was signed in for before this process began, and keep looking."""
        if any(server.per_person for server in self.servers.servers.values()):
            await self.release()
            self._loop = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Look no more, and end the connections."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await self.servers.close()

    async def _look(self) -> None:
        while True:
            await self._clock.sleep(self._look_seconds)
            try:
                await self.release()
            except Exception:
                log.exception("parked turns could not be looked at and will be again")

    # -- what people do

    def _server(self, name: str) -> None:
        server = self.servers.servers.get(name)
        if server is None or not server.per_person:
            raise NotFound(what="server of tools to sign in at")

    async def list(self, principal: Principal) -> list[dict[str, Any]]:
        """The servers at which people sign in for themselves, how it stands with the principal, and what waits."""
        authorise(principal, Right.READ, ANYWHERE)
        waiting: dict[str, int] = {}
        async for _, wait in sign_ins.find_waiting(self._store, principal.user_id):
            waiting[wait["server"]] = waiting.get(wait["server"], 0) + len(wait["calls"])
        found: list[dict[str, Any]] = []
        for name, server in self.servers.servers.items():
            if not server.per_person:
                continue
            kept = await self.servers.grants.of(name, principal.user_id)
            grant = await self.servers.grants.good(name, principal.user_id)
            revoked = kept is not None and kept.revoked
            moved = self.servers.grants.moved(name, principal.user_id)
            found.append(
                {
                    "server": name,
                    "url": server.url,
                    "state": "connected" if grant is not None else "revoked" if revoked else "not_connected",
                    "why": "moved" if moved else None,
                    "since": None if grant is None else iso(grant.granted_at),
                    "scope": None if grant is None else grant.scope,
                    "waiting": waiting.get(name, 0),
                    "connect": f"/connect/{name}",
                }
            )
        return found

    async def check(self, principal: Principal, server: str) -> None:
        """Whether the principal can sign in at `server`. Raises NotFound, Forbidden."""
        authorise(principal, Right.WRITE, ANYWHERE)
        self._server(server)

    async def begin(self, principal: Principal, server: str, redirect_uri: str) -> Begun:
        """Begin a sign-in of the principal's. Raises NotFound, ConnectFailed."""
        authorise(principal, Right.WRITE, ANYWHERE)
        self._server(server)
        grant = await self.servers.grants.good(server, principal.user_id)
        held = None if grant is None else grant.scope
        return await self.servers.oauth.begin(
            self.servers.servers[server], principal.user_id, redirect_uri, held
        )

    async def finish(self, **brought: str | None) -> tuple[Finished, int]:
        """Finish a sign-in with what the browser brought; how it ended, and how many turns go on for it.

        Raises ConnectInvalid, ConnectFailed; then nothing has changed.
        """
        done = await self.servers.oauth.finish(**brought)  # type: ignore[arg-type]
        if done.server not in self.servers.servers:
            await self._give_back(done)
            raise ConnectInvalid(why=f"there is no server {done.server} any more")
        if done.grant is not None and not self.servers.fits(done.grant):
            await self._give_back(done)
            raise ConnectInvalid(why=f"{done.server} has another address now than when it was begun")
        if done.grant is not None:
            await self.servers.grants.put(done.grant)
        await self.servers.signed_in(done.server, done.person)
        return done, await self._decide(done.server, done.person, done.outcome)

    async def _give_back(self, done: Finished) -> None:
        if done.grant is not None:
            await self.servers.oauth.revoke(done.grant)

    async def refuse(self, principal: Principal, server: str) -> int:
        """The principal does not want to sign in: the turns that wait for it end. How many they were."""
        authorise(principal, Right.WRITE, ANYWHERE)
        self._server(server)
        return await self._decide(server, principal.user_id, "refused")

    async def end(self, principal: Principal, server: str) -> None:
        """Sign the principal out at a server; its authority is told. Calls that come later wait for a new sign-in."""
        authorise(principal, Right.WRITE, ANYWHERE)
        self._server(server)
        grant = await self.servers.grants.of(server, principal.user_id)
        await self.servers.grants.forget(server, principal.user_id)
        await self.servers.signed_in(server, principal.user_id)
        if grant is not None:
            await self.servers.oauth.revoke(grant)

    # -- what waits

    async def release(self) -> int:
        """Let go on every turn whose person has signed in since its calls were refused. How many they were."""
        return await sign_ins.release(self._dispatcher, self._store, self._generation)

    async def _generation(self, server: str, person: str) -> str | None:
        if server not in self.servers.servers:
            return None
        grant = await self.servers.grants.good(server, person)
        return None if grant is None else grant.generation

    async def _decide(self, server: str, person: str, outcome: str) -> int:
        return await sign_ins.decide(self._dispatcher, self._store, server, person, outcome)
