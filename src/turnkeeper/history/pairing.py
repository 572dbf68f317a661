"""The rule that every call is followed at once by exactly one result, in call order, and no result stands alone.

Every provider insists on it in its own words (wire rules A1, A2, B2, C1-C3, O1, O2, G2, G3, M4), and repairs
that look in one direction only fail (provider-wire-rules section 2). So this one looks at all at once: missing,
misplaced, early, late, doubled and orphaned results, ids that are used again, and ids that are empty.

One owner closes a call, once: a result that comes after its call was closed and the conversation went on
becomes a notice where it came in, never a second result and never a change of what was sent.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, TOOL, USER, Message
from turnkeeper.conversation.parts import Json, Text, ToolCall, ToolResult
from turnkeeper.conversation.turns import Effect
from turnkeeper.history import wording
from turnkeeper.history.row import (
    ADDED,
    DROPPED,
    MOVED,
    REPLACED,
    EarlierCall,
    Row,
    Rows,
    Run,
    client_calls,
    is_other_reply,
    with_parts,
)
from turnkeeper.history.shape import TURNKEEPER
from turnkeeper.history.tools import effect_of

RULE = "results_paired"


class _Slot:
    """A call and the result that it gets."""

    __slots__ = ("at", "call", "moved", "result", "row", "source")

    def __init__(self, row: int, call: ToolCall) -> None:
        self.row = row
        self.call = call
        self.result: ToolResult | None = None
        self.source: Row | None = None
        self.at = -1
        """Place of the row that the result came from, or of the call if that is later."""
        self.moved = False


class _Group:
    """The calls of one message that have the same id, the first without a result in front."""

    __slots__ = ("slots", "waiting")

    def __init__(self) -> None:
        self.slots: list[_Slot] = []
        self.waiting: deque[_Slot] = deque()

    def add(self, slot: _Slot) -> None:
        self.slots.append(slot)
        self.waiting.append(slot)

    def next(self, name: str | None) -> _Slot | None:
        """The call that a result belongs to: in order, but one of the tool that the result names if there is one."""
        while self.waiting and self.waiting[0].result is not None:
            self.waiting.popleft()
        if not self.waiting:
            return None
        if name and self.waiting[0].call.name != name:
            for slot in self.waiting:
                if slot.result is None and slot.call.name == name:
                    return slot
        return self.waiting[0]

    def worst(self) -> _Slot:
        """The slot that a further result would improve, if any."""
        if len(self.slots) > _COMPARED_MAX:
            return self.slots[-1]
        return min(self.slots, key=lambda slot: 0 if slot.result is None else _quality(slot.result))


_COMPARED_MAX = 64


def _quality(result: ToolResult) -> int:
    """How much a result is worth: a synthetic one 1, an error 2, a real one 3."""
    return 1 if result.synthetic else 2 if result.is_error else 3


def ids_of(row: Row) -> list[str]:
    """The ids of an assistant row's own calls, or of the calls that a tool row's results answer."""
    ids = row.ids
    if ids is None:
        parts = row.message.parts
        if row.message.role == TOOL:
            ids = [part.tool_call_id for part in parts if type(part) is ToolResult]
        elif row.message.role == ASSISTANT:
            ids = [part.id for part in parts if type(part) is ToolCall and not part.server_side]
        else:
            ids = []
        row.ids = ids
    return ids


def is_pair(calls: Row, answers: Row) -> bool:
    """Whether a tool row holds exactly one result for each call of the row before it, in their order."""
    ids = calls.ids if calls.ids is not None else ids_of(calls)
    if ids != (answers.ids if answers.ids is not None else ids_of(answers)):
        return False
    if len(ids) == 1 or len(set(ids)) == len(ids):
        return True
    # Equal ids: where a result names its tool, it says which call it means.
    named = zip(client_calls(calls.message), answers.message.parts, strict=False)
    return all(type(r) is ToolResult and (r.name is None or r.name == call.name) for call, r in named)


def is_paired(rows: Rows) -> bool:
    """Whether every call has its one result right behind it and no result is left over."""
    waiting: Row | None = None
    for row in rows:
        role = row.message.role
        if role == TOOL:
            if waiting is None or not is_pair(waiting, row):
                return False
            waiting = None
            continue
        if waiting is not None:
            return False
        if role == ASSISTANT and (row.ids or (row.ids is None and ids_of(row))):
            waiting = row
    return waiting is None


def pair_results(rows: Rows, run: Run) -> Rows:
    """Every call is followed at once by its one result; what is missing is said, what is left over goes (A1, A2)."""
    if is_paired(rows):
        return rows
    return _Pairing(rows, run).rebuild()


class _Pairing:
    def __init__(self, rows: Rows, run: Run) -> None:
        self.rows = rows
        self.run = run
        self.slots: dict[int, list[_Slot]] = {}
        self.newest: dict[str, _Group | int] = {}
        """By call id: the calls of the newest message that used it, or the place of that message while its
        calls and results are a healthy pair that nobody asked for."""
        self.healthy: set[int] = set()
        """Places of messages whose results stand right behind them as they should."""
        self.early: list[tuple[int, Row, ToolResult]] = []
        """Results that stand before any call of theirs, since the last message of the assistant."""
        self.notices: dict[int, list[Row]] = {}
        self.last_answer = -1
        self.last_user = -1
        self._latest = _Group()
        """The calls of the newest message of the assistant, whatever their ids."""

    def rebuild(self) -> Rows:
        rows, healthy, newest = self.rows, self.healthy, self.newest
        count = len(rows)
        for i, row in enumerate(rows):
            role = row.message.role
            if role == ASSISTANT:
                ids = ids_of(row)
                if ids and i + 1 < count and not self.early and self._is_healthy(i):
                    healthy.add(i)
                    self.last_answer = i
                    for call_id in ids:
                        newest[call_id] = i
                else:
                    self._meet_calls(i, row)
            elif role == TOOL:
                if i - 1 in healthy:
                    continue
                for part in row.message.parts:
                    if type(part) is ToolResult:
                        self._place(i, row, part)
            elif role == USER:
                self.last_user = i
        self._drop_early()
        return self._emit()

    # -- reading

    def _is_healthy(self, i: int) -> bool:
        answers = self.rows[i + 1]
        return answers.message.role == TOOL and is_pair(self.rows[i], answers)

    def _group(self, call_id: str) -> _Group | None:
        """The calls of the newest message that used this id."""
        found = self.newest.get(call_id)
        return self._open(found)[call_id] if isinstance(found, int) else found

    def _open(self, i: int) -> dict[str, _Group]:
        """Look into a healthy pair after all: its calls by id, each with its result."""
        row, answers = self.rows[i], self.rows[i + 1]
        groups: dict[str, _Group] = {}
        slots: list[_Slot] = []
        for call, result in zip(client_calls(row.message), answers.message.parts, strict=False):
            slot = _Slot(i, call)
            slots.append(slot)
            groups.setdefault(call.id, _Group()).add(slot)
            if type(result) is ToolResult:
                self._fill(slot, i + 1, answers, result)
        self.slots[i] = slots
        self.newest.update(
            {call_id: group for call_id, group in groups.items() if self.newest.get(call_id) == i}
        )
        return groups

    def _latest_calls(self) -> _Group:
        if self.last_answer in self.healthy:
            return _Group()
        return self._latest

    def _meet_calls(self, i: int, row: Row) -> None:
        self.last_answer = i
        self._latest = _Group()
        calls = client_calls(row.message)
        if not calls:
            self._drop_early()
            return
        self.slots[i] = [_Slot(i, call) for call in calls]
        fresh: dict[str, _Group] = {}
        for slot in self.slots[i]:
            fresh.setdefault(slot.call.id, _Group()).add(slot)
            self._latest.add(slot)
        self.newest.update(fresh)
        early, self.early = self.early, []
        for at, source, result in early:
            group = fresh.get(result.tool_call_id)
            waiting = group.next(result.name) if group is not None else None
            if waiting is not None:
                self._fill(waiting, at, source, result)
            else:
                self.early.append((at, source, result))
        self._drop_early()

    def _drop_early(self) -> None:
        for _at, source, result in self.early:
            self.run.note(source, RULE, DROPPED, f"a result without a call: {result.tool_call_id or 'no id'}")
        self.early = []

    def _place(self, i: int, row: Row, result: ToolResult) -> None:
        group = self._group(result.tool_call_id)
        if group is None and not result.tool_call_id and self._latest_calls().next(result.name) is not None:
            group = self._latest  # a result without an id answers the calls before it in their order
        if group is None:
            if not self._note_earlier(i, row, result):
                self.early.append((i, row, result))
            return
        slot = group.next(result.name)
        if slot is not None:
            if self._is_late(slot):
                self._settle_late(i, row, slot.call.name, None, result)
            else:
                self._fill(slot, i, row, result)
            return
        # All calls of this id have a result: the better one wins while nobody has read the other.
        slot = group.worst()
        if self.last_answer > slot.at:
            self._settle_late(i, row, slot.call.name, slot.result, result)
        elif slot.result is None or _quality(result) > _quality(slot.result):
            if slot.source is not None:
                self.run.note(slot.source, RULE, DROPPED, f"a better result of {slot.call.id} follows")
            self._fill(slot, i, row, result)
        else:
            self.run.note(row, RULE, DROPPED, f"a second result of {slot.call.id}")

    def _is_late(self, slot: _Slot) -> bool:
        """Whether a request was answered after the call: then it was sent with a result of our own."""
        if self.last_answer <= slot.row:
            return False
        answer = self.rows[self.last_answer].message
        return slot.row < self.last_user or is_other_reply(self.rows[slot.row].message, answer)

    def _fill(self, slot: _Slot, at: int, source: Row, result: ToolResult) -> None:
        call = slot.call
        if result.tool_call_id != call.id or result.name not in (None, call.name):
            result = msgspec.structs.replace(
                result, tool_call_id=call.id, name=result.name and call.name, block=msgspec.UNSET
            )
        slot.result, slot.source, slot.at = result, source, max(at, slot.row)
        slot.moved = at != slot.row + 1

    def _note_earlier(self, i: int, row: Row, result: ToolResult) -> bool:
        """Whether the result belongs to a call of a closed turn."""
        known = self.run.earlier.get(result.tool_call_id)
        if known is None:
            return False
        self._settle_late(i, row, known.name, known.result, result)
        return True

    def _settle_late(self, i: int, row: Row, name: str, known: ToolResult | None, result: ToolResult) -> None:
        told = known is not None and known.content == result.content
        if told or result.synthetic or is_interrupted(result):
            self.run.note(row, RULE, DROPPED, f"{result.tool_call_id} was closed before")
        else:
            self._notice(i, row, name, result)

    def _notice(self, i: int, row: Row, name: str, result: ToolResult) -> None:
        text = wording.late_result(
            name, result.tool_call_id, content_text(result.content), is_error=result.is_error
        )
        message = Message(
            message_id=row.message.message_id,
            role=USER,
            parts=(Text(text),),
            created_at=row.message.created_at,
            seq=row.message.seq,
            turn_id=row.message.turn_id,
            provenance=TURNKEEPER,
        )
        self.notices.setdefault(i, []).append(Row(message, row.sources))
        self.run.note(
            row, RULE, REPLACED, f"the result of {result.tool_call_id} came after its call was closed"
        )

    # -- writing

    def _emit(self) -> Rows:
        out: Rows = []
        slots, healthy, notices = self.slots, self.healthy, self.notices
        for i, row in enumerate(self.rows):
            if i in slots:
                self._emit_calls(row, slots[i], out)
            elif row.message.role != TOOL or (i - 1 in healthy and i - 1 not in slots):
                out.append(row)
            if i in notices:
                out += notices[i]
        return out

    def _emit_calls(self, row: Row, slots: list[_Slot], out: Rows) -> None:
        repeats = _find_repeats(slots)
        if repeats:
            gone = {id(slot.call) for slot in repeats}
            self.run.note(row, RULE, DROPPED, "the same call arrived twice in one message")
            row = with_parts(row, tuple(part for part in row.message.parts if id(part) not in gone))
            slots = [slot for slot in slots if id(slot.call) not in gone]
        results: list[ToolResult] = []
        sources: dict[str, None] = {}
        first: Row | None = None
        for slot in slots:
            result = slot.result
            if result is None:
                result = self._make_result(row, slot.call)
            elif slot.source is not None:
                first = first or slot.source
                sources.update(dict.fromkeys(slot.source.sources))
                if slot.moved and not self._follows(slot):
                    self.run.note(slot.source, RULE, MOVED, f"the result of {slot.call.id} follows its call")
            results.append(result)
        out.append(row)
        base = (
            first.message if first is not None else Message(message_id="", role=TOOL, provenance=TURNKEEPER)
        )
        message = msgspec.structs.replace(
            base, role=TOOL, parts=tuple(results), origin=None, envelope=msgspec.UNSET
        )
        out.append(Row(message, tuple(sources)))

    def _follows(self, slot: _Slot) -> bool:
        """Whether only tool rows stand between the call and its result: then nothing was moved."""
        return slot.at > slot.row and all(
            self.rows[k].message.role == TOOL for k in range(slot.row + 1, slot.at + 1)
        )

    def _make_result(self, row: Row, call: ToolCall) -> ToolResult:
        options = self.run.options
        effect = effect_of(call.name, options.effects)
        text, disposition = wording.synthetic_result(call.name, effect, options.open_calls.get(call.id))
        self.run.note(row, RULE, ADDED, f"the call {call.id or call.name} has no result")
        return ToolResult(
            tool_call_id=call.id,
            content=text,
            is_error=True,
            synthetic=True,
            name=call.name,
            disposition=disposition,
        )


def _find_repeats(slots: list[_Slot]) -> list[_Slot]:
    """Calls without a result that repeat an earlier one of the same message word for word, id and all."""
    if all(slot.result is not None for slot in slots):
        return []
    repeats: list[_Slot] = []
    seen: dict[tuple[str, str], list[Json]] = {}
    for slot in slots:
        call = slot.call
        earlier = seen.setdefault((call.id, call.name), [])
        if slot.result is None and call.id and call.arguments in earlier[:_COMPARED_MAX]:
            repeats.append(slot)
        else:
            earlier.append(call.arguments)
    return repeats


def content_text(content: Json) -> str:
    """A result's content as words."""
    if type(content) is str:
        return content
    if type(content) is list and all(
        isinstance(piece, dict) and piece.get("type") == "text" for piece in content
    ):
        return "\n".join(str(piece.get("text") or "") for piece in content)
    try:
        return msgspec.json.encode(content).decode()
    except (TypeError, ValueError, RecursionError):
        return wording.TOO_DEEP


