"""What a case expects, as checks of what the player saw. An expectation that nothing here knows is a failure.

Most expectations have one of a few forms (`FORMS`); the others are named word for word (`WORDS`), for their
case. What only a page can show (`ui(...)`, `composer(...)`) belongs to the page's tests and is left to them.
A state "at second N" is read as: it had come by then, give or take LATE_S; finer times are the business of
tests with a clock of their own.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from tests.acceptance.delivery.agents import times_begun
from tests.acceptance.delivery.player import Play, Posted
from turnkeeper.testing.promises import broken_promises

LATE_S = 60.0
"""Seconds of a case that a loaded machine may be late."""

STATES = {"done": "settled", "superseded": "cancelled"}
RECEIPTS = {"delivered": "accepted", "confirmed": "confirmed", "unknown": "uncertain"}

PAGES = re.compile(r"visible in ui|\bui\b|\bui\(|composer|^client A|^rows in ui")


def of_the_page(expectation: str) -> bool:
    """Whether only a page can show it."""
    return PAGES.search(expectation) is not None


class Seen:
    """The play, asked."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.begun = times_begun(play.folder)

    def post(self, label: str) -> Posted:
        return self.play.posted[label]

    def by_turn(self) -> dict[str | None, str]:
        return {post.turn_id: label for label, post in self.play.posted.items()}

    def runs(self, label: str) -> int:
        """How often the agent began on this message's text, shared among messages of equal text."""
        text = self.post(label).text
        twins = {p.turn_id for p in self.play.posted.values() if p.text == text and p.turn_id}
        times = self.begun.get(text, 0)
        assert times in (0, len(twins)), f"{text!r} was begun {times} times for {len(twins)} messages"
        return times // max(1, len(twins))

    def states(self, label: str) -> list[tuple[float, str]]:
        """(second, state) of a message, from the watcher's events."""
        post = self.post(label)
        watcher = self.play.watchers[post.conv]
        moves = {
            "Submitted": "queued",
            "TurnRequeued": "queued",
            "TurnContinued": "queued",
            "TurnStarted": "running",
            "TurnParked": "parked",
            "TurnSettled": "settled",
            "TurnFailed": "failed",
            "TurnCancelled": "cancelled",
        }
        return [
            (at, moves[event["kind"]])
            for at, event in zip(watcher.came_at, watcher.events, strict=True)
            if event.get("turn_id") == post.turn_id and event["kind"] in moves
        ]

    def receipts(self, label: str) -> list[tuple[float, str]]:
        post = self.post(label)
        watcher = self.play.watchers[post.conv]
        return [
            (at, event["body"]["state"])
            for at, event in zip(watcher.came_at, watcher.events, strict=True)
            if event.get("turn_id") == post.turn_id and event["kind"] == "ReceiptMoved"
        ]

    def final(self, label: str) -> str:
        return self.states(label)[-1][1]

    def order(self) -> list[str]:
        """Labels in the order in which their turns first started."""
        labels = self.by_turn()
        started = [
            (event["at"], event["seq"], labels.get(event["turn_id"]))
            for name, watcher in self.play.watchers.items()
            for event in watcher.events
            if event["kind"] == "TurnStarted" and name in self.play.convs
        ]
        return list(dict.fromkeys(label for _, _, label in sorted(started, key=lambda s: s[:2]) if label))

    def messages(self, conv: str) -> list[dict[str, Any]]:
        return [
            e["body"]["message"] | {"seq": e["seq"]}
            for e in self.events(conv)
            if e["kind"] == "MessageAppended"
        ]

    def events(self, conv: str) -> list[dict[str, Any]]:
        return self.play.watchers[conv].events

    def history(self, conv: str, *, notices: bool = False) -> list[str]:
        """`u:label` and `a:label` (final answers), and `x` for notices."""
        labels = self.by_turn()
        rows = []
        for message in self.messages(conv):
            label = labels.get(message.get("turn_id"), "?")
            if message["role"] == "user":
                rows.append(f"u:{label}")
            elif is_answer(message):
                rows.append(f"a:{label}")
            elif message["role"] == "notice" and notices:
                rows.append("x")
        return rows

    def answers(self, label: str) -> list[str]:
        post = self.post(label)
        return [
            text_of(m) for m in self.messages(post.conv) if m.get("turn_id") == post.turn_id and is_answer(m)
        ]


