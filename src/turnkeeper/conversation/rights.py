"""Who may do what: the one `authorise`, for every route, stream, verb and delayed turn.

A conversation belongs to its owner, and nobody else reads or steers it, whatever their scopes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from turnkeeper.conversation.turns import Conversation, Principal
from turnkeeper.errors import Forbidden, NotFound


class Right(StrEnum):
    """What can be allowed. A token's scopes are a list of these."""

    READ = "read"
    WRITE = "write"
    APPROVE = "approve"
    TERMINAL = "terminal"
    OPERATE = "operate"
    """See the state of the whole server: status, metrics."""
    ADMIN = "admin"
    """Every right of this list; make tokens."""


ALL_SCOPES: tuple[str, ...] = tuple(str(right) for right in Right)
OWNER_SCOPES: tuple[str, ...] = ("read", "write", "approve", "terminal", "operate", "admin")
USER_SCOPES: tuple[str, ...] = ("read", "write", "approve")


class _Anywhere:
    """Stands for "no single conversation" in `authorise`."""


ANYWHERE: Final = _Anywhere()


def authorise(
    principal: Principal,
    right: Right,
    conversation: Conversation | _Anywhere | None,
    *,
    deleted_too: bool = False,
) -> None:
    """Return if `principal` has `right` in `conversation` (ANYWHERE: a right that names none).

    Raises NotFound for an unknown (None), foreign or deleted conversation: all three look alike (G18).
    Raises Forbidden if the sign-in lacks the scope. `deleted_too` lets an undo reach a deleted one.
    """
    if not isinstance(conversation, _Anywhere) and (
        conversation is None
        or conversation.owner != principal.user_id
        or (conversation.deleted_at is not None and not deleted_too)
    ):
        raise NotFound(what="conversation")
    if right not in principal.scopes and Right.ADMIN not in principal.scopes:
        raise Forbidden(right=str(right))
