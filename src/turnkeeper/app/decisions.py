"""What waits for a person, and what a person decides: approvals of one call, sign-ins, turns that need an action.

A decision is bound to the one question that was read: if the turn went on and waits anew meanwhile, it is read
again, and a decision about a question that is no longer asked is refused with what became of it.
"""

from __future__ import annotations

from typing import Any, Final

from turnkeeper.conversation.events import ApprovalDecided as ApprovalDecidedEvent
from turnkeeper.conversation.events import ApprovalRequested, Draft
from turnkeeper.conversation.ids import turn_of_approval
from turnkeeper.conversation.rights import ANYWHERE, Right, authorise
from turnkeeper.conversation.turns import Principal, Turn, TurnState
from turnkeeper.dispatch import Dispatcher
from turnkeeper.dispatch.sign_ins import waits_for
from turnkeeper.errors import ApprovalDecided, BadInput, NotFound, NotWaiting, TurnDecided
from turnkeeper.lane import inputs
from turnkeeper.port.clock import Clock
from turnkeeper.port.store import Store
from turnkeeper.projection.view import iso

DECIDE_TRIES: Final = 8
"""How often a decision is read anew because its turn went on, and waits again, while it was given."""
GIVE_UP: Final = "give_up"
"""The choice that every parked turn offers: end it."""