# --- interruptions

_EXIT_KEYS = ("exit_code", "exitCode", "exit_status", "returncode", "return_code", "code")
_INTERRUPTED_CODES = (130, -1)
_MARKERS = (
    "[command interrupted]",
    "[Request interrupted by user for tool use]",
    "[Request interrupted by user]",
    "<tool_use_error>Interrupted",
    "[Tool execution interrupted]",
)
_EXIT_LINE = re.compile(r"^\W{0,3}exit[ _]?(?:code|status)\W{1,3}(?:130|-1)\b", re.IGNORECASE | re.MULTILINE)
_INTERRUPT_LINE = re.compile(r"^.{0,80}\binterrupt", re.IGNORECASE | re.MULTILINE)
_MARKER_CHARS_MAX = 2_000
"""A marker stands in a short result, or at the end of a long one."""


def is_interrupted(result: ToolResult) -> bool:
    """Whether a result says, by its structure, that the tool was interrupted while it ran.

    That is an exit code of 130 or -1 together with an interruption, or one of the markers that CLIs write;
    never a number or the word somewhere in the text (seed 001's loose match took "exit_code: 1305" for one).
    """
    if result.disposition == "interrupted":
        return True
    content = result.content
    if type(content) is str and content.startswith(wording.ALREADY_SAID):
        return False
    if type(content) is list:
        if len(content) == 1 and isinstance(content[0], dict) and content[0].get("type") == "text":
            content = content[0].get("text")
        else:
            return any(_says_interrupted(piece) for piece in content if isinstance(piece, dict))
    if isinstance(content, dict):
        return _says_interrupted(content)
    if type(content) is not str or not ("nterrupt" in content or "NTERRUPT" in content):
        return False
    stripped = content.strip() if len(content) < _MARKER_CHARS_MAX else content[-200:].strip()
    if stripped.endswith(_MARKERS) or (len(content) < _MARKER_CHARS_MAX and stripped.startswith(_MARKERS)):
        return True
    if _EXIT_LINE.search(stripped) is not None and _INTERRUPT_LINE.search(stripped) is not None:
        return True
    if not (stripped.startswith("{") and stripped.endswith("}")) or (
        "xit" not in stripped and "ode" not in stripped
    ):
        return False
    try:
        value = msgspec.json.decode(stripped.encode("utf-8", "replace"))
    except (msgspec.MsgspecError, RecursionError):
        return False
    return isinstance(value, dict) and _says_interrupted(value)


