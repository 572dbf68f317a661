"""Our own agent: rounds of one model call and the tools it asked for, on a journal that survives the process.

Read in this order:

- `so_far`: what the journal says of a turn, as one value; everything else decides by it.
- `ledger`: may this call run, or did it run already? The rule that no effect is repeated unknowingly.
- `plan`: what to do with what a dead attempt left open, and after a failure. Pure, table-like.
- `texts`: every sentence that a model or a person reads from this room.
- `loop`: the shell that builds feeds, calls models, runs tools and journals each step before it counts.

    The loop owns:        the truth of what it reports, and that intent is journaled before an effect.
    The dispatcher owns:  the lane, leases, fences, the receipt's order, the end of the turn.
"""

from __future__ import annotations
