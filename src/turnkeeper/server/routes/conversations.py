"""Conversations: create, list, read, change, delete, their history, their events."""

from __future__ import annotations

from turnkeeper.app.drafts import DraftView
from turnkeeper.app.reconciling import Reconciliation
from turnkeeper.conversation.rights import Right
from turnkeeper.errors import BadInput, CursorInvalid, NotPossible, TextTooLong
from turnkeeper.projection.timeline import Timeline
from turnkeeper.projection.view import ConversationView, Snapshot
from turnkeeper.server.operation import Call, Operation, Param, whole_number
from turnkeeper.server.reply import JSON_LINES, Answer, Chunks, reply
from turnkeeper.server.shapes import (
    AgentList,
    ChangeBody,
    ConversationList,
    CreateBody,
    DeletedView,
    DraftBody,
    MessageList,
    ReconcileBody,
    TurnList,
)
from turnkeeper.transcript.source import Unreadable

CONVERSATIONS_PER_PAGE = 50
ROWS_PER_PAGE = 60


async def create(call: Call) -> Answer:
    body = await call.body(CreateBody)
    made = await call.keeper.create_conversation(call.principal, body.agent, body.title)
    location = b"/v1/conversations/" + made.conversation_id.encode()
    return reply(made, status=201, headers=[(b"location", location)])


async def find(call: Call) -> Answer:
    before = call.number("before")
    rows, following = await call.keeper.conversations(
        call.principal,
        before=None if before is None else str(before),
        limit=call.limit(default=CONVERSATIONS_PER_PAGE),
        archived=call.flag("archived"),
    )
    return reply({"conversations": rows, "next": following})


async def read(call: Call) -> Answer:
    return reply(await call.keeper.conversation(call.principal, call.values["conversation_id"]))


async def agents(call: Call) -> Answer:
    return reply({"agents": await call.keeper.known_agents(call.principal), "next": None})


async def timeline(call: Call) -> Answer:
    return reply(
        await call.keeper.timeline(
            call.principal,
            call.values["conversation_id"],
            before=call.number("before"),
            limit=call.limit(default=ROWS_PER_PAGE),
        )
    )


async def change(call: Call) -> Answer:
    body = await call.body(ChangeBody)
    if body.title is None and body.archived is None:
        raise BadInput(why="give title or archived")
    return reply(
        await call.keeper.change_conversation(
            call.principal, call.values["conversation_id"], title=body.title, archived=body.archived
        )
    )


async def delete(call: Call) -> Answer:
    return reply(await call.keeper.delete_conversation(call.principal, call.values["conversation_id"]))


async def restore(call: Call) -> Answer:
    return reply(await call.keeper.restore_conversation(call.principal, call.values["conversation_id"]))


async def messages(call: Call) -> Answer:
    rows, following = await call.keeper.messages(
        call.principal,
        call.values["conversation_id"],
        before=call.number("before"),
        limit=call.limit(default=call.edge.settings.live_tail_rows),
    )
    return reply({"messages": rows, "next": following})


async def turns(call: Call) -> Answer:
    rows, following = await call.keeper.turns(
        call.principal,
        call.values["conversation_id"],
        before=call.query("before"),
        limit=call.limit(default=call.edge.settings.live_tail_rows),
    )
    return reply({"turns": rows, "next": following})


async def pause(call: Call) -> Answer:
    return reply(await call.keeper.pause(call.principal, call.values["conversation_id"]))


async def resume(call: Call) -> Answer:
    return reply(await call.keeper.resume(call.principal, call.values["conversation_id"]))


async def reconcile(call: Call) -> Answer:
    body = await call.body(ReconcileBody, optional=True)
    return reply(await call.keeper.reconcile(call.principal, call.values["conversation_id"], body.session))


async def events(call: Call) -> Answer:
    """The header wins over the query: a browser that reconnects repeats the address it was first given."""
    given = call.header(b"last-event-id")
    if given is None or given == "":
        given = call.query("after")
    after = 0 if given is None else whole_number(given)
    conversation_id = call.values["conversation_id"]
    # A watcher is let in, or refused, before the stream has begun.
    await call.keeper.conversation(call.principal, conversation_id)
    items = call.keeper.watch(call.principal, conversation_id, after=after, epoch=call.query("epoch"))
    return call.edge.streams.answer(call.principal, items)


async def read_draft(call: Call) -> Answer:
    return reply(await call.keeper.drafts.read(call.principal, call.values["conversation_id"]))


async def keep_draft(call: Call) -> Answer:
    body = await call.body(DraftBody)
    kept = await call.keeper.drafts.keep(
        call.principal, call.values["conversation_id"], body.text, body.files
    )
    return reply(kept)


async def export(call: Call) -> Answer:
    lines = call.keeper.export(call.principal, call.values["conversation_id"])
    return await Chunks.of(lines, media_type=JSON_LINES)


BEFORE = Param(name="before", description="The `next` of the page after the one that is asked for.")
LIMIT = Param(name="limit", description="Most rows of the page; at most page_rows_max.", type="integer")

C = "/v1/conversations"
ONE = C + "/{conversation_id}"

OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/agents",
        name="listAgents",
        summary="The agents that a conversation can be made with.",
        handler=agents,
        right=Right.READ,
        answer=AgentList,
        tag="conversations",
    ),
    Operation(
        method="GET",
        path=ONE + "/events",
        name="watchConversation",
        summary="Follow a conversation: its events after a cursor, then live. Server-sent events.",
        handler=events,
        right=Right.READ,
        media_type="text/event-stream",
        params=(
            Param(name="after", description="Send the events after this seq; 0 sends all.", type="integer"),
            Param(name="Last-Event-ID", place="header", description="As `after`, and stronger."),
            Param(name="epoch", description="The epoch of the cursor; another one is answered by `resync`."),
        ),
        errors=(CursorInvalid,),
        tag="conversations",
    ),
    Operation(
        method="POST",
        path=C,
        name="createConversation",
        summary="Begin a conversation with an agent.",
        handler=create,
        right=Right.WRITE,
        body=CreateBody,
        answer=ConversationView,
        status=201,
        tag="conversations",
    ),
    Operation(
        method="GET",
        path=C,
        name="listConversations",
        summary="List your conversations, newest activity first.",
        handler=find,
        right=Right.READ,
        answer=ConversationList,
        params=(
            BEFORE,
            LIMIT,
            Param(name="archived", description="true lists the archive instead.", type="boolean"),
        ),
        errors=(CursorInvalid,),
        tag="conversations",
    ),
    Operation(
        method="GET",
        path=ONE,
        name="readConversation",
        summary="Everything that is needed to draw a conversation, apart from older messages.",
        handler=read,
        right=Right.READ,
        answer=Snapshot,
        tag="conversations",
    ),
    Operation(
        method="GET",
        path="/v1/conversations/{conversation_id}/timeline",
        name="readTimeline",
        summary="The ordered rows that a page draws: history, progress before its answer, the queue last.",
        handler=timeline,
        right=Right.READ,
        answer=Timeline,
        params=(
            Param(name="before", description="Rows before this seq: the `next` of the newer page."),
            Param(name="limit", description="How many messages at the most."),
        ),
        tag="conversations",
    ),
    Operation(
        method="PATCH",
        path=ONE,
        name="changeConversation",
        summary="Change the title, archive, or take out of the archive.",
        handler=change,
        right=Right.WRITE,
        body=ChangeBody,
        answer=ConversationView,
        tag="conversations",
    ),
    Operation(
        method="DELETE",
        path=ONE,
        name="deleteConversation",
        summary="Delete a conversation and stop what it runs. It can be restored for undo_seconds.",
        handler=delete,
        right=Right.WRITE,
        answer=DeletedView,
        tag="conversations",
    ),
    Operation(
        method="POST",
        path=ONE + "/restore",
        name="restoreConversation",
        summary="Undo a deletion.",
        handler=restore,
        right=Right.WRITE,
        answer=ConversationView,
        tag="conversations",
    ),
    Operation(
        method="GET",
        path=ONE + "/messages",
        name="listMessages",
        summary="History, the newest page first.",
        handler=messages,
        right=Right.READ,
        answer=MessageList,
        params=(
            Param(name="before", description="Only messages with a smaller seq.", type="integer"),
            LIMIT,
        ),
        errors=(CursorInvalid,),
        tag="conversations",
    ),
    Operation(
        method="GET",
        path=ONE + "/turns",
        name="listTurns",
        summary="The turns of a conversation, newest first.",
        handler=turns,
        right=Right.READ,
        answer=TurnList,
        params=(BEFORE, LIMIT),
        errors=(CursorInvalid,),
        tag="turns",
    ),
    Operation(
        method="POST",
        path=ONE + "/pause",
        name="pauseConversation",
        summary="Let nothing more start until the conversation is resumed.",
        handler=pause,
        right=Right.WRITE,
        answer=Snapshot,
        tag="conversations",
    ),
    Operation(
        method="POST",
        path=ONE + "/resume",
        name="resumeConversation",
        summary="Let the queue go on.",
        handler=resume,
        right=Right.WRITE,
        answer=Snapshot,
        tag="conversations",
    ),
    Operation(
        method="POST",
        path=ONE + "/reconcile",
        name="reconcileConversation",
        summary="Merge what the conversation's coding CLI recorded into its history. Again changes nothing.",
        handler=reconcile,
        right=Right.WRITE,
        body=ReconcileBody,
        body_optional=True,
        answer=Reconciliation,
        errors=(NotPossible, Unreadable),
        tag="conversations",
    ),
    Operation(
        method="GET",
        path=ONE + "/draft",
        name="readDraft",
        summary="What you have written to the conversation and not sent, on whichever device.",
        handler=read_draft,
        right=Right.READ,
        answer=DraftView,
        tag="conversations",
    ),
    Operation(
        method="POST",
        path=ONE + "/draft",
        name="keepDraft",
        summary="Keep your draft; the newest writer wins. Words that hold a secret are kept as empty.",
        handler=keep_draft,
        right=Right.WRITE,
        body=DraftBody,
        answer=DraftView,
        errors=(TextTooLong,),
        tag="conversations",
    ),
    Operation(
        method="GET",
        path=ONE + "/export",
        name="exportConversation",
        summary="The whole journal of a conversation, one JSON object a line.",
        handler=export,
        right=Right.READ,
        media_type="application/x-ndjson",
        tag="conversations",
    ),
)
