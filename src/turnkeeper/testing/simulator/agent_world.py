"""Our own loop in the world of the dispatcher: a model of whims, tools with effects, crashes at any moment.

The model answers, asks for tools (also again for what it had), leaks markup, stalls, is overloaded, limits
its rate, says that the conversation is too long, or says nothing. Tools act, read, hang, raise; some belong
to a server that wants a sign-in first. People approve, deny, sign in, are signed out, or let time run out. What the outside world saw is kept beside the journal and compared with
the ledger: nothing acted twice unknowingly, nothing acted without consent, nothing paid was bought again.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from turnkeeper.agent import attempt as attempt_module
from turnkeeper.agent import entry as entry_module
from turnkeeper.agent.attempt import Attempt
from turnkeeper.agent.definition import AgentDefinition, Policies
from turnkeeper.agent.journal import TurnJournal
from turnkeeper.agent.loop import ModelRunner, ModelTurn
from turnkeeper.agent.plan import CrashPolicy, Treatment
from turnkeeper.agent.so_far import SIGN_IN, sign
from turnkeeper.agent.texts import SUMMARISE
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.events import Draft, Event
from turnkeeper.conversation.messages import ASSISTANT, LEAKED, Message, Origin
from turnkeeper.conversation.parts import Part, Text, ToolCall
from turnkeeper.conversation.turns import Disposition, Effect, Failure, TurnState, Usage
from turnkeeper.dispatch import sign_ins
from turnkeeper.lane import inputs
from turnkeeper.port.provider import ModelCall, ProviderEvent, ProviderFailed, Reply, TextDelta, ToolSpec
from turnkeeper.port.runner import Runner
from turnkeeper.provider.build import Builder
from turnkeeper.provider.wire import Violation
from turnkeeper.settings import Settings
from turnkeeper.testing.clock import run_virtual
from turnkeeper.testing.simulator.checker import require
from turnkeeper.testing.simulator.dispatch_world import DispatchWorld
from turnkeeper.tool import Tool, ToolSource, tool, tool_of
from turnkeeper.tool.contract import SignIn, SignInNeeded

BUGS = (
    "no_ledger",
    "rerun_unknown",
    "no_intent",
    "endless_resume",
    "leak_replayed",
    "consent_reused",
    "consent_of_another",
    "lost_outcome",
    "parked_run_twice",
    "sign_in_missed",
    "sign_in_waits_for_nothing",
)
"""Bugs that can be planted in the loop; each must be caught by some seed."""

LEAK = 'On it.\n<invoke name="act">\n<parameter name="what">x</parameter>\n</invoke>'
CONTEXT_TOKENS = 4_000
SITE = "site"
CONNECT_SECONDS = 400.0
SIGN_IN_GRACE_SECONDS = 60.0
"""How long after a sign-in a call may still be waiting for it: a process may be away, and looks every 5 s."""
CONSENTED = frozenset({"drop", "site__wipe"})
"""Tools whose every call needs a yes."""
DEFAULTS = Settings.model_construct().model_dump()


class WhimsicalModel:
    """A model that does what its seed says."""

    def __init__(self, world: AgentWorld) -> None:
        self.origin = Origin("sim", "sim-1", "a")
        self.dialect = "anthropic"
        self._world = world
        self._builder = Builder("anthropic", self.origin, report=world.see_violations)

    def build(
        self,
        feed: Sequence[Message],
        *,
        instructions: str,
        tools: Sequence[ToolSpec],
        options: dict[str, Any],
    ) -> bytes:
        """The strictest dialect's request; its violations are ours."""
        body = self._builder.build(feed, instructions=instructions, tools=tools, options=options)
        require(b"<invoke" not in body, "G12 what leaked is never fed")
        return body

    @property
    def broken(self) -> tuple[Violation, ...]:
        """What the request built last broke; the world is told of it too."""
        return self._builder.broken

    async def stream(self, call: ModelCall) -> AsyncIterator[ProviderEvent]:
        """Answer, ask, fail, or leave the caller waiting."""
        world = self._world
        rng, clock = world.rng, world.clock
        await clock.sleep(rng.uniform(0.1, 3.0))
        if call.newest_user_text == SUMMARISE:
            yield _reply(*((Text("SUMMARY " * 5),) if rng.random() < 0.8 else ()))
            return
        whim = rng.random()
        if not world.faults:
            whim *= 0.6  # it still asks for tools, and nothing fails any more
        if whim < 0.3:
            async for event in self._say("word " * rng.randrange(1, 60)):
                yield event
            return
        if whim < 0.6:
            yield _reply(Text("Acting."), *self._calls(call))
            return
        if whim < 0.68:
            yield TextDelta(LEAK)
            yield _reply(Text(LEAK))
            return
        if whim < 0.72:
            yield _reply()
            return
        if whim < 0.8:
            yield TextDelta("Half an ans")
            await clock.sleep(20.0)
        raise ProviderFailed(self._failure(whim), usage=Usage(input_tokens=50))

    async def _say(self, words: str) -> AsyncIterator[ProviderEvent]:
        for word in words.split():
            yield TextDelta(word + " ")
            await self._world.clock.sleep(0.05)
        yield _reply(Text(words))

    def _calls(self, call: ModelCall) -> list[ToolCall]:
        """Some calls; often such as were made before in this turn."""
        rng = self._world.rng
        known = ["act", "put", "look", "checked", "drop", "site__act", "site__wipe"]
        names = rng.choices(known, [4, 2, 3, 2, 1, 3, 1], k=rng.randrange(1, 4))
        return [
            ToolCall(f"c{rng.randrange(10**6)}", name, {"what": f"w{rng.randrange(3)}"}) for name in names
        ]

    def _failure(self, whim: float) -> Failure:
        kind, retryable, wait = (
            ("stall", True, None)
            if whim < 0.84
            else ("overloaded", True, None)
            if whim < 0.89
            else ("rate_limit", True, self._world.rng.choice([5.0, 60.0, 200.0]))
            if whim < 0.94
            else ("context", False, None)
            if whim < 0.98
            else ("credentials", False, None)
        )
        return Failure(kind=kind, retryable=retryable, sentence=f"It was {kind}.", retry_after_seconds=wait)

    async def close(self) -> None:
        """Nothing is open."""


