"""Rules about attempts that came to nothing: superseded, failed, interrupted and leaked ones.

They are drawn and counted, and never fed back (G12, wire rule 1g.10). What was executed in them is not
forgotten: a call with a real result stays, with its result (G9, G10).
"""

from __future__ import annotations

from typing import Final

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, COMPLETE, INTERRUPTED, TOOL, USER
from turnkeeper.conversation.parts import Part, Text, ToolCall, ToolResult
from turnkeeper.history import leak
from turnkeeper.history.row import DROPPED, REPAIRED, Row, Rows, Run, unbound, with_parts

ASKED_MESSAGES: Final = 2
"""How many messages of the user back a wish for markup is looked for."""


def set_attempts_aside(rows: Rows, run: Run) -> Rows:
    """Superseded, errored and interrupted attempts are not replayed; calls that ran stay (seeds 001, 004).

    Of an interrupted message the calls without a result stay too: they may have been running, and the
    pairing rule says so. Calls of the others never left the provider's stream.
    """
    found = [
        i
        for i, row in run.suspects(rows)
        if row.message.role == ASSISTANT and (not row.message.replay or row.message.standing != COMPLETE)
    ]
    if not found:
        return rows
    out: list[Row | None] = list(rows)
    for i in reversed(found):
        row = rows[i]
        executed = _executed_ids(rows, i)
        interrupted = row.message.standing == INTERRUPTED
        kept: list[Part] = [
            part
            for part in row.message.parts
            if type(part) is ToolCall
            and not part.server_side
            and (part.id in executed or (interrupted and _is_whole(part)))
        ]
        why = f"an attempt that is {_standing(row)} is not replayed"
        if not kept:
            out[i] = None
            run.note(row, "attempts_aside", DROPPED, why)
            continue
        if interrupted:
            first = row.message.parts.index(kept[0])
            kept = [part for part in row.message.parts[:first] if type(part) is Text] + kept
        loose = tuple([part for part in map(unbound, kept) if part is not None])
        out[i] = with_parts(row, loose, standing=COMPLETE, replay=True, envelope=msgspec.UNSET)
        run.note(row, "attempts_aside", REPAIRED, f"{why}, but calls of it that ran are")
    return [row for row in out if row is not None]


def _standing(row: Row) -> str:
    return row.message.standing if row.message.standing != COMPLETE else "set aside"


def _is_whole(call: ToolCall) -> bool:
    return type(call.arguments) is dict and bool(call.arguments or not call.arguments_raw)


def _executed_ids(rows: Rows, at: int) -> set[str]:
    """Calls of the message at `at` that have a real result, before the same id is used again.

    Results are looked for until another answer was given and the user spoke again.
    """
    wanted = {part.id for part in rows[at].message.parts if type(part) is ToolCall}
    executed: set[str] = set()
    answered = False
    for row in rows[at + 1 :]:
        message = row.message
        if not wanted or (answered and message.role == USER):
            break
        if message.role == ASSISTANT:
            answered = answered or (message.replay and message.standing == COMPLETE)
            wanted -= {part.id for part in message.parts if type(part) is ToolCall}
        elif message.role in (TOOL, USER):
            for part in message.parts:
                if type(part) is ToolResult and not part.synthetic and part.tool_call_id in wanted:
                    executed.add(part.tool_call_id)
                    wanted.discard(part.tool_call_id)
    return executed


def leave_out_leaks(rows: Rows, run: Run) -> Rows:
    """A message whose tool call leaked into its text teaches the model the broken form (seed 004).

    Markup beside a real call, in a fence or a quotation, or asked for by the user, is no leak.
    """
    found: list[int] = []
    for i, row in run.suspects(rows):
        message = row.message
        if message.role != ASSISTANT:
            continue
        for part in message.parts:
            if type(part) is Text and leak.may_hold_markup(part.text):
                if leak.find_leak(message, asked=_said_before(rows, i, run)) is not None:
                    found.append(i)
                break
    if not found:
        return rows
    gone = set(found)
    for i in found:
        run.note(rows[i], "leaked_markup", DROPPED, "markup of a tool call leaked into its text")
    return [row for i, row in enumerate(rows) if i not in gone]


def _said_before(rows: Rows, at: int, run: Run) -> str:
    """What the user had said before the row at `at`."""
    said: list[str] = []
    for row in reversed(rows[:at]):
        if row.message.role == USER:
            said.append(row.message.text)
            if len(said) == ASKED_MESSAGES:
                break
    else:
        said.append(run.said_before)
    return "\n".join(reversed(said))
