"""pi (1.6.0): one JSONL file, sessions by our own id, Enter while busy steers one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from turnkeeper.retained.adapter import LAUNCH, Command, Found, Memory, Plan, normal
from turnkeeper.retained.adapters import looks
from turnkeeper.retained.signs import Composer, Reading, Sign, SignKind
from turnkeeper.terminal.screen import Screen
from turnkeeper.transcript import pi as format_pi
from turnkeeper.transcript.place import Roots

NAME: Final = "pi"
FORMAT: Final = format_pi.NAME
PROGRAM: Final = "pi"
TESTED: Final = "1.6.0"
CHOOSES_ID: Final = True
INSTRUCTIONS: Final = LAUNCH
"""--append-system-prompt at relaunch is recorded as a new system message with the changed section."""
ENTER_DELAY_SECONDS: Final = 0.05
CLEAR_KEYS: Final = ("C-e", "C-u", "BSpace")
RECALL_KEYS: Final = ("M-Up",)
INTERRUPT_KEYS: Final = ("Escape",)
ENV_PASSED: Final = ("PI_*", "ANTHROPIC_*", "OPENAI_*", "GEMINI_*", "GOOGLE_*", "OPENROUTER_*", "MISTRAL_*")
ENV_SET: Final[Mapping[str, str]] = {"PI_OFFLINE": "1"}
COMMANDS: Final = frozenset(
    {"/compact", "/new", "/clear", "/name", "/session", "/reload", "/model", "/thinking"}
)
BYPASS_ARGS: Final[frozenset[str]] = frozenset()
KNOWN_COMMANDS: Final = frozenset(
    {
        *COMMANDS,
        "/quit", "/exit", "/help", "/hotkeys", "/settings", "/resume", "/fork", "/tree", "/copy", "/export",
        "/share", "/login", "/logout", "/changelog", "/scoped-models", "/clone", "/import", "/debug", "/trust",
    }
)  # fmt: skip
WORKING: Final = re.compile(
    r"^─{1,4} [⠀-⣿] ?(Working|Retrying|Compacting|Summarizing|Thinking)|^ ?[⠀-⣿] (Working|Retrying|Compacting)"
)
STEERING: Final = re.compile(r"^ ?(?:Steering|Follow-up): (.*)$")
PLACEHOLDER: Final = re.compile(r"^\[paste #\d+[^\]]*\]$")
STOPS: Final = frozenset({"stop", "length"})


class Row(msgspec.Struct, gc=False, rename="camel"):
    """An entry of the session file."""

    type: str | None = None
    id: str | None = None
    message: dict[str, Any] | None = None
    target_id: str | None = None


def command(plan: Plan) -> Command:
    """One command for a new session and for resuming: --session-id creates or goes on."""
    argv = [*(plan.command or (PROGRAM,)), "--offline", "--tui-mode", "regular"]
    if plan.session_id is not None:
        argv += ["--session-id", plan.session_id]
    if plan.model:
        argv += ["--model", plan.model]
    if plan.instructions:
        argv += ["--append-system-prompt", plan.instructions]
    return Command(argv=(*argv, *plan.args))


def signs(rows: Sequence[Any], offsets: Sequence[int], memory: Memory) -> list[Sign]:
    """What entries say."""
    found: list[Sign] = []
    for row, offset in zip(rows, offsets, strict=True):
        if row.type == "message" and row.message is not None:
            found += _message(row.id or "", row.message, offset)
        elif row.type == "context_edit" and row.target_id is not None:
            found.append(Sign(kind=SignKind.SUPERSEDED, native_id=row.target_id, offset=offset))
        elif row.type == "compaction":
            found.append(Sign(kind=SignKind.COMPACTED, native_id=row.id or "", offset=offset))
    return found


def _message(entry: str, message: dict[str, Any], offset: int) -> list[Sign]:
    role = message.get("role")
    if role == "user":
        text = normal(_words(message.get("content")))
        return [Sign(kind=SignKind.TAKEN, text=text, native_id=entry, offset=offset, via="user")]
    if role == "toolResult":
        return [
            Sign(
                kind=SignKind.RETURNED,
                text=_words(message.get("content")),
                native_id=entry,
                call_id=str(message.get("toolCallId", "")),
                name=str(message.get("toolName", "")),
                is_error=bool(message.get("isError")),
                offset=offset,
            )
        ]
    if role == "bashExecution":
        return [
            Sign(
                kind=SignKind.COMMANDED,
                name="!",
                text=str(message.get("command", "")),
                native_id=entry,
                offset=offset,
            )
        ]
    if role != "assistant":
        return []
    stop = message.get("stopReason")
    found: list[Sign] = []
    for block in message.get("content") or ():
        kind = block.get("type")
        if kind == "thinking" and block.get("thinking"):
            found.append(Sign(kind=SignKind.THOUGHT, text=block["thinking"], native_id=entry, offset=offset))
        elif kind == "text" and block.get("text"):
            found.append(
                Sign(
                    kind=SignKind.SAID,
                    text=block["text"],
                    native_id=entry,
                    final=stop in STOPS,
                    offset=offset,
                )
            )
        elif kind == "toolCall":
            found.append(
                Sign(
                    kind=SignKind.CALLED,
                    native_id=entry,
                    call_id=str(block.get("id", "")),
                    name=str(block.get("name", "")),
                    arguments=block.get("arguments"),
                    offset=offset,
                )
            )
    if stop in STOPS:
        found.append(Sign(kind=SignKind.ENDED, native_id=entry, offset=offset))
    elif stop == "aborted":
        found.append(Sign(kind=SignKind.INTERRUPTED, native_id=entry, offset=offset))
    elif stop == "error":
        words = str(message.get("errorMessage") or "")
        status = re.match(r"\s*(\d{3})\b", words)
        found.append(
            Sign(
                kind=SignKind.FAILED,
                text=words[:500],
                native_id=entry,
                status=int(status[1]) if status else None,
                offset=offset,
            )
        )
    return found


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(b["text"]) for b in content or () if b.get("type") == "text" and b.get("text"))


def read(screen: Screen, status: str | None, *, trust: bool) -> Reading:
    """The composer stands between the last two rules; the upper one carries the spinner."""
    lines = screen.lines
    tail = lines[-30:]
    busy = any(WORKING.match(line.text) for line in tail)
    queued = tuple(found[1] for line in tail if (found := STEERING.match(line.text)))
    place = looks.between_rules(lines)
    below = 0 if place is None else len(lines) - 1 - place[1]
    if place is None or below > FOOTER_LINES_MAX:
        menu = looks.find_menu(lines)
        block = looks.block_of(menu, trust=trust) if menu is not None else None
        return Reading(busy=busy, busy_source="screen", block=block, queued=queued)
    upper, lower = place
    rows = [line.typed for line in lines[upper + 1 : lower]]
    kind, text = looks.composed(rows)
    return Reading(
        composer=kind,
        text=text,
        placeholder=kind is Composer.TEXT and PLACEHOLDER.match(text.strip()) is not None,
        busy=busy,
        busy_source="screen",
        block=None if busy else looks.limit_note(lines[:upper]),
        queued=queued,
    )


FOOTER_LINES_MAX: Final = 6


def status(pid: int, where: Roots) -> tuple[str, str] | None:
    """pi keeps no status file."""
    return None


def normalise(text: str) -> str:
    """As recorded: outer blanks stripped, tabs as four spaces, no controls."""
    return normal(text)


def reads_as_command(text: str) -> bool:
    """`!` runs a shell command even behind blanks; a known /command alone is one, anything longer is text."""
    stripped = text.strip()
    if stripped.startswith("!"):
        return True
    return stripped in KNOWN_COMMANDS or stripped.startswith(("/skill:", "/prompt:"))


def paste_text(text: str) -> str:
    """As it is; the CLI strips outer blank lines itself."""
    return text.strip("\n")


def locate(native_id: str, where: Roots, cwd: str) -> Path | None:
    """The session's file."""
    place = format_pi.locate(native_id, where, cwd=cwd)
    return None if place is None else place.paths[-1]


def sessions_since(where: Roots, cwd: str, since: float) -> list[Found]:
    """Sessions of the folder that began since then."""
    found: list[Found] = []
    slug = "--" + re.sub(r"[/\\:]", "-", cwd.lstrip("/")) + "--"
    for root in format_pi.roots(where):
        for path in sorted((root / "sessions" / slug).glob("*.jsonl")):
            try:
                with path.open("rb") as file:
                    row = msgspec.json.decode(file.readline())
                began = datetime.fromisoformat(row["timestamp"]).timestamp()
            except (OSError, msgspec.DecodeError, KeyError, ValueError):
                continue
            if began >= since and row.get("cwd") == cwd:
                found.append(Found(str(row["id"]), path))
    return found


def lost_session(words: str) -> bool:
    """pi makes a new session in silence: whether it is lost, the missing file says before the launch."""
    return False


def login_words(words: str) -> bool:
    """No key for the model."""
    return re.search(r"no api key|not logged in|run /login", words, re.IGNORECASE) is not None
