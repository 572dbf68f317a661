"""Remembering who a token is never makes a dead token live."""

from __future__ import annotations

from tests.server.test_signin import Time
from tests.server.world import World
from turnkeeper.app.principals import REMEMBERED_MAX, Principals
from turnkeeper.conversation.turns import Principal

ANN = Principal("ann", ("read",), token_id="k1")


def test_what_is_remembered_is_forgotten_after_its_time_and_at_the_tokens_own_end() -> None:
    time = Time()
    principals = Principals(seconds=2, monotonic=time)
    principals.remember("a", ANN, left_seconds=None)
    principals.remember("b", ANN, left_seconds=0.5)
    assert principals.recall("a") is principals.recall("b") is ANN
    time.now = 0.5
    assert (principals.recall("a"), principals.recall("b")) == (ANN, None)
    time.now = 2.0
    assert principals.recall("a") is None


def test_a_revoked_token_is_forgotten_at_once_and_others_are_not() -> None:
    principals = Principals(seconds=2, monotonic=Time())
    bob = Principal("bob", ("read",), token_id="k2")
    principals.remember("a", ANN, left_seconds=None)
    principals.remember("b", bob, left_seconds=None)
    principals.forget("k1")
    assert (principals.recall("a"), principals.recall("b")) == (None, bob)


def test_no_more_is_remembered_than_has_a_bound() -> None:
    principals = Principals(seconds=2, monotonic=Time())
    for number in range(REMEMBERED_MAX + 10):
        principals.remember(str(number), ANN, left_seconds=None)
    assert len(principals._known) <= REMEMBERED_MAX


async def test_a_token_opens_nothing_from_the_moment_it_is_revoked(world: World) -> None:
    ann = await world.client("ann")
    assert (await ann.get("/v1/session")).status_code == 200
    made = (await world.owner.post("/v1/tokens", json={"user": "ann"})).json()
    ann.headers["authorization"] = f"Bearer {made['token']}"
    assert (await ann.get("/v1/session")).status_code == 200
    await world.owner.delete(f"/v1/tokens/{made['token_id']}")
    assert (await ann.get("/v1/session")).status_code == 401
