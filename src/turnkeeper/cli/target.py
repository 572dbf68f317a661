"""Which server a verb talks to, and with which token.

The first of these that is given decides: `--url`, `--data`, TURNKEEPER_URL, TURNKEEPER_DATA, the usual data
folder. A data folder's running server left `server.json` there, with its address and a token for this user.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from turnkeeper.cli.client import Client
from turnkeeper.errors import TurnkeeperError

Url = Annotated[
    str | None,
    typer.Option("--url", help="The server's address (or TURNKEEPER_URL).", show_default=False),
]
Token = Annotated[
    str | None,
    typer.Option("--token", help="A bearer token (or TURNKEEPER_TOKEN).", show_default=False),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="The data folder of a server on this machine.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

LOCAL_DATA = Path("data")

DATABASE_NAME = "turnkeeper.db"


class NoServer(TurnkeeperError):
    """No server runs on the data folder {data}. Start it with `turnkeeper serve --data {data}`, or give --url and --token."""

    code = "no_server"


class TokenMissing(TurnkeeperError):
    """The server {url} needs a token: give --token or TURNKEEPER_TOKEN. `turnkeeper token create` makes one beside the server."""

    code = "token_missing"


def usual_data() -> Path:
    """The folder that is meant when none is given: ./data if a store is in it, else the user's own."""
    named = os.environ.get("TURNKEEPER_DATA")
    if named:
        return Path(named)
    if (LOCAL_DATA / DATABASE_NAME).exists():
        return LOCAL_DATA
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "turnkeeper"


def find(url: str | None, token: str | None, data: Path | None) -> Client:
    """The client of the server that is meant. Raises NoServer, TokenMissing."""
    from turnkeeper.server.standing import read_standing

    token = token or os.environ.get("TURNKEEPER_TOKEN") or None
    if url is None and data is None:
        url = os.environ.get("TURNKEEPER_URL") or None
    if url is not None:
        if token is None:
            standing = read_standing(data or usual_data())
            if standing is not None and standing.url == url.rstrip("/"):
                token = standing.token
        if token is None:
            raise TokenMissing(url=url)
        return Client(url, token)
    folder = data or usual_data()
    standing = read_standing(folder)
    if standing is None:
        raise NoServer(data=folder)
    return Client(standing.url, token or standing.token)