def _says_interrupted(value: dict[str, Any]) -> bool:
    codes = [value[key] for key in _EXIT_KEYS if key in value]
    stopped = any(type(code) is int and code in _INTERRUPTED_CODES for code in codes) or any(
        type(code) is str and code in ("130", "-1") for code in codes
    )
    if not stopped:
        return False
    return any(
        (item is True and "interrupt" in key.casefold())
        or (type(item) is str and "interrupt" in item.casefold())
        for key, item in value.items()
        if type(key) is str
    )


def say_that_interrupted_is_unknown(rows: Rows, run: Run) -> Rows:
    """An interrupted call may have taken effect: its result says so, and keeps what it had printed (seed 001).

    Refined by the seed's own authors: stripping it makes the model forget that it acted, and act again.
    """
    out: Rows | None = None
    for i, row in run.suspects(rows):
        if row.message.role != TOOL:
            continue
        parts = row.message.parts
        for part in parts:
            if type(part) is ToolResult and part.disposition != "unknown" and is_interrupted(part):
                break
        else:
            continue
        names = _call_names(rows, i)
        if out is None:
            out = list(rows)
        out[i] = with_parts(
            row,
            tuple(
                _as_unknown(part, names.get(k, ""), run)
                if type(part) is ToolResult and part.disposition != "unknown" and is_interrupted(part)
                else part
                for k, part in enumerate(parts)
            ),
        )
        run.note(row, "interrupted_results", REPLACED, "the tool was interrupted while it ran")
    return rows if out is None else out


