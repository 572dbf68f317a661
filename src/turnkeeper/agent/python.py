"""Your own agent in Python (runner = "python"): an async generator that gets lane, ledger and resume.

    async def my_agent(feed, tools, cancel):
        reply = await tools.call("find_order", {"number": 7})
        yield f"The order is {reply.content}."

It is given the feed (messages after cleaning, this turn's own included), a tool caller, and a cancel token.
It yields text (`str`), `Thought`, `Used` (tokens), and `ToolBegan` / `ToolEnded` for tools that it runs by
itself. What it says is drafted and journaled like a model's answer; a tool runs only after its intent is
durable. After a crash or a failure it is called again, with everything that was done in the feed; a call
that it repeats gets the kept result instead of running again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from turnkeeper.agent import texts
from turnkeeper.agent.attempt import Agent, Attempt
from turnkeeper.agent.calls import StopAsked, settle_or_park, stopped_outcome, with_files_kept
from turnkeeper.agent.definition import AgentDefinition
from turnkeeper.agent.drafts import DraftKeeper
from turnkeeper.agent.exceptions import AgentFailed, failure_of
from turnkeeper.agent.ledger import find_earlier
from turnkeeper.agent.so_far import REPEATED, Call, add_usage, sign
from turnkeeper.conversation import codec
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, ERRORED, INTERRUPTED, Message, Origin
from turnkeeper.conversation.parts import Json, Text, ToolCall, ToolResult
from turnkeeper.conversation.turns import Disposition, Effect, Failure, Usage
from turnkeeper.errors import TurnkeeperError
from turnkeeper.failpoint import failpoint
from turnkeeper.port.provider import ToolSpec
from turnkeeper.port.runner import Answered, FailedWith, Outcome, TurnPort
from turnkeeper.provider.dialects import dialect_named
from turnkeeper.provider.wire import result_text
from turnkeeper.settings import Settings
from turnkeeper.tool import Outcome as ToolOutcome
from turnkeeper.tool import Tool, ToolSource, run_tool
from turnkeeper.tool.running import cut

__all__ = [
    "AgentFailed",
    "Cancel",
    "PythonRunner",
    "Thought",
    "ToolBegan",
    "ToolCaller",
    "ToolEnded",
    "ToolReply",
    "Used",
    "as_openai_messages",
]

AgentFunction = Callable[[Sequence[Message], "ToolCaller", "Cancel"], AsyncIterator[Any]]


class Thought(msgspec.Struct, frozen=True):
    """More words of the reasoning: shown, not part of the answer."""

    text: str


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that were used since the last of these."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class ToolBegan(msgspec.Struct, frozen=True, kw_only=True):
    """The agent is about to run a tool of its own. The intent is durable when the generator goes on.

    `yield` gives None, or a ToolReply: then the call was made before, and must not be run.
    """

    call_id: str
    name: str
    arguments: dict[str, Json] = msgspec.field(default_factory=dict)
    effect: Effect = Effect.ACTS


class ToolEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a tool of its own."""

    call_id: str
    content: str
    is_error: bool = False


