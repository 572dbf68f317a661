"""What a day on a real machine taught (the seed of this work), each as a behaviour of the whole in real tmux."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.retained.stage import OWNER, Stage
from turnkeeper.conversation.events import LateAnswered
from turnkeeper.terminal.tmux import run_once
from turnkeeper.testing.scripted_cli.quirks import Quirks

pytestmark = pytest.mark.tmux

Make = Callable[..., Awaitable[Stage]]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    stages: list[Stage] = []

    async def made(quirks: Quirks, cli: str = "claude-code", **more: Any) -> Stage:
        stage = await Stage(tmp_path, cli, quirks, **more).start()
        stages.append(stage)
        return stage

    yield made
    for stage in stages:
        await stage.end()


async def steps(stage: Stage, turn_id: str) -> list[str]:
    """The steps of a turn's delivery, as they were journaled."""
    events = await stage.keeper.store.events(stage.conversation_id, limit=1_000, turn_id=turn_id)
    return [str(event.body.step) for event in events if type(event.body).__name__ == "DeliveryNoted"]  # type: ignore[attr-defined]


async def test_rapid_inputs_answered_together_settle_after_the_gate_and_free_the_lane(make: Make) -> None:
    """And an execution that is over is never queued again: each text reached the CLI once."""
    stage = await make(Quirks(phantom_riders=True), scale=50.0)
    first = await stage.post("[[seconds:6]] start")
    await stage.confirmed(first)
    riders = [await stage.post(f"and {n}", mode="steer") for n in range(3)]
    for turn_id in (first, *riders):
        turn = await stage.ended(turn_id, 30)
        assert turn.state == "settled"
    reasons = [(await stage.turn(turn_id)).reason for turn_id in riders]
    assert reasons == ["answered_by_previous_response"] * 3
    assert stage.submits() == ["[[seconds:6]] start", "and 0", "and 1", "and 2"]
    after = await stage.post("is the lane free?")
    assert (await stage.ended(after)).state == "settled"


async def test_a_promoted_turn_whose_output_comes_late_is_not_settled_early(make: Make) -> None:
    """Its response takes longer than the gate, and shows work while it does."""
    stage = await make(Quirks(turn_s=1.0, answers_merged=False), scale=50.0)
    first = await stage.post("start")
    await stage.confirmed(first)
    second = await stage.post("[[seconds:4]] and this takes longer than the gate", mode="steer")
    turn = await stage.ended(second, 30)
    assert (turn.state, turn.reason) == ("settled", "answered")
    assert (await stage.history())[-1] == "a:ok [[seconds:4]] and this takes longer than the gate"


async def test_an_idle_repaint_is_no_evidence_and_the_backstop_drains(make: Make) -> None:
    """A CLI that shows itself as busy for ever would be believed; one that only repaints is not."""
    stage = await make(
        Quirks(turn_s=60, idle_repaint_s=0.05, busy_title=False, end_signal_at_s=0.2), scale=200.0
    )
    first = await stage.post("hangs")
    behind = await stage.post("[[seconds:0.05]] next")
    turn = await stage.ended(first, 30)
    assert turn.state == "failed"
    assert turn.failure is not None
    assert turn.failure["kind"] in ("backstop", "no_answer")
    assert (await stage.turn(behind)).state in ("queued", "running", "settled", "failed"), "the lane went on"
    await stage.until(lambda: _started(stage, behind), 30, "the lane is not free")


async def _started(stage: Stage, turn_id: str) -> bool:
    return (await stage.turn(turn_id)).state != "queued"


async def test_a_pane_is_dead_after_three_misses_and_not_after_one(make: Make) -> None:
    stage = await make(Quirks(), scale=5.0)
    await stage.ready()
    turn_id = await stage.post("[[tool:ls|60]] never ends")
    await stage.confirmed(turn_id)
    session = await stage.runner.session(stage.conversation_id)
    await stage.kill(signal.SIGKILL)
    await stage.until(lambda: session.look is not None and not session.look.alive, why="nobody looked")
    assert (await stage.turn(turn_id)).state == "running", "one look is no verdict"
    turn = await stage.ended(turn_id)
    assert (turn.state, turn.failure and turn.failure["kind"]) == ("failed", "pane")


async def test_an_orphaned_control_client_does_not_hide_a_dead_pane(make: Make) -> None:
    """The connection is stopped in its tracks, not closed, while the program dies."""
    stage = await make(Quirks())
    await stage.ready()
    turn_id = await stage.post("[[tool:ls|60]] never ends")
    await stage.confirmed(turn_id)
    socket = (await stage.pane()).identity.socket
    clients = (await stage.tmux("list-clients", "-F", "#{client_pid}")).split()
    for client in clients:
        os.kill(int(client), signal.SIGKILL)
    await stage.kill(signal.SIGKILL)
    turn = await stage.ended(turn_id)
    assert (turn.state, turn.failure and turn.failure["kind"]) == ("failed", "pane")
    assert (await stage.ended(await stage.post("and now?"))).state == "settled"
    assert socket == (await stage.pane()).identity.socket


