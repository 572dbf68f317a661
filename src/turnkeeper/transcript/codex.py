"""Codex CLI: `<home>/sessions/YYYY/MM/DD/rollout-<local time>-<thread id>[_<rollout id>].jsonl[.zst]`.

A rollout is linear, but writes every message up to three times: once for the model (`response_item`), once
for the screen (`event_msg`), and since 0.148 as a finished item (`item_completed`). Per turn and per
speaker one channel is chosen, the best there is (reference 3.3). Only the last two say that a person
typed; `response_item`s of role user are also AGENTS.md, the environment and tags that no list knows, so
they are a source only in files that have nothing better, or where they say themselves `user.*`.

A turn has an explicit beginning and end. A rollback makes the last turns superseded. A fork repeats its
parent's whole rollout with new times; a continuation names the rollout that it goes on from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from turnkeeper.transcript import injected
from turnkeeper.transcript.place import Place, Roots, files_below, usable
from turnkeeper.transcript.record import (
    FAILED,
    FINAL,
    HUMAN,
    INFERRED,
    INTERRUPTED,
    NATIVE,
    NOTICE,
    PROGRESS,
    RUNNING,
    SETTLED,
    SUPERSEDED,
    THINKING,
    TOOL,
    UNKNOWN,
    Counters,
    Reading,
    Record,
    Session,
    Turn,
)
from turnkeeper.transcript.source import Look, head, load, names
from turnkeeper.transcript.tail import Cursor, Tail, stem, tail_lines
from turnkeeper.transcript.tail import at_end as end_of_lines

NAME: Final = "codex"


class Piece(msgspec.Struct, gc=False):
    """A piece of a message's content."""

    type: str | None = None
    text: str | None = None


class Meta(msgspec.Struct, gc=False):
    """What newer versions note beside a response item: who its pieces come from."""

    turn_id: str | None = None
    content_item_kinds: list[str] | None = None


class Base(msgspec.Struct, gc=False):
    """Which rollout a file goes on from, and how much of it (openai/codex rollout_reference_index)."""

    thread_id: str | None = None
    end_ordinal_exclusive: int | None = None


class Item(msgspec.Struct, gc=False):
    """A finished item of a turn."""

    type: str | None = None
    id: str | None = None
    client_id: str | None = None
    content: list[Piece] | None = None
    phase: str | None = None
    text: str | None = None
    summary_text: list[str] | None = None
    source: str | None = None


class Payload(msgspec.Struct, gc=False):
    """What a row carries; one shape for all types, because most of it is never read."""

    type: str | None = None
    id: str | None = None
    turn_id: str | None = None
    role: str | None = None
    content: list[Piece] | str | None = None
    message: str | None = None
    images: list[Any] | None = None
    local_images: list[Any] | None = None
    text: str | None = None
    phase: str | None = None
    name: str | None = None
    call_id: str | None = None
    summary: list[Piece] | str | None = None
    item: Item | None = None
    last_agent_message: str | UnsetType | None = UNSET
    reason: str | None = None
    num_turns: int | None = None
    internal_chat_message_metadata_passthrough: Meta | None = None
    cwd: str | None = None
    cli_version: str | None = None
    forked_from_id: str | None = None
    history_base: Base | None = None
    subagent_history_start_ordinal: int | None = None


class Row(msgspec.Struct, gc=False):
    """A line. The oldest rollouts have no envelope: the item is the line itself."""

    type: str | None = None
    timestamp: str | None = None
    ordinal: int | None = None
    payload: Payload | None = None
    role: str | None = None
    content: list[Piece] | str | None = None
    name: str | None = None
    call_id: str | None = None
    summary: list[Piece] | str | None = None


BEGINS: Final = frozenset({"task_started", "turn_started"})
ENDS: Final = frozenset({"task_complete", "turn_complete"})
CALLS: Final = {
    "function_call": "",
    "custom_tool_call": "",
    "local_shell_call": "local_shell",
    "web_search_call": "web_search",
    "tool_search_call": "tool_search",
    "image_generation_call": "image_generation",
}
"""Response items that are tool calls, with the name of those that carry none."""
ITEM_CALLS: Final = {
    "CommandExecution": "exec_command",
    "FileChange": "apply_patch",
    "McpToolCall": "mcp",
    "WebSearch": "web_search",
    "ImageView": "view_image",
}
USER_SHELL: Final = "user_shell"

