"""A history that is kept from turn to turn: only ever a shortcut, whatever happened in between."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.test_python import PythonWorld
from tests.agent.world import World, call, run
from turnkeeper.agent.kept import Histories, KeptHistory
from turnkeeper.conversation import codec
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, USER, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Failure
from turnkeeper.errors import Fenced
from turnkeeper.history.builder import FeedBuilder
from turnkeeper.port.runner import Answered
from turnkeeper.testing.turn_port import MemoryTurn
from turnkeeper.tool import tool, tool_of

STALL = Failure(kind="stall", retryable=True, sentence="It stalled.")


@tool
async def act(n: int) -> str:
    """Act."""
    return f"acted {n}"


class Counting(MemoryTurn):
    """Counts how often the whole history was read."""

    reads = 0

    async def messages(self) -> Any:
        Counting.reads += 1
        return await super().messages()

    async def messages_since(self, seq: int) -> Any:
        found = await super().messages_since(seq)
        Counting.reads -= found is not None  # it reads the list to cut it
        return found


async def play(world: World, turns: int, between: Any = None) -> list[ev.Event]:
    journal: list[ev.Event] = []
    for n in range(turns):
        turn = Counting(world.clock, world.ids, text=f"say {n}", journal=journal, turn_id=f"t_{n}")
        await turn.carry_out(world.runner)
        if between is not None:
            between(n, turn)
        journal = turn.journal
    return journal


def steps(kinds: list[str]) -> list[Any]:
    made: list[Any] = []
    for n, kind in enumerate(kinds):
        if kind == "tool":
            made.append([call("act", {"n": n}, f"c{n}")])
        elif kind == "stall":
            made.append(("cut", "half", STALL))
        made.append(f"answer {n}")
    return made


def test_the_next_turn_reads_only_what_is_new() -> None:
    async def main() -> None:
        world = World(*steps(["text", "tool", "stall", "text"]), tools=[tool_of(act)])
        Counting.reads = 0
        await play(world, 4)
        assert Counting.reads == 1

    run(main())


@given(
    kinds=st.lists(st.sampled_from(["text", "tool", "stall"]), min_size=2, max_size=5),
    happens=st.lists(
        st.sampled_from(["nothing", "marked", "expired", "lost", "masked", "foreign", "compacted"]), min_size=5, max_size=5
    ),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_every_request_is_the_one_that_a_fresh_reading_gives(kinds: list[str], happens: list[str]) -> None:
    def between(n: int, turn: MemoryTurn) -> None:
        happening = happens[n % len(happens)]
        messages = [e for e in turn.journal if isinstance(e.body, ev.MessageAppended)]
        first = messages[0].body.message
        if happening == "marked":
            turn._commit((ev.MessageMarked(first.message_id, replay=False),))
        elif happening == "expired":
            turn._commit((ev.ConfirmationExpired(first.message_id),))
        elif happening == "lost":  # the commit of the last message never came about
            turn.journal.remove(messages[-1])
        elif happening == "masked":  # the store holds other words than the turn had
            at = turn.journal.index(messages[-1])
            changed = msgspec.structs.replace(messages[-1].body.message, parts=(Text("(masked)"),))
            body = ev.MessageAppended(changed)
            turn.journal[at] = msgspec.structs.replace(messages[-1], body=body)
        elif happening == "foreign":
            strange = Message(message_id=f"x{n}", role=USER, parts=(Text("from elsewhere"),))
            turn._commit((ev.MessageAppended(strange),))
        elif happening == "compacted":
            text, through = f"summary {n}", messages[-1].body.message.message_id
            summary = Message(
                message_id=f"s{n}", role="notice", parts=(Text(text),), provenance="summary", replay=False, through=through
            )  # fmt: skip
            turn._commit((ev.HistoryCompacted(text, through), ev.MessageAppended(summary)))

    async def sent(kept: int) -> list[Any]:
        world = World(*steps(kinds), tools=[tool_of(act)], kept_messages_max=kept)
        await play(world, len(kinds), between)
        return [call_.body for call_ in world.model.calls]

    assert run(sent(100_000)) == run(sent(0))


def test_a_turn_that_lost_its_lease_leaves_nothing() -> None:
    async def main() -> None:
        world = World("one", "two", tools=[tool_of(act)])
        turn = world.turn("hi")
        turn.fenced = True
        with pytest.raises(Fenced):
            await world.runner.run(turn)
        assert len(world.runner.histories) == 0
        assert isinstance(await world.turn("hi").carry_out(world.runner), Answered)
        assert len(world.runner.histories) == 1

    run(main())


def history(count: int) -> KeptHistory:
    messages = [Message(message_id=f"m{n}", role=USER, parts=(Text("x"),), seq=n + 1) for n in range(count)]
    builder = FeedBuilder(messages)
    return KeptHistory(
        seq=count, base=count, messages=messages, builder=builder, compaction=None, call_ids=None
    )


def test_the_limit_counts_messages_and_forgets_the_least_recently_used() -> None:
    kept = Histories(messages_max=10, chars_max=1_000_000)
    kept.give("a", history(4))
    kept.give("b", history(6))
    assert len(kept) == 2
    a = kept.take("a")
    assert a is not None
    kept.give("a", a)
    kept.give("c", history(1))
    assert kept.take("b") is None
    assert kept.take("a") is a
    kept.give("d", history(11))
    assert len(kept) == 0


def test_the_limit_counts_words_too_and_nothing_above_it_is_kept() -> None:
    probe = history(4)
    size = probe.size_chars()
    assert size >= 4 * 500
    kept = Histories(messages_max=1000, chars_max=2 * size)
    for name in ("a", "b", "c"):
        kept.give(name, history(4))
    assert len(kept) == 2
    assert kept.take("a") is None
    tight = Histories(messages_max=1000, chars_max=size - 1)
    tight.give("a", history(4))
    assert len(tight) == 0


def test_an_agent_of_ones_own_pays_for_what_is_new_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long conversation is neither read nor encoded anew for each turn, and the agent is given all of it."""
    encoded = 0
    encode = codec.encode

    def counting(value: Any) -> bytes:
        nonlocal encoded
        encoded += isinstance(value, Message)
        return encode(value)

    monkeypatch.setattr(codec, "encode", counting)
    given_messages: list[int] = []

    async def agent(feed: Any, tools: Any, cancel: Any) -> Any:
        given_messages.append(len(feed))
        reply = await tools.call("act", {"n": len(feed)})
        yield reply.content

    async def main() -> None:
        world = PythonWorld(agent, [tool_of(act)])
        roles = (USER, ASSISTANT)
        long = [
            ev.MessageAppended(Message(message_id=f"o{n}", role=roles[n % 2], parts=(Text(f"old {n}"),)))
            for n in range(2000)
        ]
        turn = Counting(world.clock, world.ids, text="say", turn_id="t_first")
        turn._commit(long)
        Counting.reads = 0
        journal = turn.journal
        for n in range(3):
            turn = Counting(world.clock, world.ids, text=f"say {n}", journal=journal, turn_id=f"t_{n}")
            assert isinstance(await turn.carry_out(world.runner), Answered)
            journal = turn.journal
        assert Counting.reads == 1

    run(main())
    assert len(given_messages) == 3
    assert given_messages[0] > 2000
    assert given_messages == sorted(set(given_messages))
    assert encoded == 0
