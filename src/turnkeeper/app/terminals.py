"""Terminals of retained CLIs, for those who may see or steer them.

Everybody with the right to read a conversation may look at its terminal. Typing into it (take-over) has a scope of its
own, belongs to one person at a time, is journaled, and holds the queue's deliveries for as long as it lasts.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnkeeper.app.reconciling import Reconciliation, reconcile_conversation
from turnkeeper.conversation.events import Draft, Noticed
from turnkeeper.conversation.rights import ANYWHERE, Right, authorise
from turnkeeper.conversation.turns import Conversation, Principal, TurnState
from turnkeeper.dispatch import Dispatcher
from turnkeeper.errors import ApprovalDecided, BadInput, NotFound
from turnkeeper.lane import inputs
from turnkeeper.port.clock import Clock, Ids
from turnkeeper.port.store import Store
from turnkeeper.retained.runner import RetainedRunner, menu_approval
from turnkeeper.terminal.pane import Frame
from turnkeeper.transcript.limits import put_settings_in_force
from turnkeeper.transcript.place import Roots

if TYPE_CHECKING:
    from turnkeeper.app.keeper import Keeper

KEYS_BYTES_MAX = 65_536
"""Most bytes that are typed in one request."""

SOCKET_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class DispatchDesk:
    """What happens to a conversation outside any running turn, journaled through the dispatcher."""

    def __init__(self, dispatcher: Dispatcher, store: Store, clock: Clock, ids: Ids) -> None:
        self._dispatcher = dispatcher
        self._store = store
        self._clock = clock
        self._ids = ids

    async def append(self, conversation_id: str, *drafts: Draft) -> object:
        """Journal something that no lane cares for."""
        if not drafts:
            return ()
        return await self._dispatcher.append(conversation_id, *drafts)

    async def late_answer(self, conversation_id: str, turn_id: str, text: str, state: str) -> None:
        """Keep an answer that came after its turn had ended."""
        told = inputs.LateAnswer(turn_id=turn_id, text=text, state=state, actor="runner")
        await self._dispatcher.tell(conversation_id, told)

    async def reconcile(
        self, conversation_id: str, where: Roots, rows: Callable[[Sequence[str]], None]
    ) -> str | None:
        """Merge the CLI's whole record into history. Raises NotPossible while a turn runs."""
        merged = await reconcile_conversation(
            self._dispatcher,
            self._store,
            conversation_id,
            session=None,
            where=where,
            clock=self._clock,
            ids=self._ids,
            actor="runner",
            rows=rows,
        )
        return merged.why


