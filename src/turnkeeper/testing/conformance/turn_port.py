"""What every `TurnPort` must do: the real one of the dispatcher, and `MemoryTurn`, which tests of runners use.

A case is given a kit that carries out turns of one conversation with a runner made of a function:

    @pytest.mark.parametrize("case", TURN_PORT_CASES, ids=lambda case: case.__name__)
    async def test_my_port_keeps_the_promise(case, kit):
        await case(kit)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Disposition, Effect, ReceiptState
from turnkeeper.errors import Fenced
from turnkeeper.port.runner import Answered, Outcome, Stopped, TurnPort

Body = Callable[[TurnPort], Awaitable[Outcome]]


class TurnPortKit(Protocol):
    """How a case gets at the port it judges."""

    async def carry_out(self, body: Body, text: str = "hello") -> None:
        """Carry out the conversation's next turn; raises what `body` raised."""
        ...

    async def steer(self, turn: TurnPort, text: str) -> None:
        """Send a steer while `turn` runs; return when it waits there."""
        ...

    async def stop(self, turn: TurnPort) -> None:
        """Ask for the running turn to be stopped."""
        ...

    async def lose_lease(self, turn: TurnPort) -> None:
        """Have another process take the turn over."""
        ...

    async def events(self) -> Sequence[ev.Event]:
        """The whole journal of the conversation."""
        ...


Case = Callable[[TurnPortKit], Awaitable[None]]
_cases: list[Case] = []


def _case(function: Case) -> Case:
    _cases.append(function)
    return function


def _answer(turn: TurnPort, text: str) -> Message:
    return Message(
        message_id=turn.ids.make("m"),
        role=ASSISTANT,
        parts=(Text(text),),
        created_at=turn.clock.now(),
        turn_id=turn.offer.turn.turn_id,
        attempt=turn.offer.turn.attempt,
        provenance="model",
    )


@_case
async def the_turns_own_message_is_there_and_what_is_recorded_follows_it(kit: TurnPortKit) -> None:
    """`record` gives the events it made, and both projections show them at once."""

    async def body(turn: TurnPort) -> Outcome:
        (own,) = [m for m in await turn.messages() if m.turn_id == turn.offer.turn.turn_id]
        assert own.text == "ask"
        assert own.seq > 0
        first = await turn.record(ev.Noticed("one", "One."), ev.MessageAppended(_answer(turn, "half")))
        second = await turn.record(ev.Noticed("two", "Two."))
        seqs = [event.seq for event in (*first, *second)]
        assert seqs == sorted(set(seqs))
        assert [m.text for m in await turn.messages()][-2:] == ["ask", "half"]
        bodies = [event.body for event in await turn.turn_events()]
        codes = [each.code for each in bodies if isinstance(each, ev.Noticed)]
        assert codes == ["one", "two"]
        return Answered()

    await kit.carry_out(body, "ask")


@_case
async def what_an_outcome_brings_stands_before_the_end(kit: TurnPortKit) -> None:
    """The last events of a turn and its end are one commit."""

    async def body(turn: TurnPort) -> Outcome:
        return Answered(bodies=(ev.MessageAppended(_answer(turn, "done")),))

    await kit.carry_out(body)
    kinds = [event.kind for event in await kit.events()]
    assert kinds.index("TurnSettled") == len(kinds) - 1 - kinds[::-1].index("MessageAppended") + 1


@_case
async def marks_are_applied_to_what_is_read(kit: TurnPortKit) -> None:
    """A message that was marked reads so from then on."""

    async def body(turn: TurnPort) -> Outcome:
        message = _answer(turn, "wrong")
        await turn.record(ev.MessageAppended(message))
        await turn.record(ev.MessageMarked(message.message_id, replay=False, standing="superseded"))
        found = (await turn.messages())[-1]
        assert (found.message_id, found.replay, found.standing) == (message.message_id, False, "superseded")
        return Answered(bodies=(ev.MessageAppended(_answer(turn, "right")),))

    await kit.carry_out(body)


@_case
async def receipts_move_forward_once(kit: TurnPortKit) -> None:
    """queued, accepted, confirmed: each with its evidence, and none of them twice."""

    async def body(turn: TurnPort) -> Outcome:
        await turn.record(accepted={"by": "a"})
        await turn.record(ev.Noticed("n", "N."), confirmed={"by": "b"})
        await turn.record(accepted={"by": "c"})
        moved = [e.body for e in await turn.turn_events() if isinstance(e.body, ev.ReceiptMoved)]
        assert [(m.state, (m.evidence or {}).get("by")) for m in moved][-2:] == [
            (ReceiptState.ACCEPTED, "a"),
            (ReceiptState.CONFIRMED, "b"),
        ]
        return Answered(bodies=(ev.MessageAppended(_answer(turn, "done")),))

    await kit.carry_out(body)


