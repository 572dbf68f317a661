"""One conversation moved between providers in the middle: every pair, accepted by the strict server each time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.provider.kits import WIRES, open_at, server_for
from turnkeeper.conversation import codec
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Text, ToolCall, ToolResult
from turnkeeper.port.provider import Deadlines, ModelCall, Provider, Reply

ROUNDS = [
    {
        "thinking": "PRIVATE thought of {name}",
        "text": "Looking, says {name}.",
        "tool_calls": [{"name": "mcp.files/list", "arguments": {"path": "ü"}}, {"name": "now"}],
    },
    {"thinking": "PRIVATE again", "text": "Done, says {name}."},
]


def script(name: str) -> dict[str, Any]:
    rounds = [
        {key: value.format(name=name) if isinstance(value, str) else value for key, value in round_.items()}
        for round_ in ROUNDS
    ]
    return {"rules": [{"match": "", "rounds": rounds}]}


async def ask(provider: Provider, feed: list[Message], text: str) -> Message:
    body = provider.build(feed, instructions="Be brief.", tools=(), options={"thinking": True})
    call = ModelCall(body=body, deadlines=Deadlines(), newest_user_text=text)
    (reply,) = [event async for event in provider.stream(call) if isinstance(event, Reply)]
    named = msgspec.structs.replace(reply.message, message_id=f"m{len(feed)}")
    return codec.decode_message(codec.encode(named))


def user(feed: list[Message], text: str) -> Message:
    return Message(message_id=f"m{len(feed)}", role="user", parts=(Text(text),))


def results(feed: list[Message]) -> Message:
    made = [part for part in feed[-1].parts if isinstance(part, ToolCall)]
    assert len(made) == 2
    answers = tuple(ToolResult(part.id, f"result of {part.name}") for part in made)
    return Message(message_id=f"m{len(feed)}", role="tool", parts=answers)


@pytest.mark.parametrize("second", WIRES)
@pytest.mark.parametrize("first", WIRES)
async def test_a_conversation_moves_in_the_middle_of_a_tool_cycle_and_back(first: str, second: str) -> None:
    async with server_for(first, script(first)) as one, server_for(second, script(second)) as two:
        a, b = open_at(one, first, "model-a"), open_at(two, second, "model-b", account="other")
        feed = [Message(message_id="m0", role="user", parts=(Text("go"),))]
        feed.append(await ask(a, feed, "go"))  # a calls tools
        feed.append(results(feed))
        feed.append(await ask(b, feed, "go"))  # b answers
        assert feed[-1].text == f"Done, says {second}."
        feed.append(user(feed, "again"))
        feed.append(await ask(b, feed, "again"))  # b calls tools
        feed.append(results(feed))
        feed.append(await ask(a, feed, "again"))  # a answers
        assert feed[-1].text == f"Done, says {first}."
        feed.append(user(feed, "more"))
        await ask(b, feed, "more")
        for server in (one, two):
            assert [seen.status for seen in server.requests] == [200] * len(server.requests)
        secrets = [secret for block in one.requests[0].blocks for secret in provider_bound(block)]
        if first in ("anthropic", "bedrock", "openai-responses", "gemini"):
            assert secrets
        for secret in secrets:
            assert secret in one.requests[-1].body  # back at a, its own data is there again
            assert all(secret not in seen.body for seen in two.requests)
        if first != second:
            thought = f"PRIVATE thought of {first}".encode()
            assert all(thought not in seen.body for seen in two.requests)
        await a.close()
        await b.close()


def provider_bound(block: dict[str, Any]) -> list[bytes]:
    """What in a block must not reach anybody else."""
    names = ("signature", "encrypted_content", "thoughtSignature")
    return [block[name].encode() for name in names if name in block]
