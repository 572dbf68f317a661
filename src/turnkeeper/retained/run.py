"""One run of a turn: tells the machine what happens, and does what it asks for, in order.

The machine decides; this shell knows the clock, the pane, the transcript and the turn's port. A Note is journaled before
the step it names; what a sign leads to is journaled before the transcript's cursor is remembered behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from msgspec.structs import replace

from turnkeeper.conversation.events import (
    ApprovalRequested,
    Body,
    DeliveryHeld,
    DeliveryNoted,
    DeliveryReleased,
    Draft,
    HistoryReconciled,
    MessageAppended,
    MessageMarked,
    Noticed,
    ReceiptMoved,
)
from turnkeeper.conversation.ids import approval_id
from turnkeeper.conversation.messages import INTERRUPTED, NOTICE, USER, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Failure, ReceiptState, Turn
from turnkeeper.errors import NotTaken, PaneDead, PaneGone, TerminalTrouble
from turnkeeper.failpoint import failpoint
from turnkeeper.port.runner import Answered, FailedWith, Needs, Outcome, Rider, Stopped, TurnPort
from turnkeeper.retained.journal import Past, Scribe, past_of, words
from turnkeeper.retained.keepsake import ENDED_MAX, Ended
from turnkeeper.retained.machine import Item, State, begin, step, wake_at
from turnkeeper.retained.machine import effects as e
from turnkeeper.retained.machine import inputs as i
from turnkeeper.retained.machine.state import HandPhase, TurnPhase, look_at
from turnkeeper.retained.session import CannotOpenPane, Desk, Session
from turnkeeper.retained.signs import Menu, Reading, Sign, SignKind
from turnkeeper.retained.structured.pane import given_id
from turnkeeper.terminal.pane import Look

READ_FAST_SECONDS = 0.05
READ_SECONDS = 0.25
"""How often the transcript is asked while something is on its way, and while a response runs."""
HEARD_SECONDS = 0.01
"""So soon after the last look one is worth while at a CLI that has said something since."""
SEEN_JUST_NOW_SECONDS = 0.02
"""The look by which the pane was opened is good for so long. Nothing was pressed since; a commit may take as long."""
PARKING_SECONDS = 30.0
"""So long a menu that a turn has asked about is no question of its own, until the store says that the turn is parked."""
CLEAR_ROUNDS = 12
"""So often the keys for clearing are pressed before the composer is looked at again."""
NEW_SESSION_COMMANDS = ("/clear", "/new")
STRUCTURED_SETTLE_SECONDS = 0.3
"""An answer of a CLI that says itself that it is idle is over after this, where its transcript writes no end."""


class Run:
    """A turn being carried out."""

    def __init__(self, session: Session, turn: TurnPort, desk: Desk | None) -> None:
        self.session = session
        self.turn = turn
        self.desk = desk
        self.clock = turn.clock
        self.outcome: Outcome | None = None
        self.state: State
        self.text = ""
        self._bodies: list[Body] = []
        """To be journaled with the turn's end."""
        self._riders: dict[str, Rider] = {}
        self._looked = -1e18
        self._seen: tuple[Look, Reading] | None = None
        self._read_at = -1e18
        self._stop_told = False
        self._asked: Menu | None = None
        self._past = Past()
        self._user_message: str | None = None
        self._entered_at = 0.0
        self._harvest_said = ""
        offer = turn.offer.turn
        self._scribe = Scribe(turn.ids.make, session.adapter.NAME, offer.turn_id, offer.attempt)

    @property
    def _turn_id(self) -> str:
        return self.turn.offer.turn.turn_id

    # -- the whole

    async def carry_out(self) -> Outcome:
        """Run the turn to an outcome."""
        session = self.session
        await self._begin()
        stop = asyncio.ensure_future(self.turn.wait_stopping())
        try:
            await self._open()
            while self.outcome is None:
                await self._once(stop)
                if self.outcome is None:
                    await self._wait(stop)
            return self.outcome
        finally:
            stop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stop
            self._leave()
            await asyncio.shield(session.save())

    async def _begin(self) -> None:
        session, turn = self.session, self.turn
        offer = turn.offer
        events = await turn.turn_events()
        self._past = past_of(events, offer.turn.attempt)
        for row in self._past.rows:
            if row not in session.keep.known_rows:
                session.keep.known_rows.append(row)
        for event in events:
            body = event.body
            if isinstance(body, MessageAppended) and body.message.role == USER:
                self._user_message = body.message.message_id
        self._scribe = Scribe(
            turn.ids.make, session.adapter.NAME, offer.turn.turn_id, offer.turn.attempt, self._past.rounds
        )
        command = bool(offer.request.options.get("as_command"))
        text = words(offer.request.parts)
        # What keeps a text from being a command would keep a command from being one.
        self.text = text.strip() if command else session.adapter.paste_text(text)
        item = Item(
            turn_id=offer.turn.turn_id,
            text=self.text,
            key=session.adapter.normalise(self.text),
            own=True,
            command=command,
            given_id=self._given(offer.turn),
        )
        timing = replace(session.config.timing, enter_delay_seconds=self._enter_delay())
        if session.config.structured:
            # Its own word that it is idle needs no second look.
            settle = min(timing.idle_settle_seconds, STRUCTURED_SETTLE_SECONDS)
            timing = replace(timing, ready_looks=1, idle_settle_seconds=settle)
        self.state = begin(
            item,
            self._past.known,
            timing,
            self.clock.now(),
            past=tuple(session.keep.past),
            unfinished=session.keep.unfinished,
        )
        session.keep.turn_id = offer.turn.turn_id
        session.handed.pop(offer.turn.turn_id, None)

    def _given(self, turn: Turn) -> str:
        """The id under which a turn's text is given to a CLI that is driven in its own protocol."""
        return given_id(turn.turn_id, turn.attempt) if self.session.config.structured else ""

    def _enter_delay(self) -> float:
        if self.session.config.structured:
            return 0.0
        return max(self.session.config.timing.enter_delay_seconds, self.session.adapter.ENTER_DELAY_SECONDS)

    def _leave(self) -> None:
        """What the next run must know of this one."""
        session, state = self.session, self.state
        keep = session.keep
        keep.unfinished = state.unfinished
        keep.last_work_at = max(keep.last_work_at, state.last_work)
        session.active_at = self.clock.now()
        outcome = self.outcome
        if outcome is None or isinstance(outcome, Needs):
            return
        own = state.own
        kind = {Answered: "settled", FailedWith: "failed", Stopped: "stopped"}[type(outcome)]
        if own.confirmed and state.unfinished and kind != "settled":
            keep.answering = own.turn_id
        if not own.confirmed and (own.enters > 0 or own.accepted):
            keep.ended.append(Ended(own.turn_id, own.key, kind))
            del keep.ended[:-ENDED_MAX]
        for item in state.items[1:]:
            if item.accepted and not item.confirmed:
                session.handed[item.turn_id] = item.key

    async def _wait(self, stop: asyncio.Future[str]) -> None:
        """Until there is something to do: a stop, a time, or the next look."""
        now = self.clock.now()
        state = self.state
        reading = READ_FAST_SECONDS if self._is_fast() else READ_SECONDS
        times = [self._looked_next(), self._read_at + reading]
        wake = wake_at(state, now)
        if wake is not None:
            times.append(wake)
        seconds = max(0.005, min(times) - now)
        ours: list[asyncio.Future[Any]] = [asyncio.ensure_future(self.clock.sleep(seconds))]
        if self.session.structured is not None and not self.session.structured.woken.is_set():
            ours.append(asyncio.ensure_future(self.session.structured.woken.wait()))
        waiting: set[asyncio.Future[Any]] = set(ours)
        if not self._stop_told:
            waiting.add(stop)
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in ours:
                one.cancel()

    def _is_fast(self) -> bool:
        hand = self.state.hand
        return self.state.phase in (TurnPhase.SETTLING, TurnPhase.STOPPING) or (
            hand is not None and hand.phase is not HandPhase.HOLDING
        )

    def _looked_next(self) -> float:
        if self.session.structured is not None and not self.state.misses:
            # It costs nothing to look at what it said.
            told = self.session.structured.woken.is_set()
            return self._looked + (HEARD_SECONDS if told else READ_FAST_SECONDS)
        return look_at(self.state, self._looked, self.clock.now())

    async def _once(self, stop: asyncio.Future[str]) -> None:
        if stop.done() and not self._stop_told:
            self._stop_told = True
            self._seen = None
            await self.tell(i.StopAsked(reason=stop.result()))
        if self.outcome is None:
            await self._meet_riders()
        if self.outcome is None:
            await self._read()
        if self.outcome is None and self.clock.now() >= self._looked_next():
            await self._look()
        if self.outcome is None:
            await self.tell(i.Tick())

    # -- telling the machine

    async def tell(self, told: i.Input) -> None:
        """Step, and do what follows."""
        if self.state.over:
            return
        self.state, effects = step(self.state, told, self.clock.now())
        for effect in effects:
            await self._perform(effect)

    async def _open(self) -> None:
        """Find or launch the pane, and tell the machine which one it is."""
        session, known, past = self.session, self._past.known, self._past
        delivered = known.pastes > 0 or known.handed or known.confirmed
        own = self.state.own
        try:
            if own.confirmed and not (past.pane in ("", session.keep.mark) and await session.alive()):
                await self._gone()
                return
            opening = await session.open(self._dialogue, delivered=delivered)
        except CannotOpenPane as refused:
            await self.tell(i.CannotOpen(failure=refused.failure))
            return
        except TerminalTrouble as trouble:
            why = Failure(kind="terminal", retryable=True, sentence=trouble.sentence)
            await self.tell(i.CannotOpen(failure=why))
            return
        self._seen = opening.seen
        if opening.bound is not None:
            await self.turn.record(opening.bound)
        text = key = None
        if opening.prefix:
            text = opening.prefix + self.text
            key = session.adapter.normalise(text)
            self._instructions = opening.instructions
        same = not opening.fresh and past.pane in ("", session.keep.mark)
        if opening.fresh:
            self.state = replace(self.state, past=())
        await self.tell(
            i.Opened(
                same=same,
                fresh=opening.fresh,
                last_work_at=session.keep.last_work_at,
                text=text,
                key=key,
            )
        )
        await self._read()

    _instructions = ""

    async def _dialogue(self) -> list[Message]:
        """What was said before this turn."""
        return [message for message in await self.turn.messages() if message.turn_id != self._turn_id]

    async def _gone(self) -> None:
        """The process that answered has ended while nobody looked: read what it wrote, then say so."""
        look = None
        await self.session.end_leftovers()
        with contextlib.suppress(TerminalTrouble):
            look, _ = await self.session.observe()
        sentence = "it has ended" if look is None else await self.session.sentence_of(look)
        await self.tell(i.Opened(same=False))
        await self._read()
        await self.tell(i.Gone(sentence=sentence))

    async def _read(self) -> None:
        """Tell what the transcript says since last time."""
        session = self.session
        self._read_at = self.clock.now()
        if session.keep.native_id is None:
            await self._harvest()
        signs = await session.signs()
        if signs or session.tape.readable != self.state.readable:
            await self.tell(i.Told(signs=tuple(signs), readable=session.tape.readable))
            if signs:
                session.keep.unfinished = self.state.unfinished
                settled = self.state.phase is not TurnPhase.SETTLING or self.outcome is not None
                await session.save(settled=settled)

    async def _harvest(self) -> None:
        """Find the session of a CLI that chose its id, once our text may be in it, or it says it itself."""
        if self.state.own.enters == 0 and self.session.structured is None:
            return
        found = await self.session.harvest(self.state.own.key)
        if isinstance(found, str):
            if found != self._harvest_said:
                self._harvest_said = found
                await self.turn.record(Noticed(code="session_unbound", text=found))
        elif found is not None:
            await self.turn.record(found)

    async def _look(self) -> None:
        """Look at the pane, and tell."""
        session = self.session
        self._looked = self.clock.now()
        try:
            look, reading = self._opened_by() or await session.observe()
        except TerminalTrouble as trouble:
            await self.tell(i.Trouble(sentence=trouble.sentence))
            return
        if reading is None:
            await self.tell(i.Missed(sentence=await session.sentence_of(look)))
            return
        await self._notice_switch()
        if self.outcome is None:
            await self.tell(i.Seen(reading=reading))

    def _opened_by(self) -> tuple[Look, Reading] | None:
        """The look by which the pane was opened, once, if that is as good as a new one."""
        seen, self._seen = self._seen, None
        return seen if self.clock.now() - self.session.looked_at < SEEN_JUST_NOW_SECONDS else None

    async def _notice_switch(self) -> None:
        """Whether the CLI has gone on in another native session (/clear)."""
        session = self.session
        status = session.status()
        native_id: str | None = status[1] if status is not None and status[1] else None
        own = self.state.own
        if native_id is None and own.command and own.enters > 0 and self._starts_session(own.text):
            native_id = await session.switched_to(self._entered_at - 0.05)
        if native_id is None or native_id == session.keep.native_id:
            return
        await self._read()
        if self.outcome is None:
            sign = Sign(kind=SignKind.SWITCHED, native_id=native_id)
            await self.tell(i.Told(signs=(sign,), readable=session.tape.readable))

    @staticmethod
    def _starts_session(text: str) -> bool:
        return text.strip().split(maxsplit=1)[0] in NEW_SESSION_COMMANDS if text.strip() else False

    async def _meet_riders(self) -> None:
        """Tell of riders that came, and of those that were taken back. A command is none: it waits for its own turn.

        Joined to a running response it would be a text, or glued to the next one (BD160).
        """
        waiting = {
            rider.turn.turn_id: rider
            for rider in self.turn.riders()
            if not rider.submission.request.options.get("as_command")
        }
        known = {item.turn_id: item for item in self.state.items[1:]}
        for turn_id, rider in waiting.items():
            self._riders[turn_id] = rider
            if turn_id not in known:
                await self.tell(i.Steer(item=self._rider_item(rider)))
        for turn_id, item in known.items():
            if turn_id not in waiting and not (item.confirmed or item.accepted):
                self._riders.pop(turn_id, None)
                await self.tell(i.Unsteer(turn_id=turn_id))

    def _rider_item(self, rider: Rider) -> Item:
        """A rider as the machine sees it; one that this pane holds already is not handed over again."""
        adapter = self.session.adapter
        text = adapter.paste_text(words(rider.submission.request.parts))
        item = Item(
            turn_id=rider.turn.turn_id,
            text=text,
            key=adapter.normalise(text),
            given_id=self._given(rider.turn),
        )
        receipt = rider.turn.receipt
        evidence = receipt.evidence or {}
        if receipt.state is ReceiptState.ACCEPTED and evidence.get("pane") == self.session.keep.mark:
            return replace(item, pastes=1, enters=1, accepted=True)
        return item

    # -- doing what the machine asks for

    async def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.Note():
                await self._note(effect.turn_id, effect.step, effect.facts)
            case e.Receipt():
                await self._receipt(effect)
            case e.Paste():
                await self._paste(effect)
            case e.Enter():
                await self._enter(effect.turn_id)
            case e.Clear():
                await self.session.clear(CLEAR_ROUNDS)
                await self.tell(i.Pressed())
            case e.Recall():
                await self.session.recall()
                await self.tell(i.Pressed())
            case e.Interrupt():
                await self.session.interrupt()
            case e.Choose():
                await self.session.choose(effect.menu, effect.option)
            case e.Open():
                await self._open()
            case e.Hold():
                await self._about(
                    effect.turn_id, DeliveryHeld(effect.reason, effect.sentence, effect.retry_at)
                )
            case e.Release():
                await self._about(effect.turn_id, DeliveryReleased())
            case e.HandOver():
                await self._hand_over(effect)
            case e.TakeRider():
                await self._take(effect)
            case e.Write():
                await self._write(effect.signs)
            case e.Foreign():
                await self._foreign(effect.sign)
            case e.Switched():
                await self._switched(effect.native_id)
            case e.Working():
                self.turn.working()
            case e.Ask():
                self._asked = effect.menu
            case e.End():
                self._end(effect)
                if effect.kind in {"stopped", "failed"}:
                    await self.session.abandon()
            case _:
                raise AssertionError(effect)

    async def _about(self, turn_id: str, body: Body) -> None:
        """Journal something about this turn, or about a rider."""
        if turn_id == self._turn_id:
            await self.turn.record(body)
        elif turn_id in self._riders:
            await self.turn.hand_over(self._riders[turn_id], body)

    async def _note(self, turn_id: str, what: str, facts: dict[str, Any]) -> None:
        session = self.session
        noted = self._about(turn_id, DeliveryNoted(what, {**facts, "pane": session.keep.mark}))
        if what != "paste":
            await noted
            return
        # Both before the paste, and in one commit: what is pasted may be cleared away by whoever comes next.
        text = self.state.item(turn_id).text
        session.pasted(text)
        await asyncio.gather(noted, session.save(settled=False), session.prepare(text))

    async def _receipt(self, effect: e.Receipt) -> None:
        session = self.session
        evidence = {**effect.evidence, "session": session.keep.native_id, "pane": session.keep.mark}
        if effect.state == "uncertain":
            await self.turn.record(uncertain=evidence)
            return
        if effect.state != "confirmed":
            await self.turn.record(accepted=evidence)
            return
        bodies: list[Body] = []
        record = str(effect.evidence.get("record") or "")
        if record and self._user_message is not None:
            match = (record, self._user_message, "evidence")
            bodies.append(
                HistoryReconciled(transcript=session.keep.native_id or "", matched=1, matches=(match,))
            )
        if self.state.own.command and self._user_message is not None:
            bodies.append(MessageMarked(self._user_message, replay=False, why="a command of the CLI"))
        await self.turn.record(*bodies, confirmed=evidence)
        session.keep.spoken = True
        if record:
            session.keep.known_rows.append(record)
        if self._instructions:
            session.keep.instructions, self._instructions = self._instructions, ""

    async def _paste(self, effect: e.Paste) -> None:
        session = self.session
        failpoint("retained.before_paste")
        try:
            pane = await session.find()
            if pane is None:
                raise PaneGone(why="its terminal is gone")
            pasted = await pane.paste(effect.text)
        except (PaneDead, PaneGone) as gone:
            await self.tell(i.PasteFailed(sentence=gone.sentence, dead=True))
            return
        except TerminalTrouble as trouble:
            await self.tell(i.PasteFailed(sentence=trouble.sentence))
            return
        failpoint("retained.after_paste")
        await self.tell(i.Pasted(removed=pasted.removed))

    async def _enter(self, turn_id: str) -> None:
        item = self.state.item(turn_id)
        try:
            took = await self.session.submit(item.given_id, command=item.command)
        except PaneDead as gone:
            await self.tell(i.PasteFailed(sentence=gone.sentence, dead=True))
            return
        except (NotTaken, TerminalTrouble) as refused:
            await self.tell(i.PasteFailed(sentence=refused.sentence))
            return
        self._entered_at = self.clock.now()
        failpoint("retained.after_enter")
        await self.tell(i.Pressed(took=took))

    async def _hand_over(self, effect: e.HandOver) -> None:
        rider = self._riders.get(effect.turn_id)
        if rider is None:
            return
        session = self.session
        evidence = {**effect.evidence, "session": session.keep.native_id, "pane": session.keep.mark}
        note = DeliveryNoted("handed", {"pane": session.keep.mark})
        await self.turn.hand_over(rider, note, accepted=evidence)

    async def _take(self, effect: e.TakeRider) -> None:
        rider = self._riders.pop(effect.turn_id, None)
        if rider is not None:
            await self.turn.take(rider)
        self.session.done_with(effect.sign)

    async def _write(self, signs: tuple[Sign, ...]) -> None:
        now = self.clock.now()
        bodies = self._scribe.bodies(signs, now)
        if bodies:
            await self.turn.record(*bodies)
        for sign in signs:
            self.session.done_with(sign)

    async def _foreign(self, sign: Sign) -> None:
        if self.desk is not None:
            await settle_foreign(self.session, self.desk, sign, self.clock.now())

    async def _switched(self, native_id: str) -> None:
        bound = await self.session.switch(native_id)
        bodies: list[Body] = [bound]
        if self.state.own.command:
            notice = Message(
                message_id=self.turn.ids.make("m"),
                role=NOTICE,
                parts=(Text("cleared: the CLI went on in a new session"),),
                created_at=self.clock.now(),
                turn_id=self._turn_id,
                attempt=self.turn.offer.turn.attempt,
                provenance="turnkeeper",
                replay=False,
            )
            bodies.append(MessageAppended(notice))
            if self._user_message is not None:
                bodies.append(
                    MessageMarked(self._user_message, display=False, replay=False, why="a command of the CLI")
                )
        await self.turn.record(*bodies)

    def _end(self, effect: e.End) -> None:
        session = self.session
        session.pending = [*effect.leftover, *session.pending]
        bodies = tuple(self._bodies)
        partial = self._scribe.unfinished
        if partial is not None and effect.kind in {"stopped", "failed"}:
            marked = MessageMarked(partial, standing=INTERRUPTED, replay=False, why=effect.reason)
            bodies = (*bodies, marked)
        match effect.kind:
            case "answered":
                self.outcome = Answered(bodies=bodies, reason=effect.reason)
            case "failed":
                assert effect.failure is not None
                self.outcome = FailedWith(failure=effect.failure, bodies=bodies)
            case "stopped":
                self.outcome = Stopped(bodies=bodies)
            case _:
                self.outcome = self._needs(bodies)

    def _needs(self, bodies: tuple[Body, ...]) -> Needs:
        """A menu of the CLI as a question to a person; the lane is held, for the CLI can do nothing else."""
        menu, config = self._asked, self.session.config
        assert menu is not None
        self.session.parked_on = (menu.mark, self.clock.now() + PARKING_SECONDS)
        asked = approval_id(self._turn_id, self._past.rounds, self._past.approvals)
        call_id = f"menu:{asked}"
        arguments = {
            "title": menu.title,
            "body": list(menu.body),
            "options": list(menu.options),
            "menu": menu.mark,
        }
        expires = self.clock.now() + config.approval_seconds
        name = f"{self.session.adapter.NAME}: {menu.title}"
        request = ApprovalRequested(
            approval_id=asked,
            call_id=call_id,
            name=name,
            arguments=arguments,
            expires_at=expires,
            who=config.approver,
        )
        approval = {
            "approval_id": asked,
            "call_id": call_id,
            "name": name,
            "arguments": arguments,
            "expires_at": expires,
            "who": config.approver,
        }
        needs = {"kind": "approval", "approvals": [approval], "expires_at": expires}
        return Needs(needs=needs, bodies=(*bodies, request), hold=True)


