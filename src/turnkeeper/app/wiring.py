"""Makes the runner that an agent's definition asks for, from its parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from turnkeeper.agent.agents_file import load_agent_function, load_agent_tools
from turnkeeper.agent.definition import AgentDefinition, Model
from turnkeeper.agent.loop import make_model_runner
from turnkeeper.agent.python import PythonRunner
from turnkeeper.errors import ConfigError
from turnkeeper.port.clock import Clock
from turnkeeper.port.provider import Provider
from turnkeeper.port.runner import Runner
from turnkeeper.provider.opening import open_provider
from turnkeeper.provider.script import load_script
from turnkeeper.provider.wire import Files
from turnkeeper.settings import Settings


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


def _model_runner(
    definition: AgentDefinition, path: Path | None, settings: Settings, clock: Clock, files: Files | None
) -> Runner:
    fallback = None if definition.fallback is None else open_model(definition.fallback, clock, files)
    return make_model_runner(
        definition,
        open_model(definition.model, clock, files),
        load_agent_tools(definition, path=path),
        settings,
        fallback=fallback,
    )


def _python_runner(
    definition: AgentDefinition, path: Path | None, settings: Settings, clock: Clock, files: Files | None
) -> Runner:
    function = load_agent_function(definition, path=path)
    return PythonRunner(definition, function, load_agent_tools(definition, path=path), settings)


MAKERS: dict[str, Callable[[AgentDefinition, Path | None, Settings, Clock, Files | None], Runner]] = {
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
    load_agent_tools(definition, path=path)


def make_runner(
    definition: AgentDefinition,
    path: Path | None,
    settings: Settings,
    clock: Clock,
    files: Files | None,
) -> Runner:
    """The runner of `definition`; `path` is the agents file. Raises ConfigError and its kinds."""
    maker = MAKERS.get(definition.runner)
    if maker is None:
        raise ConfigError(
            why=f"the agent {definition.name} has runner {definition.runner!r}, which is not built in"
        )
    return maker(definition, path, settings, clock, files)
