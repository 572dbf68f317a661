"""The HTTP interface: one table of operations, one door, event streams, and the process that serves them.

`application.create_app(keeper)` is an ASGI application over a running Keeper; `serving` puts it on a socket.
The interface itself is described in docs/reference/http.md and docs/reference/openapi.json. Nothing is
imported here: the command line reads `standing` without paying for a server.
"""

from __future__ import annotations
