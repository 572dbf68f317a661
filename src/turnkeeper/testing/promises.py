"""The checker of our promises: given a conversation's journal, it names every promise that was broken.

`broken_promises` reads events in the outer shape (what `/events` streams, `export` writes and `event_view`
makes), so the same checker judges a simulation, a crashed server, a soak and a store of your own. It knows
nothing of how the events came about. One function per promise, each with its number from the guarantees;
`CHECKS` is the list. `Story` replays a journal once, so that a check can ask where a turn stood at a seq.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from turnkeeper.conversation.turns import RECEIPT_MOVES, ReceiptState

View = Mapping[str, Any]
"""An event in the outer shape: `{seq, kind, at, actor, turn_id, attempt, body}`."""

QUEUED, RUNNING, PARKED = "queued", "running", "parked"
SETTLED, FAILED, CANCELLED = "settled", "failed", "cancelled"
ENDS = frozenset({SETTLED, FAILED, CANCELLED})
RUNNERS_WORK = frozenset({"RoundStarted", "RoundFinished", "RoundFailed", "DraftSaved", "ToolIntended"})
"""Only a turn that holds its lane may journal these. (Outcomes may also be decided by a rescue.)"""
MAY_RUN_AGAIN = frozenset({"sign_in", "did not happen", "run_again"})
"""`why` of outcomes after which a call that acts may be begun again: its own check, or a person, said so."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer sent, and the turn that the answer named (None: it never got an answer)."""

    key: str
    text: str
    turn_id: str | None = None


class Broken(msgspec.Struct, frozen=True):
    """A promise that was broken: its number, where in the journal, and what was seen."""

    promise: str
    seq: int
    sentence: str

    def __str__(self) -> str:
        """One line for a failing test."""
        return f"{self.promise} at seq {self.seq}: {self.sentence}"


class TurnStory(msgspec.Struct, kw_only=True):
    """One turn as its events tell it."""

    turn_id: str
    key: str
    user_id: str
    text: str
    seq: int
    place: int
    state: str = QUEUED
    parent: str | None = None
    fence: int = 0
    reason: str | None = None
    receipt: str = "queued"
    first_started_seq: int | None = None
    took: int = 0
    """Riders that this turn took along: it may answer them one by one."""


