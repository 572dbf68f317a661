"""The rules one by one, on the smallest history that shows each."""

from __future__ import annotations

import msgspec
import pytest

from tests.history.say import assistant, call, picture, result, roles, tool, user
from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Attachment, Opaque, Text, Thinking, ToolCall, ToolResult
from turnkeeper.conversation.turns import Effect
from turnkeeper.history import wording
from turnkeeper.history.feed import Compaction, Feed, FeedOptions, OpenCall, build_feed, find_last_request
from turnkeeper.history.pairing import is_interrupted
from turnkeeper.history.row import Row, Run
from turnkeeper.history.rules import PASSES_MAX, RULES, settle
from turnkeeper.history.shape import SUMMARY

ASK = user("m1", "go")
UNKNOWN = wording.synthetic_result("act", Effect.ACTS, None)[0]


def rules_of(feed: Feed, message_id: str) -> list[str]:
    return [c.rule for c in feed.changes if c.message == message_id]


# --- healthy histories


HEALTHY = (
    user("m1", "look"),
    assistant(
        "m2",
        Thinking("hm", signature="s"),
        "I will.",
        call("c1"),
        call("c2"),
        origin=Origin("anthropic", "m"),
    ),
    tool("m3", result("c1", "one"), result("c2", "two")),
    assistant("m4", call("c3")),
    tool("m5", result("c3", {"rows": [1, 2]})),
)


def test_a_healthy_sequence_in_mid_progress_stays_as_it_is() -> None:
    feed = build_feed(HEALTHY)
    assert [a is b for a, b in zip(feed.messages, HEALTHY, strict=True)] == [True] * 5
    assert feed.changes == ()


def test_a_rule_that_has_nothing_to_do_gives_the_very_same_list() -> None:
    rows = [Row(message, (message.message_id,)) for message in HEALTHY]
    for rule in RULES:
        assert rule(rows, Run()) is rows, rule.__name__


def test_every_rule_says_where_it_comes_from() -> None:
    for rule in RULES:
        said = rule.__doc__ or ""
        assert any(sign in said for sign in ("seed", "wire rule", "(A", "(B", "github.com", "(G")), (
            rule.__name__
        )


# --- attempts


@pytest.mark.parametrize("standing", ["superseded", "errored", "leaked", "interrupted"])
def test_an_attempt_that_came_to_nothing_is_not_fed(standing: str) -> None:
    feed = build_feed([ASK, assistant("m2", "Half of the ans", standing=standing, replay=False)])
    assert picture(feed) == [("user", ["go"])]
    assert rules_of(feed, "m2") == ["attempts_aside"]


def test_an_executed_call_of_a_failed_attempt_stays_with_its_result_and_without_the_words() -> None:
    history = [
        ASK,
        assistant("m2", Thinking("so"), "Half", call("c1"), call("c2"), standing="errored", replay=False),
        tool("m3", result("c1", "done")),
    ]
    assert picture(build_feed(history)) == [
        ("user", ["go"]),
        ("assistant", ["act(c1)"]),
        ("tool", ["c1 -> done"]),
    ]


def test_a_call_of_an_interrupted_message_may_have_run() -> None:
    history = [ASK, assistant("m2", "Let me.", call("c1"), standing="interrupted", replay=False)]
    assert picture(build_feed(history)) == [
        ("user", ["go"]),
        ("assistant", ["Let me.", "act(c1)"]),
        ("tool", [f"c1 -> {UNKNOWN}"]),
    ]


# --- calls and results


def test_a_call_without_a_result_gets_one_that_says_unknown() -> None:
    feed = build_feed([ASK, assistant("m2", call("c1"))], incoming=user("m3", "news?"))
    part = feed.messages[2].parts[0]
    assert isinstance(part, ToolResult)
    assert (part.is_error, part.synthetic, part.disposition) == (True, True, "unknown")
    assert "Outcome unknown, inspect before repeating" in str(part.content)
    assert "`act`" in str(part.content)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (OpenCall("waiting", "the approval of ann"), "Not run: waits for the approval of ann"),
        (OpenCall("refused", "by ann"), "was refused by ann"),
        (OpenCall("approved"), "was approved and runs next"),
        (OpenCall("not_started"), "was never started"),
        (OpenCall("unknown"), "Outcome unknown"),
    ],
)
def test_what_the_ledger_knows_of_an_open_call_is_said(known: OpenCall, words: str) -> None:
    options = FeedOptions(open_calls={"c1": known})
    feed = build_feed([ASK, assistant("m2", call("c1"))], options=options)
    assert words in picture(feed)[2][1][0]