SKIPPED: Final = {
    "world_state": "what the model was told of its surroundings",
    "turn_context": "settings of a turn; read for where a turn begins",
    "token_usage_record": "tokens",
    "inter_agent_communication": "between agents",
    "event_msg/token_count": "tokens",
    "event_msg/thread_settings_applied": "settings",
    "event_msg/patch_apply_end": "the end of a tool",
    "event_msg/patch_apply_begin": "the beginning of a tool",
    "event_msg/mcp_tool_call_end": "the end of a tool",
    "event_msg/mcp_tool_call_begin": "the beginning of a tool",
    "event_msg/exec_command_begin": "the beginning of a tool",
    "event_msg/exec_command_end": "the end of a tool",
    "event_msg/web_search_end": "the end of a tool",
    "event_msg/context_compacted": "the twin of a `compacted` row",
    "event_msg/agent_reasoning_section_break": "layout",
    "event_msg/entered_review_mode": "a mode",
    "event_msg/exited_review_mode": "a mode",
    "event_msg/thread_name_updated": "the title, read apart",
    "response_item/function_call_output": "a tool's result",
    "response_item/custom_tool_call_output": "a tool's result",
    "response_item/tool_search_output": "a tool's result",
    "response_item/ghost_snapshot": "undo data",
    "response_item/compaction": "what the model keeps of a compaction",
    "response_item/agent_message": "between agents",
    "item/Plan": "a plan; its text is also the answer",
    "item/ContextCompaction": "the twin of a `compacted` row",
    "item/HookPrompt": "a hook's text",
}
"""Row types without anything of the conversation, with the reason."""


class Segment(msgspec.Struct):
    """The rows of one turn."""

    key: str | None
    rows: list[int] = msgspec.field(default_factory=list)
    ended: str = ""
    """complete | aborted; empty while it runs."""
    answer: str | UnsetType | None = UNSET
    end_row: int | None = None
    failed: str | None = None
    rolled_back: bool = False


# --- selection


def select(rows: Sequence[Row]) -> tuple[list[Segment], bool]:
    """The turns of a rollout in order, rolled-back ones marked; and whether the file marks its turns."""
    marked = any(
        row.payload is not None
        and (row.payload.type in BEGINS or (row.type == "turn_context" and row.payload.turn_id is not None))
        for row in rows
    )
    segments: list[Segment] = []
    known: dict[str, Segment] = {}
    current: Segment | None = None
    speaks = _typed if marked or any(_typed(row) for row in rows) else _is_user_item

    def begin(key: str | None) -> Segment:
        if key is not None and key in known:
            return known[key]
        segment = Segment(key)
        segments.append(segment)
        if key is not None:
            known[key] = segment
        return segment

    for number, row in enumerate(rows):
        payload = row.payload
        if payload is None or row.type == "session_meta":
            if payload is None and current is not None:
                current.rows.append(number)
            elif payload is None and row.role is not None:
                current = begin(None)
                current.rows.append(number)
            continue
        kind = payload.type
        if kind == "thread_rolled_back":
            _roll_back(rows, segments, payload.num_turns or 0, marked=marked)
            current = None
            continue
        key = payload.turn_id
        if key is None and payload.internal_chat_message_metadata_passthrough is not None:
            key = payload.internal_chat_message_metadata_passthrough.turn_id
        opens = kind in BEGINS or (
            row.type == "turn_context" and key is not None and (current is None or current.key != key)
        )
        if opens:
            current = begin(key)
        elif key is not None and key in known:
            current = known[key] if kind not in ENDS and kind != "turn_aborted" else current
        elif key is None and speaks(row) and (current is None or current.ended or not marked):
            current = begin(None)
        if current is None:
            current = begin(key if marked else None)
        segment = known.get(key, current) if key is not None else current
        segment.rows.append(number)
        if kind in ENDS:
            segment.ended, segment.answer, segment.end_row = "complete", payload.last_agent_message, number
        elif kind == "turn_aborted":
            segment.ended, segment.end_row = "aborted", number
        elif kind == "error" and row.type == "event_msg":
            segment.failed = payload.message or "error"
    return segments, marked


def _typed(row: Row) -> bool:
    """Whether a row says that a person typed it."""
    payload = row.payload
    if row.type != "event_msg" or payload is None:
        return False
    return payload.type == "user_message" or (payload.item is not None and payload.item.type == "UserMessage")