class Story:
    """A journal replayed: every turn, and what was wrong on the way."""

    def __init__(self, events: Iterable[View]) -> None:
        self.events = tuple(events)
        self.turns: dict[str, TurnStory] = {}
        self.broken: list[Broken] = []
        for event in self.events:
            self._replay(event)

    def _replay(self, event: View) -> None:
        kind, body, seq = event["kind"], event["body"], event["seq"]
        if kind == "Submitted":
            self._submitted(event)
            return
        turn = self.turns.get(event.get("turn_id") or "")
        if turn is None:
            return
        if kind in RUNNERS_WORK and turn.state != RUNNING:
            self._say("G13", seq, f"{turn.turn_id} is {turn.state} and still journals {kind}")
        if kind == "TurnStarted":
            self._started(turn, body, seq)
        elif kind in _MOVES:
            before, after = _MOVES[kind]
            if turn.state not in before and not (turn.parent and kind in ("TurnSettled", "TurnFailed")):
                self._say("G3", seq, f"{kind} of {turn.turn_id}, which is {turn.state}")
            turn.state = after
            turn.place = body.get("place", turn.place)
            turn.reason = _reason(kind, body)
        elif kind == "TurnMoved":
            turn.place = body["place"]
            turn.parent = body.get("parent", turn.parent)
        elif kind == "TurnEdited":
            turn.text = _text(body["parts"])
        elif kind == "SteerTaken":
            turn.parent = body["parent"]
            turn.state = RUNNING
            self.turns[body["parent"]].took += 1
        elif kind == "SteerReturned":
            turn.parent = None
            turn.place = body["place"]
            turn.state = QUEUED
        elif kind == "ReceiptMoved":
            self._receipt(turn, body, seq)

    def _submitted(self, event: View) -> None:
        body = event["body"]
        turn = TurnStory(
            turn_id=body["turn_id"],
            key=body["key"],
            user_id=body["request"]["principal"]["user_id"],
            text=_text(body["request"]["parts"]),
            seq=event["seq"],
            place=body.get("place") or event["seq"],
            parent=body.get("parent"),
        )
        twin = next((t for t in self.turns.values() if (t.user_id, t.key) == (turn.user_id, turn.key)), None)
        if twin is not None:
            self._say("G2", event["seq"], f"key {turn.key} made {twin.turn_id} and {turn.turn_id}")
        if turn.turn_id in self.turns:
            self._say("G2", event["seq"], f"{turn.turn_id} was submitted twice")
        self.turns[turn.turn_id] = turn

    def _started(self, turn: TurnStory, body: View, seq: int) -> None:
        others = [t for t in self.turns.values() if t is not turn]
        running = next((t for t in others if t.state == RUNNING and t.parent is None), None)
        if running is not None and turn.parent != running.turn_id:
            self._say("G3", seq, f"{turn.turn_id} starts while {running.turn_id} runs")
        if turn.state in (SETTLED, CANCELLED):
            self._say("G3", seq, f"{turn.turn_id} starts although it is {turn.state}")
        ahead = [t for t in others if t.state == QUEUED and t.parent is None and t.place < turn.place]
        if turn.state == QUEUED and ahead:
            self._say("G3", seq, f"{turn.turn_id} starts before {ahead[0].turn_id}, which is ahead of it")
        if body["fence"] <= turn.fence:
            self._say("G13", seq, f"fence {body['fence']} of {turn.turn_id} follows {turn.fence}")
        turn.fence = body["fence"]
        turn.state = RUNNING
        turn.parent = None
        if turn.first_started_seq is None:
            turn.first_started_seq = seq

    def _receipt(self, turn: TurnStory, body: View, seq: int) -> None:
        after = ReceiptState(body["state"])
        if after not in RECEIPT_MOVES[ReceiptState(turn.receipt)] and after != turn.receipt:
            self._say("G14", seq, f"the receipt of {turn.turn_id} goes from {turn.receipt} to {after}")
        turn.receipt = str(after)

    def _say(self, promise: str, seq: int, sentence: str) -> None:
        self.broken.append(Broken(promise, seq, sentence))


_MOVES: dict[str, tuple[frozenset[str], str]] = {
    "TurnRequeued": (frozenset({RUNNING, FAILED}), QUEUED),
    "TurnContinued": (frozenset({PARKED, RUNNING}), QUEUED),
    "TurnParked": (frozenset({RUNNING}), PARKED),
    "TurnSettled": (frozenset({RUNNING, PARKED}), SETTLED),
    "TurnFailed": (frozenset({QUEUED, RUNNING, PARKED}), FAILED),
    "TurnCancelled": (frozenset({QUEUED, RUNNING, PARKED}), CANCELLED),
}
"""Event -> the states it may find a turn in, and the state it leaves it in."""


def _text(parts: Iterable[View]) -> str:
    return "".join(part.get("text", "") for part in parts if part.get("type", "text") == "text")


def _reason(kind: str, body: View) -> str | None:
    if kind == "TurnFailed":
        return str(body["failure"]["sentence"])
    if kind == "TurnSettled":
        return str(body.get("reason", "answered"))
    return body.get("reason") or body.get("why")


def _messages(story: Story, role: str) -> Iterator[tuple[int, View]]:
    for event in story.events:
        if event["kind"] == "MessageAppended" and event["body"]["message"]["role"] == role:
            yield event["seq"], event["body"]["message"]


def _first_rules(story: Story, _sent: Sequence[Sent], _drained: bool) -> Iterator[Broken]:
    """G2, G3, G13, G14, as the replay found them."""
    yield from story.broken


def _one_order(story: Story, _sent: Sequence[Sent], _drained: bool) -> Iterator[Broken]:
    """G16: a journal's seq has no gap and no double."""
    for expected, event in enumerate(story.events, 1):
        if event["seq"] != expected:
            yield Broken("G16", event["seq"], f"seq {event['seq']} stands where {expected} should")
            return


