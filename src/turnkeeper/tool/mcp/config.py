"""An MCP server as the agents file names it: `[mcp.NAME]` with a command (stdio) or a url (streamable HTTP)."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from turnkeeper.conversation.turns import Effect

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,23}")
"""Short and without `_`: it stands before `__` in the name of each of its tools."""


class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server. Secrets are named here, never written."""

    name: str = ""
    command: tuple[str, ...] = ()
    """stdio: the program and its arguments."""
    cwd: str | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Added to the few variables that the program gets. No secret belongs here: name variables in `env_pass`."""
    env_pass: tuple[str, ...] = ()
    """Variables of our own environment that are passed on."""
    url: str | None = None
    """Streamable HTTP: the server's address."""
    auth: Literal["oauth", "none"] = "oauth"
    """http: whether each person signs in for themselves when the server asks for it."""
    bearer_env: str | None = None
    """http: the variable with one token for everybody."""
    client_id: str | None = None
    """Of a client that was registered by hand; without it one is registered when it is first needed."""
    client_secret_env: str | None = None
    scopes: tuple[str, ...] = ()
    """What to ask for at sign-in; without it what the server asks for."""
    tools: tuple[str, ...] = ()
    """Only these of its tools, by the server's own names; none given: all."""
    effects: dict[str, Effect] = msgspec.field(default_factory=dict)
    """What running a tool may do, by the server's own names: goes before what the server claims."""
    believe: bool = True
    """Believe the server's claim that a tool only reads or may be repeated. A claim to destroy is always believed."""
    timeout_seconds: float | None = None
    """Longest call; None: the setting tool_timeout_seconds."""
    start_seconds: float = 15.0
    """Longest start, and longest answer to the question which tools there are."""
    list_seconds: float = 300.0
    """How long the list of its tools is good before it is asked for again."""

    @property
    def per_person(self) -> bool:
        """Whether each person has a connection, and an account, of their own."""
        return self.url is not None and self.auth == "oauth" and self.bearer_env is None

    @property
    def place(self) -> str:
        """Where it is: what a server said of itself at another address is not held for this one's word."""
        return self.url or ""

    def accepts(self, resource: str) -> bool:
        """Whether what was given for `resource` (RFC 8707) may be sent to its url: same origin, at or below its path."""
        if self.url is None or not resource:
            return False
        given, here = urlsplit(resource), urlsplit(self.url)
        if _origin(given) != _origin(here):
            return False
        return f"{here.path.rstrip('/')}/".startswith(f"{given.path.rstrip('/')}/")


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    """Scheme, host and port of an address. A port that cannot be read equals none."""
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        port = -1
    return parts.scheme, parts.hostname or "", port


def check_server(name: str, server: McpServer) -> McpServer:
    """The server with its name. Raises ValueError that says what cannot be used."""
    if not NAME_PATTERN.fullmatch(name):
        msg = f"a server cannot be called {name!r}: use letters, digits and - (at most 24)"
        raise ValueError(msg)
    if bool(server.command) == (server.url is not None):
        msg = 'it needs either `command = ["program", "argument"]` or `url = "https://..."`'
        raise ValueError(msg)
    if server.url is not None:
        parts = urlsplit(server.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            msg = f"`url` must be an http or https address, not {server.url!r}"
            raise ValueError(msg)
        if parts.username or parts.password:
            msg = "`url` must not hold a name or password"
            raise ValueError(msg)
    for field in ("timeout_seconds", "start_seconds", "list_seconds"):
        value = getattr(server, field)
        if value is not None and value <= 0:
            msg = f"`{field}` must be more than 0"
            raise ValueError(msg)
    return msgspec.structs.replace(server, name=name)
