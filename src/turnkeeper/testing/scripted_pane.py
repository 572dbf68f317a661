"""Panes without a terminal: the scripted CLI in memory, behind the same Protocol as tmux.

Time is the clock that is handed in; with a virtual one half an hour of a session passes at once. Quirks, log
and orders come through the same environment variables as for the real program, so one test can run on both.
`turnkeeper.testing.conformance.pane` holds this fake to what tmux does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from turnkeeper.errors import CannotStart, PaneDead, PaneGone, TerminalTrouble
from turnkeeper.port.clock import Clock
from turnkeeper.terminal.pane import (
    ALIVE,
    DEAD,
    GONE,
    PASTE_BYTES_MAX,
    Frame,
    Launch,
    Look,
    PaneIdentity,
    Pasted,
    clean,
    keys_allowed,
)
from turnkeeper.terminal.screen import Screen, read_screen
from turnkeeper.testing.scripted_cli.program import ScriptedCli, fit
from turnkeeper.testing.scripted_cli.quirks import Quirks, decode

KEY_BYTES = {
    "Enter": b"\r",
    "Escape": b"\x1b",
    "Up": b"\x1b[A",
    "Down": b"\x1b[B",
    "M-Up": b"\x1b[1;3A",
    "BSpace": b"\x7f",
    "Tab": b"\t",
    "Space": b" ",
    "End": b"\x1b[4~",
    "Home": b"\x1b[1~",
}


class ScriptedPane:
    """A pane in memory. `entries` is the program's log; `cli` the program itself, for a test to meddle with."""

    def __init__(self, terminal: ScriptedTerminal, launch: Launch, pid: int) -> None:
        env = dict(launch.env)
        at = launch.argv.index("turnkeeper.testing.scripted_cli")
        dialect, *rest = launch.argv[at + 1 :]
        self.identity = PaneIdentity(
            socket="memory", pane_id=f"%{pid}", pid=pid, started=terminal.clock.now(), mark=launch.mark
        )
        self.entries: list[dict[str, Any]] = []
        self.in_mode = False
        self.attached = 0
        self.gone = False
        self.killed: int | None = None
        self.trouble: str | None = None
        """Set by a test: every command fails with these words."""
        self._terminal = terminal
        self._seen = 0
        self._woken = asyncio.Event()
        self._brackets = True
        quirks = decode(env["TURNKEEPER_SCRIPTED_CLI"]) if env.get("TURNKEEPER_SCRIPTED_CLI") else Quirks()
        self._log = env.get("TURNKEEPER_SCRIPTED_LOG")
        self.cli = ScriptedCli(
            dialect,
            rest,
            home=Path(env.get("HOME", "/")),
            cwd=launch.cwd,
            env=env,
            quirks=quirks,
            clock=terminal.clock.now,
            log=self._write_log,
            pid=pid,
        )
        self.cli.columns, self.cli.rows = launch.columns, launch.rows
        self._task = asyncio.ensure_future(self._live())

    def _write_log(self, entry: dict[str, Any]) -> None:
        entry = {"at": self._terminal.clock.now(), "pid": self.identity.pid, **entry}
        self.entries.append(entry)
        if self._log:
            with Path(self._log).open("ab") as file:
                file.write(msgspec.json.encode(entry) + b"\n")

    async def _live(self) -> None:
        clock = self._terminal.clock
        while self.cli.exit_code is None:
            wake = self.cli.wake_at()
            self._woken.clear()
            waiting = asyncio.ensure_future(self._woken.wait())
            if wake is None:
                await waiting
            else:
                sleeping = asyncio.ensure_future(clock.sleep(max(0.0, wake - clock.now())))
                await asyncio.wait({waiting, sleeping}, return_when=asyncio.FIRST_COMPLETED)
                for task in (waiting, sleeping):
                    task.cancel()
            self._advance()

    def _advance(self) -> None:
        self.cli.advance()
        if self.cli.dirty:
            self.cli.dirty = False
            self._seen += 100

    def order(self, order: dict[str, Any]) -> None:
        """Have the program do something."""
        self.cli.order(order)
        self._woken.set()

    def kill(self, signal: int) -> None:
        """End the program as a signal would."""
        if self.cli.exit_code is None:
            self.killed = signal
            self.cli.exit_code = 128 + signal
        self._woken.set()

    # -- the Pane protocol

    def _check(self) -> None:
        if self.trouble is not None:
            raise TerminalTrouble(why=self.trouble)
        self._advance()

    async def look(self) -> Look:
        """How the program is."""
        await asyncio.sleep(0)
        self._check()
        if self.gone:
            return Look(state=GONE)
        code = self.cli.exit_code
        return Look(
            state=ALIVE if code is None else DEAD,
            exit_code=None if self.killed is not None else code,
            signal=self.killed,
            title=self.cli.title,
            in_mode=self.in_mode,
            columns=self.cli.columns,
            rows=self.cli.rows,
            attached=self.attached,
        )

    async def screen(self, *, above: int = 0) -> Screen:
        """What stands on the screen."""
        await asyncio.sleep(0)
        self._check()
        if self.gone:
            raise PaneGone(why="there is no such pane")
        return read_screen("\n".join(fit(self.cli.draw(), self.cli.columns, self.cli.rows)), self.cli.title)

    async def glance(self) -> tuple[Look, Screen | None]:
        """A look, and the screen of a program that runs."""
        look = await self.look()
        return look, await self.screen() if look.alive else None

    async def prepare(self, text: str) -> None:
        """Nothing has to be laid ready."""
        self._check()

    async def paste(self, text: str) -> Pasted:
        """Hand over a text as one paste."""
        await asyncio.sleep(0)
        self._check()
        text, removed = clean(text)
        data = text.encode()
        if not data:
            raise TerminalTrouble(why="there is nothing to paste")
        if len(data) > PASTE_BYTES_MAX:
            raise TerminalTrouble(
                why=f"a paste has at most {PASTE_BYTES_MAX} bytes, this one has {len(data)}"
            )
        self._alive()
        self.in_mode = False
        inner = data.replace(b"\n", b"\r")
        plain = self.cli.quirks.no_bracketed
        self._feed(inner if plain else b"\x1b[200~" + inner + b"\x1b[201~")
        return Pasted(size_bytes=len(data), removed=removed)

    async def press(self, *keys: str) -> None:
        """Press keys."""
        await asyncio.sleep(0)
        self._check()
        if not keys_allowed(keys):
            raise TerminalTrouble(why=f"these are no keys: {keys!r}")
        self._alive()
        self.in_mode = False
        for key in keys:
            if key in KEY_BYTES:
                self._feed(KEY_BYTES[key])
            elif key.startswith("C-"):
                self._feed(bytes((ord(key[2]) & 0x1F,)))
            else:
                self._feed(key.encode())

    async def type_bytes(self, data: bytes) -> None:
        """What a person types."""
        await asyncio.sleep(0)
        self._check()
        self._alive()
        self._feed(data)

    def _alive(self) -> None:
        if self.gone:
            raise PaneGone(why="there is no such pane")
        if self.cli.exit_code is not None:
            ended = f"signal {self.killed}" if self.killed is not None else f"exit code {self.cli.exit_code}"
            raise PaneDead(why=f"it ended with {ended}")

    def _feed(self, data: bytes) -> None:
        self.cli.feed(data)
        self._woken.set()

    async def resize(self, columns: int, rows: int) -> None:
        """Give the screen a size."""
        await asyncio.sleep(0)
        self._check()
        if self.gone:
            raise PaneGone(why="there is no such pane")
        self.cli.columns, self.cli.rows = columns, rows
        self.cli.dirty = True

    @property
    def output_seen(self) -> int:
        """Output so far."""
        return self._seen

    async def wait_output(self, seen: int, seconds: float) -> bool:
        """Wait for output beyond `seen`."""
        clock = self._terminal.clock
        deadline = clock.now() + seconds
        while self._seen <= seen and clock.now() < deadline:
            await clock.sleep(0.02)
            self._advance()
        return self._seen > seen

    async def view(self) -> AsyncIterator[Frame]:
        """A live view."""
        shown: list[str] | None = None
        while not self.gone and self.cli.exit_code is None:
            lines = fit(self.cli.draw(), self.cli.columns, self.cli.rows)
            if lines != shown:
                kind = "seed" if shown is None else "output"
                shown = lines
                drawn = b"\x1bc" + "\r\n".join(lines).encode()
                yield Frame(kind, drawn, *((self.cli.columns, self.cli.rows) if kind == "seed" else ()))
            await self._terminal.clock.sleep(0.05)
            self._advance()
        yield Frame("ended")

    async def stop(self, grace_seconds: float) -> tuple[int, ...]:
        """End the program."""
        await asyncio.sleep(0)
        if self.identity.adopted:
            return ()
        ended: tuple[int, ...] = ()
        if self.cli.exit_code is None:
            ended = (self.identity.pid,)
            if self.cli.quirks.ignores_sigterm:
                await self._terminal.clock.sleep(grace_seconds)
                self.kill(9)
            else:
                self.cli.hangup()
        self.gone = True
        self._terminal.panes.pop(self.identity.pane_id, None)
        self._woken.set()
        await self.let_go()
        return ended

    async def let_go(self) -> None:
        """End the task that lets time pass."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class ScriptedTerminal:
    """Scripted panes. `launches` remembers what was started, `opened` every pane that ever was."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.panes: dict[str, ScriptedPane] = {}
        self.opened: list[ScriptedPane] = []
        self.launches: list[Launch] = []
        self._pids = itertools.count(1001)

    async def open(self, name: str, launch: Launch) -> ScriptedPane:
        """Start the scripted CLI that `launch` names."""
        await asyncio.sleep(0)
        if not os.path.isdir(launch.cwd):  # noqa: ASYNC240, PTH112 - a fake may look at once
            raise CannotStart(why=f"the folder {launch.cwd} does not exist")
        if "turnkeeper.testing.scripted_cli" not in launch.argv:
            raise CannotStart(why=f"there is no program called {launch.argv[0]!r} in PATH")
        self.launches.append(launch)
        pane = ScriptedPane(self, launch, next(self._pids))
        self.panes[pane.identity.pane_id] = pane
        self.opened.append(pane)
        return pane

    async def find(self, identity: PaneIdentity) -> ScriptedPane | None:
        """The same pane again."""
        await asyncio.sleep(0)
        pane = self.panes.get(identity.pane_id)
        if pane is None or pane.gone:
            return None
        if pane.identity.pid != identity.pid or pane.identity.started != identity.started:
            return None
        return pane

    async def adopt(self, socket: str, pane_id: str, mark: str) -> ScriptedPane:
        """A pane that a person started."""
        await asyncio.sleep(0)
        pane = self.panes.get(pane_id)
        if pane is None:
            raise CannotStart(why=f"there is no pane {pane_id} at {socket}")
        pane.identity = msgspec.structs.replace(pane.identity, adopted=True, mark=mark)
        return pane

    async def reap(self, identity: PaneIdentity, grace_seconds: float) -> tuple[int, ...]:
        """End what outlived its terminal: nothing here does."""
        await asyncio.sleep(0)
        return ()

    def attach_command(self, identity: PaneIdentity) -> tuple[str, ...]:
        """Nobody can attach to memory."""
        return ("false",)

    async def close_place(self, name: str) -> None:
        """Places cost nothing here."""

    async def close(self) -> None:
        """Let go; programs run on."""

    async def end(self) -> None:
        """End every program: for the end of a test."""
        for pane in self.opened:
            await pane.let_go()
