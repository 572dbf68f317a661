"""The wire of tmux's control mode (`tmux -C`), over pipes: commands in, replies and output out.

A command is one line. Its reply is a block `%begin TIME NUMBER FLAGS` ... `%end` (or `%error`) with the same
three values; whatever stands between belongs to it, even a line that begins with `%`. Bit 1 of the flags says
that the block answers our own input. Output of panes comes as `%output` or, with flow control, as
`%extended-output` lines, in order with the replies: what follows the reply to a capture came after the capture.

Traps of tmux 3.3a that are answered here: a command of several parts gets a block for each part; after an
error the other parts get none; `load-buffer -` fails and still closes with %end, so nobody uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections import deque
from collections.abc import Callable
from typing import Final

from turnkeeper.errors import PaneGone, TerminalTrouble

REPLY_SECONDS: Final = 10.0
"""Longest wait for the reply to a command; after it the connection is dropped, for its replies would not fit."""

CLOSE_SECONDS: Final = 2.0
"""A control client ends when its input ends; after this long it is killed."""

LAG_SECONDS: Final = 2
"""tmux stops sending a pane's output when we are this far behind it, instead of keeping it all in memory."""

READ_BYTES: Final = 262_144

_OCTAL: Final = re.compile(rb"\\([0-7]{3})")
_SAFE: Final = re.compile(r"[A-Za-z0-9_@%:./=,+-]+")
_NO_SERVER: Final = (
    "no server running",
    "error connecting to",
    "no sessions",
    "can't find session",
    "lost server",
)


class Disconnected(TerminalTrouble):
    """The connection to tmux ended before it answered: {why}. A question can be asked again."""


class CommandFailed(Exception):
    """tmux refused a command; its words say why."""


def quote(word: str) -> str:
    """`word` as one argument of a tmux command line."""
    if _SAFE.fullmatch(word):
        return word
    if "'" not in word and word.isprintable():
        return f"'{word}'"
    out: list[str] = []
    for char in word:
        if char in '"\\$':
            out.append("\\" + char)
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\{ord(char):03o}")
        else:
            out.append(f"\\U{ord(char):08x}")
    return '"' + "".join(out) + '"'


def line_of(*words: str) -> str:
    """A command line; the word `;` alone divides commands."""
    return " ".join(";" if word == ";" else quote(word) for word in words)


def unescape(data: bytes) -> bytes:
    """Output as the program wrote it: tmux writes control bytes and the backslash as three octal digits."""
    if b"\\" not in data:
        return data
    return _OCTAL.sub(lambda m: bytes((int(m.group(1), 8),)), data)


class _Waiting:
    """A command that waits for its reply: `blocks` replies, or one error."""

    __slots__ = ("at_end", "blocks", "done", "lines")

    def __init__(
        self, blocks: int, done: asyncio.Future[list[bytes]], at_end: Callable[[], None] | None = None
    ) -> None:
        self.blocks = blocks
        self.done = done
        self.at_end = at_end
        self.lines: list[bytes] = []


