"""The chat on a real terminal: answers above, a prompt below that can be typed into at any time.

Three threads at work: the event loop draws and reads keys, one thread follows the stream, one sends what was
typed, in order. Whatever is typed is kept until the server has it: a send that finds no server waits for it.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.patch_stdout import patch_stdout

from turnkeeper.cli.chat import Room, follow
from turnkeeper.cli.client import Frame, Refused, Unreachable
from turnkeeper.cli.safe import printable
from turnkeeper.errors import TurnkeeperError

PROMPT = "> "

LEAVE_WORDS = frozenset({"/quit", "/exit"})


def converse(room: Room) -> None:
    """Chat until the person leaves. Raises Refused if the server will not have us."""
    asyncio.run(_Screen(room).run())


class _Screen:
    def __init__(self, room: Room) -> None:
        self._room = room
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="send")
        self._ended: Exception | None = None
        self._unsent = 0

    async def run(self) -> None:
        room = self._room
        room.talk.columns = max(20, shutil.get_terminal_size().columns - 10)
        self._print(room.begin())
        self._session: PromptSession[str] = PromptSession(self._message, bottom_toolbar=self._toolbar)
        loop = asyncio.get_running_loop()
        stream = room.client.another()

        def give(item: Frame | Exception | str) -> None:
            loop.call_soon_threadsafe(self._take, item)

        Thread(target=follow, args=(room, stream, give), daemon=True).start()
        with patch_stdout():
            await self._read(loop)
        self._sender.shutdown(wait=False, cancel_futures=True)
        if self._ended is not None:
            raise self._ended

    async def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._ended is None:
            try:
                typed = (await self._session.prompt_async()).strip()
            except KeyboardInterrupt:
                typed = "/stop"
            except EOFError:
                return
            if typed in LEAVE_WORDS:
                return
            if typed:
                self._unsent += 1
                loop.run_in_executor(self._sender, self._do, typed, loop)

    def _do(self, typed: str, loop: asyncio.AbstractEventLoop) -> None:
        """Carry out one line (in the sending thread); a server that is away is waited for."""
        key = uuid.uuid4().hex
        while True:
            try:
                lines = self._room.do(typed, key)
            except Unreachable:
                continue
            except Refused as error:
                lines = [f"✗ {printable(error.sentence)}"]
                if not typed.startswith("/"):
                    lines.append(f"  not sent: {printable(typed)}")
            except TurnkeeperError as error:
                lines = [f"✗ {printable(error.sentence)}"]
            loop.call_soon_threadsafe(self._done, lines)
            return

    def _done(self, lines: list[str]) -> None:
        self._unsent -= 1
        self._print(lines)
        self._session.app.invalidate()

    def _take(self, item: Frame | Exception | str) -> None:
        if isinstance(item, Exception):
            self._ended = item
            if self._session.app.is_running:
                self._session.app.exit(exception=EOFError)
            return
        self._print([item] if isinstance(item, str) else self._room.take(item))
        self._session.app.invalidate()

    def _print(self, lines: list[str]) -> None:
        if lines:
            print("\n".join(lines))

    def _message(self) -> FormattedText:
        unfinished = self._room.talk.unfinished
        shown = f"{unfinished}\n" if unfinished else ""
        return FormattedText([("", shown), ("bold", PROMPT)])

    def _toolbar(self) -> str:
        sending = f"sending {self._unsent} · " if self._unsent else ""
        return sending + self._room.talk.status()
