"""Recordings and their words: asked for once, kept beside the file, and used by every message that holds it.

The words are kept under the hash of the recording's bytes: a message that is sent again, and a turn that is
retried, are given what is kept, and nothing is written down twice (issue of voice turns: the retry never
needs the recording to be spoken, or paid, again).
"""

from __future__ import annotations

import asyncio
import os

from turnkeeper.app.files import FileStore
from turnkeeper.conversation.masking import Masker
from turnkeeper.conversation.rights import ANYWHERE, Right, authorise
from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import NotARecording, NotFound, RecordingTooLong, SettingInvalid, TranscriberMissing
from turnkeeper.outbound import Reach
from turnkeeper.port.store import AttachmentRow, Store
from turnkeeper.provider.opening import key_in_file
from turnkeeper.provider.transcriber import ENDINGS, Transcriber
from turnkeeper.settings import Settings


class Recordings:
    """Writes recordings down, if a transcriber is set up."""

    def __init__(
        self, store: Store, files: FileStore, settings: Settings, masker: Masker | None, *, key: str | None
    ) -> None:
        self._store = store
        self._files = files
        self._settings = settings
        self._masker = masker
        self._under_way: dict[str, asyncio.Task[str]] = {}
        self._transcriber = _transcriber(settings, key)

    async def write_down(self, principal: Principal, attachment_id: str) -> str:
        """The words of a recording that the principal uploaded.

        Errors: NotFound, TranscriberMissing, NotARecording, RecordingTooLong, TranscriberFailed, AddressRefused.
        """
        authorise(principal, Right.WRITE, ANYWHERE)
        row = await self._store.attachment(attachment_id)
        if row is None or row.user_id != principal.user_id:
            raise NotFound(what="attachment")
        known = await self.known(row)
        if known is not None:
            return known
        if self._transcriber is None:
            raise TranscriberMissing
        if row.media_type not in ENDINGS:
            raise NotARecording(media_type=row.media_type)
        limit_bytes = self._settings.transcriber_bytes_max
        if row.size_bytes > limit_bytes:
            raise RecordingTooLong(size_bytes=row.size_bytes, limit_bytes=limit_bytes)
        task = self._under_way.get(row.sha256)
        if task is None:
            # Who asks may go away; what was begun is paid, and is kept.
            task = asyncio.create_task(self._ask(self._transcriber, row))
            self._under_way[row.sha256] = task
            task.add_done_callback(lambda _: self._under_way.pop(row.sha256, None))
        return await asyncio.shield(task)

    async def known(self, row: AttachmentRow) -> str | None:
        """The words that are kept of a recording."""
        kept = await self._store.value(_name(row))
        return None if kept is None else kept.decode()

    async def _ask(self, transcriber: Transcriber, row: AttachmentRow) -> str:
        words = await transcriber.words(self._files.path(row.sha256), row.media_type)
        words = words[: self._settings.transcript_chars_max]
        if self._masker is not None:
            words = self._masker.mask(words.encode("utf-8", "replace"))[0].decode()
        await self._store.put_value(_name(row), words.encode("utf-8", "replace"))
        return words

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def key_of(settings: Settings) -> str | None:
    """The transcriber's key. Raises SettingInvalid where it is named and not there."""
    if settings.transcriber_key_env is not None:
        key = os.environ.get(settings.transcriber_key_env)
        if not key:
            why = f"the environment variable {settings.transcriber_key_env} is not set"
            raise SettingInvalid(name="transcriber_key_env", why=why)
        return key
    if settings.transcriber_key_file is not None:
        try:
            return key_in_file(settings.transcriber_key_file)
        except (OSError, UnicodeDecodeError) as error:
            raise SettingInvalid(name="transcriber_key_file", why=f"it cannot be read: {error}") from None
    return None


def _name(row: AttachmentRow) -> str:
    return f"transcript:{row.sha256}"


def _transcriber(settings: Settings, key: str | None) -> Transcriber | None:
    if settings.transcriber_url is None:
        return None
    return Transcriber(
        url=settings.transcriber_url,
        model=settings.transcriber_model,
        key=key,
        reach=Reach(settings.private_addresses_allowed),
        seconds=settings.transcriber_seconds,
    )
