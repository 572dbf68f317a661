"""Why a model call failed, as a value made where the cause is still distinguishable (seed 003).

One table says for each kind whether the same call may be tried again, and its sentence says the same thing
to a person: "Try again" or "will fail the same way", never both. Kinds come from the error's identity (the
provider's own type and code) before its HTTP status: overload in mid-stream has no status, a 429 can be a
spent quota. Only a measured stall speaks of silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from turnkeeper.conversation.turns import Failure

DETAIL_CHARS_MAX: Final = 500
RETRY_AFTER_SECONDS_MAX: Final = 86_400.0

AGAIN: Final = "Try again."
SAME_WAY: Final = "A retry will fail the same way"


class Kind(msgspec.Struct, frozen=True):
    """One kind of failure. `text` may name {seconds}, {limit}, {where}, {status}, {why}."""

    retryable: bool
    text: str
    do: str
    """What the person can do; for a retryable kind what else, besides trying again."""


KINDS: Final[dict[str, Kind]] = {
    "first_token": Kind(True, "The model sent nothing within {seconds} s of the request.", ""),
    "stall": Kind(True, "The model stopped in the middle of its answer: {seconds} s of silence.", ""),
    "total": Kind(
        False,
        "The answer was not finished after {seconds} s, the limit for one model call.",
        "ask for less at a time, or raise total_seconds",
    ),
    "connection": Kind(
        True, "The model's server at {where} could not be reached ({why}).", "Check base_url and the network."
    ),
    "tls": Kind(
        False,
        "The secure connection to {where} could not be made ({why}).",
        "check that base_url names the right host and that its certificate is valid",
    ),
    "broken_stream": Kind(
        True, "The connection broke after {seconds} s, before the answer was complete ({why}).", ""
    ),
    "overloaded": Kind(True, "The provider is overloaded at the moment.", ""),
    "server": Kind(True, "The provider failed ({why}).", ""),
    "rate_limit": Kind(True, "The provider is taking no more requests for now (rate limit).", ""),
    "refused_request": Kind(
        False,
        "The provider refused the request ({why}).",
        "check the model's name, base_url and the request's options",
    ),
    "credentials": Kind(
        False,
        "The provider did not accept the credentials.",
        "check the key that api_key_env or api_key_file names",
    ),
    "quota": Kind(
        False,
        "The account at the provider has no credit or quota left.",
        "add credit, or use another account",
    ),
    "context": Kind(
        False,
        "The conversation is longer than this model takes.",
        "compact it, use a model with a larger context, or start a new conversation",
    ),
    "policy": Kind(
        False, "The provider refused to answer because of its content policy.", "change the message"
    ),
    "not_an_api": Kind(
        False,
        "The address {where} did not answer like a model API ({why}).",
        "check base_url: it should end like .../v1 and belong to the API, not to a web page",
    ),
    "oversized": Kind(
        False, "The answer grew beyond {limit} bytes and was stopped.", "ask for less at a time"
    ),
    "config": Kind(False, "The model could not be called: {why}.", "correct the configuration"),
    "unknown": Kind(False, "The model call failed in a way that is not known ({why}).", "see the detail"),
}

_PLAIN: Final = {
    "seconds": "?",
    "limit": "?",
    "where": "the provider",
    "status": "none",
    "why": "no reason given",
}


def failure(
    kind: str,
    *,
    seconds: float | None = None,
    status: int | None = None,
    retry_after_seconds: float | None = None,
    detail: str | None = None,
    **facts: Any,
) -> Failure:
    """The failure value of `kind`, its sentence made from the facts; `seconds` is what was measured."""
    entry = KINDS[kind]
    filled: dict[str, Any] = {**_PLAIN, **facts}
    if seconds is not None:
        filled["seconds"] = f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"
    if status is not None:
        filled["status"] = status
    text = entry.text.format(**filled)
    if not entry.retryable:
        sentence = f"{text} {SAME_WAY}: {entry.do}."
    elif retry_after_seconds is not None:
        sentence = f"{text} Try again in {max(1, round(retry_after_seconds))} s."
    else:
        sentence = " ".join(filter(None, (text, entry.do, AGAIN)))
    return Failure(
        kind=kind,
        retryable=entry.retryable,
        sentence=sentence,
        measured_seconds=None if seconds is None else round(seconds, 3),
        status=status,
        retry_after_seconds=retry_after_seconds,
        detail=None if detail is None else mask(detail)[:DETAIL_CHARS_MAX],
    )


# --- from a provider's error body

BY_CODE: Final[dict[str, str]] = {
    # as Anthropic says in its type
    "overloaded_error": "overloaded",
    "rate_limit_error": "rate_limit",
    "authentication_error": "credentials",
    "permission_error": "credentials",
    "billing_error": "quota",
    "api_error": "server",
    "timeout_error": "server",
    "request_too_large": "context",
    # as OpenAI and its compatibles say in code or type
    "insufficient_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_reached_error": "rate_limit",
    "invalid_api_key": "credentials",
    "invalid_authentication_error": "credentials",
    "context_length_exceeded": "context",
    "string_above_max_length": "context",
    "content_policy_violation": "policy",
    "content_filter": "policy",
    "server_error": "server",
    "internal_error": "server",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "engine_overloaded_error": "overloaded",
    "exceeded_current_quota_error": "quota",
    # as Gemini says in its status
    "RESOURCE_EXHAUSTED": "rate_limit",
    "UNAUTHENTICATED": "credentials",
    "PERMISSION_DENIED": "credentials",
    "UNAVAILABLE": "overloaded",
    "INTERNAL": "server",
    "DEADLINE_EXCEEDED": "server",
}
"""What the provider itself calls the error -> our kind."""

REFUSALS: Final = frozenset(
    {"invalid_request_error", "not_found_error", "model_not_found", "INVALID_ARGUMENT", "NOT_FOUND"}
)
"""Codes that say 4xx where no status does: an error event inside a stream."""

BY_WORDS: Final[tuple[tuple[str, str], ...]] = (
    ("prompt is too long", "context"),
    ("maximum context length", "context"),
    ("context window", "context"),
    ("context length", "context"),
    ("input token count", "context"),
    ("too many tokens", "context"),
    ("credit balance is too low", "quota"),
    ("insufficient balance", "quota"),
    ("exceeded your current quota", "quota"),
    ("api key not valid", "credentials"),
    ("api_key_invalid", "credentials"),
    ("invalid api key", "credentials"),
    ("incorrect api key", "credentials"),
    ("content management policy", "policy"),
    ("overloaded", "overloaded"),
    ("over capacity", "overloaded"),
)
"""What the provider's sentence says, where its code says too little -> our kind."""

