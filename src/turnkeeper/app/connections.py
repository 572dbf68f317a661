"""Who is signed in at which server of tools, and what waits for that: begin, finish, refuse, end, release.

One sign-in lets go on all turns that wait for it, of that person at that server. That is decided on state,
not on the moment: turns that wait are looked at again at boot, after each sign-in and every now and then, so
that one that was parked just as the sign-in came, or just before a crash, is not forgotten (G4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from turnkeeper.conversation.events import ConnectDecided, Draft
from turnkeeper.conversation.rights import ANYWHERE, Right, authorise
from turnkeeper.conversation.turns import Principal, Turn, TurnState
from turnkeeper.dispatch import Dispatcher
from turnkeeper.errors import NotFound, NotWaiting, TurnDecided, TurnkeeperError
from turnkeeper.lane import inputs
from turnkeeper.port.clock import Clock
from turnkeeper.port.store import Store
from turnkeeper.projection.view import iso
from turnkeeper.tool.mcp import Finished, McpServers

if TYPE_CHECKING:
    from turnkeeper.tool.mcp.oauth import Begun

log = logging.getLogger("turnkeeper.app")


def waits_for(turn: Turn) -> list[dict[str, Any]]:
    """The sign-ins that a parked turn waits for: `{server, person, why, rejected, calls, expires_at}`."""
    found: Any = (turn.needs or {}).get("connects", ())
    return list(found)


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
        async for _, wait in self._waiting(principal.user_id):
            waiting[wait["server"]] = waiting.get(wait["server"], 0) + len(wait["calls"])
        found: list[dict[str, Any]] = []
        for name, server in self.servers.servers.items():
            if not server.per_person:
                continue
            grant = await self.servers.grants.of(name, principal.user_id)
            state = "not_connected" if grant is None else "revoked" if grant.revoked else "connected"
            found.append(
                {
                    "server": name,
                    "url": server.url,
                    "state": state,
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
        return await self.servers.oauth.begin(self.servers.servers[server], principal.user_id, redirect_uri)

    async def finish(self, **brought: str | None) -> tuple[Finished, int]:
        """Finish a sign-in with what the browser brought; how it ended, and how many turns go on for it.

        Raises ConnectInvalid, ConnectFailed; then nothing has changed.
        """
        done = await self.servers.oauth.finish(**brought)  # type: ignore[arg-type]
        if done.grant is not None:
            await self.servers.grants.put(done.grant)
        await self.servers.signed_in(done.server, done.person)
        return done, await self._decide(done.server, done.person, done.outcome)

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

    async def _waiting(self, person: str | None = None) -> AsyncIterator[tuple[Turn, dict[str, Any]]]:
        for turn in await self._store.turns_in([TurnState.PARKED]):
            for wait in waits_for(turn):
                if person is None or wait["person"] == person:
                    yield turn, wait

    async def release(self) -> int:
        """Let go on every turn whose person has signed in since its calls were refused. How many they were."""
        count = 0
        async for turn, wait in self._waiting():
            if wait["server"] not in self.servers.servers:
                continue
            grant = await self.servers.grants.of(wait["server"], wait["person"])
            if grant is not None and not grant.revoked and grant.generation not in wait["rejected"]:
                count += await self._tell(turn, wait, "connected")
        return count

    async def _decide(self, server: str, person: str, outcome: str) -> int:
        count = 0
        async for turn, wait in self._waiting(person):
            if wait["server"] == server:
                count += await self._tell(turn, wait, outcome)
        return count

    async def _tell(self, turn: Turn, wait: dict[str, Any], outcome: str) -> int:
        """Have it journaled and the turn go on, in one commit; 0 if somebody was faster."""
        by = f"user:{wait['person']}"
        decided = ConnectDecided(
            server=wait["server"], person=wait["person"], outcome=outcome, by=wait["person"]
        )
        decision = {"connect": wait["server"], "person": wait["person"], "outcome": outcome}
        draft = Draft(decided, turn_id=turn.turn_id, attempt=turn.attempt, actor=by)
        told = inputs.Decide(turn_id=turn.turn_id, decision=decision, actor=by)
        try:
            await self._dispatcher.tell(turn.conversation_id, told, extra=[draft])
        except (NotWaiting, NotFound, TurnDecided):
            return 0
        except TurnkeeperError as error:
            log.warning("a turn that waits will be looked at again", extra={"why": error.sentence})
            return 0
        return 1
