"""Where the tests run: folders that may stand beside the checkout (the public cases, samples of transcripts), and CI.

Synthetic cases that a test runs are copied into `tests/vectors/`; what is read from here may be absent, and
then a test that reads it says so in its skip.
"""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
VECTORS = Path(__file__).parent / "vectors"
IN_CI = os.environ.get("CI") == "true"
"""Where all tests share a few cores and some minutes."""


def public_cases() -> Path | None:
    """The folder with the public case files, if it stands beside the checkout."""
    folder = CHECKOUT.parent / "shared" / "cases"
    return folder if folder.is_dir() else None


def samples() -> Path | None:
    """The folder with real, licensed samples of native transcripts: TURNKEEPER_SAMPLES, or beside the checkout."""
    named = os.environ.get("TURNKEEPER_SAMPLES")
    if named:
        return Path(named) if Path(named).is_dir() else None
    cases = public_cases()
    folder = cases / "transcripts" / "samples" if cases else None
    return folder if folder and folder.is_dir() else None