def _is_user_item(row: Row) -> bool:
    found = _message_of(row)
    return found is not None and found[0] == "user" and bool(human_words(row, certain_only=False)[0])


def _message_of(row: Row) -> tuple[str | None, list[Piece] | str | None] | None:
    """Role and content of a response item that is a message, with or without its envelope."""
    payload = row.payload
    if payload is None:
        return (row.role, row.content) if row.role is not None else None
    if row.type == "response_item" and payload.role is not None and payload.type in {"message", None}:
        return payload.role, payload.content
    return None


def _roll_back(rows: Sequence[Row], segments: Sequence[Segment], turns: int, *, marked: bool) -> None:
    """The last `turns` turns that a person began, and all behind them, are superseded (reference 3.3)."""
    for segment in reversed(segments):
        if turns <= 0:
            return
        if segment.rolled_back:
            continue
        segment.rolled_back = True
        if any(_typed(rows[number]) or _is_user_item(rows[number]) for number in segment.rows):
            turns -= 1


# --- classification


def words(content: list[Piece] | str | None) -> str:
    """The text of a message's content."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join([piece.text for piece in content if piece.text])


def images(content: list[Piece] | str | None) -> int:
    """How many images a message's content holds."""
    if content is None or isinstance(content, str):
        return 0
    return sum(1 for piece in content if piece.type is not None and "image" in piece.type.lower())


def human_words(row: Row, *, certain_only: bool) -> tuple[str, bool]:
    """What a person said in a response item of role user, and whether the row itself says that it was one.

    Pieces are judged one by one: several injected blocks share one message. `certain_only` leaves out
    whatever only our table of injected texts would take for speech.
    """
    found = _message_of(row)
    if found is None or found[0] != "user":
        return "", False
    content = found[1]
    pieces = [Piece("text", content)] if isinstance(content, str) else content or []
    meta = row.payload.internal_chat_message_metadata_passthrough if row.payload is not None else None
    kinds = meta.content_item_kinds if meta is not None else None
    if kinds is not None and len(kinds) == len(pieces):
        said = [p.text for p, kind in zip(pieces, kinds, strict=True) if kind.startswith("user.") and p.text]
        return "\n".join(said), True
    if certain_only:
        return "", False
    table = injected.table(NAME)
    return "\n".join(
        [piece.text for piece in pieces if piece.text and not _injected(table, piece.text)]
    ), False


def _injected(table: injected.Table, text: str) -> bool:
    if table.find(text) is not None:
        return True
    # Several blocks in one piece: `<INSTRUCTIONS>...</INSTRUCTIONS>\n<environment_context>...`.
    return (
        text.lstrip().startswith("<")
        and text.rstrip().endswith(">")
        and all(table.find(block) is not None for block in _BLOCKS.findall(text) or [text])
    )


_BLOCKS: Final = re.compile(r"(<[A-Za-z][\w-]*(?:\s[^>]*)?>.*?(?:\Z|(?=\n<[A-Za-z])))", re.DOTALL)


# --- folding


