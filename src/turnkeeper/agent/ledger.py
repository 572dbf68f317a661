"""May this call run? The effect ledger's rule (seed 003; provider-wire-rules section 2).

Within a turn and its retries an identical call (same tool, same arguments in whatever order of keys) is not
run again: it gets an error result that names the earlier one. A read-only call may repeat once something
with an effect has run since. A different call runs. The refusal ends with the turn: this module sees one
turn only.
"""

from __future__ import annotations

from turnkeeper.agent.so_far import Call, TurnSoFar
from turnkeeper.conversation.turns import Disposition, Effect

UNKNOWN_TOOL = "unknown_tool"
BAD_ARGUMENTS = "bad_arguments"
DENIED = "denied"
FOR_ITS_OWN_SAKE = frozenset({UNKNOWN_TOOL, BAD_ARGUMENTS, DENIED})
"""`why` of refusals that an identical call would meet again."""
TOO_MANY = "too_many"
CLOSING = "closing"
EXPIRED = "expired"
CHANGED = "changed"
"""`why` of a call whose tool is another one than the one that was approved."""


def find_earlier(so_far: TurnSoFar, candidate: Call, effect: Effect) -> Call | None:
    """The identical earlier call because of which `candidate` must not run; None if it may.

    A call that was refused for its own sake (no such tool, unreadable arguments, denied) counts too: it
    would be refused for the same reason, and a model that repeats it must not go on for ever. So does one
    that waits for a person: two identical questions would be two executions.
    """
    for earlier in reversed(list(so_far.calls.values())):
        if earlier.order >= candidate.order or earlier.signature != candidate.signature or earlier.set_aside:
            continue
        if earlier.ran:
            may_repeat = effect is Effect.READ_ONLY and so_far.mutations > earlier.mutations_before
            return None if may_repeat else earlier
        if earlier.disposition is Disposition.REFUSED and earlier.why in FOR_ITS_OWN_SAKE:
            return earlier
        if earlier.open and (earlier.approval_id is not None or earlier.connect is not None):
            return earlier
    return None