class ToolReply(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a tool call."""

    content: str
    is_error: bool = False
    call_id: str = ""
    kept: bool = False
    """The result of an identical call of an earlier attempt; nothing ran now."""


class Cancel:
    """Tells the agent that its turn was asked to stop; after a moment it is cancelled."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason = ""

    @property
    def is_set(self) -> bool:
        """Whether the turn was asked to stop."""
        return self._event.is_set()

    async def wait(self) -> str:
        """Return when the turn is asked to stop, with the reason."""
        await self._event.wait()
        return self.reason

    def set(self, reason: str) -> None:
        """Ask the agent to stop."""
        self.reason = reason
        self._event.set()


class ToolCaller:
    """Runs the agent's tools under the turn's ledger."""

    def __init__(self, attempt: PythonTurn) -> None:
        self._attempt = attempt

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools, as a model is told of them."""
        return tuple(tool.spec for tool in self._attempt.tools.values())

    async def call(self, name: str, arguments: Mapping[str, Json] | None = None) -> ToolReply:
        """Run a tool. What goes wrong is in the reply; nothing is raised for it."""
        return await self._attempt.call_tool(name, dict(arguments or {}))


class PythonRunner(Agent):
    """Carries out the turns of one agent that is a Python function."""

    def __init__(
        self,
        definition: AgentDefinition,
        function: AgentFunction,
        tools: Sequence[Tool],
        settings: Settings,
        sources: Sequence[ToolSource] = (),
    ) -> None:
        super().__init__(definition, tools, settings, sources)
        self.function = function

    async def run(self, turn: TurnPort) -> Outcome:
        """Carry out one offered turn."""
        return await PythonTurn(self, turn).carry_out()

    async def close(self) -> None:
        """Nothing is open."""


class PythonTurn(Attempt):
    """One attempt at one turn: the generator from its beginning to its end."""

    agent: PythonRunner

    def __init__(self, agent: PythonRunner, turn: TurnPort) -> None:
        super().__init__(agent, turn)
        self._lock = asyncio.Lock()
        self._cancel = Cancel()
        self._forced: asyncio.Future[FailedWith | None] = asyncio.get_running_loop().create_future()
        """Set when the attempt must end although the agent has not: with a failure, or (None) to ask a person."""
        self._idle = asyncio.Event()
        """Set while no tool of ours runs."""
        self._idle.set()
        self._running: dict[str, tuple[Call, Tool | None]] = {}
        self._kept: dict[str, deque[tuple[Call, ToolResult]]] = {}
        self._went_its_own_way = False
        self._used = Usage()
        self._round = 0
        self._shown_chars = 0
        self._drafts = self._new_drafts()

    def let_go(self) -> None:
        """Stop saving drafts."""
        self._drafts.close()

    # -- the generator

    async def step(self) -> Outcome | None:
        """Call the agent once; None if it is to be called again."""
        self.address_end()
        self._remember_results()
        feed = tuple(self.journal.feed().messages)
        if self.turn.has_secrets:
            feed = tuple([self._revealed(message) for message in feed])
        self._begin_round(len(feed))
        failpoint("agent.before_outcome_commit")
        failpoint("agent.before_round_started")
        evidence = {"kind": "round_started", "round": self._round, "agent": self.agent.definition.name}
        await self.journal.record(accepted=evidence)
        failpoint("agent.after_outcome_commit")
        failpoint("agent.after_round_started")
        work = asyncio.ensure_future(self._drive(feed))
        try:
            watched: set[asyncio.Future[Any]] = {work, self.stop, self._forced}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if self._forced.done():
                idle = asyncio.ensure_future(self._idle.wait())
                both: set[asyncio.Future[Any]] = {idle, self.stop}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                idle.cancel()
                if self.stop.done():
                    return await self._stopped(work, self.stop.result())
                await _cancelled(work)
                self._close_running("parked")
                return self._forced.result() or self.wait_for_person()
            if self.stop.done():
                return await self._stopped(work, self.stop.result())
            return await self._ended(work)
        finally:
            await _cancelled(work)

    def _revealed(self, message: Message) -> Message:
        data = codec.encode(message)
        shown = self.turn.reveal(data)
        return message if shown == data else codec.decode_message(shown)

    async def _drive(self, feed: Sequence[Message]) -> None:
        events = self.agent.function(feed, ToolCaller(self), self._cancel)
        if not hasattr(events, "__anext__"):
            close = getattr(events, "close", None)
            if close is not None:
                close()
            raise AgentFailed(
                Failure(
                    kind="config",
                    retryable=False,
                    sentence=f"{self.agent.definition.function} is not an async generator: it must `yield` what it says.",
                )
            )
        send = getattr(events, "asend", None)
        answer: Any = None
        try:
            while True:
                try:
                    event = await (events.__anext__() if send is None else send(answer))
                except StopAsyncIteration:
                    return
                answer = await self._take(event)
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                with contextlib.suppress(RuntimeError):  # a generator that ignores its own end
                    await close()

    async def _take(self, event: Any) -> ToolReply | None:
        """One thing that the agent yielded."""
        if isinstance(event, str):
            self._say(event)
        elif isinstance(event, Thought):
            self.turn.delta("thinking", {"text": event.text, "round": self._round})
        elif isinstance(event, Used):
            self._used = add_usage(self._used, msgspec.convert(msgspec.to_builtins(event), Usage))
        elif isinstance(event, ToolBegan):
            return await self._tool_began(event)
        elif isinstance(event, ToolEnded):
            await self._tool_ended(event)
        else:
            raise AgentFailed(
                Failure(
                    kind="config",
                    retryable=False,
                    sentence=f"The agent yielded {type(event).__name__}; it may yield str, Thought, Used, ToolBegan and ToolEnded.",
                )
            )
        return None

    async def _ended(self, work: asyncio.Future[None]) -> Outcome | None:
        """The generator is done: with an answer, without a word, or with an error."""
        error = work.exception()
        text = self._drafts.text
        await self._drafts.finish()
        if error is not None:
            if isinstance(error, TurnkeeperError) or not isinstance(error, Exception):
                raise error
            return await self._failed(failure_of(error, self.agent.definition.name), text)
        if not text.strip():
            return await self._failed(
                Failure(
                    kind="empty",
                    retryable=True,
                    sentence="The agent ended without a word. Trying again may help.",
                ),
                text,
            )
        self._begin_round(None)
        self.journal.add(ev.MessageAppended(self._message(Text(text))), self._finished())
        failpoint("agent.before_message_commit")
        return Answered()

    async def _failed(self, failure: Failure, text: str) -> Outcome | None:
        number = self.journal.so_far.rounds_finished + 1
        self._close_running("failed")
        self.keep(text, ERRORED, number)
        usage = self._take_usage()
        self.journal.add(ev.RoundFailed(number, failure, usage, self.agent.price(usage)))
        self._round = 0
        self._drafts = self._new_drafts()
        return await self.again()

    async def _stopped(self, work: asyncio.Future[None], reason: str) -> Outcome:
        """Ask the agent to stop, give it a moment, and keep what there is."""
        self._cancel.set(reason)
        grace = asyncio.ensure_future(self.turn.clock.sleep(self.agent.settings.tool_stop_grace_seconds))
        waited: set[asyncio.Future[Any]] = {work, grace}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        grace.cancel()
        await _cancelled(work)
        await self._drafts.finish()
        self._close_running(reason)
        self.keep(self._drafts.text, INTERRUPTED, self.journal.so_far.rounds_finished + 1)
        raise StopAsked(reason)

    def _close_running(self, reason: str) -> None:
        """Say what is known of calls that were running when the agent ended."""
        for call, tool in self._running.values():
            if reason != "shutdown" and call.open:
                reads_only = call.effect is Effect.READ_ONLY
                name = call.call.name if tool is None else tool.name
                self.journal.settle(call, stopped_outcome(name, reads_only=reads_only), synthetic=True)
        self._running.clear()

    # -- words

    def _new_drafts(self) -> DraftKeeper:
        settings = self.agent.settings
        self._shown_chars = 0

        async def save(text: str, start_chars: int) -> None:
            async with self._lock:
                if keeper is not self._drafts:
                    return  # its words stand in a message by now
                evidence = None if self.journal.so_far.confirmed else {"kind": "draft", "round": self._round}
                drafts = [ev.DraftSaved(self._round, text, start_chars)] if text else []
                await self.journal.record(*drafts, confirmed=evidence)

        keeper = DraftKeeper(
            save,
            self.turn.clock,
            interval_seconds=settings.draft_interval_seconds,
            size_bytes=settings.draft_bytes,
            settled=self.turn.settled_chars,
        )
        return keeper

    def _say(self, text: str) -> None:
        if not text:
            return
        self._begin_round(None)
        self.turn.delta("text", {"text": text, "round": self._round, "offset": self._shown_chars})
        self._shown_chars += len(text)
        self._drafts.add(text)

    def _begin_round(self, feed_messages: int | None) -> None:
        """A round is what the agent says up to its next tool call."""
        if self._round:
            return
        self._round = self.journal.so_far.rounds_finished + 1
        self.journal.add(
            ev.RoundStarted(
                self._round,
                provider="python",
                model=self.agent.definition.function or "",
                feed_messages=feed_messages or 0,
            )
        )

    def _message(self, *parts: Text | ToolCall) -> Message:
        return self.journal.message(ASSISTANT, *parts, provenance="model", round=self._round)

    def _finished(self) -> ev.RoundFinished:
        usage = self._take_usage()
        finished = ev.RoundFinished(self._round, usage=usage, cost=self.agent.price(usage))
        self._round = 0
        return finished

    def _take_usage(self) -> Usage | None:
        used, self._used = self._used, Usage()
        return None if used == Usage() else used

    # -- tools

    def _remember_results(self) -> None:
        """Results of earlier attempts, by call: the agent that is called again gets them instead of running."""
        self._kept.clear()
        self._went_its_own_way = False
        calls = self.journal.so_far.kept_results()
        contents = self._results_of({call.id for call in calls})
        for call in calls:
            if call.id in contents:
                self._kept.setdefault(call.signature, deque()).append((call, contents[call.id]))

    def _results_of(self, call_ids: set[str]) -> dict[str, ToolResult]:
        """The newest result of each call, as it may be fed. They stand at the end of what may be a long conversation."""
        found: dict[str, ToolResult] = {}
        for message in reversed(self.journal.messages):
            if len(found) == len(call_ids):
                break
            if message.replay:
                for part in message.parts:
                    if type(part) is ToolResult and part.tool_call_id in call_ids:
                        found.setdefault(part.tool_call_id, part)
        return found

    def _kept_reply(self, name: str, arguments: dict[str, Json], effect: Effect) -> ToolReply | None:
        """What an identical call of an earlier attempt gave, once for each time that it was made.

        An agent that begins anew makes the same calls again and gets all their results. Once it has made one
        that is new, what it reads is read anew if something had an effect since.
        """
        kept = self._kept.get(sign(name, arguments))
        if not kept:
            self._went_its_own_way = True
            return None
        call, result = kept.popleft()
        stale = effect is Effect.READ_ONLY and self.journal.so_far.mutations > call.mutations_before
        if stale and self._went_its_own_way:
            return None
        return ToolReply(content=result_text(result), is_error=result.is_error, call_id=call.id, kept=True)

    async def call_tool(self, name: str, arguments: dict[str, Json]) -> ToolReply:
        """Run one of the agent's tools under the ledger."""
        await self._check_rounds()
        tool = self.tools.get(name)
        async with self._lock:
            effect = Effect.READ_ONLY if tool is None else tool.effect
            kept = self._kept_reply(name, arguments, effect)
            if kept is not None:
                return kept
            call = await self._open_call(ToolCall(self.turn.ids.make("call"), name, arguments))
            jobs = self.decide([call], closing=False)
            await self._record_intent()
        if call.approval_id is not None and call.open:
            await self._force(None)
        if not jobs:
            return self._refusal(call)
        assert tool is not None
        self._running[call.id] = (call, tool)
        self._idle.clear()
        outcome = await run_tool(
            tool,
            arguments,
            call.key,
            clock=self.turn.clock,
            timeout_seconds=self.agent.settings.tool_timeout_seconds,
            result_bytes_max=self.agent.settings.tool_result_bytes_max,
        )
        outcome = await with_files_kept(self.turn, outcome)
        await self._settle(call, outcome)
        if outcome.sign_in is not None:
            await self._force(None)
        return ToolReply(content=outcome.content, is_error=outcome.is_error, call_id=call.id)

    async def _open_call(self, asked: ToolCall) -> Call:
        """Journal (not yet durably) that the agent asks for a call, with the words before it."""
        text = self._drafts.text
        self._drafts.close()
        self._drafts = self._new_drafts()
        self._begin_round(None)
        parts = (Text(text), asked) if text.strip() else (asked,)
        self.journal.add(ev.MessageAppended(self._message(*parts)), self._finished())
        return self.journal.so_far.calls[asked.id]

    async def _check_rounds(self) -> None:
        so_far, limit = self.journal.so_far, self.agent.settings.rounds_max
        if so_far.rounds_finished - so_far.rounds_before_retry >= limit:
            failure = Failure(kind="rounds", retryable=True, sentence=texts.rounds_used_up(limit))
            await self._force(FailedWith(failure=failure))

    async def _record_intent(self) -> None:
        failpoint("agent.before_message_commit")
        failpoint("agent.before_intent_commit")
        evidence = {"kind": "message", "round": self.journal.so_far.rounds_finished}
        await self.journal.record(confirmed=None if self.journal.so_far.confirmed else evidence)
        failpoint("agent.after_message_commit")
        failpoint("agent.after_intent_commit")

    async def _settle(self, call: Call, outcome: ToolOutcome) -> None:
        async with self._lock:
            self._running.pop(call.id, None)
            if all(tool is None for _, tool in self._running.values()):
                self._idle.set()
            settle_or_park(self.journal, call, outcome, self.agent.settings)
            failpoint("agent.before_outcome_commit")
            await self.journal.record()
            failpoint("agent.after_outcome_commit")

    def _refusal(self, call: Call) -> ToolReply:
        for message in reversed(self.journal.messages):
            for part in message.parts:
                if type(part) is ToolResult and part.tool_call_id == call.id:
                    return ToolReply(content=result_text(part), is_error=True, call_id=call.id)
        return ToolReply(content=texts.closing(call.call.name), is_error=True, call_id=call.id)

    async def _force(self, outcome: FailedWith | None) -> None:
        """End the attempt; the agent is cancelled where it waits, once the tools that run have ended."""
        if not self._forced.done():
            self._forced.set_result(outcome)
        await asyncio.Event().wait()

    async def _tool_began(self, event: ToolBegan) -> ToolReply | None:
        """The agent is about to run a tool of its own: journal the intent, or say that it must not."""
        effect = Effect(event.effect)
        await self._check_rounds()
        async with self._lock:
            kept = self._kept_reply(event.name, event.arguments, effect)
            if kept is not None:
                return kept
            call_id = event.call_id
            if not call_id or call_id in self.journal.call_ids:
                call_id = self.turn.ids.make("call")
            call = await self._open_call(ToolCall(call_id, event.name, event.arguments))
            earlier = find_earlier(self.journal.so_far, call, effect)
            if earlier is not None:
                self.journal.refuse(call, texts.repeated(event.name, earlier), REPEATED, effect)
                await self._record_intent()
                return self._refusal(call)
            self.journal.intend(call, effect)
            await self._record_intent()
            self._running[event.call_id] = (call, None)
        return None

    async def _tool_ended(self, event: ToolEnded) -> None:
        """The outcome of a tool that the agent ran by itself."""
        known = self._running.pop(event.call_id, None)
        if known is None:
            raise AgentFailed(
                Failure(
                    kind="config",
                    retryable=False,
                    sentence=f"The agent ended a tool call {event.call_id!r} that it had not begun.",
                )
            )
        content = event.content if event.content.strip() else texts.no_output()
        outcome = ToolOutcome(
            disposition=Disposition.FAILED if event.is_error else Disposition.DONE,
            content=cut(content, self.agent.settings.tool_result_bytes_max),
            is_error=event.is_error,
        )
        await self._settle(known[0], outcome)


async def _cancelled(work: asyncio.Future[Any]) -> None:
    """Cancel `work` and see it end; its own errors do not count any more."""
    if work.done():
        if not work.cancelled():
            work.exception()
        return
    work.cancel()
    await asyncio.wait({work})
    if not work.cancelled():
        work.exception()


def as_openai_messages(feed: Sequence[Message]) -> list[dict[str, Any]]:
    """The feed as messages of OpenAI's chat API, which most frameworks can read."""
    encoded = dialect_named("openai-chat").encode(
        feed, origin=Origin("as_openai_messages"), instructions="", tools=(), options={}, files=None
    )
    messages: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(encoded.body["messages"]))
    return messages