class Fold:
    """Segments into records and turns."""

    def __init__(
        self,
        rows: Sequence[Row],
        offsets: Sequence[int],
        files: Sequence[int],
        *,
        marked: bool,
        better: tuple[bool, bool],
    ) -> None:
        self._rows = rows
        self._offsets = offsets
        self._files = files
        self._marked = marked
        self._better_user, self._better_agent = better
        self.records: list[Record] = []
        self.turns: list[Turn] = []
        self.wrappers: dict[str, int] = {}

    def run(self, segments: Sequence[Segment]) -> None:
        """Fold the turns in order."""
        for at, segment in enumerate(segments):
            self._segment(segment, at, last=at == len(segments) - 1)

    def _add(self, kind: str, text: str, number: int, key: str, native_id: str | None = None) -> Record:
        record = Record(
            kind,
            text,
            number,
            native_id,
            key,
            at=self._rows[number].timestamp,
            file=self._files[number],
            offset=self._offsets[number],
        )
        self.records.append(record)
        return record

    def _segment(self, segment: Segment, at: int, *, last: bool) -> None:
        key = segment.key or f"turn:{at}"
        first = len(self.records)
        self._people(segment, key)
        people = self.records[first:]
        said = self._agent(segment, key)
        self._thoughts(segment, key)
        tools = self._tools(segment, key)
        turn = Turn(key, human=bool(people), row=segment.rows[0] if segment.rows else 0)
        turn.ended_row = segment.end_row
        self._judge(segment, turn, said, tools, last=last, key=key)
        if segment.ended == "aborted" and segment.end_row is not None:
            self._add(NOTICE, "", segment.end_row, key).code = "interrupted"
        if segment.rolled_back:
            for record in self.records[first:]:
                record.state = SUPERSEDED
        elif people or said or tools:
            self.turns.append(turn)

    def _people(self, segment: Segment, key: str) -> None:
        rows = self._rows
        items = [n for n in segment.rows if _item(rows[n], "UserMessage") is not None]
        events = [] if items else [n for n in segment.rows if _event(rows[n], "user_message")]
        count = 0
        for number in items or events:
            payload = rows[number].payload
            if payload is None:
                continue
            item = payload.item
            text = words(item.content) if item is not None else payload.message or ""
            pictures = (
                images(item.content)
                if item is not None
                else len(payload.images or ()) + len(payload.local_images or ())
            )
            if not text.strip() and not pictures:
                continue
            native = item.id if item is not None else f"{key}:user:{count}" if segment.key else None
            record = self._add(HUMAN, text, number, key, native)
            record.queued, record.images = count > 0, pictures
            if item is not None and item.client_id is not None:
                record.aliases = (item.client_id,)
            count += 1
        if items or events:
            return
        settled = not self._marked or bool(segment.ended)
        for number in segment.rows:
            text, certain = human_words(rows[number], certain_only=not settled)
            if not certain and self._better_user and self._marked and not segment.ended:
                continue
            if not text.strip():
                continue
            table = injected.table(NAME)
            wrapper = None if certain else table.unknown_wrapper(text)
            if wrapper is not None:
                self.wrappers[wrapper] = self.wrappers.get(wrapper, 0) + 1
                if self._better_user:
                    continue
            payload = rows[number].payload
            record = self._add(HUMAN, text, number, key, payload.id if payload is not None else None)
            record.provenance = NATIVE if certain else INFERRED
            record.queued = count > 0
            count += 1

    def _agent(self, segment: Segment, key: str) -> list[tuple[Record, str | None]]:
        """The texts of the turn, each with its phase."""
        rows = self._rows
        said: list[tuple[Record, str | None]] = []
        items = [n for n in segment.rows if _item(rows[n], "AgentMessage") is not None]
        events = [] if items else [n for n in segment.rows if _event(rows[n], "agent_message")]
        for number in items or events:
            payload = rows[number].payload
            if payload is None:
                continue
            item = payload.item
            text = words(item.content) if item is not None else payload.message or ""
            phase = item.phase if item is not None else payload.phase
            native = item.id if item is not None else f"{key}:agent:{len(said)}" if segment.key else None
            if text.strip():
                said.append((self._add(FINAL, text, number, key, native), phase))
        if items or events or (self._marked and not segment.ended and self._better_agent):
            return said
        for number in segment.rows:
            found = _message_of(rows[number])
            if found is None or found[0] != "assistant" or not words(found[1]).strip():
                continue
            payload = rows[number].payload
            record = self._add(
                FINAL, words(found[1]), number, key, payload.id if payload is not None else None
            )
            said.append((record, payload.phase if payload is not None else None))
        return said

    def _thoughts(self, segment: Segment, key: str) -> None:
        rows = self._rows
        channels: tuple[Callable[[Row], str], ...] = (_thought_item, _thought_event, _thought_response)
        for channel in channels:
            found = [(number, channel(rows[number])) for number in segment.rows]
            found = [(number, text) for number, text in found if text.strip()]
            if found:
                for number, text in found:
                    item = _item(rows[number], "Reasoning")
                    self._add(THINKING, text, number, key, item.id if item is not None else None)
                return

    def _tools(self, segment: Segment, key: str) -> list[Record]:
        rows = self._rows
        tools: list[Record] = []
        seen: set[str] = set()
        shell = False
        for number in segment.rows:
            row = rows[number]
            payload = row.payload
            kind = (payload.type if payload is not None else row.type) or ""
            if kind in CALLS and (payload is None or row.type == "response_item"):
                name = payload.name if payload is not None else row.name
                call = payload.call_id if payload is not None else row.call_id
                if call is not None:
                    if call in seen:
                        continue
                    seen.add(call)
                own = payload.id if payload is not None else None
                record = self._add(TOOL, name or CALLS[kind], number, key, own or call)
                record.code = call or ""
                tools.append(record)
        for number in segment.rows:
            payload = rows[number].payload
            item = payload.item if payload is not None else None
            if item is None or item.type not in ITEM_CALLS or item.id in seen:
                continue
            if item.source == USER_SHELL:
                shell = True
                self._add(NOTICE, "", number, key).code = "bash_mode"
                continue
            tools.append(self._add(TOOL, ITEM_CALLS[item.type], number, key, item.id))
        if not shell:
            for number in segment.rows:
                found = _message_of(rows[number])
                rule = injected.table(NAME).find(words(found[1])) if found and found[0] == "user" else None
                if rule is not None and rule.notice:
                    self._add(NOTICE, "", number, key).code = rule.notice
        return tools

    def _judge(
        self,
        segment: Segment,
        turn: Turn,
        said: list[tuple[Record, str | None]],
        tools: list[Record],
        *,
        last: bool,
        key: str,
    ) -> None:
        """Which texts were the answer, and how the turn stands (reference 1.5 and 3.3)."""
        last_tool = max([record.row for record in tools], default=-1)
        waits = last and not segment.ended and self._marked
        finals = 0
        for record, phase in said:
            final = phase == "final_answer" or (
                phase != "commentary" and record.row > last_tool and not waits
            )
            if phase != "final_answer" and segment.ended == "complete" and segment.answer is None:
                final = False
            record.kind = FINAL if final else PROGRESS
            finals += final
        if segment.ended == "aborted":
            turn.state, turn.reason = INTERRUPTED, "interrupted"
            if said and said[-1][0].kind == FINAL and said[-1][1] != "final_answer":
                said[-1][0].status = INTERRUPTED
            return
        if segment.failed is not None:
            turn.state, turn.reason = FAILED, segment.failed
            if segment.end_row is None:
                turn.ended_row = segment.rows[-1]
            return
        if segment.ended == "complete":
            if isinstance(segment.answer, str) and segment.answer.strip() and not finals:
                self._promote(segment, said, segment.answer, key)
                finals = 1
            turn.state = SETTLED if finals or segment.answer is UNSET else FAILED
            turn.reason = None if turn.state == SETTLED else "no_answer"
        elif not self._marked:
            turn.state = SETTLED if finals else RUNNING if last else UNKNOWN
        else:
            turn.state = RUNNING if last else UNKNOWN

    def _promote(
        self, segment: Segment, said: list[tuple[Record, str | None]], answer: str, key: str
    ) -> None:
        """A turn that only narrated ended well: what it says its last words were is the answer."""
        for record, _ in reversed(said):
            if record.text.strip() == answer.strip():
                record.kind = FINAL
                return
        if segment.end_row is not None:
            self._add(FINAL, answer, segment.end_row, key, f"{key}:answer")


