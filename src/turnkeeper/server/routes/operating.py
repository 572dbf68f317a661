"""The server itself: health, status, backup, tokens, signing in and out."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from turnkeeper.conversation.rights import Right
from turnkeeper.errors import Unauthorized
from turnkeeper.server import tokens
from turnkeeper.server.operation import Call, Operation
from turnkeeper.server.reply import Answer, Chunks, Reply, reply
from turnkeeper.server.shapes import (
    HealthView,
    SessionView,
    SignInMade,
    StatusView,
    TokenBody,
    TokenMade,
    VaultView,
)

BACKUP_CHUNK_BYTES = 1 << 20


async def healthz(call: Call) -> Answer:
    state = await call.keeper.health()
    return reply(state, status=200 if state["ok"] else 503)


async def readyz(call: Call) -> Answer:
    state = await call.keeper.health()
    return reply(state, status=200 if state["ok"] and state["ready"] else 503)


async def status(call: Call) -> Answer:
    return reply(await call.keeper.status(call.principal))


async def backup(call: Call) -> Answer:
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=call.edge.scratch, prefix="backup-"))
    try:
        file = folder / "turnkeeper.db"
        await call.keeper.backup(str(file))
        size_bytes = (await asyncio.to_thread(file.stat)).st_size
        return await Chunks.of(
            _pieces_then_forget(file, folder),
            media_type=b"application/vnd.sqlite3",
            headers=[(b"content-length", b"%d" % size_bytes)],
        )
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        raise


async def _pieces_then_forget(file: Path, folder: Path) -> AsyncIterator[bytes]:
    try:
        with file.open("rb") as stream:
            while piece := await asyncio.to_thread(stream.read, BACKUP_CHUNK_BYTES):
                yield piece
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def make_token(call: Call) -> Answer:
    return reply(await tokens.make(call.keeper, await call.body(TokenBody, optional=True)), status=201)


async def revoke_token(call: Call) -> Answer:
    await call.keeper.revoke_token(call.values["token_id"])
    return Reply(status=204)


async def rotate_vault(call: Call) -> Answer:
    return reply(VaultView(keys=await call.keeper.vault.rotate()))


async def make_sign_in(call: Call) -> Answer:
    edge = call.edge
    return reply(SignInMade(url=edge.sign_in_url(), expires_seconds=edge.sign_ins.seconds), status=201)


async def session(call: Call) -> Answer:
    who = call.principal
    return reply(SessionView(user_id=who.user_id, scopes=list(who.scopes), kind=who.kind))


async def sign_in(call: Call) -> Answer:
    """A page that was given a bearer token hands it to the browser to keep."""
    scheme, _, secret = call.headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer":
        raise Unauthorized
    who = call.principal
    return reply(
        SessionView(user_id=who.user_id, scopes=list(who.scopes), kind=who.kind),
        headers=call.edge.cookie.set(secret.strip().decode("latin-1")),
    )


async def sign_out(call: Call) -> Answer:
    """The cookie is taken back, and its token means nothing any more."""
    if b"authorization" not in call.headers and call.principal.token_id is not None:
        await call.keeper.revoke_token(call.principal.token_id)
    return Reply(status=204, headers=call.edge.cookie.clear())


async def describe(call: Call) -> Answer:
    from turnkeeper.server.openapi import description

    return Reply(description(call.edge.operations))


OPERATIONS = (
    Operation(
        method="GET",
        path="/healthz",
        name="readHealth",
        summary="200 while the server works.",
        handler=healthz,
        right=None,
        answer=HealthView,
        tag="server",
    ),
    Operation(
        method="GET",
        path="/readyz",
        name="readReadiness",
        summary="200 once interrupted work is rescued and new work is taken; 503 before and while stopping.",
        handler=readyz,
        right=None,
        answer=HealthView,
        tag="server",
    ),
    Operation(
        method="GET",
        path="/v1/status",
        name="readStatus",
        summary="The state of the whole server: stuck lanes, oldest wait, parked turns, unknown effects.",
        handler=status,
        right=Right.OPERATE,
        answer=StatusView,
        tag="server",
    ),
    Operation(
        method="GET",
        path="/v1/backup",
        name="downloadBackup",
        summary="A consistent copy of the store, taken while it runs.",
        handler=backup,
        right=Right.ADMIN,
        media_type="application/vnd.sqlite3",
        tag="server",
    ),
    Operation(
        method="POST",
        path="/v1/tokens",
        name="createToken",
        summary="Make a bearer token. Its secret is shown this once.",
        handler=make_token,
        right=Right.ADMIN,
        body=TokenBody,
        body_optional=True,
        answer=TokenMade,
        status=201,
        tag="access",
    ),
    Operation(
        method="DELETE",
        path="/v1/tokens/{token_id}",
        name="revokeToken",
        summary="Revoke a token; streams that were opened with it end within 5 seconds.",
        handler=revoke_token,
        right=Right.ADMIN,
        status=204,
        tag="access",
    ),
    Operation(
        method="POST",
        path="/v1/vault/rotate",
        name="rotateVault",
        summary="Put a new key in use for the sign-ins that lie sealed; older keys open what they sealed.",
        handler=rotate_vault,
        right=Right.ADMIN,
        answer=VaultView,
        tag="operating",
    ),
    Operation(
        method="POST",
        path="/v1/sign-ins",
        name="createSignIn",
        summary="A new address that signs one browser in, once.",
        handler=make_sign_in,
        right=Right.ADMIN,
        answer=SignInMade,
        status=201,
        tag="access",
    ),
    Operation(
        method="GET",
        path="/v1/session",
        name="readSession",
        summary="Who is signed in.",
        handler=session,
        right=Right.READ,
        answer=SessionView,
        tag="access",
    ),
    Operation(
        method="POST",
        path="/v1/session",
        name="signIn",
        summary="Keep this bearer token as the browser's cookie.",
        handler=sign_in,
        right=Right.READ,
        answer=SessionView,
        tag="access",
    ),
    Operation(
        method="DELETE",
        path="/v1/session",
        name="signOut",
        summary="Sign this browser out.",
        handler=sign_out,
        right=Right.READ,
        status=204,
        tag="access",
    ),
    Operation(
        method="GET",
        path="/v1/openapi.json",
        name="readDescription",
        summary="This description.",
        handler=describe,
        right=None,
        answer=dict,
        tag="server",
    ),
)
