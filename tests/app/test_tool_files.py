"""Pictures that people send and tools give: stored once by their hash, shown to the model, never in the journal.

Public case R112: inline images made a session file of 2.6 GB that nothing could open.
"""

from __future__ import annotations

import base64
import json
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation import codec
from turnkeeper.conversation.parts import Attachment, Text, ToolResult
from turnkeeper.settings import Settings
from turnkeeper.testing.model_server import ModelServer
from turnkeeper.tool import ToolFile, tool

SHOT_BYTES = 2_400_000
ROW_BYTES_MAX = 65_536
LOAD_MEMORY_FACTOR_MAX = 3


def png(size_bytes: int, seed: int = 1) -> bytes:
    """A PNG's head (800 by 600 pixels) and as many bytes behind it as are asked for."""
    head = (
        b"\x89PNG\r\n\x1a\n"
        + (13).to_bytes(4, "big")
        + b"IHDR"
        + (800).to_bytes(4, "big")
        + (600).to_bytes(4, "big")
    )
    return head + bytes([seed]) * (size_bytes - len(head))


@tool(effect="read_only")
async def shot(n: int) -> list[Any]:
    """Take a screenshot."""
    return ["as asked", ToolFile(png(SHOT_BYTES), f"shot{n}.png")]


@tool(effect="read_only")
async def mcp_shot(n: int) -> list[Any]:
    """Take one as MCP servers give it."""
    data = base64.b64encode(png(5_000)).decode()
    return [{"type": "text", "text": "there"}, {"type": "image", "data": data, "mimeType": "image/png"}]


AGENT = """
[agents.{name}]
provider = "{name}"
model = "{model}"
base_url = "{url}"
api_key_env = "PICTURE_KEY"
tools = ["tests.app.test_tool_files:shot", "tests.app.test_tool_files:mcp_shot"]
"""


def script(tool_name: str, times: int) -> dict[str, Any]:
    asked = [{"tool_calls": [{"name": tool_name, "arguments": {"n": n}}]} for n in range(times)]
    return {"rules": [{"match": "look", "rounds": [*asked, {"text": "seen"}]}]}


async def play(
    folder: Path, provider: str, server: ModelServer, *parts: Any, **settings: Any
) -> tuple[Keeper, str]:
    agents = folder / "agents.toml"
    path = "" if provider in ("anthropic", "gemini", "older gemini") else "/v1"
    # The version of a Gemini says what it takes; the others do not go by their names.
    model = "gemini-3-pro" if provider == "gemini" else "m"
    provider = "gemini" if provider == "older gemini" else provider
    agents.write_text(AGENT.format(name=provider, model=model, url=server.url + path))
    keeper = await Keeper.open(folder / "data", agents=agents, settings=Settings(**settings))
    conversation = await keeper.create_conversation(OPERATOR, provider, "t")
    sent = []
    for part in parts:
        if isinstance(part, bytes):
            kept = await keeper.put_attachment(OPERATOR, "cat.png", one(part))
            sent.append(Attachment(attachment_id=kept["attachment_id"]))
        else:
            sent.append(Text(part))
    made = await keeper.submit(OPERATOR, conversation.conversation_id, key="k", parts=tuple(sent))
    turn = await keeper.ended(OPERATOR, made.turn_id)
    assert turn.state == "settled", turn.reason
    return keeper, conversation.conversation_id


