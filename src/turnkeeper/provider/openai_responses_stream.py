"""Reading a Responses stream: output items, each kept as the provider gave it whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turnkeeper.conversation.parts import Opaque, Part, Text, Thinking, ToolCall
from turnkeeper.conversation.turns import Usage
from turnkeeper.port.provider import Activity, CallDelta, ProviderEvent, TextDelta, ThinkingDelta
from turnkeeper.provider.openai_responses import item_text
from turnkeeper.provider.reading import ErrorEvent, Garbled, Reader, count, join_surrogates, text_of
from turnkeeper.provider.wire import compact, raw_block, read_arguments

_SAYS: Final[dict[str, type[TextDelta] | type[ThinkingDelta]]] = {
    "response.output_text.delta": TextDelta,
    "response.refusal.delta": TextDelta,
    "response.reasoning_summary_text.delta": ThinkingDelta,
    "response.reasoning_text.delta": ThinkingDelta,
}
"""Event -> what its `delta` is more of."""

_SILENT: Final = frozenset(
    {
        "response.created",
        "response.in_progress",
        "response.queued",
        "response.content_part.added",
        "ping",
        "keepalive",
    }
)
"""Events that say nothing of the answer itself."""

_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_CUT: Final = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class _Item:
    """An output item as it grows; `done` once the provider gave it whole."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self.done = False
        self.grown: dict[str, list[str]] = {}

    def add(self, kind: str, piece: str) -> None:
        self.grown.setdefault(kind, []).append(piece)

    def text(self, *kinds: str) -> str:
        return join_surrogates("".join("".join(self.grown.get(kind, ())) for kind in kinds))


