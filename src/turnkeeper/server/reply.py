"""Answers: a status, a few headers and bytes, sent without anything in between.

Anything that can be called with `(scope, receive, send)` is an answer too: event streams and files are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final, Protocol

from starlette.types import Receive, Scope, Send

from turnkeeper.conversation import codec

Headers = list[tuple[bytes, bytes]]

JSON: Final = b"application/json"
JSON_LINES: Final = b"application/x-ndjson"
HTML: Final = b"text/html; charset=utf-8"

SAFE_HEADERS: Final[Headers] = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
"""On every answer that is data: it is not kept, not guessed at, not framed, and runs nothing."""


class Answer(Protocol):
    """What a handler returns."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send itself."""
        ...


class Reply:
    """An answer whose bytes are at hand."""

    __slots__ = ("body", "headers", "media_type", "status")

    def __init__(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        media_type: bytes = JSON,
        headers: Headers | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.media_type = media_type
        self.headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the whole answer."""
        headers = [
            (b"content-type", self.media_type),
            (b"content-length", b"%d" % len(self.body)),
            *SAFE_HEADERS,
        ]
        if self.headers:
            named = {name for name, _ in self.headers}
            headers = [header for header in headers if header[0] not in named] + self.headers
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def reply(value: Any, *, status: int = 200, headers: Headers | None = None) -> Reply:
    """`value` (a view, or builtin values) as JSON."""
    return Reply(codec.wire(value), status=status, headers=headers)


class Chunks:
    """An answer that comes in pieces; the first one is at hand, so that errors before it are still answered."""

    def __init__(
        self, first: bytes, rest: AsyncIterator[bytes], *, media_type: bytes, headers: Headers
    ) -> None:
        self.first = first
        self.rest = rest
        self.media_type = media_type
        self.headers = headers

    @classmethod
    async def of(
        cls, pieces: AsyncIterator[bytes], *, media_type: bytes, headers: Headers | None = None
    ) -> Chunks:
        """Wait for the first piece; an error raised before it is raised here."""
        first = await anext(pieces, b"")
        return cls(first, pieces, media_type=media_type, headers=headers or [])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces as they come; a failure on the way breaks the connection, it never looks complete."""
        headers = [(b"content-type", self.media_type), *SAFE_HEADERS, *self.headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.first, "more_body": True})
        async with aclosing(self.rest) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
