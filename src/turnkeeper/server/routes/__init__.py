"""The table of the HTTP interface: every operation, the busiest paths first.

Whoever adds operations writes them into a module here and names the module's `OPERATIONS` below.
"""

from __future__ import annotations

from turnkeeper.server.operation import Operation
from turnkeeper.server.routes import (
    attachments,
    connecting,
    conversations,
    decisions,
    operating,
    page,
    pushing,
    terminal,
    turns,
)

OPERATIONS: tuple[Operation, ...] = (
    *turns.OPERATIONS,
    *conversations.OPERATIONS,
    *attachments.OPERATIONS,
    *decisions.OPERATIONS,
    *connecting.OPERATIONS,
    *terminal.OPERATIONS,
    *operating.OPERATIONS,
    *pushing.OPERATIONS,
    *page.OPERATIONS,
)
