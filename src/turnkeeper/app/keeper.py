"""The Keeper: everything a front end or an embedding program can ask for, in one place.

Every method takes the principal first, checks its right with the one `authorise`, and answers with the
outer shapes of projection/view.py. HTTP and the command line are thin shells over this.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from turnkeeper.agent.agents_file import load_agent_tools, load_agents, load_servers, secrets_of, servers_of
from turnkeeper.agent.definition import AgentDefinition, Model
from turnkeeper.app.access import Access
from turnkeeper.app.connections import Connections
from turnkeeper.app.decisions import GIVE_UP, Decisions, offered, waited_for
from turnkeeper.app.drafts import Drafts
from turnkeeper.app.files import FileStore
from turnkeeper.app.pushing import Pushing
from turnkeeper.app.reconciling import Reconciliation, own_roots, reconcile_conversation
from turnkeeper.app.recordings import Recordings, key_of
from turnkeeper.app.sealing import Seals
from turnkeeper.app.system import SystemClock, SystemIds
from turnkeeper.app.terminals import DispatchDesk, Terminals
from turnkeeper.app.vault import SealedValues
from turnkeeper.app.wiring import Surroundings, check_agent, make_runner, open_model
from turnkeeper.conversation import codec
from turnkeeper.conversation import ids as id_kinds
from turnkeeper.conversation.events import (
    ConversationArchived,
    ConversationCreated,
    ConversationDeleted,
    ConversationRenamed,
    Draft,
    Event,
)
from turnkeeper.conversation.masking import Masker
from turnkeeper.conversation.messages import ASSISTANT, COMPLETE, TOOL, USER, WORKING, Origin
from turnkeeper.conversation.parts import Attachment, Part, Text, plain_text
from turnkeeper.conversation.rights import ANYWHERE, OWNER_SCOPES, Right, authorise
from turnkeeper.conversation.turns import (
    END_STATES,
    Conversation,
    Mode,
    Principal,
    Request,
    Turn,
    TurnState,
)
from turnkeeper.dispatch import Broadcast, Dispatcher
from turnkeeper.dispatch.dispatcher import Limits
from turnkeeper.dispatch.why import explain
from turnkeeper.errors import (
    BadInput,
    ConfigError,
    Conflict,
    CursorInvalid,
    Forbidden,
    KeyMalformed,
    NotAnswered,
    NotFound,
    NothingToSend,
    PartInvalid,
    SettingInvalid,
    StoreBusy,
    StoreFull,
    TextTooLong,
)
from turnkeeper.history.feed import BUILT_IN, FeedOptions, build_feed, find_compaction, find_expired
from turnkeeper.lane import Rules, inputs
from turnkeeper.outbound import Bounds, Reach
from turnkeeper.port.clock import Clock, Ids
from turnkeeper.port.runner import Runner
from turnkeeper.port.store import AttachmentRow, Batch, Store, TokenRow, UserRow
from turnkeeper.projection.order import cut_page
from turnkeeper.projection.spending import Spending, read_spending
from turnkeeper.projection.timeline import Timeline, queue_rows, timeline_rows
from turnkeeper.projection.view import (
    Accepted,
    ConversationView,
    LaneView,
    MessageView,
    Snapshot,
    StreamItem,
    TurnView,
    Volatile,
    Why,
    conversation_view,
    event_view,
    iso,
    message_view,
    turn_view,
)
from turnkeeper.provider.dialects import dialect_named
from turnkeeper.provider.feed_report import display_parts, report_feed
from turnkeeper.provider.wire import File
from turnkeeper.retained.runner import MENU_APPROVAL
from turnkeeper.settings import Settings
from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.terminal.pane import Terminal
from turnkeeper.terminal.tmux import Tmux
from turnkeeper.tool.contract import SourceTrouble, Tool
from turnkeeper.tool.mcp import McpServer, McpServers
from turnkeeper.transcript.place import Roots

OWNER = "owner"
"""The default user, who is also the page's user."""

PROBE_BYTES = 64 * 1024
"""What the store must take, after it has refused a submission, before it counts as healthy again."""
EVENTS_PAGE = 1000
"""Events that are read at once where all of a turn's are wanted."""

OPERATOR = Principal(user_id=OWNER, scopes=OWNER_SCOPES, kind="operator")
"""Who an embedding program is, unless it says otherwise."""


def _secrets_of_servers(servers: Mapping[str, McpServer]) -> dict[str, str]:
    """The variables with secrets that MCP servers name, with their values."""
    named = {
        name for s in servers.values() for name in (s.bearer_env, s.client_secret_env) if name is not None
    }
    return {name: os.environ[name] for name in named if os.environ.get(name)}


def _keys_of(agents: Mapping[str, AgentDefinition], servers: Mapping[str, McpServer]) -> list[str]:
    """The configured keys themselves, for the masker only."""
    keys: list[str] = list(_secrets_of_servers(servers).values())
    for variable, file in secrets_of(agents):
        if variable is not None and os.environ.get(variable):
            keys.append(os.environ[variable])
        if file is not None:
            with contextlib.suppress(OSError):
                keys.append(Path(file).read_text(encoding="utf-8").strip())
    return keys


