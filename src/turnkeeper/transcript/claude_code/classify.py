"""Who speaks in a row of a Claude Code transcript: a person, a notice, or nobody."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from turnkeeper.transcript import injected
from turnkeeper.transcript.claude_code.rows import (
    NAME,
    NOTICE_OF_ORIGIN,
    TASK_NOTIFICATION,
    Attachment,
    Content,
    Row,
    plain,
)
from turnkeeper.transcript.record import HUMAN, INFERRED, NATIVE, NOTICE

_COMMAND_NAME: Final = re.compile(r"<command-name>\s*(.*?)\s*</command-name>", re.DOTALL)
_COMMAND_ARGS: Final = re.compile(r"<command-args>\s*(.*?)\s*</command-args>", re.DOTALL)


class Said(msgspec.Struct, gc=False):
    """What a `user` row or an attachment turned out to be. `kind` human | notice | nothing | command.

    A `command` is a slash command of which only the next row tells whether it reached the model.
    """

    kind: str
    text: str = ""
    code: str = ""
    images: int = 0
    provenance: str = NATIVE
    begins: bool = False
    """Whether the CLI answers it with a turn of its own."""


NOTHING: Final = "nothing"
COMMAND: Final = "command"


class Unsure(Exception):
    """A row can only be judged by one who has seen the whole file."""


class Classifier:
    """Who speaks in a row.

    `provenance` tells whether the file says so of its rows; None: that is not known yet, and a row that
    hangs on it raises Unsure.
    """

    def __init__(self, *, provenance: bool | None) -> None:
        self._provenance = provenance
        self._table = injected.table(NAME)
        self.wrappers: dict[str, int] = {}

    def user(self, row: Row, message: Content) -> Said:
        """A `user` row without tool results (reference 2.5)."""
        content = message.content
        if isinstance(content, list) and len(content) > 1:
            content = [
                block for block in content if block.type != "text" or not self._only_wrapper(block.text)
            ]
        text, images = plain(content)
        origin = row.origin.kind if row.origin is not None else None
        # `turnOrigin` speaks of the turn: the output of a local command can begin a person's turn.
        certain = origin == "human" or (row.turn_origin == "human" and row.row_source is None)
        if self._provenance is None and (origin is not None or row.turn_origin or row.prompt_source):
            self._provenance = True
        if row.is_compact_summary:
            return Said(NOTICE, text, "compaction")
        if origin is not None and origin != "human":
            return Said(NOTICE, text, NOTICE_OF_ORIGIN.get(origin, origin.replace("-", "_")), begins=True)
        found = None if certain else self._table.find(text)
        if row.is_meta:
            if found is not None and found.begins:
                return Said(NOTICE, text, found.notice, begins=True)
            return Said(NOTHING)
        if text.lstrip().startswith("<command-"):
            return self._command(text, certain=certain)
        if found is not None:
            return Said(NOTICE if found.notice else NOTHING, text, found.notice, begins=found.begins)
        if row.prompt_source == "system":
            return Said(NOTHING, begins=True)
        certain = certain or row.prompt_source is not None
        stripped = self._table.strip(text).strip("\n") if not text.isalnum() else text
        if not stripped.strip() and not images:
            return Said(NOTHING)
        if not certain:
            unknown = self._table.unknown_leading(stripped)
            if unknown is not None:
                self.wrappers[unknown] = self.wrappers.get(unknown, 0) + 1
                if self._table.unknown_wrapper(stripped) is not None:
                    if self._provenance is None:
                        raise Unsure
                    if self._provenance:
                        return Said(NOTHING)
        return Said(HUMAN, stripped, images=images, provenance=NATIVE if certain else INFERRED)

    def _only_wrapper(self, text: str | None) -> bool:
        return text is not None and bool(text.strip()) and not self._table.strip(text).strip()

    def _command(self, text: str, *, certain: bool) -> Said:
        name = _COMMAND_NAME.search(text)
        if name is None:
            return Said(NOTHING)
        words = name.group(1) if name.group(1).startswith("/") else f"/{name.group(1)}"
        arguments = _COMMAND_ARGS.search(text)
        if arguments is not None and arguments.group(1):
            words = f"{words} {arguments.group(1)}"
        return Said(HUMAN if certain else COMMAND, words, "local_command")

    def answers_command(self, row: Row, message: Content) -> bool:
        """Whether the row behind a slash command is its expansion or an answer, not the CLI's own output."""
        if row.type == "assistant":
            return message.model != "<synthetic>"
        found = self._table.find(plain(message.content)[0])
        return bool(row.is_meta) and (found is None or found.kind != "local_command")

    def queued(self, row: Row, attachment: Attachment) -> Said:
        """A `queued_command`: a person's only if it says so, or an old one that is no notification (2.4)."""
        text, images = plain(attachment.prompt)
        origin = attachment.origin or row.origin
        kind = origin.kind if origin is not None else None
        notified = attachment.command_mode == "task-notification" or text.lstrip().startswith(
            TASK_NOTIFICATION
        )
        if row.is_meta or attachment.is_meta:
            return Said(NOTHING)
        if kind == "human" or (
            kind is None and not notified and (attachment.human_turn or attachment.command_mode == "prompt")
        ):
            stripped = self._table.strip(text).strip("\n")
            return Said(HUMAN, stripped, images=images, provenance=NATIVE if kind else INFERRED)
        if kind is None and not notified:
            return Said(NOTHING)
        return Said(
            NOTICE, text, NOTICE_OF_ORIGIN.get(kind or "task-notification", (kind or "").replace("-", "_"))
        )
