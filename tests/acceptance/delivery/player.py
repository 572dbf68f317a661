"""Plays a public delivery case against a real server process, through its HTTP interface alone.

Time is scaled: one second of a case is SCALE real seconds, and every threshold of the server is scaled
alike. Each verb of the cases' README that concerns a server is a method `do_<verb>`. A watcher per
conversation follows the event stream as a correct client would, over kills and restarts; what it saw, and
when, is what `expectations.py` judges.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import httpx2

from tests.acceptance.delivery.agents import steps_of, text_of, write_agents
from turnkeeper.testing.promises import Story
from turnkeeper.testing.server_process import Api, Frame, ServerProcess
from turnkeeper.testing.until import Pace, until

SCALE = 0.1
"""Real seconds per second of a case."""

SETTLE_SECONDS = 40.0
"""Real seconds that everything under way may take to end after the last step."""

DISK_BYTES = 16_000_000

PROGRAMS = Path(__file__).parents[1] / "programs"

THRESHOLDS: dict[str, float] = {
    "first_token_seconds": 25,
    "stall_seconds": 20,
    "total_seconds": 180,
    "stop_grace_seconds": 10,
    "shutdown_grace_seconds": 5,
    "lease_seconds": 30,
    "lease_renew_seconds": 10,
    "sweep_seconds": 5,
    "undo_seconds": 30,
    "sse_heartbeat_seconds": 15,
    "backstop_seconds": 1800,
    "resume_window_seconds": 1800,
}
"""Defaults in seconds of a case."""

A_USER = "u1"


def size_of(pid: int) -> tuple[int, int]:
    """Resident bytes and open files of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (resident,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return resident * 1024, len(list(Path(f"/proc/{pid}/fd").iterdir()))


def own(name: str, user: str) -> str:
    """A conversation that no session names is its user's own: nothing is shared by being nobody's."""
    return f"default of {user}" if name == "default" else name


class Posted:
    """A message of a case: how it was sent, and what came back."""

    def __init__(self, label: str, conv: str, text: str, key: str) -> None:
        self.label = label
        self.conv = conv
        self.text = text
        self.key = key
        self.answers: list[httpx2.Response] = []
        self.answered_at: list[float] = []
        self.stored_as: str | None = None
        """Its turn by the journal, where the sender did not stay for the answer."""

    @property
    def answer(self) -> httpx2.Response:
        """The last answer."""
        return self.answers[-1]

    @property
    def turn_id(self) -> str | None:
        """The turn, once a 202 or the journal named it."""
        stored = [each for each in self.answers if each.status_code == 202]
        return str(stored[-1].json()["turn_id"]) if stored else self.stored_as


class Watcher:
    """A client that follows one conversation: events with the second at which they came."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.came_at: list[float] = []
        self.volatile: list[tuple[float, Frame]] = []
        self.task: asyncio.Task[None] | None = None
        self.closed = False
        self.missed = 0
        """Events that came after its page was closed, read later."""

    def catch_up(self, journal: Sequence[dict[str, Any]], now: float) -> None:
        """Read what came since."""
        later = [event for event in journal if event["seq"] > self.last]
        self.missed = len(later)
        self.events += later
        self.came_at += [now] * len(later)

    @property
    def last(self) -> int:
        """The newest seq it has."""
        return int(self.events[-1]["seq"]) if self.events else 0


class Play:
    """One run of one case."""

    def __init__(self, case: dict[str, Any], folder: Path, scale: float = SCALE) -> None:
        self.case = case
        self.scale = scale
        self.folder = folder
        self.steps = list(steps_of(case))
        self.posted: dict[str, Posted] = {}
        self.convs: dict[str, str] = {}
        self.watchers: dict[str, Watcher] = {}
        self.streams: dict[str, list[Frame]] = {}
        self.results: dict[str, Any] = {}
        self.deaths = 0
        self._mounted = False
        self.failures: list[str] = []
        self.lag_s = 0.0
        """How late the latest step began: a busy machine is no fault of the server's."""
        self._drafts: dict[str, str] = {}
        self._apis: dict[str, Api] = {}
        self._stream_tasks: dict[str, asyncio.Task[None]] = {}
        self._background: list[asyncio.Task[Any]] = []
        folder.mkdir(exist_ok=True)
        agents = write_agents(case, folder, scale)
        program = self._program()
        self.server = ServerProcess(
            folder / "data",
            agents=agents,
            settings=self._settings(),
            environment=self._environment(),
            **({"program": program} if program else {}),
        )
        self.pace = Pace(self.scale)

    # -- before the play

    async def _mount(self) -> None:
        """A small disk of its own for the data folder, so that it can be full."""
        self.server.data.mkdir()
        await asyncio.to_thread(
            subprocess.run,
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(self.server.data)],
            check=True,
        )
        self._mounted = True

    def _settings(self) -> dict[str, float]:
        seconds = dict(THRESHOLDS)
        for step in self.steps:
            if step["do"] == "config":
                if "run_timeout_s" in step:
                    seconds["max_turn_seconds"] = step["run_timeout_s"]
                    seconds["stall_seconds"] = seconds["first_token_seconds"] = 10 * step["run_timeout_s"]
                if "lease_s" in step:
                    seconds["lease_seconds"] = step["lease_s"]
                    seconds["lease_renew_seconds"] = step["lease_s"] / 3
            if step["do"] == "stop_server" and "grace_s" in step:
                seconds["shutdown_grace_seconds"] = step["grace_s"]
        return {name: round(value * self.scale, 3) for name, value in seconds.items()}

    def _environment(self) -> dict[str, str]:
        environment = {"PYTHONPATH": str(PROGRAMS)}
        for step in self.steps:
            if "server_tz" in step:
                environment["TZ"] = step["server_tz"]
            if step["do"] == "fs_kind":
                environment["TURNKEEPER_FS_KIND"] = step["reports"]
        return environment

    def _program(self) -> Sequence[str] | None:
        frozen = any(step["do"] == "clock" and step.get("freeze") for step in self.steps)
        if not frozen:
            return None
        import sys

        return (sys.executable, str(PROGRAMS / "frozen.py"))

    async def api(self, user: str = A_USER) -> Api:
        """The client of a user; the owner is not one of the cases' users."""
        if user not in self._apis:
            token = await asyncio.to_thread(self.server.token, user)
            self._apis[user] = Api(self.server.url, token)
        return self._apis[user]

    async def conv(self, name: str, user: str = A_USER) -> str:
        """The conversation that the case calls `name`, made and watched at its first mention."""
        if name not in self.convs:
            api = await self.api(user)
            self.convs[name] = await api.create()
            self.watchers[name] = watcher = Watcher()
            watcher.task = asyncio.ensure_future(self._watch(name, watcher, api))
        return self.convs[name]

    async def _watch(self, name: str, watcher: Watcher, api: Api) -> None:
        """Follow like a correct client: come back with the last id, for ever."""
        while True:
            with contextlib.suppress(httpx2.TransportError, httpx2.HTTPStatusError):
                after = watcher.last
                async for frame in api.stream(self.convs[name], after=after):
                    if frame.seq is None:
                        watcher.volatile.append((self.pace.now, frame))
                        continue
                    watcher.events.append(frame.data)
                    watcher.came_at.append(self.pace.now)
            await self.pace.at(self.pace.now + 1)

    # -- the play

    async def run(self) -> None:
        """Play every step at its second, then let everything come to its end."""
        if any(step["do"] == "disk_full" for step in self.steps):
            await self._mount()
        starts_itself = any(step["do"] == "fs_kind" for step in self.steps)
        if not starts_itself:
            await self.server.start()
            await self.conv("c1")
        self.pace = Pace(self.scale)
        for step in sorted(self.case["steps"], key=lambda step: step["at_s"]):
            await self.pace.at(step["at_s"])
            self.lag_s = max(self.lag_s, self.pace.now - step["at_s"])
            await self.do(step)
        for task in self._background:
            await task
        if self.server.alive:
            await self._settle()
            await self._collect()

    async def _collect(self) -> None:
        """Read at the end what no event shows."""
        results = self.results
        api = await self.api()
        results["health"] = (await api.client.get("/healthz")).json()
        results["openapi"] = (await api.client.get("/v1/openapi.json")).json()
        results["conversations"] = (await api.get("/v1/conversations"))["conversations"]
        if "u2" in self._apis:
            results["conversations of u2"] = (await self._apis["u2"].get("/v1/conversations"))[
                "conversations"
            ]
        results["journal"] = {}
        for name, conversation_id in self.convs.items():
            answer = await api.client.get(f"/v1/conversations/{conversation_id}")
            if answer.status_code == 200:
                results["journal"][name] = await api.events(conversation_id)
                self.watchers[name].catch_up(results["journal"][name], self.pace.now)
        if "c1" in results["journal"]:
            results["newest"] = results["journal"]["c1"][-1]["seq"]
        for client, seen in self.streams.items():
            task = self._stream_tasks.get(client)
            if task is not None and not task.done():
                newest = results["newest"]
                await until(
                    lambda seen=seen, newest=newest: any(f.seq == newest for f in seen),  # type: ignore[misc]
                    f"seq {newest} on the stream of {client}",
                )

    async def _settle(self) -> None:
        """Wait until nothing runs and nothing that may run waits, then until the watchers have it all."""

        async def ended(name: str, conversation_id: str) -> bool:
            api = await self.api()
            answer = await api.client.get(f"/v1/conversations/{conversation_id}")
            if answer.status_code == 404:
                return True
            seen = answer.json()
            waits = [] if seen["lane"]["paused"] else seen["queue"]
            watcher = self.watchers[name]
            up_to_date = watcher.closed or watcher.last >= seen["as_of_seq"]
            return seen["running"] is None and not waits and up_to_date

        for name, conversation_id in self.convs.items():
            if name in self.watchers:
                await until(
                    lambda n=name, c=conversation_id: ended(n, c),  # type: ignore[misc]
                    f"the end of everything in {name}",
                    seconds=SETTLE_SECONDS,
                )

    async def close(self) -> None:
        """End the clients and the server."""
        tasks = [w.task for w in self.watchers.values() if w.task] + list(self._stream_tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for api in self._apis.values():
            await api.close()
        if self.server.alive:
            self.server.thaw()
            self.server.kill()
        if self._mounted:
            await asyncio.to_thread(subprocess.run, ["umount", str(self.server.data)], check=True)

    async def do(self, step: dict[str, Any]) -> None:
        """One step."""
        verb: Callable[[dict[str, Any]], Awaitable[None]] | None = getattr(self, f"do_{step['do']}", None)
        if verb is None:
            message = f"the player has no verb {step['do']!r}"
            raise NotImplementedError(message)
        await verb(step)

    async def _said_before_the_play(self, step: dict[str, Any]) -> None:
        """Read when the server was set up."""

    async def do_import_row(self, step: dict[str, Any]) -> None:
        """Rows come from transcripts: their reconciling has tests of its own."""

    do_script_agent = do_config = do_fs_kind = do_noop = _said_before_the_play

    # -- the API

    async def do_post(self, step: dict[str, Any]) -> None:
        label = step["msg"]
        user = step.get("user", A_USER)
        name = own(step["conv"], user)
        post = Posted(label, name, text_of(step), step.get("key", label))
        self.posted[label] = post
        conversation_id = await self.conv(name, user)
        api = await self.api(user)
        body: dict[str, Any] = {"mode": step.get("mode", "queue")}
        if step.get("files"):
            body["parts"] = [{"type": "text", "text": post.text}] if post.text else []
            body["parts"] += [await self._upload(api, name) for name in step["files"]]
        text = None if "parts" in body else post.text
        if self._drops_response(label):
            await self._post_and_leave(api, conversation_id, post, {"text": text, **body})
            return
        send = self._send(api, conversation_id, post, text, body, step.get("retry_until_s"))
        if "retry_until_s" in step:
            self._background.append(asyncio.ensure_future(send))
        else:
            await send
        if post.answers and post.answer.status_code == 507:
            await self._look_at_health()

    async def _send(
        self,
        api: Api,
        conversation_id: str,
        post: Posted,
        text: str | None,
        body: dict[str, Any],
        retry_until_s: float | None,
    ) -> None:
        while True:
            try:
                post.answers.append(await api.submit(conversation_id, text, post.key, **body))
                post.answered_at.append(self.pace.now)
                if post.answer.status_code == 202:
                    return
            except httpx2.TransportError as error:
                if retry_until_s is None:
                    self.failures.append(f"{post.label}: {error!r}")
            if retry_until_s is None or self.pace.now > retry_until_s + 100:
                return
            await self.pace.at(self.pace.now + 1)

    def _drops_response(self, label: str) -> bool:
        return any(step["do"] == "proxy" and step.get("drop_response_of") == label for step in self.steps)

    async def do_proxy(self, step: dict[str, Any]) -> None:
        """Looked up by the post that it concerns."""

    async def _post_and_leave(
        self, api: Api, conversation_id: str, post: Posted, body: dict[str, Any]
    ) -> None:
        """Send it, wait until it is stored, and hang up without reading the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        payload = json.dumps(body).encode()
        head = (
            f"POST /v1/conversations/{conversation_id}/turns HTTP/1.1\r\nhost: 127.0.0.1:{self.server.port}\r\n"
            f"authorization: {api.client.headers['authorization']}\r\ncontent-type: application/json\r\n"
            f"idempotency-key: {post.key}\r\ncontent-length: {len(payload)}\r\n\r\n"
        )
        writer.write(head.encode() + payload)
        await writer.drain()

        def stored() -> bool:
            events = self.watchers[post.conv].events
            return any(e["kind"] == "Submitted" and e["body"]["key"] == post.key for e in events)

        await until(stored, f"the submission {post.key}")
        writer.close()
        del reader

    async def _upload(self, api: Api, name: str) -> dict[str, Any]:
        """Upload a file and return the part that holds it."""
        png = b"\x89PNG\r\n\x1a\n" + name.encode()
        answer = await api.client.post("/v1/attachments", params={"name": name}, content=png)
        answer.raise_for_status()
        return {"type": "attachment", "attachment_id": answer.json()["attachment_id"]}

    async def do_cancel(self, step: dict[str, Any]) -> None:
        turn_id = self.posted[step["msg"]].turn_id
        self.results["cancel"] = await (await self.api()).post(f"/v1/turns/{turn_id}/cancel")

    async def do_edit_begin(self, step: dict[str, Any]) -> None:
        """A client's own affair: it holds nothing on the server."""

    async def do_edit_submit(self, step: dict[str, Any]) -> None:
        turn_id = self.posted[step["msg"]].turn_id
        await self._started(str(turn_id))
        answer = await (await self.api()).post(f"/v1/turns/{turn_id}/edit", {"text": step["text"]})
        self.results["edit"] = answer
        self.results["edited"] = await (await self.api()).turn(str(turn_id))

    async def _started(self, turn_id: str) -> None:
        api = await self.api()

        async def taken() -> bool:
            return bool((await api.turn(turn_id))["state"] != "queued")

        await until(taken, f"the start of {turn_id}", seconds=SETTLE_SECONDS)

    async def do_delete_conversation(self, step: dict[str, Any]) -> None:
        api = await self.api()
        conversation_id = self.convs[step["conv"]]
        answer = await api.client.delete(f"/v1/conversations/{conversation_id}")
        answer.raise_for_status()

        async def let_go() -> bool:
            status = await (await self.api("owner")).get("/v1/status")
            self.results["status"] = status
            return not status["running"]

        self.results["status"] = None
        await until(let_go, "the end of the deleted conversation's run", seconds=SETTLE_SECONDS)
        self.results["running after delete"] = False
        self.results["deleted answers"] = (
            await api.client.get(f"/v1/conversations/{conversation_id}")
        ).status_code

    async def do_api_list(self, step: dict[str, Any]) -> None:
        api = await self.api()
        conversation_id = self.convs[step["conv"]]
        lists = self.results.setdefault("lists", [])
        for _ in range(step["times"]):
            seen = await api.snapshot(conversation_id)
            history = [m["turn_id"] for m in await api.messages(conversation_id) if m["role"] == "user"]
            running = [seen["running"]["turn"]["turn_id"]] if seen["running"] else []
            queued = [turn["turn_id"] for turn in seen["queue"]]
            lists.append(list(dict.fromkeys(history + running + queued)))

    async def do_export(self, step: dict[str, Any]) -> None:
        path = f"/v1/conversations/{self.convs[step['conv']]}/export"
        self.results["export"] = (await (await self.api()).client.get(path)).text

    # -- clients of the page, as far as the server sees them: they read

    async def do_open(self, step: dict[str, Any]) -> None:
        """A page that opens reads the snapshot and the history."""
        user = step.get("user", A_USER)
        api = await self.api(user)
        conversation_id = await self.conv(own(step["conv"], user), user)
        self.results.setdefault(step["client"], []).append(
            (self.pace.now, await api.snapshot(conversation_id), await api.messages(conversation_id))
        )

    async def do_reload(self, step: dict[str, Any]) -> None:
        await self.do_open(step)

    async def do_close(self, step: dict[str, Any]) -> None:
        """The page goes; the watchers with it."""
        for watcher in self.watchers.values():
            assert watcher.task is not None
            watcher.task.cancel()
            watcher.closed = True

    async def do_switch_conv(self, step: dict[str, Any]) -> None:
        await self.do_open(step)

    async def do_click(self, step: dict[str, Any]) -> None:
        """Send what the page's composer holds, in the conversation that the page shows."""
        conv = next(s["conv"] for s in self.steps if s["do"] == "open" and s["client"] == step["client"])
        await self.do_post({**step, "conv": conv})

    # -- streams

    async def do_sse_open(self, step: dict[str, Any]) -> None:
        user = step.get("user", A_USER)
        api = await self.api(user)
        if step.get("conv", False):
            name = step["conv"]
        else:
            name = "c1"
        client = step["client"]
        if name.startswith("default of"):
            answer = await api.client.get(f"/v1/conversations/{self.convs[name]}/events")
            self.results[client] = answer.status_code
            return
        conversation_id = await self.conv(name, user)
        seen = self.streams.setdefault(client, [])
        last = step.get("last_event_id")
        if last == "auto" or (last is None and any(frame.seq for frame in seen)):
            last = str(max(frame.seq or 0 for frame in seen))
        elif last is not None:
            last = str(int(last) + self.results["base"])
        self._stream_tasks[client] = asyncio.ensure_future(self._read(api, conversation_id, seen, last))
        self.results.setdefault("base", (await api.snapshot(conversation_id))["as_of_seq"])

    async def _read(self, api: Api, conversation_id: str, seen: list[Frame], last: str | None) -> None:
        async for frame in api.stream(conversation_id, last_event_id=last):
            seen.append(frame)  # noqa: PERF401  # what came before a cut is kept

    async def do_sse_cut(self, step: dict[str, Any]) -> None:
        task = self._stream_tasks.pop(step["client"], None)
        if task is None:
            return
        newest = await self._newest()

        def has_it() -> bool:
            return any(frame.seq == newest for frame in self.streams[step["client"]])

        if not any(s["do"] == "sse_open" and s.get("last_event_id", "auto") != "auto" for s in self.steps):
            await until(has_it, f"seq {newest} on the stream of {step['client']}")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _newest(self) -> int:
        return int((await (await self.api()).snapshot(self.convs["c1"]))["as_of_seq"])

    async def do_emit(self, step: dict[str, Any]) -> None:
        """Durable events that anything may cause: the conversation is renamed."""
        api = await self.api()
        for number in range(step["events"]):
            title = f"at {step['at_s']}: {number}"
            answer = await api.client.patch(f"/v1/conversations/{self.convs['c1']}", json={"title": title})
            answer.raise_for_status()

    async def do_emit_control(self, step: dict[str, Any]) -> None:
        """Heartbeats, deltas and the like: the server sends them by itself while a turn runs."""
        answer = await (await self.api()).submit(self.convs["c1"], "control", "control")
        answer.raise_for_status()
        await (await self.api()).settled(answer.json()["turn_id"])
        self.results["control_events"] = await self._newest()

    # -- faults

    async def do_kill_server(self, step: dict[str, Any]) -> None:
        for label, post in self.posted.items():
            if post.turn_id and post.answer.json()["outcome"] == "queued":
                seen = await (await self.api()).snapshot(self.convs[post.conv])
                rows = [row for row in seen["queue"] if row["turn_id"] == post.turn_id]
                self.results[f"queued {label}"] = rows[0] if rows else None
        self.server.kill()

    async def do_stop_server(self, step: dict[str, Any]) -> None:
        self.results["stopped"] = await self.server.stop()

    async def do_start_server(self, step: dict[str, Any]) -> None:
        if any(s["do"] == "fs_kind" for s in self.steps):
            await self.server.start(wait=False)
            self.results["exit"] = await self.server.ended()
            return
        await self.server.start()

    async def do_start_server_each_time_it_dies(self, step: dict[str, Any]) -> None:
        """Wait for its death, start it, and look whether it dies again before its work is done."""
        for _ in range(step["max"]):

            async def over() -> bool:
                if not self.server.alive:
                    return True
                turn = await (await self.api()).turn(str(self.posted["m1"].turn_id))
                return bool(turn["state"] in ("settled", "failed", "cancelled", "parked"))

            with contextlib.suppress(httpx2.TransportError):
                await until(over, "a death or the end of m1")
            if self.server.alive:
                return
            self.deaths += 1
            await self.server.start()

    async def do_stall_dispatcher(self, step: dict[str, Any]) -> None:
        self.server.freeze()
        await self.pace.at(self.pace.now + step["for_s"])
        self.server.thaw()

    async def do_clock(self, step: dict[str, Any]) -> None:
        """Frozen before the play, or a client's own, which the server never hears of."""

    async def do_parallel(self, step: dict[str, Any]) -> None:
        await asyncio.gather(*(self.do({**inner, "at_s": step["at_s"]}) for inner in step["steps"]))

    async def do_db(self, step: dict[str, Any]) -> None:
        """Another program holds the write lock."""
        assert step["op"] == "hold_write_lock"
        other = apsw.Connection(str(self.database))
        other.set_busy_timeout(5000)
        other.execute("BEGIN IMMEDIATE")
        ends = self.pace.now + step["for_s"]

        async def let_go() -> None:
            await self.pace.at(ends)
            other.execute("ROLLBACK")
            other.close()

        self._background.append(asyncio.ensure_future(let_go()))

    @property
    def database(self) -> Path:
        """The SQLite file of the server."""
        (found,) = (
            path for path in self.server.data.iterdir() if path.suffix in (".db", ".sqlite", ".sqlite3")
        )
        return found

    async def do_store_crash(self, step: dict[str, Any]) -> None:
        """Kill it, and leave half a record behind the last whole one of its log."""
        await self.do_post({"msg": "m0", "conv": "c1", "text": "before the crash", "at_s": 0})
        await (await self.api()).settled(str(self.posted["m0"].turn_id))
        self.server.kill()
        with Path(f"{self.database}-wal").open("ab") as log:
            log.write(b"\x00\x00\x00\x07\x00\x00\x00\x00half a record")

    async def do_disk_full(self, step: dict[str, Any]) -> None:
        """Fill the disk to the last byte, and hold it full: a checkpoint must not make room."""
        filler = self.server.data / "filler"
        with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
            for size in (1_000_000, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)
        self.results["health when full"] = []

    async def _look_at_health(self) -> None:
        """What a monitor sees while the disk is full."""
        answer = await (await self.api()).client.get("/healthz")
        self.results["health when full"].append(answer.status_code)

    async def do_disk_free(self, step: dict[str, Any]) -> None:
        await self._look_at_health()
        (self.server.data / "filler").unlink()

    async def do_loop(self, step: dict[str, Any]) -> None:
        """Many short conversations, one after another on a few clients; memory and handles are read on the way."""
        (post, _close) = step["steps"]
        api = await self.api()
        text = text_of(post)
        numbers = iter(range(1, step["times"] + 1))
        sizes = self.results.setdefault("sizes", {})

        async def client() -> None:
            for number in numbers:
                conversation_id = await api.create()
                answer = await api.submit(conversation_id, text, "only")
                answer.raise_for_status()
                await api.drained(conversation_id)
                closed = await api.client.patch(
                    f"/v1/conversations/{conversation_id}", json={"archived": True}
                )
                closed.raise_for_status()
                if number in (step["times"] // 10, step["times"]):
                    sizes[number] = size_of(self.server.pid)

        await asyncio.gather(*(client() for _ in range(4)))

    # -- what was seen

    def story(self, conv: str = "c1") -> Story:
        """The journal of a conversation as its watcher saw it."""
        return Story(self.watchers[conv].events)
