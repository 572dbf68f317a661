"""Bad input over HTTP: one clear answer, the right status, and nothing stored."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.server.world import World


async def post(world: World, path: str, body: bytes | str | Any, **headers: str) -> httpx2.Response:
    content = body if isinstance(body, bytes | str) else json.dumps(body)
    return await world.owner.post(path, content=content, headers=headers)


async def submit(world: World, conversation_id: str, body: Any, key: str = "k1") -> httpx2.Response:
    return await post(world, f"/v1/conversations/{conversation_id}/turns", body, **{"idempotency-key": key})


async def nothing_was_stored(world: World, conversation_id: str) -> bool:
    turns = (await world.owner.get(f"/v1/conversations/{conversation_id}/turns")).json()["turns"]
    snapshot = (await world.owner.get(f"/v1/conversations/{conversation_id}")).json()
    return turns == [] and snapshot["as_of_seq"] == 1


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("", "the body is not JSON: it is empty"),
        ("   ", "the body is not JSON: it is empty"),
        ("{", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b'{"text": "\xff"}', "the body is not JSON"),
        ('{"text": "x", "options": ' + '{"a":' * 100_000, "nested too deeply"),
        ('{"text": "x", "options": ' + '{"a":' * 990 + "1" + "}" * 991, "nested too deeply"),
        ('{"text": "x", "options": ' + '{"a":' * 200 + "1" + "}" * 201, "nested too deeply"),
        ("[]", "the body: expected object, got array"),
        ('"hello"', "the body: expected object, got str"),
        ("null", "the body: expected object, got null"),
        ({"text": 5}, "text: expected str | null, got int"),
        ({"text": ["a"]}, "text: expected str | null, got array"),
        ({"text": "x", "mode": "later"}, "mode: invalid enum value 'later'"),
        ({"text": "x", "options": []}, "options: expected object, got array"),
        ({"parts": "x"}, "parts: expected array | null, got str"),
        ({"parts": [{"type": "thinking", "text": "x"}]}, "parts[0].type: invalid value 'thinking'"),
        ({"parts": [{"text": "x"}]}, "parts[0]: object missing required field type"),
        ({"parts": [{"type": "text"}]}, "parts[0]: object missing required field text"),
        ({"text": "x", "parts": [{"type": "text", "text": "y"}]}, "give text or parts, not both"),
    ],
)
async def test_a_body_that_cannot_be_used_is_named_and_refused(
    world: World, body: Any, sentence: str
) -> None:
    conversation_id = await world.create()
    answer = await submit(world, conversation_id, body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "bad_input"
    assert sentence in answer.json()["detail"], answer.json()["detail"]
    assert await nothing_was_stored(world, conversation_id)


@pytest.mark.parametrize(
    "body", [{}, {"text": ""}, {"text": None}, {"parts": []}, {"parts": [{"type": "text", "text": ""}]}]
)
async def test_nothing_to_send_is_said(world: World, body: Any) -> None:
    conversation_id = await world.create()
    answer = await submit(world, conversation_id, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "nothing_to_send")


async def test_options_at_their_limits_are_taken_and_beyond_them_refused_by_name() -> None:
    world = await World.open(options_bytes_max=100, options_depth_max=3)
    try:
        conversation_id = await world.create()

        async def send(key: str, options: str) -> httpx2.Response:
            return await submit(world, conversation_id, '{"text": "x", "options": %s}' % options, key)  # noqa: UP031

        assert (await send("a", '{"a":[{"b":[]}]}')).status_code == 202
        deep = await send("b", '{"a":[{"b":[{}]}]}')
        assert (deep.status_code, "options_depth_max" in deep.json()["detail"]) == (400, True)
        assert (await send("c", '{"a":"%s"}' % ("x" * 92))).status_code == 202
        long = await send("d", '{"a":"%s"}' % ("x" * 93))
        assert (long.status_code, "options_bytes_max" in long.json()["detail"]) == (400, True)
    finally:
        await world.close()


async def test_unknown_members_are_left_alone(world: World) -> None:
    """A newer client may say more than this server knows; the client's clock is one of such things."""
    conversation_id = await world.create()
    answer = await submit(world, conversation_id, {"text": "x", "created_at": "2099-01-01T00:00:00Z"})
    assert answer.status_code == 202


@pytest.mark.parametrize(
    "key",
    ["", " ", "a b", "tab\there", "k" * 256, "ümlaut", '"a b"', '""', "nul\x7f"],
)
async def test_a_malformed_key_is_refused(world: World, key: str) -> None:
    conversation_id = await world.create()
    answer = await world.owner.post(
        f"/v1/conversations/{conversation_id}/turns",
        content=b'{"text": "x"}',
        headers=[(b"idempotency-key", key.encode("latin-1"))],
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "key_malformed"), answer.text
    assert "255" in answer.json()["detail"]
    assert await nothing_was_stored(world, conversation_id)


