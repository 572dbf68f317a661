"""One attempt at one turn: what every kind of agent of ours does in the same way.

An attempt reads the journal, expires stale consent, puts in order what an earlier attempt left, then works
step by step (`step`, which the kinds of agent define) until there is an outcome. Deciding on calls, waiting
for approval, and what follows a failure are here, because they are the same for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from turnkeeper.agent import texts
from turnkeeper.agent.calls import Job, StopAsked, run_calls
from turnkeeper.agent.definition import AgentDefinition
from turnkeeper.agent.entry import DO_NOT_CONNECT, enter, needs_approval
from turnkeeper.agent.journal import TurnJournal
from turnkeeper.agent.kept import Histories
from turnkeeper.agent.ledger import BAD_ARGUMENTS, CLOSING, TOO_MANY, UNKNOWN_TOOL, find_earlier
from turnkeeper.agent.plan import Again, Budgets, GiveUp, after_failure
from turnkeeper.agent.reply import arguments_problem
from turnkeeper.agent.so_far import REPEATED, WAITS_FOR_RESET, Call
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.ids import approval_id
from turnkeeper.conversation.messages import ASSISTANT, EXPIRED, USER, Message
from turnkeeper.conversation.parts import Text, plain_text
from turnkeeper.conversation.turns import Effect, Failure, Usage
from turnkeeper.errors import Fenced, TurnkeeperError
from turnkeeper.failpoint import failpoint
from turnkeeper.history.confirmations import (
    find_fresh_confirmations,
    find_stale_confirmations,
    proposal_of,
)
from turnkeeper.history.phrases import BUILT_IN
from turnkeeper.port.provider import Deadlines
from turnkeeper.port.runner import Answered, FailedWith, Needs, Outcome, Stopped, TurnPort
from turnkeeper.settings import Settings
from turnkeeper.tool import Tool, ToolSource
from turnkeeper.tool.contract import ArgumentsInvalid, SourceTrouble

WORKING_SECONDS = 60.0
"""How often a turn that waits by itself says that it is not stuck."""
JUDGED_MAX = 10_000
"""Conversations of which it is remembered how far their confirmations were judged."""

log = logging.getLogger("turnkeeper.agent")


class Agent:
    """One agent: what all its attempts share."""

    def __init__(
        self,
        definition: AgentDefinition,
        tools: Sequence[Tool],
        settings: Settings,
        sources: Sequence[ToolSource] = (),
    ) -> None:
        self.definition = definition
        self.tools = {tool.name: tool for tool in tools}
        self.sources = tuple(sources)
        """Where more tools come from, for each person and at each time others."""
        self.settings = settings
        self.confirmations = BUILT_IN.with_phrases(settings.dangerous_phrases)
        """What counts as a confirmation of something dangerous."""
        self.histories = Histories(settings.kept_messages_max, settings.kept_chars_max)
        self.judged: dict[str, int] = {}
        """Per conversation the seq up to which no confirmation can grow stale any more."""
        self.ran: dict[str, None] = {}
        """The newest turns that this process carried out: consent to others was given before a restart."""

    def remember_judged(self, conversation_id: str, messages: Sequence[Message], now: float) -> None:
        """Messages older than the expiry were judged for good: the next turn need not read them again."""
        oldest = now - self.settings.confirmation_expiry_seconds
        while len(self.judged) >= JUDGED_MAX:
            self.judged.pop(next(iter(self.judged)))
        for message in reversed(messages):
            if message.seq and message.created_at < oldest:
                self.judged[conversation_id] = message.seq
                return

    def remember_ran(self, turn_id: str) -> None:
        """This process has carried out that turn."""
        while len(self.ran) >= JUDGED_MAX:
            self.ran.pop(next(iter(self.ran)))
        self.ran[turn_id] = None

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

    def price(self, usage: Usage | None, *, fallback: bool = False) -> float | None:
        """What so many tokens cost at the prices of this agent, or of its fallback model; None where none are named."""
        definition = self.definition
        prices = definition.fallback.prices if fallback and definition.fallback else definition.prices
        if usage is None or prices is None:
            return None
        cached = prices.input if prices.cached is None else prices.cached
        written = prices.input if prices.cache_write is None else prices.cache_write
        plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        total = plain * prices.input + usage.cached_tokens * cached + usage.cache_write_tokens * written
        return (total + usage.output_tokens * prices.output) / 1_000_000

    def budgets(self) -> Budgets:
        """How often a turn may try again by itself."""
        s = self.settings
        return Budgets(
            auto_resumes_max=s.auto_resumes_max,
            rate_limit_waits_max=s.rate_limit_waits_max,
            rate_limit_wait_seconds=s.rate_limit_wait_seconds,
            refused_resends_max=s.refused_resends_max,
            compactions_max=s.compactions_max,
            usage_waits_max=1 if self.definition.policies.usage_limit == "wait" else 0,
        )


class Attempt:
    """One attempt at one turn."""

    def __init__(self, agent: Agent, turn: TurnPort) -> None:
        self.agent = agent
        self.turn = turn
        self.journal = TurnJournal(
            turn,
            {name: tool.effect for name, tool in agent.tools.items()},
            agent.histories,
            agent.confirmations,
        )
        self.tools: dict[str, Tool] = dict(agent.tools)
        """What the agent can do now."""
        self._missing: set[str] = set()
        self.sent_at = {turn.offer.turn.turn_id: turn.offer.turn.created_at}
        """When the turn, and each steer that it took, was sent (Unix seconds; 0: not known)."""
        self.stop: asyncio.Task[str] = asyncio.ensure_future(turn.wait_stopping())

    def let_go(self) -> None:
        """The attempt is over, by an outcome or because its task was ended: nothing of it goes on."""

    async def step(self) -> Outcome | None:
        """Do the next piece of work; None if another one follows."""
        raise NotImplementedError

    def can_compact(self) -> bool:
        """Whether a part of the conversation could be summed up."""
        return False

    async def compact(self) -> None:
        """Sum up the beginning of the conversation, because the model refused it as too long."""

    def request_changes(self, failure: Failure) -> bool:
        """Whether the request that would be sent now differs from the one that was refused."""
        return False

    async def carry_out(self) -> Outcome:
        """The whole attempt. What was journaled or added is part of whatever outcome it comes to."""
        try:
            await self.journal.load()
            outcome = await self.begin()
            while outcome is None:
                outcome = await self.step()
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
            self.let_go()
        self.journal.confirm()
        self.journal.leave()
        return msgspec.structs.replace(outcome, bodies=(*self.journal.rest(), *outcome.bodies))

    # -- before the first round

    async def begin(self) -> Outcome | None:
        agent = self.agent
        self._expire_confirmations()
        await self.find_tools()
        entered = await enter(self.journal, agent.definition, self.tools, agent.settings)
        if not isinstance(entered, list):
            return entered
        if entered:
            await self.run_jobs(entered)
        if pending := self.wait_for_person():
            return pending
        if lost := self.journal.so_far.not_connected():
            return _without_sign_in(lost)
        if self.journal.so_far.answer is not None and not self.turn.riders():
            return Answered()
        if self.journal.so_far.last_failure is not None:
            return await self.again()
        return None

    async def find_tools(self) -> None:
        """Learn which tools there are now. A source that cannot say is told of once, and the turn goes on without."""
        if not self.agent.sources:
            return
        person = self.turn.offer.request.principal.user_id
        work = asyncio.gather(*[self._tools_of(source, person) for source in self.agent.sources])
        try:
            watched: set[asyncio.Future[Any]] = {work, self.stop}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise StopAsked(self.stop.result())
        finally:
            if not work.done():
                work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
                work.cancel()
        found = dict(self.agent.tools)
        for listed in work.result():
            for tool in listed:
                found.setdefault(tool.name, tool)
        self.tools = found
        self.journal.know_effects({name: tool.effect for name, tool in found.items()})

    async def _tools_of(self, source: ToolSource, person: str) -> Sequence[Tool]:
        try:
            return await source.tools(person)
        except SourceTrouble as trouble:
            if source.name not in self._missing:
                self._missing.add(source.name)
                facts = {"server": source.name, "why": str(trouble)}
                self.journal.add(
                    ev.Noticed("tools_missing", texts.tools_missing(source.name, str(trouble)), facts)
                )
            return ()

    def _expire_confirmations(self) -> None:
        """Before the first call: expire what is old, and what is no consent any more for another reason."""
        turn = self.turn.offer.turn
        self.expire_by_age()
        self.clear_confirmations()
        self.agent.remember_ran(turn.turn_id)
        self.agent.remember_judged(turn.conversation_id, self.journal.messages, self.turn.clock.now())

    def expire_by_age(self) -> None:
        """Journal once, for each dangerous confirmation that has grown stale, that it no longer acts (G11).

        Asked again before a call that is made after a wait or in place of a failed one, and with each steer: for a
        usage limit a turn may wait for hours, and a steer for as long as a tool runs.
        """
        journal = self.journal
        judged = self.agent.judged.get(self.turn.offer.turn.conversation_id, 0)
        newer: list[Message] = []
        for message in reversed(journal.messages):
            if message.role == USER and 0 < message.seq <= judged:
                break
            newer.append(self._as_sent(message))
        newer.reverse()
        found = find_stale_confirmations(
            newer,
            self.turn.clock.now(),
            expiry_seconds=self.agent.settings.confirmation_expiry_seconds,
            patterns=self.agent.confirmations,
            expired=frozenset([m.message_id for m in newer if m.standing == EXPIRED]),
            after_seq=judged,
        )
        for message_id, pattern in found:
            journal.add(ev.ConfirmationExpired(message_id, pattern))

    def _as_sent(self, message: Message) -> Message:
        """A message of this turn with the time at which it was sent: consent does not grow fresh by waiting."""
        sent_at = self.sent_at.get(message.turn_id or "", 0.0)
        if message.role != USER or not sent_at:
            return message
        return msgspec.structs.replace(message, created_at=sent_at)

    @property
    def model_now(self) -> tuple[str, str] | None:
        """Provider and model that the next call goes to; None where there is no such thing."""
        return None

    def clear_confirmations(self, *, steered_by: str | None = None) -> None:
        """Expire what is fresh and yet no consent any more: after a restart, a steer (`steered_by` is its message's
        turn), a change of the model, or where what it confirmed is no longer there (seed 001; G11).
        """
        journal = self.journal
        judged = self.agent.judged.get(self.turn.offer.turn.conversation_id, 0)
        messages = [m for m in journal.messages if not m.seq or m.seq > judged or m.role == ASSISTANT]
        expired = frozenset([m.message_id for m in messages if m.standing == EXPIRED])
        for index, pattern in find_fresh_confirmations(
            messages, patterns=self.agent.confirmations, expired=expired
        ):
            why = self._no_consent(messages, index, steered_by)
            if why is not None:
                journal.add(ev.ConfirmationExpired(messages[index].message_id, pattern, why))

    def _no_consent(self, messages: Sequence[Message], index: int, steered_by: str | None) -> str | None:
        message, offer = messages[index], self.turn.offer
        if steered_by is not None:
            steers = [i for i, m in enumerate(messages) if m.turn_id == steered_by and m.role == USER]
            if steers and index < steers[0]:
                return "steer"
        own = message.turn_id == offer.turn.turn_id
        elsewhere = message.turn_id is not None and message.turn_id not in self.agent.ran
        if offer.why in ("rescued", "resumed") if own else elsewhere:
            return "restart"
        proposal = proposal_of(messages, index)
        if proposal is None:
            return None
        if not proposal.replay:
            return "proposal_gone"
        model, origin = self.model_now, proposal.origin
        if model is not None and origin is not None and (origin.provider, origin.model) != model:
            return "model_switch"
        return None

    async def run_jobs(self, jobs: list[Job]) -> None:
        failpoint("agent.before_intent_commit")
        await self.journal.record()
        failpoint("agent.after_intent_commit")
        await run_calls(self.journal, jobs, self.agent.settings, self.stop)

    # -- calls

    def decide(self, calls: list[Call], *, closing: bool) -> list[Job]:
        """Run, refuse or ask, call by call; everything is added to the journal."""
        jobs: list[Job] = []
        journal, settings = self.journal, self.agent.settings
        for index, call in enumerate(calls):
            name = call.call.name
            tool = self.tools.get(name)
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
                journal.refuse(call, texts.unknown_tool(name, tuple(self.tools)), UNKNOWN_TOOL)
            elif (problem := problem_of(call, tool, settings)) is not None:
                journal.refuse(call, problem, BAD_ARGUMENTS, effect)
            elif needs_approval(tool, self.agent.definition):
                self.request_approval(call, tool)
            else:
                journal.intend(call, effect)
                jobs.append(Job(call, tool))
        return jobs

    def _approval_seconds(self, tool: Tool) -> float:
        """How long a question about this tool can be answered, by risk and by channel: who looks answers soon."""
        policies, request = self.agent.definition.policies, self.turn.offer.request
        for name in (tool.name, str(tool.effect), request.producer):
            if name in policies.expiry:
                return policies.expiry[name]
        if policies.approval_seconds is not None:
            return policies.approval_seconds
        settings = self.agent.settings
        nobody_looks = request.principal.kind == "producer"
        return settings.approval_away_seconds if nobody_looks else settings.approval_seconds

    def request_approval(self, call: Call, tool: Tool) -> None:
        policies = self.agent.definition.policies
        seconds = self._approval_seconds(tool)
        self.journal.add(
            ev.ApprovalRequested(
                approval_id=approval_id(self.journal.turn_id, call.round, call.order),
                call_id=call.id,
                name=call.call.name,
                arguments=call.call.arguments,
                expires_at=self.turn.clock.now() + seconds,
                who=policies.approver,
                definition=tool.definition,
            )
        )

    def wait_for_person(self) -> Needs | None:
        """Park the turn if calls of it wait for a yes or for a sign-in."""
        so_far = self.journal.so_far
        sign_ins = so_far.pending_connects()
        approvals = [call for call in so_far.pending_approvals() if call not in sign_ins]
        if not approvals and not sign_ins:
            return None
        for call in approvals:
            if call.placeholder_id is None:
                self.journal.hold_place(call, texts.waits_for_approval(call.call.name))
        for call in sign_ins:
            if call.placeholder_id is None:
                self.journal.hold_place(call, texts.waits_for_sign_in(call.call.name, call.connect or ""))
        needs: dict[str, Any] = {
            "kind": "approval" if approvals else "auth",
            "expires_at": min(call.expires_at or 0.0 for call in (*approvals, *sign_ins)),
        }
        if approvals:
            needs["approvals"] = [
                {
                    "approval_id": call.approval_id,
                    "call_id": call.id,
                    "name": call.call.name,
                    "arguments": call.call.arguments,
                    "expires_at": call.expires_at,
                    "who": self.agent.definition.policies.approver,
                }
                for call in approvals
            ]
        if sign_ins:
            needs["connects"] = so_far.connects()
            needs["choices"] = [DO_NOT_CONNECT]
        return Needs(needs=needs, hold=self.agent.definition.policies.parked == "hold")

    # -- failures

    def keep(self, text: str, standing: str, number: int, partial: Message | None = None) -> None:
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

    async def again(self) -> Outcome | None:
        """After a failed call: wait, resume, or give up, within the turn's budgets."""
        so_far = self.journal.so_far
        failure = so_far.last_failure
        assert failure is not None
        plan = after_failure(
            so_far,
            self.agent.budgets(),
            request_changed=self.request_changes(failure),
            can_compact=self.can_compact(),
        )
        if isinstance(plan, GiveUp):
            return FailedWith(failure=plan.failure)
        if plan.why == "auto_resume":
            self._resume(failure)
        elif plan.why == "compact":
            await self.compact()
        elif plan.wait_until:
            await self._wait(plan, failure)
        self.expire_by_age()
        return None

    def _resume(self, failure: Failure) -> None:
        so_far = self.journal.so_far
        usage = so_far.spent.usage
        kept = len(so_far.kept_results())
        rounds = so_far.rounds_finished
        facts = {"rounds": rounds, "results": kept, "failure": failure.kind}
        notice = ev.Noticed("chat.auto_resumed", texts.resumed(failure.sentence, rounds, kept), facts)
        self.journal.add(
            ev.AutoResumed(
                failure,
                kept_rounds=so_far.rounds_finished,
                kept_results=kept,
                saved_input_tokens=usage.input_tokens - so_far.spent.superseded.input_tokens,
                saved_output_tokens=usage.output_tokens - so_far.spent.superseded.output_tokens,
            ),
            notice,
        )
        self.clear_confirmations()

    async def _wait(self, plan: Again, failure: Failure) -> None:
        """Wait as long as the provider asked; the wait is journaled, survives a restart and can be stopped."""
        until = plan.wait_until
        facts: dict[str, Any] = {"until": until, "kind": failure.kind}
        seconds = until - self.turn.clock.now()
        if plan.why != "usage_limit":
            notice = ev.Noticed("waits_for_provider", texts.waits(seconds), facts)
            await self.journal.record(*([notice] if seconds > 0 else ()))
        elif self.journal.so_far.waits_until is None:
            await self.journal.record(ev.Noticed(WAITS_FOR_RESET, texts.waits_for_reset(until), facts))
        while (left := until - self.turn.clock.now()) > 0:
            timer = asyncio.ensure_future(self.turn.clock.sleep(min(left, WORKING_SECONDS)))
            try:
                await asyncio.wait({timer, self.stop}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
            if self.stop.done():
                raise StopAsked(self.stop.result())
            self.turn.working()

    def address_end(self) -> None:
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


def _without_sign_in(calls: Sequence[Call]) -> FailedWith:
    """The end of a turn whose calls did not run for want of a sign-in.

    The model is not asked to put that into words: an answer that says "not connected" would be in every later
    feed, and be believed after the account was connected (seed 000).
    """
    servers = tuple(sorted({call.connect or "" for call in calls}))
    names = tuple(sorted({call.call.name for call in calls}))
    refused = any(call.connect_outcome == "refused" for call in calls)
    return FailedWith(
        failure=Failure(
            kind="sign_in", retryable=True, sentence=texts.not_connected(names, servers, refused=refused)
        )
    )


def problem_of(call: Call, tool: Tool, settings: Settings) -> str | None:
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