class Control:
    """One control client. `on_output(pane_id, data)` is called for each piece of output, in order."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        on_output: Callable[[str, bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self._process = process
        self._on_output = on_output
        self._on_end = on_end
        self._waiting: deque[_Waiting] = deque()
        self._ended = False
        self._words = ""
        self._attached = asyncio.Event()
        self._reader = asyncio.create_task(self._read(), name="tmux control reader")

    @classmethod
    async def attach(
        cls,
        tmux: str,
        socket: str,
        session: str,
        env: dict[str, str],
        on_output: Callable[[str, bytes], None],
        on_end: Callable[[], None],
    ) -> Control:
        """Attach to a session. Raises PaneGone if there is no such server or session, TerminalTrouble otherwise."""
        try:
            process = await asyncio.create_subprocess_exec(
                tmux,
                "-u",
                "-N",  # attach-session would start a server, with the user's own configuration
                "-S",
                socket,
                "-C",
                "attach-session",
                "-t",
                f"={session}",
                "-f",
                f"pause-after={LAG_SECONDS},ignore-size",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=env,
            )
        except OSError as error:
            raise TerminalTrouble(why=f"tmux could not be started: {error}") from error
        control = cls(process, on_output, on_end)
        # A command that comes before the client is attached is refused ("no current client").
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                await control._attached.wait()
        except TimeoutError:
            await control.close()
            raise TerminalTrouble(why=f"tmux did not attach within {REPLY_SECONDS:g} s") from None
        except BaseException:
            await control.close()
            raise
        if control.ended:
            await control.close()
            raise control._gone()
        return control

    @property
    def ended(self) -> bool:
        """Whether the connection is over."""
        return self._ended

    @property
    def pid(self) -> int:
        """The control client's process."""
        return self._process.pid

    async def run(self, *words: str, blocks: int = 1) -> list[str]:
        """Send a command of `blocks` parts; the lines of all its replies.

        Raises CommandFailed if tmux refuses it, PaneGone if the server is gone, TerminalTrouble if it
        does not answer in time.
        """
        lines = await self.run_bytes(*words, blocks=blocks)
        return [line.decode("utf-8", "replace") for line in lines]

    async def run_bytes(
        self, *words: str, blocks: int = 1, at_end: Callable[[], None] | None = None
    ) -> list[bytes]:
        """As `run`, the lines as bytes. `at_end` is called before any output that came after the reply."""
        if self._ended:
            raise self._gone()
        done: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(blocks, done, at_end)
        self._waiting.append(waiting)
        assert self._process.stdin is not None
        self._process.stdin.write((line_of(*words) + "\n").encode())
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                return await asyncio.shield(done)
        except TimeoutError:
            self._end()
            raise TerminalTrouble(why=f"tmux did not answer within {REPLY_SECONDS:g} s") from None

    async def close(self) -> None:
        """Detach; panes stay as they are."""
        self._end()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            # Not Process.kill: it polls first, and a poll takes the exit code away from the loop's own watcher.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        # What it still wrote is read to its end, else the pipe would stay open behind the loop's back.
        await asyncio.wait({self._reader}, timeout=CLOSE_SECONDS)
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001

    # -- the other direction

    async def _read(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        block: tuple[bytes, bytes, bytes] | None = None
        lines: list[bytes] = []
        try:
            while chunk := await self._process.stdout.read(READ_BYTES):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    if block is not None:
                        head, _, tail = line.partition(b" ")
                        if head in {b"%end", b"%error"} and tuple(tail.split(b" ")) == block:
                            self._reply(block, lines, failed=head == b"%error")
                            block, lines = None, []
                        else:
                            lines.append(line)
                    elif line.startswith(b"%begin "):
                        _, time, number, flags = line.split(b" ")
                        block = (time, number, flags)
                    else:
                        self._notice(line)
        finally:
            self._end()

    def _reply(self, block: tuple[bytes, bytes, bytes], lines: list[bytes], *, failed: bool) -> None:
        if not int(block[2]) & 1:
            if failed:
                self._words = b" ".join(lines).decode("utf-8", "replace")
            return
        if not self._waiting:
            return
        waiting = self._waiting[0]
        waiting.lines += lines
        waiting.blocks -= 1
        if failed:
            self._waiting.popleft()
            if not waiting.done.done():
                words = b" ".join(lines).decode("utf-8", "replace")
                waiting.done.set_exception(CommandFailed(words))
                waiting.done.exception()
        elif waiting.blocks == 0:
            self._waiting.popleft()
            if waiting.at_end is not None:
                waiting.at_end()
            if not waiting.done.done():
                waiting.done.set_result(waiting.lines)

    def _notice(self, line: bytes) -> None:
        kind, _, rest = line.partition(b" ")
        if kind == b"%extended-output":
            head, _, data = rest.partition(b" : ")
            self._on_output(head.split(b" ", 1)[0].decode(), unescape(data))
        elif kind == b"%output":
            pane, _, data = rest.partition(b" ")
            self._on_output(pane.decode(), unescape(data))
        elif kind == b"%pause":
            pane_id = rest.decode()
            self._on_output(pane_id, b"")
            assert self._process.stdin is not None
            done: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(1, done))
            self._process.stdin.write(
                (line_of("refresh-client", "-A", f"{pane_id}:continue") + "\n").encode()
            )
        elif kind == b"%session-changed":
            self._attached.set()
        elif kind == b"%exit":
            self._words = self._words or rest.decode("utf-8", "replace")
        elif not line.startswith(b"%") and line:
            self._words = line.decode("utf-8", "replace")

    def _gone(self) -> PaneGone | TerminalTrouble:
        words = self._words or "the connection ended"
        if any(sign in words for sign in _NO_SERVER) or "exited" in words:
            return PaneGone(why=words)
        return Disconnected(why=words)

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._attached.set()
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done.done():
                waiting.done.set_exception(self._gone())
                waiting.done.exception()
        self._on_end()
