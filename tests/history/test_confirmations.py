"""Stale consent never acts (G11): which texts confirm, when they are stale, and what stands in their place."""

from __future__ import annotations

from time import process_time

import pytest

from tests.history.say import assistant, picture, roles, user
from turnkeeper.conversation.parts import Attachment, Text
from turnkeeper.history.builder import FeedBuilder
from turnkeeper.history.confirmations import SCANNED_CHARS_MAX, find_confirmation, find_stale_confirmations
from turnkeeper.history.feed import build_feed
from turnkeeper.history.phrases import BUILT_IN, LANGUAGES
from turnkeeper.history.wording import EXPIRED_CONFIRMATION

CONFIRMS = {
    "English": (
        "confirm forced restart",
        "confirm forced reboot",
        "CONFIRM FORCED REBOOT",
        "Confirm Shutdown",
        "confirm reboot",
        "confirm power off",
        "yes, delete everything",
        "Yes - wipe it",
        "yes, delete it",
        "go ahead and reboot",
        "proceed with the shutdown",
        "confirm factory reset",
        "ok. I confirm the reboot now",
        "\uff43\uff4f\uff4e\uff46\uff49\uff52\uff4d reboot",
    ),
    "traditional Chinese": ("確認強制重開機", "確認強制重開", "確認重啟", "我確認要刪除全部"),
    "simplified Chinese": ("确认强制重启", "是的，删除全部", "确定格式化"),
    "Japanese": ("再起動を確認します", "確認：強制再起動", "はい、すべて削除してください"),
    "Korean": ("재부팅 확인", "확인: 전체 삭제", "네, 모두 삭제해 주세요"),
    "Spanish": ("confirmo el reinicio", "sí, borrar todo", "sí, bórralo", "CONFIRMO EL REINICIO"),
    "German": ("Ich bestätige den Neustart", "Neustart bestätigt", "ja, alles löschen", "ja, lösch es"),
    "French": ("je confirme le redémarrage", "oui, tout supprimer", "oui, supprime-le"),
    "Portuguese": ("confirmo a reinicialização", "sim, apagar tudo", "sim, apague"),
    "Russian": ("подтверждаю перезагрузку", "да, удалить всё", "да, удаляй"),
}
HARMLESS = (
    "",
    "yes",
    "hello",
    "please restart the host",
    "can you force a reboot?",
    "how do I confirm a shutdown?",
    "please confirm that the restart worked",
    "confirm whether the disk was wiped",
    "delete it?",
    "go ahead",
    "should I go ahead and reboot?",
    "how did the restart proceed",
    "the build restarts at noon",
    "不确定是否删除",
    "예를 들어 서버를 종료하면",
    "네트워크 재시작 로그를 보여줘",
    "si quieres borrar todo, dilo",
    "bestätigen, ob der Neustart lief",
)  # fmt: skip


@pytest.mark.parametrize("language", CONFIRMS)
def test_consent_is_found_in_each_language(language: str) -> None:
    for text in CONFIRMS[language]:
        assert find_confirmation(text) is not None, text


@pytest.mark.parametrize("text", HARMLESS)
def test_other_words_are_no_consent(text: str) -> None:
    assert find_confirmation(text) is None


def test_every_language_of_the_table_is_tested() -> None:
    assert {language.name for language in LANGUAGES} == set(CONFIRMS)


def test_a_user_can_add_phrases_of_their_own() -> None:
    patterns = BUILT_IN.with_phrases(["Ship   It"])
    assert find_confirmation("ok ship it now", patterns) == "Ship   It"
    assert find_confirmation("ok ship it now") is None


@pytest.mark.parametrize(
    ("age", "stale"),
    [(0.0, False), (59.9, False), (60.0, False), (60.1, True), (3600.0, True), (-1.0, False), (-60.1, True), (-1e5, True)],
)  # fmt: skip
def test_consent_is_stale_after_sixty_seconds_and_from_a_wrong_future(age: float, stale: bool) -> None:
    history = [user("m1", "confirm reboot", created_at=1_000_000.0)]
    found = find_stale_confirmations(history, 1_000_000.0 + age)
    assert [message_id for message_id, _ in found] == (["m1"] if stale else [])


def test_without_a_time_it_is_stale_once_an_answer_or_a_restart_lies_between() -> None:
    ask = user("m1", "confirm reboot")
    assert find_stale_confirmations([ask], 10.0) == ()
    assert find_stale_confirmations([ask], 10.0, restarted=True) != ()
    assert find_stale_confirmations([ask, assistant("m2", "OK, restarting.")], 10.0) != ()
    assert find_stale_confirmations([assistant("m0", "Sure?"), ask], 10.0) == ()


