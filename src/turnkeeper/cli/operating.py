"""Verbs for the server as a whole: status, export, backup, token, config check.

`token` and `backup` work beside a running server, through it; without one they open the store themselves.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from turnkeeper.cli.client import Client, Unreachable
from turnkeeper.cli.progress import bar
from turnkeeper.cli.safe import printable
from turnkeeper.cli.target import AsJson, Data, NoServer, Token, Url, find, usual_data
from turnkeeper.cli.turns import Conversation, at, put
from turnkeeper.errors import BadInput

if TYPE_CHECKING:
    from turnkeeper.app import Keeper

T = TypeVar("T")

STARTING_SECONDS = 10.0
"""How long a server that holds the store may take to say where it is."""

POLL_SECONDS = 0.1


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: turnkeeper status --json")(status)
    app.command(epilog="Example: turnkeeper export c_01jd7m9q3w5v8x2c4b6n1m0k9h --output talk.jsonl")(export)
    app.command(epilog="Example: turnkeeper backup /backups/turnkeeper-monday.db")(backup)
    token = typer.Typer(
        help="Make and revoke bearer tokens, and one-time sign-in addresses.", rich_markup_mode=None
    )
    token.command("create", epilog="Example: turnkeeper token create --user ann --scopes read,write")(create)
    token.command("revoke", epilog="Example: turnkeeper token revoke k_01jd7m9q3w5v8x2c4b6n1m0k9h")(revoke)
    token.command("rotate-key", epilog="Example: turnkeeper token rotate-key")(rotate_key)
    token.command("link", epilog="Example: turnkeeper token link")(link)
    app.add_typer(token, name="token")


# --- status


def status(url: Url = None, token: Token = None, data: Data = None, as_json: AsJson = False) -> None:
    """Show the state of the whole server: stuck lanes, the oldest wait, parked turns, unknown effects."""
    found = find(url, token, data).get("/v1/status")
    if as_json:
        put(found)
        return
    for name, value in found.items():
        label = name.replace("_", " ")
        if isinstance(value, list):
            print(f"{label}: {len(value) or 'none'}")
            for row in value:
                print(f"  {_row(row)}")
        elif isinstance(value, dict):
            print(f"{label}: {_row(value) or 'none'}")
        else:
            print(f"{label}: {'none' if value is None else printable(str(value))}")


def _row(value: Any) -> str:
    if not isinstance(value, dict):
        return printable(str(value))
    shown = {name: each for name, each in value.items() if each is not None}
    waits: list[dict[str, Any]] = shown.pop("waits_for", [])
    if waits:
        del shown["needs"]
    said = [f"{name} {printable(str(each))}" for name, each in shown.items()]
    for one in waits:
        until = f" until {printable(one['until'])}" if one["until"] else ""
        said.append(f"waits for {printable(one['who'])}: {printable(one['what'])}{until}")
    return ", ".join(said)


# --- export and backup


def export(
    conversation: Conversation,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; else stdout.", show_default=False),
    ] = None,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Write the whole journal of a conversation, one JSON object a line."""
    client = find(url, token, data)
    path = at("conversations", conversation, "export")
    if output is None:
        sys.stdout.flush()
        client.download(path, sys.stdout.buffer, lambda done, total: None)
        return
    size_bytes = _into_file(output, lambda into, progress: client.download(path, into, progress), "export")
    _written(output, size_bytes, as_json=as_json)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.", show_default=False)],
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Write a consistent copy of the store to a new file, also while the server runs."""
    if file.exists():
        raise BadInput(f"{file} exists already; a backup never overwrites anything.")
    client = beside(url, token, data)
    if client is None:
        asyncio.run(_in_store(data or usual_data(), lambda keeper: keeper.backup(str(file))))
        size_bytes = file.stat().st_size
    else:
        size_bytes = _into_file(
            file, lambda into, progress: client.download("/v1/backup", into, progress), "backup"
        )
    _written(file, size_bytes, as_json=as_json)


def _into_file(file: Path, fill: Callable[..., int], title: str) -> int:
    """Fill a new file beside its place and put it there when it is whole, readable by this user only."""
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}.") from None
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as into, bar(title, unit_bytes=True) as progress:
            size_bytes = fill(into, progress)
            into.flush()
            os.fsync(into.fileno())
        part.replace(file)
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
    return size_bytes


def _written(file: Path, size_bytes: int, *, as_json: bool) -> None:
    if as_json:
        put({"file": str(file), "size_bytes": size_bytes})
    else:
        print(f"{printable(str(file))}: {size_bytes:,} bytes")


# --- tokens


def create(
    user: Annotated[str, typer.Option(help="Whose token. `owner` is also the page's user.")] = "owner",
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            help="What it may do, with commas or repeated: read,write,approve,terminal,operate,admin. "
            "Without: everything for owner; read,write,approve for others.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="A word to know it by.")] = "",
    expires_seconds: Annotated[
        float | None, typer.Option(help="For how long; without: until it is revoked.", show_default=False)
    ] = None,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Make a bearer token and print it. Works beside a running server and without one."""
    wanted: dict[str, Any] = {"user": user, "label": label, "expires_seconds": expires_seconds}
    if scopes:
        wanted["scopes"] = [scope.strip() for each in scopes for scope in each.split(",") if scope.strip()]
    client = beside(url, token, data)
    made = (
        asyncio.run(_in_store(data or usual_data(), lambda keeper: _create(keeper, wanted)))
        if client is None
        else client.post("/v1/tokens", wanted)
    )
    if as_json:
        put(made)
    else:
        print(made["token"])


