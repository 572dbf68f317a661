"""What the terminal chat shows, step by step, without a terminal and without a server."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.cli.client import Frame
from turnkeeper.cli.safe import printable
from turnkeeper.cli.talk import Talk

REQUEST = {"agent": "demo", "parts": [{"type": "text", "text": "hello"}]}


class Story:
    """Events of one conversation, numbered as they are told."""

    def __init__(self, **talk: Any) -> None:
        self.talk = Talk(**talk)
        self.seq = 0

    def tell(self, kind: str, body: dict[str, Any] | None = None, turn: str = "t1") -> list[str]:
        self.seq += 1
        event = {"seq": self.seq, "kind": kind, "turn_id": turn, "body": body or {}}
        return self.talk.take(Frame("message", self.seq, event))

    def submit(self, turn: str, text: str = "hello", **more: Any) -> list[str]:
        request = {"agent": "demo", "parts": [{"type": "text", "text": text}]}
        return self.tell("Submitted", {"request": request, **more}, turn)

    def delta(self, text: str, offset: int, turn: str = "t1", round: int = 1, attempt: int = 1) -> list[str]:  # noqa: A002
        data = {
            "kind": "text",
            "turn_id": turn,
            "attempt": attempt,
            "round": round,
            "text": text,
            "offset": offset,
        }
        return self.talk.take(Frame("delta", None, data))

    def answer(self, text: str, turn: str = "t1", **more: Any) -> list[str]:
        message = {"role": "assistant", "turn_id": turn, "parts": [{"type": "text", "text": text}], **more}
        return self.tell("MessageAppended", {"message": message}, turn)


def test_the_queue_shows_positions_and_gives_them_up_as_turns_start_move_and_end() -> None:
    story = Story()
    for number in (1, 2, 3):
        story.submit(f"t{number}", f"m{number}")
    assert story.talk.waiting() == [(1, "t1", "m1"), (2, "t2", "m2"), (3, "t3", "m3")]
    story.tell("TurnStarted", {"why": "promoted"}, "t1")
    assert story.talk.running == "t1"
    assert [row[1] for row in story.talk.waiting()] == ["t2", "t3"]
    story.tell("TurnMoved", {"place": 0}, "t3")
    assert [row[1] for row in story.talk.waiting()] == ["t3", "t2"]
    story.tell("TurnEdited", {"parts": [{"type": "text", "text": "other"}]}, "t2")
    story.tell("TurnCancelled", {"reason": "cancelled"}, "t3")
    assert story.talk.waiting() == [(1, "t2", "other")]
    story.tell("TurnSettled", {"reason": "answered"}, "t1")
    assert story.talk.running is None
    assert story.talk.ends == {"t1": "settled", "t3": "cancelled"}


def test_a_steer_that_travels_with_the_running_turn_is_no_number_of_the_queue() -> None:
    story = Story()
    story.submit("t1")
    story.tell("TurnStarted", {}, "t1")
    story.submit("t2", "steer", parent="t1")
    assert story.talk.waiting() == []
    story.tell("SteerReturned", {"place": 2}, "t2")
    assert [row[1] for row in story.talk.waiting()] == ["t2"]


def test_ticks_follow_the_receipt_of_the_running_turn() -> None:
    story = Story()
    story.submit("t1")
    story.tell("TurnStarted", {}, "t1")
    assert "queued" in story.talk.status()
    story.tell("ReceiptMoved", {"state": "accepted"}, "t1")
    assert "✓ accepted" in story.talk.status()
    story.tell("ReceiptMoved", {"state": "confirmed"}, "t1")
    assert "✓✓ confirmed" in story.talk.status()


def test_lines_are_printed_when_they_are_whole_and_the_rest_is_shown_in_place() -> None:
    story = Story(columns=20)
    assert story.delta("one\ntw", 0) == ["agent: one"]
    assert story.talk.unfinished == "tw"
    assert story.delta("o and a line that is longer than the screen", 6) == [
        "two and a line that",
        "is longer than the",
    ]
    assert story.talk.unfinished == "screen"
    assert story.answer("one\ntwo and a line that is longer than the screen!") == ["screen!"]
    assert story.talk.unfinished == ""


def test_an_answer_that_came_at_once_is_printed_once() -> None:
    story = Story()
    assert story.answer("hello") == ["agent: hello"]
    story.delta("short", 0, turn="t2")
    assert story.talk.unfinished == "short"
    assert story.answer("short", "t2") == ["agent: short"]


def test_text_that_comes_again_is_not_said_twice_and_missed_text_comes_with_the_message() -> None:
    story = Story()
    story.delta("abc", 0)
    story.delta("bcd", 1)
    assert story.talk.unfinished == "abcd"
    story.delta("zz", 10)
    assert story.talk.unfinished == "abcd"
    assert story.answer("abcdefghijzz") == ["agent: abcdefghijzz"]


def test_an_answer_that_became_another_is_said_whole() -> None:
    story = Story()
    story.delta("first\nversion", 0)
    assert story.answer("second\nversion") == ["…", "agent: second\nversion"]


def test_a_new_attempt_breaks_the_half_line_of_the_old_one() -> None:
    story = Story()
    assert story.delta("first\nhalf", 0) == ["agent: first"]
    assert story.delta("again", 0, attempt=2) == ["half"]
    assert story.talk.unfinished == "again"


def test_a_snapshot_in_mid_answer_goes_on_where_it_stands() -> None:
    story = Story()
    running = {
        "turn": {"turn_id": "t1", "attempts": 1, "receipt": {"state": "confirmed"}},
        "text": "one\ntwo",
        "round": 1,
    }
    waiting = [{"turn_id": "t2", "text": "next", "position": 1}]
    story.talk.load({"lane": {"paused": None}, "queue": waiting, "running": running})
    assert story.delta(" and three\n", 7) == ["agent: one", "two and three"]
    assert story.talk.waiting() == [(1, "t2", "next")]
    story.submit("t3", "last")
    assert [row[1] for row in story.talk.waiting()] == ["t2", "t3"]


def test_ends_failures_and_pauses_are_said() -> None:
    story = Story()
    story.submit("t1")
    failure = {"kind": "server", "retryable": True, "sentence": "The provider failed."}
    (line,) = story.tell("TurnFailed", {"failure": failure}, "t1")
    assert "The provider failed." in line
    assert story.tell("LanePaused", {"reason": "stopped"}) == ["(queue paused (stopped))"]
    assert "/resume" in story.talk.status()
    story.tell("LaneResumed")
    assert story.talk.status() == "idle · /help"


def test_events_of_a_newer_version_are_passed_over() -> None:
    assert Story().tell("SomethingNew", {"x": 1}) == []


@given(st.text(min_size=1), st.integers(1, 30), st.lists(st.integers(0, 40), max_size=8))
def test_whatever_the_pieces_the_screen_holds_the_whole_answer(
    text: str, columns: int, cuts: list[int]
) -> None:
    """Printed lines and what is left are the answer, up to the spaces and line ends that lines end at."""
    story = Story(columns=columns)
    lines: list[str] = []
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        lines += story.delta(text[start:end], start)
    lines += story.answer(text)
    shown = "".join(lines).removeprefix("agent: ")

    def bare(line: str) -> str:
        return "".join(line.split())

    # A line end in two bytes may be cut between them; then its first half is shown as a sign.
    assert bare(shown).replace("␍", "") == bare(printable(text)).replace("␍", "")


APPROVAL = {
    "approval_id": "p_1.1.0",
    "call_id": "c",
    "name": "drop",
    "arguments": {"n": "\x1b[2J"},
    "expires_at": 0.0,
}


def test_questions_are_numbered_for_good_and_go_when_they_are_answered() -> None:
    story = Story()
    first = story.tell("TurnParked", {"needs": {"kind": "approval", "approvals": [APPROVAL, APPROVAL]}}, "t1")
    assert [line[:4] for line in first] == ["? 1.", "? 2."]
    assert "\x1b" not in "".join(first)
    wait = {"server": "jira", "person": "ann", "calls": [{"name": "jira__act"}], "expires_at": 1.0}
    (second,) = story.tell("TurnParked", {"needs": {"kind": "auth", "connects": [wait]}}, "t2")
    assert second.startswith("? 3. jira needs you to sign in; jira__act waits")
    assert second.endswith("/connect 3 or /no 3")
    assert "3 wait for you" in story.talk.status()
    story.tell("TurnContinued", {"place": 1, "decision": {}}, "t1")
    assert [ask.number for ask in story.talk.asks] == [3]
    story.tell("TurnFailed", {"failure": {"sentence": "x"}}, "t2")
    assert story.talk.asks == []
    (third,) = story.tell("TurnParked", {"needs": {"sentence": "Did it happen?", "choices": ["yes"]}}, "t3")
    assert third == "? 4. Did it happen? · /choose 4 yes|give_up"
