"""What a case with a pane expects, as checks of what the player saw. An expectation that nothing here knows fails.

Forms first (`FORMS`), then those that are said once (`WORDS`). What happened is read from the journal's events as a
client got them, from the scripted CLI's own log, and from the server's answers; the screen proves nothing. "@N" means:
it had come by then, give or take what a loaded machine needs (LATE_REAL_SECONDS).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.retained.cases.play import WARM_UP, Play

LATE_REAL_SECONDS = 10.0

STATES = {"done": "settled", "superseded": "cancelled"}
RECEIPTS = {"delivered": "accepted", "confirmed": "confirmed", "unknown": "uncertain"}
MOVES = {
    "Submitted": "queued",
    "TurnStarted": "running",
    "TurnParked": "parked",
    "TurnSettled": "settled",
    "TurnFailed": "failed",
    "TurnCancelled": "cancelled",
}


class Seen:
    """The play, asked now."""

    def __init__(self, play: Play) -> None:
        self.play = play

    # -- the journal

    def events(self, label: str, *kinds: str) -> list[tuple[float, dict[str, Any]]]:
        """(second, event) of a message's turn."""
        post = self.play.posted[label]
        watcher = self.play.watchers[post.conv]
        return [
            (at, event)
            for at, event in zip(watcher.came_at, watcher.events, strict=True)
            if event.get("turn_id") == post.turn_id and event["kind"] in kinds
        ]

    def states(self, label: str) -> list[tuple[float, str]]:
        return [(at, MOVES[event["kind"]]) for at, event in self.events(label, *MOVES)]

    def receipts(self, label: str) -> list[tuple[float, str]]:
        return [(at, event["body"]["state"]) for at, event in self.events(label, "ReceiptMoved")]

    def held(self, label: str) -> list[tuple[float, dict[str, Any]]]:
        return [(at, event["body"]) for at, event in self.events(label, "DeliveryHeld")]

    def reached(self, label: str, name: str, by: float = float("inf")) -> bool:
        found = self.states(label) if name not in RECEIPTS else self.receipts(label)
        wanted = STATES.get(name, RECEIPTS.get(name, name))
        late = by + LATE_REAL_SECONDS / self.play.scale
        return any(state == wanted and at <= late for at, state in found)

    def reason(self, label: str) -> str:
        ends = self.events(label, "TurnFailed") or self.events(label, "TurnCancelled", "TurnSettled")
        if not ends:
            return ""
        body = ends[-1][1]["body"]
        return str((body.get("failure") or {}).get("sentence") or body.get("reason") or "")

    def history(self, conv: str) -> list[str]:
        """`u:label`, `a:label`, `x:text`; the player's own first message left out."""
        labels = {post.turn_id: label for label, post in self.play.posted.items()}
        hidden = {
            event["body"]["message_id"]
            for event in self.play.watchers[conv].events
            if event["kind"] == "MessageMarked" and event["body"].get("display") is False
        }
        rows = []
        for event in self.play.watchers[conv].events:
            if event["kind"] != "MessageAppended":
                continue
            message = event["body"]["message"]
            label = labels.get(message.get("turn_id"), "")
            if message["message_id"] in hidden or not message.get("display", True):
                continue
            text = "".join(part.get("text", "") for part in message["parts"] if part["type"] == "text")
            if message["role"] == "notice":
                rows.append(f"x:{text.split(':')[0]}")
            elif label and message["role"] == "user":
                rows.append(f"u:{label}")
            elif label and message["role"] == "assistant" and text:
                rows.append(f"a:{label}")
        return rows

    def texts(self, conv: str, role: str) -> list[str]:
        """What messages of one role say, word for word."""
        labels = {post.turn_id for post in self.play.posted.values()}
        return [
            "".join(p.get("text", "") for p in e["body"]["message"]["parts"] if p["type"] == "text")
            for e in self.play.watchers[conv].events
            if e["kind"] == "MessageAppended"
            and e["body"]["message"]["role"] == role
            and e["body"]["message"].get("turn_id") in labels
        ]

    # -- the CLI

    def log(self, conv: str) -> list[dict[str, Any]]:
        return self.play.clis[conv].log()

    def submits(self, conv: str) -> list[str]:
        return [
            entry["submit"].strip("\n")
            for entry in self.log(conv)
            if "submit" in entry and entry["submit"] != WARM_UP
        ]

    def keys(self, conv: str) -> list[str]:
        return [entry["key"] for entry in self.log(conv) if "key" in entry]

    def launches(self, conv: str) -> list[list[str]]:
        return [entry["launch"] for entry in self.log(conv) if "launch" in entry]

    def chosen(self, conv: str) -> list[str]:
        return [entry["chose"] for entry in self.log(conv) if "chose" in entry]

    def runs(self, label: str) -> int:
        post = self.play.posted[label]
        return self.submits(post.conv).count(post.text.strip("\n"))

    def native(self, conv: str) -> list[str]:
        """The labels of its native sessions, oldest first; of a session without a label its id."""
        found = self.play.terminals[conv][-1][1]["sessions"] if self.play.terminals.get(conv) else []
        first = self.play.first_session.get(conv)
        labels = dict(self.play.native_labels)
        if first and found:
            labels.setdefault(found[0], first)
        return [labels.get(each, each) for each in found]

    def terminal(self, conv: str, after: float = 0.0) -> list[dict[str, Any]]:
        return [view for at, view in self.play.terminals.get(conv, []) if at >= after]


