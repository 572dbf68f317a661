"""Where panes are tried out: real tmux on private sockets, and the scripted fake."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import Any

import msgspec

from turnkeeper.app.system import SystemClock
from turnkeeper.terminal.pane import Launch, Pane
from turnkeeper.terminal.tmux import Tmux, run_once
from turnkeeper.testing.scripted_cli.quirks import Quirks
from turnkeeper.testing.scripted_pane import ScriptedPane, ScriptedTerminal
from turnkeeper.testing.until import Pace, until

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = (sys.executable, "-m", "turnkeeper.testing.scripted_cli")


def environment(folder: Path, number: int, quirks: Quirks | None) -> dict[str, str]:
    """What the scripted CLI is started with, and nothing else."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(SOURCE),
        "TURNKEEPER_SCRIPTED_LOG": str(folder / f"log{number}.jsonl"),
        "TURNKEEPER_SCRIPTED_ORDERS": str(folder / f"orders{number}.jsonl"),
        "TURNKEEPER_SCRIPTED_CLI": msgspec.json.encode(quirks or Quirks()).decode(),
    }


class World:
    """What both kinds have in common."""

    terminal: Any

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs: dict[str, Path] = {}

    async def open(self, name: str = "c1", quirks: Quirks | None = None, cwd: str | None = None) -> Pane:
        number = len(self.logs)
        env = environment(self.folder, number, quirks)
        # All that carries a mark is ended together, also what another worker's world started.
        mark = f"{name}-{number}-{uuid.uuid4().hex}"
        launch = Launch(argv=(*PROGRAM, "claude-code"), cwd=cwd or str(self.folder), env=env, mark=mark)
        pane = await self.terminal.open(name, launch)
        self.logs[name + pane.identity.pane_id] = self.folder / f"log{number}.jsonl"
        self.logs[str(id(pane))] = self.folder / f"log{number}.jsonl"

        async def composer() -> bool:
            return "❯" in (await pane.screen()).text

        await until(composer, "the composer", seconds=90)
        return pane

    def log(self, pane: Pane) -> list[dict[str, Any]]:
        path = self.logs[str(id(pane))]
        return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    async def settle(self, seconds: float) -> None:
        """Let time pass: a program in a terminal has no clock of ours that could be advanced."""
        await Pace(1.0).at(seconds)

    async def until(self, pane: Pane, what: str, key: str = "submit") -> None:
        await until(lambda: what in [entry.get(key) for entry in self.log(pane)], f"{key} {what!r}")


class TmuxWorld(World):
    """Real tmux."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.terminal = Tmux(folder / "tmux")
        self.panes: list[Pane] = []

    async def open(self, name: str = "c1", quirks: Quirks | None = None, cwd: str | None = None) -> Pane:
        pane = await super().open(name, quirks, cwd)
        self.panes.append(pane)
        return pane

    async def kill(self, pane: Pane, signal: int) -> None:
        os.kill(pane.identity.pid, signal)

        async def gone() -> bool:
            return not (await pane.look()).alive

        await until(gone, "the death of the pane's program")

    async def scroll(self, pane: Pane) -> None:
        code, words = await run_once(
            "tmux", "-S", pane.identity.socket, "copy-mode", "-t", pane.identity.pane_id
        )
        assert code == 0, words

    async def lose(self, pane: Pane) -> None:
        await run_once("tmux", "-S", pane.identity.socket, "kill-server")

    async def end(self) -> None:
        for pane in self.panes:
            await self.terminal.reap(pane.identity, 0.2)
        for socket in {pane.identity.socket for pane in self.panes}:
            await run_once("tmux", "-S", socket, "kill-server")
        await self.terminal.close()


class ScriptedWorld(World):
    """The fake."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.terminal = ScriptedTerminal(SystemClock())

    async def kill(self, pane: ScriptedPane, signal: int) -> None:
        pane.kill(signal)

    async def scroll(self, pane: ScriptedPane) -> None:
        pane.in_mode = True

    async def lose(self, pane: ScriptedPane) -> None:
        pane.kill(9)
        pane.gone = True

    async def end(self) -> None:
        await self.terminal.end()
