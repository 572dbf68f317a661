"""What a case expects of a page, as checks of what its pages showed. What is not about a page is the server's
player's to judge; an expectation that neither knows is a failure.

A row is written as in the cases: `m1` for the message, `a:m1` for its answer, `p1` for a step on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.acceptance.delivery.expectations import Seen, judge
from tests.browser.cases.player import Client, PagePlay

Look = dict[str, Any]


class PageSeen:
    """The play, asked about its pages."""

    def __init__(self, play: PagePlay) -> None:
        self.play = play
        self.server = Seen(play)
        self.labels = {post.turn_id: label for label, post in play.posted.items() if post.turn_id}

    def client(self, name: str = "A") -> Client:
        return self.play.clients[name]

    def looks(self, name: str = "A", since: float = 0.0) -> list[Look]:
        return [look for at, look in self.client(name).looks if at >= since]

    def last(self, name: str = "A") -> Look:
        return self.client(name).looks[-1][1]

    def drawn(self, look: Look) -> list[str]:
        """The rows of a look, in the cases' words."""
        found: list[str] = []
        for row in look["rows"]:
            label = self.labels.get(row["turn"]) or self.of_text(row["text"])
            if row["kind"] in ("user", "queued", "sending"):
                found.append(str(label))
            elif row["kind"] in ("answer", "live"):
                found.append(f"a:{label}")
            elif row["kind"] == "progress":
                found += row["steps"]
        return found

    def of_text(self, text: str) -> str | None:
        return next((label for label, post in self.play.posted.items() if post.text == text), None)

    def said(self, look: Look) -> list[str]:
        """The messages of a look, without answers and steps."""
        return [
            str(self.labels.get(row["turn"]) or self.of_text(row["text"]))
            for row in look["rows"]
            if row["kind"] in ("user", "queued", "sending")
        ]


def in_order(look: Look) -> bool:
    """No key twice, and no two rows at one height."""
    keys = [row["key"] for row in look["rows"]]
    return len(keys) == len(set(keys))


# --- the forms


def _lacks_queued(seen: PageSeen, name: str) -> bool:
    return not [row for row in seen.last(name)["rows"] if row["kind"] == "queued"]


def _depth(seen: PageSeen, conv: str) -> bool:
    """What the page counts is what it draws, in every look; and at the end it is what the server has."""
    looks = [look for client in seen.play.clients.values() for _, look in client.looks]
    for look in looks:
        queued = len([row for row in look["rows"] if row["kind"] == "queued"])
        if look["waits"] != (f"{queued} waiting" if queued else ""):
            return False
    return bool(looks)


def _contains(seen: PageSeen, name: str, label: str) -> bool:
    return label in seen.said(seen.last(name))


def _drawn_is(seen: PageSeen, name: str, rows: str) -> bool:
    return seen.drawn(seen.last(name)) == rows.split()


def _same_after_reload(seen: PageSeen) -> bool:
    return seen.play.results["before the last reload"] == seen.play.results["after the last reload"]


def _user_rows(seen: PageSeen, name: str, rows: str) -> bool:
    """Rows come one by one, in the order of posting, and none is ever twice: every look is a beginning of it all."""
    order = list(seen.play.posted)
    beginnings = all(seen.said(look) == order[: len(seen.said(look))] for look in seen.looks(name))
    return beginnings and rows.split() == order[: len(rows.split())] and seen.said(seen.last(name)) == order


FORMS: tuple[tuple[str, Callable[..., bool]], ...] = (
    (r"ui\((\w+),c1\) lacks chip 'queued' @\d+", _lacks_queued),
    (r"queue_depth\((\w+)\) == count of ui\(A,c1\) rows in state queued, at every second", _depth),
    (r"ui\((\w+),c1\) contains (m\d) @\d+", _contains),
    (r"ui\((\w+),c1\) order at end == (.+)", _drawn_is),
    (r"ui\((\w+),c1\)==(m1 a:m1 m2 a:m2)", _drawn_is),
    (r"ui\((\w+),c1\) user rows: ([m\d ]+?) @\d+", _user_rows),
)


# --- word for word


