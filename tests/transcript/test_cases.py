"""The public cases: every folder of tests/vectors/transcripts exactly as its expected.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.surroundings import VECTORS
from turnkeeper.transcript import project
from turnkeeper.transcript.formats import MODULES, read_path

FOLDERS = sorted(path for path in (VECTORS / "transcripts").iterdir() if path.is_dir())
NOT_OURS = {"why", "merge"}
"""Keys that explain a case and are no part of a reading."""


def expected(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / "expected.json").read_text("utf-8"))
    return value


CASES = [pytest.param(folder, id=folder.name) for folder in FOLDERS if expected(folder)["format"] in MODULES]


@pytest.mark.parametrize("folder", CASES)
def test_a_public_case_reads_exactly_as_it_should(folder: Path) -> None:
    wanted = expected(folder)
    got = project.as_case(read_path(folder))
    if wanted.get("merge"):
        wanted.pop("conversation")
    assert {key: got.get(key) for key in wanted if key not in NOT_OURS} == {
        key: value for key, value in wanted.items() if key not in NOT_OURS
    }


@pytest.mark.parametrize("folder", CASES)
def test_what_a_public_case_does_not_name_is_empty(folder: Path) -> None:
    wanted = expected(folder)
    got = project.as_case(read_path(folder))
    for key in ("progress", "notices", "superseded", "undelivered", "cancelled"):
        assert key in wanted or got[key] == []
