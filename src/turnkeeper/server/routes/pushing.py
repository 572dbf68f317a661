"""Web push: the key that browsers tie a subscription to, and which browsers are told."""

from __future__ import annotations

from turnkeeper.conversation.rights import Right
from turnkeeper.errors import NotFound
from turnkeeper.outbound.push import Address
from turnkeeper.server.operation import Call, Operation
from turnkeeper.server.reply import Answer, reply
from turnkeeper.server.shapes import PushEndpoint, PushKeyView, PushSubscription, PushView


async def key(call: Call) -> Answer:
    return reply(PushKeyView(public_key=await call.keeper.pushing.public_key(call.principal)))


async def subscribe(call: Call) -> Answer:
    body = await call.body(PushSubscription)
    address = Address(endpoint=body.endpoint, p256dh=body.keys.p256dh, auth=body.keys.auth)
    await call.keeper.pushing.add(call.principal, address)
    return reply(PushView(subscribed=True), status=201)


async def unsubscribe(call: Call) -> Answer:
    body = await call.body(PushEndpoint)
    await call.keeper.pushing.remove(call.principal, body.endpoint)
    return reply(PushView(subscribed=False))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/push",
        name="readPushKey",
        summary="The public key (VAPID) for a browser's push subscription; made at first use.",
        handler=key,
        right=Right.READ,
        answer=PushKeyView,
        tag="push",
    ),
    Operation(
        method="POST",
        path="/v1/push",
        name="subscribePush",
        summary="Tell this browser when a turn of yours is done, has failed, or needs you; never any words of it.",
        handler=subscribe,
        right=Right.READ,
        body=PushSubscription,
        answer=PushView,
        status=201,
        tag="push",
    ),
    Operation(
        method="POST",
        path="/v1/push/remove",
        name="unsubscribePush",
        summary="Tell this browser nothing more.",
        handler=unsubscribe,
        right=Right.READ,
        body=PushEndpoint,
        answer=PushView,
        errors=(NotFound,),
        tag="push",
    ),
)