def _lives(seen: PageSeen) -> list[str]:
    return [
        row["text"]
        for look in seen.looks()
        for row in look["rows"]
        if row["kind"] == "live" and row["text"] != "working"
    ]


def _final_answer(seen: PageSeen, name: str = "A") -> str:
    (text,) = [row["text"] for row in seen.last(name)["rows"] if row["kind"] == "answer"]
    return str(text)


def _bd031_begins(seen: PageSeen) -> bool:
    texts = _lives(seen)
    return bool(texts) and all(
        text.split()[0] in ("token1", "t", "to", "tok", "toke", "token") for text in texts
    )


def _bd031_prefix(seen: PageSeen) -> bool:
    return all(_final_answer(seen).startswith(text) for text in _lives(seen))


def _bd031_once(seen: PageSeen) -> bool:
    return (
        _final_answer(seen).split()
        == [f"token{n}" for n in range(1, 201)]
        == seen.server.answers("m1")[0].split()
    )


def _bd037_partial(seen: PageSeen) -> bool:
    running = [look for look in seen.looks() if any(row["kind"] == "live" for row in look["rows"])]
    return bool(running) and all(seen.drawn(look) == ["m1", "a:m1", "m2", "a:m2"] for look in running)


def _bd037_once(seen: PageSeen) -> bool:
    return all(
        sum(1 for row in look["rows"] if row["text"] == "one") == 1 for look in seen.looks() if look["rows"]
    )


def _shows_42(seen: PageSeen) -> bool:
    return _final_answer(seen, "B") == "42"


def _no_spinner(seen: PageSeen) -> bool:
    return seen.last()["spinner"] == 0


def _retry_and_reason(seen: PageSeen) -> bool:
    """A turn that failed says why and can be tried again; one that ended well says so."""
    (row,) = [row for row in seen.last()["rows"] if row["kind"] == "user"]
    if seen.server.final("m1") == "settled":
        return "answered" in row["fate"]
    return "Retry" in row["buttons"] and len(row["fate"]) > 10


def _always_there(seen: PageSeen) -> bool:
    """From the click on, in every look: once, and in its place."""
    since = seen.client().times["sent"]
    return all(seen.said(look).count("m1") == 1 for at, look in seen.client().looks if at > since)


def _says_saved(seen: PageSeen) -> bool:
    cut, clicked = seen.client().times["cut"], seen.client().times["sent"]
    looks = [look for at, look in seen.client().looks if cut < at < clicked]
    return any("saved" in look["banner"] and "worked on" in look["banner"] for look in looks)


def _open_page_heals(seen: PageSeen) -> bool:
    """The page was not reloaded, and shows how it ended."""
    return "answered" in seen.last()["rows"][0]["fate"] and seen.last()["spinner"] == 0


def _cursor_on_reconnect(seen: PageSeen) -> bool:
    client = seen.client()
    streams = [url for _, _, url in client.requests if "/events?" in url]
    before = max(e["seq"] for e in seen.server.events("c1") if e["kind"] == "MessageAppended" and e["seq"])
    after = int(re.search(r"after=(\d+)", streams[-1])[1])  # type: ignore[index]
    return len(streams) >= 2 and 0 < after <= before


def _all_rows_once(seen: PageSeen) -> bool:
    keys: list[str] = seen.play.results["all rows"]
    emitted = sum(step["events"] for step in seen.play.steps if step["do"] == "emit")
    users = [key for key in keys if key.startswith(("t-", "s-"))]
    return len(users) == len(set(users)) == emitted


def _one_stream(seen: PageSeen) -> bool:
    """No tab ever has two streams at once: each page made at most one more than was closed."""
    return all(len([u for _, _, u in c.requests if "/events?" in u]) <= 1 for c in seen.play.clients.values())


def _loads_fast(seen: PageSeen) -> bool:
    """Not jammed: it loads like the first ones. (Five seconds is the case's word; a loaded machine may add its own.)"""
    return (
        seen.client("T7").times["open"] * seen.play.scale
        < 5 + 5 * seen.client("T0").times["open"] * seen.play.scale
    )


