"""Signing in at the servers of tools: who is signed in, the way there, and the way back.

`/connect/NAME` is opened in a browser that is signed in here: it begins a sign-in of that person and sends the
browser on. `/oauth/callback` takes what it brings back. Our own cookie does not come along on the way back
(another site sends it), so the browser is known by a second one, which holds a secret of this one sign-in and
nothing else. A link that is passed on to somebody else so connects nobody to anything of the first person's.
"""

from __future__ import annotations

from typing import Final

from turnkeeper.conversation.rights import ANYWHERE, Right, authorise
from turnkeeper.errors import ConnectInvalid, TurnkeeperError, Unauthorized
from turnkeeper.server.operation import Call, Operation, Param
from turnkeeper.server.reply import HTML, Answer, Reply, reply
from turnkeeper.server.routes.page import built_in
from turnkeeper.server.shapes import ConnectionList, ConnectLink, ReleasedView
from turnkeeper.server.tokens import OWNER
from turnkeeper.tool.mcp.oauth import FLOW_SECONDS, MARK_CHARS

CALLBACK: Final = "/oauth/callback"
VALUE_CHARS_MAX: Final = 4_000
"""Longest value that is taken from a callback."""


async def connections(call: Call) -> Answer:
    return reply({"connections": await call.keeper.connections.list(call.principal), "next": None})


async def link(call: Call) -> Answer:
    """Where to sign in; who may make sign-ins gets an address that signs the browser in here as well."""
    server = call.values["server"]
    await call.keeper.connections.check(call.principal, server)
    edge = call.edge
    plain = f"{edge.url}/connect/{server}"
    may_sign_in = Right.ADMIN in call.principal.scopes and call.principal.user_id == OWNER
    url = f"{edge.sign_in_url()}&next=/connect/{server}" if may_sign_in else plain
    return reply(ConnectLink(server=server, url=url, plain_url=plain), status=201)


async def disconnect(call: Call) -> Answer:
    await call.keeper.connections.end(call.principal, call.values["server"])
    return Reply(status=204)


async def refuse(call: Call) -> Answer:
    server = call.values["server"]
    count = await call.keeper.connections.refuse(call.principal, server)
    return reply(ReleasedView(server=server, outcome="refused", turns=count))


async def connect(call: Call) -> Answer:
    """Send the browser to where its person signs in."""
    if call.scope["method"] == "HEAD" or b"prefetch" in call.headers.get(b"sec-purpose", b""):
        return Reply(status=204)
    try:
        principal = await call.edge.principal("GET", call.headers)
        authorise(principal, Right.WRITE, ANYWHERE)
        begun = await call.keeper.connections.begin(principal, call.values["server"], _base(call) + CALLBACK)
    except Unauthorized:
        return built_in(
            "Sign in here first: open the address that `turnkeeper token link` prints, then this one again.",
            status=401,
        )
    except TurnkeeperError as error:
        return built_in(error.sentence, status=error.status)
    cookie = b"%b=%b; Max-Age=%d; Path=%b; HttpOnly; SameSite=Lax" % (
        _cookie(call, begun.mark),
        begun.browser.encode(),
        int(FLOW_SECONDS),
        CALLBACK.encode(),
    )
    if call.edge.cookie.secure:
        cookie += b"; Secure"
    headers = [(b"location", begun.url.encode()), (b"cache-control", b"no-store"), (b"set-cookie", cookie)]
    return Reply(status=303, media_type=HTML, headers=headers)


async def callback(call: Call) -> Answer:
    """Take what the browser brought back. It says who it is by the secret of this one sign-in."""
    brought = {name: call.query(name) for name in ("state", "code", "iss", "error")}
    if any(len(value or "") > VALUE_CHARS_MAX for value in brought.values()):
        return built_in(ConnectInvalid(why="it is too long").sentence, status=400)
    state = brought["state"] or ""
    try:
        done, turns = await call.keeper.connections.finish(
            state=state,
            browser=_held(call, _cookie(call, state[:MARK_CHARS])),
            code=brought["code"],
            issuer=brought["iss"],
            error=brought["error"],
        )
    except TurnkeeperError as error:
        return built_in(error.sentence, status=error.status)
    if done.outcome == "refused":
        return built_in(f"{done.server} was not connected: the sign-in was refused there.")
    goes_on = {0: "", 1: " What waited for it goes on."}.get(
        turns, f" {turns} turns that waited for it go on."
    )
    return built_in(f"{done.server} is connected.{goes_on} You can close this window.")


def _base(call: Call) -> str:
    """The address by which this browser knows us; the door has checked the name."""
    public = call.edge.settings.public_url
    if public is not None:
        return public.rstrip("/")
    return f"http://{call.headers[b'host'].decode('latin-1')}"


def _cookie(call: Call, mark: str) -> bytes:
    safe = "".join(c for c in mark if c.isascii() and (c.isalnum() or c in "-_"))
    return f"turnkeeper_connect_{call.edge.port}_{safe}".encode()


def _held(call: Call, name: bytes) -> str | None:
    for pair in call.headers.get(b"cookie", b"").split(b";"):
        found, _, value = pair.strip().partition(b"=")
        if found == name:
            return value.decode("latin-1")
    return None


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/connections",
        name="listConnections",
        summary="The servers of tools at which you sign in for yourself, and what waits for that.",
        handler=connections,
        right=Right.READ,
        answer=ConnectionList,
        tag="connections",
    ),
    Operation(
        method="POST",
        path="/v1/connections/{server}",
        name="linkConnection",
        summary="The address to open in a browser to sign in at a server of tools.",
        handler=link,
        right=Right.WRITE,
        answer=ConnectLink,
        status=201,
        tag="connections",
    ),
    Operation(
        method="DELETE",
        path="/v1/connections/{server}",
        name="endConnection",
        summary="Sign out at a server of tools; calls that come later wait for a new sign-in.",
        handler=disconnect,
        right=Right.WRITE,
        status=204,
        tag="connections",
    ),
    Operation(
        method="POST",
        path="/v1/connections/{server}/refuse",
        name="refuseConnection",
        summary="Do not sign in: the turns that wait for it end, and can be retried.",
        handler=refuse,
        right=Right.WRITE,
        answer=ReleasedView,
        tag="connections",
    ),
    Operation(
        method="GET",
        path="/connect/{server}",
        name="openConnection",
        summary="For a browser that is signed in here: goes on to where its person signs in at the server.",
        handler=connect,
        right=None,
        status=303,
        media_type="text/html",
        tag="connections",
    ),
    Operation(
        method="GET",
        path=CALLBACK,
        name="finishConnection",
        summary="Where the browser comes back to; works once, in the browser that began it.",
        handler=callback,
        right=None,
        media_type="text/html",
        params=tuple(
            Param(name=name, description=f"`{name}` of the authorization response.")
            for name in ("state", "code", "iss", "error")
        ),
        tag="connections",
    ),
)
