"""Muse: `<data home>/muse/sessions/YYYY/MM/DD/<session id>/session.jsonl`, a journal of several streams.

A prompt is written twice, as an accepted intent and as the prompt of the run it started (same id). Runs
of sub-agents stand in the same file under another stream. A record can lie inside another one as JSON
text (`retained_frame`). The file grows while nothing happens (resource pressure is observed), so its
time proves no work (seed 002). A young format: whatever is not known is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from turnkeeper.transcript.dialogue import Dialogue
from turnkeeper.transcript.lines import lenient
from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import INFERRED, Counters, Reading, Session
from turnkeeper.transcript.source import Look, load, names
from turnkeeper.transcript.tail import Cursor, Tail, tail_lines
from turnkeeper.transcript.tail import at_end as end_of_lines

NAME: Final = "muse"


class Stream(msgspec.Struct, gc=False):
    """Whose record it is."""

    kind: str | None = None
    id: str | None = None


class Call(msgspec.Struct, gc=False):
    """A tool call."""

    call_id: str | None = None
    name: str | None = None


class Event(msgspec.Struct, gc=False):
    """What happened in a run."""

    kind: str | None = None
    prompt: str | None = None
    message_id: str | None = None
    text: str | None = None
    tool_calls: list[Call] | None = None
    terminal: str | None = None


class Fact(msgspec.Struct, gc=False):
    """Facts of a session."""

    cwd: str | None = None
    workspace_root: str | None = None
    name: str | None = None


class Block(msgspec.Struct, gc=False):
    """A piece of what a person typed."""

    kind: str | None = None
    type: str | None = None
    text: str | None = None


class Payload(msgspec.Struct, gc=False):
    """What a record carries."""

    kind: str | None = None
    run_id: str | None = None
    event: Event | None = None
    record: Fact | None = None
    intent_id: str | None = None
    refill_blocks: list[Block] | None = None
    model_messages: list[Any] | None = None
    command_id: str | None = None
    prompt: str | None = None
    text: str | None = None
    terminal: str | None = None
    name: str | None = None
    source_run_record_id: str | None = None


class Child(msgspec.Struct, gc=False):
    """A record inside a frame."""

    record_json: str | None = None


class Row(msgspec.Struct, gc=False):
    """A line of the journal."""

    id: str | None = None
    stream: Stream | None = None
    recorded_at: int | None = None
    payload_type: str | None = None
    payload: Payload | None = None
    retained_frame: str | None = None
    children: list[Child] | None = None
    source_run_record_id: str | None = None


SKIPPED: Final = {
    "runtime.session.metadata": "the session's own data, read apart",
    "runtime.session.route_facts": "the session's own data, read apart",
    "session.name.changed": "the title, read apart",
    "session.end": "the program ended",
    "session.resource_pressure.observed": "noise: written while nothing happens",
    "command_intake.received": "a submission that was received, not yet accepted",
    "runtime.command.accepted": "a submission that was received, not yet accepted",
    "session.run.linked": "a link",
    "task.stream.linked": "a link",
    "run.output.delta": "a piece of a text that comes whole at the end",
}
"""Record types without anything of the conversation, with the reason."""
SKIPPED_EVENTS: Final = {
    "reasoning_committed": "read if it has text",
    "tool_result_batch_committed": "results of tools",
    "model_completed": "the end of a model call; its tokens come twice",
    "goal_usage_attribution": "a repetition of tokens",
}
INTENT: Final = "runtime.user_intent.accepted"
STOPPED: Final = ("cancel", "interrupt", "abort", "stop")


# --- selection


def select(rows: Sequence[Row], counters: Counters) -> list[tuple[int, Row]]:
    """Records of the session's own stream in file order, those inside frames at the frame's place."""
    own: str | None = None
    kept: list[tuple[int, Row]] = []
    seen: set[tuple[str | None, str | None]] = set()
    for number, record in _unpacked(rows, counters):
        stream = record.stream
        if own is None and stream is not None and stream.kind == "session":
            own = stream.id
        if stream is not None and own is not None and stream.id != own:
            counters.other_agent += 1
            continue
        key = (stream.id if stream is not None else None, record.id)
        if record.id is not None:
            if key in seen:
                counters.duplicates += 1
                continue
            seen.add(key)
        kept.append((number, record))
    return kept


def _unpacked(rows: Iterable[Row], counters: Counters) -> Iterator[tuple[int, Row]]:
    for number, row in enumerate(rows):
        if row.children is None:
            yield number, row
            continue
        for child in row.children:
            try:
                value = msgspec.json.decode(child.record_json or "")
            except (msgspec.DecodeError, RecursionError):
                counters.malformed += 1
                continue
            inner = lenient(value, Row)
            if inner is not None:
                yield number, inner


# --- classification


def intent_words(payload: Payload) -> str:
    """What a person typed, from an accepted intent."""
    if payload.refill_blocks is not None:
        return "\n".join([block.text for block in payload.refill_blocks if block.text])
    texts: list[str] = []
    for message in payload.model_messages or ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            texts += [
                piece["text"]
                for piece in content
                if isinstance(piece, dict) and isinstance(piece.get("text"), str)
            ]
    return "\n".join(texts)


# --- folding


class Fold:
    """Records into turns: a run is a turn."""

    def __init__(self, rows: Sequence[tuple[int, Row]], counters: Counters) -> None:
        self._rows = rows
        self._counters = counters
        self._intents = {
            row.payload.intent_id
            for _, row in rows
            if row.payload_type == INTENT and row.payload is not None and row.payload.intent_id is not None
        }
        self._started = {
            row.payload.run_id or row.payload.command_id
            for _, row in rows
            if row.payload is not None
            and (
                (row.payload.event is not None and row.payload.event.kind == "started")
                or row.payload_type == "run.lifecycle.started"
            )
        }
        self._waiting: dict[str, str] = {}
        self.talk = Dialogue(ends=True)

    def run(self) -> None:
        """Read all records."""
        for number, row in self._rows:
            payload = row.payload
            kind = row.payload_type or row.retained_frame or ""
            at = row.recorded_at
            if payload is None:
                self._unknown(kind)
            elif kind == INTENT:
                self._intent(number, payload, at)
            elif payload.event is not None and kind == "runtime.session":
                self._event(number, row, payload, payload.event, at)
            elif kind == "turn.input.user":
                self._waiting[payload.command_id or ""] = payload.prompt or ""
            elif kind == "run.lifecycle.started":
                self._begin(number, payload.command_id, payload.prompt or "", at)
            elif kind.startswith("run.terminal."):
                if payload.text:
                    self.talk.text(payload.text, number, payload.command_id, at)
                self._terminal(number, payload.terminal or kind.removeprefix("run.terminal."), at)
            elif kind in SKIPPED or kind.startswith("task."):
                self._counters.skipped[kind] = self._counters.skipped.get(kind, 0) + 1
            else:
                self._unknown(kind)
        self.talk.finish()

    def _unknown(self, kind: str) -> None:
        self._counters.unknown[kind] = self._counters.unknown.get(kind, 0) + 1

    def _intent(self, number: int, payload: Payload, at: int | None) -> None:
        text = intent_words(payload)
        if payload.intent_id in self._started:
            self._waiting[payload.intent_id or ""] = text
        else:
            self.talk.human(text, number, payload.intent_id, at, rides=True)

    def _begin(self, number: int, run: str | None, prompt: str, at: int | None) -> None:
        text = self._waiting.pop(run or "", None)
        record = self.talk.human(text or prompt, number, run, at)
        if text is None and run not in self._intents:
            record.provenance = INFERRED

    def _event(self, number: int, row: Row, payload: Payload, event: Event, at: int | None) -> None:
        kind = event.kind
        if kind == "started":
            self._begin(number, payload.run_id, event.prompt or "", at)
        elif kind == "reasoning_committed":
            self.talk.thinking(event.text or "", number, at)
        elif kind == "assistant_message_committed":
            self.talk.text(event.text or "", number, event.message_id or row.id, at)
        elif kind == "assistant_tool_calls_committed":
            for call in event.tool_calls or ():
                self.talk.tool(call.name or "", number, call.call_id or "", at)
        elif kind == "terminal":
            self._terminal(number, event.terminal or "", at)
        elif kind not in SKIPPED_EVENTS:
            self._unknown(f"run/{kind}")

    def _terminal(self, number: int, state: str, at: int | None) -> None:
        if state == "completed":
            self.talk.settle(number)
        elif any(word in state.lower() for word in STOPPED):
            self.talk.interrupt(number)
            self.talk.notice("interrupted", state, number, at=at)
        else:
            self.talk.fail(number, state)


# --- reading


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The session at `path`. Raises Unreadable."""
    counters = Counters()
    loaded = load(path, Row, counters, start=start, whole=whole)
    reading = build(loaded.rows, loaded.offsets, counters)
    reading.files = names([path])
    return reading


