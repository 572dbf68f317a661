"""The server says how to chat in words that work from where it was started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from turnkeeper.cli.serve import program


@pytest.mark.parametrize(
    ("on_path", "called", "said"),
    [
        (True, "/somewhere/bin/turnkeeper", "turnkeeper"),
        (False, ".venv/bin/turnkeeper", ".venv/bin/turnkeeper"),
        (False, "/x/turnkeeper/__main__.py", "python -m turnkeeper"),
    ],
)
def test_the_program_is_named_so_that_a_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str, said: str, *, on_path: bool
) -> None:
    if on_path:
        (tmp_path / "turnkeeper").write_text("#!/bin/sh\n")
        (tmp_path / "turnkeeper").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [called, "serve"])
    assert program() == said
