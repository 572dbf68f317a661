"""A CLI on pipes, where the runner expects a pane: what a terminal does with keys is done in the CLI's own protocol.

It is a Pane like any other for opening, looking, ending and watching. Instead of a screen that is read it has a
`reading` of its own, made of what the CLI said; instead of Enter it has `submit`, which waits for the CLI's word that
it took the text. Nobody can type into it, and it does not outlive the server: what is left of it is ended as a whole
tree before its session is resumed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from turnkeeper.errors import NotPossible, NotTaken, PaneDead, TerminalTrouble
from turnkeeper.port.clock import Clock
from turnkeeper.retained.adapter import Plan
from turnkeeper.retained.signs import Block, BlockKind, Composer, Menu, Reading, Sign, SignKind
from turnkeeper.retained.structured.dialect import Asked, Dialect, Heard, HeardKind, Speech
from turnkeeper.terminal import processes
from turnkeeper.terminal.pane import Frame, Launch, Look, PaneIdentity, Pasted
from turnkeeper.terminal.pipes import Piped
from turnkeeper.terminal.screen import Line, Screen

TAKE_SECONDS: Final = 5.0
"""How long the CLI's word is waited for that it took a text; after it the transcript is asked."""
CLOSE_GRACE_SECONDS: Final = 5.0
"""How long a CLI may take to end with the server."""
CLOSED_SECONDS: Final = 2.0
"""How long a program may take to end that has closed its output; then it is ended, for nobody hears it any more."""
BROKEN_GRACE_SECONDS: Final = 0.5
ROW_CHARS: Final = 200
"""So much of a row that was not understood is shown."""
LOG_LINES: Final = 500
SCREEN_LINES: Final = 60
VIEW_LOOK_SECONDS: Final = 2.0
"""How often a view that is told nothing looks whether the program still runs."""
NO_TERMINAL: Final = 'This CLI is driven over pipes (driver = "structured"): it has no terminal to type into.'


def given_id(turn_id: str, attempt: int) -> str:
    """The id under which a turn's text is given: the same for the same attempt, also by another process.

    Its last two digits are the machine's: they count how often it was given.
    """
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"turnkeeper:{turn_id}:{attempt}"))


class _Given(msgspec.Struct):
    """A text that is with the CLI and is not on its way to the model yet, as far as it says."""

    text: str
    answer: asyncio.Future[str | None]
    """Why it was refused, "" if it was taken, None if the program ended before it said so."""
    taken: bool = False
    late: bool = False
    """Nobody waits for its answer any more."""


