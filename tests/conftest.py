"""What holds for every test: a missing program is a visible skip on a desk and a failure in CI."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.needs import CLAUDE_CLI, NEEDS

# Examples that are slow to make tell of a busy machine, not of the code; in CI hypothesis has a profile of its own.
settings.register_profile("desk", suppress_health_check=[HealthCheck.too_slow], deadline=None)
if os.environ.get("CI") != "true":
    settings.load_profile("desk")

BY_MARK = {need.mark: need for need in (*NEEDS, CLAUDE_CLI)}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose program is missing; with CI=true it fails."""
    for mark in item.iter_markers():
        need = BY_MARK.get(mark.name)
        if need is CLAUDE_CLI and os.environ.get("TURNKEEPER_REAL_CLAUDE") != "1":
            pytest.skip(
                "claude-code has terms of its own: TURNKEEPER_REAL_CLAUDE=1 says that you accept them"
            )
        if need is not None and need.found() is None:
            if os.environ.get("CI") == "true":
                pytest.fail(f"{need.sentence} (CI=true: a missing program is a failure)", pytrace=False)
            pytest.skip(need.sentence)
