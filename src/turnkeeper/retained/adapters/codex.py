"""codex (0.171.0): rollouts with explicit turns, an id that is harvested, a spinner in the title."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from turnkeeper.retained.adapter import INLINE, Command, Found, Memory, Plan, normal
from turnkeeper.retained.adapters import looks
from turnkeeper.retained.signs import Composer, Reading, Sign, SignKind
from turnkeeper.terminal.screen import Screen
from turnkeeper.transcript import codex as format_codex
from turnkeeper.transcript.place import Roots

NAME: Final = "codex"
FORMAT: Final = format_codex.NAME
PROGRAM: Final = "codex"
TESTED: Final = "0.171.0"
CHOOSES_ID: Final = False
INSTRUCTIONS: Final = INLINE
"""Its own way is AGENTS.md in the user's folder, which is not ours to write."""
ENTER_DELAY_SECONDS: Final = 0.15
"""After a burst of characters Enter is a newline for 120 ms (byobu#115)."""
CLEAR_KEYS: Final = ("C-e", "C-u", "C-k", "BSpace")
RECALL_KEYS: Final[tuple[str, ...]] = ()
INTERRUPT_KEYS: Final = ("Escape",)
"""Never C-c: it ends an idle codex (BD073)."""
ENV_PASSED: Final = ("CODEX_*", "OPENAI_*", "AZURE_OPENAI_*")
ENV_SET: Final[Mapping[str, str]] = {}
COMMANDS: Final = frozenset({"/compact", "/new", "/clear", "/init", "/diff", "/review", "/status", "/model"})
BYPASS_ARGS: Final = frozenset(
    {"--dangerously-bypass-approvals-and-sandbox", "--yolo", "never", 'approval_policy="never"'}
)
WORKING: Final = re.compile(r"^[•◦] (Working|Thinking|Running|Waiting)\b.*esc to interrupt")
COMPOSER: Final = re.compile(r"^(?:›|>|▌)(?: (.*))?$")
PENDING: Final = re.compile(r"^• Messages? to be submitted")
PENDING_ROW: Final = re.compile(r"^\s+↳ (.*)$")
PLACEHOLDER: Final = re.compile(r"^\[Pasted Content \d+ chars\](?: #\d+)?$")
HINTS: Final = frozenset({"Ask Codex to do anything"})
DAEMON_OFF: Final = ("--disable", "daemon_auto_start")
"""With the daemon the turn outlives the pane, and nobody sees how it ends (retained-clis 2)."""


class Row(msgspec.Struct, gc=False):
    """A line of a rollout."""

    type: str | None = None
    payload: dict[str, Any] | None = None


def command(plan: Plan) -> Command:
    """`codex resume ID` for a known session, else a new one."""
    argv = [*(plan.command or (PROGRAM,))]
    if plan.resume and plan.session_id is not None:
        argv += ["resume", plan.session_id]
    argv += settings(plan)
    if plan.model:
        argv += ["--model", plan.model]
    return Command(argv=(*argv, *plan.args))


def settings(plan: Plan) -> list[str]:
    """What it is told by -c, however it is driven: no daemon, no updates, trust, and its servers of tools."""
    argv = [*DAEMON_OFF, "-c", "check_for_update_on_startup=false"]
    if plan.trust_cwd:
        argv += ["-c", f"projects.{toml(plan.cwd)}.trust_level={toml('trusted')}"]
    for name, server in plan.mcp.items():
        for key, value in server.items():
            argv += ["-c", f"mcp_servers.{name}.{key}={toml(value)}"]
    return argv