# --- the forms


def _listed(words: str) -> list[str]:
    """A list as the cases write it: quoted, with escapes, or bare."""
    quoted = re.findall(r"'((?:[^'\\]|\\.)*)'", words)
    found = quoted or [word for word in words.split(", ") if word]
    return [word.replace("\\n", "\n") for word in found]


def _submits(seen: Seen, conv: str, words: str) -> bool:
    return seen.submits(conv) == _listed(words)


def _state(seen: Seen, label: str, names: str, at: str | None) -> bool:
    by = float(at) if at else float("inf")
    return any(_is(seen, label, name.strip(), by) for name in re.split(r",(?![^(]*\))", names.strip("{}")))


def _is(seen: Seen, label: str, name: str, by: float) -> bool:
    hold = re.fullmatch(r"queued\(hold: .*\)", name)
    if hold is not None:
        return bool(seen.held(label))
    return seen.reached(label, name, by)


def _state_or_held(seen: Seen, label: str, name: str, at: str) -> bool:
    return seen.reached(label, name, float(at)) or bool(seen.held(label))


def _held_because(seen: Seen, label: str, pattern: str) -> bool:
    bodies = [body for _, body in seen.held(label)]
    return any(
        re.search(pattern, body["reason"] + body["sentence"]) and body.get("retry_at") is not None
        for body in bodies
    )


def _runs(seen: Seen, label: str, times: str) -> bool:
    return seen.runs(label) == int(times)


def _lacks_key(seen: Seen, conv: str, key: str) -> bool:
    return key not in seen.keys(conv)


def _idle(seen: Seen, conv: str, at: str) -> bool:
    return any(view["state"] == "idle" and view["turn_id"] is None for view in seen.terminal(conv, 0.0)) and (
        seen.terminal(conv)[-1]["state"] == "idle"
    )


def _alive(seen: Seen, conv: str, at: str) -> bool:
    views = seen.terminal(conv)
    pids = {view["pid"] for view in views if view["pid"]}
    exits = [entry for entry in seen.log(conv) if "exit" in entry]
    return not exits and len(pids) == 1 and len(seen.launches(conv)) == 1


def _native(seen: Seen, conv: str, label: str) -> bool:
    return seen.native(conv)[-1:] == [label]


def _answer(seen: Seen, label: str, text: str) -> bool:
    return answers(seen, label) == [text]


def answers(seen: Seen, label: str) -> list[str]:
    """What the turn is said to have answered: the last words of its assistant's messages without a tool call."""
    found = []
    for _, event in seen.events(label, "MessageAppended"):
        message = event["body"]["message"]
        calls = any(part["type"] == "tool_call" for part in message["parts"])
        if message["role"] == "assistant" and not calls:
            found.append("".join(p["text"] for p in message["parts"] if p["type"] == "text"))
    return found[-1:]


def _history(seen: Seen, conv: str, rows: str) -> bool:
    return seen.history(conv) == rows.split()


