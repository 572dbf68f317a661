"""A program that speaks JSON lines over its pipes instead of drawing on a screen: start it, write to it, hear it, end it.

It is ours alone and does not outlive us: its input ends with us, and what is left of it is ended as a whole tree by who
comes next (`processes`). Lines that are no JSON, and what it writes to its error output, are kept as its last words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from turnkeeper.errors import CannotStart, PaneDead, TerminalTrouble
from turnkeeper.terminal import processes
from turnkeeper.terminal.pane import ALIVE, DEAD, Launch, Look, PaneIdentity, program_of

READ_BYTES: Final = 262_144
LINE_BYTES_MAX: Final = 64_000_000
"""A longer line is passed over: some protocols repeat the whole conversation in one."""
WORDS_LINES: Final = 40
WORDS_CHARS: Final = 500
WRITE_SECONDS: Final = 10.0
"""A program that takes no input for so long is in trouble; whether it read what was written is not known."""
CLOSE_SECONDS: Final = 2.0

PIPE: Final = "pipe"
"""Stands for the pane in the identity of a program that has none."""


class Piped:
    """One program on pipes. `on_row` is told each JSON object that it writes, `on_words` any other line."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        identity: PaneIdentity,
        on_row: Callable[[dict[str, Any]], None],
        on_words: Callable[[str], None],
        on_end: Callable[[], None],
    ) -> None:
        self.identity = identity
        self.words: deque[str] = deque(maxlen=WORDS_LINES)
        self._process = process
        self._on_row = on_row
        self._on_words = on_words
        self._on_end = on_end
        self._writing = asyncio.Lock()
        self._readers = [asyncio.create_task(self._rows()), asyncio.create_task(self._complaints())]

    @classmethod
    async def start(
        cls,
        launch: Launch,
        on_row: Callable[[dict[str, Any]], None],
        on_words: Callable[[str], None],
        on_end: Callable[[], None],
    ) -> Piped:
        """Start it. Raises CannotStart."""
        program = program_of(launch)
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *launch.argv[1:],
                cwd=launch.cwd,
                env={**launch.env, processes.MARK_VARIABLE: launch.mark},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotStart(why=f"{launch.argv[0]} could not be started: {error}") from error
        began = processes.started(process.pid) or 0.0
        identity = PaneIdentity(socket="", pane_id=PIPE, pid=process.pid, started=began, mark=launch.mark)
        return cls(process, identity, on_row, on_words, on_end)

    def look(self) -> Look:
        """How the program is."""
        code = self._process.returncode
        if code is None:
            return Look(state=ALIVE)
        return Look(state=DEAD, exit_code=code if code >= 0 else None, signal=-code if code < 0 else None)

    async def ends_within(self, seconds: float) -> bool:
        """Wait for its end; whether it came."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode is not None

    async def write(self, *rows: Any) -> None:
        """Hand rows to it, whole and in order. Raises PaneDead, TerminalTrouble (whether it came through is not known)."""
        assert self._process.stdin is not None
        if self._process.returncode is not None:
            raise PaneDead(why=self.look().sentence)
        data = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        try:
            async with self._writing, asyncio.timeout(WRITE_SECONDS):
                self._process.stdin.write(data)
                await self._process.stdin.drain()
        except TimeoutError:
            raise TerminalTrouble(why=f"it took no input for {WRITE_SECONDS:g} s") from None
        except OSError as error:
            raise PaneDead(why=f"its input is closed ({error})") from error

    async def stop(self, grace_seconds: float) -> tuple[int, ...]:
        """End it with all it started; their pids."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        ended = await processes.end_tree(
            self.identity.pid, self.identity.started, self.identity.mark, grace_seconds
        )
        await self._process.wait()
        # A process that was not ours to end may hold the other end of the pipes open.
        await asyncio.wait(self._readers, timeout=CLOSE_SECONDS)
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
        return ended

    # -- what it writes

    async def _rows(self) -> None:
        assert self._process.stdout is not None
        rest: list[bytes] = []
        size = 0
        try:
            while chunk := await self._process.stdout.read(READ_BYTES):
                *whole, last = chunk.split(b"\n")
                for line in whole:
                    if size + len(line) <= LINE_BYTES_MAX:
                        self._line(b"".join([*rest, line]))
                    rest, size = [], 0
                size += len(last)
                if size <= LINE_BYTES_MAX:
                    rest.append(last)
                else:
                    rest = []
            self._line(b"".join(rest))
        finally:
            self._on_end()

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._said(line)
            return
        if isinstance(row, dict):
            self._on_row(row)

    async def _complaints(self) -> None:
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(READ_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            rest = rest[-WORDS_CHARS:]
            for line in whole:
                self._said(line)
        self._said(rest)

    def _said(self, line: bytes) -> None:
        words = line.decode("utf-8", "replace").strip()[:WORDS_CHARS]
        if words:
            self.words.append(words)
            self._on_words(words)
