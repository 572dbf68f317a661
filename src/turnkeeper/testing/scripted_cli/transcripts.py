"""What the scripted CLI writes about itself, in the dialects of pi, codex and claude-code.

Shapes and order of rows follow captures of the real ones (tests/vectors/retained-clis). Files lie where the real
CLI keeps them: below HOME, or where its own variable points. Rows are appended one line at a time.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec


def stamp(at: float) -> str:
    """A time as the CLIs write it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Transcript:
    """One session's own record. `clock` gives Unix seconds; nothing is written before `begin`."""

    dialect = ""

    def __init__(self, home: Path, cwd: str, env: dict[str, str], clock: Callable[[], float]) -> None:
        self.home = home
        self.cwd = cwd
        self.env = env
        self.clock = clock
        self.session_id = ""
        self.path: Path | None = None
        self.counter = 0
        self.silent = False
        """Nothing is written at all."""

    # -- the session

    def begin(self, session_id: str, *, resume: bool) -> bool:
        """Open a session; False if one to be resumed is not there."""
        raise NotImplementedError

    def find(self, session_id: str) -> Path | None:
        """The file of a session."""
        raise NotImplementedError

    def write(self, row: dict[str, Any]) -> None:
        """Append one row."""
        if self.silent:
            return
        assert self.path is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")

    def new_id(self) -> str:
        """A fresh id of a row."""
        self.counter += 1
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.session_id}/{self.counter}/{self.clock()}"))

    # -- rows

    def user(
        self, text: str, *, queued: bool = False, sent_at: float | None = None, given: str | None = None
    ) -> None:
        """A person's message reached the model. `given`: the id that a structured client gave it."""
        raise NotImplementedError

    def enqueue(self, text: str) -> None:
        """Queued while busy; only claude writes that."""

    def dequeue(self, texts: list[str]) -> None:
        """Taken off the queue at the end of a turn."""

    def absorb(self, text: str, *, given: str | None = None) -> None:
        """A queued text reached the model in mid-turn."""
        self.user(text, queued=True, given=given)

    def took_back(self, text: str) -> None:
        """Queued text went back into the composer."""

    def began(self) -> None:
        """A turn began."""

    def thinking(self, text: str) -> None:
        """Reasoning."""
        raise NotImplementedError

    def tool(self, call_id: str, command: str, narration: str) -> None:
        """A tool call, with words beside it."""
        raise NotImplementedError

    def result(self, call_id: str, output: str, *, is_error: bool = False) -> None:
        """A tool's outcome."""
        raise NotImplementedError

    def answer(self, text: str) -> None:
        """Words of the answer, whole."""
        raise NotImplementedError

    def ended(self, text: str | None) -> None:
        """The turn is over."""

    def failed(self, status: int) -> None:
        """The provider refused, for good."""
        raise NotImplementedError

    def interrupted(self, partial: str, call_id: str | None) -> None:
        """A person stopped it."""
        raise NotImplementedError

    def shell(self, command: str, output: str) -> None:
        """A person's own shell command."""

    def compacted(self) -> None:
        """The context was compacted."""

    def command(self, name: str, output: str) -> None:
        """A command of the CLI itself ran."""

    def unknown_command(self, name: str) -> None:
        """A command that it does not know; the message is lost."""


