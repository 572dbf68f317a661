"""Keeping a conversation within its model's context: a summary of its beginning, made by the model itself.

The cut stands between two messages where no call is open, as early as the budget allows, so that the newest
exchange stays word for word. What is covered stays in history for people; feeds hold the summary instead
(`HistoryCompacted`, and a message with `through`). The request that is being worked on is never only in the
summary: history/feed.py keeps it in the feed, with its attachments.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnkeeper.conversation import codec
from turnkeeper.conversation.messages import ASSISTANT, NOTICE, TOOL, USER, Message
from turnkeeper.conversation.parts import ToolCall, ToolResult

BYTES_PER_TOKEN = 4.0
"""A guess for text in Latin script; the provider's own count replaces it as soon as there is one."""
MEASURED_TOKENS_MIN = 200
"""Fewer tokens than this say nothing about the proportion."""
KEPT_SHARE = 0.4
"""Share of the budget that the messages after the cut may take."""
SUMMARY_CHARS_MAX = 100_000


def estimate_tokens(size_bytes: int, bytes_per_token: float = BYTES_PER_TOKEN) -> int:
    """About how many tokens so many bytes of a request are."""
    return int(size_bytes / max(bytes_per_token, 1.0)) + 1


def choose_cut(
    messages: Sequence[Message], budget_tokens: int, *, covered_before: str | None = None
) -> int | None:
    """How many messages a summary shall cover, or None if there is nothing worth covering.

    `covered_before` is the last message that an earlier summary covers. The cut is the earliest place after
    it where calls and results are whole and the rest fits into its share of the budget; if no rest fits, the
    latest such place.
    """
    start = 0
    if covered_before is not None:
        start = next((k + 1 for k, m in enumerate(messages) if m.message_id == covered_before), 0)
    sizes = [estimate_tokens(len(codec.encode(message))) if message.replay else 0 for message in messages]
    rest = sum(sizes[start:])
    open_calls: set[str] = set()
    latest: int | None = None
    said = False
    for index in range(start, len(messages)):
        message = messages[index]
        rest -= sizes[index]
        if message.replay:
            said = said or message.role == ASSISTANT
            if message.role == USER:
                open_calls.clear()  # what was left open before is closed by the feed, and stays closed
            for part in message.parts:
                if type(part) is ToolCall and not part.server_side:
                    open_calls.add(part.id)
                elif type(part) is ToolResult:
                    open_calls.discard(part.tool_call_id)
        follows = messages[index + 1] if index + 1 < len(messages) else None
        if open_calls or not said or message.role == NOTICE or (follows is not None and follows.role == TOOL):
            continue
        latest = index + 1
        if rest <= budget_tokens * KEPT_SHARE:
            return latest
    return latest
