"""Architecture decision records: a title that can be obeyed, and the four parts of one page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.tree import name, text, under

RECORDS = [path for path in under("docs/adr", ".md") if path.name != "README.md"]
PARTS = ("## Status", "## Context", "## Decision", "## Consequences")


@pytest.mark.parametrize("record", RECORDS, ids=name)
def test_a_record_is_named_by_its_decision(record: Path) -> None:
    number, _, slug = record.stem.partition("-")
    head = text(record).splitlines()[0]
    title = re.fullmatch(rf"# {number}\. (.+)", head)
    assert re.fullmatch(r"\d{4}", number), record.name
    assert title, head
    assert re.sub(r"[^a-z0-9]+", "-", title[1].lower()).strip("-") == slug, "the file is named by its title"


@pytest.mark.parametrize("record", RECORDS, ids=name)
def test_a_record_has_its_four_parts_in_order(record: Path) -> None:
    places = [text(record).find(part) for part in PARTS]
    assert -1 not in places, f"{name(record)} lacks {PARTS[places.index(-1)]}"
    assert places == sorted(places)


def test_no_two_records_share_a_number() -> None:
    numbers = [record.name[:4] for record in RECORDS]
    assert len(set(numbers)) == len(numbers) > 0, sorted(numbers)