def test_a_block_of_read_only_calls_without_any_answer_is_left_out_whole() -> None:
    history = [ASK, assistant("m2", "Looking.", call("c1", "read_file")), user("m3", "well?")]
    assert picture(build_feed(history)) == [("user", ["go", "well?"])]


def test_as_soon_as_one_sibling_was_answered_the_block_stays() -> None:
    history = [
        ASK,
        assistant("m2", call("c1", "read_file"), call("c2", "read_file")),
        tool("m3", result("c2", "text")),
    ]
    feed = build_feed(history)
    assert roles(feed) == ["user", "assistant", "tool"]
    assert picture(feed)[2][1][1] == "c2 -> text"


def test_declared_effects_decide_before_names_do() -> None:
    history = [ASK, assistant("m2", call("c1", "lookup"))]
    assert roles(build_feed(history)) == ["user", "assistant", "tool"]
    assert roles(build_feed(history, options=FeedOptions(effects={"lookup": Effect.READ_ONLY}))) == ["user"]
    acting = [ASK, assistant("m2", call("c1", "read_file"))]
    assert roles(build_feed(acting, options=FeedOptions(effects={"read_file": Effect.ACTS}))) == [
        "user",
        "assistant",
        "tool",
    ]


def test_a_read_only_call_that_waits_for_a_person_is_not_left_out() -> None:
    options = FeedOptions(open_calls={"c1": OpenCall("waiting", "a yes")})
    assert roles(build_feed([ASK, assistant("m2", call("c1", "read_file"))], options=options)) == [
        "user",
        "assistant",
        "tool",
    ]


def test_a_result_after_a_steer_moves_to_its_call() -> None:
    history = [ASK, assistant("m2", call("c1")), user("m3", "steer"), tool("m4", result("c1", "x"))]
    feed = build_feed(history)
    assert roles(feed) == ["user", "assistant", "tool", "user"]
    assert [c.action for c in feed.changes if c.message == "m4"] == ["moved"]


def test_a_result_that_stands_before_its_call_moves_behind_it() -> None:
    history = [ASK, tool("m2", result("c1", "x")), assistant("m3", call("c1"))]
    assert picture(build_feed(history))[1:] == [("assistant", ["act(c1)"]), ("tool", ["c1 -> x"])]


def test_a_result_between_two_rows_of_one_answer_finds_its_call() -> None:
    history = [
        ASK,
        assistant("m2", call("c1"), call("c2")),
        tool("m3", result("c1", "1")),
        assistant("m4", "Both are done."),
        tool("m5", result("c2", "2")),
    ]
    assert picture(build_feed(history))[1:4] == [
        ("assistant", ["act(c1)", "act(c2)"]),
        ("tool", ["c1 -> 1", "c2 -> 2"]),
        ("assistant", ["Both are done."]),
    ]


def test_a_real_result_takes_the_place_of_a_synthetic_one_while_nobody_read_it() -> None:
    history = [
        ASK,
        assistant("m2", call("c1")),
        tool("m3", result("c1", "restarted", synthetic=True, is_error=True)),
        tool("m4", result("c1", "done")),
    ]
    assert picture(build_feed(history))[2] == ("tool", ["c1 -> done"])


def test_a_late_real_result_becomes_a_notice_where_it_came_in() -> None:
    closed = result("c1", "unknown", synthetic=True, is_error=True)
    history = [
        ASK,
        assistant("m2", call("c1", "spawn")),
        tool("m3", closed),
        assistant("m4", "I do it myself."),
        user("m5", "ok"),
        tool("m6", result("c1", "session 9")),
    ]
    feed = build_feed(history)
    assert picture(feed)[2] == ("tool", ["c1 -> unknown"])
    assert feed.messages[-1].role == "user"
    assert "session 9" in feed.messages[-1].text
    assert "`spawn`" in feed.messages[-1].text
    assert sum(isinstance(p, ToolResult) for m in feed.messages for p in m.parts) == 1


