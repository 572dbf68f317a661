"""Terminals of CLIs that are kept in panes: what they show, what they do, and who has the keyboard.

The stream carries what the terminal drew, as base64, for a display to draw again; keys never travel with it. Whoever
types has taken the terminal over first, in an operation with a right of its own.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec

from turnkeeper.conversation.rights import Right
from turnkeeper.errors import CannotStart, Conflict
from turnkeeper.projection.view import StreamItem, Volatile
from turnkeeper.server.operation import Call, Operation
from turnkeeper.server.reply import Answer, Reply, reply
from turnkeeper.server.shapes import AdoptBody, KeysBody, SessionList, TakeOverBody, TerminalView
from turnkeeper.terminal.pane import Frame


async def state(call: Call) -> Answer:
    return reply(await call.keeper.terminals.state(call.principal, call.values["conversation_id"]))


async def screen(call: Call) -> Answer:
    text = await call.keeper.terminals.screen(call.principal, call.values["conversation_id"])
    return Reply(text.encode(), media_type=b"text/plain; charset=utf-8")


async def stream(call: Call) -> Answer:
    frames = await call.keeper.terminals.view(call.principal, call.values["conversation_id"])
    return call.edge.streams.answer(call.principal, _items(frames))


async def _items(frames: AsyncIterator[Frame]) -> AsyncIterator[StreamItem]:
    async with aclosing(frames) as open_frames:  # type: ignore[type-var]
        async for frame in open_frames:
            shown: dict[str, Any] = {"data": base64.b64encode(frame.data).decode()}
            if frame.columns:
                shown |= {"columns": frame.columns, "rows": frame.rows}
            yield Volatile(kind=f"terminal_{frame.kind}", data=msgspec.json.encode(shown))


async def take_over(call: Call) -> Answer:
    body = await call.body(TakeOverBody)
    conversation_id = call.values["conversation_id"]
    return reply(await call.keeper.terminals.take_over(call.principal, conversation_id, force=body.force))


async def give_back(call: Call) -> Answer:
    return reply(await call.keeper.terminals.give_back(call.principal, call.values["conversation_id"]))


async def keys(call: Call) -> Answer:
    body = await call.body(KeysBody)
    typed = await call.keeper.terminals.type(call.principal, call.values["conversation_id"], body.data)
    return reply({"bytes": typed})


async def interrupt(call: Call) -> Answer:
    return reply(await call.keeper.terminals.interrupt(call.principal, call.values["conversation_id"]))


async def restart(call: Call) -> Answer:
    return reply(await call.keeper.terminals.restart(call.principal, call.values["conversation_id"]))


async def adopt(call: Call) -> Answer:
    body = await call.body(AdoptBody)
    return reply(
        await call.keeper.terminals.adopt(
            call.principal,
            call.values["conversation_id"],
            pane=body.pane,
            socket_name=body.socket_name,
            session_id=body.session_id,
        )
    )


async def attach(call: Call) -> Answer:
    command = await call.keeper.terminals.attach_command(call.principal, call.values["conversation_id"])
    return reply({"command": command})


async def sessions(call: Call) -> Answer:
    return reply({"sessions": await call.keeper.terminals.sessions(call.principal), "next": None})


ONE = "/v1/conversations/{conversation_id}/terminal"

OPERATIONS = (
    Operation(
        method="GET",
        path=ONE,
        name="readTerminal",
        summary="What the conversation's CLI does: idle, busy, blocked by what, resumed or new and why.",
        handler=state,
        right=Right.READ,
        answer=TerminalView,
        tag="terminals",
    ),
    Operation(
        method="GET",
        path=ONE + "/screen",
        name="readScreen",
        summary="The terminal's screen, as text.",
        handler=screen,
        right=Right.READ,
        media_type="text/plain",
        tag="terminals",
    ),
    Operation(
        method="GET",
        path=ONE + "/stream",
        name="watchTerminal",
        summary="Follow the terminal: the whole screen, then all its output, as base64. Server-sent events.",
        handler=stream,
        right=Right.READ,
        media_type="text/event-stream",
        tag="terminals",
    ),
    Operation(
        method="POST",
        path=ONE + "/take-over",
        name="takeTerminalOver",
        summary="Take the keyboard. One person has it at a time; deliveries from the queue wait meanwhile.",
        handler=take_over,
        right=Right.TERMINAL,
        body=TakeOverBody,
        body_optional=True,
        answer=TerminalView,
        errors=(Conflict,),
        tag="terminals",
    ),
    Operation(
        method="DELETE",
        path=ONE + "/take-over",
        name="giveTerminalBack",
        summary="Give the keyboard back to the queue.",
        handler=give_back,
        right=Right.TERMINAL,
        answer=TerminalView,
        tag="terminals",
    ),
    Operation(
        method="POST",
        path=ONE + "/keys",
        name="typeKeys",
        summary="Type bytes (base64), for who has taken the terminal over.",
        handler=keys,
        right=Right.TERMINAL,
        body=KeysBody,
        errors=(Conflict,),
        tag="terminals",
    ),
    Operation(
        method="POST",
        path=ONE + "/interrupt",
        name="interruptTerminal",
        summary="Stop what the CLI does now by its own key. Nothing is pressed at an idle one.",
        handler=interrupt,
        right=Right.WRITE,
        answer=TerminalView,
        tag="terminals",
    ),
    Operation(
        method="POST",
        path=ONE + "/restart",
        name="restartTerminal",
        summary="End the CLI with all it started; the next turn resumes its session in a new process.",
        handler=restart,
        right=Right.WRITE,
        answer=TerminalView,
        tag="terminals",
    ),
    Operation(
        method="POST",
        path=ONE + "/adopt",
        name="adoptTerminal",
        summary="Go on with a CLI, or a native session, that was started by hand.",
        handler=adopt,
        right=Right.TERMINAL,
        body=AdoptBody,
        answer=TerminalView,
        errors=(CannotStart, Conflict),
        tag="terminals",
    ),
    Operation(
        method="GET",
        path=ONE + "/attach",
        name="readAttachCommand",
        summary="The command with which a person on the server's machine opens the same terminal.",
        handler=attach,
        right=Right.TERMINAL,
        tag="terminals",
    ),
    Operation(
        method="GET",
        path="/v1/sessions",
        name="listSessions",
        summary="The CLIs of your conversations: process, memory, state, idle since when.",
        handler=sessions,
        right=Right.READ,
        answer=SessionList,
        tag="terminals",
    ),
)
