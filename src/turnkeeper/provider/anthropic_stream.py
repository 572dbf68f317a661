"""Reading an Anthropic Messages stream, or the message of an unstreamed answer, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from turnkeeper.conversation.parts import Opaque, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.conversation.turns import Usage
from turnkeeper.port.provider import Activity, CallDelta, ProviderEvent, TextDelta, ThinkingDelta
from turnkeeper.provider.reading import ErrorEvent, Garbled, Reader, count, join_surrogates, text_of
from turnkeeper.provider.wire import raw_block, read_arguments

_GROWS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""Delta type -> the field whose text it continues."""


class _Block:
    """A content block as it grows."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.grown: dict[str, list[str]] = {}

    def whole(self) -> dict[str, Any]:
        """The block with everything that was added, keys in the order they came."""
        block = dict(self.start)
        for name, pieces in self.grown.items():
            if name != "partial_json":
                block[name] = join_surrogates(f"{block.get(name) or ''}{''.join(pieces)}")
        return block

    @property
    def input_text(self) -> str | None:
        """The arguments as they were streamed, or None if they came with the start."""
        pieces = self.grown.get("partial_json")
        return None if pieces is None else join_surrogates("".join(pieces))


class AnthropicReader(Reader):
    """Events: message_start, content_block_start/delta/stop, message_delta, message_stop, ping, error."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        super().__init__(names)
        self._blocks: dict[int, _Block] = {}
        self._raw_usage: dict[str, Any] = {}

    def take(self, event: Any) -> list[ProviderEvent]:
        """Read one event."""
        kind = event["type"]
        handler = self._HANDLERS.get(kind)
        if handler is None:
            return self.unknown(kind, event)
        return handler(self, event)

    def feed_whole(self, answer: Any) -> list[ProviderEvent]:
        """A message that came unstreamed."""
        if not isinstance(answer, dict):
            raise Garbled("the answer is no object")
        if answer.get("type") == "error":
            raise ErrorEvent(answer)
        self.feed({"type": "message_start", "message": answer})
        self.complete = self.stop_reason is not None
        return [TextDelta(part.text) for part in self.parts() if isinstance(part, Text)]

    def _start(self, event: dict[str, Any]) -> list[ProviderEvent]:
        message = event["message"]
        self.envelope = {name: value for name, value in message.items() if name != "content"}
        self.request_id = message.get("id")
        self._count(message.get("usage"))
        for index, block in enumerate(message.get("content") or ()):
            self._blocks[index] = _Block(dict(block))
        if message.get("stop_reason") is not None:
            self._stop_with(message["stop_reason"])
        return []

    def _block_start(self, event: dict[str, Any]) -> list[ProviderEvent]:
        index, block = event["index"], dict(event["content_block"])
        text_of(block["type"])
        if index in self._blocks or not isinstance(index, int):
            raise Garbled("a content block began twice")
        self._blocks[index] = _Block(block)
        if block["type"] == "tool_use":
            return [CallDelta(index, self._name(text_of(block["name"])), "")]
        if block["type"] in ("text", "thinking"):
            return [TextDelta(block["text"])] if block.get("text") else []
        return [Activity(block["type"])]

    def _block_delta(self, event: dict[str, Any]) -> list[ProviderEvent]:
        index, delta = event["index"], event["delta"]
        block = self._blocks.get(index)
        if block is None:
            raise Garbled("a content block went on that had not begun")
        kind = delta["type"]
        field = _GROWS.get(kind)
        if field is None:
            return self._other_delta(block, kind, delta)
        piece = text_of(delta[field])
        block.grown.setdefault(field, []).append(piece)
        if not piece:
            return []
        if kind == "text_delta":
            return [TextDelta(piece)]
        if kind == "thinking_delta":
            return [ThinkingDelta(piece)]
        if kind == "input_json_delta":
            return [CallDelta(index, "", piece)]
        return [Activity(kind)]

    def _other_delta(self, block: _Block, kind: Any, delta: dict[str, Any]) -> list[ProviderEvent]:
        """Grow a block by a delta that this version does not know, without losing a field of it."""
        if kind == "citations_delta":
            block.start["citations"] = [*(block.start.get("citations") or ()), delta["citation"]]
            return [Activity(kind)]
        for name, value in delta.items():
            if name == "type":
                continue
            if isinstance(value, str) and isinstance(block.start.get(name, ""), str):
                block.grown.setdefault(name, []).append(value)
            elif isinstance(value, list):
                block.start[name] = [*(block.start.get(name) or ()), *value]
            else:
                block.start[name] = value
        return [Activity(str(kind))]

    def _block_stop(self, _event: dict[str, Any]) -> list[ProviderEvent]:
        return []

    def _message_delta(self, event: dict[str, Any]) -> list[ProviderEvent]:
        delta = event["delta"]
        self.envelope.update(delta)
        self._count(event.get("usage"))
        if delta.get("stop_reason") is not None:
            self._stop_with(delta["stop_reason"])
        return [Activity("message_delta")]

    def _message_stop(self, _event: dict[str, Any]) -> list[ProviderEvent]:
        if self.stop_reason is None and not self._blocks:
            raise Garbled("the message ended before it began")
        self.complete = True
        return []

    def _error(self, event: dict[str, Any]) -> list[ProviderEvent]:
        raise ErrorEvent(event)

    def _ping(self, _event: dict[str, Any]) -> list[ProviderEvent]:
        return []

    def _stop_with(self, reason: Any) -> None:
        self.stop_reason = text_of(reason)

    def _name(self, wire: str) -> str:
        return self.names.get(wire, wire)

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        self._raw_usage.update({name: value for name, value in usage.items() if value is not None})
        raw = self._raw_usage
        read, written = (
            count(raw.get("cache_read_input_tokens")),
            count(raw.get("cache_creation_input_tokens")),
        )
        details = raw.get("output_tokens_details")
        self.usage = Usage(
            input_tokens=count(raw.get("input_tokens")) + read + written,
            output_tokens=count(raw.get("output_tokens")),
            cached_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=count(details.get("thinking_tokens")) if isinstance(details, dict) else 0,
            raw=dict(raw),
        )

    def parts(self) -> tuple[Part, ...]:
        """One part per content block, in the order of their indices."""
        return tuple(self._part(self._blocks[index]) for index in sorted(self._blocks))

    def _part(self, grown: _Block) -> Part:
        block = grown.whole()
        kind: str = block["type"]
        if kind == "text":
            text = text_of(block["text"])
            plain = list(block) == ["type", "text"]
            return Text(text, block=msgspec.UNSET if plain else raw_block(block))
        if kind == "thinking":
            thought, signature = text_of(block["thinking"]), block.get("signature") or None
            # An empty text with a signature is kept as received: that it came so is the proof (A15).
            plain = list(block) == ["type", "thinking", "signature"] and bool(thought) and bool(signature)
            return Thinking(thought, signature, block=msgspec.UNSET if plain else raw_block(block))
        if kind == "redacted_thinking":
            return Thinking("", bound={"redacted": True}, block=raw_block(block))
        if kind.endswith("_tool_use") or kind == "tool_use":
            return self._call(grown, block, server_side=kind != "tool_use")
        if kind.endswith("_tool_result"):
            return ToolResult(
                text_of(block["tool_use_id"]), block.get("content"), server_side=True, block=raw_block(block)
            )
        return Opaque(kind, block=raw_block(block))

    def _call(self, grown: _Block, block: dict[str, Any], *, server_side: bool) -> Part:
        raw = grown.input_text
        arguments = block.get("input") if raw is None else read_arguments(raw)
        if arguments is not None:
            block["input"], raw = arguments, None
        plain = not server_side and list(block) == ["type", "id", "name", "input"]
        name = text_of(block["name"])
        return ToolCall(
            text_of(block.get("id") or ""),
            name if server_side else self._name(name),
            arguments,
            arguments_raw=raw,
            server_side=server_side,
            block=msgspec.UNSET if plain else raw_block(block),
        )

    _HANDLERS: ClassVar[dict[Any, Callable[[AnthropicReader, dict[str, Any]], list[ProviderEvent]]]] = {
        "message_start": _start,
        "content_block_start": _block_start,
        "content_block_delta": _block_delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
        "error": _error,
        "ping": _ping,
    }
