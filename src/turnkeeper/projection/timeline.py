"""The timeline: the ordered rows that the page draws. The page draws them as they come and sorts nothing.

History first, in its one order; what a turn did on the way (thinking, words beside tool calls, the calls
with their results, how long each took and what it may have done) is one progress row before the turn's
answer; where a turn was resumed by itself, a CLI began another session, or a summary took the place of
older messages in the feed, a row says so; then, last and without a number, what waits in the queue. A row's key is bound to what it shows, so that a row is never drawn for another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from turnkeeper.conversation.events import AutoResumed, Event, SessionBound
from turnkeeper.conversation.messages import ASSISTANT, COMPLETE, NOTICE, TOOL, USER, WORKING, Message
from turnkeeper.conversation.parts import Attachment, Json, Opaque, Text, Thinking, ToolCall, ToolResult
from turnkeeper.conversation.turns import Disposition, ToolCallRow
from turnkeeper.projection.view import TurnView, iso, part_views

RESULT_CHARS_MAX = 20_000
"""A tool result longer than this is cut in the timeline (never in history); the row says so."""


class Step(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that a turn did on the way. kind: thinking | text | tool | other"""

    kind: str
    text: str = ""
    call_id: str | None = None
    name: str | None = None
    arguments: Json = None
    result: str | None = None
    attachments: list[Json] = []
    """What its tool gave beside words."""
    is_error: bool = False
    synthetic: bool = False
    disposition: str | None = None
    effect: str | None = None
    """What the call may have done to the world, as the ledger has it; None where there is no ledger (a CLI's own tools)."""
    seconds: float | None = None
    """From the call's intent to its outcome, by the journal's times."""
    cut: bool = False


class TimelineRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A row. kind: user | answer | progress | notice | aside (superseded, interrupted, leaked) | queued |
    compacted (text: the summary) | resumed (text: what had failed) | session (text: why another one began)"""

    key: str
    kind: str
    seq: int | None = None
    turn_id: str | None = None
    text: str = ""
    attachments: list[Json] = []
    steps: list[Step] = []
    standing: str = COMPLETE
    error: str | None = None
    provenance: str = ""
    at: str | None = None
    turn: TurnView | None = None
    """Of a user or queued row: the fate of the message."""
    facts: dict[str, Json] | None = None
    """Of a resumed row: {rounds, results, input_tokens, output_tokens} that were kept and not paid again. Of a
    session row: {cli, why, native_id, previous, told}; `told`: it was given the recent dialogue."""


class Timeline(msgspec.Struct, kw_only=True):
    """A page of rows. `next` is the cursor of the older page; the queue stands on the newest page only."""

    rows: list[TimelineRow]
    next: int | None
    as_of_seq: int
    epoch: str


def timeline_rows(
    messages: Sequence[Message],
    turns: Mapping[str, TurnView],
    *,
    landmarks: Sequence[Event] = (),
    calls: Iterable[ToolCallRow] = (),
) -> list[TimelineRow]:
    """The rows of a stretch of history that begins with a whole turn. `turns` holds the fates by turn_id.

    `landmarks` are the events of that stretch that are drawn between its messages, in order; `calls` the
    ledgers of its turns.
    """
    rows: list[TimelineRow] = []
    progress: dict[str, TimelineRow] = {}
    steps: dict[tuple[str | None, str], Step] = {}
    ahead = list(landmarks)
    for message in messages:
        # A message that was placed elsewhere than its seq says is no measure of where an event stands.
        while ahead and message.after is None and ahead[0].seq < message.seq:
            _landmark(ahead.pop(0), progress, rows)
        if not message.display:
            continue
        if message.role == USER:
            progress.pop(message.turn_id or "", None)
            rows.append(_said(message, "user", turns.get(message.turn_id or "")))
        elif message.role == NOTICE:
            failed = turns.get(message.turn_id or "")
            if failed is not None and failed.failure and failed.failure["sentence"] == _words(message):
                continue  # the message's own fate says it already
            rows.append(_said(message, "notice" if message.through is None else "compacted", None))
        elif message.role == TOOL:
            _results(message, steps, progress, rows)
        elif message.role == ASSISTANT:
            _assistant(message, steps, progress, rows)
        else:
            rows.append(_said(message, "notice", None))
    for event in ahead:
        _landmark(event, progress, rows)
    for call in calls:
        step = steps.get((call.turn_id, call.call_id))
        if step is not None:
            step.effect = str(call.effect)
            step.seconds = _seconds(call)
    return rows


def _seconds(call: ToolCallRow) -> float | None:
    """How long a call took; None while it runs, and where no one knows when it ended."""
    if call.decided_at is None or call.disposition is Disposition.UNKNOWN:
        return None
    return round(max(call.decided_at - call.intended_at, 0.0), 3)


def _landmark(event: Event, progress: dict[str, TimelineRow], rows: list[TimelineRow]) -> None:
    """The row of an event that is no message. What its turn does after it is drawn after it."""
    body = event.body
    if isinstance(body, AutoResumed):
        kind, text = "resumed", body.failure.sentence
        facts: dict[str, Json] = {
            "rounds": body.kept_rounds,
            "results": body.kept_results,
            "input_tokens": body.saved_input_tokens,
            "output_tokens": body.saved_output_tokens,
        }
    elif isinstance(body, SessionBound) and (body.why != "new" or body.previous is not None):
        kind, text = "session", body.sentence
        facts = {
            "cli": body.cli,
            "why": body.why,
            "native_id": body.native_id,
            "previous": body.previous,
            "told": body.told,
        }
    else:
        return  # the first session of a conversation is what everybody expects
    progress.pop(event.turn_id or "", None)
    rows.append(
        TimelineRow(
            key=f"e-{event.seq}",
            kind=kind,
            seq=event.seq,
            turn_id=event.turn_id,
            text=text,
            at=iso(event.at),
            facts=facts,
        )
    )


def queue_rows(queue: Iterable[TurnView]) -> list[TimelineRow]:
    """What waits, in its order: rows without a number until they are promoted."""
    return [
        TimelineRow(
            key=f"q-{turn.turn_id}",
            kind="queued",
            turn_id=turn.turn_id,
            text=turn.text or "",
            attachments=[part for part in turn.parts or [] if part["type"] == "attachment"],
            at=turn.created_at,
            turn=turn,
        )
        for turn in queue
    ]


def _words(message: Message) -> str:
    return "".join(part.text for part in message.parts if type(part) is Text)


def _said(message: Message, kind: str, turn: TurnView | None) -> TimelineRow:
    attachments = [part for part in message.parts if type(part) is Attachment]
    return TimelineRow(
        key=message.message_id,
        kind=kind,
        seq=message.seq,
        turn_id=message.turn_id,
        text=_words(message),
        attachments=part_views(attachments),
        standing=message.standing,
        error=message.error,
        provenance=message.provenance,
        at=iso(message.created_at),
        turn=turn,
    )


def _progress(message: Message, progress: dict[str, TimelineRow], rows: list[TimelineRow]) -> TimelineRow:
    """The turn's progress row; a new one after something else of the turn was drawn."""
    turn_id = message.turn_id or message.message_id
    row = progress.get(turn_id)
    if row is None:
        row = progress[turn_id] = TimelineRow(
            key=f"p-{message.message_id}",
            kind="progress",
            seq=message.seq,
            turn_id=message.turn_id,
            at=iso(message.created_at),
        )
        rows.append(row)
    return row


