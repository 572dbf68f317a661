"""CLIs driven in their own protocols over pipes: the same promises as in a pane, on the scripted CLI as a real process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.retained.stage import OWNER, Stage
from turnkeeper.errors import BadInput, NotPossible, ReadsAsCommand
from turnkeeper.retained.adapter import Plan
from turnkeeper.retained.structured import DIALECTS
from turnkeeper.retained.structured.dialect import HeardKind, Speech
from turnkeeper.terminal import processes
from turnkeeper.testing.scripted_cli.quirks import Quirks

CLIS = ("pi", "codex", "claude-code")


@pytest.fixture(params=CLIS)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = await Stage(tmp_path, request.param, structured=True).start()
    yield stage
    await stage.end()


async def keep(stage: Stage) -> Any:
    return (await stage.runner.session(stage.conversation_id)).keep


async def test_texts_are_taken_over_the_pipe_and_confirmed_by_the_transcript(stage: Stage) -> None:
    texts = ["hello", "one\n\n  two\nthree", "x" * 60_000, "! no shell line", "hello"]
    turns = [await stage.post(text) for text in texts]
    for turn_id in turns:
        turn = await stage.ended(turn_id)
        assert (turn.state, turn.receipt.state) == ("settled", "confirmed")
        assert turn.receipt.evidence["record"] or stage.cli == "pi"
    assert stage.submits() == texts
    assert await stage.history() == [line for text in texts for line in (f"u:{text}", f"a:ok {text}")]
    assert len(stage.launches()) == 1
    assert stage.pressed() == [], "no key was pressed"
    assert list((stage.folder / "t").glob("*")) == [], "no tmux was started"


async def test_a_steer_reaches_the_running_response_and_what_is_queued_runs_next(stage: Stage) -> None:
    first = await stage.post("[[tool:ls|1.0]] with a tool")
    await stage.confirmed(first)
    second = await stage.post("steer one", mode="steer")
    third = await stage.post("after it")
    for turn_id in (first, second, third):
        assert (await stage.ended(turn_id)).state == "settled"
    assert stage.submits() == ["[[tool:ls|1.0]] with a tool", "steer one", "after it"]
    said = await stage.history()
    assert [line for line in said if line.startswith("u:")] == [f"u:{text}" for text in stage.submits()]
    assert any("ALSO(steer one)" in line for line in said), said


async def test_a_steer_that_an_interruption_meets_in_the_queue_is_given_again_under_another_id(
    stage: Stage,
) -> None:
    first = await stage.post("[[tool:ls|60]] long")
    await stage.confirmed(first)
    await stage.until(lambda: b"ls" in _record(stage), why="the tool was not called")
    steered = await stage.post("steered", mode="steer")

    async def accepted() -> bool:
        return (await stage.turn(steered)).receipt.state == "accepted"

    await stage.until(accepted, why="the steer was not taken")
    await stage.keeper.cancel(OWNER, first, queue="continue")
    assert (await stage.ended(first)).state == "cancelled"
    assert (await stage.ended(steered)).state == "settled"
    assert (await stage.history())[-2:] == ["u:steered", "a:ok steered"]
    assert len(stage.launches()) == 1, "it was interrupted, not killed"


def _record(stage: Stage) -> bytes:
    return b"".join(path.read_bytes() for path in stage.home.rglob("*.jsonl"))


async def test_a_restart_of_the_server_ends_it_says_so_and_resumes_the_session(stage: Stage) -> None:
    await stage.ready()
    native = (await keep(stage)).native_id
    turn_id = await stage.post("[[seconds:60]] slow answer")
    await stage.confirmed(turn_id)
    pid = (await stage.pane()).identity.pid
    await stage.stop()
    assert processes.started(pid) is None, "it does not outlive the server"
    await stage.start()
    failed = await stage.ended(turn_id)
    assert (failed.state, failed.failure and failed.failure["kind"]) == ("failed", "pane")
    assert "ended with the server" in str(failed.reason)
    assert (await stage.ended(await stage.post("and now?"))).state == "settled"
    assert (await keep(stage)).native_id == native
    assert stage.submits() == ["[[seconds:0.05]] first", "[[seconds:60]] slow answer", "and now?"]


@pytest.mark.parametrize("stage", ["codex", "claude-code"], indirect=True)
async def test_what_a_killed_server_left_running_is_ended_before_the_transcript_is_read(stage: Stage) -> None:
    """The server dies between giving the text and reading its record; its CLI lives on and holds the session."""
    await stage.ready()
    left = await stage.pane()

    async def nothing() -> None:
        return None

    stage.runner.terminal.close = nothing  # type: ignore[method-assign]
    before = len(stage.submits())
    turn_id = await stage.post("[[seconds:60]] given")
    await stage.until(lambda: len(stage.submits()) > before)
    await stage.stop(grace_seconds=0.0)
    assert processes.started(left.identity.pid) is not None
    await stage.start()
    turn = await stage.ended(turn_id)
    assert processes.started(left.identity.pid) is None
    assert turn.state == "failed"
    assert stage.submits().count("[[seconds:60]] given") == 1, "its record was found: nothing was given twice"
    assert (await stage.ended(await stage.post("go on"))).state == "settled"
    await left.stop(0.2)


@pytest.mark.parametrize("stage", ["pi"], indirect=True)
async def test_what_a_killed_server_left_idle_is_ended_when_the_next_one_starts(stage: Stage) -> None:
    """Nobody may ever write to that conversation again."""
    await stage.ready()
    left = await stage.pane()

    async def nothing() -> None:
        return None

    stage.runner.terminal.close = nothing  # type: ignore[method-assign]
    await stage.stop(grace_seconds=0.0)
    assert processes.started(left.identity.pid) is not None
    await stage.start()
    assert processes.started(left.identity.pid) is None
    await left.stop(0.2)


@pytest.mark.parametrize("stage", ["pi"], indirect=True)
async def test_a_program_that_never_says_that_it_is_there_is_launched_anew_by_the_next_turn(
    stage: Stage,
) -> None:
    real = stage.config().command
    timing = replace(stage.config().timing, ready_seconds=0.1)
    stage.runner.config = replace(
        stage.config(), timing=timing, command=("/bin/sh", "-c", "read hello; read forever", "sh")
    )
    turn = await stage.ended(await stage.post("hello"))
    assert turn.failure is not None
    assert (turn.failure["kind"], "did not show" in turn.failure["sentence"]) == ("pane", True)
    session = await stage.runner.session(stage.conversation_id)
    # What was wrong is mended outside of us: the definition stays the same.
    session.config = replace(session.config, command=real, timing=stage.config().timing)
    session.keep.definition = session.config.definition_key
    session.keep.launched_at -= 1_000.0
    await stage.keeper.retry(OWNER, turn.turn_id)
    await stage.until(lambda: stage.submits() == ["hello"], why="it was not launched anew")


@pytest.mark.parametrize("stage", ["pi"], indirect=True)
async def test_killed_in_mid_tool_it_fails_its_turn_and_the_next_one_resumes(stage: Stage) -> None:
    await stage.ready()
    native = (await keep(stage)).native_id
    turn_id = await stage.post("[[tool:ls|60]] never ends")
    await stage.confirmed(turn_id)
    behind = await stage.post("and now?")
    await stage.kill(9)
    failed = await stage.ended(turn_id)
    assert (failed.state, failed.failure and failed.failure["kind"]) == ("failed", "pane")
    assert "signal 9" in str(failed.reason)
    assert (await stage.ended(behind)).state == "settled"
    assert (await keep(stage)).native_id == native
    assert (await keep(stage)).launches == 2


@pytest.mark.parametrize("stage", ["codex", "claude-code"], indirect=True)
async def test_a_session_that_is_gone_is_healed_once_with_a_notice(stage: Stage) -> None:
    await stage.ready()
    native = (await keep(stage)).native_id
    await stage.runner.restart(stage.conversation_id)
    for path in stage.home.rglob("*.jsonl"):
        path.unlink()
    assert (await stage.ended(await stage.post("who am I?"))).state == "settled"
    assert (await keep(stage)).native_id != native
    assert "history, not instructions" in stage.submits()[-1]


@pytest.mark.parametrize("stage", ["claude-code"], indirect=True)
async def test_changed_instructions_relaunch_it_on_the_same_session(stage: Stage) -> None:
    await stage.ready()
    native = (await keep(stage)).native_id
    await stage.stop()
    stage.config_more = {"structured": True, "instructions": "RULE BRAVO"}
    await stage.start()
    assert (await stage.ended(await stage.post("still you?"))).state == "settled"
    assert (await keep(stage)).native_id == native
    given = " ".join([*stage.launches()[-1], stage.submits()[-1]])
    assert "RULE BRAVO" in given


async def test_what_was_taken_and_never_recorded_is_uncertain_and_not_given_again(tmp_path: Path) -> None:
    """codex says that it has the text, and nothing more is ever heard of it."""
    stage = await Stage(tmp_path, "codex", structured=True, scale=20.0).start()
    try:
        await stage.ready()
        stage.order(do="lose", times=1)
        await stage.until(lambda: any("order" in entry for entry in stage.log()))
        turn = await stage.ended(await stage.post("vanishes"))
        assert (turn.state, turn.receipt.state) == ("failed", "uncertain")
        assert turn.failure is not None
        assert turn.failure["kind"] == "uncertain"
        assert "vanishes" not in stage.submits()
        assert (await stage.ended(await stage.post("the next"))).state == "settled"
    finally:
        await stage.end()


@pytest.mark.parametrize("cli", ["codex", "claude-code"])
@pytest.mark.parametrize(("decision", "words"), [("approve", "done"), ("deny", "want to proceed")])
async def test_a_permission_is_a_question_to_a_person_and_its_answer_goes_to_that_question(
    tmp_path: Path, cli: str, decision: str, words: str
) -> None:
    stage = await Stage(tmp_path, cli, structured=True).start()
    try:
        turn_id = await stage.post("[[ask:Bash|rm x]] may I?")

        async def asked() -> Any:
            return await stage.keeper.approvals(OWNER)

        (approval,) = await stage.until(asked, why="nobody was asked")
        assert approval["turn_id"] == turn_id, "the question is the turn's, and there is no second one"
        assert any("rm x" in line for line in approval["arguments"]["body"])
        await stage.keeper.decide_approval(OWNER, approval["approval_id"], decision)
        assert (await stage.ended(turn_id)).state == "settled"
        assert words in _record(stage).decode()
        assert len(stage.chosen()) == 1
    finally:
        await stage.end()


async def test_commands_are_refused_and_the_few_that_have_a_request_are_sent(stage: Stage) -> None:
    await stage.ready()
    if stage.cli == "claude-code":
        with pytest.raises(ReadsAsCommand):
            await stage.post("/clear")
    elif stage.cli == "pi":
        with pytest.raises(ReadsAsCommand):
            await stage.post("/skill:x now")
    with pytest.raises(BadInput):
        await stage.post("/clear", as_command=True)
    assert (await stage.ended(await stage.post("/compact", as_command=True))).state == "settled"
    assert (await stage.ended(await stage.post("after"))).state == "settled"
    assert stage.submits()[-2:] == ["/compact", "after"]


@pytest.mark.parametrize("stage", ["claude-code"], indirect=True)
async def test_it_has_no_terminal_and_says_so(stage: Stage) -> None:
    await stage.ready()
    conversation = stage.conversation_id
    state = await stage.runner.state(conversation)
    assert (state["driver"], state["state"], state["busy_source"]) == ("structured", "idle", "protocol")
    assert "first" in await stage.runner.snapshot(conversation), "what it said can be read"
    with pytest.raises(NotPossible, match="no terminal"):
        await stage.runner.take_over(conversation, "owner")
    with pytest.raises(NotPossible, match="no terminal"):
        await stage.runner.attach_command(conversation)
    with pytest.raises(NotPossible, match="no terminal"):
        await stage.runner.adopt(conversation, socket="s", pane="%1")


@pytest.mark.parametrize("stage", ["pi"], indirect=True)
async def test_a_folder_that_is_missing_fails_the_turn_with_the_reason(stage: Stage) -> None:
    stage.cwd.rmdir()
    turn = await stage.ended(await stage.post("the text"))
    assert turn.failure is not None
    assert (turn.failure["kind"], "does not exist" in turn.failure["sentence"]) == ("config", True)
    stage.cwd.mkdir()
    await stage.keeper.retry(OWNER, turn.turn_id)

    async def settled() -> bool:
        return (await stage.turn(turn.turn_id)).state == "settled"

    await stage.until(settled, why="the retry did not help")


async def test_a_program_that_does_not_speak_fails_the_turn_with_its_last_words(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "pi", Quirks(), structured=True)
    config = stage.config()
    more = {name: getattr(config, name) for name in ("agent", "cli", "cwd", "env", "timing")}
    stage.config = lambda: type(config)(  # type: ignore[method-assign]
        **more, structured=True, command=("/bin/sh", "-c", "echo unknown option --mode >&2; exit 3", "sh")
    )
    await stage.start()
    try:
        turn = await stage.ended(await stage.post("hello"))
        assert turn.failure is not None
        assert (turn.state, turn.failure["kind"]) == ("failed", "pane")
        for word in ("exit code 3", "unknown option"):
            assert word in turn.failure["sentence"], turn.failure
    finally:
        await stage.end()


# -- the captures of the real ones

CAPTURES = Path(__file__).parents[1] / "vectors" / "retained-clis" / "struct"


@pytest.mark.parametrize(
    ("cli", "file", "consumed", "asks"),
    [
        ("pi", "pi-rpc.jsonl", 4, 3),
        ("codex", "codex-appserver.jsonl", 3, 2),
        ("claude-code", "claude-sj.jsonl", 4, 3),
    ],
)
def test_captured_sessions_of_the_real_ones_are_understood(
    cli: str, file: str, consumed: int, asks: int
) -> None:
    """Each text that the capture gives is seen going to the model, and the CLI is idle at its end."""
    dialect = DIALECTS[cli]
    speech = Speech(plan=Plan(cwd="/", session_id="s"), native_id="01a22cf5-1493-7b73-902a-4758ee9b436a")
    kinds = []
    for line in (CAPTURES / file).read_text("utf-8").splitlines():
        if line.startswith("{"):
            kinds += [heard.kind for heard in dialect.heard(msgspec.json.decode(line), speech)]
    assert kinds.count(HeardKind.CONSUMED) == consumed
    moves = [kind for kind in kinds if kind in (HeardKind.BUSY, HeardKind.IDLE)]
    assert moves[-1] is HeardKind.IDLE
    changes = [kind for at, kind in enumerate(moves) if at == 0 or moves[at - 1] is not kind]
    assert changes.count(HeardKind.IDLE) >= asks - 1
    assert HeardKind.BROKEN not in kinds
