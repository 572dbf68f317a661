"""What a terminal must do, as Protocols and values; `turnkeeper.testing.conformance.pane` proves it.

A Terminal opens panes and finds them again; a Pane is one program on one screen. Both the tmux driver and
the scripted fake satisfy them. Three answers are kept apart, always: the program runs, the program is
dead, and *we could not find out* (TerminalTrouble): an error of the terminal is never taken for a death.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from turnkeeper.errors import CannotStart
from turnkeeper.terminal.screen import Screen

COLUMNS_DEFAULT: Final = 200
ROWS_DEFAULT: Final = 50
"""Captures of a narrower pane break dialogs over lines; 1000x1000 burns a core (BD089, omar PR#172)."""

PASTE_BYTES_MAX: Final = 4_000_000
"""Longest text that is handed to a program in one paste."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What to start. `env` is the program's whole environment, beside what the terminal itself must add."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    mark: str
    """Stands in the environment of the program and of all it starts (TURNKEEPER_PANE): what is ours to end."""
    columns: int = COLUMNS_DEFAULT
    rows: int = ROWS_DEFAULT


class PaneIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Enough to find a pane again after our own restart, and to see that it is still the same one.

    `started` is the start time of process `pid` (Unix seconds): a reused pid is another program.
    """

    socket: str
    pane_id: str
    pid: int
    started: float
    mark: str
    adopted: bool = False
    """Started by a person, not by us: we never end what we did not start."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a pane. `state`: alive, dead (the program ended; exit code or signal) or gone (no pane)."""

    state: str
    exit_code: int | None = None
    signal: int | None = None
    title: str = ""
    in_mode: bool = False
    """A person scrolls (copy mode): keys would go to the mode, not to the program."""
    alternate: bool = False
    columns: int = 0
    rows: int = 0
    attached: int = 0
    """People who have this terminal open and can type, ourselves not counted."""

    @property
    def alive(self) -> bool:
        """Whether the program runs."""
        return self.state == ALIVE

    @property
    def sentence(self) -> str:
        """How it ended, in words."""
        if self.state == GONE:
            return "its terminal is gone"
        if self.signal is not None:
            return f"it was ended by signal {self.signal}"
        if self.exit_code is not None:
            return f"it ended with exit code {self.exit_code}"
        return "it has ended"


ALIVE: Final = "alive"
DEAD: Final = "dead"
GONE: Final = "gone"


class Pasted(msgspec.Struct, frozen=True, kw_only=True):
    """What was pasted: bytes of UTF-8 after cleaning, and what was taken out, in words."""

    size_bytes: int
    removed: tuple[str, ...] = ()


class Frame(msgspec.Struct, frozen=True):
    """A piece of a live view. kind: seed (reset, whole screen), output, ended, dropped (the reader was slow)."""

    kind: str
    data: bytes = b""
    columns: int = 0
    rows: int = 0
    """Of a seed: the size of the screen that it and the output after it are drawn for. 0: lines of any length."""


class Pane(Protocol):
    """One program on one screen."""

    identity: PaneIdentity

    async def look(self) -> Look:
        """How the program is. Raises TerminalTrouble if that could not be found out."""
        ...

    async def screen(self, *, above: int = 0) -> Screen:
        """What stands on the screen, lines that the terminal wrapped joined. Raises PaneGone, TerminalTrouble.

        `above`: with so many lines that were scrolled off it (tmux scrolls once when a program has ended).
        """
        ...

    async def glance(self) -> tuple[Look, Screen | None]:
        """A look and, if the program runs, its screen, at the cost of one. Raises TerminalTrouble."""
        ...

    async def prepare(self, text: str) -> None:
        """Lay `text` ready, so that `paste` of the same text is quick; nothing reaches the program. Raises TerminalTrouble."""
        ...

    async def paste(self, text: str) -> Pasted:
        """Hand `text` to the program as one paste, after `clean`; no Enter.

        A mode that a person left open is left first. What is pasted was compared with `text` before.
        Raises PaneDead, PaneGone, TerminalTrouble; after PaneDead and PaneGone nothing was pasted.
        """
        ...

    async def press(self, *keys: str) -> None:
        """Press keys by tmux's names (Enter, Escape, C-u, Down) or single characters; leaves modes first."""
        ...

    async def type_bytes(self, data: bytes) -> None:
        """What a person who took the terminal over types, byte for byte; nothing is cleaned. Raises as `press`."""
        ...

    async def resize(self, columns: int, rows: int) -> None:
        """Give the screen another size."""
        ...

    @property
    def output_seen(self) -> int:
        """Bytes of output so far, as a counter to compare; a repaint counts too."""
        ...

    async def wait_output(self, seen: int, seconds: float) -> bool:
        """Wait until there is output beyond `seen`, or for `seconds`; whether there was."""
        ...

    def view(self) -> AsyncIterator[Frame]:
        """The screen as it is, then all its output; ends with the pane. A slow reader is dropped and re-seeded."""
        ...

    async def stop(self, grace_seconds: float) -> tuple[int, ...]:
        """End the program and everything it started (by pid, TERM first, KILL after the grace); their pids.

        Only what is ours: descendants of the program, and processes that carry its mark. One that a person started
        is let go of.
        """
        ...


class Terminal(Protocol):
    """Where panes are."""

    async def open(self, name: str, launch: Launch) -> Pane:
        """Start a program in a new pane of the place called `name`.

        Raises TerminalMissing, CannotStart (cwd, program, space), TerminalTrouble.
        """
        ...

    async def find(self, identity: PaneIdentity) -> Pane | None:
        """The same pane again, dead or alive; None if it is gone or another program is there now."""
        ...

    async def adopt(self, socket: str, pane_id: str, mark: str) -> Pane:
        """A pane that a person started. Raises CannotStart if there is none, or somebody else drives it."""
        ...

    async def reap(self, identity: PaneIdentity, grace_seconds: float) -> tuple[int, ...]:
        """End what is left of a pane whose terminal is gone; the pids that were ended."""
        ...

    def attach_command(self, identity: PaneIdentity) -> tuple[str, ...]:
        """The command with which a person opens the same pane in a terminal of their own."""
        ...

    async def close_place(self, name: str) -> None:
        """Nothing runs at `name` any more: give back what it cost."""
        ...

    async def close(self) -> None:
        """Let go; programs run on."""
        ...


PASTE_ENDS: Final = re.compile("\x1b\\[20[01]~|\x9b20[01]~")
CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
NAMES: Final[dict[str, str]] = {"\x1b": "ESC", "\x00": "NUL", "\x07": "BEL", "\x08": "BS", "\x7f": "DEL"}


def clean(text: str) -> tuple[str, tuple[str, ...]]:
    """`text` as a terminal may be given it, and what was taken out, in words.

    CRLF and CR become LF (a terminal would make them two lines: retained-clis 1.5). C0 except LF and TAB, DEL,
    C1 and the marks that begin and end a paste are removed, so that no text can act on the terminal or
    leave its own paste.
    """
    removed: dict[str, int] = {}

    def paste_end(_: re.Match[str]) -> str:
        removed["paste mark"] = removed.get("paste mark", 0) + 1
        return ""

    def control(found: re.Match[str]) -> str:
        char = found.group()
        name = NAMES.get(char, f"U+{ord(char):04X}")
        removed[name] = removed.get(name, 0) + 1
        return ""

    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = CONTROL.sub(control, PASTE_ENDS.sub(paste_end, text))
    return text, tuple(f"{name} x{count}" for name, count in removed.items())


def program_of(launch: Launch) -> str:
    """The program that `launch` means, as a path. Raises CannotStart: no command, no such program, no such folder."""
    if not launch.argv:
        raise CannotStart(why="there is no command")
    folder = Path(launch.cwd)
    if not folder.exists():
        raise CannotStart(why=f"the folder {launch.cwd} does not exist")
    if not folder.is_dir():
        raise CannotStart(why=f"{launch.cwd} is not a folder")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise CannotStart(why=f"the folder {launch.cwd} may not be entered")
    program = shutil.which(launch.argv[0], path=launch.env.get("PATH", os.defpath))
    if program is None:
        raise CannotStart(why=f"there is no program called {launch.argv[0]!r} in PATH")
    return program


def keys_allowed(keys: Sequence[str]) -> bool:
    """Whether each of `keys` is a key name or one printable character: nothing that a shell or tmux expands."""
    return all(KEY.fullmatch(key) for key in keys)


KEY: Final = re.compile(r"(?:[CMS]-)*(?:[A-Za-z]{2,10}|F[0-9]{1,2}|[!-~])|Space")
