"""Reading a Gemini stream: chunks of one candidate, their parts grown together where that loses nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from turnkeeper.conversation.parts import Opaque, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.conversation.turns import Usage
from turnkeeper.port.provider import Activity, CallDelta, ProviderEvent, TextDelta, ThinkingDelta
from turnkeeper.provider.reading import ErrorEvent, Reader, count, join_surrogates, text_of
from turnkeeper.provider.wire import compact, raw_block

STOPS: Final = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens"}
REFUSALS: Final = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE"}
)

_GROWING: Final = ({"text"}, {"text", "thought"})
"""Parts of exactly these fields are pieces of one text; any other field stays in the very part it came in (G5)."""


class GeminiReader(Reader):
    """Events are chunks: {candidates: [{content: {parts}, finishReason}], usageMetadata, responseId}."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        super().__init__(names)
        self._pieces: list[dict[str, Any]] = []
        self._texts: list[list[str]] = []

    def take(self, event: Any) -> list[ProviderEvent]:
        """Read one chunk."""
        if isinstance(event, list):
            event = event[0]
        if "error" in event:
            raise ErrorEvent(event)
        blocked = event.get("promptFeedback")
        if isinstance(blocked, dict) and blocked.get("blockReason") and not event.get("candidates"):
            raise ErrorEvent({"error": {"code": "content_filter", "message": str(blocked["blockReason"])}})
        for name, value in event.items():
            if name not in ("candidates", "usageMetadata"):
                self.envelope[name] = value
        self.request_id = event.get("responseId") or self.request_id
        if isinstance(event.get("usageMetadata"), dict):
            self._count(event["usageMetadata"])
        if "candidates" not in event and "usageMetadata" not in event and "promptFeedback" not in event:
            return self.unknown(next(iter(event), "empty"), event)
        said: list[ProviderEvent] = []
        for candidate in event.get("candidates") or ():
            if candidate.get("index", 0) == 0:
                said += self._candidate(candidate)
        return said

    def feed_whole(self, answer: Any) -> list[ProviderEvent]:
        """An answer that came unstreamed has the shape of a chunk; a list of them is a stream without SSE."""
        said: list[ProviderEvent] = []
        for chunk in answer if isinstance(answer, list) else [answer]:
            said += self.feed(chunk)
        return said

    def _candidate(self, candidate: dict[str, Any]) -> list[ProviderEvent]:
        said: list[ProviderEvent] = []
        for piece in (candidate.get("content") or {}).get("parts") or ():
            said += self._piece(dict(piece))
        more = {name: value for name, value in candidate.items() if name not in ("content", "index")}
        if more:
            self.envelope["candidate"] = {**self.envelope.get("candidate", {}), **more}
        finish = candidate.get("finishReason")
        if finish is not None:
            calls = any("functionCall" in piece for piece in self._pieces)
            reason = STOPS.get(text_of(finish), "refusal" if finish in REFUSALS else finish.lower())
            self.stop_reason = "tool_use" if calls and reason == "end_turn" else reason
            self.complete = True
        return said

    def _piece(self, piece: dict[str, Any]) -> list[ProviderEvent]:
        text = piece.get("text")
        if text is not None:
            text_of(text)
            if set(piece) in _GROWING and self._pieces and list(self._pieces[-1]) == list(piece):
                self._texts[-1].append(text)
            else:
                self._append(piece, text)
            if not text:
                return [Activity("thoughtSignature")] if "thoughtSignature" in piece else []
            return [ThinkingDelta(text) if piece.get("thought") else TextDelta(text)]
        self._append(piece, "")
        if "functionCall" in piece:
            name = text_of(piece["functionCall"]["name"])
            arguments = compact(piece["functionCall"].get("args") or {})
            return [CallDelta(len(self._pieces) - 1, self.names.get(name, name), arguments)]
        return [Activity(next(iter(piece), "part"))]

    def _append(self, piece: dict[str, Any], text: str) -> None:
        self._pieces.append(piece)
        self._texts.append([text])

    def _count(self, raw: dict[str, Any]) -> None:
        thought = count(raw.get("thoughtsTokenCount"))
        self.usage = Usage(
            input_tokens=count(raw.get("promptTokenCount")) + count(raw.get("toolUsePromptTokenCount")),
            output_tokens=count(raw.get("candidatesTokenCount")) + thought,
            cached_tokens=count(raw.get("cachedContentTokenCount")),
            reasoning_tokens=thought,
            raw=raw,
        )

    def parts(self) -> tuple[Part, ...]:
        """One part per part of the candidate; a text in many pieces is one."""
        return tuple(
            self._part(piece, join_surrogates("".join(texts)))
            for piece, texts in zip(self._pieces, self._texts, strict=True)
        )

    def _part(self, piece: dict[str, Any], text: str) -> Part:
        if "text" in piece:
            piece = {**piece, "text": text}
            plain = set(piece) in _GROWING and next(iter(piece)) == "text"
            block = msgspec.UNSET if plain else raw_block(piece)
            return Thinking(text, block=block) if piece.get("thought") else Text(text, block=block)
        block = raw_block(piece)
        if "functionCall" in piece:
            return self._call(piece, block)
        if "executableCode" in piece:
            return ToolCall("", "executableCode", piece["executableCode"], server_side=True, block=block)
        if "codeExecutionResult" in piece:
            output = piece["codeExecutionResult"].get("output", "")
            return ToolResult("", output, server_side=True, block=block)
        return Opaque(next(iter(piece), "part"), block=block)

    def _call(self, piece: dict[str, Any], block: msgspec.Raw) -> ToolCall:
        call = piece["functionCall"]
        name, arguments = text_of(call["name"]), call.get("args")
        if arguments is None:
            arguments = {}
        raw = None
        if not isinstance(arguments, dict):
            # The call cannot run, and the model is told so, as of arguments that another wire cut off.
            raw, arguments = arguments if isinstance(arguments, str) else compact(arguments), None
        plain = list(piece) == ["functionCall"] and list(call) == ["name", "args"] and "args" in call
        return ToolCall(
            text_of(call.get("id") or ""),
            self.names.get(name, name),
            arguments,
            arguments_raw=raw,
            block=msgspec.UNSET if plain and raw is None else block,
        )
