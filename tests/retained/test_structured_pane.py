"""A program on pipes that misbehaves: a few lines of shell where the runner expects a CLI."""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from turnkeeper.app.system import SystemClock
from turnkeeper.errors import NotTaken
from turnkeeper.retained.adapter import Plan
from turnkeeper.retained.signs import SignKind
from turnkeeper.retained.structured import claude_code, codex, pi
from turnkeeper.retained.structured.dialect import Dialect, HeardKind, Speech
from turnkeeper.retained.structured.pane import StructuredPane, StructuredTerminal
from turnkeeper.terminal import processes
from turnkeeper.terminal.pane import Launch
from turnkeeper.testing.until import until

READY = """read hello
echo '{"type":"response","id":"hello","success":true,"data":{"sessionId":"s"}}'
"""
QUESTION = '{"type":"extension_ui_request","id":"q","method":"confirm","title":"Sure?","timeout":5000}'


class HandClock(SystemClock):
    """Time that stands until it is moved."""

    time = 1_800_000_000.0

    def now(self) -> float:
        return self.time


Open = Callable[[str], Awaitable[StructuredPane]]


@pytest.fixture
async def open_pi(tmp_path: Path) -> AsyncIterator[Open]:
    terminal = StructuredTerminal(pi, SystemClock())

    async def open_with(script: str) -> StructuredPane:
        launch = Launch(
            argv=("/bin/sh", "-c", script, "sh"),
            cwd=str(tmp_path),
            env={"PATH": "/usr/bin:/bin"},
            mark=uuid.uuid4().hex,
        )
        pane = await terminal.open("c", launch)
        await pane.begin(Plan(cwd=str(tmp_path)))
        return pane

    yield open_with
    await terminal.close()


async def ready(pane: StructuredPane) -> None:
    await until(lambda: pane.ready, "the program to be ready")


@pytest.mark.parametrize(
    "row",
    [
        '{"type":"response","id":"x","success":true,"data":7}',
        '{"type":"message_end","message":"no object"}',
        '{"type":"extension_ui_request","method":"select","options":5}',
        "[" * 100_000,
        "no json",
        '{"type":"agent_start"',
        "7",
        "\xff\xfe",
    ],
    ids=["data", "message", "options", "deep", "words", "torn", "number", "bytes"],
)
async def test_a_row_of_another_shape_silences_nothing_that_follows(
    open_pi: Open, tmp_path: Path, row: str
) -> None:
    (tmp_path / "row").write_bytes(row.encode("latin-1") + b"\n")
    pane = await open_pi(f"cat row\n{READY}read forever")
    await ready(pane)
    assert pane.native_id == "s"
    assert (await pane.look()).alive


