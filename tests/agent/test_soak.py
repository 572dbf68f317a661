"""Soak of our loop: 500 conversations at once over real HTTP, real SDKs and a real store, with random faults.

Goal: nothing lost, doubled, open or unexplained, and memory flat. Method: each conversation sends, waits for the
end, and sends again; now and then it steers, stops, repeats an old key, or has a failed turn tried again. Each
message names the program that the loopback model (a process of its own) plays for it: rounds with tools, broken
streams, stalls, overloads, rate limits, nonsense, wrong arguments, repeated calls. Twice the Keeper is closed in
mid-work and opened again. How a program must end is known beforehand, so a failure of any other kind, and a
success of what cannot succeed, are faults that are named.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil
import pytest

from tests.agent.soak_tools import ACTED
from tests.surroundings import IN_CI
from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Mode
from turnkeeper.errors import TurnDecided, Unavailable
from turnkeeper.projection.view import event_view
from turnkeeper.settings import Settings
from turnkeeper.testing.model_server.process import model_server_process
from turnkeeper.testing.promises import Sent, broken_promises, effects_broken
from turnkeeper.testing.until import until

pytestmark = [
    pytest.mark.process,
    pytest.mark.alone,
    # A connect that is cancelled half-way leaves its socket to the collector: the HTTP library's own affair.
    # How many connections are open is looked at in `grown`.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONVERSATIONS = 500
SECONDS = 14.0 if IN_CI else 60.0
"""CI has minutes for everything; a desk that runs all tests soaks for one."""
KEPT_MESSAGES_MAX = 300
LONG_SECONDS = 600.0
WIRES = ("anthropic", "openai-chat", "openai-responses", "gemini")
T = TypeVar("T")

AGENT = """
[agents.{name}]
provider = "{name}"
model = "m"
base_url = "{url}"
api_key_env = "SOAK_KEY"
tools = [{tools}]
deadlines = {{ first_token_seconds = 120, stall_seconds = 1.5, total_seconds = 240 }}
"""
TOOLS = ", ".join(f'"tests.agent.soak_tools:{name}"' for name in ("note", "peek", "hang", "stumble", "flood"))

Round = dict[str, Any]


def calls(*names: str, n: int = 0) -> Round:
    return {"text": "acting", "tool_calls": [{"name": name, "arguments": {"n": n}} for name in names]}


RETRYABLE: dict[str, Round] = {
    "overloaded": {"error": {"status": 529}},
    "server": {"error": {"status": 500}},
    "late": {"text": "half of it ", "error": {"status": 529}},
    "cut": {"text": "half of it ", "cut": True},
    "stall": {"text": "half of it ", "stall_s": 600, "pings": True},
    "half": {"text": "half of it ", "garbage": "half_json"},
    "nothing": {"garbage": "empty"},
}
"""What one automatic resume carries a turn over."""
ANSWER: Round = {"text": "That is done. " * 4}
BROKEN_ARGUMENTS: Round = {"tool_calls": [{"name": "note", "raw_arguments": '{"n": 5'}]}
WORK: tuple[Round, ...] = (
    calls("note"),
    calls("note", "peek", n=1),
    calls("peek", "note", "stumble", n=2),
    calls("hang", "note", n=3),
    calls("flood", n=4),
    BROKEN_ARGUMENTS,
    {"tool_calls": [{"name": "no_such_tool", "arguments": {}}]},
    {"tool_calls": [{"name": "note", "arguments": {"n": 6}, "id": "same"}, {"name": "peek", "arguments": {"n": 6}, "id": "same"}]},
)  # fmt: skip


DROPPED = ("broken_stream", "connection")
DROPPED_SHARE_MAX = 0.02
"""Connections that a crowded machine may lose by itself; each is a visible failure with a reason all the same."""


class Program(msgspec.Struct, frozen=True):
    """What the model does for one message, and how its turn may end: `settled`, or the kind of its failure."""

    rounds: list[Round]
    ends: frozenset[str]
    retried: bool = False
    """A person's retry settles it."""


