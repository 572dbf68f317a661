"""Rows of a Claude Code transcript into records and turns: several rows that are one message become one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import UNSET, UnsetType

from turnkeeper.transcript.claude_code.classify import NOTHING, Classifier, Said
from turnkeeper.transcript.claude_code.rows import (
    NOTICE_OF_SYSTEM,
    SPEECHLESS_SYSTEM,
    UNFINISHED_STOPS,
    Attachment,
    Block,
    Content,
    Row,
    holds_result,
    plain,
)
from turnkeeper.transcript.claude_code.select import Selection
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
    THINKING,
    TOOL,
    UNKNOWN,
    Record,
    Turn,
)


class Fold:
    """Rows of one branch into records and turns."""

    def __init__(
        self, rows: Sequence[Row], offsets: Sequence[int], chosen: Selection, says: Classifier
    ) -> None:
        self._rows = rows
        self._offsets = offsets
        self._by_uuid = chosen.by_uuid
        self._live = frozenset(chosen.live) if chosen.superseded else None
        self._says = says
        self.records: list[Record] = []
        self.turns: list[Turn] = []
        self.unknown: dict[str, int] = {}
        self._turn: Turn | None = None
        self._open: list[Record] = []
        """Texts of this turn that become progress if a tool call follows."""
        self._finished = False
        """Whether the newest text said that the response ended."""
        self._tool_waits = False
        self._texts: dict[str, Record] = {}
        self._thoughts: dict[str, Record] = {}
        self._tools: set[tuple[str | None, str]] = set()
        self._old_file = False
        self._pairs = ""
        """The notice that the next row may only complete: a command and its output are one."""
        self._prompt_index: int | None = None

    def run(self, numbers: Iterable[int], *, last: bool = True) -> None:
        """Read the rows `numbers` in order. `last`: the file may go on where they end."""
        rows = self._rows
        for number in numbers:
            row = rows[number]
            kind = row.type
            if kind == "assistant":
                if row.message is not None:
                    self._assistant(number, row, row.message)
            elif kind == "user":
                message = row.message
                if message is not None and not (type(message.content) is list and holds_result(message)):
                    self._user(number, row, message)
            elif kind == "system":
                self._system(number, row)
            elif (
                kind == "attachment"
                and row.attachment is not None
                and row.attachment.type == "queued_command"
            ):
                self._queued(number, row, row.attachment)
        self._close(last=last)

    def _begin(self, number: int, row: Row, *, human: bool) -> None:
        self._close(last=False)
        self._turn = Turn(row.uuid or f"row:{number}", human=human, row=number)
        self.turns.append(self._turn)
        position = row.turn_position
        self._prompt_index = position.prompt_index if position is not None else None

    def _close(self, *, last: bool) -> None:
        """Decide what the open texts were, and how the turn stands, when the next one begins (or the file ends)."""
        turn = self._turn
        if turn is not None and turn.state == RUNNING and not self._tool_waits:
            answered = bool(self._open) and (self._finished or self._old_file or not last)
            if answered:
                turn.state = SETTLED
            elif self._open and last:
                for record in self._open:
                    record.kind = PROGRESS
        if turn is not None and turn.state == RUNNING and not last:
            turn.state = UNKNOWN
        self._open.clear()
        self._texts.clear()
        self._thoughts.clear()
        self._tools.clear()
        self._finished = self._tool_waits = self._old_file = False

    def _add(self, kind: str, text: str, number: int, row: Row, **more: object) -> Record:
        turn = self._turn
        record = Record(
            kind,
            text,
            number,
            row.uuid,
            turn.key if turn is not None else None,
            at=row.timestamp,
            offset=self._offsets[number],
        )
        for name, value in more.items():
            setattr(record, name, value)
        self.records.append(record)
        return record

    def _assistant(self, number: int, row: Row, message: Content) -> None:
        self._pairs = ""
        turn = self._turn
        if row.is_api_error_message or message.model == "<synthetic>":
            if row.is_api_error_message:
                if turn is not None:
                    turn.state, turn.reason, turn.ended_row = FAILED, "api_error", number
                for record in self._open:
                    record.status = ERRORED
                self._add(NOTICE, plain(message.content)[0], number, row, code="api_error")
            return
        if turn is None or turn.ended_row is not None:
            self._begin(number, row, human=False)
            turn = self._turn
        content = message.content
        blocks = [Block("text", content)] if isinstance(content, str) else content or ()
        key = message.id or row.uuid or f"row:{number}"
        stop = message.stop_reason
        for block in blocks:
            kind = block.type
            if kind == "text":
                if block.text:
                    self._text(number, row, key, block.text, stop)
            elif kind == "thinking":
                if block.thinking:
                    before = self._thoughts.get(key)
                    if before is not None and block.thinking.startswith(before.text):
                        before.text = block.thinking
                    else:
                        self._thoughts[key] = self._add(THINKING, block.thinking, number, row)
            elif kind is not None and kind.endswith("tool_use"):
                if block.id is not None:
                    if (key, block.id) in self._tools:
                        continue
                    self._tools.add((key, block.id))
                if not self._finished:
                    for record in self._open:
                        record.kind = PROGRESS
                self._open.clear()
                self._finished = False
                self._tool_waits = True
                self._add(TOOL, block.name or "", number, row, code=block.id or "")

    def _text(self, number: int, row: Row, key: str, text: str, stop: str | UnsetType | None) -> None:
        before = self._texts.get(key)
        ends = stop not in UNFINISHED_STOPS
        if before is not None and text.startswith(before.text):
            # A row that was written again, or a cumulative snapshot: the same text, further on.
            before.text = text
            if ends and before in self._open:
                self._finished = True
            return
        record = self._add(FINAL, text, number, row)
        self._texts[key] = record
        if row.is_aborted_mid_stream:
            record.status = INTERRUPTED
        self._tool_waits = False
        if self._finished:
            # The response before this one had ended: it stays an answer whatever follows.
            self._open.clear()
        self._open.append(record)
        self._finished = ends
        self._old_file = stop is UNSET

    def _user(self, number: int, row: Row, message: Content) -> None:
        said = self._says.user(number, row, message)
        if said.kind == HUMAN:
            self._pairs = ""
            self._human(number, row, said)
            return
        if said.kind == NOTICE:
            if said.code == "interrupted":
                self._interrupt(number)
            if said.begins:
                self._begin(number, row, human=False)
            self._said(number, row, said.code, said.text)
        elif said.begins:
            self._begin(number, row, human=False)

    def _said(self, number: int, row: Row, code: str, text: str) -> None:
        """A notice; the output of a command and the summary behind a compaction complete the one before."""
        completes = code == "compaction" or text.startswith(_OUTPUTS)
        if completes and self._pairs == code:
            self._pairs = ""
            return
        self._add(NOTICE, text, number, row, code=code)
        self._pairs = "" if completes else code

    def _human(self, number: int, row: Row, said: Said) -> None:
        position = row.turn_position
        index = position.prompt_index if position is not None else None
        rides = (
            row.prompt_source == "queued"
            and index is not None
            and index == self._prompt_index
            and self._turn is not None
            and self._turn.ended_row is None
        )
        self._arrive(number, row, rides=rides)
        record = self._add(HUMAN, said.text, number, row, provenance=said.provenance, images=said.images)
        record.queued = rides
        if row.forked_from is not None and row.forked_from.message_uuid is not None:
            record.aliases = (row.forked_from.message_uuid,)

    def _arrive(self, number: int, row: Row, *, rides: bool) -> None:
        """A person's message begins a turn, or rides with the running one and waits for its answer there."""
        if not rides:
            self._begin(number, row, human=True)
        elif self._finished:
            self._open.clear()
            self._finished = False

    def _queued(self, number: int, row: Row, attachment: Attachment) -> None:
        said = self._says.queued(row, attachment)
        if said.kind == NOTHING:
            return
        source = attachment.source_uuid
        if said.kind == NOTICE:
            self._add(NOTICE, said.text, number, row, code=said.code)
            return
        twin = self._by_uuid.get(source) if source is not None else None
        if (
            twin is not None
            and (self._live is None or twin in self._live)
            and self._rows[twin].type == "user"
        ):
            return
        turn = self._turn
        rides = turn is not None and turn.ended_row is None
        self._arrive(number, row, rides=rides)
        record = self._add(HUMAN, said.text, number, row, provenance=said.provenance, images=said.images)
        record.queued = True
        record.native_id = row.uuid or source
        record.aliases = tuple(
            other
            for other in (source, attachment.delivery_id)
            if other is not None and other != record.native_id
        )

    def _interrupt(self, number: int) -> None:
        turn = self._turn
        if turn is not None and turn.ended_row is None:
            turn.state, turn.reason, turn.ended_row = INTERRUPTED, "interrupted", number
        if self._open and not self._finished:
            self._open[-1].status = INTERRUPTED
        self._open.clear()

    def _system(self, number: int, row: Row) -> None:
        subtype = row.subtype or ""
        text = row.content if isinstance(row.content, str) else ""
        if subtype == "turn_duration":
            turn = self._turn
            if turn is not None and turn.ended_row is None:
                if turn.state == RUNNING:
                    turn.state = SETTLED
                turn.ended_row = number
                self._open.clear()
        elif subtype == "compact_boundary":
            self._add(NOTICE, text, number, row, code="compaction")
            self._pairs = "compaction"
        elif subtype in NOTICE_OF_SYSTEM:
            self._said(number, row, NOTICE_OF_SYSTEM[subtype], text)
        elif subtype not in SPEECHLESS_SYSTEM:
            name = f"system/{subtype}"
            self.unknown[name] = self.unknown.get(name, 0) + 1


_OUTPUTS: Final = ("<local-command-", "<bash-std")
"""How the output of a local command begins; the command itself stands before it."""
