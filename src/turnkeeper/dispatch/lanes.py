"""The lanes of one process: loaded when somebody asks, changed by one at a time, forgotten when idle.

A lane here is a copy of what the store holds, with its lock. It is as good as its newest commit: `remember` keeps
it in step with our own, `reload` takes over what another process wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from turnkeeper.conversation.events import (
    Body,
    ConversationArchived,
    ConversationDeleted,
    ConversationRenamed,
    ConversationRestored,
    Event,
    LanePaused,
    LaneResumed,
    Submitted,
    TurnEdited,
    Unknown,
)
from turnkeeper.conversation.turns import Conversation, Submission
from turnkeeper.dispatch.running import RunningTurn
from turnkeeper.errors import NotFound
from turnkeeper.lane import Lane, Rules
from turnkeeper.lane.state import load
from turnkeeper.port.clock import Clock
from turnkeeper.port.store import Fence, Store

CONVERSATION_CHANGES: dict[type[Body | Unknown], Callable[[Event, Any], dict[str, Any]]] = {
    ConversationRenamed: lambda event, body: {"title": body.title},
    ConversationArchived: lambda event, body: {"archived": body.archived},
    ConversationDeleted: lambda event, body: {"deleted_at": event.at},
    ConversationRestored: lambda event, body: {"deleted_at": None},
    LanePaused: lambda event, body: {"paused": body.reason},
    LaneResumed: lambda event, body: {"paused": None},
}
"""What an event changes in the copy of its conversation that a loaded lane keeps."""


def as_submission(conversation_id: str, body: Submitted, at: float) -> Submission:
    return Submission(
        submission_id=body.submission_id,
        conversation_id=conversation_id,
        turn_id=body.turn_id,
        user_id=body.request.principal.user_id,
        key=body.key,
        fingerprint=body.fingerprint,
        request=body.request,
        created_at=at,
        answer=body.answer,
    )


class LaneActor:
    """One conversation's lane in this process, with its lock."""

    __slots__ = ("conversation", "lane", "lock", "requests", "running", "version")

    def __init__(self, conversation: Conversation, lane: Lane) -> None:
        self.lock = asyncio.Lock()
        self.conversation = conversation
        self.lane = lane
        self.version = conversation.lane_version
        self.running: RunningTurn | None = None
        self.requests: dict[str, Submission] = {}

    @property
    def idle(self) -> bool:
        """Nothing is known here that the store could not give again at once."""
        lane = self.lane
        return lane.holder is None and not lane.queue and self.running is None and not self.lock.locked()

    def remember(self, events: Sequence[Event]) -> None:
        """Keep these copies in step with what was committed."""
        if not events:
            return
        more: dict[str, Any] = {}
        for event in events:
            body = event.body
            change = CONVERSATION_CHANGES.get(type(body))
            if change is not None:
                more |= change(event, body)
            if event.turn_id is None:
                continue
            if isinstance(body, Submitted):
                self.requests[event.turn_id] = as_submission(event.conversation_id, body, event.at)
            elif isinstance(body, TurnEdited):
                self.requests.pop(event.turn_id, None)
        self.conversation = replace(self.conversation, last_seq=events[-1].seq, **more)
        lane = self.lane
        open_turns = len(lane.queue) + len(lane.riders) + len(lane.parked) + (lane.holder is not None)
        if len(self.requests) > open_turns:
            held = {
                *([lane.holder.turn_id] if lane.holder else []),
                *[slot.turn_id for slot in lane.queue],
                *[rider.slot.turn_id for rider in lane.riders],
                *[slot.turn_id for slot in lane.parked],
            }
            self.requests = {k: v for k, v in self.requests.items() if k in held}


class HeldLane:
    """A lane with its lock, for the length of an `async with`."""

    __slots__ = ("_actor", "_conversation_id", "_lanes")

    def __init__(self, lanes: Lanes, conversation_id: str) -> None:
        self._lanes = lanes
        self._conversation_id = conversation_id

    async def __aenter__(self) -> LaneActor:
        """Take the lock."""
        self._actor = await self._lanes.lock(self._conversation_id)
        return self._actor

    async def __aexit__(self, *_: object) -> None:
        """Release it."""
        self._actor.lock.release()


