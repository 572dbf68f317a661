"""The dispatcher: steps lanes, commits what they ask for, then acts.

Every change of a lane goes through `Dispatcher.tell`: under the lane's lock it steps the pure machine,
commits the events that the step asks for in one transaction, and only then lets the new lane stand and
performs the rest (offer a turn, interrupt a runner). What is not committed has not happened.
"""

from __future__ import annotations

from turnkeeper.dispatch.broadcast import Broadcast
from turnkeeper.dispatch.dispatcher import Dispatcher

__all__ = ["Broadcast", "Dispatcher"]
