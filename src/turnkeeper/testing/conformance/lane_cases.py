"""What every store promises of lanes: versions, fences, one running turn, leases."""

from __future__ import annotations

import asyncio

from turnkeeper.conversation.events import (
    ConversationDeleted,
    LanePaused,
    LaneResumed,
    SteerTaken,
    TurnCancelled,
    TurnMoved,
    TurnParked,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from turnkeeper.conversation.turns import (
    Mode,
    TurnState,
)
from turnkeeper.errors import Fenced, LaneMoved
from turnkeeper.port.store import (
    Batch,
    Fence,
)
from turnkeeper.testing.conformance.kit import StoreKit, begun, draft, running, store_case, turn_of
from turnkeeper.testing.conformance.script import Script, refused, said


@store_case
async def the_lane_version_lets_one_of_two_writers_step(kit: StoreKit) -> None:
    """Each step raises it by one; who read an older one is refused and stores nothing."""
    script = await begun(kit)
    await script.submit("a")
    await script.commit(LanePaused("asked"), version=0)
    with refused(LaneMoved):
        await script.commit(LaneResumed(), version=0)
    await script.say("free", "no version, no step")
    await script.commit(LaneResumed(), version=1)
    lane = await script.store.lane("c1")
    assert lane is not None
    assert lane.conversation.lane_version == 2
    assert lane.conversation.paused is None
    outcomes = await asyncio.gather(
        *(script.commit(LanePaused("asked"), version=2) for _ in range(10)), return_exceptions=True
    )
    assert sum(isinstance(outcome, LaneMoved) for outcome in outcomes) == 9


@store_case
async def a_lost_fence_writes_nothing(kit: StoreKit) -> None:
    """Another token, an ended turn, a turn of another conversation, a turn that never was."""
    script = await running(kit)
    good = Fence("t-a", 1)
    await script.commit(said("a", "x"), fence=good)
    other = Script(script.store, "c2")
    await other.create()
    for writer, fence in (
        (script, Fence("t-a", 2)),
        (script, Fence("t-a", 0)),
        (script, Fence("t-nobody", 1)),
        (other, good),
    ):
        with refused(Fenced):
            await writer.commit(said("b", "y"), fence=fence)
    await script.commit(TurnRequeued("handed_back", 2), turn="t-a", fence=good)
    with refused(Fenced):
        await script.commit(said("b", "y"), fence=good)
    await script.start("a", fence=2)
    with refused(Fenced):
        await script.commit(said("b", "y"), fence=good)
    await script.commit(TurnSettled(), turn="t-a", fence=Fence("t-a", 2))
    with refused(Fenced):
        await script.commit(said("b", "y"), fence=Fence("t-a", 2))
    assert [message.message_id for message in await script.store.messages("c1")] == ["m-a"]
    assert await script.store.messages("c2") == ()


@store_case
async def a_conversation_never_has_two_running_turns(kit: StoreKit) -> None:
    """The engine itself refuses the second; other conversations and riders are free."""
    script = await running(kit)
    await script.submit("b", TurnMoved(1))
    with refused(LaneMoved):
        await script.start("b")
    with refused(LaneMoved):
        await script.submit("c", TurnStarted(1, "me", 5000.0))
    assert await script.store.turn("t-c") is None
    assert (await turn_of(script, "b")).state is TurnState.QUEUED
    other = Script(script.store, "c2")
    await other.create()
    await other.submit("z", TurnStarted(1, "me", 5000.0))
    await script.commit(SteerTaken("t-a"), turn="t-b")
    assert (await turn_of(script, "b")).state is TurnState.RUNNING
    assert (await turn_of(script, "b")).parent == "t-a"
    await script.commit(TurnSettled(by="t-a"), turn="t-b")


@store_case
async def the_end_of_a_turn_and_the_start_of_the_next_are_one_commit(kit: StoreKit) -> None:
    """Nobody ever sees the lane busy with nobody in it."""
    script = await running(kit)
    await script.submit("b")
    stored = await script.store.commit(
        Batch(
            conversation_id="c1",
            at=script.at,
            lane_version=0,
            fence=Fence("t-a", 1),
            drafts=(
                draft(said("answer", "ok", "assistant"), "t-a"),
                draft(TurnSettled(), "t-a"),
                draft(TurnStarted(1, "me", 5000.0), "t-b"),
            ),
        )
    )
    assert len(stored) == 3
    assert (await turn_of(script, "a")).state is TurnState.SETTLED
    assert (await turn_of(script, "b")).state is TurnState.RUNNING


@store_case
async def the_lane_holds_open_turns_in_queue_order(kit: StoreKit) -> None:
    """Queued, running and parked ones by place; a moved one at its new place."""
    script = await running(kit)
    for name in ("b", "c", "d", "e"):
        await script.submit(name)
    await script.commit(TurnMoved((await turn_of(script, "b")).place - 1, Mode.INTERRUPT), turn="t-d")
    await script.commit(TurnCancelled("asked"), turn="t-c")
    await script.commit(TurnParked({"kind": "approval"}), turn="t-a")
    lane = await script.store.lane("c1")
    assert lane is not None
    assert [turn.turn_id for turn in lane.turns] == ["t-a", "t-d", "t-b", "t-e"]
    assert [turn.state for turn in lane.turns] == ["parked", "queued", "queued", "queued"]
    assert lane.turns[1].mode is Mode.INTERRUPT
    assert await script.store.lane("nowhere") is None


@store_case
async def lanes_with_work_are_listed_even_when_deleted(kit: StoreKit) -> None:
    """Queued or running makes a lane open; parked alone does not."""
    store = await kit.open()
    for number, bodies in enumerate(
        (
            (),
            (TurnStarted(1, "me", 9.0),),
            (TurnStarted(1, "me", 9.0), TurnParked({"kind": "auth"})),
            (TurnCancelled("asked"),),
            (ConversationDeleted(30.0),),
        )
    ):
        script = Script(store, f"c{number}")
        await script.create()
        await script.submit(f"x{number}", *bodies)
    await Script(store, "c9").create()
    assert await store.open_lanes() == ("c0", "c1", "c4")


@store_case
async def leases_are_renewed_only_while_they_are_held(kit: StoreKit) -> None:
    """Ended turns, other tokens and unknown turns are not among what comes back."""
    script = await running(kit)
    other = Script(script.store, "c2")
    await other.create()
    await other.submit("b")
    await other.start("b", fence=4)
    good, lost = Fence("t-a", 1), Fence("t-b", 3)
    held = await script.store.renew_leases((good, lost, Fence("t-nobody", 1)), 7000.0)
    assert held == (good,)
    assert (await turn_of(script, "a")).lease_until == 7000.0
    assert (await turn_of(script, "b")).lease_until == 5000.0
    await script.commit(TurnSettled(), turn="t-a")
    assert await script.store.renew_leases((good,), 8000.0) == ()
    assert (await turn_of(script, "a")).lease_until is None
    assert await script.store.renew_leases((), 8000.0) == ()
