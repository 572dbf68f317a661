"""What every store promises of conversations and messages."""

from __future__ import annotations

from typing import Any

from turnkeeper.conversation.events import (
    AttemptSuperseded,
    AutoResumed,
    ConfirmationExpired,
    ConversationArchived,
    ConversationDeleted,
    ConversationRenamed,
    ConversationRestored,
    HistoryReconciled,
    LanePaused,
    MessageAppended,
    MessageMarked,
    SessionBound,
)
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.turns import Failure
from turnkeeper.testing.conformance.kit import StoreKit, begun, store_case
from turnkeeper.testing.conformance.script import Script, said


@store_case
async def conversations_are_listed_newest_activity_first(kit: StoreKit) -> None:
    """Of one owner; archived ones only when asked for, deleted ones never."""
    store = await kit.open()
    scripts = {name: Script(store, name) for name in ("c1", "c2", "c3", "c4", "c5")}
    for name, script in scripts.items():
        await script.create(owner="u2" if name == "c5" else "u1", title=name)
    await scripts["c2"].commit(ConversationArchived(True))
    await scripts["c3"].commit(ConversationDeleted(30.0))
    await scripts["c1"].say("a", "newest")

    async def listed(owner: str = "u1", **how: Any) -> list[str]:
        return [found.conversation_id for found in await store.conversations(owner, **how)]

    assert await listed() == ["c1", "c4"]
    assert await listed(archived=True) == ["c2"]
    assert await listed("u2") == ["c5"]
    assert await listed("nobody") == []
    (first,) = await store.conversations("u1", limit=1)
    assert first.conversation_id == "c1"
    assert await listed(before=first.activity) == ["c4"]
    await scripts["c3"].commit(ConversationRestored())
    assert await listed() == ["c3", "c1", "c4"]
    await scripts["c4"].commit(ConversationRenamed("new"))
    found = await store.conversation("c4")
    assert found is not None
    assert (found.title, found.last_seq, found.active_at) == ("new", 2, scripts["c4"].at)
    await scripts["c4"].commit(ConversationDeleted(30.0))
    gone = await store.conversation("c4")
    assert gone is not None
    assert gone.deleted_at == scripts["c4"].at


@store_case
async def messages_come_in_pages_newest_page_first_ascending_inside(kit: StoreKit) -> None:
    """Across page sizes that are read in one go and in several."""
    script = await begun(kit)
    await script.commit(*(said(str(number), f"text {number}") for number in range(450)))
    await script.commit(LanePaused("asked"))
    store = script.store
    assert [message.seq for message in await store.messages("c1")] == list(range(402, 452))
    assert [message.seq for message in await store.messages("c1", before=402, limit=3)] == [399, 400, 401]
    assert [message.seq for message in await store.messages("c1", limit=420)] == list(range(32, 452))
    assert [message.seq for message in await store.messages("c1", before=3)] == [2]
    assert await store.messages("c1", before=2) == ()
    assert await store.messages("c1", limit=0) == ()
    everything = await store.messages_after("c1")
    assert [message.text for message in everything] == [f"text {number}" for number in range(450)]
    assert [message.seq for message in await store.messages_after("c1", after=449)] == [450, 451]
    assert await store.messages_after("c1", after=451) == ()


@store_case
async def landmarks_are_found_between_two_seqs_and_nothing_else_is(kit: StoreKit) -> None:
    """What a timeline draws between messages, from `since` on and before `before`."""
    script = await begun(kit)
    bound = SessionBound(cli="pi", native_id="n1", why="new", sentence="It began.")
    resumed = AutoResumed(Failure(kind="stall", retryable=True, sentence="Silence."), kept_rounds=1)
    first = (await script.commit(bound))[-1].seq
    await script.commit(LanePaused("asked"))
    second = (await script.commit(resumed))[-1].seq
    await script.commit(LanePaused("asked"))

    async def found(**where: Any) -> list[Any]:
        return [(event.seq, event.body) for event in await script.store.landmarks("c1", **where)]

    assert await found() == [(first, bound), (second, resumed)]
    assert await found(since=first) == [(first, bound), (second, resumed)]
    assert await found(since=first + 1) == [(second, resumed)]
    assert await found(before=second) == [(first, bound)]
    assert await found(since=first + 1, before=second) == []
    assert await script.store.landmarks("c9") == ()


@store_case
async def a_mark_changes_flags_on_every_read_and_no_words(kit: StoreKit) -> None:
    """Superseded, leaked, interrupted: display and replay are independent; the event is as it was."""
    script = await begun(kit)
    for name in ("a", "b", "c", "d"):
        await script.say(name, "words", "assistant")
    await script.commit(
        MessageMarked("m-a", standing="interrupted", replay=False),
        MessageMarked("m-b", display=False),
        MessageMarked("m-nobody", display=False),
        AttemptSuperseded("m-c", "leaked"),
        ConfirmationExpired("m-d", "confirm reboot"),
    )
    await script.commit(MessageMarked("m-a", replay=True, why="undone"))

    def flags(message: Message) -> tuple[str, str, bool, bool]:
        return message.text, message.standing, message.display, message.replay

    expected = [
        ("words", "interrupted", True, True),
        ("words", "complete", False, True),
        ("words", "superseded", True, False),
        ("words", "expired", True, True),
    ]
    store = await kit.reopen(script.store)
    assert [flags(message) for message in await store.messages("c1")] == expected
    assert [flags(message) for message in await store.messages_after("c1")] == expected
    first = (await store.events("c1", after=1))[0].body
    assert isinstance(first, MessageAppended)
    assert first.message.standing == "complete"


@store_case
async def messages_found_later_stand_where_they_name_and_are_no_cursor(kit: StoreKit) -> None:
    """Rows that a CLI's transcript had and we had not: in order in every read and in the right page."""
    script = await begun(kit)
    await script.commit(*(said(str(number), f"text {number}") for number in range(10)))
    await script.commit(
        said("x", "x", native_id="n-x", after="m-3"),
        said("y", "y", native_id="n-y", after="m-x"),
        HistoryReconciled("t", placements=(("n-x", "m-x", "m-3"),), matches=(("n-1", "m-1", "words"),)),
        said("first", "first", after=""),
        said("end", "end"),
    )
    store = await kit.reopen(script.store)

    def names(messages: tuple[Message, ...]) -> str:
        return " ".join(message.message_id.removeprefix("m-") for message in messages)

    whole = "first 0 1 2 3 x y 4 5 6 7 8 9 end"
    assert names(await store.messages("c1")) == whole
    assert names(await store.messages_after("c1")) == whole
    assert names(await store.messages("c1", limit=7)) == "4 5 6 7 8 9 end"
    assert names(await store.messages("c1", before=6, limit=3)) == "1 2 3 x y"
    assert names(await store.messages("c1", before=3, limit=3)) == "first 0"
    known = {message.message_id: message.native_id for message in await store.messages("c1")}
    assert (known["m-1"], known["m-2"], known["m-x"]) == ("n-1", None, "n-x")
