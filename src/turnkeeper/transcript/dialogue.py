"""Folding for formats whose rows are a plain dialogue: who spoke, which tool ran, how the turn ended.

Text is the answer unless a tool call follows in the same turn. `ends` says whether the format marks the
end of a turn: if it does, text of a turn without an end is progress, because more may come; if it does
not, the last text without a waiting tool is the answer. The readers of Claude Code, Codex and Pi know
more about their turns and fold by themselves.
"""

from __future__ import annotations

from turnkeeper.transcript.record import (
    ERRORED,
    FAILED,
    FINAL,
    HUMAN,
    INTERRUPTED,
    NOTICE,
    PROGRESS,
    RUNNING,
    SETTLED,
    SUPERSEDED,
    THINKING,
    TOOL,
    UNKNOWN,
    Record,
    Turn,
)


class Dialogue:
    """Collects records and turns, in the order in which it is told of them."""

    def __init__(self, *, ends: bool) -> None:
        self._ends = ends
        self.records: list[Record] = []
        self.turns: list[Turn] = []
        self._turn: Turn | None = None
        self._open: list[Record] = []
        self._waits = False
        """Whether a tool was called since the last text."""

    def add(
        self, kind: str, text: str, row: int, native_id: str | None = None, at: str | float | None = None
    ) -> Record:
        """A record as it is; the methods below know what each kind means for the turn."""
        record = Record(kind, text, row, native_id, self._turn.key if self._turn is not None else None, at=at)
        self.records.append(record)
        return record

    @property
    def running(self) -> bool:
        """Whether a turn is open."""
        return self._turn is not None and self._turn.state == RUNNING

    @property
    def answered(self) -> bool:
        """Whether the open turn has said something that no tool call followed."""
        return bool(self._open)

    def begin(self, row: int, key: str | None, *, human: bool = True) -> Turn:
        """A new turn; the one before it is over."""
        self._close(last=False)
        self._turn = Turn(key or f"row:{row}", human=human, row=row)
        self.turns.append(self._turn)
        return self._turn

    def human(
        self,
        text: str,
        row: int,
        native_id: str | None = None,
        at: str | float | None = None,
        *,
        rides: bool = False,
        images: int = 0,
    ) -> Record:
        """A person's message: it begins a turn, or rides with the open one."""
        rides = rides and self.running
        if not rides:
            self.begin(row, native_id)
        record = self.add(HUMAN, text, row, native_id, at)
        record.queued, record.images = rides, images
        return record

    def text(
        self, text: str, row: int, native_id: str | None = None, at: str | float | None = None
    ) -> Record | None:
        """Words of the agent."""
        if not text.strip():
            return None
        self._need(row)
        record = self.add(FINAL, text, row, native_id, at)
        self._open.append(record)
        self._waits = False
        return record

    def thinking(self, text: str, row: int, at: str | float | None = None) -> None:
        """Thinking: progress, never an answer."""
        if text.strip():
            self._need(row)
            self.add(THINKING, text, row, at=at)

    def tool(self, name: str, row: int, call_id: str = "", at: str | float | None = None) -> None:
        """A tool call: the text before it was narration."""
        self._need(row)
        for record in self._open:
            record.kind = PROGRESS
        self._open.clear()
        self._waits = True
        self.add(TOOL, name, row, at=at).code = call_id

    def returned(self) -> None:
        """A tool's result came."""
        self._waits = False

    def notice(
        self, code: str, text: str, row: int, native_id: str | None = None, at: str | float | None = None
    ) -> None:
        """A typed line that nobody said."""
        self.add(NOTICE, text, row, native_id, at).code = code

    def settle(self, row: int) -> None:
        """The turn ended well."""
        self._end(SETTLED, row, None)

    def interrupt(self, row: int) -> None:
        """The turn was stopped; what it was saying stays, marked."""
        if self._open:
            self._open[-1].status = INTERRUPTED
        self._end(INTERRUPTED, row, "interrupted")

    def fail(self, row: int, reason: str) -> None:
        """The turn failed; what it was saying stays, marked."""
        if self._open:
            self._open[-1].status = ERRORED
        self._end(FAILED, row, reason)

    def drop_turn(self) -> None:
        """The open turn was taken back: all of it is superseded."""
        turn = self._turn
        if turn is None:
            return
        for record in self.records:
            if record.turn == turn.key:
                record.state = SUPERSEDED
        self.turns.remove(turn)
        self._turn = self.turns[-1] if self.turns else None
        self._open.clear()

    def finish(self) -> None:
        """The rows end here (for now)."""
        self._close(last=True)

    def _need(self, row: int) -> None:
        if self._turn is None or self._turn.state in {SETTLED, INTERRUPTED, FAILED}:
            self.begin(row, None, human=False)

    def _end(self, state: str, row: int, reason: str | None) -> None:
        turn = self._turn
        if turn is not None and turn.state == RUNNING:
            turn.state, turn.reason, turn.ended_row = state, reason, row
            self._open.clear()
            self._waits = False

    def _close(self, *, last: bool) -> None:
        turn = self._turn
        if turn is not None and turn.state == RUNNING:
            if self._open and not self._waits and not self._ends:
                turn.state = SETTLED
            elif not last:
                turn.state = UNKNOWN
            elif self._ends:
                for record in self._open:
                    record.kind = PROGRESS
        self._open.clear()
        self._waits = False
