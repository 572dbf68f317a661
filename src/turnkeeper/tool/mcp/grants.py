"""Who is signed in where: one grant for each person and server, kept in a vault that seals what it holds.

A grant is refreshed by whoever needs it first; the others wait for that one refresh. Whatever goes wrong with
it is no error here: there is simply no grant, the server refuses the call, and the call is parked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from turnkeeper.port.clock import Clock

log = logging.getLogger("turnkeeper.tool.mcp")

EARLY_SECONDS = 30.0
"""A grant that ends within this time is refreshed before it is used."""


class Vault(Protocol):
    """Keeps small values sealed."""

    async def get(self, name: str) -> bytes | None:
        """The value; None if there is none, or it cannot be opened any more."""
        ...

    async def put(self, name: str, value: bytes | None) -> None:
        """Keep it sealed under `name`; None forgets it."""
        ...


class Client(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Us, as an authorization server knows us."""

    client_id: str
    client_secret: str | None = None
    method: str = "none"
    """none | client_secret_post | client_secret_basic"""
    issuer: str = ""
    redirect_uri: str = ""
    scope: str | None = None
    """What it was registered to ask for."""


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person was given at a server. Times are Unix seconds."""

    server: str
    person: str
    generation: str
    """Another one for each sign-in."""
    access_token: str = ""
    refresh_token: str | None = None
    expires_at: float | None = None
    scope: str | None = None
    granted_at: float = 0.0
    client: Client
    token_endpoint: str
    revocation_endpoint: str | None = None
    resource: str = ""
    """What it was given for (RFC 8707): it is shown to nobody else."""
    revoked: bool = False
    """The server does not accept it any more."""


Refresh = Callable[[Grant], Awaitable[Grant | None]]
"""Asks for a fresh grant: None if it is refused for good. Raises for anything that may pass."""


Revoke = Callable[[Grant], Awaitable[None]]
"""Tells the authorization server that a grant is not needed any more. Raises nothing."""
Fits = Callable[[Grant], bool]
"""Whether a grant was given for the server that now bears its name."""


class Grants:
    """The grants of everybody. `refresh` speaks to the authorization server; `fits` knows where the servers are now."""

    def __init__(self, vault: Vault, clock: Clock, refresh: Refresh, revoke: Revoke, fits: Fits) -> None:
        self.vault = vault
        self._clock = clock
        self._refresh = refresh
        self._revoke = revoke
        self._fits = fits
        self._known: dict[tuple[str, str], Grant | None] = {}
        self._busy: dict[tuple[str, str, str], asyncio.Task[Grant | None]] = {}
        self._troubles: dict[tuple[str, str], str] = {}
        self._writing = asyncio.Lock()
        """Held from the look at what stands to the end of what is written over it."""

    async def of(self, server: str, person: str) -> Grant | None:
        """The grant as it is kept."""
        key = server, person
        if key not in self._known:
            kept = await self.vault.get(_name(server, person))
            try:
                found = None if not kept else msgspec.json.decode(kept, type=Grant)
            except msgspec.DecodeError:
                found = None
            # Somebody may have signed in or out while it was read: theirs is the newer word.
            self._known.setdefault(key, found)
        return self._known[key]

    async def good(self, server: str, person: str) -> Grant | None:
        """The grant if it may be used here: not revoked, and given for this server at the address it has now."""
        grant = await self.of(server, person)
        return None if grant is None or grant.revoked or not self._fits(grant) else grant

    def moved(self, server: str, person: str) -> bool:
        """Whether the person is not signed in because the server has another address now than when they did."""
        grant = self._known.get((server, person))
        return grant is not None and not grant.revoked and not self._fits(grant)

    def trouble(self, server: str, person: str) -> str:
        """Why a grant that is there could not be refreshed just now, "" if nothing hinders: no new sign-in helps."""
        return self._troubles.get((server, person), "")

    async def put(self, grant: Grant) -> None:
        """Keep a grant, in the place of an earlier one."""
        async with self._writing:
            await self._keep(grant.server, grant.person, grant)

    async def forget(self, server: str, person: str) -> None:
        """There is no grant any more."""
        async with self._writing:
            await self._keep(server, person, None)

    async def _keep(self, server: str, person: str, grant: Grant | None) -> None:
        await self.vault.put(_name(server, person), None if grant is None else msgspec.json.encode(grant))
        self._troubles.pop((server, person), None)
        self._known[server, person] = grant

    async def fresh(self, server: str, person: str) -> Grant | None:
        """A grant that can be used now; None if there is none. Raises nothing."""
        try:
            grant = await self.good(server, person)
            if grant is None:
                return None
            if grant.expires_at is not None and grant.expires_at - EARLY_SECONDS <= self._clock.now():
                return await self.renew(grant)
        except Exception:
            log.exception("the sign-in of a person cannot be read", extra={"server": server})
            return None
        return grant

    async def renew(self, refused: Grant) -> Grant | None:
        """A newer grant than `refused`; None if none can be had. Raises nothing."""
        now = self._newer(refused)
        if now is not refused:
            return now
        key = refused.server, refused.person, refused.generation
        task = self._busy.get(key)
        if task is None:
            task = self._busy[key] = asyncio.ensure_future(self._renew(refused))
            task.add_done_callback(lambda _: self._busy.pop(key, None))
        return await asyncio.shield(task)

    def _newer(self, grant: Grant) -> Grant | None:
        """What stands now in the place of `grant`: itself, another one, or None if there is none that is good."""
        now = self._known.get((grant.server, grant.person), grant)
        if now is None or now.revoked:
            return None
        same = (now.generation, now.access_token) == (grant.generation, grant.access_token)
        return grant if same else now

    async def _renew(self, grant: Grant) -> Grant | None:
        try:
            renewed = None if grant.refresh_token is None else await self._refresh(grant)
            revoked = msgspec.structs.replace(grant, access_token="", refresh_token=None, revoked=True)
            async with self._writing:
                now = self._newer(grant)
                if now is grant:
                    await self._keep(grant.server, grant.person, renewed or revoked)
                    return renewed
            # Meanwhile the person signed in anew, or out: what was asked for is not theirs any more.
            if renewed is not None and self._known.get((grant.server, grant.person)) is None:
                await self._revoke(renewed)  # who signed out could only end the older one
            return now
        except Exception as error:  # noqa: BLE001 - what passes is tried again at the next call
            now = self._newer(grant)
            if now is not grant:
                return now
            self._troubles[grant.server, grant.person] = "the sign-in there cannot be refreshed now"
            log.warning(
                "a sign-in could not be refreshed",
                extra={"server": grant.server, "why": type(error).__name__},
            )
            return None


def _name(server: str, person: str) -> str:
    return f"mcp.grant:{server}:{person}"
