"""Time-ordered ids: a prefix that names the kind, then 48 bits of milliseconds and 80 bits of chance.

Ids sort by the time they were made, are safe in URLs and file names, and are strings everywhere.
Time and chance arrive as arguments; nothing here reads a clock.
"""

from __future__ import annotations

from typing import Final

ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"

ENTROPY_BYTES: Final = 10

CONVERSATION: Final = "c"
TURN: Final = "t"
SUBMISSION: Final = "s"
MESSAGE: Final = "m"
ATTACHMENT: Final = "f"
APPROVAL: Final = "p"
TOKEN: Final = "k"  # noqa: S105 - a prefix of ids
USER: Final = "u"
CALL: Final = "call"


def make_id(prefix: str, at: float, entropy: bytes) -> str:
    """An id such as `t_01jd7m9q3w5v8x2c4b6n1m0k9h`.

    `at` is Unix time in seconds; `entropy` is exactly 10 bytes.
    """
    assert len(entropy) == ENTROPY_BYTES
    number = (int(at * 1000) & ((1 << 48) - 1)) << 80 | int.from_bytes(entropy, "big")
    digits = [ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(digits)}"


def approval_id(turn_id: str, round_number: int, index: int) -> str:
    """The id of a question that a turn asks: it names the turn, so that an answer finds it without a table."""
    return f"{APPROVAL}{turn_id.removeprefix(TURN)}.{round_number}.{index}"


def turn_of_approval(approval: str) -> str:
    """The turn that asked; of anything else an id that no turn has."""
    return TURN + approval.removeprefix(APPROVAL).split(".", 1)[0]
