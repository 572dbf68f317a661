"""The store beside a bare durable insert on the same SQLite, and beside two peers.

All variants of one table run in turns, in one process, on one disk, with an fsync at every commit. The
peers belong to the extra `bench`; one that is not installed is said to be so.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import apsw

from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.testing.bench import Row, at_least, at_most, clock, in_turns, median
from turnkeeper.testing.conformance.script import Script

TEXT: Final = "x" * 1000
"""A message of 1 kB."""
LANES: Final = 64
ROUNDS: Final = 15
BLOCK: Final = 40
"""Operations of one variant before the next has its turn."""
SHORT, MIDDLE, LONG = 10, 1_000, 10_000
"""Lengths of conversations, in messages."""
TAIL: Final = 50

Measure = Callable[[], Awaitable[float]]


class _Bare:
    """What one durable insert costs at least: one table with (conversation, seq), one statement, no thread."""

    def __init__(self, folder: Path) -> None:
        self._connection = apsw.Connection(str(folder / "bare.db"))
        self._connection.execute("PRAGMA journal_mode = wal")
        self._connection.execute("PRAGMA synchronous = full")
        self._connection.execute(
            "CREATE TABLE message (position INTEGER PRIMARY KEY, conversation_id TEXT NOT NULL,"
            " seq INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (conversation_id, seq))"
        )
        self._cursor = self._connection.cursor()
        self._seq = 0

    def insert(self) -> None:
        self._seq += 1
        self._cursor.execute(
            "INSERT INTO message (conversation_id, seq, body) VALUES (?, ?, ?)",
            ("c_01jd7m9q3w5v8x2c4b6n1m0k9h", self._seq, f"{self._seq}{TEXT}".encode()),
        )

    def close(self) -> None:
        self._connection.close()


async def _each(times: int, do: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds of one, at the middle of `times`."""
    found = []
    for _ in range(times):
        began = clock()
        await do()
        found.append(clock() - began)
    return median(found) * 1000


class _Scripts:
    """Conversations of one store, and messages with ids that are never used twice."""

    def __init__(self, store: SQLiteStore) -> None:
        self.store = store
        self._number = 0

    async def begin(self, name: str, messages: int = 0) -> Script:
        script = Script(self.store, f"c_{name:0>26}")
        await script.create()
        await asyncio.gather(*(self.say(script) for _ in range(messages)))
        return script

    async def say(self, script: Script) -> None:
        self._number += 1
        await script.say(f"{self._number:026d}", TEXT)


async def _one_append(folder: Path) -> list[Row]:
    bare = _Bare(folder)
    store = await SQLiteStore.open(folder / "one")
    scripts = _Scripts(store)
    script = await scripts.begin("one")

    async def insert() -> None:
        bare.insert()

    found = await in_turns(
        {
            "bare": lambda: _each(BLOCK, insert),
            "ours": lambda: _each(BLOCK, lambda: scripts.say(script)),
        },
        ROUNDS,
    )
    bare.close()
    await store.close()
    base = median(found["bare"])
    return [
        Row(name="bare durable insert, p50", value=base, unit="ms"),
        at_most(
            "one append, p50", median(found["ours"]), "ms", of="bare durable insert", base=base, limit=1.3
        ),
    ]


async def _many_lanes(folder: Path) -> list[Row]:
    async def variant(name: str, **how: Any) -> tuple[SQLiteStore, Measure]:
        store = await SQLiteStore.open(folder / name, **how)
        scripts = _Scripts(store)
        lanes = [await scripts.begin(str(number)) for number in range(LANES)]

        async def lane(script: Script) -> None:
            for _ in range(5):
                await scripts.say(script)

        async def measure() -> float:
            began = clock()
            await asyncio.gather(*map(lane, lanes))
            return LANES * 5 / (clock() - began)

        return store, measure

    grouped, ours = await variant("grouped")
    alone, single = await variant("alone", group_max=1)
    found = await in_turns({"single": single, "ours": ours}, 7)
    await grouped.close()
    await alone.close()
    base = median(found["single"])
    return [
        Row(name=f"{LANES} conversations, one transaction per append", value=base, unit="appends/s"),
        at_least(
            f"{LANES} conversations at once",
            median(found["ours"]),
            "appends/s",
            of="one transaction per append",
            base=base,
            limit=4.0,
        ),
    ]