class Pi(Transcript):
    """pi: a tree of entries; the last entry is the leaf."""

    dialect = "pi"

    def begin(self, session_id: str, *, resume: bool) -> bool:
        self.session_id = session_id
        self.leaf: str | None = None
        found = self.find(session_id)
        if found is not None:
            self.path = found
            for line in found.read_bytes().splitlines():
                self.leaf = msgspec.json.decode(line).get("id", self.leaf)
            return True
        name = stamp(self.clock()).replace(":", "-").replace(".", "-")
        self.path = self._folder() / f"{name}_{session_id}.jsonl"
        self.write(
            {
                "type": "session",
                "version": 3,
                "id": session_id,
                "timestamp": stamp(self.clock()),
                "cwd": self.cwd,
            }
        )
        self._entry({"type": "model_change", "provider": "mock", "modelId": "mock-1"})
        return True

    def _folder(self) -> Path:
        agent = self.env.get("PI_CODING_AGENT_DIR")
        base = Path(agent) if agent else self.home / ".pi" / "agent"
        slug = "--" + re.sub(r"[/\\:]", "-", self.cwd.lstrip("/")) + "--"
        return base / "sessions" / slug

    def find(self, session_id: str) -> Path | None:
        folder = self._folder()
        found = sorted(folder.glob(f"*_{session_id}.jsonl")) if folder.is_dir() else []
        return found[0] if found else None

    def _entry(self, entry: dict[str, Any]) -> str:
        entry_id = self.new_id().replace("-", "")[:8]
        head = {"type": entry.pop("type"), "id": entry_id, "parentId": self.leaf}
        self.write({**head, "timestamp": stamp(self.clock()), **entry})
        self.leaf = entry_id
        return entry_id

    def _message(self, message: dict[str, Any], at: float | None = None) -> str:
        message["timestamp"] = int((at or self.clock()) * 1000)
        return self._entry({"type": "message", "message": message})

    def user(
        self, text: str, *, queued: bool = False, sent_at: float | None = None, given: str | None = None
    ) -> None:
        self._message({"role": "user", "content": [{"type": "text", "text": text}]}, sent_at)

    def _assistant(self, content: list[dict[str, Any]], stop: str, **more: Any) -> str:
        return self._message(
            {
                "role": "assistant",
                "content": content,
                "api": "openai-completions",
                "provider": "mock",
                "model": "mock-1",
                "usage": {"input": 50, "output": 10, "totalTokens": 60},
                "stopReason": stop,
                **more,
            }
        )

    def thinking(self, text: str) -> None:
        self._assistant([{"type": "thinking", "thinking": text}, {"type": "text", "text": ""}], "toolUse")

    def tool(self, call_id: str, command: str, narration: str) -> None:
        words = [{"type": "text", "text": narration}] if narration else []
        call = {"type": "toolCall", "id": call_id, "name": "bash", "arguments": {"command": command}}
        self._assistant([*words, call], "toolUse")

    def result(self, call_id: str, output: str, *, is_error: bool = False) -> None:
        self._message(
            {
                "role": "toolResult",
                "toolCallId": call_id,
                "toolName": "bash",
                "content": [{"type": "text", "text": output}],
                "isError": is_error,
                "durationMs": 10,
            }
        )

    def answer(self, text: str) -> None:
        self._assistant([{"type": "text", "text": text}], "stop")

    def failed(self, status: int) -> None:
        for attempt in range(2):
            entry = self._assistant([], "error", errorMessage=f"{status}: mock failure")
            if attempt == 0:
                self._entry({"type": "context_edit", "targetId": entry, "replacement": None})

    def interrupted(self, partial: str, call_id: str | None) -> None:
        if call_id is not None:
            self.result(call_id, "Command aborted", is_error=True)
        words = [{"type": "text", "text": partial}] if partial else []
        self._assistant(words, "aborted", errorMessage="Operation aborted")

    def shell(self, command: str, output: str) -> None:
        self._message(
            {
                "role": "bashExecution",
                "command": command,
                "output": output,
                "exitCode": 0,
                "cancelled": False,
                "truncated": False,
                "excludeFromContext": False,
            }
        )

    def compacted(self) -> None:
        self._entry(
            {
                "type": "compaction",
                "summary": "what was said",
                "firstKeptEntryId": self.leaf,
                "tokensBefore": 10,
            }
        )


