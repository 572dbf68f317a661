"""Rules about the shape of a feed: who may say what, in which order, and nothing empty.

Each rule is total: it takes any rows, also nonsense, and what it cannot use it leaves out with a reason.
"""

from __future__ import annotations

from typing import Final

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, NOTICE, SYSTEM, TOOL, USER, Message
from turnkeeper.conversation.parts import (
    Attachment,
    Json,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from turnkeeper.history import wording
from turnkeeper.history.row import (
    ADDED,
    DROPPED,
    MERGED,
    MOVED,
    REPAIRED,
    REPLACED,
    Row,
    Rows,
    Run,
    blank,
    client_calls,
    is_bound,
    is_other_reply,
    unbound,
    with_parts,
)

SUMMARY: Final = "summary"
"""Provenance of a message that holds the summary of a compaction."""
TURNKEEPER: Final = "turnkeeper"
"""Provenance of a message that Turnkeeper wrote."""

_FED = frozenset({USER, ASSISTANT, TOOL, SYSTEM})


# --- roles and parts


def leave_out_what_is_only_shown(rows: Rows, run: Run) -> Rows:
    """Events, notices and roles that no provider knows are for the eye (G8; wire rule 1g.10).

    A notice that may be replayed speaks to the model from the user's side.
    """
    found = [
        i
        for i, row in run.suspects(rows)
        if row.message.role not in _FED or not (row.message.replay or row.message.role == ASSISTANT)
    ]
    if not found:
        return rows
    kept = list(rows)
    for i in reversed(found):
        row = rows[i]
        if row.message.role == NOTICE and row.message.replay:
            kept[i] = Row(msgspec.structs.replace(row.message, role=USER), row.sources)
            continue
        del kept[i]
        known = row.message.role in _FED or row.message.role == NOTICE
        why = (
            "it is shown and never replayed" if known else f"no provider knows the role {row.message.role!r}"
        )
        run.note(row, "display_only", DROPPED, why)
    return kept


def keep_system_messages_first(rows: Rows, run: Run) -> Rows:
    """Instructions open the request; a later one speaks from the user's side (wire rules A5, B1, G1, M3).

    Moving it to the front would change the bytes of everything that was sent after it.
    """
    found = [i for i, row in run.suspects(rows) if row.message.role == SYSTEM]
    if run.opens:
        found = [i for k, i in enumerate(found) if i != k]
    if not found:
        return rows
    changed = list(rows)
    for i in found:
        row = rows[i]
        parts = tuple(
            msgspec.structs.replace(part, text=wording.SYSTEM_NOTE + part.text)
            if type(part) is Text
            else part
            for part in row.message.parts
        )
        changed[i] = with_parts(row, parts, role=USER)
        run.note(
            row, "system_first", REPAIRED, "instructions inside the conversation are a note to the model"
        )
    return changed


_ALLOWED: dict[str, frozenset[type]] = {
    USER: frozenset({Text, Attachment}),
    SYSTEM: frozenset({Text}),
    TOOL: frozenset({ToolResult}),
    ASSISTANT: frozenset({Text, Thinking, ToolCall}),
}


def put_parts_in_their_place(rows: Rows, run: Run) -> Rows:
    """Results stand in tool rows, calls and reasoning in the assistant's, nothing else there (A3, C2).

    Results inside a user's or assistant's message get a row of their own; what a tool gave beside its result
    joins the result; parts of an unknown kind are left out unless their provider gave a block for them.
    """
    found = [
        i
        for i, row in run.suspects(rows)
        for part in row.message.parts
        if type(part) not in _ALLOWED[row.message.role] or (type(part) is ToolResult and part.server_side)
    ]
    out: Rows | None = None
    done = 0
    for i in dict.fromkeys(found):
        new = _PLACERS[rows[i].message.role](rows[i], run)
        if new is None:
            continue
        if out is None:
            out = []
        out += rows[done:i]
        out += new
        done = i + 1
    if out is None:
        return rows
    out += rows[done:]
    return out


def _drop_part(row: Row, run: Run, part: Part) -> None:
    kind = part.kind if type(part) is Opaque else type(part).__name__.lower()
    run.note(
        row,
        "parts_in_place",
        DROPPED,
        f"a part of kind {kind} has no place in a message of {row.message.role}",
    )


def _place_user(row: Row, run: Run) -> Rows | None:
    results = tuple(part for part in row.message.parts if type(part) is ToolResult)
    rest: list[Part] = []
    for part in row.message.parts:
        if type(part) in _ALLOWED[USER] or (type(part) is Opaque and part.block is not msgspec.UNSET):
            rest.append(part)
        elif type(part) is not ToolResult:
            _drop_part(row, run, part)
    if len(rest) == len(row.message.parts):
        return None
    new: Rows = []
    if results:
        new.append(with_parts(row, results, role=TOOL))
    if rest or not results:
        new.append(with_parts(row, tuple(rest)))
    return new


def _place_system(row: Row, run: Run) -> Rows | None:
    for part in row.message.parts:
        if type(part) is not Text:
            _drop_part(row, run, part)
    return [with_parts(row, tuple(part for part in row.message.parts if type(part) is Text))]


def _place_tool(row: Row, run: Run) -> Rows | None:
    results: list[ToolResult] = []
    before: list[Json] = []
    for part in row.message.parts:
        if type(part) is ToolResult:
            results.append(msgspec.structs.replace(part, server_side=False) if part.server_side else part)
        elif type(part) is Text or type(part) is Attachment:
            bare = part if type(part) is Attachment else msgspec.structs.replace(part, block=msgspec.UNSET)
            piece = msgspec.to_builtins(bare)
            if results:
                results[-1] = _joined(results[-1], piece)
            else:
                before.append(piece)
        else:
            _drop_part(row, run, part)
    if not results:
        run.note(row, "parts_in_place", DROPPED, "a tool's message without a result")
        return []
    for piece in reversed(before):
        results[0] = _joined(results[0], piece, front=True)
    return [with_parts(row, tuple(results))]


def _joined(result: ToolResult, piece: Json, *, front: bool = False) -> ToolResult:
    content = result.content
    if type(content) is list:
        pieces = list(content)
    elif content is None or content == "":
        pieces = []
    else:
        pieces = [{"type": "text", "text": content}] if type(content) is str else [content]
    pieces = [piece, *pieces] if front else [*pieces, piece]
    return msgspec.structs.replace(result, content=pieces, block=msgspec.UNSET)


def _place_assistant(row: Row, run: Run) -> Rows | None:
    message = row.message
    # A provider's own call and result stay together where the provider put them (A21).
    calls = {p.id for p in message.parts if type(p) is ToolCall and p.server_side}
    answers = {
        p.tool_call_id
        for p in message.parts
        if type(p) is ToolResult and p.server_side and p.block is not msgspec.UNSET
    }
    together = calls & answers
    beside = {p.tool_call_id for p in message.parts if type(p) is ToolResult}
    new: Rows = []
    kept: list[Part] = []
    changed = False
    for part in message.parts:
        if isinstance(part, ToolResult):
            if part.server_side and part.tool_call_id in together:
                kept.append(part)
                continue
            changed = True
            if kept:
                new.append(with_parts(row, tuple(kept)))
                kept = []
            result = msgspec.structs.replace(part, server_side=False) if part.server_side else part
            new.append(with_parts(row, (result,), role=TOOL, origin=None, envelope=msgspec.UNSET))
        elif isinstance(part, Opaque) and part.block is msgspec.UNSET:
            changed = True
            _drop_part(row, run, part)
        elif isinstance(part, Attachment):
            changed = True
            kept.append(Text(f"[file {part.name or part.attachment_id}]"))
            run.note(
                row, "parts_in_place", REPLACED, "a file that the assistant made is named, not sent back"
            )
        elif isinstance(part, ToolCall) and part.server_side and part.id in beside - together:
            changed = True
            kept.append(msgspec.structs.replace(part, server_side=False, block=msgspec.UNSET, bound=None))
        else:
            kept.append(part)
    if not changed:
        return None
    if kept or not new:
        new.append(with_parts(row, tuple(kept)))
    return new


_PLACERS = {USER: _place_user, SYSTEM: _place_system, TOOL: _place_tool, ASSISTANT: _place_assistant}


def keep_server_calls_answered(rows: Rows, run: Run) -> Rows:
    """A call that the provider runs itself needs its result beside it, or neither goes out (wire rule A21).

    One whose result stands elsewhere is an ordinary call from here on; one that has none is left out: only
    its provider could have finished it.
    """
    out: Rows | None = None
    for i, row in run.suspects(rows):
        parts = row.message.parts
        if row.message.role != ASSISTANT or not [1 for p in parts if type(p) is ToolCall and p.server_side]:
            continue
        beside = {p.tool_call_id for p in parts if type(p) is ToolResult}
        if not [p for p in parts if type(p) is ToolCall and p.server_side and p.id not in beside]:
            continue
        answered: set[str] = set()
        for other in rows[i + 1 :]:
            if other.message.role == USER:
                break
            if other.message.role == TOOL:
                answered |= {p.tool_call_id for p in other.message.parts if type(p) is ToolResult}
        kept: list[Part] = []
        for part in parts:
            if type(part) is ToolCall and part.server_side and part.id not in beside:
                if part.id in answered:
                    kept.append(
                        msgspec.structs.replace(part, server_side=False, block=msgspec.UNSET, bound=None)
                    )
                else:
                    run.note(row, "server_calls", DROPPED, f"the provider never finished its call {part.id}")
                continue
            kept.append(part)
        if out is None:
            out = list(rows)
        out[i] = with_parts(row, tuple(kept))
    return rows if out is None else out


# --- summaries


def keep_one_summary(rows: Rows, run: Run) -> Rows:
    """Only the newest summary of a compaction is given; a summary is never taken for a request.

    Origin: a second compaction that summed up the first one's summary as "the last request"
    (github.com/mistralai/mistral-vibe/issues/221).
    """
    found = [
        i for i, row in run.suspects(rows) if row.message.provenance == SUMMARY and row.message.role == USER
    ]
    if len(found) < 2:
        return rows
    older = set(found[:-1])
    for i in found[:-1]:
        run.note(rows[i], "one_summary", DROPPED, "a newer summary stands for it")
    return [row for i, row in enumerate(rows) if i not in older]


# --- neighbours


def merge_neighbours(rows: Rows, run: Run) -> Rows:
    """Neighbours of one side become one message; none is deleted to make sides alternate (A5, B1, C8, 1g.1).

    An answer to a later request does not join a message whose calls are open: their results come between.
    """
    for i in run.neighbours(rows):
        if not _stands_apart(rows[i - 1], rows[i]):
            break
    else:
        return rows
    out = rows[:i]
    for j in range(i, len(rows)):
        row, last = rows[j], out[-1]
        if row.message.role != last.message.role or _stands_apart(last, row):
            out.append(row)
            continue
        if row.message.role != TOOL:
            run.note(
                row, "merge_neighbours", MERGED, f"two messages of the {row.message.role} in a row are one"
            )
        out[-1] = _merged(last, row)
    return out


def _stands_apart(first: Row, second: Row) -> bool:
    return (
        first.message.role == ASSISTANT
        and is_other_reply(first.message, second.message)
        and bool(client_calls(first.message))
    )


def _merged(first: Row, second: Row) -> Row:
    a, b = first.message, second.message
    origin, parts = a.origin, a.parts + b.parts
    envelope = (
        a.envelope
        if b.envelope is msgspec.UNSET
        else b.envelope
        if a.envelope is msgspec.UNSET
        else msgspec.UNSET
    )
    provenance = a.provenance if a.provenance != SUMMARY else b.provenance
    if a.origin != b.origin:
        if not is_bound(b):
            origin = a.origin
        elif not is_bound(a):
            origin = b.origin
        else:
            origin, envelope = b.origin, b.envelope
            parts = tuple([part for part in map(unbound, a.parts) if part is not None]) + b.parts
    message = msgspec.structs.replace(
        a,
        parts=parts,
        origin=origin,
        envelope=envelope,
        provenance=provenance,
        stop_reason=b.stop_reason,
        submission_id=a.submission_id if a.submission_id == b.submission_id else None,
    )
    return Row(message, first.sources + tuple(s for s in second.sources if s not in first.sources))


def feed_repeated_request_once(rows: Rows, run: Run) -> Rows:
    """A user's words that stand unanswered at the end, and again, are in the feed once (seed 000).

    Equal means words and attachments: the same text with another file is another request. Once answered, a
    verbatim repeat is a new request. Neighbours count wherever they stand, so that a feed does not change
    when the answer comes: what was sent once stays once.
    """
    repeats: set[int] = set()
    for i in run.neighbours(rows):
        if rows[i].message.role != USER:
            continue
        before = i - 1
        while before in repeats:
            before -= 1
        if _is_repeat(rows[before].message, rows[i].message):
            repeats.add(i)
            run.note(rows[i], "trailing_duplicate", DROPPED, "the same words stand before it, unanswered")
    return [row for i, row in enumerate(rows) if i not in repeats] if repeats else rows


def _is_repeat(first: Message, second: Message) -> bool:
    if first.submission_id is not None and first.submission_id == second.submission_id:
        return True
    if SUMMARY in (first.provenance, second.provenance):
        return False
    return bool(first.parts) and same_words(first.parts, second.parts)


def same_words(first: tuple[Part, ...], second: tuple[Part, ...]) -> bool:
    """Whether two messages say the same: equal texts and equal attachments in the same order."""
    return len(first) == len(second) and all(map(_same_part, first, second))


def _same_part(a: Part, b: Part) -> bool:
    if type(a) is not type(b):
        return False
    if type(a) is Text:
        return a.text == b.text  # type: ignore[union-attr]
    if type(a) is Attachment and type(b) is Attachment:
        if a.sha256 and b.sha256:
            return a.sha256 == b.sha256
        return a.attachment_id == b.attachment_id
    return a == b


# --- order and emptiness inside a message


def put_calls_last(rows: Rows, run: Run) -> Rows:
    """Words stand before the calls of a message, and nothing behind the last one (wire rule A4, a recorded 400).

    Reasoning between two calls stays where it is: its provider wants it back in its place (A15).
    """
    out: Rows | None = None
    for i, row in run.suspects(rows):
        if row.message.role != ASSISTANT:
            continue
        parts = row.message.parts
        if len(parts) < 2:
            continue
        first = last = -1
        words_after = False
        for k, part in enumerate(parts):
            if type(part) is ToolCall and not part.server_side:
                if first < 0:
                    first = k
                last = k
            elif first >= 0 and type(part) is not Thinking:
                words_after = True
        if first < 0 or (last == len(parts) - 1 and not words_after):
            continue
        moved: list[Part] = []
        kept: list[Part] = []
        for k in range(first, len(parts)):
            part = parts[k]
            stays = (type(part) is ToolCall and not part.server_side) or (type(part) is Thinking and k < last)
            (kept if stays else moved).append(part)
        if out is None:
            out = list(rows)
        out[i] = with_parts(row, (*parts[:first], *moved, *kept))
        run.note(row, "calls_last", MOVED, "what stood after a call now stands before the calls")
    return rows if out is None else out


def fill_or_drop_the_empty(rows: Rows, run: Run) -> Rows:
    """No blank text, no empty message, no message of reasoning only, no empty result (A10-A12, A19, B5, C6, O10).

    An empty message of the user is kept as a visible word, never a space; an empty one of the assistant goes.
    """
    out: Rows | None = None
    done = 0
    for i, row in run.suspects(rows):
        new: Row | None = row
        if row.message.role == TOOL:
            if not row.message.parts:
                run.note(row, "nothing_empty", DROPPED, "a tool's message without a result")
                new = None
            for part in row.message.parts:
                if type(part) is ToolResult and _is_empty(part.content):
                    new = _filled(row, run)
                    break
        else:
            spoken = False
            for part in row.message.parts:
                if type(part) is Text:
                    if blank(part.text):
                        spoken = False
                        break
                    spoken = True
                elif type(part) is not Thinking:
                    spoken = True
            if not spoken and not _begins_an_answer(rows, i):
                new = _without_blanks(row, run)
        if new is row:
            continue
        if out is None:
            out = []
        out += rows[done:i]
        if new is not None:
            out.append(new)
        done = i + 1
    if out is None:
        return rows
    out += rows[done:]
    return out


def _begins_an_answer(rows: Rows, i: int) -> bool:
    """Whether a row of reasoning is the first row of an answer that goes on in the next one.

    Some programs store each item of a response as a row of its own; neighbours are merged later on.
    """
    if i + 1 == len(rows) or rows[i + 1].message.role != ASSISTANT:
        return False
    first, second = rows[i].message, rows[i + 1].message
    return (
        bool(first.parts)
        and all(type(part) is Thinking for part in first.parts)
        and first.stop_reason is None
        and first.origin == second.origin
        and not is_other_reply(first, second)
        and second.replay
    )


def _is_empty(content: Json) -> bool:
    if type(content) is str:
        return not content or content.isspace()
    if content is None or content in ([], {}):
        return True
    if type(content) is list:
        return all(
            isinstance(piece, dict) and piece.get("type") == "text" and blank(str(piece.get("text") or ""))
            for piece in content
        )
    return False


def _filled(row: Row, run: Run) -> Row:
    run.note(row, "nothing_empty", REPLACED, "a result without a visible character")
    return with_parts(
        row,
        tuple(
            msgspec.structs.replace(part, content=wording.EMPTY_RESULT, block=msgspec.UNSET)
            if type(part) is ToolResult and _is_empty(part.content)
            else part
            for part in row.message.parts
        ),
    )


def _without_blanks(row: Row, run: Run) -> Row | None:
    message = row.message
    kept = tuple([part for part in message.parts if not (type(part) is Text and blank(part.text))])
    if [1 for part in kept if type(part) is not Thinking]:
        run.note(row, "nothing_empty", REPAIRED, "a text without a visible character was left out")
        return with_parts(row, kept)
    if message.role == USER:
        run.note(row, "nothing_empty", REPLACED, "an empty message of the user")
        return with_parts(row, (Text(wording.EMPTY_USER),))
    why = "reasoning without an answer" if kept else f"an empty message of the {message.role}"
    run.note(row, "nothing_empty", DROPPED, why)
    return None


# --- the two ends


def open_with_the_user(rows: Rows, run: Run) -> Rows:
    """A conversation is opened by the user (wire rules B1, G1): one that was cut gets a line that says so."""
    start = 0
    while start < len(rows) and rows[start].message.role == SYSTEM:
        start += 1
    if not run.opens or start == len(rows) or rows[start].message.role == USER:
        return rows
    opening = Row(
        Message(message_id="", role=USER, parts=(Text(wording.OPENING),), provenance=TURNKEEPER), ()
    )
    run.note(opening, "opened_by_user", ADDED, "the history begins in the middle")
    return [*rows[:start], opening, *rows[start:]]


def end_with_the_user(rows: Rows, run: Run) -> Rows:
    """A request ends on the user's side (wire rules A13, A14, B1, G4, M5): after an answer, "continue" is said."""
    if not run.options.for_request or not rows or rows[-1].message.role != ASSISTANT:
        return rows
    closing = Row(
        Message(message_id="", role=USER, parts=(Text(wording.CONTINUE),), provenance=TURNKEEPER), ()
    )
    run.note(closing, "ended_by_user", ADDED, "the history ends on an answer, and models refuse to be put on")
    return [*rows, closing]
