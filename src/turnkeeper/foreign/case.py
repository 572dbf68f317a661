"""The case files of `turnkeeper feed`: a stored history, an incoming message, and what the feed is to be.

A case is the smallest description of a sick conversation (docs: `reference/case-format.md`). `read_case` turns
it into messages and says in one sentence what is wrong with it; `feed_case` gives the report that the verb
prints. Fields that are not known are ignored; roles and parts that are not known are shown and never fed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import msgspec

from turnkeeper.conversation.messages import (
    ASSISTANT,
    COMPLETE,
    ERRORED,
    INTERRUPTED,
    SUPERSEDED,
    SYSTEM,
    TOOL,
    USER,
    Message,
    Origin,
)
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
from turnkeeper.errors import BadInput
from turnkeeper.history.confirmations import EXPIRY_SECONDS
from turnkeeper.history.feed import NONE, build_feed, find_stale_confirmations
from turnkeeper.history.phrases import BUILT_IN
from turnkeeper.history.row import DROPPED, Change, FeedOptions, OpenCall
from turnkeeper.history.shape import SUMMARY, TURNKEEPER
from turnkeeper.port.provider import ToolSpec
from turnkeeper.provider.dialects import DIALECTS, dialect_named
from turnkeeper.provider.feed_report import report_feed
from turnkeeper.provider.wire import File

_FAILED = frozenset({"error", "errored", "failed"})
_CUT = frozenset(
    {"aborted", "abort", "cancelled", "canceled", "interrupted", "streaming", "incomplete", "in_progress"}
)
_RAN_ALL_THE_SAME = frozenset({"tool_exception", "tool_error"})
"""Kinds of error that say that the call itself ran: the message that asked for it is whole."""

UNNAMED_MODEL: Final = "unnamed-model"
"""Stands for the model of a case that names none."""

INCOMING: Final = "incoming"
"""The id of an incoming message that has none."""


class Case(msgspec.Struct, kw_only=True):
    """A case file, read."""

    dialect: str
    provider: str
    messages: list[Message]
    history: list[dict[str, Any]]
    """As it stands in the file: what a person sees."""
    incoming: Message | None = None
    incoming_entry: dict[str, Any] | None = None
    approval: dict[str, Any] | None = None
    request: dict[str, Any] = msgspec.field(default_factory=dict)
    origin: Origin = Origin("anthropic")
    now: float | None = None
    expiry_seconds: float = EXPIRY_SECONDS
    phrases: tuple[str, ...] = ()
    restarted: bool = False
    tool_outputs: dict[str, Any] = msgspec.field(default_factory=dict)
    waiting: dict[str, OpenCall] = msgspec.field(default_factory=dict)
    files: dict[str, File] = msgspec.field(default_factory=dict)


def parse_case(data: bytes) -> Any:
    """The JSON value of a case file, lone surrogates and all. Raises BadInput."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("the case file is not UTF-8 text") from None
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BadInput(f"the case file is not valid JSON ({where}: {error.msg.lower()})") from None
    except RecursionError:
        raise BadInput("the case file is nested too deep") from None


def _no_constant(name: str) -> NoReturn:
    raise BadInput(f"the case file is not valid JSON ({name} is no JSON number)")


def read_case(value: Any) -> Case:
    """A case from its JSON value. Raises BadInput with a sentence that names the field."""
    if not isinstance(value, dict):
        raise BadInput(f"a case is a JSON object, not {_kind(value)}")
    provider = _field(value, "provider", "any")
    history = _field(value, "history", None)
    if history is None:
        raise BadInput("the case has no history (a list of messages)")
    request = _field(value, "request", {})
    dialect = _dialect(provider, request)
    origin = Origin(
        "anthropic" if provider == "any" else provider,
        str(request.get("model") or UNNAMED_MODEL),
        str(request.get("organization") or request.get("account") or ""),
    )
    case = Case(
        dialect=dialect,
        provider=provider,
        messages=[],
        history=history,
        request=request,
        origin=origin,
        expiry_seconds=float(_number(value, "expiry_s", EXPIRY_SECONDS)),
        restarted=bool(value.get("restart_before_incoming")),
        tool_outputs=_field(value, "tool_outputs", {}),
    )
    phrases = _field(value, "dangerous_patterns", [])
    if not all(isinstance(phrase, str) for phrase in phrases):
        raise BadInput("dangerous_patterns is a list of texts")
    case.phrases = tuple(phrases)
    for i, entry in enumerate(history):
        case.messages.append(_message(entry, f"history[{i}]", f"#{i}", case))
    case.messages = _with_attempts(case.messages, history)
    _read_incoming(_field(value, "incoming", None), case)
    case.now = _time(value["now"], "now") if value.get("now") is not None else None
    if case.now is None and case.incoming_entry is not None:
        case.now = _time(case.incoming_entry.get("timestamp"), "incoming.timestamp")
    return case


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), "an object")


