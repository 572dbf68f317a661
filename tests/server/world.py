"""A Keeper in memory, its interface, and users who call it."""

from __future__ import annotations

import uuid
from typing import Any

import httpx2

from turnkeeper.app import Keeper
from turnkeeper.conversation.rights import OWNER_SCOPES, USER_SCOPES
from turnkeeper.server.application import create_app
from turnkeeper.server.edge import Edge
from turnkeeper.settings import Settings
from turnkeeper.testing.memory_store import MemoryStore
from turnkeeper.testing.until import until

BASE = "http://127.0.0.1:8321"


class World:
    """One server without a socket."""

    def __init__(self, keeper: Keeper, edge: Edge) -> None:
        self.keeper = keeper
        self.edge = edge
        self._clients: list[httpx2.AsyncClient] = []
        self.owner: httpx2.AsyncClient

    @classmethod
    async def open(cls, **settings: Any) -> World:
        """Open it; `owner` is a client with every scope."""
        keeper = await Keeper.open(store=MemoryStore(), settings=Settings(**settings))
        world = cls(keeper, create_app(keeper, port=8321))
        world.owner = await world.client("owner", OWNER_SCOPES)
        return world

    async def close(self) -> None:
        """Close everything."""
        for client in self._clients:
            await client.aclose()
        await self.edge.close()
        await self.keeper.close()

    def anonymous(self) -> httpx2.AsyncClient:
        """A client without any sign-in."""
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(self.edge), base_url=BASE)
        self._clients.append(client)
        return client

    async def client(self, user: str, scopes: tuple[str, ...] = USER_SCOPES) -> httpx2.AsyncClient:
        """A client with a token of `user`."""
        secret, _ = await self.keeper.create_token(user, scopes)
        client = self.anonymous()
        client.headers["authorization"] = f"Bearer {secret}"
        return client

    async def create(self, client: httpx2.AsyncClient | None = None) -> str:
        """A conversation of the client's user."""
        answer = await (client or self.owner).post("/v1/conversations", json={"agent": "demo"})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["conversation_id"])

    async def submit(self, conversation_id: str, text: str, **body: Any) -> dict[str, Any]:
        """Send a message of the owner's."""
        answer = await self.owner.post(
            f"/v1/conversations/{conversation_id}/turns",
            json={"text": text, **body},
            headers={"idempotency-key": uuid.uuid4().hex},
        )
        assert answer.status_code == 202, answer.text
        accepted: dict[str, Any] = answer.json()
        return accepted

    async def ended(self, turn_id: str) -> dict[str, Any]:
        """Wait for a turn's end."""

        async def end() -> dict[str, Any] | None:
            turn: dict[str, Any] = (await self.owner.get(f"/v1/turns/{turn_id}")).json()
            return turn if turn["state"] in {"settled", "failed", "cancelled"} else None

        found = await until(end, f"the end of {turn_id}")
        assert found is not None
        return found
