"""The agents file (TOML): which agents there are, and what each is made of.

    [agents.helper]
    runner = "model"                      # model | python | retained
    provider = "anthropic"
    model = "claude-sonnet-4-5"
    api_key_env = "ANTHROPIC_API_KEY"     # the key is named here, never written
    tools = ["shop.tools:find_order"]

Whatever cannot be used is refused with the place where it stands and what to do. Relative paths start at
the file's own folder. An entry named `demo` replaces the built-in agent of that name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from turnkeeper.agent.definition import (
    BUILT_IN_DEMO,
    AgentDefinition,
    Model,
    Policies,
    Prices,
    Retained,
)
from turnkeeper.errors import AgentsFileInvalid
from turnkeeper.port.provider import Deadlines
from turnkeeper.tool import Tool
from turnkeeper.tool.loading import load_function, load_tools
from turnkeeper.tool.mcp.config import McpServer, check_server

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
FILE_BYTES_MAX = 1_000_000
MCP_BEGINS = "mcp:"
"""How an entry of `tools` begins that stands for all tools of an MCP server."""


class _Deadlines(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    first_token_seconds: float | None = None
    stall_seconds: float | None = None
    total_seconds: float | None = None


class _Entry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One `[agents.NAME]` table as it may stand in the file."""

    runner: Literal["model", "python", "retained"] = "model"
    provider: str | None = None
    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    script: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    fallback: Model | None = None
    function: str | None = None
    cli: str | None = None
    cwd: str | None = None
    retained: Retained = msgspec.field(default_factory=Retained)
    instructions: str = ""
    tools: list[str] = msgspec.field(default_factory=list)
    demo_tools: bool = False
    policies: Policies = msgspec.field(default_factory=Policies)
    deadlines: _Deadlines | None = None
    reasoning: bool = False
    context_tokens_max: int | None = None
    prices: Prices | None = None


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    agents: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    mcp: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)


