"""Every provider test has a key in the environment."""

from __future__ import annotations

import pytest

from tests.provider.kits import KEY_NAME


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(KEY_NAME, "sk-canary-1234567890")
    return "sk-canary-1234567890"
