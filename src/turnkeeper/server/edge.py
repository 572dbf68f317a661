"""The door of the HTTP interface: every request passes here, and only here.

In this order: the name it is called by and the page that calls (`guard`), the route, the sign-in (bearer
token or cookie), the right (`authorise`, the one that the whole program has), the operation, and its
errors as problem documents. It is plain ASGI: no middleware stands between a request and its answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from turnkeeper.conversation.rights import ANYWHERE, authorise
from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import (
    HeadersTooLarge,
    HostRefused,
    MethodNotAllowed,
    NotFound,
    OriginRefused,
    TurnkeeperError,
    Unauthorized,
)
from turnkeeper.server.guard import Guard, split_authority
from turnkeeper.server.operation import Call, ClientLeft, Operation
from turnkeeper.server.problem import internal_problem, problem
from turnkeeper.server.reply import Answer
from turnkeeper.server.signin import SessionCookie, SignIns
from turnkeeper.server.stream import Streams
from turnkeeper.settings import Settings

if TYPE_CHECKING:
    from turnkeeper.app import Keeper
    from turnkeeper.port.clock import Clock

log = logging.getLogger("turnkeeper.server")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

NOBODY = Principal(user_id="", kind="nobody")
"""Who calls an operation that needs no sign-in."""


class Edge:
    """The ASGI application of one Keeper."""

    def __init__(
        self,
        keeper: Keeper,
        operations: Iterable[Operation],
        *,
        clock: Clock,
        port: int,
        scratch: Path | None = None,
    ) -> None:
        self.keeper = keeper
        self.settings: Settings = keeper.settings
        self.operations = tuple(operations)
        self.port = port
        self.scratch = scratch
        """Where a backup is put together before it is sent; None is the system's temporary folder."""
        settings = self.settings
        public_url = settings.public_url
        hosts, origins = settings.allowed_hosts, settings.allowed_origins
        if public_url is not None:
            hosts = (*hosts, split_authority(public_url.partition("://")[2].rstrip("/"))[0])
            origins = (*origins, public_url.rstrip("/"))
        self.guard = Guard(
            host=settings.host, remote=settings.remote, allowed_hosts=hosts, allowed_origins=origins
        )
        self.sign_ins = SignIns(seconds=settings.sign_in_seconds, monotonic=clock.monotonic)
        self.cookie = SessionCookie(
            port=port,
            seconds=settings.session_seconds,
            secure=public_url is not None and public_url.startswith("https:"),
        )
        self.streams = Streams(keeper, clock)
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in self.operations:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        self._router = Router(
            [Route(path, _Endpoint(self, methods)) for path, methods in by_path.items()],
            redirect_slashes=False,
            default=_nowhere,
        )

    @property
    def url(self) -> str:
        """The address to give to people."""
        if self.settings.public_url is not None:
            return self.settings.public_url.rstrip("/")
        host = self.settings.host
        if host in {"0.0.0.0", "::"}:  # noqa: S104 - everywhere includes here
            host = "127.0.0.1"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def sign_in_url(self) -> str:
        """A new address that signs one browser in, once."""
        return f"{self.url}/?token={self.sign_ins.issue()}"

    async def close(self) -> None:
        """End every open stream."""
        await self.streams.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        scope["turnkeeper.headers"] = headers
        try:
            self._check_size(scope)
            self._check_caller(headers)
        except TurnkeeperError as error:
            await problem(error)(scope, receive, send)
            return
        await self._router(scope, receive, send)

    def _check_size(self, scope: Scope) -> None:
        # The server bounds what it takes in before the headers are complete; here the limit is exact.
        limit_bytes = self.settings.header_bytes_max
        size = len(scope["path"]) + len(scope["query_string"])
        for name, value in scope["headers"]:
            size += len(name) + len(value)
        if size > limit_bytes:
            raise HeadersTooLarge(limit_bytes=limit_bytes)

    def _check_caller(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host")
        if host is None:
            raise HostRefused(host="")
        name = host.decode("latin-1")
        self.guard.check_host(name)
        origin = headers.get(b"origin")
        if origin is not None:
            self.guard.check_origin(origin.decode("latin-1"), name)

    async def principal(self, method: str, headers: Mapping[bytes, bytes]) -> Principal:
        """Who calls. Raises Unauthorized, and OriginRefused for another site's use of our cookie."""
        bearer = headers.get(b"authorization")
        if bearer is not None:
            scheme, _, secret = bearer.partition(b" ")
            if scheme.lower() != b"bearer" or not secret:
                raise Unauthorized
            return await self.keeper.authenticate(secret.strip().decode("latin-1"))
        cookies = headers.get(b"cookie")
        held = None if cookies is None else self.cookie.read(cookies)
        if held is None:
            raise Unauthorized
        if method not in SAFE_METHODS and b"origin" not in headers:
            site = headers.get(b"sec-fetch-site", b"none")
            if site not in {b"same-origin", b"none"}:
                raise OriginRefused(origin=site.decode("latin-1"))
        return await self.keeper.authenticate(held)


class _Endpoint:
    """All operations of one path."""

    def __init__(self, edge: Edge, operations: dict[str, Operation]) -> None:
        self._edge = edge
        self._operations = operations
        self._allowed = ", ".join(sorted(operations))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except TurnkeeperError as error:
            answer = problem(error)
        except ClientLeft:
            return
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            answer = internal_problem()
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        method: str = scope["method"]
        operation = self._operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise MethodNotAllowed(method=method, allowed=self._allowed)
        headers: dict[bytes, bytes] = scope["turnkeeper.headers"]
        principal = NOBODY
        if operation.right is not None:
            principal = await self._edge.principal(method, headers)
            authorise(principal, operation.right, ANYWHERE)
        return await operation.handler(Call(self._edge, scope, receive, headers, principal))


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    await problem(NotFound(what="page"))(scope, receive, send)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
