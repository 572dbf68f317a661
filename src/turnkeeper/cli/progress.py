"""A progress bar on stderr for long work, where a person looks; nothing where a program reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(title: str, *, unit_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Gives `progress(done, total or None)`; draws only if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn

    counted = DownloadColumn() if unit_bytes else MofNCompleteColumn()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), counted, console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
