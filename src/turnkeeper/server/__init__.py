"""The HTTP interface: one table of operations, one door, event streams, and the process that serves them.

`create_app(keeper)` is an ASGI application over a running Keeper; `turnkeeper.server.serving` puts it on a
socket. The interface itself is described in docs/reference/http.md and docs/reference/openapi.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from turnkeeper.server.edge import Edge
from turnkeeper.server.operation import Operation
from turnkeeper.server.routes import OPERATIONS

if TYPE_CHECKING:
    from turnkeeper.server.keeping import Keeping

__all__ = ["create_app"]


def create_app(
    keeper: Keeping,
    *,
    port: int | None = None,
    scratch: Path | None = None,
    more: Iterable[Operation] = (),
) -> Edge:
    """The ASGI application of `keeper`. `port` is the one it is really served on, if that is not the setting."""
    return Edge(
        keeper,
        (*OPERATIONS, *more),
        clock=keeper.clock,
        port=keeper.settings.port if port is None else port,
        scratch=scratch,
    )