def _reply(*parts: Part) -> Reply:
    message = Message(message_id="", role=ASSISTANT, parts=parts)
    return Reply(message=message, usage=Usage(input_tokens=100, output_tokens=10), stop_reason="end_turn")


class AgentWorld(DispatchWorld):
    """One seeded run with our own loop; `play` it under `run_virtual`."""

    def __init__(self, seed: int, *, bug: str | None = None, sends: int = 6) -> None:
        super().__init__(seed, bug=bug, sends=sends)
        self.effects: Counter[str] = Counter()
        """By idempotency key: how often the outside world was acted on."""
        self.violations: list[str] = []
        self.crash_policy = self.rng.choice(list(CrashPolicy))
        self.heals = self.rng.random() < 0.3
        self.sign_ins = 0
        self.signed_in_since: float | None = None
        self.sign_in_story: list[tuple[float, str | None]] = []
        """When which grant became good; None when none was any more."""

    def see_violations(self, found: Sequence[Any]) -> None:
        """A request of ours that broke a wire rule."""
        self.violations += [f"{one.rule}: {one.sentence}" for one in found]

    def make_runner(self) -> Runner:
        """Our loop, as this process has it."""
        definition = AgentDefinition(
            name="demo",
            policies=Policies(crash=self.crash_policy, heal_leaks=self.heals),
            context_tokens_max=CONTEXT_TOKENS,
        )
        resumes = 99 if self.bug == "endless_resume" else DEFAULTS["auto_resumes_max"]
        changed = {
            "approval_seconds": 120.0,
            "auto_resumes_max": resumes,
            "connect_seconds": CONNECT_SECONDS,
        }
        settings = Settings.model_construct(**{**DEFAULTS, **changed})
        return _Runner(
            definition, WhimsicalModel(self), self.tools(), settings, sources=[Site(self)], bug=self.bug
        )

    async def act_on_world(self, key: str) -> str:
        """Act, or break, or hang."""
        whim = self.rng.random() if self.faults else 1.0
        await self.clock.sleep(self.rng.uniform(0.0, 4.0))
        if whim < 0.05:
            msg = "it broke before it acted"
            raise ValueError(msg)
        self.effects[key] += 1
        await self.clock.sleep(self.rng.uniform(0.0, 4.0))
        if whim < 0.1:
            await asyncio.Event().wait()
        return "acted"

    def tools(self) -> list[Tool]:
        """What the agent can do. A dead process's tool may still act: the world is not rolled back."""
        act_on_world = self.act_on_world

        @tool(timeout_seconds=60.0)
        async def act(what: str, *, idempotency_key: str) -> str:
            """Act."""
            return await act_on_world(idempotency_key)

        @tool(effect="idempotent")
        async def put(what: str, *, idempotency_key: str) -> str:
            """Put."""
            await self.clock.sleep(self.rng.uniform(0.0, 4.0))
            return "put"

        @tool(effect="read_only")
        async def look(what: str) -> str:
            """Look."""
            await self.clock.sleep(self.rng.uniform(0.0, 4.0))
            return "seen"

        async def happened(key: str, arguments: dict[str, Any]) -> bool | None:
            return None if self.rng.random() < 0.2 else self.effects[key] > 0

        @tool(did_it_happen=happened)
        async def checked(what: str, *, idempotency_key: str) -> str:
            """Act, and be able to tell."""
            return await act_on_world(idempotency_key)

        @tool(destructive=True)
        async def drop(what: str, *, idempotency_key: str) -> str:
            """Drop."""
            return await act_on_world(idempotency_key)

        return [tool_of(made) for made in (act, put, look, checked, drop)]

    async def decide_parked(self) -> None:
        """Somebody decides what the parked turns wait for, in one of the ways that are offered."""
        rows = await self.store.lane("c1")
        assert rows is not None
        for turn in rows.turns:
            if turn.state is not TurnState.PARKED or turn.parent is not None:
                continue
            needs = turn.needs or {}
            extra: list[Draft] = []
            if needs.get("kind") == "auth":
                await self.meet_sign_in()
                continue
            if needs.get("kind") == "approval":
                asked = self.rng.choice(needs["approvals"])
                if asked["expires_at"] <= self.clock.now():
                    continue
                decision: dict[str, Any] = {
                    "approval_id": asked["approval_id"],
                    "decision": self.rng.choice(["approve", "approve", "deny"]),
                }
                body = ev.ApprovalDecided(by="u1", **decision)
                extra.append(Draft(body, turn_id=turn.turn_id, attempt=turn.attempt))
            else:
                offered = [*needs.get("choices", ()), *needs.get("offers", ())]
                decision = {"choice": self.rng.choice(offered or ["go_on"])}
            told = inputs.Decide(turn_id=turn.turn_id, decision=decision, fence=turn.fence)
            await self._try(partial(self._decide, told, extra))

    # -- signing in at the site

    async def boot(self) -> None:
        """A process starts, and looks which turns may go on."""
        await super().boot()
        await self._try(self._release)
        if self.bug != "sign_in_missed":
            self._later(5.0, partial(self._look, self.generation))

    async def _look(self, generation: int) -> None:
        """What a process does every now and then while it lives."""
        while self.generation == generation and self.dispatcher is not None:
            await self._try(self._release)
            await self.clock.sleep(5.0)
            if not self.faults and await self._nothing_left():
                return

    async def _nothing_left(self) -> bool:
        rows = await self.store.lane("c1")
        return rows is not None and not rows.turns

    async def _generation_of(self, server: str, person: str) -> str | None:
        return None if self.signed_in_since is None else f"g{self.sign_ins}"

    async def _release(self) -> Any:
        if self.bug == "sign_in_missed" or self.dispatcher is None:
            return None
        return await sign_ins.release(self.dispatcher, self.store, self._generation_of)

    async def meet_sign_in(self) -> None:
        """Somebody signs in, says no, or is signed out."""
        whim = self.rng.random() if self.faults else 0.0
        if whim < 0.6:
            await self.clock.sleep(self.rng.uniform(0.0, 3.0))
            self.sign_ins += 1
            self.signed_in_since = self.clock.now()
            self.sign_in_story.append((self.clock.now(), f"g{self.sign_ins}"))
            await self._try(lambda: self._answer_sign_in("connected"))
        elif whim < 0.75:
            await self._try(lambda: self._answer_sign_in("refused"))
        else:
            self.signed_in_since = None
            self.sign_in_story.append((self.clock.now(), None))

    async def _answer_sign_in(self, outcome: str) -> Any:
        assert self.dispatcher is not None
        if self.bug == "sign_in_missed" and outcome == "connected":
            return None
        return await sign_ins.decide(self.dispatcher, self.store, SITE, "u1", outcome)

    async def _decide(self, told: inputs.Decide, extra: list[Draft]) -> Any:
        assert self.dispatcher is not None
        return await self.dispatcher.tell("c1", told, extra=extra)

    async def _submit(self, key: str, request: Any) -> Any:
        """Every now and then the process ends right after it took something."""
        if self.faults and self.rng.random() < 0.15:
            self._later(self.rng.uniform(0.0, 8.0), self._end_process)
        return await super()._submit(key, request)

    async def meddle(self) -> None:
        """A person decides, or does something else."""
        whim = self.rng.random()
        if whim < 0.4:
            await self.decide_parked()
        elif whim < 0.7:
            await self.meet_sign_in()
        else:
            await super().meddle()

    async def _drained(self) -> bool:
        rows = await self.store.lane("c1")
        assert rows is not None
        if self.dispatcher is not None:
            if rows.conversation.paused is not None:
                await self._try(lambda: self._tell(inputs.Resume()))
            await self.decide_parked()
        return not rows.turns and all(task.done() for task in self.tasks)

    # -- judgement

    async def _judge(self) -> None:
        await super()._judge()
        require(not self.violations, "G7 every request is acceptable", *self.violations)
        events = await self.store.events("c1", limit=100_000)
        self._judge_effects(events)
        self._judge_consent(events)
        self._judge_sign_ins(events)
        self._judge_budgets(events)
        for message in await self.store.messages_after("c1"):
            if message.standing == LEAKED:
                require(message.display and not message.replay, "G12 leaked: shown, not fed", message)

    def _judge_effects(self, events: Sequence[Event]) -> None:
        """The ledger and the world agree, and identical calls of a turn acted once (G9)."""
        intents: dict[str, list[Event]] = {}
        signatures: Counter[tuple[str, str]] = Counter()
        outcomes: dict[str, list[ev.ToolReturned]] = {}
        for event in events:
            body = event.body
            if isinstance(body, ev.ToolIntended):
                intents.setdefault(body.idempotency_key, []).append(event)
            elif isinstance(body, ev.ToolReturned):
                outcomes.setdefault(f"{event.turn_id}.{body.call_id}", []).append(body)
        for key, times in self.effects.items():
            require(key in intents, "G9 intent before effect", key)
            first = intents[key][0].body
            assert isinstance(first, ev.ToolIntended)
            said = [one.why for one in outcomes.get(key, ())]
            allowed = 1 + sum(why in ("did not happen", "run_again") for why in said)
            require(times <= allowed, "G9 acted twice", key, times, said)
            signatures[intents[key][0].turn_id or "", sign(first.name, first.arguments)] += 1
        for (turn_id, signature), calls in signatures.items():
            require(
                calls <= 1 or _set_aside(events, turn_id), "G9 identical calls of a turn", turn_id, signature
            )
        for key, found in outcomes.items():
            last = found[-1]
            began = intents.get(key)
            if began is None or not isinstance(began[0].body, ev.ToolIntended):
                continue
            acts = began[0].body.effect in (Effect.ACTS, Effect.DESTRUCTIVE)
            if acts and last.disposition is Disposition.DONE and last.why != "person":
                require(self.effects[key] >= 1, "the ledger says done and nothing happened", key)
            if last.disposition is Disposition.REFUSED:
                require(self.effects[key] == 0, "the ledger says refused and it acted", key)

    def _judge_consent(self, events: Sequence[Event]) -> None:
        """Nothing destructive began without a yes of its own (G11)."""
        asked: dict[str, str] = {}
        until: dict[str, float] = {}
        approved: dict[str, float] = {}
        for event in events:
            body = event.body
            if isinstance(body, ev.ApprovalRequested):
                asked[body.approval_id] = f"{event.turn_id}.{body.call_id}"
                until[asked[body.approval_id]] = body.expires_at
            elif isinstance(body, ev.ApprovalDecided) and body.decision == "approve":
                approved[asked[body.approval_id]] = event.at
            elif isinstance(body, ev.ToolIntended) and body.name in CONSENTED:
                refused = any(
                    isinstance(e.body, ev.ToolReturned)
                    and e.body.call_id == body.call_id
                    and e.body.disposition is Disposition.REFUSED
                    and e.body.why != SIGN_IN
                    for e in events
                )
                call = f"{event.turn_id}.{body.call_id}"
                require(call in approved or refused, "G11 a call without consent", body.call_id)
                if not refused:
                    latest = max(until[call], approved[call] + DEFAULTS["confirmation_expiry_seconds"])
                    require(
                        event.at <= latest, "G11 a yes that had grown old", body.call_id, event.at - latest
                    )

    def _judge_sign_ins(self, events: Sequence[Event]) -> None:
        """Nothing acted at the site before its sign-in, and no sign-in was missed (seed 000)."""
        self._judge_missed(events)
        for event in events:
            body = event.body
            if isinstance(body, ev.MessageAppended) and body.message.role == ASSISTANT:
                require("sign" not in body.message.text, "seed 000: no answer says that something waits")
        waiting: dict[str, ev.ConnectRequested] = {}
        for event in events:
            body = event.body
            if isinstance(body, ev.ConnectRequested):
                waiting[f"{event.turn_id}.{body.call_id}"] = body
            elif isinstance(body, ev.ToolIntended) and body.name.startswith(SITE):
                waiting.pop(f"{event.turn_id}.{body.call_id}", None)
            elif isinstance(body, ev.TurnSettled):
                open_calls = [call for call in waiting if call.startswith(f"{event.turn_id}.")]
                closed = [
                    call
                    for call in open_calls
                    if not any(
                        isinstance(e.body, ev.ToolReturned)
                        and f"{e.turn_id}.{e.body.call_id}" == call
                        and e.body.why != SIGN_IN
                        for e in events
                    )
                ]
                require(not closed, "a turn ended and its call still waits for a sign-in", closed)

    def _judge_missed(self, events: Sequence[Event]) -> None:
        """No call waited on although its person was signed in (G4)."""
        for index, event in enumerate(events):
            wait = event.body
            if not isinstance(wait, ev.ConnectRequested):
                continue
            ends = [
                e.at
                for e in events[index:]
                if e.turn_id == event.turn_id and isinstance(e.body, ev.ConnectDecided)
            ]
            if not ends:
                continue
            good_since: float | None = None
            for at, grant in self.sign_in_story:
                if at > ends[0]:
                    break
                good = grant is not None and grant != wait.rejected
                good_since = max(at, event.at) if good else None
            waited = 0.0 if good_since is None else ends[0] - good_since
            require(waited <= SIGN_IN_GRACE_SECONDS, "G4 a sign-in that was there was missed", waited)

    def _judge_budgets(self, events: Sequence[Event]) -> None:
        resumes = Counter(e.turn_id for e in events if isinstance(e.body, ev.AutoResumed))
        for turn_id, times in resumes.items():
            require(times <= 1, "one automatic resume a turn", turn_id, times)
        waits: dict[str | None, list[float]] = {}
        for event in events:
            if isinstance(event.body, ev.RoundFailed) and event.body.failure.kind == "rate_limit":
                seconds = event.body.failure.retry_after_seconds
                waits.setdefault(event.turn_id, []).append(seconds or 0.0)
        for turn_id, found in waits.items():
            require(len(found) <= 5, "waits for a rate limit are bounded", turn_id, json.dumps(found))