def build(rows: Sequence[Row], offsets: Sequence[int], counters: Counters) -> Reading:
    """A Reading of rows that were decoded already."""
    kept = select(rows, counters)
    fold = Fold(kept, counters)
    fold.run()
    session = Session()
    copied = -1
    for number, row in kept:
        if session.native_id is None and row.stream is not None:
            session.native_id = row.stream.id
        payload = row.payload
        if payload is None:
            continue
        if payload.record is not None:
            session.cwd = payload.record.cwd or session.cwd or payload.record.workspace_root
        if row.payload_type == "session.name.changed":
            session.title = payload.name or (payload.record.name if payload.record is not None else None)
        if row.source_run_record_id is not None or payload.source_run_record_id is not None:
            copied = number
        session.newest_at = row.recorded_at if row.payload_type not in SKIPPED else session.newest_at
    for record in fold.talk.records:
        record.offset = offsets[record.row]
    reading = Reading(
        NAME, session=session, records=fold.talk.records, turns=fold.talk.turns, counters=counters
    )
    if copied >= 0:
        reading.own_from_row = copied + 1
    return reading


def primary(paths: Sequence[Path]) -> Path:
    """Of several sessions below one folder, the newest by its folder's date and id."""
    return max(paths, key=str)


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """The records that were added since `cursor`."""
    return tail_lines(path, Row, cursor)


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind everything that is there now."""
    return end_of_lines(path)


# --- places


def roots(where: Roots) -> tuple[Path, ...]:
    """Muse's data folders."""
    named = where.env.get("XDG_DATA_HOME")
    own = Path(named) / "muse" if named else where.home / ".local/share/muse"
    return tuple(dict.fromkeys((*where.given, own)))


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """The session's journal: the folder has the id as its name, under the day it began."""
    if native_id is None or not usable(native_id):
        return None
    for root in roots(where):
        for path in files_below(root / "sessions", suffixes=("session.jsonl",)):
            if path.parent.name == native_id:
                return Place(NAME, native_id, (path,), root)
    return None


def listing(where: Roots) -> Iterator[Path]:
    """Every session's journal."""
    for root in roots(where):
        yield from files_below(root / "sessions", suffixes=("session.jsonl",))


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    return bool({"payload_type", "retained_frame"} & look.keys)
