"""Turnkeeper: a durable conversation runtime for LLM agents.

No turn is lost, repeated, re-ordered or poisoned: not by a crash, a retry, a reload, a stalled
provider, a dead pane, a second tab, or a bad row written last month.
"""

from __future__ import annotations

__version__ = "0.1.0"
