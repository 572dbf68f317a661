"""Verbs for what waits for a person: asks, decide, connections, connect, disconnect."""

from __future__ import annotations

from typing import Annotated

import typer

from turnkeeper.cli.asks import read_asks
from turnkeeper.cli.safe import printable
from turnkeeper.cli.target import AsJson, Data, Token, Url, find
from turnkeeper.cli.turns import at, put

Server = Annotated[
    str, typer.Argument(metavar="SERVER", help="The server's name in the agents file.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: turnkeeper asks --json")(asks)
    app.command(epilog="Example: turnkeeper decide p_01jd7m9q3w5v8x2c4b6n1m0k9h.1.0 approve")(decide)
    app.command(epilog="Example: turnkeeper connections")(connections)
    app.command(epilog="Example: turnkeeper connect jira")(connect)
    app.command(epilog="Example: turnkeeper disconnect jira")(disconnect)


def asks(url: Url = None, token: Token = None, data: Data = None, as_json: AsJson = False) -> None:
    """List what waits for you: calls to approve, sign-ins, turns that need a choice."""
    found = find(url, token, data).get("/v1/approvals")
    if as_json:
        put(found)
        return
    for one in found["approvals"]:
        kind = one.get("kind")
        needs = {"approvals": [one]} if kind == "approval" else {"connects": [one]} if kind == "auth" else one
        (ask,) = read_asks(one["turn_id"], needs, 1)
        ways = {"approval": ("approve", "deny"), "auth": ("do_not_connect",)}.get(ask.kind, ask.choices)
        print(f"{printable(one['approval_id'])}  {ask.words}")
        print(f"  turnkeeper decide {printable(one['approval_id'])} {'|'.join(ways)}")
        if ask.kind == "auth":
            print(f"  turnkeeper connect {printable(ask.server)}")
    if not found["approvals"]:
        print("nothing waits for you")


def decide(
    what: Annotated[
        str,
        typer.Argument(metavar="ID", help="An approval's id, or that of a turn.", show_default=False),
    ],
    decision: Annotated[
        str,
        typer.Argument(
            metavar="DECISION",
            help="approve or deny; for a turn one of the choices that `asks` shows.",
            show_default=False,
        ),
    ],
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question: once, for one call. One that is decided or expired is refused, with what happened."""
    client = find(url, token, data)
    if what.startswith("p_"):
        told = client.post(at("approvals", what), {"decision": decision})
    else:
        told = client.post(at("turns", what, "decide"), {"choice": decision})
    if as_json:
        put(told)
    else:
        print(printable(str(told["state"])))


def connections(url: Url = None, token: Token = None, data: Data = None, as_json: AsJson = False) -> None:
    """List the servers of tools at which you sign in for yourself, and what waits for that."""
    found = find(url, token, data).get("/v1/connections")
    if as_json:
        put(found)
        return
    for one in found["connections"]:
        waits = f"  {one['waiting']} calls wait" if one["waiting"] else ""
        moved = "  (its address has changed since you signed in)" if one["why"] == "moved" else ""
        print(
            f"{printable(one['server']):24}  {printable(one['state']):14}  {printable(one['url'] or '')}{moved}{waits}"
        )
    if not found["connections"]:
        print("the agents file names no server at which people sign in")


def connect(
    server: Server,
    refuse: Annotated[
        bool, typer.Option("--refuse", help="Do not sign in: the turns that wait for it end.")
    ] = False,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Print the address to open in a browser to sign in at a server of tools; what waits for it then goes on."""
    client = find(url, token, data)
    if refuse:
        told = client.post(at("connections", server, "refuse"))
        if as_json:
            put(told)
        else:
            print(f"{told['turns']} turns ended; each can be retried")
        return
    told = client.post(at("connections", server))
    if as_json:
        put(told)
    else:
        print(printable(told["url"]))


def disconnect(
    server: Server, url: Url = None, token: Token = None, data: Data = None, as_json: AsJson = False
) -> None:
    """Sign out at a server of tools. Calls that come later wait for a new sign-in."""
    find(url, token, data).delete(at("connections", server))
    if as_json:
        put({"server": server, "state": "not_connected"})
