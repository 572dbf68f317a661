"""Nothing that happens to one call reaches the others: the transport and the sign-in under mcp raise nothing."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from turnkeeper.app.system import SystemClock
from turnkeeper.errors import AddressRefused
from turnkeeper.outbound.client import AnswerTooLarge
from turnkeeper.tool.mcp.grants import Client, Grant, Grants
from turnkeeper.tool.mcp.notes import CALL_KEY, Notes
from turnkeeper.tool.mcp.wire import GrantAuth, Wire


class Inner(httpx2.AsyncBaseTransport):
    """Answers with what it was given, or raises it."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.tokens: list[str | None] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.tokens.append(request.headers.get("authorization"))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return httpx2.Response(answer, request=request)


def call(key: str = "t.c1", **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"_meta": {CALL_KEY: key}}, **more}


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (httpx2.ConnectError("refused"), False),
        (httpx2.ConnectTimeout("slow"), False),
        (AddressRefused(url="http://10.0.0.1", why="it is private"), False),
        (httpx2.ReadTimeout("silent"), True),
        (httpx2.RemoteProtocolError("gone"), True),
        (AnswerTooLarge("giant"), True),
    ],
)
async def test_an_error_of_the_network_is_the_answer_to_its_own_call(error: Exception, sent: bool) -> None:
    notes = Notes()
    async with httpx2.AsyncClient(transport=Wire(Inner(error), notes)) as client:
        answer = await client.post("http://site/mcp", json=call())
        assert answer.json()["id"] == 7
        note = notes.of("t.c1")
        assert (bool(note.not_sent), bool(note.lost)) == (not sent, sent)


async def test_what_carries_no_call_is_answered_without_an_error() -> None:
    broken = [httpx2.ConnectError("refused") for _ in range(3)]
    async with httpx2.AsyncClient(transport=Wire(Inner(*broken), Notes())) as client:
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        assert (await client.post("http://site/mcp", json=told)).status_code == 202
        assert (await client.get("http://site/mcp")).status_code == 405
        assert (await client.delete("http://site/mcp")).status_code == 405


async def test_each_call_has_a_note_of_its_own() -> None:
    notes = Notes()
    async with httpx2.AsyncClient(transport=Wire(Inner(401, 200, 403), notes)) as client:
        for key in ("a", "b", "c"):
            await client.post("http://site/mcp", json=call(key))
    assert [notes.of(key).refused for key in ("a", "b", "c", "never")] == [True, False, False, False]


class Vault:
    """Keeps, or breaks."""

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.values: dict[str, bytes] = {}

    async def get(self, name: str) -> bytes | None:
        if self.broken:
            raise OSError("the disk is gone")
        return self.values.get(name)

    async def put(self, name: str, value: bytes | None) -> None:
        if self.broken:
            raise OSError("the disk is gone")
        self.values[name] = value or b""


def grant(token: str, **more: Any) -> Grant:
    given: dict[str, Any] = {"refresh_token": "r", "client": Client(client_id="us"), **more}
    return Grant(
        server="s", person="ann", generation="g", access_token=token, token_endpoint="http://as", **given
    )


async def nobody(grant: Grant) -> None:
    """Nothing is to be given back here."""
    raise AssertionError


@pytest.mark.parametrize("refresh", ["raises", "refuses", "renews"])
async def test_a_sign_in_that_cannot_be_used_raises_nothing(refresh: str) -> None:
    async def ask(old: Grant) -> Grant | None:
        if refresh == "raises":
            raise RuntimeError("it broke")
        return grant("new") if refresh == "renews" else None

    grants = Grants(Vault(), SystemClock(), ask, nobody, lambda grant: True)
    await grants.put(grant("old"))
    inner = Inner(401, 200)
    auth = GrantAuth(grants, "s", "ann")
    async with httpx2.AsyncClient(transport=Wire(inner, Notes()), auth=auth) as client:
        answer = await client.post("http://site/mcp", json=call())
    assert inner.tokens == (["Bearer old", "Bearer new"] if refresh == "renews" else ["Bearer old"])
    assert answer.status_code == (200 if refresh == "renews" else 401)
    kept = await grants.of("s", "ann")
    assert kept is not None
    assert kept.revoked == (refresh == "refuses")
    assert bool(grants.trouble("s", "ann")) == (refresh == "raises")


async def test_a_vault_that_breaks_is_a_person_who_is_not_signed_in() -> None:
    async def never(old: Grant) -> Grant | None:
        raise AssertionError

    inner = Inner(200)
    auth = GrantAuth(Grants(Vault(broken=True), SystemClock(), never, nobody, lambda grant: True), "s", "ann")
    async with httpx2.AsyncClient(transport=inner, auth=auth) as client:
        assert (await client.get("http://site/")).status_code == 200
    assert inner.tokens == [None]
