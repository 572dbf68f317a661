"""The Responses wire, served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnkeeper.provider.openai_responses_rules import validate
from turnkeeper.provider.script import Round, ScriptedError
from turnkeeper.provider.wire import Violation, blank
from turnkeeper.testing.model_server.chat_wire import CODES, chat_error
from turnkeeper.testing.model_server.wire import Asked, box_opens, dumps, new_id, sealed_box, sse

INCOMPLETE = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}


class ResponsesWire:
    """POST /v1/responses."""

    name = "openai-responses"

    def judge(self, body: Any, model: str, account: str) -> tuple[Violation, ...]:
        """Rules O1-O10, encrypted content included."""

        def genuine(item: dict[str, Any]) -> bool:
            return box_opens(model, account, item.get("encrypted_content"))

        return validate(body, genuine=genuine)

    def read(self, body: Any, model: str) -> Asked:
        """What a valid body asks."""
        items = body["input"]
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        texts: list[str] = []
        rounds = 0
        calling = False
        for item in items:
            kind = item.get("type", "message")
            if kind == "function_call":
                rounds += not calling
                calling = True
                continue
            calling = calling and kind == "reasoning"
            if kind == "message" and item.get("role") == "user":
                content = item["content"]
                pieces = [{"text": content}] if isinstance(content, str) else content
                said = [
                    piece["text"]
                    for piece in pieces
                    if isinstance(piece.get("text"), str) and not blank(piece["text"])
                ]
                if said:
                    texts += said
                    rounds = 0
        return Asked(
            model=model, stream=body.get("stream") is True, user_texts=tuple(texts), rounds_since=rounds
        )

    def error(self, status: int, error: ScriptedError) -> bytes:
        """{error: {message, type, param, code}}."""
        return dumps(chat_error(error)).encode()

    def play(self, round_: Round, asked: Asked, account: str) -> ResponsesPlay:
        """How a round goes over this wire."""
        return ResponsesPlay(round_, asked, account)


class ResponsesPlay:
    """A round as output items with their events, numbered."""

    def __init__(self, round_: Round, asked: Asked, account: str) -> None:
        self._round = round_
        self._asked = asked
        self._account = account
        self._number = 0
        self._id = new_id("resp_")
        self._open: dict[str, Any] = {}
        self.blocks: list[Any] = []

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return sse({"type": kind, "sequence_number": number, **fields}, kind)

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": 0,
            "status": status,
            "model": self._asked.model,
            "output": [],
            "usage": None,
        }

    @property
    def _index(self) -> int:
        return len(self.blocks) - 1

    def begin(self) -> Iterator[bytes]:
        """response.created and response.in_progress."""
        yield self._event("response.created", response=self._response("in_progress"))
        yield self._event("response.in_progress", response=self._response("in_progress"))

    def _add(self, item: dict[str, Any], final: dict[str, Any]) -> bytes:
        self.blocks.append(final)
        return self._event("response.output_item.added", output_index=self._index, item=item)

    def _done(self, item: dict[str, Any]) -> bytes:
        return self._event("response.output_item.done", output_index=self._index, item=item)

    def think(self, words: str, *, first: bool, last: bool) -> Iterator[bytes]:
        """A reasoning item with one summary text and its encrypted content."""
        if first:
            self._open = {"id": new_id("rs_"), "type": "reasoning", "summary": []}
            yield self._add(dict(self._open), self._open)
            self._open["summary"] = [{"type": "summary_text", "text": ""}]
        self._open["summary"][0]["text"] += words
        yield self._event(
            "response.reasoning_summary_text.delta",
            item_id=self._open["id"],
            output_index=self._index,
            summary_index=0,
            delta=words,
        )
        if last:
            text = self._open["summary"][0]["text"]
            self._open["encrypted_content"] = sealed_box(self._asked.model, self._account, text)
            yield self._done(self._open)

    def say(self, words: str, *, first: bool, last: bool) -> Iterator[bytes]:
        """A message item with one output text."""
        if first:
            piece = {"type": "output_text", "text": "", "annotations": []}
            self._open = {
                "id": new_id("msg_"),
                "type": "message",
                "status": "completed",
                "content": [piece],
                "role": "assistant",
            }
            yield self._add({**self._open, "content": [], "status": "in_progress"}, self._open)
            yield self._event(
                "response.content_part.added",
                item_id=self._open["id"],
                output_index=self._index,
                content_index=0,
                part=dict(piece),
            )
        self._open["content"][0]["text"] += words
        yield self._event(
            "response.output_text.delta",
            item_id=self._open["id"],
            output_index=self._index,
            content_index=0,
            delta=words,
        )
        if last:
            yield self._done(self._open)

    def block(self, block: dict[str, Any]) -> Iterator[bytes]:
        """An item as it stands."""
        yield self._add(block, block)
        yield self._done(block)

    def call(self, call_id: str | None, name: str, arguments: str) -> Iterator[bytes]:
        """A function_call item."""
        item = {
            "id": new_id("fc_"),
            "type": "function_call",
            "status": "completed",
            "arguments": arguments,
            "call_id": new_id("call_") if call_id is None else call_id,
            "name": name,
        }
        yield self._add({**item, "arguments": "", "status": "in_progress"}, item)
        half = len(arguments) // 2
        for piece in (arguments[:half], arguments[half:]):
            if piece:
                yield self._event(
                    "response.function_call_arguments.delta",
                    item_id=item["id"],
                    output_index=self._index,
                    delta=piece,
                )
        yield self._done(item)

    def ping(self) -> bytes:
        """A comment."""
        return b": ping\n\n"

    def unknown(self) -> bytes:
        """An event of a kind that nobody knows."""
        return sse({"type": "brand_new.event", "detail": {"n": 1}}, "brand_new.event")

    def error(self, error: ScriptedError) -> bytes:
        """An error event."""
        word = error.word
        code = CODES.get(word, word)
        return self._event("error", code=code, message=error.message or word.replace("_", " "), param=None)

    def _ended(self, stop_reason: str) -> dict[str, Any]:
        usage = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30, **(self._round.usage or {})}
        cut = INCOMPLETE.get(stop_reason)
        response = self._response("completed" if cut is None else "incomplete")
        details = None if cut is None else {"reason": cut}
        return {**response, "output": self.blocks, "usage": usage, "incomplete_details": details}

    def end(self, stop_reason: str) -> Iterator[bytes]:
        """response.completed, or response.incomplete."""
        response = self._ended(stop_reason)
        yield self._event(f"response.{response['status']}", response=response)

    def garbage(self, kind: str) -> Iterator[bytes]:
        """Nonsense in the shape of this wire."""
        if kind == "wrong_order":
            yield self._event(
                "response.output_text.delta", item_id="x", output_index=77, content_index=0, delta="x"
            )
        elif kind == "wrong_types":
            yield self._event("response.output_item.added", output_index=[], item=7)
        else:
            yield from self.say("x" * 10_000_000, first=True, last=True)

    def whole(self, stop_reason: str) -> bytes:
        """The response in one piece."""
        return dumps(self._ended(stop_reason)).encode()
