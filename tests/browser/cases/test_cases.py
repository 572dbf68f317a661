"""The public delivery cases that have a page in them, played through a real Chromium.

All cases of a run share one browser and are played a few at a time, each against a server process of its own; then
each is judged by a test of its own. `make test` plays `QUICK` ten times faster than written; `make test-long` plays
every case at half of the time that is written. What deviates from the letter of a file says so in `HOW`.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import async_playwright

from tests.browser.cases.expectations import PageSeen, judge_page
from tests.browser.cases.player import PagePlay
from tests.browser.conftest import ARGUMENTS
from tests.needs import NEEDS
from tests.surroundings import VECTORS
from turnkeeper.testing.promises import broken_promises

pytestmark = [
    pytest.mark.alone,
    pytest.mark.browser,
    pytest.mark.process,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("page cases"),
]

FILES = {
    json.loads(path.read_text("utf-8"))["id"]: path
    for folder in ("delivery", "page")
    for path in sorted((VECTORS / folder).glob("*.json"))
}

WRITTEN = "as written"
HOW: dict[str, str] = {
    "BD001": WRITTEN,
    "BD007": WRITTEN,
    "BD016": "every event of the stream reaches the page twice",
    "BD025": WRITTEN,
    "BD030": WRITTEN,
    "BD031": WRITTEN,
    "BD032": WRITTEN,
    "BD034": WRITTEN,
    "BD035": "the resync is a frame of the stream",
    "BD037": WRITTEN,
    "BD039": "the page's stream ends and comes back refused for a while",
    "BD040": WRITTEN,
    "BD041": WRITTEN,
    "BD046": "an event is a row: a short turn; 60 of them in make test",
    "BD049": "eight tabs of one profile; each has at most one stream, four have one at a time",
    "BD053": WRITTEN,
    "BD055": WRITTEN,
    "BD129": WRITTEN,
    "BD130": WRITTEN,
    "BD132": "the compaction is written into the journal as the agent writes it",
    "BD134": "the page's own clock is 5 h ahead",
    "BD136": "the imported row belongs to the transcripts' tests",
    "BD144": WRITTEN,
    "BD147": WRITTEN,
    "BD148": WRITTEN,
    "BD150": WRITTEN,
    "BD152": "a composition over the browser's own protocol for input methods",
    "BD153": WRITTEN,
    "BD161": "the editor opens as soon as the message waits; Save is pressed just before, and reaches the server just after, the message is taken",
}

QUICK = (
    "BD001",
    "BD025",
    "BD031",
    "BD035",
    "BD040",
    "BD049",
    "BD055",
    "BD129",
    "BD148",
    "BD150",
    "BD152",
    "BD161",
)
AT_ONCE = 3
QUICK_SCALE = 0.1
LONG_SCALE = 0.5

Outcome = dict[str, Any]


async def play(case: dict[str, Any], folder: Path, browser: Any, scale: float) -> Outcome:
    """Play one case: every expectation with its verdict, broken promises, and what the pages complained of."""
    one = PagePlay(case, folder, browser, scale)
    try:
        await one.run()
        seen = PageSeen(one)
        verdicts = {expectation: judge_page(expectation, seen) for expectation in case["expect"]}
        journals = one.results.get("journal", {})
        broken = [
            str(each) for journal in journals.values() for each in broken_promises(journal, drained=False)
        ]
        complaints = [said for client in one.clients.values() for said in client.complaints]
        last = {name: seen.drawn(client.looks[-1][1]) for name, client in one.clients.items() if client.looks}
        return {"verdicts": verdicts, "broken": broken, "complaints": complaints, "last": last}
    finally:
        await one.close()


async def play_all(ids: tuple[str, ...], folder: Path, scale: float) -> dict[str, Outcome | BaseException]:
    """Play many, a few at a time."""
    chromium = next(need for need in NEEDS if need.mark == "browser").found()
    gate = asyncio.Semaphore(AT_ONCE)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)

        async def one(case_id: str) -> Outcome:
            async with gate:
                case = json.loads(FILES[case_id].read_text("utf-8"))
                if case_id == "BD046" and scale == QUICK_SCALE:
                    case["steps"][1]["events"] = 60
                began = time.monotonic()
                outcome = await play(case, folder / case_id, browser, scale)
                outcome["seconds"] = time.monotonic() - began
                return outcome

        outcomes = await asyncio.gather(*map(one, ids), return_exceptions=True)
        await browser.close()
    return dict(zip(ids, outcomes, strict=True))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return asyncio.run(play_all(QUICK, tmp_path_factory.mktemp("quick"), QUICK_SCALE))


@pytest.fixture(scope="module")
def at_length(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return asyncio.run(play_all(tuple(HOW), tmp_path_factory.mktemp("long"), LONG_SCALE))


def judged(outcome: Any) -> None:
    """Every expectation holds, no promise is broken, and the console is empty."""
    if isinstance(outcome, BaseException):
        raise outcome
    failed = [expectation for expectation, holds in outcome["verdicts"].items() if holds is False]
    assert (failed, outcome["broken"], outcome["complaints"]) == ([], [], []), outcome["last"]
    assert any(outcome["verdicts"].values())


def test_every_public_case_with_a_page_is_in_the_table() -> None:
    assert set(HOW) <= set(FILES)


@pytest.mark.parametrize("case_id", QUICK)
def test_a_delivery_case_through_a_page(case_id: str, quick: dict[str, Any]) -> None:
    judged(quick[case_id])


@pytest.mark.long
@pytest.mark.parametrize("case_id", HOW)
def test_a_delivery_case_through_a_page_at_length(case_id: str, at_length: dict[str, Any]) -> None:
    judged(at_length[case_id])
