"""`turnkeeper feed CASE.json`: what a model would be given for a stored history, and why it differs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from turnkeeper.errors import BadInput


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        name="feed",
        help="Clean a stored history as for a request, and print feed, request and every change as JSON.",
        epilog="Example: turnkeeper feed cases/broken.json | python -m json.tool",
    )(print_feed)


def print_feed(
    case: Annotated[Path, typer.Argument(metavar="CASE.json", help="A case file; - reads standard input.")],
    as_json: Annotated[bool, typer.Option("--json", help="The output is JSON in any case.")] = False,
) -> None:
    """Print one JSON object; exit 0 whatever had to be repaired."""
    del as_json
    from turnkeeper.foreign.case import feed_case, parse_case

    report = feed_case(parse_case(read_input(case)))
    try:
        text = json.dumps(report, allow_nan=False)
    except (ValueError, RecursionError):
        raise BadInput("the case holds values that JSON cannot hold") from None
    sys.stdout.write(text + "\n")


def read_input(path: Path) -> bytes:
    """The bytes of a case file. Raises BadInput if it cannot be read or is too large."""
    from turnkeeper.cli.serve import own_settings

    bytes_max = own_settings().case_bytes_max
    limit = f"the limit is {bytes_max} bytes (case_bytes_max)"
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(bytes_max + 1)
        else:
            if path.is_file() and path.stat().st_size > bytes_max:
                raise BadInput(f"{path} is too large; {limit}")
            with path.open("rb") as file:
                data = file.read(bytes_max + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > bytes_max:
        raise BadInput(f"{path} is too large; {limit}")
    return data