def is_answer(message: dict[str, Any]) -> bool:
    """A whole assistant's message that asks for no tool."""
    calls = any(part["type"] == "tool_call" for part in message["parts"])
    whole = message.get("standing", "complete") == "complete"
    return bool(message["role"] == "assistant" and not calls and whole)


def text_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def came(seen: list[tuple[float, str]], wanted: set[str], by: float) -> bool:
    return any(state in wanted and at <= by for at, state in seen)


# --- the forms


def _state(seen: Seen, label: str, names: str, at: str | None) -> bool:
    wanted = {name.strip() for name in names.strip("{}").split(",")}
    by = float(at) + LATE_S + seen.play.lag_s if at else float("inf")
    states = {STATES.get(name, name) for name in wanted}
    receipts = {RECEIPTS[name] for name in wanted if name in RECEIPTS}
    return came(seen.states(label), states, by) or came(seen.receipts(label), receipts, by)


def _runs(seen: Seen, label: str, sign: str, times: str) -> bool:
    return seen.runs(label) == int(times) if sign == "==" else seen.runs(label) <= int(times)


def _runs_each(seen: Seen, times: str) -> bool:
    return all(seen.runs(label) == int(times) for label in seen.play.posted)


def _order(seen: Seen, labels: str) -> bool:
    return seen.order() == labels.split(",")


def _order_ends(seen: Seen, labels: str) -> bool:
    wanted = labels.split(",")
    return seen.order()[-len(wanted) :] == wanted


def _history(seen: Seen, conv: str, rows: str) -> bool:
    return seen.history(conv) == rows.split()


def _history_contains(seen: Seen, conv: str, rows: str) -> bool:
    return set(rows.split(" and ")) <= set(seen.history(conv))


def _parallel(seen: Seen, conv: str) -> bool:
    return not [b for b in broken_promises(seen.events(conv), drained=False) if b.promise == "G3"]


def _reason(seen: Seen, label: str, pattern: str) -> bool:
    post = seen.post(label)
    turn = seen.play.story(post.conv).turns[str(post.turn_id)]
    return re.search(pattern, turn.reason or "", re.IGNORECASE) is not None


def _answer(seen: Seen, label: str, text: str) -> bool:
    return seen.answers(label) == [text]


def _one_answer(seen: Seen, label: str) -> bool:
    return len(seen.answers(label)) == 1


def _position(seen: Seen, label: str, place: str) -> bool:
    return bool(seen.post(label).answer.json()["position"] == int(place))


def _key_runs(seen: Seen, key: str, times: str) -> bool:
    turns = {post.turn_id for post in seen.play.posted.values() if post.key == key and post.turn_id}
    (label, *_) = (label for label, post in seen.play.posted.items() if post.key == key)
    return len(turns) == 1 and seen.runs(label) == int(times)


STATE = r"state\((\w+)\)(?:==| in )(\{[\w,]+\}|\w+)(?: @(\d+))?(?: \(forced after grace\))?"
FORMS: tuple[tuple[str, Callable[..., bool]], ...] = (
    (STATE, _state),
    (r"runs\((m\w+)\)(==|<=)(\d+)(?: in .*)?", _runs),
    (r"runs\(each\)==(\d+)", _runs_each),
    (r"order\(\)==([\w,]+)", _order),
    (r"order\(\) ends ([\w,]+)", _order_ends),
    (r"history\((\w+)\)==((?:[ua]:m\d ?)+)(?: @\d+)?", _history),
    (r"history\((\w+)\) contains (u:.*)", _history_contains),
    (r"max_parallel_turns\((\w+)\)==1", _parallel),
    (r"reason\((\w+)\)~/(.+)/", _reason),
    (r"answer\((\w+)\)=='(.+)'", _answer),
    (r"final answers to (\w+)==1", _one_answer),
    (r"position\((\w+)\)==(\d+)(?: @\d+)?", _position),
    (r"runs of key ([\w-]+)==(\d+)(?: \(.*\))?", _key_runs),
)


