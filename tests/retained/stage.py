"""A Keeper with a scripted CLI in real tmux, and all that a test does to them. Times are scaled alike.

`scale` divides every threshold and every time of a case: with 10, six seconds of waiting for a record are 0.6. The CLI's own
delay before Enter is not scaled, for it is not ours.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from turnkeeper.agent.definition import AgentDefinition
from turnkeeper.app import Keeper
from turnkeeper.app.system import SystemClock, SystemIds
from turnkeeper.app.terminals import DispatchDesk
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.rights import ALL_SCOPES
from turnkeeper.conversation.turns import Mode, Principal
from turnkeeper.projection.view import TurnView
from turnkeeper.retained.config import RetainedConfig
from turnkeeper.retained.machine.state import Timing
from turnkeeper.retained.runner import RetainedRunner
from turnkeeper.settings import Settings
from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.terminal.pane import Pane
from turnkeeper.terminal.tmux import Tmux, run_once
from turnkeeper.testing.scripted_cli.quirks import Quirks
from turnkeeper.testing.until import until

SOURCE = Path(__file__).parents[2] / "src"
OWNER = Principal(user_id="owner", scopes=ALL_SCOPES)
ENDS = {"settled", "failed", "cancelled"}


def scaled(scale: float) -> Timing:
    """All waits divided by `scale`; budgets and the CLI's own delay as they are."""
    kept = {"enter_delay_seconds", "ready_seconds"}
    return Timing(
        **{
            name: value / scale if name.endswith("_seconds") and name not in kept else value
            for name, value in msgspec.structs.asdict(Timing()).items()
        }
    )


