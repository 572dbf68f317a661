"""Errors as they go out: RFC 9457 problem+json, `{type, title, status, detail, code, retryable, ...}`.

Of an error's facts only those named here go out, so that none can carry an id: the answer to a foreign id
must be the same, byte for byte, as the answer to an unknown one (G18).
"""

from __future__ import annotations

import math
from typing import Any, Final

from turnkeeper.conversation import codec
from turnkeeper.errors import MethodNotAllowed, TurnkeeperError, Unauthorized
from turnkeeper.server.reply import Headers, Reply

MEDIA_TYPE: Final = b"application/problem+json"

SHOWN_FACTS: Final = (
    "state",
    "turn",
    "cap",
    "limit_bytes",
    "size_bytes",
    "max_chars",
    "index",
    "retry_after_seconds",
)
"""Facts that a program can act on; the sentence in `detail` has them all in words."""


def problem_of(error: TurnkeeperError) -> dict[str, Any]:
    """The members of the problem document."""
    document: dict[str, Any] = {
        "type": f"urn:turnkeeper:error:{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": error.sentence,
        "code": error.code,
        "retryable": error.retryable,
    }
    for name in SHOWN_FACTS:
        value = getattr(error, name, None)
        if value is not None:
            document[name] = value
    return document


def problem(error: TurnkeeperError) -> Reply:
    """The answer to a request that ended in `error`."""
    headers: Headers = []
    retry_after_seconds = getattr(error, "retry_after_seconds", None)
    if retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(retry_after_seconds)))
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", str(error.facts["allowed"]).encode()))
    return Reply(codec.wire(problem_of(error)), status=error.status, media_type=MEDIA_TYPE, headers=headers)


def internal_problem() -> Reply:
    """The answer when the server itself failed: nothing of the cause goes out, it is in the log."""
    return problem(TurnkeeperError("Something failed inside the server. Its log says what."))
