"""The server process: a socket, a Keeper, the HTTP interface on it, and an orderly end.

The socket is bound before the store is opened, so a port that is taken costs nothing, and it listens at once: until
interrupted work is rescued, every request is answered 503. While the server runs,
the file `server.json` in the data folder (0600) tells the command line on this machine where it is and holds a
token for it. SIGTERM and SIGINT stop in this order: no new connections, streams end, requests finish, running
turns hand their leases back, the store is closed. A second signal shortens every grace to nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from turnkeeper import __version__
from turnkeeper.conversation.rights import OWNER_SCOPES
from turnkeeper.errors import NotFound, SettingInvalid, Starting, TurnkeeperError
from turnkeeper.server.application import create_app
from turnkeeper.server.guard import is_loopback
from turnkeeper.server.problem import problem
from turnkeeper.server.protocol import BoundedProtocol
from turnkeeper.server.reply import Reply, reply
from turnkeeper.server.standing import Standing, read_standing, remove_standing, write_standing
from turnkeeper.server.tokens import OWNER
from turnkeeper.settings import Settings

if TYPE_CHECKING:
    from turnkeeper.app import Keeper
    from turnkeeper.server.edge import Edge

log = logging.getLogger("turnkeeper.server")

BACKLOG: Final = 2048

KEEP_ALIVE_SECONDS: Final = 30


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """What is announced once the server takes requests."""

    url: str
    sign_in_url: str
    pid: int
    version: str


def bind(host: str, port: int, *, remote: bool) -> socket.socket:
    """A bound socket that does not listen yet. Raises SettingInvalid in a sentence."""
    if not is_loopback(host) and not remote:
        raise SettingInvalid(
            name="host",
            why=f"{host} can be reached from other machines. Set `remote = true` (or --remote) if you want that; "
            "everybody still needs a token or a sign-in, and their requests should come through a proxy with TLS",
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise SettingInvalid(name="host", why=f"{host}: {error.strerror}") from None
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise SettingInvalid(
            name="port",
            why=f"{host}:{port}: {(error.strerror or str(error)).lower()}; port 0 takes a free one",
        ) from None
    bound.setblocking(False)
    return bound


def configure(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """How uvicorn is run: nothing between the socket and the application, no log of requests."""
    return uvicorn.Config(
        app,
        http=cast("Any", partial(BoundedProtocol, header_bytes_max=settings.header_bytes_max)),
        loop="none",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=settings.connections_max,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_grace_seconds)),
    )


def calm_collector() -> None:
    """Let the garbage collector look at new objects only, and seldom.

    Nearly everything that a request makes is freed by its reference count; what the program itself is made of
    never is. Measured: a fifth less CPU for an accepted turn.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def local_url(host: str, port: int) -> str:
    """The address under which this machine reaches the server."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - names, not a bind
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


class Door:
    """What stands on the socket: until the Keeper is open it says that the server is starting."""

    def __init__(self) -> None:
        self.edge: Edge | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self.edge is not None:
            await self.edge(scope, receive, send)
        elif scope["type"] == "http":
            await self._while_starting(scope["path"])(scope, receive, send)

    def _while_starting(self, path: str) -> Reply:
        status = {"/healthz": 200, "/readyz": 503}.get(path)
        if status is None:
            return problem(Starting())
        return reply({"ok": True, "ready": False}, status=status)

    async def close(self) -> None:
        """End what is open."""
        if self.edge is not None:
            await self.edge.close()


class _Server(uvicorn.Server):
    """uvicorn, with our order of stopping and our signals."""

    def __init__(self, config: uvicorn.Config, door: Door) -> None:
        super().__init__(config)
        self._door = door

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The signals are ours: uvicorn would send them again to the process when it has stopped."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Stop in order; called again: at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams first: uvicorn would wait for them."""
        for server in self.servers:
            server.close()
        await self._door.close()
        await super().shutdown(sockets)


async def serve(
    open_keeper: Callable[[], Awaitable[Keeper]],
    settings: Settings,
    bound: socket.socket,
    *,
    data: Path | None,
    announce: Callable[[Listening], None],
) -> None:
    """Listen on `bound`, open the Keeper, serve it until a signal comes, and close it.

    What the opening raises is raised here, when the socket is closed again.
    """
    port = int(bound.getsockname()[1])
    door = Door()
    server = _Server(configure(door, settings), door)
    listening = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        keeper = await open_keeper()
    except BaseException:
        server.should_exit = True
        await listening
        raise
    standing: Standing | None = None
    try:
        edge = door.edge = create_app(keeper, port=port, scratch=data)
        calm_collector()
        if not server.should_exit:
            if data is not None:
                standing = await _stand(keeper, data, local_url(settings.host, port))
            announce(
                Listening(url=edge.url, sign_in_url=edge.sign_in_url(), pid=os.getpid(), version=__version__)
            )
        await listening
    finally:
        if standing is not None and data is not None:
            await _stand_down(keeper, data, standing)
        await keeper.close(0.0 if server.force_exit else None)


async def _stand(keeper: Keeper, data: Path, url: str) -> Standing:
    """Write `server.json`; the token of a server that was killed is revoked."""
    old = read_standing(data)
    if old is not None:
        with contextlib.suppress(NotFound):  # the file may be older than a restored store
            await keeper.revoke_token(old.token_id)
    secret, row = await keeper.create_token(OWNER, OWNER_SCOPES, label="this machine")
    standing = Standing(url=url, token=secret, token_id=row.token_id, pid=os.getpid(), version=__version__)
    write_standing(data, standing)
    return standing


async def _stand_down(keeper: Keeper, data: Path, standing: Standing) -> None:
    try:
        await keeper.revoke_token(standing.token_id)
    except TurnkeeperError as error:
        # The file stays, so that the next start revokes the token.
        log.warning("the token of %s could not be revoked: %s", data, error)
        return
    remove_standing(data)