@_case
async def the_ledger_follows_the_journal(kit: TurnPortKit) -> None:
    """Intent, then outcome, by call."""

    async def body(turn: TurnPort) -> Outcome:
        for name in ("a", "b"):
            await turn.record(
                ev.ToolIntended(
                    call_id=name,
                    name="act",
                    arguments={"n": name},
                    effect=Effect.ACTS,
                    idempotency_key=f"k{name}",
                )
            )
        await turn.record(ev.ToolReturned(call_id="a", disposition=Disposition.DONE, result="acted"))
        rows = {row.call_id: row for row in await turn.ledger()}
        assert (rows["a"].disposition, rows["a"].result) == (Disposition.DONE, "acted")
        assert (rows["b"].disposition, rows["b"].idempotency_key) == (Disposition.INTENDED, "kb")
        await turn.record(ev.ToolReturned(call_id="b", disposition=Disposition.UNKNOWN))
        return Answered(bodies=(ev.MessageAppended(_answer(turn, "done")),))

    await kit.carry_out(body)


@_case
async def what_is_new_is_given_until_something_reaches_back(kit: TurnPortKit) -> None:
    """`messages_since` is the tail of `messages`, and None once an earlier message may read differently."""

    async def body(turn: TurnPort) -> Outcome:
        at = (await turn.turn_events())[-1].seq
        assert list(await turn.messages_since(at) or ()) == []
        message = _answer(turn, "half")
        await turn.record(ev.MessageAppended(message))
        since = await turn.messages_since(at)
        assert since is not None
        assert [m.message_id for m in since] == [message.message_id]
        assert list(since) == list(await turn.messages())[-1:]
        await turn.record(ev.MessageMarked(message.message_id, replay=False))
        assert await turn.messages_since(at) is None
        return Answered(bodies=(ev.MessageAppended(_answer(turn, "done")),))

    await kit.carry_out(body)


@_case
async def a_file_is_kept_by_its_bytes(kit: TurnPortKit) -> None:
    """The same bytes have the same hash, whatever they are called."""

    async def body(turn: TurnPort) -> Outcome:
        first, second = await turn.keep_file("a.txt", b"x" * 100), await turn.keep_file("b.txt", b"x" * 100)
        assert first is not None
        assert second is not None
        assert (first.name, first.size_bytes, first.sha256) == ("a.txt", 100, second.sha256)
        return Answered(bodies=(ev.MessageAppended(_answer(turn, "done")),))

    await kit.carry_out(body)


@_case
async def a_steer_waits_and_is_taken_along(kit: TurnPortKit) -> None:
    """Its message enters history when it is taken, behind everything recorded before."""

    async def body(turn: TurnPort) -> Outcome:
        await turn.record(ev.MessageAppended(_answer(turn, "half")), accepted={"by": "a"})
        assert not turn.riders()
        await kit.steer(turn, "and this")
        (rider,) = turn.riders()
        assert "and this" not in [m.text for m in await turn.messages()]
        await turn.take(rider)
        assert not turn.riders()
        assert [m.text for m in await turn.messages()][-2:] == ["half", "and this"]
        return Answered(bodies=(ev.MessageAppended(_answer(turn, "done")),))

    await kit.carry_out(body)


@_case
async def a_stop_is_heard(kit: TurnPortKit) -> None:
    """Who waits for it is woken with the reason, and who looks sees it."""

    async def body(turn: TurnPort) -> Outcome:
        await turn.record(accepted={"by": "a"})
        waiting = asyncio.ensure_future(turn.wait_stopping())
        before = turn.stopping
        await kit.stop(turn)
        assert await waiting == "cancelled"
        assert (before, turn.stopping) == (False, True)
        return Stopped()

    await kit.carry_out(body)
    assert "TurnCancelled" in [event.kind for event in await kit.events()]


@_case
async def who_lost_the_lease_cannot_write(kit: TurnPortKit) -> None:
    """Every write of the old holder is refused, and leaves nothing behind (G13)."""

    async def body(turn: TurnPort) -> Outcome:
        await turn.record(ev.Noticed("mine", "Mine."))
        await kit.lose_lease(turn)
        await turn.record(ev.Noticed("late", "Late."))  # raises Fenced
        msg = "a write without the lease was taken"
        raise AssertionError(msg)

    try:
        await kit.carry_out(body)
    except Fenced:
        codes = [e.body.code for e in await kit.events() if isinstance(e.body, ev.Noticed)]
        assert "mine" in codes
        assert "late" not in codes
        return
    msg = "nobody was told that the lease was lost"
    raise AssertionError(msg)


TURN_PORT_CASES: Final[tuple[Case, ...]] = tuple(_cases)
"""Every promise of the port, as a function of a kit."""

__all__: Any = ["TURN_PORT_CASES", "Body", "Case", "TurnPortKit"]
