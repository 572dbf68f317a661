"""Kits that open a provider over the scripted fake, and over each wire through its real client."""

from __future__ import annotations

from typing import Any

from turnkeeper.port.provider import Deadlines, Provider
from turnkeeper.provider.opening import open_provider
from turnkeeper.provider.script import parse_script
from turnkeeper.provider.scripted import Scripted
from turnkeeper.testing.model_server import ModelServer

KEY_NAME = "TURNKEEPER_TEST_KEY"

WIRES = {
    "anthropic": "",
    "bedrock": "",
    "openai-chat": "/v1",
    "deepseek": "/v1",
    "kimi": "/v1",
    "vllm": "/v1",
    "ollama": "/v1",
    "mistral": "/v1",
    "openai-responses": "/v1",
    "gemini": "",
}
"""Provider -> the path of its base_url at the model server."""


def server_for(provider: str, script: Any = None, **how: Any) -> ModelServer:
    """A model server that keeps the rules of `provider`."""
    chat = provider if provider in ("deepseek", "kimi", "vllm", "ollama", "mistral") else "openai-chat"
    return ModelServer(script, chat=chat, bedrock=provider == "bedrock", **how)


def open_at(server: ModelServer, provider: str, model: str = "m-1", **how: Any) -> Provider:
    """`provider` at that server; the test must set KEY_NAME."""
    how.setdefault("account", "test")
    return open_provider(
        provider,
        clock=Jumping(),
        model=model,
        base_url=server.url + WIRES[provider],
        api_key_env=KEY_NAME,
        **how,
    )


class Jumping:
    """A clock on which sleeping takes no time."""

    at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class ScriptedKit:
    """The fake."""

    deadlines = Deadlines()
    short = Deadlines()

    async def open(self, *rounds: dict[str, Any]) -> Provider:
        return Scripted(Jumping(), parse_script({"rules": [{"match": "", "rounds": list(rounds)}]}))

    def requests(self) -> int | None:
        return None

    def sent(self) -> list[Any] | None:
        return None

    def sent_back(self, body: bytes) -> list[Any] | None:
        return None

    async def close(self) -> None:
        pass


class WireKit:
    """A provider through its real client, against the model server."""

    deadlines = Deadlines()
    short = Deadlines(first_token_seconds=0.4, stall_seconds=0.3, total_seconds=1.0)

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.server: ModelServer | None = None

    async def open(self, *rounds: dict[str, Any]) -> Provider:
        await self.close()
        script = {"rules": [{"match": "", "rounds": list(rounds)}]}
        self.server = await server_for(self.provider, script).__aenter__()
        return open_at(self.server, self.provider)

    def requests(self) -> int | None:
        assert self.server is not None
        return len(self.server.requests)

    def sent(self) -> list[Any] | None:
        assert self.server is not None
        blocks = self.server.requests[-1].blocks
        calls = any("function" in block for block in blocks)
        if BACK[self.provider] is _chat and not (
            self.provider == "kimi" or (self.provider == "deepseek" and calls)
        ):
            return [
                block for block in blocks if "reasoning_content" not in block
            ]  # C7: only these want it back
        return blocks

    def sent_back(self, body: bytes) -> list[Any] | None:
        import json

        return BACK[self.provider](json.loads(body))

    async def close(self) -> None:
        if self.server is not None:
            await self.server.__aexit__(None, None, None)
            self.server = None


def _anthropic(body: Any) -> list[Any]:
    return [m for m in body["messages"] if m["role"] == "assistant"][-1]["content"]


def _chat(body: Any) -> list[Any]:
    message = [m for m in body["messages"] if m["role"] == "assistant"][-1]
    names = ("reasoning_content", "content")
    return [{name: message[name]} for name in names if message.get(name)] + message.get("tool_calls", [])


def _responses(body: Any) -> list[Any]:
    items = body["input"]
    while items[-1].get("type") == "function_call_output" or items[-1].get("role") == "user":
        items = items[:-1]
    last = []
    for item in reversed(items):
        if item.get("type") == "function_call_output" or item.get("role") == "user":
            break
        last.insert(0, item)
    return last


def _gemini(body: Any) -> list[Any]:
    return [c for c in body["contents"] if c["role"] == "model"][-1]["parts"]


BACK = {
    **dict.fromkeys(WIRES, _chat),
    "anthropic": _anthropic,
    "bedrock": _anthropic,
    "openai-responses": _responses,
    "gemini": _gemini,
}
