"""Soak: 64 conversations at once against a real server that is killed at random, judged by the same checker.

Goal: nothing lost, doubled, reordered or stuck, and no effect that the ledger does not know. Method: one
producer per conversation sends as fast as its queue allows, now and then steering, stopping or repeating an
old key; a killer sends SIGKILL every few seconds and starts the server again. The seed is printed; the same
seed kills at the same seconds.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path

import httpx2
import pytest

from tests.crash.workload import Producer, counted_lines, faults
from tests.surroundings import IN_CI
from turnkeeper.testing.server_process import Api, ServerProcess
from turnkeeper.testing.until import Pace

pytestmark = [pytest.mark.process, pytest.mark.alone]

CONVERSATIONS = 64
SECONDS = 30 if IN_CI else 60
"""CI has minutes for everything; a desk that runs all tests soaks for one."""
LONG_SECONDS = 600
KILL_SECONDS = (2, 8)
PROGRAMS = Path(__file__).parents[1] / "acceptance" / "programs"


def write_agents(folder: Path) -> tuple[Path, Path]:
    """An agent that counts once, thinks a moment, and answers `ok <text>`."""
    effects = folder / "effects"
    note = {"name": "note", "arguments": {"path": str(effects)}}
    pause = {"name": "slow", "arguments": {"seconds": 0.02}}
    script = folder / "script.json"
    script.write_text(json.dumps({"rules": [{"match": "", "rounds": [{"tool_calls": [note, pause]}]}]}))
    agents = folder / "agents.toml"
    agents.write_text(
        f'[agents.demo]\nrunner = "model"\nprovider = "scripted"\nscript = {json.dumps(str(script))}\n'
        'tools = ["case_tools:note", "slow"]\n'
    )
    return agents, effects


class Soak:
    """The world of one soak."""

    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        self.random = random.Random(seed)
        self.seconds = seconds
        agents, self.effects = write_agents(folder)
        self.server = ServerProcess(
            folder / "data",
            agents=agents,
            settings={
                "lease_seconds": 3,
                "sweep_seconds": 1,
                "stop_grace_seconds": 1,
                "rescues_max": 100_000,
            },
            environment={"PYTHONPATH": str(PROGRAMS)},
        )
        self.kills = 0
        self.over = asyncio.Event()

    async def produce(self, producer: Producer, seed: int) -> None:
        """Send until the time is over; hold back while the queue is long."""
        dice = random.Random(seed)
        number = 0
        while not self.over.is_set():
            number += 1
            mode = "steer" if dice.random() < 0.1 else "queue"
            turn_id = await producer.send(f"{producer.name} says {number}", mode=mode)
            if dice.random() < 0.05:
                await self._repeat(producer)
            if dice.random() < 0.05:
                await self._stop(producer, turn_id)
            if number % 8 == 0:
                await self._wait_for(producer, turn_id)

    async def _repeat(self, producer: Producer) -> None:
        """A key that was answered before gives that answer again."""
        old = producer.sent[0]
        try:
            answer = await producer.api.submit(producer.conversation_id, old.text, old.key, mode="queue")
        except httpx2.TransportError:
            return
        if answer.status_code == 202:
            assert answer.json()["turn_id"] == old.turn_id

    async def _stop(self, producer: Producer, turn_id: str) -> None:
        """Stop a turn, whatever it is doing, and let the queue go on."""
        try:
            answer = await producer.api.post(f"/v1/turns/{turn_id}/cancel", {"queue": "continue"})
        except httpx2.TransportError:
            return
        assert answer.status_code in (200, 409, 503), answer.text

    async def _wait_for(self, producer: Producer, turn_id: str) -> None:
        async def ended() -> bool:
            try:
                turn = await producer.api.turn(turn_id)
            except httpx2.TransportError:
                return False
            except httpx2.HTTPStatusError as error:
                if error.response.status_code == 503:  # it starts, and says so
                    return False
                raise
            return turn["state"] in ("settled", "failed", "cancelled")

        from turnkeeper.testing.until import until

        await until(ended, f"the end of {turn_id} of {producer.name}", seconds=90)

    async def kill_at_random(self) -> None:
        """SIGKILL after a few seconds, again and again; started again at once."""
        pace = Pace(1.0)
        while pace.now < self.seconds:
            await pace.at(pace.now + self.random.uniform(*KILL_SECONDS))
            self.server.kill()
            self.kills += 1
            await self.server.start()
        self.over.set()

    async def run(self) -> list[str]:
        """The whole soak; every fault that was found."""
        async with self.server:
            api = Api(self.server.url, self.server.token(), timeout_seconds=60)
            producers = [Producer(api, await api.create(), f"p{n}") for n in range(CONVERSATIONS)]
            loads = [asyncio.ensure_future(self.produce(each, n)) for n, each in enumerate(producers)]
            await self.kill_at_random()
            await asyncio.gather(*loads)
            for each in producers:
                await api.drained(each.conversation_id, seconds=120)
            counted = counted_lines(self.effects)
            found, known = [], 0
            for each in producers:
                events = await api.events(each.conversation_id)
                keys = {e["body"]["idempotency_key"] for e in events if e["kind"] == "ToolIntended"}
                own = {key: times for key, times in counted.items() if key in keys}
                known += len(own)
                found += await faults(api, each, tool="note", counted=own, argument=None)
            if known != len(counted):
                found.append(f"{len(counted) - known} effects that no ledger knows")
            turns = sum(len(each.sent) for each in producers)
            print(
                f"{turns} turns in {CONVERSATIONS} conversations, {self.kills} kills, {len(counted)} effects"
            )
            await api.close()
            return found


@pytest.mark.timeout(SECONDS + 300)
async def test_64_conversations_and_random_kills(tmp_path: Path) -> None:
    seed = int(time.time())
    print(f"seed {seed}")
    soak = Soak(tmp_path, SECONDS, seed)
    assert await soak.run() == []
    assert soak.kills >= SECONDS // 12  # a start takes its time too


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 900)
async def test_64_conversations_and_random_kills_for_ten_minutes(tmp_path: Path) -> None:
    seed = int(time.time())
    print(f"seed {seed}")
    assert await Soak(tmp_path, LONG_SECONDS, seed).run() == []