class Codex(Transcript):
    """codex: numbered items; turns have a start and an end."""

    dialect = "codex"

    def begin(self, session_id: str, *, resume: bool) -> bool:
        self.session_id = session_id
        self.turn_id = ""
        self.ordinal = 0
        found = self.find(session_id)
        if resume and found is None:
            return False
        if found is not None:
            self.path = found
            self.ordinal = len(found.read_bytes().splitlines())
        else:
            at = datetime.fromtimestamp(self.clock(), UTC)
            folder = self._folder() / f"{at:%Y}" / f"{at:%m}" / f"{at:%d}"
            self.path = folder / f"rollout-{at:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl"
        return True

    def _folder(self) -> Path:
        own = self.env.get("CODEX_HOME")
        return (Path(own) if own else self.home / ".codex") / "sessions"

    def find(self, session_id: str) -> Path | None:
        found = sorted(self._folder().rglob(f"rollout-*{session_id}.jsonl"))
        return found[0] if found else None

    def _line(self, kind: str, payload: dict[str, Any]) -> None:
        if self.ordinal == 0 and kind != "session_meta":
            self._line(
                "session_meta",
                {
                    "session_id": self.session_id,
                    "id": self.session_id,
                    "timestamp": stamp(self.clock()),
                    "cwd": self.cwd,
                    "originator": "codex-tui",
                    "cli_version": "0.171.0",
                    "source": "cli",
                    "history_mode": "paginated",
                },
            )
        self.write(
            {"timestamp": stamp(self.clock()), "ordinal": self.ordinal, "type": kind, "payload": payload}
        )
        self.ordinal += 1

    def _item(self, item: dict[str, Any]) -> None:
        self._line(
            "event_msg",
            {
                "type": "item_completed",
                "thread_id": self.session_id,
                "turn_id": self.turn_id,
                "item": {"id": self.new_id(), **item},
            },
        )

    def _response(self, payload: dict[str, Any], kinds: list[str] | None = None) -> None:
        passed: dict[str, Any] = {"turn_id": self.turn_id}
        if kinds:
            passed["content_item_kinds"] = kinds
        self._line("response_item", {**payload, "internal_chat_message_metadata_passthrough": passed})

    def began(self) -> None:
        self.turn_id = self.new_id()
        self._line("event_msg", {"type": "task_started", "turn_id": self.turn_id})
        self._line("turn_context", {"turn_id": self.turn_id, "cwd": self.cwd, "model": "mock-1"})

    def user(
        self, text: str, *, queued: bool = False, sent_at: float | None = None, given: str | None = None
    ) -> None:
        self._response(
            {
                "type": "message",
                "id": f"msg_{self.new_id()}",
                "role": "user",
                "content": [{"type": "input_text", "text": text}],
            },
            ["user.text"],
        )
        self._item(
            {
                "type": "UserMessage",
                "client_id": given or self.new_id(),
                "content": [{"type": "text", "text": text, "text_elements": []}],
            }
        )

    def thinking(self, text: str) -> None:
        self._item({"type": "Reasoning", "summary_text": [text], "raw_content": []})

    def tool(self, call_id: str, command: str, narration: str) -> None:
        if narration:
            self._item({"type": "AgentMessage", "content": [{"type": "Text", "text": narration}]})
        self._response(
            {
                "type": "function_call",
                "status": "completed",
                "name": "exec_command",
                "arguments": msgspec.json.encode({"cmd": command}).decode(),
                "call_id": call_id,
            }
        )

    def result(self, call_id: str, output: str, *, is_error: bool = False) -> None:
        self._response({"type": "function_call_output", "call_id": call_id, "output": output})

    def answer(self, text: str) -> None:
        self._item({"type": "AgentMessage", "content": [{"type": "Text", "text": text}]})

    def ended(self, text: str | None) -> None:
        self._line(
            "event_msg", {"type": "task_complete", "turn_id": self.turn_id, "last_agent_message": text}
        )

    def failed(self, status: int) -> None:
        self._line(
            "event_msg",
            {
                "type": "task_complete",
                "turn_id": self.turn_id,
                "last_agent_message": None,
                "error": {"message": f"mock failure {status}", "codex_error_info": "other"},
            },
        )

    def interrupted(self, partial: str, call_id: str | None) -> None:
        if call_id is not None:
            self.result(call_id, "Wall time: 2.9 seconds\naborted by user")
        self._response(
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "<turn_aborted>\nThe user interrupted.\n</turn_aborted>"}
                ],
            },
            ["turn_aborted"],
        )
        self._line("event_msg", {"type": "turn_aborted", "turn_id": self.turn_id, "reason": "interrupted"})

    def shell(self, command: str, output: str) -> None:
        self.began()
        self._response(
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": f"<user_shell_command>\n{command}\n</user_shell_command>"}
                ],
            },
            ["user_shell_command"],
        )
        self.ended(None)

    def compacted(self) -> None:
        self.began()
        self._line("compacted", {"message": "", "replacement_history": []})
        self._item({"type": "ContextCompaction"})
        self.ended(None)