def _order(seen: Seen, labels: str) -> bool:
    texts = [seen.play.posted[label].text for label in labels.split(",")]
    return [text for text in seen.submits("c1") if text in texts] == texts


def _reason(seen: Seen, label: str, pattern: str) -> bool:
    return re.search(pattern, seen.reason(label)) is not None


STATE = r"state\((\w+)\)(?:==| in )(\{.+?\}|\w+)(?: @(\d+))?"
FORMS: tuple[tuple[str, Callable[..., bool]], ...] = (
    (r"cli_submits\((\S+)\)==\[(.*)\](?: @\d+)?", _submits),
    (STATE + r"(?: \(.*\))?", _state),
    (r"state\((\w+)\)==queued @\d+ with hold_reason~/(.+)/ and retry_at shown", _held_because),
    (r"state\((\w+)\)==(\w+) @(\d+) or queued with hold_reason naming the menu", _state_or_held),
    (r"runs\((\w+)\)==(\d+)(?: @\d+| in a new pane @\d+)?", _runs),
    (r"keys\((\w+)\) lacks (\S+)", _lacks_key),
    (r"busy\((\w+)\)==false @(\d+)", _idle),
    (r"cli_alive\((\w+)\)==true @(\d+)", _alive),
    (r"native_session\((\w+)\)=='(.+)'(?: @\d+)?", _native),
    (r"answer\((\w+)\)=='(.+)'", _answer),
    (r"history\((\w+)\)==((?:[uax]:\w+ ?)+)", _history),
    (r"order\(\)==([\w,]+)", _order),
    (r"reason\((\w+)\)~/(\w+)/.*", _reason),
)


# --- word for word


def _in_order(seen: Seen) -> bool:
    text = "\n".join(seen.submits("c1"))
    places = [text.find(words) for words in ("use blue", "and green", "not red")]
    return -1 not in places and places == sorted(places)


def _bd009_held(seen: Seen) -> bool:
    return all(body["sentence"] for _, body in seen.held("m1")) and bool(seen.held("m1"))


def _bd009_end(seen: Seen) -> bool:
    still = seen.events("m1", "DeliveryHeld", "DeliveryReleased")[-1:]
    shown = bool(still) and still[0][1]["kind"] == "DeliveryHeld"
    return shown or seen.reached("m1", "confirmed") or seen.reached("m1", "failed")


def _resumed_with_id(seen: Seen) -> bool:
    """Whatever ended it: if it was launched again, then with --resume and that id; else it never went."""
    first, *later = seen.launches("c1")
    native_id = first[first.index("--session-id") + 1]
    return all(["--resume", native_id] == launch[launch.index("--resume") :][:2] for launch in later)


def _one_native(seen: Seen) -> bool:
    return len(seen.native("c1")) == 1 and seen.reached("m2", "settled")


def _native_known(seen: Seen) -> bool:
    first = next((at for at, view in seen.play.terminals["c1"] if view["native_session"]), None)
    return first is not None and first <= 2 + LATE_REAL_SECONDS / seen.play.scale


def _no_c_c_when_idle(seen: Seen) -> bool:
    return "C-c" not in seen.keys("c1")


def _bd074_own(seen: Seen) -> bool:
    return seen.reached("m2", "settled") and seen.runs("m2") == 1


def _bd076_inside(seen: Seen) -> bool:
    """Both are taken while the native turn of m1 goes on."""
    taken = [
        seen.events(label, "TurnTaken", "RiderTaken", "SteerTaken", "ReceiptMoved") for label in ("m2", "m3")
    ]
    rows = seen.history("c1")
    return (
        bool(taken[0])
        and bool(taken[1])
        and "u:m2" in rows
        and "u:m3" in rows
        and not seen.reached("m1", "failed")
    )


def _bd076_order(seen: Seen) -> bool:
    return [text for text in seen.submits("c1") if text in ("a", "b")] == ["a", "b"]


def _composer_empty(seen: Seen) -> bool:
    """What left the composer was submitted, and nothing more was typed after it."""
    entries = [entry for entry in seen.log("c1") if {"submit", "paste", "eaten"} & set(entry)]
    return "submit" in entries[-1]


def _pasted_then_cr(seen: Seen) -> bool:
    pastes = [entry for entry in seen.log("c1") if "paste" in entry]
    return [entry["paste"] for entry in pastes] == [len("merge it")] and all(e["bracketed"] for e in pastes)


