"""The one masker: it stands before the journal, logs, exports and evidence (G17).

It works on encoded JSON, where every secret it knows stands as plain ASCII: a match is replaced by a token
such as `[secret:1f2e3d4c]` that names the secret without telling it. Known shapes of keys are built in;
configured secrets (the agents' own keys) are matched word for word. Every pattern has bounds, so that the
time to search is linear in the text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

MASK_BEGINS = "[secret:"
"""How every token begins that stands in a secret's place."""

SECRET_CHARS_MIN = 8
"""A configured secret shorter than this is not searched for: it would be found everywhere."""

SHAPES: tuple[tuple[str, str], ...] = (
    ("sk-", r"[A-Za-z0-9_-]{16,250}"),  # OpenAI, Anthropic, DeepSeek, OpenRouter
    ("ghp_", r"[A-Za-z0-9]{30,255}"),
    ("gho_", r"[A-Za-z0-9]{30,255}"),
    ("ghu_", r"[A-Za-z0-9]{30,255}"),
    ("ghs_", r"[A-Za-z0-9]{30,255}"),
    ("ghr_", r"[A-Za-z0-9]{30,255}"),
    ("github_pat_", r"[A-Za-z0-9_]{20,255}"),
    ("glpat-", r"[A-Za-z0-9_-]{20,100}"),
    ("xox", r"[abeoprs]-[A-Za-z0-9-]{10,250}"),  # Slack
    ("AKIA", r"[0-9A-Z]{16}"),  # AWS
    ("ASIA", r"[0-9A-Z]{16}"),
    ("AIza", r"[0-9A-Za-z_-]{35}"),  # Google
    ("npm_", r"[A-Za-z0-9]{36}"),
    ("pypi-", r"[A-Za-z0-9_-]{50,250}"),
    ("hf_", r"[A-Za-z0-9]{30,60}"),
    ("whsec_", r"[A-Za-z0-9+/=]{24,120}"),
    ("tk_", r"[A-Za-z0-9_-]{40,60}"),  # our own bearer tokens
    ("eyJ", r"[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}"),  # JSON web tokens
    (
        "-----BEGIN ",
        r"[A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\\nr:, \n-]{1,10000}?-----END [A-Z ]{0,30}PRIVATE KEY-----",
    ),
)
"""Beginnings that are looked for first (a plain search, many times faster than a pattern), and what must follow."""


class Masker:
    """Finds secrets in encoded JSON. `patterns` are further shapes, `secrets` are literal ones."""

    def __init__(self, patterns: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        self._shapes = [
            (head.encode(), re.compile((re.escape(head) + rest).encode())) for head, rest in SHAPES
        ]
        self._literal = [secret.encode() for secret in secrets if len(secret) >= SECRET_CHARS_MIN]
        self._patterns = [re.compile(pattern.encode()) for pattern in patterns]

    def mask(self, data: bytes) -> tuple[bytes, dict[str, str]]:
        """`data` without its secrets, and which token stands for which secret. Nothing found: the same object."""
        found: dict[str, str] = {}

        def token(secret: bytes) -> bytes:
            name = f"{MASK_BEGINS}{hashlib.sha256(secret).hexdigest()[:8]}]"
            found[name] = secret.decode("utf-8", "replace")
            return name.encode()

        def alone(match: re.Match[bytes]) -> bytes:
            # A beginning in the middle of a word ("task-...") is none.
            before = match.string[match.start() - 1 : match.start()]
            return match[0] if before.isalnum() else token(match[0])

        for secret in self._literal:
            if secret in data:
                data = data.replace(secret, token(secret))
        for head, pattern in self._shapes:
            if head in data:
                data = pattern.sub(alone, data)
        for pattern in self._patterns:
            data = pattern.sub(lambda match: token(match[0]), data)
        return data, found


def reveal(data: bytes, sealed: dict[str, str]) -> bytes:
    """Put the secrets of one turn back where their tokens stand: for the request of that turn only."""
    for token, secret in sealed.items():
        data = data.replace(token.encode(), secret.encode())
    return data
