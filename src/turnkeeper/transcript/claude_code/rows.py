"""The rows of a Claude Code transcript as types, and what is known of the types of rows.

Only fields that something is decided by are read; tool inputs and results are not even built.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

NAME: Final = "claude-code"


class Origin(msgspec.Struct, gc=False):
    """Who a row comes from: human, peer, task-notification, coordinator, plugin, auto-continuation."""

    kind: str | None = None


class Position(msgspec.Struct, gc=False, rename="camel"):
    """Where a prompt stands among the prompts and turns of the session."""

    prompt_index: int | None = None


class Block(msgspec.Struct, gc=False):
    """A content block. Tool inputs and results are not read: they are the bulk of every file."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None


class Content(msgspec.Struct, gc=False):
    """A message as the API has it. An absent `stop_reason` is an old file; null is an unfinished row."""

    id: str | None = None
    model: str | None = None
    content: str | list[Block] | None = None
    stop_reason: str | UnsetType | None = UNSET


class Attachment(msgspec.Struct, gc=False):
    """What was put beside a turn; only `queued_command` can be a person's words."""

    type: str | None = None
    prompt: str | list[Block] | None = None
    source_uuid: str | None = None
    delivery_id: str | None = None
    command_mode: str | None = msgspec.field(default=None, name="commandMode")
    origin: Origin | None = None
    human_turn: bool | None = msgspec.field(default=None, name="humanTurn")
    is_meta: bool | None = msgspec.field(default=None, name="isMeta")


class Fork(msgspec.Struct, gc=False, rename="camel"):
    """Which row of which session the SDK copied a row from."""

    session_id: str | None = None
    message_uuid: str | None = None


class Row(msgspec.Struct, gc=False, rename="camel"):
    """One line of the file, in the order of its fields; those that nothing is decided by are left out."""

    parent_uuid: str | None = None
    is_sidechain: bool | None = None
    type: str | None = None
    message: Content | None = None
    uuid: str | None = None
    timestamp: str | None = None
    is_meta: bool | None = None
    origin: Origin | None = None
    prompt_source: str | None = None
    turn_origin: str | None = None
    turn_position: Position | None = None
    row_source: str | None = None
    is_compact_summary: bool | None = None
    is_api_error_message: bool | None = None
    is_aborted_mid_stream: bool | None = None
    attachment: Attachment | None = None
    subtype: str | None = None
    content: str | list[Block] | None = None
    operation: str | None = None
    logical_parent_uuid: str | None = None
    team_name: str | None = None
    agent_id: str | None = None
    custom_title: str | None = None
    ai_title: str | None = None
    summary: str | None = None
    forked_from: Fork | None = None


class Identity(msgspec.Struct, gc=False, rename="camel"):
    """What a row says of the session that it stands in; read from the ends of a file only."""

    uuid: str | None = None
    session_id: str | None = None
    cwd: str | None = None
    version: str | None = None
    session_kind: str | None = None
    forked_from: Fork | None = None
    timestamp: str | None = None


SPOKEN: Final = frozenset({"user", "assistant"})
CHAINED: Final = frozenset({"user", "assistant", "system", "attachment", "progress"})

SKIPPED: Final = {
    "progress": "what a running tool or hook printed",
    "file-history-snapshot": "undo data",
    "file-history-delta": "undo data",
    "last-prompt": "a copy of the newest prompt, for the list of sessions",
    "mode": "a setting",
    "permission-mode": "a setting",
    "agent-setting": "a setting",
    "agent-name": "the name of a sub-agent",
    "agent-color": "a setting",
    "atis-latch": "internal state",
    "tools-used": "a list of tool names",
    "cost-state": "sums of tokens and money",
    "content-replacement": "internal state",
    "bridge-session": "a link to a remote session",
    "pr-link": "a link",
    "tag": "a label of the session",
    "api-request-blob": "a copy of the request; its message is a repetition (trap of 2.1.332)",
    "attribution-snapshot": "who changed which file",
    "worktree-state": "a setting",
    "queue-operation": "read apart from the rows that speak",
    "custom-title": "the title, read apart",
    "ai-title": "the title, read apart",
    "summary": "the title, read apart",
}
"""Row types without anything of the conversation, with the reason."""

SPEECHLESS_SYSTEM: Final = {
    "api_error": "a retry that is under way; the last failure is a row of its own",
    "turn_duration": "the end of a turn, read apart",
    "stop_hook_summary": "how long hooks ran",
    "bridge_status": "a link to a remote session",
    "microcompact_boundary": "tool results were shortened for the model; nothing was said",
}
NOTICE_OF_SYSTEM: Final = {
    "local_command": "local_command",
    "away_summary": "away_summary",
    "informational": "informational",
}
NOTICE_OF_ORIGIN: Final = {
    "task-notification": "task_notification",
    "peer": "peer_message",
    "coordinator": "coordinator_message",
    "plugin": "plugin_message",
    "auto-continuation": "auto_continuation",
}
UNFINISHED_STOPS: Final = frozenset({None, UNSET, "tool_use", "pause_turn"})
TASK_NOTIFICATION: Final = "<task-notification>"

_PASTE: Final = re.compile(
    r"\n*<pasted_content(?:\s[^>]*)?>\n?(.*?)(?:\n?</pasted_content(?:\s[^>]*)?>\n?|\Z)", re.DOTALL
)


def plain(content: str | list[Block] | None) -> tuple[str, int]:
    """The words of a person's message without paste wrappers, and how many images came with it."""
    images = 0
    if isinstance(content, str):
        text = content
    elif content is None:
        return "", 0
    else:
        words = [block.text for block in content if block.type == "text" and block.text]
        images = sum(1 for block in content if block.type == "image")
        text = "\n".join(words)
    if "<pasted_content" in text:
        text = _PASTE.sub(lambda found: ("\n" if found.start() else "") + found.group(1), text)
        text = text.strip("\n")
    return text, images


def holds_result(message: Content) -> bool:
    """Whether a `user` row is the result of a tool call."""
    content = message.content
    if type(content) is not list or not content:
        return False
    return content[0].type == "tool_result" or any(block.type == "tool_result" for block in content)