def test_the_outcome_of_a_parked_call_enters_at_the_end_after_other_turns() -> None:
    waits = result("c1", "Not run: waits for a yes", synthetic=True, disposition="waiting")
    history = [
        user("m1", "delete", turn_id="t1"),
        assistant("m2", call("c1", "rm"), turn_id="t1", round=1),
        tool("m3", waits, turn_id="t1"),
        user("m4", "what time is it?", turn_id="t2"),
        assistant("m5", "Noon.", turn_id="t2", round=1),
        tool("m6", result("c1", "deleted"), turn_id="t1"),
    ]
    feed = build_feed(history)
    assert roles(feed) == ["user", "assistant", "tool", "user", "assistant", "user"]
    assert "waits" in picture(feed)[2][1][0]
    assert "deleted" in feed.messages[-1].text


def test_a_second_copy_of_the_same_result_says_nothing_new() -> None:
    history = [
        ASK,
        assistant("m2", call("c1")),
        tool("m3", result("c1", "x")),
        assistant("m4", "ok"),
        tool("m5", result("c1", "x")),
    ]
    assert roles(build_feed(history)) == ["user", "assistant", "tool", "assistant", "user"]
    assert "late" not in str(picture(build_feed(history)))


def test_orphans_go_and_leave_a_reason() -> None:
    feed = build_feed([tool("m1", result("gone", "x")), ASK])
    assert picture(feed) == [("user", ["go"])]
    assert rules_of(feed, "m1") == ["results_paired"]


def test_an_id_that_is_used_again_belongs_to_its_own_round() -> None:
    history = [
        ASK,
        assistant("m2", call("c", arguments={"e": "1+1"})),
        tool("m3", result("c", "2")),
        assistant("m4", call("c", arguments={"e": "2+2"})),
        tool("m5", result("c", "4")),
    ]
    assert list(build_feed(history).messages) == history


def test_empty_ids_pair_in_their_order() -> None:
    history = [
        ASK,
        assistant("m2", call("", "a"), call("", "b")),
        tool("m3", result("", "1")),
        tool("m4", result("", "2")),
    ]
    assert picture(build_feed(history))[1:] == [("assistant", ["a()", "b()"]), ("tool", [" -> 1", " -> 2"])]


def test_results_that_name_their_tool_pair_by_name() -> None:
    history = [
        ASK,
        assistant("m2", call("", "a"), call("", "b")),
        tool("m3", result("", "of b", name="b"), result("", "of a", name="a")),
    ]
    assert picture(build_feed(history))[2] == ("tool", [" -> of a", " -> of b"])


def test_a_call_that_arrived_twice_is_one_call() -> None:
    history = [ASK, assistant("m2", call("j1")), assistant("m3", call("j1")), tool("m4", result("j1", "ok"))]
    assert picture(build_feed(history))[1:] == [("assistant", ["act(j1)"]), ("tool", ["j1 -> ok"])]


def test_equal_calls_with_ids_of_their_own_are_two() -> None:
    history = [ASK, assistant("m2", call("a"), call("b")), tool("m3", result("a", "1"), result("b", "2"))]
    assert picture(build_feed(history))[1] == ("assistant", ["act(a)", "act(b)"])


def test_an_answer_to_a_later_request_does_not_join_the_open_call_before_it() -> None:
    history = [
        ASK,
        assistant("m2", call("c1"), turn_id="t1", round=1),
        assistant("m3", "Done.", turn_id="t1", round=2),
    ]
    assert roles(build_feed(history)) == ["user", "assistant", "tool", "assistant", "user"]


# --- interruptions


@pytest.mark.parametrize(
    "content",
    [
        "[command interrupted]",
        "partial output\n[command interrupted]",
        '{"output": "x", "exit_code": 130, "error": "interrupted"}',
        '{"exit_code": -1, "status": "Interrupted by the user"}',
        '{"exitCode": "130", "interrupted": true}',
        {"exit_code": 130, "interrupted": True},
        [{"type": "text", "text": "[Request interrupted by user for tool use]"}],
        "Exit code 130\n[interrupted by signal]",
    ],
)
def test_an_interruption_is_known_by_its_structure(content: object) -> None:
    assert is_interrupted(ToolResult("c", content))


