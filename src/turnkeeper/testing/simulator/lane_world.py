"""The pure lane under a seed: producers, a runner with whims, crashes, and planted bugs to be caught.

The world keeps what a store would (events, and turn rows projected by the same mapping that the stores
use), so that a crash can throw the lane away and load it again from the rows.
"""

from __future__ import annotations

import heapq
import itertools
import random
from typing import Any

import msgspec

from turnkeeper.conversation.events import Body, Event, Submitted, TurnEdited, TurnStarted
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import (
    OPEN_STATES,
    Failure,
    Mode,
    Principal,
    Request,
    Turn,
    TurnState,
)
from turnkeeper.errors import Fenced, NotPossible, NotWaiting, OutOfPlace, QueueFull, TurnDecided
from turnkeeper.lane import Lane, Phase, Rules, inputs, step
from turnkeeper.lane.effects import Abandon, Effect, Interrupt, Journal, RiderWaits, Start
from turnkeeper.lane.state import load, slot_of, wake_at
from turnkeeper.store.rows import TURN_COLUMNS
from turnkeeper.testing.simulator.checker import JournalChecker, require

BUGS = ("no_dedupe", "no_backstop", "lost_wakeup", "no_fencing", "late_promotion")
"""Bugs that can be planted; each must be caught by some seed."""

RULES = Rules(
    queue_cap=8,
    evidence_gate_seconds=75.0,
    backstop_seconds=1800.0,
    stop_grace_seconds=10.0,
    rescues_max=2,
)

_REQUEST = Request(agent="demo", parts=(Text("x"),), principal=Principal(user_id="u1"))