def _sign_in_card(wait: dict[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    """What is shown to who must sign in somewhere."""
    names = ", ".join(call["name"] for call in wait["calls"])
    why = {
        "revoked": "does not accept your sign-in any more",
        "scope": "wants you to allow more than you did",
        "moved": "has another address now than when you signed in",
    }.get(wait["why"], "needs you to sign in")
    return {
        "kind": "auth",
        "server": wait["server"],
        "sentence": f"{wait['server']} {why}; {names} waits for that. Open /connect/{wait['server']} here to sign in.",
        "why": wait["why"],
        "calls": wait["calls"],
        "connect": f"/connect/{wait['server']}",
        "choices": ["do_not_connect"],
        **at,
        "expires_at": iso(wait["expires_at"]),
    }


def waited_for(turn: Turn) -> list[dict[str, Any]]:
    """Who must do what before a parked turn goes on: `{who, what, until}`."""
    needs: Any = turn.needs or {}
    found = [
        {
            "who": one.get("who") or turn.user_id,
            "what": f"approval of {one.get('name')}",
            "until": iso(one.get("expires_at")),
        }
        for one in needs.get("approvals", ())
    ]
    found += [
        {"who": one["person"], "what": f"sign-in at {one['server']}", "until": iso(one["expires_at"])}
        for one in waits_for(turn)
    ]
    return found or [{"who": turn.user_id, "what": str(needs.get("kind", "decision")), "until": None}]


def offered(turn: Turn, choice: str) -> str:
    """The choice, if the parked turn offers it (GIVE_UP is always offered). Raises TurnDecided, BadInput."""
    needs = turn.needs or {}
    if turn.state is not TurnState.PARKED:
        raise TurnDecided(state=str(turn.state), turn_id=turn.turn_id)
    offers: list[str] = [*(needs.get("choices") or needs.get("offers") or ()), GIVE_UP]
    if choice not in offers:
        raise BadInput(f"There is no choice {choice!r} here; there are: {', '.join(offers)}.")
    return choice


class Decisions:
    """The questions of one store's turns."""

    def __init__(self, store: Store, dispatcher: Dispatcher, clock: Clock) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._clock = clock

    async def waiting(self, principal: Principal) -> list[dict[str, Any]]:
        """What waits for a decision of the principal's: approvals and turns that need an action, oldest first."""
        found: list[dict[str, Any]] = []
        for turn in await self._store.turns_in([TurnState.PARKED]):
            needs = turn.needs or {}
            conversation = await self._store.conversation(turn.conversation_id)
            if conversation is None or conversation.deleted_at is not None:
                continue
            at = {
                "turn_id": turn.turn_id,
                "conversation_id": turn.conversation_id,
                "title": conversation.title,
                "agent": turn.agent,
            }
            found += [
                _sign_in_card(wait, {**at, "approval_id": turn.turn_id})
                for wait in waits_for(turn)
                if wait["person"] == principal.user_id
            ]
            if needs.get("kind") not in ("approval", "auth"):
                if conversation.owner == principal.user_id:
                    found.append({"approval_id": turn.turn_id, **needs, **at})
                continue
            for asked in needs.get("approvals", ()):
                if (asked.get("who") or conversation.owner) == principal.user_id:
                    expires = asked.get("expires_at")
                    found.append({"kind": "approval", **asked, **at, "expires_at": iso(expires)})
        return found

    async def decide_call(self, principal: Principal, approval_id: str, decision: str) -> dict[str, Any]:
        """Approve or deny one call, once. Raises NotFound, Forbidden, ApprovalDecided (decided or expired)."""
        for _ in range(DECIDE_TRIES):
            try:
                return await self._decide_call(principal, approval_id, decision)
            except NotWaiting:
                continue  # the turn went on with another decision while this one was read: read again
        raise ApprovalDecided(state="put off until its turn asks again")

    async def _decide_call(self, principal: Principal, approval_id: str, decision: str) -> dict[str, Any]:
        """Decide on what is asked now. Raises NotWaiting if the turn went on meanwhile."""
        turn, asked = await self._asked(approval_id)
        conversation = None if turn is None else await self._store.conversation(turn.conversation_id)
        if turn is None or conversation is None or conversation.deleted_at is not None:
            raise NotFound(what="approval")
        if principal.user_id != ((asked or {}).get("who") or conversation.owner):
            raise NotFound(what="approval")
        authorise(principal, Right.APPROVE, ANYWHERE)
        if decision not in ("approve", "deny"):
            raise BadInput(f"There is no decision {decision!r}; there are approve and deny.")
        if asked is None or turn.state is not TurnState.PARKED:
            raise ApprovalDecided(state=await self._decision_of(turn, approval_id))
        if asked["expires_at"] <= self._clock.now():
            raise ApprovalDecided(state="expired")
        by = f"user:{principal.user_id}"
        made = {"approval_id": approval_id, "decision": decision, "by": principal.user_id}
        told = inputs.Decide(turn_id=turn.turn_id, decision=made, fence=turn.fence, actor=by)
        draft = Draft(
            ApprovalDecidedEvent(approval_id=approval_id, decision=decision, by=principal.user_id),
            turn_id=turn.turn_id,
            attempt=turn.attempt,
            actor=by,
        )
        await self._dispatcher.tell(turn.conversation_id, told, extra=[draft])
        return {**made, "turn_id": turn.turn_id, "state": decision}

    async def _asked(self, approval_id: str) -> tuple[Turn | None, dict[str, Any] | None]:
        """The turn that asked, and what it asked if it still waits for that."""
        turn = await self._store.turn(turn_of_approval(approval_id))
        needs = {} if turn is None else turn.needs or {}
        waiting = [one for one in needs.get("approvals", ()) if one["approval_id"] == approval_id]
        return turn, waiting[0] if waiting else None

    async def _decision_of(self, turn: Turn, approval_id: str) -> str:
        """What became of a question that is no longer open. Raises NotFound if it was never asked."""
        expires_at: float | None = None
        for event in await self._store.events(turn.conversation_id, limit=10_000, turn_id=turn.turn_id):
            body = event.body
            if isinstance(body, ApprovalRequested) and body.approval_id == approval_id:
                expires_at = body.expires_at
            if isinstance(body, ApprovalDecidedEvent) and body.approval_id == approval_id:
                return {"approve": "approved", "deny": "denied"}.get(body.decision, body.decision)
        if expires_at is None:
            raise NotFound(what="approval")
        if turn.state not in (TurnState.QUEUED, TurnState.RUNNING):
            return "withdrawn"
        return "expired" if expires_at <= self._clock.now() else "put off until its turn asks again"

    async def choose(self, principal: Principal, turn: Turn, choice: str) -> None:
        """Tell a turn that needs an action which of the offered ways it goes on."""
        actor = f"user:{principal.user_id}"
        made = {"choice": choice, "by": principal.user_id}
        told = inputs.Decide(turn_id=turn.turn_id, decision=made, fence=turn.fence, actor=actor)
        await self._dispatcher.change(turn, told)
