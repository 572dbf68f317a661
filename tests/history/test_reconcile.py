"""Reconcile: nothing lost, nothing doubled, order kept, done twice changes nothing (G15)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnkeeper.conversation.events import HistoryReconciled, MessageAppended, Noticed
from turnkeeper.conversation.messages import ASSISTANT, USER, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.history import reconcile as module
from turnkeeper.history.reconcile import (
    BY_EVIDENCE,
    BY_ID,
    BY_WORDS,
    JOINED,
    Ours,
    Reconciled,
    Theirs,
    align,
    bodies,
    normal,
    reconcile,
)
from turnkeeper.projection.order import in_order, placements, rooted


def ours(*rows: str) -> list[Ours]:
    """`u:text`, `a:text`, with `=id` behind for a known id."""
    out = []
    for number, row in enumerate(rows):
        role, _, rest = row.partition(":")
        text, _, name = rest.partition("=")
        out.append(Ours(f"m{number}", {"u": USER, "a": ASSISTANT}[role], text, (name,) if name else ()))
    return out


def theirs(*rows: str, ids: bool = True) -> list[Theirs]:
    out = []
    for number, row in enumerate(rows):
        role, _, rest = row.partition(":")
        text, _, name = rest.partition("=")
        out.append(Theirs((name or f"n{number}") if ids else None, {"u": USER, "a": ASSISTANT}[role], text))
    return out


def merged(result: Reconciled, mine: Sequence[Ours], other: Sequence[Theirs]) -> list[str]:
    rows = []
    for our, their in result.order:
        row = mine[our] if our is not None else other[their or 0]
        rows.append(f"{row.role[0]}:{row.text}")
    return rows


def check(mine: list[Ours], other: list[Theirs]) -> list[str]:
    result = reconcile(mine, other)
    hold(result, mine, other)
    return merged(result, mine, other)


def hold(result: Reconciled, mine: Sequence[Ours], other: Sequence[Theirs]) -> None:
    """What is true of every merge."""
    our_rows = [our for our, _ in result.order if our is not None]
    assert our_rows == list(range(len(mine))), "ours whole and in our order"
    paired = {pair.theirs for pair in result.pairs}
    added = [their for our, their in result.order if our is None]
    assert added == list(result.added)
    assert sorted([*paired, *result.added]) == list(range(len(other))), "theirs whole, each once"
    assert added == sorted(added), "theirs in their order"
    for pair in result.pairs:
        if pair.how == BY_WORDS:
            assert normal(mine[pair.ours].text) == normal(other[pair.theirs].text)
            assert mine[pair.ours].role == other[pair.theirs].role


def applied(result: Reconciled, mine: Sequence[Ours], other: Sequence[Theirs]) -> list[Ours]:
    """Our history after the events of `result`, through messages and placements as the store keeps them."""
    messages = [
        Message(message_id=row.message_id, role=row.role, parts=(Text(row.text),), seq=at + 1)
        for at, row in enumerate(mine)
    ]

    def make(number: int) -> Message:
        row = other[number]
        return Message(
            message_id=f"new:{row.native_id or number}",
            role=row.role,
            parts=(Text(row.text),),
            native_id=row.native_id,
        )

    journal = bodies(result, mine, other, make, transcript="t")
    links: dict[str, list[str]] = {row.message_id: list(row.native_ids) for row in mine}
    seq = len(mine)
    for body in journal:
        seq += 1
        if isinstance(body, MessageAppended):
            message = body.message
            messages.append(
                Message(
                    message_id=message.message_id,
                    role=message.role,
                    parts=message.parts,
                    seq=seq,
                    after=message.after,
                    native_id=message.native_id,
                )
            )
            links[message.message_id] = [message.native_id] if message.native_id else []
        elif isinstance(body, HistoryReconciled):
            for native_id, message_id, _ in body.matches:
                links[message_id].append(native_id)
    return [Ours(m.message_id, m.role, m.text, tuple(links[m.message_id])) for m in in_order(messages)]


# -- the seed's tests, by behaviour


def test_a_reply_that_came_before_the_second_prompt_goes_between_them() -> None:
    assert check(ours("u:u1", "u:u2"), theirs("u:u1", "a:a1", "u:u2", "a:a2")) == [
        "u:u1",
        "a:a1",
        "u:u2",
        "a:a2",
    ]


def test_identical_prompts_with_an_older_stored_only_prefix() -> None:
    mine = ours("u:continue", "a:Part 1.", "u:continue", "a:Part 2.", "u:continue", "a:Part 3.", "u:continue")
    other = theirs("u:continue", "a:Part 3.", "u:continue", "a:Part 4.", "u:stop", "a:Stopped.")
    assert check(mine, other) == [
        "u:continue",
        "a:Part 1.",
        "u:continue",
        "a:Part 2.",
        "u:continue",
        "a:Part 3.",
        "u:continue",
        "a:Part 4.",
        "u:stop",
        "a:Stopped.",
    ]


def test_the_boundary_that_a_queued_prompt_makes() -> None:
    mine = ours("u:start", "a:one", "a:two")
    other = theirs("u:start", "a:one", "u:is the tab used?", "a:two")
    assert check(mine, other) == ["u:start", "a:one", "u:is the tab used?", "a:two"]


def test_the_tie_between_two_prompts_and_two_replies() -> None:
    mine = ours("u:you", "u:you", "a:reply")
    other = theirs("u:you", "a:reply", "u:you", "a:reply")
    assert check(mine, other) == ["u:you", "a:reply", "u:you", "a:reply"]
    assert check(ours("u:you", "a:reply", "u:you", "a:reply"), theirs("u:you", "u:you", "a:reply")) == [
        "u:you",
        "a:reply",
        "u:you",
        "a:reply",
    ]


def test_a_frozen_snapshot_gets_the_155_entries_behind_it() -> None:
    dialogue = [f"{'ua'[n % 2]}:row {n}" for n in range(752 + 155)]
    mine = ours(*dialogue[:752])
    result = reconcile(mine, theirs(*dialogue))
    assert len(result.added) == 155
    assert check(mine, theirs(*dialogue)) == dialogue


def test_no_time_is_known_here_at_all() -> None:
    assert not {
        name
        for name in (*Ours.__struct_fields__, *Theirs.__struct_fields__)
        if "at" in name.split("_") or "time" in name
    }


# -- identity


def test_ids_come_before_words() -> None:
    mine = ours("u:yes=y2", "a:ok")
    other = theirs("u:yes=y1", "a:ok=o1", "u:yes=y2", "a:ok=o2")
    result = reconcile(mine, other)
    assert [(p.ours, p.theirs, p.how) for p in result.pairs] == [(0, 2, BY_ID), (1, 3, BY_WORDS)]
    assert merged(result, mine, other) == ["u:yes", "a:ok", "u:yes", "a:ok"]


def test_the_evidence_of_a_delivery_is_identity() -> None:
    mine = ours("u:yes", "u:yes")
    other = theirs("u:yes=y1", "u:yes=y2", "u:yes=y3")
    result = reconcile(mine, other, evidence={"y3": "m1", "y1": "m0"})
    assert [(p.ours, p.theirs, p.how) for p in result.pairs] == [(0, 0, BY_EVIDENCE), (1, 2, BY_EVIDENCE)]
    assert result.ambiguous == 0


def test_a_row_is_known_by_its_aliases_too() -> None:
    result = reconcile(ours("u:a=old"), [Theirs("new", USER, "a (as the CLI shows it)", ("old",))])
    assert [p.how for p in result.pairs] == [BY_ID]


def test_words_never_pair_a_row_that_is_known_to_be_another() -> None:
    mine = ours("u:yes=elsewhere")
    assert check(mine, theirs("u:yes=here")) == ["u:yes", "u:yes"]


def test_identical_rows_in_another_order_keep_ours_and_are_noticed() -> None:
    mine, other = ours("u:a=1", "u:b=2", "u:c=3"), theirs("u:b=2", "u:a=1", "u:new=9", "u:c=3")
    result = reconcile(mine, other)
    hold(result, mine, other)
    assert result.crossings == 1
    assert merged(result, mine, other) == ["u:a", "u:b", "u:new", "u:c"]
    journal = bodies(result, mine, other, lambda _: Message(message_id="x", role=USER), transcript="t")
    assert [b.code for b in journal if isinstance(b, Noticed)] == ["history_order_differs"]


# -- joined


@pytest.mark.parametrize("between", ["\n", "\n\n", "", " \n "])
def test_prompts_that_the_cli_joined_are_one_row_of_theirs(between: str) -> None:
    mine = ours("u:queued alpha\nsecond row", "u:queued beta", "a:both")
    other = theirs(f"u:queued alpha\nsecond row{between}queued beta", "a:both")
    result = reconcile(mine, other)
    hold(result, mine, other)
    assert [p.how for p in result.pairs] == [JOINED, JOINED, BY_WORDS]
    assert result.joined == 2
    assert merged(result, mine, other) == ["u:queued alpha\nsecond row", "u:queued beta", "a:both"]
    again = applied(result, mine, other)
    assert reconcile(again, other).changes_nothing


def test_what_was_edited_after_it_was_joined_is_kept_beside() -> None:
    assert check(ours("u:a", "u:b"), theirs("u:a b and c")) == ["u:a", "u:b", "u:a b and c"]


# -- words


def test_texts_are_compared_as_clis_change_them() -> None:
    assert normal("\n\na\tb  \r\nc\r\n\n") == "a    b\nc"
    assert normal("a\x1b[31mb") == "a[31mb"
    assert normal("naïve \u2028 yes") == "naïve \u2028 yes"
    result = reconcile([Ours("m", USER, "  see\tthis\r\nnow ")], [Theirs("n", USER, "see    this\nnow")])
    assert [p.how for p in result.pairs] == [BY_WORDS]
    result = reconcile([Ours("m", USER, "see", pasted="Message:\nsee")], [Theirs("n", USER, "Message:\nsee")])
    assert [p.how for p in result.pairs] == [BY_WORDS]


def test_a_pair_that_could_be_another_is_marked() -> None:
    result = reconcile(ours("u:yes"), theirs("u:yes", "a:a", "u:yes"))
    assert result.ambiguous == 1
    result = reconcile(ours("u:yes", "u:yes"), theirs("u:yes", "a:a", "u:yes"))
    assert result.ambiguous == 0


WORDS = st.lists(st.sampled_from("abcd"), max_size=14)


def longest(a: Sequence[str], b: Sequence[str]) -> int:
    rows = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            rows[i + 1][j + 1] = rows[i][j] + 1 if x == y else max(rows[i][j + 1], rows[i + 1][j])
    return rows[-1][-1]


@given(WORDS, WORDS)
@settings(max_examples=300, deadline=None)
def test_both_alignments_are_longest_and_in_order(a: list[str], b: list[str]) -> None:
    for found in (module._exactly(a, b, 0, 0), module._by_edits(a, b, 0, 0)):
        pairs = sorted(found)
        assert len(pairs) == longest(a, b)
        assert all(a[x] == b[y] for x, y in pairs)
        assert all(p[0] < q[0] and p[1] < q[1] for p, q in pairwise(pairs))


@given(WORDS, WORDS)
@settings(max_examples=300, deadline=None)
@example(list("aaab"), list("baaa"))
def test_the_alignment_is_in_order_and_leaves_no_pair_between_its_pairs(a: list[str], b: list[str]) -> None:
    """It need not be the longest: a text that both have once says more than many that repeat."""
    pairs = align(a, b)
    assert all(a[x] == b[y] for x, y in pairs)
    assert all(p[0] < q[0] and p[1] < q[1] for p, q in pairwise(pairs))
    for (x, y), (x_end, y_end) in pairwise([(-1, -1), *pairs, (len(a), len(b))]):
        assert not set(a[x + 1 : x_end]) & set(b[y + 1 : y_end])


@pytest.mark.parametrize("size", [1, 64, 65, 700])
def test_long_repetitions_are_aligned_within_their_bounds(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the three ways: exactly, by edits, and by reach when there are too many edits."""
    monkeypatch.setattr(module, "CELLS_MAX", 4000)
    monkeypatch.setattr(module, "EDITS_MAX", 40)
    a = ["yes", "ok", "go"] * size
    b = a[: len(a) // 2] + ["no"] * min(size, 50) + a[len(a) // 2 :]
    pairs = align(a, b)
    assert all(a[x] == b[y] for x, y in pairs)
    assert len(pairs) >= len(a) * 0.9


def test_what_differs_too_much_is_kept_twice_rather_than_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CELLS_MAX", 1)
    monkeypatch.setattr(module, "EDITS_MAX", 0)
    mine, other = ours("u:a", "u:b", "u:a", "u:b"), theirs("u:b", "u:a", "u:b", "u:b", "u:a")
    check(mine, other)


# -- perturbed copies of one dialogue

TEXTS = st.sampled_from(["yes", "continue", "ok"]) | st.integers(0, 10_000).map(lambda n: f"text {n}")


@st.composite
def copies(draw: st.DrawFn) -> tuple[list[tuple[int, str, str]], list[Ours], list[Theirs], float]:
    """One dialogue, and two accounts of it that lack rows; with ids on none, some or all of ours."""
    texts = draw(st.lists(TEXTS, max_size=24))
    share = draw(st.sampled_from([0.0, 0.5, 1.0]))
    full = [(n, USER if n % 2 == 0 else ASSISTANT, text) for n, text in enumerate(texts)]
    mine, other = [], []
    for n, role, text in full:
        known = share == 1.0 or (share == 0.5 and draw(st.booleans()))
        here, there = draw(st.sampled_from([(True, True)] * 8 + [(True, False), (False, True)]))
        if here:
            mine.append(Ours(f"m{n}", role, text, (f"n{n}",) if known else ()))
        if there:
            other.append(Theirs(f"n{n}", role, text))
    return full, mine, other, share


@given(copies())
@settings(max_examples=400, deadline=None)
def test_perturbed_copies_lose_and_double_nothing_and_keep_order(
    case: tuple[list[tuple[int, str, str]], list[Ours], list[Theirs], float],
) -> None:
    _, mine, other, share = case
    result = reconcile(mine, other)
    hold(result, mine, other)
    rows = merged(result, mine, other)
    assert Counter(rows) >= Counter(f"{row.role[0]}:{row.text}" for row in mine)
    assert Counter(rows) >= Counter(f"{row.role[0]}:{row.text}" for row in other)
    if share == 1.0:
        # Ids tell all: exactly the dialogue's rows that one of the two has, each once.
        there = {row.native_id for row in other} | {row.native_ids[0] for row in mine}
        assert len(rows) == len(there)
        assert result.ambiguous == 0
        identities = [
            mine[o].native_ids[0] if o is not None else other[t or 0].native_id for o, t in result.order
        ]
        assert len(set(identities)) == len(identities)
    for pair in result.pairs:
        if pair.how == BY_WORDS and not pair.ambiguous and share == 0.0:
            assert mine[pair.ours].text == other[pair.theirs].text


@given(copies())
@settings(max_examples=300, deadline=None)
def test_done_twice_changes_nothing(
    case: tuple[list[tuple[int, str, str]], list[Ours], list[Theirs], float],
) -> None:
    _, mine, other, _ = case
    result = reconcile(mine, other)
    once = applied(result, mine, other)
    assert [f"{row.role[0]}:{row.text}" for row in once] == merged(result, mine, other)
    again = reconcile(once, other)
    assert again.changes_nothing
    assert bodies(again, once, other, lambda _: Message(message_id="x", role=USER), transcript="t") == ()


@given(copies())
@settings(max_examples=150, deadline=None)
def test_done_twice_changes_nothing_where_their_rows_have_no_ids(
    case: tuple[list[tuple[int, str, str]], list[Ours], list[Theirs], float],
) -> None:
    """The oldest transcripts: what was added is found again by its words."""
    _, mine, other, _ = case
    mine = [Ours(row.message_id, row.role, row.text) for row in mine]
    other = [Theirs(None, row.role, row.text) for row in other]
    once = applied(reconcile(mine, other), mine, other)
    assert reconcile(once, other).changes_nothing


@given(copies(), st.integers(0, 24))
@settings(max_examples=200, deadline=None)
def test_reconciling_as_rows_come_is_reconciling_at_once_where_ids_tell(
    case: tuple[list[tuple[int, str, str]], list[Ours], list[Theirs], float], cut: int
) -> None:
    """The rows of a running turn come a few at a time; the end is the same dialogue."""
    _, mine, other, share = case
    if share != 1.0:
        return
    partly = applied(reconcile(mine, other[:cut]), mine, other[:cut])
    whole = reconcile(partly, other)
    hold(whole, partly, other)
    assert Counter(merged(whole, partly, other)) == Counter(merged(reconcile(mine, other), mine, other))


def test_late_rows_of_ours_stay_where_they_are() -> None:
    mine = ours("u:one", "a:1.", "u:failed before it reached the CLI", "u:two")
    assert check(mine, theirs("u:one", "a:1.", "u:two", "a:2.")) == [
        "u:one",
        "a:1.",
        "u:failed before it reached the CLI",
        "u:two",
        "a:2.",
    ]


# -- what is journaled, and the order of history


def test_rows_at_the_end_need_no_place_and_rows_between_name_theirs() -> None:
    mine, other = ours("u:u1", "u:u2"), theirs("u:u1", "a:a1", "u:u2", "a:a2")
    result = reconcile(mine, other)
    journal = bodies(
        result, mine, other, lambda n: Message(message_id=f"x{n}", role=ASSISTANT), transcript="c:1"
    )
    first, second, event = journal
    assert isinstance(first, MessageAppended)
    assert isinstance(second, MessageAppended)
    assert isinstance(event, HistoryReconciled)
    assert (first.message.after, second.message.after) == ("m0", None)
    assert event.placements == (("n1", "x1", "m0"), ("n3", "x3", "m1"))
    assert event.matches == (("n0", "m0", BY_WORDS), ("n2", "m1", BY_WORDS))
    assert (event.matched, event.transcript) == (2, "c:1")


def message(seq: int, name: str, after: str | None = None) -> Message:
    return Message(message_id=name, role=USER, seq=seq, after=after)


def names(messages: Sequence[Message]) -> str:
    return "".join([each.message_id for each in messages])


def test_placed_rows_stand_behind_the_rows_that_they_name() -> None:
    rows = [
        message(1, "a"),
        message(2, "b"),
        message(3, "x", "a"),
        message(4, "y", "x"),
        message(5, "c"),
        message(6, "z", "a"),
    ]
    assert names(in_order(rows)) == "azxybc"
    assert names(in_order(reversed(rows))) == "azxybc"


def test_a_row_can_stand_before_all_others_and_one_without_anchor_stands_by_its_seq() -> None:
    rows = [
        message(1, "a"),
        message(2, "x", ""),
        message(3, "b"),
        message(4, "y", "not here"),
        message(5, "c"),
    ]
    assert names(in_order(rows)) == "xabyc"
    assert names(in_order([message(1, "x", ""), message(2, "a")])) == "xa"
    assert names(in_order([message(1, "x", "x"), message(2, "a")])) == "xa"


def test_what_follows_a_row_that_was_placed_last_follows_it() -> None:
    assert names(in_order([message(1, "a"), message(2, "x", "a"), message(3, "b")])) == "axb"


def test_places_can_be_handed_in() -> None:
    rows = [message(1, "a"), message(2, "b"), message(3, "x")]
    assert names(in_order(rows, {"x": "a"})) == "axb"
    assert names(in_order(rows, {"x": None})) == "xab"
    assert placements([]) == {}


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=14))
@settings(max_examples=200, deadline=None)
def test_ordering_keeps_every_row_once_and_unplaced_rows_in_order(rows: list[tuple[int, bool]]) -> None:
    messages = [
        message(seq, f"r{seq}.", f"r{anchor}." if placed else None)
        for seq, (anchor, placed) in enumerate(rows, 1)
    ]
    ordered = in_order(messages)
    assert sorted(each.seq for each in ordered) == list(range(1, len(rows) + 1))
    natural = [each.seq for each in ordered if each.after is None]
    assert natural == sorted(natural)
    at = {each.message_id: number for number, each in enumerate(ordered)}
    for each in messages:
        if each.after in at and int(each.after[1:-1]) < each.seq:
            assert at[each.after] < at[each.message_id]


