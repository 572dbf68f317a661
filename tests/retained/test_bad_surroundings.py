"""What is wrong around a CLI: the turn says what, its text is kept, the lane is free, and mending it is enough."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.retained.stage import OWNER, Stage
from turnkeeper.errors import CannotStart
from turnkeeper.terminal.tmux import Tmux
from turnkeeper.testing.scripted_cli.quirks import Quirks

pytestmark = pytest.mark.tmux


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = await Stage(tmp_path, "claude-code", Quirks(turn_s=0.1)).start()
    yield stage
    await stage.end()


async def refused(stage: Stage, kind: str, *words: str) -> str:
    """A turn fails so; its text is in history, and nothing runs any more."""
    turn_id = await stage.post("the text")
    turn = await stage.ended(turn_id)
    assert turn.failure is not None
    assert (turn.state, turn.failure["kind"]) == ("failed", kind), turn.failure
    for word in words:
        assert word in turn.failure["sentence"], turn.failure["sentence"]
    assert (await stage.history())[0] == "u:the text"
    assert (await stage.keeper.conversation(OWNER, stage.conversation_id)).running is None
    return turn_id


async def mended(stage: Stage, turn_id: str) -> None:
    """The same turn, retried, is answered."""
    await stage.keeper.retry(OWNER, turn_id)

    async def settled() -> bool:
        return (await stage.turn(turn_id)).state == "settled"

    await stage.until(settled, why="the retry did not help")
    assert stage.submits()[-1] == "the text"


def configured(stage: Stage, **changed: Any) -> None:
    """Another configuration, from the next turn on."""
    stage.runner.config = replace(stage.runner.config, **changed)
    stage.runner._sessions.clear()


async def test_no_tmux(stage: Stage) -> None:
    real = stage.runner.terminal
    stage.runner.terminal = Tmux(stage.folder / "t", tmux="no-such-tmux")
    turn_id = await refused(stage, "terminal", "tmux", "not installed")
    stage.runner.terminal = real
    stage.runner._sessions.clear()
    await mended(stage, turn_id)


async def test_a_tmux_that_is_too_old(stage: Stage) -> None:
    old = stage.folder / "old-tmux"
    old.write_text("#!/bin/sh\necho tmux 2.9a\n")
    old.chmod(0o755)
    stage.runner.terminal = Tmux(stage.folder / "t", tmux=str(old))
    await refused(stage, "terminal", "3.2", "2.9a")
    stage.runner.terminal = stage.terminal


async def test_a_cli_that_is_not_installed(stage: Stage) -> None:
    real = stage.runner.config.command
    configured(stage, command=("no-such-cli",))
    turn_id = await refused(stage, "config", "no-such-cli")
    configured(stage, command=real)
    await mended(stage, turn_id)


async def test_a_cli_that_ends_at_once(stage: Stage) -> None:
    configured(stage, command=("/bin/sh", "-c", "echo unexpected version 0.1; exit 3", "sh"))
    await refused(stage, "pane", "exit code 3", "unexpected version 0.1")


async def test_a_cli_that_nobody_is_signed_in_to(stage: Stage) -> None:
    real = stage.runner.config.command
    configured(stage, command=("/bin/sh", "-c", "echo Not logged in. Please run /login; exit 1", "sh"))
    turn_id = await refused(stage, "credentials", "signed in")
    # Somebody signs in: only what the CLI finds has changed.
    configured(stage, command=real)
    await mended(stage, turn_id)


async def test_a_folder_that_is_missing_and_comes_back(stage: Stage) -> None:
    stage.cwd.rmdir()
    turn_id = await refused(stage, "config", str(stage.cwd), "does not exist")
    stage.cwd.mkdir()
    await mended(stage, turn_id)


async def test_a_folder_that_is_a_file(stage: Stage) -> None:
    stage.cwd.rmdir()
    stage.cwd.write_text("")
    await refused(stage, "config", "not a folder")


@pytest.mark.parametrize("cli", ["claude-code", "codex", "pi"])
async def test_a_folder_that_is_a_link_is_as_good_as_any(tmp_path: Path, cli: str) -> None:
    """A CLI writes down where it is, not by which link it came there."""
    stage = await Stage(tmp_path, cli, Quirks(turn_s=0.1)).start()
    try:
        real = stage.folder / "elsewhere"
        stage.cwd.rename(real)
        stage.cwd.symlink_to(real)
        turn = await stage.ended(await stage.post("the text"))
        assert (turn.state, turn.receipt.state) == ("settled", "confirmed")
    finally:
        await stage.end()


async def test_a_folder_that_was_moved_away_under_a_running_cli_and_comes_back(stage: Stage) -> None:
    """The CLI goes on in it, wherever it lies now; a new process needs it where the agent says."""
    await stage.ready()
    moved = stage.folder / "moved"
    stage.cwd.rename(moved)
    assert (await stage.ended(await stage.post("still there?"))).state == "settled"
    await stage.runner.restart(stage.conversation_id)
    turn_id = await stage.post("the text")
    turn = await stage.ended(turn_id)
    assert turn.failure is not None
    assert (turn.failure["kind"], "does not exist" in turn.failure["sentence"]) == ("config", True)
    moved.rename(stage.cwd)
    await mended(stage, turn_id)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
async def test_a_folder_that_may_not_be_entered(stage: Stage) -> None:
    stage.cwd.chmod(0o000)
    try:
        await refused(stage, "config", str(stage.cwd), "may not be entered")
    finally:
        stage.cwd.chmod(0o755)


async def test_a_folder_that_is_read_only_is_the_clis_own_matter(stage: Stage) -> None:
    """A CLI may read and answer in it; what it may not write it says itself, in the turn."""
    stage.cwd.chmod(0o555)
    try:
        assert (await stage.ended(await stage.post("the text"))).state == "settled"
    finally:
        stage.cwd.chmod(0o755)


@pytest.mark.parametrize("what", ["the text for tmux", "the files of a launch"])
async def test_no_space_for(stage: Stage, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if what == "the text for tmux":
        monkeypatch.setattr("turnkeeper.terminal.tmux.write_private", full)
        turn_id = await refused(stage, "pane", "could not be handed over", "No space left")
    else:
        configured(stage, mcp={"s": {"command": "x"}})
        monkeypatch.setattr(Path, "write_text", full)
        turn_id = await refused(stage, "disk", "could not be written", "No space left")
    monkeypatch.undo()
    await mended(stage, turn_id)


async def test_a_version_that_does_not_know_our_arguments_says_so_in_the_turn(stage: Stage) -> None:
    configured(
        stage, command=("/bin/sh", "-c", "echo \"error: unknown option '--session-id'\" >&2; exit 1", "sh")
    )
    await refused(stage, "pane", "exit code 1", "unknown option '--session-id'")


async def test_a_folder_for_sockets_that_cannot_be_used(stage: Stage) -> None:
    place = stage.folder / "a-file"
    place.write_text("")
    stage.runner.terminal = Tmux(place)
    await refused(stage, "terminal", "cannot be used")
    stage.runner.terminal = stage.terminal


async def test_a_look_at_the_pane_is_no_turn_that_hinders_an_adoption(stage: Stage) -> None:
    await stage.ready()
    socket = (await stage.pane()).identity.socket
    session = await stage.runner.session(stage.conversation_id)
    async with session.lock:
        adopting = asyncio.ensure_future(
            stage.runner.adopt(stage.conversation_id, socket=socket, pane="%999")
        )
        await asyncio.wait({adopting}, timeout=0.05)
        assert not adopting.done(), "it waits until the look is over"
    with pytest.raises(CannotStart, match="no pane"):
        await adopting


async def test_a_pane_that_another_server_drives_is_not_adopted(stage: Stage) -> None:
    """Two servers on one data folder are refused by the store; here it is a pane that both were asked to adopt."""
    await stage.ready()
    identity = (await stage.pane()).identity
    ours, theirs = Tmux(stage.folder / "one"), Tmux(stage.folder / "two")
    try:
        await ours.adopt(identity.socket, identity.pane_id, "ours")
        with pytest.raises(CannotStart, match="another Turnkeeper"):
            await theirs.adopt(identity.socket, identity.pane_id, "theirs")
    finally:
        await ours.close()
        await theirs.close()