class Stage:
    """One data folder, one agent, one server process at a time (this one)."""

    def __init__(
        self, folder: Path, cli: str = "claude-code", quirks: Quirks | None = None, **more: Any
    ) -> None:
        self.folder = folder
        self.cli = cli
        self.quirks = quirks or Quirks()
        self.scale: float = more.pop("scale", 10.0)
        self.config_more = more
        self.home = folder / "home"
        self.cwd = folder / "work"
        for path in (self.home, self.cwd):
            path.mkdir(exist_ok=True)
        self.log_path = folder / "cli.log"
        self.orders_path = folder / "orders"
        self.keeper: Keeper
        self.runner: RetainedRunner
        self.terminal: Tmux
        self.conversation_id = ""
        self._keys = itertools.count(1)
        self._panes: list[Any] = []

    # -- the server

    def config(self) -> RetainedConfig:
        """The agent."""
        return RetainedConfig(
            agent="a",
            cli=self.cli,
            cwd=str(self.cwd),
            command=(sys.executable, "-m", "turnkeeper.testing.scripted_cli", self.cli),
            env={
                "HOME": str(self.home),
                "PYTHONPATH": str(SOURCE),
                "TURNKEEPER_SCRIPTED_LOG": str(self.log_path),
                "TURNKEEPER_SCRIPTED_ORDERS": str(self.orders_path),
                "TURNKEEPER_SCRIPTED_CLI": msgspec.json.encode(self.quirks).decode(),
            },
            grace_seconds=0.5,
            timing=scaled(self.scale),
            **self.config_more,
        )

    async def start(self) -> Stage:
        """Start the server (again)."""
        clock, ids = SystemClock(), SystemIds()
        store = await SQLiteStore.open(self.folder / "data")
        self.terminal = Tmux(self.folder / "t")
        self.runner = RetainedRunner(self.config(), self.terminal, store, clock, ids, self.folder / "kept")
        settings = Settings.load(sweep_seconds=0.2, backstop_seconds=1800 / self.scale)
        self.keeper = await Keeper.open(
            self.folder / "data",
            store=store,
            settings=settings,
            clock=clock,
            ids=ids,
            runners={"a": self.runner},
        )
        self.runner.desk = DispatchDesk(self.keeper.dispatcher, store, clock, ids)
        definition = AgentDefinition(name="a", runner="retained", cli=self.cli)
        self.keeper.agents = {**self.keeper.agents, "a": definition}
        await self.runner.restore()
        if not self.conversation_id:
            made = await self.keeper.create_conversation(OWNER, "a", "")
            self.conversation_id = made.conversation_id
        return self

    async def stop(self, *, grace_seconds: float = 0.2) -> None:
        """Stop the server as planned; panes live on."""
        await self.keeper.close(grace_seconds)

    async def end(self) -> None:
        """End everything that this stage started."""
        for session in list(self.runner._sessions.values()):
            await session.close_pane()
        for identity in self._panes:
            await self.terminal.reap(identity, 0.2)
        await self.keeper.close(0.0)
        for socket in (self.folder / "t").glob("*.sock"):
            await run_once("tmux", "-S", str(socket), "kill-server")

    # -- what people do

    async def post(self, text: str, *, mode: str = "queue", key: str | None = None, **options: Any) -> str:
        """Submit a message; its turn id."""
        accepted = await self.keeper.submit(
            OWNER,
            self.conversation_id,
            key=key or f"k{next(self._keys)}",
            parts=[Text(text)],
            mode=Mode(mode),
            options=options,
        )
        return accepted.turn_id

    async def turn(self, turn_id: str) -> TurnView:
        """The turn as it is now."""
        return await self.keeper.turn(OWNER, turn_id)

    async def until(self, what: Callable[[], Any], seconds: float = 20.0, why: str = "") -> Any:
        """Wait until `what` (a function, perhaps async) gives something true; fail after `seconds`."""
        try:
            return await until(what, why or "the stage", seconds=seconds)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.tail()}") from None

    async def ended(self, turn_id: str, seconds: float = 20.0) -> TurnView:
        """The turn, once it has ended."""

        async def over() -> TurnView | None:
            turn = await self.turn(turn_id)
            return turn if turn.state in ENDS else None

        return await self.until(over, seconds, f"{turn_id} has not ended")

    async def confirmed(self, turn_id: str, seconds: float = 20.0) -> TurnView:
        """The turn, once its receipt is confirmed."""

        async def sure() -> TurnView | None:
            turn = await self.turn(turn_id)
            return turn if turn.receipt.state == "confirmed" else None

        return await self.until(sure, seconds, f"{turn_id} is not confirmed")

    async def history(self) -> list[str]:
        """`u:` user, `a:` answer, `x:` notice; tools and thinking left out."""
        rows, _ = await self.keeper.messages(OWNER, self.conversation_id, limit=200)
        marks = {"user": "u", "assistant": "a", "notice": "x"}
        found = []
        for row in rows:
            text = "".join(part.get("text", "") for part in row.parts if part["type"] == "text")
            if row.role in marks and text and row.display:
                found.append(f"{marks[row.role]}:{text}")
        return found

    # -- what the CLI did

    def log(self) -> list[dict[str, Any]]:
        """Everything that the scripted CLI logged, over all its processes."""
        if not self.log_path.exists():
            return []
        return [msgspec.json.decode(line) for line in self.log_path.read_bytes().splitlines()]

    def tail(self) -> str:
        """The newest of the log, for failures."""
        return "\n".join(str(entry) for entry in self.log()[-12:])

    def submits(self) -> list[str]:
        """The texts that the CLI took, blanks at the ends apart."""
        return [entry["submit"].strip("\n") for entry in self.log() if "submit" in entry]

    def pressed(self) -> list[str]:
        """Keys other than Enter."""
        return [entry["key"] for entry in self.log() if "key" in entry]

    def launches(self) -> list[list[str]]:
        """The arguments of each start."""
        return [entry["launch"] for entry in self.log() if "launch" in entry]

    def chosen(self) -> list[str]:
        """Options of menus that were chosen."""
        return [entry["chose"] for entry in self.log() if "chose" in entry]

    # -- what happens to the pane

    async def pane(self) -> Pane:
        """The pane of the conversation, once there is one."""

        async def there() -> Any:
            session = await self.runner.session(self.conversation_id)
            return session.pane

        found = await self.until(there, why="there is no pane")
        if found.identity not in self._panes:
            self._panes.append(found.identity)
        return found

    def order(self, **order: Any) -> None:
        """Have the CLI do something."""
        with self.orders_path.open("ab") as file:
            file.write(msgspec.json.encode(order) + b"\n")

    async def tmux(self, *words: str) -> str:
        """A command of tmux on the conversation's server."""
        pane = await self.pane()
        code, told = await run_once("tmux", "-S", pane.identity.socket, *words)
        assert code == 0, told
        return told

    async def kill(self, signal: int = 9) -> None:
        """End the CLI's process."""
        os.kill((await self.pane()).identity.pid, signal)

    async def composer(self) -> str:
        """What stands in the composer now."""
        session = await self.runner.session(self.conversation_id)
        _, reading = await session.observe()
        return "" if reading is None else reading.text

    async def ready(self) -> Pane:
        """Launch the CLI by a first turn, so that a test can meddle with an idle one."""
        await self.ended(await self.post("[[seconds:0.05]] first"))
        return await self.pane()