async def test_a_line_that_is_too_long_is_passed_over(open_pi: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnkeeper.terminal.pipes.LINE_BYTES_MAX", 1_000_000)
    filler = "'{\"type\":\"' + 'x' * 5_000_000 + '\"}'"
    pane = await open_pi(f'{sys.executable} -c "print({filler!r} and {filler})"\n{READY}read forever')
    await ready(pane)
    assert sum(map(len, pane._log)) < 10_000


async def test_last_words_without_a_line_end_are_kept(open_pi: Open) -> None:
    pane = await open_pi("printf 'fatal: out of luck'; exit 3")

    async def dead() -> bool:
        return not (await pane.look()).alive

    await until(dead, "the end of the program")
    await until(lambda: "! fatal: out of luck" in pane._log, "its last words")
    assert (await pane.look()).exit_code == 3


async def test_a_program_that_closes_its_output_is_heard_no_more_and_is_ended(
    open_pi: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnkeeper.retained.structured.pane.CLOSED_SECONDS", 0.05)
    pane = await open_pi(f"{READY}exec >&-\nread forever; read forever")
    await ready(pane)

    async def dead() -> bool:
        return not (await pane.look()).alive

    await until(dead, "the end of a program that nobody hears")
    assert processes.started(pane.identity.pid) is None


async def test_a_text_that_was_never_answered_for_reaches_nobody_later(
    open_pi: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It lies in the pipe: there is no composer that could be emptied, so the program is ended."""
    monkeypatch.setattr("turnkeeper.retained.structured.pane.TAKE_SECONDS", 0.05)
    pane = await open_pi(
        f"{READY}while [ ! -e go ]; do sleep 0.05; done; read text; echo taken > late; read forever"
    )
    await ready(pane)
    await pane.paste("hello")
    assert await pane.submit("id") == ""
    await pane.abandon()
    assert not (await pane.look()).alive
    (tmp_path / "go").touch()
    assert processes.tree(pane.identity.pid, pane.identity.started, pane.identity.mark) == []
    assert not (tmp_path / "late").exists()


async def test_a_text_that_was_only_laid_ready_is_forgotten_and_the_program_lives(open_pi: Open) -> None:
    pane = await open_pi(f"{READY}read forever")
    await ready(pane)
    await pane.paste("hello")
    pane.discard()
    await pane.abandon()
    assert (await pane.look()).alive


async def test_a_word_that_comes_late_is_still_the_programs_word(
    open_pi: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("turnkeeper.retained.structured.pane.TAKE_SECONDS", 0.05)
    answer = '{"type":"response","id":"id","command":"prompt","success":true}'
    pane = await open_pi(
        f"{READY}read text; while [ ! -e go ]; do sleep 0.02; done; echo '{answer}'; read forever"
    )
    await ready(pane)
    await pane.paste("hello")
    assert await pane.submit("id") == ""
    assert pane.signs() == []
    (tmp_path / "go").touch()
    signs = await until(pane.signs, "the late word")
    assert [(sign.kind, sign.text, sign.given_id) for sign in signs] == [(SignKind.QUEUED, "hello", "id")]


async def test_a_text_that_is_dropped_before_it_was_taken_was_not_taken(open_pi: Open) -> None:
    cleared = '{"type":"response","command":"clear_queue","success":true,"data":{"steering":["hello"]}}'
    pane = await open_pi(f"{READY}read text; echo '{cleared}'; read forever")
    await ready(pane)
    await pane.paste("hello")
    with pytest.raises(NotTaken, match="dropped"):
        await pane.submit("id")
    assert pane.signs() == []


async def test_a_question_that_the_program_has_answered_itself_stands_no_longer(tmp_path: Path) -> None:
    clock = HandClock()
    terminal = StructuredTerminal(pi, clock)
    script = f"{READY}echo '{QUESTION}'; read answer; echo $answer > answer; read forever"
    launch = Launch(
        argv=("/bin/sh", "-c", script, "sh"),
        cwd=str(tmp_path),
        env={"PATH": "/usr/bin:/bin"},
        mark=uuid.uuid4().hex,
    )
    pane = await terminal.open("c", launch)
    try:
        await pane.begin(Plan(cwd="/"))
        await until(lambda: pane.reading().block is not None, "the question")
        clock.time += 4.9
        block = pane.reading().block
        assert block is not None
        assert block.menu is not None
        clock.time += 0.2
        assert pane.reading().block is None
        assert not await pane.choose(block.menu, 0), "it is answered late: nothing is written"
        assert not (tmp_path / "answer").exists()
    finally:
        await terminal.close()


# -- what the dialects make of single rows


def heard(dialect: Dialect, row: object, speech: Speech) -> list[HeardKind]:
    assert isinstance(row, dict)
    return [one.kind for one in dialect.heard(row, speech) if one.kind is not HeardKind.SAID]


@pytest.mark.parametrize("state", ["discarded", "refused"])
def test_a_text_that_claude_refuses_after_all_leaves_it_idle(state: str) -> None:
    speech = Speech(plan=Plan(cwd="/"))
    row = {"type": "command_lifecycle", "command_uuid": "u"}
    assert heard(claude_code, {**row, "state": "queued"}, speech) == [HeardKind.BUSY, HeardKind.TOOK]
    assert heard(claude_code, {**row, "state": state}, speech) == [HeardKind.REFUSED, HeardKind.IDLE]


@pytest.mark.parametrize("error", [{"code": 1, "message": ""}, {}, "no", {"code": 1}])
def test_an_error_without_words_is_an_error(error: object) -> None:
    speech = Speech(plan=Plan(cwd="/"))
    asked = speech.ask("given")
    assert heard(codex, {"id": asked, "error": error}, speech) == [HeardKind.REFUSED]


def test_a_question_of_another_thread_of_codex_is_a_question() -> None:
    """An agent that codex has begun asks on a thread of its own, and holds the first one until it is answered."""
    speech = Speech(plan=Plan(cwd="/"), native_id="main")
    params = {"threadId": "another", "command": "rm x"}
    row = {"id": 7, "method": "item/commandExecution/requestApproval", "params": params}
    assert heard(codex, row, speech) == [HeardKind.ASKED]
