"""Every public delivery case with a `cli` or `pane` step, on the scripted CLI in real tmux behind a real server.

The cases are played side by side, a few at a time, before the first of these tests; each test then says what became of
its case. `HOW` says where a case is played otherwise than it is written.
"""

from __future__ import annotations

import asyncio
import json
import os
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.retained.cases.facts import Seen, judge
from tests.retained.cases.play import FAILPOINTS, NO_SPACE, Play, own_server
from tests.retained.cases.world import World
from tests.surroundings import VECTORS
from turnkeeper.testing.promises import broken_promises
from turnkeeper.testing.until import until

pytestmark = [
    pytest.mark.tmux,
    pytest.mark.process,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]

FILES = {
    json.loads(path.read_text("utf-8"))["id"]: path
    for path in sorted((VECTORS / "delivery-panes").glob("*.json"))
}
SCALE = 0.1
SCALES = {
    "BD086": 0.02,
    "BD009": 0.05,
    "BD076": 0.15,
    "BD103": 0.25,
    "BD104": 0.15,
    "BD091": 0.3,
} | dict.fromkeys(("BD110", "BD111", "BD113", "BD114"), 0.5)
"""Real seconds per second of a case."""
AT_ONCE = 6
JUDGE_REAL_SECONDS = 30.0

WRITTEN = "as written"
HOW: dict[str, str] = {
    "BD005": "the conversation is starting while its CLI boots",
    "BD008": WRITTEN,
    "BD009": WRITTEN,
    "BD011": "waiting messages are given one by one, which joins none of them",
    "BD015": "the folder for files of a launch is a small tmpfs without space (needs root); Resend is a retry",
    "BD019": WRITTEN,
    "BD043": WRITTEN,
    "BD072": "a hard stop is an interrupt by the CLI's own key",
    "BD073": WRITTEN,
    "BD074": WRITTEN,
    "BD076": WRITTEN,
    "BD077": WRITTEN,
    "BD078": WRITTEN,
    "BD079": WRITTEN,
    "BD081": WRITTEN,
    "BD082": WRITTEN,
    "BD083": WRITTEN,
    "BD085": WRITTEN,
    "BD086": WRITTEN,
    "BD088": WRITTEN,
    "BD089": WRITTEN,
    "BD091": WRITTEN,
    "BD092": WRITTEN,
    "BD094": "each conversation has a tmux server of its own, so no name can be a prefix of another",
    "BD095": WRITTEN,
    "BD097": WRITTEN,
    "BD098": WRITTEN,
    "BD102": WRITTEN,
    "BD103": WRITTEN,
    "BD104": "a fault of tmux lasts 2.5 real seconds at least, which is longer than the case says",
    "BD105": "a conversation is closed by archiving it",
    "BD108": "a terminal's keys are posted by who has taken it over",
    "BD110": WRITTEN,
    "BD111": "the folder stands in the agents file: the server is started again with the new one",
    "BD113": WRITTEN,
    "BD114": WRITTEN,
    "BD116": "the CLI itself goes on in another file at /clear",
    "BD118": WRITTEN,
    "BD160": WRITTEN,
}


async def play_one(case: dict[str, Any], play: Play) -> str:
    """Play and judge one case; "" if all holds, else what does not."""
    server = play.world.server
    play.results["server"] = server.pid
    try:
        await play.run()
        if server.alive and not own_server(case):
            assert server.pid == play.results["server"]
        await ask_more(case, play)
        seen = Seen(play)
        verdicts: dict[str, bool] = {}

        def all_hold() -> bool:
            verdicts.update({each: judge(each, seen) for each in case["expect"]})
            return all(verdicts.values())

        seconds = JUDGE_REAL_SECONDS
        try:
            await until(all_hold, case["id"], seconds=seconds)
        except TimeoutError:
            failed = [each for each, holds in verdicts.items() if not holds]
            return "\n".join(["does not hold:", *failed, *describe(play)])
        broken = [
            str(each)
            for name, watcher in play.watchers.items()
            for each in broken_promises(await play.world.api.events(play.convs[name]), drained=False)
        ]
        return "\n".join(broken)
    except Exception:
        return traceback.format_exc() + "\n".join(describe(play))
    finally:
        await play.close()