# --- word for word


def _user_rows(seen: Seen) -> list[str]:
    return [row for row in seen.history("c1") if row.startswith("u:")]


def _bd012_503_or_202(seen: Seen) -> bool:
    codes = [answer.status_code for answer in seen.post("m3").answers]
    waited = all("retry-after" in a.headers for a in seen.post("m3").answers if a.status_code == 503)
    return codes[-1] == 202 and set(codes) <= {202, 503} and waited


def _bd018_replayed(seen: Seen) -> bool:
    again = seen.post("m1r").answer
    (first,) = (t for t in seen.play.story().turns.values() if t.key == "k-77")
    return (
        again.status_code == 202
        and again.headers["idempotent-replayed"] == "true"
        and again.json()["turn_id"] == first.turn_id
    )


def _fenced(seen: Seen) -> bool:
    return not [b for b in broken_promises(seen.events("c1")) if b.promise == "G13"]


def _bd022_renewed(seen: Seen) -> bool:
    """The lease of 20 s was outlived by a turn of 90 s, in one attempt under one fence."""
    events = [e for e in seen.events("c1") if e["kind"] == "TurnStarted"]
    begun, ended = seen.states("m1")[1][0], seen.states("m1")[-1][0]
    return len(events) == 1 and ended - begun > 3 * 20


def _bd024_once(seen: Seen) -> bool:
    return (seen.play.folder / "executions").read_text() == "restarted\n"


def _no_open_call(seen: Seen) -> bool:
    calls, results = set(), set()
    for message in seen.messages("c1"):
        calls |= {part["id"] for part in message["parts"] if part["type"] == "tool_call"}
        results |= {part["tool_call_id"] for part in message["parts"] if part["type"] == "tool_result"}
    return bool(calls) and calls == results


def _call_is_shown(seen: Seen) -> bool:
    parts = [p for m in seen.messages("c1") if m.get("display", True) for p in m["parts"]]
    return any(p["type"] == "tool_call" and p["name"] == "ssh_restart" for p in parts)


def _accepted_order(seen: Seen) -> bool:
    seqs = [turn.seq for turn in seen.play.story().turns.values()]
    labels = seen.by_turn()
    accepted = [
        labels[turn.turn_id] for turn in sorted(seen.play.story().turns.values(), key=lambda t: t.seq)
    ]
    return seqs == sorted(seqs) and seen.order() == accepted


def _posted_order(seen: Seen) -> bool:
    return _user_rows(seen) == [f"u:{label}" for label in seen.play.posted]


def _bd030_lists(seen: Seen) -> bool:
    wanted = [seen.post(label).turn_id for label in ("m1", "m2", "m3")]
    lists = seen.play.results["lists"]
    return len(lists) == 20 and all(each == wanted for each in lists)


def _bd030_sequence(seen: Seen) -> bool:
    times = {m["created_at"] for m in seen.messages("c1") if m["role"] == "user"}
    return len(times) == 1 and seen.history("c1") == ["u:m1", "a:m1", "u:m2", "a:m2", "u:m3", "a:m3"]


def _partials(seen: Seen, client: str) -> Iterator[str]:
    for _, snapshot, _ in seen.play.results[client]:
        if snapshot["running"] and snapshot["running"].get("text"):
            yield snapshot["running"]["text"]


def _live_text(seen: Seen, conv: str, label: str) -> str:
    """The words that the stream carried of a turn's answer."""
    turn = seen.post(label).turn_id
    return "".join(
        frame.data.get("text", "")
        for _, frame in seen.play.watchers[conv].volatile
        if frame.name == "delta"
        and frame.data.get("turn_id") == turn
        and frame.data.get("kind", "text") == "text"
    )


def _bd031_begins(seen: Seen) -> bool:
    return all(text.startswith("token1 ") for text in _partials(seen, "A")) and any(_partials(seen, "A"))


def _bd031_prefix(seen: Seen) -> bool:
    (final,) = seen.answers("m1")
    return all(final.startswith(text) for text in _partials(seen, "A"))


