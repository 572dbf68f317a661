"""What waits for a person, and the feed: approvals, decisions, what the model saw beside what you see."""

from __future__ import annotations

from turnkeeper.conversation.rights import Right
from turnkeeper.errors import ApprovalDecided, TurnDecided
from turnkeeper.projection.view import TurnView
from turnkeeper.server.operation import Call, Operation, Param
from turnkeeper.server.reply import Answer, reply
from turnkeeper.server.shapes import (
    ApprovalBody,
    ApprovalList,
    ChoiceBody,
    DecidedView,
    FeedView,
)


async def approvals(call: Call) -> Answer:
    return reply({"approvals": await call.keeper.approvals(call.principal), "next": None})


async def decide_approval(call: Call) -> Answer:
    body = await call.body(ApprovalBody)
    approval_id = call.values["approval_id"]
    return reply(await call.keeper.decide_approval(call.principal, approval_id, body.decision))


async def decide(call: Call) -> Answer:
    body = await call.body(ChoiceBody)
    return reply(await call.keeper.decide(call.principal, call.values["turn_id"], body.choice))


async def feed(call: Call) -> Answer:
    provider = call.query("provider")
    return reply(await call.keeper.feed(call.principal, call.values["conversation_id"], provider))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/approvals",
        name="listApprovals",
        summary="Everything that waits for a decision of yours, oldest first.",
        handler=approvals,
        right=Right.READ,
        answer=ApprovalList,
        tag="decisions",
    ),
    Operation(
        method="POST",
        path="/v1/approvals/{approval_id}",
        name="decideApproval",
        summary="Approve or deny one call, for one execution. Decided or expired: 409 with what happened.",
        handler=decide_approval,
        right=Right.APPROVE,
        body=ApprovalBody,
        answer=DecidedView,
        errors=(ApprovalDecided,),
        tag="decisions",
    ),
    Operation(
        method="POST",
        path="/v1/turns/{turn_id}/decide",
        name="decideTurn",
        summary="Choose how a turn that needs an action goes on; give_up ends it.",
        handler=decide,
        right=Right.WRITE,
        body=ChoiceBody,
        answer=TurnView,
        errors=(TurnDecided,),
        tag="decisions",
    ),
    Operation(
        method="GET",
        path="/v1/conversations/{conversation_id}/feed",
        name="readFeed",
        summary="What the model would be given now, and the rule behind every difference from what you see.",
        handler=feed,
        right=Right.READ,
        answer=FeedView,
        params=(
            Param(
                name="provider",
                description="anthropic, bedrock, openai-chat, openai-responses, gemini, mistral; the agent's own by default.",
            ),
        ),
        tag="decisions",
    ),
)
