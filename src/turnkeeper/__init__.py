"""Turnkeeper: a durable conversation runtime for LLM agents.

No turn is lost, repeated, re-ordered or poisoned: not by a crash, a retry, a reload, a stalled
provider, a dead pane, a second tab, or a bad row written last month.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnkeeper.foreign.clean import clean

__all__ = ["__version__", "clean"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what is asked for, and only then: `import turnkeeper` alone costs nothing."""
    if name == "clean":
        from turnkeeper.foreign.clean import clean

        return clean
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
