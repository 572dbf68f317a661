"""How fast a feed is built: whole, beside `json.dumps` of the same request, and for one more round.

The corpus is a conversation of tool rounds, about 600 bytes a message, of which one row in a hundred is sick in
one of the ways that reports tell of. Hints and first numbers: the feasibility notes, section 1.
"""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Part, Text, ToolCall, ToolResult
from turnkeeper.foreign.doctor import examine_path, heal_path
from turnkeeper.history.builder import FeedBuilder
from turnkeeper.history.feed import build_feed
from turnkeeper.history.row import Row as FeedRow
from turnkeeper.history.row import Run
from turnkeeper.history.rules import run_once
from turnkeeper.provider.dialects import dialect_named
from turnkeeper.testing.bench import Row, at_most, clock, median

ORIGIN = Origin("anthropic", "claude-x")
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "while",
    "the",
    "rain",
    "in",
    "the",
    "plain",
    "stays",
    "mainly",
    "and",
]
SICK_SHARE = 0.013
REPETITIONS = 7


def make_corpus(
    count: int, *, bytes_each: int = 600, sick: float = SICK_SHARE, seed: int = 1
) -> list[Message]:
    """`count` messages of tool rounds: a question, two rounds of calls, an answer."""
    chance = random.Random(seed)  # noqa: S311 - a corpus, no secret
    words = bytes_each // 6
    messages: list[Message] = []

    def add(role: str, *parts: Part, **fields: Any) -> None:
        number = len(messages)
        messages.append(
            Message(
                message_id=f"m_{number:08d}",
                role=role,
                parts=parts,
                created_at=1_700_000_000.0 + number,
                seq=number + 1,
                turn_id=f"t_{number // 6}",
                round=number % 6,
                **fields,
            )
        )

    def say() -> str:
        return " ".join(chance.choices(WORDS, k=words))

    while len(messages) < count:
        first, second = f"call_{len(messages)}", f"call_{len(messages)}b"
        add("user", Text(say()))
        for call_id in (first, second):
            if chance.random() < sick:
                add(
                    "assistant",
                    Text(""),
                    Text(say()),
                    ToolCall(call_id, "run", {"q": "x", "n": 7}),
                    origin=ORIGIN,
                )
            else:
                add("assistant", Text(say()), ToolCall(call_id, "run", {"q": "x", "n": 7}), origin=ORIGIN)
            if chance.random() < sick:
                add("user", Text("steer"))
            add("tool", ToolResult(call_id, "" if chance.random() < sick else say()))
        if chance.random() < sick:
            add("assistant", Text(say()), origin=ORIGIN, standing="errored", replay=False)
        add("assistant", Text(say()), origin=ORIGIN)
    return messages[:count]


def _timed(work: Callable[[], object]) -> float:
    gc.collect()
    begun = clock()
    work()
    return (clock() - begun) * 1000


async def run() -> list[Row]:
    """The table."""
    return [*_whole(), *_one_more_round(), *_doctor()]


def _whole() -> list[Row]:
    corpus = make_corpus(10_000)
    dialect = dialect_named("anthropic")
    body = dialect.encode(build_feed(corpus).messages, origin=ORIGIN).body

    def once() -> object:
        rows = [FeedRow(message, (message.message_id,)) for message in corpus]
        return dialect.encode([row.message for row in run_once(rows, Run())], origin=ORIGIN)

    def whole() -> object:
        encoded = dialect.encode(build_feed(corpus).messages, origin=ORIGIN)
        assert dialect.validate(encoded.body) == ()
        return encoded

    found: dict[str, list[float]] = {"dumps": [], "once": [], "whole": []}
    for _ in range(REPETITIONS):
        found["dumps"].append(_timed(lambda: json.dumps(body)))
        found["once"].append(_timed(once))
        found["whole"].append(_timed(whole))
    base = median(found["dumps"])
    size = len(json.dumps(body)) / len(corpus)
    return [
        Row(name=f"json.dumps of the request, 10,000 messages of {size:.0f} B", value=base, unit="ms"),
        at_most(
            "feed: one pass of the rules, encoded",
            median(found["once"]),
            "ms",
            of="json.dumps",
            base=base,
            limit=2,
        ),
        at_most(
            "feed: fixed point, encoded and validated",
            median(found["whole"]),
            "ms",
            of="json.dumps",
            base=base,
            limit=4,
        ),
    ]


