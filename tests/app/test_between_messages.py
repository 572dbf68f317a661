"""What stands between messages in the timeline, and what is said of a tool call: from the journal and the ledger."""

from __future__ import annotations

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.events import (
    AutoResumed,
    Draft,
    HistoryCompacted,
    MessageAppended,
    SessionBound,
    ToolIntended,
    ToolReturned,
)
from turnkeeper.conversation.messages import ASSISTANT, NOTICE, TOOL, USER, Message
from turnkeeper.conversation.parts import Text, ToolCall, ToolResult
from turnkeeper.conversation.turns import Disposition, Effect, Failure
from turnkeeper.port.store import Batch
from turnkeeper.projection.timeline import timeline_rows
from turnkeeper.testing.memory_store import MemoryStore

T = "t_1"


@pytest.fixture
async def keeper():
    async with await Keeper.open(store=MemoryStore()) as opened:
        yield opened


def said(number: int, role: str, *parts: object, turn_id: str | None = T, **more: object) -> MessageAppended:
    made = Message(message_id=f"m{number}", role=role, parts=parts, turn_id=turn_id, **more)  # type: ignore[arg-type]
    return MessageAppended(made)


async def test_a_resume_a_session_and_a_summary_stand_where_they_happened(keeper: Keeper) -> None:
    """Work before and after a resume is two rows; the first session of a conversation is none; pages meet."""
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    kept = AutoResumed(Failure(kind="stall", retryable=True, sentence="Silence for 20 s."), 1, 2, 300, 40)
    summary = said(
        6, NOTICE, Text("What was said."), turn_id=None, provenance="summary", replay=False, through="m5"
    )
    bodies = [
        said(1, USER, Text("go"), turn_id=None),
        SessionBound(cli="pi", native_id="n1", why="new", sentence="It began."),
        said(2, ASSISTANT, ToolCall("k1", "read", {})),
        said(3, TOOL, ToolResult("k1", "one")),
        kept,
        said(4, ASSISTANT, ToolCall("k2", "write", {})),
        said(5, ASSISTANT, Text("done")),
        HistoryCompacted("What was said.", "m5"),
        summary,
        said(7, USER, Text("more"), turn_id=None),
        SessionBound(cli="pi", native_id="n2", why="lost", sentence="n1 is gone.", previous="n1", told=True),
    ]
    drafts = tuple(Draft(body, None if isinstance(body, HistoryCompacted) else T) for body in bodies)
    await keeper.store.commit(Batch(conversation_id=c, drafts=drafts, at=1.0))
    page = await keeper.timeline(OPERATOR, c)
    assert [row.kind for row in page.rows] == [
        "user", "progress", "resumed", "progress", "answer", "compacted", "user", "session"
    ]  # fmt: skip
    resumed, compacted, session = page.rows[2], page.rows[5], page.rows[7]
    assert resumed.text == "Silence for 20 s."
    assert resumed.facts == {"rounds": 1, "results": 2, "input_tokens": 300, "output_tokens": 40}
    assert compacted.text == "What was said."
    assert session.facts == {
        "cli": "pi", "why": "lost", "native_id": "n2", "previous": "n1", "told": True
    }  # fmt: skip
    assert len({row.key for row in page.rows}) == len(page.rows)
    newest = await keeper.timeline(OPERATOR, c, limit=1)
    older = await keeper.timeline(OPERATOR, c, limit=100, before=newest.next)
    assert [row.key for row in [*older.rows, *newest.rows]] == [row.key for row in page.rows]


async def test_a_call_is_drawn_with_its_effect_and_how_long_it_took() -> None:
    """From the ledger of a store: intended at 10 s, decided at 12.5 s; an unknown outcome has no time."""
    keeper = await Keeper.open(store=MemoryStore())
    async with keeper:
        c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
        calls = [("k1", Effect.READ_ONLY), ("k2", Effect.ACTS), ("k3", Effect.DESTRUCTIVE)]
        turn_id = (await keeper.submit(OPERATOR, c, key="one", parts=[Text("hello")])).turn_id
        intended = [
            ToolIntended(call_id=k, name="tool", arguments={}, effect=effect, idempotency_key=k)
            for k, effect in calls
        ]
        call_parts = [ToolCall(k, "tool", {}) for k, _ in calls]
        before = (said(1, ASSISTANT, *call_parts, turn_id=turn_id), *intended)
        after = (
            ToolReturned(call_id="k1", disposition=Disposition.DONE, result="r"),
            ToolReturned(call_id="k2", disposition=Disposition.UNKNOWN, result="?", is_error=True),
            said(
                2, TOOL, ToolResult("k1", "r"), ToolResult("k2", "?", disposition="unknown"), turn_id=turn_id
            ),
        )
        for at, bodies in ((10.0, before), (12.5, after)):
            drafts = tuple(Draft(body, turn_id) for body in bodies)
            await keeper.store.commit(Batch(conversation_id=c, drafts=drafts, at=at))
        rows = (await keeper.timeline(OPERATOR, c)).rows
        steps = next(row for row in rows if row.kind == "progress").steps
        assert [(step.effect, step.seconds) for step in steps] == [
            ("read_only", 2.5),
            ("acts", None),
            ("destructive", None),
        ]


def test_without_a_ledger_nothing_is_said_of_effect_and_time() -> None:
    """A CLI's own tools: their effects are not known here."""
    call = Message(message_id="m1", role=ASSISTANT, parts=(ToolCall("k1", "Bash", {}),), turn_id=T)
    result = Message(message_id="m2", role=TOOL, parts=(ToolResult("k1", "ok"),), turn_id=T)
    (row,) = timeline_rows([call, result], {})
    assert (row.steps[0].effect, row.steps[0].seconds) == (None, None)
