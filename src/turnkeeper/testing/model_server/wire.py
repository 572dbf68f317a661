"""What the model server needs of each wire, and the two things they share: signatures and pieces of text."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from turnkeeper.provider.script import Round, ScriptedError
from turnkeeper.provider.wire import Violation

Json = Any
Step = bytes | float | None
"""What a played round is made of: bytes to send, seconds of silence, or None for "the answer is whole"."""

PIECE_CHARS: Final = 40
PIECES_MAX: Final = 400
"""How text is cut into deltas: pieces of 40 characters, but never more than 400 of them."""


class Asked(msgspec.Struct, kw_only=True):
    """What a request says, whatever its wire."""

    model: str
    stream: bool
    user_texts: tuple[str, ...]
    """Every text of the user's side, in order; the last is the one that rules are searched in."""
    rounds_since: int
    """Assistant messages with tool calls since the newest user text."""


class Wire(Protocol):
    """One provider's wire."""

    name: str

    def judge(self, body: Any, model: str, account: str) -> tuple[Violation, ...]:
        """Every rule that the body breaks."""
        ...

    def read(self, body: Any, model: str) -> Asked:
        """What a valid body asks."""
        ...

    def error(self, status: int, error: ScriptedError) -> bytes:
        """The body of an error with an HTTP status."""
        ...

    def play(self, round_: Round, asked: Asked, account: str) -> Played:
        """How a round goes over this wire."""
        ...


class Played(Protocol):
    """A round on its way: events by stage, and what the complete answer is."""

    blocks: list[Any]
    """The blocks as the client should have them when all has come."""

    def begin(self) -> Iterator[bytes]:
        """What comes before the first word."""
        ...

    def think(self, words: str, *, first: bool, last: bool) -> Iterator[bytes]:
        """A piece of thinking."""
        ...

    def say(self, words: str, *, first: bool, last: bool) -> Iterator[bytes]:
        """A piece of text."""
        ...

    def block(self, block: dict[str, Any]) -> Iterator[bytes]:
        """A block in the provider's own shape."""
        ...

    def call(self, call_id: str | None, name: str, arguments: str) -> Iterator[bytes]:
        """A tool call; `arguments` is sent as it is."""
        ...

    def ping(self) -> bytes:
        """Something without data."""
        ...

    def unknown(self) -> bytes:
        """An event of a kind that nobody knows."""
        ...

    def error(self, error: ScriptedError) -> bytes:
        """An error inside the stream."""
        ...

    def end(self, stop_reason: str) -> Iterator[bytes]:
        """The end of a whole answer."""
        ...

    def garbage(self, kind: str) -> Iterator[bytes]:
        """Nonsense in the shape of this wire: wrong_order, wrong_types or huge_delta."""
        ...

    def whole(self, stop_reason: str) -> bytes:
        """The complete answer for who did not ask for a stream."""
        ...


def sse(data: Json, event: str | None = None) -> bytes:
    """An event of a stream."""
    text = dumps(data)
    return f"event: {event}\ndata: {text}\n\n".encode() if event else f"data: {text}\n\n".encode()


def dumps(data: Json) -> str:
    """Compact JSON, odd characters escaped."""
    return json.dumps(data, separators=(",", ":"))


def pieces(text: str) -> list[str]:
    """`text` in deltas."""
    size = max(PIECE_CHARS, -(-len(text) // PIECES_MAX))
    return [text[at : at + size] for at in range(0, len(text), size)]


def new_id(prefix: str) -> str:
    """An id like a provider's."""
    return f"{prefix}{secrets.token_hex(12)}"


# --- data that is bound to model and account, as the real ones are: sealed, and checked when it comes back


def seal(model: str, account: str, content: str) -> str:
    """A signature over `content` that only this model and account can have made (A16, O7, G6)."""
    digest = hashlib.blake2b(
        f"{model}\0{account}\0{content}".encode("utf-8", "surrogatepass"), digest_size=33
    ).digest()
    return base64.b64encode(digest).decode()


def sealed_box(model: str, account: str, content: str) -> str:
    """Encrypted-looking content: the words, and a seal that opens only for this model and account."""
    words = base64.b64encode(content.encode("utf-8", "surrogatepass")).decode()
    return f"{words}.{seal(model, account, content)}"


def box_opens(model: str, account: str, box: Any) -> bool:
    """Whether `box` was made by this model for this account."""
    if not isinstance(box, str) or "." not in box:
        return False
    words, _, mark = box.rpartition(".")
    try:
        content = base64.b64decode(words, validate=True).decode("utf-8", "surrogatepass")
    except ValueError:
        return False
    return mark == seal(model, account, content)


def first_and_last(items: list[str]) -> Iterator[tuple[str, bool, bool]]:
    """(item, is it the first, is it the last)."""
    for at, item in enumerate(items):
        yield item, at == 0, at == len(items) - 1