def _one_more_round() -> list[Row]:
    times: dict[int, list[float]] = {100: [], 1_000: [], 10_000: []}
    builders = {count: FeedBuilder(make_corpus(count - count % 6, sick=0.0)) for count in times}
    number = 0
    for _ in range(200):
        for count, builder in builders.items():
            number += 1
            exchange = [
                Message(message_id=f"u{number}", role="user", parts=(Text("and now?"),)),
                Message(
                    message_id=f"a{number}",
                    role="assistant",
                    parts=(Text("I look."), ToolCall(f"x{number}", "run", {"q": "x"})),
                    origin=ORIGIN,
                ),
                Message(message_id=f"r{number}", role="tool", parts=(ToolResult(f"x{number}", "one row"),)),
            ]
            begun = clock()
            builder.extend(exchange)
            builder.feed()
            times[count].append((clock() - begun) * 1000)
            builder.extend(
                [Message(message_id=f"e{number}", role="assistant", parts=(Text("Done."),), origin=ORIGIN)]
            )
    base = median(times[100])
    return [
        Row(name="next round's feed after one more exchange, 100 messages", value=base, unit="ms"),
        at_most("the same at 1,000 messages", median(times[1_000]), "ms", of="at 100", base=base, limit=2),
        at_most("the same at 10,000 messages", median(times[10_000]), "ms", of="at 100", base=base, limit=2),
    ]


def stored(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages as another program keeps them: a list for the Anthropic API, sick rows as they are."""
    rows: list[dict[str, Any]] = []
    for message in messages:
        blocks: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, Text):
                blocks.append({"type": "text", "text": part.text})
            elif isinstance(part, ToolCall):
                blocks.append({"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments})
            elif isinstance(part, ToolResult):
                blocks.append(
                    {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": part.content}
                )
        rows.append({"role": "assistant" if message.role == "assistant" else "user", "content": blocks})
    return rows


def _doctor() -> list[Row]:
    """The whole doctor over files, beside a plain parse of the same bytes; the goals are shares of its speed."""
    found: dict[str, list[float]] = {name: [] for name in ("well", "check", "sick", "one", "examine", "heal")}
    with TemporaryDirectory(prefix="bench-doctor-") as folder:
        well, sick, out = (Path(folder) / name for name in ("well.json", "sick.json", "out.json"))
        # 9,996 are whole exchanges: a session that stops in the middle of a call is not well.
        well.write_text(json.dumps(stored(make_corpus(9_996, sick=0.0))), "utf-8")
        sick.write_text(json.dumps(stored(make_corpus(10_000))), "utf-8")

        def heal() -> None:
            out.unlink(missing_ok=True)
            assert heal_path(sick, out, now=0.0) > 0

        for _ in range(REPETITIONS):
            found["well"].append(_timed(lambda: json.loads(well.read_bytes())))
            found["check"].append(_timed(lambda: examine_path(well, now=0.0)))
            found["sick"].append(_timed(lambda: json.loads(sick.read_bytes())))
            found["one"].append(_timed(lambda: examine_path(sick, now=0.0, providers=("anthropic",))))
            found["examine"].append(_timed(lambda: examine_path(sick, now=0.0)))
            found["heal"].append(_timed(heal))
    base, sick_base = median(found["well"]), median(found["sick"])
    return [
        Row(name="json.loads of a healthy session, 10,000 messages", value=base, unit="ms"),
        at_most(
            "doctor: checking it", median(found["check"]), "ms", of="json.loads", base=base, limit=1 / 0.8
        ),
        Row(name="json.loads of one with a sick row in a hundred", value=sick_base, unit="ms"),
        at_most(
            "doctor: checking it, for its own provider",
            median(found["one"]),
            "ms",
            of="json.loads",
            base=sick_base,
            limit=1 / 0.8,
        ),
        at_most(
            "doctor: diagnosing it, for all providers",
            median(found["examine"]),
            "ms",
            of="json.loads",
            base=sick_base,
            limit=1 / 0.2,
        ),
        at_most(
            "doctor: healing it, written",
            median(found["heal"]),
            "ms",
            of="json.loads",
            base=sick_base,
            limit=1 / 0.2,
        ),
    ]
