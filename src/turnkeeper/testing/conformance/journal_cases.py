"""What every store promises of the journal and of batches."""

from __future__ import annotations

import asyncio

import msgspec

from turnkeeper.conversation.events import (
    LanePaused,
    MessageAppended,
    ReceiptMoved,
    ToolIntended,
    ToolReturned,
    TurnCancelled,
    TurnSettled,
    Unknown,
)
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import (
    Disposition,
    Effect,
    ReceiptState,
    TurnState,
)
from turnkeeper.errors import Conflict, NotFound, Stopping
from turnkeeper.port.store import (
    Fence,
    KeyTaken,
    UserRow,
)
from turnkeeper.testing.conformance.kit import StoreKit, begun, running, store_case, turn_of
from turnkeeper.testing.conformance.script import Script, refused, said


@store_case
async def events_get_a_gapless_seq_and_a_growing_position(kit: StoreKit) -> None:
    """Per conversation 1, 2, 3 ...; over all conversations strictly growing."""
    one = await begun(kit)
    two = Script(one.store, "c2")
    await two.create()
    stored = [*await one.say("a", "x"), *await two.say("b", "y"), *await one.say("c", "z")]
    assert [event.seq for event in await one.store.events("c1")] == [1, 2, 3]
    assert [event.seq for event in await one.store.events("c2")] == [1, 2]
    positions = [event.position for event in stored]
    assert positions == sorted(set(positions))
    assert positions[0] > 0


@store_case
async def commit_returns_what_reads_give_back(kit: StoreKit) -> None:
    """The same events, with seq, place and position filled in."""
    script = await begun(kit)
    stored = await script.submit("a", said("a", "hi"))
    assert await script.store.events("c1", after=1) == stored
    assert [event.kind for event in stored] == ["Submitted", "MessageAppended"]
    assert stored[0].body.place == 2  # type: ignore[union-attr]
    assert stored[1].body.message.seq == 3  # type: ignore[union-attr]
    assert stored[0].at == script.at
    assert stored[0].actor == "user:u1"
    assert stored[0].turn_id == "t-a"


@store_case
async def events_can_be_read_from_a_cursor_up_to_a_limit_and_of_one_turn(kit: StoreKit) -> None:
    """`after` excludes, `limit` bounds, `turn_id` selects."""
    script = await running(kit)
    for number in range(300):
        await script.commit(said(str(number), "x"), turn="t-a" if number % 3 == 0 else None)
    store = script.store
    assert [event.seq for event in await store.events("c1", after=2, limit=2)] == [3, 4]
    everything = await store.events("c1", limit=1000)
    assert [event.seq for event in everything] == list(range(1, 304))
    assert [event.seq for event in await store.events("c1", limit=250)] == list(range(1, 251))
    of_turn = [event for event in everything if event.turn_id == "t-a"]
    assert list(await store.events("c1", turn_id="t-a")) == of_turn
    assert (
        list(await store.events("c1", turn_id="t-a", after=100, limit=3))
        == [event for event in of_turn if event.seq > 100][:3]
    )
    assert await store.events("c2", turn_id="t-a") == ()
    assert await store.events("c1", after=303) == ()
    assert await store.events("nowhere") == ()


@store_case
async def an_event_of_an_unknown_kind_is_kept_word_for_word(kit: StoreKit) -> None:
    """What a newer version wrote survives, and changes no row."""
    script = await begun(kit)
    before = await kit.tables(script.store)
    raw = b'{"depth": 3,  "words":"\\u00e9"}'
    await script.commit(Unknown("MoonPhaseNoted", msgspec.Raw(raw)))
    store = await kit.reopen(script.store)
    (event,) = await store.events("c1", after=1)
    assert event.kind == "MoonPhaseNoted"
    assert isinstance(event.body, Unknown)
    assert bytes(event.body.raw) == raw
    after = await kit.tables(store)
    assert {**after, "conversation": None} == {**before, "conversation": None}


@store_case
async def text_of_any_kind_comes_back_as_it_was_sent(kit: StoreKit) -> None:
    """NUL, lone surrogates, private-use characters, astral planes: in bodies, titles, keys and rows."""
    text = "a\x00b\ud800c\ue000d\ue0000041 \U0001f600\udfff é\r\n"
    script = Script(await kit.open(), "c1")
    await script.create(title=text)
    await script.submit("a", text=text, key=text, options={text: [text, None, 1.5]})
    await script.say("a", text, error=text)
    await script.commit(
        ToolIntended(
            call_id=text, name=text, arguments={text: text}, effect=Effect.ACTS, idempotency_key=text
        ),
        ToolReturned(call_id=text, disposition=Disposition.DONE, result=text),
        ReceiptMoved(ReceiptState.ACCEPTED, {text: text}),
        TurnCancelled(text),
        LanePaused(text),
        turn="t-a",
    )
    await script.store.put_user(UserRow(user_id=text, name=text))
    store = await kit.reopen(script.store)
    found = await store.conversation("c1")
    assert found is not None
    assert (found.title, found.paused) == (text, text)
    submission = await store.submission_by_key("u1", "c1", text)
    assert submission is not None
    assert submission.request.parts == (Text(text),)
    assert submission.request.options == {text: [text, None, 1.5]}
    (message,) = await store.messages("c1")
    assert (message.text, message.error) == (text, text)
    (call,) = await store.tool_calls("t-a")
    assert (call.call_id, call.name, call.arguments, call.result) == (text, text, {text: text}, text)
    turn = await store.turn("t-a")
    assert turn is not None
    assert (turn.reason, turn.receipt.evidence) == (text, {text: text})
    assert await store.user(text) == UserRow(user_id=text, name=text)


