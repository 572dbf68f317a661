"""`bench`: our speed beside what else could be done on this machine, as ratios in one run."""

from __future__ import annotations

import asyncio
import pkgutil
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from turnkeeper.cli.safe import printable
from turnkeeper.cli.target import AsJson
from turnkeeper.cli.turns import put
from turnkeeper.errors import BadInput


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("bench", epilog="Example: turnkeeper bench store server")(bench)


def benches() -> dict[str, Any]:
    """The benches that there are, by name."""
    from turnkeeper.cli import benches as whole
    from turnkeeper.testing import bench as rooms

    found: dict[str, Any] = {}
    for package in (rooms, whole):
        for info in pkgutil.iter_modules(package.__path__):
            module = import_module(f"{package.__name__}.{info.name}")
            if hasattr(module, "run"):
                found[info.name] = module
    return dict(sorted(found.items()))


def bench(
    which: Annotated[list[str] | None, typer.Argument(help="Which benches; all by default.")] = None,
    as_json: AsJson = False,
) -> int:
    """Measure and print one table. Takes some minutes; on a busy machine only the ratios mean something."""
    known = benches()
    unknown = [name for name in which or () if name not in known]
    if unknown:
        raise BadInput(f"There is no bench {unknown[0]!r}; there are: {', '.join(known)}.")
    tables: dict[str, list[Any]] = {}
    for name in which or known:
        if sys.stderr.isatty():
            print(f"{name} ...", file=sys.stderr)
        tables[name] = asyncio.run(known[name].run())
    if as_json:
        put(tables)
        return 0
    for name, rows in tables.items():
        print(f"\n{name}")
        for row in rows:
            ratio = "" if row.ratio is None else f"{row.ratio:8.2f}× {row.of}"
            met = {True: "reached", False: "NOT reached", None: ""}[row.met]
            line = (
                f"  {row.name:<52} {row.value:>12.2f} {row.unit:<12} {ratio:<28} {row.goal or '':<20} {met}"
            )
            print(printable(line.rstrip()))
            if row.note:
                print(printable(f"      {row.note}"))
    return 0