class Lanes:
    """The loaded lanes by conversation; above `idle_max` the idle ones go."""

    def __init__(self, store: Store, clock: Clock, rules: Rules, idle_max: int) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._idle_max = idle_max
        self._lanes: dict[str, LaneActor] = {}
        self._look_above = idle_max
        self._loading: dict[str, asyncio.Future[LaneActor]] = {}

    def __len__(self) -> int:
        """How many are loaded."""
        return len(self._lanes)

    def all(self) -> list[LaneActor]:
        """Those that are loaded now; a copy, so that they may come and go meanwhile."""
        return list(self._lanes.values())

    def loaded(self, conversation_id: str) -> LaneActor | None:
        """The lane, if it is loaded."""
        return self._lanes.get(conversation_id)

    def drop(self, conversation_id: str) -> None:
        """Forget the lane: whoever asks next loads it as it is stored."""
        self._lanes.pop(conversation_id, None)

    async def actor(self, conversation_id: str) -> LaneActor:
        """The conversation's lane, loaded if need be. Raises NotFound."""
        actor = self._lanes.get(conversation_id)
        if actor is not None:
            return actor
        loading = self._loading.get(conversation_id)
        if loading is not None:
            return await asyncio.shield(loading)
        future: asyncio.Future[LaneActor] = asyncio.get_running_loop().create_future()
        self._loading[conversation_id] = future
        try:
            actor = await self._load(conversation_id)
            self._lanes[conversation_id] = actor
            future.set_result(actor)
        except BaseException as error:
            future.set_exception(error)
            future.exception()
            raise
        finally:
            del self._loading[conversation_id]
        self._forget_idle(actor)
        return actor

    def held(self, conversation_id: str) -> HeldLane:
        """`async with` it: the conversation's lane, and nobody else changes it meanwhile."""
        return HeldLane(self, conversation_id)

    async def lock(self, conversation_id: str) -> LaneActor:
        """The conversation's lane with its lock taken: whoever asks releases it. Raises NotFound.

        A lane may be forgotten while somebody waits for it; a step of a forgotten one would go on beside
        a second copy of the same lane, so it is asked for again.
        """
        while True:
            actor = await self.actor(conversation_id)
            await actor.lock.acquire()
            if self._lanes.get(conversation_id) is actor:
                return actor
            actor.lock.release()

    async def _load(self, conversation_id: str) -> LaneActor:
        rows = await self._store.lane(conversation_id)
        if rows is None:
            raise NotFound(what="conversation")
        lane = load(conversation_id, rows.conversation.paused, rows.turns, self._clock.now(), self._rules)
        return LaneActor(rows.conversation, lane)

    async def reload(self, actor: LaneActor) -> None:
        """Another process moved the lane: take it over as it is stored, and end here what lost it there."""
        rows = await self._store.lane(actor.conversation.conversation_id)
        if rows is None:
            raise NotFound(what="conversation")
        lane = load(
            rows.conversation.conversation_id,
            rows.conversation.paused,
            rows.turns,
            self._clock.now(),
            self._rules,
        )
        actor.conversation, actor.lane, actor.version = (
            rows.conversation,
            lane,
            rows.conversation.lane_version,
        )
        actor.requests.clear()
        running, holder = actor.running, lane.holder
        if running is not None and (holder is None or Fence(holder.turn_id, holder.fence) != running.fence):
            running.abandon()
            actor.running = None

    def _forget_idle(self, used: LaneActor | None = None) -> None:
        """Let idle lanes go when there are too many; `used` is about to be stepped and stays."""
        if len(self._lanes) <= self._look_above:
            return
        for conversation_id, actor in list(self._lanes.items()):
            if len(self._lanes) <= self._idle_max // 2:
                break
            if actor.idle and actor is not used:
                del self._lanes[conversation_id]
        # Where most lanes are busy, the next look waits until it is worth it.
        self._look_above = max(self._idle_max, 2 * len(self._lanes))

    def known(self, conversation_id: str) -> Conversation | None:
        """The conversation as of its newest commit, if its lane is loaded here."""
        actor = self._lanes.get(conversation_id)
        return None if actor is None else actor.conversation

    def adopt(self, conversation: Conversation) -> None:
        """A conversation that was made just now has an empty lane."""
        lane = Lane(conversation_id=conversation.conversation_id, rules=self._rules)
        actor = self._lanes.setdefault(conversation.conversation_id, LaneActor(conversation, lane))
        self._forget_idle(actor)
