"""A real `turnkeeper serve` on this machine, to be killed at any moment and started again; and its client.

    server = ServerProcess(tmp_path / "data")
    await server.start()
    api = Api(server.url, server.token())
    ...
    server.kill()            # SIGKILL, nothing is said to it
    await server.start()     # the same folder, port and tokens

`Api` speaks the outer interface and nothing else: what it can do, any client can. Both are for tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2

from turnkeeper.testing.until import until

SOURCE = Path(__file__).parents[2]

START_SECONDS = 60.0
"""How long a server may take to be ready before a test gives up on it."""


class ServerDied(Exception):
    """The server ended by itself; its last words follow."""


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """One server on one data folder. `settings` are given as TURNKEEPER_... variables."""

    def __init__(
        self,
        data: Path,
        *,
        agents: Path | None = None,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "turnkeeper"),
    ) -> None:
        self.data = data
        self.port = free_port()
        self.log = data.parent / f"{data.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._program = tuple(program)
        self._agents = agents
        self._environment = {
            **os.environ,
            **{f"TURNKEEPER_{name.upper()}": str(value) for name, value in (settings or {}).items()},
            **(environment or {}),
        }
        # The server runs the same code as the test, whatever else is installed.
        paths = [str(SOURCE), *filter(None, [self._environment.get("PYTHONPATH")])]
        self._environment["PYTHONPATH"] = os.pathsep.join(paths)
        self._tokens: dict[str, str] = {}

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    async def start(self, *, failpoint: str | None = None, wait: bool = True) -> None:
        """Start it and wait until it is ready. `failpoint` arms one: `name:nth:kill`."""
        assert not self.alive
        command = [*self._program, "serve", "--data", str(self.data), "--port", str(self.port)]
        if self._agents is not None:
            command += ["--agents", str(self._agents)]
        environment = dict(self._environment)
        if failpoint is not None:
            environment["TURNKEEPER_FAILPOINT"] = failpoint
        self.process = self._spawn(command, environment)
        self.starts += 1
        if wait:
            await self.ready()

    def _spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # our own program and what the test gave
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    async def ready(self) -> None:
        """Wait until it answers that it is ready. Raises ServerDied with its last words."""
        async with httpx2.AsyncClient() as client:

            async def answers() -> bool:
                if not self.alive:
                    raise ServerDied(self.last_words())
                try:
                    answer = await client.get(f"{self.url}/readyz")
                except httpx2.TransportError:
                    return False
                return answer.status_code == 200

            await until(answers, f"a ready server on port {self.port}", seconds=START_SECONDS)

    def kill(self) -> None:
        """SIGKILL. It is gone when this returns."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    async def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return await self.ended()

    def freeze(self) -> None:
        """SIGSTOP: it stands still, its clock does not."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    async def ended(self, *, seconds: float = START_SECONDS) -> int:
        """Wait for its end, and return the exit code (negative: the signal)."""
        await until(lambda: not self.alive, "the end of the server", seconds=seconds)
        assert self.process is not None
        return self.process.wait()

    def last_words(self, *, lines: int = 40) -> str:
        """The end of what it printed."""
        text = self.log.read_text("utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another verb of the command line beside it; returns what it printed."""
        return subprocess.run(  # noqa: S603  # our own program and what the test gave
            [*self._program, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=START_SECONDS,
        )

    def token(self, user: str = "owner") -> str:
        """A bearer token of `user`, made once."""
        if user not in self._tokens:
            made = self.run("token", "create", "--data", str(self.data), "--user", user)
            self._tokens[user] = made.stdout.strip()
        return self._tokens[user]

    async def __aenter__(self) -> ServerProcess:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, if it still runs."""
        if self.process is not None and self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.thaw()
            self.kill()


class Api:
    """The outer interface of a server, as one user with one token."""

    def __init__(self, url: str, token: str, *, timeout_seconds: float = 30.0) -> None:
        self.client = httpx2.AsyncClient(
            base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=timeout_seconds
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self.client.aclose()

    async def __aenter__(self) -> Api:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def get(self, path: str, **query: Any) -> Any:
        """The JSON at `path`. Raises HTTPStatusError unless it is a 2xx."""
        answer = await self.client.get(path, params=query)
        answer.raise_for_status()
        return answer.json()

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """Post JSON; the answer, whatever it is."""
        return await self.client.post(path, json={} if body is None else body, headers=headers)

    async def create(self, agent: str = "demo") -> str:
        """A new conversation."""
        answer = await self.post("/v1/conversations", {"agent": agent})
        answer.raise_for_status()
        return str(answer.json()["conversation_id"])

    async def submit(self, conversation_id: str, text: str | None, key: str, **body: Any) -> httpx2.Response:
        """Send a message under `key`; the answer, whatever it is."""
        words = {} if text is None else {"text": text}
        path = f"/v1/conversations/{conversation_id}/turns"
        return await self.client.post(path, json={**words, **body}, headers={"idempotency-key": key})

    async def snapshot(self, conversation_id: str) -> Any:
        """The conversation as of now."""
        return await self.get(f"/v1/conversations/{conversation_id}")

    async def turn(self, turn_id: str) -> Any:
        """A turn as of now."""
        return await self.get(f"/v1/turns/{turn_id}")

    async def messages(self, conversation_id: str) -> list[Any]:
        """The whole history, ascending, read page by page."""
        rows: list[Any] = []
        query: dict[str, Any] = {}
        while True:
            page = await self.get(f"/v1/conversations/{conversation_id}/messages", **query)
            rows = page["messages"] + rows
            if page["next"] is None:
                return rows
            query = {"before": page["next"]}

    async def events(self, conversation_id: str) -> list[Any]:
        """The whole journal as of now."""
        last = (await self.snapshot(conversation_id))["as_of_seq"]
        seen: list[Any] = []
        if last == 0:
            return seen
        async for frame in self.stream(conversation_id, after=0):
            if frame.seq is not None:
                seen.append(frame.data)
                if frame.seq >= last:
                    break
        return seen

    async def stream(
        self, conversation_id: str, *, after: int | None = None, last_event_id: str | None = None
    ) -> AsyncIterator[Frame]:
        """The frames of an event stream, for as long as the server sends them."""
        path = f"/v1/conversations/{conversation_id}/events"
        headers = {} if last_event_id is None else {"last-event-id": last_event_id}
        query = {} if after is None else {"after": after}
        async with self.client.stream(
            "GET", path, params=query, headers=headers, timeout=httpx2.Timeout(30.0, read=None)
        ) as answer:
            if answer.status_code != 200:
                await answer.aread()
                answer.raise_for_status()
            async for frame in frames(answer.aiter_lines()):
                yield frame

    async def settled(self, turn_id: str, *, seconds: float = 60.0) -> Any:
        """Wait for the end of a turn; return it as it is then."""

        async def ended() -> Any:
            turn = await self.turn(turn_id)
            return turn if turn["state"] in ("settled", "failed", "cancelled") else None

        return await until(ended, f"the end of {turn_id}", seconds=seconds)

    async def drained(self, conversation_id: str, *, seconds: float = 60.0) -> None:
        """Wait until nothing runs and nothing waits in a conversation."""

        async def empty() -> bool:
            snapshot = await self.snapshot(conversation_id)
            return snapshot["running"] is None and not snapshot["queue"]

        await until(empty, f"an empty lane of {conversation_id}", seconds=seconds)


class Frame:
    """One frame of an event stream: `seq` for a durable event, None for everything volatile."""

    __slots__ = ("data", "name", "seq")

    def __init__(self, name: str, data: Any, seq: int | None) -> None:
        self.name = name
        self.data = data
        self.seq = seq

    def __repr__(self) -> str:
        """For failing tests."""
        return f"Frame({self.name!r}, seq={self.seq}, {self.data!r})"


async def frames(lines: AsyncIterator[str]) -> AsyncIterator[Frame]:
    """Server-sent events out of lines, as the standard has them. Comments are left out."""
    name, seq = "message", None
    data: list[str] = []
    async for line in lines:
        if not line:
            if data:
                yield Frame(name, json.loads("\n".join(data)), seq)
            name, data, seq = "message", [], None
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            seq = int(value)


async def all_ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel `tasks` and wait for them; an error that one of them raised is raised here."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
