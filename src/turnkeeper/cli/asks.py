"""What waits for a person in a terminal: questions read from parked turns, numbered, with the way to answer each.

Pure, like `talk`: fed with the needs of a parked turn, it answers with lines and with what an answer must send.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from turnkeeper.cli.safe import printable

ARGUMENTS_CHARS_MAX: Final = 400
"""Longer arguments are cut in the question; the page and `turnkeeper asks --json` show them whole."""

GIVE_UP: Final = "give_up"


@dataclass(frozen=True)
class Ask:
    """One question. kind: approval | auth | choice"""

    number: int
    turn_id: str
    kind: str
    words: str
    approval_id: str = ""
    server: str = ""
    choices: tuple[str, ...] = ()

    def line(self) -> str:
        """The question with the way to answer it."""
        n = self.number
        ways = {
            "approval": f"/yes {n} or /no {n}",
            "auth": f"/connect {n} or /no {n}",
        }.get(self.kind, f"/choose {n} {'|'.join(self.choices)}")
        return f"? {n}. {self.words} · {ways}"


def read_asks(turn_id: str, needs: Mapping[str, Any], first: int) -> list[Ask]:
    """The questions of a parked turn, numbered from `first`."""
    asks: list[Ask] = []
    for one in needs.get("approvals", ()):
        who = f" ({printable(str(one['who']))} must decide)" if one.get("who") else ""
        words = f"Run {printable(str(one['name']))} {_arguments(one.get('arguments'))}?{who}{_until(one)}"
        asks.append(
            Ask(first + len(asks), turn_id, "approval", words, approval_id=str(one.get("approval_id", "")))
        )
    for one in needs.get("connects", ()):
        names = ", ".join(printable(str(call["name"])) for call in one.get("calls", ()))
        server = printable(str(one["server"]))
        words = f"{server} needs you to sign in; {names} waits for that{_until(one)}"
        asks.append(Ask(first + len(asks), turn_id, "auth", words, server=str(one["server"])))
    if not asks:
        sentence = needs.get("sentence") or "A turn needs you."
        offered = needs.get("choices") or needs.get("offers") or ()
        choices = tuple(printable(str(choice)) for choice in (*offered, GIVE_UP))
        asks.append(Ask(first, turn_id, "choice", printable(str(sentence)), choices=choices))
    return asks


def _arguments(value: Any) -> str:
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= ARGUMENTS_CHARS_MAX else text[:ARGUMENTS_CHARS_MAX] + "…"


def _until(one: Mapping[str, Any]) -> str:
    at = one.get("expires_at")
    if not isinstance(at, int | float):
        return "" if at is None else f" (until {printable(str(at))})"
    return f" (until {datetime.fromtimestamp(at, UTC).strftime('%Y-%m-%d %H:%M:%S')} UTC)"
