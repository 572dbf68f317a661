"""`config check`: the settings and the agents file, looked at without starting anything."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnkeeper.cli.safe import printable
from turnkeeper.cli.serve import find_agents
from turnkeeper.cli.target import AsJson, usual_data
from turnkeeper.cli.turns import put
from turnkeeper.errors import ConfigError

if TYPE_CHECKING:
    from turnkeeper.agent.definition import AgentDefinition

UNHEALTHY_EXIT = 1

SECRET_OPTION_WORDS = ("key", "token", "secret", "password", "authorization", "cookie")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    config = typer.Typer(help="Look at the configuration.", rich_markup_mode=None)
    config.command("check", epilog="Example: turnkeeper config check --agents agents.toml")(check)
    app.add_typer(config, name="config")


def check(
    data: Annotated[Path | None, typer.Option("--data", help="The data folder.", show_default=False)] = None,
    agents: Annotated[
        Path | None, typer.Option("--agents", help="The agents file (TOML).", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="The settings file (turnkeeper.toml).", show_default=False)
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Make one tiny call to each model, and say what works.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Print what is in force and from where, without secrets; exit 1 if something cannot be used."""
    for named in (agents, config):
        if named is not None and not named.is_file():
            raise ConfigError(f"{named} is no file; give the path of the one to check.")
    folder = data or usual_data()
    problems: list[str] = []
    settings = _settings(folder, config, problems)
    definitions, file = _agents(folder, agents, problems)
    calls = _call_models(file) if live and definitions else []
    problems += [f"{call['name']}: {call['sentence']}" for call in calls if not call["works"]]
    if as_json:
        put(
            {
                **({"live": calls} if live else {}),
                "ok": not problems,
                "problems": problems,
                "settings": {name: {"value": v, "from": source} for name, (v, source) in settings.items()},
                "agents_file": None if file is None else str(file),
                "agents": definitions,
            }
        )
    else:
        _print(settings, definitions, file, calls, problems)
    return UNHEALTHY_EXIT if problems else 0


def _settings(folder: Path, config: Path | None, problems: list[str]) -> dict[str, tuple[Any, str]]:
    """Name -> (value, where it comes from)."""
    from turnkeeper.settings import ENVIRONMENT_PREFIX, Settings, find_file, names_in

    try:
        file = config or find_file(folder)
        settings = Settings.load(file)
        in_file = names_in(file)
    except ConfigError as error:
        problems.append(error.sentence)
        return {}
    environment = {name.upper() for name in os.environ}

    def source(name: str) -> str:
        if f"{ENVIRONMENT_PREFIX}{name.upper()}" in environment:
            return "environment"
        return str(file) if name in in_file else "default"

    return {name: (value, source(name)) for name, value in settings.model_dump(mode="json").items()}


def _agents(
    folder: Path, given: Path | None, problems: list[str]
) -> tuple[dict[str, dict[str, Any]], Path | None]:
    """Name -> definition without secrets, and the file they stand in."""
    from turnkeeper.agent.agents_file import load_agents
    from turnkeeper.app.wiring import check_agent

    file = find_agents(folder, given)
    try:
        definitions = load_agents(file)
    except ConfigError as error:
        problems.append(error.sentence)
        return {}, file
    for definition in definitions.values():
        try:
            check_agent(definition, file)
        except ConfigError as error:
            problems.append(error.sentence)
        problems += _missing_credentials(definition)
    return {name: _shown(definition) for name, definition in definitions.items()}, file


def _call_models(file: Path | None) -> list[dict[str, Any]]:
    """One tiny call to each model that an agent names; a fallback model is `NAME fallback`."""
    import asyncio

    import msgspec

    from turnkeeper.agent.agents_file import load_agents
    from turnkeeper.app.system import SystemClock
    from turnkeeper.provider.live import check_live

    models = {}
    for name, definition in load_agents(file).items():
        if definition.runner != "model":
            continue
        for called, model in ((name, definition.model), (f"{name} fallback", definition.fallback)):
            if model is not None:
                models[called] = {
                    "provider": model.provider,
                    "model": model.model,
                    "base_url": model.base_url,
                    "api_key_env": model.api_key_env,
                    "api_key_file": model.api_key_file,
                    "script": model.script,
                }
    found = asyncio.run(check_live(models, clock=SystemClock()))
    calls: list[dict[str, Any]] = msgspec.to_builtins(found)
    return calls


def _missing_credentials(definition: AgentDefinition) -> list[str]:
    """The variables and files that an agent's models name and that are not there."""
    missing = []
    for model in (definition.model, definition.fallback):
        if model is None:
            continue
        if model.api_key_env is not None and not os.environ.get(model.api_key_env):
            missing.append(f"[agents.{definition.name}] api_key_env: {model.api_key_env} is not set here.")
        if model.api_key_file is not None and not Path(model.api_key_file).is_file():
            missing.append(f"[agents.{definition.name}] api_key_file: {model.api_key_file} is no file.")
    return missing


def _shown(definition: AgentDefinition) -> dict[str, Any]:
    import msgspec

    shown: dict[str, Any] = _without_secrets(msgspec.to_builtins(definition))
    return shown


def _without_secrets(value: Any) -> Any:
    """A copy in which options that look like credentials are masked; names of variables and files are none."""
    if isinstance(value, dict):
        return {
            name: "(masked)" if isinstance(each, str) and _looks_secret(name) else _without_secrets(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return value


def _looks_secret(name: str) -> bool:
    lowered = name.lower()
    return not lowered.endswith(("_env", "_file")) and any(word in lowered for word in SECRET_OPTION_WORDS)


def _print(
    settings: dict[str, tuple[Any, str]],
    definitions: dict[str, dict[str, Any]],
    file: Path | None,
    calls: list[dict[str, Any]],
    problems: list[str],
) -> None:
    for name, (value, source) in settings.items():
        shown = "none" if value is None else printable(str(value))
        print(f"{name} = {shown}" + ("" if source == "default" else f"   # {printable(source)}"))
    print(f"\nagents ({'built in' if file is None else printable(str(file))}):")
    for name, definition in definitions.items():
        model = definition.get("model") or {}
        made_of = {"model": f"{model.get('provider')} {model.get('model')}".strip()}
        made_of |= {"python": str(definition.get("function")), "retained": str(definition.get("cli"))}
        print(f"  {printable(name)}: {definition['runner']}, {printable(made_of[definition['runner']])}")
    for call in calls:
        if call["works"]:
            model = printable(f"{call['provider']} {call['model']}".strip())
            said = printable(call["sentence"])
            print(f"  {printable(call['name'])}: {model} works: {said}, {call['seconds']:.2f} s")
    sys.stdout.flush()
    for problem in problems:
        print(f"turnkeeper: {' '.join(printable(problem).split())}", file=sys.stderr)
