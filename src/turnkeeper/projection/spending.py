"""What a turn used and cost: per model call, per attempt, in all, and what was saved by keeping what was done.

Computed from the turn's events, as every view is. Nothing that was paid is left out: a failed call, an answer
that was set aside, a summary, the rounds that a person started over. They are in the sums and counted once more
as `superseded`. A call whose process died before it could say what it used is listed as `interrupted`, with
nothing in it. Costs are those that were journaled, at the prices the agents file named then; a price is never
guessed, so `unpriced` says how many calls that used something are in no sum of money.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from turnkeeper.conversation import events as ev
from turnkeeper.conversation.turns import Usage

FINISHED, FAILED, SUPERSEDED, INTERRUPTED, RUNNING = (
    "finished",
    "failed",
    "superseded",
    "interrupted",
    "running",
)
STARTED_OVER = "started_over"
"""Code of the notice that a person left the earlier rounds of a turn aside."""
KEEPS = ("retried", "rescued")
"""Why a turn starts again with what it had."""


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and money. Cached and written tokens are part of the input, reasoning of the output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    """In the currency of the agent's prices; null where nothing of it has a price."""
    calls: int = 0
    """Model calls in it."""
    unpriced: int = 0
    """Those of them that used something and have no price."""


class CallSpent(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. `end`: finished | failed | superseded | interrupted | running."""

    kind: str
    """round | summary (of a compaction)."""
    round: int
    attempt: int
    end: str
    provider: str = ""
    model: str = ""
    failure: str | None = None
    """The kind of its failure."""
    seconds: float | None = None
    used: Used


class AttemptSpent(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one attempt."""

    attempt: int
    used: Used


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What going on from kept rounds did not buy again. `why`: auto_resumed | retried | rescued."""

    why: str
    attempt: int
    rounds: int
    results: int
    """Tool calls that did not run again."""
    used: Used
    """What those rounds had used."""


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """A turn's bill."""

    turn_id: str
    conversation_id: str
    total: Used
    superseded: Used
    """The share of `total` that came to nothing: failed, set aside, started over."""
    calls: list[CallSpent]
    attempts: list[AttemptSpent]
    saved: list[Saved]
    currency: str | None = None
    """Of the agent's prices as they are now."""


def read_spending(
    events: Iterable[ev.Event], *, turn_id: str, conversation_id: str, currency: str | None = None
) -> Spending:
    """The bill that the events of one turn add up to."""
    bill = _Bill()
    for event in events:
        bill.see(event)
    calls = bill.calls
    lost = [call for call in calls if call.end in (FAILED, SUPERSEDED)]
    return Spending(
        turn_id=turn_id,
        conversation_id=conversation_id,
        total=add(call.used for call in calls),
        superseded=add(call.used for call in lost),
        calls=calls,
        attempts=[
            AttemptSpent(attempt=attempt, used=add(call.used for call in calls if call.attempt == attempt))
            for attempt in sorted({call.attempt for call in calls})
        ],
        saved=bill.saved,
        currency=currency,
    )


def add(many: Iterable[Used]) -> Used:
    """The sum."""
    rows = list(many)
    costs = [row.cost for row in rows if row.cost is not None]
    return Used(
        input_tokens=sum(row.input_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        cached_tokens=sum(row.cached_tokens for row in rows),
        cache_write_tokens=sum(row.cache_write_tokens for row in rows),
        reasoning_tokens=sum(row.reasoning_tokens for row in rows),
        cost=round(math.fsum(costs), 9) if costs else None,
        calls=sum(row.calls for row in rows),
        unpriced=sum(row.unpriced for row in rows),
    )


def _used(usage: Usage | None, cost: float | None) -> Used:
    known = usage or Usage()
    return Used(
        input_tokens=known.input_tokens,
        output_tokens=known.output_tokens,
        cached_tokens=known.cached_tokens,
        cache_write_tokens=known.cache_write_tokens,
        reasoning_tokens=known.reasoning_tokens,
        cost=cost,
        calls=1,
        unpriced=1 if cost is None and usage is not None else 0,
    )


class _Bill:
    """Reads a turn's events in order."""

    def __init__(self) -> None:
        self.calls: list[CallSpent] = []
        self.saved: list[Saved] = []
        self._open: int | None = None
        """Index of the call that is under way."""
        self._ran: set[str] = set()
        """Tool calls that ran and whose outcome is known."""

    def see(self, event: ev.Event) -> None:
        """The next event of the turn."""
        body = event.body
        if isinstance(body, ev.RoundStarted):
            self._interrupt()
            self._open = len(self.calls)
            self.calls.append(
                CallSpent(
                    kind="round",
                    round=body.round,
                    attempt=event.attempt,
                    end=RUNNING,
                    provider=body.provider,
                    model=body.model,
                    used=_used(None, None),
                )
            )
        elif isinstance(body, ev.RoundFinished):
            self._end(event.attempt, body.round, FINISHED, _used(body.usage, body.cost), seconds=body.seconds)
        elif isinstance(body, ev.RoundFailed):
            end = SUPERSEDED if body.failure.kind == "leaked" else FAILED
            used = _used(body.usage, body.cost)
            self._end(event.attempt, body.round, end, used, failure=body.failure.kind)
        elif isinstance(body, ev.HistoryCompacted):
            self.calls.append(
                CallSpent(
                    kind="summary",
                    round=self.calls[-1].round if self.calls else 0,
                    attempt=event.attempt,
                    end=FINISHED,
                    model=body.model,
                    used=_used(body.usage, body.cost),
                )
            )
        elif isinstance(body, ev.ToolReturned):
            if body.disposition in ("done", "failed"):
                self._ran.add(body.call_id)
        elif isinstance(body, ev.AutoResumed):
            self._keep("auto_resumed", event.attempt)
        elif isinstance(body, ev.TurnStarted) and body.why in KEEPS:
            self._interrupt()
            self._keep(body.why, event.attempt)
        elif isinstance(body, ev.Noticed) and body.code == STARTED_OVER:
            self._start_over(event.attempt)
        elif isinstance(body, ev.TurnSettled | ev.TurnFailed | ev.TurnCancelled | ev.TurnParked):
            self._interrupt()

    def _end(
        self,
        attempt: int,
        number: int,
        end: str,
        used: Used,
        *,
        seconds: float | None = None,
        failure: str | None = None,
    ) -> None:
        at, self._open = self._open, None
        if at is None:  # a call whose start is not in the journal is paid for all the same
            at = len(self.calls)
            self.calls.append(CallSpent(kind="round", round=number, attempt=attempt, end=end, used=used))
        ended = msgspec.structs.replace(self.calls[at], end=end, used=used, seconds=seconds, failure=failure)
        self.calls[at] = ended

    def _interrupt(self) -> None:
        at, self._open = self._open, None
        if at is not None:
            self.calls[at] = msgspec.structs.replace(self.calls[at], end=INTERRUPTED)

    def _keep(self, why: str, attempt: int) -> None:
        kept = [call for call in self.calls if call.kind == "round" and call.end == FINISHED]
        if kept:
            self.saved.append(
                Saved(
                    why=why,
                    attempt=attempt,
                    rounds=len(kept),
                    results=len(self._ran),
                    used=add(call.used for call in kept),
                )
            )

    def _start_over(self, attempt: int) -> None:
        self._ran.clear()
        self.calls = [
            msgspec.structs.replace(call, end=SUPERSEDED)
            if call.kind == "round" and call.end == FINISHED
            else call
            for call in self.calls
        ]
        if self.saved and self.saved[-1].why == "retried" and self.saved[-1].attempt == attempt:
            self.saved.pop()
