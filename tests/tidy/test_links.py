"""Every link of every page leads somewhere: to a file of this checkout, and to a heading or a name inside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, files, name, text

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
PAGES = [
    path for path in files() if path.suffix == ".md" and not path.is_relative_to(ROOT / "tests" / "vectors")
]


def anchors(page: Path) -> set[str]:
    """The headings of a page as its links spell them."""
    headings = re.findall(r"^#+\s+(.*?)\s*$", FENCE.sub("", text(page)), re.MULTILINE)
    plain = (re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", text(page))):
        if re.match(r"[a-z]+:", link):
            continue
        where, _, anchor = link.partition("#")
        target = (page.parent / where).resolve() if where else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


GUARANTEES = ROOT / "docs" / "guarantees.md"
CODE_LINK = re.compile(r"\[`([^`\]]+)`\]\(\.\./([^)]+)\)")


def test_every_promise_names_code_that_holds_it_and_a_test_that_attacks_it() -> None:
    """Each `G` row links to `src/` and to `tests/`; the name in the link stands in the linked file."""
    rows = re.findall(r"^\| (G\d+) \|(.*)\|$", text(GUARANTEES), re.MULTILINE)
    assert [row for row, _ in rows] == [f"G{number}" for number in range(1, 19)]
    faults = []
    for promise, rest in rows:
        links = CODE_LINK.findall(rest)
        faults += [
            f"{promise} links to nothing in {folder}"
            for folder in ("src/", "tests/")
            if not any(path.startswith(folder) for _, path in links)
        ]
        for shown, path in links:
            target = ROOT / path.partition("#")[0]
            last = re.split(r"[.:]", shown)[-1]
            if not target.exists():
                faults.append(f"{promise}: {path} does not exist")
            elif target.is_file() and last not in text(target):
                faults.append(f"{promise}: {path} has no {last}")
    assert faults == []


def test_the_picture_of_the_rooms_shows_every_room() -> None:
    drawn = text(ROOT / "docs" / "rooms.svg")
    package = ROOT / "src" / "turnkeeper"
    rooms = {
        path.name.removesuffix(".py") for path in package.iterdir() if not path.name.startswith(("_", "."))
    }
    assert {room for room in rooms - {"py.typed"} if f">{room}<" not in drawn} == set()


def test_the_glossary_explains_every_word_of_the_design() -> None:
    explained = set(re.findall(r"\*\*([^*]+)\*\*", text(ROOT / "docs" / "glossary.md")))
    words = [
        "conversation",
        "turn",
        "round",
        "attempt",
        "message",
        "part",
        "delta",
        "submission",
        "producer",
        "steer",
        "rider",
        "lane",
        "position",
        "lease",
        "dispatcher",
        "runner",
        "journal",
        "event",
        "seq",
        "cursor",
        "projection",
        "history",
        "feed",
        "timeline",
        "transcript",
        "evidence",
        "anchor",
        "reconcile",
        "receipt",
        "promotion",
        "backstop",
        "parked",
        "superseded",
        "retained",
        "drift",
        "rescue",
        "failpoint",
    ]
    phrases = ["fencing token", "native session", "evidence gate", "continuity notice"]
    assert [word for word in words + phrases if word not in explained] == []
