"""SQLite and memory, given the same random commits, crashes and reopenings, give the same answers.

The memory store is the simple model; whatever SQLite caches, groups or falls back to must not show.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from turnkeeper.conversation.events import (
    AttemptSuperseded,
    ConversationArchived,
    ConversationCreated,
    ConversationDeleted,
    ConversationRenamed,
    ConversationRestored,
    Draft,
    LanePaused,
    LaneResumed,
    LateAnswered,
    MessageAppended,
    MessageMarked,
    ReceiptMoved,
    SteerReturned,
    SteerTaken,
    ToolIntended,
    ToolReturned,
    TurnCancelled,
    TurnContinued,
    TurnEdited,
    TurnFailed,
    TurnMoved,
    TurnParked,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from turnkeeper.conversation.messages import STANDINGS, Message
from turnkeeper.conversation.parts import Attachment, Text
from turnkeeper.conversation.turns import Disposition, Effect, Failure, Mode, ReceiptState, TurnState
from turnkeeper.port.store import Batch, Fence, Store
from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.testing.conformance.script import submitted
from turnkeeper.testing.memory_store import MemoryStore

MEMORY_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""What is tested here is not the disk."""
CONVERSATIONS = ("c1", "c2", "c\ud8003")
NAMES = {"c1": "abc", "c2": "de", "c\ud8003": "f"}
"""Turns of each conversation, so that most events meet a turn of their own."""
ALL_TURNS = [f"t-{name}" for names in NAMES.values() for name in names]
TEXTS = st.text(st.characters(), max_size=6)
TURNS = st.sampled_from(ALL_TURNS)
SMALL = st.integers(1, 4)
FAILURE = Failure("stall", True, "No data.", 20.0)


