"""What every store promises of itself and of the rows that belong to no conversation."""

from __future__ import annotations

import asyncio

import msgspec

from turnkeeper.conversation.events import (
    MessageAppended,
    MessageMarked,
    ReceiptMoved,
    ToolIntended,
    ToolReturned,
    TurnEdited,
    TurnFailed,
    TurnSettled,
    TurnStarted,
)
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Attachment, Text, ToolResult
from turnkeeper.conversation.turns import (
    Disposition,
    Effect,
    ReceiptState,
)
from turnkeeper.errors import BadInput, Conflict
from turnkeeper.port.store import (
    AttachmentRow,
    Fence,
    OutboxRow,
    TokenRow,
    UserRow,
)
from turnkeeper.testing.conformance.kit import FAILURE, StoreKit, begun, running, store_case
from turnkeeper.testing.conformance.script import Script, refused, said


@store_case
async def users_and_tokens_are_kept_and_replaced(kit: StoreKit) -> None:
    """A token is found by its hash until it is replaced by one with another."""
    store = await kit.open()
    user = UserRow(user_id="u1", name="owner", created_at=1.0)
    token = TokenRow(token_id="k1", user_id="u1", sha256="aa", scopes=("read", "write"), created_at=2.0)
    await store.put_user(user)
    await store.put_token(token)
    store = await kit.reopen(store)
    assert await store.user("u1") == user
    assert await store.token("k1") == token
    assert await store.token_by_hash("aa") == token
    revoked = msgspec.structs.replace(token, revoked_at=3.0, expires_at=9.0, label="bot")
    await store.put_token(revoked)
    assert await store.token_by_hash("aa") == revoked
    await store.put_user(msgspec.structs.replace(user, disabled_at=4.0))
    found = await store.user("u1")
    assert found is not None
    assert found.disabled_at == 4.0
    with refused(Conflict):
        await store.put_token(msgspec.structs.replace(token, token_id="k2"))


@store_case
async def a_conversation_holds_the_attachments_that_its_parts_name(kit: StoreKit) -> None:
    """In a submission, an edit, a message, or a tool's result."""
    script = await begun(kit)
    row = AttachmentRow(
        attachment_id="f1", user_id="u1", sha256="bb", name="a.png", media_type="image/png", size_bytes=3
    )
    await script.store.put_attachment(row)
    assert await script.store.attachment("f1") == row
    assert not await script.store.attachment_in("c1", "f1")
    await script.submit("a", parts=(Text("see"), Attachment("f1")))
    await script.commit(TurnEdited((Attachment("f2"),)), turn="t-a")
    result = ToolResult("x", content=[{"type": "attachment", "attachment_id": "f4"}, {"text": "y"}])
    await script.commit(
        MessageAppended(Message(message_id="m1", role="user", parts=(Attachment("f3"), Attachment("f1")))),
        MessageAppended(Message(message_id="m2", role="tool", parts=(result,))),
    )
    store = await kit.reopen(script.store)
    assert [await store.attachment_in("c1", f"f{number}") for number in range(1, 6)] == [True] * 4 + [False]
    assert not await store.attachment_in("c2", "f1")


@store_case
async def the_outbox_gives_what_is_due_and_not_done(kit: StoreKit) -> None:
    """Earliest first."""
    store = await kit.open()
    rows = [
        OutboxRow(outbox_id=f"o{number}", conversation_id="c1", kind="hook", body={"n": number}, due_at=due)
        for number, due in enumerate((30.0, 10.0, 20.0, 99.0))
    ]
    for row in rows:
        await store.put_outbox(row)
    assert await store.outbox_due(30.0) == (rows[1], rows[2], rows[0])
    assert await store.outbox_due(30.0, limit=1) == (rows[1],)
    await store.put_outbox(msgspec.structs.replace(rows[1], attempts=1, due_at=40.0))
    await store.put_outbox(msgspec.structs.replace(rows[2], attempts=1, done_at=31.0))
    assert await store.outbox_due(30.0) == (rows[0],)
    store = await kit.reopen(store)
    assert [row.outbox_id for row in await store.outbox_due(1000.0)] == ["o0", "o1", "o3"]


