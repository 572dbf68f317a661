"""From submit to the runner: on an idle lane promotion and lease belong in the accepting commit."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.events import ConversationRenamed, Draft
from turnkeeper.conversation.parts import Text
from turnkeeper.testing.bench import Row, clock, median

TIMES = 300


class _Stamping:
    """Notes when a turn reached it."""

    def __init__(self) -> None:
        self.reached: dict[str, float] = {}
        self.ended = asyncio.Event()

    async def run(self, turn: Any) -> Any:
        from turnkeeper.port.runner import Answered

        self.reached[turn.offer.turn.turn_id] = clock()
        self.ended.set()
        return Answered()

    async def close(self) -> None:
        return


async def run() -> list[Row]:
    """One commit's time beside submit -> runner start, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        runner = _Stamping()
        async with await Keeper.open(folder, runners={"bench": runner}) as keeper:
            commits: list[float] = []
            starts: list[float] = []
            for number in range(TIMES):
                view = await keeper.create_conversation(OPERATOR, "bench", "bench")
                began = clock()
                await keeper.dispatcher.append(view.conversation_id, Draft(ConversationRenamed(f"n{number}")))
                commits.append(clock() - began)
                runner.ended.clear()
                began = clock()
                accepted = await keeper.submit(
                    OPERATOR, view.conversation_id, key="k", parts=(Text("hello"),)
                )
                await runner.ended.wait()
                starts.append(runner.reached[accepted.turn_id] - began)
    commit, start = median(commits) * 1000, median(starts) * 1000
    return [
        Row(name="one commit, p50", value=commit, unit="ms"),
        Row(
            name="submit to runner start on an idle lane, p50",
            value=start,
            unit="ms",
            of="one commit",
            ratio=start / commit,
            goal="≤ one commit + 1 ms",
            met=start <= commit + 1.0,
        ),
    ]
