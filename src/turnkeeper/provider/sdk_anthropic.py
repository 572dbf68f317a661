"""Anthropic models through the official SDK: ready bytes in, raw events out, our own timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnkeeper.conversation.messages import Origin
from turnkeeper.provider.anthropic_stream import AnthropicReader
from turnkeeper.provider.build import Report
from turnkeeper.provider.shell import CONNECT_SECONDS_MAX, Answer, Shell, begin_answer
from turnkeeper.provider.wire import Files

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

BASE_URL = "https://api.anthropic.com"
KEY_NAME = "ANTHROPIC_API_KEY"


class AnthropicProvider(Shell):
    """One Claude model with one account."""

    def __init__(
        self,
        *,
        origin: Origin,
        key: str,
        base_url: str = BASE_URL,
        dialect: str = "anthropic",
        files: Files | None = None,
        report: Report | None = None,
    ) -> None:
        super().__init__(
            dialect=dialect,
            origin=origin,
            base_url=base_url,
            make_reader=AnthropicReader,
            fields={"stream": True},
            files=files,
            report=report,
        )
        self._base_url = base_url
        self._key = key

    def open_client(self) -> AsyncAnthropic:
        """The SDK's client, made."""
        import anthropic
        import httpx2

        return anthropic.AsyncAnthropic(
            api_key=self._key or "none",
            base_url=self._base_url,
            max_retries=0,
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS_MAX),
        )

    async def send(self, body: bytes) -> Answer:
        """POST /v1/messages."""
        from anthropic import AsyncStream

        events: AsyncStream[Any] = await self._client.post(
            "/v1/messages",
            content=body,
            cast_to=object,
            stream=True,
            stream_cls=AsyncStream[Any],
            options={"headers": {"Content-Type": "application/json"}},
        )
        response = events.response
        return await begin_answer(events, response, response.headers.get("request-id"))
