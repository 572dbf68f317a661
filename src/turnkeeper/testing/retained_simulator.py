"""A world in which the retained machine is tried out under seeds: a CLI that lies, dies, stalls and answers late.

`simulate(seed)` plays one conversation of several turns and riders against a model of a CLI, in virtual time, with
faults drawn from the seed, and returns what broke a promise. It is the machine's shell in miniature: it steps, performs
effects, keeps what was noted durably, forgets everything else when the server restarts, and re-attaches.

What is checked, whatever the faults:

    once        no text reaches the model twice
    truth       confirmed means that it did; answered means that it did, or that its gate passed
    ends        every turn ends, within a bound
    order       texts reach the model in the order in which their turns were submitted
    hands off   nothing is pasted onto a draft or a menu, nothing interrupts an idle CLI
    alive       a living pane is never declared dead
    whole       what reaches the model is what was submitted, nothing before it, nothing behind it
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from turnkeeper.retained.machine import Item, Known, State, Timing, TurnPhase, begin, step, wake_at
from turnkeeper.retained.machine import effects as e
from turnkeeper.retained.machine import inputs as i
from turnkeeper.retained.machine.known import noted
from turnkeeper.retained.machine.matching import squash
from turnkeeper.retained.machine.state import SLOW_SECONDS, look_at
from turnkeeper.retained.signs import Block, BlockKind, Composer, Menu, Reading, Sign, SignKind

TURNS_MAX = 12
"""A world stops steering after so many turns."""

TURN_SECONDS_MAX = 30_000.0
"""No turn of a world takes longer, even behind a CLI that works at everything it was ever given."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong in a world."""

    one_by_one: bool = True
    """What was queued gets responses one after another (pi); else all of it gets one (claude)."""
    queue_records: bool = False
    phantoms: bool = False
    """What is queued while a response runs is answered by it, without a record."""
    swallowed_enters: int = 0
    vanishes: int = 0
    """So many texts vanish at Enter; blank lines stay."""
    record_seconds: float = 0.02
    readable_from_start: bool = True
    answer_seconds: float = 3.0
    silent: float = 0.0
    """Chance that a response never comes."""
    late: float = 0.0
    """Chance that it comes after the backstop."""
    omits_end: float = 0.0
    fails: float = 0.0
    dies: float = 0.0
    """Chance that the CLI dies in the middle of a response."""
    dies_idle: float = 0.0
    restarts: float = 0.0
    """Chance, for each turn, that the server is killed while it runs."""
    trouble: float = 0.0
    """Chance that a look ends in an error of the terminal."""
    drafts: float = 0.0
    menus: float = 0.0
    steers: float = 0.3
    stops: float = 0.0
    tools: float = 0.3


def draw_faults(rng: random.Random) -> Faults:
    """Faults of a seed: most worlds have few."""

    def chance(probability: float, value: float) -> float:
        return value if rng.random() < probability else 0.0

    return Faults(
        one_by_one=rng.random() < 0.5,
        queue_records=rng.random() < 0.4,
        phantoms=rng.random() < 0.25,
        swallowed_enters=rng.choice([0, 0, 0, 1, 2]),
        vanishes=rng.choice([0, 0, 0, 1]),
        record_seconds=rng.choice([0.02, 0.02, 0.3, 2.0, 5.0]),
        readable_from_start=rng.random() < 0.85,
        answer_seconds=rng.choice([0.2, 3.0, 40.0, 300.0]),
        silent=chance(0.2, 0.3),
        late=chance(0.2, 0.3),
        omits_end=chance(0.2, 0.4),
        fails=chance(0.2, 0.3),
        dies=chance(0.3, 0.3),
        dies_idle=chance(0.2, 0.3),
        restarts=chance(0.4, 0.4),
        trouble=chance(0.3, 0.2),
        drafts=chance(0.2, 0.3),
        menus=chance(0.2, 0.3),
        steers=rng.choice([0.0, 0.4, 0.8]),
        stops=chance(0.2, 0.3),
    )


@dataclass
class Response:
    """A response that the model is giving."""

    texts: list[str]
    ends_at: float
    tool_until: float | None = None
    omit_end: bool = False
    fails: bool = False
    dies_at: float | None = None
    shown: bool | None = True
    """Whether the screen shows that the CLI is busy; None: it does not say."""


