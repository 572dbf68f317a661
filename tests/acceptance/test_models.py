"""A scripted model and a check of configured models, started as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from turnkeeper.testing.model_server.process import model_server_process

pytestmark = pytest.mark.process

KEY = "sk-canary-0123456789abcdef"
SCRIPT = {"rules": [{"match": "limited", "rounds": [{"error": {"status": 401}}]}]}
AGENTS = """
[agents.claude]
provider = "anthropic"
model = "good"
base_url = "{url}"
api_key_env = "TRY_KEY"
fallback = {{ provider = "gemini", model = "good", base_url = "{url}", api_key_env = "TRY_KEY" }}

[agents.chat]
provider = "openai-chat"
model = "good"
base_url = "{url}/v1"
api_key_env = "TRY_KEY"

[agents.nobody]
provider = "openai-responses"
model = "good"
base_url = "http://127.0.0.1:9/v1"
api_key_env = "TRY_KEY"
"""


def turnkeeper(folder: Path, *arguments: str, ends: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "turnkeeper", *arguments]
    environment = {**os.environ, "TRY_KEY": KEY}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == ends, done
    return done


async def test_config_check_live_says_of_each_model_whether_it_works(tmp_path: Path) -> None:
    async with model_server_process(SCRIPT) as url:
        (tmp_path / "agents.toml").write_text(AGENTS.format(url=url))
        given = ("config", "check", "--data", str(tmp_path), "--live")
        done = turnkeeper(tmp_path, *given, ends=1)
        found = json.loads(turnkeeper(tmp_path, *given, "--json", ends=1).stdout)
        seen = httpx2.get(f"{url}/_requests").json()
    works = {call["name"]: call["works"] for call in found["live"]}
    assert works == {
        "demo": True,
        "claude": True,
        "claude fallback": True,
        "chat": True,
        "nobody": False,
    }
    assert "claude: anthropic good works" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("turnkeeper: nobody:")
    assert KEY not in done.stdout + done.stderr + json.dumps(found) + json.dumps(seen)
    assert len(seen) == 6  # three models that are there, asked twice: nothing is tried again


async def test_the_model_server_listens_on_this_machine_only(tmp_path: Path) -> None:
    refused = turnkeeper(tmp_path, "model-server", "--host", "0.0.0.0", ends=2)
    assert refused.stdout == ""
    assert "this machine only" in refused.stderr
    absent = turnkeeper(tmp_path, "model-server", "--script", "absent.json", ends=2)
    assert "absent.json" in absent.stderr


async def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    async with model_server_process() as url:
        port = url.rpartition(":")[2]
        refused = turnkeeper(tmp_path, "model-server", "--port", port, ends=2)
    assert "port 0 takes a free one" in refused.stderr
    assert refused.stderr.count("\n") == 1