def _assistant(
    message: Message,
    steps: dict[tuple[str | None, str], Step],
    progress: dict[str, TimelineRow],
    rows: list[TimelineRow],
) -> None:
    working = message.stop_reason == WORKING or any(type(part) is ToolCall for part in message.parts)
    if message.standing != COMPLETE or not message.replay:
        rows.append(_said(message, "aside", None))
        rows[-1].steps = [_step(part) for part in message.parts if type(part) is not Text]
        return
    for part in message.parts:
        if type(part) is Text and not working:
            continue
        if type(part) is Text and not part.text.strip():
            continue
        step = _step(part)
        _progress(message, progress, rows).steps.append(step)
        if type(part) is ToolCall:
            steps[(message.turn_id, part.id)] = step
    if not working and _words(message).strip():
        # The answer ends this stretch of work; what the turn does after it is drawn after it.
        progress.pop(message.turn_id or message.message_id, None)
        rows.append(_said(message, "answer", None))


def _results(
    message: Message,
    steps: dict[tuple[str | None, str], Step],
    progress: dict[str, TimelineRow],
    rows: list[TimelineRow],
) -> None:
    for part in message.parts:
        if type(part) is not ToolResult:
            continue
        step = steps.get((message.turn_id, part.tool_call_id))
        if step is None:
            step = Step(kind="tool", call_id=part.tool_call_id, name=part.name)
            _progress(message, progress, rows).steps.append(step)
        words, step.attachments = _words_and_files(part.content)
        step.result = words[:RESULT_CHARS_MAX]
        step.cut = len(words) > RESULT_CHARS_MAX
        step.is_error = part.is_error
        step.synthetic = part.synthetic
        step.disposition = part.disposition


def _words_and_files(content: Json) -> tuple[str, list[Json]]:
    """What of a result is read, and which files it holds."""
    if not isinstance(content, list):
        return str(content), []
    files = [piece for piece in content if isinstance(piece, dict) and piece.get("type") == "attachment"]
    words = [
        str(piece["text"]) if isinstance(piece, dict) and "text" in piece else str(piece)
        for piece in content
        if piece not in files
    ]
    return "\n".join(words), files


def _step(part: Any) -> Step:
    if type(part) is Thinking:
        return Step(kind="thinking", text=part.text)
    if type(part) is Text:
        return Step(kind="text", text=part.text)
    if type(part) is ToolCall:
        return Step(kind="tool", call_id=part.id, name=part.name, arguments=part.arguments)
    if type(part) is Opaque:
        return Step(kind="other", name=part.kind, text=str(part.data))
    return Step(kind="other", name=type(part).__name__)