def load_agents(path: Path | None) -> dict[str, AgentDefinition]:
    """The agents of the file at `path` and the built-in ones. Raises AgentsFileInvalid."""
    if path is None:
        return {BUILT_IN_DEMO.name: BUILT_IN_DEMO}
    try:
        data = path.read_bytes()
    except OSError as error:
        raise AgentsFileInvalid(path=str(path), why=f"it cannot be read ({error.strerror})") from None
    if len(data) > FILE_BYTES_MAX:
        raise AgentsFileInvalid(path=str(path), why=f"it is longer than {FILE_BYTES_MAX} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise AgentsFileInvalid(path=str(path), why=f"it is not UTF-8 (byte {error.start})") from None
    return parse_agents(text, path=path)


def parse_agents(text: str, *, path: Path) -> dict[str, AgentDefinition]:
    """The agents that `text` names, in its order, then the built-in ones. `path` is where it came from."""
    place = _Place(path, text)
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise AgentsFileInvalid(path=str(path), why=f"it is not TOML: {error}") from None
    try:
        file = msgspec.convert(tables, _File)
    except msgspec.ValidationError as error:
        raise place.error(None, str(error)) from None
    found: dict[str, AgentDefinition] = {}
    for name, table in file.agents.items():
        if not NAME_PATTERN.fullmatch(name):
            raise place.error(
                name, f"an agent cannot be called {name!r}: use letters, digits, _ . and - (at most 64)"
            )
        try:
            entry = msgspec.convert(table, _Entry)
        except msgspec.ValidationError as error:
            raise place.error(name, _plain(str(error))) from None
        found[name] = _definition(name, entry, place, path.parent)
    found.setdefault(BUILT_IN_DEMO.name, BUILT_IN_DEMO)
    _servers(file, path)
    _check_sources(found, file, place)
    return found


def load_servers(path: Path | None) -> dict[str, McpServer]:
    """The MCP servers that the file at `path` names. The file was loaded before. Raises AgentsFileInvalid."""
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
        file = msgspec.convert(tables, _File)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise AgentsFileInvalid(path=str(path), why=str(error)) from None
    return _servers(file, path)


def _servers(file: _File, path: Path) -> dict[str, McpServer]:
    found: dict[str, McpServer] = {}
    for name, table in file.mcp.items():
        try:
            server = check_server(name, msgspec.convert(table, McpServer))
        except (ValueError, msgspec.ValidationError) as error:
            raise AgentsFileInvalid(
                path=str(path), why=f"[mcp.{name}]: {_plain(str(error), McpServer)}"
            ) from None
        found[name] = msgspec.structs.replace(server, cwd=_resolve(server.cwd, path.parent))
    return found


def _check_sources(found: Mapping[str, AgentDefinition], file: _File, place: _Place) -> None:
    """Every server that an agent names exists. (A CLI in a terminal has servers of its own.)"""
    for definition in found.values():
        for tool in definition.tools:
            server = tool.removeprefix(MCP_BEGINS)
            if server != tool and server not in file.mcp:
                known = ", ".join(sorted(file.mcp)) or "none"
                raise place.error(
                    definition.name, f"tools: there is no [mcp.{server}]; there are: {known}", "tools"
                )


def servers_of(definition: AgentDefinition) -> tuple[str, ...]:
    """The MCP servers whose tools the agent has."""
    return tuple([name.removeprefix(MCP_BEGINS) for name in definition.tools if name.startswith(MCP_BEGINS)])


def load_agent_tools(definition: AgentDefinition, *, path: Path | None) -> tuple[Tool, ...]:
    """The tools that the agent names (those of MCP servers apart). Raises AgentsFileInvalid."""
    names = [name for name in definition.tools if not name.startswith(MCP_BEGINS)]
    folder = None if path is None else path.parent
    try:
        return load_tools(names, demo_tools=definition.demo_tools, folder=folder)
    except ValueError as error:
        raise AgentsFileInvalid(
            path=str(path or "(built in)"), why=f"[agents.{definition.name}] tools: {error}"
        ) from error


def _definition(name: str, entry: _Entry, place: _Place, folder: Path) -> AgentDefinition:
    provider = entry.provider or ("scripted" if entry.script is not None else None)
    function = entry.function
    if entry.runner == "python" and function is None and entry.script is not None:
        function = entry.script
    for needed, what, example in (
        (entry.runner == "model" and provider is None, "provider", 'provider = "openai-chat"'),
        (entry.runner == "python" and function is None, "function", 'function = "my_module:my_agent"'),
        (entry.runner == "retained" and entry.cli is None, "cli", 'cli = "claude-code"'),
        (
            entry.runner == "model" and provider not in (None, "scripted") and not entry.model,
            "model",
            'model = "..."',
        ),
    ):
        if needed:
            raise place.error(name, f'runner = "{entry.runner}" needs `{what}`; add {example}', "runner")
    if function is not None and ":" not in function:
        raise place.error(name, f"{function!r} is not of the form module:function", "function")
    for field in ("first_token_seconds", "stall_seconds", "total_seconds"):
        value = getattr(entry.deadlines, field, None)
        if value is not None and value <= 0:
            raise place.error(name, f"deadlines.{field} must be more than 0", field)
    for what, seconds in entry.policies.expiry.items():
        if seconds <= 0:
            raise place.error(name, f"policies.expiry.{what} must be more than 0", "expiry")
    if entry.context_tokens_max is not None and entry.context_tokens_max < 1_000:
        raise place.error(name, "context_tokens_max must be at least 1000", "context_tokens_max")
    provider = provider or "scripted"
    model = Model(
        provider=provider,
        model=entry.model,
        base_url=entry.base_url,
        api_key_env=entry.api_key_env,
        api_key_file=_resolve(entry.api_key_file, folder),
        script=_resolve(entry.script, folder) if entry.runner == "model" else None,
        options=entry.options,
    )
    deadlines = None
    if entry.deadlines is not None:
        given = {k: v for k, v in msgspec.to_builtins(entry.deadlines).items() if v is not None}
        deadlines = Deadlines(**given)
    return AgentDefinition(
        name=name,
        runner=entry.runner,
        model=model,
        fallback=_resolved(entry.fallback, folder),
        function=function,
        cli=entry.cli,
        cwd=_resolve(entry.cwd or ("." if entry.runner == "retained" else None), folder),
        retained=entry.retained,
        instructions=entry.instructions,
        tools=tuple(entry.tools),
        demo_tools=entry.demo_tools or (entry.runner == "model" and provider == "scripted"),
        policies=entry.policies,
        deadlines=deadlines,
        reasoning=entry.reasoning,
        context_tokens_max=entry.context_tokens_max,
        prices=entry.prices,
    )


def _resolved(model: Model | None, folder: Path) -> Model | None:
    if model is None:
        return None
    return msgspec.structs.replace(
        model,
        api_key_file=_resolve(model.api_key_file, folder),
        script=_resolve(model.script, folder),
    )


def _resolve(value: str | None, folder: Path) -> str | None:
    return None if value is None else str(folder / Path(value).expanduser())


_UNKNOWN = re.compile(r"Object contains unknown field `([^`]+)`(?: - at `\$\.?(.*)`)?")
_AT = re.compile(r"(.*) - at `\$\.?(.*)`")


def _plain(message: str, kind: type[msgspec.Struct] = _Entry) -> str:
    """A sentence of msgspec's in our words, with the place in front."""
    unknown = _UNKNOWN.fullmatch(message)
    if unknown is not None:
        where = f"{unknown[2]}." if unknown[2] else ""
        known = ", ".join(sorted(kind.__struct_fields__)) if not unknown[2] else ""
        there = f"; there are: {known}" if known else ""
        return f"there is no setting `{where}{unknown[1]}`{there}"
    at = _AT.fullmatch(message)
    return message if at is None else f"`{at[2]}`: {at[1][:1].lower()}{at[1][1:]}"


class _Place:
    """Where things stand in the file, for errors."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()

    def error(self, agent: str | None, why: str, key: str | None = None) -> AgentsFileInvalid:
        """The error about `key` of `agent`, with the line."""
        if agent is None:
            return AgentsFileInvalid(path=str(self._path), why=_plain(why))
        named = key or _first_name(why)
        line = self._line(agent, named)
        at = "" if line is None else f" (line {line})"
        return AgentsFileInvalid(path=str(self._path), why=f"[agents.{agent}]{at}: {why}")

    def _line(self, agent: str, key: str | None) -> int | None:
        header = re.compile(rf"""\s*\[\s*agents\s*\.\s*["']?{re.escape(agent)}["']?\s*[\].]""")
        at = next((n for n, line in enumerate(self._lines) if header.match(line)), None)
        if at is None:
            return None
        if key is not None:
            wanted = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*(=|\.|\])""")
            for n, line in enumerate(self._lines[at + 1 :], start=at + 2):
                if line.lstrip().startswith("[") and not header.match(line):
                    break
                if wanted.match(line):
                    return n
        return at + 1


def _first_name(why: str) -> str | None:
    found = re.search(r"`([A-Za-z_]+)", why)
    return None if found is None else found[1]


def secrets_of(definitions: Mapping[str, AgentDefinition]) -> tuple[tuple[str | None, str | None], ...]:
    """Where the agents' keys are: (environment variable, file) of each, for the masker."""
    models = [m for d in definitions.values() for m in (d.model, d.fallback) if m is not None]
    return tuple(
        (m.api_key_env, m.api_key_file)
        for m in models
        if m.api_key_env is not None or m.api_key_file is not None
    )


def load_agent_function(definition: AgentDefinition, *, path: Path | None) -> Callable[..., Any]:
    """The function of an agent with runner python. Raises AgentsFileInvalid."""
    try:
        return load_function(definition.function or "", folder=None if path is None else path.parent)
    except ValueError as error:
        raise AgentsFileInvalid(
            path=str(path or "(built in)"), why=f"[agents.{definition.name}] function: {error}"
        ) from error
