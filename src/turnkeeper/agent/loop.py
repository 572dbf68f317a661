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
from typing import Any

import msgspec

from turnkeeper.agent import texts
from turnkeeper.agent.calls import Job, StopAsked, run_calls
from turnkeeper.agent.definition import AgentDefinition
from turnkeeper.agent.entry import enter, needs_approval
from turnkeeper.agent.journal import TurnJournal
from turnkeeper.agent.ledger import BAD_ARGUMENTS, CLOSING, TOO_MANY, UNKNOWN_TOOL, find_earlier
from turnkeeper.agent.plan import Budgets, GiveUp, after_failure
from turnkeeper.agent.reply import arguments_problem, call_ids, calls_of, has_answer, unique_calls
from turnkeeper.agent.so_far import RATE_LIMIT, REFUSED_REQUEST, REPEATED, Call
from turnkeeper.agent.stream import RoundStream, Streamed
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, ERRORED, EXPIRED, INTERRUPTED, LEAKED, USER, Message
from turnkeeper.conversation.parts import Text, plain_text
from turnkeeper.conversation.turns import Effect, Failure, Turn
from turnkeeper.errors import Fenced, TurnkeeperError
from turnkeeper.failpoint import failpoint
from turnkeeper.history.confirmations import find_stale_confirmations
from turnkeeper.port.provider import Deadlines, ModelCall, Provider, ProviderFailed, Reply
from turnkeeper.port.runner import Answered, FailedWith, Needs, Offer, Outcome, Stopped, TurnPort
from turnkeeper.settings import Settings
from turnkeeper.tool import Tool
from turnkeeper.tool.contract import ArgumentsInvalid

JUDGED_MAX = 10_000
"""Conversations of which it is remembered how far their confirmations were judged."""

log = logging.getLogger("turnkeeper.agent")


class ModelRunner:
    """Carries out the turns of one agent with a model and tools."""

    def __init__(
        self,
        definition: AgentDefinition,
        provider: Provider,
        tools: Sequence[Tool],
        settings: Settings,
        *,
        fallback: Provider | None = None,
    ) -> None:
        self.definition = definition
        self.provider = provider
        self.fallback = fallback
        self.tools = {tool.name: tool for tool in tools}
        self.settings = settings
        self.judged: dict[str, int] = {}
        """Per conversation the seq up to which no confirmation can grow stale any more."""

    def remember_judged(self, conversation_id: str, messages: Sequence[Message], now: float) -> None:
        """Messages older than the expiry were judged for good: the next turn need not read them again."""
        oldest = now - self.settings.confirmation_expiry_seconds
        while len(self.judged) >= JUDGED_MAX:
            self.judged.pop(next(iter(self.judged)))
        for message in reversed(messages):
            if message.seq and message.created_at < oldest:
                self.judged[conversation_id] = message.seq
                return

    async def run(self, turn: TurnPort) -> Outcome:
        """Carry out one offered turn."""
        return await ModelTurn(self, turn).carry_out()

    async def close(self) -> None:
        """Close the connections to the models."""
        await self.provider.close()
        if self.fallback is not None:
            await self.fallback.close()

    def deadlines(self) -> Deadlines:
        """How long one call may take."""
        if self.definition.deadlines is not None:
            return self.definition.deadlines
        s = self.settings
        if self.definition.reasoning:
            return Deadlines(
                first_token_seconds=s.reasoning_first_token_seconds,
                stall_seconds=s.reasoning_stall_seconds,
                total_seconds=s.reasoning_total_seconds,
            )
        return Deadlines(
            first_token_seconds=s.first_token_seconds,
            stall_seconds=s.stall_seconds,
            total_seconds=s.total_seconds,
        )

    def budgets(self) -> Budgets:
        """How often a turn may try again by itself."""
        s = self.settings
        return Budgets(
            auto_resumes_max=s.auto_resumes_max,
            rate_limit_waits_max=s.rate_limit_waits_max,
            rate_limit_wait_seconds=s.rate_limit_wait_seconds,
            refused_resends_max=s.refused_resends_max,
        )