def _stored_once(story: Story, sent: Sequence[Sent], _drained: bool) -> Iterator[Broken]:
    """G1, G2: what was answered for is stored, once, under that key, word for word."""
    by_key: dict[str, list[TurnStory]] = {}
    for turn in story.turns.values():
        by_key.setdefault(turn.key, []).append(turn)
    for each in sent:
        found = by_key.get(each.key, [])
        if not found:
            if each.turn_id is not None:
                yield Broken("G1", 0, f"{each.key} was answered with {each.turn_id} and is lost")
            continue
        if each.turn_id is not None and found[0].turn_id != each.turn_id:
            yield Broken(
                "G2", found[0].seq, f"{each.key} was answered {each.turn_id}, stored {found[0].turn_id}"
            )
        if found[0].text != each.text:
            yield Broken("G2", found[0].seq, f"{each.key} was sent {each.text!r}, stored {found[0].text!r}")


def _kept_order(story: Story, sent: Sequence[Sent], _drained: bool) -> Iterator[Broken]:
    """G3: what one producer sent one after another stands in that order. (Give `sent` only if it waited.)"""
    seqs = {turn.key: turn.seq for turn in story.turns.values()}
    stored = [(seqs[each.key], each.key) for each in sent if each.key in seqs and each.turn_id is not None]
    for (earlier, first), (later, second) in itertools.pairwise(stored):
        if later < earlier:
            yield Broken("G3", later, f"{second} was sent after {first} and stands before it")


def _ends(story: Story, _sent: Sequence[Sent], drained: bool) -> Iterator[Broken]:
    """G4, G5: every turn has ended with a reason, or waits for a person by name."""
    for turn in story.turns.values():
        if drained and turn.state not in ENDS and turn.state != PARKED:
            yield Broken("G4", turn.seq, f"{turn.turn_id} ({turn.key}) is still {turn.state}")
        if turn.state in ENDS and not turn.reason:
            yield Broken("G5", turn.seq, f"{turn.turn_id} is {turn.state} without a reason")


def _history(story: Story, _sent: Sequence[Sent], _drained: bool) -> Iterator[Broken]:
    """G2, G6: a turn's message stands in history once, when it started; a settled turn has one answer."""
    users: dict[str, list[int]] = {}
    for seq, message in _messages(story, "user"):
        if message.get("submission_id"):
            users.setdefault(message["turn_id"], []).append(seq)
    answers: dict[str, list[int]] = {}
    set_aside = {
        event["body"]["message_id"]
        for event in story.events
        if event["kind"] == "MessageMarked" and event["body"].get("standing", "complete") != "complete"
    }
    for seq, message in _messages(story, "assistant"):
        calls = any(part.get("type") == "tool_call" for part in message["parts"])
        whole = message.get("standing", "complete") == "complete" and message["message_id"] not in set_aside
        provenance = message.get("provenance", "model")
        if whole and not calls and provenance == "model":
            answers.setdefault(message["turn_id"], []).append(seq)
        elif whole and provenance == "native" and message.get("turn_id"):
            # A CLI writes its narration in rows of their own: which of them is the answer is not told by rows.
            answers[message["turn_id"]] = [seq]
    for turn in story.turns.values():
        said = users.get(turn.turn_id, [])
        if len(said) > 1:
            yield Broken("G2", said[1], f"the message of {turn.turn_id} stands in history {len(said)} times")
        if turn.first_started_seq is not None and not said:
            yield Broken(
                "G6", turn.first_started_seq, f"{turn.turn_id} started and its message is not in history"
            )
        found = answers.get(turn.turn_id, [])
        if len(found) > 1 + turn.took:
            yield Broken("G2", found[-1], f"{turn.turn_id} was answered {len(found)} times")
        if turn.state == SETTLED and turn.reason == "answered" and turn.parent is None and not found:
            yield Broken("G5", turn.seq, f"{turn.turn_id} is settled as answered and holds no answer")


def _paid_once(story: Story, _sent: Sequence[Sent], _drained: bool) -> Iterator[Broken]:
    """G10: a round that finished is not called again, unless its answer was set aside for another."""
    finished: set[tuple[str, int]] = set()
    for event in story.events:
        at = (event.get("turn_id") or "", event["body"].get("round", 0))
        if event["kind"] == "AttemptSuperseded":
            finished.discard(at)
        elif event["kind"] == "RoundFinished":
            finished.add(at)
        elif event["kind"] == "RoundStarted" and at in finished:
            yield Broken("G10", event["seq"], f"round {at[1]} of {at[0]} is called again after it finished")


