"""The tmux driver: one private server per place, driven over one held-open control client.

A place (the caller names it) has a socket of its own, so that a crash of its tmux server, a name that is a
prefix of another, or a stray kill reaches nobody else. The server's first window holds a program that has ended:
it costs nothing and keeps server and session there when the real window closes. Panes outlive us; a control
client that is gone is attached again at the next command.

Answered here (reference: retained-clis 1): 3.3a dies when something is pasted into a dead pane, so paste and
check are one command; `-t NAME` matches prefixes, so panes are addressed by id; `display-message -t` of a pane
that is not there answers with an empty line, so liveness is asked of list-panes; `window-size manual` as a global
option crashes the server, so each window is given its size.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turnkeeper.errors import CannotStart, PaneDead, PaneGone, TerminalMissing, TerminalTrouble
from turnkeeper.terminal import processes
from turnkeeper.terminal.control import CommandFailed, Control, Disconnected, line_of
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
    program_of,
)
from turnkeeper.terminal.screen import Screen, read_screen

VERSION_NEEDED: Final = (3, 2)
"""copy-mode -q, pause-after and list-panes -f are there since 3.2."""

SESSION: Final = "tk"
SOCKET_CHARS_MAX: Final = 100
"""A socket's path may be 107 bytes long; tmux adds `.lock`."""

HISTORY_LINES: Final = 2_000
VIEW_BYTES_MAX: Final = 4_000_000
"""A viewer that is further behind than this gets a fresh screen instead of what it missed."""
VIEW_LOOK_SECONDS: Final = 2.0
STATUS_TRIES: Final = 10
STATUS_SECONDS: Final = 0.02

CONFIG: Final = f"""\
set -g exit-empty off
set -g remain-on-exit on
set -g status off
set -g history-limit {HISTORY_LINES}
set -g update-environment ""
set -g default-terminal "screen-256color"
set -sg escape-time 0
set -g focus-events off
set -g set-titles off
set -g visual-bell off
set -g monitor-bell off
"""

LOOK: Final = (
    "#{pane_pid}|#{pane_dead}|#{pane_dead_status}|#{pane_dead_signal}|#{pane_in_mode}|#{alternate_on}"
    "|#{pane_width}|#{pane_height}|#{pane_title}"
)


SCREEN_BEGINS: Final = "= screen ="
"""Divides what is told of a pane and of clients from what stands on the screen."""


class _Server:
    """One tmux server and our control client to it."""

    def __init__(self, tmux: str, socket: str, session: str = SESSION) -> None:
        self.tmux = tmux
        self.socket = socket
        self.session = session
        self.panes: dict[str, TmuxPane] = {}
        self._control: Control | None = None
        self._lock = asyncio.Lock()

    async def control(self) -> Control:
        async with self._lock:
            if self._control is None or self._control.ended:
                if self._control is not None:
                    await self._control.close()
                    self._control = None
                self._control = await Control.attach(
                    self.tmux, self.socket, self.session, own_environment(), self._output, self._ended
                )
            return self._control

    async def run(self, *words: str, blocks: int = 1) -> list[str]:
        return await (await self.control()).run(*words, blocks=blocks)

    async def ask(self, *words: str, blocks: int = 1) -> list[str]:
        """As `run`, for commands that change nothing: asked again if the connection broke."""
        try:
            return await self.run(*words, blocks=blocks)
        except Disconnected:
            return await self.run(*words, blocks=blocks)

    async def start(self, folder: Path, columns: int, rows: int) -> None:
        """Start the server if it does not run."""
        with contextlib.suppress(PaneGone):
            await self.control()
            return
        config = folder / "tmux.conf"
        if not config.exists() or config.read_text() != CONFIG:
            config.write_text(CONFIG)
        code, words = await run_once(
            self.tmux,
            "-u",
            "-S",
            self.socket,
            "-f",
            str(config),
            "new-session",
            "-d",
            "-x",
            str(columns),
            "-y",
            str(rows),
            "-s",
            SESSION,
            "-n",
            "hold",
            "exec true",
        )
        if code != 0 and "duplicate session" not in words:
            raise TerminalTrouble(why=f"the tmux server did not start: {words}")

    async def detach(self) -> None:
        if self._control is not None:
            await self._control.close()
            self._control = None

    def _output(self, pane_id: str, data: bytes) -> None:
        pane = self.panes.get(pane_id)
        if pane is not None:
            pane.told_output(data)

    def _ended(self) -> None:
        for pane in self.panes.values():
            pane.told_end()


