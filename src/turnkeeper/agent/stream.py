"""One model call: its deltas shown, its text drafted, and what it came to as one value."""

from __future__ import annotations

from functools import partial

import msgspec

from turnkeeper.agent.drafts import DraftKeeper
from turnkeeper.agent.journal import TurnJournal
from turnkeeper.conversation.events import DraftSaved
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import ToolCall
from turnkeeper.conversation.turns import Failure, Usage
from turnkeeper.history.leak import Leak, LeakScanner
from turnkeeper.port.provider import (
    CallDelta,
    ModelCall,
    Provider,
    ProviderFailed,
    Reply,
    TextDelta,
    ThinkingDelta,
)
from turnkeeper.settings import Settings


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """What a model call came to: a reply, or a failure with what had arrived."""

    reply: Reply | None = None
    failure: Failure | None = None
    partial: Message | None = None
    text: str = ""
    """The words that were shown."""
    leak: Leak | None = None
    """Markup of a tool call that stands in the text of the reply (seed 004)."""
    usage: Usage | None = None
    seconds: float = 0.0
    first_token_seconds: float | None = None


async def ask_quietly(provider: Provider, call: ModelCall) -> Streamed:
    """Make a model call of which nothing is shown: the summary of a compaction."""
    events = provider.stream(call)
    try:
        async for event in events:
            if isinstance(event, Reply):
                return Streamed(reply=event, usage=event.usage)
    except ProviderFailed as failed:
        return Streamed(failure=failed.failure, usage=failed.usage)
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
    return Streamed(failure=ended_without_end())


def ended_without_end() -> Failure:
    """The failure of a stream that simply stopped."""
    return Failure(
        kind="broken_stream",
        retryable=True,
        sentence="The model's stream ended before its answer was complete. Try again.",
    )


class RoundStream:
    """One model call under way. `text` is what was shown of it, also after it was cancelled."""

    def __init__(self, journal: TurnJournal, settings: Settings, round_: int, *, asked: str) -> None:
        self._turn = turn = journal.turn
        self._round = round_
        self._text = ""
        self._shown_chars = 0
        self._scanner = LeakScanner(asked=asked)
        self.drafts = DraftKeeper(
            # Not a method of ours: the collector is calm, and a ring would keep every answer until it comes by.
            partial(_save_draft, journal, round_),
            turn.clock,
            interval_seconds=settings.draft_interval_seconds,
            size_bytes=settings.draft_bytes,
            settled=turn.settled_chars,
        )

    @property
    def text(self) -> str:
        """The words shown so far."""
        return self.drafts.text

    async def run(self, provider: Provider, call: ModelCall) -> Streamed:
        """Make the call to its end. Cancelling it breaks the connection."""
        clock = self._turn.clock
        began = clock.monotonic()
        first: float | None = None
        events = provider.stream(call)
        try:
            async for event in events:
                if first is None:
                    first = clock.monotonic() - began
                if isinstance(event, Reply):
                    leak = self._judge(event)
                    await self.drafts.finish()
                    return Streamed(
                        reply=event,
                        leak=leak,
                        usage=event.usage,
                        seconds=clock.monotonic() - began,
                        first_token_seconds=first,
                    )
                self._show(event)
        except ProviderFailed as failed:
            await self.drafts.finish()
            return Streamed(
                failure=failed.failure,
                partial=failed.partial,
                text=self.text,
                usage=failed.usage,
                seconds=clock.monotonic() - began,
                first_token_seconds=first,
            )
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
        await self.drafts.finish()
        return Streamed(
            failure=ended_without_end(),
            text=self.text,
            seconds=clock.monotonic() - began,
            first_token_seconds=first,
        )

    def _judge(self, reply: Reply) -> Leak | None:
        """Whether markup leaked into the reply's text; if not, what was held back is shown."""
        has_calls = any(type(part) is ToolCall for part in reply.message.parts)
        stop_reason = reply.stop_reason or reply.message.stop_reason
        leak = self._scanner.finish(has_calls=has_calls, stop_reason=stop_reason)
        if leak is None:
            self._release(len(self._text))
        return leak

    def _release(self, chars: int) -> None:
        """Show the text up to `chars`; what comes after may be the beginning of leaked markup."""
        if chars <= self._shown_chars:
            return
        text = self._text[self._shown_chars : chars]
        self._turn.delta("text", {"text": text, "round": self._round, "offset": self._shown_chars})
        self._shown_chars = chars
        self.drafts.add(text)

    def _show(self, event: object) -> None:
        if isinstance(event, TextDelta):
            self._text += event.text
            self._release(self._scanner.feed(event.text))
        elif isinstance(event, ThinkingDelta):
            self._turn.delta("thinking", {"text": event.text, "round": self._round})
        elif isinstance(event, CallDelta):
            shown = {"index": event.index, "name": event.name, "arguments_text": event.arguments_text}
            self._turn.delta("call", {**shown, "round": self._round})


async def _save_draft(journal: TurnJournal, round_: int, text: str, start_chars: int) -> None:
    evidence = None if journal.so_far.confirmed else {"kind": "draft", "round": round_}
    drafts = [DraftSaved(round_, text, start_chars)] if text else []
    await journal.record(*drafts, confirmed=evidence)
