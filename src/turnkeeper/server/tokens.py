"""Making bearer tokens, the same way over HTTP and on a store that no server holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from turnkeeper.conversation.rights import ALL_SCOPES, OWNER_SCOPES, USER_SCOPES
from turnkeeper.errors import BadInput
from turnkeeper.projection.view import iso
from turnkeeper.server.shapes import TokenBody, TokenMade

if TYPE_CHECKING:
    from turnkeeper.app import Keeper

OWNER: Final = "owner"
"""The default user, who is also the page's user."""

NAME_CHARS_MAX: Final = 100


async def make(keeper: Keeper, wanted: TokenBody) -> TokenMade:
    """A new token. Without scopes: everything for the owner, a person's share for others. Raises BadInput."""
    name = wanted.user
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        raise BadInput(why=f"a user is a name of 1 to {NAME_CHARS_MAX} printable characters, not {name!r}")
    unknown = [scope for scope in wanted.scopes or () if scope not in ALL_SCOPES]
    if unknown:
        raise BadInput(why=f"there is no scope {unknown[0]!r}; the scopes are {', '.join(ALL_SCOPES)}")
    if wanted.scopes is not None and not wanted.scopes:
        raise BadInput(why="a token without any scope opens nothing")
    if wanted.expires_seconds is not None and wanted.expires_seconds <= 0:
        raise BadInput(why="expires_seconds is more than 0")
    secret, row = await keeper.create_token(
        name,
        wanted.scopes or (OWNER_SCOPES if name == OWNER else USER_SCOPES),
        label=wanted.label,
        expires_seconds=wanted.expires_seconds,
    )
    return TokenMade(
        token=secret,
        token_id=row.token_id,
        user_id=row.user_id,
        scopes=list(row.scopes),
        expires_at=iso(row.expires_at),
    )