class StructuredPane:
    """One CLI on pipes."""

    def __init__(self, dialect: Dialect, clock: Clock) -> None:
        self.identity: PaneIdentity
        self.native_id = ""
        self.path = ""
        self.ready = False
        self.woken = asyncio.Event()
        """Set when the CLI has said something since its last reading."""
        self._dialect = dialect
        self._clock = clock
        self._speech: Speech
        self._piped: Piped
        self._busy: bool | None = None
        self._broken = ""
        self._staged = ""
        self._given: dict[str, _Given] = {}
        self._asked: dict[str, tuple[Asked, float]] = {}
        self._told: list[Sign] = []
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._seen = 0
        self._output = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.on_stop: Callable[[], None] = lambda: None

    @classmethod
    async def start(cls, dialect: Dialect, clock: Clock, launch: Launch) -> StructuredPane:
        """Start the program. Raises CannotStart."""
        pane = cls(dialect, clock)
        pane._piped = await Piped.start(launch, pane._row, pane._words, pane._ended)
        pane.identity = pane._piped.identity
        return pane

    async def begin(self, plan: Plan) -> None:
        """Open the session of `plan`. What came of it is seen by looking."""
        self._speech = Speech(plan=plan)
        try:
            await self._piped.write(*self._dialect.hello(self._speech))
        except (PaneDead, TerminalTrouble):
            return

    # -- what is told by the program

    def _row(self, row: dict[str, Any]) -> None:
        try:
            told = self._dialect.heard(row, self._speech)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            # Another version may say it in another shape; what follows must be heard all the same.
            self._words(f"not understood: {str(row)[:ROW_CHARS]}")
            return
        for heard in told:
            self._hear(heard)
        if told:
            self._wake()

    def _words(self, words: str) -> None:
        self._say(f"! {words}")
        self._wake()

    def _ended(self) -> None:
        for given in self._given.values():
            if not given.answer.done():
                given.answer.set_result(None)
        self._wake()
        if not self._stopping:
            self._later(self._end_unheard())

    def _wake(self) -> None:
        self.woken.set()
        self._output.set()

    def _say(self, text: str) -> None:
        self._log.extend(text.split("\n"))
        self._seen += len(text) + 1

    def _hear(self, heard: Heard) -> None:
        match heard.kind:
            case HeardKind.READY:
                self.native_id, self.path, self.ready = heard.native_id, heard.path, True
            case HeardKind.BROKEN:
                self._broken = heard.text
                self._say(f"! {heard.text}")
                self._later(self._end_broken())
            case HeardKind.BUSY:
                self._busy = True
            case HeardKind.IDLE:
                self._busy = False
                self._asked.clear()
                self._given = {own: given for own, given in self._given.items() if not given.taken}
            case HeardKind.TOOK | HeardKind.REFUSED:
                given = self._given.get(heard.given)
                if given is not None:
                    took = heard.kind is HeardKind.TOOK
                    if took and given.late and not given.taken:
                        self._told.append(Sign(kind=SignKind.QUEUED, text=given.text, given_id=heard.given))
                    given.taken = given.taken or took
                    if not took:
                        del self._given[heard.given]
                    if not given.answer.done():
                        given.answer.set_result("" if took else heard.text or "it was refused")
            case HeardKind.CONSUMED:
                self._consumed(heard)
            case HeardKind.DROPPED:
                self._drop(heard)
            case HeardKind.ASKED if heard.asked is not None:
                self._asked[heard.asked.ask_id] = (heard.asked, self._clock.now())
                self._say(f"? {heard.asked.title}")
            case HeardKind.WITHDREW:
                self._asked.pop(heard.ask_id, None)
            case HeardKind.SAID:
                self._say(heard.text)
            case HeardKind.REPLY:
                self._later(self._write(*heard.rows))
            case _:
                pass

    def _meant(self, heard: Heard) -> str:
        """Which text: by its id, or where the CLI keeps none by its words, the first that has them."""
        return heard.given or next((own for own, one in self._given.items() if one.text == heard.text), "")

    def _consumed(self, heard: Heard) -> None:
        given = self._given.pop(self._meant(heard), None)
        if given is not None and not given.answer.done():
            given.answer.set_result("")

    def _drop(self, heard: Heard) -> None:
        own = self._meant(heard)
        given = self._given.pop(own, None)
        if given is None:
            return
        if not given.answer.done():
            given.answer.set_result("it was dropped")
        else:
            self._told.append(Sign(kind=SignKind.TOOK_BACK, text=given.text, given_id=own))

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _end_broken(self) -> None:
        self._stopping = True
        await self._piped.stop(BROKEN_GRACE_SECONDS)
        self._wake()

    async def _end_unheard(self) -> None:
        if not await self._piped.ends_within(CLOSED_SECONDS):
            self._say("! it closed its output and went on; it was ended")
            await self._end_broken()
        self._wake()

    async def _write(self, *rows: Any) -> None:
        try:
            await self._piped.write(*rows)
        except (PaneDead, TerminalTrouble) as error:
            self._say(f"! {error.sentence}")

    # -- what the runner asks for

    def reading(self) -> Reading:
        """What it does now, in the words of a screen that was read."""
        self.woken.clear()
        now = self._clock.now()
        for ask_id, (asked, since) in list(self._asked.items()):
            if asked.seconds is not None and now - since > asked.seconds:
                del self._asked[ask_id]
        block = None
        if self._asked:
            asked, _ = next(iter(self._asked.values()))
            block = Block(
                kind=BlockKind.PERMISSION,
                sentence=f"The CLI asks: {asked.title}",
                menu=_menu(asked),
                yes=asked.yes,
                no=asked.no,
            )
        return Reading(
            composer=Composer.EMPTY if self.ready else Composer.ABSENT,
            busy=self._busy,
            busy_source="protocol",
            block=block,
            queued=tuple(given.text.split("\n")[0] for given in self._given.values() if given.taken),
        )

    def signs(self) -> list[Sign]:
        """What it gave back, or said too late that it took, since the last call."""
        found, self._told = self._told, []
        return found

    async def paste(self, text: str) -> Pasted:
        """Lay a text ready; it is with the CLI once `submit` was called."""
        look = self._piped.look()
        if not look.alive:
            raise PaneDead(why=look.sentence)
        self._staged = text
        return Pasted(size_bytes=len(text.encode()))

    async def submit(self, own: str, *, command: bool = False) -> str:
        """Give the text that was laid ready; "transport" if the CLI says that it has it, "" if it said nothing in time.

        Raises NotTaken if it refused it, PaneDead.
        """
        text = self._staged
        given = _Given(text=text, answer=asyncio.get_running_loop().create_future())
        self._given[own] = given
        try:
            await self._piped.write(*self._dialect.give(text, own, self._speech, command=command))
        except PaneDead:
            self._given.pop(own, None)
            raise
        except TerminalTrouble:
            given.late = True
            return ""
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                refused = await asyncio.shield(given.answer)
        except TimeoutError:
            given.late = True
            return ""
        if refused:
            raise NotTaken(why=refused)
        return "transport" if refused is not None else ""

    def discard(self) -> None:
        """Forget the text that was laid ready."""
        self._staged = ""

    async def abandon(self) -> None:
        """No turn waits any more for what was given. What was never answered for may lie in the pipe: end the program.

        There is no composer from which it could be taken back, and read later it would be answered for nobody.
        """
        if any(not given.taken for given in self._given.values()):
            self._say("! it never said what became of a text; it was ended so that it reaches nobody later")
            await self._end_broken()

    async def interrupt(self) -> None:
        """Stop what it does; what it had queued comes back."""
        rows = self._dialect.interrupt(self._speech)
        if rows:
            await self._write(*rows)

    async def choose(self, menu: Menu, option: int) -> bool:
        """Answer a question, if that same one still waits; whether it did."""
        for ask_id, (asked, _) in list(self._asked.items()):
            if _menu(asked).mark == menu.mark:
                del self._asked[ask_id]
                await self._write(*self._dialect.answer(asked, option))
                return True
        return False

    # -- the Pane protocol

    async def look(self) -> Look:
        """How the program is."""
        return self._piped.look()

    async def screen(self, *, above: int = 0) -> Screen:
        """The newest of what it said, for people and for its last words."""
        lines = [Line(line, line) for line in list(self._log)[-SCREEN_LINES:]]
        return Screen(lines=tuple(lines))

    async def glance(self) -> tuple[Look, Screen | None]:
        """How the program is; what it says is no screen to be read."""
        return self._piped.look(), None

    async def prepare(self, text: str) -> None:
        """Nothing has to be laid ready."""

    async def press(self, *keys: str) -> None:
        """There are no keys."""
        raise NotPossible(why=NO_TERMINAL)

    async def type_bytes(self, data: bytes) -> None:
        """There is nothing to type into."""
        raise NotPossible(why=NO_TERMINAL)

    async def resize(self, columns: int, rows: int) -> None:
        """It has no size."""

    @property
    def output_seen(self) -> int:
        """Characters of what it said so far."""
        return self._seen

    async def wait_output(self, seen: int, seconds: float) -> bool:
        """Wait for more than `seen`."""
        try:
            async with asyncio.timeout(seconds):
                while self._seen <= seen:
                    self._output.clear()
                    await self._output.wait()
        except TimeoutError:
            pass
        return self._seen > seen

    async def view(self) -> AsyncIterator[Frame]:
        """What it says, as lines."""
        seen = self._seen
        yield self._log_frame()
        while self._piped.look().alive:
            if await self.wait_output(seen, VIEW_LOOK_SECONDS):
                # The log is short: a viewer is shown its end anew, however much was said meanwhile.
                seen = self._seen
                yield self._log_frame()
        yield Frame("ended")

    def _log_frame(self) -> Frame:
        return Frame("seed", b"\x1bc" + "\r\n".join([*self._log, ""]).encode())

    async def stop(self, grace_seconds: float) -> tuple[int, ...]:
        """End it with all it started."""
        self.on_stop()
        self._stopping = True
        return await self._piped.stop(grace_seconds)