def bodies(names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Any event body; ids come from small sets, so that they meet."""
    parts = st.one_of(TEXTS.map(Text), st.sampled_from(["f1", "f2"]).map(Attachment))
    messages = st.builds(
        Message,
        message_id=st.sampled_from("uvwxyz").map("m-{}".format),
        role=st.sampled_from(["user", "assistant"]),
        parts=st.tuples(parts),
        replay=st.booleans(),
    )
    return st.one_of(
        st.builds(
            submitted,
            names,
            key=st.none() | st.sampled_from(["k1", "k2"]),
            text=TEXTS,
            mode=st.sampled_from(Mode),
            place=st.sampled_from([0, 0, 1, 7]),
            parent=st.none() | TURNS,
        ),
        st.builds(TurnStarted, SMALL, st.just("me"), st.just(50.0)),
        st.builds(TurnEdited, st.tuples(parts)),
        st.builds(TurnMoved, SMALL, st.none() | st.sampled_from(Mode)),
        st.builds(TurnSettled, st.just("answered"), st.none()),
        st.just(TurnFailed(FAILURE)),
        st.builds(TurnCancelled, TEXTS),
        st.builds(TurnParked, st.just({"kind": "auth"}), st.booleans()),
        st.builds(TurnContinued, st.just({"yes": True}), SMALL),
        st.builds(TurnRequeued, st.sampled_from(["rescued", "retried"]), SMALL, SMALL, SMALL),
        st.builds(SteerTaken, TURNS),
        st.builds(SteerReturned, SMALL),
        st.builds(ReceiptMoved, st.sampled_from(ReceiptState), st.none() | st.just({"by": "x"})),
        st.builds(LanePaused, TEXTS),
        st.just(LaneResumed()),
        st.just(LateAnswered("late", "settled")),
        st.builds(MessageAppended, messages),
        st.builds(
            MessageMarked,
            st.sampled_from("uvwxyz").map("m-{}".format),
            st.none() | st.sampled_from(STANDINGS),
            st.none() | st.booleans(),
            st.none() | st.booleans(),
        ),
        st.builds(AttemptSuperseded, st.sampled_from("uvwxyz").map("m-{}".format), st.just("leaked")),
        st.builds(
            ToolIntended,
            call_id=st.sampled_from("pq"),
            name=TEXTS,
            arguments=st.just({"x": 1}),
            effect=st.sampled_from(Effect),
            idempotency_key=TEXTS,
            round=st.integers(0, 2),
        ),
        st.builds(
            ToolReturned,
            call_id=st.sampled_from("pqr"),
            disposition=st.sampled_from([d for d in Disposition if d is not Disposition.INTENDED]),
            result=TEXTS,
        ),
        st.builds(ConversationRenamed, TEXTS),
        st.builds(ConversationArchived, st.booleans()),
        st.just(ConversationDeleted(30.0)),
        st.just(ConversationRestored()),
    )


def drafts(conversation_id: str) -> st.SearchStrategy[Draft]:
    own = st.sampled_from(NAMES[conversation_id])
    turns = st.one_of(*[own.map("t-{}".format)] * 6, st.none(), TURNS)

    def of_its_turn(body: Any, turn: str | None, attempt: int) -> Draft:
        return Draft(body, getattr(body, "turn_id", turn), attempt)

    return st.builds(of_its_turn, bodies(own), turns, st.integers(0, 3))


FENCES = st.builds(Fence, TURNS, SMALL)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    conversation_id = draw(st.sampled_from(("c1", "c1", *CONVERSATIONS)))
    guarded = draw(st.integers(0, 9))
    return Batch(
        conversation_id=conversation_id,
        drafts=tuple(draw(st.lists(drafts(conversation_id), min_size=guarded == 0, max_size=3))),
        at=float(draw(st.integers(1, 100))),
        lane_version=draw(st.integers(0, 3)) if guarded == 1 else None,
        fence=draw(FENCES) if guarded == 2 else None,
    )


class StoreMachine(RuleBasedStateMachine):
    """Every rule does the same to both stores and compares what they say."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="turnkeeper-machine-", dir=MEMORY_DISK))
        self.runner = asyncio.Runner()
        self.memory = MemoryStore()
        self.sqlite = self.run(SQLiteStore.open(self.folder / "data"))
        for conversation_id in CONVERSATIONS[:2]:
            self.both(self.begin(conversation_id))
        first = Batch(conversation_id="c1", drafts=(Draft(submitted("a"), "t-a"),), at=2.0)
        self.both(lambda store: store.commit(first))

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    @staticmethod
    def begin(conversation_id: str) -> Callable[[Store], Awaitable[Any]]:
        batch = Batch(
            conversation_id=conversation_id, drafts=(Draft(ConversationCreated("u1", "demo")),), at=1.0
        )
        return lambda store: store.commit(batch)

    def both(self, do: Callable[[Store], Awaitable[Any]]) -> Any:
        """Do it to both; the outcome (or the kind of error), which must be the same."""

        async def outcome(store: Store) -> Any:
            try:
                return await do(store)
            except Exception as error:
                return type(error).__name__

        expected, found = self.run(outcome(self.memory)), self.run(outcome(self.sqlite))
        assert found == expected
        return found

    @rule(batch=batches())
    def commit(self, batch: Batch) -> None:
        self.both(lambda store: store.commit(batch))

    @rule(group=st.lists(batches(), min_size=2, max_size=6))
    def commit_together(self, group: list[Batch]) -> None:
        """In one group of the writer, which stores them in the order in which they came."""

        async def do(store: Store) -> list[Any]:
            outcomes = await asyncio.gather(*(store.commit(batch) for batch in group), return_exceptions=True)
            return [
                type(outcome).__name__ if isinstance(outcome, BaseException) else outcome
                for outcome in outcomes
            ]

        self.both(do)

    @rule(name=st.sampled_from("abc"))
    def run_turn(self, name: str) -> None:
        """Submit it if it is new, and let it take the lane from whoever has it, in one commit."""
        lane = self.run(self.memory.lane("c1"))
        running = [turn.turn_id for turn in lane.turns if turn.state is TurnState.RUNNING]
        steps = [Draft(TurnCancelled("asked"), turn_id) for turn_id in running]
        if self.run(self.memory.turn(f"t-{name}")) is None:
            steps.append(Draft(submitted(name), f"t-{name}"))
        steps.append(Draft(TurnStarted(2, "me", 50.0), f"t-{name}"))
        steps.append(Draft(MessageAppended(Message(message_id=f"m-run-{name}", role="user"))))
        batch = Batch(conversation_id="c1", drafts=tuple(steps), at=5.0)
        self.both(lambda store: store.commit(batch))

    @rule(conversation_id=st.sampled_from(CONVERSATIONS))
    def begin_again(self, conversation_id: str) -> None:
        self.both(self.begin(conversation_id))

    @rule(leases=st.lists(FENCES, max_size=3))
    def renew(self, leases: list[Fence]) -> None:
        self.both(lambda store: store.renew_leases(leases, 70.0))

    @rule()
    def rebuild(self) -> None:
        self.run(self.memory.rebuild())
        self.run(self.sqlite.rebuild())

    @rule()
    def reopen(self) -> None:
        self.memory = self.memory.reopen()
        self.run(self.sqlite.close())
        self.sqlite = self.run(SQLiteStore.open(self.folder / "data"))

    @rule()
    def crash(self) -> None:
        """What lies on the disk while the old process still has it open."""
        self.memory = self.memory.crash()
        other = Path(tempfile.mkdtemp(dir=self.folder)) / "data"
        other.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{self.sqlite.path}{suffix}", other)
        self.run(self.sqlite.close())
        shutil.rmtree(self.folder / "data")
        other.rename(self.folder / "data")
        self.sqlite = self.run(SQLiteStore.open(self.folder / "data"))

    @rule(
        conversation_id=st.sampled_from(CONVERSATIONS),
        cursor=st.none() | st.integers(0, 30),
        limit=st.integers(0, 9),
        turn_id=st.none() | TURNS,
    )
    def read(self, conversation_id: str, cursor: int | None, limit: int, turn_id: str | None) -> None:
        self.both(lambda s: s.events(conversation_id, after=cursor or 0, limit=limit, turn_id=turn_id))
        self.both(lambda s: s.messages(conversation_id, before=cursor, limit=limit))
        self.both(lambda s: s.messages_after(conversation_id, after=cursor or 0))
        self.both(lambda s: s.turns(conversation_id, before=turn_id, limit=limit))
        self.both(lambda s: s.turns(conversation_id, states=[TurnState.QUEUED, TurnState.FAILED]))
        self.both(lambda s: s.conversations("u1", before=cursor, limit=limit))
        self.both(lambda s: s.conversations("u1", archived=True))
        self.both(lambda s: s.lane(conversation_id))
        self.both(lambda s: s.submission_by_key("u1", conversation_id, "k1"))

    @rule(turn_id=TURNS)
    def read_turn(self, turn_id: str) -> None:
        self.both(lambda s: s.turn(turn_id))
        self.both(lambda s: s.tool_calls(turn_id))
        self.both(lambda s: s.submission(turn_id.replace("t-", "s-")))
        self.both(lambda s: s.attachment_in("c1", "f1"))

    @invariant()
    def the_same_work_is_open(self) -> None:
        self.both(lambda s: s.open_lanes())
        self.both(lambda s: s.turns_in([TurnState.RUNNING, TurnState.PARKED]))

    def teardown(self) -> None:
        try:
            assert self.run(self.sqlite.tables()) == self.memory.tables()
            assert self.run(self.sqlite.check()) == ()
            assert self.run(self.memory.check()) == ()
        finally:
            self.run(self.sqlite.close())
            self.runner.close()
            shutil.rmtree(self.folder)


def sized(examples: int) -> settings:
    """Without the explain phase, which traces every line and takes minutes here."""
    return settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


class TestStoreMachine(StoreMachine.TestCase):  # type: ignore[misc, name-defined]
    """In every run."""

    settings = sized(15)


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestStoreMachineLong(StoreMachine.TestCase):  # type: ignore[misc, name-defined]
    """The same, twenty times as long."""

    settings = sized(300)