@store_case
async def ids_that_nobody_gave_out_find_nothing(kit: StoreKit) -> None:
    """Any text whatever may come in an address."""
    store = (await begun(kit)).store
    for strange in ("", "c1\x00", "\ud800", "\ue000d800", "'; --", "%", "C1"):
        assert await store.conversation(strange) is None
        assert await store.lane(strange) is None
        assert await store.turn(strange) is None
        assert await store.submission(strange) is None
        assert await store.attachment(strange) is None
        assert await store.token(strange) is None
        assert await store.token_by_hash(strange) is None
        assert await store.value(strange) is None
        assert await store.events(strange) == ()
        assert await store.messages(strange) == ()
        assert await store.turns(strange) == ()
        assert await store.turns("c1", before=strange) == ()
        assert await store.tool_calls(strange) == ()
        assert not await store.attachment_in("c1", strange)


@store_case
async def a_batch_is_stored_whole_or_not_at_all(kit: StoreKit) -> None:
    """A refusal at its last event leaves nothing of the first."""
    script = await begun(kit)
    await script.say("a", "x")
    before = await kit.tables(script.store)
    with refused(NotFound):
        await script.commit(said("b", "y"), TurnSettled(), turn="t-nobody")
    with refused(Conflict):
        await script.commit(said("c", "y"), said("a", "again"))
    with refused(Conflict):
        await script.commit(said("d", "y"), said("d", "again"))
    assert await kit.tables(script.store) == before
    assert len(await script.store.events("c1")) == 2
    (event,) = await script.say("e", "z")
    assert event.seq == 3


@store_case
async def an_unknown_conversation_is_not_found_unless_it_begins(kit: StoreKit) -> None:
    """And one that exists cannot begin again."""
    script = Script(await kit.open(), "c1")
    with refused(NotFound):
        await script.say("a", "x")
    await script.create()
    with refused(Conflict):
        await script.create()
    assert len(await script.store.events("c1")) == 1


@store_case
async def commits_that_run_together_do_not_disturb_each_other(kit: StoreKit) -> None:
    """64 conversations at once, refusals among them: each is stored or refused for itself."""
    store = await kit.open()
    scripts = [Script(store, f"c{number}") for number in range(64)]
    await asyncio.gather(*(script.create() for script in scripts))
    await scripts[5].submit("x")

    async def work(number: int, script: Script) -> str:
        try:
            for step in range(5):
                if number == 7 and step == 3:
                    await script.commit(TurnSettled(), turn="t-nobody")
                if number == 5 and step == 2:
                    await script.submit("y", key="k-x")
                await script.say(f"{number}-{step}", "x" * 100 * number)
        except (NotFound, KeyTaken) as error:
            return type(error).__name__
        return "stored"

    outcomes = await asyncio.gather(*(work(number, script) for number, script in enumerate(scripts)))
    assert outcomes == [{7: "NotFound", 5: "KeyTaken"}.get(number, "stored") for number in range(64)]
    for number, script in enumerate(scripts):
        expected = {7: [1, 2, 3, 4], 5: [1, 2, 3, 4]}.get(number, [1, 2, 3, 4, 5, 6])
        events = await store.events(script.conversation_id)
        assert [event.seq for event in events] == expected, number
        ids = [event.body.message.message_id for event in events if type(event.body) is MessageAppended]
        assert ids == [f"m-{number}-{step}" for step in range(len(ids))]
    assert await store.check() == ()


@store_case
async def commits_to_one_conversation_at_once_get_one_order(kit: StoreKit) -> None:
    """No seq is given twice, none is left out."""
    script = await begun(kit)
    stored = await asyncio.gather(*(script.say(str(number), "x") for number in range(100)))
    assert sorted(event.seq for (event,) in stored) == list(range(2, 102))
    assert [message.seq for message in await script.store.messages_after("c1")] == list(range(2, 102))


@store_case
async def what_was_acknowledged_survives_a_crash(kit: StoreKit) -> None:
    """Everything that `commit` returned is there; a turn still runs under its fence."""
    script = await running(kit)
    stored = await script.say("a", "x")
    tables = await kit.tables(script.store)
    epoch = script.store.epoch
    store = await kit.crash(script.store)
    assert (await store.events("c1"))[-1:] == stored
    assert await kit.tables(store) == tables
    assert store.epoch == epoch
    again = Script(store)
    await again.commit(TurnSettled(), turn="t-a", fence=Fence("t-a", 1))
    assert (await turn_of(again, "a")).state is TurnState.SETTLED


@store_case
async def a_closed_store_takes_nothing_and_keeps_everything(kit: StoreKit) -> None:
    """Commits that were accepted before `close` are stored; later ones are refused, reads too."""
    script = await begun(kit)
    accepted = [asyncio.ensure_future(script.say(str(number), "x")) for number in range(5)]
    await asyncio.sleep(0)
    await asyncio.gather(*accepted)
    tables = await kit.tables(script.store)
    store = await kit.reopen(script.store)
    with refused(Stopping):
        await script.say("late", "x")
    with refused(Stopping):
        await script.store.conversation("c1")
    assert await kit.tables(store) == tables
    assert len(await store.messages("c1")) == 5