def _item(row: Row, kind: str) -> Item | None:
    payload = row.payload
    if payload is None or payload.item is None or row.type != "event_msg" or payload.item.type != kind:
        return None
    return payload.item


def _event(row: Row, kind: str) -> bool:
    return row.type == "event_msg" and row.payload is not None and row.payload.type == kind


def _thought_item(row: Row) -> str:
    item = _item(row, "Reasoning")
    if item is None:
        return ""
    return "\n".join(item.summary_text) if item.summary_text else item.text or words(item.content)


def _thought_event(row: Row) -> str:
    return (row.payload.text or "") if row.payload is not None and _event(row, "agent_reasoning") else ""


def _thought_response(row: Row) -> str:
    payload = row.payload
    if payload is None:
        return words(row.summary) if row.type == "reasoning" else ""
    return words(payload.summary) if row.type == "response_item" and payload.type == "reasoning" else ""


# --- reading


_NAME: Final = re.compile(r"rollout-\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}-(.+?)(?:_(.+))?\.jsonl\Z")


def ids_of(path: Path) -> tuple[str | None, str | None]:
    """Thread id and rollout id as the file's name has them; the first file of a thread has one id for both."""
    found = _NAME.match(stem(path))
    if found is None:
        return None, None
    return found.group(1), found.group(2) or found.group(1)