def _enter_gap(seen: Seen) -> bool:
    """Between a paste and the submit that its Enter made."""
    gaps = []
    pasted = None
    for entry in seen.log("c1"):
        if "paste" in entry:
            pasted = entry["at"]
        elif "submit" in entry and pasted is not None:
            gaps.append(entry["at"] - pasted)
            pasted = None
    return len(gaps) == 2 and min(gaps) >= 0.121


DRAFT = "half a thought about caching"


def _never_glued(seen: Seen) -> bool:
    return not any(DRAFT in text and "status please" in text for text in seen.submits("c1"))


def _draft_stays(seen: Seen) -> bool:
    """Nothing was cleared and nothing submitted: what was typed is where it was."""
    return DRAFT not in seen.submits("c1") and not {"C-u", "C-c", "BSpace"} & set(_after_draft(seen))


def _after_draft(seen: Seen) -> list[str]:
    warm = max(n for n, e in enumerate(seen.log("c1")) if e.get("submit") == WARM_UP)
    return [entry["key"] for entry in seen.log("c1")[warm:] if "key" in entry]


def _never_chose(option: str) -> Callable[[Seen], bool]:
    return lambda seen: option not in seen.chosen("c1")


def _no_update_check(seen: Seen) -> bool:
    return any("check_for_update_on_startup=false" in word for word in seen.launches("c1")[0])


def _nothing_eaten(seen: Seen) -> bool:
    return not any("eaten" in entry for entry in seen.log("c1"))


def _once_after_reset(seen: Seen) -> bool:
    gone = [entry["at"] for entry in seen.log("c1") if entry.get("submit") == "continue"]
    began = next(entry["at"] for entry in seen.log("c1") if "launch" in entry)
    return len(gone) == 1 and gone[0] - began >= 590 * seen.play.scale