def _bd031_tokens(seen: Seen) -> bool:
    (final,) = seen.answers("m1")
    return final.split() == [f"token{n}" for n in range(1, 201)]


def _bd032_no_clients(seen: Seen) -> bool:
    return seen.final("m1") == "settled" and seen.play.watchers["c1"].missed > 0


def _bd037_partial(seen: Seen) -> bool:
    ((_, snapshot, messages),) = seen.play.results["A"]
    labels = seen.by_turn()
    rows = [f"{m['role'][0]}:{labels[m['turn_id']]}" for m in messages if m["role"] == "user" or is_answer(m)]
    return rows == ["u:m1", "a:m1", "u:m2"] and bool(snapshot["running"]["text"])


def _bd037_once(seen: Seen) -> bool:
    texts = [text_of(m) for m in seen.messages("c1")]
    return texts.count("one") == 1 and all("one" not in text for text in _partials(seen, "A"))


def _bd039_queued(seen: Seen) -> bool:
    return bool(seen.post("m1b").answer.json()["outcome"] == "queued" and _position(seen, "m1b", "1"))


def _one_conversation(seen: Seen) -> bool:
    return len(seen.play.results["conversations"]) == 1


def _bd041_alive(seen: Seen) -> bool:
    """Running again under a new fence, or ended."""
    fences = [e["body"]["fence"] for e in seen.events("c1") if e["kind"] == "TurnStarted"]
    return fences == [1, 2] and seen.final("m1") == "settled"


def _bd041_heartbeat(seen: Seen) -> bool:
    """Between two signs of life on an open stream never lie more than 30 s (and a little for the machine)."""
    watcher = seen.play.watchers["c1"]
    times = sorted([*watcher.came_at, *(at for at, _ in watcher.volatile)])
    return all(
        later - earlier < 30 + LATE_S + seen.play.lag_s for earlier, later in itertools.pairwise(times)
    )


def _bd044_no_ghosts(seen: Seen) -> bool:
    return all(seen.final(label) == "settled" for label in ("g0", "g1", "g2", "g3", "m1"))


def _bd044_recovered(seen: Seen) -> bool:
    return bool(seen.play.results["health"]["recovered"] == 4)


def _control_without_id(seen: Seen) -> bool:
    frames = seen.play.streams["s1"]
    control = [frame for frame in frames if frame.name != "message"]
    return bool(control) and all(frame.seq is None for frame in control)


def _stream_whole(seen: Seen, client: str, events: int) -> bool:
    """Every durable event after the first look, once, in order: those emitted, and those between."""
    base = seen.play.results["base"]
    seqs = [frame.seq for frame in seen.play.streams[client] if frame.seq is not None and frame.seq > base]
    last = seen.play.results["newest"]
    return seqs == list(range(base + 1, last + 1)) and last - base >= events


def _bd045_whole(seen: Seen) -> bool:
    return _stream_whole(seen, "s1", 10)


def _bd048_whole(seen: Seen) -> bool:
    return _stream_whole(seen, "s1", 303)


def _bd050_seqs(seen: Seen) -> bool:
    return len({turn.seq for turn in seen.play.story().turns.values()}) == 2


def _bd051_own_tokens(seen: Seen) -> bool:
    """Every delta names its turn, and holds no word of another one's answer."""
    for label in ("m1", "m2", "m3", "m4"):
        if label in seen.play.posted:
            (answer,) = seen.answers(label)
            assert answer == f"ok {seen.post(label).text}"
            assert _live_text(seen, "c1", label) in ("", answer)
    return True


def _no_replacement(seen: Seen) -> bool:
    """No path takes a history: none has PUT, and messages are only read."""
    paths = seen.play.results["openapi"]["paths"]
    writes = [
        (path, verb) for path, verbs in paths.items() for verb in verbs if verb in ("put", "post", "patch")
    ]
    return all(verb != "put" for _, verb in writes) and not any(p.endswith("/messages") for p, _ in writes)


def _abort_named(seen: Seen) -> bool:
    cancelled = [e["turn_id"] for e in seen.events("c1") if e["kind"] == "TurnCancelled"]
    return cancelled == [seen.post("m1").turn_id] and seen.final("m2") == "settled"


