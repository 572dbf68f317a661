"""`turnkeeper doctor PATH`: which rows of a stored session would be refused, by whom and why, and a healed copy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from turnkeeper.cli.safe import printable
from turnkeeper.errors import BadInput


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        name="doctor",
        help=(
            "Look at a stored session: our own store, or one of another program. Says which rows would be refused, by "
            "which provider and why; --heal writes a healed copy. Exit code 1 when something is sick."
        ),
        epilog="Example: turnkeeper doctor session.json --heal healed.json",
    )(examine)


def examine(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A session file, an SQLite file, or a data folder.")
    ],
    provider: Annotated[
        list[str] | None,
        typer.Option(
            "--provider", help="Only what this provider refuses; may be given again. All by default."
        ),
    ] = None,
    heal: Annotated[
        Path | None, typer.Option("--heal", metavar="OUT", help="Write a healed copy to this new file.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the picture.")
    ] = False,
) -> int:
    """Look, draw, and heal if asked to."""
    from turnkeeper.cli.serve import own_settings
    from turnkeeper.foreign.doctor import examine_path, heal_path
    from turnkeeper.foreign.findings import ALL
    from turnkeeper.foreign.picture import draw

    unknown = [name for name in provider or () if name not in ALL]
    if unknown:
        raise BadInput(f"There is no provider {unknown[0]!r}. Known: {', '.join(ALL)}.")
    now = time.time()
    limit = own_settings().session_bytes_max
    report = examine_path(path, now=now, providers=tuple(provider or ALL), bytes_max=limit)
    healed = heal_path(path, heal, now=now, bytes_max=limit) if heal is not None else None
    if as_json:
        _put(report, heal, healed)
    else:
        for line in draw(report, printable):
            print(line)
        if heal is not None:
            print(printable(f"healed copy: {heal}"))
    return 1 if report.sick else 0


def _put(report: Any, heal: Path | None, healed: int | None) -> None:
    import json

    from turnkeeper.foreign.findings import excerpt

    print(
        json.dumps(
            {
                "path": str(report.path),
                "format": report.format,
                "ok": not report.sick,
                "warnings": report.warnings,
                "problems": report.problems,
                "sessions": [
                    {
                        "session": found.session.name,
                        "format": found.session.format,
                        "rows": found.session.rows,
                        "sick": [
                            {
                                "row": finding.row,
                                "id": finding.id,
                                "rule": finding.rule,
                                "refused_by": list(finding.refused_by),
                                "wire_rules": list(finding.wire_rules),
                                "why": finding.why,
                                "text": None if finding.row is None else excerpt(found.session, finding.row),
                            }
                            for finding in found.findings
                        ],
                    }
                    for found in report.sessions
                ],
                "healed": None if heal is None else {"path": str(heal), "rows": healed},
            }
        )
    )
