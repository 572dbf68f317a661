"""How fast transcripts are read, followed, merged and found, each beside the least that it could cost.

The sessions are made as Claude Code writes them: a turn is a prompt, rounds of thinking, narration, a tool call and
its result (the bulk of every real file, written twice), and an answer. A file of a gigabyte is sparse in its middle,
which nothing that is measured ever reads.
"""

from __future__ import annotations

import gc
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from turnkeeper.history.reconcile import Ours, Theirs, reconcile
from turnkeeper.testing.bench import Row, at_least, at_most, clock, median
from turnkeeper.transcript.find import LOOK_BYTES, find
from turnkeeper.transcript.formats import reader
from turnkeeper.transcript.place import Roots

MB: Final = 1024 * 1024
REPETITIONS: Final = 5
SESSIONS: Final = 5_000
REPEATS: Final = 0.85
OURS_LACK, THEIRS_LACK = 0.10, 0.05
SHORT: Final = ("yes", "continue", "ok", "go on", "do it", "and now?", "looks good", "next")
WORDS: Final = (
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "lazy",
    "dog",
    "while",
    "rain",
    "in",
    "plain",
)


def lines(chance: random.Random, session: str) -> Iterator[bytes]:
    """The rows of one session without an end."""
    number = 0
    parent: str | None = None

    def row(kind: str, **more: Any) -> bytes:
        nonlocal number, parent
        number += 1
        own = f"{session}-{number:08d}"
        made = {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/ana/demo",
            "sessionId": session,
            "version": "2.1.290",
            "gitBranch": "main",
            "type": kind,
            "uuid": own,
            "timestamp": f"2026-09-30T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000Z",
            **more,
        }
        parent = own
        return json.dumps(made, separators=(",", ":")).encode() + b"\n"

    def say(count: int) -> str:
        return " ".join(chance.choices(WORDS, k=count))

    def block(content: dict[str, Any], stop: str | None) -> bytes:
        message = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [content],
            "stop_reason": stop,
            "usage": {"input_tokens": 10, "output_tokens": 20},
        }
        return row("assistant", message=message)

    while True:
        prompt = {"role": "user", "content": say(40)}
        yield row("user", message=prompt, promptSource="typed", origin={"kind": "human"})
        for _ in range(chance.randint(1, 4)):
            call = f"toolu_{session}_{number}"
            yield block({"type": "thinking", "thinking": say(60), "signature": "s" * 200}, None)
            yield block({"type": "text", "text": say(20)}, None)
            yield block(
                {"type": "tool_use", "id": call, "name": "Read", "input": {"path": say(4)}}, "tool_use"
            )
            found = "\n".join(say(12) for _ in range(chance.randint(5, 60)))
            result = {"tool_use_id": call, "type": "tool_result", "content": found}
            answer = {"role": "user", "content": [result]}
            yield row("user", message=answer, toolUseResult={"stdout": found, "interrupted": False})
        yield block({"type": "text", "text": say(120)}, "end_turn")


def write(path: Path, size: int, *, seed: int = 1) -> None:
    """A session of about `size` bytes."""
    chance = random.Random(seed)  # noqa: S311 - a corpus, no secret
    written = 0
    with path.open("wb") as file:
        for line in lines(chance, path.stem):
            written += file.write(line)
            if written >= size:
                return


def _timed(work: Callable[[], object]) -> float:
    gc.collect()
    begun = clock()
    work()
    return (clock() - begun) * 1000


async def run() -> list[Row]:
    """The table."""
    with TemporaryDirectory(prefix="bench-transcript-") as folder:
        root = Path(folder)
        return [*_read(root), *_tail(root), *_merge(), *_find(root)]


def _read(root: Path) -> list[Row]:
    import orjson

    path = root / "read.jsonl"
    write(path, 100 * MB)

    def parse() -> None:
        loads = orjson.loads
        with path.open("rb") as file:
            for line in file:
                loads(line)

    claude = reader("claude-code")
    times: dict[str, list[float]] = {"parse": [], "read": []}
    for _ in range(REPETITIONS):
        times["parse"].append(_timed(parse))
        times["read"].append(_timed(lambda: claude.read(path)))
    base, read = median(times["parse"]), median(times["read"])
    size = path.stat().st_size / MB
    # As speeds, so that the goal reads as it is set.
    return [
        Row(name=f"orjson.loads of every line, {size:.0f} MB", value=size / base * 1000, unit="MB/s"),
        at_least(
            "read into the conversation",
            size / read * 1000,
            "MB/s",
            of="orjson.loads",
            base=size / base * 1000,
            limit=0.9,
        ),
    ]


