"""The page: `/` and its files. Both are public and hold no data; what they show comes from the interface.

`/?token=...` is the printed one-time address: it spends the token, sets the cookie and goes on to `/`. A
browser that only looks ahead (prefetch, preview) spends nothing.
"""

from __future__ import annotations

import asyncio
import re
from html import escape
from mimetypes import guess_type
from pathlib import Path
from typing import Final

from starlette.responses import FileResponse

from turnkeeper import __version__
from turnkeeper.conversation.rights import OWNER_SCOPES
from turnkeeper.errors import NotFound, SignInUsed
from turnkeeper.server.operation import Call, Operation, Param
from turnkeeper.server.reply import HTML, Answer, Headers, Reply
from turnkeeper.server.tokens import OWNER

STATIC: Final = Path(__file__).parents[1] / "static"

WORKER: Final = "push.js"
"""What a browser wakes when it is told something while no page is open; it answers for all pages, and no request."""

PAGE_POLICY: Final = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

PAGE_HEADERS: Final[Headers] = [
    (b"content-security-policy", PAGE_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Turnkeeper</title>
<meta name="viewport" content="width=device-width"><body style="font:16px/1.5 system-ui;max-width:40em;margin:3em auto;padding:0 1em">
<h1>Turnkeeper {version}</h1>
<p>{sentence}</p>
<p>Chat in a terminal: <code>turnkeeper chat</code>. Over HTTP: see <a href="/v1/openapi.json">the description</a>.</p>
"""


def built_in(sentence: str, *, status: int = 200) -> Reply:
    """A small page of our own, for when there is no built one and for what goes wrong at sign-in."""
    text = PAGE.format(version=escape(__version__), sentence=escape(sentence))
    return Reply(text.encode(), status=status, media_type=HTML, headers=PAGE_HEADERS)


async def root(call: Call) -> Answer:
    secret = call.query("token")
    if secret is not None:
        return await _sign_in(call, secret)
    index = STATIC / "index.html"
    if await asyncio.to_thread(index.is_file):
        return await asyncio.to_thread(_file, call, index)
    return built_in("The server is running.")


async def _sign_in(call: Call, secret: str) -> Answer:
    purpose = call.headers.get(b"sec-purpose", b"") + call.headers.get(b"purpose", b"")
    if call.scope["method"] == "HEAD" or b"prefetch" in purpose:
        return Reply(status=204)
    try:
        call.edge.sign_ins.use(secret)
    except SignInUsed as error:
        return built_in(error.sentence, status=error.status)
    held, _ = await call.keeper.create_token(
        OWNER, OWNER_SCOPES, label="browser", expires_seconds=call.edge.settings.session_seconds
    )
    return Reply(
        status=303,
        media_type=HTML,
        headers=[(b"location", _next(call)), (b"cache-control", b"no-store"), *call.edge.cookie.set(held)],
    )


def _next(call: Call) -> bytes:
    """Where a browser goes after its sign-in: to the page, or on to the sign-in at a server of tools."""
    wanted = call.query("next") or ""
    return wanted.encode() if re.fullmatch(r"/connect/[A-Za-z0-9-]{1,24}", wanted) else b"/"


async def static(call: Call) -> Answer:
    wanted = STATIC / call.values["path"]
    inside = await asyncio.to_thread(_is_file_inside, wanted)
    if not inside:
        raise NotFound(what="page")
    # The build names these files by their content, so a name never means other bytes.
    return await asyncio.to_thread(_file, call, wanted, kept=call.values["path"].startswith("assets/"))


def _is_file_inside(wanted: Path) -> bool:
    try:
        return wanted.resolve().is_relative_to(STATIC.resolve()) and wanted.is_file()
    except (OSError, ValueError):  # a name that no file can have: too long, or with a NUL in it
        return False


def _file(call: Call, path: Path, *, kept: bool = False) -> FileResponse:
    """A file of the page; packed, where the build left it so and the browser takes it."""
    headers = {name.decode(): value.decode() for name, value in PAGE_HEADERS}
    if kept:
        headers["cache-control"] = "public, max-age=31536000, immutable"
    if path.name == WORKER:
        headers["service-worker-allowed"] = "/"
    media_type = guess_type(path.name)[0]
    packed = path.with_name(path.name + ".gz")
    if packed.is_file():
        headers["vary"] = "accept-encoding"
        if b"gzip" in call.headers.get(b"accept-encoding", b""):
            headers["content-encoding"] = "gzip"
            path = packed
    return FileResponse(path, headers=headers, media_type=media_type)


OPERATIONS = (
    Operation(
        method="GET",
        path="/",
        name="readPage",
        summary="The page; with ?token= the one-time sign-in.",
        handler=root,
        right=None,
        media_type="text/html",
        params=(
            Param(name="token", description="The secret of the printed one-time address."),
            Param(name="next", description="/connect/NAME: where to go on to after that sign-in."),
        ),
        tag="page",
    ),
    Operation(
        method="GET",
        path="/static/{path:path}",
        name="readPageFile",
        summary="A file of the page.",
        handler=static,
        right=None,
        media_type="application/octet-stream",
        tag="page",
    ),
)
