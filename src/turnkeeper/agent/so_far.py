"""What the journal says of one turn, over all its attempts: the loop's whole state.

`TurnSoFar` is folded from the turn's events, one function per kind. The loop folds what it is about to
journal with the same functions, so that a turn that goes on and a turn that is taken up by another process
after a crash stand on the same value by construction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, COMPLETE, TOOL, Message
from turnkeeper.conversation.parts import Json, ToolCall, ToolResult
from turnkeeper.conversation.turns import Disposition, Effect, Failure, ReceiptState, Usage
from turnkeeper.tool.contract import DID_NOT_HAPPEN

CONTEXT = "context"
QUOTA = "quota"
RATE_LIMIT = "rate_limit"
REFUSED_REQUEST = "refused_request"
COMPACTION_FAILED = "compaction_failed"
WAITS_FOR_RESET = "waits_for_reset"
"""Codes of notices: a summary could not be made; the turn waits until a usage limit resets."""
GO_ON = "go_on"
START_OVER = "start_over"
"""The choices of a person who was asked about old results."""
STARTED_OVER = "started_over"
"""Code of the notice that a person chose to leave the earlier rounds of this turn aside."""
REPEATED = "repeated"
"""`why` of a refusal: an identical call was made before in this turn."""
ASKED = "asked"
"""`why` of an unknown outcome about which a person is asked."""
SIGN_IN = "sign_in"
"""`why` of a call that waits until its person signs in."""
NOT_CONNECTED = frozenset({"sign_in_refused", "sign_in_expired"})
"""`why` of a call that was not run because that sign-in did not come."""


class Call(msgspec.Struct, kw_only=True):
    """One tool call of the turn and what is known of it."""

    call: ToolCall
    round: int = 0
    order: int = 0
    """Place among the turn's calls."""
    signature: str = ""
    """Tool and canonical arguments: equal for identical calls."""
    effect: Effect = Effect.ACTS
    key: str = ""
    intended: bool = False
    disposition: Disposition | None = None
    """None while nothing is known of its outcome."""
    why: str = ""
    decided_at: float | None = None
    mutations_before: int = 0
    """Calls with an effect that had been started before this one."""
    approval_id: str | None = None
    decision: str | None = None
    """approve | deny | expired | withdrawn, once decided."""
    expires_at: float | None = None
    connect: str | None = None
    """The server at which its person must sign in before it can run."""
    connect_person: str = ""
    connect_outcome: str | None = None
    """connected | refused | expired, once that is decided."""
    rejected: str = ""
    connect_why: str = ""
    definition: str = ""
    """The tool as it was when approval was asked for."""
    approved_until: float | None = None
    """How long a yes to it counts, where it needs one."""
    approved_at: float = 0.0
    """When the yes came."""
    placeholder_id: str | None = None
    """The message that says in the feed that this call waits, until it is decided."""
    retried_since: bool = False
    """A person asked for a retry after its outcome."""
    set_aside: bool = False
    """The person chose to start over: it no longer counts as having run."""
    answer: str | None = None
    """What a person said became of it, until that is done. It is about this call and this time only."""

    @property
    def id(self) -> str:
        """The call's id, unique in its turn."""
        return self.call.id

    @property
    def open(self) -> bool:
        """Whether its outcome is still to be found out."""
        if self.disposition is Disposition.UNKNOWN:
            return self.why == ASKED
        return self.disposition in (None, Disposition.INTENDED)

    @property
    def ran(self) -> bool:
        """Whether it ran, or may have: then an identical one is not run again."""
        if self.set_aside or not self.intended or self.disposition is Disposition.REFUSED:
            return False
        return self.why != DID_NOT_HAPPEN


class Spent(msgspec.Struct, kw_only=True):
    """What the turn has used up."""

    usage: Usage = Usage()
    superseded: Usage = Usage()
    """The share of failed and superseded attempts in `usage`."""


