"""Gemini models over httpx2: ready bytes in, raw chunks out, our own timers.

Not on the google-genai SDK: it reads every chunk into models that drop or refuse fields which they do not
know, so a received part could not go back as it came (docs/adr/0021).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from turnkeeper.conversation.messages import Origin
from turnkeeper.provider.build import Report
from turnkeeper.provider.gemini_stream import GeminiReader
from turnkeeper.provider.reading import Oversized
from turnkeeper.provider.shell import CONNECT_SECONDS_MAX, Answer, Shell, begin_answer
from turnkeeper.provider.wire import Files

if TYPE_CHECKING:
    import httpx2

BASE_URL: Final = "https://generativelanguage.googleapis.com"
KEY_NAME: Final = "GEMINI_API_KEY"

CONNECTIONS_MAX: Final = 1000
"""Connections open at once, as in the SDKs of the others."""
LINE_BYTES_MAX: Final = 64_000_000
"""The longest line of a stream; a longer one ends the call as oversized."""


class Refused(Exception):
    """The server answered with an error status; `body` is its error."""

    def __init__(self, response: httpx2.Response, body: Any) -> None:
        self.response = response
        self.status_code = response.status_code
        self.body = body
        super().__init__(f"HTTP status {response.status_code}")


class GeminiProvider(Shell):
    """One Gemini model with one account."""

    def __init__(
        self,
        *,
        origin: Origin,
        key: str,
        base_url: str = BASE_URL,
        dialect: str = "gemini",
        files: Files | None = None,
        report: Report | None = None,
    ) -> None:
        super().__init__(
            dialect=dialect,
            origin=origin,
            base_url=base_url,
            make_reader=GeminiReader,
            fields={},
            files=files,
            report=report,
        )
        self._base_url = base_url.rstrip("/")
        self._key = key

    def open_client(self) -> httpx2.AsyncClient:
        """The HTTP client, made."""
        import httpx2

        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS_MAX),
            limits=httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
        )

    async def send(self, body: bytes) -> Answer:
        """POST .../models/NAME:streamGenerateContent."""
        client: httpx2.AsyncClient = self._client
        request = client.build_request(
            "POST",
            f"{self._base_url}/v1beta/models/{self.origin.model}:streamGenerateContent",
            params={"alt": "sse"},
            headers={
                "content-type": "application/json",
                **({"x-goog-api-key": self._key} if self._key else {}),
            },
            content=body,
        )
        response = await client.send(request, stream=True)
        try:
            if response.status_code >= 300:
                await response.aread()
                raise Refused(response, _json_or_none(response.content))
        except BaseException:
            await response.aclose()
            raise
        return await begin_answer(_events(response), response, None)


def _json_or_none(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


async def _events(response: httpx2.Response) -> AsyncIterator[Any]:
    """The decoded data of each event. Raises UnicodeDecodeError, JSONDecodeError, Oversized, transport errors."""
    data: list[bytes] = []
    try:
        if response.is_stream_consumed:
            return
        async for line in _lines(response):
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif not line and data:
                text, data = b"\n".join(data), []
                yield json.loads(text)
            elif line and not line.startswith((b":", b"event:", b"id:", b"retry:")):
                raise json.JSONDecodeError("a line that belongs to no event", "", 0)
        if data:
            yield json.loads(b"\n".join(data))
    finally:
        await response.aclose()


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in response.aiter_bytes():
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            rest += chunk[begin:end]
            yield bytes(rest).rstrip(b"\r")
            rest.clear()
            begin = end + 1
        rest += chunk[begin:]
        if len(rest) > LINE_BYTES_MAX:
            raise Oversized
    if rest:
        yield bytes(rest).rstrip(b"\r")
