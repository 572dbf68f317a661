"""The verb that starts the server."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnkeeper.cli.target import AsJson, usual_data
from turnkeeper.cli.turns import put
from turnkeeper.errors import ConfigError

if TYPE_CHECKING:
    from turnkeeper.server.serving import Listening
    from turnkeeper.settings import Settings

AGENTS_NAME = "agents.toml"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: turnkeeper serve --data ./data --port 8321 --agents agents.toml")(serve)


def serve(
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder that holds everything.", show_default=False)
    ] = None,
    database: Annotated[
        str | None,
        typer.Option("--database", help="The address of a PostgreSQL database.", show_default=False),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on (127.0.0.1).", show_default=False)
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The port to listen on (8321); 0 takes a free one.", show_default=False)
    ] = None,
    agents: Annotated[
        Path | None, typer.Option("--agents", help="The agents file (TOML).", show_default=False)
    ] = None,
    remote: Annotated[
        bool, typer.Option("--remote", help="Allow an address that other machines can reach.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="The settings file (turnkeeper.toml).", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start the server, print how to chat and the one-time address of the page, and serve until stopped."""
    if database is not None:
        raise ConfigError(
            "--database: this version keeps its store in a folder (SQLite); give --data instead."
        )
    folder = data or usual_data()
    settings = load_settings(folder, config, host=host, port=port, remote=remote or None)
    _run(settings, folder, find_agents(folder, agents), as_json=as_json)


def load_settings(folder: Path, config: Path | None, **flags: Any) -> Settings:
    """The effective settings of a data folder. Raises SettingInvalid."""
    from turnkeeper.settings import Settings, find_file

    return Settings.load(config or find_file(folder), **flags)


def own_settings() -> Settings:
    """The settings of a verb that needs no server: those of the usual data folder, else of the current folder.

    Raises SettingInvalid.
    """
    return load_settings(usual_data(), None)


def find_agents(folder: Path, given: Path | None) -> Path | None:
    """The agents file: the one that was given, else the data folder's own, else none."""
    own = folder / AGENTS_NAME
    return given or (own if own.is_file() else None)


def _run(settings: Settings, folder: Path, agents: Path | None, *, as_json: bool) -> None:
    import asyncio
    import logging
    from functools import partial

    import uvloop

    from turnkeeper import failpoint
    from turnkeeper.app import Keeper
    from turnkeeper.server.serving import bind, serve

    failpoint.arm_from_environment()

    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)

    def announce(listening: Listening) -> None:
        if as_json:
            put({**_facts(listening), "data": str(folder)})
        else:
            print(f"Turnkeeper {listening.version} serves {folder} at {listening.url}")
            print(f"  chat      {program()} chat --data {folder}")
            print(f"  browser   {listening.sign_in_url}")
            print(f"            (works once, within {settings.sign_in_seconds / 60:g} minutes)")
            print("  stop      Ctrl-C")
        sys.stdout.flush()

    async def main() -> None:
        bound = bind(settings.host, settings.port, remote=settings.remote)
        opening = partial(Keeper.open, folder, agents=agents, settings=settings)
        await serve(opening, settings, bound, data=folder, announce=announce)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def program() -> str:
    """How this program is called from where it was started: by its name only if the shell finds that."""
    if shutil.which("turnkeeper") is not None:
        return "turnkeeper"
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m turnkeeper"
    return os.path.relpath(called)


def _facts(listening: Listening) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(listening)
    return facts