def _menu(asked: Asked) -> Menu:
    """The question as a menu. Its id is part of it: the same words asked again are another question (G11)."""
    return Menu(
        title=asked.title,
        options=asked.options,
        selected=0,
        body=(*asked.body, f"(question {asked.ask_id})"),
    )


class StructuredTerminal:
    """Where the CLIs on pipes of one agent are. They end with it."""

    def __init__(self, dialect: Dialect, clock: Clock) -> None:
        self._dialect = dialect
        self._clock = clock
        self._panes: dict[str, StructuredPane] = {}

    async def open(self, name: str, launch: Launch) -> StructuredPane:
        """Start a program; its session is begun by `begin`."""
        pane = await StructuredPane.start(self._dialect, self._clock, launch)
        self._panes[launch.mark] = pane
        pane.on_stop = lambda: self._forget(launch.mark)
        return pane

    def _forget(self, mark: str) -> None:
        self._panes.pop(mark, None)

    async def find(self, identity: PaneIdentity) -> StructuredPane | None:
        """The same program, if this process started it: another server's pipes are closed."""
        return self._panes.get(identity.mark)

    async def adopt(self, socket: str, pane_id: str, mark: str) -> StructuredPane:
        """Nobody else's program can be taken over."""
        raise NotPossible(why=NO_TERMINAL)

    async def reap(self, identity: PaneIdentity, grace_seconds: float) -> tuple[int, ...]:
        """End what outlived its server."""
        pane = self._panes.get(identity.mark)
        if pane is not None:
            return await pane.stop(grace_seconds)
        return await processes.end_tree(identity.pid, identity.started, identity.mark, grace_seconds)

    def attach_command(self, identity: PaneIdentity) -> tuple[str, ...]:
        """There is nothing to attach to."""
        raise NotPossible(why=NO_TERMINAL)

    async def close_place(self, name: str) -> None:
        """It costs nothing."""

    async def close(self) -> None:
        """End all programs: without us nobody hears them."""
        panes = list(self._panes.values())
        await asyncio.gather(*(pane.stop(CLOSE_GRACE_SECONDS) for pane in panes), return_exceptions=True)
