"""The checkout as the tidy tests read it: the files that git holds, once per run."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "turnkeeper"


@functools.cache
def files() -> tuple[Path, ...]:
    """Every file of the checkout that git holds or would hold, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    return tuple(sorted(path for name in listed.split("\0") if name and (path := ROOT / name).is_file()))


def under(folder: str, suffix: str = "") -> Iterator[Path]:
    """Those below `folder` whose name ends with `suffix`."""
    base = ROOT / folder
    return (path for path in files() if path.is_relative_to(base) and path.name.endswith(suffix))


@functools.cache
def text(path: Path) -> str:
    """A file's text; undecodable bytes of data files are replaced."""
    return path.read_text("utf-8", errors="replace")


@functools.cache
def syntax(path: Path) -> ast.Module:
    """A Python file, parsed."""
    return ast.parse(text(path), str(path))


def name(path: Path) -> str:
    """A file's path inside the checkout, for messages."""
    return path.relative_to(ROOT).as_posix()