class Cli:
    """The CLI and its model. Its transcript outlives it; its composer and queue do not."""

    def __init__(self, rng: random.Random, faults: Faults) -> None:
        self.rng = rng
        self.faults = faults
        self.now = 0.0
        self.rows: list[tuple[float, Sign]] = []
        """Rows with the time at which they can be read."""
        self.reached: list[str] = []
        """Texts that reached the model, in order."""
        self.phantomed: list[str] = []
        self.answered: list[str] = []
        self.broken: list[str] = []
        self.whole: set[str] = set()
        """What may be sent."""
        self.deaths = 0
        self.swallow = faults.swallowed_enters
        self.vanish = faults.vanishes
        self.launches = 0
        self.start()

    def start(self) -> None:
        """A new process on the same session."""
        self.alive = True
        self.launches += 1
        self.composer = ""
        self.draft = ""
        self.draft_until = 0.0
        self.menu_from = 0.0
        self.menu_until = 0.0
        self.queue: list[str] = []
        self.response: Response | None = None
        self.ready_at = self.now + 0.5

    # -- time

    def next_event(self) -> float | None:
        """When something happens by itself."""
        times = [at for at, _ in self.rows if at > self.now]
        if self.response is not None and self.alive:
            times.append(self.response.ends_at)
            if self.response.tool_until is not None:
                times.append(self.response.tool_until)
            if self.response.dies_at is not None:
                times.append(self.response.dies_at)
        times += [
            at for at in (self.draft_until, self.menu_from, self.menu_until, self.ready_at) if at > self.now
        ]
        return min(times) if times else None

    def advance(self, to: float) -> None:
        """Let time pass."""
        while True:
            response = self.response
            if response is None or not self.alive:
                break
            at = min(x for x in (response.ends_at, response.tool_until, response.dies_at) if x is not None)
            if at > to:
                break
            self.now = max(self.now, at)
            if response.dies_at is not None and at == response.dies_at:
                self.die()
            elif response.tool_until is not None and at == response.tool_until:
                response.tool_until = None
                self._write(SignKind.RETURNED, call="call")
                if not self.faults.phantoms:
                    self._absorb(response)
            else:
                self._end(response)
        self.now = max(self.now, to)

    def die(self) -> None:
        """The process ends; what it had only in memory is lost."""
        self.alive = False
        self.response = None
        self.queue = []
        # What was not written never left the process: CLIs write a text down before they send it.
        for _, sign in [row for row in self.rows if row[0] > self.now]:
            if sign.kind is SignKind.TAKEN:
                self.reached.remove(sign.text)
        self.rows = [row for row in self.rows if row[0] <= self.now]
        self.deaths += 1

    def _write(
        self, kind: SignKind, text: str = "", *, call: str = "", final: bool = False, late: float = 0.0
    ) -> None:
        number = len(self.rows)
        sign = Sign(kind=kind, text=text, native_id=f"row{number}", call_id=call, final=final, offset=number)
        last = self.rows[-1][0] if self.rows else 0.0
        self.rows.append((max(last, self.now + late), sign))

    def _absorb(self, response: Response) -> None:
        while self.queue:
            text = self.queue.pop(0)
            self.reached.append(text)
            response.texts.append(text)
            self._write(SignKind.TAKEN, text)
            if self.faults.one_by_one:
                break

    def _begin(self, texts: list[str]) -> None:
        rng, faults = self.rng, self.faults
        for text in texts:
            self.reached.append(text)
            self._write(SignKind.TAKEN, text, late=faults.record_seconds)
        seconds = faults.answer_seconds
        shown: bool | None = True
        if rng.random() < faults.silent:
            seconds, shown = 1e9, rng.choice([False, None])
        elif rng.random() < faults.late:
            seconds, shown = 1_900.0 + rng.random() * 100, rng.choice([True, False, None])
        response = Response(list(texts), self.now + seconds, shown=shown)
        response.omit_end = rng.random() < faults.omits_end
        response.fails = rng.random() < faults.fails
        if rng.random() < faults.tools:
            self._write(SignKind.CALLED, call="call", late=faults.record_seconds)
            response.tool_until = self.now + min(seconds, 1_000.0) / 2
        if rng.random() < faults.dies:
            response.dies_at = self.now + min(seconds, 1_000.0) * 0.7
        self.response = response

    def _end(self, response: Response) -> None:
        self.response = None
        if response.fails:
            self._write(SignKind.FAILED, "529")
        else:
            self._write(SignKind.SAID, "ok", final=True)
            self.answered += response.texts
            if not response.omit_end:
                self._write(SignKind.ENDED)
        if self.faults.phantoms:
            self.phantomed += self.queue
            self.queue = []
        elif self.queue:
            texts = [self.queue.pop(0)] if self.faults.one_by_one else self.queue
            if not self.faults.one_by_one:
                self.queue = []
            self._begin(list(texts))

    # -- keys

    @property
    def menu(self) -> bool:
        """A menu stands over the composer."""
        return self.menu_from <= self.now < self.menu_until

    @property
    def drafted(self) -> bool:
        """A person's half-typed words stand in the composer."""
        return self.now < self.draft_until

    def paste(self, text: str) -> None:
        """Paste."""
        if self.menu:
            self.broken.append(f"hands off: pasted {text!r} onto a menu")
        elif self.drafted:
            self.broken.append(f"hands off: pasted {text!r} onto a draft")
        else:
            self.composer += text

    def enter(self) -> None:
        """Enter."""
        if self.menu:
            self.broken.append("hands off: pressed Enter on a menu")
            return
        if self.swallow > 0:
            self.swallow -= 1
            return
        text, self.composer = self.composer, ""
        if not text.strip():
            return
        if text not in self.whole:
            self.broken.append(f"whole: {text!r} was sent, which nobody submitted")
        if self.vanish > 0:
            self.vanish -= 1
            self.composer = "\n\n"
            return
        if self.response is None:
            self._begin([text])
        else:
            self.queue.append(text)
            if self.faults.queue_records:
                self._write(SignKind.QUEUED, text)

    def clear(self) -> None:
        """Empty the composer."""
        if self.drafted:
            self.broken.append("hands off: cleared a draft")
        self.composer = ""

    def interrupt(self) -> None:
        """The key for stopping."""
        if self.response is None:
            self.broken.append("hands off: interrupted an idle CLI")
            return
        self.response = None
        self._write(SignKind.INTERRUPTED)
        self.composer = "".join(self.queue)
        self.queue = []

    def reading(self) -> Reading:
        """What its screen shows."""
        if self.menu:
            menu = Menu(title="Usage limit", options=("Upgrade", "Wait"), selected=0)
            block = Block(kind=BlockKind.LIMIT, sentence="A limit.", menu=menu, retry_at=self.menu_until)
            return Reading(block=block, busy=False)
        busy = False if self.response is None else self.response.shown
        if self.now < self.ready_at:
            return Reading(composer=Composer.ABSENT, busy=False)
        if self.drafted:
            return Reading(composer=Composer.TEXT, text="half a thought", busy=busy)
        kind = (
            Composer.EMPTY
            if not self.composer
            else Composer.TEXT
            if self.composer.strip()
            else Composer.BLANK
        )
        return Reading(composer=kind, text=self.composer, busy=busy, queued=tuple(self.queue))


