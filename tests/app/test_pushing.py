"""Web push: who is told what, sealed for one browser, and who is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.app.push_service import CURVE, PushService, unpacked
from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.rights import USER_SCOPES
from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import BadInput, NotFound
from turnkeeper.outbound.push import Address, packed, seal
from turnkeeper.settings import Settings
from turnkeeper.testing.memory_store import MemoryStore
from turnkeeper.testing.until import until

SCRIPT = '{"rules": [{"match": "fail", "rounds": [{"error": {"status": 401}}]}]}'


@pytest.fixture
async def service() -> AsyncIterator[PushService]:
    async with PushService() as made:
        yield made


async def opened(tmp_path: Path, store: MemoryStore | None = None, **more: Any) -> Keeper:
    (tmp_path / "script.json").write_text(SCRIPT)
    (tmp_path / "agents.toml").write_text('[agents.demo]\nscript = "script.json"\n')
    given = Settings(private_addresses_allowed=("127.0.0.1",), **more)
    return await Keeper.open(
        tmp_path, store=store or MemoryStore(), agents=tmp_path / "agents.toml", settings=given
    )


def address(service: PushService, name: str = "one") -> Address:
    given = service.subscription(name)
    return Address(endpoint=given["endpoint"], **given["keys"])


async def person(keeper: Keeper, user: str = "owner") -> tuple[Principal, str]:
    """A person with a sign-in of their own, and its token's secret."""
    secret, _ = await keeper.create_token(user, USER_SCOPES)
    return await keeper.authenticate(secret), secret


async def said(keeper: Keeper, who: Principal, text: str) -> str:
    """A conversation whose turn has ended."""
    c = (await keeper.create_conversation(who, "demo")).conversation_id
    turn_id = (await keeper.submit(who, c, key="k", parts=[Text(text)])).turn_id

    async def ended() -> bool:
        return (await keeper.turn(who, turn_id)).state in ("settled", "failed")

    await until(ended, "the turn's end")
    return c


async def quiet(keeper: Keeper) -> None:
    await until(lambda: not keeper.pushing._under_way, "all pushes to have been made")


def test_a_message_is_sealed_as_the_example_of_rfc_8291() -> None:
    """Appendix A, octet by octet."""
    to = Address(
        endpoint="https://push.example.net/x",
        p256dh="BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        auth="BTBZMqHH6r4Tts7J_aSIgg",
    )
    number = int.from_bytes(unpacked("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big")
    own = ec.derive_private_key(number, CURVE)
    sealed = seal(b"When I grow up, I want to be a watermelon", to, own, unpacked("DGv6ra1nlYgDCS1FRnbzlw"))
    assert packed(sealed) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6Tlz"
        "AC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


@pytest.mark.parametrize(("text", "what"), [("hello", "done"), ("this will fail", "failed")])
async def test_a_browser_is_told_of_an_end_and_no_word_of_it(
    service: PushService, tmp_path: Path, text: str, what: str
) -> None:
    async with await opened(tmp_path) as keeper:
        who, _ = await person(keeper)
        await keeper.pushing.add(who, address(service))
        c = await said(keeper, who, text)
        await until(lambda: service.came, "the push")
        await quiet(keeper)
        ((headers, body),) = service.came
        assert service.opened(body) == {"what": what, "conversation_id": c}
        public_key = await keeper.pushing.public_key(who)
        claims = service.signer(headers["authorization"], public_key)
        assert claims["aud"] == service.url
        assert 0 < claims["exp"] - keeper.clock.now() <= 86_400
        assert (headers["content-encoding"], headers[":path"]) == ("aes128gcm", "/push/one")
        assert len(headers["topic"]) == 32


async def test_who_is_told_is_looked_at_each_time(service: PushService, tmp_path: Path) -> None:
    """Another person's browser hears nothing; one whose sign-in was revoked hears nothing and is forgotten."""
    async with await opened(tmp_path) as keeper:
        who, _ = await person(keeper)
        other, _ = await person(keeper, "other")
        await keeper.pushing.add(other, address(service, "other"))
        await keeper.pushing.add(who, address(service))
        assert who.token_id is not None
        await keeper.revoke_token(who.token_id)
        await said(keeper, OPERATOR, "hello")
        await until(lambda: len(keeper.pushing._browsers) == 1, "the browser to be forgotten")
        await quiet(keeper)
        assert service.came == []
        with pytest.raises(NotFound):
            await keeper.pushing.remove(who, address(service, "other").endpoint)


@pytest.mark.parametrize(("status", "left"), [(404, 0), (410, 0), (201, 1), (429, 1), (500, 1)])
async def test_a_browser_that_is_gone_is_forgotten(
    service: PushService, tmp_path: Path, status: int, left: int
) -> None:
    service.status = status
    async with await opened(tmp_path) as keeper:
        who, _ = await person(keeper)
        await keeper.pushing.add(who, address(service))
        await said(keeper, who, "hello")
        await until(lambda: service.came, "the push")
        await quiet(keeper)
        assert len(keeper.pushing._browsers) == left


async def test_browsers_and_the_key_are_kept_sealed_over_a_restart(
    service: PushService, tmp_path: Path
) -> None:
    store = MemoryStore()
    values: list[bytes] = []
    put = store.put_value

    async def seen(name: str, value: bytes) -> None:
        values.append(value)
        await put(name, value)

    store.put_value = seen  # type: ignore[method-assign]
    keeper = await opened(tmp_path, store)
    who, _ = await person(keeper)
    public_key = await keeper.pushing.public_key(who)
    await keeper.pushing.add(who, address(service))
    assert values
    assert not any(service.url.encode() in value for value in values)
    again = Keeper(store, keeper.agents, keeper.settings, data=tmp_path, clock=keeper.clock, ids=keeper.ids)
    await again.pushing.start()
    assert await again.pushing.public_key(who) == public_key
    assert list(again.pushing._browsers) == [address(service).endpoint]
    await keeper.close()


async def test_the_oldest_browser_goes_for_one_too_many(service: PushService, tmp_path: Path) -> None:
    async with await opened(tmp_path, push_browsers_max=2) as keeper:
        who, _ = await person(keeper)
        for name in ("a", "b", "a", "c"):
            await keeper.pushing.add(who, address(service, name))
        assert [name[-1] for name in keeper.pushing._browsers] == ["a", "c"]


@pytest.mark.parametrize(
    "bad",
    [
        {"endpoint": "http://push.example/x"},
        {"endpoint": "file:///etc/passwd"},
        {"endpoint": "https://push.example/" + "x" * 2000},
        {"p256dh": "AAAA"},
        {"auth": "AAAA"},
    ],
)
async def test_what_no_browser_gives_is_refused(
    service: PushService, tmp_path: Path, bad: dict[str, str]
) -> None:
    async with await opened(tmp_path) as keeper:
        who, _ = await person(keeper)
        given = service.subscription()
        with pytest.raises(BadInput):
            await keeper.pushing.add(who, Address(**{"endpoint": given["endpoint"], **given["keys"], **bad}))
        assert keeper.pushing._browsers == {}
