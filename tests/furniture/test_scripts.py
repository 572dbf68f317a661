"""The scripts behind make: what they do when nothing changed, and what they say when something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import NEEDS, Need, missing
from tests.surroundings import CHECKOUT


def run(script: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of a checkout with a minimal environment."""
    return subprocess.run(
        [str(script), *arguments],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the scripts and of what they read."""
    shutil.copytree(CHECKOUT / "scripts", tmp_path / "scripts")
    shutil.copytree(CHECKOUT / "requirements", tmp_path / "requirements")
    for name in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(CHECKOUT / name, tmp_path / name)
    return tmp_path


def python_that(folder: Path, *, version_ok: bool, venv_ok: bool) -> Path:
    """A stand-in for python3 that answers the two questions of scripts/venv."""
    stand_in = folder / "bin" / "python3"
    stand_in.parent.mkdir()
    stand_in.write_text(
        "#!/bin/sh\n"
        f'case "$2" in *version_info*) exit {0 if version_ok else 1};; *ensurepip*) exit {0 if venv_ok else 1};; esac\n'
        "exit 3\n"
    )
    stand_in.chmod(0o755)
    return stand_in


def test_an_old_python_is_refused_with_what_to_install(checkout: Path) -> None:
    old = python_that(checkout, version_ok=False, venv_ok=True)
    ended = run(checkout / "scripts" / "venv", "run", PYTHON=str(old))
    assert ended.returncode == 1
    assert "needs Python 3.11 or newer" in ended.stderr
    assert "apt-get install python3 python3-venv" in ended.stderr


def test_a_python_without_venv_is_refused_with_the_package_that_brings_it(checkout: Path) -> None:
    halved = python_that(checkout, version_ok=True, venv_ok=False)
    # A PATH without apt-get stands for a desk where nothing can be installed.
    tools = checkout / "tools"
    tools.mkdir()
    for tool in ("bash", "env", "dirname", "id", "cat", "flock", "sh"):
        found = shutil.which(tool)
        if found:
            (tools / tool).symlink_to(found)
    ended = run(checkout / "scripts" / "venv", "run", PYTHON=str(halved), PATH=str(tools))
    assert ended.returncode == 1
    assert "apt-get install python3-venv" in ended.stderr
    assert not (checkout / ".venv").exists()


def test_an_unchanged_checkout_installs_nothing(checkout: Path) -> None:
    """With every stamp in place neither Python nor pip is asked for anything but its version."""
    venv = checkout / ".venv" / "bin"
    venv.mkdir(parents=True)
    python = venv / "python"
    python.write_text(
        '#!/bin/sh\ncase "$2" in *version_info*) exit 0;; esac\necho "$@" >> "$0.said"\nexit 9\n'
    )
    python.chmod(0o755)
    (checkout / ".venv" / ".made-for").write_text(f"{checkout.resolve()}\n")

    def sha(*names: str) -> str:
        content = b"".join((checkout / name).read_bytes() for name in names)
        return subprocess.run(["sha256sum"], input=content, check=True, capture_output=True).stdout.decode()

    (checkout / ".venv" / ".locked-test").write_text(sha("requirements/test.txt"))
    (checkout / ".venv" / ".project").write_text(sha("pyproject.toml", "hatch_build.py"))
    assert run(checkout / "scripts" / "venv", "run").returncode == 0, "the test lock covers the run lock"
    assert run(checkout / "scripts" / "venv", "test").returncode == 0
    assert not (venv / "python.said").exists()

    with (checkout / "requirements" / "test.txt").open("a") as lock:
        lock.write("# another pin\n")
    assert run(checkout / "scripts" / "venv", "test").returncode != 0
    assert "--require-hashes --no-deps" in (venv / "python.said").read_text()


def test_without_a_page_there_is_nothing_to_build(checkout: Path) -> None:
    ended = run(checkout / "scripts" / "page")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_page_is_built_when_its_sources_change_and_only_then(checkout: Path) -> None:
    web = checkout / "web"
    (web / "src").mkdir(parents=True)
    (web / "package.json").write_text("{}")
    (web / "package-lock.json").write_text("{}")
    (web / "src" / "page.ts").write_text("1")
    npm = checkout / ".venv" / "bin" / "npm"
    npm.parent.mkdir(parents=True)
    npm.write_text(
        '#!/bin/sh\necho "$@" >> ../said\n'
        'case "$1" in ci) mkdir -p node_modules;; esac\n'
        'case "$*" in *build*) mkdir -p ../src/turnkeeper/server/static; echo x > ../src/turnkeeper/server/static/index.html;; esac\n'
    )
    npm.chmod(0o755)

    def said() -> list[str]:
        log = checkout / "said"
        words = [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return words

    page = checkout / "scripts" / "page"
    assert run(page).returncode == 0
    assert said() == ["ci", "run"]
    assert run(page).returncode == 0
    assert said() == []
    (web / "src" / "page.ts").write_text("2")
    assert run(page).returncode == 0
    assert said() == ["run"]


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Need("tmux", "tmux", ("tmux",), lambda: None)
    monkeypatch.setattr("tests.needs.NEEDS", (absent,))
    monkeypatch.setattr("tests.needs.marks_in_use", lambda: frozenset({"tmux"}))
    (need,) = missing()
    assert need.sentence == "tmux is missing: apt-get install tmux"


def test_a_program_that_no_test_needs_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.needs.NEEDS", tuple(Need(n.mark, n.program, n.packages, lambda: None) for n in NEEDS)
    )
    monkeypatch.setattr("tests.needs.marks_in_use", frozenset)
    assert missing() == ()


INNER = """
import pytest

@pytest.mark.tmux
def test_needs_tmux():
    assert True
"""


@pytest.mark.parametrize(("ci", "outcome"), [("", "skipped"), ("true", "error")])
def test_a_test_whose_program_is_missing_is_skipped_on_a_desk_and_fails_in_ci(
    tmp_path: Path, ci: str, outcome: str
) -> None:
    (tmp_path / "test_inner.py").write_text(INNER)
    conftest = "from tests.conftest import *\nfrom tests import needs, conftest\n"
    conftest += (
        "need = needs.Need('tmux', 'tmux', ('tmux',), lambda: None)\nconftest.BY_MARK['tmux'] = need\n"
    )
    (tmp_path / "conftest.py").write_text(conftest)
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
            "-rs",
            "-o",
            "markers=tmux: x",
            str(tmp_path / "test_inner.py"),
            "--rootdir",
            str(tmp_path),
        ],
        env={**os.environ, "CI": ci, "PYTHONPATH": str(CHECKOUT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"1 {outcome}" in ended.stdout, ended.stdout + ended.stderr
    assert "apt-get install tmux" in ended.stdout