class TurnSoFar(msgspec.Struct, kw_only=True):
    """The state of a turn as its journal gives it."""

    attempts: int = 0
    confirmed: bool = False
    """Whether the receipt says that the turn's delivery is proved."""
    rounds_finished: int = 0
    rounds_before_retry: int = 0
    """Rounds that were finished when a person last asked for a retry; the limit on rounds counts from there."""
    tokens_before_retry: int = 0
    """Tokens that were used by then; the limit on tokens counts from there too."""
    failed_attempts: int = 0
    open_round: int | None = None
    """A round that was started and whose end nobody journaled."""
    draft: str = ""
    calls: dict[str, Call] = msgspec.field(default_factory=dict)
    mutations: int = 0
    auto_resumes: int = 0
    rate_limit_waits: list[float] = msgspec.field(default_factory=list)
    refused_requests: int = 0
    leaks_in_round: int = 0
    last_failure: Failure | None = None
    """Of the last round, if it failed."""
    failed_at: float = 0.0
    answer: Message | None = None
    """The last complete message of the model, if it asked for no tool."""
    asked: tuple[str, ...] = ()
    """The calls of the last complete message of the model."""
    last_message_id: str | None = None
    """The last message that this turn put into history."""
    decisions: list[dict[str, Json]] = msgspec.field(default_factory=list)
    """What persons decided since the last retry, oldest first. An attempt that is taken up after a crash finds
    those of earlier attempts here too: what one stands for is over once it is done (`Call.answer`, `to_start_over`)."""
    age_accepted: bool = False
    """Since the last retry a person was asked about old results, and chose to use them or to leave them aside."""
    to_start_over: bool = False
    """A person chose to start over, and that is not done yet."""
    retried_at: float | None = None
    usage_waits: int = 0
    waits_until: float | None = None
    """Until when (Unix seconds) the turn waits for a usage limit to reset."""
    spent: Spent = msgspec.field(default_factory=Spent)
    compactions: int = 0
    """Summaries that this turn had made or tried to."""

    @property
    def tokens_used(self) -> int:
        """Tokens that went in and came out, of all calls of the turn."""
        return self.spent.usage.input_tokens + self.spent.usage.output_tokens

    @property
    def last_round(self) -> int:
        """The number of the last finished round."""
        return self.rounds_finished

    def open_calls(self) -> list[Call]:
        """Calls of the feed whose outcome is not known, in order."""
        return [call for call in self.calls.values() if call.open]

    def pending_approvals(self) -> list[Call]:
        """Calls that wait for a yes."""
        return [c for c in self.calls.values() if c.open and c.approval_id is not None and c.decision is None]

    def pending_connects(self) -> list[Call]:
        """Calls that wait for a sign-in."""
        return [
            c
            for c in self.calls.values()
            if c.open and not c.intended and c.connect is not None and c.connect_outcome is None
        ]

    def connects(self) -> list[dict[str, Any]]:
        """The sign-ins that calls wait for, as a parked turn's needs name them: one of each server and person."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for call in self.pending_connects():
            entry = found.setdefault(
                (call.connect or "", call.connect_person),
                {
                    "server": call.connect,
                    "person": call.connect_person,
                    "why": call.connect_why,
                    "rejected": [],
                    "calls": [],
                    "expires_at": call.expires_at,
                },
            )
            entry["rejected"].append(call.rejected)
            entry["calls"].append({"call_id": call.id, "name": call.call.name})
            entry["expires_at"] = min(entry["expires_at"], call.expires_at)
        return list(found.values())

    def not_connected(self) -> list[Call]:
        """Calls of the last message that did not run because a sign-in did not come, since the last retry."""
        calls = [self.calls[call_id] for call_id in self.asked]
        return [c for c in calls if c.why in NOT_CONNECTED and not c.retried_since]

    def kept_results(self) -> list[Call]:
        """Calls that ran and whose outcome is known."""
        return [c for c in self.calls.values() if c.ran and not c.open]

    @property
    def only_repeated(self) -> bool:
        """Whether every call of the last round was refused because it had been made before."""
        return bool(self.asked) and all(self.calls[call_id].why == REPEATED for call_id in self.asked)

    def apply(self, body: ev.Body | ev.Unknown, at: float) -> None:
        """Fold one event in."""
        fold = _FOLDS.get(type(body))
        if fold is not None:
            fold(self, body, at)


def read_turn(events: Iterable[ev.Event]) -> TurnSoFar:
    """The state that the journal of a turn gives."""
    so_far = TurnSoFar()
    for event in events:
        so_far.apply(event.body, event.at)
    return so_far


def add_usage(one: Usage, other: Usage | None) -> Usage:
    """The sum of two usages, without their raw counters."""
    if other is None:
        return one
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        cache_write_tokens=one.cache_write_tokens + other.cache_write_tokens,
        reasoning_tokens=one.reasoning_tokens + other.reasoning_tokens,
    )


def sign(name: str, arguments: Json) -> str:
    """Tool and arguments as one text that does not depend on the order of keys."""
    return f"{name}\n{json.dumps(arguments, sort_keys=True, separators=(',', ':'), ensure_ascii=True)}"


def _new_call(so_far: TurnSoFar, call: ToolCall, round_: int) -> Call:
    signature = sign(call.name, call.arguments)
    return Call(call=call, round=round_, order=len(so_far.calls), signature=signature)


def _turn_started(so_far: TurnSoFar, body: ev.TurnStarted, at: float) -> None:
    so_far.attempts += 1


def _turn_requeued(so_far: TurnSoFar, body: ev.TurnRequeued, at: float) -> None:
    if body.why == "retried":
        so_far.retried_at = at
        so_far.rounds_before_retry = so_far.rounds_finished
        so_far.tokens_before_retry = so_far.tokens_used
        so_far.last_failure = None
        so_far.decisions.clear()
        so_far.age_accepted = so_far.to_start_over = False
        for call in so_far.calls.values():
            call.retried_since = True


def _turn_continued(so_far: TurnSoFar, body: ev.TurnContinued, at: float) -> None:
    so_far.decisions.append(body.decision)
    choice = body.decision.get("choice")
    if choice in (GO_ON, START_OVER):
        so_far.age_accepted = True
        so_far.to_start_over = choice == START_OVER
    for call in so_far.calls.values():
        if choice is not None and call.open and call.why == ASKED:
            call.answer = str(choice)
        if call.approval_id is not None and call.approval_id == body.decision.get("approval_id"):
            call.decision = call.decision or body.decision.get("decision")
            call.approved_at = call.approved_at or at


def _receipt_moved(so_far: TurnSoFar, body: ev.ReceiptMoved, at: float) -> None:
    so_far.confirmed = so_far.confirmed or body.state is ReceiptState.CONFIRMED


def _round_started(so_far: TurnSoFar, body: ev.RoundStarted, at: float) -> None:
    so_far.open_round = body.round
    so_far.draft = ""
    so_far.last_failure = None
    so_far.waits_until = None
    so_far.answer = None


def _draft_saved(so_far: TurnSoFar, body: ev.DraftSaved, at: float) -> None:
    # By order, not by place: what stands in a secret's place in the journal has another length than the secret.
    so_far.draft = body.text if body.start_chars == 0 else so_far.draft + body.text


def _message_appended(so_far: TurnSoFar, body: ev.MessageAppended, at: float) -> None:
    message = body.message
    so_far.last_message_id = message.message_id
    if message.role == ASSISTANT:
        if not message.replay or message.standing != COMPLETE:
            so_far.draft = ""
            so_far.open_round = None
            return
        asked = [part for part in message.parts if type(part) is ToolCall and not part.server_side]
        for call in asked:
            so_far.calls.setdefault(call.id, _new_call(so_far, call, message.round))
        so_far.answer = None if asked else message
        so_far.asked = tuple([call.id for call in asked])
    elif message.role == TOOL:
        for part in message.parts:
            if type(part) is ToolResult and part.tool_call_id in so_far.calls:
                waiting = so_far.calls[part.tool_call_id].open
                so_far.calls[part.tool_call_id].placeholder_id = message.message_id if waiting else None
    else:
        so_far.answer = None


def _round_finished(so_far: TurnSoFar, body: ev.RoundFinished, at: float) -> None:
    so_far.rounds_finished += 1
    so_far.open_round = None
    so_far.draft = ""
    so_far.leaks_in_round = 0
    so_far.last_failure = None
    so_far.spent.usage = add_usage(so_far.spent.usage, body.usage)


def _round_failed(so_far: TurnSoFar, body: ev.RoundFailed, at: float) -> None:
    so_far.failed_attempts += 1
    so_far.open_round = None
    so_far.draft = ""
    so_far.last_failure = body.failure
    so_far.failed_at = at
    if body.failure.kind == RATE_LIMIT and body.failure.retry_after_seconds is not None:
        so_far.rate_limit_waits.append(body.failure.retry_after_seconds)
    if body.failure.kind == REFUSED_REQUEST:
        so_far.refused_requests += 1
    so_far.spent.usage = add_usage(so_far.spent.usage, body.usage)
    so_far.spent.superseded = add_usage(so_far.spent.superseded, body.usage)


def _auto_resumed(so_far: TurnSoFar, body: ev.AutoResumed, at: float) -> None:
    so_far.auto_resumes += 1


def _attempt_superseded(so_far: TurnSoFar, body: ev.AttemptSuperseded, at: float) -> None:
    so_far.leaks_in_round += 1


def _tool_intended(so_far: TurnSoFar, body: ev.ToolIntended, at: float) -> None:
    call = so_far.calls.get(body.call_id)
    if call is None:
        made = ToolCall(id=body.call_id, name=body.name, arguments=body.arguments)
        call = so_far.calls[body.call_id] = _new_call(so_far, made, body.round)
    call.effect = body.effect
    call.key = body.idempotency_key
    call.intended = True
    call.answer = None
    call.disposition = Disposition.INTENDED
    call.mutations_before = so_far.mutations
    if body.effect is not Effect.READ_ONLY:
        so_far.mutations += 1


def _tool_returned(so_far: TurnSoFar, body: ev.ToolReturned, at: float) -> None:
    call = so_far.calls.get(body.call_id)
    if call is None:
        return
    if body.disposition is Disposition.REFUSED and call.intended and call.effect is not Effect.READ_ONLY:
        so_far.mutations -= 1
    call.disposition = body.disposition
    call.why = body.why
    call.answer = None
    call.decided_at = at


def _approval_requested(so_far: TurnSoFar, body: ev.ApprovalRequested, at: float) -> None:
    call = so_far.calls.get(body.call_id)
    if call is not None:
        call.approval_id = body.approval_id
        call.expires_at = body.expires_at
        call.decision = None
        call.definition = body.definition
        call.approved_until = body.expires_at


def _approval_decided(so_far: TurnSoFar, body: ev.ApprovalDecided, at: float) -> None:
    for call in so_far.calls.values():
        if call.approval_id == body.approval_id and call.decision is None:
            call.decision = body.decision
            call.approved_at = at


def _connect_requested(so_far: TurnSoFar, body: ev.ConnectRequested, at: float) -> None:
    call = so_far.calls.get(body.call_id)
    if call is not None:
        call.connect = body.server
        call.connect_person = body.person
        call.connect_outcome = None
        call.connect_why = body.why
        call.rejected = body.rejected
        call.expires_at = body.expires_at
        call.intended = False
        call.disposition = None


def _connect_decided(so_far: TurnSoFar, body: ev.ConnectDecided, at: float) -> None:
    for call in so_far.pending_connects():
        if (call.connect, call.connect_person) == (body.server, body.person):
            call.connect_outcome = body.outcome


def _compacted(so_far: TurnSoFar, body: ev.HistoryCompacted, at: float) -> None:
    so_far.compactions += 1
    so_far.spent.usage = add_usage(so_far.spent.usage, body.usage)


def _noticed(so_far: TurnSoFar, body: ev.Noticed, at: float) -> None:
    if body.code == COMPACTION_FAILED:
        so_far.compactions += 1
    elif body.code == WAITS_FOR_RESET:
        so_far.usage_waits += 1
        so_far.waits_until = float((body.facts or {}).get("until", at))
    elif body.code == STARTED_OVER:
        so_far.to_start_over = False
        for call in so_far.calls.values():
            call.set_aside = True


_FOLDS: dict[type[Any], Callable[[TurnSoFar, Any, float], None]] = {
    ev.TurnStarted: _turn_started,
    ev.TurnRequeued: _turn_requeued,
    ev.TurnContinued: _turn_continued,
    ev.ReceiptMoved: _receipt_moved,
    ev.RoundStarted: _round_started,
    ev.DraftSaved: _draft_saved,
    ev.MessageAppended: _message_appended,
    ev.RoundFinished: _round_finished,
    ev.RoundFailed: _round_failed,
    ev.AutoResumed: _auto_resumed,
    ev.AttemptSuperseded: _attempt_superseded,
    ev.ToolIntended: _tool_intended,
    ev.ToolReturned: _tool_returned,
    ev.ApprovalRequested: _approval_requested,
    ev.ApprovalDecided: _approval_decided,
    ev.ConnectRequested: _connect_requested,
    ev.ConnectDecided: _connect_decided,
    ev.HistoryCompacted: _compacted,
    ev.Noticed: _noticed,
}
