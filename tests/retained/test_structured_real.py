"""Real coding CLIs driven in their own protocols: the same turns, receipts and sessions as in a pane, without one.

pi and codex with CI=true or once `make test-clis` has fetched them; claude-code with TURNKEEPER_REAL_CLAUDE=1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.retained.real_stage import EACH_CLI, LONG, RealStage, clean_environment, script, settled
from tests.retained.stage import OWNER
from turnkeeper.testing.model_server import ModelServer

pytestmark = [pytest.mark.timeout(240)]


@pytest.fixture(params=EACH_CLI)
async def stage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RealStage]:
    clean_environment(monkeypatch, tmp_path)
    async with ModelServer(script(request.param), strict=False) as model:
        stage = RealStage(tmp_path, request.param, model, structured=True)
        await stage.start()
        yield stage
        await stage.end()


async def test_texts_of_every_shape_arrive_once_and_in_order(stage: RealStage) -> None:
    shapes = ["hello", "one\n\n  two\nthree", "x" * 60_000, "wide 日本語 é 🙂", "! no shell line", "hello"]
    await settled(stage, *[await stage.post(text) for text in shapes])
    said = await stage.said()
    assert [line for line in said if line.startswith("u:")] == [f"u:{text}" for text in shapes]
    session = await stage.runner.session(stage.conversation_id)
    normalise = session.adapter.normalise
    answered = [normalise(line.removeprefix("a:ok ")) for line in said if line.startswith("a:")]
    assert answered == [normalise(text) for text in shapes]
    assert await stage.recorded() == [normalise(text) for text in shapes]
    assert session.keep.launches == 1


async def test_a_steer_rides_along_and_what_is_queued_runs_next(stage: RealStage) -> None:
    first = await stage.post("SHORT tool")
    await stage.confirmed(first, LONG)
    await stage.until_asked("SHORT tool")
    steered = await stage.post("also this", mode="steer")
    queued = await stage.post("and then this")
    for turn_id in (first, steered, queued):
        assert (await stage.ended(turn_id, LONG)).state == "settled", await stage.screen()
    users = [line for line in await stage.said() if line.startswith("u:")]
    assert users == ["u:SHORT tool", "u:also this", "u:and then this"]
    assert (await stage.said())[-1] == "a:ok and then this"


async def test_a_stop_interrupts_and_a_steer_that_was_queued_is_sent_again_once(stage: RealStage) -> None:
    await settled(stage, await stage.post("hello"))
    first = await stage.post("TOOL for long")
    await stage.confirmed(first, LONG)
    session = await stage.runner.session(stage.conversation_id)
    await stage.until(
        lambda: session.tape.path is not None and b"sleep 45" in session.tape.path.read_bytes(), LONG
    )
    steered = await stage.post("STEERED", mode="steer")

    async def handed() -> bool:
        return (await stage.turn(steered)).receipt.state == "accepted"

    await stage.until(handed, LONG, "the steer was not taken")
    await stage.keeper.cancel(OWNER, first, queue="continue")
    assert (await stage.ended(first, LONG)).state == "cancelled"
    await settled(stage, steered)
    assert (await stage.said())[-2:] == ["u:STEERED", "a:ok STEERED"]
    assert (await stage.recorded()).count("STEERED") == 1
    assert session.keep.launches == 1, "it was interrupted, not killed"


async def test_a_restart_of_the_server_in_mid_turn_resumes_the_session_and_repeats_nothing(
    stage: RealStage,
) -> None:
    await settled(stage, await stage.post("remember 17"))
    native = await stage.native_id()
    turn_id = await stage.post("WHILE you can")
    await stage.confirmed(turn_id, LONG)
    await stage.until_asked("WHILE you can")
    await stage.stop()
    await stage.start()
    turn = await stage.ended(turn_id, LONG)
    assert (turn.state, turn.failure and turn.failure["kind"]) in {
        ("failed", "pane"),
        ("failed", "interrupted"),
    }
    await settled(stage, await stage.post("still you?"))
    assert await stage.native_id() == native
    assert "remember 17" in stage.asked()[-1], "the resumed session knows what was said"
    assert (await stage.recorded()).count("WHILE you can") == 1, "nothing was sent twice"


async def test_killed_in_mid_tool_it_fails_the_turn_and_resumes_its_session(stage: RealStage) -> None:
    await settled(stage, await stage.post("remember 17"))
    native = await stage.native_id()
    turn_id = await stage.post("TOOL for long")
    await stage.confirmed(turn_id, LONG)
    behind = await stage.post("and now?")
    await stage.kill(9)
    failed = await stage.ended(turn_id, LONG)
    assert failed.state == "failed"
    await settled(stage, behind)
    assert await stage.native_id() == native
    assert "remember 17" in stage.asked()[-1]