def _effects(story: Story, _sent: Sequence[Sent], drained: bool) -> Iterator[Broken]:
    """G9: intent before outcome, one outcome a call, and nothing that acts is intended twice."""
    intents: dict[str, list[View]] = {}
    outcomes: dict[str, list[View]] = {}
    for event in story.events:
        if event["kind"] == "ToolIntended":
            intents.setdefault(event["body"]["call_id"], []).append(event)
        elif event["kind"] == "ToolReturned":
            call = event["body"]["call_id"]
            if call not in intents and event["body"]["disposition"] == "done":
                yield Broken("G9", event["seq"], f"call {call} has an outcome and no intent before it")
            outcomes.setdefault(call, []).append(event)
    for call, intended in intents.items():
        acts = intended[0]["body"]["effect"] not in ("read_only", "idempotent")
        for earlier, later in itertools.pairwise(intended):
            allowed = any(
                earlier["seq"] < outcome["seq"] < later["seq"] and outcome["body"].get("why") in MAY_RUN_AGAIN
                for outcome in outcomes.get(call, ())
            )
            if acts and not allowed:
                yield Broken("G9", later["seq"], f"call {call}, which acts, was begun {len(intended)} times")
        done = [event for event in outcomes.get(call, ()) if event["body"]["disposition"] == "done"]
        if len(done) > 1:
            yield Broken("G9", done[1]["seq"], f"call {call} was done {len(done)} times")
        turn = story.turns.get(intended[0]["turn_id"])
        if drained and call not in outcomes and turn is not None and turn.state == SETTLED:
            yield Broken("G9", intended[0]["seq"], f"call {call} has no outcome and its turn is settled")


CHECKS: tuple[Callable[[Story, Sequence[Sent], bool], Iterator[Broken]], ...] = (
    _first_rules,
    _one_order,
    _stored_once,
    _kept_order,
    _ends,
    _history,
    _paid_once,
    _effects,
)


def broken_promises(
    events: Iterable[View], *, sent: Sequence[Sent] = (), drained: bool = True
) -> tuple[Broken, ...]:
    """Every promise that the journal of one conversation breaks; nothing if it keeps them all.

    `sent`: what one producer sent to it, in the order in which it waited for the answers. `drained`: nothing
    is under way any more, so every turn must have ended or be parked.
    """
    story = Story(events)
    return tuple(broken for check in CHECKS for broken in check(story, sent, drained))


def effects_broken(
    events: Iterable[View], counted: Mapping[str, int], *, tool: str, argument: str | None = None
) -> tuple[Broken, ...]:
    """G9 against the world: `counted` says how often each effect of `tool` happened.

    An effect is named by the value of `argument`, or (None) by the call's idempotency key. A call that is done
    happened once; one whose outcome is unknown, or that has none yet, at most once; any other not at all.
    """
    dispositions: dict[str, list[str]] = {}
    calls: dict[tuple[str, str], str] = {}
    for event in events:
        body = event["body"]
        call = (event.get("turn_id") or "", body.get("call_id", ""))
        if event["kind"] == "ToolIntended" and body["name"] == tool:
            calls[call] = body["idempotency_key"] if argument is None else str(body["arguments"][argument])
            dispositions.setdefault(calls[call], [])
        elif event["kind"] == "ToolReturned" and call in calls:
            dispositions[calls[call]].append(body["disposition"])
    broken = []
    for effect in {*dispositions, *counted}:
        found, seen = dispositions.get(effect), counted.get(effect, 0)
        least = (found or []).count("done")
        open_ends = sum(1 for each in found or () if each in ("unknown", "failed"))
        most = least + open_ends + (1 if found == [] else 0)
        if not least <= seen <= most:
            says = "no intent" if found is None else (found or "an intent and no outcome")
            broken.append(Broken("G9", 0, f"{tool} {effect!r} happened {seen} times; the ledger says {says}"))
    return tuple(broken)
