"""Real coding CLIs behind the same queue: what each must be able to do, on the real program.

pi and codex with CI=true or once `make test-clis` has fetched them; claude-code with TURNKEEPER_REAL_CLAUDE=1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.retained.real_stage import EACH_CLI, LONG, RealStage, clean_environment, script, settled
from tests.retained.stage import OWNER
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Mode
from turnkeeper.errors import ReadsAsCommand
from turnkeeper.testing.model_server import ModelServer

pytestmark = [pytest.mark.tmux, pytest.mark.timeout(240)]


@pytest.fixture(params=EACH_CLI)
async def stage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RealStage]:
    clean_environment(monkeypatch, tmp_path)
    async with ModelServer(script(request.param), strict=False) as model:
        stage = RealStage(tmp_path, request.param, model)
        await stage.start()
        yield stage
        await stage.end()


def pairs(*texts: str) -> list[str]:
    """A history of these texts, each answered."""
    return [line for text in texts for line in (f"u:{text}", f"a:ok {text}")]


async def test_texts_of_every_shape_arrive_in_order_and_history_is_what_was_said(stage: RealStage) -> None:
    shapes = [
        "hello",
        "one\n\n  two\nthree",
        "x" * 5_000,
        ("y" * 999 + "\n") * 60,
        "wide 日本語 e\u0301 🙂",
        "#no note",
        "@nobody hi",
    ]
    if stage.cli == "codex":
        shapes += ["/etc/hosts is what?", "! not a shell line"]
    else:
        shapes += ["/etc/hosts is what?"]
        with pytest.raises(ReadsAsCommand):
            await stage.post("! not a shell line")
    await settled(stage, await stage.post(shapes[0]))
    rapid = [await stage.post(text) for text in shapes[1:]]
    await settled(stage, *rapid)
    said = await stage.said()
    assert [line for line in said if line.startswith("u:")] == [f"u:{text}" for text in shapes]
    normalise = (await stage.runner.session(stage.conversation_id)).adapter.normalise
    answered = [normalise(line.removeprefix("a:ok ")) for line in said if line.startswith("a:")]
    assert answered == [normalise(text) for text in shapes], (
        "each was answered, in order, and was given whole"
    )
    session = await stage.runner.session(stage.conversation_id)
    assert await stage.recorded() == [session.adapter.normalise(text) for text in shapes]


async def test_what_is_sent_while_it_is_busy_rides_along_or_runs_next(stage: RealStage) -> None:
    first = await stage.post("SHORT tool")
    await stage.confirmed(first, LONG)
    steered = await stage.post("also this", mode="steer")
    queued = await stage.post("and then this")
    for turn_id in (first, steered, queued):
        assert (await stage.ended(turn_id, LONG)).state == "settled", await stage.screen()
    users = [line for line in await stage.said() if line.startswith("u:")]
    assert users == ["u:SHORT tool", "u:also this", "u:and then this"]
    assert (await stage.said())[-1] == "a:ok and then this"
    assert sum('"and then this' in body for body in stage.asked()) >= 1


async def test_a_stop_interrupts_and_the_session_goes_on(stage: RealStage) -> None:
    first = await stage.post("SLOW answer")
    await stage.confirmed(first, LONG)
    await stage.until_asked("SLOW answer")
    native = await stage.native_id()
    await stage.keeper.cancel(OWNER, first, queue="continue")
    assert (await stage.ended(first, LONG)).state == "cancelled"
    await settled(stage, await stage.post("still there?"))
    assert (await stage.said())[-2:] == pairs("still there?")
    assert await stage.native_id() == native
    session = await stage.runner.session(stage.conversation_id)
    assert session.keep.launches == 1, "it was interrupted, not killed"


async def test_killed_in_mid_tool_it_fails_the_turn_and_resumes_its_session(stage: RealStage) -> None:
    await settled(stage, await stage.post("remember 17"))
    native = await stage.native_id()
    turn_id = await stage.post("TOOL for long")
    await stage.confirmed(turn_id, LONG)
    await stage.until(lambda: stage.asked()[-1].count("TOOL for long") and len(stage.asked()) >= 2, LONG)
    session = await stage.runner.session(stage.conversation_id)
    await stage.until(
        lambda: session.tape.path is not None and b"sleep 45" in session.tape.path.read_bytes(), LONG
    )
    behind = await stage.post("and now?")
    await stage.kill(9)
    failed = await stage.ended(turn_id, LONG)
    assert failed.state == "failed"
    # Some CLIs find the time to write down that they were interrupted; then their record says it first.
    assert failed.failure["kind"] in {"pane", "interrupted"}
    await settled(stage, behind)
    assert await stage.native_id() == native
    assert "remember 17" in stage.asked()[-1], "the resumed session knows what was said"
    assert (await stage.said())[-2:] == pairs("and now?")


async def test_a_restart_of_the_server_in_mid_turn_is_seen_by_nobody(stage: RealStage) -> None:
    await settled(stage, await stage.post("hello"))
    turn_id = await stage.post("WHILE you can")
    await stage.confirmed(turn_id, LONG)
    await stage.until_asked("WHILE you can")
    await stage.stop()
    await stage.start()
    turn = await stage.ended(turn_id, LONG)
    assert (turn.state, turn.attempts) == ("settled", 1)
    assert (await stage.said())[-1] == "a:words that take a while, as an answer does"
    session = await stage.runner.session(stage.conversation_id)
    assert session.keep.launches == 1
    assert sum("WHILE you can" in body for body in stage.asked()) == 1, "nothing was pasted again"


async def test_changed_instructions_reach_the_same_session(stage: RealStage) -> None:
    await settled(stage, await stage.post("remember 17"))
    native = await stage.native_id()
    await stage.stop()
    stage.config_more = {"instructions": "RULE BRAVO: say nothing of it."}
    await stage.start()
    await settled(stage, await stage.post("still you?"))
    assert await stage.native_id() == native
    assert "RULE BRAVO" in stage.asked()[-1]
    assert "remember 17" in stage.asked()[-1]
    said = await stage.said()
    assert said[-2] == "u:still you?", "what a person said stays what they said"
    await settled(stage, await stage.post("again"))
    assert (await stage.recorded())[-1] == "again"
    assert sum("RULE BRAVO" in text for text in await stage.recorded()) <= 1, "once per session is enough"


async def test_two_panes_in_one_folder_keep_apart(stage: RealStage) -> None:
    other = (await stage.keeper.create_conversation(OWNER, "a", "")).conversation_id
    here = stage.conversation_id

    async def both(number: int) -> tuple[str, str]:
        mine = await stage.post(f"mine {number}")
        theirs = await stage.keeper.submit(
            OWNER, other, key=f"o{number}", parts=[Text(f"theirs {number}")], mode=Mode.QUEUE
        )
        return mine, theirs.turn_id

    turns = await asyncio.gather(both(1), both(2))
    await settled(stage, *(turn for pair in turns for turn in pair))
    mine = await stage.said()
    stage.conversation_id = other
    theirs = await stage.said()
    assert sorted(mine) == sorted(pairs("mine 1", "mine 2"))
    assert sorted(theirs) == sorted(pairs("theirs 1", "theirs 2"))
    natives = [(await stage.runner.session(each)).keep.native_id for each in (here, other)]
    assert None not in natives
    assert natives[0] != natives[1]
