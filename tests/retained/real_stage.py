"""A stage with a real coding CLI from npm: empty home, clean environment, a scripted model on the loopback.

Whatever runs is at an exact version (tests/needs.py). Nothing of this user's environment reaches it but PATH and locale.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.needs import CLIS, NODE
from tests.retained.stage import Stage
from turnkeeper.retained.config import RetainedConfig
from turnkeeper.retained.machine.state import Timing
from turnkeeper.retained.signs import SignKind
from turnkeeper.retained.tape import Tape
from turnkeeper.testing.model_server import ModelServer
from turnkeeper.testing.model_server.anthropic_wire import AnthropicWire
from turnkeeper.testing.model_server.wire import Asked

TOOL_SECONDS = 45
EACH_CLI = [
    pytest.param("pi", marks=[pytest.mark.pi_cli]),
    pytest.param("codex", marks=[pytest.mark.codex_cli]),
    pytest.param("claude-code", marks=[pytest.mark.claude_cli]),
]
LONG = 60.0
"""Seconds that a real CLI may take for a turn."""
KEPT = {"PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV"}


def clean_environment(patch: pytest.MonkeyPatch, home: Path) -> None:
    """What `env -i` leaves, and a home of its own."""
    for name in list(os.environ):
        if name not in KEPT and not name.startswith("PYTEST"):
            patch.delenv(name)
    patch.setenv("HOME", str(home))
    patch.setenv("TERM", "xterm-256color")


def script(cli: str) -> dict[str, Any]:
    """Answers `ok TEXT`; SLOW streams for long; TOOL runs a tool for long; SHORT runs one for a moment."""

    def shell(command: str) -> dict[str, Any]:
        if cli == "codex":
            return {"name": "exec_command", "arguments": {"cmd": command}}
        return {"name": "bash" if cli == "pi" else "Bash", "arguments": {"command": command}}

    sleep = f"perl -e 'sleep {TOOL_SECONDS}'"
    return {
        "rules": [
            {"match": r"\ASLOW", "rounds": [{"text": "word " * 200, "chars_per_s": 25}]},
            {
                "match": r"\AWHILE",
                "rounds": [{"text": "words that take a while, as an answer does", "chars_per_s": 12}],
            },
            {"match": r"\ATOOL", "rounds": [{"tool_calls": [shell(sleep)]}, {"text": "the tool is done"}]},
            {
                "match": r"\ASHORT",
                "rounds": [{"tool_calls": [shell("perl -e 'sleep 3'; echo done")]}, {"text": "it was short"}],
            },
        ]
    }


class ClaudeWire(AnthropicWire):
    """What claude-code itself adds to a prompt is not what a person said."""

    def read(self, body: Any, model: str) -> Asked:
        asked = super().read(body, model)
        asked.user_texts = [text for text in asked.user_texts if not text.startswith(ADDED)]
        return asked


ADDED = ("# Environment", "<system-reminder>")


class RealStage(Stage):
    """One real CLI behind a Keeper."""

    def __init__(self, folder: Path, cli: str, model: ModelServer, **more: Any) -> None:
        super().__init__(folder, cli, **more)
        self.model = model
        if cli == "claude-code":
            model._wires["anthropic"] = ClaudeWire()
        self._prepare()

    def config(self) -> RetainedConfig:
        """The agent, at its own pace."""
        more = dict(self.config_more)
        program = {"claude-code": "claude"}.get(self.cli, self.cli)
        args = {
            "pi": ("--provider", "mock"),
            "codex": (),
            "claude-code": ("--permission-mode", "bypassPermissions"),
        }[self.cli]
        env = {"HOME": str(self.home), "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}"} | {
            "pi": {"PI_OFFLINE": "1"},
            "codex": {"MOCK_KEY": "none", "NO_PROXY": "127.0.0.1"},
            "claude-code": {
                "ANTHROPIC_BASE_URL": self.model.url,
                "ANTHROPIC_API_KEY": "none-none-none-none-none",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_TELEMETRY": "1",
                "DISABLE_ERROR_REPORTING": "1",
                "IS_SANDBOX": "1",
            },
        }[self.cli]
        more.setdefault("model", "mock-1" if self.cli == "pi" else "")
        return RetainedConfig(
            agent="a",
            cli=self.cli,
            cwd=str(self.cwd),
            command=(str(CLIS / "node_modules" / ".bin" / program),),
            args=args,
            env=env,
            grace_seconds=1.0,
            timing=Timing(),
            **more,
        )

    def _prepare(self) -> None:
        """The files that make a fresh installation ask nothing."""
        if self.cli == "pi":
            folder = self.home / ".pi" / "agent"
            folder.mkdir(parents=True)
            model = {"id": "mock-1", "contextWindow": 128_000, "maxTokens": 8_000, "reasoning": False}
            provider = {
                "baseUrl": f"{self.model.url}/v1",
                "apiKey": "none",
                "api": "openai-completions",
                "models": [model],
            }
            (folder / "models.json").write_text(json.dumps({"providers": {"mock": provider}}))
            (folder / "settings.json").write_text(
                json.dumps({"defaultProjectTrust": "never", "quietStartup": True})
            )
        elif self.cli == "codex":
            folder = self.home / ".codex"
            folder.mkdir()
            (folder / "config.toml").write_text(
                f"""model = "mock-1"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.mock]
