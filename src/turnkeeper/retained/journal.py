"""From the CLI's signs to messages of our history, and back: what the journal knows of a delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from turnkeeper.conversation.events import (
    ApprovalRequested,
    AttemptSuperseded,
    Body,
    DeliveryNoted,
    Event,
    MessageAppended,
    ReceiptMoved,
    TurnContinued,
)
from turnkeeper.conversation.messages import ASSISTANT, INTERRUPTED, TOOL, USER, Message, Origin
from turnkeeper.conversation.parts import Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.conversation.turns import ReceiptState
from turnkeeper.retained.machine.known import noted
from turnkeeper.retained.machine.state import Known
from turnkeeper.retained.signs import Sign, SignKind

NATIVE = "native"


class Scribe:
    """Writes one turn's signs as messages: one message for each row of the CLI, results as messages of their own."""

    def __init__(
        self, make_id: Callable[[str], str], cli: str, turn_id: str | None, attempt: int, rounds: int = 0
    ) -> None:
        self._make_id = make_id
        self._origin = Origin(provider=cli)
        self._turn_id = turn_id
        self._attempt = attempt
        self._rounds = rounds
        self._names: dict[str, str] = {}
        self._messages: dict[str, str] = {}
        """native id -> message id of what was written."""
        self.unfinished: str | None = None
        """The message whose words were not said to be the answer: partial, if nothing follows."""

    def bodies(self, signs: Sequence[Sign], now: float) -> list[Body]:
        """What to journal for `signs`, in order."""
        found: list[Body] = []
        parts: list[Part] = []
        row = ""
        final = False

        def close() -> None:
            nonlocal parts
            if parts:
                message = self._message(ASSISTANT, tuple(parts), row, now)
                found.append(MessageAppended(message))
                texts = any(isinstance(part, Text) for part in parts)
                calls = any(isinstance(part, ToolCall) for part in parts)
                self.unfinished = message.message_id if texts and not final and not calls else None
                parts = []

        for sign in signs:
            if sign.kind in (SignKind.SAID, SignKind.THOUGHT, SignKind.CALLED):
                if sign.native_id != row:
                    close()
                    row, final = sign.native_id, False
                final = final or sign.final
                parts.append(self._part(sign))
            elif sign.kind is SignKind.RETURNED:
                close()
                found.append(MessageAppended(self._result(sign, now)))
            elif sign.kind is SignKind.SUPERSEDED:
                close()
                known = self._messages.get(sign.native_id)
                if known is not None:
                    found.append(AttemptSuperseded(message_id=known, why="the CLI tried again"))
        close()
        return found

    def _part(self, sign: Sign) -> Part:
        if sign.kind is SignKind.SAID:
            return Text(sign.text)
        if sign.kind is SignKind.THOUGHT:
            return Thinking(sign.text)
        self._names[sign.call_id] = sign.name
        return ToolCall(id=sign.call_id, name=sign.name, arguments=sign.arguments or {})

    def _result(self, sign: Sign, now: float) -> Message:
        self._rounds += 1
        result = ToolResult(
            tool_call_id=sign.call_id,
            content=sign.text,
            is_error=sign.is_error,
            name=sign.name or self._names.get(sign.call_id),
        )
        return self._message(TOOL, (result,), sign.native_id, now)

    def _message(self, role: str, parts: tuple[Part, ...], native_id: str, now: float) -> Message:
        message = Message(
            message_id=self._make_id("m"),
            role=role,
            parts=parts,
            created_at=now,
            turn_id=self._turn_id,
            attempt=self._attempt,
            round=self._rounds,
            provenance=NATIVE,
            origin=self._origin if role == ASSISTANT else None,
            native_id=native_id or None,
        )
        self._messages[native_id] = message.message_id
        return message

    def typed(self, sign: Sign, now: float) -> MessageAppended:
        """What somebody typed at the terminal."""
        message = self._message(USER, (Text(sign.text),), sign.native_id, now)
        return MessageAppended(message)


def words(parts: Iterable[Part]) -> str:
    """The text of a submission as it is given to a CLI."""
    return "\n".join([part.text for part in parts if isinstance(part, Text)])


class Past(msgspec.Struct, kw_only=True):
    """What a turn's own events say of its delivery."""

    known: Known = Known()
    pane: str = ""
    """Mark of the pane that it was handed to last."""
    rounds: int = 0
    approvals: int = 0
    rows: tuple[str, ...] = ()
    """Native ids that are journaled already."""


def past_of(events: Iterable[Event], attempt: int) -> Past:
    """Read a turn's events, oldest first."""
    known = Known()
    pane = ""
    rounds = approvals = 0
    marks: dict[str, str] = {}
    rows: list[str] = []
    for event in events:
        body = event.body
        same = event.attempt == attempt
        if isinstance(body, DeliveryNoted):
            if same:
                at = str((body.facts or {}).get("pane", ""))
                known = noted(known, body.step, moved=pane not in ("", at))
                if body.step in {"paste", "handed"}:
                    pane = at
            elif body.step == "paste":
                known = msgspec.structs.replace(known, tried=True)
        elif isinstance(body, ReceiptMoved) and body.evidence is not None:
            via = body.evidence.get("via")
            if same and via is not None:
                confirmed = body.state is ReceiptState.CONFIRMED
                known = msgspec.structs.replace(known, accepted=True, confirmed=known.confirmed or confirmed)
            if body.evidence.get("record"):
                rows.append(str(body.evidence["record"]))
        elif isinstance(body, MessageAppended):
            message = body.message
            if message.native_id is not None:
                rows.append(message.native_id)
            if same and message.role == ASSISTANT:
                known = msgspec.structs.replace(known, said=message.standing != INTERRUPTED)
            rounds += message.role == TOOL
        elif isinstance(body, ApprovalRequested):
            approvals += 1
            if isinstance(body.arguments, dict) and "menu" in body.arguments:
                marks[body.approval_id] = str(body.arguments["menu"])
        elif isinstance(body, TurnContinued):
            asked = str(body.decision.get("approval_id", ""))
            if asked in marks:
                known = msgspec.structs.replace(
                    known, decided=(marks[asked], str(body.decision.get("decision", "")))
                )
    return Past(known=known, pane=pane, rounds=rounds, approvals=approvals, rows=tuple(rows))
