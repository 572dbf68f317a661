"""Turns: submit, look at, stop, retry, edit, move, send now."""

from __future__ import annotations

from turnkeeper.conversation.parts import Attachment, Part, Text
from turnkeeper.conversation.rights import Right
from turnkeeper.conversation.turns import Mode
from turnkeeper.errors import (
    BadInput,
    KeyInFlight,
    KeyMalformed,
    KeyMissing,
    KeyReused,
    NothingToSend,
    PartInvalid,
    QueueFull,
    TextTooLong,
    TurnDecided,
)
from turnkeeper.projection.spending import Spending
from turnkeeper.projection.view import Accepted, TurnView, Why
from turnkeeper.server.operation import Call, Operation, Param
from turnkeeper.server.reply import Answer, Headers, reply
from turnkeeper.server.shapes import (
    CancelBody,
    EvidenceView,
    MoveBody,
    SendNowBody,
    SubmitBody,
    TextPart,
    Words,
)

REPLAYED: Headers = [(b"idempotent-replayed", b"true")]

QUEUE_CHOICES = ("pause", "continue")


async def submit(call: Call) -> Answer:
    key = idempotency_key(call)
    body = await call.body(SubmitBody)
    accepted = await call.keeper.submit(
        call.principal,
        call.values["conversation_id"],
        key=key,
        parts=parts_of(body),
        mode=body.mode,
        options={**body.options, "as_command": True} if body.as_command else body.options,
        resend_of=body.resend_of,
    )
    return answered(accepted)


def answered(accepted: Accepted) -> Answer:
    """The 202; a repeat of a key gets the stored answer, marked."""
    return reply(
        {
            "turn_id": accepted.turn_id,
            "submission_id": accepted.submission_id,
            "outcome": accepted.outcome,
            "position": accepted.position,
        },
        status=202,
        headers=REPLAYED if accepted.replayed else None,
    )


def idempotency_key(call: Call) -> str:
    """The header Idempotency-Key: bare, or a quoted string as its draft standard has it. The Keeper judges it."""
    value = call.header(b"idempotency-key")
    if value is None:
        raise KeyMissing
    if sum(name == b"idempotency-key" for name, _ in call.scope["headers"]) > 1:
        raise BadInput(why="there is more than one Idempotency-Key")
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def parts_of(words: Words) -> tuple[Part, ...]:
    """The parts of a message; `text` is the short form of one text part."""
    if words.parts is None:
        if words.text is None or words.text == "":
            raise NothingToSend
        return (Text(words.text),)
    if words.text is not None:
        raise BadInput(why="give text or parts, not both")
    if not words.parts:
        raise NothingToSend
    return tuple(
        [
            Text(part.text) if type(part) is TextPart else Attachment(attachment_id=part.attachment_id)  # type: ignore[union-attr]
            for part in words.parts
        ]
    )


async def read(call: Call) -> Answer:
    return reply(await call.keeper.turn(call.principal, call.values["turn_id"]))


async def evidence(call: Call) -> Answer:
    return reply(await call.keeper.evidence(call.principal, call.values["turn_id"]))


async def why(call: Call) -> Answer:
    return reply(await call.keeper.why(call.principal, call.values["turn_id"]))


async def usage(call: Call) -> Answer:
    return reply(await call.keeper.usage(call.principal, call.values["turn_id"]))


async def cancel(call: Call) -> Answer:
    body = await call.body(CancelBody, optional=True)
    if body.queue not in QUEUE_CHOICES:
        raise BadInput(why=f"queue is pause or continue, not {body.queue!r}")
    return reply(await call.keeper.cancel(call.principal, call.values["turn_id"], queue=body.queue))


async def retry(call: Call) -> Answer:
    return answered(await call.keeper.retry(call.principal, call.values["turn_id"]))


async def edit(call: Call) -> Answer:
    body = await call.body(Words)
    return reply(await call.keeper.edit(call.principal, call.values["turn_id"], parts_of(body)))


