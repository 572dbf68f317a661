"""Bad usage: one line on stderr, nothing on stdout, exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper import __version__, cli


@pytest.mark.parametrize("arguments", [[], ["no-such-verb"], ["--no-such-flag"]])
def test_bad_usage_is_one_line_on_stderr_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("turnkeeper: ")
    assert err.count("\n") == 1


def test_version_and_help_are_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"turnkeeper {__version__}\n"
    assert cli.run(["--help"]) == 0
    assert "turnkeeper serve" in capsys.readouterr().out


SLOW_PACKAGES = {
    "uvicorn",
    "starlette",
    "apsw",
    "openai",
    "anthropic",
    "httpx2",
    "prompt_toolkit",
    "rich",
    "uvloop",
}

LOOK = """
import json, sys
from turnkeeper import cli
code = cli.run(sys.argv[1:])
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


@pytest.mark.parametrize(
    "arguments",
    [["queue", "c_1"], ["send", "new", "hello"], ["tail", "c_1"], ["status"], ["chat"], ["cancel", "t_1"]],
    ids=lambda arguments: arguments[0],
)
def test_a_verb_that_talks_to_a_server_pays_for_nothing_that_a_server_needs(
    arguments: list[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *arguments, "--data", str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )
    code, packages = json.loads(done.stdout)
    assert code == 2
    assert SLOW_PACKAGES.isdisjoint(packages)