async def test_a_tmux_server_that_is_killed_fails_the_turn_and_the_next_one_has_a_new_pane(
    make: Make,
) -> None:
    stage = await make(Quirks(ignores_sighup=True, children=1))
    await stage.ready()
    turn_id = await stage.post("[[tool:ls|60]] never ends")
    await stage.confirmed(turn_id)
    identity = (await stage.pane()).identity
    await run_once("tmux", "-S", identity.socket, "kill-server")
    turn = await stage.ended(turn_id)
    assert (turn.state, turn.failure and turn.failure["kind"]) == ("failed", "pane")
    assert (await stage.ended(await stage.post("and now?"))).state == "settled"
    assert not Path(f"/proc/{identity.pid}/environ").exists(), "what outlived its terminal was ended"


@pytest.mark.parametrize("cli", ["pi", "codex", "claude-code"])
async def test_a_message_that_vanished_at_enter_is_pasted_once_more_and_arrives_once(
    make: Make, cli: str
) -> None:
    """At Enter the text is gone and two blank lines are left, which nobody sees who looks at one line."""
    stage = await make(Quirks(), cli, scale=10.0)
    await stage.ready()
    stage.order(do="lose", times=1)
    turn_id = await stage.post("fix the test\n\nand say why")
    turn = await stage.ended(turn_id)
    assert (turn.state, turn.receipt.state) == ("settled", "confirmed")
    assert stage.submits()[1:] == ["fix the test\n\nand say why"]
    noted = await steps(stage, turn_id)
    assert (noted.count("paste"), noted.count("repaste")) == (2, 1)


@pytest.mark.parametrize("cli", ["codex", "claude-code"])
async def test_a_first_message_that_was_worked_at_without_a_transcript_is_not_pasted_again(
    make: Make, cli: str
) -> None:
    stage = await make(Quirks(records_nothing=True, turn_s=1.0), cli, scale=15.0)
    turn = await stage.ended(await stage.post("[[tool:ls|0.8]] once"))
    assert (turn.state, turn.failure and turn.failure["kind"]) == ("failed", "uncertain")
    assert stage.submits() == ["[[tool:ls|0.8]] once"]


async def test_a_message_that_vanishes_twice_has_failed_and_its_text_is_kept(make: Make) -> None:
    stage = await make(Quirks(record_lost_times=9), scale=30.0)
    turn_id = await stage.post("gone")
    turn = await stage.ended(turn_id, 30)
    assert (turn.state, turn.failure and turn.failure["kind"]) == ("failed", "not_submitted")
    assert (turn.receipt.state, stage.submits()) == ("failed", [])
    assert (await stage.history())[0] == "u:gone"
    assert (await stage.keeper.retry(OWNER, turn_id)).turn_id == turn_id


async def test_a_text_that_the_cli_wrote_down_otherwise_is_not_sent_again(make: Make) -> None:
    """Its own record is not recognised, but another text was taken in its place: that is no silence."""
    stage = await make(Quirks(alters_texts=True), scale=10.0)
    turn_id = await stage.post("once only")
    turn = await stage.ended(turn_id, 30)
    assert (turn.state, turn.failure and turn.failure["kind"]) == ("failed", "uncertain")
    assert stage.submits().count("once only") == 1
    assert "repaste" not in await steps(stage, turn_id)


async def test_a_failed_delivery_is_confirmed_late_by_its_record_and_its_answer_is_kept(make: Make) -> None:
    stage = await make(Quirks(record_s=5.0, turn_s=6.0, busy_title=False, end_signal_at_s=0.0), scale=30.0)
    turn_id = await stage.post("slow to write")
    turn = await stage.ended(turn_id, 30)
    assert (turn.state, turn.receipt.state) == ("failed", "uncertain")
    late = await stage.confirmed(turn_id, 30)
    assert late.receipt.evidence is not None
    assert late.receipt.evidence["via"] == "late"

    async def answered() -> bool:
        events = await stage.keeper.store.events(stage.conversation_id, limit=1_000, turn_id=turn_id)
        bodies = [event.body for event in events if isinstance(event.body, LateAnswered)]
        return [body.text for body in bodies] == ["ok slow to write"]

    await stage.until(answered, 30, "the late answer was lost")
    assert stage.submits() == ["slow to write"]