async def _growth(folder: Path) -> list[Row]:
    store = await SQLiteStore.open(folder / "growth")
    scripts = _Scripts(store)
    long = await scripts.begin("long", LONG)
    shorts = iter([await scripts.begin(f"short{number}", SHORT) for number in range(ROUNDS)])
    kept: list[Script] = []

    async def append_short() -> float:
        """A conversation of its own each time: it must not grow long."""
        kept.append(next(shorts))
        return await _each(BLOCK, lambda: scripts.say(kept[-1]))

    async def load(script: Script) -> None:
        assert len(await store.messages(script.conversation_id, limit=TAIL)) == TAIL

    found = await in_turns(
        {
            "append short": append_short,
            "append long": lambda: _each(BLOCK, lambda: scripts.say(long)),
            "load short": lambda: _each(BLOCK, lambda: load(kept[-1])),
            "load long": lambda: _each(BLOCK, lambda: load(long)),
        },
        ROUNDS,
    )
    await store.close()
    rows = []
    for what, title in (("append", "append"), ("load", f"load the last {TAIL}")):
        base = median(found[f"{what} short"])
        rows.append(Row(name=f"{title}, {SHORT} messages, p50", value=base, unit="ms"))
        rows.append(
            at_most(
                f"{title}, {LONG:,} messages, p50",
                median(found[f"{what} long"]),
                "ms",
                of=f"at {SHORT}",
                base=base,
                limit=1.5,
            )
        )
    return rows


def _agents_session(folder: Path) -> tuple[Callable[[], Awaitable[Any]], Callable[[], Awaitable[Any]]]:
    session = import_module("agents").SQLiteSession("s1", str(folder / "agents.db"))

    async def append() -> None:
        await session.add_items([{"role": "user", "content": TEXT}])

    async def load() -> None:
        await session.get_items(limit=TAIL)

    return append, load


def _langgraph_saver(folder: Path) -> tuple[Callable[[], Awaitable[Any]], Callable[[], Awaitable[Any]]]:
    sqlite3 = import_module("sqlite3")
    graph_module = import_module("langgraph.graph")
    saver_class = import_module("langgraph.checkpoint.sqlite").SqliteSaver
    human = import_module("langchain_core.messages").HumanMessage
    connection = sqlite3.connect(str(folder / "langgraph.db"), check_same_thread=False)
    builder = graph_module.StateGraph(graph_module.MessagesState)
    builder.add_node("take", lambda state: {})
    builder.add_edge(graph_module.START, "take")
    graph = builder.compile(checkpointer=saver_class(connection))
    thread = {"configurable": {"thread_id": "t1"}}

    async def append() -> None:
        graph.update_state(thread, {"messages": [human(TEXT)]}, as_node="take")

    async def load() -> None:
        graph.get_state(thread).values["messages"][-TAIL:]

    return append, load


PEERS: Final = {
    "openai-agents SQLiteSession": (_agents_session, None),
    "LangGraph SqliteSaver": (_langgraph_saver, 10.0),
}
"""Peers, and how many times as fast we mean to be."""


async def _peers(folder: Path) -> list[Row]:
    store = await SQLiteStore.open(folder / "peers")
    scripts = _Scripts(store)
    script = await scripts.begin("peers", MIDDLE)

    async def load() -> None:
        await store.messages(script.conversation_id, limit=TAIL)

    rows: list[Row] = []
    for peer, (make, goal) in PEERS.items():
        try:
            peer_append, peer_load = make(folder)
        except ImportError as error:
            rows.append(Row(name=peer, value=0.0, unit="", note=f"not installed ({error.name})"))
            continue
        for _ in range(MIDDLE):
            await peer_append()
        variants = {
            "append": (lambda: _each(5, lambda: scripts.say(script)), _measured(peer_append)),
            "load": (lambda: _each(5, load), _measured(peer_load)),
        }
        for what, (ours, theirs) in variants.items():
            found = await in_turns({"ours": ours, "theirs": theirs}, 9)
            value, base = median(found["ours"]), median(found["theirs"])
            rows.append(Row(name=f"{peer}, {what} at {MIDDLE:,} messages", value=base, unit="ms"))
            rows.append(
                Row(
                    name=f"ours, {what} at {MIDDLE:,} messages",
                    value=value,
                    unit="ms",
                    of=peer,
                    ratio=base / value,
                    goal=None if goal is None else f"≥ {goal:g}× as fast",
                    met=None if goal is None else base / value >= goal,
                )
            )
    await store.close()
    return rows


def _measured(do: Callable[[], Awaitable[Any]]) -> Measure:
    return lambda: _each(5, do)


async def run() -> list[Row]:
    """One append, many lanes at once, growth with length, peers. TURNKEEPER_BENCH_DIR names another disk."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TURNKEEPER_BENCH_DIR")) as name:
        for part in (_one_append, _many_lanes, _growth, _peers):
            folder = Path(name) / part.__name__
            folder.mkdir()
            rows += await part(folder)
    return rows
