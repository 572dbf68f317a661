"""A real server whose agents are scripted CLIs, one for each conversation of the cases that it serves.

Most cases share one server: each has conversations, a home, a log and orders of its own. A case that kills the
server, arms a failpoint, breaks tmux or changes the agents file has a server for itself. Everything that a player
does goes through the HTTP interface, the file system, or the tmux that `GET .../terminal/attach` names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from turnkeeper.retained.machine.state import Timing
from turnkeeper.terminal.tmux import run_once
from turnkeeper.testing.scripted_cli.quirks import Quirks
from turnkeeper.testing.server_process import Api, ServerProcess

SOURCE = Path(__file__).parents[3] / "src"

FLOORS: Final = {
    "transcript_ask_seconds": 2.0,
    "unsubmitted_seconds": 4.0,
    "enter_again_seconds": 0.3,
    "flush_seconds": 0.25,
    "error_settle_seconds": 0.5,
    "working_seconds": 0.2,
    "paste_retry_seconds": 0.1,
    "command_settle_seconds": 0.5,
    "recall_seconds": 0.5,
}
"""Real seconds that no scale goes below: a loaded machine needs them between keys and record."""
UNSCALED: Final = frozenset({"enter_delay_seconds", "ready_seconds", "backstop_seconds"})

TMUX = """#!/bin/sh
if [ -e {fault} ]; then echo "tmux: cannot be executed" >&2; exit 126; fi
exec {tmux} "$@"
"""


def timing(scale: float) -> dict[str, float]:
    """All waits of the product, scaled as the case is."""
    found = {}
    for name, value in msgspec.structs.asdict(Timing()).items():
        if name.endswith("_seconds") and name not in UNSCALED:
            found[name] = round(max(value * scale, FLOORS.get(name, 0.0)), 3)
    return found


class Cli:
    """The scripted CLI of one conversation: where it lives, and what it did."""

    def __init__(
        self, folder: Path, agent: str, dialect: str, quirks: Quirks, cwd: Path, scale: float
    ) -> None:
        self.folder = folder
        self.agent = agent
        self.dialect = dialect
        self.quirks = quirks
        self.cwd = cwd
        self.scale = scale
        self.idle_seconds: float | None = None
        self.mcp = False
        """Whether files have to be written before each launch."""
        self.home = folder / "home"
        self.log_path = folder / "log"
        self.orders_path = folder / "orders"
        for path in (self.home, cwd):
            path.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        """What it finds in its environment."""
        return {
            "HOME": str(self.home),
            "PYTHONPATH": str(SOURCE),
            "TURNKEEPER_SCRIPTED_LOG": str(self.log_path),
            "TURNKEEPER_SCRIPTED_ORDERS": str(self.orders_path),
            "TURNKEEPER_SCRIPTED_CLI": msgspec.json.encode(self.quirks).decode(),
        }

    def command(self) -> list[str]:
        """The program."""
        return [sys.executable, "-m", "turnkeeper.testing.scripted_cli", self.dialect]

    def table(self) -> str:
        """Its entry in the agents file."""
        idle = [] if self.idle_seconds is None else [f"idle_seconds = {self.idle_seconds}"]
        lines = [
            f"[agents.{self.agent}]",
            'runner = "retained"',
            f"cli = {json.dumps(self.dialect)}",
            f"cwd = {json.dumps(str(self.cwd))}",
            f"[agents.{self.agent}.retained]",
            f"command = {json.dumps(self.command())}",
            *idle,
            f"[agents.{self.agent}.retained.env]",
            *(f"{name} = {json.dumps(value)}" for name, value in self.environment().items()),
            *([f"[agents.{self.agent}.retained.mcp.none]", 'command = "/bin/true"'] if self.mcp else []),
            f"[agents.{self.agent}.retained.timing]",
            *(f"{name} = {value}" for name, value in timing(self.scale).items()),
        ]
        return "\n".join(lines) + "\n"

    def log(self) -> list[dict[str, Any]]:
        """Everything that it logged, over all its processes."""
        if not self.log_path.exists():
            return []
        lines = self.log_path.read_bytes().split(b"\n")
        return [json.loads(line) for line in lines if line]

    def order(self, **order: Any) -> None:
        """Have it do something."""
        with self.orders_path.open("ab") as file:
            file.write(msgspec.json.encode(order) + b"\n")


class World:
    """A server and the CLIs of its agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.clis: list[Cli] = []
        self.fault = folder / "tmux-is-broken"
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        tmux = bin_folder / "tmux"
        tmux.write_text(TMUX.format(fault=self.fault, tmux=shutil.which("tmux")))
        tmux.chmod(0o755)
        self.agents = folder / "agents.toml"
        self.server = ServerProcess(
            folder / "data",
            agents=self.agents,
            settings={
                "sweep_seconds": 0.3,
                "stop_grace_seconds": 5,
                "shutdown_grace_seconds": 1,
                "undo_seconds": 3,
            },
            environment={"PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": str(folder)},
        )
        self.api: Api

    def write_agents(self) -> None:
        """Write the agents file anew."""
        self.agents.write_text("\n".join(cli.table() for cli in self.clis))

    def fill(self) -> None:
        """Give the folder in which files of launches go a small disk of its own, without space (needs root)."""
        self.kept.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(self.kept)], check=True)
        with contextlib.suppress(OSError), (self.kept / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    def free(self) -> None:
        """Make room again."""
        (self.kept / "filler").unlink()

    @property
    def kept(self) -> Path:
        """Where files of launches go."""
        return self.server.data / "retained"

    def unmount(self) -> None:
        """Let go of the small disk, if there is one."""
        if os.path.ismount(self.kept):
            subprocess.run(["umount", "--lazy", str(self.kept)], check=True)

    async def end_panes(self) -> None:
        """End the panes, which outlive the server on purpose, with their tmux."""
        for socket in (self.server.data / "tmux").glob("*.sock"):
            await run_once("tmux", "-S", str(socket), "kill-server")

    async def start(self, *, failpoint: str | None = None) -> None:
        """Start the server for the first time."""
        self.write_agents()
        await self.server.start(failpoint=failpoint)
        self.api = Api(self.server.url, await asyncio.to_thread(self.server.token))
