"""What every store promises of turns, submissions, receipts and the effect ledger."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from turnkeeper.conversation.events import (
    LateAnswered,
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
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import (
    Disposition,
    Effect,
    Mode,
    Principal,
    ReceiptState,
    Turn,
    TurnState,
)
from turnkeeper.errors import Conflict
from turnkeeper.port.store import (
    KeyTaken,
)
from turnkeeper.testing.conformance.kit import FAILURE, StoreKit, begun, running, store_case, turn_of
from turnkeeper.testing.conformance.script import Script, refused, request, said, submitted


@store_case
async def a_submission_makes_a_queued_turn_and_keeps_its_whole_request(kit: StoreKit) -> None:
    """Under its key, with the answer that was given."""
    script = await begun(kit)
    await script.submit(
        "a", answer={"turn_id": "t-a"}, producer="webhook", resend_of="t-0", options={"temperature": 0}
    )
    turn = await turn_of(script, "a")
    assert turn == Turn(
        turn_id="t-a",
        conversation_id="c1",
        submission_id="s-a",
        state=TurnState.QUEUED,
        place=2,
        resend_of="t-0",
        user_id="u1",
        producer="webhook",
        agent="demo",
        created_at=script.at,
    )
    submission = await script.store.submission("s-a")
    assert submission is not None
    assert submission == await script.store.submission_by_key("u1", "c1", "k-a")
    assert submission.request == request(
        producer="webhook", resend_of="t-0", options={"temperature": 0}, mode=Mode.QUEUE
    )
    assert (submission.turn_id, submission.answer, submission.created_at) == (
        "t-a",
        {"turn_id": "t-a"},
        script.at,
    )
    assert await script.store.submission_by_key("u2", "c1", "k-a") is None
    assert await script.store.submission_by_key("u1", "c2", "k-a") is None


@store_case
async def a_key_belongs_to_one_submission_of_a_user_in_a_conversation(kit: StoreKit) -> None:
    """A second one is refused with the first; another user or conversation is free to use it."""
    script = await begun(kit)
    await script.submit("a", key="same")
    with refused(KeyTaken) as refusal:
        await script.submit("b", key="same")
    assert isinstance(refusal.error, KeyTaken)
    assert refusal.error.submission == await script.store.submission("s-a")
    assert await script.store.turn("t-b") is None
    await script.submit("c", key="same", principal=Principal("u2"))
    other = Script(script.store, "c2")
    await other.create()
    await other.submit("d", key="same")
    outcomes = await asyncio.gather(
        *(script.submit(f"r{number}", key="race") for number in range(20)), return_exceptions=True
    )
    assert sum(isinstance(outcome, KeyTaken) for outcome in outcomes) == 19
    assert await script.store.check() == ()


@store_case
async def ids_that_exist_are_refused(kit: StoreKit) -> None:
    """A turn, submission or message id is given once."""
    script = await begun(kit)
    await script.submit("a")
    for again in (
        msgspec.structs.replace(submitted("b"), turn_id="t-a"),
        msgspec.structs.replace(submitted("b"), submission_id="s-a"),
    ):
        with refused(Conflict):
            await script.commit(again)
    assert [turn.turn_id for turn in await script.store.turns("c1")] == ["t-a"]


@store_case
async def every_event_of_a_turn_changes_its_row_as_the_event_says(kit: StoreKit) -> None:
    """Start, park, continue, requeue, fail, retry, settle: state, place, fence, lease, times, reasons."""
    script = await begun(kit)
    await script.submit("a")

    async def after(*bodies: Any, attempt: int = 0) -> Turn:
        await script.commit(*bodies, turn="t-a", attempt=attempt)
        return await turn_of(script, "a")

    turn = await after(TurnStarted(7, "me", 5000.0), attempt=1)
    assert (turn.state, turn.fence, turn.owner, turn.lease_until) == ("running", 7, "me", 5000.0)
    assert turn.started_at == script.at
    turn = await after(TurnParked({"kind": "approval", "call_id": "x"}))
    assert (turn.state, turn.owner, turn.lease_until) == ("parked", None, None)
    assert (turn.needs, turn.reason) == ({"kind": "approval", "call_id": "x"}, "approval")
    turn = await after(TurnContinued({"decision": "approve"}, 1))
    assert (turn.state, turn.place, turn.needs, turn.fence) == ("queued", 1, None, 7)
    turn = await after(TurnStarted(8, "me", 6000.0), attempt=1)
    assert (turn.state, turn.fence, turn.reason) == ("running", 8, None)
    turn = await after(TurnRequeued("rescued", 5, 2, 1))
    assert (turn.state, turn.place, turn.attempt, turn.rescues) == ("queued", 5, 2, 1)
    assert (turn.fence, turn.owner, turn.lease_until) == (8, None, None)
    turn = await after(TurnStarted(9, "you", 6000.0), attempt=2)
    turn = await after(TurnFailed(FAILURE))
    assert (turn.state, turn.failure, turn.reason) == ("failed", FAILURE, "stall")
    assert (turn.ended_at, turn.owner, turn.lease_until) == (script.at, None, None)
    turn = await after(TurnRequeued("retried", 9, 3, 1))
    assert (turn.state, turn.failure, turn.ended_at, turn.attempt) == ("queued", None, None, 3)
    turn = await after(TurnStarted(10, "me", 6000.0), attempt=3)
    turn = await after(TurnSettled("answered_with", "t-z"))
    assert (turn.state, turn.reason, turn.ended_at, turn.attempt) == (
        "settled",
        "answered_with",
        script.at,
        3,
    )
    await script.submit("b")
    await script.commit(TurnCancelled("edited"), turn="t-b")
    ended = await turn_of(script, "b")
    assert (ended.state, ended.reason, ended.ended_at) == ("cancelled", "edited", script.at)
    await script.submit("c", TurnStarted(1, "me", 9.0), TurnParked({"kind": "auth"}, True))
    assert (await turn_of(script, "c")).needs == {"kind": "auth", "held": True}


@store_case
async def a_steer_travels_with_its_turn_or_returns_to_the_queue(kit: StoreKit) -> None:
    """Attached, taken (running, with a parent), or returned (queued, without one)."""
    script = await running(kit)
    await script.submit("b", mode=Mode.STEER, parent="t-a")
    rider = await turn_of(script, "b")
    assert (rider.state, rider.parent, rider.mode) == ("queued", "t-a", Mode.STEER)
    await script.commit(SteerTaken("t-a"), turn="t-b", attempt=1)
    rider = await turn_of(script, "b")
    assert (rider.state, rider.parent, rider.started_at) == ("running", "t-a", script.at)
    await script.submit("c", mode=Mode.STEER, parent="t-a")
    await script.commit(SteerReturned(3), turn="t-c")
    late = await turn_of(script, "c")
    assert (late.state, late.parent, late.place) == ("queued", None, 3)
    await script.commit(TurnSettled("answered_with", "t-a"), turn="t-b")
    await script.commit(TurnSettled(), turn="t-a")
    await script.start("c")
    assert (await turn_of(script, "c")).parent is None


@store_case
async def receipts_only_move_forward_and_keep_their_evidence(kit: StoreKit) -> None:
    """A step back is an event without effect on the row; failed may still become confirmed."""
    script = await running(kit)
    steps = (
        (ReceiptState.ACCEPTED, "accepted"),
        (ReceiptState.QUEUED, "accepted"),
        (ReceiptState.UNCERTAIN, "uncertain"),
        (ReceiptState.ACCEPTED, "uncertain"),
        (ReceiptState.FAILED, "failed"),
        (ReceiptState.UNCERTAIN, "failed"),
        (ReceiptState.FAILED, "failed"),
        (ReceiptState.CONFIRMED, "confirmed"),
        (ReceiptState.FAILED, "confirmed"),
    )
    for number, (state, expected) in enumerate(steps):
        await script.commit(ReceiptMoved(state, {"step": number}), turn="t-a")
        assert (await turn_of(script, "a")).receipt.state == expected, number
    assert (await turn_of(script, "a")).receipt.evidence == {"step": 7}
    events = await script.store.events("c1", turn_id="t-a")
    assert sum(event.kind == "ReceiptMoved" for event in events) == len(steps)


@store_case
async def an_edit_replaces_the_parts_of_the_stored_request(kit: StoreKit) -> None:
    """The last one counts; the rest of the request stays."""
    script = await begun(kit)
    await script.submit("a", text="first", options={"x": 1})
    for words in ("second", "third"):
        await script.commit(TurnEdited((Text(words),)), turn="t-a")
    found = await script.store.submission("s-a")
    assert found is not None
    assert found.request == request("third", options={"x": 1})
    assert found.fingerprint == "f-first"


@store_case
async def turns_are_listed_newest_first_with_a_cursor(kit: StoreKit) -> None:
    """By age, whatever their place; of some states if asked."""
    script = await begun(kit)
    for number in range(6):
        await script.submit(str(number))
    await script.commit(TurnMoved(1), turn="t-5")
    await script.commit(TurnCancelled("asked"), turn="t-2")
    other = Script(script.store, "c2")
    await other.create()
    await other.submit("other")
    store = script.store

    async def listed(**how: Any) -> list[str]:
        return [turn.turn_id.removeprefix("t-") for turn in await store.turns("c1", **how)]

    assert await listed() == ["5", "4", "3", "2", "1", "0"]
    assert await listed(limit=2) == ["5", "4"]
    assert await listed(limit=2, before="t-4") == ["3", "2"]
    assert await listed(states=[TurnState.CANCELLED]) == ["2"]
    assert await listed(states=[TurnState.QUEUED], before="t-3", limit=1) == ["1"]
    assert await listed(before="t-nobody") == []
    queued = await store.turns_in([TurnState.QUEUED])
    assert [turn.turn_id for turn in queued] == ["t-0", "t-1", "t-3", "t-4", "t-5", "t-other"]
    assert [turn.turn_id for turn in await store.turns_in([TurnState.QUEUED], limit=2)] == ["t-0", "t-1"]
    ended = await store.turns_in([TurnState.CANCELLED, TurnState.FAILED])
    assert [turn.turn_id for turn in ended] == ["t-2"]
    assert await store.turns_in([]) == ()


@store_case
async def the_events_of_a_turn_are_all_found_whenever_they_came(kit: StoreKit) -> None:
    """Between those of others, after its end, after its second end."""
    script = await running(kit)
    await script.submit("b")

    async def found(name: str) -> list[int]:
        return [event.seq for event in await script.store.events("c1", turn_id=f"t-{name}")]

    await script.say("1", "of nobody")
    await script.commit(said("2", "of a"), TurnSettled(), turn="t-a")
    assert await found("a") == [2, 3, 6, 7]
    await script.start("b")
    await script.commit(LateAnswered("late", "settled"), turn="t-a")
    assert await found("a") == [2, 3, 6, 7, 9]
    await script.commit(TurnRequeued("retried", 4, 2), turn="t-a")
    await script.say("3", "of nobody")
    await script.commit(said("4", "of a"), turn="t-a")
    assert await found("a") == [2, 3, 6, 7, 9, 10, 12]
    await script.commit(TurnCancelled("asked"), said("5", "of a"), turn="t-a")
    await script.commit(MessageMarked("m-5", display=False), turn="t-a")
    assert await found("a") == [2, 3, 6, 7, 9, 10, 12, 13, 14, 15]
    assert await found("b") == [4, 8]


@store_case
async def the_ledger_holds_intent_then_outcome_in_order_of_intent(kit: StoreKit) -> None:
    """A call is its turn, round and id; a second intent in its round opens it again at its old place."""
    script = await running(kit)

    def intended(call: str, round_: int = 1) -> ToolIntended:
        return ToolIntended(
            call_id=call,
            name=f"tool-{call}",
            arguments={"round": round_},
            effect=Effect.READ_ONLY,
            idempotency_key=f"{call}-{round_}",
            round=round_,
        )

    async def ledger() -> list[tuple[Any, ...]]:
        return [
            (row.call_id, row.round, str(row.disposition), row.result, row.attempt)
            for row in await script.store.tool_calls("t-a")
        ]

    await script.commit(intended("x"), intended("y"), turn="t-a", attempt=1)
    assert await ledger() == [("x", 1, "intended", None, 1), ("y", 1, "intended", None, 1)]
    await script.commit(
        ToolReturned(call_id="y", disposition=Disposition.FAILED, result={"why": "no"}, is_error=True),
        turn="t-a",
    )
    rows = await script.store.tool_calls("t-a")
    assert (rows[1].is_error, rows[1].result, rows[1].decided_at) == (True, {"why": "no"}, script.at)
    assert (rows[1].name, rows[1].arguments, rows[1].idempotency_key) == ("tool-y", {"round": 1}, "y-1")
    assert rows[1].effect is Effect.READ_ONLY
    await script.commit(intended("x"), turn="t-a", attempt=2)
    assert (await ledger())[0] == ("x", 1, "intended", None, 2)
    await script.commit(ToolReturned(call_id="x", disposition=Disposition.DONE, result="r1"), turn="t-a")
    await script.commit(
        intended("x", 2),
        ToolReturned(call_id="x", disposition=Disposition.UNKNOWN),
        ToolReturned(call_id="nobody", disposition=Disposition.DONE),
        turn="t-a",
        attempt=2,
    )
    assert await ledger() == [
        ("x", 1, "done", "r1", 2),
        ("y", 1, "failed", {"why": "no"}, 1),
        ("x", 2, "unknown", "", 2),
    ]
