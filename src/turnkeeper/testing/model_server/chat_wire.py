"""The Chat Completions wire, served, in the variants of `provider/openai_chat`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnkeeper.provider import dialects
from turnkeeper.provider.script import Round, ScriptedError
from turnkeeper.provider.wire import Violation, blank
from turnkeeper.testing.model_server.wire import Asked, dumps, new_id, sse

FINISH = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}

CODES = {
    "rate_limit_error": "rate_limit_exceeded",
    "authentication_error": "invalid_api_key",
    "not_found_error": "model_not_found",
    "request_too_large": "context_length_exceeded",
    "overloaded_error": "server_is_overloaded",
    "billing_error": "insufficient_quota",
    "api_error": "server_error",
}


class ChatWire:
    """POST /v1/chat/completions."""

    def __init__(self, dialect: str = "openai-chat") -> None:
        self.name = dialect

    def judge(self, body: Any, model: str, account: str) -> tuple[Violation, ...]:
        """Rules C1-C9, or M1-M5."""
        return dialects.validate(self.name, body)

    def read(self, body: Any, model: str) -> Asked:
        """What a valid body asks."""
        texts: list[str] = []
        rounds = 0
        for message in body["messages"]:
            if message["role"] == "assistant":
                rounds += bool(message.get("tool_calls"))
            elif message["role"] == "user":
                content = message["content"]
                if not isinstance(content, str):
                    content = "\n\n".join(piece["text"] for piece in content if piece["type"] == "text")
                if not blank(content):
                    texts.append(content)
                    rounds = 0
        return Asked(
            model=model, stream=body.get("stream") is True, user_texts=tuple(texts), rounds_since=rounds
        )

    def error(self, status: int, error: ScriptedError) -> bytes:
        """{error: {message, type, param, code}}."""
        return dumps(chat_error(error)).encode()

    def play(self, round_: Round, asked: Asked, account: str) -> ChatPlay:
        """How a round goes over this wire."""
        return ChatPlay(round_, asked, short_ids=self.name.startswith("mistral"))


def chat_error(error: ScriptedError) -> dict[str, Any]:
    """An error as OpenAI says it: {error: {message, type, param, code}}."""
    word = error.word
    return {
        "error": {
            "message": error.message or word.replace("_", " "),
            "type": "invalid_request_error" if error.status < 500 else "server_error",
            "param": None,
            "code": CODES.get(word, word),
        }
    }


class ChatPlay:
    """A round as chunks of one choice."""

    def __init__(self, round_: Round, asked: Asked, *, short_ids: bool = False) -> None:
        self._short_ids = short_ids
        self._round = round_
        self._id = new_id("chatcmpl-")
        self._model = asked.model
        self._calls = 0
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self.blocks: list[Any] = []

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return sse(self._head("chat.completion.chunk", [choice]))

    def _head(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": 0, "model": self._model, "choices": choices}

    def begin(self) -> Iterator[bytes]:
        """The role."""
        yield self._chunk({"role": "assistant", "content": ""})

    def _grow(self, field: str, words: str) -> bytes:
        self._message[field] = (self._message.get(field) or "") + words
        return self._chunk({field: words})

    def think(self, words: str, *, first: bool, last: bool) -> Iterator[bytes]:
        """reasoning_content."""
        yield self._grow("reasoning_content", words)
        if last:
            self.blocks.append({"reasoning_content": self._message["reasoning_content"]})

    def say(self, words: str, *, first: bool, last: bool) -> Iterator[bytes]:
        """content."""
        yield self._grow("content", words)
        if last:
            self.blocks.append({"content": self._message["content"]})

    def block(self, block: dict[str, Any]) -> Iterator[bytes]:
        """Fields of a delta that this wire does not know."""
        self._message.update(block)
        self.blocks.append(block)
        yield self._chunk(block)

    def call(self, call_id: str | None, name: str, arguments: str) -> Iterator[bytes]:
        """A tool call: its head, then its arguments in two pieces."""
        made = call_id
        if made is None:  # Mistral's have nine characters
            made = new_id("")[:9] if self._short_ids else new_id("call_")
        index, self._calls = self._calls, self._calls + 1
        call = {"id": made, "type": "function", "function": {"name": name, "arguments": arguments}}
        self._message.setdefault("tool_calls", []).append(call)
        self.blocks.append(call)
        head = {**call, "function": {"name": name, "arguments": ""}}
        yield self._chunk({"tool_calls": [{"index": index, **head}]})
        half = len(arguments) // 2
        for piece in (arguments[:half], arguments[half:]):
            if piece:
                yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def ping(self) -> bytes:
        """A comment."""
        return b": ping\n\n"

    def unknown(self) -> bytes:
        """An event of a kind that nobody knows."""
        return sse({"object": "brand.new.event", "detail": {"n": 1}})

    def error(self, error: ScriptedError) -> bytes:
        """An error in place of a chunk."""
        return sse(chat_error(error))

    def _usage(self) -> dict[str, Any]:
        return {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30, **(self._round.usage or {})}

    def end(self, stop_reason: str) -> Iterator[bytes]:
        """The finish reason, the usage, [DONE]."""
        yield self._chunk({}, FINISH.get(stop_reason, stop_reason))
        yield sse({**self._head("chat.completion.chunk", []), "usage": self._usage()})
        yield b"data: [DONE]\n\n"

    def garbage(self, kind: str) -> Iterator[bytes]:
        """Nonsense in the shape of this wire."""
        if kind == "wrong_order":
            yield self._chunk({"tool_calls": [{"index": 5, "function": {"arguments": '{"x"'}}]})
        elif kind == "wrong_types":
            yield sse({"id": 1, "choices": {"0": 7}})
        else:
            yield from self.say("x" * 10_000_000, first=True, last=True)

    def whole(self, stop_reason: str) -> bytes:
        """The completion in one piece."""
        choice = {
            "index": 0,
            "message": self._message,
            "finish_reason": FINISH.get(stop_reason, stop_reason),
        }
        return dumps({**self._head("chat.completion", [choice]), "usage": self._usage()}).encode()
