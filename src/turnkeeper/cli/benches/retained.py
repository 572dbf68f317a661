"""A coding CLI in a pane: how soon a message is in it, twenty at once, and what watching idle ones costs.

The CLI is the scripted one, in real tmux. Its own delay between paste and Enter is not ours and is left out: the time
is that from submit to the paste being handed over, with all that is stored before it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.events import ConversationRenamed, Draft
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import TurnState
from turnkeeper.retained.runner import RetainedRunner
from turnkeeper.retained.session import Session
from turnkeeper.retained.signs import Composer
from turnkeeper.terminal.tmux import own_environment
from turnkeeper.testing.bench import Row, at_most, clock, median
from turnkeeper.testing.until import until

PASTES = 40
PANES = 20
IDLE_SECONDS = 20.0
SOURCE = Path(__file__).parents[3]
WORDS = "please look at the tests and say which of them is slow"
P50_MS_MAX = 5.0
P95_MS_MAX = 20.0
IDLE_PERCENT_MAX = 1.0


async def run() -> list[Row]:
    """All of it, on one Keeper."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "home").mkdir()
        (folder / "agents.toml").write_text(_agents(folder))
        async with await Keeper.open(folder / "data", agents=folder / "agents.toml") as keeper:
            runner = keeper.runner_of("cli")
            assert isinstance(runner, RetainedRunner)
            conversations: list[str] = []
            try:
                rows = await _pasting(keeper, runner, conversations)
                rows += await _many(keeper, runner, conversations)
                rows += await _idle(runner, len(conversations))
            finally:
                for conversation_id in conversations:
                    await runner.end(conversation_id)
    return rows


def _agents(folder: Path) -> str:
    command = [sys.executable, "-m", "turnkeeper.testing.scripted_cli", "claude-code"]
    return "\n".join(
        [
            "[agents.cli]",
            'runner = "retained"',
            'cli = "claude-code"',
            f"cwd = {json.dumps(str(folder))}",
            "[agents.cli.retained]",
            f"command = {json.dumps(command)}",
            "[agents.cli.retained.env]",
            f"HOME = {json.dumps(str(folder / 'home'))}",
            f"PYTHONPATH = {json.dumps(str(SOURCE))}",
            f"TURNKEEPER_SCRIPTED_CLI = {json.dumps(json.dumps({'turn_s': 0.05}))}",
        ]
    )


async def _begin(keeper: Keeper, conversations: list[str]) -> str:
    view = await keeper.create_conversation(OPERATOR, "cli", "bench")
    conversations.append(view.conversation_id)
    return view.conversation_id


async def _submit(keeper: Keeper, conversation_id: str, key: str) -> str:
    accepted = await keeper.submit(OPERATOR, conversation_id, key=key, parts=(Text(f"{WORDS} {key}"),))
    return accepted.turn_id


async def _settled(keeper: Keeper, turn_id: str) -> None:
    async def over() -> bool:
        return (await keeper.turn(OPERATOR, turn_id)).state == TurnState.SETTLED

    await until(over, f"the end of {turn_id}", seconds=120)


async def _pasting(keeper: Keeper, runner: RetainedRunner, conversations: list[str]) -> list[Row]:
    conversation_id = await _begin(keeper, conversations)
    await _settled(keeper, await _submit(keeper, conversation_id, "warm"))
    session = await runner.session(conversation_id)
    pane: Any = session.pane
    paste = pane.paste
    stamps: list[float] = []

    async def stamped(text: str) -> Any:
        pasted = await paste(text)
        stamps.append(clock())
        return pasted

    pane.paste = stamped
    waits, commits, ours, theirs = [], [], [], []
    for number in range(PASTES):
        began = clock()
        await keeper.dispatcher.append(conversation_id, Draft(ConversationRenamed(f"n{number}")))
        commits.append(clock() - began)
        began = clock()
        turn_id = await _submit(keeper, conversation_id, f"k{number}")
        await _settled(keeper, turn_id)
        waits.append(stamps[-1] - began)
        # In a turn the text is laid ready while its note is stored; here the whole of a paste is timed.
        began = clock()
        await paste(f"{WORDS} k{number}")
        ours.append(clock() - began)
        await _emptied(session)
        theirs.append(await _three_processes(pane.identity.socket, pane.identity.pane_id))
        await _emptied(session)
    pane.paste = paste
    p50, p95 = median(waits) * 1000, statistics.quantiles(waits, n=20)[-1] * 1000
    note = f"two commits are in it; one takes {median(commits) * 1000:.1f} ms on this disk now"
    return [
        Row(
            name="submit to pasted, p50",
            value=p50,
            unit="ms",
            goal=f"≤ {P50_MS_MAX:g} ms",
            met=p50 <= P50_MS_MAX,
            note=note,
        ),
        Row(
            name="submit to pasted, p95",
            value=p95,
            unit="ms",
            goal=f"≤ {P95_MS_MAX:g} ms",
            met=p95 <= P95_MS_MAX,
        ),
        at_most(
            "one paste, verified, p50",
            median(ours) * 1000,
            "ms",
            of="three tmux processes",
            base=median(theirs) * 1000,
            limit=0.3,
        ),
    ]


async def _emptied(session: Session) -> None:
    """Clear what was pasted; the next message is not to wait for that."""
    await session.press("C-u", "C-u")

    async def empty() -> bool:
        _, reading = await session.observe()
        return reading is not None and reading.composer is Composer.EMPTY

    await until(empty, "an empty composer", seconds=20)


async def _three_processes(socket: str, pane_id: str) -> float:
    """What a paste costs with a process for each command, as tools without a control connection do it."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(WORDS.encode())
        file.flush()
        began = clock()
        for words in (
            ("load-buffer", "-b", "bench", file.name),
            ("copy-mode", "-q", "-t", pane_id),
            ("paste-buffer", "-d", "-p", "-b", "bench", "-t", pane_id),
        ):
            process = await asyncio.create_subprocess_exec(
                "tmux", "-S", socket, *words, env=own_environment(), stdin=asyncio.subprocess.DEVNULL
            )
            await process.wait()
        return clock() - began


async def _many(keeper: Keeper, runner: RetainedRunner, conversations: list[str]) -> list[Row]:
    while len(conversations) < PANES:
        await _begin(keeper, conversations)
    began = clock()
    turns = [await _submit(keeper, conversation_id, "together") for conversation_id in conversations]
    for turn_id in turns:
        await _settled(keeper, turn_id)
    seconds = clock() - began
    return [Row(name=f"{PANES} panes launched and answered at once", value=seconds, unit="s")]


async def _idle(runner: RetainedRunner, panes: int) -> list[Row]:
    """Our own process, its control clients, and the tmux servers."""
    ours = psutil.Process()
    sockets = {session.keep.pane.socket for session in runner._sessions.values() if session.keep.pane}  # noqa: SLF001
    watched = [ours, *ours.children(recursive=True), *_servers(sockets)]
    before = sum(map(_cpu, watched))
    await runner._clock.sleep(IDLE_SECONDS)  # noqa: SLF001
    percent = (sum(map(_cpu, watched)) - before) / IDLE_SECONDS * 100
    return [
        Row(
            name=f"watching {panes} idle panes, share of a core",
            value=percent,
            unit="%",
            goal=f"≤ {IDLE_PERCENT_MAX:g} %",
            met=percent <= IDLE_PERCENT_MAX,
        )
    ]


def _servers(sockets: set[str]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        words = process.info["cmdline"] or []
        if "tmux" in (process.info["name"] or "") and "-C" not in words and sockets & set(words):
            found.append(process)
    return found


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
