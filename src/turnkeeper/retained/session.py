"""One conversation's CLI: its native session, its pane, its transcript, and what is remembered of them.

Which native session a turn goes to is decided here. The same role goes on in the same native session, whatever changed
in instructions, tools, model or deploy; a process that was launched with something older gets no new input and is
launched again on the same session. Only another role, or a session that is really gone, begins a new one, with the
reason shown and a continuity notice (seed 002, 2026-09-24).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from turnkeeper.conversation.events import Draft, SessionBound
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.turns import Failure
from turnkeeper.errors import CannotStart, PaneDead, PaneGone, TerminalError, TerminalTrouble
from turnkeeper.port.clock import Clock, Ids
from turnkeeper.retained.adapter import FRESH, INLINE, Adapter, Found, Plan
from turnkeeper.retained.adapters.looks import keys_for
from turnkeeper.retained.config import RetainedConfig, environment
from turnkeeper.retained.keepsake import KNOWN_ROWS_MAX, PAST_MAX, Keepsake, Keepsakes, name_of, remember
from turnkeeper.retained.machine.matching import squash
from turnkeeper.retained.notice import continuity, inline_instructions
from turnkeeper.retained.resets import moment
from turnkeeper.retained.signs import Menu, Reading, Sign, SignKind
from turnkeeper.retained.structured.pane import StructuredPane
from turnkeeper.retained.tape import Tape
from turnkeeper.terminal import processes
from turnkeeper.terminal.pane import Launch, Look, Pane, Terminal
from turnkeeper.transcript.place import Roots
from turnkeeper.transcript.source import Unreadable
from turnkeeper.transcript.tail import at_end

LOCATE_SECONDS = 0.3
"""How often a transcript that is not there yet is looked for."""
LAST_WORDS_CHARS = 300
LAST_WORDS_LINES = 6
MENU_KEY_SECONDS = 0.08
MENU_STEPS_MAX = 24
JOURNALED = frozenset({SignKind.TAKEN, SignKind.SAID, SignKind.THOUGHT, SignKind.CALLED, SignKind.RETURNED})
"""Signs that are passed over when their row was journaled before; ends are never."""


Dialogue = Callable[[], Awaitable[Sequence[Message]]]


class Desk(Protocol):
    """What happens to a conversation outside any running turn."""

    async def append(self, conversation_id: str, *drafts: Draft) -> object:
        """Journal something that no lane cares for."""
        ...

    async def late_answer(self, conversation_id: str, turn_id: str, text: str, state: str) -> None:
        """An answer came to a turn that has ended."""
        ...

    async def reconcile(
        self, conversation_id: str, where: Roots, rows: Callable[[Sequence[str]], None]
    ) -> str | None:
        """Merge the whole record of the conversation's native sessions into history.

        `rows` is told which rows history holds after it. Returns why what was found could not be stored; None if
        it was. Raises NotPossible while a turn runs.
        """
        ...


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """A pane that can be given a text. `prefix` goes in front of it; `bound` is to be journaled."""

    fresh: bool
    prefix: str = ""
    bound: SessionBound | None = None
    instructions: str = ""
    """Marker of instructions that travel in `prefix`."""
    seen: tuple[Look, Reading] | None = None
    """What was seen of a pane that ran already: the delivery need not look again at once."""


class CannotOpenPane(Exception):
    """There is no pane and there will be none; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.sentence)


