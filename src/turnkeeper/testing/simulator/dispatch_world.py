"""The real dispatcher over the memory store, in virtual time, under a seed.

Producers send (some twice, some with a repeated key), people cancel, edit, move, pause; a runner of whims
answers, refuses, falls silent, comes late, raises, ignores stops; the process crashes at any moment, stops
as planned, or the store says that it is busy. Afterwards faults stop and everything must drain. The
journal is judged by the public checker of promises.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from turnkeeper.conversation.events import ConversationCreated, Draft, MessageAppended
from turnkeeper.conversation.messages import ASSISTANT, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import (
    Failure,
    Mode,
    Principal,
    Request,
    TurnState,
)
from turnkeeper.dispatch import Broadcast, Dispatcher
from turnkeeper.dispatch.dispatcher import Limits
from turnkeeper.errors import StoreBusy, TurnkeeperError
from turnkeeper.lane import Rules, inputs
from turnkeeper.port.runner import Answered, FailedWith, Needs, Outcome, Runner, Stopped, TurnPort
from turnkeeper.port.store import Batch, Fence
from turnkeeper.projection.view import event_view
from turnkeeper.testing.clock import CountedIds, VirtualClock, run_virtual
from turnkeeper.testing.memory_store import MemoryStore
from turnkeeper.testing.promises import Broken as BrokenPromise
from turnkeeper.testing.promises import broken_promises
from turnkeeper.testing.simulator.checker import require

BUGS = ("no_dedupe", "no_backstop", "lost_wakeup", "no_fencing", "late_promotion")
"""Bugs that can be planted in the dispatcher or the store; each must be caught by some seed."""

OWNER = Principal(user_id="u1", scopes=("read", "write"))
RULES = Rules(queue_cap=8, stop_grace_seconds=10.0, backstop_seconds=600.0)
LIMITS = Limits(
    lease_seconds=30.0,
    lease_renew_seconds=10.0,
    sweep_seconds=5.0,
    shutdown_grace_seconds=2.0,
    idle_lanes_max=1,
)


class WhimsicalRunner:
    """A runner that does what its seed says; it stands for every agent there could be."""

    def __init__(self, world: DispatchWorld) -> None:
        self._world = world

    async def run(self, turn: TurnPort) -> Outcome:
        """Carry the turn out, or not."""
        rng = self._world.rng
        whim = rng.random() if self._world.faults else 0.0
        delay = rng.uniform(0.2, 20.0)
        world = self._world
        world.live += 1
        try:
            await turn.clock.sleep(rng.uniform(0.0, 1.0))
            await turn.record(accepted={"by": "sim"})
            for rider in list(turn.riders()):
                await turn.take(rider)
            if whim < 0.7:
                return await self._work(turn, delay)
            if whim < 0.76:
                msg = "the agent's own bug"
                raise RuntimeError(msg)
            if whim < 0.84:
                return FailedWith(failure=Failure("server", retryable=True, sentence="The model failed."))
            if whim < 0.88:
                return Needs(needs={"kind": "approval"})
            if whim < 0.94:
                await turn.clock.sleep(2000.0)  # silence beyond the backstop, deaf to stops
                return Answered()
            await turn.wait_stopping()  # silence until somebody stops it
            return Stopped()
        finally:
            world.live -= 1

    async def _work(self, turn: TurnPort, delay: float) -> Outcome:
        stopping = asyncio.ensure_future(turn.wait_stopping())
        working = asyncio.ensure_future(turn.clock.sleep(delay))
        try:
            await asyncio.wait({stopping, working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            working.cancel()
        if turn.stopping:
            return Stopped()
        for rider in list(turn.riders()):
            await turn.take(rider)
        offered = turn.offer.turn
        answer = Message(
            message_id=turn.ids.make("m"),
            role=ASSISTANT,
            parts=(Text(f"ok {offered.turn_id}"),),
            created_at=turn.clock.now(),
            turn_id=offered.turn_id,
            attempt=offered.attempt,
            provenance="model",
        )
        return Answered(bodies=(MessageAppended(answer),))

    async def close(self) -> None:
        """Nothing outlives a turn."""


class DispatchWorld:
    """One seeded run; `play` it under `run_virtual`."""

    def __init__(self, seed: int, *, bug: str | None = None, sends: int = 10) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - repeatable chance is the point
        self.bug = bug
        self.sends = sends
        self.faults = True
        self.live = 0
        self.clock = VirtualClock()
        self.ids = CountedIds()
        self.store = MemoryStore()
        self.dispatcher: Dispatcher | None = None
        self.answers: dict[str, dict[str, Any]] = {}
        self.generation = 0
        self.tasks: set[asyncio.Task[Any]] = set()

    # -- processes

    def make_runner(self) -> Runner:
        """What carries turns out in a process that starts now."""
        return WhimsicalRunner(self)

    async def boot(self) -> None:
        """A process starts on the store."""
        self.generation += 1
        runner = self.make_runner()
        broadcast = Broadcast(self.store)
        rules = RULES
        if self.bug == "no_backstop":
            rules = msgspec.structs.replace(rules, backstop_seconds=1e12)

        async def allowed(_: Request) -> bool:
            return True

        dispatcher = Dispatcher(
            self.store,
            lambda _: runner,
            clock=self.clock,
            ids=self.ids,
            rules=rules,
            limits=LIMITS,
            owner=f"process-{self.generation}",
            broadcast=broadcast,
            still_allowed=allowed,
        )
        self._plant(dispatcher)
        self.dispatcher = dispatcher
        await dispatcher.start()

    def _plant(self, dispatcher: Dispatcher) -> None:
        """Plant the bug."""
        if self.bug in ("lost_wakeup", "late_promotion"):
            whole = dispatcher._step_and_commit  # noqa: SLF001
            lost = self.bug == "lost_wakeup"

            async def in_two(actor: Any, told: Any, extra: Any = (), **more: Any) -> Any:
                """The end of a turn and the next one's start in two commits, or the second one never."""
                ends = [one for one in told if isinstance(one, inputs.Answer | inputs.Fail | inputs.Halt)]
                paused = actor.lane.paused
                if not ends or paused is not None:
                    return await whole(actor, told, extra, **more)
                actor.lane = msgspec.structs.replace(actor.lane, paused="bug")
                effects = await whole(actor, told, extra, **more)
                actor.lane = msgspec.structs.replace(actor.lane, paused=None, phase=_resting(actor.lane))
                if not lost:
                    await self.clock.sleep(0.01)
                    if self.dispatcher is dispatcher:
                        await whole(actor, [inputs.Tick()])
                return effects

            dispatcher._step_and_commit = in_two  # type: ignore[method-assign]  # noqa: SLF001
            if lost:

                async def asleep() -> None:
                    return

                dispatcher.sweep = asleep  # type: ignore[method-assign]
        if self.bug == "no_dedupe":
            commit = self.store.commit

            async def forgetful(batch: Batch) -> Any:
                return await commit(_other_keys(batch, self.ids.make("k")))

            self.store.commit = forgetful  # type: ignore[method-assign]
        if self.bug == "no_fencing":
            commit_fenced = self.store.commit

            async def trusting(batch: Batch) -> Any:
                return await commit_fenced(msgspec.structs.replace(batch, fence=None, lane_version=None))

            self.store.commit = trusting  # type: ignore[method-assign]
            dispatcher._check_fence = lambda actor, running: None  # type: ignore[method-assign]  # noqa: SLF001

    async def crash(self) -> None:
        """The process dies; sometimes what it had begun still runs on for a moment (a zombie)."""
        dispatcher, self.dispatcher = self.dispatcher, None
        assert dispatcher is not None
        zombie = self.rng.random() < 0.3
        if not zombie:
            self._kill(dispatcher)
            self.store = self.store.crash()
        await self.clock.sleep(self.rng.uniform(0.0, 5.0))
        await self.boot()
        if zombie:
            await self.clock.sleep(self.rng.uniform(0.0, 5.0))
            self._kill(dispatcher)

    def _kill(self, dispatcher: Dispatcher) -> None:
        for loop in dispatcher._loops:  # noqa: SLF001
            loop.cancel()
        for actor in dispatcher.lanes.all():
            if actor.running is not None and actor.running.task is not None:
                actor.running.task.cancel()
        for act in dispatcher._acts:  # noqa: SLF001
            act.cancel()

    async def stop(self) -> None:
        """The process stops as planned, and the next one starts."""
        dispatcher, self.dispatcher = self.dispatcher, None
        assert dispatcher is not None
        await dispatcher.close()
        self.store = self.store.reopen()
        await self.clock.sleep(self.rng.uniform(0.0, 2.0))
        await self.boot()

    # -- producers and people

    async def send(self, key: str, text: str) -> None:
        """Send until there is an answer, as a good client does; sometimes once more although there was one."""
        mode = self.rng.choices([Mode.QUEUE, Mode.STEER, Mode.INTERRUPT], [8, 2, 1])[0]
        request = Request(agent="demo", parts=(Text(text),), mode=mode, principal=OWNER)
        again = self.rng.random() < 0.3
        while True:
            answer = await self._try(lambda: self._submit(key, request))
            if answer is not None:
                known = self.answers.setdefault(key, answer[0])
                require(known["turn_id"] == answer[0]["turn_id"], "G2 one turn per key", key, known, answer)
                if not again:
                    return
                again = False
            await self.clock.sleep(self.rng.uniform(0.5, 20.0))

    async def _submit(self, key: str, request: Request) -> tuple[dict[str, Any], bool]:
        assert self.dispatcher is not None
        conversation = await self.store.conversation("c1")
        assert conversation is not None
        return await self.dispatcher.submit(conversation, key=key, request=request)

    async def _try(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """What came of it; None if the process was away, died meanwhile, or said that it cannot now."""
        generation = self.generation
        if self.dispatcher is None:
            return None
        task = asyncio.ensure_future(act())
        done, _ = await asyncio.wait({task}, timeout=60.0)
        if not done or self.generation != generation or task.cancelled():
            task.cancel()
            return None
        error = task.exception()
        if isinstance(error, TurnkeeperError):
            return None
        if error is not None:
            raise error
        return task.result()

    async def meddle(self) -> None:
        """A person does something to a turn, whatever its state."""
        turns = await self.store.turns("c1", limit=50)
        if not turns:
            return
        pick = self.rng.choice(turns)
        other = self.rng.choice(turns)
        dispatcher = self.dispatcher
        if dispatcher is None:
            return
        acts: list[Callable[[], Awaitable[Any]]] = [
            lambda: dispatcher.change(pick, inputs.Cancel(turn_id=pick.turn_id, pause=other is pick)),
            lambda: dispatcher.change(pick, inputs.Edit(turn_id=pick.turn_id, parts=(Text("edited"),))),
            lambda: dispatcher.change(pick, inputs.Move(turn_id=pick.turn_id, before=other.turn_id)),
            lambda: dispatcher.change(pick, inputs.SendNow(turn_id=pick.turn_id, mode=Mode.INTERRUPT)),
            lambda: dispatcher.retry(pick, "u1"),
            lambda: dispatcher.tell("c1", inputs.Pause()),
        ]
        await self._try(self.rng.choice(acts))

    # -- the play

    async def play(self) -> None:
        """Faults first, then liveness, then judgement."""
        created = ConversationCreated(owner="u1", agent="demo")
        await self.store.commit(Batch(conversation_id="c1", drafts=(Draft(created),), at=self.clock.now()))
        await self.boot()
        for number in range(self.sends):
            self._later(self.rng.uniform(0, 120), partial(self.send, f"k{number}", f"text {number % 4}"))
        for _ in range(self.rng.randrange(5)):
            self._later(self.rng.uniform(0, 150), self.meddle)
        for _ in range(self.rng.randrange(3)):
            self._later(self.rng.uniform(0, 100), self._busy)
        ends = sorted(self.rng.uniform(0, 150) for _ in range(self.rng.randrange(3)))
        for at in ends:
            self._later(at, self._end_process)
        await self.clock.sleep(400.0)
        self.faults = False
        for _ in range(400):
            await self.clock.sleep(30.0)
            if await self._drained():
                break
        await self._judge()
        if self.dispatcher is not None:
            await self.dispatcher.close(0)

    def _later(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        async def wait_and_act() -> None:
            await self.clock.sleep(seconds)
            await act()

        self.tasks.add(asyncio.ensure_future(wait_and_act()))

    async def _busy(self) -> None:
        self.store.fault(StoreBusy())

    async def _end_process(self) -> None:
        if self.dispatcher is None:
            return
        if self.rng.random() < 0.7:
            await self.crash()
        else:
            await self.stop()

    async def _drained(self) -> bool:
        rows = await self.store.lane("c1")
        assert rows is not None
        if self.dispatcher is not None:
            if rows.conversation.paused is not None:
                await self._try(lambda: self._tell(inputs.Resume()))
            for turn in rows.turns:
                if turn.state is TurnState.PARKED and turn.parent is None:
                    made = {"choice": "go on"}
                    decide = inputs.Decide(turn_id=turn.turn_id, decision=made, fence=turn.fence)
                    await self._try(partial(self._tell, decide))
        return not rows.turns and all(task.done() for task in self.tasks)

    async def _tell(self, told: inputs.Input) -> Any:
        assert self.dispatcher is not None
        return await self.dispatcher.tell("c1", told)

    async def _judge(self) -> None:
        for task in self.tasks:
            if task.done() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]
        events = await self.store.events("c1", limit=100_000)
        broken: tuple[BrokenPromise, ...] = broken_promises(
            [event_view(event) for event in events], drained=True
        )
        require(not broken, "promises", *[str(one) for one in broken])
        for key, answer in self.answers.items():
            turn = await self.store.turn(answer["turn_id"])
            require(turn is not None, "G1 what was answered is stored", key)
            known = await self.store.submission_by_key("u1", "c1", key)
            require(
                known is not None and known.turn_id == answer["turn_id"], "G2 one turn per key", key, known
            )


def _resting(lane: Any) -> Any:
    from turnkeeper.lane.state import resting

    return resting(lane) if lane.holder is None else lane.phase


def _other_keys(batch: Batch, key: str) -> Batch:
    drafts = tuple(
        msgspec.structs.replace(draft, body=msgspec.structs.replace(draft.body, key=key))
        if hasattr(draft.body, "key")
        else draft
        for draft in batch.drafts
    )
    return msgspec.structs.replace(batch, drafts=drafts)


def run_seed(seed: int, *, bug: str | None = None) -> DispatchWorld:
    """Run one world to its end. Raises checker.Broken."""
    world = DispatchWorld(seed, bug=bug)
    run_virtual(world.play())
    return world


__all__ = ["BUGS", "DispatchWorld", "Fence", "run_seed"]