class _Viewer:
    """One who watches a pane's output."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.dropped = False
        self.woken = asyncio.Event()

    def add(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size += len(data)
        if self.size > VIEW_BYTES_MAX or not data:
            self.dropped = True
            self.clear()
        self.woken.set()

    def clear(self) -> None:
        self.pieces.clear()
        self.size = 0


@dataclass(frozen=True)
class _Prepared:
    """A text that a buffer of tmux holds: it was read back and compared."""

    text: str
    buffer: str
    size_bytes: int
    removed: tuple[str, ...]


class TmuxPane:
    """A pane of a tmux server."""

    def __init__(self, server: _Server, identity: PaneIdentity, folder: Path) -> None:
        self.identity = identity
        self._server = server
        self._folder = folder
        self._seen = 0
        self._output = asyncio.Event()
        self._viewers: list[_Viewer] = []
        self._prepared: _Prepared | None = None
        server.panes[identity.pane_id] = self

    # -- told by the server's reader

    def told_output(self, data: bytes) -> None:
        """Output arrived; b"" says that some was left out."""
        self._seen += max(len(data), 1)
        self._output.set()
        for viewer in self._viewers:
            viewer.add(data)

    def told_end(self) -> None:
        """The connection is over."""
        self._output.set()
        for viewer in self._viewers:
            viewer.dropped = True
            viewer.woken.set()

    # -- the Pane protocol

    async def look(self) -> Look:
        """How the program is."""
        look = await self._look()
        for _ in range(STATUS_TRIES):
            if look.state != DEAD or look.exit_code is not None or look.signal is not None:
                break
            # tmux 3.3a can miss the signal that its child ended: then it shows a dead pane and leaves a zombie
            # until another child ends. It is told again.
            with contextlib.suppress(PaneGone, TerminalTrouble, CommandFailed, ProcessLookupError):
                server = await self._server.ask("display-message", "-p", "#{pid}")
                os.kill(int(server[0]), signal.SIGCHLD)
            await asyncio.sleep(STATUS_SECONDS)
            look = await self._look()
        return look

    def _look_words(self) -> tuple[str, ...]:
        pane_id = self.identity.pane_id
        return (
            "list-panes", "-a", "-f", f"#{{==:#{{pane_id}},{pane_id}}}", "-F", LOOK,
            ";", "list-clients", "-F", "client|#{client_control_mode}#{client_readonly}",
        )  # fmt: skip

    async def _look(self) -> Look:
        try:
            return self._look_of(await self._server.ask(*self._look_words(), blocks=2))
        except PaneGone:
            return Look(state=GONE)
        except CommandFailed as refused:
            raise TerminalTrouble(why=str(refused)) from refused

    async def glance(self) -> tuple[Look, Screen | None]:
        """Look and screen in one question, whose parts are divided by a line that is neither."""
        try:
            lines = await self._server.ask(
                *self._look_words(),
                ";", "display-message", "-p", SCREEN_BEGINS,
                ";", "capture-pane", "-p", "-e", "-J", "-S", "0", "-t", self.identity.pane_id,
                blocks=4,
            )  # fmt: skip
        except PaneGone:
            return Look(state=GONE), None
        except CommandFailed:
            # A part was refused, then the others got no answer: each is asked by itself.
            look = await self.look()
            try:
                return look, await self.screen() if look.alive else None
            except PaneGone:
                return Look(state=GONE), None
        at = lines.index(SCREEN_BEGINS)
        look = self._look_of(lines[:at])
        if look.state == DEAD:
            look = await self.look()
        return look, read_screen("\n".join(lines[at + 1 :]), look.title) if look.alive else None

    def _look_of(self, lines: list[str]) -> Look:
        panes = [line for line in lines if not line.startswith("client|")]
        if not panes:
            return Look(state=GONE)
        pid, dead, code, by_signal, mode, alternate, columns, rows, title = panes[0].split("|", 8)
        if int(pid) != self.identity.pid:
            return Look(state=GONE)
        # A child that holds the terminal open hides its parent's death from tmux.
        ended = dead == "1" or not processes.same(self.identity.pid, self.identity.started)
        return Look(
            state=DEAD if ended else ALIVE,
            exit_code=int(code) if dead == "1" and code else None,
            signal=int(by_signal) if dead == "1" and by_signal else None,
            title=title,
            in_mode=mode not in {"", "0"},
            alternate=alternate == "1",
            columns=int(columns),
            rows=int(rows),
            attached=sum(line == "client|00" for line in lines),
        )

    async def screen(self, *, above: int = 0) -> Screen:
        """What stands on the screen."""
        pane_id = self.identity.pane_id
        title, *lines = await self._run(
            "display-message", "-p", "-t", pane_id, "#{pane_title}",
            ";", "capture-pane", "-p", "-e", "-J", "-S", f"-{above}" if above else "0", "-t", pane_id,
            blocks=2, again=True,
        )  # fmt: skip
        return read_screen("\n".join(lines), title)

    async def prepare(self, text: str) -> None:
        """Load a text into a buffer of tmux, and see that it holds that very text."""
        if self._prepared is not None and self._prepared.text == text:
            return
        cleaned, removed = clean(text)
        data = cleaned.encode()
        if not data:
            raise TerminalTrouble(why="there is nothing to paste")
        if len(data) > PASTE_BYTES_MAX:
            raise TerminalTrouble(
                why=f"a paste has at most {PASTE_BYTES_MAX} bytes, this one has {len(data)}"
            )
        former, self._prepared = self._prepared, None
        name = f"tk{uuid.uuid4().hex}"
        there, back = self._folder / name, self._folder / f"{name}.back"
        forget = () if former is None else (";", "delete-buffer", "-b", former.buffer)
        try:
            try:
                write_private(there, data)
                write_private(back, b"")
            except OSError as error:
                raise TerminalTrouble(why=f"the text could not be laid down for tmux: {error}") from error
            # `load-buffer -` would end with %end and load nothing, so the buffer is read back and compared.
            await self._run(
                "load-buffer", "-b", name, str(there), ";", "save-buffer", "-b", name, str(back), *forget,
                blocks=3 if forget else 2, again=True,
            )  # fmt: skip
            if back.read_bytes() != data:
                raise TerminalTrouble(why="tmux holds another text than the one it was given")
        finally:
            for file in (there, back):
                with contextlib.suppress(OSError):
                    file.unlink(missing_ok=True)
        self._prepared = _Prepared(text, name, len(data), removed)

    async def paste(self, text: str) -> Pasted:
        """Hand over a text as one bracketed paste. What was laid ready must still be there: tmux says if it is not."""
        await self.prepare(text)
        prepared, self._prepared = self._prepared, None
        assert prepared is not None
        pane_id = self.identity.pane_id
        await self._guarded(
            "paste-buffer", "-d", "-p", "-b", prepared.buffer, "-t", pane_id,
            before=("copy-mode", "-q", "-t", pane_id),
        )  # fmt: skip
        return Pasted(size_bytes=prepared.size_bytes, removed=prepared.removed)

    async def press(self, *keys: str) -> None:
        """Press keys."""
        if not keys_allowed(keys):
            raise TerminalTrouble(why=f"these are no keys: {keys!r}")
        pane_id = self.identity.pane_id
        await self._guarded("send-keys", "-t", pane_id, *keys, before=("copy-mode", "-q", "-t", pane_id))

    async def type_bytes(self, data: bytes) -> None:
        """What a person who took the terminal over types, byte for byte."""
        for at in range(0, len(data), 512):
            piece = [f"{byte:02x}" for byte in data[at : at + 512]]
            await self._guarded("send-keys", "-H", "-t", self.identity.pane_id, *piece)

    async def resize(self, columns: int, rows: int) -> None:
        """Give the window a size; it keeps it whoever attaches."""
        await self._run("resize-window", "-t", self.identity.pane_id, "-x", str(columns), "-y", str(rows))

    @property
    def output_seen(self) -> int:
        """Bytes of output so far."""
        return self._seen

    async def wait_output(self, seen: int, seconds: float) -> bool:
        """Wait for output beyond `seen`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._seen <= seen:
                    self._output.clear()
                    await self._output.wait()
        return self._seen > seen

    async def view(self) -> AsyncIterator[Frame]:
        """A live view."""
        viewer = _Viewer()
        self._viewers.append(viewer)
        try:
            while True:
                viewer.dropped = False
                try:
                    seed = await self._seed(viewer.clear)
                except (PaneGone, TerminalTrouble):
                    yield Frame("ended")
                    return
                yield seed
                while not viewer.dropped:
                    viewer.woken.clear()
                    data = b"".join(viewer.pieces)
                    viewer.clear()
                    if data:
                        yield Frame("output", data)
                        continue
                    try:
                        async with asyncio.timeout(VIEW_LOOK_SECONDS):
                            await viewer.woken.wait()
                    except TimeoutError:
                        if not await self._seems_alive():
                            yield Frame("ended")
                            return
                if not await self._seems_alive():
                    yield Frame("ended")
                    return
                yield Frame("dropped")
        finally:
            self._viewers.remove(viewer)

    async def stop(self, grace_seconds: float) -> tuple[int, ...]:
        """End the program with all it started, then its window."""
        pid, began, mark = self.identity.pid, self.identity.started, self.identity.mark
        if self.identity.adopted:
            # It is its person's; whoever adopts it next finds it free.
            with contextlib.suppress(PaneGone, TerminalTrouble):
                await self._run("set-option", "-p", "-u", "-t", self.identity.pane_id, "@turnkeeper")
            self._server.panes.pop(self.identity.pane_id, None)
            return ()
        ended = await processes.end_tree(pid, began, mark, grace_seconds)
        with contextlib.suppress(PaneGone, TerminalTrouble):
            await self._run("kill-pane", "-t", self.identity.pane_id)
        self._server.panes.pop(self.identity.pane_id, None)
        self.told_end()
        return ended

    # -- inside

    async def _run(self, *words: str, blocks: int = 1, again: bool = False) -> list[str]:
        """`again`: the command changes nothing, or nothing if done twice."""
        try:
            act = self._server.ask if again else self._server.run
            return await act(*words, blocks=blocks)
        except CommandFailed as refused:
            raise self._refused(refused) from refused

    @staticmethod
    def _refused(refused: CommandFailed) -> PaneGone | TerminalTrouble:
        words = str(refused)
        if "can't find" in words or "no current" in words:
            return PaneGone(why=words)
        return TerminalTrouble(why=words)

    async def _guarded(self, *words: str, before: tuple[str, ...] = ()) -> None:
        """Run a command on the pane unless its program has ended; check and act are one command.

        `before`: a command that comes first, in the same line.
        """
        told = await self._run(
            *((*before, ";") if before else ()),
            "if-shell",
            "-F",
            "-t",
            self.identity.pane_id,
            "#{pane_dead}",
            "display-message -p DEAD",
            line_of(*words),
            blocks=3 if before else 2,
        )
        if "DEAD" in told:
            raise PaneDead(why=(await self.look()).sentence)

    async def _seed(self, at_end: Callable[[], None]) -> Frame:
        pane_id = self.identity.pane_id
        control = await self._server.control()
        try:
            cursor, *lines = await control.run_bytes(
                "display-message", "-p", "-t", pane_id, "#{cursor_y}|#{cursor_x}|#{pane_width}|#{pane_height}",
                ";", "capture-pane", "-p", "-e", "-S", f"-{HISTORY_LINES}", "-t", pane_id,
                blocks=2, at_end=at_end,
            )  # fmt: skip
        except CommandFailed as refused:
            raise self._refused(refused) from refused
        if not cursor.strip(b"|"):
            raise PaneGone(why="there is no such pane")
        row, column, columns, rows = (int(number) for number in cursor.split(b"|"))
        drawn = b"\x1bc" + b"\r\n".join(lines) + f"\x1b[{row + 1};{column + 1}H".encode()
        return Frame("seed", drawn, columns, rows)

    async def _seems_alive(self) -> bool:
        try:
            return (await self.look()).alive
        except TerminalTrouble:
            return True


