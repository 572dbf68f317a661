"""Sign-ins under way at the same time: what a person did last is what stands, whoever was slower (grants, vault)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from turnkeeper.app.vault import SealedValues
from turnkeeper.testing.clock import VirtualClock
from turnkeeper.testing.memory_store import MemoryStore
from turnkeeper.tool.mcp.config import McpServer
from turnkeeper.tool.mcp.grants import Client, Grant, Grants, Vault

HERE = "https://jira.example/mcp"
OLD = Grant(
    server="jira",
    person="ann",
    generation="g1",
    access_token="a1",
    refresh_token="r1",
    client=Client(client_id="c"),
    token_endpoint="https://as.example/token",
    resource=HERE,
)
NEW = msgspec.structs.replace(OLD, generation="g2", access_token="a2", refresh_token="r2")


class Authority:
    """Answers a refresh when the test says so."""

    def __init__(self, answer: Grant | None) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.answer = answer
        self.count = 0
        self.fails = False
        self.revoked: list[Grant] = []

    async def refresh(self, grant: Grant) -> Grant | None:
        self.count += 1
        self.asked.set()
        await self.go.wait()
        if self.fails:
            raise OSError
        return self.answer

    async def revoke(self, grant: Grant) -> None:
        self.revoked.append(grant)


def grants_of(authority: Authority, vault: Vault | None = None, *, at: str = HERE) -> Grants:
    """The grants of a process whose server stands at the address `at`."""
    server = McpServer(name="jira", url=at)
    return Grants(
        vault or SealedValues(MemoryStore(), None),
        VirtualClock(),
        authority.refresh,
        authority.revoke,
        lambda grant: server.accepts(grant.resource),
    )


async def scene(answer: Grant | None) -> tuple[Grants, Authority, asyncio.Task[Grant | None]]:
    """Grants with a refresh of OLD under way."""
    authority = Authority(answer)
    grants = grants_of(authority)
    await grants.put(OLD)
    renewing = asyncio.create_task(grants.renew(OLD))
    await authority.asked.wait()
    return grants, authority, renewing


async def test_who_signs_out_while_a_token_is_refreshed_stays_signed_out() -> None:
    grants, authority, renewing = await scene(msgspec.structs.replace(OLD, access_token="a1b"))
    await grants.forget("jira", "ann")
    authority.go.set()
    assert await renewing is None
    assert await grants.fresh("jira", "ann") is None
    assert await grants_of(authority, grants.vault).of("jira", "ann") is None
    assert [grant.access_token for grant in authority.revoked] == ["a1b"], "what came too late is given back"


async def test_a_refusal_of_the_old_token_does_not_end_the_new_sign_in() -> None:
    grants, authority, renewing = await scene(None)
    await grants.put(NEW)
    authority.go.set()
    assert await renewing == NEW
    assert await grants.fresh("jira", "ann") == NEW


async def test_a_failure_of_the_old_refresh_is_no_trouble_of_the_new_sign_in() -> None:
    grants, authority, renewing = await scene(None)
    authority.fails = True
    await grants.put(NEW)
    authority.go.set()
    assert await renewing == NEW
    assert grants.trouble("jira", "ann") == ""


async def test_the_old_account_does_not_come_back_over_the_new_one() -> None:
    grants, authority, renewing = await scene(msgspec.structs.replace(OLD, access_token="a1b"))
    writing = asyncio.create_task(grants.put(NEW))
    authority.go.set()
    await asyncio.gather(writing, renewing)
    assert await grants.of("jira", "ann") == NEW
    assert await grants_of(authority, grants.vault).of("jira", "ann") == NEW
    assert authority.revoked == [], "an authority may take that for the end of the new one"


async def test_the_new_sign_in_does_not_wait_for_the_refresh_of_the_old_one() -> None:
    grants, authority, renewing = await scene(None)
    await grants.put(NEW)
    again = asyncio.create_task(grants.renew(NEW))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert authority.count == 2
    authority.go.set()
    await asyncio.gather(renewing, again)


async def test_two_calls_that_need_a_fresh_token_ask_once() -> None:
    fresh = msgspec.structs.replace(OLD, access_token="a1b")
    grants, authority, renewing = await scene(fresh)
    other = asyncio.create_task(grants.renew(OLD))
    authority.go.set()
    assert await asyncio.gather(renewing, other) == [fresh, fresh]
    assert await grants.renew(OLD) == fresh
    assert authority.count == 1


@pytest.mark.parametrize(
    ("given", "now", "good"),
    [
        ("https://jira.example/mcp", "https://jira.example/mcp", True),
        ("https://jira.example/mcp/", "https://JIRA.example:443/mcp", True),
        ("https://jira.example", "https://jira.example/mcp", True),
        ("https://jira.example/mcp", "https://jira.example/mcp/v2", True),
        ("https://jira.example/mcp", "https://jira.example/mcp2", False),
        ("https://jira.example/mcp", "https://jira.example/", False),
        ("https://jira.example/mcp", "http://jira.example/mcp", False),
        ("https://jira.example/mcp", "https://jira.example:8443/mcp", False),
        ("https://jira.example/mcp", "https://jira.example.org/mcp", False),
        ("https://jira.example:99999/mcp", "https://jira.example/mcp", False),
        ("", "https://jira.example/mcp", False),
    ],
)
async def test_a_grant_is_good_only_where_it_was_given_for(given: str, now: str, good: bool) -> None:
    authority = Authority(None)
    grants = grants_of(authority, at=now)
    grant = msgspec.structs.replace(OLD, resource=given, expires_at=0.0)
    authority.answer = msgspec.structs.replace(grant, access_token="a1b", expires_at=None)
    authority.go.set()
    await grants.put(grant)
    assert await grants.good("jira", "ann") == (grant if good else None)
    assert grants.moved("jira", "ann") is not good
    assert await grants.fresh("jira", "ann") == (authority.answer if good else None)
    assert authority.count == good, "it is not even refreshed"


class SlowStore(MemoryStore):
    """Its reads answer with what was there when they began, later."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.reading = asyncio.Event()

    async def value(self, name: str) -> bytes | None:
        found = await super().value(name)
        self.reading.set()
        await self.go.wait()
        return found


async def test_a_sign_in_that_comes_while_the_old_one_is_read_is_seen() -> None:
    store = SlowStore()
    grants = grants_of(Authority(None), SealedValues(store, None))
    reading = asyncio.create_task(grants.of("jira", "ann"))
    await store.reading.wait()
    await grants.put(NEW)
    store.go.set()
    assert await reading == NEW
    assert await grants.of("jira", "ann") == NEW


async def test_sealing_anew_brings_nothing_back_that_was_taken_away(tmp_path: Path) -> None:
    class Turning(MemoryStore):
        """Somebody else is served between a read and what follows it."""

        async def value(self, name: str) -> bytes | None:
            found = await super().value(name)
            await asyncio.sleep(0)
            return found

    vault = SealedValues(Turning(), tmp_path)
    for last in (None, b"newer"):
        await vault.put("x", b"secret")
        await vault.rotate()
        await asyncio.gather(vault.get("x"), vault.put("x", last))
        assert await vault.get("x") == last
