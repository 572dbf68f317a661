"""The dispatcher itself: submit, tell, report, rescue, sweep, stop.

    The dispatcher owns: the clock, the store, leases, the runners' tasks, and the order commit-then-act.
    The lane owns:       every decision about who runs when.

All of a conversation's changes are made one after another under its lane's lock. `tell` steps a copy of
the lane, commits, and only then lets the new lane stand; a failed commit leaves everything as it was. If
another process moved the lane first, the lane is loaded again and the step repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from turnkeeper.conversation import codec
from turnkeeper.conversation import ids as id_kinds
from turnkeeper.conversation.events import (
    Body,
    ConversationRenamed,
    ConversationRestored,
    Draft,
    Event,
    MessageAppended,
    ReceiptMoved,
    RoundFinished,
    RoundStarted,
    SteerReturned,
    SteerTaken,
    Submitted,
    TurnCancelled,
    TurnEdited,
    TurnFailed,
    TurnMoved,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
    Unknown,
)
from turnkeeper.conversation.masking import MASK_BEGINS, Masker
from turnkeeper.conversation.messages import NOTICE, USER, Message
from turnkeeper.conversation.parts import Attachment, Part, Text, plain_text
from turnkeeper.conversation.turns import (
    OPEN_STATES,
    Conversation,
    Failure,
    Mode,
    Principal,
    Request,
    Submission,
    Turn,
    TurnState,
)
from turnkeeper.dispatch.broadcast import Broadcast
from turnkeeper.dispatch.lanes import LaneActor, Lanes, as_submission
from turnkeeper.dispatch.running import RunningTurn
from turnkeeper.errors import (
    Fenced,
    KeyInFlight,
    KeyReused,
    LaneMoved,
    NotFound,
    NotPossible,
    NotWaiting,
    OutOfPlace,
    QueueFull,
    Stopping,
    TurnDecided,
    TurnkeeperError,
)
from turnkeeper.failpoint import failpoint
from turnkeeper.lane import Lane, Phase, Rules, inputs, step
from turnkeeper.lane.effects import Abandon, Effect, Interrupt, Journal, RiderWaits, Say, Start
from turnkeeper.lane.state import RUNNING_PHASES, slot_of, wake_at
from turnkeeper.port.clock import Clock, Ids
from turnkeeper.port.runner import Answered, FailedWith, Needs, Offer, Outcome, Rider, Runner, Stopped
from turnkeeper.port.store import Batch, Fence, KeyTaken, Store

log = logging.getLogger("turnkeeper.dispatch")


def _look_at_error(act: asyncio.Task[Any]) -> None:
    """What became of an act after who waited for it went away: an attempt that lost its lane is no news."""
    error = None if act.cancelled() else act.exception()
    if error is not None and not isinstance(error, Fenced):
        log.error("an act failed after who waited for it had gone", exc_info=error)


T = TypeVar("T")

ABANDONED_SECONDS = 2.0
"""How long a server that stops waits for runners that it cancelled to let go of what they hold."""
TITLE_CHARS = 80
"""A conversation without a title is called by the beginning of its first message."""


STORE_WAIT_SECONDS_MAX = 5.0
"""Longest pause between two tries to store what must be stored."""


KeepFile = Callable[[str, str, bytes], Awaitable[Attachment | None]]
"""(user, name, bytes) -> the attachment; None where it is too large."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The dispatcher's own numbers (turnkeeper.settings holds the defaults)."""

    lease_seconds: float = 30.0
    lease_renew_seconds: float = 10.0
    sweep_seconds: float = 5.0
    shutdown_grace_seconds: float = 5.0
    undo_seconds: float = 30.0
    idle_lanes_max: int = 1000


class Hold(Protocol):
    """Tells whether a runner's turn outlived its process (a pane), so that it is re-attached, not rescued."""

    async def outlived(self, turn: Turn) -> bool:
        """Whether the turn still runs outside."""
        ...


class Sealing(Protocol):
    """Keeps the secrets of a turn until it ends."""

    async def put(self, turn_id: str, found: dict[str, str]) -> None:
        """Keep them."""
        ...

    async def of(self, turn_id: str) -> dict[str, str]:
        """token -> secret."""
        ...

    def holds(self, turn_id: str) -> bool:
        """Whether this process sealed or opened secrets of the turn: a look that costs nothing."""
        ...

    async def forget(self, turn_id: str) -> None:
        """The turn has ended."""
        ...


UNMASKED = (TurnStarted, TurnMoved, SteerTaken, SteerReturned, TurnRequeued, RoundStarted, RoundFinished)
"""Kinds in which nobody's words stand."""


def words_of(parts: Iterable[Part], mode: Mode, options: dict[str, Any]) -> bytes:
    """Everything that a sender says, as bytes: their hash tells a repeat of a body from another one."""
    return codec.encode([[*parts], mode, sorted(options.items())])


