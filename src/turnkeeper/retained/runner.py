"""The runner of retained agents: gives turns to CLIs in panes, and watches them between turns.

It is a Runner like any other (port.runner): the lane cannot tell it from a model agent. Between turns it reads what
comes late, sees what a person types at the terminal, and closes panes that nobody has used for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from turnkeeper.conversation.events import Draft, Noticed
from turnkeeper.conversation.turns import Failure, Request, Turn
from turnkeeper.errors import (
    BadInput,
    CannotStart,
    Conflict,
    Forbidden,
    NotFound,
    NotPossible,
    ReadsAsCommand,
    TerminalError,
    TerminalTrouble,
    TurnkeeperError,
)
from turnkeeper.port.clock import Clock, Ids
from turnkeeper.port.runner import FailedWith, Needs, Outcome, TurnPort
from turnkeeper.projection.view import iso
from turnkeeper.retained.adapter import Adapter
from turnkeeper.retained.adapters import adapter_named
from turnkeeper.retained.config import RetainedConfig, bypasses
from turnkeeper.retained.journal import words
from turnkeeper.retained.keepsake import Keepsakes, index_name
from turnkeeper.retained.machine.hand import BLOCKS_THAT_ASK
from turnkeeper.retained.run import Run, settle_foreign
from turnkeeper.retained.session import Desk, Session
from turnkeeper.retained.signs import Composer, Menu, SignKind
from turnkeeper.retained.structured import structured_adapter
from turnkeeper.retained.structured.pane import NO_TERMINAL, StructuredTerminal
from turnkeeper.terminal import processes
from turnkeeper.terminal.pane import Frame, Pane, Terminal

CONVERSATIONS_MAX = 10_000
"""So many conversations of one agent are looked after across restarts, the newest."""
WATCH_SECONDS = 0.5
"""How often the transcripts of idle CLIs are asked."""
MERGE_AGAIN_SECONDS = 10.0
"""A whole record is read again this long after a merge of it could not be stored."""
ADOPT_LOOKS = 10
ADOPT_LOOK_SECONDS = 0.2
"""A pane that is to be adopted is looked at so often: a CLI may be starting."""
NATIVE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
MENU_APPROVAL = "ap_menu_"
"""How the ids of questions begin that belong to no turn."""
TRUSTED_PRODUCERS = frozenset({"api", "page", "cli", "chat"})


def menu_approval(conversation_id: str, mark: str) -> str:
    """The name of the question that a menu (its mark) between turns is: the same while the same menu stands."""
    digest = hashlib.sha256(f"{conversation_id}\n{mark}".encode()).hexdigest()[:24]
    return f"{MENU_APPROVAL}{digest}"


class RetainedRunner:
    """Carries out the turns of one retained agent."""

    def __init__(
        self,
        config: RetainedConfig,
        terminal: Terminal,
        keepsakes: Keepsakes,
        clock: Clock,
        ids: Ids,
        folder: Path,
        *,
        desk: Desk | None = None,
    ) -> None:
        self.config = config
        self.adapter: Adapter = adapter_named(config.cli)
        self.terminal = terminal
        if config.structured:
            self.adapter, dialect = structured_adapter(config.cli)
            self.terminal = StructuredTerminal(dialect, clock)
        self.desk = desk
        self._keepsakes = keepsakes
        self._clock = clock
        self._ids = ids
        self._folder = folder
        self._sessions: dict[str, Session] = {}
        self._watch: asyncio.Task[None] | None = None
        self._closing = False

    # -- the Runner protocol

    async def run(self, turn: TurnPort) -> Outcome:
        """Carry out the offered turn."""
        offer = turn.offer
        refusal = self._refusal(offer.request)
        if refusal is not None:
            why = Failure(kind="policy", retryable=False, sentence=refusal.sentence)
            return FailedWith(failure=why)
        session = await self.session(offer.conversation.conversation_id)
        async with session.lock:
            session.running = offer.turn.turn_id
            session.parked_on = ("", 0.0)
            await self._know(session.conversation_id)
            try:
                outcome = await Run(session, turn, self.desk).carry_out()
                session.unsure = session.unsure or self._may_miss(session, outcome)
                return outcome
            finally:
                session.running = None
                self._begin_watch()

    def _may_miss(self, session: Session, outcome: Outcome) -> bool:
        """Whether the whole record is to be merged now that a turn has ended: in doubt always, else if it is short.

        What the turn was read as is journaled already; a merge finds what nobody saw, and mostly nothing.
        """
        if isinstance(outcome, FailedWith) or session.tape.reset:
            return True
        if isinstance(outcome, Needs):
            return False
        return 0 < session.tape.size_bytes <= self.config.merge_bytes_max

    async def outlived(self, turn: Turn) -> bool:
        """Whether the CLI that carries out this turn outlived the server."""
        session = await self.session(turn.conversation_id)
        if session.keep.turn_id != turn.turn_id:
            return False
        try:
            return await session.alive()
        except TerminalError:
            return False

    def vet(self, request: Request) -> None:
        """Refuse what this CLI cannot be given. Raises ReadsAsCommand, BadInput, Forbidden."""
        refusal = self._refusal(request)
        if refusal is not None:
            raise refusal
        text = words(request.parts)
        if request.options.get("as_command"):
            name = text.strip().split(maxsplit=1)[0] if text.strip() else ""
            if name not in self.adapter.COMMANDS:
                allowed = ", ".join(sorted(self.adapter.COMMANDS))
                raise BadInput(
                    f"The command {name!r} may not be sent to {self.adapter.NAME}; allowed are {allowed}."
                )
        elif self.adapter.reads_as_command(text):
            raise ReadsAsCommand(agent=self.config.agent)

    def _refusal(self, request: Request) -> Forbidden | None:
        """Turns of machines never reach a CLI that asks nobody, unless the config names the pair (DESIGN 7)."""
        producer = request.producer
        if request.principal.kind != "producer" and producer in TRUSTED_PRODUCERS:
            return None
        if producer in self.config.producers or not bypasses(self.config, self.adapter):
            return None
        return Forbidden(
            f"The agent {self.config.agent} asks for no permissions; turns of {producer} reach it only if its "
            "`producers` name it."
        )

    async def close(self) -> None:
        """Stop watching, let go of the terminal; panes live on."""
        self._closing = True
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        for session in self._sessions.values():
            await session.save()
        await self.terminal.close()

    async def restore(self) -> None:
        """Look after the CLIs that an earlier server left. None is launched; what they wrote meanwhile is read.

        A CLI that has ended was heard to its end, and is forgotten until its next turn.
        """
        for conversation_id in await self._known():
            session = await self.session(conversation_id)
            session.unsure = session.keep.spoken
        if self.config.structured:
            # Nobody hears them any more, and they hold their sessions.
            await asyncio.gather(*(session.end_leftovers() for session in self._sessions.values()))
        if self._sessions:
            self._begin_watch()

    async def _known(self) -> list[str]:
        value = await self._keepsakes.value(index_name(self.config.agent))
        return [] if value is None else msgspec.json.decode(value, type=list[str])

    async def _know(self, conversation_id: str) -> None:
        """Keep in mind, over restarts, that this conversation has a CLI."""
        known = await self._known()
        if conversation_id not in known:
            value = msgspec.json.encode([*known[-CONVERSATIONS_MAX + 1 :], conversation_id])
            await self._keepsakes.put_value(index_name(self.config.agent), value)

    @contextlib.asynccontextmanager
    async def merging(self, conversation_id: str) -> AsyncIterator[Session]:
        """The conversation's CLI, while the whole record of its sessions is merged: what is new was read before.

        Raises NotPossible while a turn runs: it takes what is new from the transcript itself.
        """
        session = await self.session(conversation_id)
        if session.running is not None:
            raise NotPossible(why="A turn runs in this conversation; try again when it has ended.")
        async with session.lock:
            await self._hear(session)
            yield session
            await session.save()

    # -- what else can be asked of it

    async def session(self, conversation_id: str) -> Session:
        """The conversation's CLI, loaded if need be."""
        found = self._sessions.get(conversation_id)
        if found is None:
            found = await Session.load(
                conversation_id,
                self.config,
                self.adapter,
                self.terminal,
                self._keepsakes,
                self._clock,
                self._ids,
                self._folder,
            )
            found = self._sessions.setdefault(conversation_id, found)
        return found

    async def state(self, conversation_id: str) -> dict[str, Any]:
        """What its CLI does now: the same reading that deliveries go by."""
        session = await self.session(conversation_id)
        if self._clock.now() - session.looked_at >= WATCH_SECONDS:
            with contextlib.suppress(TerminalTrouble):
                await session.observe()
        look, reading, keep = session.look, session.reading, session.keep
        state = "none" if keep.pane is None else "unknown"
        if look is not None and keep.pane is not None:
            state = "ended" if not look.alive else "starting"
        if reading is not None:
            composer = reading.composer.value != "absent"
            state = "busy" if reading.busy else "idle" if composer else "starting"
            if reading.block is not None:
                state = "blocked"
        block = reading.block if reading is not None else None
        return {
            "conversation_id": session.conversation_id,
            "agent": self.config.agent,
            "cli": self.adapter.NAME,
            "driver": "structured" if self.config.structured else "pane",
            "state": state,
            "blocked_by": None
            if block is None
            else {"kind": block.kind.value, "sentence": block.sentence, "retry_at": block.retry_at},
            "busy_source": None if reading is None else reading.busy_source or None,
            "native_session": keep.native_id,
            "sessions": list(keep.chain),
            "why": keep.why or None,
            "pid": None if keep.pane is None else keep.pane.pid,
            "pane": None if keep.pane is None else keep.pane.pane_id,
            "turn_id": session.running,
            "idle_since": iso(session.active_at) if state == "idle" and session.running is None else None,
            "taken_over_by": session.owner,
            "trouble": session.sentence_of_trouble or None,
            "exit": None if look is None or look.alive or keep.pane is None else look.sentence,
        }

    async def sessions(self) -> list[dict[str, Any]]:
        """All CLIs of this agent that are known here, with their memory."""
        found: list[dict[str, Any]] = []
        for conversation_id, session in list(self._sessions.items()):
            state = await self.state(conversation_id)
            pane = session.keep.pane
            memory = 0
            if pane is not None:
                memory = await asyncio.to_thread(processes.memory_bytes, pane.pid, pane.started, pane.mark)
            found.append({**state, "memory_bytes": memory})
        return found

    async def snapshot(self, conversation_id: str) -> str:
        """The screen as text. Raises NotFound."""
        session = await self._with_pane(conversation_id)
        assert session.pane is not None
        return (await session.pane.screen()).text

    async def view(self, conversation_id: str) -> AsyncIterator[Frame]:
        """The screen, live. Raises NotFound."""
        session = await self._with_pane(conversation_id)
        assert session.pane is not None
        async for frame in session.pane.view():
            yield frame

    async def type_bytes(self, conversation_id: str, data: bytes, who: str) -> None:
        """What a person types who has taken the terminal over. Raises Conflict for anybody else."""
        session = await self._with_pane(conversation_id)
        if session.owner != who:
            raise Conflict("You have not taken this terminal over.")
        assert session.pane is not None
        await session.pane.type_bytes(data)

    def menus(self) -> list[dict[str, Any]]:
        """Menus that stand in front of idle CLIs and ask for a decision, as questions to a person."""
        found = []
        for session in self._sessions.values():
            menu = self._asking(session)
            if menu is not None:
                found.append(
                    {
                        "approval_id": menu_approval(session.conversation_id, menu.mark),
                        "conversation_id": session.conversation_id,
                        "call_id": None,
                        "name": f"{self.adapter.NAME}: {menu.title}",
                        "arguments": {
                            "title": menu.title,
                            "body": list(menu.body),
                            "options": list(menu.options),
                        },
                        "who": self.config.approver,
                        "expires_at": None,
                    }
                )
        return found

    def _asking(self, session: Session) -> Menu | None:
        block = None if session.reading is None or session.running is not None else session.reading.block
        if block is None or block.kind not in BLOCKS_THAT_ASK or block.auto is not None:
            return None
        mark, until = session.parked_on
        if block.menu is not None and block.menu.mark == mark and self._clock.now() < until:
            # A turn has just asked about it; its parking is being stored.
            return None
        return block.menu

    async def decide_menu(self, conversation_id: str, approval_id: str, decision: str) -> bool:
        """Type a decision into the menu that was asked about, if that same menu still stands; whether it did."""
        session = await self.session(conversation_id)
        menu = self._asking(session)
        if menu is None or menu_approval(conversation_id, menu.mark) != approval_id:
            return False
        assert session.reading is not None
        assert session.reading.block is not None
        option = session.reading.block.option(decision)
        if option is None:
            raise BadInput(f"This menu has no option that means {decision!r}.")
        async with session.lock:
            return await session.choose(menu, option)

    async def take_over(self, conversation_id: str, who: str | None, *, force: bool = False) -> None:
        """Give the keyboard to one person (None: back to the queue). Raises Conflict if another has it."""
        if self.config.structured:
            raise NotPossible(why=NO_TERMINAL)
        session = await self.session(conversation_id)
        if who is not None and session.owner not in (None, who) and not force:
            raise Conflict(f"{session.owner} has taken this terminal over.")
        session.owner = who

    async def attach_command(self, conversation_id: str) -> tuple[str, ...]:
        """The command that opens the same terminal for a person on this machine. Raises NotFound."""
        session = await self._with_pane(conversation_id)
        assert session.pane is not None
        return self.terminal.attach_command(session.pane.identity)

    async def interrupt(self, conversation_id: str) -> bool:
        """Press the CLI's key for stopping, if it is busy now; whether it was."""
        session = await self._with_pane(conversation_id)
        _, reading = await session.observe()
        if reading is None or not reading.busy:
            return False
        await session.interrupt()
        return True

    async def restart(self, conversation_id: str) -> None:
        """End the CLI; the next turn resumes its session. A turn that runs sees its pane die."""
        session = await self.session(conversation_id)
        await session.close_pane()
        await session.save()

    async def end(self, conversation_id: str) -> None:
        """The conversation is over: end its CLI with all it started, and its terminal."""
        session = await self.session(conversation_id)
        await session.close_pane()
        await session.save()
        with contextlib.suppress(TerminalError):
            await self.terminal.close_place(conversation_id)
        self._sessions.pop(conversation_id, None)

    async def rest(self, conversation_id: str) -> None:
        """Nobody needs its CLI now: end it, unless a turn runs. The next turn resumes the session."""
        session = await self.session(conversation_id)
        if session.running is None:
            async with session.lock:
                await self._reap(session)

    async def _reap(self, session: Session) -> None:
        """End a CLI that nobody uses, and its terminal. One that a person started is left to them."""
        if session.keep.pane is None or session.keep.pane.adopted:
            return
        await session.close_pane()
        await session.save()
        with contextlib.suppress(TerminalError):
            await self.terminal.close_place(session.conversation_id)

    async def adopt(
        self,
        conversation_id: str,
        *,
        socket: str = "",
        pane: str | None = None,
        session_id: str | None = None,
    ) -> dict[str, Any]:
        """Go on with a CLI, or with a native session, that a person began by hand.

        What is adopted must be what it is said to be: in a pane whose screen is not this CLI's, texts would run as
        commands; a native session must be there, and be no other conversation's. Raises CannotStart, BadInput, Conflict.
        """
        session = await self.session(conversation_id)
        if session_id is not None:
            self._check_session(session, session_id)
        if session.running is not None:
            raise Conflict("A turn runs in this conversation; adopt when it has ended.")
        async with session.lock:
            if pane is not None:
                found = await self.terminal.adopt(socket, pane, f"{conversation_id}.adopted")
                try:
                    await self._check_pane(session, found)
                except BaseException:
                    await found.stop(0.0)
                    raise
                bound = await session.adopt(found, session_id)
            else:
                assert session_id is not None
                await session.close_pane()
                bound = await session.switch(session_id)
                session.keep.spoken = True
                session.keep.role, session.keep.definition = self.config.role_key, self.config.definition_key
                session.keep.cwd, session.keep.cli = self.config.cwd, self.adapter.NAME
                session._skip_to_end() if session.tape.path is not None else None  # noqa: SLF001
                await session.save()
        if self.desk is not None:
            await self.desk.append(conversation_id, Draft(bound, actor="runner"))
        return await self.state(conversation_id)

    def _check_session(self, session: Session, session_id: str) -> None:
        """Whether this native session can be adopted. One of another conversation is answered for like an unknown one."""
        others = (one for one in self._sessions.values() if one is not session)
        free = NATIVE_ID.fullmatch(session_id) and not any(session_id in one.keep.chain for one in others)
        if not free or self.adapter.locate(session_id, session.where, self.config.cwd) is None:
            raise BadInput(
                f"There is no session {session_id!r} of {self.adapter.NAME} that could be adopted."
            )

    async def _check_pane(self, session: Session, pane: Pane) -> None:
        """Whether the screen is this CLI's."""
        for _ in range(ADOPT_LOOKS):
            look = await pane.look()
            if not look.alive:
                raise CannotStart(why=f"what ran in this pane has ended: {look.sentence}")
            screen = msgspec.structs.replace(await pane.screen(), title=look.title)
            status = self.adapter.status(pane.identity.pid, session.where)
            reading = self.adapter.read(screen, None if status is None else status[0], trust=False)
            if reading.composer is not Composer.ABSENT or reading.busy:
                return
            await self._clock.sleep(ADOPT_LOOK_SECONDS)
        raise CannotStart(
            why=f"no {self.adapter.NAME} is seen in this pane (a program that shows no composer of it, or a menu over it)"
        )

    async def _with_pane(self, conversation_id: str) -> Session:
        session = await self.session(conversation_id)
        if await session.find() is None:
            raise NotFound(what="terminal")
        return session

    # -- between turns

    def _begin_watch(self) -> None:
        if self._watch is None and not self._closing:
            self._watch = asyncio.ensure_future(self._watching())

    async def _watching(self) -> None:
        while True:
            await self._clock.sleep(WATCH_SECONDS)
            for session in list(self._sessions.values()):
                if not session.lock.locked():
                    async with session.lock:
                        try:
                            await self._watch_one(session)
                        except TurnkeeperError as error:
                            # One store or terminal in trouble silences no other.
                            session.trouble = error.sentence
                        except Exception as error:  # noqa: BLE001
                            # Nor does an error of ours: it is told, and the others are watched.
                            session.trouble = f"the watch met an error of its own: {error!r}"

    async def _tell_menu(self, session: Session) -> None:
        """Say once that a menu waits for a decision, though no turn runs."""
        menu = self._asking(session)
        asked = "" if menu is None else menu_approval(session.conversation_id, menu.mark)
        if menu is not None and menu.mark == session.parked_on[0]:
            # The turn that waits for its answer has told of it.
            return
        if menu is not None and asked != session.menu_told and self.desk is not None:
            options = " / ".join(menu.options)
            notice = Noticed(
                code="menu_waits",
                text=f"{self.adapter.NAME} asks: {menu.title} ({options})",
                facts={"approval_id": asked},
            )
            await self.desk.append(session.conversation_id, Draft(notice, actor="runner"))
        session.menu_told = asked

    async def _hear(self, session: Session) -> None:
        """Read what the transcript says since last time, and journal it."""
        now = self._clock.now()
        signs = await session.signs()
        for index, sign in enumerate(signs):
            if sign.kind is SignKind.TAKEN and sign.text in session.handed.values():
                # Its turn is the next to run: what follows belongs to it.
                session.pending = [*signs[index:], *session.pending]
                break
            if self.desk is not None:
                try:
                    await settle_foreign(session, self.desk, sign, now)
                except TurnkeeperError as error:
                    # What cannot be stored now is told again at the next look.
                    session.pending = [*signs[index:], *session.pending]
                    session.trouble = error.sentence
                    return
            session.active_at = now
        session.trouble = ""
        if signs:
            await session.save()

    async def _merge(self, session: Session, desk: Desk) -> None:
        """Merge the whole record. While a turn holds the lane it reads what is new itself, and this comes after it."""
        try:
            why = await desk.reconcile(session.conversation_id, session.where, session.merged)
        except NotPossible:
            return
        except TurnkeeperError as error:
            why = error.sentence
        session.unsure = why is not None
        if why is not None:
            session.trouble = why
            session.merge_later = (self._clock.now() + MERGE_AGAIN_SECONDS, why)
        await session.save()

    async def _watch_one(self, session: Session) -> None:
        now = self._clock.now()
        await self._hear(session)
        # What is pending could not be stored, or belongs to the turn that runs next: a merge comes after it.
        if session.unsure and self.desk is not None and not session.pending:
            at, why = session.merge_later
            if now >= at:
                await self._merge(session, self.desk)
            else:
                session.trouble = why
        timing = self.config.timing
        if session.keep.pane is not None and now - session.looked_at >= timing.pane_check_seconds:
            with contextlib.suppress(TerminalTrouble):
                _, reading = await session.observe()
                if reading is not None and reading.busy:
                    session.active_at = now
                await self._tell_menu(session)
        idle = self.config.idle_seconds
        if idle is not None and session.owner is None and now - session.active_at >= idle:
            await self._reap(session)
