"""Plays one delivery case with a `cli` or `pane` step: every step at its (scaled) second, on a real server and tmux.

A second of a case is `scale` real seconds, and all thresholds of the agent are scaled alike (`world.timing`). A pane
that a step needs before any message was sent is made by a first message of the player's own, which no expectation
counts. Each verb of the cases' README that concerns a pane is a method `do_<verb>`, each operation on it `pane_<op>`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import pty
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import psutil

from tests.acceptance.delivery.agents import text_of
from tests.acceptance.delivery.player import Posted, Watcher
from tests.retained.cases.quirks_of import PROFILES, locate_file, menu_of, native, quirks_of
from tests.retained.cases.world import Cli, World
from turnkeeper.terminal.processes import MARK_VARIABLE
from turnkeeper.testing.until import Pace, until

WARM_UP = "[[text:ready]] [[seconds:0.05]] (the player starts the CLI)"
FAULT_SECONDS = 2.5
"""Real seconds that a fault of tmux lasts at least: the pane is looked at once a second."""
CATCH_UP_SECONDS = 15.0
FAULTS = frozenset(
    {"pane", "fs", "kill_server", "stop_server", "tmux_fault", "set_cwd", "cancel", "close_conversation"}
)
"""Steps that hit what is under way: they wait until it is."""
PANE_VERBS = frozenset({"pane", "close_conversation", "open", "transcript", "tmux_fault"})


def own_server(case: dict[str, Any]) -> bool:
    """Whether a case does something to its server, so that no other case may share it."""
    alone = {"failpoint", "kill_server", "stop_server", "start_server", "tmux_fault", "set_cwd", "disk_full"}
    return any(step["do"] in alone for step in case["steps"])


class Play:
    """One case."""

    def __init__(self, case: dict[str, Any], world: World, scale: float) -> None:
        self.case = case
        self.world = world
        self.scale = scale
        self.id: str = case["id"].lower()
        self.folder = world.folder / self.id
        self.folder.mkdir()
        self.pace = Pace(scale)
        self.posted: dict[str, Posted] = {}
        self.convs: dict[str, str] = {}
        self.late_s = 0.0
        self.clis: dict[str, Cli] = {}
        self.watchers: dict[str, Watcher] = {}
        self.results: dict[str, Any] = {"server": None}
        self.terminals: dict[str, list[tuple[float, dict[str, Any]]]] = {}
        self.frames: list[Any] = []
        self.native_labels: dict[str, str] = {}
        self.warmed: set[str] = set()
        self._tasks: list[asyncio.Task[Any]] = []
        self._attached: list[subprocess.Popen[bytes]] = []
        self._sockets: set[str] = set()
        self._bystander: subprocess.Popen[bytes] | None = None
        self._make_clis()

    def _make_clis(self) -> None:
        steps = self.case["steps"]
        told: dict[str, dict[str, Any]] = {}
        for step in steps:
            if step["do"] == "cli":
                told[step["conv"]] = step
            elif step["do"] == "config" and "cli_boot_s" in step:
                turn_s = next((s["run_s"] for s in steps if s["do"] == "script_agent"), 1)
                told["c1"] = {"profile": "claude", "boot_s": step["cli_boot_s"], "turn_s": turn_s}
        for conv in {step.get("conv", "c1") for step in steps}:
            step = told.get(conv, {"profile": "claude"})
            cwd = self.path(step["cwd"]) if "cwd" in step else self.folder / "work"
            agent = f"{self.id}-{conv}"
            cli = Cli(
                self.folder / conv,
                agent,
                PROFILES[step["profile"]],
                quirks_of(step, self.scale),
                cwd,
                self.scale,
            )
            if "native_session" in step:
                self.native_labels[native(step["native_session"])] = step["native_session"]
            if "resume_yields" in step:
                self.native_labels[native(step["resume_yields"])] = step["resume_yields"]
            cli.mcp = any(s["do"] == "failpoint" and s["name"] in NO_SPACE for s in steps)
            self.clis[conv] = cli
            self.world.clis.append(cli)
        self.first_session = {conv: step.get("native_session") for conv, step in told.items()}

    def path(self, name: str) -> Path:
        """A path of the case, in its own folder."""
        return self.folder / name.lstrip("/")

    # -- the play

    async def run(self) -> None:
        """Play every step at its second, then go on to the last second that an expectation names."""
        steps = self.case["steps"]
        for step in steps:
            if "conv" in step and step["conv"] not in self.convs:
                await self._make(step["conv"])
        for step in self.case["steps"]:
            if step.get("attached_by"):
                await self._attach(step["conv"])
        await self._warm_up()
        self.pace = Pace(self.scale)
        self._tasks += [asyncio.ensure_future(self._watch_terminal(conv)) for conv in self.convs]
        for step in sorted(steps, key=lambda each: each["at_s"]):
            await self.pace.at(step["at_s"] + self.late_s)
            if step["do"] in FAULTS:
                await self._catch_up(step)
            await self.do(step)

    async def _catch_up(self, step: dict[str, Any]) -> None:
        """Let a busy machine be as far as the case is: what was sent has been taken, and answered if there was time.

        All later steps come that much later.
        """
        began = self.pace.now
        for label, post in self.posted.items():
            told = next(each for each in self.case["steps"] if each.get("msg") == label)
            turn_s = next((s.get("turn_s", 1) for s in self.case["steps"] if s["do"] == "cli"), 1)
            left = step["at_s"] - told["at_s"]
            if post.turn_id is None or left < 3 or not self.world.server.alive:
                continue
            kinds = {"ReceiptMoved"} if left < turn_s + 2 else {"TurnSettled", "TurnFailed", "TurnCancelled"}
            watcher = self.watchers[post.conv]
            with contextlib.suppress(TimeoutError):
                await until(
                    lambda w=watcher, t=post.turn_id, k=kinds: any(  # type: ignore[misc]
                        e["kind"] in k and e.get("turn_id") == t for e in w.events
                    ),
                    label,
                    seconds=CATCH_UP_SECONDS,
                )
        self.late_s += self.pace.now - began

    async def _make(self, conv: str) -> None:
        api = self.world.api
        self.convs[conv] = await api.create(self.clis[conv].agent)
        self.watchers[conv] = watcher = Watcher()
        self._tasks.append(asyncio.ensure_future(self._watch(conv, watcher)))

    async def _watch(self, conv: str, watcher: Watcher) -> None:
        while True:
            with contextlib.suppress(httpx2.TransportError, httpx2.HTTPStatusError):
                async for frame in self.world.api.stream(self.convs[conv], after=watcher.last):
                    if frame.seq is not None:
                        watcher.events.append(frame.data)
                        watcher.came_at.append(self.pace.now)
            await self.pace.at(self.pace.now + 0.1 / self.scale)

    async def _watch_terminal(self, conv: str) -> None:
        seen = self.terminals.setdefault(conv, [])
        while True:
            with contextlib.suppress(httpx2.TransportError, httpx2.HTTPStatusError):
                seen.append((self.pace.now, await self.terminal(conv)))
            await self.pace.at(self.pace.now + max(0.2 / self.scale, 2))

    async def _warm_up(self) -> None:
        """Have a CLI ready where a step meddles with its pane before anything was sent."""
        for conv in self.convs:
            mine = [step for step in self.case["steps"] if step.get("conv") == conv]
            mine.sort(key=lambda each: each["at_s"])
            acts = [step for step in mine if step["do"] not in {"cli", "config", "script_agent"}]
            early = bool(acts) and acts[0]["do"] in PANE_VERBS
            has_cli = any(step["do"] == "cli" for step in mine)
            if early or (has_cli and not acts):
                await self._start_cli(conv)

    async def _start_cli(self, conv: str) -> None:
        if conv in self.warmed:
            return
        self.warmed.add(conv)
        answer = await self.world.api.submit(self.convs[conv], WARM_UP, "warm-up")
        answer.raise_for_status()
        await self.world.api.settled(answer.json()["turn_id"])

    async def close(self) -> None:
        """End the clients, the panes, and what the player itself started."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in [*self._attached, *([self._bystander] if self._bystander else [])]:
            process.kill()
            process.wait()
        if self.world.server.alive:
            for conversation_id in self.convs.values():
                with contextlib.suppress(httpx2.HTTPError):
                    await self.world.api.client.delete(f"/v1/conversations/{conversation_id}")
        for socket in self._sockets:
            await self._tmux_at(socket, "kill-server")
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def processes(self) -> list[psutil.Process]:
        """Everything that runs with the mark of one of this case's panes."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mark = process.environ().get(MARK_VARIABLE, "")
                if any(mark.startswith(f"{each}.") for each in self.convs.values()):
                    found.append(process)
        return found

    async def do(self, step: dict[str, Any]) -> None:
        """One step."""
        verb: Callable[[dict[str, Any]], Awaitable[None]] | None = getattr(self, f"do_{step['do']}", None)
        if verb is None:
            raise NotImplementedError(f"the player has no verb {step['do']!r}")
        await verb(step)

    async def _said_before(self, step: dict[str, Any]) -> None:
        """Read when the world was made."""

    do_cli = do_config = do_script_agent = do_noop = do_failpoint = _said_before

    async def do_parallel(self, step: dict[str, Any]) -> None:
        await asyncio.gather(*(self.do({**inner, "at_s": step["at_s"]}) for inner in step["steps"]))

    # -- the API

    async def do_post(self, step: dict[str, Any]) -> None:
        label = step["msg"]
        post = Posted(label, step["conv"], text_of(step), step.get("key", label))
        self.posted[label] = post
        mode = {"live-input": "steer"}.get(step.get("mode", "queue"), step.get("mode", "queue"))
        body: dict[str, Any] = {"mode": mode}
        if step.get("as_command"):
            body["options"] = {"as_command": True}
        began = time.monotonic()
        for _ in range(20):
            try:
                post.answers.append(
                    await self.world.api.submit(self.convs[post.conv], post.text, post.key, **body)
                )
                break
            except httpx2.TransportError:
                # It died on the way: a client sends it again with the same key once there is a server.
                await until(lambda: self.world.server.alive, "a server", seconds=60)
                await self.world.server.ready()
        post.answered_at.append(time.monotonic() - began)
        if any(each["do"] == "failpoint" and each["name"] in FAILPOINTS for each in self.case["steps"]):
            await self.world.server.ended()

    async def do_deliver(self, step: dict[str, Any]) -> None:
        await self.do_post({"mode": "steer", **step})

    async def do_cancel(self, step: dict[str, Any]) -> None:
        turn_id = self.posted[step["msg"]].turn_id
        self.results["cancel"] = await self.world.api.post(
            f"/v1/turns/{turn_id}/cancel", {"queue": "continue"}
        )

    async def do_steer_queued(self, step: dict[str, Any]) -> None:
        turn_id = self.posted[step["msg"]].turn_id
        self.results["steer_queued"] = await self.world.api.post(
            f"/v1/turns/{turn_id}/send-now", {"mode": "steer"}
        )

    async def do_approve(self, step: dict[str, Any]) -> None:
        async def asked() -> Any:
            return (await self.world.api.get("/v1/approvals"))["approvals"]

        (approval,) = [
            each
            for each in await until(asked, "a question")
            if each["conversation_id"] == self.convs[step.get("conv", "c1")]
        ]
        self.results["approve"] = await self.world.api.post(
            f"/v1/approvals/{approval['approval_id']}", {"decision": step.get("decision", "approve")}
        )

    async def do_close_conversation(self, step: dict[str, Any]) -> None:
        """Closed is archived: it may be opened again, and until then nothing of it runs."""
        self._bystander = subprocess.Popen(["/bin/sleep", "600"], cwd=self.clis[step["conv"]].cwd)
        self.results["before"] = len(self.processes())
        answer = await self.world.api.client.patch(
            f"/v1/conversations/{self.convs[step['conv']]}", json={"archived": True}
        )
        answer.raise_for_status()

    async def do_ps(self, step: dict[str, Any]) -> None:
        self.results["after"] = [process.cmdline() for process in self.processes()]
        self.results["bystander"] = self._bystander is not None and self._bystander.poll() is None

    async def do_import(self, step: dict[str, Any]) -> None:
        answer = await self.world.api.post(f"/v1/conversations/{self.convs[step['conv']]}/reconcile")
        answer.raise_for_status()

    # -- a page with a terminal

    async def do_open(self, step: dict[str, Any]) -> None:
        path = f"/v1/conversations/{self.convs[step['conv']]}/terminal"
        (await self.world.api.post(f"{path}/take-over")).raise_for_status()
        self._tasks.append(asyncio.ensure_future(self._view(path)))
        await until(lambda: self.frames, "the terminal's first frame")
        self.results["viewing"] = path

    async def _view(self, path: str) -> None:
        from turnkeeper.testing.server_process import frames

        async with self.world.api.client.stream(
            "GET", f"{path}/stream", timeout=httpx2.Timeout(30.0, read=None)
        ) as answer:
            async for frame in frames(answer.aiter_lines()):
                self.frames.append(frame)

    async def do_ws_send(self, step: dict[str, Any]) -> None:
        data = base64.b64encode(step["data"].encode()).decode()
        for _ in range(step.get("times", 1)):
            answer = await self.world.api.post(f"{self.results['viewing']}/keys", {"data": data})
            self.results.setdefault("typed", []).append(answer.status_code)

    async def do_reload(self, step: dict[str, Any]) -> None:
        conversation_id = self.convs[step["conv"]]
        await self.world.api.drained(conversation_id)
        self.results["reloaded"] = await self.world.api.messages(conversation_id)

    # -- the pane

    async def terminal(self, conv: str) -> dict[str, Any]:
        """What the server says of a conversation's CLI."""
        return dict(await self.world.api.get(f"/v1/conversations/{self.convs[conv]}/terminal"))

    async def socket(self, conv: str) -> str:
        """The socket of the conversation's tmux."""
        found = await self.world.api.get(f"/v1/conversations/{self.convs[conv]}/terminal/attach")
        socket = found["command"][found["command"].index("-S") + 1]
        self._sockets.add(socket)
        return str(socket)

    async def _tmux_at(self, socket: str, *words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "tmux", "-S", socket, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        told, _ = await process.communicate()
        return told.decode().strip()

    async def tmux(self, conv: str, *words: str) -> str:
        """A command of the conversation's own tmux."""
        return await self._tmux_at(await self.socket(conv), *words)

    async def do_pane(self, step: dict[str, Any]) -> None:
        op: Callable[[dict[str, Any]], Awaitable[None]] = getattr(self, f"pane_{step['op']}")
        await op(step)

    async def _id(self, step: dict[str, Any]) -> str:
        async def there() -> Any:
            with contextlib.suppress(httpx2.HTTPStatusError):
                return (await self.terminal(step["conv"]))["pane"]

        return str(await until(there, "a pane"))

    async def pane_type(self, step: dict[str, Any]) -> None:
        await self.tmux(step["conv"], "send-keys", "-l", "-t", await self._id(step), step["text"])

    async def pane_type_submit(self, step: dict[str, Any]) -> None:
        await self.pane_type(step)
        await self.tmux(step["conv"], "send-keys", "-t", await self._id(step), "Enter")

    async def pane_copy_mode(self, step: dict[str, Any]) -> None:
        pane = await self._id(step)
        await self.tmux(step["conv"], "copy-mode", "-t", pane)
        mode = await self.tmux(step["conv"], "display-message", "-p", "-t", pane, "#{pane_in_mode}")
        assert mode == "1", mode

    async def pane_split(self, step: dict[str, Any]) -> None:
        await self.tmux(step["conv"], "split-window", "-t", await self._id(step), "cat > /dev/null")

    async def pane_focus_other(self, step: dict[str, Any]) -> None:
        await self.tmux(step["conv"], "select-window", "-t", "tk:hold")

    async def pane_resize(self, step: dict[str, Any]) -> None:
        pane = await self._id(step)
        size = ("-x", str(step["cols"]), "-y", str(step["rows"]))
        self.results["fresh_size"] = await self.tmux(
            step["conv"], "display-message", "-p", "-t", pane, "#{pane_width} #{pane_height}"
        )
        await self.tmux(step["conv"], "resize-window", "-t", pane, *size)

    async def pane_print(self, step: dict[str, Any]) -> None:
        self.clis[step["conv"]].order(do="print", text=step["text"])

    async def pane_freeze_capture(self, step: dict[str, Any]) -> None:
        self.clis[step["conv"]].order(do="freeze", seconds=step.get("for_s", 30) * self.scale)

    async def pane_show_menu(self, step: dict[str, Any]) -> None:
        cli = self.clis[step["conv"]]
        menu = dict(step["menu"])
        order: dict[str, Any] = {"do": "menu", "menu": menu_of(menu)}
        if "resets_at_s" in menu:
            began = [entry["at"] for entry in cli.log() if "launch" in entry][-1]
            at = time.time() + (menu["resets_at_s"] - self.pace.now) * self.scale
            body = (f"Your limit resets at {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(at + 1))}",)
            order["menu"] = menu_of(menu, resets_at_s=at - began, body=body)
        cli.order(**order)

    async def pane_exit(self, step: dict[str, Any]) -> None:
        if not [entry for entry in self.clis[step["conv"]].log() if "launch" in entry]:
            await self._id(step)
        self.clis[step["conv"]].order(do="exit", code=step.get("code", 0))

    async def pane_kill(self, step: dict[str, Any]) -> None:
        os.kill((await self.terminal(step["conv"]))["pid"], signal.SIGKILL)

    async def pane_kill_server(self, step: dict[str, Any]) -> None:
        await self.tmux(step["conv"], "kill-server")

    async def pane_reuse_pane_id(self, step: dict[str, Any]) -> None:
        """The pane goes with its server, and another program gets the same socket, session and pane id."""
        pane = await self._id(step)
        socket = await self.socket(step["conv"])
        await self._tmux_at(socket, "kill-server")
        heard = self.folder / "stranger"
        for _ in range(int(pane.lstrip("%")) + 1):
            await self._tmux_at(socket, "new-session", "-d", "-s", f"s{_}", f"cat > {heard}")
        await self._tmux_at(socket, "rename-session", "-t", f"=s{int(pane.lstrip('%'))}", "tk")
        self.results["stranger"] = heard

    async def _attach(self, conv: str) -> None:
        """A person's own terminal, attached to the pane for reading and writing."""
        await self._start_cli(conv)
        command = (await self.world.api.get(f"/v1/conversations/{self.convs[conv]}/terminal/attach"))[
            "command"
        ]
        leader, follower = pty.openpty()
        self._attached.append(
            subprocess.Popen(
                command,
                stdin=follower,
                stdout=follower,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "TERM": "xterm"},
                start_new_session=True,
            )
        )
        os.close(follower)
        asyncio.get_running_loop().add_reader(leader, _drain, leader)

    # -- faults

    async def do_tmux_fault(self, step: dict[str, Any]) -> None:
        """No tmux can be run and the control connection is lost; or tmux answers nobody."""
        seconds = max(FAULT_SECONDS, step["for_s"] * self.scale)
        socket = await self.socket(step.get("conv", "c1"))
        if step["kind"] == "timeout":
            server = int(await self._tmux_at(socket, "display-message", "-p", "#{pid}"))
            os.kill(server, signal.SIGSTOP)
            await self.pace.at(self.pace.now + seconds / self.scale)
            os.kill(server, signal.SIGCONT)
        else:
            self.world.fault.touch()
            for client in (await self._tmux_at(socket, "list-clients", "-F", "#{client_pid}")).split():
                os.kill(int(client), signal.SIGKILL)
            await self.pace.at(self.pace.now + seconds / self.scale)
            self.world.fault.unlink()

    async def do_kill_server(self, step: dict[str, Any]) -> None:
        self.world.server.kill()

    async def do_stop_server(self, step: dict[str, Any]) -> None:
        await self.world.server.stop()

    async def do_start_server(self, step: dict[str, Any]) -> None:
        if self.world.server.alive:
            await self.world.server.ended()
        starts = self.world.server.starts
        failpoints = [each for each in self.case["steps"] if each.get("name") in FAILPOINTS]
        again = bool(failpoints) and starts < failpoints[0].get("times", 1)
        await self.world.server.start(failpoint=FAILPOINTS[failpoints[0]["name"]] if again else None)

    async def do_fs(self, step: dict[str, Any]) -> None:
        source = step["src"]
        found = source.removeprefix("native file of ")
        path = self.path(source)
        if found != source:
            native_id = next((k for k, label in self.native_labels.items() if label == found), found)
            path = locate_file(self.clis["c1"].home, native_id)
        if step["op"] == "mv":
            path.rename(self.path(step["dst"]))
            return
        subprocess.run(["rm", "-r", str(path)], check=True)

    async def do_set_cwd(self, step: dict[str, Any]) -> None:
        """The folder stands in the agents file, which is read at the start."""
        self.clis[step["conv"]].cwd = self.path(step["cwd"])
        self.world.write_agents()
        await self.world.server.stop()
        await self.world.server.start()

    async def do_transcript(self, step: dict[str, Any]) -> None:
        """The CLI itself goes on in another file; a /clear just before is what made it do so."""
        cli = self.clis[step.get("conv", "c1")]
        assert step["op"] == "rotate", step["op"]
        cleared = any(entry.get("submit") == "/clear" for entry in cli.log())

        async def elsewhere() -> Any:
            return len((await self.terminal(step.get("conv", "c1")))["sessions"]) > 1

        if any(s["do"] == "post" and s["text"] == "/clear" for s in self.case["steps"]):
            await until(elsewhere, f"another native session (cleared: {cleared})")
            sessions = (await self.terminal("c1"))["sessions"]
            self.native_labels[sessions[-1]] = step["new_session"]
            return
        session = native(step["new_session"])
        self.native_labels[session] = step["new_session"]
        cli.order(do="rotate", session=session)


FAILPOINTS = {"mid_paste": "retained.after_paste:1:kill"}
"""Names of the cases, as names of ours."""
NO_SPACE = frozenset({"workspace_create"})
"""Failpoints that are a real disk without space where the CLI's own files go."""


def _drain(handle: int) -> None:
    with contextlib.suppress(OSError):
        if not os.read(handle, 65_536):
            asyncio.get_running_loop().remove_reader(handle)