def read(
    path: Path, *, beside: Sequence[Path] = (), start: int = 0, whole: bool = True, session: str | None = None
) -> Reading:
    """The rollout at `path`, with what it goes on from if that is among `beside`. Raises Unreadable."""
    counters = Counters()
    chain = [path] if start else _chain(path, beside)
    rows: list[Row] = []
    offsets: list[int] = []
    files: list[int] = []
    reverted: list[int] = []
    own_first = 0
    thread = ids_of(path)[0]
    for at, (file, end) in enumerate(_ends(chain)):
        loaded = load(file, Row, counters, start=start if file == path else 0, whole=whole or file != path)
        if file == path:
            own_first = len(rows)
        for number, row in enumerate(loaded.rows):
            if end is not None and row.ordinal is not None and row.ordinal >= end:
                reverted.append(len(rows))
            rows.append(row)
            offsets.append(loaded.offsets[number])
            files.append(at)
    reading = build(rows, offsets, counters, files=files, reverted=frozenset(reverted))
    reading.files = names(chain)
    if len(chain) > 1:
        base_threads = {ids_of(file)[0] for file in chain}
        if base_threads == {thread}:
            reading.family = True
        else:
            reading.own_from_row = own_first
    elif reading.session.parent is not None and reading.own_from_row is None:
        reading.own_from_row = _own_from(rows, reading.session.parent, beside)
    return reading


def _meta(path: Path) -> Payload | None:
    """The first row's session_meta; later ones are copies of a parent's."""
    rows = load_head(path)
    return next((row.payload for row in rows if row.type == "session_meta"), None)


META_BYTES_MAX: Final = 1 << 18


def load_head(path: Path) -> list[Row]:
    """The rows of the first quarter of a megabyte."""
    start = head(path, META_BYTES_MAX)
    end = start.rfind(b"\n") + 1 or len(start)
    rows: list[Row] = []
    for line in start[:end].split(b"\n"):
        try:
            rows.append(msgspec.json.decode(line, type=Row))
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue
    return rows


def _chain(path: Path, beside: Sequence[Path]) -> list[Path]:
    """The files that `path` goes on from, oldest first, and itself."""
    by_rollout = {ids_of(file)[1]: file for file in beside if ids_of(file)[1] is not None}
    chain = [path]
    while True:
        meta = _meta(chain[0])
        base = meta.history_base if meta is not None else None
        before = by_rollout.get(base.thread_id) if base is not None else None
        if before is None or before in chain:
            break
        chain.insert(0, before)
    if len(chain) == 1:
        thread, rollout = ids_of(path)
        if thread is not None and thread != rollout:
            earlier = [f for f in beside if ids_of(f)[0] == thread and stem(f) < stem(path)]
            chain = [*sorted(earlier, key=stem), path]
    return chain


def _ends(chain: Sequence[Path]) -> Iterator[tuple[Path, int | None]]:
    """Each file with the ordinal at which the next one left it."""
    for at, file in enumerate(chain):
        following = _meta(chain[at + 1]) if at + 1 < len(chain) else None
        base = following.history_base if following is not None else None
        yield file, base.end_ordinal_exclusive if base is not None else None


def _own_from(rows: Sequence[Row], parent: str, beside: Sequence[Path]) -> int | None:
    """The first row of the first turn that the parent does not know (agentsview#643)."""
    meta = rows[0].payload if rows and rows[0].type == "session_meta" else None
    if meta is not None and meta.subagent_history_start_ordinal is not None:
        start = meta.subagent_history_start_ordinal
        return next(
            (n for n, row in enumerate(rows) if row.ordinal is not None and row.ordinal >= start), None
        )
    source = next((file for file in beside if ids_of(file)[0] == parent), None)
    if source is None:
        return None
    known = {row.payload.turn_id for row in load(source, Row, Counters()).rows if row.payload is not None}
    for number, row in enumerate(rows):
        if row.payload is not None and row.payload.turn_id is not None and row.payload.turn_id not in known:
            return number
    return len(rows)


def build(
    rows: Sequence[Row],
    offsets: Sequence[int],
    counters: Counters,
    *,
    files: Sequence[int] | None = None,
    reverted: frozenset[int] = frozenset(),
) -> Reading:
    """A Reading of rows that were decoded already. `reverted` rows were left behind by a continuation."""
    files = files if files is not None else [0] * len(rows)
    segments, marked = select(rows)
    for segment in segments:
        if segment.rows and segment.rows[0] in reverted:
            segment.rolled_back = True
    better = (
        any(_typed(row) for row in rows),
        any(_event(row, "agent_message") or _item(row, "AgentMessage") is not None for row in rows),
    )
    fold = Fold(rows, offsets, files, marked=marked, better=better)
    fold.run(segments)
    for number, row in enumerate(rows):
        if row.type == "compacted":
            fold.records.append(
                Record(
                    NOTICE,
                    row.payload.message or "" if row.payload is not None else "",
                    number,
                    at=row.timestamp,
                    code="compaction",
                    file=files[number],
                    offset=offsets[number],
                )
            )
        _count(row, counters)
    counters.wrappers.update(fold.wrappers)
    records = sorted(fold.records, key=lambda record: record.row)
    return Reading(NAME, session=_session(rows), records=records, turns=fold.turns, counters=counters)