def make_programs(dice: random.Random) -> dict[str, Program]:
    """Programs by name. What a fault does to a turn follows from the budgets of the settings' defaults."""
    made: dict[str, Program] = {}

    def work() -> list[Round]:
        return dice.sample(WORK, k=dice.randrange(0, 3))

    for n in range(12):
        made[f"clean{n}"] = Program([*work(), ANSWER], frozenset({"settled"}))
    for kind, fault in RETRYABLE.items():
        made[f"once-{kind}"] = Program([*work(), fault, ANSWER], frozenset({"settled"}))
        twice = [*work(), fault, fault, ANSWER]
        failures = {"server", "overloaded", "stall", "broken_stream", "connection"}
        # A stop in mid-fault that the model counted and the journal did not: then it gets over it.
        made[f"twice-{kind}"] = Program(twice, frozenset({*failures, "settled"}), retried=True)
    limited = {"error": {"status": 429, "retry_after_s": 0.05}}
    made["limited"] = Program([*work(), limited, limited, ANSWER], frozenset({"settled"}))
    made["locked out"] = Program([*work(), {"error": {"status": 401}}], frozenset({"credentials"}))
    made["broke"] = Program([calls("note"), {"error": {"status": 402}}], frozenset({"quota"}))
    made["page"] = Program([*work(), {"garbage": "html"}], frozenset({"not_an_api"}))
    made["again"] = Program([calls("note"), calls("note"), ANSWER], frozenset({"settled"}))
    made["for ever"] = Program([calls("note")] * 9, frozenset({"loop"}))
    return made


def as_script(programs: dict[str, Program]) -> dict[str, Any]:
    """The last program that is named counts: providers join messages of one speaker."""
    return {
        "rules": [
            {"match": rf"(?s)«{name}»(?!.*«)", "rounds": each.rounds} for name, each in programs.items()
        ]
    }


class Measured(msgspec.Struct, frozen=True):
    """What the process holds when nothing runs."""

    memory_bytes: int
    objects: int
    connections: int


class Ended(msgspec.Struct, frozen=True):
    """How a turn ended that ran a program, as it was seen from outside."""

    turn_id: str
    program: str
    wire: str
    state: str
    kind: str | None
    disturbed: bool
    """It was stopped or interrupted, or took a steer along: then its end is not the program's."""