@pytest.mark.parametrize(
    "content",
    [
        "",
        None,
        42,
        [],
        "exit_code: 1305 interrupt",
        '{"exit_code": 1305, "note": "interrupt"}',
        '{"exit_code": 130}',
        '{"exit_code": 0, "error": "interrupted"}',
        "the docs say: [command interrupted] means that, and exit_code 130 too; see interrupts",
        {"exit_code": 1, "error": "interrupted"},
        [{"type": "text", "text": "a"}, {"type": "text", "text": "exit 130"}],
        {"interrupted": True},
    ],
)
def test_a_number_or_a_word_is_no_interruption(content: object) -> None:
    assert not is_interrupted(ToolResult("c", content))


def test_an_interrupted_call_may_have_acted_and_its_output_is_kept() -> None:
    history = [
        ASK,
        assistant("m2", call("c1", "deploy")),
        tool("m3", result("c1", "step 1 ok\n[command interrupted]")),
    ]
    text = picture(build_feed(history))[2][1][0]
    assert "Outcome unknown, inspect before repeating" in text
    assert "step 1 ok" in text


def test_an_interrupted_lookup_is_left_out_also_in_the_middle() -> None:
    history = [
        ASK,
        assistant("m2", call("c1", "read_file")),
        tool("m3", result("c1", "[command interrupted]")),
        user("m4", "again"),
        assistant("m5", "Here."),
        user("m6", "thanks"),
    ]
    assert picture(build_feed(history))[0] == ("user", ["go", "again"])


# --- values


@pytest.mark.parametrize(
    ("arguments", "raw", "wire"),
    [
        (None, None, {}),
        ([], None, {}),
        ("text", None, {}),
        ('{"a": 1}', None, {"a": 1}),
        (None, '{"a": 2}', {"a": 2}),
        (None, '{"path":"a.md","text":"# cut', {}),
        ({"a": 1}, '{"b": 2}', {"a": 1}),
        (7, None, {}),
    ],
)
def test_arguments_are_an_object(arguments: object, raw: str | None, wire: object) -> None:
    history = [
        ASK,
        assistant("m2", ToolCall("c1", "act", arguments, arguments_raw=raw)),
        tool("m3", result("c1", "x")),
    ]
    part = build_feed(history).messages[1].parts[0]
    assert isinstance(part, ToolCall)
    assert part.arguments == wire


def test_arguments_without_a_bottom_are_broken_ones() -> None:
    deep: dict[str, object] = {}
    inner = deep
    for _ in range(5000):
        inner["k"] = {}
        inner = inner["k"]  # type: ignore[assignment]
    circular: dict[str, object] = {}
    circular["a"] = circular["b"] = circular
    for arguments in (deep, circular):
        history = [ASK, assistant("m2", call("c1", arguments=arguments)), tool("m3", result("c1", arguments))]
        feed = build_feed(history)
        assert feed.messages[1].parts[0].arguments == {}  # type: ignore[union-attr]
        assert feed.messages[2].parts[0].content == wording.TOO_DEEP  # type: ignore[union-attr]


def test_characters_that_no_request_can_carry_are_replaced() -> None:
    history = [
        user("m1", "a\0b \ud83d c \ud83d\ude00"),
        assistant("m2", call("c\ud800", "n\0", {"\udc00": ["\0"]})),
        tool("m3", result("c\ud800", {"k": "\udc00"})),
    ]
    feed = build_feed(history)
    msgspec.json.encode([msgspec.to_builtins(m) for m in feed.messages])
    assert feed.messages[0].text == "a\ufffdb \ufffd c \U0001f600"
    assert rules_of(feed, "m1") == ["well_formed_text"]


def test_a_call_without_a_name_has_one() -> None:
    history = [
        ASK,
        assistant("m2", call("c1", "")),
        tool("m3", result("c1", "Tool not found", is_error=True)),
    ]
    assert picture(build_feed(history))[1] == ("assistant", ["unnamed_tool(c1)"])