async def test_a_missing_and_a_doubled_key_are_refused(world: World) -> None:
    conversation_id = await world.create()
    path = f"/v1/conversations/{conversation_id}/turns"
    missing = await post(world, path, {"text": "x"})
    assert (missing.status_code, missing.json()["code"]) == (400, "key_missing")
    doubled = await world.owner.post(
        path, json={"text": "x"}, headers=[("idempotency-key", "a"), ("idempotency-key", "b")]
    )
    assert (doubled.status_code, doubled.json()["code"]) == (400, "bad_input")
    assert await nothing_was_stored(world, conversation_id)


async def test_a_key_of_the_full_length_is_taken_and_quotes_are_not_part_of_it(world: World) -> None:
    conversation_id = await world.create()
    key = "k" * 255
    first = await submit(world, conversation_id, {"text": "x"}, key)
    again = await submit(world, conversation_id, {"text": "x"}, f'"{key}"')
    assert first.status_code == again.status_code == 202
    assert first.json() == again.json()


async def test_a_repeat_gets_the_stored_answer_and_is_marked(world: World) -> None:
    conversation_id = await world.create()
    first = await submit(world, conversation_id, {"text": "x"})
    assert "idempotent-replayed" not in first.headers
    again = await submit(world, conversation_id, '{ "mode": "queue", "text":"x" }')
    assert again.status_code == 202
    assert again.content == first.content
    assert again.headers["idempotent-replayed"] == "true"


async def test_the_same_key_with_another_body_is_refused(world: World) -> None:
    conversation_id = await world.create()
    await submit(world, conversation_id, {"text": "x"})
    for body in ({"text": "y"}, {"text": "x", "mode": "steer"}, {"text": "x", "options": {"a": 1}}):
        answer = await submit(world, conversation_id, body)
        assert (answer.status_code, answer.json()["code"]) == (422, "key_reused")


async def test_text_at_the_limit_is_taken_and_one_byte_more_is_refused_by_name() -> None:
    world = await World.open(text_bytes_max=10)
    try:
        conversation_id = await world.create()
        assert (await submit(world, conversation_id, {"text": "ü" * 5}, "a")).status_code == 202
        answer = await submit(world, conversation_id, {"text": "ü" * 5 + "x"}, "b")
        assert (answer.status_code, answer.json()["code"]) == (413, "text_too_long")
        assert "text_bytes_max" in answer.json()["detail"]
        assert (answer.json()["size_bytes"], answer.json()["limit_bytes"]) == (11, 10)
    finally:
        await world.close()


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused_however_it_comes(chunked: bool) -> None:
    world = await World.open(body_bytes_max=100)
    try:
        conversation_id = await world.create()
        path = f"/v1/conversations/{conversation_id}/turns"

        async def pieces(size: int) -> Any:
            for _ in range(size):
                yield b"x"

        def body(size: int) -> Any:
            text = json.dumps({"text": "x" * (size - len('{"text": ""}'))})
            assert len(text) == size

            async def in_pieces() -> Any:
                for start in range(0, size, 7):
                    yield text[start : start + 7].encode()

            return in_pieces() if chunked else text

        fits = await world.owner.post(path, content=body(100), headers={"idempotency-key": "a"})
        assert fits.status_code == 202, fits.text
        over = await world.owner.post(path, content=body(101), headers={"idempotency-key": "b"})
        assert (over.status_code, over.json()["code"]) == (413, "body_too_large")
        assert "body_bytes_max" in over.json()["detail"]
        assert "100 bytes" in over.json()["detail"]
    finally:
        await world.close()


TEXTS = ["a\x00b", "\ud800", "tail \udfff", "\ue000d800", "line\r\nline\u2028", "🙂 ümläut 你好", "\x1b[2J"]


@pytest.mark.parametrize("text", TEXTS)
async def test_any_text_is_stored_and_shown_as_it_was_sent(world: World, text: str) -> None:
    conversation_id = await world.create()
    answer = await submit(world, conversation_id, {"text": text})
    assert answer.status_code == 202, answer.text
    await world.ended(answer.json()["turn_id"])
    messages = await world.owner.get(f"/v1/conversations/{conversation_id}/messages")
    messages.content.decode("utf-8")
    mine, reply = messages.json()["messages"]
    assert mine["parts"] == [{"type": "text", "text": text}]
    assert reply["parts"] == [{"type": "text", "text": f"ok {text}"}]
    exported = await world.owner.get(f"/v1/conversations/{conversation_id}/export")
    lines = [json.loads(line) for line in exported.content.decode("utf-8").split("\n") if line]
    shown = [
        line["body"]["message"]["parts"][0]["text"] for line in lines if line.get("kind") == "MessageAppended"
    ]
    assert shown == [text, f"ok {text}"]
    turn = await world.owner.get(f"/v1/turns/{answer.json()['turn_id']}")
    assert turn.json()["text"] == text
    evidence = await world.owner.get(f"/v1/turns/{answer.json()['turn_id']}/evidence")
    assert evidence.status_code == 200


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5", ""])
async def test_a_limit_that_is_no_count_is_refused(world: World, limit: str) -> None:
    answer = await world.owner.get("/v1/conversations", params={"limit": limit})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")