_READ: Final = frozenset(
    {
        "session_meta",
        "compacted",
        "response_item/message",
        "response_item/None",
        "response_item/reasoning",
        "event_msg/user_message",
        "event_msg/agent_message",
        "event_msg/agent_reasoning",
        "event_msg/turn_aborted",
        "event_msg/thread_rolled_back",
        "event_msg/error",
        "item/UserMessage",
        "item/AgentMessage",
        "item/Reasoning",
        "message",
        "reasoning",
        *[f"response_item/{kind}" for kind in CALLS],
        *CALLS,
        *[f"event_msg/{kind}" for kind in (*BEGINS, *ENDS)],
        *[f"item/{kind}" for kind in ITEM_CALLS],
    }
)


def _count(row: Row, counters: Counters) -> None:
    name = row.type or "None"
    payload = row.payload
    if payload is not None and row.type in {"response_item", "event_msg"}:
        name = (
            f"item/{payload.item.type}"
            if payload.type == "item_completed" and payload.item is not None
            else f"{row.type}/{payload.type}"
        )
    if name in _READ:
        return
    into = counters.skipped if name in SKIPPED else counters.unknown
    into[name] = into.get(name, 0) + 1


def _session(rows: Sequence[Row]) -> Session:
    session = Session()
    versions: list[str] = []
    for row in rows:
        payload = row.payload
        if row.type == "session_meta" and payload is not None:
            if session.native_id is None:
                session.native_id, session.cwd = payload.id, payload.cwd
                session.parent = payload.forked_from_id
            if payload.cli_version is not None:
                versions.append(payload.cli_version)
    session.versions = tuple(dict.fromkeys(versions))
    session.newest_at = max([row.timestamp for row in rows if row.timestamp is not None], default=None)
    return session


def primary(paths: Sequence[Path]) -> Path:
    """Of several rollouts in one folder, the newest that no other one was made from."""
    made_from: set[str | None] = set()
    for path in paths:
        meta = _meta(path)
        if meta is not None:
            made_from.add(meta.forked_from_id)
            if meta.history_base is not None:
                made_from.add(meta.history_base.thread_id)
    leaves = [path for path in paths if ids_of(path)[1] not in made_from]
    return max(leaves or paths, key=stem)


def tail(path: Path, cursor: Cursor | None, *, session: str | None = None) -> Tail[Row]:
    """The rows that were added since `cursor`."""
    return tail_lines(path, Row, cursor)


def at_end(path: Path, *, session: str | None = None) -> Cursor:
    """A cursor behind everything that is there now."""
    return end_of_lines(path)


# --- places


def roots(where: Roots) -> tuple[Path, ...]:
    """Codex's home folders."""
    return where.under("CODEX_HOME", ".codex")


SUFFIXES: Final = (".jsonl", ".jsonl.zst")


def locate(native_id: str | None, where: Roots, *, cwd: str | None = None) -> Place | None:
    """Every rollout of a thread, in order, archived and compressed ones too (`cwd` says nothing of the place)."""
    if native_id is None or not usable(native_id):
        return None
    for root in roots(where):
        found: dict[str, Path] = {}
        for folder in ("sessions", "archived_sessions"):
            for path in files_below(root / folder, suffixes=SUFFIXES):
                if ids_of(path)[0] == native_id:
                    found.setdefault(stem(path), path)
        if found:
            return Place(NAME, native_id, tuple(found[name] for name in sorted(found)), root)
    return None


def listing(where: Roots) -> Iterator[Path]:
    """Every rollout, archived ones too."""
    for root in roots(where):
        for folder in ("sessions", "archived_sessions"):
            yield from files_below(root / folder, suffixes=SUFFIXES)


def recognises(path: Path, look: Look) -> bool:
    """Whether the beginning of a file reads as this format."""
    return stem(path).startswith("rollout-") or (
        {"payload", "type"} <= look.keys and "timestamp" in look.keys
    )