_WANTED: Final[dict[str, tuple[type, str]]] = {
    "provider": (str, "a text"),
    "history": (list, "a list"),
    "request": (dict, "an object"),
    "tool_outputs": (dict, "an object"),
    "dangerous_patterns": (list, "a list"),
    "incoming": (dict, "an object"),
}


def _field(value: dict[str, Any], name: str, default: Any) -> Any:
    found = value.get(name)
    if found is None:
        return default
    kind, wanted = _WANTED[name]
    if not isinstance(found, kind):
        raise BadInput(f"{name} is {wanted}, not {_kind(found)}")
    return found


def _number(value: dict[str, Any], name: str, default: float) -> float:
    found = value.get(name)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise BadInput(f"{name} is a number, not {_kind(found)}")
    return found


def _dialect(provider: str, request: dict[str, Any]) -> str:
    """The dialect: a variant that the request names, or the provider's own."""
    variant = request.get("dialect")
    if isinstance(variant, str) and variant in DIALECTS:
        return variant
    return dialect_named(provider).name


def _time(value: Any, where: str) -> float:
    """Unix seconds of an ISO time or a number; 0 for none. Raises BadInput for anything else."""
    if value is None or value == "":
        return 0.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            read = datetime.fromisoformat(value)
        except ValueError:
            raise BadInput(f"{where} is no ISO 8601 time: {value[:40]!r}") from None
        return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()
    raise BadInput(f"{where} is a time, not {_kind(value)}")


# --- messages


def _message(entry: Any, where: str, default_id: str, case: Case) -> Message:
    if not isinstance(entry, dict):
        raise BadInput(f"{where} is a message (an object), not {_kind(entry)}")
    role = entry.get("role")
    if not isinstance(role, str):
        raise BadInput(f"{where} has no role")
    message_id = entry.get("id")
    if message_id is None:
        message_id = default_id
    elif isinstance(message_id, int) and not isinstance(message_id, bool):
        message_id = str(message_id)
    elif not isinstance(message_id, str):
        raise BadInput(f"{where}.id is a text, not {_kind(message_id)}")
    raw_parts = entry.get("parts")
    if raw_parts is None:
        content = entry.get("content")
        raw_parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if not isinstance(raw_parts, list):
        raise BadInput(f"{where}.parts is a list, not {_kind(raw_parts)}")
    account = case.origin.account
    parts: list[Part] = []
    for k, raw in enumerate(raw_parts):
        if not isinstance(raw, dict):
            raise BadInput(f"{where}.parts[{k}] is an object, not {_kind(raw)}")
        parts.append(_part(raw, f"{where}.parts[{k}]", case))
        if isinstance(raw.get("encrypted_for"), str):
            account = raw["encrypted_for"]
    item_id = entry.get("item_id")
    if isinstance(item_id, str):
        parts = [
            msgspec.structs.replace(p, bound={**(p.bound or {}), "item_id": item_id})
            if isinstance(p, Text)
            else p
            for p in parts
        ]
    standing = _standing(entry, parts)
    model = entry.get("model")
    error = entry.get("error")
    delivery = entry.get("delivery_id")
    return Message(
        message_id=message_id,
        role=SYSTEM if role == "developer" else role,
        parts=tuple(parts),
        created_at=_time(entry.get("timestamp"), f"{where}.timestamp"),
        provenance=_provenance(entry.get("origin")),
        replay=not (
            entry.get("display_only") is True
            or entry.get("replay") is False
            or entry.get("replayable") is False
            or standing != COMPLETE
        ),
        standing=standing,
        stop_reason=entry.get("stop_reason") if isinstance(entry.get("stop_reason"), str) else None,
        error=str(error.get("kind") or "error") if isinstance(error, dict) else None,
        origin=Origin(
            case.origin.provider, model if isinstance(model, str) and model else case.origin.model, account
        )
        if role == ASSISTANT
        else None,
        submission_id=delivery if isinstance(delivery, str) else None,
    )


def _provenance(origin: Any) -> str:
    if isinstance(origin, str) and "summary" in origin:
        return SUMMARY
    return TURNKEEPER if origin == "notification" else "submitted"