def _tail(root: Path) -> list[Row]:
    claude = reader("claude-code")
    line = next(lines(random.Random(2), "tail"))  # noqa: S311 - a corpus, no secret
    times: dict[int, list[float]] = {}
    places = {}
    for size in (100 * MB, 1000 * MB):
        path = root / f"tail-{size}.jsonl"
        write(path, MB)
        os.truncate(path, size)
        with path.open("ab") as file:
            file.write(b"\n" + line)
        places[size] = (path, claude.at_end(path))
        times[size] = []
    for _ in range(200):
        for size, (path, cursor) in places.items():
            with path.open("ab") as file:
                file.write(line)
            begun = clock()
            tail = claude.tail(path, cursor)
            times[size].append((clock() - begun) * 1000)
            assert len(tail.rows) == 1
            assert not tail.reset
            places[size] = (path, tail.cursor)
    small, large = median(times[100 * MB]), median(times[1000 * MB])
    return [
        at_most("tail of one new record at 100 MB", small, "ms", of="1 ms", base=1.0, limit=1),
        at_most("tail of one new record at 1 GB", large, "ms", of="at 100 MB", base=small, limit=1.3),
    ]


def dialogue(
    count: int, *, ids: float, seed: int = 1
) -> tuple[list[Ours], list[Theirs], set[tuple[int, int]]]:
    """Two accounts of one dialogue of which rows are missing at random on both sides, and which rows are one."""
    chance = random.Random(seed)  # noqa: S311 - a corpus, no secret
    ours: list[Ours] = []
    theirs: list[Theirs] = []
    truth: set[tuple[int, int]] = set()
    for number in range(count):
        role = "user" if number % 2 == 0 else "assistant"
        text = (
            chance.choice(SHORT)
            if chance.random() < REPEATS
            else f"{number}: {' '.join(chance.choices(WORDS, k=8))}"
        )
        native = f"n{number}" if chance.random() < ids else None
        here, there = chance.random() >= OURS_LACK, chance.random() >= THEIRS_LACK
        if here and there:
            truth.add((len(ours), len(theirs)))
        if here:
            ours.append(Ours(f"m{number}", role, text, (native,) if native else ()))
        if there:
            theirs.append(Theirs(native, role, text))
    return ours, theirs, truth


def _merge() -> list[Row]:
    rows: list[Row] = []
    for ids, limit, name in ((1.0, 20, "native ids"), (0.0, 60, "words alone")):
        times: dict[str, list[float]] = {"pass": [], "10": [], "20": []}
        ours, theirs, truth = dialogue(10_000, ids=ids)
        more_ours, more_theirs, _ = dialogue(20_000, ids=ids)
        for _ in range(REPETITIONS):
            times["pass"].append(_timed(lambda o=ours, t=theirs: [(r.role, r.text) for r in (*o, *t)]))  # type: ignore[misc]
            times["10"].append(_timed(lambda o=ours, t=theirs: reconcile(o, t)))  # type: ignore[misc]
            times["20"].append(_timed(lambda o=more_ours, t=more_theirs: reconcile(o, t)))  # type: ignore[misc]
        merged = reconcile(ours, theirs)
        wrong = {(pair.ours, pair.theirs) for pair in merged.pairs} ^ truth
        if ids == 1.0:
            assert not wrong, "exact where every row has an id"
        base = median(times["pass"])
        note = f"{len(wrong)} of {len(truth)} pairs are others than in truth, {merged.ambiguous} are marked ambiguous"
        rows += [
            Row(name=f"one pass over both lists of 10,000, {name}", value=base, unit="ms"),
            at_most(
                f"merge by {name}: {note}", median(times["10"]), "ms", of="one pass", base=base, limit=limit
            ),
            at_most(
                "the same with 20,000",
                median(times["20"]),
                "ms",
                of="10,000",
                base=median(times["10"]),
                limit=2.5,
            ),
        ]
    return rows


def _find(root: Path) -> list[Row]:
    """Many names for a few files: what is read of each is in the page cache either way."""
    home = root / "home"
    models = []
    for number in range(20):
        model = root / f"model-{number}.jsonl"
        write(model, (20 + 20 * number) * 1024, seed=number)
        with model.open("ab") as file:  # as the CLI ends a session
            file.write(b'{"type":"ai-title","aiTitle":"Looks at a number of files","sessionId":"s"}\n')
            file.write(b'{"type":"last-prompt","lastPrompt":"and now?","sessionId":"s"}\n')
        models.append(model)
    paths = []
    for number in range(SESSIONS):
        folder = home / ".claude" / "projects" / f"-home-ana-{number // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number:08x}-0000-4000-8000-000000000000.jsonl"
        os.link(models[number % len(models)], path)
        paths.append(path)

    def ends() -> None:
        for path in paths:
            with path.open("rb") as file:
                file.read(LOOK_BYTES)
                size = os.fstat(file.fileno()).st_size
                file.seek(max(LOOK_BYTES, size - LOOK_BYTES))
                file.read(LOOK_BYTES)

    where = Roots(home=home)
    assert sum(1 for _ in find(where, names=("claude-code",))) == SESSIONS
    times: dict[str, list[float]] = {"ends": [], "find": []}
    for _ in range(3):
        times["ends"].append(_timed(ends))
        times["find"].append(_timed(lambda: list(find(where, names=("claude-code",)))))
    base = median(times["ends"])
    return [
        Row(name=f"reading the first and last 64 kB of {SESSIONS:,} files", value=base, unit="ms"),
        at_most("find", median(times["find"]), "ms", of="reading them", base=base, limit=3),
    ]
