"""Draws docs/lane.md from the table: `python -m turnkeeper.lane.diagram > docs/lane.md`.

The picture cannot say what the moves check besides the phase (whose turn it is, whether it was taken).
"""

from __future__ import annotations

import inspect

from turnkeeper.lane import inputs
from turnkeeper.lane.state import Phase
from turnkeeper.lane.table import TABLE


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n", maxsplit=1)[0]


def mermaid() -> str:
    """The state diagram: an arrow per pair of phases, labelled with the inputs that can lead there."""
    arrows: dict[tuple[Phase, Phase], list[str]] = {}
    for (phase, kind), row in TABLE.items():
        for target in row.leads_to:
            if target is not phase:
                arrows.setdefault((phase, target), []).append(kind.__name__)
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.IDLE}"]
    for (phase, target), kinds in sorted(arrows.items()):
        lines.append(f"    {phase} --> {target}: {', '.join(sorted(kinds))}")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    phases = "\n".join(f"| `{phase}` | {_phase_docs()[phase]} |" for phase in Phase)
    header = "| input | " + " | ".join(str(phase) for phase in Phase) + " |"
    rule = "| --- " * (len(Phase) + 1) + "|"
    rows = [header, rule]
    for kind in inputs.INPUTS:
        cells = []
        for phase in Phase:
            row = TABLE.get((phase, kind))
            targets = [] if row is None else sorted(str(target) for target in row.leads_to)
            cells.append("–" if row is None else ", ".join(targets))
        rows.append(f"| `{kind.__name__}` | " + " | ".join(cells) + " |")
    meanings = "\n".join(f"- `{kind.__name__}`: {_first_line(kind)}" for kind in inputs.INPUTS)
    return (
        "# The lane\n\n"
        "Generated from the table in `src/turnkeeper/lane/table.py`; do not edit.\n\n"
        f"| phase | meaning |\n| --- | --- |\n{phases}\n\n"
        f"```mermaid\n{mermaid()}\n```\n\n"
        "Each cell: the phases that may follow. A dash: the input does not fit (`OutOfPlace`).\n\n"
        + "\n".join(rows)
        + f"\n\n## The inputs\n\n{meanings}\n"
    )


def _phase_docs() -> dict[Phase, str]:
    """The sentence under each member of Phase."""
    docs: dict[Phase, str] = {}
    lines = inspect.getsource(Phase).splitlines()
    for index, line in enumerate(lines):
        name = line.strip().split(" = ")[0]
        if name in Phase.__members__:
            docs[Phase[name]] = lines[index + 1].strip().strip('"')
    return docs


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - that is what it is for
