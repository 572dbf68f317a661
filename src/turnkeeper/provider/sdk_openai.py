"""OpenAI and its compatibles through the official SDK: ready bytes in, raw events out, our own timers.

The SDK's own `create` copies and transforms every message (0.3 ms each); `client.post` with bytes does not,
and keeps its authentication, its connection pool and its stream decoding (docs/adr/0020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnkeeper.conversation.messages import Origin
from turnkeeper.provider.build import Report
from turnkeeper.provider.reading import MakesReader
from turnkeeper.provider.shell import CONNECT_SECONDS_MAX, Answer, Shell, begin_answer
from turnkeeper.provider.wire import Files

if TYPE_CHECKING:
    from openai import AsyncOpenAI

KEYLESS = "none"
"""Sent as the key to servers that want none (a local vLLM or Ollama)."""


class OpenAIProvider(Shell):
    """One model behind an OpenAI-compatible API: chat completions or responses, by `path`."""

    def __init__(
        self,
        *,
        dialect: str,
        origin: Origin,
        key: str,
        base_url: str,
        path: str,
        make_reader: MakesReader,
        fields: dict[str, Any],
        own_account: bool = False,
        files: Files | None = None,
        report: Report | None = None,
    ) -> None:
        """`own_account`: the organisation and project that the environment names belong to this address."""
        super().__init__(
            dialect=dialect,
            origin=origin,
            base_url=base_url,
            make_reader=make_reader,
            fields=fields,
            files=files,
            report=report,
        )
        self._base_url = base_url
        self._path = path
        self._key = key
        self._own_account = own_account

    def open_client(self) -> AsyncOpenAI:
        """The SDK's client, made."""
        import httpx2
        import openai

        client = openai.AsyncOpenAI(
            api_key=self._key or KEYLESS,
            base_url=self._base_url,
            max_retries=0,
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS_MAX),
        )
        if not self._own_account:
            client.organization = None
            client.project = None
        return client

    async def send(self, body: bytes) -> Answer:
        """POST the request."""
        from openai import AsyncStream

        events: AsyncStream[Any] = await self._client.post(
            self._path,
            content=body,
            cast_to=object,
            stream=True,
            stream_cls=AsyncStream[Any],
            options={"headers": {"Content-Type": "application/json"}},
        )
        response = events.response
        return await begin_answer(events, response, response.headers.get("x-request-id"))