async def move(call: Call) -> Answer:
    body = await call.body(MoveBody)
    return reply(await call.keeper.move(call.principal, call.values["turn_id"], body.before))


async def send_now(call: Call) -> Answer:
    body = await call.body(SendNowBody, optional=True)
    if body.mode is Mode.QUEUE:
        raise BadInput(why="mode is steer or interrupt; it is queued already")
    return reply(await call.keeper.send_now(call.principal, call.values["turn_id"], body.mode))


ONE = "/v1/turns/{turn_id}"

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/conversations/{conversation_id}/turns",
        name="submitTurn",
        summary="Send a message. 202 means that it is stored for good.",
        handler=submit,
        right=Right.WRITE,
        body=SubmitBody,
        answer=Accepted,
        status=202,
        params=(
            Param(
                name="Idempotency-Key",
                place="header",
                required=True,
                description="A random value of yours: the same one again gives the stored answer.",
            ),
        ),
        errors=(
            KeyMissing,
            KeyMalformed,
            NothingToSend,
            PartInvalid,
            TextTooLong,
            KeyInFlight,
            KeyReused,
            QueueFull,
        ),
        tag="turns",
    ),
    Operation(
        method="GET",
        path=ONE,
        name="readTurn",
        summary="A turn: its state with the reason, its place, its receipt.",
        handler=read,
        right=Right.READ,
        answer=TurnView,
        tag="turns",
    ),
    Operation(
        method="GET",
        path=ONE + "/evidence",
        name="readEvidence",
        summary="The chain of evidence behind a turn.",
        handler=evidence,
        right=Right.READ,
        answer=EvidenceView,
        tag="turns",
    ),
    Operation(
        method="GET",
        path=ONE + "/why",
        name="explainTurn",
        summary="Why a turn waits: who holds the lane, since when, what releases it.",
        handler=why,
        right=Right.READ,
        answer=Why,
        tag="turns",
    ),
    Operation(
        method="GET",
        path=ONE + "/usage",
        name="turnUsage",
        summary="What a turn used and cost: per model call, per attempt, in all, and what a resume saved.",
        handler=usage,
        right=Right.READ,
        answer=Spending,
        tag="turns",
    ),
    Operation(
        method="POST",
        path=ONE + "/cancel",
        name="cancelTurn",
        summary="Take a waiting turn back, or stop a running one.",
        handler=cancel,
        right=Right.WRITE,
        body=CancelBody,
        body_optional=True,
        answer=TurnView,
        errors=(TurnDecided,),
        tag="turns",
    ),
    Operation(
        method="POST",
        path=ONE + "/retry",
        name="retryTurn",
        summary="Try a failed turn again: the same turn, its next attempt.",
        handler=retry,
        right=Right.WRITE,
        answer=Accepted,
        status=202,
        errors=(TurnDecided,),
        tag="turns",
    ),
    Operation(
        method="POST",
        path=ONE + "/edit",
        name="editTurn",
        summary="Change a message that waits.",
        handler=edit,
        right=Right.WRITE,
        body=Words,
        answer=TurnView,
        errors=(TurnDecided, NothingToSend, PartInvalid, TextTooLong),
        tag="turns",
    ),
    Operation(
        method="POST",
        path=ONE + "/move",
        name="moveTurn",
        summary="Give a waiting turn another place in the queue.",
        handler=move,
        right=Right.WRITE,
        body=MoveBody,
        answer=TurnView,
        errors=(TurnDecided,),
        tag="turns",
    ),
    Operation(
        method="POST",
        path=ONE + "/send-now",
        name="sendTurnNow",
        summary="Let a waiting message steer or interrupt the running turn.",
        handler=send_now,
        right=Right.WRITE,
        body=SendNowBody,
        body_optional=True,
        answer=TurnView,
        errors=(TurnDecided,),
        tag="turns",
    ),
)