def _standing(entry: dict[str, Any], parts: list[Part]) -> str:
    """Whether an assistant's message is whole, failed or was cut off."""
    if entry.get("role") != ASSISTANT:
        return COMPLETE
    stop = str(entry.get("stop_reason"))
    error = entry.get("error")
    kind = str(error.get("kind")) if isinstance(error, dict) else None
    if entry.get("synthetic_api_error") is True or entry.get("model") == "<synthetic>":
        return ERRORED
    if stop in _CUT:
        return INTERRUPTED
    if stop in _FAILED or isinstance(error, dict):
        called = any(isinstance(part, ToolCall) for part in parts)
        return COMPLETE if called and kind in _RAN_ALL_THE_SAME else ERRORED
    return SUPERSEDED if entry.get("superseded") is True else COMPLETE


def _with_attempts(messages: list[Message], history: list[dict[str, Any]]) -> list[Message]:
    """Apply `retry_of` and `continues`: a retried attempt is superseded, a continued one is part of the answer."""
    by_id = {message.message_id: i for i, message in enumerate(messages)}
    for i, entry in enumerate(history):
        later = messages[i]
        for name in ("retry_of", "continues"):
            earlier = by_id.get(str(entry.get(name)))
            if earlier is None or earlier >= i or not later.replay or later.role != ASSISTANT:
                continue
            standing = SUPERSEDED if name == "retry_of" else COMPLETE
            messages[earlier] = msgspec.structs.replace(
                messages[earlier], standing=standing, replay=standing == COMPLETE
            )
    return messages


def _part(raw: dict[str, Any], where: str, case: Case) -> Part:
    kind = raw.get("type")
    if kind == "text":
        return Text(_text(raw.get("text"), f"{where}.text"), bound=_bound(raw, "item_id"))
    if kind == "thinking":
        signature = raw.get("signature")
        return Thinking(
            _text(raw.get("text"), f"{where}.text"),
            signature=signature if isinstance(signature, str) else None,
            bound=_bound(raw, "item_id", "summary", "encrypted_content"),
        )
    if kind == "tool_call":
        return _call(raw, where)
    if kind == "tool_result":
        return ToolResult(
            tool_call_id=_id(raw.get("original_id", raw.get("tool_call_id")), f"{where}.tool_call_id"),
            content=raw.get("content"),
            is_error=raw.get("is_error") is True,
            synthetic=raw.get("synthetic") is True,
            name=raw["name"] if isinstance(raw.get("name"), str) else None,
            server_side=raw.get("server_side") is True,
        )
    if kind in ("image", "file", "attachment"):
        return _attachment(raw, kind, case)
    return Opaque(kind=str(kind) if kind is not None else "without a type", data=raw)


