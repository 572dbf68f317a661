"""What happened, in lines for a terminal: one table from event kinds to words, used by `tail` and `chat`.

Everything that comes out of here is printable: agents' words cannot steer the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from turnkeeper.cli.safe import printable

SPEAKERS: Final = {"user": "you", "assistant": "agent", "tool": "tool", "system": "system", "notice": "note"}

TICKS: Final = {"queued": "◷", "accepted": "✓", "confirmed": "✓✓", "uncertain": "?", "failed": "✗"}
"""Receipts at a glance: waits, handed over, shown to have arrived, nobody knows, did not arrive."""

CUT_CHARS: Final = 200
"""Most characters of a tool's arguments or result on a line."""


def short(text: str) -> str:
    """One line of at most CUT_CHARS characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= CUT_CHARS else f"{line[:CUT_CHARS]}… ({len(line)} characters)"


def _call(part: Mapping[str, Any]) -> str:
    arguments = json.dumps(part.get("arguments", {}), ensure_ascii=False)
    return f"→ {printable(part['name'])} {short(arguments)}"


def _result(part: Mapping[str, Any]) -> str:
    content = part.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    sign = "✗" if part.get("is_error") else "←"
    return f"{sign} {short(text)}"


PARTS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "text": lambda part: printable(part["text"]),
    "thinking": lambda part: "(thinking)",
    "tool_call": _call,
    "tool_result": _result,
    "attachment": lambda part: f"[file {printable(part.get('name') or part['attachment_id'])}]",
}


def _unknown(part: Mapping[str, Any]) -> str:
    return f"[{printable(str(part['type']))}]"


def words(parts: Sequence[Mapping[str, Any]]) -> str:
    """The parts of a message as text; kinds that this version does not know are named."""
    shown = [PARTS.get(part["type"], _unknown)(part) for part in parts]
    return "\n".join(piece for piece in shown if piece)


def message_lines(message: Mapping[str, Any]) -> str | None:
    """A message with its speaker, or None if it is not to be drawn."""
    if not message.get("display", True):
        return None
    who = SPEAKERS.get(str(message["role"]), printable(str(message["role"])))
    standing = message.get("standing", "complete")
    mark = "" if standing == "complete" else f" ({printable(standing)})"
    return f"{who}{mark}: {words(message.get('parts', ()))}"


def _failed(body: Mapping[str, Any]) -> str:
    return f"failed: {printable(body['failure']['sentence'])} (turnkeeper retry TURN)"


def _receipt(body: Mapping[str, Any]) -> str:
    state = body["state"]
    return f"{TICKS.get(state, '')} {printable(state)}"


EVENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], str | None]]] = {
    "MessageAppended": lambda body: message_lines(body["message"]),
    "Submitted": lambda body: f"waiting: {short(words(body['request']['parts']))}",
    "TurnStarted": lambda body: f"started ({printable(body.get('why', 'promoted'))})",
    "TurnSettled": lambda body: printable(body.get("reason", "answered")),
    "TurnFailed": _failed,
    "TurnCancelled": lambda body: f"cancelled: {printable(body['reason'])}",
    "TurnParked": lambda body: f"waits for you: {short(json.dumps(body['needs'], ensure_ascii=False))}",
    "TurnContinued": lambda body: "goes on",
    "TurnRequeued": lambda body: f"waits again ({printable(body['why'])})",
    "TurnEdited": lambda body: f"edited: {short(words(body['parts']))}",
    "TurnMoved": lambda body: "moved in the queue",
    "SteerTaken": lambda body: "the running turn took it along",
    "SteerReturned": lambda body: "the running turn was over; it is next",
    "ReceiptMoved": _receipt,
    "LanePaused": lambda body: f"queue paused ({printable(body['reason'])})",
    "LaneResumed": lambda body: "queue goes on",
    "AutoResumed": lambda body: f"resumed by itself after: {printable(body['failure']['sentence'])}",
    "RoundFailed": lambda body: f"model call failed: {printable(body['failure']['sentence'])}",
    "Noticed": lambda body: f"note: {printable(body['text'])}",
    "ConversationRenamed": lambda body: f"title: {short(body['title'])}",
    "ConversationDeleted": lambda body: f"deleted; can be restored for {body['undo_seconds']:g} s",
    "ConversationRestored": lambda body: "restored",
}
"""What a reader wants to see. Other kinds are bookkeeping and shown only when asked for."""


def event_line(event: Mapping[str, Any], *, everything: bool = False) -> str | None:
    """The line of an event, or None if it is none for the eye. `everything` names bookkeeping too."""
    kind = str(event["kind"])
    known = EVENTS.get(kind)
    if known is not None:
        return known(event["body"])
    return f"[{printable(kind)}]" if everything else None
