"""claude-code's stream-json (2.1.332): what becomes of each text is told by its id (`command_lifecycle`).

Measured: its transcript holds a text under the very id that we gave it; a second text under the same id is dropped; `!`
is a text; no row ends a turn, so the end is its own word that it is idle; a text that it has queued is taken off with
`cancel_async_message`; permissions are asked over the pipe with `--permission-prompt-tool stdio`.
"""

from __future__ import annotations

from typing import Any, Final

from turnkeeper.retained.adapter import Command, Plan
from turnkeeper.retained.adapters import claude_code as terminal
from turnkeeper.retained.structured.dialect import Asked, Heard, HeardKind, Row, Speech, said, words_of

COMMANDS: Final = frozenset({"/compact"})
STREAMS: Final = (
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--replay-user-messages",
    "--permission-prompt-tool",
    "stdio",
)
DENIED: Final = "The person who was asked did not allow this."


def command(plan: Plan) -> Command:
    """The terminal's command, on streams."""
    made = terminal.command(plan)
    program = len(plan.command or (terminal.PROGRAM,))
    return Command(argv=(*made.argv[:program], *STREAMS, *made.argv[program:]), files=made.files)


def reads_as_command(text: str) -> bool:
    """`/word` is a command also here, unless it reads as a path; `!` is a text."""
    return text.lstrip().startswith("/") and terminal.reads_as_command(text)


def paste_text(text: str) -> str:
    """As it is."""
    return text


def hello(speech: Speech) -> list[Row]:
    """Answered once it is up."""
    speech.waiting["hello"] = "hello"
    return [{"type": "control_request", "request_id": "hello", "request": {"subtype": "initialize"}}]


def heard(row: Row, speech: Speech) -> list[Heard]:
    """Lifecycles by id, questions, and what it says."""
    match row.get("type"):
        case "control_response":
            return _answered(row.get("response") or {}, speech)
        case "command_lifecycle":
            return _lifecycle(str(row.get("command_uuid", "")), str(row.get("state", "")), speech)
        case "control_request":
            return _asked(row)
        case "control_cancel_request":
            return [Heard(kind=HeardKind.WITHDREW, ask_id=str(row.get("request_id")))]
        case "user" if row.get("isReplay"):
            return [said(">", words_of((row.get("message") or {}).get("content")))]
        case "assistant":
            return _assistant((row.get("message") or {}).get("content"))
        case "result" if row.get("is_error"):
            return [said("!", str(row.get("result") or row.get("subtype")))]
        case _:
            return []


def _answered(response: dict[str, Any], speech: Speech) -> list[Heard]:
    purpose = speech.waiting.pop(str(response.get("request_id", "")), "")
    words = str(response.get("error", "")) if response.get("subtype") == "error" else ""
    if purpose == "hello":
        if words:
            return [Heard(kind=HeardKind.BROKEN, text=words)]
        speech.native_id = speech.plan.session_id or ""
        return [Heard(kind=HeardKind.READY, native_id=speech.native_id), Heard(kind=HeardKind.IDLE)]
    return [said("!", words)] if words else []


def _lifecycle(given: str, state: str, speech: Speech) -> list[Heard]:
    found: list[Heard] = []
    match state:
        case "queued":
            speech.live.setdefault(given, False)
            found = [Heard(kind=HeardKind.BUSY), Heard(kind=HeardKind.TOOK, given=given)]
        case "started":
            speech.live[given] = True
            found = [Heard(kind=HeardKind.BUSY), Heard(kind=HeardKind.CONSUMED, given=given)]
        case "completed" | "cancelled":
            begun = speech.live.pop(given, True)
            if state == "cancelled" and not begun:
                found = [Heard(kind=HeardKind.DROPPED, given=given)]
            if not speech.live:
                found.append(Heard(kind=HeardKind.IDLE))
        case "discarded" | "refused":
            # Not given again by itself: it would be refused again.
            speech.live.pop(given, None)
            found = [Heard(kind=HeardKind.REFUSED, given=given, text=f"claude has {state} it")]
            if not speech.live:
                found.append(Heard(kind=HeardKind.IDLE))
        case _:
            pass
    return found


def _assistant(content: Any) -> list[Heard]:
    blocks = content if isinstance(content, list) else ()
    found = []
    for block in blocks:
        if block.get("type") == "text":
            found.append(said("*", str(block.get("text"))))
        elif block.get("type") == "tool_use":
            found.append(said("$", f"{block.get('name')} {block.get('input')}"))
    return found


def _asked(row: Row) -> list[Heard]:
    """A permission. What else it may ask of a client is refused, which ends it."""
    request = row.get("request") or {}
    ask_id = str(row.get("request_id", ""))
    if request.get("subtype") != "can_use_tool":
        error = {"subtype": "error", "request_id": ask_id, "error": "not supported by this client"}
        return [Heard(kind=HeardKind.REPLY, rows=({"type": "control_response", "response": error},))]
    tool, arguments = str(request.get("tool_name")), request.get("input") or {}
    asked = Asked(
        ask_id=ask_id,
        wire_id=ask_id,
        title=f"Do you want to allow {tool}?",
        options=("Yes", "No"),
        body=tuple(f"{name}: {value}" for name, value in arguments.items()),
        yes=0,
        no=1,
        arguments=arguments,
    )
    return [Heard(kind=HeardKind.ASKED, asked=asked)]


def give(text: str, given: str, speech: Speech, *, command: bool) -> list[Row]:
    """A user's message under our id; a busy claude queues it, or takes it up after a tool."""
    return [{"type": "user", "uuid": given, "message": {"role": "user", "content": text}}]


def interrupt(speech: Speech) -> list[Row]:
    """Take off what is queued, then stop: else it would go on with the queue."""
    queued = [given for given, begun in speech.live.items() if not begun]
    requests: list[Row] = [{"subtype": "cancel_async_message", "message_uuid": given} for given in queued]
    requests.append({"subtype": "interrupt"})
    speech.count += 1
    return [
        {"type": "control_request", "request_id": f"stop{speech.count}.{number}", "request": request}
        for number, request in enumerate(requests)
    ]


def answer(asked: Asked, option: int) -> list[Row]:
    """allow with the arguments as they were shown, or deny."""
    allow = {"behavior": "allow", "updatedInput": asked.arguments}
    made = allow if option == asked.yes else {"behavior": "deny", "message": DENIED}
    response = {"subtype": "success", "request_id": asked.wire_id, "response": made}
    return [{"type": "control_response", "response": response}]
