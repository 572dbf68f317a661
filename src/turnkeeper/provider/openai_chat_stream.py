"""Reading a Chat Completions stream: deltas of one choice, grown into text, reasoning and tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from turnkeeper.conversation.parts import Part, Text, Thinking, ToolCall
from turnkeeper.conversation.turns import Usage
from turnkeeper.port.provider import Activity, CallDelta, ProviderEvent, TextDelta, ThinkingDelta
from turnkeeper.provider.reading import ErrorEvent, Garbled, Reader, count, join_surrogates, text_of
from turnkeeper.provider.wire import compact, raw_block, read_arguments

REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
"""Where compatibles put what the model thinks."""

STOPS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
"""finish_reason -> stop reason; others are kept as they are."""


class _Call:
    """A tool call as it grows; `extra` holds fields that this version does not know."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: dict[str, Any] = {}


class ChatReader(Reader):
    """Events are chunks: {id, model, choices: [{index, delta, finish_reason}], usage}."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        super().__init__(names)
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_field = ""
        self._calls: list[_Call] = []
        self._by_index: dict[Any, int] = {}
        self._extra: dict[str, Any] = {}

    def take(self, event: Any) -> list[ProviderEvent]:
        """Read one chunk."""
        if event.get("error"):
            raise ErrorEvent(event)
        for name, value in event.items():
            if name not in ("choices", "usage", "object") and value is not None:
                self.envelope[name] = value
        self.request_id = self.envelope.get("id")
        if isinstance(event.get("usage"), dict):
            self._count(event["usage"])
        choices = event.get("choices")
        if choices is None and "usage" not in event:
            return self.unknown(event.get("object") or event.get("type"), event)
        said: list[ProviderEvent] = []
        for choice in choices or ():
            if choice.get("index", 0) == 0:
                said += self._choice(choice)
        return said

    def feed_whole(self, answer: Any) -> list[ProviderEvent]:
        """A completion that came unstreamed: a choice has a message in place of a delta."""
        return self.feed(answer)

    def _choice(self, choice: dict[str, Any]) -> list[ProviderEvent]:
        delta = choice.get("delta")
        if delta is None:
            delta = choice.get("message") or {}
        said: list[ProviderEvent] = []
        for name, value in delta.items():
            if value is None or name == "role":
                continue
            if name == "content":
                said += self._words(self._text, value, TextDelta)
            elif name in REASONING_FIELDS and isinstance(value, str):
                # Some servers send the same words under both names.
                if self._reasoning_field in ("", name):
                    self._reasoning_field = name
                    said += self._words(self._reasoning, value, ThinkingDelta)
            elif name == "refusal":
                said += self._words(self._refusal, value, TextDelta)
            elif name == "tool_calls":
                for call in value:
                    said += self._call(call)
            else:
                self._keep(name, value)
                said.append(Activity(name))
        finish = choice.get("finish_reason")
        if finish is not None:
            self.envelope["finish_reason"] = text_of(finish)
            self.stop_reason = STOPS.get(finish, finish)
            self.complete = True
        return said

    def _words(self, home: list[str], value: Any, kind: Any) -> list[ProviderEvent]:
        if isinstance(value, list):  # pieces, as Mistral's reasoning models send them
            return self._pieces(value)
        words = text_of(value)
        if not words:
            return []
        home.append(words)
        return [kind(words)]

    def _pieces(self, pieces: list[dict[str, Any]]) -> list[ProviderEvent]:
        said: list[ProviderEvent] = []
        for piece in pieces:
            if piece["type"] == "text":
                said += self._words(self._text, piece["text"], TextDelta)
            elif piece["type"] == "thinking":
                for thought in piece["thinking"]:
                    said += self._words(self._reasoning, thought["text"], ThinkingDelta)
            else:
                self._keep("content_pieces", [piece])
                said.append(Activity(str(piece["type"])))
        return said

    def _call(self, delta: dict[str, Any]) -> list[ProviderEvent]:
        function = delta.get("function") or {}
        index, call_id = delta.get("index"), delta.get("id") or ""
        at = self._by_index.get(index) if index is not None else None
        if at is None and index is None and self._calls and not (call_id and call_id != self._calls[-1].id):
            at = len(self._calls) - 1  # no index: more of the newest call, unless a new id says otherwise
        if (
            at is not None
            and call_id
            and self._calls[at].id
            and call_id != self._calls[at].id
            and function.get("name")
        ):
            at = None  # one index for two calls, as some compatibles do
        if at is None:
            if not call_id and not function.get("name"):
                raise Garbled("a tool call went on that had not begun")
            at = len(self._calls)
            self._calls.append(_Call())
            if index is not None:
                self._by_index[index] = at
        call = self._calls[at]
        call.id = call.id or text_of(call_id)
        name = text_of(function.get("name") or "")
        call.name = call.name or name
        piece = text_of(function.get("arguments") or "")
        if piece:
            call.arguments.append(piece)
        for field, value in delta.items():
            if field not in ("index", "id", "type", "function") and value is not None:
                call.extra[field] = value
        return [CallDelta(at, self.names.get(name, name), piece)] if name or piece else []

    def _keep(self, name: str, value: Any) -> None:
        """Keep a field that this version does not know: text grows, lists grow, the rest is replaced."""
        before = self._extra.get(name)
        if isinstance(value, str) and isinstance(before, str):
            self._extra[name] = before + value
        elif isinstance(value, list) and isinstance(before, list):
            self._extra[name] = [*before, *value]
        else:
            self._extra[name] = value
        self.envelope["message"] = self._extra

    def _count(self, raw: dict[str, Any]) -> None:
        prompt, answer = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
        cached = count(prompt.get("cached_tokens")) if isinstance(prompt, dict) else 0
        self.usage = Usage(
            input_tokens=count(raw.get("prompt_tokens")),
            output_tokens=count(raw.get("completion_tokens")),
            cached_tokens=cached or count(raw.get("prompt_cache_hit_tokens")),
            reasoning_tokens=count(answer.get("reasoning_tokens")) if isinstance(answer, dict) else 0,
            raw=raw,
        )

    def parts(self) -> tuple[Part, ...]:
        """Reasoning, text, refusal, calls: one part each, a call each."""
        parts: list[Part] = []
        if self._reasoning:
            bound = {"field": self._reasoning_field} if self._reasoning_field else None
            parts.append(Thinking(join_surrogates("".join(self._reasoning)), bound=bound))
        if self._text:
            parts.append(Text(join_surrogates("".join(self._text))))
        if self._refusal:
            parts.append(Text(join_surrogates("".join(self._refusal)), bound={"refusal": True}))
        parts += [self._tool_call(call) for call in self._calls]
        return tuple(parts)

    def _tool_call(self, call: _Call) -> ToolCall:
        text = join_surrogates("".join(call.arguments))
        arguments = read_arguments(text)
        same = arguments is not None and text in ("", compact(arguments))
        block = {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": text},
            **call.extra,
        }
        return ToolCall(
            call.id,
            self.names.get(call.name, call.name),
            arguments,
            arguments_raw=None if same else text,
            block=raw_block(block) if call.extra else msgspec.UNSET,
        )
