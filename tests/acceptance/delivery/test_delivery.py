"""The public delivery cases that concern a server without panes and without a page, against a real server.

`HOW` is the table: case id -> how it is played. "as written" is: every step of the file, in its order and at
its (scaled) second, through the HTTP interface; every expectation that a server can show is judged; and the
checker of promises reads every journal. What deviates from the letter of a file says so.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.delivery.expectations import Seen, judge
from tests.acceptance.delivery.player import Play
from tests.surroundings import VECTORS
from turnkeeper.testing.promises import broken_promises

pytestmark = pytest.mark.process

FILES = {
    json.loads(path.read_text("utf-8"))["id"]: path for path in sorted((VECTORS / "delivery").glob("*.json"))
}

WRITTEN = "as written"
HOW: dict[str, str] = {
    "BD001": WRITTEN,
    "BD003": "run_timeout_s is max_turn_seconds, so that no deadline of the model call comes first",
    "BD007": WRITTEN,
    "BD012": WRITTEN,
    "BD018": "the response is dropped by hanging up once the submission is stored",
    "BD021": WRITTEN,
    "BD022": "one process: a second server on one SQLite store is refused; the lease is outlived all the same",
    "BD024": WRITTEN,
    "BD025": "the rows are those of the history; that the page draws them so is the page's test",
    "BD027": "the dispatcher is stalled by stopping the whole process (SIGSTOP)",
    "BD030": "the server's wall clock stands still from its start",
    "BD031": "what a reloaded page shows is read from the snapshot and the stream",
    "BD032": "no client: the watcher goes when the page does",
    "BD034": "the run dies in mid-answer, on the resume too",
    "BD037": "what an opened page shows is read from the snapshot and the history",
    "BD039": WRITTEN,
    "BD040": "the page is a client that keeps its conversation id",
    "BD041": WRITTEN,
    "BD044": WRITTEN,
    "BD045": "an event is a rename; control frames come from a turn that runs meanwhile",
    "BD048": "an event is a rename",
    "BD050": WRITTEN,
    "BD051": WRITTEN,
    "BD053": "the stale tab is a client; no path takes a history",
    "BD069": WRITTEN,
    "BD070": WRITTEN,
    "BD119": "half a record is left behind the last whole one of SQLite's log",
    "BD126": "the disk is a small tmpfs, filled to the last byte (needs root)",
    "BD127": WRITTEN,
    "BD130": WRITTEN,
    "BD134": "no path takes a client's time, so the device's clock cannot be sent",
    "BD136": "the imported row belongs to the transcripts' tests",
    "BD137": WRITTEN,
    "BD138": "the mount probe reports nfs; it stops, so there is no mode to storm",
    "BD142": WRITTEN,
    "BD144": WRITTEN,
    "BD146": "a conversation is closed by archiving it; 300 of them, 2,000 in make test-long",
    "BD153": WRITTEN,
    "BD157": WRITTEN,
    "BD161": WRITTEN,
}

NEEDS_ROOT = {"BD126"}
SHORTENED = {"BD146": 300}


def test_the_table_holds_every_case_that_was_copied() -> None:
    assert sorted(HOW) == sorted(FILES)


async def play_and_judge(case: dict[str, Any], folder: Path) -> None:
    """Play a case; every expectation holds, and no promise is broken in any of its journals."""
    play = Play(case, folder)
    try:
        await play.run()
        seen = Seen(play)
        verdicts = {expectation: judge(expectation, seen) for expectation in case["expect"]}
        broken = [
            str(each)
            for name, journal in play.results.get("journal", {}).items()
            for each in broken_promises(journal, drained=not paused(journal) and name in play.watchers)
        ]
        words = play.server.last_words() + "\n" + "\n".join(describe(play))
        failed = [expectation for expectation, holds in verdicts.items() if holds is False]
        assert (failed, broken, play.failures) == ([], [], []), words
        assert any(verdicts.values()), "nothing of this case concerns a server"
    finally:
        await play.close()


def paused(journal: list[dict[str, Any]]) -> bool:
    """Whether the lane was left paused: then who waits may go on waiting."""
    kinds = [event["kind"] for event in journal if event["kind"] in ("LanePaused", "LaneResumed")]
    return bool(kinds) and kinds[-1] == "LanePaused"


def describe(play: Play) -> list[str]:
    """The journals in short, for a failing test."""
    rows = []
    for name, watcher in play.watchers.items():
        for at, event in zip(watcher.came_at, watcher.events, strict=True):
            rows.append(f"{name} {at:6.1f} {event['seq']:3d} {event['kind']} {event.get('turn_id') or ''}")
    for label, post in play.posted.items():
        rows.append(f"{label} {post.key} {[a.status_code for a in post.answers]} {post.turn_id}")
    return rows


@pytest.mark.parametrize("case_id", [case for case in HOW if case not in SHORTENED])
async def test_a_delivery_case_as_far_as_a_server_goes(case_id: str, tmp_path: Path) -> None:
    if case_id in NEEDS_ROOT and os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    await play_and_judge(json.loads(FILES[case_id].read_text("utf-8")), tmp_path / "case")


@pytest.mark.alone
@pytest.mark.timeout(400)
@pytest.mark.parametrize("case_id", SHORTENED)
async def test_a_delivery_case_of_many_conversations(case_id: str, tmp_path: Path) -> None:
    case = json.loads(FILES[case_id].read_text("utf-8"))
    case["steps"][0]["times"] = SHORTENED[case_id]
    await play_and_judge(case, tmp_path / "case")


@pytest.mark.long
@pytest.mark.parametrize("case_id", SHORTENED)
async def test_a_delivery_case_of_many_conversations_at_full_length(case_id: str, tmp_path: Path) -> None:
    await play_and_judge(json.loads(FILES[case_id].read_text("utf-8")), tmp_path / "case")
