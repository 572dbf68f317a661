"""The command line: one module per group of verbs, joined here.

A verb's module has one function `register(app)`, which adds its verbs to the Typer application, and is
named in `VERB_MODULES`. Modules import only `typer` and the standard library at their top; everything
slow is imported inside the functions that need it, because every call of the command pays for it.

Exit codes: 0 fine; 1 only where a verb judges health and found something wrong; 2 bad usage or input that
cannot be read: one line on stderr and nothing on stdout. A verb that fails raises an error of
`turnkeeper.errors` (or returns its exit code); `run` writes the line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

import typer

from turnkeeper.cli.safe import printable
from turnkeeper.errors import TurnkeeperError

VERB_MODULES = (
    "serve",
    "chat",
    "turns",
    "consent",
    "operating",
    "config",
    "feed",
    "transcript",
    "terminal",
    "doctor",
    "model_server",
    "bench",
)

USAGE_EXIT = 2
INTERRUPTED_EXIT = 130


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="turnkeeper",
        help="A durable conversation runtime for LLM agents.",
        epilog="Begin with: turnkeeper serve   and in another terminal: turnkeeper chat",
        add_completion=False,
        no_args_is_help=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    @app.callback(invoke_without_command=True)
    def begin(
        context: typer.Context,
        version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    ) -> None:
        if version:
            from turnkeeper import __version__

            print(f"turnkeeper {__version__}")
            raise typer.Exit
        if context.invoked_subcommand is None:
            raise BadUsage("give a verb, such as serve or chat; `turnkeeper --help` lists them all")

    for name in VERB_MODULES:
        module = f"{__name__}.{name}"
        if find_spec(module) is not None:
            import_module(module).register(app)
    return app


class BadUsage(TurnkeeperError):
    """The command line cannot be used as it was given."""

    code = "bad_usage"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    command = typer.main.get_command(build())
    try:
        code = command.main(
            args=None if arguments is None else list(arguments), prog_name="turnkeeper", standalone_mode=False
        )
        sys.stdout.flush()
    except typer.TyperException as error:
        where = getattr(error, "ctx", None)
        hint = f" ({where.command_path} --help shows how)" if where is not None else ""
        return _refuse(error.format_message() + hint)
    except TurnkeeperError as error:
        return _refuse(error.sentence)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED_EXIT
    except BrokenPipeError:
        # Whoever read our output has gone; keep the interpreter from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def _refuse(sentence: str) -> int:
    line = " ".join(printable(sentence).split())
    print(f"turnkeeper: {line}", file=sys.stderr)
    return USAGE_EXIT


def main() -> None:
    """The console script."""
    sys.exit(run())
