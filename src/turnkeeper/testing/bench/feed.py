"""How fast a feed is built: whole, beside `json.dumps` of the same request, and for one more round.

The corpus is a conversation of tool rounds, about 600 bytes a message, of which one row in a hundred is sick in
one of the ways that reports tell of. Hints and first numbers: the feasibility notes, section 1.
"""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable
from typing import Any

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Part, Text, ToolCall, ToolResult
from turnkeeper.foreign.doctor import heal_items
from turnkeeper.foreign.findings import check, examine, feed_of
from turnkeeper.foreign.sessions import Session, parse_json
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


def _doctor() -> list[Row]:
    """Looking at a stored list, beside a plain parse of the same bytes; the goals are shares of its speed."""
    corpus = make_corpus(10_000)
    body = (
        dialect_named("anthropic")
        .encode(build_feed(corpus).messages, origin=ORIGIN, options={"cache": False})
        .body
    )
    data = json.dumps(body["messages"]).encode()

    def load() -> Session:
        return Session(name="bench", format="anthropic", items=parse_json(data))

    def heal() -> object:
        session = load()
        feed = feed_of(session)
        examine(session, ("anthropic",), feed=feed)
        return heal_items(session, feed)

    found: dict[str, list[float]] = {"parse": [], "check": [], "heal": []}
    for _ in range(REPETITIONS):
        found["parse"].append(_timed(lambda: json.loads(data)))
        found["check"].append(_timed(lambda: check(load())))
        found["heal"].append(_timed(heal))
    base = median(found["parse"])
    return [
        Row(name="json.loads of a session, 10,000 messages", value=base, unit="ms"),
        at_most(
            "doctor: only checking", median(found["check"]), "ms", of="json.loads", base=base, limit=1 / 0.8
        ),
        at_most(
            "doctor: checking and healing",
            median(found["heal"]),
            "ms",
            of="json.loads",
            base=base,
            limit=1 / 0.2,
        ),
    ]