class Soak:
    """The world of one soak."""

    def __init__(self, folder: Path, url: str, programs: dict[str, Program], seed: int) -> None:
        self.folder = folder
        self.programs = programs
        self.dice = random.Random(seed)
        self.over = asyncio.Event()
        self.hold = asyncio.Event()
        """Set while producers may send."""
        self.ends: list[Ended] = []
        self.sent: dict[str, list[Sent]] = {}
        self.wires: dict[str, str] = {}
        self.reopened = 0
        self.agents = folder / "agents.toml"
        places = {"anthropic": url, "gemini": url}
        self.agents.write_text(
            "".join(AGENT.format(name=name, url=places.get(name, f"{url}/v1"), tools=TOOLS) for name in WIRES)
        )
        self.keeper: Keeper | None = None
        self._open = asyncio.Event()
        self._closing = asyncio.Lock()

    async def open(self) -> None:
        settings = Settings(
            shutdown_grace_seconds=0.5,
            stop_grace_seconds=1.0,
            sweep_seconds=1.0,
            tool_stop_grace_seconds=0.1,
            # What agents keep from turn to turn grows up to its limit: reached early, all that grows after is lost.
            kept_messages_max=KEPT_MESSAGES_MAX,
        )
        self.keeper = await Keeper.open(self.folder / "data", agents=self.agents, settings=settings)
        self._open.set()

    async def close(self) -> None:
        self._open.clear()
        keeper, self.keeper = self.keeper, None
        if keeper is not None:
            await keeper.close()

    async def ask(self, what: Callable[[Keeper], Awaitable[T]]) -> T:
        """Ask the Keeper, and the next one if this one was closed on the way."""
        while True:
            await self._open.wait()
            keeper = self.keeper
            if keeper is None:
                continue  # closed again before this task was woken
            asking = asyncio.ensure_future(what(keeper))
            try:
                while not asking.done():
                    await asyncio.wait({asking}, timeout=0.5)
                    if self.keeper is not keeper:
                        break
                if asking.done():
                    return asking.result()
            except Unavailable:
                await asyncio.sleep(0)
                if self.keeper is keeper:
                    await asyncio.sleep(0.05)
            finally:
                asking.cancel()
                await asyncio.wait({asking})

    # -- producers

    async def produce(self, conversation_id: str, seed: int) -> None:
        dice = random.Random(seed)
        number = 0
        names = sorted(self.programs)
        while not self.over.is_set():
            await self.hold.wait()
            if self.over.is_set():
                return
            number += 1
            await self._one(conversation_id, dice, dice.choice(names), number)

    async def _one(self, conversation_id: str, dice: random.Random, name: str, number: int) -> None:
        program = self.programs[name]
        turn_id = await self._send(conversation_id, f"«{name}» {conversation_id} {number}")
        disturbed = False
        opened = self.reopened
        whim = dice.random()
        if whim < 0.04:
            disturbed = True
            await self._send(conversation_id, f"a word more {number}", mode=Mode.STEER)
        elif whim < 0.08:
            disturbed = True
            await self._stop(turn_id)
        elif whim < 0.12:
            await self._repeat(conversation_id)
        turn = await self.ask(lambda keeper: keeper.ended(OPERATOR, turn_id))
        # A turn that was interrupted tells the model so; for the model that is another story.
        disturbed = disturbed or self.reopened != opened or not self._open.is_set()
        self._ended(name, turn, disturbed=disturbed)
        if turn.state == "failed" and program.retried and not disturbed and dice.random() < 0.7:
            with contextlib.suppress(TurnDecided):  # the Keeper that was closed on the way had taken it
                await self.ask(lambda keeper: keeper.retry(OPERATOR, turn_id))
            turn = await self.ask(lambda keeper: keeper.ended(OPERATOR, turn_id))
            self._ended(name, turn, disturbed=turn.state == "settled")

    def _ended(self, name: str, turn: Any, *, disturbed: bool) -> None:
        kind = (turn.failure or {}).get("kind") if turn.state == "failed" else None
        self.ends.append(
            Ended(turn.turn_id, name, self.wires[turn.conversation_id], turn.state, kind, disturbed)
        )

    async def _send(self, conversation_id: str, text: str, *, mode: Mode = Mode.QUEUE) -> str:
        key = f"k{len(self.sent[conversation_id])}"
        at = len(self.sent[conversation_id])
        self.sent[conversation_id].append(Sent(key=key, text=text))
        made = await self.ask(
            lambda keeper: keeper.submit(OPERATOR, conversation_id, key=key, parts=(Text(text),), mode=mode)
        )
        self.sent[conversation_id][at] = Sent(key=key, text=text, turn_id=made.turn_id)
        return made.turn_id

    async def _repeat(self, conversation_id: str) -> None:
        old = self.sent[conversation_id][0]
        made = await self.ask(
            lambda keeper: keeper.submit(OPERATOR, conversation_id, key=old.key, parts=(Text(old.text),))
        )
        assert made.turn_id == old.turn_id

    async def _stop(self, turn_id: str) -> None:
        with contextlib.suppress(TurnDecided):  # it had ended by itself
            await self.ask(lambda keeper: keeper.cancel(OPERATOR, turn_id, queue="continue"))

    # -- the whole

    async def run(self, seconds: float) -> list[str]:
        """Two parts with a look at the memory between them; every fault that was found."""
        await self.open()
        assert self.keeper is not None
        for n in range(CONVERSATIONS):
            wire = WIRES[n % len(WIRES)]
            made = await self.keeper.create_conversation(OPERATOR, wire, f"c{n}")
            self.wires[made.conversation_id] = wire
            self.sent[made.conversation_id] = []
        loads = [asyncio.ensure_future(self.produce(c, n)) for n, c in enumerate(self.sent)]
        try:
            first = await self._part(seconds * 0.4, loads)
            second = await self._part(seconds * 0.6, loads, reopen=False)
            self.over.set()
            self.hold.set()
            await asyncio.gather(*loads)
            return [*await self._judge(), *grown(first, second)]
        finally:
            for load in loads:
                load.cancel()
            await asyncio.gather(*loads, return_exceptions=True)
            await self.close()

    async def _part(
        self, seconds: float, loads: list[asyncio.Task[None]], *, reopen: bool = True
    ) -> Measured:
        """Load for so long, then quiet."""
        self.hold.set()
        over = time.monotonic() + seconds
        for share in (0.3, 0.6) if reopen else ():
            await _until_time(over - seconds * (1 - share), loads)
            await self.close()
            await self.open()
            self.reopened += 1
        await _until_time(over, loads)
        self.hold.clear()
        await until(self._quiet, "every turn's end", seconds=240)
        gc.collect()
        process = psutil.Process()
        return Measured(process.memory_info().rss, len(gc.get_objects()), len(process.net_connections("tcp")))

    async def _quiet(self) -> bool:
        assert self.keeper is not None
        status = await self.keeper.status(OPERATOR)
        return not status["running"] and not status["queued"]

    async def _judge(self) -> list[str]:
        assert self.keeper is not None
        found: list[str] = []
        story: dict[str | None, list[str]] = {}
        known = 0
        counted_all = dict(ACTED)
        for conversation_id, sent in self.sent.items():
            events = await self.keeper.store.events(conversation_id, limit=1_000_000)
            views = [msgspec.to_builtins(event_view(event)) for event in events]
            for view in views:
                if view["kind"] in STORY:
                    story.setdefault(view["turn_id"], []).append(_shown(view))
            found += [f"{conversation_id}: {broken}" for broken in broken_promises(views, sent=sent)]
            found += [f"{conversation_id}: {twice}" for twice in _done_twice(views)]
            keys = {
                view["body"]["idempotency_key"]
                for view in views
                if view["kind"] == "ToolIntended" and view["body"]["name"] == "note"
            }
            counted = {key: times for key, times in counted_all.items() if key in keys}
            known += len(counted)
            found += [f"{conversation_id}: {b}" for b in effects_broken(views, counted, tool="note")]
            found += [
                f"{conversation_id}: {key} acted {times} times"
                for key, times in counted.items()
                if times > 1 and not _ran_again(views, key)
            ]
        if known != len(counted_all):
            found.append(f"{len(counted_all) - known} effects that no ledger knows")
        dropped: list[str] = []
        for end in self.ends:
            how = end.kind or end.state
            program = self.programs[end.program]
            if end.disturbed or how in program.ends:
                continue
            # No program plans that the model's server is not reached, or says nothing for two minutes: that resume
            # was spent on the machine.
            unreached = any(
                said.startswith("RoundFailed") and (" connection" in said or " first_token" in said)
                for said in story[end.turn_id]
            )
            if how in DROPPED or unreached:
                dropped.append(end.turn_id)
            else:
                found.append(
                    f"«{end.program}» on {end.wire} ended {how} and nobody knows why: {story[end.turn_id]}"
                )
        if len(dropped) > len(self.ends) * DROPPED_SHARE_MAX:
            found.append(f"{len(dropped)} turns lost their connection for no reason: {story[dropped[0]]}")
        return found


