"""The tutorial does what it says: its script, its agents file, its kill, its curl commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surroundings import CHECKOUT
from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.events import ToolIntended
from turnkeeper.conversation.parts import Text
from turnkeeper.testing.promises import broken_promises
from turnkeeper.testing.server_process import Api, ServerProcess
from turnkeeper.testing.until import until

pytestmark = pytest.mark.process

TUTORIAL = (CHECKOUT / "docs" / "tutorial.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The tutorial's code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", TUTORIAL, re.DOTALL)


async def test_a_kill_in_mid_answer_ends_as_the_tutorial_says(tmp_path: Path) -> None:
    counted = tmp_path / "count.txt"
    (script,) = blocks("json")
    agents = next(block for block in blocks("toml") if "demo.json" in block)
    (tmp_path / "demo.json").write_text(script.replace("/tmp/count.txt", str(counted)))
    (tmp_path / "agents.toml").write_text(agents)
    server = ServerProcess(tmp_path / "data", agents=tmp_path / "agents.toml")
    async with server, Api(server.url, server.token()) as api:
        conversation = await api.create()
        turn_id = (await api.submit(conversation, "work", "once")).json()["turn_id"]

        async def writing() -> bool:
            running = (await api.snapshot(conversation))["running"]
            return bool(running and running["text"])

        await until(writing, "the beginning of the answer")
        server.kill()
        await server.start()
        assert (await api.settled(turn_id))["state"] == "settled"
        answers = [m for m in await api.messages(conversation) if m["role"] == "assistant"]
        whole = [m for m in answers if m["standing"] == "complete" and m["parts"][0]["type"] == "text"]
        assert [m["parts"][0]["text"] for m in whole] == ["The work is done, and it was done once."]
        assert counted.read_text() == "once\n"
        assert broken_promises(await api.events(conversation)) == ()


@pytest.mark.curl
async def test_the_curl_commands_work_as_they_stand(tmp_path: Path) -> None:
    commands = next(block for block in blocks("sh") if "curl" in block)
    async with ServerProcess(tmp_path / "data") as server:
        script = commands.replace(".venv/bin/turnkeeper", f"{sys.executable} -m turnkeeper")
        script = script.replace("--data data", f"--data {tmp_path / 'data'}").replace(
            "8321", str(server.port)
        )
        script = script.replace("curl -sN", "timeout 5 curl -sN").replace("python3", sys.executable)
        ended = subprocess.run(
            ["bash", "-c", script],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(CHECKOUT / "src")},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert json.loads(ended.stdout.splitlines()[0].partition("}")[0] + "}")["outcome"] == "started", ended
    assert "TurnSettled" in ended.stdout


def write_modules(folder: Path) -> None:
    """The Python files that the tutorial tells to write: each is named in its first line."""
    for name in ("mytools", "myagent"):
        (module,) = (block for block in blocks("python") if block.startswith(f"# {name}.py"))
        (folder / f"{name}.py").write_text(module)


async def test_the_agent_of_ones_own_answers_as_the_tutorial_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_modules(tmp_path)
    agents = tmp_path / "agents.toml"
    agents.write_text(next(block for block in blocks("toml") if "myagent" in block))
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
            name = (await keeper.create_conversation(OPERATOR, "counter")).conversation_id
            turn = await keeper.submit(OPERATOR, name, key="k", parts=[Text("one two three")])
            assert await keeper.answer(OPERATOR, turn.turn_id) == "That was 3 words."
            events = await keeper.store.events(name, limit=100)
            assert [e.body.name for e in events if isinstance(e.body, ToolIntended)] == ["word_count"]
    finally:
        for module in ("mytools", "myagent"):
            sys.modules.pop(module, None)


def test_every_toml_of_the_tutorial_is_a_valid_agents_file(tmp_path: Path) -> None:
    write_modules(tmp_path)
    (tmp_path / "demo.json").write_text(blocks("json")[0])
    for number, block in enumerate(blocks("toml")):
        agents = tmp_path / f"agents{number}.toml"
        agents.write_text(block)
        command = [sys.executable, "-m", "turnkeeper", "config", "check", "--agents", str(agents)]
        ended = subprocess.run(
            [*command, "--data", str(tmp_path / "data")],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{CHECKOUT / 'src'}:{tmp_path}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, block + ended.stdout + ended.stderr