class Session:
    """A conversation's CLI. `lock` is held by who works with it: one turn, or the watch between turns."""

    def __init__(
        self,
        conversation_id: str,
        config: RetainedConfig,
        adapter: Adapter,
        terminal: Terminal,
        keepsakes: Keepsakes,
        clock: Clock,
        ids: Ids,
        folder: Path,
        keep: Keepsake,
    ) -> None:
        self.conversation_id = conversation_id
        self.config = config
        self.adapter = adapter
        self.terminal = terminal
        self.clock = clock
        self.ids = ids
        self.folder = folder / conversation_id
        self.keep = keep
        self.lock = asyncio.Lock()
        self.pane: Pane | None = None
        self.pending: list[Sign] = []
        """Signs that belong to whoever runs next."""
        self.handed: dict[str, str] = {}
        """turn id -> key: texts in the CLI's own queue whose turns do not run yet."""
        self.running: str | None = None
        self.reading: Reading | None = None
        self.look: Look | None = None
        self.looked_at = 0.0
        self.active_at = clock.now()
        self.owner: str | None = None
        """Who has taken the terminal over."""
        self.trouble = ""
        """Why the watch could not do its work the last time."""
        self.unsure = False
        """The tape may have missed something: the whole record is merged when nothing runs."""
        self.merge_later = (0.0, "")
        """Not before this time, and why: what was found could not be stored."""
        self.menu_told = ""
        """The menu between turns that was told of."""
        self.parked_on = ("", 0.0)
        """The mark of the menu that a parked turn asked about, and until when its parking may not be stored yet."""
        self._keepsakes = keepsakes
        self._saved = b""
        env = environment(config, adapter)
        self._env = env
        self.where = Roots(home=Path(env.get("HOME", "/")), env=env)
        path = Path(keep.transcript) if keep.transcript else None
        self.tape = Tape(adapter, path, keep.cursor)
        self._located_at = 0.0
        self._limit: tuple[str, float | None] | None = None
        """The words of the limit that the screen showed last, and when it is over."""

    @classmethod
    async def load(
        cls,
        conversation_id: str,
        config: RetainedConfig,
        adapter: Adapter,
        terminal: Terminal,
        keepsakes: Keepsakes,
        clock: Clock,
        ids: Ids,
        folder: Path,
    ) -> Session:
        """The session as it was remembered."""
        value = await keepsakes.value(name_of(conversation_id))
        keep = Keepsake(cli=adapter.NAME) if value is None else msgspec.json.decode(value, type=Keepsake)
        return cls(conversation_id, config, adapter, terminal, keepsakes, clock, ids, folder, keep)

    async def save(self, *, settled: bool = True) -> None:
        """Remember durably. `settled` False: the transcript's cursor stays where it is."""
        if settled and not self.pending:
            self.keep.cursor = self.tape.cursor
        value = msgspec.json.encode(self.keep)
        if value != self._saved:
            await self._keepsakes.put_value(name_of(self.conversation_id), value)
            self._saved = value

    # -- the pane

    async def find(self) -> Pane | None:
        """The pane of the keepsake, dead or alive, if it is still there. Raises TerminalTrouble."""
        if self.pane is None and self.keep.pane is not None:
            self.pane = await self.terminal.find(self.keep.pane)
        return self.pane

    @property
    def structured(self) -> StructuredPane | None:
        """The pane, if the CLI is driven in its own protocol."""
        return self.pane if isinstance(self.pane, StructuredPane) else None

    async def alive(self) -> bool:
        """Whether the CLI's process runs. Raises TerminalTrouble."""
        pane = await self.find()
        return pane is not None and (await pane.look()).alive

    async def open(self, dialogue: Dialogue, *, delivered: bool) -> Opening:
        """A pane that can be given a text: the one that runs, or a new process on the same native session.

        `dialogue` tells what was said before this turn, if a new session must be told of it. `delivered`: this turn's
        text is in the running process.
        Raises CannotOpenPane, TerminalTrouble.
        """
        keep, config = self.keep, self.config
        pane = await self.find()
        look, reading = (None, None) if pane is None else await self.observe()
        same_role = keep.role in ("", config.role_key) and keep.cli == self.adapter.NAME
        outdated = keep.definition != config.definition_key or not same_role
        mute = self.structured is not None and not self.structured.ready and self._had_time()
        if look is not None and look.alive and not mute and (delivered or not outdated):
            return Opening(fresh=False, seen=None if reading is None else (look, reading))
        lost = False
        if pane is not None and look is not None and not look.alive:
            words = await self._last_words(pane)
            lost = self.adapter.lost_session(words) and keep.lost != keep.native_id
            if self.adapter.login_words(words):
                # Its words are told once: the next try asks a new process whether somebody has signed in.
                await self.close_pane()
                raise CannotOpenPane(
                    _failure("credentials", f"Nobody is signed in to {self.adapter.NAME}: {words}")
                )
        await self.close_pane()
        return await self._launch(dialogue, same_role=same_role, lost=lost)

    def _had_time(self) -> bool:
        """Whether the CLI was launched so long ago that it should have said that it is there."""
        return self.clock.now() - self.keep.launched_at >= self.config.timing.ready_seconds

    async def _launch(self, dialogue: Dialogue, *, same_role: bool, lost: bool) -> Opening:
        keep, config, adapter = self.keep, self.config, self.adapter
        if keep.native_id is not None and not keep.spoken and not lost:
            # It ended before anything was said in it: there is nothing to resume under that id.
            silent = await self._missing()
        else:
            silent = False
        resume = keep.native_id is not None and same_role and not (lost or silent)
        why, sentence = "resumed", "The same native session goes on."
        drifted = bool(config.instructions) and keep.instructions != config.instructions_key
        if keep.native_id is None:
            why, sentence = "new", "The conversation's first native session."
        elif not same_role:
            why, sentence = "role", "Its role changed: a new native session begins."
        elif lost or (keep.spoken and await self._missing()):
            resume = False
            why, sentence = "lost", f"The native session {keep.native_id} is gone: a new one begins."
            keep.lost = keep.native_id
        elif drifted and adapter.INSTRUCTIONS == FRESH:
            resume = False
            why, sentence = (
                "reloaded",
                "Its instructions changed and this CLI only reads them in a new session.",
            )
        elif keep.definition not in ("", config.definition_key):
            why, sentence = (
                "relaunched",
                "Its configuration changed: launched anew on the same native session.",
            )
        previous = keep.native_id
        if silent and same_role and adapter.CHOOSES_ID:
            # The same id is begun again: it is the same session, not another one.
            keep.instructions = ""
        elif not resume:
            self._begin_session(str(uuid.uuid4()) if adapter.CHOOSES_ID else None)
        prefix, instructions = "", ""
        # Also when the session that was to be told of it ended before it took anything.
        if not resume and any(native_id != keep.native_id for native_id in keep.chain):
            prefix = continuity(await dialogue(), self.conversation_id, why)
        told = bool(prefix)
        by_launch = adapter.INSTRUCTIONS != INLINE or (adapter.CHOOSES_ID and not resume)
        if config.instructions and keep.instructions != config.instructions_key:
            if by_launch:
                keep.instructions = config.instructions_key
            else:
                prefix = inline_instructions(config.instructions) + prefix
                instructions = config.instructions_key
        await self._start(resume)
        bound = SessionBound(
            cli=adapter.NAME,
            native_id=keep.native_id,
            why=why,
            sentence=sentence,
            previous=previous if previous != keep.native_id else None,
            pane=None
            if keep.pane is None
            else {"id": keep.pane.pane_id, "pid": keep.pane.pid, "mark": keep.pane.mark},
            told=told,
        )
        keep.why = sentence
        await self.save()
        return Opening(fresh=True, prefix=prefix, bound=bound, instructions=instructions)

    def _begin_session(self, native_id: str | None) -> None:
        keep = self.keep
        keep.native_id = native_id
        keep.spoken = False
        keep.instructions = ""
        keep.transcript, keep.cursor = None, None
        keep.unfinished, keep.answering = False, None
        if native_id is not None:
            keep.chain.append(native_id)
        self.tape = Tape(self.adapter, None)
        self.pending.clear()

    async def _start(self, resume: bool) -> None:
        """Start the CLI. Raises CannotOpenPane, TerminalTrouble."""
        keep, config, adapter = self.keep, self.config, self.adapter
        plan = Plan(
            command=config.command,
            args=config.args,
            cwd=config.cwd,
            session_id=keep.native_id,
            resume=resume,
            instructions=config.instructions,
            model=config.model,
            mcp=config.mcp,
            folder=str(self.folder),
            trust_cwd=config.trust_cwd,
        )
        command = adapter.command(plan)
        now = self.clock.now()
        try:
            self._write_files(command.files)
        except OSError as error:
            raise CannotOpenPane(
                _failure("disk", f"The CLI's files could not be written: {error}")
            ) from error
        launch = Launch(
            argv=command.argv,
            cwd=config.cwd,
            env={**self._env, **command.env},
            mark=f"{self.conversation_id}.{keep.launches + 1}.{uuid.uuid4().hex[:8]}",
            columns=config.columns,
            rows=config.rows,
        )
        try:
            self.pane = await self.terminal.open(self.conversation_id, launch)
        except CannotStart as refused:
            raise CannotOpenPane(_failure("config", refused.sentence)) from refused
        except TerminalTrouble:
            raise
        except TerminalError as refused:
            raise CannotOpenPane(_failure("terminal", refused.sentence)) from refused
        keep.pane = self.pane.identity
        if self.structured is not None:
            await self.structured.begin(plan)
        keep.launches += 1
        keep.launched_at = now
        keep.past = []
        keep.role, keep.definition, keep.cwd = config.role_key, config.definition_key, config.cwd
        keep.cli = adapter.NAME
        self.handed.clear()
        self.reading = self.look = None
        if resume and keep.spoken and self.tape.path is not None and self.tape.cursor is None:
            self._skip_to_end()

    def _write_files(self, files: dict[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, text in files.items():
            path = Path(name)
            path.unlink(missing_ok=True)
            path.touch(mode=0o600)
            path.write_text(text)

    def _skip_to_end(self) -> None:
        assert self.tape.path is not None
        try:
            self.tape.cursor = at_end(self.tape.path)
        except Unreadable:
            self.tape.cursor = None

    async def _missing(self) -> bool:
        """Whether the file of a session that has spoken is nowhere."""
        if self.tape.path is not None and self.tape.path.exists():
            return False
        keep = self.keep
        assert keep.native_id is not None
        found = self.adapter.locate(keep.native_id, self.where, keep.cwd or self.config.cwd)
        if found is not None:
            self.tape.path = found
            keep.transcript = str(found)
        return found is None

    async def end_leftovers(self) -> None:
        """End what is left of a CLI whose terminal or server is gone: it may still write to the session."""
        if self.pane is None and self.keep.pane is not None:
            await self.terminal.reap(self.keep.pane, self.config.grace_seconds)

    async def _last_words(self, pane: Pane) -> str:
        try:
            lines = [
                line.text for line in (await pane.screen(above=LAST_WORDS_LINES)).lines if line.text.strip()
            ]
        except (PaneGone, TerminalTrouble):
            return ""
        lines = [line for line in lines if not line.startswith("Pane is dead")]
        return " / ".join(lines[-LAST_WORDS_LINES:])[-LAST_WORDS_CHARS:]

    async def sentence_of(self, look: Look) -> str:
        """How the program ended, with its last words."""
        pane = self.pane
        if pane is None and self.config.structured:
            return "its process ended with the server that had started it"
        words = "" if pane is None or look.state == "gone" else await self._last_words(pane)
        return f"{look.sentence} (last words: {words})" if words else look.sentence

    async def close_pane(self) -> None:
        """End the CLI with all it started, and what is left of its terminal."""
        pane, self.pane = self.pane, None
        keep = self.keep
        if pane is not None:
            await pane.stop(self.config.grace_seconds)
        elif keep.pane is not None:
            await self.terminal.reap(keep.pane, self.config.grace_seconds)
        keep.pane = None
        keep.past = []
        self.handed.clear()
        self.reading = self.look = None

    async def adopt(self, pane: Pane, native_id: str | None) -> SessionBound:
        """Go on with a CLI that a person started."""
        keep = self.keep
        previous = keep.native_id
        await self.close_pane()
        self._begin_session(native_id)
        self.pane, keep.pane = pane, pane.identity
        keep.launches += 1
        keep.launched_at = self.clock.now()
        keep.role, keep.definition = self.config.role_key, self.config.definition_key
        keep.cwd, keep.cli = self.config.cwd, self.adapter.NAME
        if native_id is not None:
            keep.spoken = True
            await self._missing()
            if self.tape.path is not None:
                self._skip_to_end()
        keep.why = "A CLI that was started by hand."
        await self.save()
        return SessionBound(
            cli=self.adapter.NAME,
            native_id=native_id,
            why="adopted",
            sentence=keep.why,
            previous=previous,
            pane={"id": pane.identity.pane_id, "pid": pane.identity.pid},
        )

    # -- looking and reading

    async def observe(self) -> tuple[Look, Reading | None]:
        """One look at the pane, and its screen if the program runs. Raises TerminalTrouble."""
        pane = await self.find()
        now = self.clock.now()
        if pane is None:
            self.look, self.reading, self.looked_at = Look(state="gone"), None, now
            return self.look, None
        look, screen = await pane.glance()
        reading: Reading | None = None
        if look.alive and isinstance(pane, StructuredPane):
            reading = pane.reading()
        elif screen is not None:
            status = self.status()
            reading = self.adapter.read(
                msgspec.structs.replace(screen, title=look.title or screen.title),
                None if status is None else status[0],
                trust=self.config.trust_cwd,
            )
            reading = self._with_limit(reading, now)
            if self.owner is not None or look.attached:
                reading = msgspec.structs.replace(reading, person=True)
        self.look, self.reading, self.looked_at = look, reading, now
        return look, reading

    async def press(self, *keys: str) -> None:
        """Press keys; what becomes of a dead program is the next look's matter."""
        if not keys:
            return
        with contextlib.suppress(PaneDead, PaneGone, TerminalTrouble):
            pane = await self.find()
            if pane is not None:
                await pane.press(*keys)

    async def prepare(self, text: str) -> None:
        """Lay a text ready while its note is being stored. What goes wrong is told by the paste."""
        with contextlib.suppress(TerminalTrouble, PaneGone):
            pane = await self.find()
            if pane is not None:
                await pane.prepare(text)

    async def submit(self, given: str, *, command: bool) -> str:
        """Have the CLI take what was pasted; by which word it said so, "" if only its transcript can tell.

        Raises NotTaken if it refused the text, PaneDead.
        """
        if self.structured is not None:
            return await self.structured.submit(given, command=command)
        await self.press("Enter")
        return ""

    async def clear(self, rounds: int) -> None:
        """Empty the composer."""
        if self.structured is not None:
            self.structured.discard()
        else:
            await self.press(*self.adapter.CLEAR_KEYS * rounds)

    async def abandon(self) -> None:
        """The turn has ended without an answer: what it gave and nobody has taken must not be taken later."""
        if self.structured is not None:
            await self.structured.abandon()

    async def recall(self) -> None:
        """Have the CLI put what it queued back into its composer."""
        if self.structured is None:
            await self.press(*self.adapter.RECALL_KEYS)

    async def interrupt(self) -> None:
        """Stop what the CLI does, by its own way."""
        if self.structured is not None:
            await self.structured.interrupt()
        else:
            await self.press(*self.adapter.INTERRUPT_KEYS)

    async def choose(self, menu: Menu, option: int) -> bool:
        """Move the cursor step by step, looking each time, and confirm only on the option that was meant.

        False if another menu, or none, stands there now: then no key was pressed at it.
        """
        if self.structured is not None:
            return await self.structured.choose(menu, option)
        for _ in range(MENU_STEPS_MAX):
            try:
                _, reading = await self.observe()
            except TerminalTrouble:
                return False
            block = None if reading is None else reading.block
            now = None if block is None else block.menu
            if now is None or now.mark != menu.mark:
                return False
            key, *_ = keys_for(now, option)
            await self.press(key)
            if key == "Enter":
                return True
            await self.clock.sleep(MENU_KEY_SECONDS)
        return False

    def _with_limit(self, reading: Reading, now: float) -> Reading:
        """Give a limit its moment. The same words mean the moment at which they were first read to mean.

        A menu goes by itself; a mere note above the composer stays there, and says nothing once its moment is over.
        """
        block = reading.block
        if block is None or not block.resets:
            return reading
        words = block.sentence
        if self._limit is None or self._limit[0] != words:
            offset = time.localtime(now).tm_gmtoff
            self._limit = (words, moment(block.resets, now, offset))
        retry_at = self._limit[1]
        if block.menu is None and (retry_at is None or now >= retry_at):
            return msgspec.structs.replace(reading, block=None)
        return msgspec.structs.replace(reading, block=msgspec.structs.replace(block, retry_at=retry_at))

    @property
    def sentence_of_trouble(self) -> str:
        """What people are told: why the watch could not do its work, or that the transcript is of a newer kind."""
        if self.trouble or not self.tape.unknown:
            return self.trouble
        return f"{self.tape.unknown} rows of its transcript have a shape that is not known here."

    def status(self) -> tuple[str, str] | None:
        """What the CLI's own status file says: (busy | idle, native session)."""
        if self.keep.pane is None:
            return None
        return self.adapter.status(self.keep.pane.pid, self.where)

    async def signs(self) -> list[Sign]:
        """What the transcript says since last time, what is pending first."""
        await self._locate()
        fresh = self.tape.poll()
        known = set(self.keep.known_rows) if fresh else set()
        if self.tape.reset:
            last = max((n for n, sign in enumerate(fresh) if sign.native_id in known), default=-1)
            fresh = fresh[last + 1 :]
        found = [sign for sign in fresh if sign.kind not in JOURNALED or sign.native_id not in known]
        if self.structured is not None:
            back = self.structured.signs()
            found += [msgspec.structs.replace(sign, text=self.adapter.normalise(sign.text)) for sign in back]
        if self.pending:
            found = [*self.pending, *found]
            self.pending = []
        return found

    async def _locate(self) -> None:
        """Find the session's file, if it is not known yet or has moved."""
        keep = self.keep
        if keep.native_id is None or (self.tape.path is not None and self.tape.readable):
            return
        now = self.clock.now()
        if self.tape.path is not None and self.tape.path.exists():
            return
        if now < self._located_at + LOCATE_SECONDS:
            return
        self._located_at = now
        found = self.adapter.locate(keep.native_id, self.where, keep.cwd or self.config.cwd)
        if found is not None and found != self.tape.path:
            self.tape.path = found
            keep.transcript = str(found)

    async def _sessions(self, since: float) -> list[str]:
        found = self.adapter.sessions_since(self.where, self.config.cwd, since)
        return [one.native_id for one in found]

    async def harvest(self, key: str) -> SessionBound | str | None:
        """Find out which new session is ours: the CLI chose its id.

        Proof: the process writes to its file; or our text is in it, and no other process writes to it: somebody may say
        the same to another CLI in the same folder.

        Returns what to journal, or a sentence if two could be ours, or None while there is none.
        """
        keep = self.keep
        if self.structured is not None:
            if not self.structured.native_id:
                return None
            path = Path(self.structured.path) if self.structured.path else None
            return await self._bind(self.structured.native_id, path)
        found = self.adapter.sessions_since(self.where, self.config.cwd, keep.launched_at - 1.0)
        candidates = [one for one in found if one.native_id not in keep.chain]
        if not candidates:
            return None
        proven = await asyncio.to_thread(self._proven, candidates, key)
        if len(proven) != 1:
            if not proven:
                return None
            names = ", ".join(one.native_id for one in proven)
            return f"Several new sessions could belong to this pane ({names}); it stays unbound."
        return await self._bind(proven[0].native_id, proven[0].path)

    async def _bind(self, native_id: str, path: Path | None) -> SessionBound:
        keep = self.keep
        keep.native_id = native_id
        keep.chain.append(native_id)
        keep.transcript = None if path is None else str(path)
        self.tape = Tape(self.adapter, path)
        await self.save()
        return SessionBound(
            cli=self.adapter.NAME,
            native_id=native_id,
            why="new",
            sentence="The CLI's own session was found.",
        )

    def _proven(self, candidates: Sequence[Found], key: str) -> list[Found]:
        """Those of the candidates that are proven to be ours. It asks the operating system: a thread's work."""
        pid = self.keep.pane.pid if self.keep.pane is not None else 0
        written = processes.files_written(pid)
        proven = [one for one in candidates if os.path.realpath(one.path) in written]
        if proven:
            return proven
        holding = [one for one in candidates if self._holds(one.path, key)]
        theirs = processes.written_by_any({os.path.realpath(one.path) for one in holding})
        return [one for one in holding if os.path.realpath(one.path) not in theirs]

    def _holds(self, path: Path, key: str) -> bool:
        tape = Tape(self.adapter, path)
        return any(sign.kind is SignKind.TAKEN and sign.text == key for sign in tape.poll())

    async def switch(self, native_id: str) -> SessionBound:
        """The CLI goes on in another native session."""
        keep = self.keep
        previous = keep.native_id
        keep.native_id = native_id
        keep.chain.append(native_id)
        keep.transcript = None
        self.tape = Tape(self.adapter, None)
        self._located_at = 0.0
        keep.why = "The CLI itself began another native session."
        await self._locate()
        await self.save()
        return SessionBound(
            cli=self.adapter.NAME, native_id=native_id, why="switched", sentence=keep.why, previous=previous
        )

    async def switched_to(self, since: float) -> str | None:
        """The native session that began after a command such as /clear, if there is exactly one."""
        found = await self._sessions(since)
        fresh = [one for one in dict.fromkeys(found) if one not in self.keep.chain]
        return fresh[0] if len(fresh) == 1 else None

    # -- memory

    def done_with(self, sign: Sign) -> None:
        """The consequences of a row are journaled."""
        remember(self.keep.known_rows, sign.native_id)

    def merged(self, identities: Sequence[str]) -> None:
        """History holds these rows: the tape needs not add them again."""
        known = set(self.keep.known_rows)
        for identity in identities[-KNOWN_ROWS_MAX:]:
            if identity not in known:
                remember(self.keep.known_rows, identity)
        held = set(identities)
        handed, late = set(self.handed.values()), {one.key for one in self.keep.ended}
        waiting: list[Sign] = []
        for number, sign in enumerate(self.pending):
            taken = sign.kind is SignKind.TAKEN
            if taken and sign.text in handed:
                # From here on all belongs to the turn that runs next.
                waiting += self.pending[number:]
                break
            # The text of an ended turn proves its delivery, whoever stored the row.
            if sign.kind not in JOURNALED or sign.native_id not in held or (taken and sign.text in late):
                waiting.append(sign)
        self.pending = waiting

    def pasted(self, text: str) -> None:
        """A text was pasted into this pane: it may be cleared away by whoever comes next."""
        short = squash(text)
        if short and short not in self.keep.past:
            self.keep.past.append(short)
            del self.keep.past[:-PAST_MAX]


def _failure(kind: str, sentence: str) -> Failure:
    return Failure(kind=kind, retryable=True, sentence=sentence)