def _stored(seen: PageSeen) -> bool:
    return seen.server.post("m1").answer.status_code == 202


def _all_tabs_show(seen: PageSeen) -> bool:
    tabs = ("T1", "T4", "T7")
    return all("a:m1" in seen.drawn(seen.last(tab)) for tab in tabs)


def _in_c2_only(seen: PageSeen) -> bool:
    return seen.server.history("c2") == ["u:m1", "a:m1"] and "u:m1" not in seen.server.history("c1")


def _never_in_c1(seen: PageSeen) -> bool:
    c1 = seen.play.convs["c1"]
    shown = [seen.said(look) for look in seen.looks() if look["conversation"] == c1]
    return seen.server.history("c1") == [] and not any("m1" in rows for rows in shown)


def _again_twice(seen: PageSeen) -> bool:
    c1 = seen.play.convs["c1"]
    looks = [look for look in seen.play.results["after switches"] if look["conversation"] == c1]
    return len(looks) == 6 and all(
        [row["text"] for row in look["rows"] if row["kind"] in ("user", "queued")] == ["again", "again"]
        for look in looks
    )


def _reaches_all(seen: PageSeen) -> bool:
    found = seen.play.results["all texts"]
    return all(any(f"long prompt {n}." in text for text in found) for n in range(12))


def _no_summary_as_user(seen: PageSeen) -> bool:
    return not any("SUMMARY OF IT ALL" in text for text in seen.play.results["all user texts"])


def _by_sequence(seen: PageSeen) -> bool:
    return seen.drawn(seen.last()) == ["m1", "a:m1", "m2", "a:m2"]


def _b_lacks(seen: PageSeen) -> bool:
    return not any("private" in row["text"] for look in seen.looks("B") for row in look["rows"])


def _newest_fast(seen: PageSeen) -> bool:
    return seen.client().times["open"] * seen.play.scale <= 2 + seen.play.slack_s


def _few_nodes(seen: PageSeen) -> bool:
    return all(len(look["rows"]) <= 200 for look in seen.looks())


def _keys_fast(seen: PageSeen) -> bool:
    times = seen.play.results["key times"]
    return bool(times) and times[int(len(times) * 0.95) - 1] <= 100 + 1000 * seen.play.slack_s


def _small_page(seen: PageSeen) -> bool:
    return 0 < seen.play.results["first page bytes"] <= 300_000


def _one_older(seen: PageSeen) -> bool:
    return seen.play.results["older pages"] == 1


def _still(seen: PageSeen) -> bool:
    return seen.play.results["scroll"]["swing"] <= 4


def _no_blank(seen: PageSeen) -> bool:
    return seen.play.results["scroll"]["blank"] == 0


def _kept(look: Look) -> bool:
    """In the composer with its file, or as a failed row with both ways out."""
    in_composer = look["composer"] == "my careful text" and any("a.png" in name for name in look["files"])
    failed = [
        row
        for row in look["rows"]
        if row["text"].endswith("my careful text") and {"Resend", "Edit"} <= set(row["buttons"])
    ]
    return in_composer or bool(failed)


def _draft_kept(seen: PageSeen) -> bool:
    return _kept(seen.play.results["before the last reload look"])


def _draft_kept_after(seen: PageSeen) -> bool:
    return _kept(seen.last())


def _never_elsewhere(seen: PageSeen) -> bool:
    return seen.play.results["other composer"] == ""


def _no_post_composing(seen: PageSeen) -> bool:
    return seen.client().times["composed"] == 0


def _one_post_after(seen: PageSeen) -> bool:
    return len(seen.play._posts(seen.client())) == 1 and seen.server.history("c1") == ["u:m1", "a:m1"]


def _pictures(seen: PageSeen) -> bool:
    queued = [row for look in seen.looks() for row in look["rows"] if row["kind"] == "queued"]
    return any(row["pictures"] == 1 for row in queued)


def _composer_holds(seen: PageSeen) -> bool:
    return bool(seen.play.results["composer after the edit"] == "b2")


def _edit_conflict(seen: PageSeen) -> bool:
    answer = seen.play.results["edit"]
    return answer.status_code == 409 and answer.json()["state"] in ("running", "settled")