@store_case
async def named_values_are_bytes(kit: StoreKit) -> None:
    """Any bytes, replaced by the next."""
    store = await kit.open()
    assert await store.value("x") is None
    await store.put_value("x", b"\x00\xff")
    await store.put_value("y", b"")
    await store.put_value("x", b"2\x00")
    store = await kit.reopen(store)
    assert (await store.value("x"), await store.value("y")) == (b"2\x00", b"")


async def _everything(kit: StoreKit) -> Script:
    """A store that has something in every table."""
    script = await running(kit)
    await script.commit(
        said("a", "x"),
        ToolIntended(call_id="x", name="n", arguments=1, effect=Effect.ACTS, idempotency_key="i"),
        ToolReturned(call_id="x", disposition=Disposition.DONE, result="r"),
        MessageMarked("m-a", standing="leaked", replay=False),
        ReceiptMoved(ReceiptState.CONFIRMED, {"by": "data"}),
        turn="t-a",
        version=0,
    )
    await script.submit("b", parts=(Attachment("f1"),))
    await script.commit(TurnEdited((Text("edited"),)), turn="t-b")
    await script.commit(MessageMarked("m-early", display=False))
    await script.say("early", "marked before it came")
    await script.store.renew_leases((Fence("t-a", 1),), 9000.0)
    await script.store.put_user(UserRow(user_id="u1", name="owner"))
    await script.store.put_token(TokenRow(token_id="k1", user_id="u1", sha256="aa", scopes=("read",)))
    await script.store.put_value("x", b"1")
    other = Script(script.store, "c2")
    await other.create()
    await other.submit("z", TurnStarted(1, "me", 9.0), TurnFailed(FAILURE))
    return script


@store_case
async def a_rebuild_gives_identical_tables(kit: StoreKit) -> None:
    """The tables are projections of the journal, and nothing else."""
    script = await _everything(kit)
    before = await kit.tables(script.store)
    assert all(before.values()), "the case must fill every table"
    await kit.rebuild(script.store)
    assert await kit.tables(script.store) == before
    assert (await script.store.messages("c1"))[1].display
    await script.commit(TurnSettled(), turn="t-a", fence=Fence("t-a", 1), version=1)
    assert await script.store.check() == ()


@store_case
async def a_backup_is_the_store_of_that_moment_with_an_epoch_of_its_own(kit: StoreKit) -> None:
    """Taken while writes go on; both go their own ways afterwards."""
    script = await _everything(kit)
    path = kit.backup_path()
    writes = [asyncio.ensure_future(script.say(f"w{number}", "x" * 1000)) for number in range(50)]
    await writes[0]
    await script.store.backup(path)
    await asyncio.gather(*writes)
    with refused(BadInput):
        await script.store.backup(path)
    copy = await kit.restore(path)
    assert copy.epoch != script.store.epoch
    assert await copy.check() == ()
    events = await copy.events("c1")
    assert 0 < len(events) <= len(await script.store.events("c1"))
    assert events == (await script.store.events("c1"))[: len(events)]
    assert await copy.user("u1") == await script.store.user("u1")
    assert await copy.token_by_hash("aa") == await script.store.token_by_hash("aa")
    assert await copy.value("x") == b"1"
    (own,) = await Script(copy).say("own", "x")
    assert own.seq == len(events) + 1
    await copy.close()


@store_case
async def a_reopened_store_is_equal_and_keeps_its_epoch(kit: StoreKit) -> None:
    """Tables, journal, cursors."""
    script = await _everything(kit)
    before, events, epoch = (
        await kit.tables(script.store),
        await script.store.events("c1"),
        script.store.epoch,
    )
    store = await kit.reopen(script.store)
    assert await kit.tables(store) == before
    assert await store.events("c1") == events
    assert store.epoch == epoch
    assert epoch
    (event,) = await Script(store).say("next", "x")
    assert event.position > events[-1].position
