"""Rows of a Claude Code transcript into records and turns: several rows that are one message become one."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, UnsetType

from turnkeeper.transcript.claude_code.classify import COMMAND, NOTHING, Classifier, Said
from turnkeeper.transcript.claude_code.queue import Queue
from turnkeeper.transcript.claude_code.rows import (
    NOTICE_OF_SYSTEM,
    SPEECHLESS_SYSTEM,
    UNFINISHED_STOPS,
    Block,
    Content,
    Row,
    holds_result,
    plain,
)
from turnkeeper.transcript.record import (
    ERRORED,
    FAILED,
    FINAL,
    HUMAN,
    INFERRED,
    INTERRUPTED,
    NOTICE,
    PROGRESS,
    RUNNING,
    SETTLED,
    THINKING,
    TOOL,
    UNKNOWN,
    Piece,
    Record,
    Turn,
)


class Fold:
    """Rows of one branch, told in order, into records and turns."""

    def __init__(self, says: Classifier, queue: Queue) -> None:
        self._says = says
        self._queue = queue
        self.records: list[Record] = []
        self.turns: list[Turn] = []
        self.unknown: dict[str, int] = {}
        self.offset = -1
        """Byte at which the row begins that is told of."""
        self._turn: Turn | None = None
        self._turn_key: str | None = None
        self._open: list[Record] = []
        """Texts of this turn that become progress if a tool call follows."""
        self._finished = False
        """Whether the newest text said that the response ended."""
        self._tool_waits = False
        self._before_ride: tuple[list[Record], bool] = [], False
        self._texts: dict[str, Record] = {}
        """Per response: the record of its newest text."""
        self._thoughts: dict[str, Record] = {}
        self._tools: dict[str, str] = {}
        """Calls of this turn, with the response that made them."""
        self._old_file = False
        self._pairs = ""
        """The notice that the next row may only complete: a command and its output are one."""
        self._prompt_index: int | None = None
        self._command: tuple[int, int, Row, Said] | None = None
        """A slash command that waits for the row behind it: an answer makes it a person's words."""
        self._people: set[str] = set()
        """Rows in which a person spoke: an attachment that came from one of them is the same message."""
        self._absorbed: dict[str, Record] = {}
        """Records of attachments, by the row that the same message may still get."""

    def feed(self, number: int, row: Row, offset: int = -1) -> None:
        """The next row."""
        kind = row.type
        message = row.message
        self.offset = offset
        if message is None:
            if kind == "system":
                self.system(number, row)
            elif kind == "attachment":
                self.attachment(number, row)
        elif kind == "assistant":
            self.assistant(number, row, message)
        elif kind == "user":
            if not holds_result(message):
                self.user(number, row, message)
            elif self._command is not None:
                self._decide_command(row, message)

    @property
    def waits(self) -> bool:
        """Whether the next spoken row decides what an earlier one was."""
        return self._command is not None

    def finish(self, *, last: bool = True) -> None:
        """The rows end here. `last`: the file may go on where they end."""
        if self._command is not None:
            self._decide_command(None, None)
        self._close(last=last)

    def _decide_command(self, row: Row | None, message: Content | None) -> None:
        assert self._command is not None
        number, offset, held, said = self._command
        self._command = None
        self.offset, offset = offset, self.offset
        if row is not None and message is not None and self._says.answers_command(row, message):
            said.provenance = INFERRED
            self._human(number, held, said)
        else:
            self._said(number, held, said.code, said.text)
        self.offset = offset

    def _begin(self, number: int, row: Row, *, human: bool) -> None:
        self._close(last=False)
        self._turn = Turn(row.uuid or f"row:{number}", human=human, row=number)
        self._turn_key = self._turn.key
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

    def _add(self, kind: str, text: str, number: int, row: Row, code: str = "") -> Record:
        record = Record(kind, text, number, row.uuid, self._turn_key, row.timestamp, code, self.offset)
        self.records.append(record)
        return record

    def assistant(self, number: int, row: Row, message: Content) -> None:
        """A row of the agent's."""
        if self._command is not None:
            self._decide_command(row, message)
        self._pairs = ""
        if message.model == "<synthetic>" or row.is_api_error_message:
            self._synthetic(number, row, message)
            return
        turn = self._turn
        if turn is None or turn.ended_row is not None:
            self._begin(number, row, human=False)
        content = message.content
        if isinstance(content, str):
            content = [Block("text", content)]
        key = message.id or row.uuid or ""
        for block in content or ():
            kind = block.type
            if kind == "text":
                if block.text:
                    self._text(number, row, key, block.text, message.stop_reason)
            elif kind == "tool_use":
                self._tool(number, row, key, block)
            elif kind == "thinking":
                thinking = block.thinking
                if thinking:
                    if key in self._thoughts:
                        self._think(number, row, key, thinking)
                    else:
                        self._thoughts[key] = self._add(THINKING, thinking, number, row)
            elif kind is not None and kind.endswith("tool_use"):
                self._tool(number, row, key, block)

    def _synthetic(self, number: int, row: Row, message: Content) -> None:
        """A row that the CLI wrote in the agent's name: the end of a failed turn, or nothing."""
        if row.is_api_error_message:
            turn = self._turn
            if turn is not None:
                turn.state, turn.reason, turn.ended_row = FAILED, "api_error", number
            for record in self._open:
                record.status = ERRORED
            self._add(NOTICE, plain(message.content)[0], number, row, "api_error")

    def _think(self, number: int, row: Row, key: str, thinking: str) -> None:
        before = self._thoughts.get(key)
        if before is not None and thinking.startswith(before.text):
            if thinking != before.text:
                before.text, before.native_id = thinking, row.uuid
        else:
            self._thoughts[key] = self._add(THINKING, thinking, number, row)

    def _tool(self, number: int, row: Row, key: str, block: Block) -> None:
        name = block.id or ""
        if name:
            if self._tools.get(name) == key:
                return
            self._tools[name] = key
        if self._open:
            if not self._finished:
                for record in self._open:
                    record.kind = PROGRESS
            self._open.clear()
        self._finished = False
        self._tool_waits = True
        self._add(TOOL, block.name or "", number, row, name)

    def _text(self, number: int, row: Row, key: str, text: str, stop: str | UnsetType | None) -> None:
        ends = stop not in UNFINISHED_STOPS
        if key in self._texts:
            before = self._texts[key]
            if self._goes_on(before, row.uuid, text):
                if ends and before in self._open:
                    self._finished = True
                return
        record = Record(FINAL, text, number, row.uuid, self._turn_key, row.timestamp, "", self.offset)
        self.records.append(record)
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

    def _goes_on(self, record: Record, native_id: str | None, text: str) -> bool:
        """Whether `text` belongs to a text of the same response: a snapshot of it, or its next piece."""
        pieces: list[Piece] = list(record.pieces) or [(record.native_id, record.text)]
        for at, (_, piece) in enumerate(pieces):
            if text == piece or piece.startswith(text):
                return True
            if text.startswith(piece):
                # A cumulative snapshot: the same text, further on.
                pieces[at] = native_id, text
                break
        else:
            if record not in self._open:
                return False
            pieces.append((native_id, text))
        record.text = "\n\n".join([piece for _, piece in pieces])
        record.native_id = pieces[0][0]
        record.pieces = tuple(pieces) if len(pieces) > 1 else ()
        return True

    def user(self, number: int, row: Row, message: Content) -> None:
        """A row of type user that is no tool's result."""
        if self._command is not None:
            self._decide_command(row, message)
        said = self._says.user(row, message)
        if said.kind == HUMAN:
            self._human(number, row, said)
        elif said.kind == COMMAND:
            self._command = number, self.offset, row, said
        elif said.kind == NOTICE:
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
        self._add(NOTICE, text, number, row, code)
        self._pairs = "" if completes else code

    def _human(self, number: int, row: Row, said: Said) -> None:
        self._pairs = ""
        if row.uuid is not None:
            self._people.add(row.uuid)
            if row.uuid in self._absorbed:
                self._forget(self._absorbed.pop(row.uuid))
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
        record = self._add(HUMAN, said.text, number, row)
        record.provenance, record.images, record.queued = said.provenance, said.images, rides
        if row.forked_from is not None and row.forked_from.message_uuid is not None:
            record.aliases = (row.forked_from.message_uuid,)
        if row.prompt_source in {"queued", None}:
            self._queue.delivered(record)

    def _forget(self, record: Record) -> None:
        """An attachment's message has a row of its own: that one counts."""
        for at in range(len(self.records) - 1, -1, -1):
            if self.records[at] is record:
                del self.records[at]
                break
        if self._turn is None or self._turn.key != record.turn:
            return
        if self._turn.row == record.row:
            self.turns.remove(self._turn)
            self._turn = self._turn_key = None
        elif not self._open and not self._tool_waits:
            # Nothing was said since: the turn stands as it stood before.
            self._open, self._finished = self._before_ride

    def _arrive(self, number: int, row: Row, *, rides: bool) -> None:
        """A person's message begins a turn, or rides with the running one and waits for its answer there."""
        if not rides:
            self._begin(number, row, human=True)
        else:
            self._before_ride = [*self._open], self._finished
            if self._finished:
                self._open.clear()
                self._finished = False

    def attachment(self, number: int, row: Row) -> None:
        """Something beside a turn: of all kinds only a queued command can be a person's words."""
        attachment = row.attachment
        if attachment is None or attachment.type != "queued_command":
            return
        said = self._says.queued(row, attachment)
        if said.kind == NOTHING:
            return
        source = attachment.source_uuid
        if said.kind == NOTICE:
            self._add(NOTICE, said.text, number, row, said.code)
            return
        if source is not None and source in self._people:
            return
        turn = self._turn
        rides = turn is not None and turn.ended_row is None
        self._arrive(number, row, rides=rides)
        record = self._add(HUMAN, said.text, number, row)
        record.provenance, record.images, record.queued = said.provenance, said.images, True
        record.native_id = row.uuid or source
        record.aliases = tuple(
            other
            for other in (source, attachment.delivery_id)
            if other is not None and other != record.native_id
        )
        self._queue.delivered(record)
        if source is not None:
            self._absorbed[source] = record

    def _interrupt(self, number: int) -> None:
        turn = self._turn
        if turn is not None and turn.ended_row is None:
            turn.state, turn.reason, turn.ended_row = INTERRUPTED, "interrupted", number
        if self._open and not self._finished:
            self._open[-1].status = INTERRUPTED
        self._open.clear()

    def system(self, number: int, row: Row) -> None:
        """A row of the CLI's own."""
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
            self._add(NOTICE, text, number, row, "compaction")
            self._pairs = "compaction"
        elif subtype in NOTICE_OF_SYSTEM:
            self._said(number, row, NOTICE_OF_SYSTEM[subtype], text)
        elif subtype not in SPEECHLESS_SYSTEM:
            name = f"system/{subtype}"
            self.unknown[name] = self.unknown.get(name, 0) + 1


_OUTPUTS: Final = ("<local-command-", "<bash-std")
"""How the output of a local command begins; the command itself stands before it."""
