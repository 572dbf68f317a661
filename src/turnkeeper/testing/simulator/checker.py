"""What must hold in every world, however it was shaken."""

from __future__ import annotations

from collections.abc import Iterable

from turnkeeper.conversation.events import (
    Body,
    ReceiptMoved,
    SteerTaken,
    Submitted,
    TurnCancelled,
    TurnFailed,
    TurnParked,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
    Unknown,
)
from turnkeeper.conversation.turns import RECEIPT_MOVES, ReceiptState


class Broken(AssertionError):
    """A promise did not hold; the message names the promise, the seed stands in the traceback's caller."""


def require(holds: object, promise: str, *facts: object) -> None:
    """Raise Broken unless `holds`."""
    if not holds:
        msg = f"{promise}: {facts}"
        raise Broken(msg)


class JournalChecker:
    """Reads one conversation's events in order and checks what the journal alone can show."""

    def __init__(self) -> None:
        self.seq = 0
        self.keys: dict[tuple[str, str], str] = {}
        self.submitted: list[str] = []
        self.running: str | None = None
        self.fences: dict[str, int] = {}
        self.ends: dict[str, str] = {}
        self.receipts: dict[str, ReceiptState] = {}
        self.riding: set[str] = set()

    def see(self, seq: int, turn_id: str | None, body: Body | Unknown) -> None:
        """The next event."""
        require(seq == self.seq + 1, "G6 seq has no gap", self.seq, seq)
        self.seq = seq
        if turn_id is None:
            return
        if isinstance(body, Submitted):
            name = (body.request.principal.user_id, body.key)
            require(name not in self.keys, "G2 one turn per key", name, self.keys.get(name), turn_id)
            self.keys[name] = turn_id
            self.submitted.append(turn_id)
            self.receipts[turn_id] = ReceiptState.QUEUED
        elif isinstance(body, TurnStarted):
            require(self.running in (None, turn_id), "G3 one at a time", self.running, turn_id)
            require(turn_id not in self.ends, "an ended turn does not start", turn_id)
            before = self.fences.get(turn_id, 0)
            require(body.fence > before, "G13 fencing tokens grow", turn_id, before, body.fence)
            self.fences[turn_id] = body.fence
            self.running = turn_id
            self.riding.discard(turn_id)
        elif isinstance(body, SteerTaken):
            self.riding.add(turn_id)
        elif isinstance(body, TurnSettled | TurnFailed | TurnCancelled):
            require(turn_id not in self.ends, "G5 a turn ends once", turn_id, self.ends.get(turn_id))
            self.ends[turn_id] = type(body).__name__
            self._leave(turn_id)
        elif isinstance(body, TurnParked | TurnRequeued):
            if isinstance(body, TurnRequeued) and body.why == "retried":
                self.ends.pop(turn_id, None)
            self._leave(turn_id)
        elif isinstance(body, ReceiptMoved):
            state = self.receipts[turn_id]
            if body.state != state:
                require(body.state in RECEIPT_MOVES[state], "G14 receipts move forward", turn_id, state)
                self.receipts[turn_id] = body.state

    def _leave(self, turn_id: str) -> None:
        if self.running == turn_id:
            self.running = None
        self.riding.discard(turn_id)

    def finished(self, parked: Iterable[str] = ()) -> None:
        """After liveness: everything that was submitted has an end, or waits for a person."""
        open_turns = [t for t in self.submitted if t not in self.ends and t not in set(parked)]
        require(not open_turns, "G4/G5 every turn ends", open_turns)
        require(self.running is None, "G4 the lane is free", self.running)
