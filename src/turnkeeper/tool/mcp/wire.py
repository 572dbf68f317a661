"""The HTTP transport under mcp's streamable HTTP: guarded, and with a memory of what happened to each call.

The protocol above reports a refused sign-in, a dead server and a broken answer all as one kind of error. So
each request that carries a call leaves a note here, under the key that our call has in its `_meta`; whoever
made the call looks it up. An error of the network is answered with a made-up reply to that one call: raised,
it would end the connection and the calls of others with it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx2
import msgspec

from turnkeeper.errors import TurnkeeperError
from turnkeeper.tool.mcp.grants import Grant, Grants
from turnkeeper.tool.mcp.notes import CALL_KEY, Note, Notes

USED: Final = "turnkeeper.grant"
"""Extension of a request: which grant it was sent with."""

_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
)


class Wire(httpx2.AsyncBaseTransport):
    """One server's transport. `inner` is a guarded one."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, notes: Notes) -> None:
        self._inner = inner
        self._notes = notes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; nothing is raised."""
        said = _message(await request.aread())
        note = self._begin(said)
        try:
            response = await self._inner.handle_async_request(request)
            note.status = response.status_code
            note.challenge = response.headers.get("www-authenticate", "")
            note.grant = request.extensions.get(USED, "")
            if not response.headers.get("content-type", "").lower().startswith("application/json"):
                return response
            try:
                body = await response.aread()
            finally:
                await response.aclose()
            return httpx2.Response(response.status_code, headers=_kept(response.headers), content=body)
        except (*_NOT_SENT, TurnkeeperError) as error:
            note.not_sent = _words(error)
            return _made_up(request, said, note.not_sent)
        except (httpx2.TransportError, httpx2.StreamError) as error:
            note.lost = _words(error)
            return _made_up(request, said, note.lost)

    def _begin(self, said: dict[str, Any]) -> Note:
        params = said.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        key = meta.get(CALL_KEY) if isinstance(meta, dict) else None
        return self._notes.begin(str(key or said.get("method", "")))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _message(data: bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {}
    return said if isinstance(said, dict) else {}


def _kept(headers: httpx2.Headers) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.multi_items() if name.lower() != "transfer-encoding"]


def _made_up(request: httpx2.Request, said: dict[str, Any], why: str) -> httpx2.Response:
    if "id" not in said:
        return httpx2.Response(202 if request.method == "POST" else 405, request=request)
    error = {"jsonrpc": "2.0", "id": said["id"], "error": {"code": -32603, "message": why}}
    return httpx2.Response(502, json=error, request=request)


def _words(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:500]


class GrantAuth(httpx2.Auth):
    """Puts a person's token on each request, refreshes it once where it is refused, and never raises.

    An error here would end the whole connection, and with it the calls of others (ecosystem notes, 3.2).
    """

    def __init__(self, grants: Grants, server: str, person: str) -> None:
        self._grants = grants
        self._server = server
        self._person = person

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send it; after a 401, once more with a fresh token if there is one."""
        grant = await self._grants.fresh(self._server, self._person)
        if grant is None:
            yield request
            return
        _sign(request, grant)
        response = yield request
        if response.status_code != 401:
            return
        renewed = await self._grants.renew(grant)
        if renewed is not None:
            _sign(request, renewed)
            yield request


def _sign(request: httpx2.Request, grant: Grant) -> None:
    request.headers["authorization"] = f"Bearer {grant.access_token}"
    request.extensions = {**request.extensions, USED: grant.generation}
