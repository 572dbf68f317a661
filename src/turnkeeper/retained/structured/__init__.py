"""Driving a CLI in its own protocol instead of a terminal: one dialect for each, chosen per agent (`driver`).

A structured CLI is the same runner, machine, transcript and native session as one in a pane. Only how it is launched,
given a text, interrupted and asked differs; that is what a dialect answers, and its names stand before the adapter's.
"""

from __future__ import annotations

from typing import Any, Final, cast

from turnkeeper.retained.adapter import Adapter
from turnkeeper.retained.adapters import adapter_named
from turnkeeper.retained.structured import claude_code, codex, pi
from turnkeeper.retained.structured.dialect import Dialect

DIALECTS: Final[dict[str, Dialect]] = {"pi": pi, "codex": codex, "claude-code": claude_code}


REPLACED: Final = frozenset({"COMMANDS", "command", "paste_text", "reads_as_command"})
"""Names of an adapter that its dialect replaces."""


class _Overlaid:
    """An adapter with the names of its dialect in front."""

    ENTER_DELAY_SECONDS = 0.0

    def __init__(self, dialect: Dialect, adapter: Adapter) -> None:
        self._dialect, self._adapter = dialect, adapter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect if name in REPLACED else self._adapter, name)


def structured_adapter(cli: str) -> tuple[Adapter, Dialect]:
    """A CLI's adapter as its structured driver needs it, and its dialect. Raises ConfigError."""
    adapter = adapter_named(cli)
    dialect = DIALECTS[adapter.NAME]
    return cast("Adapter", _Overlaid(dialect, adapter)), dialect
