"""Makes the runner that an agent's definition asks for, from its parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from turnkeeper.agent.agents_file import load_agent_function, load_agent_tools, servers_of
from turnkeeper.agent.definition import AgentDefinition, Model
from turnkeeper.agent.loop import make_model_runner
from turnkeeper.agent.python import PythonRunner
from turnkeeper.errors import ConfigError
from turnkeeper.port.clock import Clock, Ids
from turnkeeper.port.provider import Provider
from turnkeeper.port.runner import Runner
from turnkeeper.provider.opening import open_provider
from turnkeeper.provider.script import load_script
from turnkeeper.provider.wire import Files
from turnkeeper.retained.adapters import adapter_named
from turnkeeper.retained.config import RetainedConfig
from turnkeeper.retained.keepsake import Keepsakes
from turnkeeper.retained.machine.state import Timing
from turnkeeper.retained.runner import RetainedRunner
from turnkeeper.retained.session import Desk
from turnkeeper.settings import Settings
from turnkeeper.terminal.pane import Terminal
from turnkeeper.tool import ToolSource
from turnkeeper.tool.mcp import McpServers


def open_model(model: Model, clock: Clock, files: Files | None) -> Provider:
    """The provider of one model. Raises ConfigError, ScriptInvalid."""
    return open_provider(
        model.provider,
        clock=clock,
        model=model.model,
        base_url=model.base_url,
        api_key_env=model.api_key_env,
        api_key_file=model.api_key_file,
        script=model.script,
        files=files,
    )


def sources_of(definition: AgentDefinition, servers: McpServers | None) -> tuple[ToolSource, ...]:
    """The servers whose tools an agent has."""
    return () if servers is None else tuple([servers.source(name) for name in servers_of(definition)])


def _model_runner(
    definition: AgentDefinition,
    path: Path | None,
    settings: Settings,
    clock: Clock,
    files: Files | None,
    servers: McpServers | None,
) -> Runner:
    fallback = None if definition.fallback is None else open_model(definition.fallback, clock, files)
    return make_model_runner(
        definition,
        open_model(definition.model, clock, files),
        load_agent_tools(definition, path=path),
        settings,
        fallback=fallback,
        sources=sources_of(definition, servers),
    )


def _python_runner(
    definition: AgentDefinition,
    path: Path | None,
    settings: Settings,
    clock: Clock,
    files: Files | None,
    servers: McpServers | None,
) -> Runner:
    function = load_agent_function(definition, path=path)
    tools = load_agent_tools(definition, path=path)
    return PythonRunner(definition, function, tools, settings, sources_of(definition, servers))


Maker = Callable[
    [AgentDefinition, Path | None, Settings, Clock, Files | None, McpServers | None],
    Runner,
]

MAKERS: dict[str, Maker] = {
    "model": _model_runner,
    "python": _python_runner,
}
"""runner of the agents file -> how it is made."""


def check_agent(definition: AgentDefinition, path: Path | None) -> None:
    """Find out now what would otherwise fail at an agent's first turn: its script, function and tools.

    `path` is the agents file. Nothing is called outside and no credential is asked for. Raises ConfigError's kinds.
    """
    for model in (definition.model, definition.fallback):
        if model is not None and model.script is not None:
            load_script(model.script)
    if definition.runner == "python":
        load_agent_function(definition, path=path)
    if definition.runner == "retained":
        adapter_named(definition.cli or "")
        timing_of(definition, Settings())
        return
    load_agent_tools(definition, path=path)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner needs whose work outlives its turns."""

    keepsakes: Keepsakes
    terminal: Terminal
    desk: Desk
    ids: Ids
    folder: Path


def timing_of(definition: AgentDefinition, settings: Settings) -> Timing:
    """All waits of a retained agent: its own, else the settings', else the defaults. Raises ConfigError."""
    shared = {
        name: getattr(settings, name)
        for name in (
            "transcript_ask_seconds",
            "unsubmitted_seconds",
            "evidence_gate_seconds",
            "backstop_seconds",
            "pane_check_seconds",
            "pane_misses_max",
        )
    }
    own = definition.retained.timing
    unknown = sorted(set(own) - set(Timing.__struct_fields__))
    if unknown:
        raise ConfigError(
            why=f"agent {definition.name}: timing has no {unknown[0]!r}; its names are "
            + ", ".join(Timing.__struct_fields__)
        )
    try:
        timing = msgspec.convert({**shared, **own}, Timing)
    except msgspec.ValidationError as error:
        raise ConfigError(why=f"agent {definition.name}: timing: {error}") from error
    negative = [name for name in Timing.__struct_fields__ if getattr(timing, name) < 0]
    if negative:
        raise ConfigError(why=f"agent {definition.name}: timing.{negative[0]} is negative")
    return timing


def make_retained_runner(
    definition: AgentDefinition, settings: Settings, clock: Clock, around: Surroundings
) -> RetainedRunner:
    """The runner of an agent that is a CLI in a terminal. Raises ConfigError."""
    kept = definition.retained
    assert definition.cli is not None
    config = RetainedConfig(
        agent=definition.name,
        cli=definition.cli,
        cwd=str(Path(definition.cwd or ".").resolve()),
        command=kept.command,
        args=kept.args,
        model=definition.model.model,
        instructions=definition.instructions,
        env=kept.env,
        env_pass=kept.env_pass,
        mcp=kept.mcp,
        role=kept.role,
        capabilities=kept.capabilities,
        trust_cwd=kept.trust_cwd,
        producers=kept.producers,
        idle_seconds=kept.idle_seconds,
        approval_seconds=definition.policies.approval_seconds or settings.approval_seconds,
        approver=definition.policies.approver,
        structured=kept.driver == "structured",
        merge_bytes_max=settings.merge_bytes_max,
        timing=timing_of(definition, settings),
    )
    return RetainedRunner(
        config, around.terminal, around.keepsakes, clock, around.ids, around.folder, desk=around.desk
    )


def make_runner(
    definition: AgentDefinition,
    path: Path | None,
    settings: Settings,
    clock: Clock,
    files: Files | None,
    around: Surroundings | None = None,
    servers: McpServers | None = None,
) -> Runner:
    """The runner of `definition`; `path` is the agents file. Raises ConfigError and its kinds."""
    if definition.runner == "retained" and around is not None:
        return make_retained_runner(definition, settings, clock, around)
    maker = MAKERS.get(definition.runner)
    if maker is None:
        raise ConfigError(
            why=f"the agent {definition.name} has runner {definition.runner!r}, which is not built in"
        )
    return maker(definition, path, settings, clock, files, servers)
