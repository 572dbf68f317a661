"""Why a turn waits: every wait has a named reason, a beginning and a way out (G4)."""

from __future__ import annotations

from turnkeeper.conversation.turns import Turn, TurnState
from turnkeeper.lane import Lane, Phase
from turnkeeper.projection.view import Why, iso

_PAUSES = {
    "stopped": "The queue is paused because a turn was stopped.",
    "asked": "The queue is paused because somebody asked for it.",
    "deleted": "The conversation was deleted; until that is final it can be undone.",
}


def explain(turn: Turn, lane: Lane) -> Why:
    """The reason in a stable name and a sentence, with who holds the lane, since when, and what releases it."""

    def say(reason: str, sentence: str, **facts: str | None) -> Why:
        return Why(turn_id=turn.turn_id, state=str(turn.state), reason=reason, sentence=sentence, **facts)

    if turn.state in (TurnState.SETTLED, TurnState.FAILED, TurnState.CANCELLED):
        why = turn.failure.sentence if turn.failure else turn.reason or str(turn.state)
        return say("ended", f"The turn is {turn.state}: {why}", since=iso(turn.ended_at))
    if turn.state is TurnState.PARKED:
        kind = (turn.needs or {}).get("kind", "decision")
        return say(
            "parked",
            f"The turn waits for a person: {kind}.",
            holder=str(kind),
            since=iso(turn.started_at),
            releases="The decision of a person; the lane is free meanwhile.",
        )
    holder = lane.holder
    if holder is not None and holder.turn_id == turn.turn_id:
        if lane.phase is Phase.STOPPING:
            return say(
                "stopping",
                "The turn was asked to stop.",
                since=iso(holder.since),
                releases="Its agent stops, or the grace (stop_grace_seconds) runs out.",
                deadline=iso(holder.stop_until),
            )
        held = turn.needs or {}
        if held.get("kind") == "delivery":
            return say(
                f"held_{held['reason']}",
                held["sentence"],
                since=iso(holder.since),
                releases="What stands in front of the CLI's composer goes, or the backstop ends the turn.",
                deadline=iso(held.get("retry_at") or holder.evidence_at + lane.rules.backstop_seconds),
            )
        return say(
            "running" if lane.phase is Phase.WORKING else "starting",
            "The turn runs." if lane.phase is Phase.WORKING else "The turn is being started.",
            since=iso(holder.since),
            releases="Its answer, a failure, a stop, or the backstop.",
            deadline=iso(holder.evidence_at + lane.rules.backstop_seconds),
        )
    for rider in lane.riders:
        if rider.slot.turn_id == turn.turn_id:
            return say(
                "riding",
                "The message travels with the running turn; its agent takes it at the next good point.",
                holder=None if holder is None else holder.turn_id,
                releases="The running turn takes it, or ends: then it is the next turn.",
            )
    position = lane.position(turn.turn_id)
    ahead = 0 if position is None else position - 1
    if holder is not None:
        behind = f" Before it wait {ahead} more." if ahead else ""
        return say(
            "running_turn" if ahead == 0 else "ahead_in_queue",
            f"Turn {holder.turn_id} holds the lane.{behind}",
            holder=holder.turn_id,
            since=iso(holder.since),
            releases="The end of the running turn, however it ends.",
            deadline=iso(holder.evidence_at + lane.rules.backstop_seconds),
        )
    if lane.paused is not None:
        return say(
            "paused",
            _PAUSES.get(lane.paused, f"The queue is paused ({lane.paused})."),
            holder="pause",
            releases="Resume, or send this message now.",
        )
    return say("starting", "The lane is free; the turn is about to start.", releases="The next sweep.")