def _text(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(f"{where} is a text, not {_kind(value)}")
    return value


def _id(value: Any, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BadInput(f"{where} is a text, not {_kind(value)}")
    return value


def _bound(raw: dict[str, Any], *names: str) -> dict[str, Json] | None:
    found = {name: raw[name] for name in names if raw.get(name) is not None}
    return found or None


def _call(raw: dict[str, Any], where: str) -> ToolCall:
    arguments = raw["executed_with"] if raw.get("executed_with") is not None else raw.get("arguments")
    streamed = raw.get("arguments_raw")
    return ToolCall(
        id=_id(raw.get("original_id", raw.get("id")), f"{where}.id"),
        name=_text(raw.get("name"), f"{where}.name"),
        arguments=arguments,
        arguments_raw=streamed if isinstance(streamed, str) and raw.get("executed_with") is None else None,
        server_side=raw.get("server_side") is True,
        bound=_bound(raw, "item_id", "thought_signature"),
    )


def _attachment(raw: dict[str, Any], kind: str, case: Case) -> Attachment:
    ref = str(raw.get("ref") or raw.get("attachment_id") or raw.get("name") or kind)
    media = raw.get("media_type")
    width, height = raw.get("width"), raw.get("height")
    case.files[ref] = File(
        None, width if isinstance(width, int) else None, height if isinstance(height, int) else None
    )
    return Attachment(
        attachment_id=ref,
        name=str(raw.get("name") or ""),
        media_type=media
        if isinstance(media, str)
        else "image/png"
        if kind == "image"
        else "application/octet-stream",
        size_bytes=raw["bytes"] if isinstance(raw.get("bytes"), int) else 0,
    )


# --- what comes in


def _read_incoming(entry: dict[str, Any] | None, case: Case) -> None:
    if entry is None:
        return
    case.incoming_entry = entry
    role = entry.get("role")
    if role == USER:
        case.incoming = _message(entry, INCOMING, INCOMING, case)
    elif role in ("late_tool_result", "tool_answer"):
        answer = ToolResult(
            tool_call_id=_id(entry.get("tool_call_id"), "incoming.tool_call_id"),
            content=entry.get("content"),
            is_error=entry.get("is_error") is True,
        )
        case.messages.append(Message(message_id=INCOMING, role=TOOL, parts=(answer,)))
    elif role == "approval":
        case.approval = entry
    elif not isinstance(role, str):
        raise BadInput("incoming has no role")
    else:
        # A role that nobody knows is no message to a model.
        case.messages.append(_message(entry, INCOMING, INCOMING, case))


def _find_call(case: Case, call_id: str) -> tuple[int, ToolCall] | None:
    for i in range(len(case.messages) - 1, -1, -1):
        for part in case.messages[i].parts:
            if isinstance(part, ToolCall) and part.id == call_id:
                return i, part
    return None


def _decide(case: Case) -> Change | None:
    """Apply an incoming approval: the call runs, is refused, or the decision comes too late (G11)."""
    approval = case.approval
    if approval is None:
        return None
    call_id = _id(approval.get("tool_call_id"), "incoming.tool_call_id")
    found = _find_call(case, call_id)
    answered = any(
        isinstance(part, ToolResult) and part.tool_call_id == call_id
        for m in case.messages
        for part in m.parts
    )
    if found is None or answered or any(m.role == USER for m in case.messages[found[0] + 1 :]):
        return Change(
            None, "stale_approval", DROPPED, f"the call {call_id} is no longer open; nothing was run"
        )
    if approval.get("decision") not in ("allow", "approve"):
        case.waiting[call_id] = OpenCall("refused", "by the user")
    elif found[1].name in case.tool_outputs:
        output = ToolResult(call_id, case.tool_outputs[found[1].name])
        case.messages.append(Message(message_id=INCOMING, role=TOOL, parts=(output,)))
    else:
        case.waiting[call_id] = OpenCall("approved")
    return None


def _note_waiting(case: Case) -> None:
    for entry in case.history:
        for raw in entry.get("parts") or ():
            if (
                isinstance(raw, dict)
                and raw.get("type") == "tool_call"
                and raw.get("requires_approval") is True
            ):
                case.waiting.setdefault(str(raw.get("id")), OpenCall("waiting", "a decision on it"))


def feed_case(value: Any) -> dict[str, Json]:
    """What `turnkeeper feed` prints for a case. Raises BadInput."""
    case = read_case(value)
    decided = _decide(case)
    _note_waiting(case)
    patterns = BUILT_IN.with_phrases(case.phrases)
    judged = [*case.messages, *([case.incoming] if case.incoming is not None else [])]
    expired: frozenset[str] = frozenset()
    if case.now is not None or case.restarted:
        newest = max((m.created_at for m in judged), default=0.0)
        expired = frozenset(
            message_id
            for message_id, _pattern in find_stale_confirmations(
                judged,
                case.now or newest,
                expiry_seconds=case.expiry_seconds,
                patterns=patterns,
                restarted=case.restarted,
            )
        )
    feed = build_feed(
        case.messages,
        incoming=case.incoming,
        expired=expired,
        options=FeedOptions(open_calls=case.waiting, confirmations=patterns),
    )
    if decided is not None:
        feed = msgspec.structs.replace(feed, changes=(*feed.changes, decided))
    if any(call.state == "approved" for call in case.waiting.values()):
        feed = msgspec.structs.replace(feed, asks=False)
    request = case.request
    report = report_feed(
        feed,
        case.dialect,
        origin=case.origin,
        instructions=str(request.get("system") or ""),
        tools=_tools(request.get("tools")),
        options=_options(request),
        files=lambda attachment: case.files.get(attachment.attachment_id),
    )
    display = list(case.history)
    if case.incoming_entry is not None and feed.incoming == "appended":
        display.append(case.incoming_entry)
    return {
        "provider": case.provider,
        "feed": report["feed"],
        "incoming": feed.incoming if case.incoming is not None else NONE,
        "changes": report["changes"],
        "request": report["request"],
        "display": display,
    }


def _tools(tools: Any) -> tuple[ToolSpec, ...]:
    count = tools if isinstance(tools, int) and not isinstance(tools, bool) else 0
    names = [f"tool_{k}" for k in range(min(count, 128))]
    if isinstance(tools, list):
        names = [str(t.get("name", "tool")) if isinstance(t, dict) else str(t) for t in tools]
    return tuple(ToolSpec(name=name, description="", schema={"type": "object"}) for name in names)


def _options(request: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    thinking = request.get("thinking")
    if thinking not in (None, False, "disabled", "off"):
        options["thinking"] = thinking if isinstance(thinking, dict) else True
    for name in ("cache", "caller_marks"):
        if isinstance(request.get(name), int):
            options[name] = request[name]
    return options
