"""What is known of a tool's effect from its name alone, for histories that do not say.

Our own conversations carry the declared effects (MCP annotations) in `FeedOptions.effects`. Foreign ones have
only names: those below are the read-only tools of the common agents; every other name may have acted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from turnkeeper.conversation.turns import Effect

READ_ONLY: Final = frozenset(
    {
        # seed 001's list (hermes)
        "read_file", "search_files", "session_search", "skill_view", "skills_list", "web_extract", "web_search",
        "vision_analyze", "browser_snapshot", "browser_get_images", "browser_console", "read_terminal",
        # coding agents
        "Read", "Grep", "Glob", "LS", "NotebookRead", "WebFetch", "WebSearch", "view_file", "list_files",
        "list_dir", "list_directory", "read_many_files", "search_file_content", "file_search", "grep_search",
        "codebase_search", "glob", "grep", "ls",
    }
)  # fmt: skip


def effect_of(name: str, effects: Mapping[str, Effect]) -> Effect:
    """What a call of this tool may do; a tool that nobody declared may have a side effect."""
    known = effects.get(name)
    if known is not None:
        return known
    return Effect.READ_ONLY if name in READ_ONLY else Effect.ACTS
