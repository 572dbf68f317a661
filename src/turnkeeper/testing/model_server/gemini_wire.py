"""The Gemini wire, served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnkeeper.provider.gemini_rules import validate
from turnkeeper.provider.script import Round, ScriptedError
from turnkeeper.provider.wire import Violation, blank, read_arguments
from turnkeeper.testing.model_server.wire import Asked, dumps, new_id, seal, sse

STATUSES = {
    "rate_limit_error": "RESOURCE_EXHAUSTED",
    "authentication_error": "UNAUTHENTICATED",
    "permission_error": "PERMISSION_DENIED",
    "billing_error": "FAILED_PRECONDITION",
    "not_found_error": "NOT_FOUND",
    "overloaded_error": "UNAVAILABLE",
    "api_error": "INTERNAL",
    "invalid_request_error": "INVALID_ARGUMENT",
    "request_too_large": "INVALID_ARGUMENT",
}
FINISH = {"end_turn": "STOP", "tool_use": "STOP", "max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}


class GeminiWire:
    """POST /v1beta/models/NAME:streamGenerateContent and :generateContent."""

    name = "gemini"

    def judge(self, body: Any, model: str, account: str) -> tuple[Violation, ...]:
        """Rules G1-G8, signatures included; what Gemini 3 asks for and takes goes by the model's name."""

        def genuine(signature: str) -> bool:
            return signature.startswith(seal(model, account, "thought"))

        third = not model.startswith(("gemini-1", "gemini-2"))
        return validate(body, genuine=genuine, signatures=third, result_media=third)

    def read(self, body: Any, model: str) -> Asked:
        """What a valid body asks."""
        texts: list[str] = []
        rounds = 0
        for content in body["contents"]:
            if content.get("role") == "model":
                rounds += any("functionCall" in part for part in content["parts"])
                continue
            said = [part["text"] for part in content["parts"] if not blank(str(part.get("text") or ""))]
            if said:
                texts += said
                rounds = 0
        return Asked(model=model, stream=True, user_texts=tuple(texts), rounds_since=rounds)

    def error(self, status: int, error: ScriptedError) -> bytes:
        """{error: {code, message, status}}."""
        return dumps(_error(error)).encode()

    def play(self, round_: Round, asked: Asked, account: str) -> GeminiPlay:
        """How a round goes over this wire."""
        return GeminiPlay(round_, asked, account)


def _error(error: ScriptedError) -> dict[str, Any]:
    word = error.word
    details: list[dict[str, Any]] = []
    if error.retry_after_s is not None:
        details.append(
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{error.retry_after_s:g}s"}
        )
    status = STATUSES.get(word, word)
    message = error.message or word.replace("_", " ")
    if word == "request_too_large" and error.message is None:
        message = "The input token count exceeds the maximum number of tokens allowed."
    return {"error": {"code": error.status, "message": message, "status": status, "details": details}}


class GeminiPlay:
    """A round as chunks of one candidate."""

    def __init__(self, round_: Round, asked: Asked, account: str) -> None:
        self._round = round_
        self._asked = asked
        self._account = account
        self._id = new_id("")
        self._signed = False
        self.blocks: list[Any] = []

    def _chunk(self, parts: list[Any], finish: str | None = None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if finish is not None:
            candidate["finishReason"] = finish
        return {"candidates": [candidate], "modelVersion": self._asked.model, "responseId": self._id}

    def begin(self) -> Iterator[bytes]:
        """Nothing stands before the first part."""
        yield from ()

    def _words(self, part: dict[str, Any], first: bool) -> bytes:
        if first:
            self.blocks.append(dict(part))
        else:
            self.blocks[-1]["text"] += part["text"]
        return sse(self._chunk([part]))

    def think(self, words: str, *, first: bool, last: bool) -> Iterator[bytes]:
        """A thought."""
        yield self._words({"text": words, "thought": True}, first)

    def say(self, words: str, *, first: bool, last: bool) -> Iterator[bytes]:
        """A text."""
        yield self._words({"text": words}, first)

    def block(self, block: dict[str, Any]) -> Iterator[bytes]:
        """A part as it stands."""
        self.blocks.append(block)
        yield sse(self._chunk([block]))

    def call(self, call_id: str | None, name: str, arguments: str) -> Iterator[bytes]:
        """A functionCall; the first of a step carries the signature."""
        call: dict[str, Any] = {"name": name, "args": read_arguments(arguments)}
        if call["args"] is None:
            call["args"] = arguments  # broken arguments: no object at all
        if call_id != "":
            call = {"id": call_id or new_id("")[:8], **call}
        part: dict[str, Any] = {"functionCall": call}
        if not self._signed:
            part["thoughtSignature"] = seal(self._asked.model, self._account, "thought")
            self._signed = True
        self.blocks.append(part)
        yield sse(self._chunk([part]))

    def ping(self) -> bytes:
        """A comment."""
        return b": ping\n\n"

    def unknown(self) -> bytes:
        """An event of a kind that nobody knows."""
        return sse({"brandNewEvent": {"n": 1}})

    def error(self, error: ScriptedError) -> bytes:
        """An error in place of a chunk."""
        return sse(_error(error))

    def _usage(self) -> dict[str, Any]:
        return {
            "promptTokenCount": 10,
            "candidatesTokenCount": 20,
            "totalTokenCount": 30,
            **(self._round.usage or {}),
        }

    def end(self, stop_reason: str) -> Iterator[bytes]:
        """The finish reason and the usage."""
        last = self._chunk([], FINISH.get(stop_reason, stop_reason.upper()))
        yield sse({**last, "usageMetadata": self._usage()})

    def garbage(self, kind: str) -> Iterator[bytes]:
        """Nonsense in the shape of this wire."""
        if kind == "wrong_order":
            yield sse({"candidates": [{"content": {"parts": [{"functionCall": {"args": {}}}]}, "index": 0}]})
        elif kind == "wrong_types":
            yield sse({"candidates": {"content": 7}})
        else:
            yield from self.say("x" * 10_000_000, first=True, last=True)

    def whole(self, stop_reason: str) -> bytes:
        """The answer in one piece."""
        chunk = self._chunk(self.blocks, FINISH.get(stop_reason, stop_reason.upper()))
        return dumps({**chunk, "usageMetadata": self._usage()}).encode()
