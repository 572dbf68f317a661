"""What a retained agent is made of: which CLI, where, with what, and how long everything may take."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from turnkeeper.retained.adapter import Adapter
from turnkeeper.retained.machine.state import Timing

ENV_PASSED: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TMPDIR", "XDG_*", "SSH_AUTH_SOCK",
    "NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_*", "NVM_*",
)  # fmt: skip
"""Of our own environment every CLI gets these (and what its adapter names), nothing else."""


class RetainedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One retained agent."""

    agent: str
    cli: str
    cwd: str
    command: tuple[str, ...] = ()
    """What to start instead of the CLI's own program."""
    args: tuple[str, ...] = ()
    model: str = ""
    instructions: str = ""
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    env_pass: tuple[str, ...] = ()
    mcp: Mapping[str, Any] = msgspec.field(default_factory=dict)
    role: str = ""
    """What the agent is for (mode). Only a change of role or capabilities begins a new native session."""
    capabilities: tuple[str, ...] = ()
    trust_cwd: bool = True
    """The folder was named by who wrote the agents file: the CLI's question whether to trust it is answered yes."""
    producers: tuple[str, ...] = ()
    """Webhooks, bots and schedules whose turns may reach it although it asks for no permissions."""
    idle_seconds: float | None = None
    """A pane without work for so long is closed; the next turn resumes the session. None: never."""
    approval_seconds: float = 86_400.0
    approver: str | None = None
    grace_seconds: float = 5.0
    """How long a CLI that is ended may take before it is killed."""
    structured: bool = False
    """Driven in the CLI's own protocol over pipes, instead of in a terminal."""
    columns: int = 200
    rows: int = 50
    merge_bytes_max: int = 4_000_000
    """A record of at most this many bytes is merged whole after every turn."""
    timing: Timing = Timing()

    @property
    def role_key(self) -> str:
        """Who this is: the same key goes on in the same native session."""
        return _digest(self.cli, self.role, sorted(self.capabilities))

    @property
    def definition_key(self) -> str:
        """With what it was launched: another key means that a running process is outdated."""
        return _digest(
            self.cwd,
            list(self.command),
            list(self.args),
            self.model,
            self.instructions,
            dict(self.mcp),
            dict(self.env),
            list(self.env_pass),
            *(["structured"] if self.structured else []),
        )

    @property
    def instructions_key(self) -> str:
        """The instructions, as a marker."""
        return _digest(self.instructions) if self.instructions else ""


def _digest(*values: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()[:24]


def environment(
    config: RetainedConfig, adapter: Adapter, own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of a CLI: a few of our own variables, the adapter's, the agent's."""
    here = os.environ if own is None else own
    patterns = (*ENV_PASSED, *adapter.ENV_PASSED, *config.env_pass)
    passed = {name: value for name, value in here.items() if _passes(name, patterns)}
    return {**passed, **adapter.ENV_SET, **config.env}


def _passes(name: str, patterns: tuple[str, ...]) -> bool:
    return any(
        name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])) for pattern in patterns
    )


def bypasses(config: RetainedConfig, adapter: Adapter) -> bool:
    """Whether the CLI was told to ask nobody before it acts."""
    words = (*config.command, *config.args)
    return any(word in adapter.BYPASS_ARGS or word.partition("=")[2] in adapter.BYPASS_ARGS for word in words)