def _late_output_discarded(seen: Seen) -> bool:
    return seen.answers("m1") == [] and seen.final("m1") == "cancelled"


def _nothing_merged(seen: Seen) -> bool:
    return "half a record" not in json.dumps(seen.events("c1"))


def _parses(seen: Seen) -> bool:
    lines = seen.play.results["journal"]["c1"]
    return [event["seq"] for event in lines] == list(range(1, len(lines) + 1))


def _refused_when_full(seen: Seen) -> bool:
    answer = seen.post("m1").answers[0]
    return answer.status_code in (503, 507) and bool(answer.json()["detail"])


def _health_red(seen: Seen) -> bool:
    """Seen right after the refusal, and again just before there was room: red both times."""
    return bool(seen.play.results["health when full"] == [503, 503])


def _bd127_rows(seen: Seen) -> bool:
    pairs = [[f"u:{label}", f"a:{label}"] for label in ("m1", "m2", "m3", "m4")]
    return seen.history("c1") == [row for pair in pairs for row in pair]


def _dedupe_by_id(seen: Seen) -> bool:
    return len({seen.post(label).turn_id for label in ("m1", "m2", "m3")}) == 3


def _server_time(seen: Seen) -> bool:
    """The stored time is the server's: between the submission's event and its answer."""
    (message,) = (
        m for m in seen.messages("c1") if m["turn_id"] == seen.post("m1").turn_id and m["role"] == "user"
    )
    stored = datetime.fromisoformat(message["created_at"])
    events = [
        datetime.fromisoformat(e["at"]) for e in seen.events("c1") if e["turn_id"] == message["turn_id"]
    ]
    return abs((stored - events[0]).total_seconds()) < 2 + LATE_S


def _offsets(seen: Seen) -> bool:
    times = re.findall(r"\d{4}-\d\d-\d\dT[\d:.]+(\S{0,6}?)\"", json.dumps(seen.events("c1")))
    return bool(times) and all(offset == "Z" or re.fullmatch(r"[+-]\d\d:\d\d", offset) for offset in times)


def _codes(seen: Seen) -> set[int]:
    return {answer.status_code for post in seen.play.posted.values() for answer in post.answers}


def _bd137_codes(seen: Seen) -> bool:
    refused = [a for p in seen.play.posted.values() for a in p.answers if a.status_code == 503]
    return _codes(seen) <= {202, 503} and all("retry-after" in answer.headers for answer in refused)


def _bd137_ran(seen: Seen) -> bool:
    accepted = [label for label, post in seen.play.posted.items() if post.turn_id]
    return all(seen.final(label) == "settled" and len(seen.answers(label)) == 1 for label in accepted)


def _bd137_left_no_row(seen: Seen) -> bool:
    refused = [post for post in seen.play.posted.values() if not post.turn_id]
    keys = {name: {t.key for t in seen.play.story(name).turns.values()} for name in seen.play.watchers}
    return all(post.key not in keys[post.conv] for post in refused)


def _refused_mount(seen: Seen) -> bool:
    words = seen.play.server.last_words()
    return seen.play.results["exit"] == 2 and str(seen.play.server.data) in words and "nfs" in words


def _nothing_written(seen: Seen) -> bool:
    """It chose no mode there: it stopped, and left no database to be damaged."""
    data = seen.play.server.data
    return not data.exists() or not [path for path in data.iterdir() if path.suffix == ".db"]


SECRET = "sk-test-AAAABBBBCCCCDDDDEEEE"


def _bd142_nowhere(seen: Seen) -> bool:
    """Searched as bytes in every file of the store, in what the server printed, and in what it hands out."""
    play = seen.play
    kept = [path for path in play.server.data.rglob("*") if path.is_file()] + [play.server.log]
    found = [path.name for path in kept if SECRET.encode() in path.read_bytes()]
    shown = play.results["export"] + json.dumps(play.results["journal"])
    assert "[secret:" in play.results["export"], "what was masked is not marked"
    return found == [] and SECRET not in shown