async def settle_foreign(session: Session, desk: Desk, sign: Sign, now: float) -> None:
    """What a sign means that belongs to no running turn: a late record, a late answer, or somebody at the terminal."""
    keep = session.keep
    conversation_id = session.conversation_id
    if sign.kind is SignKind.TAKEN:
        keep.spoken = True
        late = next((one for one in keep.ended if one.key == sign.text), None)
        if late is not None:
            keep.ended.remove(late)
            keep.answering = late.turn_id
            evidence = {"via": "late", "record": sign.native_id, "session": keep.native_id}
            moved = ReceiptMoved(ReceiptState.CONFIRMED, evidence)
            await desk.append(conversation_id, Draft(moved, turn_id=late.turn_id, actor="runner"))
        else:
            keep.answering = None
            scribe = Scribe(session.ids.make, session.adapter.NAME, None, 0)
            await desk.append(conversation_id, Draft(scribe.typed(sign, now), actor="runner"))
    elif sign.kind is SignKind.SAID and keep.answering is not None:
        await desk.late_answer(conversation_id, keep.answering, sign.text, "late")
    elif sign.kind in (SignKind.SAID, SignKind.THOUGHT, SignKind.CALLED, SignKind.RETURNED):
        if keep.answering is None:
            scribe = Scribe(session.ids.make, session.adapter.NAME, None, 0)
            drafts = [Draft(body, actor="runner") for body in scribe.bodies((sign,), now)]
            await desk.append(conversation_id, *drafts)
    elif sign.kind in (SignKind.ENDED, SignKind.FAILED, SignKind.INTERRUPTED):
        keep.answering = None
        keep.unfinished = False
    session.done_with(sign)
