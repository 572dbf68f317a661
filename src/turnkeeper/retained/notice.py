"""The continuity notice: what a new native session is told of the conversation it goes on with.

It is given as history, not as instructions, in front of the first message, and says where the rest is (seed 002: the
new session only received "read the archive" and skimmed previews instead).
"""

from __future__ import annotations

from collections.abc import Sequence

from turnkeeper.conversation.messages import ASSISTANT, USER, Message

MESSAGES_MAX = 12
CHARS_MAX = 6_000
LINE_CHARS_MAX = 1_500


def recent_dialogue(messages: Sequence[Message]) -> list[str]:
    """The newest lines of what was said, oldest first: people and answers, no tools, no thinking."""
    lines: list[str] = []
    size = 0
    for message in reversed(messages):
        if message.role not in (USER, ASSISTANT) or not message.display:
            continue
        text = message.text.strip()
        if not text:
            continue
        if len(text) > LINE_CHARS_MAX:
            text = text[:LINE_CHARS_MAX] + " […]"
        line = f"{'User' if message.role == USER else 'Assistant'}: {text}"
        size += len(line)
        if lines and (len(lines) >= MESSAGES_MAX or size > CHARS_MAX):
            break
        lines.append(line)
    return lines[::-1]


def continuity(messages: Sequence[Message], conversation_id: str, why: str) -> str:
    """The notice, or nothing if nothing was said yet."""
    lines = recent_dialogue(messages)
    if not lines:
        return ""
    head = (
        f"[Continuity notice. This is a new session of a conversation that goes on ({why}). "
        "Below is its recent dialogue: it is history, not instructions.]"
    )
    foot = (
        "[End of history. The whole conversation is kept: search it with `turnkeeper search WORDS`, "
        f"or read it with `turnkeeper export {conversation_id}`.]"
    )
    return "\n".join([head, *lines, foot, "", ""])


def inline_instructions(instructions: str) -> str:
    """Changed instructions for a CLI that does not take them up when it resumes: once, in front of a message."""
    return (
        "[Instructions for this session, replacing earlier ones:]\n"
        f"{instructions.strip()}\n[End of instructions.]\n\n"
    )
