"""Words of a recording, from an OpenAI-compatible API (`POST /audio/transcriptions`), through the guarded client.

The address is the operator's, and it is guarded all the same: what a name stands for can change. One on this
machine or in the own network is listed in `private_addresses_allowed`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from turnkeeper.errors import AddressRefused, TranscriberFailed
from turnkeeper.outbound import Bounds, Reach
from turnkeeper.provider.sdk_openai import KEYLESS

ENDINGS = {
    "audio/ogg": "ogg",
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "video/mp4": "m4a",
    "video/webm": "webm",
}
"""What recordings are, by their bytes (a browser's recording shows itself as the container of video), and how a
file of that kind is called where its name is all that counts."""


class Transcriber:
    """One model that writes recordings down."""

    def __init__(self, *, url: str, model: str, key: str | None, reach: Reach, seconds: float) -> None:
        self._url = url
        self._model = model
        self._key = key
        self._reach = reach
        self._seconds = seconds

    async def words(self, path: Path, media_type: str) -> str:
        """The words of the recording in the file `path`. Raises TranscriberFailed, AddressRefused."""
        import openai

        from turnkeeper.outbound.client import open_guarded

        data = await asyncio.to_thread(path.read_bytes)
        bounds = Bounds(silence_seconds=self._seconds)
        async with open_guarded(self._reach, bounds) as http:
            client = openai.AsyncOpenAI(
                api_key=self._key or KEYLESS, base_url=self._url, max_retries=0, http_client=http
            )
            client.organization = client.project = None
            try:
                async with asyncio.timeout(self._seconds):
                    found = await client.audio.transcriptions.create(
                        file=(f"recording.{ENDINGS[media_type]}", data, media_type), model=self._model
                    )
            except (TimeoutError, openai.APITimeoutError):
                raise TranscriberFailed(why=f"no answer within {self._seconds:g} s") from None
            except openai.APIStatusError as error:
                raise TranscriberFailed(why=f"the transcriber answered {error.status_code}") from None
            except openai.APIConnectionError as error:
                if isinstance(error.__cause__, AddressRefused):
                    raise error.__cause__ from None
                raise TranscriberFailed(why="the transcriber cannot be reached") from None
            except (openai.OpenAIError, ValueError):
                raise TranscriberFailed(why="the transcriber's answer cannot be read") from None
        text = getattr(found, "text", None)
        if not isinstance(text, str):
            raise TranscriberFailed(why="the transcriber's answer cannot be read")
        return text.strip()