def _hashes(seen: Seen) -> bool:
    def digest(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    return [digest(t) for t in seen.submits("c1")] == [digest(p.text) for p in seen.play.posted.values()]


def _one_paste_each(seen: Seen) -> bool:
    return len([entry for entry in seen.log("c1") if "paste" in entry]) == len(seen.play.posted)


def _short_argv(seen: Seen) -> bool:
    """A text never travels in the arguments of a process: each paste arrived whole, as one paste."""
    return _one_paste_each(seen) and _hashes(seen)


def _limit_seen(seen: Seen) -> bool:
    return any(
        view["state"] == "blocked" and view["blocked_by"]["kind"] == "limit"
        for view in seen.terminal("c1", 3)
    )


def _fresh_size(seen: Seen) -> bool:
    columns, rows = seen.play.results["fresh_size"].split()
    return int(columns) >= 160 and int(rows) >= 40


def _approval_visible(seen: Seen) -> bool:
    menus = [view for view in seen.terminal("c1", 8) if view["state"] == "blocked"]
    return any(view["blocked_by"]["kind"] == "permission" for view in menus) and bool(
        seen.play.results.get("approvals")
    )


def _never_failed(seen: Seen) -> bool:
    return "failed" not in [state for _, state in seen.states("m1")]


def _bd092_once(seen: Seen) -> bool:
    return seen.submits("c1").count(seen.play.posted["m1"].text) == 1


def _new_pane(seen: Seen) -> bool:
    return len(seen.launches("c1")) == 1 and seen.submits("c1") == ["secret for c1"]


def _neighbour_lives(seen: Seen) -> bool:
    views = seen.terminal("c1-2")
    return views[-1]["state"] == "idle" and seen.play.results.get("killed") is True


def _byte_for_byte(seen: Seen) -> bool:
    posted = list(seen.play.posted.values())
    for post in posted:
        if post.answer.status_code == 422:
            assert post.answer.json()["code"] == "reads_as_command", post.answer.json()
        elif post.answer.status_code != 202 or post.text not in seen.submits("c1"):
            return False
    return len([post for post in posted if post.turn_id]) >= 4


def _no_command_ran(seen: Seen) -> bool:
    return not any("shell" in e or e.get("command") for e in seen.log("c1")) and len(seen.native("c1")) == 1


def _soon_202(seen: Seen) -> bool:
    post = seen.play.posted["m1"]
    return post.answer.status_code == 202 and post.answered_at[0] < 10


def _same_readiness(seen: Seen) -> bool:
    return seen.terminal("c1")[-1]["state"] == "idle" and seen.reached("m1", "settled")


def _unicode(seen: Seen) -> bool:
    texts = [seen.play.posted[label].text for label in ("m1", "m2", "m3", "m4")]
    return seen.submits("c1")[:4] == texts


def _no_escape(seen: Seen) -> bool:
    post = seen.play.posted["m5"]
    if post.answer.status_code == 422:
        return True
    text = seen.submits("c1")[4]
    return "\x1b" not in text and "\x00" not in text and text.startswith("tab") and text.endswith("red")


def _history_is_posted(seen: Seen) -> bool:
    return seen.texts("c1", "user") == [post.text for post in seen.play.posted.values() if post.turn_id]


def _exactly_m1(seen: Seen) -> bool:
    return seen.submits("c1") == [seen.play.posted["m1"].text]


def _cleared_before(seen: Seen) -> bool:
    """Between two pastes of one message stand the keys that empty the composer."""
    marks = ["P" if "paste" in e else "C" for e in seen.log("c1") if "paste" in e or e.get("key") == "C-u"]
    return marks.count("P") == 3 and "PP" not in "".join(marks)


def _bd103_misses(seen: Seen) -> bool:
    (failed,) = [at for at, state in seen.states("m1") if state == "failed"]
    died = next(e["at"] for e in seen.log("c1") if "exit" in e)
    (event,) = [event for _, event in seen.events("m1", "TurnFailed")]
    ended = datetime.fromisoformat(event["at"]).timestamp()
    return failed > 10 and ended - died >= 2 * 5 * seen.play.scale * 0.9


def _exit_code_one(seen: Seen) -> bool:
    return (
        re.search(r"pane", seen.reason("m1")) is not None
        and re.search(r"\b1\b", seen.reason("m1")) is not None
    )


def _not_running_then(seen: Seen) -> bool:
    """Between the death that was found and the new pane nobody says that the old one runs."""
    return len({view["pid"] for view in seen.terminal("c1") if view["pid"]}) == 2


def _apart(seen: Seen) -> bool:
    return _never_failed(seen) and seen.reached("m1", "settled")


def _termed(seen: Seen) -> bool:
    return any(entry.get("exit") == 129 for entry in seen.log("c1"))


def _server_lives(seen: Seen) -> bool:
    return seen.play.world.server.alive and seen.play.results["server"] == seen.play.world.server.pid


def _ended_frame(seen: Seen) -> bool:
    return any(frame.data.get("kind") == "terminal_ended" for frame in seen.play.frames)


def _chain(seen: Seen) -> bool:
    return seen.native("c1") == ["S-1", "S-2"]


def _third_resumes(seen: Seen) -> bool:
    launches = seen.launches("c1")
    resumed = [launch[launch.index("--resume") + 1] for launch in launches[1:]]
    return [seen.play.native_labels.get(each, "S-1") for each in resumed] == ["S-1", "S-2"]


def _no_repeats(seen: Seen) -> bool:
    rows = seen.history("c1")
    return len(rows) == len(set(rows)) and {"u:m1", "a:m1", "u:m2", "a:m2", "u:m3", "a:m3"} == set(rows)


def _bd111_file(seen: Seen) -> bool:
    files = list(seen.play.clis["c1"].home.rglob("projects/**/*.jsonl"))
    return any(b'"a"' in path.read_bytes() and b"ok a" in path.read_bytes() for path in files)


def _m1_stays(seen: Seen) -> bool:
    return seen.history("c1")[:2] == ["u:m1", "a:m1"]


def _same_or_notice(label: str, quotes: str) -> Callable[[Seen], bool]:
    def check(seen: Seen) -> bool:
        if not seen.reached(label, "settled"):
            return not seen.reached(label, "confirmed") and seen.reached(label, "failed")
        last = seen.submits("c1")[-1]
        return len(seen.native("c1")) == 1 or ("history, not instructions" in last and quotes in last)

    return check


def _bd113_failed(seen: Seen) -> bool:
    if not seen.reached("m2", "failed"):
        return True
    return "wt1" in seen.reason("m2") and bool(seen.play.results.get("resent"))


def _bd114_resumes(seen: Seen) -> bool:
    """The id of a codex session is not ours to give: a launch with it is a resume."""
    first = seen.play.native_labels and next(iter(seen.play.native_labels))
    return sum(first in launch for launch in seen.launches("c1")) <= 2


def _bd114_new(seen: Seen) -> bool:
    return len(seen.native("c1")) == 2


def _bd114_dialogue(seen: Seen) -> bool:
    last = seen.submits("c1")[-1]
    return "User: a" in last and "Assistant: ok a" in last and last.endswith("b")


def _bd114_notice(seen: Seen) -> bool:
    return any(
        event["kind"] == "SessionBound"
        and event["body"]["why"] == "lost"
        and "gone" in event["body"]["sentence"]
        for event in seen.play.watchers["c1"].events
    )


def _bd116_ui(seen: Seen) -> bool:
    turn = seen.play.posted["m3"].turn_id
    roles = [m["role"] for m in seen.play.results["reloaded"] if m["turn_id"] == turn]
    return roles == ["user", "assistant"]


def _never_narration(seen: Seen) -> bool:
    return "narration" not in answers(seen, "m1")


def _bd160_alone(seen: Seen) -> bool:
    return "/compact" in seen.submits("c1")


def _bd160_next(seen: Seen) -> bool:
    submits = seen.submits("c1")
    return submits[submits.index("/compact") + 1 :][:1] == ["then go on"]


def _each_confirmed(seen: Seen) -> bool:
    return all(seen.reached(label, "confirmed", 60) for label in ("m2", "m3", "m4"))


def _three_entries(seen: Seen) -> bool:
    return [row for row in seen.history("c1") if row in ("u:m2", "u:m3", "u:m4")] == ["u:m2", "u:m3", "u:m4"]


WORDS: dict[str, Callable[[Seen], bool]] = {
    "text of cli_submits(c1) contains 'use blue' and 'and green' and 'not red' in that order": _in_order,
    "history(c1) keeps u:m2 u:m3 u:m4 as three entries": _three_entries,
    "each of m2,m3,m4 reaches state confirmed @60": _each_confirmed,
    "state(m1)==queued @6 with hold_reason not empty": _bd009_held,
    "ui(phone,c1) shows hold_reason @6": _bd009_held,
    "state(m1) in {confirmed,failed} @130 or hold_reason still shown": _bd009_end,
    "native_session(c1) known @2": _native_known,
    "relaunch command contains --resume with that id": _resumed_with_id,
    "native_session(c1) unchanged after m2": _one_native,
    "no C-c sent while the pane shows no working mark": _no_c_c_when_idle,
    "state(m2)!=queued @30": lambda s: s.reached("m2", "running") or s.reached("m2", "settled"),
    "m2 runs as its own turn if the steer window closed": _bd074_own,
    "m2 and m3 both inside the native turn of m1 by 45": _bd076_inside,
    "order of steered texts==a,b": _bd076_order,
    "composer of pane is empty @12": _composer_empty,
    "bytes to pane: ESC[200~ merge it ESC[201~ then a separate CR": _pasted_then_cr,
    "gap between last text byte and Enter >= 121 ms": _enter_gap,
    "no submit contains both texts": _never_glued,
    "'half a thought about caching' is still in the composer or restored there @30": _draft_stays,
    "pane_in_mode==0 before text is sent": lambda s: s.runs("m1") == 1,
    "menu option chosen is never 'Update now'": _never_chose("Update now"),
    "cli launched with its own 'no update check' setting where it exists": _no_update_check,
    "no part of m1's text is sent before the composer is ready": _nothing_eaten,
    "option 'Upgrade your plan' never confirmed": _never_chose("Upgrade your plan"),
    "cli_submits(c1) gains 'continue' once after 600": _once_after_reset,
    "sha256 of each submit == sha256 of the posted text": _hashes,
    "one paste per message": _one_paste_each,
    "argv of any tmux call < 100 kB": _short_argv,
    "limit state detected @6": _limit_seen,
    "capture uses joined lines": _limit_seen,
    "fresh panes are created at least 160x40": _fresh_size,
    "state(m1)==confirmed @12 from the transcript, not from scrollback": lambda s: s.reached(
        "m1", "confirmed", 12
    ),
    "approval request visible in the API @14": _approval_visible,
    "state(m1)!=failed at every second": _never_failed,
    "cli_submits(c1) counts m1 once": _bd092_once,
    "a new pane is started for c1 or state(m1)==failed": _new_pane,
    "kill of c1 leaves tk-c1-2 alive": _neighbour_lives,
    "each text reaches the model byte for byte as a prompt (or refused with 422 and a reason, never changed)": _byte_for_byte,
    "no slash command ran": _no_command_ran,
    "http(m1)==202 in < 1 s": _soon_202,
    "status endpoint and dispatcher use the same readiness value": _same_readiness,
    "m1..m4 submitted byte for byte (NFC/NFD kept)": _unicode,
    "m5 submitted without the escape sequence taking effect, or refused 422": _no_escape,
    "history(c1) equals the posted texts": _history_is_posted,
    "cli_submits(c1) contains exactly one text and it equals m1": _exactly_m1,
    "composer cleared before a re-paste": _cleared_before,
    "state(m1)==failed @30 (3 misses, 5 s apart)": _bd103_misses,
    "reason(m1)~/pane/ and exit code 1": _exit_code_one,
    "status(c1)!='running' at 31": _not_running_then,
    "errors are counted apart from confirmed misses": _apart,
    "processes with the conversation's marker==0 @20": lambda s: (
        s.play.results["before"] >= 3 and s.play.results["after"] == []
    ),
    "no process without the marker was signalled": lambda s: bool(s.play.results["bystander"]),
    "SIGTERM sent before SIGKILL": _termed,
    "server pid unchanged": _server_lives,
    "client A gets an 'ended' event": _ended_frame,
    "third launch resumes S-2": _third_resumes,
    "history(c1) has no repeated rows": _no_repeats,
    "chain S-1 -> S-2 is stored": _chain,
    "transcript of S-1 unchanged or extended, never shorter": _bd111_file,
    "history(c1) still has u:m1 a:m1": _m1_stays,
    "m2 runs with S-1 or with a continuity notice that quotes m1": _same_or_notice("m2", "User: a"),
    "history(c1) complete": _m1_stays,
    "if confirmed: same S-1 or continuity notice with m1's dialogue": _same_or_notice(
        "m2", "User: finish and clean up"
    ),
    "if failed: reason names the missing folder and Resend works after it is re-made": _bd113_failed,
    "resume attempts with T-1<=2": _bd114_resumes,
    "new native session started once": _bd114_new,
    "its first prompt carries the last dialogue of c1": _bd114_dialogue,
    "history(c1) has a visible notice": _bd114_notice,
    "ui(A,c1) contains m3 and a:m3": _bd116_ui,
    "answer is never 'narration' in any API read marked final": _never_narration,
    "history(c1)==u:m1 x:failed": lambda s: (
        [row[:2] for row in s.play.results["history"]] == ["u:", "x:"]
        and s.play.results["history"][0] == "u:m1"
    ),
    "reason(m1)~/no space/": lambda s: re.search(r"(?i)no space", s.reason("m1")) is not None,
    "resend(m1) after failpoint removal => runs(m1')==1 and text identical byte for byte": lambda s: (
        s.submits("c1") == [s.play.posted["m1"].text]
    ),
    "cli_submits(c1) contains '/compact' alone": _bd160_alone,
    "next submit=='then go on'": _bd160_next,
}


class Unknown(Exception):
    """Nothing here knows this expectation."""


def check_of(expectation: str) -> Callable[[Seen], bool]:
    """How it is checked. Raises Unknown."""
    word = WORDS.get(expectation)
    if word is not None:
        return word
    for pattern, check in FORMS:
        match = re.fullmatch(pattern, expectation)
        if match is not None:
            return lambda seen: check(seen, *match.groups())
    raise Unknown(expectation)


def judge(expectation: str, seen: Seen) -> bool:
    """Whether it holds now: not yet, while what it speaks of is not there. Raises Unknown."""
    check = check_of(expectation)
    try:
        return check(seen)
    except (LookupError, ValueError, StopIteration):
        return False
