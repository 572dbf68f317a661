"""The scripted provider: a model that says what a script tells it to, without a network and without a state.

Which round it plays comes with the call: finished rounds plus failed attempts of the turn, as journaled. It
keeps its deadlines on the clock it was given, so a test advances time instead of waiting.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, ERRORED, Message, Origin
from turnkeeper.conversation.parts import Opaque, Part, Text, Thinking, ToolCall
from turnkeeper.conversation.turns import Failure, Usage
from turnkeeper.errors import ScriptInvalid
from turnkeeper.port.clock import Clock
from turnkeeper.port.provider import (
    CallDelta,
    Deadlines,
    ModelCall,
    ProviderEvent,
    ProviderFailed,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
)
from turnkeeper.provider.build import Builder, Report
from turnkeeper.provider.failures import failure, from_error
from turnkeeper.provider.reading import REPLY_CHARS_MAX
from turnkeeper.provider.script import Round, Script, load_script
from turnkeeper.provider.wire import Files, Violation, raw_block, read_arguments

CHUNK_SECONDS: Final = 0.05
"""How often words come when they come slowly."""
CHUNK_CHARS: Final = 4096
"""How many characters come at once when they come at full speed."""


class Scripted:
    """Plays a script. Without one it answers `ok <text>`."""

    dialect = "anthropic"

    def __init__(
        self,
        clock: Clock,
        script: Script | str | None = None,
        *,
        model: str = "scripted",
        make_call_id: Callable[[], str] = lambda: f"call_{secrets.token_hex(9)}",
        files: Files | None = None,
        report: Report | None = None,
    ) -> None:
        """`script` is a Script or a path. Raises ScriptInvalid."""
        self.origin = Origin("scripted", model)
        self._clock = clock
        self._script = load_script(script) if isinstance(script, str) else script or Script()
        self._make_call_id = make_call_id
        self._builder = Builder(self.dialect, self.origin, files=files, report=report)

    def build(
        self,
        feed: Sequence[Message],
        *,
        instructions: str,
        tools: Sequence[ToolSpec],
        options: dict[str, Any],
    ) -> bytes:
        """The request as an Anthropic body: the strictest of the dialects, though nobody reads it."""
        return self._builder.build(feed, instructions=instructions, tools=tools, options=options)

    @property
    def broken(self) -> tuple[Violation, ...]:
        """The rules that the request built last broke before it was repaired: a bug of ours."""
        return self._builder.broken

    async def close(self) -> None:
        """Nothing is open."""

    async def stream(self, call: ModelCall) -> AsyncIterator[ProviderEvent]:
        """Play the round that this call is due."""
        index = call.finished_rounds + call.failed_attempts
        try:
            round_ = self._script.round(call.newest_user_text, index)
        except ScriptInvalid as error:
            raise ProviderFailed(failure("config", why=error.sentence.rstrip("."))) from error
        if not (round_.says_something or round_.error or round_.cut or round_.garbage or round_.raw):
            round_ = msgspec.structs.replace(round_, text=f"ok {call.newest_user_text}")
            if round_.stall_s:  # nothing was said before it: the silence comes first
                silence = round_.first_token_silence_s + round_.stall_s
                round_ = msgspec.structs.replace(round_, first_token_silence_s=silence, stall_s=0.0)
        play = _Play(self, round_, call)
        async for event in play.run():
            yield event


class _Play:
    """One round being played."""

    def __init__(self, provider: Scripted, round_: Round, call: ModelCall) -> None:
        self._provider = provider
        self._clock = provider._clock  # noqa: SLF001 - one thing in two classes
        self._make_call_id = provider._make_call_id  # noqa: SLF001
        self._round = round_
        self._deadlines: Deadlines = call.deadlines
        self._began = self._clock.monotonic()
        self._spoke: float | None = None
        self._parts: list[Part] = []
        self._text = ""
        self._thinking = ""
        self._usage = Usage(input_tokens=len(call.body) // 4)

    async def run(self) -> AsyncIterator[ProviderEvent]:
        """The round's events, then its Reply; or ProviderFailed."""
        r = self._round
        await self._silence(r.slow_headers_s)
        if r.error is not None and not r.says_something:
            self._error()
        await self._silence(r.first_token_silence_s)
        if r.thinking:
            async for words in self._words(r.thinking):
                self._thinking += words
                yield ThinkingDelta(words)
            self._parts.append(Thinking(r.thinking))
        if r.text:
            while True:
                async for words in self._words(r.text):
                    self._text += words
                    yield TextDelta(words)
                if not r.endless:
                    break
                await self._silence(CHUNK_SECONDS)
            self._parts.append(Text(r.text))
        for block in r.blocks or ():
            self._parts.append(Opaque(str(block.get("type", "unknown")), block=raw_block(block)))
        for index, scripted in enumerate(r.tool_calls):
            call_id = self._make_call_id() if scripted.id is None else scripted.id
            part, raw = ToolCall(call_id, scripted.name, scripted.arguments), scripted.raw_arguments
            if raw is not None:
                part = msgspec.structs.replace(part, arguments=read_arguments(raw), arguments_raw=raw)
            self._spoke = self._clock.monotonic()
            yield CallDelta(
                index, part.name, raw if raw is not None else msgspec.json.encode(part.arguments).decode()
            )
            self._parts.append(part)
        await self._silence(r.stall_s)
        if r.raw is not None or r.garbage not in (None, "unknown_event"):
            self._garbage()
        if r.error is not None:
            self._error()
        if r.cut:
            self._fail(failure("broken_stream", seconds=self._elapsed, why="it ended without an end"))
        yield self._reply()

    @property
    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._began

    async def _words(self, text: str) -> AsyncIterator[str]:
        speed = self._round.chars_per_s
        step = CHUNK_CHARS if speed is None else max(1, int(speed * CHUNK_SECONDS))
        for at in range(0, len(text), step):
            words = text[at : at + step]
            if speed is not None:
                await self._silence(len(words) / speed)
            self._spoke = self._clock.monotonic()
            yield words

    async def _silence(self, seconds: float) -> None:
        """Say nothing for `seconds`, or until the first deadline that this silence breaks."""
        if seconds <= 0:
            return
        now = self._clock.monotonic()
        d = self._deadlines
        kind, since = ("first_token", self._began) if self._spoke is None else ("stall", self._spoke)
        limit = d.first_token_seconds if self._spoke is None else d.stall_seconds
        left, kind, since = min(
            (since + limit - now, kind, since), (self._began + d.total_seconds - now, "total", self._began)
        )
        await self._clock.sleep(min(seconds, max(0.0, left)))
        if left <= seconds:
            self._fail(failure(kind, seconds=self._clock.monotonic() - since))

    def _garbage(self) -> None:
        if self._round.garbage == "huge_delta":
            self._fail(failure("oversized", limit=REPLY_CHARS_MAX))
        if self._round.garbage == "html" and not self._round.says_something:
            self._fail(failure("not_an_api", where="the script", why="a web page"))
        self._fail(failure("broken_stream", seconds=self._elapsed, why="it was not readable"))

    def _error(self) -> None:
        error = self._round.error
        assert error is not None
        body = {"error": {"type": error.word, "message": error.message or ""}}
        status = (
            None if self._round.says_something else error.status
        )  # a stream has begun: no status any more
        headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
        self._fail(from_error(body, status=status, headers=headers, where="the script"))

    def _fail(self, why: Failure) -> None:
        raise ProviderFailed(why, partial=self._partial(why), usage=self._counted())

    def _partial(self, why: Failure) -> Message | None:
        parts = [p for p in self._parts if not isinstance(p, Text | Thinking)]
        said: list[Part] = [
            *([Thinking(self._thinking)] if self._thinking else ()),
            *([Text(self._text)] if self._text else ()),
        ]
        if not said and not parts:
            return None
        return Message(
            message_id="",
            role=ASSISTANT,
            parts=(*said, *parts),
            provenance="model",
            replay=False,
            standing=ERRORED,
            error=why.kind,
            origin=self._provider.origin,
        )

    def _counted(self) -> Usage:
        said = len(self._text) + len(self._thinking) + sum(50 for p in self._parts if isinstance(p, ToolCall))
        return msgspec.structs.replace(self._usage, output_tokens=said // 4)

    def _reply(self) -> Reply:
        stop = self._round.stop_reason or ("tool_use" if self._round.tool_calls else "end_turn")
        message = Message(
            message_id="",
            role=ASSISTANT,
            parts=tuple(self._parts),
            provenance="model",
            stop_reason=stop,
            origin=self._provider.origin,
        )
        usage = self._counted()
        if self._round.usage is not None:
            usage = msgspec.structs.replace(
                usage,
                **{
                    name: self._round.usage[name]
                    for name in Usage.__struct_fields__
                    if name in self._round.usage
                },
            )
        return Reply(message=message, usage=usage, stop_reason=stop, request_id="scripted")
