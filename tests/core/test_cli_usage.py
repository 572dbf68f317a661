"""Bad usage: one line on stderr, nothing on stdout, exit code 2."""

from __future__ import annotations

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