class Terminals:
    """The terminals of one Keeper's conversations."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        put_settings_in_force(keeper.settings)

    async def _of(
        self, principal: Principal, right: Right, conversation_id: str
    ) -> tuple[RetainedRunner, Conversation]:
        conversation = await self._keeper.store.conversation(conversation_id)
        authorise(principal, right, conversation)
        assert conversation is not None
        runner = self._keeper.runner_of(conversation.agent)
        if not isinstance(runner, RetainedRunner):
            raise NotFound(what="terminal")
        return runner, conversation

    async def state(self, principal: Principal, conversation_id: str) -> dict[str, Any]:
        """What the conversation's CLI does now: the same reading that deliveries go by."""
        runner, _ = await self._of(principal, Right.READ, conversation_id)
        return await runner.state(conversation_id)

    async def screen(self, principal: Principal, conversation_id: str) -> str:
        """The screen as text."""
        runner, _ = await self._of(principal, Right.READ, conversation_id)
        return await runner.snapshot(conversation_id)

    async def view(self, principal: Principal, conversation_id: str) -> AsyncIterator[Frame]:
        """The screen, live."""
        runner, _ = await self._of(principal, Right.READ, conversation_id)
        return runner.view(conversation_id)

    async def take_over(
        self, principal: Principal, conversation_id: str, *, force: bool = False
    ) -> dict[str, Any]:
        """Give this person the keyboard. The queue's deliveries wait until it is given back."""
        runner, _ = await self._of(principal, Right.TERMINAL, conversation_id)
        await runner.take_over(conversation_id, principal.user_id, force=force)
        await self._note(principal, conversation_id, "terminal_taken", "has taken the terminal over")
        return await runner.state(conversation_id)

    async def give_back(self, principal: Principal, conversation_id: str) -> dict[str, Any]:
        """Give the keyboard back to the queue."""
        runner, _ = await self._of(principal, Right.TERMINAL, conversation_id)
        await runner.take_over(conversation_id, None)
        await self._note(principal, conversation_id, "terminal_given_back", "has given the terminal back")
        return await runner.state(conversation_id)

    async def type(self, principal: Principal, conversation_id: str, data: str) -> int:
        """Type bytes (base64), for who has taken the terminal over; how many. Raises Conflict for others, BadInput."""
        runner, _ = await self._of(principal, Right.TERMINAL, conversation_id)
        try:
            typed = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise BadInput(why="data is not base64") from None
        if not 0 < len(typed) <= KEYS_BYTES_MAX:
            raise BadInput(why=f"data holds {len(typed)} bytes; it may hold 1 to {KEYS_BYTES_MAX}")
        await runner.type_bytes(conversation_id, typed, principal.user_id)
        return len(typed)

    async def interrupt(self, principal: Principal, conversation_id: str) -> dict[str, Any]:
        """Stop what the CLI does now by its own key; nothing is pressed at an idle one."""
        runner, _ = await self._of(principal, Right.WRITE, conversation_id)
        interrupted = await runner.interrupt(conversation_id)
        return {**await runner.state(conversation_id), "interrupted": interrupted}

    async def restart(self, principal: Principal, conversation_id: str) -> dict[str, Any]:
        """End the CLI; the next turn resumes its session in a new process."""
        runner, _ = await self._of(principal, Right.WRITE, conversation_id)
        await runner.restart(conversation_id)
        await self._note(principal, conversation_id, "terminal_restarted", "has ended the CLI")
        return await runner.state(conversation_id)

    async def adopt(
        self,
        principal: Principal,
        conversation_id: str,
        *,
        pane: str | None,
        socket_name: str | None,
        session_id: str | None,
    ) -> dict[str, Any]:
        """Go on with a CLI that was started by hand: in a pane of this user's tmux, or by its native session."""
        runner, _ = await self._of(principal, Right.TERMINAL, conversation_id)
        if pane is None and session_id is None:
            raise BadInput(why="give pane or session_id")
        name = socket_name or "default"
        if not SOCKET_NAME.fullmatch(name):
            raise BadInput(why=f"{name!r} is no name of a tmux socket")
        folder = Path(os.environ.get("TMUX_TMPDIR", tempfile.gettempdir())) / f"tmux-{os.getuid()}"
        return await runner.adopt(
            conversation_id, socket=str(folder / name), pane=pane, session_id=session_id
        )

    async def sessions(self, principal: Principal) -> list[dict[str, Any]]:
        """All CLIs of this person's conversations that are known to this server."""
        authorise(principal, Right.READ, ANYWHERE)
        found: list[dict[str, Any]] = []
        for runner in self._runners():
            for state in await runner.sessions():
                conversation = await self._keeper.store.conversation(state["conversation_id"])
                if conversation is not None and conversation.owner == principal.user_id:
                    found.append(state)
        return found

    async def attach_command(self, principal: Principal, conversation_id: str) -> list[str]:
        """The command with which a person on this machine opens the same terminal."""
        runner, _ = await self._of(principal, Right.TERMINAL, conversation_id)
        return list(await runner.attach_command(conversation_id))

    async def menus(self, principal: Principal) -> list[dict[str, Any]]:
        """Menus of idle CLIs that wait for a decision of this person's. One that a parked turn asks about is its question."""
        found: list[dict[str, Any]] = []
        asking = [asked for runner in self._runners() for asked in runner.menus()]
        held: set[str] = set()
        if asking:
            for turn in await self._keeper.store.turns_in([TurnState.PARKED]):
                for one in (turn.needs or {}).get("approvals", ()):
                    mark = one["arguments"].get("menu") if isinstance(one.get("arguments"), dict) else None
                    if isinstance(mark, str):
                        held.add(menu_approval(turn.conversation_id, mark))
        for asked in asking:
            conversation = await self._keeper.store.conversation(asked["conversation_id"])
            if asked["approval_id"] in held or conversation is None or conversation.deleted_at is not None:
                continue
            if (asked["who"] or conversation.owner) == principal.user_id:
                at = {"turn_id": None, "title": conversation.title, "agent": conversation.agent}
                found.append({"kind": "approval", **asked, **at})
        return found

    async def decide_menu(self, principal: Principal, approval_id: str, decision: str) -> dict[str, Any]:
        """Type a decision into an idle CLI's menu. Raises NotFound, Forbidden, ApprovalDecided (it is gone)."""
        asked = next((one for one in await self.menus(principal) if one["approval_id"] == approval_id), None)
        if asked is None:
            raise NotFound(what="approval")
        authorise(principal, Right.APPROVE, ANYWHERE)
        conversation_id = asked["conversation_id"]
        runner = await self._retained(conversation_id)
        if runner is None or not await runner.decide_menu(conversation_id, approval_id, decision):
            raise ApprovalDecided(state="withdrawn")
        await self._note(principal, conversation_id, "menu_decided", f"answered the CLI's menu: {decision}")
        made = {"approval_id": approval_id, "decision": decision, "by": principal.user_id}
        return {**made, "turn_id": None, "state": decision}

    async def restore(self) -> None:
        """Look after the CLIs that earlier servers left: what they wrote meanwhile is read, none is launched."""
        for runner in self._runners():
            await runner.restore()

    async def reconciled(
        self,
        conversation_id: str,
        merge: Callable[[Roots | None, Callable[[Sequence[str]], None] | None], Awaitable[Reconciliation]],
    ) -> Reconciliation:
        """Run a merge of this conversation's sessions, while nobody else adds rows of them to its history."""
        runner = await self._retained(conversation_id)
        if runner is None:
            return await merge(None, None)
        async with runner.merging(conversation_id) as session:
            return await merge(session.where, session.merged)

    async def end(self, conversation_id: str) -> None:
        """The conversation was deleted: end its CLI."""
        runner = await self._retained(conversation_id)
        if runner is not None:
            await runner.end(conversation_id)

    async def rest(self, conversation_id: str) -> None:
        """The conversation was archived: end its CLI, unless a turn runs; a later turn resumes the session."""
        runner = await self._retained(conversation_id)
        if runner is not None:
            await runner.rest(conversation_id)

    async def _retained(self, conversation_id: str) -> RetainedRunner | None:
        conversation = await self._keeper.store.conversation(conversation_id)
        definition = None if conversation is None else self._keeper.agents.get(conversation.agent)
        if definition is None or definition.runner != "retained":
            return None
        runner = self._keeper.runner_of(definition.name)
        return runner if isinstance(runner, RetainedRunner) else None

    def _runners(self) -> list[RetainedRunner]:
        found: list[RetainedRunner] = []
        for name, definition in self._keeper.agents.items():
            if definition.runner == "retained":
                runner = self._keeper.runner_of(name)
                if isinstance(runner, RetainedRunner):
                    found.append(runner)
        return found

    async def _note(self, principal: Principal, conversation_id: str, code: str, words: str) -> None:
        notice = Noticed(code=code, text=f"{principal.user_id} {words}.", facts={"who": principal.user_id})
        await self._keeper.dispatcher.append(
            conversation_id, Draft(notice, actor=f"user:{principal.user_id}")
        )


__all__ = ["DispatchDesk", "Terminals"]
