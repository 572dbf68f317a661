"""claude-code (2.1.332): a chain of rows, a queue that it writes down, a status file for each process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from turnkeeper.retained.adapter import INLINE, Command, Found, Memory, Plan, normal
from turnkeeper.retained.adapters import looks
from turnkeeper.retained.signs import Composer, Reading, Sign, SignKind
from turnkeeper.terminal.screen import Screen
from turnkeeper.transcript import claude_code as format_claude
from turnkeeper.transcript.place import Roots

NAME: Final = "claude-code"
FORMAT: Final = "claude-code"
PROGRAM: Final = "claude"
TESTED: Final = "2.1.332"
CHOOSES_ID: Final = True
INSTRUCTIONS: Final = INLINE
"""A changed --append-system-prompt does not reach a resumed session: a snapshot of the old one is frozen in it."""
ENTER_DELAY_SECONDS: Final = 0.1
CLEAR_KEYS: Final = ("C-e", "C-u", "C-u", "BSpace")
RECALL_KEYS: Final = ("Up",)
INTERRUPT_KEYS: Final = ("Escape",)
ENV_PASSED: Final = ("ANTHROPIC_*", "CLAUDE_*", "AWS_*", "IS_SANDBOX", "DISABLE_*")
ENV_SET: Final[Mapping[str, str]] = {"DISABLE_AUTOUPDATER": "1"}
COMMANDS: Final = frozenset(
    {"/compact", "/clear", "/cost", "/context", "/init", "/review", "/model", "/todos"}
)
BYPASS_ARGS: Final = frozenset({"bypassPermissions", "--dangerously-skip-permissions"})
PLACEHOLDER: Final = re.compile(r"^\[Pasted text #\d+[^\]]*\]$")
PROMPT: Final = re.compile(r"^[❯>](?:[ \xa0](.*))?$")
QUEUED_MARK: Final = re.compile(r"^\s*⎿\s+Queued\b")
QUEUED_ROW: Final = re.compile(r"^❯[ \xa0](.*)$")
HINTS: Final = re.compile(r'^(Press up to edit queued messages|Try ".*)$')
FOOTER_LINES_MAX: Final = 8
UNKNOWN: Final = re.compile(r"^Unknown (?:slash )?command: (\S+)")
COMMAND_NAME: Final = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
INJECTED: Final = re.compile(
    r"^\s*(<local-command-|<bash-|<system-reminder>|<task-notification>|Caveat:|This session is being continued"
    r"|Stop hook feedback:|<user-prompt-submit-hook>|<session-start-hook>|<tick>|<goal>|<channel|<cross-session)"
)
INTERRUPTED: Final = "[Request interrupted by user"
FINAL_STOPS: Final = frozenset({"end_turn", "stop_sequence", "max_tokens", "refusal"})


class Row(msgspec.Struct, gc=False, rename="camel"):
    """A line of the session file."""

    type: str | None = None
    uuid: str | None = None
    message: dict[str, Any] | None = None
    subtype: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    origin: dict[str, Any] | None = None
    prompt_source: str | None = None
    attachment: dict[str, Any] | None = None
    operation: str | None = None
    content: Any = None
    is_api_error_message: bool | None = None
    api_error_status: int | None = None
    is_aborted_mid_stream: bool | None = None
    team_name: str | None = None


def command(plan: Plan) -> Command:
    """A new session under our id, or --resume."""
    argv = [*(plan.command or (PROGRAM,))]
    if plan.session_id is not None:
        argv += ["--resume" if plan.resume else "--session-id", plan.session_id]
    files: dict[str, str] = {}
    if plan.mcp:
        path = str(Path(plan.folder) / "mcp.json")
        files[path] = msgspec.json.encode({"mcpServers": dict(plan.mcp)}).decode()
        argv += ["--mcp-config", path, "--strict-mcp-config"]
    if plan.model:
        argv += ["--model", plan.model]
    if plan.instructions and not plan.resume:
        argv += ["--append-system-prompt", plan.instructions]
    return Command(argv=(*argv, *plan.args), files=files)


def signs(rows: Sequence[Any], offsets: Sequence[int], memory: Memory) -> list[Sign]:
    """What rows say. Only the types below speak: an `api-request-blob` repeats the prompt and says nothing."""
    found: list[Sign] = []
    for row, offset in zip(rows, offsets, strict=True):
        if row.is_sidechain or row.team_name:
            continue
        if row.type == "user" and row.message is not None:
            found += _user(row, row.message, offset)
        elif row.type == "assistant" and row.message is not None:
            found += _assistant(row, row.message, offset)
        elif row.type == "attachment" and row.attachment is not None:
            found += _attachment(row, row.attachment, offset)
        elif row.type == "system":
            found += _system(row, offset)
        elif row.type == "queue-operation":
            found += _queue(row, offset)
    return found


def _user(row: Row, message: dict[str, Any], offset: int) -> list[Sign]:
    content = message.get("content")
    native_id = row.uuid or ""
    results = [b for b in content if b.get("type") == "tool_result"] if isinstance(content, list) else []
    if results:
        return [
            Sign(
                kind=SignKind.RETURNED,
                text=_words(block.get("content")),
                native_id=native_id,
                call_id=str(block.get("tool_use_id", "")),
                is_error=bool(block.get("is_error")),
                offset=offset,
            )
            for block in results
        ]
    text = _words(content)
    if text.startswith(INTERRUPTED):
        return [Sign(kind=SignKind.INTERRUPTED, native_id=native_id, offset=offset)]
    if row.is_meta or row.is_compact_summary:
        return []
    human = (row.origin or {}).get("kind") == "human"
    name = COMMAND_NAME.search(text)
    if name is not None and not human:
        return [Sign(kind=SignKind.COMMANDED, name=name[1].strip(), native_id=native_id, offset=offset)]
    if not human and (row.origin is not None or INJECTED.match(text) or not text.strip()):
        return []
    via = "dequeued" if row.prompt_source == "queued" else "user"
    return [
        Sign(
            kind=SignKind.TAKEN,
            text=normal(text),
            native_id=native_id,
            offset=offset,
            via=via,
            given_id=native_id,
        )
    ]


def _assistant(row: Row, message: dict[str, Any], offset: int) -> list[Sign]:
    native_id = row.uuid or ""
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if row.is_api_error_message:
        words = _words(blocks)
        return [
            Sign(
                kind=SignKind.FAILED,
                text=words[:500],
                native_id=native_id,
                status=row.api_error_status,
                offset=offset,
            )
        ]
    if message.get("model") == "<synthetic>":
        return []
    found: list[Sign] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking" and block.get("thinking"):
            found.append(
                Sign(kind=SignKind.THOUGHT, text=block["thinking"], native_id=native_id, offset=offset)
            )
        elif kind == "text" and block.get("text"):
            final = message.get("stop_reason") in FINAL_STOPS and not row.is_aborted_mid_stream
            found.append(
                Sign(kind=SignKind.SAID, text=block["text"], native_id=native_id, final=final, offset=offset)
            )
        elif kind == "tool_use":
            found.append(
                Sign(
                    kind=SignKind.CALLED,
                    native_id=native_id,
                    call_id=str(block.get("id", "")),
                    name=str(block.get("name", "")),
                    arguments=block.get("input"),
                    offset=offset,
                )
            )
    return found


def _attachment(row: Row, attachment: dict[str, Any], offset: int) -> list[Sign]:
    """A queued text that reached the model in mid-turn has no user row, only this (seed 002)."""
    if attachment.get("type") != "queued_command" or attachment.get("isMeta"):
        return []
    text = _words(attachment.get("prompt"))
    origin = attachment.get("origin")
    if origin is not None:
        human = origin.get("kind") == "human"
    else:
        human = bool(attachment.get("humanTurn")) or attachment.get("commandMode") == "prompt"
    if not human or text.lstrip().startswith("<task-notification>"):
        return []
    native_id = str(attachment.get("source_uuid") or row.uuid or "")
    return [
        Sign(
            kind=SignKind.TAKEN,
            text=normal(text),
            native_id=native_id,
            offset=offset,
            via="absorbed",
            given_id=native_id,
        )
    ]


def _system(row: Row, offset: int) -> list[Sign]:
    native_id = row.uuid or ""
    if row.subtype == "turn_duration":
        return [Sign(kind=SignKind.ENDED, native_id=native_id, offset=offset)]
    if row.subtype == "compact_boundary":
        return [Sign(kind=SignKind.COMPACTED, native_id=native_id, offset=offset)]
    if row.subtype in {"informational", "local_command"} and isinstance(row.content, str):
        unknown = UNKNOWN.match(row.content)
        if unknown is not None:
            return [Sign(kind=SignKind.REFUSED, name=unknown[1], native_id=native_id, offset=offset)]
        name = COMMAND_NAME.search(row.content)
        if name is not None:
            return [Sign(kind=SignKind.COMMANDED, name=name[1].strip(), native_id=native_id, offset=offset)]
    return []


def _queue(row: Row, offset: int) -> list[Sign]:
    text = normal(_words(row.content))
    kinds = {"enqueue": SignKind.QUEUED, "remove": SignKind.REMOVED, "popAll": SignKind.TOOK_BACK}
    kind = kinds.get(row.operation or "")
    return [] if kind is None or not text else [Sign(kind=kind, text=text, offset=offset)]


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(b["text"]) for b in content if isinstance(b, dict) and b.get("text"))


def read(screen: Screen, status: str | None, *, trust: bool) -> Reading:
    """The composer stands between the last two rules and begins with `❯`."""
    lines = screen.lines
    busy, source = _busy(screen, status)
    place = looks.between_rules(lines)
    head = None if place is None else PROMPT.match(lines[place[0] + 1].text)
    below = 0 if place is None else len(lines) - 1 - place[1]
    if place is None or head is None or below > FOOTER_LINES_MAX:
        menu = looks.find_menu(lines)
        if menu is not None:
            return Reading(busy=busy, busy_source=source, block=looks.block_of(menu, trust=trust))
        text = screen.text
        shows_modal = re.search(r"\bEsc to (close|cancel|exit|go back)\b", text, re.IGNORECASE) is not None
        return Reading(busy=busy, busy_source=source, block=looks.modal() if shows_modal else None)
    upper, lower = place
    typed = PROMPT.match(lines[upper + 1].typed)
    first = (typed[1] or "") if typed else ""
    rows = ["" if HINTS.match(first) else first]
    rows += [line.typed[2:] for line in lines[upper + 2 : lower]]
    kind, text = looks.composed(rows)
    return Reading(
        composer=kind,
        text=text,
        placeholder=kind is Composer.TEXT and PLACEHOLDER.match(text.strip()) is not None,
        busy=busy,
        busy_source=source,
        block=None if busy else looks.limit_note(lines[:upper]),
        queued=_queued(screen, upper),
    )


def _queued(screen: Screen, upper: int) -> tuple[str, ...]:
    """First lines of what waits: the prompts that stand together above the mark, the last of them marked."""
    lines = [line.text for line in screen.lines[:upper]]
    marks = [number for number, text in enumerate(lines) if QUEUED_MARK.match(text)]
    if not marks:
        return ()
    found: list[str] = []
    for text in reversed(lines[: marks[-1]]):
        row = QUEUED_ROW.match(text)
        if row is not None:
            found.insert(0, row[1])
        elif text.strip() and not text.startswith("  "):
            break
    return tuple(found)


def _busy(screen: Screen, status: str | None) -> tuple[bool, str]:
    """The status file first, then the title, then the footer."""
    if status in {"busy", "idle"}:
        return status == "busy", "status file"
    if screen.title.startswith(("◐", "◑", "◒", "◓")):
        return True, "title"
    if screen.title.startswith("✳"):
        return False, "title"
    return any("esc to interrupt" in line.text for line in screen.lines[-6:]), "screen"


class _Status(msgspec.Struct, rename="camel"):
    pid: int | None = None
    session_id: str | None = None
    status: str | None = None


def status(pid: int, where: Roots) -> tuple[str, str] | None:
    """`sessions/<pid>.json` of its configuration folder."""
    for root in format_claude.roots(where):
        path = root / "sessions" / f"{pid}.json"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Status)
        except (OSError, msgspec.MsgspecError):
            continue
        if found.pid == pid and found.status is not None:
            return found.status, found.session_id or ""
    return None


def normalise(text: str) -> str:
    """As recorded: unwrapped, tabs as four spaces, no controls, outer blanks stripped."""
    return normal(text)


PATH_LIKE: Final = re.compile(r"^/[^\s/]+/")


def reads_as_command(text: str) -> bool:
    """`!` is shell mode and `/word` a command, unless it reads as a path; nothing leaves either unchanged."""
    stripped = text.lstrip()
    if stripped.startswith("!"):
        return text.startswith("!")
    return stripped.startswith("/") and PATH_LIKE.match(stripped) is None


def paste_text(text: str) -> str:
    """As it is, without blank lines at the end."""
    return text.rstrip("\n")


def locate(native_id: str, where: Roots, cwd: str) -> Path | None:
    """The session's file, in whatever folder it lies (a project may have moved)."""
    place = format_claude.locate(native_id, where, cwd=cwd)
    return None if place is None else place.paths[-1]


def sessions_since(where: Roots, cwd: str, since: float) -> list[Found]:
    """Sessions in the folder's own directory that were written to since then."""
    slug = format_claude.slug(cwd)
    return [
        Found(path.stem, path)
        for root in format_claude.roots(where)
        for path in sorted((root / "projects" / slug).glob("*.jsonl"))
        if path.stat().st_mtime >= since
    ]


def lost_session(words: str) -> bool:
    """The session is gone."""
    return re.search(r"No conversation found with session ID", words) is not None


def login_words(words: str) -> bool:
    """Not signed in."""
    return re.search(r"Invalid API key|Please run /login|not logged in", words, re.IGNORECASE) is not None