# --- shape


def test_an_empty_message_of_the_user_is_a_visible_word_and_one_of_the_assistant_goes() -> None:
    history = [
        user("m1", ""),
        assistant("m2", "What?"),
        user("m3", " \n"),
        assistant("m4"),
        assistant("m5", "Hm."),
    ]
    assert picture(build_feed(history))[:4] == [
        ("user", ["(empty message)"]),
        ("assistant", ["What?"]),
        ("user", ["(empty message)"]),
        ("assistant", ["Hm."]),
    ]


def test_reasoning_without_an_answer_goes_and_the_users_around_it_are_one() -> None:
    history = [ASK, assistant("m2", Thinking("only this", signature="s")), user("m3", "and?")]
    assert picture(build_feed(history)) == [("user", ["go", "and?"])]


@pytest.mark.parametrize("content", ["", " ", None, [], {}, [{"type": "text", "text": ""}]])
def test_an_empty_result_says_that_it_is_empty(content: object) -> None:
    history = [ASK, assistant("m2", call("c1")), tool("m3", result("c1", content))]
    assert picture(build_feed(history))[2] == ("tool", ["c1 -> (no output)"])


@pytest.mark.parametrize("content", [0, False, {"a": None}, [{"type": "image", "data": "x"}], "0"])
def test_a_result_that_looks_empty_but_is_not_stays(content: object) -> None:
    history = [ASK, assistant("m2", call("c1")), tool("m3", result("c1", content))]
    assert build_feed(history).messages[2].parts[0].content == content  # type: ignore[union-attr]


def test_words_after_a_call_stand_before_it_and_reasoning_between_calls_stays() -> None:
    thought = Thinking("then", signature="s")
    history = [
        ASK,
        assistant("m2", call("a"), "I check.", thought, call("b")),
        tool("m3", result("a", 1), result("b", 2)),
    ]
    assert picture(build_feed(history))[1] == ("assistant", ["I check.", "act(a)", "then", "act(b)"])


def test_a_history_that_begins_in_the_middle_is_opened_by_the_user() -> None:
    feed = build_feed([assistant("m1", "three files"), user("m2", "which?")])
    assert picture(feed)[0] == ("user", [wording.OPENING])
    assert feed.sources[0] == ()


def test_a_request_after_an_answer_says_continue_and_a_mere_cleaning_does_not() -> None:
    history = [ASK, assistant("m2", "Done. \n")]
    assert picture(build_feed(history))[-1] == ("user", ["Continue."])
    assert roles(build_feed(history, options=FeedOptions(for_request=False))) == ["user", "assistant"]


def test_instructions_in_the_middle_become_a_note_and_those_at_the_start_stay() -> None:
    history = [
        Message(message_id="s1", role="system", parts=(Text("Be kind."),)),
        ASK,
        assistant("m2", "Hi."),
        Message(message_id="s2", role="system", parts=(Text("Be brief."),)),
        user("m3", "and?"),
    ]
    assert picture(build_feed(history)) == [
        ("system", ["Be kind."]),
        ("user", ["go"]),
        ("assistant", ["Hi."]),
        ("user", ["[Note of the system] Be brief.", "and?"]),
    ]


def test_what_is_only_shown_is_left_out_and_a_notice_may_speak() -> None:
    history = [
        ASK,
        Message(message_id="e1", role="event", parts=(Text("403"),), replay=False),
        Message(message_id="e2", role="developer", parts=(Text("?"),)),
        Message(message_id="n1", role="notice", parts=(Text("The job of yesterday is done."),)),
        Message(message_id="n2", role="notice", parts=(Text("shown"),), replay=False),
    ]
    feed = build_feed(history)
    assert picture(feed) == [("user", ["go", "The job of yesterday is done."])]
    assert {c.message for c in feed.changes if c.rule == "display_only"} == {"e1", "e2", "n2"}


