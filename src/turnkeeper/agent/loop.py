"""Our loop: rounds of one model call and the tools it asked for, until an answer that asks for none.

Every step is journaled before it counts: a round before its request is sent, a call before its tool runs,
an outcome as it comes. Steps that must become durable at the same moment share one commit, so a round with
tools costs two: its start (with the last outcomes of the round before), and its message (with the intents).
What the loop knows it knows from `TurnSoFar`, which a fresh process reads from the journal: going on and
being rescued are the same code.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from turnkeeper.agent import texts
from turnkeeper.agent.attempt import Agent, Attempt
from turnkeeper.agent.calls import StopAsked, run_calls
from turnkeeper.agent.compaction import (
    BYTES_PER_TOKEN,
    MEASURED_TOKENS_MIN,
    SUMMARY_CHARS_MAX,
    choose_cut,
    estimate_tokens,
)
from turnkeeper.agent.definition import AgentDefinition
from turnkeeper.agent.reply import calls_of, has_answer, unique_calls
from turnkeeper.agent.so_far import COMPACTION_FAILED, REFUSED_REQUEST
from turnkeeper.agent.stream import RoundStream, Streamed, ask_quietly
from turnkeeper.conversation import codec
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, ERRORED, INTERRUPTED, LEAKED, NOTICE, USER, Message
from turnkeeper.conversation.parts import Json, Text, ToolCall
from turnkeeper.conversation.turns import Failure, Usage
from turnkeeper.failpoint import failpoint
from turnkeeper.history.feed import FeedOptions, build_feed, find_expired
from turnkeeper.history.leak import find_leak
from turnkeeper.history.leak_calls import fit_to_schema, read_leaked_calls
from turnkeeper.history.shape import SUMMARY
from turnkeeper.port.provider import ModelCall, Provider, ProviderFailed, Reply
from turnkeeper.port.runner import Answered, FailedWith, Offer, Outcome, TurnPort
from turnkeeper.settings import Settings
from turnkeeper.tool import Tool, ToolSource
from turnkeeper.tool.contract import ArgumentsInvalid

log = logging.getLogger("turnkeeper.agent")

REQUEST_REPAIRED: Final = "request_repaired"
BROKEN_MAX: Final = 10
"""How many faults of one request are journaled."""
WHY_CHARS_MAX: Final = 300


class ModelRunner(Agent):
    """Carries out the turns of one agent with a model and tools."""

    def __init__(
        self,
        definition: AgentDefinition,
        provider: Provider,
        tools: Sequence[Tool],
        settings: Settings,
        *,
        fallback: Provider | None = None,
        sources: Sequence[ToolSource] = (),
    ) -> None:
        super().__init__(definition, tools, settings, sources)
        self.provider = provider
        self.fallback = fallback

    async def run(self, turn: TurnPort) -> Outcome:
        """Carry out one offered turn."""
        return await ModelTurn(self, turn).carry_out()

    async def close(self) -> None:
        """Close the connections to the models."""
        await self.provider.close()
        if self.fallback is not None:
            await self.fallback.close()


class ModelTurn(Attempt):
    """One attempt at one turn, round by round."""

    agent: ModelRunner

    def __init__(self, agent: ModelRunner, turn: TurnPort) -> None:
        super().__init__(agent, turn)
        self._stream: RoundStream | None = None
        self.sent_hash = ""
        self.sent_bytes = 0
        self._bytes_per_token = BYTES_PER_TOKEN
        self.bound_data = True
        """Whether provider-bound data goes along; left behind once a request with it was refused."""

    # -- one round

    def let_go(self) -> None:
        """Stop saving drafts."""
        if self._stream is not None:
            self._stream.drafts.close()

    async def step(self) -> Outcome | None:
        """One model call and its tools; None if another round follows."""
        so_far = self.journal.so_far
        for rider in self.turn.riders():
            await self.journal.take(rider)
            self.agent.remember_ran(rider.turn.turn_id)
            self.clear_confirmations(steered_by=rider.turn.turn_id)
            self.sent_at[rider.turn.turn_id] = rider.submission.created_at
            self.expire_by_age()
        limit = self.agent.settings.rounds_max
        if so_far.rounds_finished - so_far.rounds_before_retry >= limit:
            return FailedWith(
                failure=Failure(kind="rounds", retryable=True, sentence=texts.rounds_used_up(limit))
            )
        tokens_max = self.agent.settings.turn_tokens_max
        used = so_far.tokens_used - so_far.tokens_before_retry
        if tokens_max is not None and used >= tokens_max:
            sentence = texts.tokens_used_up(used, tokens_max)
            return FailedWith(failure=Failure(kind="tokens", retryable=True, sentence=sentence))
        self.address_end()
        await self.find_tools()
        await self._keep_within_context()
        closing = so_far.only_repeated
        streamed = await self._call_model()
        if streamed.reply is None:
            return await self._failed(streamed)
        return await self._replied(streamed.reply, streamed, closing=closing)

    @property
    def _falls_back(self) -> bool:
        return self.agent.fallback is not None and self.journal.so_far.auto_resumes > 0

    @property
    def model_now(self) -> tuple[str, str] | None:
        """Provider and model that the next call goes to."""
        origin = self._provider().origin
        return origin.provider, origin.model

    def _provider(self) -> Provider:
        if self.agent.fallback is not None and self._falls_back:
            return self.agent.fallback
        return self.agent.provider

    def _price(self, usage: Usage | None) -> float | None:
        return self.agent.price(usage, fallback=self._falls_back)

    def _build(self, provider: Provider) -> tuple[Sequence[Message], bytes]:
        feed: Sequence[Message] = self.journal.feed().messages
        if not self.bound_data:
            feed = [msgspec.structs.replace(message, origin=None) for message in feed]
        return feed, self._encode(provider, feed)

    def _encode(self, provider: Provider, feed: Sequence[Message]) -> bytes:
        try:
            return provider.build(
                feed,
                instructions=self.agent.definition.instructions,
                tools=[tool.spec for tool in self.tools.values()],
                options={**self.agent.definition.model.options, **self.turn.offer.request.options},
            )
        finally:
            if broken := provider.broken:
                rules = sorted({each.rule for each in broken})
                log.error("a request of ours broke the rules %s of %s", ", ".join(rules), provider.dialect)
                facts: dict[str, Json] = {
                    "provider": provider.dialect,
                    "broken": [
                        {"rule": each.rule, "path": each.path, "why": each.sentence[:WHY_CHARS_MAX]}
                        for each in broken[:BROKEN_MAX]
                    ],
                }
                self.journal.add(ev.Noticed(REQUEST_REPAIRED, texts.request_repaired(rules), facts))

    async def _call_model(self) -> Streamed:
        """Journal the round's start, send the request, and see the stream to its end."""
        so_far = self.journal.so_far
        provider = self._provider()
        try:
            feed, body = self._build(provider)
        except ProviderFailed as failed:
            return Streamed(failure=failed.failure)
        self.sent_hash = _hash(body)
        self.sent_bytes = len(body)
        number = so_far.rounds_finished + 1
        deadlines = self.agent.deadlines()
        started = ev.RoundStarted(
            number,
            provider=provider.origin.provider,
            model=provider.origin.model,
            feed_messages=len(feed),
            feed_hash=self.sent_hash,
            deadlines=msgspec.to_builtins(deadlines),
        )
        failpoint("agent.before_outcome_commit")
        failpoint("agent.before_round_started")
        await self.journal.record(
            started,
            accepted={
                "kind": "round_started",
                "round": number,
                "provider": provider.origin.provider,
                "model": provider.origin.model,
                "feed_hash": self.sent_hash,
            },
        )
        failpoint("agent.after_outcome_commit")
        failpoint("agent.after_round_started")
        asked = _newest_user_text(self.journal.messages, self.turn.offer)
        call = ModelCall(
            body=self.turn.reveal(body),
            deadlines=deadlines,
            finished_rounds=so_far.rounds_finished,
            failed_attempts=so_far.failed_attempts,
            newest_user_text=self.turn.reveal(asked.encode("utf-8", "surrogatepass")).decode(
                "utf-8", "surrogatepass"
            ),
        )
        stream = self._stream = RoundStream(self.journal, self.agent.settings, number, asked=asked)
        try:
            return await self._unless_stopped(asyncio.ensure_future(stream.run(provider, call)))
        except StopAsked:
            await stream.drafts.finish()
            self.keep(stream.text, INTERRUPTED, number)
            raise

    # -- the context budget

    async def _keep_within_context(self) -> None:
        """Sum up the beginning of the conversation before it grows beyond what the agent allows."""
        limit = self.agent.definition.context_tokens_max
        if limit is None or self.journal.so_far.compactions >= self.agent.settings.compactions_max:
            return
        size = sum(len(codec.encode(message)) for message in self.journal.feed().messages)
        if estimate_tokens(size, self._bytes_per_token) > limit:
            await self._sum_up(limit)

    def can_compact(self) -> bool:
        """Whether a part of the conversation could be summed up."""
        return self._cut(self._refused_tokens() // 2) is not None

    async def compact(self) -> None:
        """Sum up the beginning of the conversation, because the model refused it as too long."""
        await self._sum_up(self._refused_tokens() // 2)

    def _refused_tokens(self) -> int:
        return estimate_tokens(self.sent_bytes, self._bytes_per_token)

    def _cut(self, budget_tokens: int) -> int | None:
        compaction = self.journal.compaction
        covered = None if compaction is None else compaction.through_message_id
        return choose_cut(self.journal.messages, budget_tokens, covered_before=covered)

    async def _sum_up(self, budget_tokens: int) -> None:
        """Have the model sum up what stands before the cut, and journal it. A failure is said and costs no turn."""
        cut = self._cut(budget_tokens)
        if cut is None:
            return
        streamed = await self._ask_for_summary(self.journal.messages[:cut])
        reply = streamed.reply
        summary = "" if reply is None else reply.message.text.strip()[:SUMMARY_CHARS_MAX]
        # A summary is in every later feed: markup in it would teach the model longer than any answer does.
        leaked = reply is not None and find_leak(reply.message) is not None
        if not summary or leaked:
            why = "the summary was empty" if streamed.failure is None else streamed.failure.kind
            why = "a tool call leaked into the summary" if leaked else why
            facts = {"why": why}
            self.journal.add(ev.Noticed(COMPACTION_FAILED, texts.compaction_failed(why), facts))
            return
        through = self.journal.messages[cut - 1].message_id
        text = texts.SUMMARY_HEAD + summary
        self.journal.add(
            ev.HistoryCompacted(
                text, through, self._provider().origin.model, streamed.usage, self._price(streamed.usage)
            ),
            ev.MessageAppended(
                self.journal.message(NOTICE, Text(text), provenance=SUMMARY, replay=False, through=through)
            ),
        )

    async def _ask_for_summary(self, covered: Sequence[Message]) -> Streamed:
        """The model's summary of the cleaned feed of `covered`, which it is given as any feed."""
        provider = self._provider()
        request = self.journal.message(USER, Text(texts.SUMMARISE))
        options = FeedOptions(
            effects={name: tool.effect for name, tool in self.tools.items()},
            compaction=self.journal.compaction,
            confirmations=self.agent.confirmations,
        )
        feed = build_feed([*covered, request], expired=find_expired(covered), options=options)
        try:
            body = self._encode(provider, feed.messages)
        except ProviderFailed as failed:
            return Streamed(failure=failed.failure)
        so_far = self.journal.so_far
        call = ModelCall(
            body=body,
            deadlines=self.agent.deadlines(),
            finished_rounds=so_far.rounds_finished,
            failed_attempts=so_far.failed_attempts,
            newest_user_text=texts.SUMMARISE,
        )
        await self.journal.record()
        work = asyncio.ensure_future(ask_quietly(provider, call))
        return await self._unless_stopped(work)

    async def _unless_stopped(self, work: asyncio.Future[Streamed]) -> Streamed:
        """What `work` comes to; if the turn is stopped before, the call is broken off and StopAsked raised."""
        try:
            watched: set[asyncio.Future[Any]] = {work, self.stop}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
        raise StopAsked(self.stop.result())

    # -- what a model call came to

    async def _replied(self, reply: Reply, streamed: Streamed, *, closing: bool) -> Outcome | None:
        journal, so_far = self.journal, self.journal.so_far
        number = so_far.rounds_finished + 1
        message = unique_calls(reply.message, journal.call_ids, lambda: self.turn.ids.make("call"))
        calls = calls_of(message)
        if not calls and not has_answer(message):
            failure = Failure(
                kind="empty",
                retryable=True,
                sentence="The model ended its answer without a word. Trying again may help.",
            )
            return await self._failed(
                msgspec.structs.replace(streamed, reply=None, failure=failure, partial=message)
            )
        healed = self._heal(message, streamed, number)
        if healed is not None:
            message, streamed = healed, msgspec.structs.replace(streamed, leak=None)
            calls = calls_of(message)
        if streamed.leak is not None and so_far.leaks_in_round < self.agent.settings.leak_resamples_max:
            self._set_aside(message, streamed, number)
            return None
        stored = msgspec.structs.replace(
            message,
            message_id=self.turn.ids.make("m"),
            role=ASSISTANT,
            created_at=self.turn.clock.now(),
            turn_id=journal.turn_id,
            attempt=self.turn.offer.turn.attempt,
            round=number,
            provenance="model",
            stop_reason=message.stop_reason or reply.stop_reason,
            origin=message.origin or self._provider().origin,
        )
        if reply.usage is not None and reply.usage.input_tokens > MEASURED_TOKENS_MIN:
            self._bytes_per_token = self.sent_bytes / reply.usage.input_tokens
        finished = ev.RoundFinished(
            number,
            stop_reason=reply.stop_reason,
            usage=reply.usage,
            seconds=round(streamed.seconds, 3),
            first_token_seconds=streamed.first_token_seconds,
            request_id=reply.request_id,
            cost=self._price(reply.usage),
        )
        journal.add(ev.MessageAppended(stored), finished)
        if streamed.leak is not None:
            journal.add(ev.Noticed("leak_kept", texts.leak_kept(), {"dialect": streamed.leak.dialect}))
        failpoint("agent.before_message_commit")
        if not calls:
            return Answered()
        jobs = self.decide([so_far.calls[call.id] for call in calls], closing=closing)
        if closing:
            return FailedWith(failure=Failure(kind="loop", retryable=False, sentence=texts.only_repeats()))
        failpoint("agent.before_intent_commit")
        evidence = {"kind": "message", "round": number, "message_id": stored.message_id}
        await journal.record(confirmed=None if so_far.confirmed else evidence)
        failpoint("agent.after_message_commit")
        failpoint("agent.after_intent_commit")
        if jobs:
            await run_calls(journal, jobs, self.agent.settings, self.stop)
        return self.wait_for_person()

    def _heal(self, message: Message, streamed: Streamed, number: int) -> Message | None:
        """The answer with real calls in the place of its leaked ones, if the agent wants that and all of them fit.

        All or nothing: each call names a tool that the agent has, and its arguments fit that tool's schema. What
        the model wrote is kept for the eye and set aside. What is dangerous asks for a yes like any other call.
        """
        leak = streamed.leak
        if leak is None or not self.agent.definition.policies.heal_leaks:
            return None
        text = "".join([part.text for part in message.parts if type(part) is Text])
        found: list[ToolCall] = []
        for leaked in read_leaked_calls(text, leak):
            tool = self.tools.get(leaked.name)
            if tool is None:
                return None
            arguments = fit_to_schema(leaked, tool.schema)
            try:
                tool.check(arguments)
            except ArgumentsInvalid:
                return None
            found.append(ToolCall(id=self.turn.ids.make("call"), name=leaked.name, arguments=arguments))
        if not found:
            return None
        self._keep_leaked(message, number, "healed")
        names = [call.name for call in found]
        self.journal.add(
            ev.Noticed("leak_healed", texts.leak_healed(names), {"dialect": leak.dialect, "tools": names})
        )
        before = text[: leak.start].rstrip()
        kept = [part for part in message.parts if type(part) is not Text]
        said = [Text(before)] if before else []
        return msgspec.structs.replace(message, parts=(*kept, *said, *found), stop_reason="tool_use")

    def _keep_leaked(self, message: Message, number: int, why: str) -> None:
        """Keep an answer with leaked markup for the eye: set aside, never fed."""
        leaked = self.journal.message(
            ASSISTANT,
            *message.parts,
            provenance="model",
            round=number,
            standing=LEAKED,
            replay=False,
            stop_reason="error",
            error=texts.leaked(),
            origin=message.origin or self._provider().origin,
        )
        self.journal.add(
            ev.MessageAppended(leaked),
            ev.AttemptSuperseded(leaked.message_id, why, round=number),
            ev.MessageMarked(leaked.message_id, standing=LEAKED, replay=False, why=why),
        )

    def _set_aside(self, message: Message, streamed: Streamed, number: int) -> None:
        """Set an answer with leaked markup aside for another sample of the same context (seed 004).

        It stays visible and is priced; it is never fed, never the turn's answer, and no cause of a resume.
        """
        assert streamed.leak is not None
        failure = Failure(
            kind="leaked", retryable=False, sentence=texts.leaked(), detail=streamed.leak.dialect
        )
        self._keep_leaked(message, number, "leaked_markup")
        self.journal.add(ev.RoundFailed(number, failure, streamed.usage, self._price(streamed.usage)))

    async def _failed(self, streamed: Streamed) -> Outcome | None:
        """Journal a failed model call, and find out whether another one follows."""
        assert streamed.failure is not None
        journal = self.journal
        number = journal.so_far.rounds_finished + 1
        self.keep(streamed.text, ERRORED, number, streamed.partial)
        journal.add(ev.RoundFailed(number, streamed.failure, streamed.usage, self._price(streamed.usage)))
        return await self.again()

    def request_changes(self, failure: Failure) -> bool:
        """Whether a request without provider-bound data differs from the one that was refused."""
        if failure.kind != REFUSED_REQUEST or not self.bound_data:
            return False
        self.bound_data = False
        try:
            return _hash(self._build(self._provider())[1]) != self.sent_hash
        except ProviderFailed:
            return False


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


def _newest_user_text(messages: Sequence[Message], offer: Offer) -> str:
    """The words that a person or producer said last; of a turn that goes on after others came, its own."""
    own_only = offer.why in ("retried", "continued")
    for message in reversed(messages):
        if message.role == USER and message.provenance != "turnkeeper" and message.replay:
            if own_only and message.turn_id != offer.turn.turn_id:
                continue
            return message.text
    return ""


def make_model_runner(
    definition: AgentDefinition,
    provider: Provider,
    tools: Sequence[Tool],
    settings: Settings,
    *,
    fallback: Provider | None = None,
    sources: Sequence[ToolSource] = (),
) -> ModelRunner:
    """The runner of an agent with a model; the app hands in the parts."""
    return ModelRunner(definition, provider, tools, settings, fallback=fallback, sources=sources)
