"""The agents file: what may stand in it, and where each mistake is."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnkeeper.agent.agents_file import load_agent_tools, load_agents, parse_agents, secrets_of
from turnkeeper.agent.plan import CrashPolicy
from turnkeeper.errors import AgentsFileInvalid
from turnkeeper.port.provider import Deadlines

HERE = Path("/etc/turnkeeper/agents.toml")

FULL = """
[agents.helper]
provider = "anthropic"
model = "claude"
api_key_env = "KEY"
base_url = "http://127.0.0.1:1"
instructions = '''
Be brief.
'''
tools = ["os.path:join"]
reasoning = true
context_tokens_max = 100000
options = { max_tokens = 100 }
deadlines = { stall_seconds = 3 }

[agents.helper.policies]
crash = "ask"
ask = ["send"]
parked = "hold"

[agents.helper.fallback]
provider = "openai-chat"
model = "small"
api_key_file = "key.txt"

[agents.helper.prices]
input = 3
output = 15

[agents.own]
runner = "python"
function = "my_agents:run"

[agents.coder]
runner = "retained"
cli = "claude-code"
cwd = "work"

[agents.demo]
script = "demo.json"
tools = ["echo"]
"""


def test_everything_that_may_stand_in_it() -> None:
    found = parse_agents(FULL, path=HERE)
    assert set(found) == {"demo", "helper", "own", "coder"}
    helper = found["helper"]
    assert helper.model.options == {"max_tokens": 100}
    assert helper.deadlines == Deadlines(stall_seconds=3.0)
    assert helper.policies.crash is CrashPolicy.ASK
    assert helper.fallback is not None
    assert helper.fallback.model == "small"
    assert helper.prices is not None
    assert helper.prices.output == 15
    assert not helper.demo_tools
    assert found["own"].function == "my_agents:run"
    assert found["coder"].cwd == "/etc/turnkeeper/work"
    demo = found["demo"]
    assert (demo.model.provider, demo.model.script) == ("scripted", "/etc/turnkeeper/demo.json")
    assert demo.demo_tools
    assert secrets_of(found) == (("KEY", None), (None, "/etc/turnkeeper/key.txt"))


def test_the_first_of_the_file_is_the_first_of_all_and_the_built_in_ones_come_last() -> None:
    """Who opens a new conversation without choosing gets an agent that somebody configured."""
    found = parse_agents('[agents.helper]\nscript = "a.json"\n[agents.aide]\nscript = "b.json"\n', path=HERE)
    assert list(found) == ["helper", "aide", "demo"]


def test_without_a_file_there_is_the_built_in_demo() -> None:
    found = load_agents(None)
    assert set(found) == {"demo"}
    assert [tool.name for tool in load_agent_tools(found["demo"], path=None)] == [
        "append_file",
        "echo",
        "now",
        "slow",
    ]


WRONG = {
    "[agents.a]\nprovider='scripted'\ntools = ['mcp:x']\n": "[agents.a] (line 3): tools: there is no [mcp.x]; there are: none",
    "[agents.a]\nprovider='scripted'\npolicies = { expiry = { x = 0 } }\n": "policies.expiry.x must be more than 0",
    "[mcp.x]\n": "[mcp.x]: it needs either `command",
    "[mcp.x]\nurl = 'ftp://a'\n": "`url` must be an http or https address",
    "[mcp.x]\nurl = 'http://me:secret@a'\n": "must not hold a name or password",
    "[mcp.x]\nurl = 'http://a'\ncommand = ['b']\n": "[mcp.x]: it needs either",
    "[mcp.x]\nurl = 'http://a'\nkeys = 1\n": "there is no setting `keys`; there are: auth",
    "[mcp.x]\nurl = 'http://a'\neffects = { a = 'none' }\n": "invalid enum value 'none'",
    "[mcp.x]\nurl = 'http://a'\nstart_seconds = 0\n": "`start_seconds` must be more than 0",
    "[mcp.'a_b']\nurl = 'http://a'\n": "a server cannot be called 'a_b'",
    "[agents.a\n": "not TOML",
    "[agent.a]\n": "no setting `agent`",
    "agents = 3\n": "`agents`: expected `object`",
    "[agents.a]\nprovider = 3\n": "[agents.a] (line 2): `provider`: expected `str | null`, got `int`",
    "\n[agents.a]\nprovidr = 'x'\n": "[agents.a] (line 3): there is no setting `providr`; there are: api_key_env",
    "[agents.a]\nrunner = 'magic'\n": "[agents.a] (line 2): `runner`: invalid enum value 'magic'",
    "[agents.a]\n": 'needs `provider`; add provider = "openai-chat"',
    "[agents.a]\nprovider = 'anthropic'\n": "needs `model`",
    "[agents.a]\nrunner = 'python'\n": "needs `function`",
    "[agents.a]\nrunner = 'python'\nfunction = 'x'\n": "[agents.a] (line 3): 'x' is not of the form",
    "[agents.a]\nrunner = 'retained'\n": "needs `cli`",
    "[agents.'a b']\nprovider = 'scripted'\n": "cannot be called 'a b'",
    "[agents.a]\nprovider='scripted'\ntools = [1]\n": "[agents.a] (line 3): `tools[0]`: expected `str`",
    "[agents.a]\nprovider='scripted'\n[agents.a.policies]\ncrash = 'panic'\n": "invalid enum value 'panic'",
    "[agents.a]\nprovider='scripted'\n[agents.a.policies]\nnone = 1\n": "no setting `policies.none`",
    "[agents.a]\nprovider='scripted'\ndeadlines = { stall_seconds = 0 }\n": "must be more than 0",
    "[agents.a]\nprovider='scripted'\ncontext_tokens_max = 5\n": "at least 1000",
}


@pytest.mark.parametrize(("text", "why"), WRONG.items())
def test_each_mistake_is_named_with_its_place(text: str, why: str) -> None:
    with pytest.raises(AgentsFileInvalid) as caught:
        parse_agents(text, path=HERE)
    assert why in caught.value.sentence
    assert str(HERE) in caught.value.sentence


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(AgentsFileInvalid, match="No such file"):
        load_agents(tmp_path / "none.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(AgentsFileInvalid, match="not UTF-8"):
        load_agents(binary)
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * 1_000_001)
    with pytest.raises(AgentsFileInvalid, match="longer than"):
        load_agents(large)


def test_tools_that_cannot_be_used_are_named_with_their_agent(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text("[agents.a]\nprovider='openai-chat'\nmodel='m'\ntools=['echo']\n")
    with pytest.raises(AgentsFileInvalid, match=r"\[agents.a\] tools: 'echo' is a demo tool"):
        load_agent_tools(load_agents(path)["a"], path=path)
