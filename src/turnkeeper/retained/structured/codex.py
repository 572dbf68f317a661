"""codex's `app-server` (0.171.0): JSON-RPC; our own id of a text comes back in its record of it.

Measured: a steer that comes too late is refused ("no active turn to steer"); one that an interruption meets in the queue
is dropped in silence, never written down.
"""

from __future__ import annotations

from typing import Any, Final

from turnkeeper.retained.adapter import Command, Plan
from turnkeeper.retained.adapters import codex as terminal
from turnkeeper.retained.structured.dialect import Asked, Heard, HeardKind, Row, Speech, said, words_of

COMMANDS: Final = frozenset({"/compact"})
CLIENT: Final = {"name": "turnkeeper", "version": "1"}
QUESTIONS: Final = {
    "item/commandExecution/requestApproval": "Run this command?",
    "item/fileChange/requestApproval": "Make these changes to files?",
}
NO_SUCH_METHOD: Final = -32601


def command(plan: Plan) -> Command:
    """The session and its model are named in the protocol; servers and the rest by -c, as in a terminal."""
    return Command(argv=(*(plan.command or ("codex",)), "app-server", *terminal.settings(plan), *plan.args))


def reads_as_command(text: str) -> bool:
    """Nothing: a text is a text."""
    return False


def paste_text(text: str) -> str:
    """As it is."""
    return text


def hello(speech: Speech) -> list[Row]:
    """The handshake; the thread follows it."""
    return [{"id": speech.ask("initialize"), "method": "initialize", "params": {"clientInfo": CLIENT}}]


def heard(row: Row, speech: Speech) -> list[Heard]:
    """Answers to us, questions to us, and what the thread does."""
    method = row.get("method")
    if method is None:
        return _answered(row, speech)
    params = row.get("params") or {}
    if "id" in row:
        # Also on the thread of an agent that it has begun: until it is answered, the first thread waits for that one.
        return _asked(row, str(method), params)
    if params.get("threadId", speech.native_id) != speech.native_id:
        return []
    match method:
        case "thread/status/changed":
            if (params.get("status") or {}).get("type") == "active":
                return [Heard(kind=HeardKind.BUSY)]
            dropped = [Heard(kind=HeardKind.DROPPED, given=given) for given in speech.live]
            speech.live.clear()
            return [*dropped, Heard(kind=HeardKind.IDLE)]
        case "turn/started":
            speech.turn = str((params.get("turn") or {}).get("id", ""))
            return []
        case "turn/completed":
            speech.turn = ""
            error = (params.get("turn") or {}).get("error")
            return [said("!", str(error.get("message", error)))] if isinstance(error, dict) else []
        case "item/started" | "item/completed":
            return _item(params.get("item") or {}, speech, started=method == "item/started")
        case "serverRequest/resolved":
            return [Heard(kind=HeardKind.WITHDREW, ask_id=str(params.get("requestId")))]
        case "error" | "warning":
            words = params.get("message") or (params.get("error") or {}).get("message") or ""
            return [said("!", str(words))]
        case _:
            return []


def _answered(row: Row, speech: Speech) -> list[Heard]:
    purpose = speech.waiting.pop(str(row.get("id", "")), "")
    words = _refusal(row["error"]) if row.get("error") is not None else ""
    result = row.get("result") or {}
    match purpose:
        case "":
            return [said("!", words)] if words else []
        case "initialize" if not words:
            return [Heard(kind=HeardKind.REPLY, rows=({"method": "initialized"}, _thread(speech)))]
        case "thread" if not words:
            thread = result.get("thread") or {}
            speech.native_id = str(thread.get("id", ""))
            ready = Heard(
                kind=HeardKind.READY, native_id=speech.native_id, path=str(thread.get("path") or "")
            )
            active = (thread.get("status") or {}).get("type") == "active"
            return [ready, Heard(kind=HeardKind.BUSY if active else HeardKind.IDLE)]
        case "initialize" | "thread":
            return [Heard(kind=HeardKind.BROKEN, text=words)]
        case "interrupt":
            return [said("!", words)] if words else []
    if words:
        # Whatever ran runs no more: the next try starts a turn, which steers one that does run after all.
        speech.turn = ""
        return [Heard(kind=HeardKind.REFUSED, given=purpose, text=words)]
    turn = (result.get("turn") or {}).get("id")
    if turn:
        speech.turn = str(turn)
    elif "turnId" in result:
        speech.live[purpose] = False
    return [Heard(kind=HeardKind.TOOK, given=purpose)]


