"""Which names the server answers under, and which pages may call it."""

from __future__ import annotations

import httpx2
import pytest

from tests.server.world import World
from turnkeeper.errors import HostRefused, OriginRefused
from turnkeeper.server.guard import Guard, is_loopback, split_authority


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8321",
        "localhost",
        "LOCALHOST:1",
        "[::1]:8321",
        "[::1]",
        "127.8.7.6",
        "chat.example",
        "Chat.Example:443",
    ],
)
def test_own_names_are_answered(host: str) -> None:
    Guard(allowed_hosts=["chat.example"]).check_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8321",
        "10.0.0.7:8321",
        "localhost:80@evil.example",
        "[::1",
        "",
        "0.0.0.0",
        "chat.example.evil.example",
    ],
)
def test_a_name_that_somebody_pointed_here_is_refused(host: str) -> None:
    """DNS rebinding: the page's own name leads to 127.0.0.1, so its requests carry that name."""
    guard = Guard(allowed_hosts=["chat.example"])
    for _ in range(2):
        if host == "[::1":
            guard.check_host(host)  # a missing bracket still names nobody but ourselves
            continue
        with pytest.raises(HostRefused):
            guard.check_host(host)


def test_a_remote_server_is_called_by_bare_addresses_and_never_by_strange_names() -> None:
    guard = Guard(host="0.0.0.0", remote=True)
    guard.check_host("192.168.1.5:8321")
    guard.check_host("[fe80::1]:8321")
    with pytest.raises(HostRefused):
        guard.check_host("evil.example:8321")


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8321", "127.0.0.1:8321"),
        ("http://localhost:8321", "localhost:8321"),
        ("https://chat.example", "chat.example"),
        ("https://chat.example:443", "chat.example"),
        ("http://chat.example", "chat.example:80"),
        ("https://front.example", "127.0.0.1:8321"),
    ],
)
def test_our_own_pages_and_allowed_ones_may_call(origin: str, host: str) -> None:
    Guard(allowed_origins=["https://front.example/"]).check_origin(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://evil.example", "127.0.0.1:8321"),
        ("http://127.0.0.1:9999", "127.0.0.1:8321"),
        ("http://localhost:8321", "127.0.0.1:8321"),
        ("null", "127.0.0.1:8321"),
        ("file://", "127.0.0.1:8321"),
        ("http://127.0.0.1:8321.evil.example", "127.0.0.1:8321"),
        ("", "127.0.0.1:8321"),
    ],
)
def test_pages_of_others_may_not(origin: str, host: str) -> None:
    with pytest.raises(OriginRefused):
        Guard(allowed_origins=["https://front.example"]).check_origin(origin, host)


def test_loopback_is_told_from_the_rest_of_the_world() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "localhost", "::1", "127.1.2.3"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.com", ""]))
    assert split_authority("[::1]:80") == ("::1", "80")
    assert split_authority("name") == ("name", "")


async def test_every_request_passes_the_guard(world: World) -> None:
    for headers, code in (
        ({"host": "evil.example"}, "host_refused"),
        ({"origin": "http://evil.example"}, "origin_refused"),
        ({"origin": "null"}, "origin_refused"),
    ):
        for method, path in (
            ("GET", "/healthz"),
            ("GET", "/"),
            ("GET", "/v1/conversations"),
            ("POST", "/v1/conversations"),
            ("GET", "/v1/none"),
        ):
            answer = await world.owner.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, code), (headers, path)


async def test_an_answer_never_invites_other_origins(world: World) -> None:
    answer = await world.owner.get("/v1/conversations", headers={"origin": "http://127.0.0.1:8321"})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_public_address_brings_its_own_name_origin_and_a_secure_cookie() -> None:
    world = await World.open(public_url="https://chat.example")
    try:
        headers = {"host": "chat.example", "origin": "https://chat.example"}
        assert (await world.owner.get("/v1/session", headers=headers)).status_code == 200
        url = httpx2.URL(world.edge.sign_in_url())
        assert url.host == "chat.example"
        answer = await world.anonymous().get("/", params=dict(url.params), headers={"host": "chat.example"})
        assert "; Secure" in answer.headers["set-cookie"]
    finally:
        await world.close()
