"""Which parked turns go on because of a sign-in: decided on state, never on the moment it came (G4, ADR 81).

A turn waits with entries `{server, person, why, rejected, calls, expires_at}` in its needs. It goes on when its
person has a grant there that is another than those the server refused: so it does not matter whether the turn
was parked before or after the sign-in, nor whether a process died in between.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from turnkeeper.conversation.events import ConnectDecided, Draft
from turnkeeper.conversation.turns import Turn, TurnState
from turnkeeper.dispatch.dispatcher import Dispatcher
from turnkeeper.errors import NotFound, NotWaiting, TurnDecided, TurnkeeperError
from turnkeeper.lane import inputs
from turnkeeper.port.store import Store

log = logging.getLogger("turnkeeper.dispatch")

TRIES = 8
"""How often a turn that goes on and waits again while it is told is told again."""

GenerationOf = Callable[[str, str], Awaitable[str | None]]
"""Of a server and a person: which grant is good now; None if none is."""


def waits_for(turn: Turn) -> list[dict[str, Any]]:
    """The sign-ins that a parked turn waits for."""
    found: Any = (turn.needs or {}).get("connects", ())
    return list(found)


async def find_waiting(store: Store, person: str | None = None) -> AsyncIterator[tuple[Turn, dict[str, Any]]]:
    """The parked turns that wait for a sign-in (of `person`), oldest first, with what each waits for."""
    for turn in await store.turns_in([TurnState.PARKED]):
        for wait in waits_for(turn):
            if person is None or wait["person"] == person:
                yield turn, wait


async def release(dispatcher: Dispatcher, store: Store, generation_of: GenerationOf) -> int:
    """Let go on every turn whose person has signed in since its calls were refused. How many they were."""
    count = 0
    async for turn, wait in find_waiting(store):
        generation = await generation_of(wait["server"], wait["person"])
        if generation is not None and generation not in wait["rejected"]:
            count += await tell(dispatcher, store, turn, wait, "connected")
    return count


async def decide(dispatcher: Dispatcher, store: Store, server: str, person: str, outcome: str) -> int:
    """Let every turn that waits for this sign-in go on with `outcome` (connected | refused). How many they were."""
    count = 0
    async for turn, wait in find_waiting(store, person):
        if wait["server"] == server:
            count += await tell(dispatcher, store, turn, wait, outcome)
    return count


async def tell(dispatcher: Dispatcher, store: Store, turn: Turn, wait: dict[str, Any], outcome: str) -> int:
    """Have it journaled and the turn go on, in one commit; 0 if somebody was faster or it could not be stored."""
    for _ in range(TRIES):
        try:
            return await _tell(dispatcher, turn, wait, outcome)
        except (NotWaiting, TurnDecided):
            # It went on meanwhile, with something else that it waited for; if it waits for this again, it is told again.
            now = await store.turn(turn.turn_id)
            same = [one for one in waits_for(now) if _is(one, wait)] if now is not None else []
            if now is None or now.state is not TurnState.PARKED or not same:
                return 0
            turn, wait = now, same[0]
        except NotFound:
            return 0
        except TurnkeeperError as error:
            log.warning("a turn that waits will be looked at again", extra={"why": error.sentence})
            return 0
    return 0


def _is(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one["server"], one["person"]) == (other["server"], other["person"])


async def _tell(dispatcher: Dispatcher, turn: Turn, wait: dict[str, Any], outcome: str) -> int:
    by = f"user:{wait['person']}"
    decided = ConnectDecided(server=wait["server"], person=wait["person"], outcome=outcome, by=wait["person"])
    decision = {"connect": wait["server"], "person": wait["person"], "outcome": outcome}
    draft = Draft(decided, turn_id=turn.turn_id, attempt=turn.attempt, actor=by)
    told = inputs.Decide(turn_id=turn.turn_id, decision=decision, fence=turn.fence, actor=by)
    await dispatcher.tell(turn.conversation_id, told, extra=[draft])
    return 1