@dataclass
class Turn:
    """A submitted turn and what is durable of it."""

    turn_id: str
    text: str
    state: str = "queued"
    reason: str = ""
    notes: Known = field(default_factory=Known)
    confirmed: bool = False
    accepted: bool = False
    parent: str | None = None
    late: bool = False
    """Its record came after its end."""


class World:
    """One conversation: turns in a queue, a lane in miniature, the machine, and the CLI."""

    def __init__(self, seed: int, faults: Faults | None = None, turns: int | None = None) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - a seeded world
        self.faults = faults or draw_faults(self.rng)
        self.cli = Cli(self.rng, self.faults)
        self.timing = Timing()
        self.turns: list[Turn] = []
        self.queue: list[Turn] = []
        self.cursor = 0
        self.durable_cursor = 0
        """Behind the last sign whose consequences are durable: it never passes an end that was not committed."""
        self.known_rows: set[str] = set()
        """Rows whose consequences are durable; they are passed over when they are read again."""
        self.pending: tuple[Sign, ...] = ()
        self.pane = self.cli.launches
        self.handed_pane: dict[str, int] = {}
        self.last_work = 0.0
        self.past: tuple[str, ...] = ()
        self.unfinished = False
        self.log: list[tuple[float, str]] = []
        for number in range(turns or self.rng.choice([1, 2, 4])):
            same = self.turns and self.rng.random() < 0.4
            text = self.turns[-1].text if same else f"text {number}"
            self._submit(text)

    def _submit(self, text: str, at_head: bool = False) -> Turn:
        turn = Turn(turn_id=f"t{len(self.turns)}", text=text)
        self.turns.append(turn)
        self.cli.whole.add(text)
        self.queue.insert(0, turn) if at_head else self.queue.append(turn)
        return turn

    @property
    def broken(self) -> list[str]:
        """Promises that were broken."""
        return self.cli.broken

    # -- the whole

    def run(self) -> list[str]:
        """Play it to its end; what was broken."""
        while self.queue:
            turn = self.queue.pop(0)
            if self.rng.random() < self.faults.dies_idle and self.cli.alive and self.cli.response is None:
                self.cli.die()
            self._run_turn(turn)
            if self.broken:
                return self.broken
        self._check_end()
        return self.broken

    def _check_end(self) -> None:
        for text in {turn.text for turn in self.turns}:
            wanted = sum(turn.text == text for turn in self.turns)
            got = self.cli.reached.count(text)
            if got > wanted:
                self.broken.append(f"once: {text!r} reached the model {got} times for {wanted} turns")
            proven = sum(turn.confirmed or turn.late for turn in self.turns if turn.text == text)
            read = [sign.text for _, sign in self.cli.rows[: self.cursor] if sign.kind is SignKind.TAKEN]
            if proven > got:
                self.broken.append(f"truth: {proven} of {text!r} confirmed, {got} reached the model")
            unread = [sign.text for sign in self.pending if sign.kind is SignKind.TAKEN].count(text)
            if proven < read.count(text) - unread:
                self.broken.append(
                    f"truth: {read.count(text)} records of {text!r}, {proven} turns proven by them"
                )
        for turn in self.turns:
            if turn.state not in {"settled", "failed", "stopped"}:
                self.broken.append(f"ends: {turn.turn_id} is {turn.state}")
            if turn.state == "settled" and turn.reason == "answered" and not turn.confirmed and self.cli.rows:
                self.broken.append(f"truth: {turn.turn_id} answered without a record")

    # -- one turn

    def _run_turn(self, turn: Turn) -> None:
        turn.state = "running"
        began = self.cli.now
        restart_at = None
        if self.rng.random() < self.faults.restarts:
            restart_at = began + self.rng.choice([0.0, 0.3, 0.9, 5.0, 50.0])
        steers = self.rng.random() < self.faults.steers and len(self.turns) < TURNS_MAX
        steer_at = began + self.rng.random() * 5 if steers else None
        stop_at = began + self.rng.random() * 30 if self.rng.random() < self.faults.stops else None
        if self.rng.random() < self.faults.drafts:
            self.cli.draft_until = began + self.rng.choice([5.0, 100.0])
        if self.rng.random() < self.faults.menus:
            self.cli.menu_from = began + self.rng.choice([0.0, 0.1, 0.7, 3.0])
            self.cli.menu_until = self.cli.menu_from + self.rng.choice([5.0, 100.0])
        run = Run(self, turn)
        run.start()
        while not run.state.over:
            cli = self.cli
            if cli.now - began > TURN_SECONDS_MAX:
                self.broken.append(f"ends: {turn.turn_id} has run for {TURN_SECONDS_MAX:g} s: {run.state}")
                return
            if restart_at is not None and cli.now >= restart_at:
                restart_at = None
                self.log.append((cli.now, "restart"))
                self.cursor = self.durable_cursor
                self.pending = ()
                run = Run(self, turn, riders=run.riders)
                run.start()
                continue
            if steer_at is not None and cli.now >= steer_at:
                steer_at = None
                rider = Turn(
                    turn_id=f"t{len(self.turns)}", text=f"steer {len(self.turns)}", parent=turn.turn_id
                )
                self.turns.append(rider)
                cli.whole.add(rider.text)
                run.add_rider(rider)
            if stop_at is not None and cli.now >= stop_at:
                stop_at = None
                run.tell(i.StopAsked(reason="cancelled"))
                continue
            run.look()
            if self.broken or run.state.over:
                break
            event = cli.next_event()
            times = [run.next_look, wake_at(run.state, cli.now), event, restart_at, steer_at, stop_at]
            at = max(cli.now + 0.001, min(at for at in times if at is not None))
            cli.advance(at)
            if event is not None and at >= event:
                run.next_look = at
        run.finish()