class Tmux:
    """Panes in tmux. `folder` (made 0700) holds sockets and passing files; it is private to one data folder."""

    def __init__(self, folder: Path, *, tmux: str = "tmux") -> None:
        self._tmux = tmux
        self._folder = folder
        self._sockets = folder
        self._servers: dict[str, _Server] = {}
        self._checked = False

    async def open(self, name: str, launch: Launch) -> TmuxPane:
        """Start a program at the place `name`."""
        await self._check()
        program = program_of(launch)
        server = self._server(self._socket(name))
        await server.start(self._folder, launch.columns, launch.rows)
        env = {**launch.env, processes.MARK_VARIABLE: launch.mark}
        pairs = [word for key, value in env.items() for word in ("-e", f"{key}={value}")]
        # Two words at least, else tmux would hand the one to a shell.
        argv = ("/usr/bin/env", program) if len(launch.argv) == 1 else (program, *launch.argv[1:])
        try:
            told = await server.run(
                "set-option", "-g", "default-size", f"{launch.columns}x{launch.rows}",
                ";", "new-window", "-d", "-P", "-F", "#{pane_id} #{pane_pid}", "-n", "cli",
                "-c", launch.cwd, *pairs, "--", *argv,
                blocks=2,
            )  # fmt: skip
            pane_id, pid = told[-1].split()
            began = processes.started(int(pid)) or 0.0
            await server.run(
                "resize-window", "-t", pane_id, "-x", str(launch.columns), "-y", str(launch.rows)
            )
        except CommandFailed as refused:
            raise CannotStart(why=str(refused)) from refused
        identity = PaneIdentity(
            socket=server.socket, pane_id=pane_id, pid=int(pid), started=began, mark=launch.mark
        )
        return TmuxPane(server, identity, self._folder)

    async def find(self, identity: PaneIdentity) -> TmuxPane | None:
        """The same pane again."""
        await self._check()
        server = self._server(identity.socket)
        if identity.adopted:
            session = await self._session_of(identity.socket, identity.pane_id)
            if session is None:
                return None
            server.session = session
        known = server.panes.get(identity.pane_id)
        if known is not None and known.identity == identity:
            pane = known
        else:
            pane = TmuxPane(server, identity, self._folder)
        look = await pane.look()
        if not (look.alive or (look.state == DEAD and processes.started(identity.pid) is None)):
            server.panes.pop(identity.pane_id, None)
            return None
        return pane

    async def adopt(self, socket: str, pane_id: str, mark: str) -> TmuxPane:
        """Take over a pane that a person started."""
        await self._check()
        if not re.fullmatch(r"%[0-9]+", pane_id):
            raise CannotStart(why=f"a pane's id looks like %5, not like {pane_id!r}")
        session = await self._session_of(socket, pane_id)
        if session is None:
            raise CannotStart(why=f"there is no pane {pane_id} at {socket}")
        server = self._server(socket)
        server.session = session
        owner = f"{mark} {os.getpid()} {processes.started(os.getpid())}"
        told = await server.run(
            "display-message", "-p", "-t", pane_id, "#{@turnkeeper}",
            ";", "display-message", "-p", "-t", pane_id, "#{pane_pid}",
            blocks=2,
        )  # fmt: skip
        if told[0] and not _mine_or_stale(told[0], mark):
            raise CannotStart(why=f"another Turnkeeper (process {told[0].split()[1]}) drives this pane")
        await server.run("set-option", "-p", "-t", pane_id, "@turnkeeper", owner)
        pid = int(told[1])
        identity = PaneIdentity(
            socket=socket,
            pane_id=pane_id,
            pid=pid,
            started=processes.started(pid) or 0.0,
            mark=mark,
            adopted=True,
        )
        return TmuxPane(server, identity, self._folder)

    async def reap(self, identity: PaneIdentity, grace_seconds: float) -> tuple[int, ...]:
        """End what outlived its terminal."""
        if identity.adopted:
            return ()
        return await processes.end_tree(identity.pid, identity.started, identity.mark, grace_seconds)

    async def close_place(self, name: str) -> None:
        """End the tmux server of a place in which nothing runs."""
        server = self._servers.pop(self._socket(name), None)
        if server is not None:
            await server.detach()
        await run_once(self._tmux, "-S", self._socket(name), "kill-server")

    async def close(self) -> None:
        """Detach from all servers."""
        for server in self._servers.values():
            await server.detach()
        self._servers.clear()

    def attach_command(self, identity: PaneIdentity) -> tuple[str, ...]:
        """The command with which a person opens the same pane in a terminal of their own."""
        return (self._tmux, "-u", "-S", identity.socket, "attach-session", "-t", identity.pane_id)

    # -- inside

    def _server(self, socket: str) -> _Server:
        if socket not in self._servers:
            self._servers[socket] = _Server(self._tmux, socket)
        return self._servers[socket]

    def _socket(self, name: str) -> str:
        short = hashlib.sha256(name.encode()).hexdigest()[:16]
        return str(self._sockets / f"{short}.sock")

    async def _session_of(self, socket: str, pane_id: str) -> str | None:
        code, words = await run_once(
            self._tmux, "-S", socket, "list-panes", "-a", "-F", "#{pane_id} #{session_name}"
        )
        if code != 0:
            return None
        for line in words.splitlines():
            found, _, session = line.partition(" ")
            if found == pane_id:
                return session
        return None

    async def _check(self) -> None:
        """tmux is there and new enough, and the folder is ours alone."""
        if self._checked:
            return
        needed = ".".join(map(str, VERSION_NEEDED))
        if shutil.which(self._tmux) is None:
            raise TerminalMissing(needed=needed, why="it is not installed")
        _, words = await run_once(self._tmux, "-V")
        found = re.search(r"([0-9]+)\.([0-9]+)", words)
        if found is not None and (int(found[1]), int(found[2])) < VERSION_NEEDED:
            raise TerminalMissing(needed=needed, why=f"this is {words}")
        try:
            make_private(self._folder)
            if len(os.fsencode(self._folder)) + len("/0123456789abcdef.sock") > SOCKET_CHARS_MAX:
                short = hashlib.sha256(os.fsencode(self._folder.resolve())).hexdigest()[:16]
                self._sockets = Path(tempfile.gettempdir()) / f"turnkeeper-{os.getuid()}" / short
                make_private(self._sockets.parent)
                make_private(self._sockets)
        except OSError as error:
            raise TerminalTrouble(why=f"the folder for sockets cannot be used: {error}") from error
        self._checked = True


def own_environment() -> dict[str, str]:
    """What tmux itself is given: nothing of ours, and a locale in which it counts characters rightly."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "LC_CTYPE": "C.UTF-8",
        "SHELL": "/bin/sh",
        "TERM": "screen-256color",
    }


async def run_once(*argv: str) -> tuple[int, str]:
    """Run a command of tmux by itself; exit code and words. The server that it may start inherits no pipe of ours."""
    with tempfile.TemporaryFile() as out:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env=own_environment()
            )
        except OSError as error:
            raise TerminalTrouble(why=f"tmux could not be started: {error}") from error
        code = await process.wait()
        out.seek(0)
        return code, out.read().decode("utf-8", "replace").strip()


def write_private(path: Path, data: bytes) -> None:
    """Write a new file that only we can read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def make_private(folder: Path) -> None:
    """Make a folder that only we can enter; refuse one that somebody else owns."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    folder.chmod(0o700)


def _mine_or_stale(owner: str, mark: str) -> bool:
    words = owner.split()
    if len(words) != 3 or words[0] == mark:
        return True
    return not processes.same(int(words[1]), float(words[2]))
