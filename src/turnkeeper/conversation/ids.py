"""Time-ordered ids: a prefix that names the kind, then 48 bits of milliseconds and 80 bits of chance.

Ids sort by the time they were made, are safe in URLs and file names, and are strings everywhere.
Time and chance arrive as arguments; nothing here reads a clock.
"""

from __future__ import annotations

from typing import Final

_BITS: Final = (1 << 128) - 1

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
    """An id such as `t_0194e1f0c2a84c1d9b0e7f3a5d6c8b21`.

    `at` is Unix time in seconds; `entropy` is exactly 10 bytes.
    """
    assert len(entropy) == ENTROPY_BYTES
    return id_of(prefix, int(at * 1000) << 80 | int.from_bytes(entropy, "big"))


def id_of(prefix: str, number: int) -> str:
    """The id of a 128-bit number; greater numbers give greater ids."""
    return f"{prefix}_{number & _BITS:032x}"


def approval_id(turn_id: str, round_number: int, index: int) -> str:
    """The id of a question that a turn asks: it names the turn, so that an answer finds it without a table."""
    return f"{APPROVAL}{turn_id.removeprefix(TURN)}.{round_number}.{index}"


def turn_of_approval(approval: str) -> str:
    """The turn that asked; of anything else an id that no turn has."""
    return TURN + approval.removeprefix(APPROVAL).split(".", 1)[0]
