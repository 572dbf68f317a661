"""Effects and real deaths: tools that act side by side, a tool that kills its own server, a tool that can tell.

Each test runs a real server; its tools write lines into a file, which no crash takes back. After the restart
the file is compared with the ledger.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from turnkeeper.failpoint import NAMES
from turnkeeper.testing.promises import broken_promises
from turnkeeper.testing.server_process import Api, ServerProcess
from turnkeeper.testing.until import until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

TOOLS = """
import os, signal
from pathlib import Path
from turnkeeper.tool import tool

HERE = Path(__file__).parent
DONE = HERE / "done"

def note(line):
    with (HERE / "effects").open("a") as file:
        file.write(line + "\\n")

def die_once(name):
    mark = HERE / f"died_in_{name}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

@tool
def ssh_restart(host: str) -> str:
    "Restart a host (this one)."
    note(f"restart {host}")
    os.kill(os.getpid(), signal.SIGKILL)
    return "restarted"

@tool
async def act(name: str) -> str:
    "Act."
    note(f"act {name}")
    return f"acted {name}"

def happened(key, arguments):
    return f"checked {arguments['name']}" in (HERE / "effects").read_text() if (HERE / "effects").exists() else False

@tool(did_it_happen=happened)
async def checked(name: str) -> str:
    "Act, and be able to tell."
    if name == "before":
        die_once(name)
    note(f"checked {name}")
    if name == "after":
        die_once(name)
    return f"acted {name}"

@tool(effect="idempotent")
async def put(name: str, *, idempotency_key: str) -> str:
    "Put."
    note(f"put {name} {idempotency_key}")
    return "put"
"""


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


RULES = [
    {"match": "^reboot", "rounds": [{"tool_calls": [call("ssh_restart", host="a")]}, {"text": "It may be down."}]},
    {
        "match": "^many",
        "rounds": [
            {"tool_calls": [call("act", name="1"), call("act", name="2"), call("put", name="3"), call("act", name="4")]},
            {"tool_calls": [call("act", name="5")]},
            {"text": "All done."},
        ],
    },
    {"match": "^before", "rounds": [{"tool_calls": [call("checked", name="before")]}, {"text": "Done."}]},
    {"match": "^after", "rounds": [{"tool_calls": [call("checked", name="after")]}, {"text": "Done."}]},
]  # fmt: skip


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "killing_tools.py").write_text(TOOLS)
        (folder / "script.json").write_text(json.dumps({"rules": RULES}))
        names = ["ssh_restart", "act", "checked", "put"]
        tools = json.dumps([f"killing_tools:{name}" for name in names])
        (folder / "agents.toml").write_text(f'[agents.demo]\nscript = "script.json"\ntools = {tools}\n')
        self.server = ServerProcess(folder / "data", agents=folder / "agents.toml")

    def effects(self) -> Counter[str]:
        path = self.folder / "effects"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(" ".join(line.split()[:2]) for line in lines)

    async def survive(self, text: str, *, failpoint: str | None = None) -> tuple[Any, list[Any], bool]:
        """Send `text`, start the server again if it dies; the turn, the journal, and whether it died."""
        server = self.server
        await server.start(failpoint=failpoint)
        async with Api(server.url, server.token()) as api:
            conversation_id = await api.create()
            with contextlib.suppress(httpx2.TransportError):  # it may die before it answers
                await api.submit(conversation_id, text, "k1")
            await _end_or_death(api, server, conversation_id)
            died = not server.alive
            if died:
                assert await server.ended() == -9
                await server.start()
            answer = await api.submit(conversation_id, text, "k1")
            turn = await api.settled(answer.json()["turn_id"])
            return turn, await api.events(conversation_id), died


async def _end_or_death(api: Api, server: ServerProcess, conversation_id: str) -> None:
    async def over() -> bool:
        if not server.alive:
            return True
        try:
            turns = (await api.get(f"/v1/conversations/{conversation_id}/turns"))["turns"]
        except httpx2.HTTPError:
            return False
        return bool(turns) and turns[0]["state"] in ("settled", "failed")

    await until(over, "the end of the turn, or of the server", seconds=60)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    try:
        yield made
    finally:
        if made.server.alive:
            made.server.kill()


def ledger(events: list[Any]) -> dict[str, str]:
    """Tool and first argument -> what the journal says became of the call."""
    names = {
        e["body"]["call_id"]: f"{e['body']['name']} {next(iter(e['body']['arguments'].values()))}"
        for e in events
        if e["kind"] == "ToolIntended"
    }
    return {
        names[e["body"]["call_id"]]: e["body"]["disposition"] for e in events if e["kind"] == "ToolReturned"
    }


async def test_a_tool_that_restarts_the_host_runs_once_and_its_outcome_is_unknown(world: World) -> None:
    """Public delivery case BD024: the resumed turn ran the restart again, for ever."""
    turn, events, died = await world.survive("reboot the box")
    assert died
    assert world.server.starts == 2
    assert turn["state"] == "settled"
    assert world.effects() == {"restart a": 1}
    assert ledger(events) == {"ssh_restart a": "unknown"}
    assert broken_promises(events) == ()
    results = [
        part
        for e in events
        if e["kind"] == "MessageAppended"
        for part in e["body"]["message"]["parts"]
        if part["type"] == "tool_result"
    ]
    assert "inspect" in results[0]["content"].lower()


@pytest.mark.parametrize(("text", "runs"), [("before", 1), ("after", 1)])
async def test_a_tool_that_can_tell_is_asked_and_acts_exactly_once(
    world: World, text: str, runs: int
) -> None:
    turn, events, died = await world.survive(text)
    assert died
    assert turn["state"] == "settled"
    assert world.effects() == {f"checked {text}": runs}
    assert ledger(events)[f"checked {text}"] == "done"
    assert broken_promises(events) == ()


AGENT_POINTS = [name for name in NAMES if name.startswith("agent.")]
VISITS_LONG = 6


@pytest.mark.parametrize("name", AGENT_POINTS)
async def test_a_kill_around_parallel_tools_repeats_nothing(world: World, name: str) -> None:
    assert await kill_at(world, name, 1), f"the load never reaches {name}"


@pytest.mark.long
@pytest.mark.parametrize("name", AGENT_POINTS)
async def test_a_kill_at_later_visits_repeats_nothing_either(world: World, name: str) -> None:
    for visit in range(2, VISITS_LONG + 1):
        await kill_at(world, name, visit)


async def kill_at(world: World, name: str, visit: int) -> bool:
    """Kill the server at that visit, start it again, and judge; whether it died."""
    before = world.effects()
    turn, events, died = await world.survive("many things", failpoint=f"{name}:{visit}:kill")
    world.server.kill()
    assert turn["state"] == "settled", turn
    assert broken_promises(events) == ()
    said = ledger(events)
    acted = world.effects() - before
    for number in ("1", "2", "4", "5"):
        times, disposition = acted[f"act {number}"], said[f"act {number}"]
        assert (times, disposition) == (1, "done") or (times <= 1 and disposition == "unknown")
    assert said["put 3"] == "done"
    keys = {
        event["body"]["idempotency_key"]
        for event in events
        if event["kind"] == "ToolIntended" and event["body"]["name"] == "put"
    }
    lines = (world.folder / "effects").read_text().splitlines()
    assert {line.split()[2] for line in lines if line.startswith("put")} >= keys
    assert len(keys) == 1, "every repeat of the same call has the same key"
    return died
