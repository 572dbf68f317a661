"""The Anthropic Messages wire, served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnkeeper.provider.anthropic_rules import validate
from turnkeeper.provider.script import Round, ScriptedError
from turnkeeper.provider.wire import Violation, blank, read_arguments
from turnkeeper.testing.model_server.wire import Asked, dumps, new_id, seal, sse


class AnthropicWire:
    """POST /v1/messages."""

    def __init__(self, *, bedrock: bool = False) -> None:
        self.name = "bedrock" if bedrock else "anthropic"
        self._bedrock = bedrock

    def judge(self, body: Any, model: str, account: str) -> tuple[Violation, ...]:
        """Rules A1-A23, signatures included."""

        def genuine(block: dict[str, Any]) -> bool:
            if block["type"] == "redacted_thinking":
                return isinstance(block.get("data"), str)
            return block.get("signature") == seal(model, account, str(block.get("thinking")))

        return validate(body, bedrock=self._bedrock, genuine=genuine)

    def read(self, body: Any, model: str) -> Asked:
        """What a valid body asks."""
        texts: list[str] = []
        rounds = 0
        for message in body["messages"]:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if message["role"] == "assistant":
                rounds += any(block["type"] == "tool_use" for block in blocks)
                continue
            said = [block["text"] for block in blocks if block["type"] == "text" and not blank(block["text"])]
            if said:
                texts += said
                rounds = 0
        return Asked(
            model=model, stream=body.get("stream") is True, user_texts=tuple(texts), rounds_since=rounds
        )

    def error(self, status: int, error: ScriptedError) -> bytes:
        """{type: error, error: {type, message}}."""
        return dumps(_error(error)).encode()

    def play(self, round_: Round, asked: Asked, account: str) -> AnthropicPlay:
        """How a round goes over this wire."""
        return AnthropicPlay(round_, asked, account)


def _error(error: ScriptedError) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": error.word, "message": error.message or error.word.replace("_", " ")},
        "request_id": new_id("req_"),
    }


class AnthropicPlay:
    """A round as message_start, content blocks, message_delta, message_stop."""

    def __init__(self, round_: Round, asked: Asked, account: str) -> None:
        self._round = round_
        self._asked = asked
        self._account = account
        self._open: dict[str, Any] = {}
        self.blocks: list[Any] = []
        self._message: dict[str, Any] = {
            "id": new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 1, **(round_.usage or {})},
        }

    def begin(self) -> Iterator[bytes]:
        """message_start."""
        yield sse({"type": "message_start", "message": self._message}, "message_start")

    def _delta(self, delta: dict[str, Any]) -> bytes:
        event = {"type": "content_block_delta", "index": len(self.blocks) - 1, "delta": delta}
        return sse(event, "content_block_delta")

    def _start(self, block: dict[str, Any], final: dict[str, Any]) -> bytes:
        self.blocks.append(final)
        event = {"type": "content_block_start", "index": len(self.blocks) - 1, "content_block": block}
        return sse(event, "content_block_start")

    def _stop(self) -> bytes:
        return sse({"type": "content_block_stop", "index": len(self.blocks) - 1}, "content_block_stop")

    def think(self, words: str, *, first: bool, last: bool) -> Iterator[bytes]:
        """A thinking block, its signature last."""
        if first:
            self._open = {"type": "thinking", "thinking": "", "signature": ""}
            yield self._start({"type": "thinking", "thinking": "", "signature": ""}, self._open)
        self._open["thinking"] += words
        yield self._delta({"type": "thinking_delta", "thinking": words})
        if last:
            self._open["signature"] = seal(self._asked.model, self._account, self._open["thinking"])
            yield self._delta({"type": "signature_delta", "signature": self._open["signature"]})
            yield self._stop()

    def say(self, words: str, *, first: bool, last: bool) -> Iterator[bytes]:
        """A text block."""
        if first:
            self._open = {"type": "text", "text": ""}
            yield self._start({"type": "text", "text": ""}, self._open)
        self._open["text"] += words
        yield self._delta({"type": "text_delta", "text": words})
        if last:
            yield self._stop()

    def block(self, block: dict[str, Any]) -> Iterator[bytes]:
        """A block as it stands; a thinking block without a signature is sealed."""
        if block.get("type") == "thinking" and "signature" not in block:
            mark = seal(self._asked.model, self._account, str(block.get("thinking")))
            block = {**block, "signature": mark}
        yield self._start(block, block)
        yield self._stop()

    def call(self, call_id: str | None, name: str, arguments: str) -> Iterator[bytes]:
        """A tool_use block."""
        made = new_id("toolu_") if call_id is None else call_id
        start = {"type": "tool_use", "id": made, "name": name, "input": {}}
        yield self._start(start, {**start, "input": read_arguments(arguments)})
        half = len(arguments) // 2
        for piece in (arguments[:half], arguments[half:]):
            if piece:
                yield self._delta({"type": "input_json_delta", "partial_json": piece})
        yield self._stop()

    def ping(self) -> bytes:
        """A ping event."""
        return sse({"type": "ping"}, "ping")

    def unknown(self) -> bytes:
        """An event of a kind that nobody knows."""
        return sse({"type": "brand_new_event", "detail": {"n": 1}}, "brand_new_event")

    def error(self, error: ScriptedError) -> bytes:
        """An error event."""
        return sse(_error(error), "error")

    def end(self, stop_reason: str) -> Iterator[bytes]:
        """message_delta and message_stop."""
        usage = {"output_tokens": 20, **(self._round.usage or {})}
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        yield sse({"type": "message_delta", "delta": delta, "usage": usage}, "message_delta")
        yield sse({"type": "message_stop"}, "message_stop")

    def garbage(self, kind: str) -> Iterator[bytes]:
        """Nonsense in the shape of this wire."""
        if kind == "wrong_order":
            yield sse(
                {"type": "content_block_delta", "index": 77, "delta": {"type": "text_delta", "text": "x"}},
                "content_block_delta",
            )
        elif kind == "wrong_types":
            yield sse({"type": "content_block_delta", "index": [], "delta": 7}, "content_block_delta")
        else:
            yield from self.say("x" * 10_000_000, first=True, last=True)

    def whole(self, stop_reason: str) -> bytes:
        """The message in one piece."""
        return dumps({**self._message, "content": self.blocks, "stop_reason": stop_reason}).encode()