async def one(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICTURE_KEY", "any")


@pytest.mark.parametrize("provider", ["anthropic", "openai-responses", "gemini"])
async def test_r112_a_picture_of_a_tool_is_a_reference_in_the_journal_and_a_picture_for_the_model(
    tmp_path: Path, provider: str
) -> None:
    async with ModelServer(script("shot", 2)) as server:
        keeper, conversation_id = await play(tmp_path, provider, server, "look")
        events = await keeper.store.events(conversation_id, limit=1000)
        assert max(len(codec.encode(event)) for event in events) <= ROW_BYTES_MAX
        files = [path for path in (tmp_path / "data" / "attachments").rglob("*") if path.is_file()]
        assert [path.read_bytes() for path in files] == [png(SHOT_BYTES)], (
            "the same picture twice is one file"
        )
        wanted = base64.b64encode(png(SHOT_BYTES))
        assert [seen.body.count(wanted) for seen in server.requests] == [0, 1, 2]
        assert not any(seen.violations for seen in server.requests)
        messages = await keeper.store.messages_after(conversation_id)
        (result,) = [part for message in messages for part in message.parts if isinstance(part, ToolResult)][
            :1
        ]
        assert result.content[0] == {
            "type": "text",
            "text": f"as asked\n[file shot0.png, {SHOT_BYTES} bytes]",
        }
        row, path = await keeper.attachment(OPERATOR, conversation_id, result.content[1]["attachment_id"])
        assert (row.media_type, path.read_bytes()) == ("image/png", png(SHOT_BYTES))
        shown = [
            s for r in (await keeper.timeline(OPERATOR, conversation_id)).rows for s in r.steps if s.result
        ]
        assert [step.result for step in shown] == [
            f"as asked\n[file shot{n}.png, {SHOT_BYTES} bytes]" for n in range(2)
        ]
        assert [len(step.attachments) for step in shown] == [1, 1]
        assert shown[0].attachments[0]["attachment_id"] == row.attachment_id
        stored = sum(len(codec.encode(event)) for event in events)
        tracemalloc.start()
        try:
            await keeper.messages(OPERATOR, conversation_id)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= LOAD_MEMORY_FACTOR_MAX * (stored + SHOT_BYTES)
        await keeper.close()


@pytest.mark.parametrize("provider", ["openai-chat", "older gemini"])
async def test_a_model_whose_results_are_words_is_told_of_the_picture(tmp_path: Path, provider: str) -> None:
    async with ModelServer(script("mcp_shot", 1)) as server:
        keeper, _ = await play(tmp_path, provider, server, "look")
        assert b"image.png" in server.requests[-1].body
        assert base64.b64encode(png(5_000)) not in server.requests[-1].body
        assert not any(seen.violations for seen in server.requests)
        await keeper.close()


@pytest.mark.parametrize("provider", ["anthropic", "openai-responses", "openai-chat", "gemini"])
async def test_a_picture_that_a_person_sends_reaches_the_model(tmp_path: Path, provider: str) -> None:
    async with ModelServer() as server:
        keeper, conversation_id = await play(tmp_path, provider, server, "what is this?", png(9_000))
        assert base64.b64encode(png(9_000)) in server.requests[-1].body
        events = await keeper.store.events(conversation_id, limit=1000)
        assert base64.b64encode(png(9_000)).decode() not in json.dumps([repr(event) for event in events])
        await keeper.close()


async def test_a_picture_over_the_limit_costs_the_picture_and_not_the_call(tmp_path: Path) -> None:
    async with ModelServer(script("shot", 1)) as server:
        keeper, conversation_id = await play(
            tmp_path, "anthropic", server, "look", attachment_bytes_max=1_000_000
        )
        assert b"was left out: it is too large" in server.requests[-1].body
        calls = [e.body for e in await keeper.store.events(conversation_id) if e.kind == "ToolReturned"]
        assert [call.disposition for call in calls] == ["done"]
        await keeper.close()


async def test_a_spoken_message_is_tried_again_from_its_recording_and_transcript(tmp_path: Path) -> None:
    """A retry needs no text: a sentence that is spoken again is never the same one (seed 003)."""
    broken = {
        "rounds": [{"error": {"status": 529}}, {"error": {"status": 529}}, {"text": "heard"}],
        "match": "order",
    }
    async with ModelServer({"rules": [broken]}) as server:
        agents = tmp_path / "agents.toml"
        agents.write_text(AGENT.format(name="anthropic", model="m", url=server.url))
        async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
            conversation = await keeper.create_conversation(OPERATOR, "anthropic", "t")
            kept = await keeper.put_attachment(OPERATOR, "voice.ogg", one(b"OggS" + bytes(2_000)))
            spoken = Attachment(attachment_id=kept["attachment_id"], transcript="where is my order")
            made = await keeper.submit(OPERATOR, conversation.conversation_id, key="k", parts=(spoken,))
            assert (await keeper.ended(OPERATOR, made.turn_id)).state == "failed"
            await keeper.retry(OPERATOR, made.turn_id)
            assert (await keeper.ended(OPERATOR, made.turn_id)).state == "settled"
            assert await keeper.answer(OPERATOR, made.turn_id) == "heard"
        said = [seen.json["messages"][0]["content"] for seen in server.requests]
        assert len(said) == 3
        assert all("where is my order" in json.dumps(content) for content in said)