def _done_twice(views: list[Any]) -> list[str]:
    """Identical calls that act and that were done more than once in one turn."""
    asked: dict[tuple[str, str], str] = {}
    done: Counter[tuple[str, str]] = Counter()
    for view in views:
        body, turn_id = view["body"], view["turn_id"]
        if view["kind"] == "ToolIntended" and body["name"] == "note":
            asked[turn_id, body["call_id"]] = str(body["arguments"])
        elif (
            view["kind"] == "ToolReturned"
            and (turn_id, body["call_id"]) in asked
            and body["disposition"] == "done"
        ):
            done[turn_id, asked[turn_id, body["call_id"]]] += 1
    return [
        f"note {arguments} of {turn_id} was done {n} times"
        for (turn_id, arguments), n in done.items()
        if n > 1
    ]


STORY = ("TurnStarted", "RoundFinished", "RoundFailed", "AutoResumed", "TurnFailed", "Noticed")
"""What is printed of a turn that nobody understands."""


def _shown(view: Any) -> str:
    body = view["body"]
    failure = body.get("failure") or {}
    return " ".join(str(each) for each in (view["kind"], body.get("round"), body.get("why"), failure.get("kind"), failure.get("detail")) if each)  # fmt: skip


def _ran_again(views: list[Any], key: str) -> bool:
    return any(v["kind"] == "ToolReturned" and v["body"].get("why") in ("did not happen", "run_again") for v in views if key.endswith(v["body"].get("call_id", "?")))  # fmt: skip


def grown(first: Measured, second: Measured) -> list[str]:
    """What the second part left behind beyond the first."""
    print(f"{first} then {second}")
    found = []
    if second.memory_bytes > first.memory_bytes * 1.15 + 24_000_000:
        found.append(f"memory grew from {first.memory_bytes:,} to {second.memory_bytes:,} bytes")
    if second.objects > first.objects * 1.1 + 5_000:
        found.append(f"objects grew from {first.objects:,} to {second.objects:,}")
    if second.connections > first.connections + 200:
        found.append(f"connections grew from {first.connections} to {second.connections}")
    return found


async def _until_time(when: float, loads: list[asyncio.Task[None]]) -> None:
    """Wait until then, unless a producer fails before."""
    while (left := when - time.monotonic()) > 0:
        done, _ = await asyncio.wait(loads, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
        for load in done:
            load.result()


async def soak(folder: Path, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(time.time())
    print(f"seed {seed}")
    ACTED.clear()
    monkeypatch.setenv("SOAK_KEY", "any")
    programs = make_programs(random.Random(seed))
    async with model_server_process(as_script(programs)) as url:
        world = Soak(folder, url, programs, seed)
        found = await world.run(seconds)
    print(
        f"{len(world.ends)} turns in {CONVERSATIONS} conversations, {len(ACTED)} effects, "
        f"{world.reopened} times opened anew; ends {dict(Counter(end.kind or end.state for end in world.ends))}"
    )
    assert not found, "\n".join(found[:40])
    assert len(world.ends) >= CONVERSATIONS


@pytest.mark.timeout(600)
async def test_500_conversations_and_random_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await soak(tmp_path, SECONDS, monkeypatch)


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 1200)
async def test_500_conversations_and_random_faults_for_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await soak(tmp_path, LONG_SECONDS, monkeypatch)