@pytest.mark.parametrize("cursor", ["x", "-1", "1e3", "９", "9" * 30])
async def test_a_cursor_of_nobody_is_refused(world: World, cursor: str) -> None:
    conversation_id = await world.create()
    for path, name in (("/messages", "before"), ("/events", "after")):
        answer = await world.owner.get(f"/v1/conversations/{conversation_id}{path}", params={name: cursor})
        assert (answer.status_code, answer.json()["code"]) == (400, "cursor_invalid"), path
    answer = await world.owner.get("/v1/conversations", params={"before": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "cursor_invalid")


async def test_pages_join_without_gap_or_double(world: World) -> None:
    conversation_id = await world.create()
    for number in range(5):
        await world.ended((await world.submit(conversation_id, f"m{number}"))["turn_id"])
    for path, rows, key in (("messages", "messages", "seq"), ("turns", "turns", "turn_id")):
        whole = (await world.owner.get(f"/v1/conversations/{conversation_id}/{path}")).json()[rows]
        seen: list[Any] = []
        before: Any = None
        while True:
            query = {"limit": 2} | ({} if before is None else {"before": before})
            page = (await world.owner.get(f"/v1/conversations/{conversation_id}/{path}", params=query)).json()
            assert len(page[rows]) <= 2
            seen = page[rows] + seen if path == "messages" else seen + page[rows]
            before = page["next"]
            if before is None:
                break
        assert [row[key] for row in seen] == [row[key] for row in whole]
        assert len(seen) == (10 if path == "messages" else 5)


async def test_conversations_page_by_newest_activity(world: World) -> None:
    made = [await world.create() for _ in range(5)]
    await world.submit(made[0], "hello")
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = (await world.owner.get("/v1/conversations", params=query)).json()
        seen += [row["conversation_id"] for row in page["conversations"]]
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert seen == [made[0], *reversed(made[1:])]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({}, 400, "object missing required field agent"),
        ({"agent": "nobody"}, 400, "There is no agent 'nobody'"),
        ({"agent": "demo", "title": "t" * 201}, 400, "title_chars_max"),
        ({"agent": None}, 400, "agent: expected str, got null"),
    ],
)
async def test_a_conversation_that_cannot_be_made_is_refused(
    world: World, body: Any, status: int, sentence: str
) -> None:
    answer = await post(world, "/v1/conversations", body)
    assert answer.status_code == status
    assert sentence in answer.json()["detail"]


async def test_a_change_of_nothing_and_a_strange_choice_are_refused(world: World) -> None:
    conversation_id = await world.create()
    nothing = await world.owner.patch(f"/v1/conversations/{conversation_id}", json={})
    assert (nothing.status_code, nothing.json()["detail"][-23:]) == (400, "give title or archived.")
    turn_id = (await world.submit(conversation_id, "x"))["turn_id"]
    strange = await post(world, f"/v1/turns/{turn_id}/cancel", {"queue": "later"})
    assert strange.status_code == 400
    assert "pause or continue" in strange.json()["detail"]


async def test_an_already_decided_turn_answers_409_with_its_state(world: World) -> None:
    conversation_id = await world.create()
    turn_id = (await world.submit(conversation_id, "x"))["turn_id"]
    await world.ended(turn_id)
    for verb, body in (("cancel", {}), ("edit", {"text": "y"}), ("move", {"before": None}), ("send-now", {})):
        answer = await post(world, f"/v1/turns/{turn_id}/{verb}", body)
        assert answer.status_code == 409, (verb, answer.text)
        assert answer.json()["state"] == "settled", verb


async def test_a_number_of_five_thousand_digits_is_bad_input_and_no_failure_of_ours(world: World) -> None:
    answer = await world.owner.get("/v1/conversations", params={"limit": "1" * 5_000})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")


async def test_headers_up_to_their_limit_are_taken_and_one_byte_more_is_not(world: World) -> None:
    limit_bytes = world.edge.settings.header_bytes_max
    first = await world.owner.get("/healthz", headers={"x-a": "1"})
    sent = first.request.headers.raw
    used = len("/healthz") + sum(len(name) + len(value) for name, value in sent)
    fits = {"x-a": "1" * (1 + limit_bytes - used)}
    assert (await world.owner.get("/healthz", headers=fits)).status_code == 200
    answer = await world.owner.get("/healthz", headers={"x-a": fits["x-a"] + "1"})
    assert (answer.status_code, answer.json()["code"]) == (431, "headers_too_large")
    assert answer.json()["limit_bytes"] == limit_bytes