def _parts_in(body: Body | Unknown) -> tuple[Part, ...] | None:
    """The words of a person's message, as it is submitted or as it enters history."""
    if isinstance(body, Submitted):
        return body.request.parts
    return body.message.parts if isinstance(body, MessageAppended) else None


@contextlib.contextmanager
def _again_later(what: str) -> Iterator[None]:
    """What fails here is done again at the next look; a look that ends for good would be a jam."""
    try:
        yield
    except TurnkeeperError as error:
        log.warning("%s will be tried again", what, extra={"why": error.sentence})
    except Exception:
        log.exception("%s failed and will be tried again", what)


class Dispatcher:
    """Runs the lanes of one process."""

    def __init__(
        self,
        store: Store,
        runner_of: Callable[[str], Runner],
        *,
        clock: Clock,
        ids: Ids,
        rules: Rules,
        limits: Limits,
        owner: str,
        broadcast: Broadcast,
        still_allowed: Callable[[Request], Awaitable[bool]],
        masker: Masker | None = None,
        seals: Sealing | None = None,
        keep_file: KeepFile | None = None,
    ) -> None:
        self.store = store
        self.keep_file = keep_file
        self.broadcast = broadcast
        self.recovered = 0
        self._runner_of = runner_of
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._owner = owner
        self._still_allowed = still_allowed
        self.masker = masker
        self._seals = seals
        self.lanes = Lanes(store, clock, rules, limits.idle_lanes_max)
        self._storing: set[tuple[str, str, str]] = set()
        self._purges: dict[str, float] = {}
        self._acts: set[asyncio.Task[Any]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False

    async def tell(
        self,
        conversation_id: str,
        told: inputs.Input,
        *,
        extra: Sequence[Draft] = (),
        clean: tuple[Part, ...] | None = None,
    ) -> list[Effect]:
        """Step the lane, commit, act; returns the effects. Raises what the step or the commit raises.

        Once begun it goes on even if the caller goes away: a commit is never left half known. `clean`:
        see `_masked`.
        """
        return await self._whole(self._tell(conversation_id, told, extra, clean))

    async def _whole(self, act: Coroutine[Any, Any, T]) -> T:
        """Carry out `act` to its end, also if who waits for it goes away: what was committed is then made known too."""
        task = asyncio.get_running_loop().create_task(act)
        self._acts.add(task)
        task.add_done_callback(self._acts.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_look_at_error)
            raise

    async def _tell(
        self,
        conversation_id: str,
        told: inputs.Input,
        extra: Sequence[Draft],
        clean: tuple[Part, ...] | None,
    ) -> list[Effect]:
        for _ in range(8):
            async with self.lanes.held(conversation_id) as actor:
                try:
                    return await self._step_and_commit(actor, [told], extra, clean=clean)
                except LaneMoved:
                    await self.lanes.reload(actor)
        raise LaneMoved(conversation_id=conversation_id)

    async def _step_and_commit(
        self,
        actor: LaneActor,
        told: Sequence[inputs.Input],
        extra: Sequence[Draft] = (),
        *,
        fence: Fence | None = None,
        points: tuple[str, str] | None = None,
        clean: tuple[Part, ...] | None = None,
    ) -> list[Effect]:
        """Under the actor's lock: the whole of stepping, committing and acting."""
        now = self._clock.now()
        lane = actor.lane
        effects: list[Effect] = []
        for one in told:
            lane, more = step(lane, one, now)
            effects += more
            if isinstance(one, inputs.Submit):
                actor.requests[one.body.turn_id] = as_submission(
                    actor.conversation.conversation_id, one.body, now
                )
        lane, effects = await self._check_rights(lane, effects, told, now)
        if self._stopping and lane.holder is not None and actor.running is None:
            # Nobody begins while the server stops: whoever was promoted by this step waits again.
            holder = lane.holder
            lane, more = step(lane, inputs.HandBack(turn_id=holder.turn_id, fence=holder.fence), now)
            effects += more
        offers: list[Offer] = []
        drafts = [*extra, *await self._drafts(actor, effects, offers, now)]
        holds = None if lane.holder is None else Fence(lane.holder.turn_id, lane.holder.fence)
        offers = [offer for offer in offers if Fence(offer.turn.turn_id, offer.turn.fence) == holds]
        events: tuple[Event, ...] = ()
        if drafts:
            if points is not None:
                failpoint(points[0])
            batch = Batch(
                conversation_id=actor.conversation.conversation_id,
                drafts=await self._masked(drafts, clean),
                at=now,
                lane_version=actor.version,
                fence=fence,
            )
            events = await self.store.commit(batch)
            actor.version += 1
            if points is not None:
                failpoint(points[1])
        actor.lane = lane
        actor.remember(events)
        self.broadcast.publish(actor.conversation.conversation_id, events)
        self._perform(actor, effects, offers)
        return effects

    async def _check_rights(
        self, lane: Lane, effects: list[Effect], told: Sequence[inputs.Input], now: float
    ) -> tuple[Lane, list[Effect]]:
        """A turn that waited starts only if who sent it may still do so (G18); else it fails at once."""
        fresh = {one.body.turn_id for one in told if isinstance(one, inputs.Submit)}
        checked = 0
        while True:
            starts = [e for e in effects if isinstance(e, Start) and e.why not in ("rescued", "reattached")]
            if len(starts) == checked:
                return lane, effects
            start = starts[checked]
            checked += 1
            if start.turn_id in fresh:
                continue
            request = (await self._submission_of(lane.conversation_id, start.turn_id)).request
            if await self._still_allowed(request):
                continue
            refused = Failure(
                kind="rights",
                retryable=False,
                sentence="Whoever sent this may no longer do so; it was not run.",
            )
            lane, more = step(
                lane,
                inputs.Fail(turn_id=start.turn_id, fence=start.fence, failure=refused),
                now,
            )
            effects = [*effects, *more]

    async def _submission_of(self, conversation_id: str, turn_id: str) -> Submission:
        actor = self.lanes.loaded(conversation_id)
        if actor is not None and turn_id in actor.requests:
            return actor.requests[turn_id]
        turn = await self.store.turn(turn_id)
        assert turn is not None, turn_id
        submission = await self.store.submission(turn.submission_id)
        assert submission is not None, turn_id
        if actor is not None:
            actor.requests[turn_id] = submission
        return submission

    async def _drafts(
        self, actor: LaneActor, effects: list[Effect], offers: list[Offer], now: float
    ) -> list[Draft]:
        """The journal's share of the effects, completed with what only the dispatcher knows."""
        drafts: list[Draft] = []
        for effect in effects:
            if isinstance(effect, Start):
                drafts += await self._start_drafts(actor, effect, offers, now)
            elif isinstance(effect, Journal):
                drafts += self._journal_drafts(actor, effect, effects, now)
        return drafts

    def _journal_drafts(
        self, actor: LaneActor, effect: Journal, effects: list[Effect], now: float
    ) -> list[Draft]:
        body = effect.body
        turn_id = effect.turn_id
        if isinstance(body, Submitted):
            say = next(e for e in effects if isinstance(e, Say) and e.turn_id == turn_id)
            body = replace(
                body,
                answer={
                    "turn_id": body.turn_id,
                    "submission_id": body.submission_id,
                    "outcome": say.outcome,
                    "position": say.position,
                },
            )
        drafts = [Draft(body, turn_id=turn_id, attempt=effect.attempt, actor=effect.actor)]
        if turn_id is None or not isinstance(body, TurnFailed):
            return drafts
        drafts.append(self._notice(turn_id, effect.attempt, body.failure.sentence, now))
        return drafts

    def _notice(self, turn_id: str, attempt: int, text: str, now: float) -> Draft:
        """A line for people, in history, never fed."""
        message = Message(
            message_id=self._ids.make(id_kinds.MESSAGE),
            role=NOTICE,
            parts=(Text(text),),
            created_at=now,
            turn_id=turn_id,
            attempt=attempt,
            provenance="turnkeeper",
            replay=False,
        )
        return Draft(MessageAppended(message), turn_id=turn_id, attempt=attempt)

    async def _start_drafts(
        self, actor: LaneActor, effect: Start, offers: list[Offer], now: float
    ) -> list[Draft]:
        """TurnStarted, the turn's message if this is its first start, and the offer that will follow."""
        conversation = actor.conversation
        submission = actor.requests.get(effect.turn_id)
        if submission is None:
            submission = await self._submission_of(conversation.conversation_id, effect.turn_id)
        started = TurnStarted(
            fence=effect.fence,
            owner=self._owner,
            lease_until=now + self._limits.lease_seconds,
            why=effect.why,
        )
        drafts = [Draft(started, turn_id=effect.turn_id, attempt=effect.attempt, actor="dispatcher")]
        # Who is retried before it ever held the lane had been a rider: its message is in history.
        if effect.fence == 1 and not effect.riding and effect.why != "retried":
            drafts.append(self.message_draft(submission, effect.attempt, now))
        turn = Turn(
            turn_id=effect.turn_id,
            conversation_id=conversation.conversation_id,
            submission_id=submission.submission_id,
            state=TurnState.RUNNING,
            place=0,
            attempt=effect.attempt,
            fence=effect.fence,
            owner=self._owner,
            mode=submission.request.mode,
            user_id=submission.user_id,
            producer=submission.request.producer,
            agent=submission.request.agent,
            created_at=submission.created_at,
            started_at=now,
        )
        offers.append(Offer(turn=turn, conversation=conversation, request=submission.request, why=effect.why))
        return drafts

    def message_draft(self, submission: Submission, attempt: int, now: float) -> Draft:
        """The submission's message, as it enters history."""
        message = Message(
            message_id=self._ids.make(id_kinds.MESSAGE),
            role=USER,
            parts=submission.request.parts,
            created_at=now,
            turn_id=submission.turn_id,
            attempt=attempt,
            submission_id=submission.submission_id,
        )
        return Draft(
            MessageAppended(message),
            turn_id=submission.turn_id,
            attempt=attempt,
            actor=f"user:{submission.user_id}",
        )

    def _perform(self, actor: LaneActor, effects: list[Effect], offers: list[Offer]) -> None:
        """Everything that follows a commit. None of it waits."""
        for effect in effects:
            running = actor.running
            if isinstance(effect, Journal) and isinstance(effect.body, TurnSettled | TurnCancelled):
                self._forget_secrets(effect.turn_id)
            if isinstance(effect, RiderWaits):
                if running is not None:
                    self._acts_on(self._bring_rider(running, effect.rider_id))
            elif isinstance(effect, Interrupt):
                if running is not None and running.fence.token == effect.fence:
                    running.stop(effect.reason)
            elif isinstance(effect, Abandon) and running is not None:
                if running.fence == Fence(effect.turn_id, effect.fence):
                    running.abandon()
                    actor.running = None
            elif (
                isinstance(effect, Journal)
                and isinstance(effect.body, TurnCancelled)
                and running is not None
                and effect.turn_id is not None
            ):
                running.drop_rider(effect.turn_id)
        for offer in offers:
            self._run(actor, offer)

    def _forget_secrets(self, turn_id: str | None) -> None:
        if self._seals is not None and turn_id is not None:
            self._acts_on(self._seals.forget(turn_id))

    async def _masked(
        self, drafts: Sequence[Draft], clean: tuple[Part, ...] | None = None
    ) -> tuple[Draft, ...]:
        """Take the secrets out before anything is stored; what a person sent stays usable for that turn.

        `clean` are parts in which the submission found none: what holds these very parts is not searched again.
        """
        if self.masker is None:
            return tuple(drafts)
        masked_drafts: list[Draft] = []
        for draft in drafts:
            body = draft.body
            if clean is not None and _parts_in(body) is clean:
                pass
            elif not isinstance(body, UNMASKED):
                data = codec.encode_body(body)
                masked, found = self.masker.mask(data)
                if found:
                    masked_body = codec.decode_body(body.kind, masked)
                    assert not isinstance(masked_body, Unknown)
                    if isinstance(body, Submitted | TurnEdited) and self._seals and draft.turn_id:
                        await self._seals.put(draft.turn_id, found)
                    draft = msgspec.structs.replace(draft, body=masked_body)  # noqa: PLW2901
            masked_drafts.append(draft)
        return tuple(masked_drafts)

    def _acts_on(self, act: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(act)
        self._acts.add(task)
        task.add_done_callback(self._acts.discard)

    async def _bring_rider(self, running: RunningTurn, rider_id: str) -> None:
        turn = await self.store.turn(rider_id)
        if turn is None or turn.parent != running.fence.turn_id:
            return
        submission = await self.store.submission(turn.submission_id)
        if submission is not None:
            running.add_rider(Rider(turn=turn, submission=submission))

    # ------------------------------------------------------------------ running turns

    def _run(self, actor: LaneActor, offer: Offer) -> None:
        running = RunningTurn(self, offer, self._clock, self._ids)
        actor.running = running
        running.task = asyncio.ensure_future(self._carry_out(running))
        for rider in actor.lane.riders:
            if not rider.taken:
                self._acts_on(self._bring_rider(running, rider.slot.turn_id))

    async def _carry_out(self, running: RunningTurn) -> None:
        """The task of a running turn: run, then end it. It never ends without the lane being told."""
        outcome: Outcome
        try:
            # A turn that starts in the commit that stores it is offered with its words as sent, unmasked.
            turn_id, words = running.fence.turn_id, running.offer.request.parts
            if self._seals is not None and (self._seals.holds(turn_id) or MASK_BEGINS in plain_text(words)):
                running.sealed = await self._seals.of(turn_id)
            runner = self._runner_of(running.offer.request.agent)
            outcome = await runner.run(running)
        except asyncio.CancelledError:
            return
        except Fenced:
            self._release(running)
            return
        except TurnkeeperError as error:
            outcome = FailedWith(
                failure=Failure(kind=error.code, retryable=error.retryable, sentence=error.sentence)
            )
        except (
            Exception
        ) as error:  # the runner is somebody else's code: whatever it raises ends its turn only
            log.exception("runner failed", extra={"turn_id": running.fence.turn_id})
            outcome = FailedWith(
                failure=Failure(
                    kind="runner",
                    retryable=True,
                    sentence=f"The agent stopped with an error: {type(error).__name__}: {error}",
                )
            )
        await self._finish(running, outcome)

    async def _finish(self, running: RunningTurn, outcome: Outcome) -> None:
        """Commit the outcome, the turn's end and the next turn's start together; keep trying while the store cannot."""
        try:
            await self._until_stored(lambda: self._end(running, outcome))
        except (Fenced, OutOfPlace, NotFound):
            self._release(running)

    async def _until_stored(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do `act` until the store takes it: what must be stored waits for a busy or full disk."""
        wait_seconds = 0.1
        while True:
            try:
                await act()
            except TurnkeeperError as error:
                if not error.retryable:
                    raise
                log.warning("not stored yet, will try again", extra={"why": error.code})
                await self._clock.sleep(wait_seconds)
                wait_seconds = min(wait_seconds * 2, STORE_WAIT_SECONDS_MAX)
            else:
                return

    async def _end(self, running: RunningTurn, outcome: Outcome) -> None:
        async with self.lanes.held(running.conversation_id) as actor:
            if actor.running is not running:
                raise Fenced(turn_id=running.fence.turn_id)
            told, bodies = self._end_inputs(actor.lane, running, outcome)
            actor.running = None
            try:
                await self._step_and_commit(
                    actor,
                    told,
                    running.drafts(bodies),
                    fence=running.fence,
                    points=("dispatch.before_end_commit", "dispatch.after_end_commit"),
                )
            except BaseException as error:
                if actor.running is None:
                    actor.running = running
                if isinstance(error, LaneMoved):
                    await self.lanes.reload(actor)
                raise

    def _end_inputs(
        self, lane: Lane, running: RunningTurn, outcome: Outcome
    ) -> tuple[list[inputs.Input], list[Body]]:
        """What the outcome means for the lane; receipts among its bodies are the lane's to move."""
        at: dict[str, Any] = {
            "turn_id": running.fence.turn_id,
            "fence": running.fence.token,
            "actor": running.actor,
        }
        told: list[inputs.Input] = []
        bodies: list[Body] = []
        for body in outcome.bodies:
            if isinstance(body, ReceiptMoved):
                told.append(inputs.Evidence(state=body.state, evidence=body.evidence or {}, **at))
            else:
                bodies.append(body)
        return [*told, self._end_input(lane, outcome, at)], bodies

    def _end_input(self, lane: Lane, outcome: Outcome, at: dict[str, Any]) -> inputs.Input:
        if isinstance(outcome, Answered):
            return inputs.Answer(reason=outcome.reason, promote_riders=outcome.promote_riders, **at)
        if lane.phase is Phase.STOPPING:
            return inputs.Halt(**at)
        if isinstance(outcome, Needs):
            return inputs.NeedPerson(needs=outcome.needs, hold=outcome.hold, **at)
        if isinstance(outcome, FailedWith):
            return inputs.Fail(failure=outcome.failure, **at)
        if self._stopping:
            return inputs.HandBack(**at)
        return inputs.Fail(
            failure=Failure(
                kind="interrupted", retryable=True, sentence="The agent stopped without being asked to."
            ),
            **at,
        )

    def _release(self, running: RunningTurn) -> None:
        """The attempt lost its lane; whoever holds it now goes on without it."""
        actor = self.lanes.loaded(running.conversation_id)
        if actor is not None and actor.running is running:
            actor.running = None
            self.lanes.drop(running.conversation_id)

    async def report(
        self, running: RunningTurn, told: Sequence[inputs.Reported], drafts: tuple[Draft, ...]
    ) -> tuple[Event, ...]:
        """Journal what a runner reports, under its fence."""
        return await self._whole(self._report(running, told, drafts))

    async def _report(
        self, running: RunningTurn, told: Sequence[inputs.Reported], drafts: tuple[Draft, ...]
    ) -> tuple[Event, ...]:
        async with self.lanes.held(running.conversation_id) as actor:
            self._check_fence(actor, running)
            now = self._clock.now()
            lane = actor.lane
            all_drafts: list[Draft] = []
            for one in told:
                lane, effects = step(lane, one, now)
                all_drafts += [
                    Draft(e.body, turn_id=e.turn_id, attempt=e.attempt, actor=e.actor)
                    for e in effects
                    if isinstance(e, Journal)
                ]
            all_drafts += drafts
            progress = inputs.Progress(turn_id=running.fence.turn_id, fence=running.fence.token)
            lane, _ = step(lane, progress, now)
            events: tuple[Event, ...] = ()
            if all_drafts:
                batch = Batch(
                    conversation_id=running.conversation_id,
                    drafts=await self._masked(all_drafts),
                    at=now,
                    fence=running.fence,
                )
                events = await self.store.commit(batch)
            actor.lane = lane
            actor.remember(events)
            running.journaled(events)
            self.broadcast.publish(running.conversation_id, events)
            return events

    def _check_fence(self, actor: LaneActor, running: RunningTurn) -> None:
        holder = actor.lane.holder
        if (
            actor.running is not running
            or holder is None
            or Fence(holder.turn_id, holder.fence) != running.fence
        ):
            raise Fenced(turn_id=running.fence.turn_id)

    def note_work(self, running: RunningTurn) -> None:
        """Evidence of work without an event."""
        actor = self.lanes.loaded(running.conversation_id)
        if actor is None or actor.lock.locked() or actor.lane.holder is None:
            return
        progress = inputs.Progress(turn_id=running.fence.turn_id, fence=running.fence.token)
        with contextlib.suppress(Fenced, OutOfPlace):
            actor.lane, _ = step(actor.lane, progress, self._clock.now())

    async def take_rider(self, running: RunningTurn, rider: Rider, drafts: tuple[Draft, ...]) -> None:
        """The rider's message enters history; from here on it ends with the turn."""
        await self._whole(self._take_rider(running, rider, drafts))

    async def _take_rider(self, running: RunningTurn, rider: Rider, drafts: tuple[Draft, ...]) -> None:
        async with self.lanes.held(running.conversation_id) as actor:
            self._check_fence(actor, running)
            now = self._clock.now()
            told = inputs.TakeRider(
                turn_id=running.fence.turn_id,
                fence=running.fence.token,
                rider_id=rider.turn.turn_id,
                actor=running.actor,
            )
            submission = await self.store.submission(rider.submission.submission_id)
            assert submission is not None
            extra = (
                self.message_draft(submission, rider.turn.attempt, now),
                *drafts,
            )
            await self._step_and_commit(actor, [told], extra, fence=running.fence)

    # ------------------------------------------------------------------ producers

    async def submit(
        self,
        conversation: Conversation,
        *,
        key: str,
        request: Request,
        body_fingerprint: str | None = None,
    ) -> tuple[dict[str, Any], bool]:
        """Store a submission; returns its answer and whether it is a replay.

        Errors: KeyInFlight, KeyReused, QueueFull, Stopping, and what the store raises. After an error
        nothing is stored.
        """
        if self._stopping:
            raise Stopping
        conversation_id = conversation.conversation_id
        user_id = request.principal.user_id
        name = (user_id, conversation_id, key)
        if name in self._storing:
            raise KeyInFlight
        words = words_of(request.parts, request.mode, request.options)
        now_fingerprint = body_fingerprint or hashlib.sha256(words).hexdigest()
        clean: tuple[Part, ...] | None = None
        if self.masker is not None:
            said = b"%b %b %b" % (words, key.encode(), (request.resend_of or "").encode(errors="replace"))
            clean = None if self.masker.mask(said)[1] else request.parts
        turn_id = self._ids.make(id_kinds.TURN)
        body = Submitted(
            submission_id=self._ids.make(id_kinds.SUBMISSION),
            turn_id=turn_id,
            key=key,
            fingerprint=now_fingerprint,
            request=request,
        )
        extra: list[Draft] = []
        if not conversation.title and conversation.last_seq <= 1:
            title = " ".join(plain_text(request.parts).split())[:TITLE_CHARS]
            if title:
                extra.append(Draft(ConversationRenamed(title), actor="turnkeeper"))
        told = inputs.Submit(body=body, mode=request.mode, user_id=user_id, actor=f"user:{user_id}")
        self._storing.add(name)
        try:
            failpoint("dispatch.before_submit_commit")
            effects = await self.tell(conversation_id, told, extra=extra, clean=clean)
            failpoint("dispatch.after_submit_commit")
        except KeyTaken as taken:
            return self._replay(taken.submission, now_fingerprint), True
        except QueueFull:
            known = await self.store.submission_by_key(user_id, conversation_id, key)
            if known is None:
                raise
            return self._replay(known, now_fingerprint), True
        finally:
            self._storing.discard(name)
        say = next(e for e in effects if isinstance(e, Say) and e.turn_id == turn_id)
        answer = {
            "turn_id": turn_id,
            "submission_id": body.submission_id,
            "outcome": say.outcome,
            "position": say.position,
        }
        return answer, False

    def _replay(self, known: Submission, now_fingerprint: str) -> dict[str, Any]:
        if known.fingerprint != now_fingerprint:
            raise KeyReused
        assert known.answer is not None
        return known.answer

    async def change(self, turn: Turn, told: inputs.Input) -> list[Effect]:
        """Tell the lane something about one turn; an ended turn answers TurnDecided with its state."""
        if turn.state not in OPEN_STATES:
            raise TurnDecided(state=str(turn.state), turn_id=turn.turn_id)
        try:
            return await self.tell(turn.conversation_id, told)
        except NotWaiting:
            now = await self.store.turn(turn.turn_id)
            assert now is not None
            raise TurnDecided(state=str(now.state), turn_id=turn.turn_id) from None

    async def retry(self, turn: Turn, actor: str) -> Say:
        """A failed turn runs again, as its next attempt."""
        if turn.state is not TurnState.FAILED:
            raise TurnDecided(state=str(turn.state), turn_id=turn.turn_id)
        if self._stopping:
            raise Stopping
        told = inputs.Retry(slot=slot_of(turn), actor=actor)
        effects = await self.tell(turn.conversation_id, told)
        return next(e for e in effects if isinstance(e, Say) and e.turn_id == turn.turn_id)

    async def append(self, conversation_id: str, *drafts: Draft) -> tuple[Event, ...]:
        """Journal something about a conversation that no lane cares for."""
        return await self._whole(self._append(conversation_id, drafts))

    async def _append(self, conversation_id: str, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        async with self.lanes.held(conversation_id) as actor:
            return await self._journal(actor, drafts)

    async def _journal(self, actor: LaneActor, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        conversation_id = actor.conversation.conversation_id
        clean = await self._masked(drafts)
        batch = Batch(conversation_id=conversation_id, drafts=clean, at=self._clock.now())
        events = await self.store.commit(batch)
        actor.remember(events)
        self.broadcast.publish(conversation_id, events)
        return events

    async def complete(
        self,
        conversation_id: str,
        missing_from: Callable[[tuple[Message, ...]], Awaitable[Sequence[Draft]]],
    ) -> tuple[Event, ...]:
        """Journal what `missing_from` finds to be missing in a history that nobody changes meanwhile.

        Raises NotPossible while a turn runs or waits: its runner adds to history by itself.
        """
        return await self._whole(self._complete(conversation_id, missing_from))

    async def _complete(
        self,
        conversation_id: str,
        missing_from: Callable[[tuple[Message, ...]], Awaitable[Sequence[Draft]]],
    ) -> tuple[Event, ...]:
        async with self.lanes.held(conversation_id) as actor:
            if actor.lane.holder is not None:
                raise NotPossible(why="A turn runs in this conversation; try again when it has ended.")
            drafts = await missing_from(await self.store.messages_after(conversation_id))
            if not drafts:
                return ()
            return await self._journal(actor, drafts)

    async def holds(self, conversation_id: str) -> bool:
        """Whether a turn runs or waits in the lane now: then nothing can be completed. Raises NotFound."""
        return (await self.lanes.actor(conversation_id)).lane.holder is not None

    async def close_conversation(self, conversation_id: str, deleted: Draft) -> None:
        """Stop what runs and start nobody; when the time to undo is over, the queue is cancelled."""
        await self.tell(conversation_id, inputs.Close(actor=deleted.actor), extra=[deleted])
        self._purges[conversation_id] = self._clock.now() + self._limits.undo_seconds

    async def reopen_conversation(self, conversation_id: str, actor: str) -> None:
        """Undo a deletion."""
        self._purges.pop(conversation_id, None)
        restored = Draft(ConversationRestored(), actor=actor)
        await self.tell(conversation_id, inputs.Resume(actor=actor), extra=[restored])

    # ------------------------------------------------------------------ beginning, passing of time, end

    async def start(self) -> None:
        """Rescue what earlier processes left, then begin to watch the time. Returns when all lanes are taken up."""
        for conversation_id in await self.store.open_lanes():
            await self._until_stored(partial(self.take_up, conversation_id))
        self._loops = [
            asyncio.ensure_future(self._forever(self.sweep, self._tick_seconds)),
            asyncio.ensure_future(self._forever(self.renew, lambda: self._limits.lease_renew_seconds)),
        ]

    async def take_up(self, conversation_id: str) -> None:
        """Rescue or re-attach the lane's holder if it is not ours, and start whoever waits.

        Once begun it goes on, also if a stop ends the look that began it: half done it would cost a second rescue.
        """
        await self._whole(self._take_up(conversation_id))

    async def _take_up(self, conversation_id: str) -> None:
        async with self.lanes.held(conversation_id) as actor:
            deleted_at = actor.conversation.deleted_at
            if deleted_at is not None:
                self._purges[conversation_id] = deleted_at + self._limits.undo_seconds
            holder = actor.lane.holder
            if holder is None or actor.running is not None or actor.lane.phase is Phase.WAITING:
                await self._step_and_commit(actor, [inputs.Tick()])
                return
            self.recovered += 1
            told: inputs.Input = inputs.Rescue(turn_id=holder.turn_id)
            if await self._outlived(holder.turn_id):
                told = inputs.Reattach(turn_id=holder.turn_id)
            await self._step_and_commit(
                actor,
                [told],
                points=("dispatch.before_rescue_commit", "dispatch.after_rescue_commit"),
            )

    async def _outlived(self, turn_id: str) -> bool:
        turn = await self.store.turn(turn_id)
        assert turn is not None
        try:
            runner = self._runner_of(turn.agent)
        except TurnkeeperError:
            return False
        outlived = getattr(runner, "outlived", None)
        return outlived is not None and await outlived(turn)

    def _tick_seconds(self) -> float:
        """Until the next look: sooner if a lane has a time to keep."""
        now = self._clock.now()
        times = [now + self._limits.sweep_seconds, *self._purges.values()]
        times += [at for actor in self.lanes.all() if (at := wake_at(actor.lane)) is not None]
        return max(0.05, min(1.0, min(times) - now))

    async def _forever(self, act: Callable[[], Awaitable[None]], seconds: Callable[[], float]) -> None:
        while True:
            await self._clock.sleep(seconds())
            with _again_later("the periodic look"):
                await act()

    async def sweep(self) -> None:
        """Look at every lane again, whatever was or was not announced (G4). One lane's trouble is its own."""
        now = self._clock.now()
        for actor in self.lanes.all():
            conversation_id = actor.conversation.conversation_id
            with _again_later(conversation_id):
                await self._look_at(conversation_id, actor, now)
        for conversation_id, at in list(self._purges.items()):
            if at <= now:
                with _again_later(conversation_id):
                    await self.tell(conversation_id, inputs.Purge())
                    self._purges.pop(conversation_id, None)

    async def _look_at(self, conversation_id: str, actor: LaneActor, now: float) -> None:
        """Tell a lane the time if it waits for one, or find out who holds it if nobody here does."""
        lane = actor.lane
        at = wake_at(lane)
        due = at is not None and at <= now
        free = lane.holder is None and lane.queue and lane.paused is None
        if (due or free) and not self._stopping:
            await self.tell(conversation_id, inputs.Tick())
        elif lane.phase in RUNNING_PHASES and actor.running is None and not actor.lock.locked():
            await self._recheck_holder(actor)

    async def _recheck_holder(self, actor: LaneActor) -> None:
        """A lane that is held although nobody here runs it: by a dead process, or by another living one."""
        if actor.lane.phase is Phase.WAITING or actor.lane.holder is None:
            return
        turn = await self.store.turn(actor.lane.holder.turn_id)
        if turn is not None and turn.state is TurnState.RUNNING:
            ours = (turn.lease_until or 0.0) <= self._clock.now() or turn.owner == self._owner
            if ours and not actor.lock.locked() and actor.running is None:
                await self.take_up(actor.conversation.conversation_id)
            return
        self.lanes.drop(actor.conversation.conversation_id)

    async def renew(self) -> None:
        """Renew the leases of what runs here; end what has lost its lease."""
        running = {a.running.fence: a.running for a in self.lanes.all() if a.running is not None}
        if not running:
            return
        until = self._clock.now() + self._limits.lease_seconds
        held = set(await self.store.renew_leases(list(running), until))
        for fence, turn in running.items():
            if fence not in held:
                actor = self.lanes.loaded(turn.conversation_id)
                if actor is not None and actor.running is turn and not actor.lock.locked():
                    turn.abandon()
                    self._release(turn)

    @property
    def running_count(self) -> int:
        """How many turns run here."""
        return sum(actor.running is not None for actor in self.lanes.all())

    async def close(self, grace_seconds: float | None = None) -> None:
        """Take nothing more, let running turns reach a good point, hand the others back."""
        self._stopping = True
        for loop in self._loops:
            loop.cancel()
        grace = self._limits.shutdown_grace_seconds if grace_seconds is None else grace_seconds
        tasks: list[asyncio.Task[None]] = []
        for actor in self.lanes.all():
            if actor.running is not None and actor.running.task is not None:
                actor.running.stop("shutdown")
                tasks.append(actor.running.task)
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        # Side by side, so that they share commits: one after another, hundreds would take as many fsyncs.
        await asyncio.gather(*[self._hand_back_all(actor) for actor in self.lanes.all()])
        if left := [task for task in tasks if not task.done()]:
            # They were cancelled; what they hold (connections, processes) is theirs to let go of.
            await asyncio.wait(left, timeout=ABANDONED_SECONDS)
        await asyncio.gather(*self._loops, return_exceptions=True)
        while self._acts:
            await asyncio.wait(set(self._acts))
        # What such an act began is handed back as well.
        await asyncio.gather(*[self._hand_back_all(actor) for actor in self.lanes.all()])

    async def _hand_back_all(self, actor: LaneActor) -> None:
        while actor.running is not None:
            await self._hand_back(actor, actor.running)

    async def _hand_back(self, actor: LaneActor, running: RunningTurn) -> None:
        running.abandon()
        async with actor.lock:
            if actor.running is not running:
                return
            actor.running = None
            told = inputs.HandBack(turn_id=running.fence.turn_id, fence=running.fence.token)
            try:
                await self._step_and_commit(actor, [told], fence=running.fence)
            except (Fenced, OutOfPlace):
                return
            except TurnkeeperError as error:  # the next process finds the turn and rescues it
                log.warning(
                    "turn not handed back", extra={"turn_id": running.fence.turn_id, "why": error.code}
                )


__all__ = ["Dispatcher", "LaneActor", "Limits", "Principal", "Stopped", "words_of"]
