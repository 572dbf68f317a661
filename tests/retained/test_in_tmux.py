"""Turns on the scripted CLI in real tmux, through the whole server: what each of the three CLIs must be able to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.retained.stage import OWNER, Stage
from turnkeeper.terminal.control import Control

pytestmark = pytest.mark.tmux

CLIS = ("pi", "codex", "claude-code")


@pytest.fixture(params=CLIS)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = await Stage(tmp_path, request.param).start()
    yield stage
    await stage.end()


async def test_messages_are_answered_in_order_and_history_is_what_was_said(stage: Stage) -> None:
    texts = ["hello", "one\n\n  two\nthree", "x" * 5_000, "hello"]
    turns = [await stage.post(text) for text in texts]
    for turn_id in turns:
        turn = await stage.ended(turn_id)
        assert (turn.state, turn.receipt.state) == ("settled", "confirmed")
    assert stage.submits() == texts
    expected: list[str] = []
    for text in texts:
        expected += [f"u:{text}", f"a:ok {text}"]
    assert await stage.history() == expected
    assert len(stage.launches()) == 1


@pytest.mark.parametrize("stage", ["pi"], indirect=True)
async def test_a_text_is_in_an_idle_pane_after_a_look_a_load_and_a_paste(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question to tmux is a round trip that the message waits for."""
    await stage.ready()
    asked: list[str] = []
    run = Control.run_bytes

    async def counted(self: Control, *words: str, **more: Any) -> list[bytes]:
        asked.append(next(word for word in words if word not in {"copy-mode", "-q", "-t", "%1", ";"}))
        return await run(self, *words, **more)

    monkeypatch.setattr(Control, "run_bytes", counted)
    assert (await stage.ended(await stage.post("hello"))).state == "settled"
    until_pasted = asked[: asked.index("if-shell") + 1]
    # A slow commit makes the first look too old.
    assert until_pasted in (
        ["list-panes", "load-buffer", "if-shell"],
        ["list-panes", "list-panes", "load-buffer", "if-shell"],
    )


async def test_a_steer_reaches_the_running_response_or_gets_its_own(stage: Stage) -> None:
    first = await stage.post("[[tool:ls|1.5]] with a tool")
    await stage.confirmed(first)
    second = await stage.post("steer one", mode="steer")
    third = await stage.post("steer two", mode="steer")
    for turn_id in (first, second, third):
        assert (await stage.ended(turn_id)).state == "settled"
    assert stage.submits() == ["[[tool:ls|1.5]] with a tool", "steer one", "steer two"]
    said = await stage.history()
    assert [line for line in said if line.startswith("u:")] == [f"u:{text}" for text in stage.submits()]
    assert any("ALSO(steer one)" in line for line in said), said


async def test_a_stop_interrupts_by_the_clis_own_key_and_the_queue_waits(stage: Stage) -> None:
    first = await stage.post("[[slow:30]] long")
    await stage.confirmed(first)
    await stage.until(stage.submits)
    second = await stage.post("after it")
    await stage.keeper.cancel(OWNER, first)
    assert (await stage.ended(first)).state == "cancelled"
    assert "Escape" in stage.pressed()
    assert "C-c" not in stage.pressed()
    assert (await stage.turn(second)).state == "queued"
    await stage.keeper.resume(OWNER, stage.conversation_id)
    assert (await stage.ended(second)).state == "settled"
    assert stage.submits() == ["[[slow:30]] long", "after it"]


async def test_a_cli_that_is_killed_in_mid_tool_fails_its_turn_and_the_next_one_resumes(stage: Stage) -> None:
    await stage.ready()
    native = (await stage.runner.session(stage.conversation_id)).keep.native_id
    turn_id = await stage.post("[[tool:ls|60]] never ends")
    await stage.confirmed(turn_id)
    behind = await stage.post("and now?")
    await stage.kill(9)
    failed = await stage.ended(turn_id)
    assert (failed.state, failed.failure and failed.failure["kind"]) == ("failed", "pane")
    assert "signal 9" in str(failed.reason)
    assert (await stage.ended(behind)).state == "settled"
    assert len(stage.launches()) == 2
    assert native in stage.launches()[1]


async def test_a_restart_of_the_server_in_mid_turn_is_seen_by_nobody(stage: Stage) -> None:
    await stage.ready()
    turn_id = await stage.post("[[seconds:3]] slow answer")
    await stage.confirmed(turn_id)
    await stage.stop()
    await stage.start()
    turn = await stage.ended(turn_id)
    assert (turn.state, turn.attempts) == ("settled", 1)
    assert stage.submits() == ["[[seconds:0.05]] first", "[[seconds:3]] slow answer"]
    assert len(stage.launches()) == 1
    assert (await stage.history())[-1] == "a:ok [[seconds:3]] slow answer"


async def test_an_answer_that_came_while_the_server_was_down_is_read_when_it_is_back(stage: Stage) -> None:
    await stage.ready()
    turn_id = await stage.post("[[seconds:0.8]] quick")
    await stage.confirmed(turn_id)
    await stage.stop()
    await stage.until(lambda: _answers(stage) >= 2, why="the CLI did not answer")
    await stage.start()
    assert (await stage.ended(turn_id)).state == "settled"
    assert (await stage.history())[-1] == "a:ok [[seconds:0.8]] quick"
    assert len(stage.submits()) == 2


def _answers(stage: Stage) -> int:
    files = [
        path for path in stage.home.rglob("*.jsonl") if "sessions" in str(path) or "projects" in str(path)
    ]
    return sum(path.read_bytes().count(b"ok [[") for path in files)


async def test_a_changed_configuration_relaunches_on_the_same_native_session(stage: Stage) -> None:
    await stage.ready()
    native = (await stage.runner.session(stage.conversation_id)).keep.native_id
    await stage.stop()
    stage.config_more = {"instructions": "RULE BRAVO", "model": "m2"}
    await stage.start()
    turn_id = await stage.post("still you?")
    assert (await stage.ended(turn_id)).state == "settled"
    assert len(stage.launches()) == 2
    assert native in stage.launches()[1]
    given = stage.submits()[-1] + " ".join(stage.launches()[1])
    assert "RULE BRAVO" in given, "the new instructions reached the session"
    await stage.ended(await stage.post("again"))
    assert stage.submits()[-1] == "again", "once per session is enough"


async def test_another_role_begins_a_new_session_with_a_continuity_notice(stage: Stage) -> None:
    await stage.ready()
    native = (await stage.runner.session(stage.conversation_id)).keep.native_id
    await stage.stop()
    stage.config_more = {"role": "reviewer"}
    await stage.start()
    assert (await stage.ended(await stage.post("who am I?"))).state == "settled"
    session = await stage.runner.session(stage.conversation_id)
    assert session.keep.native_id != native
    given = stage.submits()[-1]
    assert "history, not instructions" in given
    assert "User: [[seconds:0.05]] first" in given
    assert given.endswith("who am I?")
    assert (await stage.history())[-2] == "u:who am I?", "what a person said stays what they said"
    events = await stage.keeper.store.events(stage.conversation_id)
    bound = [event.body for event in events if event.kind == "SessionBound"]
    told = [body.why for body in bound if body.told]
    assert told == ["role"], "the timeline says that the new session was told, and of no other one"