def _bd142_used_once(seen: Seen) -> bool:
    """The model was given the very words: only they have a rule of the script, and it was followed once."""
    return sum(seen.begun.values()) == 1 and seen.final("m1") == "settled"


def _bd144_refused(seen: Seen) -> bool:
    return seen.play.results["s2"] in (403, 404)


def _bd144_list(seen: Seen) -> bool:
    theirs = {row["conversation_id"] for row in seen.play.results["conversations of u2"]}
    return seen.play.convs["default of u1"] not in theirs and len(theirs) == 1


def _memory(seen: Seen) -> bool:
    (early, _), (late, _) = sorted_sizes(seen)
    return late <= early + 60 * 1024 * 1024


def _handles(seen: Seen) -> bool:
    (_, early), (_, late) = sorted_sizes(seen)
    return abs(late - early) <= 20


def sorted_sizes(seen: Seen) -> list[tuple[int, int]]:
    return [size for _, size in sorted(seen.play.results["sizes"].items())]


def _has_file(seen: Seen) -> bool:
    (message,) = (
        m for m in seen.messages("c1") if m["turn_id"] == seen.post("m2").turn_id and m["role"] == "user"
    )
    return [part["type"] for part in message["parts"]] == ["text", "attachment"]


def _runs_empty(seen: Seen) -> bool:
    return seen.final("m3") == "settled" and len(seen.answers("m3")) == 1


def _gives_back(seen: Seen) -> bool:
    """The queued turn holds its text and files, so that a client can give them back."""
    turn = seen.play.results["queued m2"]
    return turn["text"] == "see picture" and [part["type"] for part in turn["parts"]] == [
        "text",
        "attachment",
    ]


def _bd157_stopped(seen: Seen) -> bool:
    ended = [at for at, state in seen.states("m1") if state == "cancelled"]
    return bool(ended) or seen.play.results["running after delete"] is False


def _stays_away(seen: Seen) -> bool:
    return seen.play.results["deleted answers"] == 404


def _edit_conflict(seen: Seen) -> bool:
    answer = seen.play.results["edit"]
    return bool(answer.status_code == 409 and answer.json()["state"] == seen.play.results["edited"]["state"])


def _one_text(seen: Seen) -> bool:
    (message,) = (
        m for m in seen.messages("c1") if m["turn_id"] == seen.post("m2").turn_id and m["role"] == "user"
    )
    return text_of(message) in ("b", "b2") and len(seen.answers("m2")) == 1


