"""What a model's server can get wrong, to a whole conversation, over every wire: the lane is free and nothing is lost.

Goal (issue: bad input of providers): each of it ends in a visible state with a sentence, and the next message is
answered. Method: one conversation for each wire, a turn for each kind of nonsense, a good turn at the end, all
through the real client against the strict server.
"""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.provider.kits import KEY_NAME, WIRES, server_for
from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Disposition
from turnkeeper.settings import Settings

AGENT = """
[agents.model]
provider = "{provider}"
model = "m-1"
base_url = "{url}"
api_key_env = "{key}"
tools = ["echo"]
demo_tools = true
"""

BAD: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "a page instead of an API": ([{"garbage": "html"}], "not_an_api"),
    "half a JSON": ([{"text": "half ", "garbage": "half_json"}], "broken_stream"),
    "no JSON": ([{"garbage": "not_json"}], "broken_stream"),
    "no UTF-8": ([{"garbage": "invalid_utf8"}], "broken_stream"),
    "wrong order": ([{"text": "half ", "garbage": "wrong_order"}], "broken_stream"),
    "wrong types": ([{"garbage": "wrong_types"}], "broken_stream"),
    "nothing": ([{"garbage": "empty"}], "broken_stream"),
    "ten megabytes at once": ([{"garbage": "huge_delta"}], "oversized"),
    "an unknown event and block": (
        [{"text": "Known.", "blocks": [{"type": "brand_new_block", "n": 1}], "garbage": "unknown_event"}],
        None,
    ),
    "two calls of one id": (
        [{"tool_calls": [{"name": "echo", "id": "same00000", "arguments": {"text": t}} for t in "ab"]}, {"text": "ok"}],
        None,
    ),
    "arguments cut in the middle": (
        [{"tool_calls": [{"name": "echo", "raw_arguments": '{"text": "ha'}], "stop_reason": "max_tokens"}, {"text": "ok"}],
        None,
    ),
}  # fmt: skip
RULES = [{"match": rf"\A{text}\Z", "rounds": rounds} for text, (rounds, _) in BAD.items()]


@asynccontextmanager
async def opened(folder: Path, provider: str, url: str, **settings: Any) -> AsyncIterator[Keeper]:
    agents = folder / "agents.toml"
    agents.write_text(AGENT.format(provider=provider, url=url, key=KEY_NAME))
    async with await Keeper.open(folder / "data", agents=agents, settings=Settings(**settings)) as keeper:
        yield keeper


async def say(keeper: Keeper, c: str, text: str) -> Any:
    made = await keeper.submit(OPERATOR, c, key=text.replace(" ", "-"), parts=(Text(text),))
    return await keeper.ended(OPERATOR, made.turn_id)


@pytest.mark.parametrize("provider", WIRES)
async def test_whatever_comes_the_turn_ends_with_a_sentence_and_the_next_is_answered(
    tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_NAME, "any")
    async with server_for(provider, {"rules": RULES}) as server:
        async with opened(tmp_path, provider, server.url + WIRES[provider]) as keeper:
            c = (await keeper.create_conversation(OPERATOR, "model")).conversation_id
            for text, (_, kind) in BAD.items():
                turn = await say(keeper, c, text)
                if kind is None:
                    assert turn.state == "settled", (text, turn.failure)
                else:
                    assert (turn.state, turn.failure["kind"]) == ("failed", kind), (text, turn.failure)
                    assert turn.failure["sentence"].endswith("."), turn.failure
                    assert ("Try again" in turn.failure["sentence"]) == turn.failure["retryable"]
                calls = [row.disposition for row in await keeper.store.tool_calls(turn.turn_id)]
                assert calls == {
                    "two calls of one id": [Disposition.DONE] * 2,
                    "arguments cut in the middle": [Disposition.REFUSED],
                }.get(text, [])
                fine = await say(keeper, c, f"after {text}")
                assert fine.state == "settled", (text, fine.failure)
            said = [m.text for m in await keeper.store.messages_after(c) if m.role == "user"]
            assert said == [words for text in BAD for words in (text, f"after {text}")], "nothing is lost"
            shown = [m.text for m in await keeper.store.messages_after(c) if m.role == "assistant"]
            assert "half " in shown, "half an answer is kept for the eye"
        assert not any(seen.violations for seen in server.requests), "every feed was accepted"


