"""`model-server`: the loopback model server, for trying an agent without a provider, a key or a bill."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from turnkeeper.cli.safe import printable
from turnkeeper.cli.target import AsJson
from turnkeeper.cli.turns import put
from turnkeeper.errors import ConfigError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("model-server", epilog="Example: turnkeeper model-server --script script.json --port 8400")(
        model_server
    )


def model_server(
    script: Annotated[
        Path | None,
        typer.Option("--script", help="What the model says (JSON); else `ok <text>`.", show_default=False),
    ] = None,
    host: Annotated[str, typer.Option(help="The address of this machine to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Serve a model from a script, as strict as the real ones, over the wires of Anthropic, OpenAI and Gemini.

    It refuses what the real provider would refuse, and can stall, break off, limit and talk nonsense. Any key is
    taken. Point an agent's base_url at the address that is printed (for OpenAI's wires with /v1 behind it).
    """
    from turnkeeper.testing.model_server import serve_model

    if host not in LOOPBACK:
        raise ConfigError(f"--host {host}: this server takes any key, so it listens on this machine only.")

    def announce(url: str) -> None:
        if as_json:
            put({"url": url, "script": None if script is None else str(script)})
        else:
            print(f"A scripted model listens at {url}")
            print(f'  provider = "anthropic"          base_url = "{url}"')
            print(f'  provider = "openai-chat"        base_url = "{url}/v1"')
            print(f'  provider = "openai-responses"   base_url = "{url}/v1"')
            print(f'  provider = "gemini"             base_url = "{url}"')
            print(f"  requests {url}/_requests   stop with Ctrl-C")
        sys.stdout.flush()

    try:
        serve_model(None if script is None else str(script), host, port, announce=announce)
    except OSError as error:
        why = printable((error.strerror or str(error)).lower())
        raise ConfigError(f"--port {port}: {why}; port 0 takes a free one.") from None
