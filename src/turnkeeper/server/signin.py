"""Signing in from a browser: a printed address that works once, then a cookie.

The address carries a secret that lives in this process only, works once and for a short time. It is
exchanged for a token of the store, which the browser keeps as a cookie that no script can read and that
no other site can send. The cookie's name carries the port, because browsers share cookies between ports.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from turnkeeper.errors import SignInUsed
from turnkeeper.server.reply import Headers


class SignIns:
    """The one-time secrets that are out and not used yet."""

    def __init__(self, *, seconds: float, monotonic: Callable[[], float]) -> None:
        self.seconds = seconds
        self._monotonic = monotonic
        self._until: dict[str, float] = {}

    def issue(self) -> str:
        """A new secret."""
        now = self._monotonic()
        self._until = {digest: until for digest, until in self._until.items() if until > now}
        secret = secrets.token_urlsafe(32)
        self._until[_digest(secret)] = now + self.seconds
        return secret

    def use(self, secret: str) -> None:
        """Spend a secret. Raises SignInUsed if it is unknown, spent or too old."""
        until = self._until.pop(_digest(secret), None)
        if until is None or until <= self._monotonic():
            raise SignInUsed


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class SessionCookie:
    """The cookie's name, and how it is set, read and taken back."""

    def __init__(self, *, port: int, seconds: float, secure: bool) -> None:
        self.name = f"turnkeeper_{port}".encode()
        self.secure = secure
        self._attributes = b"; Path=/; HttpOnly; SameSite=Strict" + (b"; Secure" if secure else b"")
        self._seconds = int(seconds)

    def read(self, header: bytes) -> str | None:
        """The secret in a Cookie header."""
        for pair in header.split(b";"):
            name, _, value = pair.strip().partition(b"=")
            if name == self.name:
                return value.decode("latin-1")
        return None

    def set(self, secret: str) -> Headers:
        """The header that hands the secret to the browser."""
        value = b"%b=%b; Max-Age=%d%b" % (
            self.name,
            secret.encode("latin-1"),
            self._seconds,
            self._attributes,
        )
        return [(b"set-cookie", value)]

    def clear(self) -> Headers:
        """The header that takes it back."""
        return [(b"set-cookie", b"%b=; Max-Age=0%b" % (self.name, self._attributes))]
