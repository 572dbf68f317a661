"""What an agent can do in the world: tools with declared effects, and running one call within its limits.

A `Tool` says what it is called, what it takes (a JSON Schema), what running it may do to the world, and how
long it may take. `tool` makes one of a Python function. `run_tool` runs one call to an `Outcome` and never
raises: a tool that raises, hangs or returns nonsense is an outcome like any other. What was tried and what
became of it is the ledger's business (turnkeeper.agent); this room keeps nothing.
"""

from __future__ import annotations

from turnkeeper.tool.contract import Outcome, Tool, ToolFile, ToolSource
from turnkeeper.tool.function import tool, tool_of
from turnkeeper.tool.running import ask_whether_it_happened, run_tool

__all__ = [
    "Outcome",
    "Tool",
    "ToolFile",
    "ToolSource",
    "ask_whether_it_happened",
    "run_tool",
    "tool",
    "tool_of",
]
