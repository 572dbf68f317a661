"""Kill -9 at any moment, again and again, on one store: what was acknowledged is there, once, in order."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from turnkeeper.conversation.events import MessageAppended
from turnkeeper.store.sqlite import SQLiteStore

CHILD = """
import asyncio, sys
from turnkeeper.errors import Conflict
from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.store.sqlite import writer
from turnkeeper.testing.conformance.script import Script

writer.CHECKPOINT_PAGES = 40  # so that many kills fall into a checkpoint

async def lane(store, name):
    script = Script(store, name)
    found = await store.conversation(name)
    if found is None:
        await script.create()
    seq = 1 if found is None else found.last_seq
    while True:
        (event,) = await script.say(f"{name}-{seq}", "x" * 1500)
        assert event.seq == seq + 1
        seq = event.seq
        print(name, seq, flush=True)

async def main():
    store = await SQLiteStore.open(sys.argv[1])
    await asyncio.gather(*(lane(store, f"c{number}") for number in range(16)))

asyncio.run(main())
"""


async def kill_and_check(folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged: dict[str, int] = defaultdict(int)
    for _ in range(kills):
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            CHILD,
            str(folder),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert child.stdout is not None
        for _line in range(chance.randrange(1, 400)):
            name, seq = (await child.stdout.readline()).split()
            acknowledged[name.decode()] = int(seq)
        child.kill()
        whole_lines, _, _torn = (await child.stdout.read()).rpartition(b"\n")
        for line in whole_lines.splitlines():
            name, seq = line.split()
            acknowledged[name.decode()] = int(seq)
        await child.wait()
        store = await SQLiteStore.open(folder)
        assert await store.check() == ()
        for name_, seq_ in acknowledged.items():
            events = await store.events(name_, limit=1_000_000)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert len(events) >= seq_, f"{name_}: {seq_} was acknowledged, {len(events)} are there"
            assert len(events) <= seq_ + 1, "one lane has one append under way"
            ids = [
                event.body.message.message_id for event in events if isinstance(event.body, MessageAppended)
            ]
            assert ids == [f"m-{name_}-{number}" for number in range(1, len(events))]
        await store.close()


async def test_a_store_that_is_killed_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    await kill_and_check(tmp_path / "data", kills=4, seed=1)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(5))
async def test_a_store_that_is_killed_very_often_keeps_what_it_acknowledged(
    tmp_path: Path, seed: int
) -> None:
    await kill_and_check(tmp_path / "data", kills=20, seed=seed)