def _set_aside(events: Sequence[Event], turn_id: str) -> bool:
    """Whether a person chose to start over or to run something again, or a check said that it did not happen."""
    for event in events:
        if event.turn_id != turn_id:
            continue
        body = event.body
        if isinstance(body, ev.Noticed) and body.code == "started_over":
            return True
        if isinstance(body, ev.ToolReturned) and body.why in ("did not happen", "run_again"):
            return True
    return False


class Site:
    """A server of tools at which one must be signed in (ToolSource). It takes a call only then, and acts once."""

    name = SITE

    def __init__(self, world: AgentWorld) -> None:
        self._world = world

    async def tools(self, person: str) -> Sequence[Tool]:
        """Two tools, of which one asks for a yes as well."""
        return [self._tool("act", Effect.ACTS), self._tool("wipe", Effect.DESTRUCTIVE)]

    def _tool(self, name: str, effect: Effect) -> Tool:
        async def invoke(arguments: dict[str, Any], key: str) -> str:
            world = self._world
            await world.clock.sleep(world.rng.uniform(0.0, 1.0))
            if world.signed_in_since is None:
                rejected = f"g{world.sign_ins}" if world.sign_ins else ""
                raise SignInNeeded(SignIn(server=SITE, person="u1", rejected=rejected))
            return await world.act_on_world(key)

        return Tool(
            name=f"{SITE}__{name}",
            description=name,
            schema={"type": "object", "properties": {"what": {"type": "string"}}},
            effect=effect,
            invoke=invoke,
            check=lambda arguments: None,
            timeout_seconds=60.0,
            source=SITE,
        )


