"""Calls that wait for a sign-in: a real MCP server, a real OAuth flow, restarts at every point (seed 000).

Each test is told as a person would see it: a message, a turn that waits, a browser, the call that then runs
once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.mcp.site import Site, serve
from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.events import (
    ApprovalDecided,
    ConnectDecided,
    ConnectRequested,
    Noticed,
    TurnFailed,
)
from turnkeeper.conversation.messages import ASSISTANT
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.rights import USER_SCOPES
from turnkeeper.conversation.turns import Disposition, Principal
from turnkeeper.dispatch import sign_ins
from turnkeeper.errors import NotFound
from turnkeeper.server.application import create_app
from turnkeeper.settings import Settings
from turnkeeper.testing.until import until

PORT = 8321
HERE = f"http://127.0.0.1:{PORT}"

AGENTS = """
[agents.helper]
script = "script.json"
tools = ["mcp:jira"]

[mcp.jira]
url = "{url}"
"""

RULES = [
    {"match": "act twice", "rounds": [{"tool_calls": [
        {"name": "jira__act", "arguments": {"what": "a"}}, {"name": "jira__act", "arguments": {"what": "b"}}]},
        {"text": "both done"}]},
    {"match": "act", "rounds": [
        {"tool_calls": [{"name": "jira__act", "arguments": {"what": "a"}}]}, {"text": "done"}]},
    {"match": "wipe", "rounds": [
        {"tool_calls": [{"name": "jira__wipe", "arguments": {"what": "a"}}]}, {"text": "wiped"}]},
    {"match": "both", "rounds": [{"tool_calls": [
        {"name": "jira__act", "arguments": {"what": "a"}}, {"name": "jira__wipe", "arguments": {"what": "b"}}]},
        {"text": "both done"}]},
    {"match": "look", "rounds": [
        {"tool_calls": [{"name": "jira__look", "arguments": {"what": "a"}}]}, {"text": "looked"}]},
    {"match": "connect", "rounds": [
        {"tool_calls": [{"name": "jira__connect", "arguments": {}}]},
        {"tool_calls": [{"name": "jira__act", "arguments": {"what": "c"}}]}, {"text": "connected and done"}]},
]  # fmt: skip


class World:
    """A Keeper in a folder, its door, and the people before it."""

    def __init__(self, folder: Path, keeper: Keeper, site: Site) -> None:
        self.folder = folder
        self.keeper = keeper
        self.site = site
        self.door = create_app(keeper, port=PORT)

    def browser(self) -> httpx2.AsyncClient:
        """A browser without any cookie, for our own address."""
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(self.door), base_url=HERE)

    async def signed_in(self, user: str = "owner") -> httpx2.AsyncClient:
        """A browser that is signed in here."""
        secret, _ = await self.keeper.create_token(user, USER_SCOPES)
        browser = self.browser()
        browser.cookies.set(self.door.cookie.name.decode(), secret)
        return browser

    async def say(self, text: str, *, c: str | None = None, who: Principal = OPERATOR) -> tuple[str, str]:
        """Send a message: (conversation, turn)."""
        c = c or (await self.keeper.create_conversation(who, "helper")).conversation_id
        key = f"k{len(await self.keeper.store.messages_after(c))}"
        return c, (await self.keeper.submit(who, c, key=key, parts=(Text(text),))).turn_id

    async def state(self, turn: str, *states: str) -> Any:
        async def look() -> Any:
            found = await self.keeper.store.turn(turn)
            assert found is not None
            return found if str(found.state) in states else None

        return await until(look, f"{turn} {states}")

    async def parked(self, text: str = "act", **given: Any) -> tuple[str, str]:
        c, turn = await self.say(text, **given)
        waits = await self.state(turn, "parked", "failed", "settled")
        assert str(waits.state) == "parked", waits
        return c, turn

    async def to_authority(self, browser: httpx2.AsyncClient) -> str:
        """Open the link; where the browser is sent."""
        sent = await browser.get("/connect/jira")
        assert sent.status_code == 303, sent.text
        return sent.headers["location"]

    async def consent(self, url: str) -> str:
        """What the authority makes of it: where it sends the browser back to."""
        async with httpx2.AsyncClient() as out:
            back = await out.get(url)
        assert back.status_code == 302, back.text
        assert back.headers["location"].startswith(f"{HERE}/oauth/callback?")
        return str(back.headers["location"])

    async def connect(self, user: str = "owner") -> httpx2.Response:
        """The whole way, as a person goes it."""
        browser = await self.signed_in(user)
        back = await self.consent(await self.to_authority(browser))
        return await browser.get(back)

    async def bodies(self, c: str, *kinds: type) -> list[Any]:
        events = await self.keeper.store.events(c, limit=10_000)
        return [event.body for event in events if isinstance(event.body, kinds)]

    async def said(self, c: str) -> list[str]:
        """What the assistant said."""
        messages = await self.keeper.store.messages_after(c)
        return [m.text for m in messages if m.role == ASSISTANT and m.text]


@asynccontextmanager
async def opened(folder: Path, site: Site, **settings: Any) -> AsyncIterator[World]:
    folder.mkdir(exist_ok=True)
    (folder / "script.json").write_text(json.dumps({"rules": RULES}))
    agents = folder / "agents.toml"
    agents.write_text(AGENTS.format(url=site.mcp_url))
    given = {"sweep_seconds": 0.1, "private_addresses_allowed": ("127.0.0.1",), **settings}
    async with await Keeper.open(folder / "data", agents=agents, settings=Settings(**given)) as keeper:
        world = World(folder, keeper, site)
        try:
            yield world
        finally:
            await world.door.close()


async def test_a_parked_call_runs_once_after_a_restart_and_a_connect(tmp_path: Path) -> None:
    async with serve() as site:
        async with opened(tmp_path, site) as world:
            c, turn = await world.parked("act")
            waits = (await world.keeper.turn(OPERATOR, turn)).needs
            assert waits["kind"] == "auth"
            assert [(w["server"], w["person"], w["why"]) for w in waits["connects"]] == [
                ("jira", "owner", "not_connected")
            ]
            (card,) = await world.keeper.approvals(OPERATOR)
            assert (card["kind"], card["server"], card["connect"]) == ("auth", "jira", "/connect/jira")
            assert site.acted == []
        async with opened(tmp_path, site) as world:
            assert (await world.keeper.turn(OPERATOR, turn)).state == "parked"
            answer = await world.connect()
            assert "jira is connected" in answer.text, answer.text[150:]
            await world.state(turn, "settled")
            assert site.acted == ["act a"]
            assert await world.said(c) == ["done"], "no answer says that something is not connected"
            ledger = await world.keeper.store.tool_calls(turn)
            assert [row.disposition for row in ledger] == [Disposition.DONE]
            # The same request elsewhere, and again here, simply works.
            other, second = await world.say("act")
            await world.state(second, "settled")
            _, third = await world.say("act", c=c)
            await world.state(third, "settled")
            assert site.acted == ["act a"] * 3
            assert other != c


async def test_one_connect_releases_all_parked_calls_of_that_person_and_no_others(tmp_path: Path) -> None:
    ann = Principal("ann", USER_SCOPES)
    async with serve() as site, opened(tmp_path, site) as world:
        await world.keeper.create_token("ann", USER_SCOPES)
        mine = [(await world.parked("act"))[1], (await world.parked("act twice"))[1]]
        _, hers = await world.parked("act", who=ann)
        waits = [
            (row["turn_id"], row["waits_for"]) for row in (await world.keeper.status(OPERATOR))["parked"]
        ]
        assert sorted((t, *[(w["who"], w["what"]) for w in found]) for t, found in waits) == sorted(
            [*((t, ("owner", "sign-in at jira")) for t in mine), (hers, ("ann", "sign-in at jira"))]
        ), "the status says who must do what"
        assert all(w["until"] for _, found in waits for w in found)
        assert (await world.connect()).text.count("2 turns") == 1
        for turn in mine:
            await world.state(turn, "settled")
        assert sorted(site.acted) == ["act a", "act a", "act b"]
        assert (await world.keeper.turn(ann, hers)).state == "parked"
        assert (await world.keeper.connections.list(ann))[0]["waiting"] == 1
        assert await world.keeper.approvals(OPERATOR) == []
        await world.connect("ann")
        await world.state(hers, "settled")
        assert len(site.acted) == 4


async def test_the_lane_is_free_and_later_feeds_say_that_the_call_waits(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        c, turn = await world.parked("act")
        _, other = await world.say("hello", c=c)
        await world.state(other, "settled")
        feed = await world.keeper.feed(OPERATOR, c)
        assert "waits until the person has signed in at jira" in json.dumps(feed["request"])
        await world.connect()
        await world.state(turn, "settled")
        assert site.acted == ["act a"]
        assert (await world.said(c))[0] == "ok hello"


async def test_a_server_that_shows_its_tools_to_nobody_has_one_that_asks_for_the_sign_in(
    tmp_path: Path,
) -> None:
    async with serve(open_list=False) as site, opened(tmp_path, site) as world:
        c, turn = await world.parked("connect")
        refused = site.refused
        _, hello = await world.say("hello", c=c)
        await world.state(hello, "settled")
        assert site.refused == refused, "it is not asked again and again"
        await world.connect()
        await world.state(turn, "settled")
        assert site.acted == ["act c"]
        assert (await world.said(c))[-1] == "connected and done"


async def test_a_refusal_ends_the_turn_visibly_and_a_retry_goes_on(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        c, turn = await world.parked("act")
        site.authority.refuses = True
        assert "was not connected" in (await world.connect()).text
        ended = await world.state(turn, "failed")
        assert (ended.failure.kind, ended.failure.retryable) == ("sign_in", True)
        assert "the sign-in was refused at jira" in ended.failure.sentence
        assert await world.said(c) == [], "the model is not made to say it"
        assert [b.outcome for b in await world.bodies(c, ConnectDecided)] == ["refused"]
        site.authority.refuses = False
        await world.connect()
        await world.keeper.retry(OPERATOR, turn)
        assert str((await world.state(turn, "settled", "failed")).state) == "settled"
        assert len(site.acted) <= 1


async def test_who_does_not_want_to_sign_in_says_so_here(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        _, turn = await world.parked("act")
        browser = await world.signed_in()
        assert (await browser.post("/v1/connections/jira/refuse")).json()["turns"] == 1
        await world.state(turn, "failed")
        _, again = await world.parked("act")
        await world.keeper.decide(OPERATOR, again, "do_not_connect")
        assert (await world.state(again, "failed")).failure.kind == "sign_in"
        assert site.acted == []


async def test_a_refusal_counts_also_if_the_turn_went_on_with_something_else_just_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        c, turn = await world.parked("both")
        (asked,) = [one for one in await world.keeper.approvals(OPERATOR) if one["kind"] == "approval"]
        tell, tells = sign_ins._tell, [0]

        async def slowly(*given: Any) -> int:
            tells[0] += 1
            if tells[0] == 1:
                await world.keeper.decide_approval(OPERATOR, asked["approval_id"], "approve")
                await until(lambda: _waits_only_for_sign_in(world, turn), "the second wait")
            return await tell(*given)

        monkeypatch.setattr(sign_ins, "_tell", slowly)
        assert await world.keeper.connections.refuse(OPERATOR, "jira") == 1
        assert (await world.state(turn, "failed")).failure.kind == "sign_in"
        assert [b.outcome for b in await world.bodies(c, ConnectDecided)] == ["refused"]
        assert site.acted == []


async def _waits_only_for_sign_in(world: World, turn: str) -> bool:
    now = await world.keeper.turn(OPERATOR, turn)
    return now.state == "parked" and not (now.needs or {}).get("approvals")


async def test_a_sign_in_that_does_not_come_in_time_is_an_event_and_no_refusal(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site, connect_seconds=0.3) as world:
        c, turn = await world.say("act")
        ended = await world.state(turn, "failed")
        assert "nobody signed in in time" in ended.failure.sentence
        assert [b.outcome for b in await world.bodies(c, ConnectDecided)] == ["expired"]
        assert len(await world.bodies(c, TurnFailed)) == 1
        assert await world.keeper.approvals(OPERATOR) == []


async def test_a_revoked_sign_in_parks_again_says_so_and_a_new_one_releases(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        await world.connect()
        site.authority.forget()
        c, turn = await world.parked("act")
        assert [b.why for b in await world.bodies(c, ConnectRequested)] == ["revoked"]
        (mine,) = await world.keeper.connections.list(OPERATOR)
        assert (mine["state"], mine["waiting"]) == ("revoked", 1)
        assert await world.keeper.connections.release() == 0
        assert (await world.keeper.turn(OPERATOR, turn)).state == "parked", "the old sign-in releases nothing"
        await world.connect()
        await world.state(turn, "settled")
        assert site.acted == ["act a"]


async def test_an_access_token_that_ended_is_refreshed_without_anybody(tmp_path: Path) -> None:
    async with serve() as site:
        async with opened(tmp_path, site) as world:
            await world.connect()
        site.authority.forget(refresh_too=False)
        async with opened(tmp_path, site) as world:
            turns = [(await world.say("act"))[1] for _ in range(3)]
            for turn in turns:
                await world.state(turn, "settled")
            assert site.acted == ["act a"] * 3
            assert site.authority.refreshed == 1, "one refresh for all"


async def test_a_refresh_that_fails_for_now_asks_nobody_to_sign_in_again(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        await world.connect()
        site.authority.forget(refresh_too=False)
        site.token_status = 503
        c, turn = await world.say("act")
        await world.state(turn, "settled")
        assert "cannot be refreshed now" in str(await world.keeper.store.messages_after(c))
        assert (await world.keeper.connections.list(OPERATOR))[0]["state"] == "connected"
        assert site.acted == []
        site.token_status = None
        _, again = await world.say("act", c=c)
        await world.state(again, "settled")
        assert site.acted == ["act a"]


async def test_signing_out_here_tells_the_authority_and_later_calls_wait(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        await world.connect()
        assert site.authority.access
        browser = await world.signed_in()
        assert (await browser.delete("/v1/connections/jira")).status_code == 204
        assert not site.authority.access
        assert (await browser.get("/v1/connections")).json()["connections"][0]["state"] == "not_connected"
        await world.parked("act")
        assert site.acted == []


async def test_a_sign_in_is_for_one_address_and_its_token_is_never_shown_at_another(tmp_path: Path) -> None:
    async with serve() as first, serve() as second:
        async with opened(tmp_path, first) as world:
            await world.parked("act")
            await world.connect()
            await until(lambda: first.acted == ["act a"], "the call")
        given = set(first.authority.access) | set(first.authority.refresh)
        async with opened(tmp_path, second) as world:
            (mine,) = await world.keeper.connections.list(OPERATOR)
            assert (mine["state"], mine["why"]) == ("not_connected", "moved")
            c, turn = await world.parked("act")
            assert [(b.why, b.rejected) for b in await world.bodies(c, ConnectRequested)] == [("moved", "")]
            (card,) = await world.keeper.approvals(OPERATOR)
            assert "jira has another address now than when you signed in" in card["sentence"]
            assert await world.keeper.connections.release() == 0, "the old sign-in releases nothing"
            assert (await world.keeper.turn(OPERATOR, turn)).state == "parked"
            assert "is connected" in (await world.connect()).text
            await world.state(turn, "settled")
            assert (first.acted, second.acted) == (["act a"], ["act a"])
            assert not second.tokens & given, "a token of the first was shown to the second"
            assert first.authority.refreshed == 0


async def test_a_sign_in_that_was_begun_for_another_address_is_not_kept(tmp_path: Path) -> None:
    async with serve() as first, serve() as second:
        async with opened(tmp_path, first) as world:
            browser = await world.signed_in()
            back = await world.consent(await world.to_authority(browser))
            cookies = browser.cookies
        async with opened(tmp_path, second) as world:
            _, turn = await world.parked("act")
            browser = world.browser()
            browser.cookies = cookies
            answer = await browser.get(back)
            assert answer.status_code == 400, answer.text
            assert "another address" in answer.text
            assert not first.authority.access, "what was given for the other address is given back"
            assert (await world.keeper.turn(OPERATOR, turn)).state == "parked"
            assert second.acted == []


@pytest.mark.parametrize("old", [True, False], ids=["with a session", "without"])
async def test_nothing_stays_open_for_who_signed_out(tmp_path: Path, old: bool) -> None:
    async with serve(open_list=False) as site, opened(tmp_path, site) as world:
        site.old = old
        await world.connect()
        _, turn = await world.say("act")
        await world.state(turn, "settled")
        await until(lambda: site.streams == 1, "the stream on which it tells of changes")
        await world.keeper.connections.end(OPERATOR, "jira")
        await until(lambda: site.streams == 0, "the end of it")
        assert world.keeper.connections.servers._connections == {}


async def test_signing_out_ends_no_call_that_runs(tmp_path: Path) -> None:
    async with serve(open_list=False) as site, opened(tmp_path, site) as world:
        await world.connect()
        site.hang = asyncio.Event()
        began = asyncio.Event()
        site.during = began.set
        c, turn = await world.say("act")
        await began.wait()
        await world.keeper.connections.end(OPERATOR, "jira")
        site.hang.set()
        await world.state(turn, "settled")
        assert site.acted == ["act a"]
        assert [row.disposition for row in await world.keeper.store.tool_calls(turn)] == [Disposition.DONE]
        assert "done a" in str(await world.keeper.store.messages_after(c))
        await until(lambda: site.streams == 0, "the end of the connection")


async def test_a_call_that_parks_just_as_the_sign_in_comes_is_not_forgotten(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        browser = await world.signed_in()
        back = await world.consent(await world.to_authority(browser))
        _, turn = await world.parked("act")
        release, world.keeper.connections._decide = world.keeper.connections._decide, _nobody  # type: ignore[assignment,method-assign]
        assert (await browser.get(back)).status_code == 200
        world.keeper.connections._decide = release  # type: ignore[method-assign]
        await world.state(turn, "settled")
        assert site.acted == ["act a"]


async def _nobody(*given: Any) -> int:
    return 0


async def test_a_restart_in_the_middle_of_a_sign_in_loses_nothing(tmp_path: Path) -> None:
    async with serve() as site:
        async with opened(tmp_path, site) as world:
            _, turn = await world.parked("act")
            browser = await world.signed_in()
            back = await world.consent(await world.to_authority(browser))
            cookies = browser.cookies
        async with opened(tmp_path, site) as world:
            browser = world.browser()
            browser.cookies = cookies
            assert "is connected" in (await browser.get(back)).text
            await world.state(turn, "settled")
            assert site.acted == ["act a"]


async def test_an_approved_call_that_also_needs_a_sign_in_runs_once_with_both(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        c, turn = await world.parked("wipe")
        (asked,) = await world.keeper.approvals(OPERATOR)
        assert asked["kind"] == "approval"
        await world.keeper.decide_approval(OPERATOR, asked["approval_id"], "approve")
        await until(lambda: _waits_for_sign_in(world, turn), "the wait for a sign-in")
        await world.connect()
        await world.state(turn, "settled")
        assert site.acted == ["wipe a"]
        assert len(await world.bodies(c, ApprovalDecided)) == 1


async def _waits_for_sign_in(world: World, turn: str) -> bool:
    return (
        bool((await world.keeper.turn(OPERATOR, turn)).needs or {})
        and (await world.keeper.turn(OPERATOR, turn)).needs["kind"] == "auth"
    )


async def test_a_yes_does_not_last_longer_because_a_sign_in_takes_long(tmp_path: Path) -> None:
    async with (
        serve() as site,
        opened(tmp_path, site, approval_seconds=1.0, confirmation_expiry_seconds=0.2) as world,
    ):
        c, turn = await world.parked("wipe")
        (asked,) = await world.keeper.approvals(OPERATOR)
        await world.keeper.decide_approval(OPERATOR, asked["approval_id"], "approve")
        await until(lambda: _waits_for_sign_in(world, turn), "the wait for a sign-in")
        late = _at(asked["expires_at"]) + 0.2
        await until(lambda: world.keeper.clock.now() > late, "the end of the yes")
        await world.connect()
        await world.state(turn, "settled")
        assert site.acted == []
        assert "has expired before it could run" in str(await world.keeper.store.messages_after(c))


def _at(iso: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(iso).timestamp()


# --- bad input


async def finished_badly(world: World, answer: httpx2.Response, turn: str) -> None:
    assert answer.status_code in (400, 502), answer.text
    assert "Nothing was connected" in answer.text
    (mine,) = await world.keeper.connections.list(OPERATOR)
    assert mine["state"] == "not_connected"
    assert (await world.keeper.turn(OPERATOR, turn)).state == "parked"
    assert world.site.acted == []


async def test_a_callback_in_another_browser_connects_nobody(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        _, turn = await world.parked("act")
        browser = await world.signed_in()
        back = await world.consent(await world.to_authority(browser))
        stranger = await world.signed_in("mallory")
        await finished_badly(world, await stranger.get(back), turn)
        await finished_badly(world, await world.browser().get(back), turn)
        # Who began it is not hurt by that.
        assert "is connected" in (await browser.get(back)).text
        await world.state(turn, "settled")


async def test_a_link_that_somebody_else_opens_connects_them_to_themselves_only(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        _, turn = await world.parked("act")
        await world.connect("mallory")
        assert (await world.keeper.turn(OPERATOR, turn)).state == "parked"
        assert (await world.keeper.connections.list(OPERATOR))[0]["state"] == "not_connected"
        mallory = Principal("mallory", USER_SCOPES)
        assert (await world.keeper.connections.list(mallory))[0]["state"] == "connected"
        # The address of the authority, passed on: mallory's browser comes back without the cookie of who began it.
        browser = await world.signed_in()
        passed_on = await world.to_authority(browser)
        thief = await world.signed_in("mallory")
        await finished_badly(world, await thief.get(await world.consent(passed_on)), turn)


async def test_a_state_works_once_and_a_forged_one_never(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        _, turn = await world.parked("act")
        browser = await world.signed_in()
        back = await world.consent(await world.to_authority(browser))
        state = parse_qs(urlsplit(back).query)["state"][0]
        for forged in (
            "",
            "x",
            state[:-1] + ("_" if state[-1] != "_" else "-"),
            state + "A",
            "é" * 40,
            "x" * 5000,
        ):
            answer = await browser.get("/oauth/callback", params={"state": forged, "code": "c"})
            await finished_badly(world, answer, turn)
        assert "is connected" in (await browser.get(back)).text
        await world.state(turn, "settled")
        again = await browser.get(back)
        assert again.status_code == 400
        assert "used already" in again.text
        assert site.acted == ["act a"]


async def test_a_wrong_code_connects_nobody(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        _, turn = await world.parked("act")
        browser = await world.signed_in()
        back = await world.consent(await world.to_authority(browser))
        state = parse_qs(urlsplit(back).query)["state"][0]
        answer = await browser.get("/oauth/callback", params={"state": state, "code": "stolen"})
        await finished_badly(world, answer, turn)
        await world.to_authority(browser)


@pytest.mark.parametrize("issuer", ["https://evil.example", "", "http://127.0.0.1"])
async def test_an_answer_of_another_issuer_is_refused(tmp_path: Path, issuer: str) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        _, turn = await world.parked("act")
        site.authority.issuer = issuer
        browser = await world.signed_in()
        back = await world.consent(await world.to_authority(browser))
        await finished_badly(world, await browser.get(back), turn)
        site.authority.issuer = f"{site.url}/"
        assert "is connected" in (await world.connect()).text


async def test_an_expired_sign_in_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        _, turn = await world.parked("act")
        monkeypatch.setattr("turnkeeper.tool.mcp.oauth.FLOW_SECONDS", 0.0)
        browser = await world.signed_in()
        back = await world.consent(await world.to_authority(browser))
        await finished_badly(world, await browser.get(back), turn)


async def test_who_is_not_signed_in_here_is_told_how(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        answer = await world.browser().get("/connect/jira")
        assert answer.status_code == 401
        assert "turnkeeper token link" in answer.text
        browser = await world.signed_in()
        assert (await browser.get("/connect/nowhere")).status_code == 404
        assert (await browser.post("/v1/connections/nowhere")).status_code == 404
        with pytest.raises(NotFound):
            await world.keeper.connections.end(OPERATOR, "nowhere")
        before = len(site.paths)
        assert (await browser.get("/connect/jira", headers={"sec-purpose": "prefetch"})).status_code == 204
        assert (await browser.head("/connect/jira")).status_code == 204
        assert len(site.paths) == before, "a browser that only looks ahead begins nothing"


async def test_the_one_time_address_signs_in_and_goes_on_to_the_sign_in_there(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        secret, _ = await world.keeper.create_token()
        client = world.browser()
        client.headers["authorization"] = f"Bearer {secret}"
        link = (await client.post("/v1/connections/jira")).json()
        assert link["plain_url"] == f"{HERE}/connect/jira"
        browser = world.browser()
        signed = await browser.get(link["url"])
        assert signed.headers["location"] == "/connect/jira"
        assert (
            "is connected" in (await browser.get(await world.consent(await world.to_authority(browser)))).text
        )
        evil = await browser.get("/", params={"token": "x", "next": "https://evil.example"})
        assert evil.status_code == 401
        scoped = await world.signed_in("ann")
        assert (await scoped.post("/v1/connections/jira")).json()["url"] == f"{HERE}/connect/jira"


async def test_a_private_address_is_never_asked_whatever_the_server_says(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        await world.connect()
        site.redirect_calls = "http://127.0.0.2:9/steal"
        c, turn = await world.say("act")
        await world.state(turn, "settled")
        assert "Redirect" in str(await world.keeper.store.messages_after(c))
        assert site.acted == []


async def test_a_server_at_an_address_that_is_not_listed_is_not_reached(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site, private_addresses_allowed=()) as world:
        c, turn = await world.say("hello")
        await world.state(turn, "settled")
        assert site.paths == []
        (told,) = await world.bodies(c, Noticed)
        assert "private_addresses_allowed" in told.text


async def test_an_error_of_the_server_in_one_call_does_not_end_the_others(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        await world.connect()
        site.hang = asyncio.Event()
        began = asyncio.Event()
        site.during = began.set
        _, slow = await world.say("act")
        await began.wait()
        site.status = 503
        c, broken = await world.say("look")
        await world.state(broken, "settled")
        assert "was lost" in str(await world.keeper.store.messages_after(c))
        site.hang.set()
        await world.state(slow, "settled")
        assert site.acted == ["act a"]


async def test_a_server_that_is_gone_fails_the_call_as_not_sent(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(serve())
        async with opened(tmp_path, site) as world:
            await world.connect()
            _, turn = await world.say("act")
            await world.state(turn, "settled")
            await stack.aclose()
            _, gone = await world.say("act")
            await world.state(gone, "settled")
            (row,) = await world.keeper.store.tool_calls(gone)
            assert row.disposition is Disposition.FAILED
            assert "could not be sent" in str(row.result)
            assert site.acted == ["act a"]


async def test_a_giant_answer_is_the_end_of_that_call_only(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        await world.connect()
        site.flood = True
        _, turn = await world.say("act")
        await world.state(turn, "settled")
        (row,) = await world.keeper.store.tool_calls(turn)
        assert row.disposition is Disposition.UNKNOWN
        site.flood = False
        _, after = await world.say("look")
        await world.state(after, "settled")
        assert site.acted == ["act a", "look a"]


async def test_tokens_lie_sealed_and_stand_nowhere(tmp_path: Path) -> None:
    async with serve() as site:
        async with opened(tmp_path, site) as world:
            await world.parked("act")
            await world.connect()
            c, turn = await world.say("act")
            await world.state(turn, "settled")
            secrets = [*site.authority.access, *site.authority.refresh]
            secrets += [client.client_secret or "none" for client in site.authority.clients.values()]
            exported = [line async for line in world.keeper.export(OPERATOR, c)]
        stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
        assert secrets
        for secret in secrets:
            assert secret.encode() not in stored + b"".join(exported), "a token lies open"


async def test_a_new_key_is_put_in_use_without_a_pause(tmp_path: Path) -> None:
    async with serve() as site:
        async with opened(tmp_path, site) as world:
            await world.connect()
            assert await world.keeper.vault.rotate() == 2
        key = tmp_path / "data" / "vault.key"
        assert key.stat().st_mode & 0o777 == 0o600
        async with opened(tmp_path, site) as world:
            _, turn = await world.say("act")
            await world.state(turn, "settled")
        # What was read is sealed with the new key by now: the old one can go.
        key.write_bytes(key.read_bytes().splitlines()[0] + b"\n")
        async with opened(tmp_path, site) as world:
            assert (await world.keeper.connections.list(OPERATOR))[0]["state"] == "connected"
        # A lost key loses the sign-in, and nothing else.
        key.unlink()
        async with opened(tmp_path, site) as world:
            await world.parked("act")


async def test_a_call_that_needs_more_rights_gets_them_at_one_sign_in(tmp_path: Path) -> None:
    async with serve() as site:
        site.needs_scope = "read"
        async with opened(tmp_path, site) as world:
            _, first = await world.parked("act")
            await world.connect()
            await world.state(first, "settled")
            site.needs_scope = "write"
            c, turn = await world.parked("act")
            (wait,) = (await world.keeper.turn(OPERATOR, turn)).needs["connects"]
            grant = await world.keeper.connections.servers.grants.good("jira", "owner")
            assert (wait["why"], wait["rejected"]) == ("scope", [grant and grant.generation])
            # The sign-in is good, but it is the one that the server refused: to let go on would be to ask for ever.
            assert await world.keeper.connections.release() == 0
            assert await world.bodies(c, ConnectDecided) == []
        # What the server wanted is still known after a restart, and what the person had is kept.
        async with opened(tmp_path, site) as world:
            browser = await world.signed_in()
            url = await world.to_authority(browser)
            assert set(parse_qs(urlsplit(url).query)["scope"][0].split()) == {"read", "write"}
            assert "is connected" in (await browser.get(await world.consent(url))).text
            await world.state(turn, "settled")
            assert site.acted == ["act a"] * 2


async def test_a_failure_of_the_authority_is_nobodys_refusal(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        _, turn = await world.parked("act")
        browser = await world.signed_in()
        back = await world.consent(await world.to_authority(browser))
        state = parse_qs(urlsplit(back).query)["state"][0]
        answer = await browser.get("/oauth/callback", params={"state": state, "error": "server_error"})
        await finished_badly(world, answer, turn)
        assert "is connected" in (await world.connect()).text
        await world.state(turn, "settled")


async def test_a_state_that_comes_twice_at_once_is_spent_once(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        _, turn = await world.parked("act")
        browser = await world.signed_in()
        back = await world.consent(await world.to_authority(browser))
        site.paths.clear()
        answers = await asyncio.gather(browser.get(back), browser.get(back))
        assert sorted(answer.status_code for answer in answers) == [200, 400]
        assert site.paths.count("/token") == 1
        await world.state(turn, "settled")


async def test_a_server_that_was_taken_out_meanwhile_connects_nobody(tmp_path: Path) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        browser = await world.signed_in()
        back = await world.consent(await world.to_authority(browser))
        del world.keeper.connections.servers.servers["jira"]
        answer = await browser.get(back)
        assert answer.status_code == 400
        assert "Nothing was connected" in answer.text


@pytest.mark.parametrize(
    "lie", [{"scope": ["read"]}, {"refresh_token": 7}, {"scope": {"a": 1}, "expires_in": "soon"}]
)
async def test_a_token_answer_with_wrong_types_is_still_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: dict[str, Any]
) -> None:
    async with serve() as site:
        async with opened(tmp_path, site) as world:
            _lie_about_the_token(monkeypatch, lie)
            assert "is connected" in (await world.connect()).text
        async with opened(tmp_path, site) as world:
            assert (await world.keeper.connections.list(OPERATOR))[0]["state"] == "connected"


@pytest.mark.parametrize("token", ["a b", "a\r\nx-evil: 1", "\u00e9", "a\x00"])
async def test_a_token_that_no_header_can_carry_is_refused_at_the_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    async with serve() as site, opened(tmp_path, site) as world:
        _, turn = await world.parked("act")
        browser = await world.signed_in()
        back = await world.consent(await world.to_authority(browser))
        _lie_about_the_token(monkeypatch, {"access_token": token})
        await finished_badly(world, await browser.get(back), turn)


def _lie_about_the_token(monkeypatch: pytest.MonkeyPatch, lie: dict[str, Any]) -> None:
    """What the token endpoint answers from now on, changed on its way."""
    from turnkeeper.tool.mcp import oauth

    honest = oauth._json

    def changed(data: bytes) -> dict[str, Any]:
        answer = honest(data)
        return {**answer, **lie} if "access_token" in answer else answer

    monkeypatch.setattr(oauth, "_json", changed)


async def test_room_for_a_connection_is_never_made_by_ending_a_running_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnkeeper.tool.mcp.servers.CONNECTIONS_MAX", 1)
    ann = Principal("ann", USER_SCOPES)
    async with serve() as site, opened(tmp_path, site) as world:
        await world.connect()
        await world.connect("ann")
        site.hang = asyncio.Event()
        reached = asyncio.Event()
        site.during = reached.set
        _, mine = await world.say("act")
        await reached.wait()
        _, hers = await world.say("look", who=ann)
        await world.state(hers, "settled")
        site.hang.set()
        await world.state(mine, "settled")
        (row,) = await world.keeper.store.tool_calls(mine)
        assert row.disposition is Disposition.DONE
