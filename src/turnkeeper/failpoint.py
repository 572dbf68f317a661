"""Named places where a test may stop the world; in production each costs one dictionary look-up.

`failpoint("store.before_commit")` does nothing unless a test armed that name, in this process with
`arm()` or in a child process with the environment variable TURNKEEPER_FAILPOINT=`name[:nth]:action`,
where action is `kill` (SIGKILL to the own process) or `raise`. `nth` (default 1) is the visit that
triggers. Every name that exists is listed in `NAMES`, so that a crash sweep can visit all of them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

NAMES: tuple[str, ...] = (
    "dispatch.before_submit_commit",
    "dispatch.after_submit_commit",
    "dispatch.before_end_commit",
    "dispatch.after_end_commit",
    "dispatch.before_rescue_commit",
    "dispatch.after_rescue_commit",
    "agent.before_round_started",
    "agent.after_round_started",
    "agent.before_message_commit",
    "agent.after_message_commit",
    "agent.before_intent_commit",
    "agent.after_intent_commit",
    "agent.before_outcome_commit",
    "agent.after_outcome_commit",
    "retained.before_paste",
    "retained.after_paste",
    "retained.after_enter",
    "store.before_commit",
    "store.after_commit",
)


class Failed(RuntimeError):
    """A test asked this failpoint to raise."""


_armed: dict[str, Callable[[], None]] = {}
_visits: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Stop here if a test armed `name`; otherwise return at once."""
    if _armed:
        action = _armed.get(name)
        if action is not None:
            action()


def arm(name: str, action: Callable[[], None], *, nth: int = 1) -> None:
    """Run `action` at the `nth` visit (counted from 1, from now) of failpoint `name`."""
    if name not in NAMES:
        msg = f"no failpoint is called {name!r}"
        raise ValueError(msg)
    _visits[name] = 0

    def at_nth() -> None:
        _visits[name] += 1
        if _visits[name] == nth:
            action()

    _armed[name] = at_nth


def disarm() -> None:
    """Forget every armed failpoint."""
    _armed.clear()
    _visits.clear()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> None:
    raise Failed


def arm_from_environment(environment: dict[str, str] | None = None) -> None:
    """Arm what TURNKEEPER_FAILPOINT names (`name:action` or `name:nth:action`)."""
    value = (os.environ if environment is None else environment).get("TURNKEEPER_FAILPOINT")
    if not value:
        return
    name, *rest = value.split(":")
    nth, action = (int(rest[0]), rest[1]) if len(rest) == 2 else (1, rest[0])
    arm(name, {"kill": _kill, "raise": _raise}[action], nth=nth)
