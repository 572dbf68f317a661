"""A real MCP server over HTTP with a real authorization server beside it, on loopback (mcp's own server parts).

`Site` counts what its tools did, decides who is let in, and can be told to misbehave: refuse consent, revoke,
answer as another issuer, send calls elsewhere, die or hang in a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes, create_protected_resource_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import ToolAnnotations
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.routing import Mount

from turnkeeper.testing.until import until


class Authority:
    """The authorization server: everybody who comes is signed in at once, unless it was told otherwise."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.refuses = False
        self.seconds: int | None = 3600
        self.refreshed = 0
        self.issuer: str | None = None
        """Said to be who answers; None: says nothing."""

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        extra = {} if self.issuer is None else {"iss": self.issuer}
        if self.refuses:
            return construct_redirect_uri(
                str(params.redirect_uri), error="access_denied", state=params.state, **extra
            )
        code = AuthorizationCode(
            code=secrets.token_hex(8),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state, **extra)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._give(client.client_id, authorization_code.scopes)

    def _give(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access, refresh = f"at-{secrets.token_hex(12)}", f"rt-{secrets.token_hex(12)}"
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(
            access_token=access, token_type="Bearer", expires_in=self.seconds, refresh_token=refresh
        )

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.refreshed += 1
        return self._give(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.clear()
        self.refresh.clear()

    def forget(self, *, refresh_too: bool = True) -> None:
        """Nobody is signed in any more."""
        self.access.clear()
        if refresh_too:
            self.refresh.clear()


class Site:
    """The server: `acted` is what its tools did. `open_list` lets everybody see which tools there are."""

    def __init__(self, port: int, *, open_list: bool = True) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.mcp_url = f"{self.url}/mcp"
        self.open_list = open_list
        self.authority = Authority()
        self.acted: list[str] = []
        self.refused = 0
        self.needs_scope: str | None = None
        """What a call needs; who has it not is told so."""
        self.redirect_calls: str | None = None
        self.status: int | None = None
        self.token_status: int | None = None
        self.hang: asyncio.Event | None = None
        self.flood = False
        self.during: Any = None
        """Called while a call runs, before it acts."""
        self.paths: list[str] = []
        self.tokens: set[str] = set()
        """Every token that was shown here, good or not."""
        self.old = False
        """Speak the protocol as it was before 2026-07-28: with a session, and a stream for what is told unasked."""
        self._streams: list[asyncio.Future[None]] = []
        self.app = self._app()

    def _app(self) -> Any:
        server = MCPServer("site")

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        async def look(what: str) -> str:
            """Look."""
            self.acted.append(f"look {what}")
            return f"seen {what}"

        @server.tool()
        async def act(what: str) -> str:
            """Act."""
            if self.hang is not None:
                await self.hang.wait()
            self.acted.append(f"act {what}")
            return "x" * 20_000_000 if self.flood else f"done {what}"

        @server.tool(annotations=ToolAnnotations(destructive_hint=True))
        async def wipe(what: str) -> str:
            """Wipe."""
            self.acted.append(f"wipe {what}")
            return f"wiped {what}"

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        async def grow(ctx: Context) -> str:
            """Have one more tool from now on."""

            async def grown() -> str:
                """Grown."""
                return "I am new"

            server.add_tool(grown, annotations=ToolAnnotations(read_only_hint=True))
            if self.old:
                await ctx.session.send_tool_list_changed()
            else:
                await ctx.notify_tools_changed()
            return "grown"

        inner = server.streamable_http_app()
        routes = [
            *create_auth_routes(
                self.authority,  # type: ignore[arg-type]
                AnyHttpUrl(self.url),
                client_registration_options=ClientRegistrationOptions(enabled=True),
                revocation_options=RevocationOptions(enabled=True),
            ),
            *create_protected_resource_routes(AnyHttpUrl(self.mcp_url), [AnyHttpUrl(self.url)]),
            Mount("/", inner),
        ]

        @contextlib.asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            async with server.session_manager.run():
                yield

        app = Starlette(routes=routes, lifespan=lifespan)

        async def gate(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            self.paths.append(scope["path"])
            if scope["path"] == "/token" and self.token_status is not None:
                await _answer(send, self.token_status)
                return
            if scope["path"] != "/mcp":
                await app(scope, receive, send)
                return
            body = b""
            more = True
            while more:
                message = await receive()
                body += message.get("body", b"")
                more = message.get("more_body", False)
            asked = json.loads(body) if body else {}
            self.tokens.add(_bearer(scope))
            if self.old and asked.get("method") == "server/discover":
                error = {"code": -32601, "message": "Method not found"}
                await _answer(send, 404, body={"jsonrpc": "2.0", "id": asked["id"], "error": error})
                return
            called = asked.get("method") == "tools/call"
            if called and self.redirect_calls is not None:
                await _answer(send, 307, (b"location", self.redirect_calls.encode()))
                return
            if called and self.status is not None:
                await _answer(send, self.status)
                return
            if not self._may(scope, called=called):
                self.refused += 1
                await self._refuse(send, 401, "invalid_token")
                return
            if called and self.needs_scope is not None and self.needs_scope not in self._token(scope).scopes:
                await self._refuse(send, 403, "insufficient_scope")
                return
            if called and self.during is not None:
                self.during()
            sent = False
            telling = scope["method"] == "GET" or asked.get("method") == "subscriptions/listen"

            async def again() -> Any:
                nonlocal sent
                if not sent:
                    sent = True
                    return {"type": "http.request", "body": body, "more_body": False}
                return await receive()

            if not telling:
                await app(scope, again, send)
                return
            self._streams.append(asyncio.ensure_future(app(scope, again, send)))
            await asyncio.wait({self._streams[-1]})

        return gate

    @property
    def streams(self) -> int:
        """How many streams are open on which it tells of changes."""
        return sum(not one.done() for one in self._streams)

    def end_streams(self) -> int:
        """Break them off; how many there were."""
        return sum(one.cancel() for one in self._streams)

    async def _refuse(self, send: Any, status: int, error: str) -> None:
        wanted = f', scope="{self.needs_scope}"' if self.needs_scope is not None else ""
        metadata = f"{self.url}/.well-known/oauth-protected-resource/mcp"
        challenge = f'Bearer error="{error}"{wanted}, resource_metadata="{metadata}"'
        await _answer(send, status, (b"www-authenticate", challenge.encode()))

    def _token(self, scope: Any) -> AccessToken:
        return self.authority.access[_bearer(scope)]

    def _may(self, scope: Any, *, called: bool) -> bool:
        if self.open_list and not called:
            return True
        return _bearer(scope) in self.authority.access


def _bearer(scope: Any) -> str:
    said: str = dict(scope["headers"]).get(b"authorization", b"").decode()
    return said.removeprefix("Bearer ")


async def _answer(send: Any, status: int, *headers: tuple[bytes, bytes], body: Any = None) -> None:
    found = [*headers, *([(b"content-type", b"application/json")] if body is not None else [])]
    await send({"type": "http.response.start", "status": status, "headers": found})
    data = b"" if body is None else json.dumps(body).encode()
    await send({"type": "http.response.body", "body": data})


@asynccontextmanager
async def serve(*, open_list: bool = True) -> AsyncIterator[Site]:
    """A site on a free port of 127.0.0.1, in this event loop."""
    import socket

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    site = Site(listener.getsockname()[1], open_list=open_list)
    config = uvicorn.Config(site.app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started, "the site")
        yield site
    finally:
        server.should_exit = True
        await task
        listener.close()
