"""Verbs for CLIs that are kept in terminals: sessions, attach, screen, adopt."""

from __future__ import annotations

import io
import os
from typing import Annotated

import typer

from turnkeeper.cli.safe import printable
from turnkeeper.cli.target import AsJson, Data, Token, Url, find
from turnkeeper.cli.turns import Conversation, at, put


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: turnkeeper sessions")(sessions)
    app.command(epilog="Example: turnkeeper attach c_01jd7m9q3w5v8x2c4b6n1m0k9h")(attach)
    app.command(epilog="Example: turnkeeper screen c_01jd7m9q3w5v8x2c4b6n1m0k9h")(screen)
    app.command(epilog="Example: turnkeeper adopt c_01jd7m9q3w5v8x2c4b6n1m0k9h --pane %5")(adopt)


def sessions(url: Url = None, token: Token = None, data: Data = None, as_json: AsJson = False) -> None:
    """List the CLIs of your conversations: process, memory, state, idle since when."""
    page = find(url, token, data).get("/v1/sessions")
    if as_json:
        put(page)
        return
    for row in page["sessions"]:
        memory = f"{(row.get('memory_bytes') or 0) / 1e6:.0f} MB"
        blocked = row.get("blocked_by") or {}
        words = blocked.get("sentence") or row.get("exit") or row.get("idle_since") or ""
        print(
            f"{printable(row['conversation_id'])}  {printable(row['cli']):12} {row['state']:8} "
            f"{row.get('pid') or '-':>8}  {memory:>8}  {printable(str(row.get('native_session') or '-'))}  "
            f"{printable(words)}"
        )


def attach(
    conversation: Conversation,
    write: Annotated[
        bool, typer.Option("--write", help="Type as well; deliveries from the queue wait meanwhile.")
    ] = False,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Open the conversation's terminal in this one (on the server's machine); detach with Ctrl-b d."""
    command = find(url, token, data).get(at("conversations", conversation, "terminal", "attach"))["command"]
    if not write:
        command = [*command, "-r"]
    if as_json:
        put({"command": command})
        return
    os.execvp(command[0], command)  # noqa: S606 - the command is our own server's


def screen(
    conversation: Conversation,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Print the conversation's terminal as text."""
    client = find(url, token, data)
    buffer = io.BytesIO()
    client.download(at("conversations", conversation, "terminal", "screen"), buffer, lambda *_: None)
    text = buffer.getvalue().decode("utf-8", "replace")
    if as_json:
        put({"screen": text})
        return
    for line in text.splitlines():
        print(printable(line))


def adopt(
    conversation: Conversation,
    pane: Annotated[
        str | None, typer.Option(metavar="%ID", help="A pane of your tmux.", show_default=False)
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="A native session to resume.", show_default=False)
    ] = None,
    socket: Annotated[
        str | None, typer.Option(metavar="NAME", help="The tmux server's name (tmux -L).", show_default=False)
    ] = None,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a CLI, or a native session, that was started by hand."""
    body = {"pane": pane, "session_id": session, "socket_name": socket}
    given = {name: value for name, value in body.items() if value is not None}
    state = find(url, token, data).post(at("conversations", conversation, "terminal", "adopt"), given)
    if as_json:
        put(state)
        return
    print(f"{printable(state['cli'])} is {state['state']}: {printable(str(state['why']))}")