class LaneWorld:
    """One seeded run. Make it, then `run()`; raises Broken if a promise does not hold."""

    def __init__(self, seed: int, *, bug: str | None = None, turns: int = 14) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - repeatable chance is the point
        self.bug = bug
        self.now = 0.0
        rules = RULES
        if bug == "no_backstop":
            rules = msgspec.structs.replace(rules, backstop_seconds=1e12)
        self.rules = rules
        self.lane = Lane(conversation_id="c", rules=rules)
        self.rows: dict[str, Turn] = {}
        self.paused: str | None = None
        self.checker = JournalChecker()
        self.heap: list[tuple[float, int, Any]] = []
        self.count = itertools.count()
        self.turns = turns
        self.keys: dict[str, str] = {}
        self.attempts = 0
        self.steps = 0
        self.faults = True
        self.wake: float | None = None
        self.runs: dict[str, int] = {}
        """turn -> fence that its present runner was given; a stale runner has an older one."""

    # -- the world

    def at(self, seconds: float, act: Any) -> None:
        """Do `act` after `seconds`."""
        heapq.heappush(self.heap, (self.now + seconds, next(self.count), act))

    def run(self) -> None:
        """Faults first, then liveness."""
        for number in range(self.turns):
            self.at(self.rng.expovariate(1 / 60) * number / 2, ("submit", f"k{number}"))
        for _ in range(self.rng.randrange(4)):
            self.at(self.rng.uniform(0, 4000), ("crash",))
        for _ in range(self.rng.randrange(6)):
            self.at(self.rng.uniform(0, 3000), ("meddle",))
        self.at(1.0, ("sweep",))
        self._drain(6000.0)
        self.faults = False
        if self.lane.paused is not None:
            self.tell(inputs.Resume())
        for slot in self.lane.parked:
            self.tell(inputs.Decide(turn_id=slot.turn_id, decision={"choice": "retry"}))
        self._drain(self.now + 200_000.0)
        require(self.lane.holder is None, "G4 the lane drains", self.lane)
        require(not self.lane.queue, "G4 the queue drains", self.lane)
        parked = [one.turn_id for slot in self.lane.parked for one in (slot, *slot.riders)]
        self.checker.finished(parked)
        for key, turn_id in self.keys.items():
            require(turn_id in self.rows, "G1 what was answered is stored", key)

    def _drain(self, until: float) -> None:
        while self.heap and self.heap[0][0] <= until:
            self.now, _, act = heapq.heappop(self.heap)
            getattr(self, "_" + act[0])(*act[1:])
            if not self.faults and self.lane.holder is None and not self.lane.queue:
                return
        self.now = max(self.now, until) if self.faults else self.now

    # -- what a store and a dispatcher do

    def tell(self, told: inputs.Input) -> None:
        """Step, store, act. Refusals of people's acts are fine; so are stale reports, if they are refused."""
        self.steps += 1
        before = self.lane
        try:
            lane, effects = step(self.lane, told, self.now)
        except (Fenced, OutOfPlace, NotWaiting, NotPossible, QueueFull, TurnDecided):
            return
        if isinstance(told, inputs.Reported) and not isinstance(told, inputs.HandBack):
            require(
                self.runs.get(told.turn_id) == told.fence or self.bug is None,
                "G13 an old attempt cannot write",
                told,
            )
            if self.bug == "no_fencing":
                require(getattr(told, "run", told.fence) == self.runs.get(told.turn_id), "G13", told)
        if self.bug in ("lost_wakeup", "late_promotion"):
            lane, effects = self._unpromote(before, lane, effects)
        for effect in effects:
            self._store(effect)
        self.lane = lane
        if self.bug != "lost_wakeup" and not isinstance(told, inputs.HandBack):
            require(
                lane.holder is not None or not lane.queue or lane.paused is not None,
                "G4 a free lane has nobody waiting after a commit",
                lane,
            )
        for effect in effects:
            self._act(effect)
        wake = wake_at(lane)
        if wake is not None and wake != self.wake:
            self.wake = wake
            self.at(max(0.0, wake - self.now), ("tick",))

    def _unpromote(self, before: Lane, lane: Lane, effects: list[Effect]) -> tuple[Lane, list[Effect]]:
        """The planted bug: whoever the end of a turn would have started is forgotten in the queue."""
        starts = [e for e in effects if isinstance(e, Start)]
        ended = before.holder is not None and starts and starts[-1].turn_id != before.holder.turn_id
        if not ended or lane.holder is None:
            return lane, effects
        turn = self.rows.get(lane.holder.turn_id)
        if turn is None:
            return lane, effects
        place = lane.queue[0].place - 1 if lane.queue else turn.place
        forgotten = msgspec.structs.replace(slot_of(turn), place=place)
        lane = msgspec.structs.replace(
            lane, holder=None, phase=Phase.IDLE, queue=(forgotten, *lane.queue), riders=()
        )
        return lane, [e for e in effects if e is not starts[-1]]

    def _store(self, effect: Effect) -> None:
        if isinstance(effect, Start):
            body: Body = TurnStarted(fence=effect.fence, owner="p", lease_until=self.now + 30, why=effect.why)
            self._append(body, effect.turn_id, effect.attempt)
        elif isinstance(effect, Journal):
            self._append(effect.body, effect.turn_id, effect.attempt)

    def _append(self, body: Body, turn_id: str | None, attempt: int) -> None:
        seq = self.checker.seq + 1
        self.checker.see(seq, turn_id, body)
        kind = type(body).__name__
        if kind == "LanePaused":
            self.paused = getattr(body, "reason", "asked")
        elif kind == "LaneResumed":
            self.paused = None
        if turn_id is None or isinstance(body, TurnEdited):
            return
        if isinstance(body, Submitted):
            self.rows[turn_id] = Turn(
                turn_id=turn_id,
                conversation_id="c",
                submission_id=body.submission_id,
                state=TurnState.QUEUED,
                place=body.place,
                parent=body.parent,
                mode=body.request.mode,
                created_at=self.now,
            )
            self.keys[body.key] = turn_id
            return
        columns = TURN_COLUMNS.get(type(body))
        if columns is not None:
            event = Event(
                conversation_id="c",
                seq=seq,
                at=self.now,
                actor="sim",
                turn_id=turn_id,
                attempt=attempt,
                body=body,
            )
            row = self.rows[turn_id]
            self.rows[turn_id] = msgspec.structs.replace(row, **columns(event, body, row))

    def _act(self, effect: Effect) -> None:
        if isinstance(effect, Start):
            self.runs[effect.turn_id] = effect.fence
            self._begin_run(effect.turn_id, effect.fence)
        elif isinstance(effect, Interrupt):
            if self.rng.random() < 0.7 or not self.faults:
                self.at(self.rng.uniform(0.1, 9.0), ("halt", effect.turn_id, effect.fence))
        elif isinstance(effect, RiderWaits):
            self.at(self.rng.uniform(0.1, 5.0), ("take", effect.turn_id, effect.rider_id))
        elif isinstance(effect, Abandon):
            self.runs.pop(effect.turn_id, None)

    # -- the runner's whims

    def _begin_run(self, turn_id: str, fence: int) -> None:
        rng = self.rng
        whim = rng.random() if self.faults else 0.0
        delay = rng.uniform(0.5, 60.0)
        if whim < 0.9:
            self.at(rng.uniform(0.0, delay), ("report", "accept", turn_id, fence))
        if whim < 0.55:
            self.at(delay, ("report", "answer", turn_id, fence))
        elif whim < 0.65:
            self.at(delay, ("report", "answer_riders", turn_id, fence))
        elif whim < 0.75:
            self.at(delay, ("report", "fail", turn_id, fence))
        elif whim < 0.80:
            self.at(delay, ("report", "need", turn_id, fence))
        elif whim < 0.85:
            self.at(delay + 4000.0, ("report", "answer", turn_id, fence))  # long after the backstop
        elif whim < 0.95:
            self.at(delay, ("report", "confirm", turn_id, fence))  # then silence
        # else: silence from the first

    def _report(self, kind: str, turn_id: str, fence: int) -> None:
        stale = self.runs.get(turn_id) != fence
        if self.bug == "no_fencing" and stale and self.lane.holder and self.lane.holder.turn_id == turn_id:
            require(not kind.startswith("answer"), "G13 an old attempt answered", turn_id, fence)
            fence = self.lane.holder.fence
        at: dict[str, Any] = {"turn_id": turn_id, "fence": fence}
        table: dict[str, inputs.Input] = {
            "accept": inputs.Accept(evidence={"by": "sim"}, **at),
            "confirm": inputs.Evidence(state="confirmed", evidence={"by": "sim"}, **at),
            "answer": inputs.Answer(**at),
            "answer_riders": inputs.Answer(promote_riders=True, **at),
            "fail": inputs.Fail(failure=Failure("server", retryable=True, sentence="x"), **at),
            "need": inputs.NeedPerson(needs={"kind": "approval"}, hold=self.rng.random() < 0.3, **at),
        }
        self.tell(table[kind])
        if kind == "answer" and stale and turn_id in self.rows:
            state = str(self.rows[turn_id].state)
            self.tell(inputs.LateAnswer(turn_id=turn_id, text="late", state=state))

    def _halt(self, turn_id: str, fence: int) -> None:
        self.tell(inputs.Halt(turn_id=turn_id, fence=fence))

    def _take(self, turn_id: str, rider_id: str) -> None:
        fence = self.runs.get(turn_id)
        if fence is not None:
            self.tell(inputs.TakeRider(turn_id=turn_id, fence=fence, rider_id=rider_id))

    # -- producers and people

    def _submit(self, key: str) -> None:
        if self.bug != "no_dedupe" and key in self.keys:
            return
        self.attempts += 1
        mode = self.rng.choices([Mode.QUEUE, Mode.STEER, Mode.INTERRUPT], [8, 2, 1])[0]
        body = Submitted(
            submission_id=f"s{self.attempts}",
            turn_id=f"t{self.attempts}",
            key=key,
            fingerprint="f",
            request=msgspec.structs.replace(_REQUEST, mode=mode),
        )
        self.tell(inputs.Submit(body=body, mode=mode, user_id="u1"))
        if key not in self.keys or self.rng.random() < 0.15:
            self.at(self.rng.uniform(20.0, 300.0), ("submit", key))  # refused or unheard: sent again

    def _meddle(self) -> None:
        known = [*self.rows]
        if not known:
            return
        pick = self.rng.choice(known)
        other = self.rng.choice([*known, None])
        acts: list[inputs.Input] = [
            inputs.Cancel(turn_id=pick, pause=self.rng.random() < 0.5),
            inputs.Edit(turn_id=pick, parts=(Text("edited"),)),
            inputs.Move(turn_id=pick, before=other),
            inputs.SendNow(turn_id=pick, mode=self.rng.choice(list(Mode))),
            inputs.Pause(),
            inputs.Resume(),
            inputs.Decide(turn_id=pick, decision={"choice": "yes"}),
        ]
        if self.rows[pick].state is TurnState.FAILED:
            acts.append(inputs.Retry(slot=slot_of(self.rows[pick])))
        self.tell(self.rng.choice(acts))
        if self.paused is not None:
            self.at(self.rng.uniform(1.0, 200.0), ("resume",))

    def _resume(self) -> None:
        self.tell(inputs.Resume())

    # -- time and crashes

    def _tick(self) -> None:
        if self.bug != "lost_wakeup" or self.lane.holder is not None:
            self.tell(inputs.Tick())

    def _sweep(self) -> None:
        self._tick()
        if self.lane.phase is Phase.WAITING and not self.faults and self.lane.holder:
            self.tell(inputs.Decide(turn_id=self.lane.holder.turn_id, decision={"choice": "go"}))
        if self.faults or self.lane.holder or self.lane.queue:
            self.at(300.0, ("sweep",))

    def _crash(self) -> None:
        """The process dies and comes back; nothing but the rows is left."""
        planned = self.rng.random() < 0.3
        holder = self.lane.holder
        if planned and holder is not None:
            self.tell(inputs.HandBack(turn_id=holder.turn_id, fence=holder.fence))
        reports = {"report", "halt", "take"}
        self.heap = [entry for entry in self.heap if entry[2][0] not in reports or self.rng.random() < 0.2]
        heapq.heapify(self.heap)  # some old runner may still speak (its process lived a little longer)
        turns = [t for t in self.rows.values() if t.state in OPEN_STATES]
        turns.sort(key=lambda turn: turn.place)
        self.lane = load("c", self.paused, turns, self.now, self.rules)
        holder = self.lane.holder
        if holder is not None and self.lane.phase is not Phase.WAITING:
            again: inputs.Input = inputs.Rescue(turn_id=holder.turn_id)
            if self.rng.random() < 0.2:
                again = inputs.Reattach(turn_id=holder.turn_id)
            self.tell(again)
        else:
            self.tell(inputs.Tick())


def run_seed(seed: int, *, bug: str | None = None) -> LaneWorld:
    """Run one world to its end; returns it. Raises Broken."""
    world = LaneWorld(seed, bug=bug)
    world.run()
    return world
