"""Any history, cleaned and encoded, sent over real HTTP to the server that refuses what the providers refuse."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from tests.history.say import assistant, call, user
from tests.history.strategies import histories
from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.history.feed import build_feed
from turnkeeper.provider.dialects import DIALECTS, encode
from turnkeeper.testing.model_server import ModelServer

SCRIPT = {"rules": [{"match": "", "rounds": [{"text": "fine"}]}]}
PATHS = {
    "anthropic": "/v1/messages",
    "bedrock": "/v1/messages",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/m:generateContent",
}
MESSAGE = httpx.Timeout(60)


@pytest.fixture(scope="module", params=sorted(DIALECTS))
def strict(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, httpx.Client]]:
    """(dialect, address, client) of a strict server, which runs in a thread of its own."""
    dialect: str = request.param
    chat = "openai-chat" if dialect in PATHS else dialect
    server = ModelServer(SCRIPT, chat=chat, bedrock=dialect == "bedrock")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(60)
    with httpx.Client(timeout=MESSAGE, headers={"authorization": "Bearer any"}) as client:
        yield dialect, server.url + PATHS.get(dialect, "/v1/chat/completions"), client
    asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def ask(strict: tuple[str, str, httpx.Client], history: list[Message]) -> None:
    dialect, url, client = strict
    feed = build_feed(history)
    if not feed.asks:
        return  # there is nothing to send
    # A model that has not spoken yet: nothing that another one signed may go to it.
    encoded = encode(dialect, feed.messages, origin=Origin(dialect, "m", "loopback"))
    answer = client.post(url, content=encoded.to_bytes())
    assert answer.status_code == 200, answer.text


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories)
def test_the_strict_server_takes_every_history(
    strict: tuple[str, str, httpx.Client], history: list[Message]
) -> None:
    ask(strict, history)


def test_bd156_a_call_without_a_result_is_no_400_for_anybody(strict: tuple[str, str, httpx.Client]) -> None:
    """https://github.com/earendil-works/pi/issues/4189"""
    ask(strict, [user("m1", "go"), assistant("m2", call("t1", "run")), user("m3", "go on")])


def test_without_the_rules_it_is_a_400(strict: tuple[str, str, httpx.Client]) -> None:
    """The server does refuse: the same history as it stands, encoded by hand for one provider of each shape."""
    dialect, url, client = strict
    say = {"role": "user", "content": "go on"}
    bodies = {
        "anthropic": {
            "messages": [
                say,
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t1", "name": "run", "input": {}}],
                },
                say,
            ],
            "max_tokens": 9,
        },
        "openai-responses": {
            "input": [say, {"type": "function_call", "call_id": "t1", "name": "run", "arguments": "{}"}, say]
        },
        "gemini": {
            "contents": [
                {"role": "user", "parts": [{"text": "go"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "run", "args": {}}}]},
                {"role": "user", "parts": [{"text": "go on"}]},
            ]
        },
    }
    chat = {
        "messages": [
            say,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "t12345678", "type": "function", "function": {"name": "run", "arguments": "{}"}}
                ],
            },
            say,
        ]
    }
    body = bodies.get("anthropic" if dialect == "bedrock" else dialect, chat)
    answer = client.post(url, content=msgspec.json.encode({"model": "m", **body}))
    assert answer.status_code == 400, answer.text
