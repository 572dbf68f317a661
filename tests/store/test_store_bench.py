"""The store's bench runs, and says what it could not measure. No time is tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnkeeper.testing.bench import store as bench


async def test_the_bench_gives_rows_with_ratios_and_goals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def absent(_folder: Path) -> Any:
        raise ImportError(name="peer")

    for name, value in {"ROUNDS": 2, "BLOCK": 3, "MIDDLE": 60, "LONG": 80, "LANES": 4, "TAIL": 5}.items():
        monkeypatch.setattr(bench, name, value)
    monkeypatch.setattr(bench, "PEERS", {"a peer": (absent, 10.0)})
    monkeypatch.setenv("TURNKEEPER_BENCH_DIR", str(tmp_path))
    rows = {row.name: row for row in await bench.run()}
    assert rows["one append, p50"].goal == "≤ 1.3×"
    assert rows["4 conversations at once"].ratio is not None
    assert rows["append, 80 messages, p50"].of == "at 10"
    assert rows["load the last 5, 80 messages, p50"].met in (True, False)
    assert rows["a peer"].note == "not installed (peer)"
    assert list(tmp_path.iterdir()) == []
