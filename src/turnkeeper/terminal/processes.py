"""Ending a program with everything it started, by pid, and nothing else.

A terminal that closes sends SIGHUP to one process group; what called setsid, ignores SIGHUP or was started
in the background lives on (BD105, retained-clis 1.7). So we look for descendants *and* for the mark that stands in
the environment of the program and is inherited by all it starts, and each process is known by pid and start time
together: a pid that was given to another program since is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import Final

import psutil

MARK_VARIABLE: Final = "TURNKEEPER_PANE"

POLL_SECONDS: Final = 0.05

KILL_SECONDS: Final = 5.0


def started(pid: int) -> float | None:
    """When process `pid` began, in Unix seconds; None if it does not run (a zombie does not)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def same(pid: int, began: float) -> bool:
    """Whether `pid` is still the process that began at `began`."""
    now = started(pid)
    return now is not None and abs(now - began) < 0.05  # create_time is in ticks of 10 ms


def tree(pid: int, began: float, mark: str) -> list[psutil.Process]:
    """The running processes that are ours: `pid`, its descendants, and whoever carries `mark`."""
    found: dict[int, psutil.Process] = {}
    if same(pid, began):
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            found[pid] = root
            for child in root.children(recursive=True):
                found[child.pid] = child
    own = os.getuid()
    for process in psutil.process_iter():
        if process.pid in found or process.pid == os.getpid():
            continue
        try:
            if process.uids().real == own and process.environ().get(MARK_VARIABLE) == mark:
                found[process.pid] = process
        except (psutil.Error, OSError):
            continue
    return [p for p in found.values() if _runs(p)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


async def end_tree(pid: int, began: float, mark: str, grace_seconds: float) -> tuple[int, ...]:
    """SIGTERM to all that is ours, SIGKILL to what still runs after the grace; the pids that were signalled."""
    known: dict[int, psutil.Process] = {}
    for send, wait_seconds in (("terminate", grace_seconds), ("kill", KILL_SECONDS)):
        deadline = time.monotonic() + wait_seconds
        told: set[int] = set()
        while True:
            for process in await asyncio.to_thread(tree, pid, began, mark):
                known.setdefault(process.pid, process)
            alive = [process for process in known.values() if _runs(process)]
            if not alive:
                return tuple(known)
            for process in alive:
                if process.pid not in told:
                    told.add(process.pid)
                    with contextlib.suppress(psutil.Error):
                        getattr(process, send)()
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(POLL_SECONDS)
    return tuple(known)


def memory_bytes(pid: int, began: float, mark: str) -> int:
    """Resident memory of all that is ours, in bytes."""
    total = 0
    for process in tree(pid, began, mark):
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def files_written(pid: int) -> set[str]:
    """The regular files that a process and its descendants have open for writing; nothing if that may not be seen.

    What it only reads may be anybody's: some CLIs look through the sessions of others.
    """
    found: set[str] = set()
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            found |= _written(process)
    return found


def written_by_any(paths: set[str]) -> set[str]:
    """Those of `paths` (resolved) that some process of ours has open for writing."""
    found: set[str] = set()
    if paths:
        for process in psutil.process_iter():
            found |= paths & _written(process)
    return found


def _written(process: psutil.Process) -> set[str]:
    try:
        return {file.path for file in process.open_files() if getattr(file, "mode", "") != "r"}
    except (psutil.Error, OSError):
        return set()
