"""An agent as a value: what the agents file says of it (docs: agents file)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from turnkeeper.agent.plan import CrashPolicy
from turnkeeper.port.provider import Deadlines


class Policies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an agent behaves where more than one way is right."""

    crash: CrashPolicy = CrashPolicy.RESUME
    """What becomes of calls of unknown outcome after a crash: resume | ask | fail."""
    parked: Literal["park", "hold"] = "park"
    """A turn that waits for a person gives its lane back, or keeps it."""
    ask: tuple[str, ...] = ()
    """Tools whose calls a person must approve, besides the destructive ones; "*": every tool."""
    trust: tuple[str, ...] = ()
    """Destructive tools that run without asking."""
    approver: str | None = None
    """The user who must approve; None: whoever has the right in the conversation."""
    approval_seconds: float | None = None
    """How long a question for approval can be answered; None: the setting of that name."""
    expiry: dict[str, float] = msgspec.field(default_factory=dict)
    """The same in seconds for one tool, for one effect (destructive, acts, ...), or for turns of one producer (the
    channel: page, cli, api, or the name of a webhook or bot). The tool goes before the effect, the effect before
    the producer."""
    usage_limit: Literal["fail", "wait"] = "fail"
    """When a usage limit is reached that says when it resets: fail, or carry on then (once a turn)."""
    heal_leaks: bool = False
    """Turn a leaked call into a real one where it fits the tool's schema, instead of sampling again."""


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens cost, in one currency."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    cache_write: float | None = None
    currency: str = "USD"


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model at one address. The key is named, never written."""

    provider: str = "scripted"
    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    script: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further fields of the request, in the provider's own words."""
    prices: Prices | None = None
    """Of a fallback model; the agent's own stand at the agent."""


class Retained(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a coding CLI that is kept in a terminal needs besides `cli`, `cwd`, `model` and `instructions`."""

    command: tuple[str, ...] = ()
    """What to start instead of the CLI's own program, with its first arguments."""
    args: tuple[str, ...] = ()
    """Further arguments of each launch."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Added to the CLI's environment. No secret belongs here: name variables of ours in `env_pass`."""
    env_pass: tuple[str, ...] = ()
    """Names of variables that are passed on from our own environment; `NAME_*` passes all that begin so."""
    mcp: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """MCP servers by name, written anew into the CLI's own configuration at each launch."""
    role: str = ""
    """What the agent is for. Another role begins a new native session; nothing else of the agent does."""
    capabilities: tuple[str, ...] = ()
    """What it may do, as far as that is part of its role."""
    trust_cwd: bool = True
    """Answer the CLI's question whether to trust the folder `cwd` with yes."""
    producers: tuple[str, ...] = ()
    """Webhooks, bots and schedules whose turns may reach it although it asks for no permissions."""
    idle_seconds: float | None = None
    """Close a pane that nobody used for so long; the next turn resumes its session."""
    timing: dict[str, float] = msgspec.field(default_factory=dict)
    """Waits of this agent that differ from the settings and defaults, by their names (`stop_seconds = 20`)."""
    driver: Literal["pane", "structured"] = "pane"
    """pane: type into a terminal that outlives the server. structured: speak the CLI's own protocol over pipes."""


class AgentDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. Which fields mean something depends on `runner`."""

    name: str
    runner: Literal["model", "python", "retained"] = "model"
    model: Model = Model()
    fallback: Model | None = None
    """Used for the one automatic resume of a turn."""
    function: str | None = None
    """runner python: the async generator, as module:function."""
    cli: str | None = None
    """runner retained: which coding CLI."""
    cwd: str | None = None
    retained: Retained = Retained()
    """runner retained: how its CLI is started and kept."""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    demo_tools: bool = False
    policies: Policies = Policies()
    deadlines: Deadlines | None = None
    """None: the settings, or those for reasoning models where `reasoning` is set."""
    reasoning: bool = False
    context_tokens_max: int | None = None
    """Longest feed before it is compacted; None: only when the provider says that it is too long."""
    prices: Prices | None = None


BUILT_IN_DEMO = AgentDefinition(
    name="demo",
    model=Model(provider="scripted", model="scripted"),
    tools=("append_file", "echo", "now", "slow"),
    demo_tools=True,
)
"""The agent that needs no key."""