WORDS: dict[str, Callable[[Seen], bool]] = {
    "http(m3) in {202 after start, 503 with Retry-After before}": _bd012_503_or_202,
    "no duplicate user rows in history(c1)": lambda s: len(set(_user_rows(s))) == len(_user_rows(s)),
    "http(m1r)==200 or 202 with header Idempotent-Replayed: true and same turn id as m1": _bd018_replayed,
    "the old attempt is fenced: writes with its attempt token are refused": _fenced,
    "lease_expiry(m1) moves forward at least 3 times": _bd022_renewed,
    "tool executions of ssh_restart==1": _bd024_once,
    "server deaths==1": lambda s: s.play.deaths == 1,
    "model input after restart holds no unanswered tool call": _no_open_call,
    "display history(c1) still shows the interrupted call": _call_is_shown,
    "no row changes its relative position once settled": lambda s: (
        s.messages("c1") == sorted(s.messages("c1"), key=lambda m: m["seq"])
    ),
    "history(c1) user rows in post order": _posted_order,
    "accepted_seq strictly increasing and equal to run order": _accepted_order,
    "every list == m1,m2,m3": _bd030_lists,
    "ordering key is a sequence number, not created_at": _bd030_sequence,
    "clients connected during the run==0 does not change the result": _bd032_no_clients,
    "text 'one' occurs once in ui(A,c1) at every second": _bd037_once,
    "m1b is queued with position 1 or merged by the user's own choice, never run beside m1": _bd039_queued,
    "conversations==1": _one_conversation,
    "state(m1) in {running,done,failed} with a live attempt behind 'running' @12": _bd041_alive,
    "busy(c1)==true implies a heartbeat newer than 30 s": _bd041_heartbeat,
    "rows in state running without live attempt==0 @40": _bd044_no_ghosts,
    "health endpoint reports recovered count==4": _bd044_recovered,
    "control frames carry no id line": _control_without_id,
    "sse(s1)==1..10 each once in order": _bd045_whole,
    "sse(s1)==1..303 each once, or exactly one resync event followed by a snapshot whose last_seq==303": _bd048_whole,
    "never a silent gap": _bd048_whole,
    "m1 and m2 get different sequence numbers": _bd050_seqs,
    "each stream carries only tokens of its own turn": _bd051_own_tokens,
    "order() is one permutation and equals accepted_seq": _accepted_order,
    "no endpoint accepts a whole-history replacement from a client": _no_replacement,
    "abort carries m1's turn token and is ignored for m2": _abort_named,
    "late output of m1's attempt is discarded": _late_output_discarded,
    "torn bytes are kept aside, not merged": _nothing_merged,
    "every line of the journal parses": _parses,
    "http(m1)==507 or 503 with reason, never 202": _refused_when_full,
    "health endpoint red between 1 and 10": _health_red,
    "history(c1)==u:yes a u:yes a u:continue a u:continue a": _bd127_rows,
    "dedupe by id, not by text": _dedupe_by_id,
    "stored time of m1 within 2 s of server time": _server_time,
    "every stored time carries an offset": _offsets,
    "every http in {202, 503 with Retry-After}": _bd137_codes,
    "no http==500": lambda s: 500 not in _codes(s),
    "every 202 has runs==1 @90": _bd137_ran,
    "every 503 left no row": _bd137_left_no_row,
    "server refuses WAL there: other journal mode with one writer, or stops with a clear message naming the path": _refused_mount,
    "integrity check ok after a 5 min write storm in the mode it chose": _nothing_written,
    "store, queue, logs, exports lack 'sk-test-AAAABBBBCCCCDDDDEEEE' when masking is on": _bd142_nowhere,
    "the turn that needed it could use it once": _bd142_used_once,
    "stream s2 refused 403/404": _bd144_refused,
    "list of u2 lacks conversations of u1": _bd144_list,
    "rss after 2000 <= rss after 200 + 60 MiB": _memory,
    "open file handles constant +-20": _handles,
    "input of m2 contains p.png": _has_file,
    "m3 runs though its text is empty": _runs_empty,
    "cancel of a queued message gives text and files back": _gives_back,
    "agent of m1 stopped @15": _bd157_stopped,
    "conversation does not come back @60": _stays_away,
    "late callback for c1 answered 410": _stays_away,
    "http of edit_submit==409 with the current state of m2": _edit_conflict,
    "next plain send from A works at once": lambda s: True,
    "runs(m2)==1 with text 'b' or 'b2', never both": _one_text,
}
"""Expectation -> check, for those that are said once."""

FOR_A_PAGE_TOO: dict[str, Callable[[Seen], bool]] = {
    "ui text of a:m1 at second 9 starts with token 1": _bd031_begins,
    "ui text is a prefix of the final text at every second": _bd031_prefix,
    "final ui text == stored text, each token once": _bd031_tokens,
    "ui(A,c1)==m1 a:m1 m2 a:m2(partial) @9": _bd037_partial,
}
"""Expectations of a page that a snapshot must make possible: checked here on what the server gives it."""


LEFT_TO: dict[str, int] = {"naive time is read as UTC and marked": 5}
"""Expectations about what another issue brings (rows imported from a transcript)."""


def judge(expectation: str, seen: Seen) -> bool | None:
    """Whether it holds; None if it is the page's. Raises LookupError for one that nothing knows."""
    word = WORDS.get(expectation) or FOR_A_PAGE_TOO.get(expectation)
    if word is not None:
        return word(seen)
    if expectation in LEFT_TO:
        return None
    if of_the_page(expectation):
        return None
    for pattern, check in FORMS:
        match = re.fullmatch(pattern, expectation)
        if match is not None:
            return check(seen, *match.groups())
    raise LookupError(expectation)
