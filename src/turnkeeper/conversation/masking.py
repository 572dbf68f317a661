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

import msgspec

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


ESCAPED_SPACES = (rb"\n", rb"\t", rb"\r", rb"\b", rb"\f")
"""Line ends and the like, as they stand in encoded JSON."""
HELD_CHARS_MAX = 10_100
"""A text that grows is never held back further than this: the longest shape is no longer."""
HELD_PATTERN_CHARS_MAX = 256
"""Where there are patterns of one's own, so much is held back: a match that is no longer is never cut in two."""

_SECRET_TAIL = re.compile(r"[A-Za-z0-9_+/=.-]*\Z")
_KEY_BLOCK = "-----BEGIN "
_KEY_BLOCK_END = re.compile(r"-----END [A-Z ]{0,30}PRIVATE KEY-----")
_KEY_BLOCK_NAME = re.compile(r"[A-Z ]{0,30}(PRIVATE KEY-----|\Z)|[A-Z ]{0,30}-{0,5}\Z")


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
            # A beginning in the middle of a word ("task-...") is none. The letter of an escaped line end or tab is no
            # word: a key on a line of its own stands behind the "n" of "\\n".
            before = match.string[max(0, match.start() - 2) : match.start()]
            in_word = before[-1:].isalnum() and before not in ESCAPED_SPACES
            return match[0] if in_word else token(match[0])

        for secret in self._literal:
            if secret in data:
                data = data.replace(secret, token(secret))
        for head, pattern in self._shapes:
            if head in data:
                data = pattern.sub(alone, data)
        for pattern in self._patterns:
            data = pattern.sub(lambda match: token(match[0]), data)
        return data, found

    def settled_chars(self, text: str) -> int:
        """How much of a text that still grows can be masked now: what follows may be half of a secret.

        Pieces that are cut there and masked one by one hold no secret that the whole would not hold.
        """
        first = max(0, len(text) - HELD_CHARS_MAX)
        tail = text[first:]
        held = min(_open_shape(tail), _open_key_block(tail))
        for literal in self._literal:
            held = min(held, len(tail) - _overlap(tail, literal.decode("utf-8", "replace")))
        if self._patterns:
            held = self._outside_patterns(tail, min(held, max(0, len(tail) - HELD_PATTERN_CHARS_MAX)))
        return first + held

    def _outside_patterns(self, text: str, at: int) -> int:
        """The last place up to `at` that lies within no match of a pattern of one's own.

        What can be seen after `at` is long enough for every match that begins before it to be whole.
        """
        data = msgspec.json.encode(text)
        cut = len(msgspec.json.encode(text[:at])) - 1
        moved = True
        while moved:
            moved = False
            for pattern in self._patterns:
                for match in pattern.finditer(data):
                    if match.start() < cut < match.end():
                        cut, moved = match.start(), True
        return min(at, _chars_before(data, cut))


def _chars_before(data: bytes, at: int) -> int:
    """How many whole characters of an encoded string stand before its byte `at`."""
    for end in range(at, max(0, at - 12), -1):  # an escape of two halves is no longer
        try:
            return len(msgspec.json.decode(data[:end] + b'"', type=str))
        except msgspec.DecodeError:
            continue
    return 0


def _overlap(text: str, wanted: str) -> int:
    """The length of the longest beginning of `wanted`, not the whole, on which `text` ends."""
    return next((n for n in range(min(len(wanted) - 1, len(text)), 0, -1) if text.endswith(wanted[:n])), 0)


def _open_shape(text: str) -> int:
    """Where a secret of a known shape begins that goes up to the end of `text`; the length where none does."""
    found = _SECRET_TAIL.search(text)
    begin = len(text) if found is None else found.start()
    held = len(text)
    for head, _ in SHAPES:
        at = text.find(head, begin)
        while at > 0 and text[at - 1].isascii() and text[at - 1].isalnum():
            at = text.find(head, at + 1)
        held = min(held, at if at >= 0 else held, len(text) - _overlap(text, head))
    return held


def _open_key_block(text: str) -> int:
    """Where a block with a private key begins that has no end yet; the length of `text` where none does."""
    at = text.rfind(_KEY_BLOCK)
    if at < 0 or _KEY_BLOCK_END.search(text, at) or not _KEY_BLOCK_NAME.match(text, at + len(_KEY_BLOCK)):
        return len(text)
    return at


def reveal(data: bytes, sealed: dict[str, str]) -> bytes:
    """Put the secrets of one turn back where their tokens stand: for the request of that turn only."""
    for token, secret in sealed.items():
        data = data.replace(token.encode(), secret.encode())
    return data
