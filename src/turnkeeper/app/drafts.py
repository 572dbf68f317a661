"""What a person has written to a conversation and not sent, so that another device can go on with it.

A draft is nobody's submission: it stands in no journal, and only its writer can read it. Words that hold a secret
are not kept (G17): they stay in the browser that holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from turnkeeper.conversation.masking import Masker
from turnkeeper.conversation.rights import Right, authorise
from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import BadInput, TextTooLong

if TYPE_CHECKING:
    from turnkeeper.app.keeper import Keeper

FILES_MAX = 50
"""Most files of one draft."""


class DraftFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An uploaded file, as a composer shows it."""

    attachment_id: str
    name: str = ""
    media_type: str = ""
    size_bytes: int = 0


class DraftView(msgspec.Struct, frozen=True, kw_only=True):
    """A draft. `revision` grows with each change and is 0 where there never was one."""

    text: str = ""
    files: list[DraftFile] = []
    revision: int = 0


class Drafts:
    """The drafts of one Keeper's users."""

    def __init__(self, keeper: Keeper, masker: Masker | None) -> None:
        self._keeper = keeper
        self._masker = masker

    async def read(self, principal: Principal, conversation_id: str) -> DraftView:
        """The principal's draft there. Raises NotFound."""
        await self._authorise(principal, Right.READ, conversation_id)
        return await self._stored(principal, conversation_id)

    async def keep(
        self, principal: Principal, conversation_id: str, text: str, files: list[DraftFile]
    ) -> DraftView:
        """Keep a draft in place of the one before; an empty one is none. The newest writer wins.

        A text that holds a secret is kept as empty. Raises NotFound, Forbidden, TextTooLong, BadInput.
        """
        await self._authorise(principal, Right.WRITE, conversation_id)
        size, limit = len(text.encode()), self._keeper.settings.text_bytes_max
        if size > limit:
            raise TextTooLong(size_bytes=size, limit_bytes=limit)
        if len(files) > FILES_MAX:
            raise BadInput(why=f"a draft holds at most {FILES_MAX} files")
        if self._masker is not None and self._masker.mask(text.encode())[1]:
            text = ""
        before = await self._stored(principal, conversation_id)
        kept = DraftView(text=text, files=files, revision=before.revision + 1)
        await self._keeper.store.put_value(_name(principal, conversation_id), msgspec.json.encode(kept))
        return kept

    async def _authorise(self, principal: Principal, right: Right, conversation_id: str) -> None:
        authorise(principal, right, await self._keeper.store.conversation(conversation_id))

    async def _stored(self, principal: Principal, conversation_id: str) -> DraftView:
        stored = await self._keeper.store.value(_name(principal, conversation_id))
        return msgspec.json.decode(stored, type=DraftView) if stored else DraftView()


def _name(principal: Principal, conversation_id: str) -> str:
    return f"draft:{conversation_id}:{principal.user_id}"
