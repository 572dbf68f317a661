"""Who may ask: bearer tokens, made, recognised and revoked, and whether a turn that waited may still run for its sender.

Of a secret only its SHA-256 is kept. Rights themselves are `conversation.rights`; this says whose they are.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

from msgspec.structs import replace

from turnkeeper.app.principals import Principals
from turnkeeper.conversation import ids as id_kinds
from turnkeeper.conversation.rights import Right
from turnkeeper.conversation.turns import Principal, Request
from turnkeeper.errors import BadInput, NotFound, Unauthorized
from turnkeeper.port.clock import Clock, Ids
from turnkeeper.port.store import Store, TokenRow, UserRow


class Access:
    """The users and tokens of one store; what was found good is remembered for `token_check_seconds`."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, token_check_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._remembered = Principals(seconds=token_check_seconds, monotonic=clock.monotonic)

    async def authenticate(self, secret: str) -> Principal:
        """Whose bearer token this is. Raises Unauthorized."""
        sha256 = hashlib.sha256(secret.encode()).hexdigest()
        known = self._remembered.recall(sha256)
        if known is not None:
            return known
        row = await self._store.token_by_hash(sha256)
        principal = None if row is None else await self._principal_of(row)
        if row is None or principal is None:
            raise Unauthorized
        left_seconds = None if row.expires_at is None else row.expires_at - self._clock.now()
        self._remembered.remember(sha256, principal, left_seconds=left_seconds)
        return principal

    async def principal_of_token(self, token_id: str) -> Principal | None:
        """Whose token this is, if it still stands."""
        row = await self._store.token(token_id)
        return None if row is None else await self._principal_of(row)

    async def _principal_of(self, row: TokenRow) -> Principal | None:
        if row.revoked_at is not None:
            return None
        if row.expires_at is not None and row.expires_at <= self._clock.now():
            return None
        user = await self._store.user(row.user_id)
        if user is None or user.disabled_at is not None:
            return None
        return Principal(user_id=row.user_id, scopes=row.scopes, token_id=row.token_id)

    async def create_token(
        self,
        user: str,
        scopes: Sequence[str],
        *,
        label: str,
        expires_seconds: float | None,
    ) -> tuple[str, TokenRow]:
        """A new bearer token for `user` (made if new); returns the secret, which is not kept, and its row."""
        unknown = [scope for scope in scopes if scope not in {str(right) for right in Right}]
        if unknown:
            raise BadInput(f"There is no scope {unknown[0]!r}; there are {', '.join(Right)}.")
        now = self._clock.now()
        if await self._store.user(user) is None:
            await self._store.put_user(UserRow(user_id=user, name=user, created_at=now))
        secret = f"tk_{secrets.token_urlsafe(32)}"
        row = TokenRow(
            token_id=self._ids.make(id_kinds.TOKEN),
            user_id=user,
            sha256=hashlib.sha256(secret.encode()).hexdigest(),
            scopes=tuple(scopes),
            created_at=now,
            expires_at=None if expires_seconds is None else now + expires_seconds,
            label=label,
        )
        await self._store.put_token(row)
        return secret, row

    async def revoke_token(self, token_id: str) -> None:
        """From now on the token opens nothing; its streams end. Raises NotFound."""
        row = await self._store.token(token_id)
        if row is None:
            raise NotFound(what="token")
        await self._store.put_token(replace(row, revoked_at=self._clock.now()))
        self._remembered.forget(token_id)

    async def still_allowed(self, request: Request) -> bool:
        """Whether a turn that waited may still run in its sender's name (G18)."""
        principal = request.principal
        if principal.token_id is not None:
            return await self.principal_of_token(principal.token_id) is not None
        user = await self._store.user(principal.user_id)
        return user is not None and user.disabled_at is None
