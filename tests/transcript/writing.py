"""Writing sessions as Claude Code writes them, for tests: one object a session, one method a thing that happens.

`rows` is the file in order; `said` is what a person would say was the conversation (role, text), kept by
the writer itself and not by reading.
"""

from __future__ import annotations

import json
from typing import Any

BASE = {"isSidechain": False, "cwd": "/home/ana/demo", "version": "2.1.290", "sessionId": "s-1"}


class ClaudeSession:
    """A session that grows."""

    def __init__(self, session_id: str = "s-1") -> None:
        self.session_id = session_id
        self.rows: list[dict[str, Any]] = []
        self.tip: str | None = None
        self.said: list[tuple[str, str]] = []
        self.superseded: list[tuple[str, str]] = []
        self.turn_starts: list[tuple[str | None, int]] = []
        """(tip before the turn, messages before it) of each live turn."""
        self._count = 0

    def new_id(self, kind: str = "r") -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def stamp(self) -> str:
        return f"2026-09-30T10:{self._count // 60 % 60:02}:{self._count % 60:02}.000Z"

    def chain(self, kind: str, *, parent: str | None = None, **more: Any) -> dict[str, Any]:
        uuid = self.new_id()
        row = {
            "parentUuid": parent if parent is not None else self.tip,
            **BASE,
            "sessionId": self.session_id,
            "type": kind,
            "uuid": uuid,
            "timestamp": self.stamp(),
            **more,
        }
        self.rows.append(row)
        self.tip = uuid
        return row

    def loose(self, **row: Any) -> None:
        self.rows.append({**row, "timestamp": self.stamp(), "sessionId": self.session_id})

    # -- what happens

    def human(self, text: str, **more: Any) -> dict[str, Any]:
        self.turn_starts.append((self.tip, len(self.said)))
        self.said.append(("user", text))
        more = {"promptSource": "typed", "origin": {"kind": "human"}, **more}
        return self.chain("user", message={"role": "user", "content": text}, **more)

    def block(self, message_id: str, block: dict[str, Any], stop: str | None, **more: Any) -> dict[str, Any]:
        message = {
            "id": message_id,
            "role": "assistant",
            "model": "claude-x",
            "content": [block],
            "stop_reason": stop,
        }
        return self.chain("assistant", message=message, **more)

    def thinking(self, text: str) -> None:
        self.block(self.new_id("m"), {"type": "thinking", "thinking": text}, None)

    def tools(self, count: int, *, narration: str = "", order: list[int] | None = None) -> None:
        """`count` parallel calls in one response, their results in `order`; each result hangs on its call."""
        message_id = self.new_id("m")
        if narration:
            self.block(message_id, {"type": "text", "text": narration}, None)
        calls = []
        for at in range(count):
            call_id = self.new_id("t")
            stop = "tool_use" if at == count - 1 else None
            block = {"type": "tool_use", "id": call_id, "name": f"Tool{at}", "input": {"n": at}}
            calls.append((call_id, self.block(message_id, block, stop)["uuid"]))
        for at in order if order is not None else range(count):
            call_id, uuid = calls[at]
            result = {"type": "tool_result", "tool_use_id": call_id, "content": f"out {at}"}
            self.chain("user", parent=uuid, message={"role": "user", "content": [result]})

    def absorbed(self, text: str) -> None:
        """Typed while the turn ran, taken in after a tool: an attachment and queue rows, no user row."""
        source = self.new_id("src")
        self.loose(type="queue-operation", operation="enqueue", content=text)
        self.loose(type="queue-operation", operation="remove", content=text, reason="absorbed_mid_turn")
        self.chain(
            "attachment",
            attachment={
                "type": "queued_command",
                "prompt": text,
                "source_uuid": source,
                "commandMode": "prompt",
                "origin": {"kind": "human"},
                "humanTurn": True,
            },
        )
        self.said.append(("user", text))

    def answer(self, text: str, *, pieces: int = 1) -> None:
        """The final text, as `pieces` snapshots that grow."""
        message_id = self.new_id("m")
        for piece in range(1, pieces + 1):
            part = text[: len(text) * piece // pieces]
            if part:
                self.block(
                    message_id, {"type": "text", "text": part}, "end_turn" if piece == pieces else None
                )
        self.said.append(("assistant", text))

    def duration(self) -> None:
        self.chain("system", subtype="turn_duration", durationMs=1)

    def noise(self) -> None:
        self.loose(type="file-history-snapshot", messageId="x", snapshot={})

    def compact(self) -> None:
        last = self.tip
        uuid = self.new_id()
        row = {
            **BASE,
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": uuid,
            "parentUuid": None,
            "logicalParentUuid": last,
            "timestamp": self.stamp(),
        }
        self.rows.append(row)
        self.tip = uuid
        summary = "This session is being continued from a previous conversation."
        self.chain("user", message={"role": "user", "content": summary}, isCompactSummary=True)

    def rewind(self, turns: int) -> None:
        """Esc-Esc: the last `turns` turns are abandoned; the next row hangs where they began."""
        turns = min(turns, len(self.turn_starts) - 1)
        if turns <= 0:
            return
        tip, count = self.turn_starts[-turns]
        self.superseded += self.said[count:]
        del self.said[count:]
        del self.turn_starts[-turns:]
        self.tip = tip

    # -- the file

    def lines(self) -> list[bytes]:
        return [json.dumps(row).encode() + b"\n" for row in self.rows]

    def data(self) -> bytes:
        return b"".join(self.lines())