class ModelTurn:
    """One attempt at one turn."""

    def __init__(self, agent: ModelRunner, turn: TurnPort) -> None:
        self.agent = agent
        self.turn = turn
        self.journal = TurnJournal(turn, {name: tool.effect for name, tool in agent.tools.items()})
        self.stop: asyncio.Task[str] = asyncio.ensure_future(turn.wait_stopping())
        self.sent_hash = ""
        self.bound_data = True
        """Whether provider-bound data goes along; left behind once a request with it was refused."""

    async def carry_out(self) -> Outcome:
        """The whole attempt. What was journaled or added is part of whatever outcome it comes to."""
        try:
            await self.journal.load()
            outcome = await self._begin()
            while outcome is None:
                outcome = await self._round()
        except StopAsked:
            outcome = Stopped()
        except Fenced:
            raise
        except TurnkeeperError as error:
            outcome = FailedWith(
                failure=Failure(kind=error.code, retryable=error.retryable, sentence=error.sentence)
            )
        except Exception as error:
            log.exception("the loop failed", extra={"turn_id": self.journal.turn_id})
            outcome = FailedWith(
                failure=Failure(
                    kind="unknown", retryable=False, sentence=texts.broke(f"{type(error).__name__}: {error}")
                )
            )
        finally:
            self.stop.cancel()
        self.journal.confirm()
        return msgspec.structs.replace(outcome, bodies=(*self.journal.rest(), *outcome.bodies))

    # -- before the first round

    async def _begin(self) -> Outcome | None:
        agent = self.agent
        self._expire_confirmations()
        entered = await enter(self.journal, agent.definition, agent.tools, agent.settings)
        if not isinstance(entered, list):
            return entered
        if entered:
            await self._run(entered)
        if pending := self._wait_for_approval():
            return pending
        if self.journal.so_far.answer is not None and not self.turn.riders():
            return Answered()
        if self.journal.so_far.last_failure is not None:
            return await self._again()
        return None

    def _expire_confirmations(self) -> None:
        """Journal once, for each dangerous confirmation that has grown stale, that it no longer acts (G11)."""
        journal, turn = self.journal, self.turn.offer.turn
        expired = frozenset([m.message_id for m in journal.messages if m.standing == EXPIRED])
        found = find_stale_confirmations(
            [_as_sent(message, turn) for message in journal.messages],
            self.turn.clock.now(),
            expiry_seconds=self.agent.settings.confirmation_expiry_seconds,
            expired=expired,
            after_seq=self.agent.judged.get(turn.conversation_id, 0),
        )
        for message_id, pattern in found:
            journal.add(ev.ConfirmationExpired(message_id, pattern))
        self.agent.remember_judged(turn.conversation_id, journal.messages, self.turn.clock.now())

    async def _run(self, jobs: list[Job]) -> None:
        failpoint("agent.before_intent_commit")
        await self.journal.record()
        failpoint("agent.after_intent_commit")
        await run_calls(self.journal, jobs, self.agent.settings, self.stop)

    # -- one round

    async def _round(self) -> Outcome | None:
        """One model call and its tools; None if another round follows."""
        so_far = self.journal.so_far
        for rider in self.turn.riders():
            await self.journal.take(rider)
        limit = self.agent.settings.rounds_max
        if so_far.rounds_finished - so_far.rounds_before_retry >= limit:
            return FailedWith(
                failure=Failure(kind="rounds", retryable=True, sentence=texts.rounds_used_up(limit))
            )
        self._address_end()
        closing = so_far.only_repeated
        streamed = await self._call_model()
        if streamed.reply is None:
            return await self._failed(streamed)
        return await self._replied(streamed.reply, streamed, closing=closing)

    def _provider(self) -> Provider:
        if self.agent.fallback is not None and self.journal.so_far.auto_resumes > 0:
            return self.agent.fallback
        return self.agent.provider

    def _build(self, provider: Provider) -> tuple[Sequence[Message], bytes]:
        feed: Sequence[Message] = self.journal.feed().messages
        if not self.bound_data:
            feed = [msgspec.structs.replace(message, origin=None) for message in feed]
        body = provider.build(
            feed,
            instructions=self.agent.definition.instructions,
            tools=[tool.spec for tool in self.agent.tools.values()],
            options={**self.agent.definition.model.options, **self.turn.offer.request.options},
        )
        return feed, body

    async def _call_model(self) -> Streamed:
        """Journal the round's start, send the request, and see the stream to its end."""
        so_far = self.journal.so_far
        provider = self._provider()
        try:
            feed, body = self._build(provider)
        except ProviderFailed as failed:
            return Streamed(failure=failed.failure)
        self.sent_hash = _hash(body)
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
        call = ModelCall(
            body=body,
            deadlines=deadlines,
            finished_rounds=so_far.rounds_finished,
            failed_attempts=so_far.failed_attempts,
            newest_user_text=_newest_user_text(self.journal.messages, self.turn.offer),
        )
        asked = call.newest_user_text
        stream = RoundStream(self.journal, self.agent.settings, number, asked=asked)
        work = asyncio.ensure_future(stream.run(provider, call))
        try:
            await asyncio.wait({work, self.stop}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
        await stream.drafts.finish()
        self._keep(stream.text, INTERRUPTED, number)
        raise StopAsked(self.stop.result())

    def _keep(self, text: str, standing: str, number: int, partial: Message | None = None) -> None:
        """Keep what there is of an answer that was not finished: for the eye, never fed."""
        parts = partial.parts if partial is not None and partial.parts else (Text(text),)
        if not text.strip() and (partial is None or not partial.parts):
            return
        kept = self.journal.message(
            ASSISTANT,
            *parts,
            provenance="model",
            round=number,
            standing=standing,
            replay=False,
            origin=None if partial is None else partial.origin,
        )
        self.journal.add(ev.MessageAppended(kept))

    # -- what a model call came to

    async def _replied(self, reply: Reply, streamed: Streamed, *, closing: bool) -> Outcome | None:
        journal, so_far = self.journal, self.journal.so_far
        number = so_far.rounds_finished + 1
        message = unique_calls(reply.message, call_ids(journal.messages), lambda: self.turn.ids.make("call"))
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
        finished = ev.RoundFinished(
            number,
            stop_reason=reply.stop_reason,
            usage=reply.usage,
            seconds=round(streamed.seconds, 3),
            first_token_seconds=streamed.first_token_seconds,
            request_id=reply.request_id,
        )
        journal.add(ev.MessageAppended(stored), finished)
        if streamed.leak is not None:
            journal.add(ev.Noticed("leak_kept", texts.leak_kept(), {"dialect": streamed.leak.dialect}))
        failpoint("agent.before_message_commit")
        if not calls:
            return Answered()
        jobs = self._decide([so_far.calls[call.id] for call in calls], closing=closing)
        if closing:
            return FailedWith(failure=Failure(kind="loop", retryable=False, sentence=texts.only_repeats()))
        failpoint("agent.before_intent_commit")
        evidence = {"kind": "message", "round": number, "message_id": stored.message_id}
        await journal.record(confirmed=None if so_far.confirmed else evidence)
        failpoint("agent.after_message_commit")
        failpoint("agent.after_intent_commit")
        if jobs:
            await run_calls(journal, jobs, self.agent.settings, self.stop)
        return self._wait_for_approval()

    def _set_aside(self, message: Message, streamed: Streamed, number: int) -> None:
        """Set an answer with leaked markup aside for another sample of the same context (seed 004).

        It stays visible and is priced; it is never fed, never the turn's answer, and no cause of a resume.
        """
        assert streamed.leak is not None
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
        failure = Failure(
            kind="leaked", retryable=False, sentence=texts.leaked(), detail=streamed.leak.dialect
        )
        self.journal.add(
            ev.MessageAppended(leaked),
            ev.AttemptSuperseded(leaked.message_id, "leaked_markup", round=number),
            ev.MessageMarked(leaked.message_id, standing=LEAKED, replay=False, why="leaked_markup"),
            ev.RoundFailed(number, failure, streamed.usage),
        )

    def _decide(self, calls: list[Call], *, closing: bool) -> list[Job]:
        """Run, refuse or ask, call by call; everything is added to the journal."""
        jobs: list[Job] = []
        journal, settings = self.journal, self.agent.settings
        for index, call in enumerate(calls):
            name = call.call.name
            tool = self.agent.tools.get(name)
            effect = Effect.READ_ONLY if tool is None else tool.effect
            if closing:
                journal.refuse(call, texts.closing(name), CLOSING, effect)
                continue
            if index >= settings.calls_per_round_max:
                journal.refuse(call, texts.too_many(name, settings.calls_per_round_max), TOO_MANY, effect)
                continue
            earlier = find_earlier(journal.so_far, call, effect)
            if earlier is not None:
                journal.refuse(call, texts.repeated(name, earlier), REPEATED, effect)
            elif tool is None:
                journal.refuse(call, texts.unknown_tool(name, tuple(self.agent.tools)), UNKNOWN_TOOL)
            elif (problem := _problem(call, tool, settings)) is not None:
                journal.refuse(call, problem, BAD_ARGUMENTS, effect)
            elif needs_approval(tool, self.agent.definition):
                self._request_approval(call)
            else:
                journal.intend(call, effect)
                jobs.append(Job(call, tool))
        return jobs

    def _request_approval(self, call: Call) -> None:
        policies = self.agent.definition.policies
        seconds = policies.approval_seconds or self.agent.settings.approval_seconds
        self.journal.add(
            ev.ApprovalRequested(
                approval_id=self.turn.ids.make("p"),
                call_id=call.id,
                name=call.call.name,
                arguments=call.call.arguments,
                expires_at=self.turn.clock.now() + seconds,
                who=policies.approver,
            )
        )

    def _wait_for_approval(self) -> Needs | None:
        """Park the turn if calls of it wait for a yes."""
        waiting = self.journal.so_far.pending_approvals()
        if not waiting:
            return None
        for call in waiting:
            if call.placeholder_id is None:
                self.journal.hold_place(call, texts.waits_for_approval(call.call.name))
        return Needs(
            needs={
                "kind": "approval",
                "approvals": [
                    {
                        "approval_id": call.approval_id,
                        "call_id": call.id,
                        "name": call.call.name,
                        "arguments": call.call.arguments,
                        "expires_at": call.expires_at,
                        "who": self.agent.definition.policies.approver,
                    }
                    for call in waiting
                ],
                "expires_at": min(call.expires_at or 0.0 for call in waiting),
            },
            hold=self.agent.definition.policies.parked == "hold",
        )

    async def _failed(self, streamed: Streamed) -> Outcome | None:
        """Journal a failed model call, and find out whether another one follows."""
        assert streamed.failure is not None
        journal = self.journal
        number = journal.so_far.rounds_finished + 1
        self._keep(streamed.text, ERRORED, number, streamed.partial)
        journal.add(ev.RoundFailed(number, streamed.failure, streamed.usage))
        return await self._again()

    async def _again(self) -> Outcome | None:
        """After a failed call: wait, resume, or give up, within the turn's budgets."""
        so_far = self.journal.so_far
        failure = so_far.last_failure
        assert failure is not None
        plan = after_failure(so_far, self.agent.budgets(), request_changed=self._request_changes(failure))
        if isinstance(plan, GiveUp):
            return FailedWith(failure=plan.failure)
        if plan.why == "auto_resume":
            self._resume(failure)
        elif plan.why == RATE_LIMIT:
            await self._wait(plan.wait_until, failure)
        return None

    def _request_changes(self, failure: Failure) -> bool:
        """Whether a request without provider-bound data differs from the one that was refused."""
        if failure.kind != REFUSED_REQUEST or not self.bound_data:
            return False
        self.bound_data = False
        try:
            return _hash(self._build(self._provider())[1]) != self.sent_hash
        except ProviderFailed:
            return False

    def _resume(self, failure: Failure) -> None:
        so_far = self.journal.so_far
        usage = so_far.spent.usage
        kept = len(so_far.kept_results())
        self.journal.add(
            ev.AutoResumed(
                failure,
                kept_rounds=so_far.rounds_finished,
                kept_results=kept,
                saved_input_tokens=usage.input_tokens - so_far.spent.superseded.input_tokens,
                saved_output_tokens=usage.output_tokens - so_far.spent.superseded.output_tokens,
            ),
        )

    async def _wait(self, until: float, failure: Failure) -> None:
        """Wait as long as the provider asked; the wait is journaled and survives a restart."""
        facts: dict[str, Any] = {"until": until, "kind": failure.kind}
        seconds = until - self.turn.clock.now()
        if seconds <= 0:
            return
        text = f"The model's provider asked to wait {seconds:.0f} s. The turn goes on by itself then."
        await self.journal.record(ev.Noticed("waits_for_provider", text, facts))
        timer = asyncio.ensure_future(self.turn.clock.sleep(seconds))
        try:
            await asyncio.wait({timer, self.stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if self.stop.done():
            raise StopAsked(self.stop.result())

    def _address_end(self) -> None:
        """Let the feed end on what the model is to do, where other turns have come in between."""
        journal = self.journal
        if self.turn.offer.why not in ("retried", "continued", "rescued"):
            return
        last = next((m for m in reversed(journal.messages) if m.replay), None)
        if last is None or last.turn_id == journal.turn_id:
            return
        if last.role == USER and self.turn.offer.why == "rescued":
            return
        asked = plain_text(self.turn.offer.request.parts)
        journal.add(ev.MessageAppended(journal.notice(texts.go_on(asked))))


def _problem(call: Call, tool: Tool, settings: Settings) -> str | None:
    """Why the arguments of a call cannot be used, in words for the model."""
    raw = call.call.arguments_raw
    size = len(raw) if raw is not None else len(call.signature)
    if size > settings.arguments_bytes_max:
        return texts.giant_arguments(tool.name, size, settings.arguments_bytes_max)
    if arguments_problem(call.call):
        return texts.unreadable_arguments(tool.name)
    try:
        tool.check(call.call.arguments)
    except ArgumentsInvalid as error:
        return error.sentence
    return None


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


def _as_sent(message: Message, turn: Turn) -> Message:
    """The turn's own message with the time at which it was sent: consent does not grow fresh by waiting."""
    if message.turn_id != turn.turn_id or message.role != USER or not turn.created_at:
        return message
    return msgspec.structs.replace(message, created_at=turn.created_at)


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
) -> ModelRunner:
    """The runner of an agent with a model; the app hands in the parts."""
    return ModelRunner(definition, provider, tools, settings, fallback=fallback)
