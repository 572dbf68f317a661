"""When a CLI's whole record is merged, and what the tape lets go of then: no terminal, no file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.conversation.turns import Failure
from turnkeeper.errors import NotPossible, StoreBusy
from turnkeeper.port.runner import Answered, FailedWith, Needs
from turnkeeper.retained.config import RetainedConfig
from turnkeeper.retained.keepsake import Ended
from turnkeeper.retained.runner import MERGE_AGAIN_SECONDS, RetainedRunner
from turnkeeper.retained.session import Session
from turnkeeper.retained.signs import Sign, SignKind
from turnkeeper.testing.until import until
from turnkeeper.transcript.place import Roots


class FakeClock:
    """Stands still until it is moved."""

    at = 1_000.0

    def now(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += seconds


class Shelf:
    """Keepsakes in memory."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def put_value(self, name: str, value: bytes) -> None:
        self.values[name] = value

    async def value(self, name: str) -> bytes | None:
        return self.values.get(name)


class Desk:
    """Merges as it is told to."""

    def __init__(self) -> None:
        self.merges = 0
        self.answer: Callable[[], str | None] = lambda: None

    async def append(self, conversation_id: str, *drafts: Any) -> object:
        raise AssertionError

    async def late_answer(self, conversation_id: str, turn_id: str, text: str, state: str) -> None:
        raise AssertionError

    async def reconcile(
        self, conversation_id: str, where: Roots, rows: Callable[[Sequence[str]], None]
    ) -> str | None:
        self.merges += 1
        return self.answer()


def runner(tmp_path: Path, clock: FakeClock, **more: Any) -> RetainedRunner:
    config = RetainedConfig(
        agent="a", cli="claude-code", cwd=str(tmp_path), env={"HOME": str(tmp_path)}, **more
    )
    return RetainedRunner(config, None, Shelf(), clock, None, tmp_path, desk=Desk())  # type: ignore[arg-type]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_a_merge_that_cannot_be_stored_is_tried_again_but_not_at_every_look(
    tmp_path: Path, clock: FakeClock
) -> None:
    made = runner(tmp_path, clock)
    session, desk = await made.session("c1"), made.desk
    assert isinstance(desk, Desk)
    session.unsure = True

    def busy() -> str | None:
        raise StoreBusy

    for told in (lambda: "the disk is full", busy):
        desk.answer = told
        before = desk.merges
        await made._watch_one(session)
        await made._watch_one(session)
        assert (desk.merges, session.unsure) == (before + 1, True)
        assert session.trouble
        clock.advance(MERGE_AGAIN_SECONDS)
    desk.answer = lambda: None
    await made._watch_one(session)
    await made._watch_one(session)
    assert (desk.merges, session.unsure, session.trouble) == (3, False, "")


async def test_a_merge_waits_until_no_turn_holds_the_lane(tmp_path: Path, clock: FakeClock) -> None:
    made = runner(tmp_path, clock)
    session, desk = await made.session("c1"), made.desk
    assert isinstance(desk, Desk)
    session.unsure = True

    def held() -> str | None:
        raise NotPossible(why="a turn runs")

    desk.answer = held
    await made._watch_one(session)
    assert session.unsure
    desk.answer = lambda: None
    await made._watch_one(session)
    assert (desk.merges, session.unsure) == (2, False)


async def test_what_waits_to_be_stored_waits_for_no_merge_over_it(tmp_path: Path, clock: FakeClock) -> None:
    """A text that was handed over belongs to the turn that runs next; a merge would add it as somebody else's."""
    made = runner(tmp_path, clock)
    session = await made.session("c1")
    session.unsure = True
    session.handed["t2"] = "mine"
    session.pending = [Sign(kind=SignKind.TAKEN, text="mine", native_id="r1")]
    await made._watch_one(session)
    assert isinstance(made.desk, Desk)
    assert (made.desk.merges, [sign.native_id for sign in session.pending]) == (0, ["r1"])


@pytest.mark.parametrize(
    ("bound", "size", "merges"),
    [(100, 0, False), (100, 1, True), (100, 100, True), (100, 101, False), (0, 1, False)],
)
async def test_a_record_of_the_bound_is_merged_after_a_turn_and_one_byte_more_is_not(
    tmp_path: Path, clock: FakeClock, bound: int, size: int, merges: bool
) -> None:
    made = runner(tmp_path, clock, merge_bytes_max=bound)
    session = await made.session("c1")
    session.tape._seen = (7, size)
    failure = Failure(kind="terminal", retryable=True, sentence="It ended.")
    assert made._may_miss(session, Answered()) is merges
    assert made._may_miss(session, Needs(needs={}, hold=True)) is False
    assert made._may_miss(session, FailedWith(failure=failure)) is True
    session.tape.reset = True
    assert made._may_miss(session, Answered()) is True


def _waiting(session: Session) -> list[str]:
    return [sign.native_id for sign in session.pending]


async def test_rows_that_a_merge_stored_are_no_longer_waiting_and_all_others_are(
    tmp_path: Path, clock: FakeClock
) -> None:
    session = await runner(tmp_path, clock).session("c1")
    session.keep.ended = [Ended("t0", "sent before", "failed")]
    session.pending = [
        Sign(kind=SignKind.TAKEN, text="typed", native_id="r1"),
        Sign(kind=SignKind.SAID, text="ok", native_id="r2"),
        Sign(kind=SignKind.ENDED, native_id="r2"),
        Sign(kind=SignKind.SAID, text="not merged", native_id="r3"),
        Sign(kind=SignKind.TAKEN, text="sent before", native_id="r4"),
        Sign(kind=SignKind.SAID, text="its answer", native_id="r5"),
    ]
    session.merged(["r1", "r2", "r4", "r5"])
    # An end says what no message says; the text of an ended turn proves its delivery.
    assert _waiting(session) == ["r2", "r3", "r4"]
    assert [sign.kind for sign in session.pending] == [SignKind.ENDED, SignKind.SAID, SignKind.TAKEN]


async def test_from_a_text_that_was_handed_over_on_a_merge_takes_nothing_from_the_next_turn(
    tmp_path: Path, clock: FakeClock
) -> None:
    session = await runner(tmp_path, clock).session("c1")
    session.handed["t2"] = "mine"
    session.pending = [
        Sign(kind=SignKind.SAID, text="before", native_id="r1"),
        Sign(kind=SignKind.TAKEN, text="mine", native_id="r2"),
        Sign(kind=SignKind.SAID, text="answer", native_id="r3"),
    ]
    session.merged(["r1", "r2", "r3"])
    assert _waiting(session) == ["r2", "r3"]


async def test_an_error_of_our_own_is_told_and_the_other_sessions_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ticking(FakeClock):
        async def sleep(self, seconds: float) -> None:
            self.advance(seconds)
            await asyncio.sleep(0)

    made = runner(tmp_path, Ticking())
    first, second = await made.session("c1"), await made.session("c2")
    watched: list[str] = []

    async def one(session: Session) -> None:
        if session is first:
            raise AttributeError("no such thing")
        watched.append(session.conversation_id)

    monkeypatch.setattr(made, "_watch_one", one)
    made._begin_watch()
    await until(lambda: len(watched) > 1, "the watch of the other session")
    assert "no such thing" in first.trouble
    assert second.trouble == ""
    assert made._watch is not None
    made._watch.cancel()
