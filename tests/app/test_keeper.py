"""The Keeper as an embedding program uses it: real SQLite, real lanes, the demo agent or a runner of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.events import MessageAppended
from turnkeeper.conversation.messages import ASSISTANT, Message
from turnkeeper.conversation.parts import Attachment, Text
from turnkeeper.conversation.turns import Mode, Principal
from turnkeeper.errors import (
    BadInput,
    Forbidden,
    KeyMalformed,
    KeyReused,
    NotFound,
    NothingToSend,
    PartInvalid,
    QueueFull,
    TextTooLong,
    TurnDecided,
    Unauthorized,
)
from turnkeeper.port.runner import Answered, Outcome, Stopped, TurnPort
from turnkeeper.settings import Settings

ALICE = Principal(user_id="alice", scopes=("read", "write"))


class GatedRunner:
    """Answers a turn when the test opens its gate; remembers what the model would have been sent."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.ran: list[str] = []
        self.running: dict[str, TurnPort] = {}

    def gate(self, text: str) -> asyncio.Event:
        return self.gates.setdefault(text, asyncio.Event())

    async def run(self, turn: TurnPort) -> Outcome:
        text = "".join(p.text for p in turn.offer.request.parts if isinstance(p, Text))
        self.ran.append(text)
        self.running[text] = turn
        await turn.record(accepted={"by": "test"})
        gate = asyncio.ensure_future(self.gate(text).wait())
        stop = asyncio.ensure_future(turn.wait_stopping())
        try:
            await asyncio.wait({gate, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gate.cancel()
            stop.cancel()
        if turn.stopping:
            return Stopped()
        answer = Message(
            message_id=turn.ids.make("m"),
            role=ASSISTANT,
            parts=(Text(f"ok {text}"),),
            created_at=turn.clock.now(),
            turn_id=turn.offer.turn.turn_id,
            provenance="model",
        )
        return Answered(bodies=(MessageAppended(answer),))

    async def close(self) -> None:
        return


@pytest.fixture
def gated() -> GatedRunner:
    return GatedRunner()


@pytest.fixture
async def keeper(tmp_path: Path, gated: GatedRunner) -> AsyncIterator[Keeper]:
    settings = Settings(queue_cap=3, undo_seconds=0.2, text_bytes_max=1000, stop_grace_seconds=1.0)
    async with await Keeper.open(tmp_path / "data", settings=settings, runners={"gated": gated}) as opened:
        yield opened


async def ended(keeper: Keeper, turn_id: str) -> Any:
    """The turn, once it has ended: woken by the conversation's own events."""
    turn = await keeper.store.turn(turn_id)
    assert turn is not None
    async for _ in keeper.broadcast.watch(turn.conversation_id, after=0):
        view = await keeper.turn(Principal(turn.user_id, ("read",)), turn_id)
        if view.state in ("settled", "failed", "cancelled"):
            return view
    raise AssertionError


async def say(keeper: Keeper, conversation_id: str, text: str, key: str | None = None, **more: Any) -> Any:
    return await keeper.submit(
        OPERATOR, conversation_id, key=key or f"k-{text[:20]}".replace(" ", "-"), parts=(Text(text),), **more
    )


async def texts(keeper: Keeper, conversation_id: str) -> list[str]:
    page, _ = await keeper.messages(OPERATOR, conversation_id)
    return [f"{m.role[0]}:{m.parts[0]['text']}" for m in page]


async def test_messages_are_answered_once_in_order(keeper: Keeper) -> None:
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    accepted = [await say(keeper, c, f"n{i}") for i in range(3)]
    for one in accepted:
        assert (await ended(keeper, one.turn_id)).state == "settled"
    assert await texts(keeper, c) == ["u:n0", "a:ok n0", "u:n1", "a:ok n1", "u:n2", "a:ok n2"]


async def test_a_key_is_answered_again_and_refused_with_another_body(keeper: Keeper) -> None:
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    first = await say(keeper, c, "pay", key="k")
    again = await say(keeper, c, "pay", key="k")
    assert (again.turn_id, again.replayed) == (first.turn_id, True)
    with pytest.raises(KeyReused):
        await say(keeper, c, "pay twice", key="k")
    other = await say(keeper, c, "pay", key="k2")
    assert other.turn_id != first.turn_id, "equal text with another key is another turn (G2)"


async def test_a_repeat_is_answered_even_when_the_queue_is_full(keeper: Keeper, gated: GatedRunner) -> None:
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    for text in ("run", "w1", "w2", "w3"):
        await say(keeper, c, text)
    with pytest.raises(QueueFull):
        await say(keeper, c, "w4")
    assert (await say(keeper, c, "w3")).replayed


async def test_nobody_enters_anothers_conversation(keeper: Keeper) -> None:
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    turn = (await say(keeper, c, "mine")).turn_id
    admin = Principal(user_id="mallory", scopes=("admin",))
    for intruder in (ALICE, admin):
        for act in (
            keeper.conversation(intruder, c),
            keeper.messages(intruder, c),
            keeper.turn(intruder, turn),
            keeper.why(intruder, turn),
            keeper.cancel(intruder, turn),
            keeper.delete_conversation(intruder, c),
            keeper.submit(intruder, c, key="k", parts=(Text("x"),)),
        ):
            with pytest.raises(NotFound):
                await act
    unknown = Principal(user_id="owner", scopes=("read",))
    with pytest.raises(Forbidden):
        await keeper.submit(unknown, c, key="k", parts=(Text("x"),))


async def test_a_token_that_was_revoked_while_its_turn_waited_does_not_run(
    keeper: Keeper, gated: GatedRunner
) -> None:
    secret, row = await keeper.create_token("owner", ("read", "write"))
    with_token = await keeper.authenticate(secret)
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    await say(keeper, c, "first")
    waiting = await keeper.submit(with_token, c, key="k", parts=(Text("second"),))
    await keeper.revoke_token(row.token_id)
    with pytest.raises(Unauthorized):
        await keeper.authenticate(secret)
    gated.gate("first").set()
    view = await ended(keeper, waiting.turn_id)
    assert (view.state, view.failure["kind"]) == ("failed", "rights")
    assert "second" not in gated.ran
    assert "u:second" in await texts(keeper, c), "it stays visible (G5)"


async def test_stop_pauses_the_queue_and_why_says_so(keeper: Keeper, gated: GatedRunner) -> None:
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    running = await say(keeper, c, "a")
    waiting = await say(keeper, c, "b")
    assert (await keeper.why(OPERATOR, waiting.turn_id)).holder == running.turn_id
    await keeper.cancel(OPERATOR, running.turn_id)
    assert (await ended(keeper, running.turn_id)).state == "cancelled"
    why = await keeper.why(OPERATOR, waiting.turn_id)
    assert (why.reason, why.state) == ("paused", "queued")
    snapshot = await keeper.conversation(OPERATOR, c)
    assert (snapshot.lane.phase, snapshot.lane.paused) == ("held", "stopped")
    gated.gate("b").set()
    await keeper.resume(OPERATOR, c)
    assert (await ended(keeper, waiting.turn_id)).state == "settled"


async def test_a_deleted_conversation_stops_and_can_be_brought_back(
    keeper: Keeper, gated: GatedRunner
) -> None:
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    running = await say(keeper, c, "a")
    waiting = await say(keeper, c, "b")
    await keeper.delete_conversation(OPERATOR, c)
    with pytest.raises(NotFound):
        await keeper.conversation(OPERATOR, c)
    await keeper.restore_conversation(OPERATOR, c)
    assert (await ended(keeper, running.turn_id)).state == "cancelled"
    gated.gate("b").set()
    assert (await ended(keeper, waiting.turn_id)).state == "settled"


async def test_edit_changes_what_waits_and_a_turn_that_was_taken_answers_with_its_state(
    keeper: Keeper, gated: GatedRunner
) -> None:
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    first = await say(keeper, c, "a")
    second = await say(keeper, c, "b")
    assert (await keeper.edit(OPERATOR, second.turn_id, (Text("b2"),))).text == "b2"
    with pytest.raises(TurnDecided) as caught:
        await keeper.edit(OPERATOR, first.turn_id, (Text("a2"),))
    assert caught.value.facts["state"] == "running"
    gated.gate("a").set()
    gated.gate("b2").set()
    assert (await ended(keeper, second.turn_id)).state == "settled"
    assert gated.ran == ["a", "b2"]


async def test_a_steer_reaches_the_running_turn_and_interrupt_takes_its_place(
    keeper: Keeper, gated: GatedRunner
) -> None:
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    first = await say(keeper, c, "a")
    steer = await say(keeper, c, "also this", mode=Mode.STEER)
    assert (steer.outcome, steer.position) == ("steered", None)
    interrupt = await say(keeper, c, "no, this", mode=Mode.INTERRUPT)
    gated.gate("also this").set()
    gated.gate("no, this").set()
    assert (await ended(keeper, first.turn_id)).reason == "interrupted"
    assert (await ended(keeper, interrupt.turn_id)).state == "settled"
    assert gated.ran == ["a", "also this", "no, this"], "the steer that nobody took is the next turn"


async def test_bad_submissions_are_refused_and_store_nothing(keeper: Keeper) -> None:
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    bad: list[tuple[type[BadInput], dict[str, Any]]] = [
        (NothingToSend, {"key": "k", "parts": ()}),
        (NothingToSend, {"key": "k", "parts": (Text(""),)}),
        (TextTooLong, {"key": "k", "parts": (Text("x" * 1001),)}),
        (KeyMalformed, {"key": "", "parts": (Text("x"),)}),
        (KeyMalformed, {"key": "k" * 256, "parts": (Text("x"),)}),
        (KeyMalformed, {"key": "a b", "parts": (Text("x"),)}),
        (PartInvalid, {"key": "k", "parts": (Attachment("f_none"),)}),
    ]
    for error, arguments in bad:
        with pytest.raises(error):
            await keeper.submit(OPERATOR, c, **arguments)
    assert (await keeper.conversation(OPERATOR, c)).as_of_seq == 1
    fits = await keeper.submit(OPERATOR, c, key="k" * 255, parts=(Text("x" * 1000),))
    assert fits.outcome == "started"
    with pytest.raises(BadInput, match="no agent 'ghost'"):
        await keeper.create_conversation(OPERATOR, "ghost")


async def test_files_are_served_only_through_a_conversation_that_holds_them(keeper: Keeper) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"\x89PNG\r\n\x1a\n"
        yield b"rest"

    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    other = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    made = await keeper.put_attachment(OPERATOR, "p.txt", chunks())
    assert made["media_type"] == "image/png", "its bytes decide, not its name"
    with pytest.raises(NotFound):
        await keeper.attachment(OPERATOR, c, made["attachment_id"])
    turn = await keeper.submit(OPERATOR, c, key="k", parts=(Attachment(made["attachment_id"]),))
    await ended(keeper, turn.turn_id)
    row, path = await keeper.attachment(OPERATOR, c, made["attachment_id"])
    assert path.read_bytes() == b"\x89PNG\r\n\x1a\nrest"
    assert row.name == "p.txt"
    with pytest.raises(NotFound):
        await keeper.attachment(OPERATOR, other, made["attachment_id"])
    mine = (await keeper.create_conversation(ALICE, "demo")).conversation_id
    with pytest.raises(PartInvalid):
        await keeper.submit(ALICE, mine, key="k", parts=(Attachment(made["attachment_id"]),))


async def test_a_pasted_secret_is_nowhere_but_its_own_turn_can_use_it(tmp_path: Path) -> None:
    secret = "sk-test-AAAABBBBCCCCDDDDEEEE"
    first, second = GatedRunner(), GatedRunner()
    data = tmp_path / "data"
    keeper = await Keeper.open(data, runners={"gated": first})
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    text = f"my key is {secret} use it"
    turn = await say(keeper, c, text)
    await keeper.close(grace_seconds=0)

    keeper = await Keeper.open(data, runners={"gated": second})
    try:
        masked = (await texts(keeper, c))[0].removeprefix("u:")
        assert secret not in masked
        assert "[secret:" in masked
        second.gate(masked).set()
        assert (await ended(keeper, turn.turn_id)).state == "settled"
        revealed = second.running[masked].reveal(masked.encode())
        assert revealed.decode() == text, "after a restart its turn can still use it"
        exported = b"".join([line async for line in keeper.export(OPERATOR, c)])
        assert secret.encode() not in exported
    finally:
        await keeper.close()
    for file in data.rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file


async def test_export_is_json_lines_with_every_event(keeper: Keeper) -> None:
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    await ended(keeper, (await say(keeper, c, "hello")).turn_id)
    lines = [json.loads(line) async for line in keeper.export(OPERATOR, c)]
    assert lines[0]["conversation_id"] == c
    assert [line["seq"] for line in lines[1:]] == list(range(1, len(lines)))


async def test_a_planned_stop_hands_the_turn_back_and_the_next_process_goes_on(tmp_path: Path) -> None:
    first, second = GatedRunner(), GatedRunner()
    keeper = await Keeper.open(tmp_path / "d", runners={"gated": first})
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    running = await say(keeper, c, "a")
    waiting = await say(keeper, c, "b")
    await keeper.close(grace_seconds=0)
    second.gate("a").set()
    second.gate("b").set()
    async with await Keeper.open(tmp_path / "d", runners={"gated": second}) as keeper:
        for one in (running, waiting):
            assert (await ended(keeper, one.turn_id)).state == "settled"
        row = await keeper.store.turn(running.turn_id)
        assert row is not None
        assert row.rescues == 0, "a planned stop costs no budget"
        assert second.ran == ["a", "b"]
