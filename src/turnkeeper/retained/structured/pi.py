"""pi's `--mode rpc` (1.6.0): commands and responses by id, the same session files as in a terminal.

Measured: `prompt` with `streamingBehavior` starts an idle agent and steers a busy one; what is still queued at an abort
would be run after it, so the queue is cleared first; `!` is no shell line here.
"""

from __future__ import annotations

from typing import Any, Final

from turnkeeper.retained.adapter import Command, Plan
from turnkeeper.retained.structured.dialect import Asked, Heard, HeardKind, Row, Speech, said, words_of

COMMANDS: Final = frozenset({"/compact"})


def command(plan: Plan) -> Command:
    """The same options as in a terminal."""
    argv = [*(plan.command or ("pi",)), "--offline", "--mode", "rpc"]
    if plan.session_id is not None:
        argv += ["--session-id", plan.session_id]
    if plan.model:
        argv += ["--model", plan.model]
    if plan.instructions:
        argv += ["--append-system-prompt", plan.instructions]
    return Command(argv=(*argv, *plan.args))


def reads_as_command(text: str) -> bool:
    """Skills and prompt templates are put in place of their names."""
    return text.strip().startswith(("/skill:", "/prompt:"))


def paste_text(text: str) -> str:
    """As it is."""
    return text


def hello(speech: Speech) -> list[Row]:
    """Its state: answered once it is up."""
    speech.waiting["hello"] = "hello"
    return [{"id": "hello", "type": "get_state"}]


def heard(row: Row, speech: Speech) -> list[Heard]:
    """Responses by id, and what the session does."""
    match row.get("type"):
        case "response":
            return _response(row, speech)
        case "agent_start":
            return [Heard(kind=HeardKind.BUSY)]
        case "agent_settled":
            return [Heard(kind=HeardKind.IDLE)]
        case "compaction_start":
            asked = [purpose for purpose in speech.waiting.values() if purpose.startswith("compact:")]
            took = [Heard(kind=HeardKind.TOOK, given=one.removeprefix("compact:")) for one in asked]
            return [Heard(kind=HeardKind.BUSY), *took]
        case "compaction_end":
            end = [Heard(kind=HeardKind.IDLE)] if row.get("reason") == "manual" else []
            return [*end, said("*", f"compaction: {row.get('errorMessage') or 'done'}")]
        case "message_end":
            return _message(row.get("message") or {})
        case "tool_execution_start":
            return [said("$", f"{row.get('toolName')} {row.get('args')}")]
        case "extension_ui_request":
            return _asked(row)
        case _:
            return []


def _response(row: Row, speech: Speech) -> list[Heard]:
    purpose = speech.waiting.pop(str(row.get("id", "")), "")
    data = row.get("data") or {}
    if row.get("command") == "clear_queue":
        texts = [*data.get("steering", ()), *data.get("followUp", ())]
        return [Heard(kind=HeardKind.DROPPED, text=str(text)) for text in texts]
    if not purpose:
        return [] if row.get("success") else [said("!", str(row.get("error")))]
    if purpose == "hello":
        if not row.get("success"):
            return [Heard(kind=HeardKind.BROKEN, text=str(row.get("error")))]
        speech.native_id = str(data.get("sessionId", ""))
        ready = Heard(
            kind=HeardKind.READY, native_id=speech.native_id, path=str(data.get("sessionFile") or "")
        )
        return [ready, Heard(kind=HeardKind.BUSY if data.get("isStreaming") else HeardKind.IDLE)]
    given = purpose.removeprefix("compact:")
    if not row.get("success"):
        words = str(row.get("error"))
        if purpose != given:
            return [said("!", words)]
        return [Heard(kind=HeardKind.REFUSED, given=given, text=words)]
    return [Heard(kind=HeardKind.TOOK, given=given)]


def _message(message: dict[str, Any]) -> list[Heard]:
    words = words_of(message.get("content"))
    if message.get("role") == "user":
        return [Heard(kind=HeardKind.CONSUMED, text=words), said(">", words)]
    if message.get("role") == "assistant":
        error = message.get("errorMessage")
        return [said("*", words)] if words else [said("!", str(error))] if error else []
    return []


def _asked(row: Row) -> list[Heard]:
    """An extension's dialog. One that wants words is only to be cancelled here."""
    method = str(row.get("method"))
    if method not in {"select", "confirm", "input", "editor"}:
        words = row.get("message") or row.get("statusText") or ""
        return [said("!", str(words))] if method == "notify" else []
    options = {
        "select": tuple(str(one) for one in row.get("options") or ()),
        "confirm": ("Yes", "No"),
    }.get(method, ("Cancel",))
    timeout = row.get("timeout")
    asked = Asked(
        ask_id=str(row.get("id")),
        wire_id=row.get("id"),
        title=str(row.get("title") or "An extension asks"),
        options=options,
        body=tuple(str(row["message"]).splitlines()) if row.get("message") else (),
        yes=0 if method == "confirm" else None,
        no=1 if method == "confirm" else 0 if options == ("Cancel",) else None,
        method=method,
        seconds=timeout / 1000 if isinstance(timeout, int | float) else None,
    )
    return [Heard(kind=HeardKind.ASKED, asked=asked)]


def give(text: str, given: str, speech: Speech, *, command: bool) -> list[Row]:
    """A prompt; while it streams, a steer."""
    if command:
        speech.waiting[given] = f"compact:{given}"
        return [{"id": given, "type": "compact"}]
    speech.waiting[given] = given
    return [{"id": given, "type": "prompt", "message": text, "streamingBehavior": "steer"}]


def interrupt(speech: Speech) -> list[Row]:
    """Clear the queue, then abort."""
    return [{"type": "clear_queue"}, {"type": "abort"}]


def answer(asked: Asked, option: int) -> list[Row]:
    """The value of the option, yes or no, or a cancellation."""
    row: Row = {"type": "extension_ui_response", "id": asked.wire_id}
    if asked.method == "select":
        return [{**row, "value": asked.options[option]}]
    if asked.method == "confirm":
        return [{**row, "confirmed": option == 0}]
    return [{**row, "cancelled": True}]
