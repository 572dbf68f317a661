"""`turnkeeper` with a wall clock that stands still: `python frozen.py serve ...`."""

from __future__ import annotations

import sys
import time

from turnkeeper.app.system import SystemClock

STANDS_AT = time.time()


def now(self: SystemClock) -> float:
    """The same moment for ever."""
    return STANDS_AT


if __name__ == "__main__":
    SystemClock.now = now  # type: ignore[method-assign]
    from turnkeeper.cli import main

    sys.exit(main())
