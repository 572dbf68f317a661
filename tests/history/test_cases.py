"""Every public feed case, through the verb that users call: `turnkeeper feed CASE.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.history.expect import CHECKS, RUNTIME, judge
from turnkeeper import cli
from turnkeeper.foreign.case import feed_case

VECTORS = Path(__file__).parent.parent / "vectors"
FILES = {
    path.stem: path for folder in ("feed", "feed_more") for path in sorted((VECTORS / folder).glob("*.json"))
}
"""The public cases, and more of the same kinds."""
CASES = list(FILES)


@pytest.mark.parametrize("name", CASES)
def test_the_feed_of_a_case_is_as_expected(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = FILES[name]
    case: dict[str, Any] = json.loads(path.read_text("utf-8"))
    assert cli.run(["feed", str(path)]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert err == ""
    assert list(report) == ["provider", "feed", "incoming", "changes", "request", "display"]
    assert judge(case, report, feed_case) == []


@pytest.mark.parametrize("name", CASES)
def test_every_stored_message_is_in_the_sources_or_in_the_changes(name: str) -> None:
    case = json.loads(FILES[name].read_text("utf-8"))
    report = feed_case(case)
    told = {source for m in report["feed"] for source in m["sources"]} | {
        c["message"] for c in report["changes"]
    }
    assert {m["id"] for m in case["history"]} <= told


def test_no_field_of_an_expectation_is_judged_by_nobody() -> None:
    fields = {name for n in CASES for name in json.loads(FILES[n].read_text("utf-8"))["expect"]}
    assert fields <= set(CHECKS) | set(RUNTIME)