class _Runner(ModelRunner):
    """Our runner, with a bug planted where one is asked for."""

    def __init__(self, *parts: Any, sources: Sequence[ToolSource], bug: str | None) -> None:
        super().__init__(*parts, sources=sources)
        self._bug = bug

    async def run(self, turn: Any) -> Any:
        """Carry the turn out."""
        work = ModelTurn(self, turn)
        if self._bug == "lost_outcome":
            work.journal.rest = lambda: ()  # type: ignore[method-assign]
        if self._bug == "no_intent":
            work.journal.intend = partial(_forget_intent, work.journal)  # type: ignore[method-assign]
        if self._bug == "leak_replayed":
            message = work.journal.message

            def shown(role: str, *parts: Any, **fields: Any) -> Message:
                return message(role, *parts, **{**fields, "replay": True})

            work.journal.message = shown  # type: ignore[method-assign]
            add = work.journal.add
            work.journal.add = lambda *bodies: add(  # type: ignore[method-assign]
                *[b for b in bodies if not isinstance(b, ev.AttemptSuperseded | ev.MessageMarked)]
            )
        return await work.carry_out()


def _forget_intent(journal: TurnJournal, call: Any, effect: Effect) -> None:
    call.effect = effect
    call.key = f"{journal.turn_id}.{call.id}"


