"""Every route of the table: it needs a sign-in and a right, and never tells a foreign id from an unknown one."""

from __future__ import annotations

import re

import httpx2
import pytest
from starlette.routing import Route

from tests.server.world import World
from turnkeeper.conversation.rights import Right
from turnkeeper.server.operation import Operation
from turnkeeper.server.routes import OPERATIONS

PUBLIC = {
    "openConnection",
    "finishConnection",
    "readHealth",
    "readReadiness",
    "readDescription",
    "readPage",
    "readPageFile",
}
"""The operations that anybody may call, by name: one more is a decision, not an accident."""

PRIVATE = [operation for operation in OPERATIONS if operation.right is not None]

OF_A_CONVERSATION = [op for op in OPERATIONS if "{conversation_id}" in op.path or "{turn_id}" in op.path]

BODIES = {
    "typeKeys": {"data": "eA=="},
    "changeConversation": {"title": "x"},
    "submitTurn": {"text": "x"},
    "editTurn": {"text": "x"},
    "moveTurn": {"before": None},
    "decideTurn": {"choice": "retry"},
    "decideApproval": {"decision": "approve"},
}


def name(operation: Operation) -> str:
    return operation.name


def path_of(operation: Operation, **ids: str) -> str:
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: ids.get(found[1], "x_unknown"), operation.path)


async def call(client: httpx2.AsyncClient, operation: Operation, **ids: str) -> httpx2.Response:
    body = BODIES.get(operation.name, {}) if operation.body is not None else None
    async with client.stream(
        operation.method,
        path_of(operation, **ids),
        json=body,
        headers={"idempotency-key": f"key-{operation.name}"},
    ) as answer:
        if answer.status_code != 200 or "event-stream" not in answer.headers.get("content-type", ""):
            await answer.aread()
        return answer


def test_the_router_serves_exactly_the_operations_of_the_table(world: World) -> None:
    served = {route.path for route in world.edge._router.routes if isinstance(route, Route)}
    assert served == {operation.path for operation in OPERATIONS}
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)


def test_only_the_named_operations_are_public() -> None:
    assert {operation.name for operation in OPERATIONS if operation.right is None} == PUBLIC


@pytest.mark.parametrize("operation", PRIVATE, ids=name)
async def test_a_route_without_a_sign_in_is_refused(world: World, operation: Operation) -> None:
    nobody = world.anonymous()
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic eDp5"},
        {"cookie": "turnkeeper_8321=wrong"},
    ):
        nobody.headers = httpx2.Headers(headers)
        answer = await call(nobody, operation)
        assert answer.status_code == 401, (headers, answer.text)
        assert answer.json()["code"] == "unauthorized"
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("operation", PRIVATE, ids=name)
async def test_a_route_whose_right_the_token_lacks_is_refused(world: World, operation: Operation) -> None:
    others = tuple(str(right) for right in Right if right not in {operation.right, Right.ADMIN})
    answer = await call(await world.client("owner", others), operation)
    assert answer.status_code == 403
    assert answer.json()["code"] == "forbidden"


@pytest.mark.parametrize("operation", OF_A_CONVERSATION, ids=name)
async def test_a_foreign_id_is_answered_like_an_unknown_one_to_the_byte(
    world: World, operation: Operation
) -> None:
    conversation_id = await world.create()
    turn_id = (await world.submit(conversation_id, "mine"))["turn_id"]
    stranger = await world.client("stranger", tuple(str(right) for right in Right))
    foreign = await call(stranger, operation, conversation_id=conversation_id, turn_id=turn_id)
    unknown = await call(stranger, operation, conversation_id="c_unknown", turn_id="t_unknown")
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.content == unknown.content
    assert foreign.headers == unknown.headers
    assert conversation_id not in foreign.text


async def test_a_deleted_conversation_is_answered_like_an_unknown_one(world: World) -> None:
    conversation_id = await world.create()
    assert (await world.owner.delete(f"/v1/conversations/{conversation_id}")).status_code == 200
    for path in ("", "/messages", "/turns", "/export", "/events"):
        gone = await world.owner.get(f"/v1/conversations/{conversation_id}{path}")
        unknown = await world.owner.get(f"/v1/conversations/c_unknown{path}")
        assert (gone.status_code, gone.content) == (404, unknown.content)


async def test_an_unknown_path_and_a_wrong_verb_are_problems_too(world: World) -> None:
    answer = await world.owner.get("/v1/nothing")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    answer = await world.owner.put("/v1/conversations", json={})
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"


async def test_every_answer_is_typed_unsniffable_and_not_kept(world: World) -> None:
    for path in ("/v1/conversations", "/v1/nothing", "/healthz", "/readyz", "/v1/session"):
        answer = await world.owner.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


async def test_a_problem_has_the_members_of_rfc_9457_and_ours(world: World) -> None:
    answer = await world.owner.get("/v1/turns/t_unknown")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:turnkeeper:error:not_found",
        "title": "Not found",
        "status": 404,
        "detail": "There is no such turn.",
        "code": "not_found",
        "retryable": False,
    }


async def test_head_is_get_without_a_body(world: World) -> None:
    conversation_id = await world.create()
    for path in ("/healthz", "/v1/conversations", f"/v1/conversations/{conversation_id}"):
        assert (await world.owner.head(path)).status_code == 200


async def test_what_fails_inside_is_a_500_that_tells_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the secret cause")

    monkeypatch.setattr(world.keeper, "status", broken)
    answer = await world.owner.get("/v1/status")
    assert (answer.status_code, answer.json()["code"]) == (500, "error")
    assert "secret" not in answer.text
    assert "the secret cause" in caplog.text
