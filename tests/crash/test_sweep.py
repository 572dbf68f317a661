"""Crash sweep: a real server, killed with SIGKILL at every failpoint in turn, at its first, second, third visit.

Goal: whatever the point, after a restart every promise holds: what was answered is there once and in order,
it is answered once, and `append_file` wrote what the ledger says. Method: a producer sends three messages
(and sends again what was not answered); the armed failpoint kills the server on the way; it is started again;
the journal is read over HTTP and judged, and so is the file. `make test-long` goes on until a point is not
reached any more.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.crash.workload import Producer, counted_lines, faults, write_agents
from turnkeeper import failpoint
from turnkeeper.testing.server_process import Api, ServerProcess
from turnkeeper.testing.until import until

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

MESSAGES = 3
VISITS = 3
VISITS_LONG = 60
SWEPT = [name for name in failpoint.NAMES if not name.startswith("retained.")]
"""A CLI in a pane has a load of its own: its points are swept in tests/retained/."""
AT_RESCUE = {"dispatch.before_rescue_commit", "dispatch.after_rescue_commit"}
"""Visited only by a server that finds a turn of a dead one."""

QUICK = {"lease_seconds": 2, "sweep_seconds": 0.5, "stop_grace_seconds": 1, "shutdown_grace_seconds": 1}


class Sweep:
    """One data folder, one server, many crashes."""

    def __init__(self, folder: Path) -> None:
        texts = [f"w{visit}x{n}" for visit in range(VISITS_LONG + 1) for n in range(MESSAGES)]
        agents, self.effects = write_agents(folder, texts)
        self.server = ServerProcess(folder / "data", agents=agents, settings=QUICK)

    async def crash_at(self, name: str, visit: int) -> bool:
        """Run the load with the failpoint armed. Returns whether it killed the server."""
        server = self.server
        async with Api(server.url, server.token()) as api:
            conversation_id = await api.create()
            producer = Producer(api, conversation_id, f"{name}-{visit}")
            texts = [f"w{visit}x{n}" for n in range(MESSAGES)]
            if name in AT_RESCUE:
                await self._leave_a_turn_running(api, producer, texts)
            else:
                server.kill()
            armed = f"{name}:{visit}:kill"
            await server.start(failpoint=armed, wait=False)
            sending = asyncio.ensure_future(self._send_all(producer, texts))
            died = await self._dies_or_finishes(api, sending, conversation_id)
            if died:
                await server.start()
            await sending
            try:
                await api.drained(conversation_id)
            except httpx2.TransportError:
                # The point after the last commit: everything had ended when it was looked at, and then it died.
                assert await server.ended() == -9, server.last_words()
                died = True
                await server.start()
                await api.drained(conversation_id)
            counted = {k: v for k, v in counted_lines(self.effects).items() if k in texts}
            found = await faults(api, producer, counted=by_argument(counted), argument="text")
            assert found == [], f"{name} visit {visit}:\n" + "\n".join(found) + server.last_words()
            await self._all_answered(api, producer)
        return died

    async def _leave_a_turn_running(self, api: Api, producer: Producer, texts: list[str]) -> None:
        """Kill the server while the first message's turn holds its lane."""
        self.server.kill()
        await self.server.start(failpoint="agent.after_intent_commit:1:kill")
        with_death = asyncio.ensure_future(producer.send(texts.pop(0)))
        await self.server.ended()
        await self.server.start(wait=False)
        self.server.kill()
        with_death.cancel()
        await asyncio.gather(with_death, return_exceptions=True)

    async def _send_all(self, producer: Producer, texts: list[str]) -> None:
        for text in texts:
            await producer.send(text)

    async def _dies_or_finishes(self, api: Api, sending: asyncio.Task[None], conversation_id: str) -> bool:
        async def over() -> bool:
            if not self.server.alive:
                return True
            if not sending.done():
                return False
            try:
                seen = await api.snapshot(conversation_id)
            except httpx2.TransportError:
                return not self.server.alive
            return seen["running"] is None and not seen["queue"]

        await until(over, "the crash, or the end of the load", seconds=120)
        if self.server.alive:
            return False
        assert await self.server.ended() == -9, self.server.last_words()
        return True

    async def _all_answered(self, api: Api, producer: Producer) -> None:
        """Nothing was lost on the way to an end: every message is settled."""
        for sent in producer.sent:
            if sent.turn_id is not None:
                turn = await api.turn(sent.turn_id)
                assert turn["state"] == "settled", turn


def by_argument(counted: dict[str, int]) -> dict[str, int]:
    """Lines as the tool's argument spells them."""
    return {f"{line}\n": times for line, times in counted.items()}


@pytest.fixture
async def sweep(tmp_path: Path) -> AsyncIterator[Sweep]:
    made = Sweep(tmp_path)
    async with made.server:
        yield made


@pytest.mark.parametrize("name", SWEPT)
async def test_a_kill_at_a_failpoint_breaks_no_promise(sweep: Sweep, name: str) -> None:
    deaths = [await sweep.crash_at(name, visit) for visit in range(1, VISITS + 1)]
    assert deaths[0], f"the load never reaches {name}"


@pytest.mark.long
@pytest.mark.parametrize("name", SWEPT)
async def test_a_kill_at_any_visit_of_a_failpoint_breaks_no_promise(sweep: Sweep, name: str) -> None:
    for visit in itertools.count(1):
        if not await sweep.crash_at(name, visit) or visit == VISITS_LONG:
            break
    assert visit > 1, f"the load never reaches {name}"