class Keeper:
    """A store, its lanes and its agents, ready for use. Make one with `Keeper.open`."""

    def __init__(
        self,
        store: Store,
        agents: Mapping[str, AgentDefinition],
        settings: Settings,
        *,
        data: Path | None,
        agents_path: Path | None = None,
        clock: Clock,
        ids: Ids,
        runners: Mapping[str, Runner] | None = None,
        terminal: Terminal | None = None,
    ) -> None:
        self.store = store
        self.agents = agents
        self.settings = settings
        self.data = data
        self.agents_path = agents_path
        self.clock = clock
        self.ids = ids
        self.ready = False
        self._refused = False
        """Whether the store has refused a submission since it was last seen to take one."""
        self._runners: dict[str, Runner] = dict(runners or {})
        self._access = Access(store, clock, ids, settings.token_check_seconds)
        servers = load_servers(agents_path)
        transcriber_key = key_of(settings)
        keys = [*_keys_of(agents, servers), *filter(None, [transcriber_key])]
        masker = Masker(settings.mask_patterns, keys) if settings.masking else None
        self.broadcast = Broadcast(
            store, buffer_items=settings.stream_buffer_items, resync_events=settings.resync_events
        )
        self.dispatcher = Dispatcher(
            store,
            self.runner_of,
            clock=clock,
            ids=ids,
            rules=Rules(
                queue_cap=settings.queue_cap,
                evidence_gate_seconds=settings.evidence_gate_seconds,
                backstop_seconds=settings.backstop_seconds,
                max_turn_seconds=settings.max_turn_seconds,
                stop_grace_seconds=settings.stop_grace_seconds,
                rescues_max=settings.rescues_max,
            ),
            limits=Limits(
                lease_seconds=settings.lease_seconds,
                lease_renew_seconds=settings.lease_renew_seconds,
                sweep_seconds=settings.sweep_seconds,
                shutdown_grace_seconds=settings.shutdown_grace_seconds,
                undo_seconds=settings.undo_seconds,
                idle_lanes_max=settings.idle_lanes_max,
            ),
            owner=f"{os.getpid()}-{secrets.token_hex(4)}",
            broadcast=self.broadcast,
            still_allowed=self._access.still_allowed,
            masker=masker,
            seals=None if masker is None else Seals(store, data),
            keep_file=self._keep_file,
        )
        self._decisions = Decisions(store, self.dispatcher, clock)
        self._around = Surroundings(
            keepsakes=store,
            terminal=terminal or Tmux((data or Path()).resolve() / "tmux"),
            desk=DispatchDesk(self.dispatcher, store, clock, ids),
            ids=ids,
            folder=(data or Path()).resolve() / "retained",
        )
        self.vault = SealedValues(store, data)
        self.connections = Connections(
            McpServers(
                servers,
                self.vault,
                clock,
                reach=Reach(settings.private_addresses_allowed),
                bounds=Bounds(
                    silence_seconds=settings.outbound_seconds, body_bytes_max=settings.outbound_bytes_max
                ),
                secrets=_secrets_of_servers(servers),
            ),
            self.dispatcher,
            store,
            clock,
            settings.sweep_seconds,
        )
        self.terminals = Terminals(self)
        self.drafts = Drafts(self, masker)
        self.pushing = Pushing(self)
        files = (data or Path()) / "attachments"
        self._files = FileStore(files, settings.attachment_bytes_max)
        self.recordings = Recordings(store, self._files, settings, masker, key=transcriber_key)

    # ------------------------------------------------------------------ opening and closing

    @classmethod
    async def open(
        cls,
        path: str | Path | None = None,
        *,
        database: str | None = None,
        agents: str | Path | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        store: Store | None = None,
        runners: Mapping[str, Runner] | None = None,
        terminal: Terminal | None = None,
    ) -> Self:
        """Open the store in folder `path`, rescue what was running, and take submissions.

        `agents` is an agents file; without one there is the agent `demo`. `store` takes a
        store that is open already; `runners` adds runners of your own by agent name; `terminal` is where
        CLIs are kept instead of tmux.
        Errors: StoreError and its kinds, AgentsFileInvalid, SettingInvalid.
        """
        settings = settings or Settings.load()
        if database is not None:
            raise SettingInvalid(name="database", why="PostgreSQL is not supported by this version yet")
        agents_path = None if agents is None else Path(agents)
        known = load_agents(agents_path)
        for definition in known.values():
            check_agent(definition, agents_path)
        data = None if path is None else Path(path)
        if store is None:
            if data is None:
                raise SettingInvalid(name="data", why="a folder for the store is needed")
            store = await SQLiteStore.open(
                data,
                busy_timeout_seconds=settings.busy_timeout_seconds,
            )
        keeper = cls(
            store,
            known,
            settings,
            data=data,
            agents_path=agents_path,
            clock=clock or SystemClock(),
            ids=ids or SystemIds(),
            runners=runners,
            terminal=terminal,
        )
        try:
            if await store.user(OWNER) is None:
                await store.put_user(UserRow(user_id=OWNER, name=OWNER, created_at=keeper.clock.now()))
            await keeper.dispatcher.start()
            await keeper.connections.start()
            await keeper.terminals.restore()
            await keeper.pushing.start()
        except BaseException:
            await store.close()
            raise
        keeper.ready = True
        return keeper

    async def close(self, grace_seconds: float | None = None) -> None:
        """Stop as planned: hand leases back, let go of the store. Costs no turn any of its budget."""
        self.ready = False
        await self.recordings.close()
        await self.pushing.close()
        await self.dispatcher.close(grace_seconds)
        for runner in self._runners.values():
            await runner.close()
        await self.connections.close()
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def epoch(self) -> str:
        """Changes when the store is restored or moved."""
        return self.store.epoch

    def runner_of(self, agent: str) -> Runner:
        """The runner of an agent, made when it is first needed. Raises ConfigError."""
        runner = self._runners.get(agent)
        if runner is None:
            definition = self.agents.get(agent)
            if definition is None:
                raise ConfigError(why=f"the agents file has no agent {agent!r} any more")
            runner = make_runner(
                definition,
                self.agents_path,
                self.settings,
                self.clock,
                self._read_file,
                self._around,
                self.connections.servers,
            )
            self._runners[agent] = runner
        return runner

    # ------------------------------------------------------------------ sign-in

    async def authenticate(self, secret: str) -> Principal:
        """Whose bearer token this is. Raises Unauthorized."""
        return await self._access.authenticate(secret)

    async def principal_of_token(self, token_id: str) -> Principal | None:
        """Whose token this is, if it still stands."""
        return await self._access.principal_of_token(token_id)

    async def create_token(
        self,
        user: str = OWNER,
        scopes: Sequence[str] = OWNER_SCOPES,
        *,
        label: str = "",
        expires_seconds: float | None = None,
    ) -> tuple[str, TokenRow]:
        """A new bearer token for `user` (made if new); returns the secret, which is not kept, and its row."""
        return await self._access.create_token(user, scopes, label=label, expires_seconds=expires_seconds)

    async def revoke_token(self, token_id: str) -> None:
        """From now on the token opens nothing; its streams end. Raises NotFound."""
        await self._access.revoke_token(token_id)

    # ------------------------------------------------------------------ conversations

    async def _in(
        self, principal: Principal, right: Right, conversation_id: str, *, deleted_too: bool = False
    ) -> Conversation:
        conversation = await self.store.conversation(conversation_id)
        authorise(principal, right, conversation, deleted_too=deleted_too)
        assert conversation is not None
        return conversation

    async def _turn_in(self, principal: Principal, right: Right, turn_id: str) -> Turn:
        turn = await self.store.turn(turn_id)
        conversation = None if turn is None else await self.store.conversation(turn.conversation_id)
        try:
            authorise(principal, right, conversation)
        except NotFound:
            raise NotFound(what="turn") from None
        assert turn is not None
        return turn

    async def known_agents(self, principal: Principal) -> list[dict[str, Any]]:
        """The agents that a conversation can be made with: `{name, runner, provider, model}`."""
        authorise(principal, Right.READ, ANYWHERE)
        known = [
            {"name": a.name, "runner": a.runner, "provider": a.model.provider, "model": a.model.model}
            for a in self.agents.values()
        ]
        more = sorted(set(self._runners) - set(self.agents))
        return known + [{"name": name, "runner": "own", "provider": "", "model": ""} for name in more]

    async def create_conversation(
        self, principal: Principal, agent: str, title: str = ""
    ) -> ConversationView:
        """A new conversation of the principal's with `agent`. Raises BadInput for an unknown agent."""
        authorise(principal, Right.WRITE, ANYWHERE)
        if agent not in self.agents and agent not in self._runners:
            names = ", ".join(sorted({*self.agents, *self._runners}))
            raise BadInput(f"There is no agent {agent!r}; there are: {names}.")
        self._check_title(title)
        now = self.clock.now()
        conversation = Conversation(
            conversation_id=self.ids.make(id_kinds.CONVERSATION),
            owner=principal.user_id,
            agent=agent,
            title=title,
            created_at=now,
            active_at=now,
        )
        created = ConversationCreated(owner=principal.user_id, agent=agent, title=title)
        (event,) = await self.store.commit(
            Batch(
                conversation_id=conversation.conversation_id,
                drafts=(Draft(created, actor=f"user:{principal.user_id}"),),
                at=now,
            )
        )
        conversation = replace(conversation, last_seq=event.seq)
        self.dispatcher.lanes.adopt(conversation)
        return conversation_view(conversation)

    def _check_title(self, title: str) -> None:
        if len(title) > self.settings.title_chars_max:
            raise BadInput(
                f"The title has {len(title)} characters; the limit (title_chars_max) is "
                f"{self.settings.title_chars_max}."
            )

    async def conversations(
        self, principal: Principal, *, before: str | None = None, limit: int = 50, archived: bool = False
    ) -> tuple[list[ConversationView], str | None]:
        """The principal's conversations, newest activity first, and the cursor of the next page."""
        authorise(principal, Right.READ, ANYWHERE)
        limit = min(limit, self.settings.page_rows_max)
        cursor: int | None = None
        if before is not None:
            try:
                cursor = int(before)
            except ValueError:
                raise CursorInvalid(cursor=before) from None
        rows = await self.store.conversations(
            principal.user_id, before=cursor, limit=limit + 1, archived=archived
        )
        more = str(rows[limit - 1].activity) if len(rows) > limit else None
        return [conversation_view(row, await self._state_of(row)) for row in rows[:limit]], more

    async def _state_of(self, conversation: Conversation) -> str:
        rows = await self.store.lane(conversation.conversation_id)
        turns = () if rows is None else rows.turns
        states = {turn.state for turn in turns}
        if TurnState.RUNNING in states:
            return "running"
        if TurnState.PARKED in states:
            return "waiting"
        if TurnState.QUEUED in states:
            return "paused" if conversation.paused is not None else "queued"
        newest = await self.store.turns(conversation.conversation_id, limit=1)
        return "failed" if newest and newest[0].state is TurnState.FAILED else "idle"

    async def conversation(self, principal: Principal, conversation_id: str) -> Snapshot:
        """The snapshot: lane, queue, the running turn with its whole partial text, as of one seq."""
        conversation = await self._in(principal, Right.READ, conversation_id)
        rows = await self.store.lane(conversation_id)
        assert rows is not None
        actor = await self.dispatcher.lanes.actor(conversation_id)
        lane = actor.lane
        by_id = {turn.turn_id: turn for turn in rows.turns}
        queue: list[TurnView] = []
        running: dict[str, Any] | None = None
        parked: list[TurnView] = []
        for turn in rows.turns:
            submission = await self.store.submission(turn.submission_id)
            view = turn_view(turn, position=lane.position(turn.turn_id), submission=submission)
            if turn.state is TurnState.PARKED:
                parked.append(view)
            elif turn.state is TurnState.RUNNING and turn.parent is None:
                live = actor.running
                mine = live is not None and live.fence.turn_id == turn.turn_id
                running = {
                    "turn": view,
                    "text": "".join(live.partial_text) if mine and live else "",
                    "thinking": "".join(live.partial_thinking) if mine and live else "",
                    "round": live.partial_round if mine and live else 0,
                }
            elif turn.state is TurnState.QUEUED:
                queue.append(view)
        order = {slot.turn_id: index for index, slot in enumerate(lane.queue)}
        queue.sort(key=lambda view: order.get(view.turn_id, len(order) + by_id[view.turn_id].place))
        return Snapshot(
            conversation_id=conversation_id,
            title=rows.conversation.title,
            agent=conversation.agent,
            archived=conversation.archived,
            created_at=iso(conversation.created_at),
            as_of_seq=rows.conversation.last_seq,
            epoch=self.epoch,
            lane=LaneView(phase=str(lane.phase), paused=lane.paused, queue_depth=len(lane.queue)),
            queue=queue,
            running=running,
            parked=parked,
        )

    async def change_conversation(
        self,
        principal: Principal,
        conversation_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
    ) -> ConversationView:
        """Rename it, archive it, or take it out of the archive."""
        await self._in(principal, Right.WRITE, conversation_id)
        actor = f"user:{principal.user_id}"
        drafts: list[Draft] = []
        if title is not None:
            self._check_title(title)
            drafts.append(Draft(ConversationRenamed(title), actor=actor))
        if archived is not None:
            drafts.append(Draft(ConversationArchived(archived), actor=actor))
        if drafts:
            await self.dispatcher.append(conversation_id, *drafts)
        if archived:
            await self.terminals.rest(conversation_id)
        conversation = await self._in(principal, Right.WRITE, conversation_id)
        return conversation_view(conversation, await self._state_of(conversation))

    async def delete_conversation(self, principal: Principal, conversation_id: str) -> dict[str, Any]:
        """Delete it: its run stops, nothing of it starts; for a while this can be undone."""
        await self._in(principal, Right.WRITE, conversation_id)
        seconds = self.settings.undo_seconds
        draft = Draft(ConversationDeleted(seconds), actor=f"user:{principal.user_id}")
        await self.dispatcher.close_conversation(conversation_id, draft)
        self.broadcast.end(conversation_id)
        await self.terminals.end(conversation_id)
        return {"conversation_id": conversation_id, "undo_seconds": seconds}

    async def restore_conversation(self, principal: Principal, conversation_id: str) -> ConversationView:
        """Undo the deletion, while that is possible."""
        conversation = await self._in(principal, Right.WRITE, conversation_id, deleted_too=True)
        if conversation.deleted_at is None:
            return conversation_view(conversation, await self._state_of(conversation))
        if conversation.deleted_at + self.settings.undo_seconds <= self.clock.now():
            raise NotFound(what="conversation")
        await self.dispatcher.reopen_conversation(conversation_id, f"user:{principal.user_id}")
        conversation = await self._in(principal, Right.WRITE, conversation_id)
        return conversation_view(conversation, await self._state_of(conversation))

    async def messages(
        self, principal: Principal, conversation_id: str, *, before: int | None = None, limit: int = 50
    ) -> tuple[list[MessageView], int | None]:
        """A page of history: the newest messages before `before`, in order, and the cursor of the older page."""
        await self._in(principal, Right.READ, conversation_id)
        limit = min(limit, self.settings.page_rows_max)
        rows = await self.store.messages(conversation_id, before=before, limit=limit + 1)
        page, more = cut_page(rows, limit)
        return [message_view(row) for row in page], more

    async def timeline(
        self, principal: Principal, conversation_id: str, *, before: int | None = None, limit: int = 60
    ) -> Timeline:
        """The ordered rows that a page draws, newest page first; it begins with a whole turn."""
        conversation = await self._in(principal, Right.READ, conversation_id)
        # The queue is read before history: a turn that starts in between is then in both, never in neither.
        queue = (await self.conversation(principal, conversation_id)).queue if before is None else []
        limit = min(limit, self.settings.page_rows_max)
        rows = await self.store.messages(conversation_id, before=before, limit=limit + 1)
        page, more = cut_page(rows, limit)
        while more and page[0].role != USER and len(page) < limit + self.settings.page_rows_max:
            rows = await self.store.messages(conversation_id, before=more, limit=limit + 1)
            older, more = cut_page(rows, limit)
            cut = max((i for i, one in enumerate(older) if one.role == USER and one.after is None), default=0)
            page, more = [*older[cut:], *page], older[cut].seq if cut else more
        turns = {
            turn_id: await self._view(turn_id)
            for turn_id in {m.turn_id for m in page if m.role == USER}
            if turn_id
        }
        # Pages meet at their cursors: no event between messages is on two pages, or on none.
        landmarks = await self.store.landmarks(conversation_id, since=more or 0, before=before)
        acted = dict.fromkeys(m.turn_id for m in page if m.turn_id and m.display and m.role == TOOL)
        calls = [call for turn_id in acted for call in await self.store.tool_calls(turn_id)]
        drawn = timeline_rows(page, turns, landmarks=landmarks, calls=calls)
        drawn += queue_rows(turn for turn in queue if turn.turn_id not in turns)
        return Timeline(
            rows=drawn,
            next=more,
            as_of_seq=conversation.last_seq,
            epoch=self.epoch,
        )

    async def turns(
        self, principal: Principal, conversation_id: str, *, before: str | None = None, limit: int = 50
    ) -> tuple[list[TurnView], str | None]:
        """A page of turns, newest first, and the cursor of the next page."""
        await self._in(principal, Right.READ, conversation_id)
        limit = min(limit, self.settings.page_rows_max)
        rows = await self.store.turns(conversation_id, before=before, limit=limit + 1)
        more = rows[limit - 1].turn_id if len(rows) > limit else None
        actor = await self.dispatcher.lanes.actor(conversation_id)
        views = []
        for turn in rows[:limit]:
            submission = await self.store.submission(turn.submission_id)
            position = actor.lane.position(turn.turn_id)
            views.append(turn_view(turn, position=position, submission=submission))
        return views, more

    # ------------------------------------------------------------------ submissions and turns

    async def submit(
        self,
        principal: Principal,
        conversation_id: str,
        *,
        key: str,
        parts: Sequence[Part],
        mode: Mode = Mode.QUEUE,
        options: dict[str, Any] | None = None,
        producer: str = "api",
        resend_of: str | None = None,
        body_fingerprint: str | None = None,
    ) -> Accepted:
        """Store a submission durably and say what became of it: the one way in, for every producer.

        Errors: KeyMalformed, NothingToSend, PartInvalid, TextTooLong, KeyInFlight, KeyReused, QueueFull,
        Stopping, StoreBusy, StoreFull, NotFound. After an error nothing is stored.
        """
        known = self.dispatcher.lanes.known(conversation_id)
        conversation = known or await self.store.conversation(conversation_id)
        authorise(principal, Right.WRITE, conversation)
        assert conversation is not None
        if not (0 < len(key) <= self.settings.key_chars_max) or not all("!" <= c <= "~" for c in key):
            raise KeyMalformed(max_chars=self.settings.key_chars_max)
        parts = await self._check_parts(principal, parts)
        self._check_options(options or {})
        request = Request(
            agent=conversation.agent,
            parts=tuple(parts),
            mode=mode,
            options=options or {},
            producer=producer,
            principal=principal,
            resend_of=resend_of,
        )
        self._vet(request)
        try:
            answer, replayed = await self.dispatcher.submit(
                conversation, key=key, request=request, body_fingerprint=body_fingerprint
            )
        except (StoreFull, StoreBusy):
            self._refused = True
            raise
        return Accepted(replayed=replayed, **answer)

    def _vet(self, request: Request) -> None:
        """Let a runner that cannot take every request refuse this one, before anything is stored."""
        runner = self._runners.get(request.agent)
        definition = self.agents.get(request.agent)
        if runner is None and definition is not None and definition.runner == "retained":
            runner = self.runner_of(request.agent)
        vet = getattr(runner, "vet", None)
        if vet is not None:
            vet(request)

    def _check_options(self, options: dict[str, Any]) -> None:
        """Options are kept and encoded again and again: they have a bound in size and in depth."""
        if not options:
            return
        level: list[Any] = [options]
        for _ in range(self.settings.options_depth_max + 1):
            inner = [value.values() if isinstance(value, dict) else value for value in level]
            level = [each for values in inner for each in values if isinstance(each, dict | list)]
        if level:
            raise BadInput(
                f"The options are nested too deeply; the limit (options_depth_max) is "
                f"{self.settings.options_depth_max}."
            )
        size = len(codec.encode(options))
        if size > self.settings.options_bytes_max:
            raise BadInput(
                f"The options are {size} bytes long; the limit (options_bytes_max) is "
                f"{self.settings.options_bytes_max}."
            )

    async def _check_parts(self, principal: Principal, parts: Sequence[Part]) -> Sequence[Part]:
        """Only words and files of the sender's own can be submitted, of a size that is allowed."""
        if len(parts) > self.settings.parts_max:
            raise BadInput(
                f"The message has {len(parts)} parts; the limit (parts_max) is {self.settings.parts_max}."
            )
        size = 0
        checked: list[Part] = []
        for index, part in enumerate(parts):
            if isinstance(part, Text):
                size += len(part.text.encode("utf-8", "surrogatepass"))
                checked.append(Text(part.text))
            elif isinstance(part, Attachment):
                row = await self.store.attachment(part.attachment_id)
                if row is None or row.user_id != principal.user_id:
                    raise PartInvalid(index=index, why="there is no such attachment; upload it first")
                # Words of our own transcriber stand before those that an embedding program brings.
                known = await self.recordings.known(row)
                checked.append(
                    Attachment(
                        attachment_id=row.attachment_id,
                        name=row.name,
                        media_type=row.media_type,
                        size_bytes=row.size_bytes,
                        sha256=row.sha256,
                        transcript=part.transcript if known is None else known,
                    )
                )
            else:
                raise PartInvalid(index=index, why="only text and attachments can be sent")
        if size > self.settings.text_bytes_max:
            raise TextTooLong(size_bytes=size, limit_bytes=self.settings.text_bytes_max)
        if not any(isinstance(part, Attachment) for part in checked) and not plain_text(tuple(checked)):
            raise NothingToSend
        return checked

    async def _view(self, turn_id: str) -> TurnView:
        turn = await self.store.turn(turn_id)
        assert turn is not None
        actor = await self.dispatcher.lanes.actor(turn.conversation_id)
        submission = await self.store.submission(turn.submission_id)
        return turn_view(turn, position=actor.lane.position(turn_id), submission=submission)

    async def turn(self, principal: Principal, turn_id: str) -> TurnView:
        """The turn, with its state and reason."""
        await self._turn_in(principal, Right.READ, turn_id)
        return await self._view(turn_id)

    async def ended(self, principal: Principal, turn_id: str) -> TurnView:
        """Wait until the turn has ended; return it as it is then. (A parked one goes on waiting.)"""
        conversation_id = (await self._turn_in(principal, Right.READ, turn_id)).conversation_id
        conversation = await self.store.conversation(conversation_id)
        assert conversation is not None
        async with aclosing(self.broadcast.watch(conversation_id, after=conversation.last_seq)) as items:
            turn = await self._view(turn_id)
            while turn.state not in END_STATES:
                if not isinstance(await anext(items), Volatile):
                    turn = await self._view(turn_id)
        return turn

    async def answer(self, principal: Principal, turn_id: str) -> str:
        """Wait for the turn's answer and return its words. Raises NotAnswered if it ended without one."""
        turn = await self.ended(principal, turn_id)
        if turn.state != TurnState.SETTLED:
            raise NotAnswered(state=turn.state, reason=turn.reason or "no reason was given")
        said = [
            message.text
            for message in await self.store.messages_after(turn.conversation_id)
            if message.turn_id in (turn_id, turn.parent)
            and message.role == ASSISTANT
            and message.standing == COMPLETE
            and message.stop_reason != WORKING
        ]
        return said[-1] if said else ""

    async def evidence(self, principal: Principal, turn_id: str) -> dict[str, Any]:
        """Everything that is known of a turn's fate, in order: the events that name it, and its ledger."""
        turn = await self._turn_in(principal, Right.READ, turn_id)
        events = await self.store.events(turn.conversation_id, limit=10_000, turn_id=turn_id)
        calls = await self.store.tool_calls(turn_id)
        return {
            "turn": await self._view(turn_id),
            "chain": [event_view(event) for event in events],
            "tool_calls": [msgspec.to_builtins(call) for call in calls],
        }

    async def usage(self, principal: Principal, turn_id: str) -> Spending:
        """What the turn used and cost, call by call, and what was saved by keeping what was done."""
        turn = await self._turn_in(principal, Right.READ, turn_id)
        definition = self.agents.get(turn.agent)
        prices = None if definition is None else definition.prices
        found: list[Event] = []
        while len(page := await self._events_of(turn, after=found[-1].seq if found else 0)) > 0:
            found += page
        return read_spending(
            found,
            turn_id=turn_id,
            conversation_id=turn.conversation_id,
            currency=None if prices is None else prices.currency,
        )

    async def _events_of(self, turn: Turn, *, after: int) -> tuple[Event, ...]:
        return await self.store.events(
            turn.conversation_id, after=after, limit=EVENTS_PAGE, turn_id=turn.turn_id
        )

    async def why(self, principal: Principal, turn_id: str) -> Why:
        """Why the turn waits: who holds the lane, since when, what releases it."""
        turn = await self._turn_in(principal, Right.READ, turn_id)
        actor = await self.dispatcher.lanes.actor(turn.conversation_id)
        return explain(turn, actor.lane)

    async def cancel(self, principal: Principal, turn_id: str, *, queue: str = "pause") -> TurnView:
        """Take a waiting turn back, or stop a running one; `queue` = pause | continue what waits behind it."""
        turn = await self._turn_in(principal, Right.WRITE, turn_id)
        told = inputs.Cancel(turn_id=turn_id, pause=queue == "pause", actor=f"user:{principal.user_id}")
        await self.dispatcher.change(turn, told)
        return await self._view(turn_id)

    async def retry(self, principal: Principal, turn_id: str) -> Accepted:
        """Run a failed turn again: same turn, next attempt, on what it kept."""
        turn = await self._turn_in(principal, Right.WRITE, turn_id)
        if turn.state is TurnState.PARKED and "retry" in (turn.needs or {}).get("offers", ()):
            await self.decide(principal, turn_id, "retry")
            view = await self._view(turn_id)
            started = view.state == "running"
            return Accepted(
                turn_id=turn_id,
                submission_id=turn.submission_id,
                outcome="started" if started else "queued",
                position=view.position,
            )
        say = await self.dispatcher.retry(turn, f"user:{principal.user_id}")
        return Accepted(
            turn_id=turn_id,
            submission_id=turn.submission_id,
            outcome=say.outcome,
            position=say.position,
        )

    async def edit(self, principal: Principal, turn_id: str, parts: Sequence[Part]) -> TurnView:
        """Change a message that waits."""
        turn = await self._turn_in(principal, Right.WRITE, turn_id)
        checked = await self._check_parts(principal, parts)
        submission = await self.store.submission(turn.submission_id)
        assert submission is not None
        self._vet(replace(submission.request, parts=tuple(checked)))
        told = inputs.Edit(turn_id=turn_id, parts=tuple(checked), actor=f"user:{principal.user_id}")
        await self.dispatcher.change(turn, told)
        return await self._view(turn_id)

    async def move(self, principal: Principal, turn_id: str, before: str | None) -> TurnView:
        """Give a waiting turn another place."""
        turn = await self._turn_in(principal, Right.WRITE, turn_id)
        told = inputs.Move(turn_id=turn_id, before=before, actor=f"user:{principal.user_id}")
        await self.dispatcher.change(turn, told)
        return await self._view(turn_id)

    async def send_now(self, principal: Principal, turn_id: str, mode: Mode) -> TurnView:
        """Do not let it wait."""
        turn = await self._turn_in(principal, Right.WRITE, turn_id)
        told = inputs.SendNow(turn_id=turn_id, mode=mode, actor=f"user:{principal.user_id}")
        await self.dispatcher.change(turn, told)
        return await self._view(turn_id)

    async def pause(self, principal: Principal, conversation_id: str) -> Snapshot:
        """Let nobody start."""
        await self._in(principal, Right.WRITE, conversation_id)
        await self.dispatcher.tell(conversation_id, inputs.Pause(actor=f"user:{principal.user_id}"))
        return await self.conversation(principal, conversation_id)

    async def resume(self, principal: Principal, conversation_id: str) -> Snapshot:
        """Go on with the queue."""
        await self._in(principal, Right.WRITE, conversation_id)
        await self.dispatcher.tell(conversation_id, inputs.Resume(actor=f"user:{principal.user_id}"))
        return await self.conversation(principal, conversation_id)

    # ------------------------------------------------------------------ decisions

    async def approvals(self, principal: Principal) -> list[dict[str, Any]]:
        """What waits for a decision of the principal's: approvals and turns that need an action, oldest first."""
        authorise(principal, Right.READ, ANYWHERE)
        return [*await self._decisions.waiting(principal), *await self.terminals.menus(principal)]

    async def decide_approval(self, principal: Principal, approval_id: str, decision: str) -> dict[str, Any]:
        """Approve or deny one call, once. Raises NotFound, Forbidden, ApprovalDecided (decided or expired)."""
        if approval_id.startswith(MENU_APPROVAL):
            return await self.terminals.decide_menu(principal, approval_id, decision)
        return await self._decisions.decide_call(principal, approval_id, decision)

    async def decide(self, principal: Principal, turn_id: str, choice: str) -> TurnView:
        """Choose how a turn that needs an action goes on; `give_up` ends it."""
        turn = await self._turn_in(principal, Right.WRITE, turn_id)
        if offered(turn, choice) == GIVE_UP:
            return await self.cancel(principal, turn_id, queue="continue")
        await self._decisions.choose(principal, turn, choice)
        return await self._view(turn_id)

    # ------------------------------------------------------------------ what a CLI recorded

    async def reconcile(
        self, principal: Principal, conversation_id: str, session: str | None = None
    ) -> Reconciliation:
        """Merge the record of the conversation's own native sessions into its history (G15); again changes nothing.

        `session` names any session on this machine instead (`format:native_id`, as `transcript find` lists
        them); that needs the right to operate. Raises NotFound, Unreadable, NotPossible (a turn runs).
        """
        await self._in(principal, Right.WRITE, conversation_id)
        if session is not None:
            authorise(principal, Right.OPERATE, ANYWHERE)

        async def merge(where: Roots | None, rows: Callable[[Sequence[str]], None] | None) -> Reconciliation:
            return await reconcile_conversation(
                self.dispatcher,
                self.store,
                conversation_id,
                session=session,
                where=own_roots() if where is None or session is not None else where,
                clock=self.clock,
                ids=self.ids,
                actor=f"user:{principal.user_id}",
                rows=rows,
            )

        return await self.terminals.reconciled(conversation_id, merge)

    # ------------------------------------------------------------------ what the model sees

    async def feed(
        self, principal: Principal, conversation_id: str, provider: str | None = None
    ) -> dict[str, Any]:
        """What the model would be given now, beside what a person sees, with the rule behind every difference."""
        conversation = await self._in(principal, Right.READ, conversation_id)
        definition = self.agents.get(conversation.agent)
        model = Model() if definition is None else definition.model
        name = provider or ("anthropic" if model.provider == "scripted" else model.provider)
        dialect = dialect_named(name).name
        messages = await self.store.messages_after(conversation_id)
        tools = await self._tools_of(definition, principal)
        # The very options that a turn's own journal builds its feeds with (agent/journal.py).
        given = FeedOptions(
            effects={tool.name: tool.effect for tool in tools},
            compaction=find_compaction(messages),
            confirmations=BUILT_IN.with_phrases(self.settings.dangerous_phrases),
        )
        feed = build_feed(messages, expired=find_expired(messages), options=given)
        own = provider is None or provider == model.provider
        origin = Origin(provider=name, model=model.model) if not own else self._origin(model, name)
        report = report_feed(
            feed,
            dialect,
            origin=origin,
            instructions="" if definition is None else definition.instructions,
            tools=[tool.spec for tool in tools],
            options=dict(model.options) if own else {},
            files=self._read_file,
        )
        display = [
            {"message": m.message_id, "seq": m.seq, "role": m.role, "parts": display_parts(m)}
            for m in messages
            if m.display
        ]
        return {"provider": name, **report, "display": display}

    async def _tools_of(self, definition: AgentDefinition | None, principal: Principal) -> Sequence[Tool]:
        """The tools of an agent for the principal; none of a retained CLI, which has its own.

        A server of tools that cannot say which it has is passed over, as a turn would do.
        """
        if definition is None or definition.runner == "retained":
            return ()
        found = {tool.name: tool for tool in load_agent_tools(definition, path=self.agents_path)}
        for name in servers_of(definition):
            with contextlib.suppress(SourceTrouble):
                for tool in await self.connections.servers.tools(name, principal.user_id):
                    found.setdefault(tool.name, tool)
        return tuple(found.values())

    def _origin(self, model: Model, name: str) -> Origin:
        try:
            return open_model(model, self.clock, None).origin
        except ConfigError:
            return Origin(provider=name, model=model.model)

    # ------------------------------------------------------------------ files

    async def put_attachment(
        self, principal: Principal, name: str, chunks: AsyncIterator[bytes]
    ) -> dict[str, Any]:
        """Store a file; it can then be named in a message as `{type: "attachment", attachment_id}`."""
        authorise(principal, Right.WRITE, ANYWHERE)
        kept = await self._put_file(principal.user_id, name, chunks)
        return {
            "attachment_id": kept.attachment_id,
            "name": kept.name,
            "media_type": kept.media_type,
            "size_bytes": kept.size_bytes,
            "sha256": kept.sha256,
        }

    async def _put_file(self, user_id: str, name: str, chunks: AsyncIterator[bytes]) -> AttachmentRow:
        sha256, size, kind = await self._files.put(chunks)
        row = AttachmentRow(
            attachment_id=self.ids.make(id_kinds.ATTACHMENT),
            user_id=user_id,
            sha256=sha256,
            name=name[-255:],
            media_type=kind,
            size_bytes=size,
            created_at=self.clock.now(),
        )
        await self.store.put_attachment(row)
        return row

    async def _keep_file(self, user_id: str, name: str, data: bytes) -> Attachment | None:
        """A file that a tool gave; None over the limit (attachment_bytes_max)."""
        if len(data) > self.settings.attachment_bytes_max:
            return None

        async def whole() -> AsyncIterator[bytes]:
            yield data

        row = await self._put_file(user_id, name, whole())
        return Attachment(
            attachment_id=row.attachment_id,
            name=row.name,
            media_type=row.media_type,
            size_bytes=row.size_bytes,
            sha256=row.sha256,
        )

    def _read_file(self, part: Attachment) -> File | None:
        """The bytes of an attachment for a model; None when they are gone."""
        try:
            return File(self._files.path(part.sha256).read_bytes())
        except OSError:
            return None

    async def attachment(
        self, principal: Principal, conversation_id: str, attachment_id: str
    ) -> tuple[AttachmentRow, Path]:
        """A file that this conversation holds, and where its bytes lie."""
        await self._in(principal, Right.READ, conversation_id)
        row = await self.store.attachment(attachment_id)
        if row is None or not await self.store.attachment_in(conversation_id, attachment_id):
            raise NotFound(what="attachment")
        return row, self._files.path(row.sha256)

    # ------------------------------------------------------------------ watching

    async def watch(
        self, principal: Principal, conversation_id: str, *, after: int | None, epoch: str | None = None
    ) -> AsyncIterator[StreamItem]:
        """Durable events after `after` without gap or double, then live ones and volatile items."""
        await self._in(principal, Right.READ, conversation_id)
        async for item in self.broadcast.watch(conversation_id, after=after, epoch=epoch):
            yield item

    async def export(self, principal: Principal, conversation_id: str) -> AsyncIterator[bytes]:
        """The conversation as JSON lines: a header, then every event in order."""
        conversation = await self._in(principal, Right.READ, conversation_id)
        header = {"turnkeeper_export": 1, "epoch": self.epoch, **msgspec.to_builtins(conversation)}
        yield codec.wire(header) + b"\n"
        after = 0
        while True:
            events = await self.store.events(conversation_id, after=after, limit=500)
            for event in events:
                yield codec.wire(event_view(event)) + b"\n"
            if len(events) < 500:
                return
            after = events[-1].seq

    # ------------------------------------------------------------------ the whole

    async def status(self, principal: Principal) -> dict[str, Any]:
        """What waits, for how long and for whom; what runs; what is unknown."""
        authorise(principal, Right.OPERATE, ANYWHERE)
        now = self.clock.now()
        turns = await self.store.turns_in([TurnState.QUEUED, TurnState.RUNNING, TurnState.PARKED])
        rows: dict[str, list[dict[str, Any]]] = {"running": [], "queued": [], "parked": []}
        stuck: list[dict[str, Any]] = []
        for turn in turns:
            since = turn.started_at if turn.state is TurnState.RUNNING else turn.created_at
            row: dict[str, Any] = {
                "turn_id": turn.turn_id,
                "conversation_id": turn.conversation_id,
                "agent": turn.agent,
                "since": iso(since),
                "seconds": round(now - (since or now), 1),
                "needs": turn.needs,
            }
            if turn.state is TurnState.PARKED:
                row["waits_for"] = waited_for(turn)
            rows[str(turn.state)].append(row)
            lease_over = turn.lease_until is not None and turn.lease_until < now
            if turn.state is TurnState.RUNNING and turn.parent is None and lease_over:
                stuck.append(row)
        oldest = max((row["seconds"] for row in rows["queued"]), default=0.0)
        return {
            **rows,
            "stuck": stuck,
            "oldest_wait_seconds": oldest,
            "open_streams": self.broadcast.open_streams,
            "recovered": self.dispatcher.recovered,
            "epoch": self.epoch,
            "ready": self.ready,
        }

    async def health(self) -> dict[str, Any]:
        """Whether the process can take and store submissions."""
        probe = await self._probe()
        return {
            "ok": probe is None,
            "ready": self.ready,
            "recovered": self.dispatcher.recovered,
            "running": self.dispatcher.running_count,
            "why": probe,
        }

    async def _probe(self) -> str | None:
        # After a refusal a small write that happens to fit proves nothing: room for a whole message does.
        size = PROBE_BYTES if self._refused else 1
        try:
            await self.store.put_value("health", str(self.clock.now()).encode().ljust(size))
            self._refused = False
        except (Conflict, Forbidden):
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, the store cannot write: that is the answer
            return getattr(error, "sentence", str(error))
        return None

    async def backup(self, path: str | Path) -> None:
        """A consistent copy of the store in the new file `path`, while running."""
        await self.store.backup(str(path))


__all__ = ["OPERATOR", "OWNER", "Keeper"]
