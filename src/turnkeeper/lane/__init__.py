"""The lane: which turn of a conversation runs now.

A lane is a value. `step(lane, input, now)` answers with the next lane and the effects that must follow:
events to journal, turns to start, runners to interrupt. It knows no clock, no store and no runner; the
dispatcher tells it what happened and when, commits what it asks for in one transaction, and performs the
rest afterwards.

Read in this order: `state` (what a lane is), `inputs` (what it can be told), `effects` (what it asks for),
`table` (every phase and input that fit together; an absent row is the error), `moves` (what each row does).
The diagram in docs/lane.md is drawn from the table.

    The lane owns:        the order of the queue, who holds the lane, riders, parking, stopping, deadlines.
    The dispatcher owns:  the clock, the store, the leases, the runners, and the order commit-then-act.
"""

from __future__ import annotations

from turnkeeper.lane.state import Holder, Lane, Phase, Rules, Slot
from turnkeeper.lane.table import TABLE, step

__all__ = ["TABLE", "Holder", "Lane", "Phase", "Rules", "Slot", "step"]
