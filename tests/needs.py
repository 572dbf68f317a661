"""What some tests need beyond Python: real programs, with the Debian package that brings each.

A test says what it needs with a mark (`@pytest.mark.tmux`). `make test` runs this file first: as root on
Debian it installs what is missing; otherwise it names the package. `conftest.py` asks the same table:
a test whose program is missing is skipped visibly, and fails when CI=true.

Coding CLIs come from npm, at exact versions, into .testdata/clis: with CI=true, or when they are asked for.

    python tests/needs.py                    name what is missing
    python tests/needs.py --install          install it where that is possible
    python tests/needs.py --install --clis   the coding CLIs too
"""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
CLIS = TESTS.parent / ".testdata" / "clis"
NODE = TESTS.parent / ".venv" / "bin"
"""Where the Node of the page's build lies; the coding CLIs run on it too."""


@dataclass(frozen=True)
class Need:
    """A program that the tests with `mark` drive. `found` returns its path, or None."""

    mark: str
    program: str
    packages: tuple[str, ...]
    found: Callable[[], str | None]
    npm: str | None = None
    """NAME@VERSION of the npm package that brings it, instead of Debian's."""

    @property
    def sentence(self) -> str:
        """What is missing and how to get it."""
        if self.npm is not None:
            return f"{self.program} is missing: make test-clis fetches {self.npm}"
        return f"{self.program} is missing: apt-get install {' '.join(self.packages)}"


def _on_path(*names: str) -> Callable[[], str | None]:
    return lambda: next((path for path in map(shutil.which, names) if path), None)


def _chromium() -> str | None:
    """Chromium, if what drives it can start as well: Playwright's own Node is linked against libatomic."""
    return _on_path("chromium", "chromium-browser")() if ctypes.util.find_library("atomic") else None


def _postgres() -> str | None:
    """The newest server's `initdb`: Debian keeps it off the PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return str(versions[-1]) if versions else shutil.which("initdb")


def cli(package: str, program: str) -> Callable[[], str | None]:
    """Finds a coding CLI, if it is there at that very version: with another one npm may have picked by itself."""
    name, _, version = package.rpartition("@")

    def found() -> str | None:
        manifest = CLIS / "node_modules" / name / "package.json"
        if not manifest.exists() or json.loads(manifest.read_text("utf-8"))["version"] != version:
            return None
        return str(CLIS / "node_modules" / ".bin" / program)

    return found


PI = "@earendil-works/pi-coding-agent@1.6.0"
CODEX = "@openai/codex@0.171.0"
CLAUDE = "@anthropic-ai/claude-code@2.1.332"

NEEDS: tuple[Need, ...] = (
    Need("tmux", "tmux", ("tmux",), _on_path("tmux")),
    Need(
        "browser",
        "Chromium",
        # The fonts: screenshots and widths with Latin, Arabic, Hebrew and emoji are part of what is tested.
        ("chromium", "libatomic1", "fonts-dejavu-core", "fonts-noto-color-emoji"),
        _chromium,
    ),
    Need("curl", "curl", ("curl",), _on_path("curl")),
    Need("postgres", "PostgreSQL's server", ("postgresql",), _postgres),
    Need("pi_cli", "pi", (), cli(PI, "pi"), npm=PI),
    Need("codex_cli", "codex", (), cli(CODEX, "codex"), npm=CODEX),
)
CLAUDE_CLI = Need("claude_cli", "claude-code", (), cli(CLAUDE, "claude"), npm=CLAUDE)
"""Not in the table: whoever runs it accepts its terms first (TURNKEEPER_REAL_CLAUDE=1)."""


def wanted() -> tuple[Need, ...]:
    """The table, with claude-code if it was asked for."""
    return (*NEEDS, CLAUDE_CLI) if os.environ.get("TURNKEEPER_REAL_CLAUDE") == "1" else NEEDS


def marks_in_use() -> frozenset[str]:
    """Which marks of the table any test file carries: nothing is installed for tests that do not exist."""
    words = {f"mark.{need.mark}": need.mark for need in wanted()}
    used: set[str] = set()
    for path in TESTS.rglob("*.py"):
        if path != Path(__file__):
            text = path.read_text("utf-8")
            used.update(mark for word, mark in words.items() if word in text)
    return frozenset(used)


def missing() -> tuple[Need, ...]:
    """What tests of this checkout need and this machine does not have."""
    used = marks_in_use()
    return tuple(need for need in wanted() if need.mark in used and need.found() is None)


def install(needs: tuple[Need, ...]) -> None:
    """Install the Debian packages of `needs`. Raises CalledProcessError when apt-get fails."""
    packages = [package for need in needs for package in need.packages]
    if not packages:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    get = ["apt-get", "-q", "-y", "-o", "Dpkg::Use-Pty=0"]
    subprocess.run([*get, "update"], check=True, env=environment, stdout=subprocess.DEVNULL)
    subprocess.run(
        [*get, "install", "--no-install-recommends", *packages],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def install_clis(needs: tuple[Need, ...]) -> None:
    """Fetch coding CLIs from npm, all at their exact versions. Raises CalledProcessError when npm fails."""
    packages = [need.npm for need in wanted() if need.npm is not None and (need in needs or need.found())]
    CLIS.mkdir(parents=True, exist_ok=True)
    npm = str(NODE / "npm") if (NODE / "npm").exists() else "npm"
    command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(CLIS)]
    environment = {**os.environ, "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([*command, *map(str, packages)], check=True, env=environment, stdout=subprocess.DEVNULL)


def main() -> int:
    """Install or name what is missing; 1 if something still is and CI=true."""
    lacking = missing()
    if lacking and "--install" in sys.argv and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing from Debian's packages:", *(p for need in lacking for p in need.packages))
        try:
            install(lacking)
        except subprocess.CalledProcessError as failed:
            print(f"apt-get ended with {failed.returncode}", file=sys.stderr)
        lacking = missing()
    clis = tuple(need for need in lacking if need.npm is not None)
    if clis and "--install" in sys.argv and ("--clis" in sys.argv or os.environ.get("CI") == "true"):
        print("fetching from npm:", *(need.npm for need in clis))
        try:
            install_clis(clis)
        except (subprocess.CalledProcessError, OSError) as failed:
            print(f"npm failed: {failed}", file=sys.stderr)
        lacking = missing()
    for need in lacking:
        print(f"{need.sentence}; tests marked {need.mark!r} are skipped", file=sys.stderr)
    return 1 if lacking and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
