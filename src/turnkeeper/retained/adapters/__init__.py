"""The CLIs that can be kept in a pane: one module each, all with the same names (`retained.adapter.Adapter`)."""

from __future__ import annotations

from typing import Final

from turnkeeper.errors import ConfigError
from turnkeeper.retained.adapter import Adapter
from turnkeeper.retained.adapters import claude_code, codex, pi

ADAPTERS: Final[dict[str, Adapter]] = {
    pi.NAME: pi,
    codex.NAME: codex,
    claude_code.NAME: claude_code,
}

ALIASES: Final = {"claude": claude_code.NAME, "claude_code": claude_code.NAME}


def adapter_named(name: str) -> Adapter:
    """The adapter of a CLI by its name in the agents file. Raises ConfigError."""
    found = ADAPTERS.get(ALIASES.get(name, name))
    if found is None:
        raise ConfigError(why=f"there is no adapter for the CLI {name!r}; there are {', '.join(ADAPTERS)}")
    return found
