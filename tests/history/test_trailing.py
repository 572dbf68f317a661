"""Seed 000: the trailing unanswered twin is in the feed once; after an answer a repeat is a request of its own."""

from __future__ import annotations

from tests.history.say import assistant, call, picture, result, roles, tool, user
from turnkeeper.conversation.parts import Attachment
from turnkeeper.history.feed import APPENDED, DEDUPLICATED, build_feed

ASK = "Create the Jira issue."
SEVEN = (
    user("m1", "What can you do?"),
    assistant("m2", "Much."),
    user("m3", ASK),
    assistant("m4", call("c1", "jira", {"op": "create"})),
    tool("m5", result("c1", "not connected", is_error=True)),
    assistant("m6", "Jira is not connected."),
    assistant("m7", "Please connect it."),
)
"""The seed's recovered session of seven messages, which ends on the agent's own refusal."""


def test_a_verbatim_repeat_after_an_answer_reaches_the_model_again() -> None:
    feed = build_feed(SEVEN, incoming=user("m8", ASK))
    assert feed.incoming == APPENDED
    assert feed.messages[-1].text == ASK
    assert [m.text for m in feed.messages].count(ASK) == 2


def test_the_same_holds_when_the_repeat_is_already_in_the_history() -> None:
    feed = build_feed((*SEVEN, user("m8", ASK)))
    assert roles(feed)[-1] == "user"
    assert feed.messages[-1].text == ASK


def test_a_trailing_unanswered_twin_is_in_the_feed_once() -> None:
    feed = build_feed([user("m1", ASK, submission_id="s1")], incoming=user("m2", ASK, submission_id="s2"))
    assert feed.incoming == DEDUPLICATED
    assert picture(feed) == [("user", [ASK])]
    assert feed.asks


def test_the_twin_is_found_in_the_list_as_well_and_stays_once_when_the_answer_comes() -> None:
    twins = [user("m1", ASK), user("m2", ASK)]
    assert picture(build_feed(twins)) == [("user", [ASK])]
    answered = build_feed([*twins, assistant("m3", "Done."), user("m4", "Thanks.")])
    assert picture(answered) == [("user", [ASK]), ("assistant", ["Done."]), ("user", ["Thanks."])]


def test_a_twin_behind_a_failed_attempt_counts_as_unanswered() -> None:
    history = [user("m1", ASK), assistant("m2", "Half", replay=False, standing="errored")]
    feed = build_feed(history, incoming=user("m3", ASK))
    assert feed.incoming == DEDUPLICATED
    assert picture(feed) == [("user", [ASK])]


def test_another_text_is_appended_and_both_stand() -> None:
    feed = build_feed([user("m1", ASK)], incoming=user("m2", ASK + " Now."))
    assert feed.incoming == APPENDED
    assert picture(feed) == [("user", [ASK, ASK + " Now."])]


def test_the_same_text_with_another_attachment_is_another_request() -> None:
    one, two = Attachment("f1", sha256="aa"), Attachment("f2", sha256="bb")
    assert build_feed([user("m1", ASK, one)], incoming=user("m2", ASK, two)).incoming == APPENDED
    assert build_feed([user("m1", ASK, one)], incoming=user("m2", ASK)).incoming == APPENDED
    assert build_feed([user("m1", ASK, one)], incoming=user("m2", ASK, one)).incoming == DEDUPLICATED


def test_an_empty_history_takes_the_message() -> None:
    feed = build_feed([], incoming=user("m1", ASK))
    assert feed.incoming == APPENDED
    assert picture(feed) == [("user", [ASK])]


def test_a_redelivery_is_known_by_its_id_and_asks_nothing_once_it_was_answered() -> None:
    history = [user("m1", ASK, submission_id="s1"), assistant("m2", "Done.")]
    feed = build_feed(history, incoming=user("m3", ASK, submission_id="s1"))
    assert feed.incoming == DEDUPLICATED
    assert not feed.asks
    waiting = build_feed(history[:1], incoming=user("m3", ASK, submission_id="s1"))
    assert waiting.incoming == DEDUPLICATED
    assert waiting.asks