def toml(value: Any) -> str:
    """A value as TOML, for -c."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(str(k))} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return msgspec.json.encode(str(value)).decode()


def signs(rows: Sequence[Any], offsets: Sequence[int], memory: Memory) -> list[Sign]:
    """What lines say. Newer rollouts have items; older ones the events of the screen."""
    found: list[Sign] = []
    for row, offset in zip(rows, offsets, strict=True):
        payload = row.payload
        if payload is None:
            continue
        if row.type == "session_meta":
            memory.items = memory.items or payload.get("history_mode") == "paginated"
        elif row.type == "event_msg":
            found += _event(payload, offset, memory)
        elif row.type == "response_item":
            found += _response(payload, offset, memory)
        elif row.type == "compacted":
            memory.local = True
            found.append(Sign(kind=SignKind.COMPACTED, offset=offset))
    return found


def _event(payload: dict[str, Any], offset: int, memory: Memory) -> list[Sign]:
    kind = payload.get("type")
    if kind in {"task_started", "turn_started"}:
        memory.turn, memory.said, memory.local = str(payload.get("turn_id", "")), False, False
        return [Sign(kind=SignKind.BEGAN, native_id=memory.turn, offset=offset)]
    if kind == "item_completed":
        memory.items = True
        return _item(payload.get("item") or {}, offset, memory)
    if kind == "user_message" and not memory.items:
        text = normal(str(payload.get("message", "")))
        return [
            Sign(
                kind=SignKind.TAKEN, text=text, native_id=f"{memory.turn}:{offset}", offset=offset, via="user"
            )
        ]
    if kind == "agent_message" and not memory.items:
        memory.said = True
        return [
            Sign(
                kind=SignKind.SAID,
                text=str(payload.get("message", "")),
                native_id=f"{memory.turn}:{offset}",
                final=payload.get("phase") != "commentary",
                offset=offset,
            )
        ]
    if kind in {"task_complete", "turn_complete"}:
        error = payload.get("error")
        if payload.get("last_agent_message") is not None or memory.said or (memory.local and error is None):
            return [Sign(kind=SignKind.ENDED, native_id=memory.turn, offset=offset)]
        words = error.get("message", "") if isinstance(error, dict) else "the turn ended without an answer"
        return [Sign(kind=SignKind.FAILED, text=str(words)[:500], native_id=memory.turn, offset=offset)]
    if kind == "turn_aborted":
        return [Sign(kind=SignKind.INTERRUPTED, native_id=memory.turn, offset=offset)]
    return []


def _item(item: dict[str, Any], offset: int, memory: Memory) -> list[Sign]:
    kind = item.get("type")
    native_id = str(item.get("id", ""))
    if kind == "UserMessage":
        text = normal(_words(item.get("content")))
        given = str(item.get("client_id") or "")
        return [
            Sign(
                kind=SignKind.TAKEN, text=text, native_id=native_id, offset=offset, via="user", given_id=given
            )
        ]
    if kind == "AgentMessage":
        memory.said = True
        return [
            Sign(
                kind=SignKind.SAID,
                text=_words(item.get("content")) or str(item.get("text", "")),
                native_id=native_id,
                final=item.get("phase") != "commentary",
                offset=offset,
            )
        ]
    if kind == "Reasoning":
        text = "\n".join(item.get("summary_text") or ())
        return [Sign(kind=SignKind.THOUGHT, text=text, native_id=native_id, offset=offset)] if text else []
    return []


def _response(payload: dict[str, Any], offset: int, memory: Memory) -> list[Sign]:
    kind = payload.get("type")
    call = str(payload.get("call_id", ""))
    if kind in {"function_call", "custom_tool_call", "local_shell_call"}:
        raw = payload.get("arguments", payload.get("input", payload.get("action")))
        return [
            Sign(
                kind=SignKind.CALLED,
                native_id=str(payload.get("id") or f"{call}:call"),
                call_id=call,
                name=str(payload.get("name") or kind),
                arguments=_arguments(raw),
                offset=offset,
            )
        ]
    if kind in {"function_call_output", "custom_tool_call_output"}:
        output = payload.get("output")
        text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
        return [
            Sign(
                kind=SignKind.RETURNED,
                text=text,
                native_id=str(payload.get("id") or call),
                call_id=call,
                offset=offset,
            )
        ]
    if kind == "message" and payload.get("role") == "user":
        words = _words(payload.get("content"))
        if words.startswith("<user_shell_command>"):
            memory.local = True
            return [Sign(kind=SignKind.COMMANDED, name="!", text=words, offset=offset)]
    return []


def _arguments(raw: Any) -> Any:
    if isinstance(raw, str):
        try:
            return msgspec.json.decode(raw)
        except msgspec.DecodeError:
            return {"text": raw}
    return raw


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(piece["text"]) for piece in content or () if piece.get("text"))


def read(screen: Screen, status: str | None, *, trust: bool) -> Reading:
    """The composer begins with the last `›`; what stands behind the last blank line is the footer."""
    lines = screen.lines
    busy = looks.BRAILLE.match(screen.title) is not None or any(
        WORKING.match(line.text) for line in lines[-30:]
    )
    source = "title" if screen.title else "screen"
    menu = looks.find_menu(lines)
    if menu is not None:
        return Reading(busy=busy, busy_source=source, block=looks.block_of(menu, trust=trust))
    queued: list[str] = []
    pending = False
    for line in lines:
        row = PENDING_ROW.match(line.text)
        if pending and row:
            queued.append(row[1])
        pending = PENDING.match(line.text) is not None or (pending and row is not None)
    first = next((n for n in range(len(lines) - 1, -1, -1) if COMPOSER.match(lines[n].text)), None)
    if first is None or len(lines) - first > COMPOSER_LINES_MAX:
        return Reading(busy=busy, busy_source=source, queued=tuple(queued))
    blanks = [n for n in range(first + 1, len(lines)) if not lines[n].text.strip()]
    if not blanks:
        return Reading(busy=busy, busy_source=source, queued=tuple(queued))
    head = COMPOSER.match(lines[first].typed)
    start = (head[1] or "") if head else ""
    rows = [start if start not in HINTS else "", *(line.typed[2:] for line in lines[first + 1 : blanks[-1]])]
    kind, text = looks.composed(rows)
    return Reading(
        composer=kind,
        text=text,
        placeholder=kind is Composer.TEXT and PLACEHOLDER.match(text.strip()) is not None,
        busy=busy,
        busy_source=source,
        block=None if busy else looks.limit_note(lines[:first]),
        queued=tuple(queued),
    )


COMPOSER_LINES_MAX: Final = 40


def status(pid: int, where: Roots) -> tuple[str, str] | None:
    """codex keeps no status file."""
    return None


def normalise(text: str) -> str:
    """As recorded: outer blanks stripped, no controls."""
    return normal(text)


def reads_as_command(text: str) -> bool:
    """Nothing, for a space in front makes it text, and codex strips it again."""
    return False


def paste_text(text: str) -> str:
    """A space before `/` and `!`: it keeps them from being commands, and is not part of what arrives."""
    text = text.strip("\n")
    return f" {text}" if text.startswith(("/", "!")) else text


def locate(native_id: str, where: Roots, cwd: str) -> Path | None:
    """The newest rollout of the thread."""
    place = format_codex.locate(native_id, where, cwd=cwd)
    return None if place is None else place.paths[-1]


def sessions_since(where: Roots, cwd: str, since: float) -> list[Found]:
    """Threads of the folder that began since then; only the folders of those days are looked into."""
    found: list[Found] = []
    # It writes down where it is, not by which link it came there.
    real = os.path.realpath(cwd)
    first = f"{datetime.fromtimestamp(since, UTC).date() - timedelta(days=1):%Y/%m/%d}"
    for root in format_codex.roots(where):
        sessions = root / "sessions"
        for folder in sorted(sessions.glob("*/*/*")):
            if folder.relative_to(sessions).as_posix() < first:
                continue
            for path in sorted(folder.glob("rollout-*.jsonl")):
                thread = _thread_of(path, since)
                if thread is not None and os.path.realpath(thread[1]) == real:
                    found.append(Found(thread[0], path))
    return found


def _thread_of(path: Path, since: float) -> tuple[str, str] | None:
    """(thread, folder) of a rollout that began since then."""
    try:
        with path.open("rb") as file:
            meta = msgspec.json.decode(file.readline())
        payload = meta.get("payload") or {}
        began = datetime.fromisoformat(payload.get("timestamp") or meta["timestamp"]).timestamp()
    except (OSError, msgspec.DecodeError, KeyError, ValueError):
        return None
    return (str(payload.get("id")), str(payload.get("cwd"))) if began >= since else None


def lost_session(words: str) -> bool:
    """The rollout is gone."""
    return (
        re.search(
            r"no (saved session|rollout|conversation) found|no session found|failed to resume",
            words,
            re.IGNORECASE,
        )
        is not None
    )


def login_words(words: str) -> bool:
    """Not signed in."""
    return (
        re.search(r"not logged in|sign in with chatgpt|missing environment variable", words, re.IGNORECASE)
        is not None
    )