def test_a_window_holds_the_placed_rows_of_its_own_rows() -> None:
    page = [message(5, "e"), message(6, "f")]
    placed = [message(7, "x", "a"), message(8, "y", "e"), message(9, "z", "y"), message(10, "w", "")]
    assert names(rooted(placed, page, beginning=False)) == "yz"
    assert names(rooted(placed, page, beginning=True)) == "yzw"


def test_the_merge_stays_near_linear_whatever_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work, not time: how many cells and edit steps are looked at, per row, must not grow with the lists."""
    cells = Counter[str]()
    exactly, by_edits = module._exactly, module._by_edits

    def count_exactly(a: Sequence[str], b: Sequence[str], x: int, y: int) -> list[tuple[int, int]]:
        cells["cells"] += len(a) * len(b)
        return exactly(a, b, x, y)

    def count_edits(a: Sequence[str], b: Sequence[str], x: int, y: int) -> list[tuple[int, int]]:
        cells["edits"] += 1
        return by_edits(a, b, x, y)

    monkeypatch.setattr(module, "_exactly", count_exactly)
    monkeypatch.setattr(module, "_by_edits", count_edits)

    found = []
    for size in (2000, 4000, 8000):
        chance = random.Random(1)
        rows = [
            chance.choice(["yes", "ok", "go"]) if chance.random() < 0.85 else f"text {n}" for n in range(size)
        ]
        mine = [Ours(f"m{n}", USER, text) for n, text in enumerate(rows) if chance.random() > 0.1]
        other = [Theirs(f"n{n}", USER, text) for n, text in enumerate(rows) if chance.random() > 0.05]
        cells.clear()
        reconcile(mine, other)
        assert cells["edits"] <= size / 1000
        found.append(cells["cells"] / size)
    assert found[-1] < 3 * found[0]
