"""What to do next, as pure functions of the turn's state: with calls that a dead attempt left open, and
after a model call that failed. The numbers are DESIGN section 5, "Budgets".
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from turnkeeper.agent.so_far import CONTEXT, QUOTA, RATE_LIMIT, REFUSED_REQUEST, Call, TurnSoFar
from turnkeeper.conversation.turns import Effect, Failure


class CrashPolicy(StrEnum):
    """What an agent wants done with calls of unknown outcome after a crash."""

    RESUME = "resume"
    """Say that the outcome is unknown, and go on."""
    ASK = "ask"
    """Park the turn and ask a person."""
    FAIL = "fail"
    """End the turn."""


class Treatment(StrEnum):
    """What to do with a call that a dead attempt left open."""

    RUN = "run"
    """No intent was journaled, so it has not run."""
    RUN_AGAIN = "run_again"
    """It only reads, or the same key makes it harmless."""
    ASK_TOOL = "ask_tool"
    """Its own check says what happened."""
    CLOSE_UNKNOWN = "close_unknown"
    ASK_PERSON = "ask_person"
    FAIL = "fail"
    WAIT = "wait"
    """It waits for an approval that nobody has given yet."""


UNKNOWN_EFFECT = {
    CrashPolicy.RESUME: Treatment.CLOSE_UNKNOWN,
    CrashPolicy.ASK: Treatment.ASK_PERSON,
    CrashPolicy.FAIL: Treatment.FAIL,
}


def treat(call: Call, *, exists: bool, has_check: bool, policy: CrashPolicy) -> Treatment:
    """What to do with an open call at the start of an attempt (DESIGN 5.5).

    `exists`: the agent still has the tool; `has_check`: the tool offers did_it_happen.
    """
    if not call.intended:
        return Treatment.WAIT if call.approval_id is not None and call.decision is None else Treatment.RUN
    if exists and call.effect in (Effect.READ_ONLY, Effect.IDEMPOTENT):
        return Treatment.RUN_AGAIN
    if exists and has_check:
        return Treatment.ASK_TOOL
    return UNKNOWN_EFFECT[policy]


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """How often a turn may try again by itself."""

    auto_resumes_max: int = 1
    rate_limit_waits_max: int = 3
    rate_limit_wait_seconds: float = 300.0
    refused_resends_max: int = 1
    compactions_max: int = 2
    usage_waits_max: int = 0
    """1 where the agent's policy is to carry on when a usage limit resets."""


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """Call the model again, after `wait_until` (Unix seconds; 0: at once)."""

    why: str
    """auto_resume | rate_limit | changed_request | compact | usage_limit"""
    wait_until: float = 0.0


class GiveUp(msgspec.Struct, frozen=True):
    """The turn fails with this failure."""

    failure: Failure


def after_failure(
    so_far: TurnSoFar, budgets: Budgets, *, request_changed: bool, can_compact: bool = False
) -> Again | GiveUp:
    """What follows a failed model call; `so_far` has the failure folded in.

    `request_changed`: a request built now differs from the one that was refused. `can_compact`: there is a
    part of the conversation that a summary could stand for.
    """
    failure = so_far.last_failure
    assert failure is not None
    if failure.kind == RATE_LIMIT:
        waits = so_far.rate_limit_waits
        fits = (
            failure.retry_after_seconds is not None
            and len(waits) <= budgets.rate_limit_waits_max
            and sum(waits) <= budgets.rate_limit_wait_seconds
        )
        if fits:
            return Again(why="rate_limit", wait_until=so_far.failed_at + waits[-1])
    if failure.kind in (RATE_LIMIT, QUOTA):
        if so_far.waits_until is not None:
            return Again(why="usage_limit", wait_until=so_far.waits_until)
        seconds = failure.retry_after_seconds
        if seconds is None or so_far.usage_waits >= budgets.usage_waits_max:
            return GiveUp(failure)
        return Again(why="usage_limit", wait_until=so_far.failed_at + seconds)
    if failure.kind == CONTEXT:
        if can_compact and so_far.compactions < budgets.compactions_max:
            return Again(why="compact")
        return GiveUp(failure)
    if failure.kind == REFUSED_REQUEST:
        if request_changed and so_far.refused_requests <= budgets.refused_resends_max:
            return Again(why="changed_request")
        return GiveUp(failure)
    if failure.retryable and so_far.auto_resumes < budgets.auto_resumes_max:
        return Again(why="auto_resume")
    return GiveUp(failure)
