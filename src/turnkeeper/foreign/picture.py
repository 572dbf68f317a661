"""A session as a picture for a terminal: one line a row, sick rows marked, runs of healthy ones folded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from turnkeeper.foreign.doctor import Report, SessionReport
from turnkeeper.foreign.findings import Finding, excerpt

AROUND: Final = 1
"""How many healthy rows are drawn on each side of a sick one."""
ROWS_MAX: Final = 400
"""How many sick rows of one session are drawn; the others are counted."""
_SIGNS: Final = {"user": "●", "assistant": "○", "tool": "◆", "system": "■", "notice": "·"}


def draw(report: Report, printable: Callable[[str], str]) -> Iterable[str]:
    """The lines of the picture. `printable` makes text from a session safe for a terminal."""
    for warning in report.warnings:
        yield f"warning: {printable(warning)}"
    for problem in report.problems:
        yield f"✗ the store: {printable(problem)}"
    sick = sum(bool(session.findings) for session in report.sessions)
    total = len(report.sessions)
    for session in report.sessions:
        if session.findings or total == 1:
            yield from _draw_session(session, printable)
    if total > 1:
        yield f"{total} sessions, {sick} of them sick"
    if not sick and not report.problems:
        yield "nothing would be refused"


def _draw_session(session: SessionReport, printable: Callable[[str], str]) -> Iterable[str]:
    name, rows = session.session.name, session.session.read()
    by_row: dict[int | None, list[Finding]] = {}
    for finding in session.findings:
        by_row.setdefault(finding.row, []).append(finding)
    sick = [row for row in by_row if row is not None]
    yield f"{printable(name)} · {session.session.format} · {session.session.rows} rows · {len(sick)} sick"
    for finding in by_row.get(None, ()):
        yield f"✗ {_reason(finding, printable)}"
    shown = {
        near
        for row in sick[:ROWS_MAX]
        for near in range(row - AROUND, row + AROUND + 1)
        if 0 <= near < len(rows)
    }
    width = len(str(len(rows) - 1))
    last = -1
    for row in sorted(shown):
        if row - last > 1:
            yield f"  {'⋮':>{width}}  {row - last - 1} healthy rows"
        last = row
        message = rows[row]
        mark = "✗" if row in by_row else " "
        sign = _SIGNS.get(message.role, "?")
        yield f"{mark} {row:>{width}} {sign} {message.role:<9} {printable(excerpt(session.session, row))}"
        for finding in by_row.get(row, ()):
            yield f"  {'':>{width}}     └ {_reason(finding, printable)}"
    if shown and last < len(rows) - 1:
        yield f"  {'⋮':>{width}}  {len(rows) - 1 - last} more rows"
    if len(sick) > ROWS_MAX:
        yield f"  and {len(sick) - ROWS_MAX} more sick rows"


def _reason(finding: Finding, printable: Callable[[str], str]) -> str:
    by = f" · refused by {', '.join(finding.refused_by)}" if finding.refused_by else ""
    rules = f" ({' '.join(finding.wire_rules)})" if finding.wire_rules and finding.refused_by else ""
    return f"{printable(' '.join(finding.why.split()))}{by}{rules}"
