"""What waits for a person, at the command line: asked in the chat, listed, decided once, by a person or a script."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_verbs import Terminal, Verbs, terminals
from turnkeeper.testing.server_process import ServerProcess

pytestmark = pytest.mark.process

__all__ = ["terminals"]

AGENTS = """
[agents.careful]
script = {script}
tools = ["append_file", "mcp:jira"]
policies = {{ ask = ["append_file"] }}

[mcp.jira]
url = "http://127.0.0.1:1/mcp"
"""


class Careful:
    """A server whose agent asks before it writes, and what it wrote."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "effects"
        call = {"name": "append_file", "arguments": {"path": str(self.file), "text": "x"}}
        rule = {"match": "apply", "rounds": [{"tool_calls": [call]}, {"text": "applied or not"}]}
        script = folder / "script.json"
        script.write_text(json.dumps({"rules": [rule]}))
        agents = folder / "agents.toml"
        agents.write_text(AGENTS.format(script=json.dumps(str(script))))
        self.server = ServerProcess(folder / "data", agents=agents, settings={})
        self.verbs = Verbs(self.server)

    @property
    def wrote(self) -> str:
        return self.file.read_text() if self.file.exists() else ""


@pytest.fixture(scope="module")
def careful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Careful]:
    made = Careful(tmp_path_factory.mktemp("careful"))
    asyncio.run(made.server.start())
    yield made
    made.server.kill()


def test_a_script_lists_what_waits_and_decides_it_once(careful: Careful) -> None:
    verbs = careful.verbs
    sent = verbs.json("send", "new", "apply", "--agent", "careful", "--wait")
    assert sent["state"] == "parked"
    (asked,) = verbs.json("asks")["approvals"]
    assert (asked["name"], asked["turn_id"]) == ("append_file", sent["turn_id"])
    shown = verbs.run("asks").stdout
    assert "Run append_file" in shown
    assert f"turnkeeper decide {asked['approval_id']} approve|deny" in shown
    status = verbs.run("status").stdout
    assert re.search(r"waits for owner: approval of append_file until 20\d\d-", status), status
    before = careful.wrote
    assert verbs.run("decide", asked["approval_id"], "approve").stdout == "approve\n"
    assert "already approved" in verbs.refused("decide", asked["approval_id"], "deny")
    for wrong in ("p_forged.1.0", "t_unknown"):
        assert "no such" in verbs.refused("decide", wrong, "approve").lower()
    done = verbs.json("send", sent["conversation_id"], "thanks", "--wait")
    assert done["state"] == "settled"
    assert careful.wrote == before + "x"
    assert verbs.run("asks").stdout == "nothing waits for you\n"


def test_the_chat_shows_the_question_and_how_to_answer_it(careful: Careful) -> None:
    done = careful.verbs.run("chat", "--agent", "careful", given="apply\n")
    (question,) = [line for line in done.stdout.splitlines() if line.startswith("?")]
    assert re.fullmatch(r"\? 1\. Run append_file \{.*\}\? \(until .* UTC\) · /yes 1 or /no 1", question)
    (conversation_id,) = re.findall(r"c_\w+", done.stdout)
    again = careful.verbs.run("chat", conversation_id, given="").stdout
    assert question in again.splitlines(), "who comes later sees it too"
    (asked,) = careful.verbs.json("asks")["approvals"]
    careful.verbs.run("decide", asked["approval_id"], "deny")


@pytest.mark.tmux
async def test_the_chat_on_a_terminal_takes_the_answer(
    careful: Careful, terminals: Callable[..., Terminal]
) -> None:
    before = careful.wrote
    terminal = terminals("chat", "--agent", "careful", *careful.verbs.data)
    await terminal.shows("idle")
    terminal.press("apply", "Enter")
    await terminal.shows("/yes 1 or /no 1")
    await terminal.shows("1 wait for you: /asks")
    terminal.press("/yes 7", "Enter")
    await terminal.shows("there is no question 7")
    assert careful.wrote == before
    terminal.press("/no 1", "Enter")
    await terminal.shows("agent: applied or not")
    assert careful.wrote == before
    terminal.press("apply", "Enter")
    await terminal.shows("/yes 2 or /no 2")
    terminal.press("/yes 1", "Enter")
    await terminal.shows("there is no question 1")
    terminal.press("/yes", "Enter")
    await terminal.shows("append_file")
    await terminal.shows("idle")
    terminal.press("/connect jira", "Enter")
    await terminal.shows("next=/connect/jira")
    terminal.press("/quit", "Enter")
    await terminal.shows("ended with 0")
    assert careful.wrote == before + "x"


def test_connections_are_listed_linked_and_ended(careful: Careful) -> None:
    verbs = careful.verbs
    assert re.match(r"jira +not_connected +http", verbs.run("connections").stdout)
    assert re.fullmatch(
        r"http://127\.0\.0\.1:\d+/\?token=\S+&next=/connect/jira\n", verbs.run("connect", "jira").stdout
    )
    assert verbs.json("connect", "jira", "--refuse") == {"server": "jira", "outcome": "refused", "turns": 0}
    assert verbs.json("disconnect", "jira")["state"] == "not_connected"
    assert "no such server of tools" in verbs.refused("connect", "nowhere").lower()
    assert verbs.json("token", "rotate-key") == {"keys": 2}
