"""The example agents run from their real packages, against the loopback model server over real HTTP."""

from __future__ import annotations

import asyncio
import importlib
import time
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.agent.definition import AgentDefinition
from turnkeeper.agent.python import PythonRunner
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.turns import Disposition
from turnkeeper.port.runner import Answered, FailedWith
from turnkeeper.settings import Settings
from turnkeeper.testing.clock import CountedIds
from turnkeeper.testing.model_server import ModelServer
from turnkeeper.testing.turn_port import MemoryTurn
from turnkeeper.tool import tool, tool_of

EXAMPLES = Path(__file__).parents[2] / "examples"

AGENTS = ("pydantic_ai_agent", "langgraph_agent", "openai_agents_agent")

WRITE: dict[str, Any] = {"tool_calls": [{"name": "write", "arguments": {"line": "a"}}]}


class RealClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)


class World:
    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch, *rounds: dict[str, Any]) -> None:
        monkeypatch.syspath_prepend(str(EXAMPLES))
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        monkeypatch.setenv("MODEL_NAME", "loopback")
        self.monkeypatch = monkeypatch
        self.server = ModelServer({"rules": [{"match": "", "rounds": list(rounds)}]})
        self.ran: list[str] = []
        self.name = name

        @tool
        async def write(line: str) -> str:
            """Write a line."""
            self.ran.append(line)
            return f"wrote {line}"

        self.tools = [tool_of(write)]

    async def carry_out(self) -> tuple[MemoryTurn, Any]:
        module = importlib.import_module(self.name)
        definition = AgentDefinition(name=self.name, runner="python", function=f"{self.name}:agent")
        runner = PythonRunner(definition, module.agent, self.tools, Settings())
        turn = MemoryTurn(RealClock(), CountedIds(), text="write a line")
        async with self.server as server:
            self.monkeypatch.setenv("MODEL_URL", f"{server.url}/v1")
            outcome = await turn.carry_out(runner)
        assert [v for seen in self.server.requests for v in seen.violations] == []
        return turn, outcome


@pytest.fixture(params=AGENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_a_turn_with_a_tool(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(name, monkeypatch, WRITE, {"text": "It is written, as you asked."})
    turn, outcome = asyncio.run(world.carry_out())
    assert isinstance(outcome, Answered)
    assert world.ran == ["a"]
    assert [m.role for m in turn.history()] == ["user", "assistant", "tool", "assistant"]
    assert turn.history()[-1].text == "It is written, as you asked."
    assert "".join(d["text"] for kind, d in turn.deltas if kind == "text") == turn.history()[-1].text
    used = [b.usage for b in turn.bodies(ev.RoundFinished) if b.usage is not None]
    assert used
    assert used[-1].input_tokens > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_a_failure_after_the_tool_resumes_and_the_tool_does_not_run_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(name, monkeypatch, WRITE, {"error": {"status": 529}}, {"text": "Written."})
    turn, outcome = asyncio.run(world.carry_out())
    assert isinstance(outcome, Answered)
    assert world.ran == ["a"]
    assert len(world.server.requests) == 3
    assert len(turn.bodies(ev.AutoResumed)) == 1
    last = world.server.requests[-1].json["messages"]
    assert "wrote a" in str(last), "the next attempt was given what was done"
    assert turn.history()[-1].text == "Written."
    assert [row.disposition for row in asyncio.run(_ledger(turn))] == [Disposition.DONE]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_a_wrong_key_is_one_failure_with_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(name, monkeypatch, {"error": {"status": 401}})
    turn, outcome = asyncio.run(world.carry_out())
    assert isinstance(outcome, FailedWith)
    assert outcome.failure.kind == "credentials"
    assert len(world.server.requests) == 1
    assert not turn.bodies(ev.AutoResumed)


async def _ledger(turn: MemoryTurn) -> Any:
    return await turn.ledger()