def _refusal(error: Any) -> str:
    """The words of an error; one without words is still one."""
    words = error.get("message") if isinstance(error, dict) else error
    return str(words or f"it refused without a reason ({error})")


def _thread(speech: Speech) -> Row:
    plan = speech.plan
    params: Row = {"cwd": plan.cwd} | ({"model": plan.model} if plan.model else {})
    if plan.resume and plan.session_id is not None:
        params |= {"threadId": plan.session_id, "excludeTurns": True}
        return {"id": speech.ask("thread"), "method": "thread/resume", "params": params}
    return {"id": speech.ask("thread"), "method": "thread/start", "params": params}


def _item(item: dict[str, Any], speech: Speech, *, started: bool) -> list[Heard]:
    kind = item.get("type")
    if kind == "userMessage" and started:
        words = words_of(item.get("content"))
        given = str(item.get("clientId") or "")
        speech.live.pop(given, None)
        return [Heard(kind=HeardKind.CONSUMED, given=given, text=words), said(">", words)]
    if kind == "commandExecution" and started:
        return [said("$", str(item.get("command")))]
    if kind == "agentMessage" and not started:
        return [said("*", str(item.get("text")))]
    return []


def _asked(row: Row, method: str, params: dict[str, Any]) -> list[Heard]:
    """A question of the server. One that nobody here can answer is said to be unknown, which ends it."""
    title = QUESTIONS.get(method)
    if title is None:
        error = {"code": NO_SUCH_METHOD, "message": f"{method} is not supported by this client"}
        reply = Heard(kind=HeardKind.REPLY, rows=({"id": row["id"], "error": error},))
        return [reply, said("!", f"{method} was not answered")]
    lines = [str(params[key]) for key in ("command", "cwd", "reason", "grantRoot") if params.get(key)]
    asked = Asked(
        ask_id=str(row["id"]),
        wire_id=row["id"],
        title=title,
        options=("Yes", "No"),
        body=tuple("\n".join(lines).splitlines()),
        yes=0,
        no=1,
        method=method,
    )
    return [Heard(kind=HeardKind.ASKED, asked=asked)]


def give(text: str, given: str, speech: Speech, *, command: bool) -> list[Row]:
    """turn/start, or turn/steer while one runs; both carry our id."""
    thread = speech.native_id
    if command:
        return [{"id": speech.ask(given), "method": "thread/compact/start", "params": {"threadId": thread}}]
    params: Row = {
        "threadId": thread,
        "input": [{"type": "text", "text": text}],
        "clientUserMessageId": given,
    }
    if speech.turn:
        params["expectedTurnId"] = speech.turn
        return [{"id": speech.ask(given), "method": "turn/steer", "params": params}]
    return [{"id": speech.ask(given), "method": "turn/start", "params": params}]


def interrupt(speech: Speech) -> list[Row]:
    """Stop the turn that runs."""
    if not speech.turn:
        return []
    params = {"threadId": speech.native_id, "turnId": speech.turn}
    return [{"id": speech.ask("interrupt"), "method": "turn/interrupt", "params": params}]


def answer(asked: Asked, option: int) -> list[Row]:
    """accept, or decline: the turn goes on."""
    return [{"id": asked.wire_id, "result": {"decision": "accept" if option == asked.yes else "decline"}}]