def run_seed(seed: int, *, bug: str | None = None) -> AgentWorld:
    """Run one world to its end. Raises checker.Broken."""
    world = AgentWorld(seed, bug=bug)
    planted = {
        "no_ledger": (attempt_module, "find_earlier", lambda *a: None),
        "rerun_unknown": (entry_module, "treat", lambda *a, **k: Treatment.RUN_AGAIN),
        "consent_reused": (attempt_module, "needs_approval", _once()),
        "consent_of_another": (entry_module, "_decide_approval", _for_any_call),
        "parked_run_twice": (entry_module, "_decide_sign_in", _again_and_again),
        "sign_in_waits_for_nothing": (Attempt, "wait_for_person", lambda self: None),
    }
    if bug not in planted:
        run_virtual(world.play())
        return world
    module, name, replacement = planted[bug]
    kept = getattr(module, name)
    setattr(module, name, replacement)
    try:
        run_virtual(world.play())
    finally:
        setattr(module, name, kept)
    return world


_decide_approval, _decide_sign_in = entry_module._decide_approval, entry_module._decide_sign_in  # noqa: SLF001


def _for_any_call(journal: Any, call: Any, *more: Any) -> None:
    """The planted bug: a yes to one call counts for every other that waits."""
    if call.decision is None and any(c.decision == "approve" for c in journal.so_far.calls.values()):
        call.decision, call.approved_at = "approve", journal.turn.clock.now()
    _decide_approval(journal, call, *more)


def _again_and_again(journal: Any, call: Any, tool: Any, jobs: Any, settings: Any, *, refuses: bool) -> None:
    """The planted bug: a call whose sign-in came is run twice."""
    before = len(jobs)
    _decide_sign_in(journal, call, tool, jobs, settings, refuses=refuses)
    jobs += jobs[before:]


def _once() -> Any:
    asked: list[bool] = []

    def needs(*_: Any) -> bool:
        asked.append(True)
        return len(asked) == 1

    return needs


__all__ = ["BUGS", "AgentWorld", "run_seed"]