def test_only_the_newest_summary_is_fed_and_none_is_a_request() -> None:
    history = [
        user("m1", "[summary] fix the build", provenance=SUMMARY),
        assistant("m2", "working"),
        user("m3", "[summary] newer", provenance=SUMMARY),
    ]
    feed = build_feed(history)
    assert "fix the build" not in str(picture(feed))
    assert find_last_request(history) is None
    assert find_last_request([*history, ASK]) is ASK


def test_a_compaction_stands_for_what_it_covers_and_keeps_a_request_that_is_not_answered() -> None:
    history = [user("m1", "old"), assistant("m2", "old answer"), user("m3", "CURRENT: port the tests")]
    options = FeedOptions(compaction=Compaction("Sum of it.", "m3"))
    assert picture(build_feed(history, options=options)) == [
        ("user", ["Sum of it.", "CURRENT: port the tests"])
    ]
    answered = [*history, assistant("m4", "Ported."), user("m5", "thanks")]
    assert "CURRENT" not in str(picture(build_feed(answered, options=options)))


def test_parts_are_put_in_their_place() -> None:
    odd = Opaque("hologram", {"x": 1})
    history = [
        user("m1", "go", odd),
        assistant("m2", call("c1"), odd),
        user("m3", result("c1", "x"), "and now?", call("c9")),
        assistant("m4", "See", Attachment("f1", name="plot.png")),
        tool("m5", "stray words"),
    ]
    feed = build_feed(history)
    assert picture(feed)[:4] == [
        ("user", ["go"]),
        ("assistant", ["act(c1)"]),
        ("tool", ["c1 -> x"]),
        ("user", ["and now?"]),
    ]
    assert picture(feed)[4] == ("assistant", ["See", "[file plot.png]"])
    assert rules_of(feed, "m1") == rules_of(feed, "m2") == ["parts_in_place"]


def test_what_a_tool_gave_beside_its_result_joins_the_result() -> None:
    history = [
        ASK,
        assistant("m2", call("c1")),
        tool("m3", result("c1", "[image]"), Attachment("f1", media_type="image/png")),
    ]
    part = build_feed(history).messages[2].parts[0]
    assert isinstance(part, ToolResult)
    assert [piece["type"] for piece in part.content] == ["text", "attachment"]


def test_a_provider_s_own_call_goes_only_with_its_result() -> None:
    searched = ToolCall("w1", "web_search", {}, server_side=True)
    found = ToolResult("w1", "hits", server_side=True)
    bound = msgspec.structs.replace(found, block=msgspec.Raw(b'{"type":"web_search_tool_result"}'))
    assert picture(build_feed([ASK, assistant("m2", "Searching.", searched)]))[1] == (
        "assistant",
        ["Searching."],
    )
    assert roles(build_feed([ASK, assistant("m2", searched, found, "Found.")])) == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    kept = build_feed([ASK, assistant("m2", searched, bound, "Found."), user("m3", "ok")])
    assert kept.messages[1].parts == (searched, bound, Text("Found."))


def test_neighbours_of_other_origins_keep_the_seals_of_the_newer_one_only() -> None:
    old = assistant("m2", Thinking("a", signature="s1"), "one", origin=Origin("anthropic", "x"))
    new = assistant("m3", Thinking("b", signature="s2"), "two", origin=Origin("anthropic", "y"))
    merged = build_feed([ASK, old, new, user("m4", "ok")]).messages[1]
    assert merged.origin == Origin("anthropic", "y")
    assert picture(build_feed([ASK, old, new, user("m4", "ok")]))[1] == ("assistant", ["one", "b", "two"])


# --- the whole


def test_ten_thousand_calls_in_one_message_are_paired_in_linear_time() -> None:
    count = 10_000
    calls = tuple(call("", "act", {"i": i}) for i in range(count))
    results = tuple(result("", str(i)) for i in range(0, count, 2))
    feed = build_feed([ASK, assistant("m2", *calls), tool("m3", *results)])
    assert len(feed.messages[2].parts) == count


def test_the_rules_settle_within_few_passes() -> None:
    rows = [
        Row(m, (m.message_id,))
        for m in [assistant("m1"), tool("m2", result("x", "")), user("m3", "", call("c"))]
    ]
    settled = settle(rows, Run())
    assert settle(settled, Run()) is settled
    assert PASSES_MAX >= 4