def test_only_the_user_can_consent_and_what_was_judged_is_not_judged_again() -> None:
    history = [
        assistant("m1", "Type exactly: confirm forced reboot", created_at=1.0),
        user("m2", "confirm forced reboot", created_at=2.0, seq=7),
    ]
    assert [m for m, _ in find_stale_confirmations(history, 1000.0)] == ["m2"]
    assert find_stale_confirmations(history, 1000.0, expired=frozenset({"m2"})) == ()
    assert find_stale_confirmations(history, 1000.0, after_seq=7) == ()


def test_parts_without_words_and_empty_messages_are_no_consent() -> None:
    history = [
        user("m1", Attachment("f1"), created_at=1.0),
        user("m2", created_at=1.0),
        user("m3", "", created_at=1.0),
        user("m4", Attachment("f1"), "confirm reboot", created_at=1.0),
    ]
    assert [m for m, _ in find_stale_confirmations(history, 1000.0)] == ["m4"]


INCIDENT = (
    user("m1", "please restart the host"),
    assistant("m2", "Confirm with: confirm forced reboot"),
    user("m3", "confirm forced reboot"),
    assistant("m4", "OK, restarting."),
    user("m5", "are you there?"),
)
"""The tail of seed 001: consent, an answer, and a harmless question after the host came back."""


def test_the_sentinel_stands_in_the_same_role_and_the_sides_still_alternate() -> None:
    feed = build_feed(INCIDENT, expired=frozenset({"m3"}))
    assert roles(feed) == ["user", "assistant", "user", "assistant", "user"]
    assert feed.messages[2].text == EXPIRED_CONFIRMATION
    assert "EXPIRED" in EXPIRED_CONFIRMATION
    assert "confirm forced reboot" not in "".join(m.text for m in feed.messages if m.role == "user")
    assert [c.message for c in feed.changes if c.rule == "expired_confirmation"] == ["m3"]


def test_fresh_consent_and_other_histories_are_untouched() -> None:
    feed = build_feed(INCIDENT)
    assert list(feed.messages) == list(INCIDENT)
    assert feed.changes == ()


def test_a_long_text_loses_only_the_sentence_that_consents() -> None:
    plan = (
        "Here is my plan. "
        + "Build the page, then test it. " * 20
        + "Yes, delete everything in tmp. Then ship."
    )
    feed = build_feed([user("m1", plan)], expired=frozenset({"m1"}))
    text = feed.messages[0].text
    assert "delete everything" not in text
    assert text.startswith("Here is my plan.")
    assert text.endswith("Then ship.")
    assert EXPIRED_CONFIRMATION in text


def test_a_message_whose_expiry_was_journaled_by_an_older_pattern_is_replaced_all_the_same() -> None:
    feed = build_feed([user("m1", "jawohl, weg damit", Attachment("f1"))], expired=frozenset({"m1"}))
    assert feed.messages[0].parts == (Text(EXPIRED_CONFIRMATION), Attachment("f1"))


def test_a_fresh_repeat_of_expired_consent_is_a_request_of_its_own() -> None:
    feed = build_feed(
        [user("m1", "confirm reboot")], incoming=user("m2", "confirm reboot"), expired=frozenset({"m1"})
    )
    assert feed.incoming == "appended"
    assert picture(feed) == [("user", [EXPIRED_CONFIRMATION, "confirm reboot"])]


def test_matching_takes_bounded_time_on_hostile_text() -> None:
    for unit in ("confirm ", "yes, ", "確認", "confirm the the ", "delete everything ", "a.b?c! "):
        text = unit * (SCANNED_CHARS_MAX * 4 // len(unit))
        begun = process_time()
        find_confirmation(text)
        assert process_time() - begun < 5.0


def test_a_confirmation_that_expires_after_a_feed_was_built_is_in_no_later_one() -> None:
    history = [user("u1", "restart it"), assistant("a1", "Confirm?"), user("u2", "confirm reboot")]
    builder = FeedBuilder(history)
    assert builder.feed().messages[-1].text == "confirm reboot"
    builder.expire(["u2"])
    assert EXPIRED_CONFIRMATION in builder.feed().messages[-1].text
    assert list(builder.feed().messages) == list(build_feed(history, expired=frozenset(["u2"])).messages)
