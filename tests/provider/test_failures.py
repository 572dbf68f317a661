"""Failures: the kind from the error's identity, and a sentence that says what `retryable` does."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.provider.failures import (
    AGAIN,
    BY_CODE,
    BY_STATUS,
    KINDS,
    SAME_WAY,
    failure,
    from_error,
    retry_after_seconds,
)

FACTS = {"seconds": 21.5, "status": 500, "where": "h", "why": "w", "limit": 9}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_retryable_says_what_the_sentence_tells_the_person(kind: str) -> None:
    for made in (failure(kind, **FACTS), failure(kind), failure(kind, retry_after_seconds=3)):
        says_again = "Try again" in made.sentence
        assert made.retryable == says_again == (SAME_WAY not in made.sentence)
        assert made.sentence.endswith(".")
        assert "{" not in made.sentence
        assert made.sentence.count("silence") == (kind == "stall")


def test_only_these_kinds_are_retryable() -> None:
    assert {kind for kind, entry in KINDS.items() if entry.retryable} == {
        "first_token",
        "stall",
        "connection",
        "broken_stream",
        "overloaded",
        "server",
        "rate_limit",
    }


def test_a_measured_kind_names_the_measured_seconds_and_not_the_limit() -> None:
    made = failure("stall", seconds=21.4321)
    assert made.measured_seconds == 21.432
    assert "21.4 s of silence" in made.sentence
    assert AGAIN in made.sentence


ANTHROPIC = "anthropic"


def anthropic(kind: str, message: str = "") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def openai(code: str | None, kind: str, message: str = "") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def gemini(code: int, status: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, **more}}


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (anthropic("overloaded_error", "Overloaded"), 529, "overloaded"),
        (anthropic("overloaded_error", "Overloaded"), None, "overloaded"),
        (anthropic("overloaded_error", "Overloaded"), 200, "overloaded"),
        (anthropic("api_error", "Internal server error"), None, "server"),
        (anthropic("rate_limit_error"), 429, "rate_limit"),
        (anthropic("authentication_error", "invalid x-api-key"), 401, "credentials"),
        (anthropic("not_found_error", "model: x"), 404, "refused_request"),
        (anthropic("invalid_request_error", "messages.1: tool_use ids"), 400, "refused_request"),
        (anthropic("invalid_request_error", "prompt is too long: 9 tokens"), 400, "context"),
        (anthropic("invalid_request_error", "Your credit balance is too low"), 400, "quota"),
        (anthropic("invalid_request_error", "bad"), None, "refused_request"),
        (openai("insufficient_quota", "insufficient_quota"), 429, "quota"),
        (openai("rate_limit_exceeded", "tokens"), 429, "rate_limit"),
        (openai("context_length_exceeded", "invalid_request_error"), 400, "context"),
        (openai("invalid_api_key", "invalid_request_error"), 401, "credentials"),
        (openai(None, "invalid_request_error"), 401, "credentials"),
        (openai("model_not_found", "invalid_request_error"), 404, "refused_request"),
        (openai("content_policy_violation", "invalid_request_error"), 400, "policy"),
        (openai("server_error", "server_error"), None, "server"),
        ({"type": "error", "code": "server_error", "message": "x"}, None, "server"),
        (gemini(429, "RESOURCE_EXHAUSTED"), 429, "rate_limit"),
        (gemini(503, "UNAVAILABLE", "The model is overloaded."), 503, "overloaded"),
        (gemini(400, "INVALID_ARGUMENT", "API key not valid. Please pass"), 400, "credentials"),
        (gemini(400, "INVALID_ARGUMENT", "The input token count (9) exceeds"), 400, "context"),
        (gemini(400, "INVALID_ARGUMENT", "function call turn"), 400, "refused_request"),
        ([gemini(500, "INTERNAL")], 500, "server"),
        ("<html>Bad gateway</html>", 502, "server"),
        ("", 404, "refused_request"),
        (None, 422, "refused_request"),
        (None, 429, "rate_limit"),
        ({"error": "model overloaded"}, 503, "overloaded"),
        ({"error": 7}, None, "server"),
        ({}, 302, "unknown"),
        (anthropic("something_new", "?"), None, "server"),
    ],
)
def test_the_errors_identity_decides_before_its_status(body: Any, status: int | None, kind: str) -> None:
    made = from_error(body, status=status)
    assert made.kind == kind
    assert made.status == status


def test_every_code_and_status_leads_to_a_kind_of_the_table() -> None:
    assert set(BY_CODE.values()) | set(BY_STATUS.values()) <= set(KINDS)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "12"}, None, 12.0),
        ({"retry-after": "0.5"}, None, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, None, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, None, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, None, 0.0),
        ({"retry-after": "soon"}, None, None),
        ({"retry-after": "nan"}, None, None),
        ({"retry-after": "inf"}, None, None),
        ({"retry-after": "1e12"}, None, 86_400.0),
        ({}, gemini(429, "RESOURCE_EXHAUSTED", details=[{"retryDelay": "37s"}]), 37.0),
        ({}, {"error": {"details": "x"}}, None),
        ({}, None, None),
    ],
)
def test_the_wait_that_a_provider_asks_for_is_read_from_where_it_says_it(
    headers: dict[str, str], body: Any, seconds: float | None
) -> None:
    assert retry_after_seconds(headers, body, now=60.0) == seconds


def test_a_rate_limit_says_when_to_try_again() -> None:
    made = from_error(anthropic("rate_limit_error"), status=429, headers={"retry-after": "12"})
    assert made.retry_after_seconds == 12
    assert "Try again in 12 s" in made.sentence


def test_a_key_that_a_provider_repeats_is_not_repeated_by_us() -> None:
    said = "Incorrect API key provided: sk-proj-abcdEFGH1234. Bearer tok-123"
    made = from_error(openai("invalid_api_key", "x", said), status=401)
    assert "abcd" not in f"{made}"
    assert "tok-123" not in f"{made}"