def _send_works(seen: PageSeen) -> bool:
    return seen.play.results["sent after"] is True


WORDS: dict[str, Callable[[PageSeen], bool]] = {
    "runs_total==1": lambda s: sum(s.server.begun.values()) == 1,
    "user rows in history(c1)==1": lambda s: (
        len([r for r in s.server.history("c1") if r.startswith("u:")]) == 1
    ),
    "history(c1) user rows==1": lambda s: len([r for r in s.server.history("c1") if r.startswith("u:")]) == 1,
    "ui(A,c1) after reload == ui(A,c1) before reload": _same_after_reload,
    "no row changes its relative position once settled": lambda s: all(in_order(look) for look in s.looks()),
    "ui text of a:m1 at second 9 starts with token 1": _bd031_begins,
    "ui text is a prefix of the final text at every second": _bd031_prefix,
    "final ui text == stored text, each token once": _bd031_once,
    "ui(B,c1) shows '42' @21": _shows_42,
    "ui(A,c1) has no spinner @75": _no_spinner,
    "ui(A,c1) offers Retry and shows a reason @75": _retry_and_reason,
    "ui(A,c1) contains m1 at every second from 1": _always_there,
    "m1 shown once @10": lambda s: s.said(s.last()) == ["m1"],
    "ui(A,c1)==m1 a:m1 m2 a:m2(partial) @9": _bd037_partial,
    "text 'one' occurs once in ui(A,c1) at every second": _bd037_once,
    "before 6 ui(A,c1) says the message is saved and still being worked on": _says_saved,
    "client A (not reloaded) shows the same state @15": _open_page_heals,
    "client A sends Last-Event-ID: 600 (or ?after=600) on reconnect": _cursor_on_reconnect,
    "rows in ui(A,c1)==605, none twice": _all_rows_once,
    "streams per tab<=1": _one_stream,
    "page load of T7 <= 5 s": _loads_fast,
    "http(m1)==202 @13": _stored,
    "all 8 tabs show a:m1 of their conversation within 3 s": _all_tabs_show,
    "m1 is in history(c2) only": _in_c2_only,
    "runs(m1) in c1==0": _never_in_c1,
    "ui(A,c1) shows 'again' twice at 7 and after 5 more switches": _again_twice,
    "ui(A,c1) still reaches m0..m11": _reaches_all,
    "summary text is not shown as a user message": _no_summary_as_user,
    "ui order == sequence order": _by_sequence,
    "ui(B) lacks 'private'": _b_lacks,
    "time to newest message <= 2 s": _newest_fast,
    "DOM rows <= 200": _few_nodes,
    "key-to-paint p95 <= 100 ms": _keys_fast,
    "first page of the API <= 300 kB": _small_page,
    "older pages requested==1": _one_older,
    "the row under the pointer moves <= 4 px": _still,
    "no blank viewport frame": _no_blank,
    "composer(A)=='my careful text' with a.png, or failed row with Resend and Edit @4": _draft_kept,
    "same after reload": _draft_kept_after,
    "switching conversation in between never puts the text into another composer": _never_elsewhere,
    "posts between 1 and 2 ==0": _no_post_composing,
    "posts after 2 ==1 with the converted text": _one_post_after,
    "ui shows the pictures while queued": _pictures,
    "composer(A)=='b2' @12": _composer_holds,
    "http of edit_submit==409 with the current state of m2": _edit_conflict,
    "next plain send from A works at once": _send_works,
}


LEFT_TO = {"model input is the compacted one": "tests/agent/test_delivery_cases.py"}
"""What no page can show, and who shows it."""


def judge_page(expectation: str, seen: PageSeen) -> bool | None:
    """Whether it holds; None where neither a page nor a server can show it here. LookupError if nothing knows it."""
    word = WORDS.get(expectation)
    if word is not None:
        return word(seen)
    if expectation in LEFT_TO:
        return None
    for pattern, check in FORMS:
        match = re.fullmatch(pattern, expectation)
        if match is not None:
            return check(seen, *match.groups())
    return judge(expectation, seen.server)