async def _create(keeper: Keeper, wanted: dict[str, Any]) -> dict[str, Any]:
    import msgspec

    from turnkeeper.server.shapes import TokenBody
    from turnkeeper.server.tokens import make

    made: dict[str, Any] = msgspec.to_builtins(await make(keeper, msgspec.convert(wanted, TokenBody)))
    return made


def revoke(
    token_id: Annotated[
        str, typer.Argument(metavar="TOKEN_ID", help="The token's id, not its secret.", show_default=False)
    ],
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token; streams that were opened with it end within 5 seconds."""
    client = beside(url, token, data)
    if client is None:
        asyncio.run(_in_store(data or usual_data(), lambda keeper: keeper.revoke_token(token_id)))
    else:
        client.delete(at("tokens", token_id))
    if as_json:
        put({"token_id": token_id, "revoked": True})


def rotate_key(url: Url = None, token: Token = None, data: Data = None, as_json: AsJson = False) -> None:
    """Put a new key in use for the sign-ins that lie sealed in the store; older keys open what they sealed."""
    client = beside(url, token, data)
    keys = (
        asyncio.run(_in_store(data or usual_data(), lambda keeper: keeper.vault.rotate()))
        if client is None
        else client.post("/v1/vault/rotate")["keys"]
    )
    if as_json:
        put({"keys": keys})
    else:
        print(f"a new key is in use; {keys} are kept")


def link(url: Url = None, token: Token = None, data: Data = None, as_json: AsJson = False) -> None:
    """Print a new address of the page that signs one browser in, once."""
    made = find(url, token, data).post("/v1/sign-ins")
    if as_json:
        put(made)
    else:
        print(made["url"])


# --- beside a server, or without one


def beside(url: str | None, token: str | None, data: Path | None) -> Client | None:
    """The client of the running server that is meant, or None if no server holds the data folder's store.

    Raises TokenMissing; and Unreachable for an address that was given and does not answer.
    """
    named = url or (None if data is not None else os.environ.get("TURNKEEPER_URL"))
    try:
        client = find(url, token, data)
        client.get("/v1/session")
    except NoServer:
        return None
    except Unreachable:
        # `server.json` of a server that was killed: nothing holds the store, so it can be opened.
        if named is not None:
            raise
        return None
    return client


async def _in_store(data: Path, work: Callable[[Keeper], Coroutine[Any, Any, T]]) -> T:
    from turnkeeper.app import Keeper

    async with await Keeper.open(data) as keeper:
        return await work(keeper)