class Run:
    """One run of the machine: what the shell does, in miniature."""

    def __init__(self, world: World, turn: Turn, riders: list[Turn] | None = None) -> None:
        self.world = world
        self.turn = turn
        self.riders: list[Turn] = []
        self.next_look = 0.0
        self.end: e.End | None = None
        self.kept_riders = riders or []
        item = Item(turn_id=turn.turn_id, text=turn.text, key=turn.text)
        self.state: State = begin(
            item, turn.notes, world.timing, world.cli.now, past=world.past, unfinished=world.unfinished
        )

    def start(self) -> None:
        """Open the pane, and tell what is known."""
        self._open()
        self.riders += [rider for rider in self.kept_riders if rider.state == "riding"]
        for rider in self.kept_riders:
            if rider.parent == self.turn.turn_id and rider.state == "queued":
                self.add_rider(rider)

    def _open(self) -> None:
        world, cli = self.world, self.world.cli
        before = world.pane
        same_as_handed = world.handed_pane.get(self.turn.turn_id, before)
        was_alive = cli.alive
        dead_while_answering = self.turn.notes.confirmed and not was_alive
        if not was_alive and not dead_while_answering:
            cli.start()
            world.pane = cli.launches
        same = was_alive and same_as_handed == world.pane
        self.tell(i.Opened(same=same, fresh=not was_alive, last_work_at=world.last_work))
        self._read()
        if dead_while_answering and not self.state.over:
            self.tell(i.Gone(sentence="it has ended"))

    def add_rider(self, rider: Turn) -> None:
        """A steer waits."""
        self.riders.append(rider)
        if rider.accepted and self.world.handed_pane.get(rider.turn_id) == self.world.pane:
            item = Item(
                turn_id=rider.turn_id, text=rider.text, key=rider.text, pastes=1, enters=1, accepted=True
            )
        else:
            # Another process may have pasted it into this pane.
            known = rider.notes
            item = Item(
                turn_id=rider.turn_id,
                text=rider.text,
                key=rider.text,
                pastes=known.pastes,
                enters=known.enters,
            )
        self.tell(i.Steer(item=item))

    def _read(self) -> None:
        """Tell what was written since last time."""
        world, cli = self.world, self.world.cli
        readable = world.faults.readable_from_start or bool(cli.answered)
        if not readable:
            return
        fresh = [sign for at, sign in cli.rows[world.cursor :] if at <= cli.now]
        signs = tuple(sign for sign in (*world.pending, *fresh) if sign.native_id not in world.known_rows)
        if signs or fresh or not self.state.readable:
            world.pending = ()
            world.cursor += len(fresh)
            self.tell(i.Told(signs=signs, readable=True))
            world.unfinished = self.state.unfinished
            if self.state.phase is not TurnPhase.SETTLING and not world.pending:
                world.durable_cursor = world.cursor

    def look(self) -> None:
        """Read the transcript, look at the pane if it is time, and tell the time."""
        cli = self.world.cli
        self._read()
        if self.state.over:
            return
        if cli.now >= self.next_look:
            if self.world.rng.random() < self.world.faults.trouble:
                self.tell(i.Trouble(sentence="exec error"))
            elif cli.alive:
                self.tell(i.Seen(reading=cli.reading()))
            else:
                self.tell(i.Missed(sentence="it ended with exit code 9"))
            # A world that says beforehand when it changes need not be looked at every second.
            self.next_look = look_at(self.state, cli.now, cli.now)
            if self.next_look == cli.now + SLOW_SECONDS:
                self.next_look = cli.now + SLOW_SECONDS * 10
        if not self.state.over:
            self.tell(i.Tick())

    def tell(self, told: i.Input) -> None:
        """Step, and perform."""
        if self.state.over:
            return
        before = self.state.hand
        self.world.log.append(
            (self.world.cli.now, f"{self.state.phase} {type(told).__name__} {self.turn.turn_id}")
        )
        self.state, effects = step(self.state, told, self.world.cli.now)
        for effect in effects:
            self._perform(effect)
        if self.state.hand is not before:
            self.next_look = min(self.next_look, look_at(self.state, self.world.cli.now, self.world.cli.now))

    def _turn(self, turn_id: str) -> Turn:
        return next(turn for turn in self.world.turns if turn.turn_id == turn_id)

    def _perform(self, effect: e.Effect) -> None:
        world, cli = self.world, self.world.cli
        world.log.append((cli.now, f"  {effect}"))
        match effect:
            case e.Note():
                turn = self._turn(effect.turn_id)
                moved = world.handed_pane.get(effect.turn_id, world.pane) != world.pane
                turn.notes = noted(turn.notes, effect.step, moved=moved)
                if effect.step == "paste":
                    world.handed_pane[effect.turn_id] = world.pane
            case e.Receipt(state="confirmed"):
                self.turn.confirmed = True
                world.known_rows.add(effect.evidence.get("record", ""))
                self.turn.notes = replace(self.turn.notes, confirmed=True, accepted=True)
                if self.turn.text not in cli.reached:
                    world.broken.append(f"truth: {self.turn.turn_id} confirmed too early")
            case e.Receipt():
                self.turn.accepted = True
                self.turn.notes = replace(self.turn.notes, accepted=True)
            case e.HandOver():
                rider = self._turn(effect.turn_id)
                rider.accepted = True
                rider.notes = replace(rider.notes, accepted=True, handed=True)
                world.handed_pane[rider.turn_id] = world.pane
            case e.TakeRider():
                rider = self._turn(effect.turn_id)
                rider.confirmed = True
                world.known_rows.add(effect.sign.native_id)
                rider.state = "riding"
                rider.notes = replace(rider.notes, confirmed=True)
            case e.Paste():
                if cli.alive:
                    cli.paste(effect.text)
                    self.tell(i.Pasted())
                else:
                    self.tell(i.PasteFailed(sentence="dead", dead=True))
            case e.Enter():
                if cli.alive:
                    cli.enter()
                self.tell(i.Pressed())
            case e.Clear():
                if cli.alive:
                    cli.clear()
                self.tell(i.Pressed())
            case e.Recall():
                if cli.alive:
                    cli.composer = "".join(cli.queue)
                    cli.queue = []
                self.tell(i.Pressed())
            case e.Interrupt():
                if cli.alive:
                    cli.interrupt()
            case e.Open():
                self._open()
            case e.Write():
                world.known_rows.update(sign.native_id for sign in effect.signs)
                if any(sign.kind is SignKind.SAID for sign in effect.signs):
                    self.turn.notes = replace(self.turn.notes, said=True)
            case e.Foreign() if effect.sign.kind is SignKind.TAKEN:
                for turn in world.turns:
                    ended = turn.state in {"failed", "stopped", "settled"}
                    if ended and turn.text == effect.sign.text and not (turn.confirmed or turn.late):
                        turn.late = True
                        break
            case e.End():
                self.end = effect
            case _:
                pass

    def finish(self) -> None:
        """Journal the end as a lane would."""
        world = self.world
        world.last_work = self.state.last_work
        world.unfinished = self.state.unfinished
        end = self.end
        if end is None:
            return
        world.pending = end.leftover
        if not end.leftover:
            world.durable_cursor = world.cursor
        world.past = (*world.past, squash(self.turn.text))[-8:]
        self.turn.state = {"answered": "settled", "failed": "failed", "stopped": "stopped"}[end.kind]
        self.turn.reason = end.reason
        if end.kind == "failed" and end.reason == "pane" and world.cli.alive and world.cli.deaths == 0:
            world.broken.append(f"alive: {self.turn.turn_id} failed with {end.failure} beside a living pane")
        returned: list[Turn] = []
        for rider in self.riders:
            if rider.state == "riding":
                rider.state = self.turn.state
                rider.reason = "answered_with" if end.kind == "answered" else end.reason
            elif rider.state == "queued":
                rider.parent = None
                returned.append(rider)
        world.queue = [*returned, *world.queue]


def simulate(seed: int, faults: Faults | None = None) -> list[str]:
    """What one seed breaks: nothing, one hopes."""
    return World(seed, faults).run()


__all__ = ["Faults", "Run", "World", "draw_faults", "simulate"]
