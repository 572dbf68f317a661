"""`create_app`: the HTTP interface of a running Keeper as an ASGI application."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from turnkeeper.server.edge import Edge
from turnkeeper.server.operation import Operation
from turnkeeper.server.routes import OPERATIONS

if TYPE_CHECKING:
    from turnkeeper.app import Keeper


def create_app(
    keeper: Keeper,
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