def _call_names(rows: Rows, i: int) -> dict[int, str]:
    if i == 0 or rows[i - 1].message.role != ASSISTANT:
        return {}
    return {k: call.name for k, call in enumerate(client_calls(rows[i - 1].message))}


def _as_unknown(result: ToolResult, name: str, run: Run) -> ToolResult:
    effect = effect_of(name or result.name or "", run.options.effects)
    text = wording.interrupted_result(name or result.name or "", effect, content_text(result.content))
    return msgspec.structs.replace(
        result, content=text, is_error=True, disposition="unknown", block=msgspec.UNSET
    )


def strip_unfinished_lookups(rows: Rows, run: Run) -> Rows:
    """A block of read-only calls of which none was answered is left out whole (seed 001).

    As soon as one sibling has a real result, or one may have had an effect, the block stays: the model must
    not forget what was done. A call that waits for a person is no unfinished lookup.
    """
    found: list[int] = []
    for k, row in run.suspects(rows):
        i = k - 1
        if row.message.role != TOOL or i < 0 or rows[i].message.role != ASSISTANT:
            continue
        for result in row.message.parts:
            if type(result) is not ToolResult or result.disposition != "unknown":
                break
        else:
            calls = [p for p in rows[i].message.parts if type(p) is ToolCall]
            if calls and all(
                effect_of(call.name, run.options.effects) is Effect.READ_ONLY and not call.server_side
                for call in calls
            ):
                found.append(i)
    if not found:
        return rows
    gone = {k for i in found for k in (i, i + 1)}
    for i in found:
        run.stripped.update(earlier_calls(rows[i : i + 2]))
        run.note(rows[i], "unfinished_lookups", DROPPED, "read-only calls that were never answered")
        if rows[i + 1].sources:
            run.note(rows[i + 1], "unfinished_lookups", DROPPED, "its calls are left out")
    return [row for k, row in enumerate(rows) if k not in gone]


def earlier_calls(rows: Rows) -> dict[str, EarlierCall]:
    """What a builder remembers of the calls in closed turns."""
    known: dict[str, EarlierCall] = {}
    for i in range(len(rows) - 1):
        if rows[i].message.role != ASSISTANT or rows[i + 1].message.role != TOOL:
            continue
        for call, result in zip(client_calls(rows[i].message), rows[i + 1].message.parts, strict=False):
            if type(result) is ToolResult:
                known[call.id] = EarlierCall(call.name, result)
    return known
