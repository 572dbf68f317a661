"""Crash sweep over a turn that waits for a person: killed with SIGKILL at a commit, also at those of the decision.

Goal: wherever it dies on the way from the message to the answer, the approved call and the call that needed a
sign-in each ran once (or are said to be unknown, and not repeated), and every promise holds. Method: a person
who sends, approves, signs in at a real MCP server with a real OAuth flow, and tries again when nobody answers;
a server that dies at the n-th commit, before or after it, and is started again. `make test-long` takes every n.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.crash.workload import Producer, answers_missing, call, counted_lines
from tests.mcp.site import Site, serve
from turnkeeper.testing.promises import broken_promises, effects_broken
from turnkeeper.testing.server_process import Api, ServerProcess
from turnkeeper.testing.until import until

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

SETTINGS = {
    "lease_seconds": 2,
    "sweep_seconds": 0.3,
    "stop_grace_seconds": 1,
    "shutdown_grace_seconds": 1,
    "private_addresses_allowed": json.dumps(["127.0.0.1"]),
}
COMMITS_MAX = 80
"""More commits than the way of one turn has."""
SAMPLED = [("store.before_commit", 14), ("store.after_commit", 20)]
"""What the short run takes: the parking, the decisions, the calls that they let go."""


class Person:
    """Somebody who wants an answer, and does what is asked of them until it is there."""

    def __init__(self, server: ServerProcess, api: Api) -> None:
        self.server = server
        self.api = api
        self.did: Counter[str] = Counter()

    async def see_through(self, turn_id: str) -> dict[str, Any]:
        """The turn once it has ended. Whatever is refused because the server is away is done again."""

        async def look() -> Any:
            try:
                turn = await self.api.turn(turn_id)
                if turn["state"] in ("settled", "failed", "cancelled"):
                    return turn
                for ask in (await self.api.get("/v1/approvals"))["approvals"]:
                    await self._answer(ask)
            except httpx2.TransportError:
                return None
            except httpx2.HTTPStatusError as error:
                if error.response.status_code != 503:  # 503: it starts
                    raise
            return None

        found: dict[str, Any] = await until(look, f"the end of {turn_id}", seconds=120)
        return found

    async def _answer(self, ask: dict[str, Any]) -> None:
        if ask["kind"] == "auth":
            await self._sign_in(ask["connect"])
            return
        assert ask["kind"] == "approval", ask
        told = await self.api.post(f"/v1/approvals/{ask['approval_id']}", {"decision": "approve"})
        assert told.status_code in (200, 404, 409, 503), told.text
        self.did["approve"] += told.status_code == 200

    async def _sign_in(self, connect: str) -> None:
        """Go the way of a browser: to the authority, and back."""
        async with (
            httpx2.AsyncClient(
                base_url=self.server.url, headers={"authorization": f"Bearer {self.server.token()}"}
            ) as browser,
            httpx2.AsyncClient() as out,
        ):
            sent = await browser.get(connect)
            if sent.status_code != 303:
                return
            back = await out.get(sent.headers["location"])
            answer = await browser.get(back.headers["location"])
            self.did["connect"] += answer.status_code == 200


class Waiting:
    """One data folder and one site, many turns that wait, many crashes."""

    def __init__(self, folder: Path, site: Site) -> None:
        self.site = site
        self.effects = folder / "effects"
        texts = [f"w{n}" for n in range(2 * COMMITS_MAX + 2)]
        rules = [
            {
                "match": rf"\A{text}\Z",
                "rounds": [
                    {
                        "tool_calls": [
                            call("append_file", path=str(self.effects), text=f"{text}\n"),
                            call("jira__act", what=text),
                            call("echo", text=text),
                        ]
                    },
                    {"text": f"ok {text}"},
                ],
            }
            for text in texts
        ]
        script = folder / "script.json"
        script.write_text(json.dumps({"rules": rules}))
        agents = folder / "agents.toml"
        agents.write_text(
            f"[agents.demo]\nscript = {json.dumps(str(script))}\n"
            'tools = ["append_file", "echo", "mcp:jira"]\npolicies = { ask = ["append_file"] }\n'
            f'[mcp.jira]\nurl = "{site.mcp_url}"\n'
        )
        self.server = ServerProcess(folder / "data", agents=agents, settings=SETTINGS)
        self.count = 0

    async def crash_at(self, name: str, nth: int) -> bool:
        """One turn with a crash on its way. Returns whether there was one."""
        text = f"w{self.count}"
        self.count += 1
        self.site.authority.forget()
        server = self.server
        async with Api(server.url, server.token()) as api:
            if server.alive:
                server.kill()
            await server.start(failpoint=f"{name}:{nth}:kill", wait=False)
            going = asyncio.ensure_future(self._go(api, text))
            died = asyncio.ensure_future(server.ended(seconds=600))
            await asyncio.wait({going, died}, return_when=asyncio.FIRST_COMPLETED)
            crashed = died.done() and not going.done()
            if crashed:
                assert died.result() == -9, server.last_words()
                await server.start()
            died.cancel()
            producer, turn, did = await going
            if not server.alive:
                await server.start()
            await api.drained(producer.conversation_id)
            events = await api.events(producer.conversation_id)
            found = [str(broken) for broken in broken_promises(events, sent=producer.sent)]
            lines = {f"{text}\n": counted_lines(self.effects).get(text, 0)}
            found += map(str, effects_broken(events, lines, tool="append_file", argument="text"))
            acted = {text: self.site.acted.count(f"act {text}")}
            found += map(str, effects_broken(events, acted, tool="jira__act", argument="what"))
            found += answers_missing(events, producer.sent)
            assert found == [], f"{name} {nth}:\n" + "\n".join(found) + server.last_words()
            assert turn["state"] == "settled", turn
            assert {*lines.values(), *acted.values()} <= {0, 1}
            if not crashed:
                assert (lines, acted) == ({f"{text}\n": 1}, {text: 1})
                assert did == {"approve": 1, "connect": 1}, "nothing is asked twice"
        return crashed

    async def _go(self, api: Api, text: str) -> tuple[Producer, dict[str, Any], Counter[str]]:
        async def created() -> str | None:
            try:
                return await api.create()
            except (httpx2.TransportError, httpx2.HTTPStatusError):
                return None

        producer = Producer(api, await until(created, "a conversation", seconds=120), f"p{self.count}")
        person = Person(self.server, api)
        turn = await person.see_through(await producer.send(text))
        return producer, turn, person.did


@asynccontextmanager
async def waiting(folder: Path) -> AsyncIterator[Waiting]:
    async with serve() as site:
        made = Waiting(folder, site)
        try:
            yield made
        finally:
            if made.server.alive:
                made.server.kill()


async def test_a_kill_while_a_turn_waits_for_a_person_breaks_no_promise(tmp_path: Path) -> None:
    async with waiting(tmp_path) as made:
        deaths = [await made.crash_at(name, nth) for name, nth in SAMPLED]
        assert all(deaths), "the way of the turn is shorter than thought"


@pytest.mark.long
@pytest.mark.parametrize("name", ["store.before_commit", "store.after_commit"])
async def test_a_kill_at_any_commit_of_a_turn_that_waits_breaks_no_promise(tmp_path: Path, name: str) -> None:
    async with waiting(tmp_path) as made:
        for nth in range(1, COMMITS_MAX):
            if not await made.crash_at(name, nth):
                break
        assert nth > 10, "the way of the turn is shorter than thought"