class ResponsesReader(Reader):
    """Events: response.created, output_item.added/done, the deltas, response.completed/incomplete/failed, error."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        super().__init__(names)
        self._items: dict[int, _Item] = {}

    def take(self, event: Any) -> list[ProviderEvent]:
        """Read one event."""
        kind = event["type"]
        if kind == "error":
            raise ErrorEvent(event)
        if isinstance(event.get("error"), dict):
            raise ErrorEvent(event)
        if kind in _SAYS:
            piece = text_of(event["delta"])
            self._item(event).add(kind, piece)
            return [_SAYS[kind](piece)] if piece else []
        if kind == "response.function_call_arguments.delta":
            piece = text_of(event["delta"])
            self._item(event).add(kind, piece)
            return [CallDelta(event["output_index"], "", piece)] if piece else []
        if kind == "response.output_item.added":
            return self._added(event)
        if kind == "response.output_item.done":
            return self._done(event)
        if kind in _ENDS:
            return self._end(kind, event["response"])
        if kind in _SILENT:
            self._head(event.get("response"))
            return []
        if isinstance(kind, str) and kind.startswith("response."):
            return [Activity(kind)]  # parts of an item that its `done` repeats whole
        return self.unknown(kind, event)

    def feed_whole(self, answer: Any) -> list[ProviderEvent]:
        """A response that came unstreamed."""
        if not isinstance(answer, dict) or not isinstance(answer.get("output"), list):
            raise Garbled("the answer is no response")
        status = answer.get("status") or "completed"
        self.feed({"type": f"response.{status}", "response": answer})
        return [TextDelta(part.text) for part in self.parts() if isinstance(part, Text)]

    def _item(self, event: dict[str, Any]) -> _Item:
        item = self._items.get(event["output_index"])
        if item is None:
            raise Garbled("an item went on that had not begun")
        return item

    def _added(self, event: dict[str, Any]) -> list[ProviderEvent]:
        index, item = event["output_index"], dict(event["item"])
        if index in self._items or not isinstance(index, int):
            raise Garbled("an item began twice")
        self._items[index] = _Item(item)
        kind = text_of(item["type"])
        if kind == "function_call":
            return [CallDelta(index, self._name(item), "")]
        return [] if kind in ("message", "reasoning") else [Activity(kind)]

    def _done(self, event: dict[str, Any]) -> list[ProviderEvent]:
        index, item = event["output_index"], dict(event["item"])
        text_of(item["type"])
        known = self._items.get(index)
        if known is None:
            if not isinstance(index, int):
                raise Garbled("an item without a place")
            known = self._items[index] = _Item(item)
        known.item, known.done = item, True
        return [Activity("output_item.done")]

    def _head(self, response: Any) -> None:
        if isinstance(response, dict):
            self.envelope = {name: value for name, value in response.items() if name != "output"}
            self.request_id = response.get("id")

    def _end(self, kind: str, response: dict[str, Any]) -> list[ProviderEvent]:
        self._head(response)
        if isinstance(response.get("usage"), dict):
            self._count(response["usage"])
        if kind == "response.failed":
            raise ErrorEvent({"error": response.get("error") or {"message": "the response failed"}})
        for index, item in enumerate(response.get("output") or ()):
            known = self._items.get(index)
            if known is None or not known.done:
                known = self._items[index] = _Item(dict(item))
                known.done = True
        calls = any(item.item["type"] == "function_call" for item in self._items.values())
        self.stop_reason = "tool_use" if calls else "end_turn"
        if kind == "response.incomplete":
            reason = (response.get("incomplete_details") or {}).get("reason") or "incomplete"
            self.stop_reason = _CUT.get(text_of(reason), reason)
        self.complete = True
        return [Activity(kind)]

    def _name(self, item: dict[str, Any]) -> str:
        name = text_of(item["name"])
        return self.names.get(name, name)

    def _count(self, raw: dict[str, Any]) -> None:
        into, out = raw.get("input_tokens_details"), raw.get("output_tokens_details")
        self.usage = Usage(
            input_tokens=count(raw.get("input_tokens")),
            output_tokens=count(raw.get("output_tokens")),
            cached_tokens=count(into.get("cached_tokens")) if isinstance(into, dict) else 0,
            reasoning_tokens=count(out.get("reasoning_tokens")) if isinstance(out, dict) else 0,
            raw=raw,
        )

    def parts(self) -> tuple[Part, ...]:
        """One part per output item, in the order of their indices."""
        return tuple(self._part(self._items[index]) for index in sorted(self._items))

    def _part(self, grown: _Item) -> Part:
        item = grown.item
        kind: str = item["type"]
        if not grown.done:
            return self._half(grown, kind)
        block = raw_block(item)
        if kind == "message":
            return Text(join_surrogates(item_text(item) or ""), block=block)
        if kind == "reasoning":
            pieces = item.get("content") or item.get("summary") or ()
            words = "\n\n".join(text_of(piece["text"]) for piece in pieces)
            return Thinking(join_surrogates(words), item.get("encrypted_content"), block=block)
        if kind == "function_call":
            text = text_of(item.get("arguments") or "")
            arguments = read_arguments(text)
            same = arguments is not None and text in ("", compact(arguments))
            raw = None if same else text
            return ToolCall(text_of(item.get("call_id") or ""), self._name(item), arguments, raw, block=block)
        if kind.endswith("_call"):
            action = item.get("action")
            arguments = action if isinstance(action, dict) else {}
            return ToolCall(str(item.get("id") or ""), kind, arguments, server_side=True, block=block)
        return Opaque(kind, block=block)

    def _half(self, grown: _Item, kind: str) -> Part:
        """What there is of an item whose end did not come."""
        if kind == "reasoning":
            return Thinking(
                grown.text("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
            )
        if kind == "function_call":
            text = grown.text("response.function_call_arguments.delta")
            item = grown.item
            arguments = read_arguments(text)
            return ToolCall(text_of(item.get("call_id") or ""), self._name(item), arguments, text)
        if kind == "message":
            return Text(grown.text("response.output_text.delta", "response.refusal.delta"))
        return Opaque(kind, block=raw_block(grown.item))
