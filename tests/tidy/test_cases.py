"""Every public case has its line in `tests/cases.toml`, and those that a landed issue owns have a test."""

from __future__ import annotations

import json
import tomllib

import pytest

from tests.surroundings import public_cases
from tests.tidy.tree import ROOT, text

TABLE = tomllib.loads(text(ROOT / "tests" / "cases.toml"))
LANDED = {str(issue) for issue in TABLE.pop("landed")}
OWNED = [(group, case, owners) for group, cases in TABLE.items() for case, owners in cases.items()]
PLAYED = [
    (f"{case} ({issue})", played) for _, case, owners in OWNED for issue, played in owners.items() if played
]


def test_every_case_has_an_owner() -> None:
    assert [case for _, case, owners in OWNED if not owners] == []


def test_every_case_of_a_landed_issue_has_a_test() -> None:
    without = [
        f"{case} ({issue})"
        for _, case, owners in OWNED
        for issue, played in owners.items()
        if issue in LANDED and not played
    ]
    assert without == []


def test_every_test_that_the_table_names_exists() -> None:
    """`path` or `path::name`; the name (a function, or the id of a parameter) stands in the file."""
    broken = []
    for case, played in PLAYED:
        path, _, name = played.partition("::")
        target = ROOT / path
        if not target.is_file() or (name and name.partition("[")[0] not in text(target)):
            broken.append(f"{case}: {played}")
    assert broken == []


@pytest.mark.parametrize("group", TABLE)
def test_every_public_case_is_in_the_table(group: str) -> None:
    folder = public_cases()
    if folder is None:
        pytest.skip("the public cases do not stand beside this checkout")
    if group == "transcripts":
        public = {
            path.name for path in (folder / group).iterdir() if path.is_dir() and path.name != "samples"
        }
    else:
        public = {json.loads(path.read_text("utf-8"))["id"] for path in (folder / group).glob("*.json")}
    assert public - set(TABLE[group]) == set()