async def ask_more(case: dict[str, Any], play: Play) -> None:
    """What only a person would do after the case's last step."""
    api = play.world.api
    if case["id"] == "BD091":

        async def asked() -> Any:
            found = (await api.get("/v1/approvals"))["approvals"]
            return [each for each in found if each["conversation_id"] == play.convs["c1"]]

        play.results["approvals"] = await until(asked, "a question", seconds=20)
    elif case["id"] == "BD015":
        turn_id = str(play.posted["m1"].turn_id)
        await api.settled(turn_id)
        play.results["history"] = Seen(play).history("c1")
        play.world.free()
        (await api.post(f"/v1/turns/{turn_id}/retry")).raise_for_status()
        await api.settled(turn_id)
    elif case["id"] == "BD094":
        await api.settled(str(play.posted["m1"].turn_id))
        answer = await api.post(f"/v1/conversations/{play.convs['c1']}/terminal/restart")
        play.results["killed"] = answer.status_code == 200
    elif case["id"] == "BD113":
        turn = await api.settled(str(play.posted["m2"].turn_id))
        if turn["state"] == "failed":
            play.clis["c1"].cwd.mkdir()
            (await api.post(f"/v1/turns/{turn['turn_id']}/retry")).raise_for_status()
            play.results["resent"] = (await api.settled(turn["turn_id"]))["state"] == "settled"


def describe(play: Play) -> list[str]:
    """What happened, in short."""
    rows = []
    for name, watcher in play.watchers.items():
        labels = {post.turn_id: label for label, post in play.posted.items()}
        for at, event in zip(watcher.came_at, watcher.events, strict=True):
            body = {
                k: v for k, v in event["body"].items() if k in ("step", "state", "reason", "sentence", "why")
            }
            label = labels.get(event.get("turn_id"), event.get("turn_id") or "")
            rows.append(f"{name} {at:6.1f} {event['seq']:3d} {event['kind']} {label} {body}")
    for conv, cli in play.clis.items():
        rows += [f"cli {conv}: {str(entry)[:300]}" for entry in cli.log()[-25:]]
    for conv, views in play.terminals.items():
        rows += [f"terminal {conv}: {at:.1f} {view}" for at, view in views[-2:]]
    rows += [f"{label}: {[a.status_code for a in post.answers]}" for label, post in play.posted.items()]
    rows.append(f"frames: {[frame.name for frame in play.frames]} typed: {play.results.get('typed')}")
    return [*rows, play.world.server.last_words(lines=15)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, str]]:
    """Every case that was asked for, played."""
    wanted = [item.callspec.params["case_id"] for item in request.session.items if is_case(item)]  # type: ignore[attr-defined]
    cases = [json.loads(FILES[case_id].read_text("utf-8")) for case_id in wanted]
    folder = tmp_path_factory.mktemp("panes")
    turns = asyncio.Semaphore(AT_ONCE)
    found: dict[str, str] = {}
    shared = World(folder / "shared")
    together = [each for each in cases if not own_server(each)]
    plays = [Play(case, shared, SCALES.get(case["id"], SCALE)) for case in together]

    async def one(case: dict[str, Any], play: Play) -> None:
        async with turns:
            found[case["id"]] = await play_one(case, play)

    async def alone(case: dict[str, Any]) -> None:
        async with turns:
            world = World(folder / case["id"])
            play = Play(case, world, SCALES.get(case["id"], SCALE))
            names = {step["name"] for step in case["steps"] if step["do"] == "failpoint"}
            if names & NO_SPACE:
                world.fill()
            try:
                await world.start(
                    failpoint=next((FAILPOINTS[name] for name in names if name in FAILPOINTS), None)
                )
                found[case["id"]] = await play_one(case, play)
                await world.api.close()
            except Exception:
                found[case["id"]] = traceback.format_exc()
            finally:
                end(world)

    def end(world: World) -> None:
        if world.server.alive:
            world.server.kill()
        world.unmount()

    if plays:
        await shared.start()
    await asyncio.gather(
        *(alone(case) for case in cases if own_server(case)),
        *(one(case, play) for case, play in zip(together, plays, strict=True)),
    )
    if plays:
        await shared.api.close()
        end(shared)
    yield found


def is_case(item: pytest.Item) -> bool:
    """Whether a collected test is one of this file's cases."""
    return item.path == Path(__file__) and "case_id" in getattr(getattr(item, "callspec", None), "params", {})


NEEDS_ROOT = {"BD015"}


@pytest.mark.parametrize("case_id", [case for case in FILES if case not in NEEDS_ROOT or os.geteuid() == 0])
def test_a_delivery_case_in_a_pane(case_id: str, verdicts: dict[str, str]) -> None:
    if verdicts[case_id]:
        pytest.fail(verdicts[case_id], pytrace=False)


def test_the_table_holds_every_case_that_was_copied() -> None:
    assert sorted(HOW) == sorted(FILES)