BY_STATUS: Final[dict[int, str]] = {
    401: "credentials",
    402: "quota",
    403: "credentials",
    408: "server",
    409: "refused_request",
    413: "context",
    429: "rate_limit",
    503: "overloaded",
    529: "overloaded",
}

_TRUSTED_WORDS: Final = frozenset({None, 400, 403, 413, 422, 429, 503, 529})
"""Statuses under which the sentence may overrule the number; None is an error inside a stream."""


def from_error(
    body: Any,
    *,
    status: int | None,
    headers: Mapping[str, str] | None = None,
    where: str = "",
    now: float | None = None,
) -> Failure:
    """The failure that a provider's error says, from its body, HTTP status (None: in mid-stream) and headers."""
    codes, message = read_error(body)
    kind = kind_of(codes, message, status)
    retry_after = (
        retry_after_seconds(headers or {}, body, now)
        if kind in ("rate_limit", "overloaded", "server")
        else None
    )
    return failure(
        kind,
        status=status,
        retry_after_seconds=retry_after,
        detail=message or (", ".join(codes) or None),
        why=mask(message)[:160]
        or ("an error inside the stream" if status is None else f"HTTP status {status}"),
        where=where or "the provider",
    )


def kind_of(codes: tuple[str, ...], message: str, status: int | None) -> str:
    """The kind that codes, words and status say together, the most telling first."""
    words = message.lower()
    if status in _TRUSTED_WORDS:
        for needle, kind in BY_WORDS:
            if needle in words:
                return kind
    for code in codes:
        if code in BY_CODE:
            return BY_CODE[code]
    if status is None:
        # An error inside a stream that is no refusal may pass (seed 003: stream errors are retried).
        return "refused_request" if not REFUSALS.isdisjoint(codes) else "server"
    if status in BY_STATUS:
        return BY_STATUS[status]
    if 400 <= status < 500:
        return "refused_request"
    return "server" if status >= 500 else "unknown"


def read_error(body: Any) -> tuple[tuple[str, ...], str]:
    """(codes, message) of any provider's error body: {error: {...}}, a bare error, a list of one, or text."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, str | bytes):
        return (), body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    if not isinstance(body, dict):
        return (), ""
    inner = body.get("error", body)
    if isinstance(inner, str):
        return (), inner
    if not isinstance(inner, dict):
        return (), ""
    codes = [str(inner[name]) for name in ("code", "type", "status") if isinstance(inner.get(name), str)]
    for detail in inner.get("details") or ():
        if isinstance(detail, dict) and isinstance(detail.get("reason"), str):
            codes.insert(0, detail["reason"].lower())
    message = inner.get("message")
    if not isinstance(message, str):
        message = body.get("message") if isinstance(body.get("message"), str) else ""
    return tuple(codes), str(message)


_DELAY = re.compile(r"(\d+(?:\.\d+)?)s\Z")


def retry_after_seconds(
    headers: Mapping[str, str], body: Any = None, now: float | None = None
) -> float | None:
    """How long the provider asks to wait: Retry-After as seconds or a date, retry-after-ms, or Gemini's retryDelay."""
    millis = headers.get("retry-after-ms")
    if millis is not None and (seconds := _number(millis)) is not None:
        return _bounded(seconds / 1000)
    value = headers.get("retry-after")
    if value is not None:
        if (seconds := _number(value)) is not None:
            return _bounded(seconds)
        if now is not None:
            try:
                return _bounded(parsedate_to_datetime(value).timestamp() - now)
            except (ValueError, TypeError, OverflowError):
                return None
    inner = body.get("error") if isinstance(body, dict) else None
    details = inner.get("details") if isinstance(inner, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and (found := _DELAY.match(delay)):
            return _bounded(float(found[1]))
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _bounded(seconds: float) -> float | None:
    if not 0 <= seconds < float("inf"):
        return 0.0 if seconds < 0 else None
    return min(seconds, RETRY_AFTER_SECONDS_MAX)


_KEY_LIKE = re.compile(r"\b(?:sk|key|gsk|xai|AIza)[-_]?[\w*-]{8,}|Bearer\s+\S+", re.IGNORECASE)


def mask(text: str) -> str:
    """`text` without anything that looks like a key: providers repeat parts of a wrong one (G17)."""
    return _KEY_LIKE.sub("[key]", text)