@pytest.mark.parametrize("provider", ["anthropic", "openai-chat", "openai-responses", "gemini"])
async def test_any_bytes_in_a_stream_end_the_turn_visibly_and_the_next_is_accepted(
    tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The property, over dice: events of other wires, spoiled events, loose pieces of JSON and of the protocol."""
    monkeypatch.setenv(KEY_NAME, "any")
    dice = random.Random(provider)
    shreds = ["data: ", "event: ", "\n\n", "\n", "{", "}", "[", "]", '"', ":", ",", "null", "1e999", "[DONE]", "\\u0000",
              "\xff\xfe", "message_start", "content_block_delta", "response.completed", "candidates", "choices", "delta",
              "tool_calls", "functionCall", "error", "type", "index", "parts", "text", "usage", "id: 1", "retry: 5"]  # fmt: skip
    samples = ["".join(dice.choices(shreds, k=dice.randrange(1, 30))) for _ in range(8)]
    samples += ["data: []\n\n", "data: null\n\n", 'data: {"error": 7}\n\n', "\n\n\n"]
    rules = [
        {"match": rf"\Asample {n}\Z", "rounds": [{"text": "a", "raw": raw}, {"text": "a", "raw": raw}]}
        for n, raw in enumerate(samples)
    ]
    async with (
        server_for(provider, {"rules": rules}) as server,
        opened(tmp_path, provider, server.url + WIRES[provider]) as keeper,
    ):
        c = (await keeper.create_conversation(OPERATOR, "model")).conversation_id
        for n, raw in enumerate(samples):
            turn = await say(keeper, c, f"sample {n}")
            assert turn.state in ("settled", "failed"), (raw, turn.state)
            assert turn.state == "settled" or turn.failure["sentence"], raw
            assert (await say(keeper, c, f"after {n}")).state == "settled", raw
        assert not any(seen.violations for seen in server.requests)


@pytest.mark.parametrize("provider", WIRES)
async def test_a_stream_without_end_ends_at_the_total_and_frees_the_lane(
    tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_NAME, "any")
    endless = {"rules": [{"match": "", "rounds": [{"text": "more and ", "endless": True}]}]}
    async with (
        server_for(provider, endless) as server,
        opened(tmp_path, provider, server.url + WIRES[provider], total_seconds=0.4) as keeper,
    ):
        c = (await keeper.create_conversation(OPERATOR, "model")).conversation_id
        for text in ("one", "two"):
            turn = await say(keeper, c, text)
            assert (turn.state, turn.failure["kind"]) == ("failed", "total")
            assert turn.failure["retryable"] is False


@pytest.mark.parametrize("provider", WIRES)
@pytest.mark.parametrize("trouble", ["wrong key", "unknown model", "unreachable", "no TLS"])
async def test_a_model_that_cannot_be_had_fails_the_turn_and_frees_the_lane(
    tmp_path: Path, provider: str, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_NAME, "sk-canary-0123456789")
    how: dict[str, Any] = {"wrong key": {"key": "x"}, "unknown model": {"models": ("other",)}}.get(
        trouble, {}
    )
    async with server_for(provider, **how) as server:
        url = server.url
        if trouble == "no TLS":
            url = url.replace("http:", "https:")
        elif trouble == "unreachable":
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        async with opened(tmp_path, provider, url + WIRES[provider]) as keeper:
            c = (await keeper.create_conversation(OPERATOR, "model")).conversation_id
            for text in ("one", "two"):
                turn = await say(keeper, c, text)
                wanted = {
                    "wrong key": ("credentials", "api_key_env"),
                    "unknown model": ("refused_request", "model's name"),
                    "unreachable": ("connection", "base_url"),
                    "no TLS": ("tls", "base_url"),
                }[trouble]
                assert (turn.state, turn.failure["kind"]) == ("failed", wanted[0])
                assert wanted[1] in turn.failure["sentence"]
            events = await keeper.store.events(c, limit=1000)
            assert "sk-canary" not in repr(events)
