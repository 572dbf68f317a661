"""The masker: what is a secret, what only looks like one, and that the turn itself can still use it."""

from __future__ import annotations

import msgspec
import pytest

from turnkeeper.conversation.masking import SECRET_CHARS_MIN, Masker, reveal

SECRETS = [
    "sk-test-AAAABBBBCCCCDDDDEEEE",
    "sk-ant-api03-" + "a" * 90,
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1_" * 10,
    "xoxb-1234567890-abcdef",
    "AKIA" + "A1" * 8,
    "AIza" + "b" * 35,
    "eyJ" + "a" * 20 + ".eyJ" + "b" * 30 + "." + "c" * 43,
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/=\nabc\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_replaced_and_can_be_put_back(secret: str) -> None:
    data = msgspec.json.encode({"text": f"my key is {secret}, use it"})
    masked, found = Masker().mask(data)
    assert secret not in msgspec.json.decode(masked)["text"]
    assert "[secret:" in msgspec.json.decode(masked)["text"]
    assert reveal(masked, found) == data


@pytest.mark.parametrize(
    "text", ["the task-force-of-the-century-2026", "ask-me-anything-about-it-now", "sk-short", "gtk_widget"]
)
def test_what_only_looks_like_one_stays(text: str) -> None:
    data = msgspec.json.encode({"text": text})
    assert Masker().mask(data) == (data, {})


def test_configured_secrets_are_found_word_for_word_from_the_shortest_length_on() -> None:
    short, long = "x" * (SECRET_CHARS_MIN - 1), "y" * SECRET_CHARS_MIN
    masked, found = Masker(secrets=[short, long]).mask(f'{{"text":"{short} {long}"}}'.encode())
    assert short.encode() in masked
    assert long.encode() not in masked
    assert list(found.values()) == [long]


def test_further_patterns_are_the_users_own() -> None:
    masked, _ = Masker(patterns=[r"ACME-\d{6}"]).mask(b'{"text":"id ACME-123456"}')
    assert b"ACME-123456" not in masked


@pytest.mark.parametrize("before", ["\n", "\t", "\r\n", "key:\n\n", "\\n"])
def test_a_secret_that_begins_a_line_is_masked(before: str) -> None:
    secret = "sk-ant-api03-" + "x9" * 20
    masked, found = Masker().mask(msgspec.json.encode(f"{before}{secret}\nThank you"))
    assert list(found.values()) == [secret]
    assert secret not in msgspec.json.decode(masked)
