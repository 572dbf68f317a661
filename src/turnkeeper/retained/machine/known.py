"""How durable notes add up to what is known of a delivery."""

from __future__ import annotations

from msgspec.structs import replace

from turnkeeper.retained.machine.state import Known


def noted(known: Known, what: str, *, moved: bool = False) -> Known:
    """`known` after one more note. A note is written before the step it names: it may have been taken or not.

    `moved`: it is about another pane than the notes before. What was handed to the former one is gone with it.
    """
    if moved and what == "paste":
        known = replace(known, pastes=0, enters=0, handed=False, tried=True)
    match what:
        case "paste":
            return replace(known, pastes=known.pastes + 1, tried=True)
        case "enter":
            return replace(known, enters=known.enters + 1)
        case "repaste":
            return replace(known, redone=True)
        case "handed":
            return replace(known, handed=True, accepted=True)
        case "took_back" | "recall":
            return replace(known, handed=False, enters=0)
        case "relaunch":
            return replace(known, handed=False, pastes=0, enters=0)
        case _:
            return known