class Claude(Transcript):
    """claude-code: a chain of rows, one content block each, and what happens to its queue."""

    dialect = "claude-code"

    def begin(self, session_id: str, *, resume: bool) -> bool:
        self.session_id = session_id
        self.leaf: str | None = None
        self.prompts = 0
        found = self.find(session_id)
        if resume and found is None:
            return False
        self.path = found or self._folder() / f"{session_id}.jsonl"
        if found is not None:
            for line in found.read_bytes().splitlines():
                row = msgspec.json.decode(line)
                self.leaf = row.get("uuid", self.leaf)
                self.prompts = max(self.prompts, row.get("turnPosition", {}).get("promptIndex", 0))
        return True

    def _config(self) -> Path:
        own = self.env.get("CLAUDE_CONFIG_DIR")
        return Path(own) if own else self.home / ".claude"

    def _folder(self) -> Path:
        return self._config() / "projects" / re.sub(r"[^A-Za-z0-9]", "-", self.cwd)

    def find(self, session_id: str) -> Path | None:
        found = sorted((self._config() / "projects").glob(f"*/{session_id}.jsonl"))
        return found[0] if found else None

    def status(self, pid: int, status: str) -> None:
        """The status file that the real one keeps per process."""
        path = self._config() / "sessions" / f"{pid}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(
            msgspec.json.encode(
                {
                    "pid": pid,
                    "sessionId": self.session_id,
                    "cwd": self.cwd,
                    "status": status,
                    "statusUpdatedAt": int(self.clock() * 1000),
                }
            )
        )
        fresh.rename(path)

    def _row(self, kind: str, **fields: Any) -> str:
        row_id = fields.pop("uuid", None) or self.new_id()
        self.write(
            {
                "parentUuid": self.leaf,
                "isSidechain": False,
                "type": kind,
                "uuid": row_id,
                "timestamp": stamp(self.clock()),
                "userType": "external",
                "entrypoint": "cli",
                "cwd": self.cwd,
                "sessionId": self.session_id,
                "version": "2.1.332",
                **fields,
            }
        )
        self.leaf = row_id
        return row_id

    def _queue(self, operation: str, **fields: Any) -> None:
        self.write(
            {
                "type": "queue-operation",
                "operation": operation,
                "timestamp": stamp(self.clock()),
                "sessionId": self.session_id,
                **fields,
            }
        )

    def user(
        self, text: str, *, queued: bool = False, sent_at: float | None = None, given: str | None = None
    ) -> None:
        if not queued:
            self.prompts += 1
        self._row(
            "user",
            uuid=given,
            message={"role": "user", "content": text},
            promptId=self.new_id(),
            origin={"kind": "human"},
            promptSource="queued" if queued else "typed" if given is None else "sdk",
            turnOrigin="human",
            turnPosition={"promptIndex": self.prompts, "turnIndex": self.prompts},
        )
        # The trap of 2.1.332: a line that looks like the prompt once more.
        self.write(
            {
                "type": "api-request-blob",
                "sessionId": self.session_id,
                "message": {"role": "user", "content": text},
            }
        )

    def enqueue(self, text: str) -> None:
        self._queue("enqueue", content=text)

    def dequeue(self, texts: list[str]) -> None:
        for _ in texts:
            self._queue("dequeue")
        self.prompts += 1

    def absorb(self, text: str, *, given: str | None = None) -> None:
        source, delivery = given or self.new_id(), self.new_id()
        self._queue(
            "remove", content=text, reason="absorbed_mid_turn", commandUuid=source, deliveryId=delivery
        )
        self._row(
            "attachment",
            attachment={
                "type": "queued_command",
                "prompt": text,
                "source_uuid": source,
                "delivery_id": delivery,
                "commandMode": "prompt",
                "origin": {"kind": "human"},
                "timestamp": stamp(self.clock()),
                "humanTurn": True,
            },
        )

    def took_back(self, text: str) -> None:
        self._queue("popAll", content=text)

    def _assistant(self, block: dict[str, Any], stop: str | None, **more: Any) -> None:
        self._row(
            "assistant",
            message={
                "id": f"msg_{self.new_id()}",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-5",
                "content": [block],
                "stop_reason": stop,
                "stop_sequence": None,
                "usage": {"input_tokens": 50, "output_tokens": 20},
            },
            **more,
        )

    def thinking(self, text: str) -> None:
        self._assistant({"type": "thinking", "thinking": text, "signature": "c2ln"}, "tool_use")

    def tool(self, call_id: str, command: str, narration: str) -> None:
        if narration:
            self._assistant({"type": "text", "text": narration}, "tool_use")
        self._assistant(
            {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": command}}, "tool_use"
        )

    def result(self, call_id: str, output: str, *, is_error: bool = False) -> None:
        self._row(
            "user",
            message={
                "role": "user",
                "content": [
                    {
                        "tool_use_id": call_id,
                        "type": "tool_result",
                        "content": output,
                        "is_error": is_error,
                    }
                ],
            },
        )

    def answer(self, text: str) -> None:
        self._assistant({"type": "text", "text": text}, "end_turn")

    def ended(self, text: str | None) -> None:
        self._row("system", subtype="turn_duration", durationMs=100, messageCount=2, isMeta=False)

    def failed(self, status: int) -> None:
        self._row(
            "assistant",
            message={
                "id": self.new_id(),
                "type": "message",
                "role": "assistant",
                "model": "<synthetic>",
                "content": [{"type": "text", "text": f"API Error: {status} Overloaded"}],
                "stop_reason": "stop_sequence",
            },
            isApiErrorMessage=True,
            apiErrorStatus=status,
            error="invalid_request",
        )

    def interrupted(self, partial: str, call_id: str | None) -> None:
        if call_id is not None:
            self.result(call_id, "The user doesn't want to proceed with this tool use.", is_error=True)
        if partial:
            self._assistant({"type": "text", "text": partial}, None, isAbortedMidStream=True)
        suffix = " for tool use" if call_id is not None else ""
        self._row(
            "user",
            message={
                "role": "user",
                "content": [{"type": "text", "text": f"[Request interrupted by user{suffix}]"}],
            },
            rowSource="harness",
            interruptedMessageId=self.new_id(),
        )

    def shell(self, command: str, output: str) -> None:
        self._row("user", message={"role": "user", "content": f"<bash-input>{command}</bash-input>"})
        self._row("user", message={"role": "user", "content": f"<bash-stdout>{output}</bash-stdout>"})

    def compacted(self) -> None:
        before, self.leaf = self.leaf, None
        self._row(
            "system",
            subtype="compact_boundary",
            content="Conversation compacted",
            logicalParentUuid=before,
            compactMetadata={"trigger": "manual", "preTokens": 70},
        )
        self._row(
            "user",
            message={
                "role": "user",
                "content": "This session is being continued from a previous conversation that ran out of context.",
            },
            isCompactSummary=True,
            isVisibleInTranscriptOnly=True,
        )
        self.command("compact", "Compacted")

    def command(self, name: str, output: str) -> None:
        self._row(
            "user",
            message={
                "role": "user",
                "content": f"<command-name>/{name}</command-name>\n<command-message>{name}</command-message>\n"
                "<command-args></command-args>",
            },
        )
        self._row(
            "user",
            message={"role": "user", "content": f"<local-command-stdout>{output}</local-command-stdout>"},
        )

    def unknown_command(self, name: str) -> None:
        self._row(
            "system",
            subtype="informational",
            content=f"Unknown command: /{name}",
            level="warning",
            isMeta=False,
        )


DIALECTS: dict[str, type[Transcript]] = {cls.dialect: cls for cls in (Pi, Codex, Claude)}
