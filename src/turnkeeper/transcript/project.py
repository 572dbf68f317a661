"""What people ask of a transcript: conversation, progress, notices, and what was set aside.

Pure functions of a Reading. `as_case` is the object that `turnkeeper transcript show` prints.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.transcript.record import (
    CANCELLED,
    FINAL,
    HUMAN,
    LIVE,
    NOTICE,
    PROGRESS,
    SUPERSEDED,
    THINKING,
    TOOL,
    UNDELIVERED,
    Reading,
    Record,
)

_PROGRESS_KIND = {THINKING: "thinking", PROGRESS: "text", TOOL: "tool"}


def conversation(reading: Reading) -> list[Record]:
    """What a person would say was said: human and final records that are live, in order."""
    return [record for record in reading.records if record.state == LIVE and record.kind in {HUMAN, FINAL}]


def progress(reading: Reading, *, turn: str | None = None) -> list[Record]:
    """Thinking, text and tools beside the answer, each once, in order; of one turn if `turn` is given."""
    return [
        record
        for record in reading.records
        if record.kind in _PROGRESS_KIND and record.state == LIVE and (turn is None or record.turn == turn)
    ]


def notices(reading: Reading) -> list[Record]:
    """Typed lines that nobody said."""
    return [record for record in reading.records if record.kind == NOTICE and record.state == LIVE]


def set_aside(reading: Reading, state: str) -> list[Record]:
    """What was said in rows that are superseded, undelivered or cancelled."""
    return [record for record in reading.records if record.state == state and record.kind in {HUMAN, FINAL}]


def own(reading: Reading) -> list[Record]:
    """In a fork: the part of the conversation that its parent does not have."""
    first = reading.own_from_row
    return [] if first is None else [record for record in conversation(reading) if record.row >= first]


def spoken(record: Record) -> dict[str, Any]:
    """`{role, text, queued?, status?, images?}`."""
    row: dict[str, Any] = {"role": record.role, "text": record.text}
    if record.queued:
        row["queued"] = True
    if record.status is not None:
        row["status"] = record.status
    if record.images:
        row["images"] = record.images
    return row


def as_case(reading: Reading) -> dict[str, Any]:
    """The whole reading as one JSON object; the keys are documented in docs/transcripts.md."""
    counters = reading.counters
    case: dict[str, Any] = {
        "format": reading.format,
        "conversation": [spoken(record) for record in conversation(reading)],
        "progress": [
            {"kind": _PROGRESS_KIND[record.kind], "text": record.text} for record in progress(reading)
        ],
        "notices": [record.code for record in notices(reading)],
        "superseded": [
            {"role": record.role, "text": record.text} for record in set_aside(reading, SUPERSEDED)
        ],
        "undelivered": [record.text for record in set_aside(reading, UNDELIVERED)],
        "cancelled": [record.text for record in set_aside(reading, CANCELLED)],
        "turns": [{"state": turn.state} for turn in reading.turns if turn.human],
        "malformed_lines": counters.malformed,
        "torn_tail": counters.torn_tail,
    }
    if reading.primary is not None:
        case["primary"] = reading.primary
    if reading.own_from_row is not None:
        case["own_rows_after_prefix"] = [
            {"role": record.role, "text": record.text} for record in own(reading)
        ]
    if reading.family:
        case["family"] = True
    case["session"] = msgspec.to_builtins(reading.session)
    case["counters"] = msgspec.to_builtins(counters)
    case["files"] = list(reading.files)
    return case
