"""The checker of promises finds nothing in a good journal, and each planted fault under its own number."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from turnkeeper.testing.promises import Sent, broken_promises, effects_broken

Journal = list[dict[str, Any]]


def event(kind: str, turn: str | None = None, /, attempt: int = 1, **body: Any) -> dict[str, Any]:
    """An event without its seq."""
    return {"kind": kind, "turn_id": turn, "attempt": attempt, "actor": "test", "at": None, "body": body}


def submitted(turn: str, text: str, place: int) -> dict[str, Any]:
    request = {"agent": "demo", "parts": [{"type": "text", "text": text}], "principal": {"user_id": "u1"}}
    names = {"submission_id": f"s-{turn}", "turn_id": turn, "key": f"k-{turn}", "fingerprint": "f"}
    return event("Submitted", turn, **names, request=request, place=place)


def message(turn: str, role: str, name: str, **more: Any) -> dict[str, Any]:
    provenance = "model" if role == "assistant" else "submitted"
    made = {"message_id": name, "turn_id": turn, "role": role, "provenance": provenance}
    return event("MessageAppended", turn, message={"parts": [{"type": "text", "text": name}], **made, **more})


def called(turn: str, call: str) -> list[dict[str, Any]]:
    """A call of `append` with its outcome."""
    arguments = {"text": call}
    return [
        event("ToolIntended", turn, call_id=call, name="append", arguments=arguments, effect="acts", round=1),
        event("ToolReturned", turn, call_id=call, disposition="done"),
    ]


def numbered(events: Journal) -> Journal:
    return [{**each, "seq": seq} for seq, each in enumerate(copy.deepcopy(events), 1)]


def good() -> Journal:
    """Two turns, the second one queued behind the first, killed once and rescued."""
    tool_message = message(
        "t1", "assistant", "m2", parts=[{"type": "tool_call", "id": "c1", "name": "append", "arguments": {}}]
    )
    return [
        event("ConversationCreated"),
        submitted("t1", "one", 10),
        event("TurnStarted", "t1", fence=1),
        message("t1", "user", "m1", submission_id="s-t1"),
        event("ReceiptMoved", "t1", state="accepted"),
        event("RoundStarted", "t1", round=1),
        submitted("t2", "two", 11),
        event("ReceiptMoved", "t1", state="confirmed"),
        tool_message,
        event("RoundFinished", "t1", round=1),
        *called("t1", "c1"),
        event("TurnStarted", "t1", fence=2, why="rescued"),
        event("RoundStarted", "t1", round=2),
        message("t1", "assistant", "m3"),
        event("RoundFinished", "t1", round=2),
        event("TurnSettled", "t1", reason="answered"),
        event("TurnStarted", "t2", fence=1),
        message("t2", "user", "m4", submission_id="s-t2"),
        event("ReceiptMoved", "t2", state="accepted"),
        event("RoundStarted", "t2", round=1),
        message("t2", "assistant", "m5"),
        event("RoundFinished", "t2", round=1),
        event("TurnSettled", "t2", reason="answered"),
    ]


SENT = (Sent(key="k-t1", text="one", turn_id="t1"), Sent(key="k-t2", text="two", turn_id="t2"))


def at(events: Journal, kind: str, turn: str, nth: int = 0) -> int:
    return [i for i, e in enumerate(events) if e["kind"] == kind and e["turn_id"] == turn][nth]


def lose_submission(events: Journal) -> Journal:
    return [e for e in events if e["turn_id"] != "t2"]


def submit_twice(events: Journal) -> Journal:
    again = copy.deepcopy(events[at(events, "Submitted", "t2")])
    again["turn_id"] = again["body"]["turn_id"] = "t3"
    return [*events, again]


def change_the_words(events: Journal) -> Journal:
    events[at(events, "Submitted", "t1")]["body"]["request"]["parts"][0]["text"] = "other"
    return events


def run_side_by_side(events: Journal) -> Journal:
    started = events.pop(at(events, "TurnStarted", "t2"))
    return [*events[:8], started, *events[8:]]


def overtake(events: Journal) -> Journal:
    """The younger starts first: t2 stands behind t1 and is started while t1 waits."""
    first = [event("ConversationCreated"), submitted("t1", "one", 10), submitted("t2", "two", 11)]
    return [*first, event("TurnStarted", "t2", fence=1), message("t2", "user", "m4", submission_id="s-t2")]


def leave_running(events: Journal) -> Journal:
    return events[:-1]


def forget_reason(events: Journal) -> Journal:
    events[-1] = event("TurnCancelled", "t2", reason="")
    return events


def answer_twice(events: Journal) -> Journal:
    where = at(events, "RoundFinished", "t1", 1)
    return [*events[:where], message("t1", "assistant", "m3b"), *events[where:]]


def settle_without_answer(events: Journal) -> Journal:
    return [e for e in events if e["body"].get("message", {}).get("message_id") != "m5"]


def repeat_in_history(events: Journal) -> Journal:
    where = at(events, "RoundStarted", "t1", 1)
    return [*events[:where], message("t1", "user", "m1b", submission_id="s-t1"), *events[where:]]


def start_without_message(events: Journal) -> Journal:
    return [e for e in events if e["body"].get("message", {}).get("message_id") != "m4"]


def write_after_end(events: Journal) -> Journal:
    return [*events, event("DraftSaved", "t1", round=2, text="late")]


def reuse_a_fence(events: Journal) -> Journal:
    events[at(events, "TurnStarted", "t1", 1)]["body"]["fence"] = 1
    return events


def take_a_receipt_back(events: Journal) -> Journal:
    return [*events, event("ReceiptMoved", "t1", state="accepted")]


def act_twice(events: Journal) -> Journal:
    where = at(events, "ToolReturned", "t1") + 1
    return [*events[:where], *called("t1", "c1"), *events[where:]]


def outcome_from_nowhere(events: Journal) -> Journal:
    return [e for e in events if e["kind"] != "ToolIntended"]


def forget_an_outcome(events: Journal) -> Journal:
    return [e for e in events if e["kind"] != "ToolReturned"]


def pay_twice(events: Journal) -> Journal:
    events[at(events, "RoundStarted", "t1", 1)]["body"]["round"] = 1
    return events


FAULTS: list[tuple[str, Callable[[Journal], Journal]]] = [
    ("G1", lose_submission),
    ("G2", submit_twice),
    ("G2", change_the_words),
    ("G2", answer_twice),
    ("G2", repeat_in_history),
    ("G3", run_side_by_side),
    ("G3", overtake),
    ("G4", leave_running),
    ("G5", forget_reason),
    ("G5", settle_without_answer),
    ("G6", start_without_message),
    ("G9", act_twice),
    ("G9", outcome_from_nowhere),
    ("G9", forget_an_outcome),
    ("G10", pay_twice),
    ("G13", write_after_end),
    ("G13", reuse_a_fence),
    ("G14", take_a_receipt_back),
]


def test_a_good_journal_breaks_no_promise() -> None:
    assert broken_promises(numbered(good()), sent=SENT) == ()


@pytest.mark.parametrize(("promise", "plant"), FAULTS, ids=[plant.__name__ for _, plant in FAULTS])
def test_a_planted_fault_is_found_under_its_number(promise: str, plant: Callable[[Journal], Journal]) -> None:
    found = {broken.promise for broken in broken_promises(numbered(plant(good())), sent=SENT)}
    assert promise in found


def test_a_gap_and_a_double_in_the_order_are_found() -> None:
    journal = numbered(good())
    del journal[4]
    assert {b.promise for b in broken_promises(journal, sent=SENT)} >= {"G16"}
    doubled = numbered(good())
    doubled[5]["seq"] = 5
    assert {b.promise for b in broken_promises(doubled, sent=SENT)} == {"G16"}


def test_what_was_sent_later_may_not_stand_earlier() -> None:
    found = broken_promises(numbered(good()), sent=tuple(reversed(SENT)))
    assert [b.promise for b in found] == ["G3"]


def test_a_turn_that_still_runs_is_fine_until_everything_is_drained() -> None:
    running = numbered(good()[:-1])
    assert broken_promises(running, sent=SENT, drained=False) == ()


def test_a_rider_ends_with_its_turn_and_is_no_second_runner() -> None:
    rider = submitted("t3", "and this", 12)
    rider["body"]["parent"] = "t1"
    journal = [
        *good()[:7],
        rider,
        event("SteerTaken", "t3", parent="t1"),
        message("t3", "user", "m9", submission_id="s-t3"),
        message("t1", "assistant", "m3"),
        event("TurnSettled", "t1", reason="answered"),
        event("TurnSettled", "t3", reason="answered_with", by="t1"),
    ]
    assert broken_promises(numbered(journal), drained=False) == ()


@pytest.mark.parametrize(
    ("disposition", "counted", "whole"),
    [
        ("done", 1, True),
        ("done", 0, False),
        ("done", 2, False),
        ("unknown", 0, True),
        ("unknown", 1, True),
        ("unknown", 2, False),
        ("refused", 0, True),
        ("refused", 1, False),
    ],
)
def test_the_ledger_is_held_against_the_world(disposition: str, counted: int, *, whole: bool) -> None:
    journal = numbered(called("t1", "c1"))
    journal[1]["body"]["disposition"] = disposition
    broken = effects_broken(journal, {"c1": counted}, tool="append", argument="text")
    assert (broken == ()) is whole


def test_an_effect_that_nobody_intended_is_found() -> None:
    assert [b.promise for b in effects_broken([], {"c9": 1}, tool="append", argument="text")] == ["G9"]
