"""Web push: browsers that asked for it are told when a turn is done, has failed, or needs its person.

Never the words of a message: only what happened and in which conversation. Who is told is looked at again each
time: a browser whose sign-in no longer stands, or may no longer read, is told nothing and forgotten. Addresses of
browsers, and the key that signs for this server (made at first use), lie sealed. A message is sent once, and lost
if the push service is not there: what it would have said stands on the page.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from turnkeeper.conversation.events import ApprovalRequested, Event, TurnFailed, TurnParked, TurnSettled
from turnkeeper.conversation.rights import ANYWHERE, Right, authorise
from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import Forbidden, NotFound, TurnkeeperError
from turnkeeper.outbound import Bounds, Reach
from turnkeeper.outbound.push import CURVE, Address, packed, point, push

if TYPE_CHECKING:
    from turnkeeper.app.keeper import Keeper

KEY = "push:key"
BROWSERS = "push:browsers"
DONE, FAILED, NEEDS = "done", "failed", "needs"
GONE = (404, 410)
"""What a push service answers for a browser that no longer wants to be told."""


class Browser(msgspec.Struct, frozen=True, kw_only=True):
    """One browser of a person that wants to be told."""

    user_id: str
    address: Address
    token_id: str | None
    created_at: float


class Pushing:
    """The browsers of one Keeper's users."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._browsers: dict[str, Browser] = {}
        """By endpoint, oldest first."""
        self._key: ec.EllipticCurvePrivateKey | None = None
        self._changing = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Read who wants to be told, and listen."""
        kept = await self._keeper.vault.get(BROWSERS)
        if kept:
            found = msgspec.json.decode(kept, type=list[Browser])
            self._browsers = {browser.address.endpoint: browser for browser in found}
        self._keeper.broadcast.hearers.append(self._hear)

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- browsers

    async def public_key(self, principal: Principal) -> str:
        """The key that a browser ties its subscription to."""
        authorise(principal, Right.READ, ANYWHERE)
        return packed(point((await self._signing_key()).public_key()))

    async def add(self, principal: Principal, address: Address) -> None:
        """Tell this browser from now on; the oldest one of the person goes for one too many. Raises BadInput."""
        authorise(principal, Right.READ, ANYWHERE)
        address.check()
        made = Browser(
            user_id=principal.user_id,
            address=address,
            token_id=principal.token_id,
            created_at=self._keeper.clock.now(),
        )
        async with self._changing:
            kept = {name: one for name, one in self._browsers.items() if name != address.endpoint}
            own = [name for name, one in kept.items() if one.user_id == principal.user_id]
            for name in own[: max(len(own) + 1 - self._keeper.settings.push_browsers_max, 0)]:
                del kept[name]
            await self._keep({**kept, address.endpoint: made})

    async def remove(self, principal: Principal, endpoint: str) -> None:
        """Tell this browser nothing more. Raises NotFound, also for somebody else's."""
        authorise(principal, Right.READ, ANYWHERE)
        known = self._browsers.get(endpoint)
        if known is None or known.user_id != principal.user_id:
            raise NotFound(what="subscription")
        await self._forget(known)

    async def _forget(self, browser: Browser) -> None:
        async with self._changing:
            if self._browsers.get(browser.address.endpoint) == browser:
                name = browser.address.endpoint
                await self._keep({one: kept for one, kept in self._browsers.items() if one != name})

    async def _keep(self, browsers: dict[str, Browser]) -> None:
        await self._keeper.vault.put(BROWSERS, msgspec.json.encode(list(browsers.values())))
        self._browsers = browsers

    async def _signing_key(self) -> ec.EllipticCurvePrivateKey:
        async with self._changing:
            if self._key is None:
                kept = await self._keeper.vault.get(KEY)
                if kept is None:
                    made = ec.generate_private_key(CURVE)
                    kept = made.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
                    await self._keeper.vault.put(KEY, kept)
                key = load_der_private_key(kept, None)
                assert isinstance(key, ec.EllipticCurvePrivateKey)
                self._key = key
            return self._key

    # -- telling

    def _hear(self, conversation_id: str, events: Iterable[Event]) -> None:
        if not self._browsers:
            return
        for what in dict.fromkeys(filter(None, map(_worth, events))):
            task = asyncio.create_task(self._tell(conversation_id, what))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _tell(self, conversation_id: str, what: str) -> None:
        conversation = await self._keeper.store.conversation(conversation_id)
        if conversation is None or conversation.deleted_at is not None:
            return
        payload = json.dumps({"what": what, "conversation_id": conversation_id}).encode()
        topic = hashlib.sha256(f"{conversation_id} {what}".encode()).hexdigest()[:32]
        of_owner = [one for one in self._browsers.values() if one.user_id == conversation.owner]
        await asyncio.gather(*(self._send(one, conversation_id, payload, topic) for one in of_owner))

    async def _send(self, browser: Browser, conversation_id: str, payload: bytes, topic: str) -> None:
        import httpx2

        settings = self._keeper.settings
        try:
            principal = await self._principal(browser)
            # The one check of rights, as if the browser asked now.
            await self._keeper.conversation(principal, conversation_id)
            status = await push(
                payload,
                browser.address,
                await self._signing_key(),
                topic=topic,
                contact=settings.push_contact,
                now=self._keeper.clock.now(),
                reach=Reach(settings.private_addresses_allowed),
                bounds=Bounds(silence_seconds=settings.outbound_seconds, body_bytes_max=65_536),
            )
        except Forbidden:
            await self._forget(browser)
        except (TurnkeeperError, httpx2.HTTPError):
            return  # it is told once; what it would have said stands on the page
        else:
            if status in GONE:
                await self._forget(browser)

    async def _principal(self, browser: Browser) -> Principal:
        """Who the browser is now. Raises Forbidden if its sign-in no longer stands."""
        if browser.token_id is None:
            return Principal(user_id=browser.user_id, scopes=(Right.READ,))
        found = await self._keeper.principal_of_token(browser.token_id)
        if found is None:
            raise Forbidden(right=str(Right.READ))
        return found


def _worth(event: Event) -> str | None:
    """What a person is told of an event: most events are worth nothing."""
    body = event.body
    if isinstance(body, TurnSettled):
        return None if body.reason == "answered_with" else DONE
    if isinstance(body, TurnFailed):
        return FAILED
    return NEEDS if isinstance(body, TurnParked | ApprovalRequested) else None