name = "mock"
base_url = "{self.model.url}/v1"
wire_api = "responses"
env_key = "MOCK_KEY"
supports_websockets = false
request_max_retries = 1
stream_max_retries = 1
[analytics]
enabled = false
"""
            )
        else:
            (self.home / ".claude").mkdir()
            (self.home / ".claude" / "settings.json").write_text(
                json.dumps({"skipDangerousModePermissionPrompt": True})
            )
            (self.home / ".claude.json").write_text(
                json.dumps(
                    {
                        "hasCompletedOnboarding": True,
                        "theme": "dark",
                        "bypassPermissionsModeAccepted": True,
                        "customApiKeyResponses": {
                            "approved": ["none-none-none-none-none"[-20:]],
                            "rejected": [],
                        },
                        "projects": {str(self.cwd): {"hasTrustDialogAccepted": True}},
                    }
                )
            )

    def asked(self) -> list[str]:
        """The bodies of all requests that reached the model."""
        return [seen.body.decode("utf-8", "replace") for seen in self.model.requests]

    async def recorded(self) -> list[str]:
        """The texts that the CLI itself wrote down as a person's, in its session of now."""
        session = await self.runner.session(self.conversation_id)
        signs = Tape(session.adapter, session.tape.path).poll()
        return [sign.text for sign in signs if sign.kind is SignKind.TAKEN]

    async def native_id(self) -> str | None:
        """The native session of now."""
        return (await self.runner.session(self.conversation_id)).keep.native_id

    async def until_asked(self, words: str) -> None:
        """Wait until the model was asked with these words."""
        await self.until(lambda: any(words in body for body in self.asked()), 40, f"nobody asked {words!r}")

    async def said(self) -> list[str]:
        """History without the words of narration: each line as `u:` or `a:`."""
        return [line for line in await self.history() if line[:2] in ("u:", "a:")]

    async def screen(self) -> str:
        """The pane, for failures."""
        try:
            return await self.runner.snapshot(self.conversation_id)
        except Exception as error:
            return repr(error)

    def tail(self) -> str:
        """The newest that the model was asked."""
        return "\n".join(body[-400:] for body in self.asked()[-3:])


async def settled(stage: RealStage, *turns: str) -> None:
    """These turns were answered, and their records found."""
    for turn_id in turns:
        turn = await stage.ended(turn_id, LONG)
        assert (turn.state, turn.receipt.state) == ("settled", "confirmed"), (turn, await stage.screen())
