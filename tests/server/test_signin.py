"""Signing in from a browser: once, soon, by a cookie that no script and no other site can use."""

from __future__ import annotations

import httpx2
import pytest

from tests.server.world import World
from turnkeeper.errors import SignInUsed
from turnkeeper.server.signin import SessionCookie, SignIns


class Time:
    """Seconds that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_secret_works_once() -> None:
    sign_ins = SignIns(seconds=900, monotonic=Time())
    secret = sign_ins.issue()
    sign_ins.use(secret)
    with pytest.raises(SignInUsed):
        sign_ins.use(secret)
    for strange in ("", "x", "\ud800"):
        with pytest.raises(SignInUsed):
            sign_ins.use(strange)


def test_a_secret_works_for_its_time_and_not_a_second_longer() -> None:
    time = Time()
    sign_ins = SignIns(seconds=900, monotonic=time)
    early, late = sign_ins.issue(), sign_ins.issue()
    time.now = 899.9
    sign_ins.use(early)
    time.now = 900.0
    with pytest.raises(SignInUsed):
        sign_ins.use(late)


def test_old_secrets_are_forgotten() -> None:
    time = Time()
    sign_ins = SignIns(seconds=1, monotonic=time)
    for _ in range(100):
        time.now += 1
        sign_ins.issue()
    assert len(sign_ins._until) == 1


def test_the_cookie_is_read_among_others_and_only_ours() -> None:
    cookie = SessionCookie(port=8321, seconds=60, secure=False)
    assert cookie.read(b"a=1; turnkeeper_8321=secret; turnkeeper_9999=other") == "secret"
    assert cookie.read(b"turnkeeper_9999=other; xturnkeeper_8321=no") is None
    ((name, value),) = cookie.set("secret")
    assert name == b"set-cookie"
    assert value == b"turnkeeper_8321=secret; Max-Age=60; Path=/; HttpOnly; SameSite=Strict"


async def signed_in(world: World) -> httpx2.AsyncClient:
    """A browser that opened the printed address."""
    browser = world.anonymous()
    answer = await browser.get(world.edge.sign_in_url().removeprefix("http://127.0.0.1:8321"))
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    assert "token" not in answer.headers["location"]
    return browser


async def test_the_printed_address_signs_one_browser_in_and_then_is_spent(world: World) -> None:
    address = world.edge.sign_in_url().removeprefix("http://127.0.0.1:8321")
    browser = world.anonymous()
    first = await browser.get(address)
    assert "HttpOnly; SameSite=Strict" in first.headers["set-cookie"]
    assert (await browser.get("/v1/session")).json()["user_id"] == "owner"
    second = await world.anonymous().get(address)
    assert second.status_code == 401
    assert "set-cookie" not in second.headers
    assert "works once" in second.text


@pytest.mark.parametrize("headers", [{"sec-purpose": "prefetch;prerender"}, {"purpose": "prefetch"}])
async def test_a_browser_that_only_looks_ahead_spends_nothing(world: World, headers: dict[str, str]) -> None:
    address = world.edge.sign_in_url().removeprefix("http://127.0.0.1:8321")
    ahead = await world.anonymous().get(address, headers=headers)
    assert (ahead.status_code, "set-cookie" in ahead.headers) == (204, False)
    assert (await world.anonymous().head(address)).status_code == 204
    assert (await world.anonymous().get(address)).status_code == 303


async def test_the_cookie_steers_from_our_own_page_only(world: World) -> None:
    browser = await signed_in(world)
    body = {"agent": "demo"}
    for headers, status in (
        ({"origin": "http://127.0.0.1:8321"}, 201),
        ({"sec-fetch-site": "same-origin"}, 201),
        ({}, 201),
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ):
        answer = await browser.post("/v1/conversations", json=body, headers=headers)
        assert answer.status_code == status, headers


async def test_signing_out_takes_the_cookie_back_and_ends_its_token(world: World) -> None:
    browser = await signed_in(world)
    held = dict(browser.cookies)
    answer = await browser.delete("/v1/session")
    assert answer.status_code == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    thief = world.anonymous()
    thief.cookies.update(held)
    assert (await thief.get("/v1/session")).status_code == 401


async def test_a_page_can_hand_a_bearer_token_to_the_browser(world: World) -> None:
    ann = await world.client("ann")
    answer = await ann.post("/v1/session")
    assert "HttpOnly" in answer.headers["set-cookie"]
    browser = world.anonymous()
    browser.cookies.update(ann.cookies)
    assert (await browser.get("/v1/session")).json()["user_id"] == "ann"


async def test_a_wrong_bearer_token_is_not_saved_by_a_good_cookie(world: World) -> None:
    browser = await signed_in(world)
    answer = await browser.get("/v1/session", headers={"authorization": "Bearer wrong"})
    assert answer.status_code == 401


async def test_an_operator_gets_more_addresses_and_others_do_not(world: World) -> None:
    made = await world.owner.post("/v1/sign-ins")
    assert made.status_code == 201
    address = made.json()["url"].removeprefix("http://127.0.0.1:8321")
    assert (await world.anonymous().get(address)).status_code == 303
    assert (await (await world.client("ann")).post("/v1/sign-ins")).status_code == 403


async def test_tokens_are_made_with_the_scopes_that_were_asked_for(world: World) -> None:
    made = (await world.owner.post("/v1/tokens", json={"user": "ann", "scopes": ["read"]})).json()
    ann = world.anonymous()
    ann.headers["authorization"] = f"Bearer {made['token']}"
    assert (await ann.get("/v1/session")).json() == {"user_id": "ann", "scopes": ["read"], "kind": "person"}
    assert (await ann.post("/v1/conversations", json={"agent": "demo"})).status_code == 403
    assert (await world.owner.delete(f"/v1/tokens/{made['token_id']}")).status_code == 204
    assert (await ann.get("/v1/session")).status_code == 401
    assert (await world.owner.delete("/v1/tokens/k_unknown")).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"scopes": ["root"]},
        {"scopes": []},
        {"user": ""},
        {"user": " ann"},
        {"user": "a\nb"},
        {"user": "x" * 101},
        {"expires_seconds": 0},
    ],
)
async def test_a_token_that_cannot_be_made_is_refused(world: World, body: dict[str, object]) -> None:
    answer = await world.owner.post("/v1/tokens", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")


async def test_the_page_is_public_holds_no_data_and_cannot_be_framed(world: World) -> None:
    answer = await world.anonymous().get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    for path in (
        "/static/none.js",
        "/static/../edge.py",
        "/static/%2e%2e/edge.py",
        "/static/%00",
        "/static/" + "a" * 300,
    ):
        assert (await world.anonymous().get(path)).status_code == 404, path
