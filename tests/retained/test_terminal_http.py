"""Terminals over HTTP and from the command line: seen by readers, typed into by one person, adopted from a person's own tmux."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.retained.cases.world import Cli, World
from turnkeeper.testing.scripted_cli.quirks import Quirks
from turnkeeper.testing.server_process import Api, frames
from turnkeeper.testing.until import until

pytestmark = [pytest.mark.tmux, pytest.mark.process, pytest.mark.timeout(240)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path / "world")
    for name in ("one", "idle"):
        folder = tmp_path / name
        cli = Cli(folder, name, "claude-code", Quirks(turn_s=0.1), folder / "work", 0.1)
        cli.idle_seconds = 1.0 if name == "idle" else None
        world.clis.append(cli)
    await world.start()
    yield world
    for conversation in (await world.api.get("/v1/conversations"))["conversations"]:
        await world.api.client.delete(f"/v1/conversations/{conversation['conversation_id']}")
    await world.api.close()
    world.server.kill()
    await world.end_panes()


async def begin(world: World, agent: str, text: str = "[[seconds:0.05]] hello") -> tuple[str, str]:
    """A conversation whose CLI has answered; its id, and the path of its terminal."""
    conversation_id = await world.api.create(agent)
    answer = await world.api.submit(conversation_id, text, "first")
    await world.api.settled(answer.json()["turn_id"])
    return conversation_id, f"/v1/conversations/{conversation_id}/terminal"


async def state(world: World, path: str, wanted: str) -> dict[str, Any]:
    async def there() -> Any:
        view = await world.api.get(path)
        return view if view["state"] == wanted else None

    return dict(await until(there, f"the terminal to be {wanted}"))


async def test_it_is_seen_by_its_readers_and_typed_into_by_one_person(world: World) -> None:
    api = world.api
    conversation_id, path = await begin(world, "one")
    view = await state(world, path, "idle")
    assert view["why"] == "The conversation's first native session."
    assert view["busy_source"] == "status file"
    assert "ok [[seconds:0.05]] hello" in (await api.client.get(f"{path}/screen")).text

    seen: list[bytes] = []
    kinds: list[str] = []

    async def watch() -> None:
        async with api.client.stream(
            "GET", f"{path}/stream", timeout=httpx2.Timeout(30.0, read=None)
        ) as answer:
            async for frame in frames(answer.aiter_lines()):
                kinds.append(frame.data["kind"])
                seen.append(base64.b64decode(frame.data["data"]))

    watching = asyncio.ensure_future(watch())
    await until(lambda: kinds[:1] == ["terminal_seed"], "the first frame")

    stranger = Api(world.server.url, world.server.token("somebody"))
    refused = [
        (await stranger.client.get(path)).status_code,
        (await stranger.client.get(f"{path}/screen")).status_code,
        (await stranger.post(f"{path}/take-over")).status_code,
    ]
    await stranger.close()
    assert refused == [404, 404, 403], "it is nobody else's, and to type has a scope of its own"

    keys = {"data": base64.b64encode(b"half a thought").decode()}
    assert (await api.post(f"{path}/keys", keys)).status_code == 409, "nobody has taken it over"
    assert (await api.post(f"{path}/take-over")).json()["taken_over_by"] == "owner"
    assert (await api.post(f"{path}/keys", keys)).json() == {"bytes": 14}
    await until(lambda: b"half a thought" in b"".join(seen), "the typed words in the stream")
    held = (await api.submit(conversation_id, "wait for me", "second")).json()["turn_id"]

    async def reason() -> Any:
        return (await api.turn(held))["needs"]

    needs = await until(reason, "a reason why it waits")
    assert (needs["kind"], needs["reason"]) == ("delivery", "person")
    assert needs["sentence"] in (await api.turn(held))["reason"]
    erase = {"data": base64.b64encode(b"\x7f" * 14).decode()}
    await api.post(f"{path}/keys", erase)
    assert (await api.client.delete(f"{path}/take-over")).json()["taken_over_by"] is None
    assert (await api.settled(held))["state"] == "settled"
    codes = [e["body"]["code"] for e in await api.events(conversation_id) if e["kind"] == "Noticed"]
    assert codes == ["terminal_taken", "terminal_given_back"]
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_it_is_interrupted_restarted_and_its_menus_are_questions(world: World) -> None:
    api = world.api
    conversation_id, path = await begin(world, "one")
    assert (await api.post(f"{path}/interrupt")).json()["interrupted"] is False, "an idle CLI gets no key"
    turn_id = (await api.submit(conversation_id, "[[slow:60]] long", "slow")).json()["turn_id"]
    await state(world, path, "busy")
    assert (await api.post(f"{path}/interrupt")).json()["interrupted"] is True
    turn = await api.settled(turn_id)
    assert (turn["state"], turn["failure"]["kind"]) == ("failed", "interrupted")

    before = await state(world, path, "idle")
    assert (await api.post(f"{path}/restart")).json()["state"] == "none"
    await api.settled((await api.submit(conversation_id, "again", "again")).json()["turn_id"])
    after = await state(world, path, "idle")
    assert after["pid"] != before["pid"]
    assert after["native_session"] == before["native_session"]

    world.clis[0].order(do="menu", menu={"title": "Allow command?", "options": ["Yes", "No"]})

    async def asked() -> Any:
        return (await api.get("/v1/approvals"))["approvals"]

    (asking,) = await until(asked, "the menu as a question")
    assert (asking["turn_id"], asking["arguments"]["options"]) == (None, ["Yes", "No"])
    decided = await api.post(f"/v1/approvals/{asking['approval_id']}", {"decision": "deny"})
    assert decided.json()["state"] == "deny"
    assert [e["chose"] for e in world.clis[0].log() if "chose" in e] == ["No"]
    again = await api.post(f"/v1/approvals/{asking['approval_id']}", {"decision": "approve"})
    assert again.status_code in (404, 409)
    assert "menu_waits" in [
        e["body"]["code"] for e in await api.events(conversation_id) if e["kind"] == "Noticed"
    ]


async def test_an_idle_pane_is_closed_and_the_next_turn_resumes_its_session(world: World) -> None:
    conversation_id, path = await begin(world, "idle")
    native = (await world.api.get(path))["native_session"]
    await state(world, path, "none")
    turn = (await world.api.submit(conversation_id, "still there?", "second")).json()["turn_id"]
    assert (await world.api.settled(turn))["state"] == "settled"
    launches = [entry["launch"] for entry in world.clis[1].log() if "launch" in entry]
    assert len(launches) == 2
    assert launches[1][launches[1].index("--resume") + 1] == native


async def test_the_command_line_lists_shows_attaches_and_adopts(world: World, tmp_path: Path) -> None:
    conversation_id, path = await begin(world, "one")
    at = ("--url", world.server.url, "--token", world.server.token())

    def run(*words: str) -> Any:
        return json.loads(world.server.run(*words, *at, "--json").stdout)

    (row,) = run("sessions")["sessions"]
    assert (row["conversation_id"], row["state"]) == (conversation_id, "idle")
    assert row["memory_bytes"] > 1_000_000
    assert conversation_id in world.server.run("sessions", *at).stdout
    assert "ok [[seconds:0.05]] hello" in run("screen", conversation_id)["screen"]
    command = run("attach", conversation_id)["command"]
    assert command[-1] == "-r", "to look is the default"
    assert "-r" not in run("attach", conversation_id, "--write")["command"]
    assert Path(command[command.index("-S") + 1]).is_socket()

    by_hand = await _started_by_hand(world, tmp_path)
    try:
        shell = await _tmux(by_hand["socket"], "new-window", "-d", "-P", "-F", "#{pane_id}", "sh")
        there = {"socket_name": by_hand["name"]}
        for body, status, words in (
            ({**there, "pane": shell}, 409, "no claude-code is seen in this pane"),
            ({**there, "pane": "%999"}, 409, "there is no pane %999"),
            ({"pane": "%0", "socket_name": "../x"}, 400, "no name of a tmux socket"),
            ({"session_id": "../../etc"}, 400, "could be adopted"),
            ({"session_id": "11111111-2222-4333-8444-000000000000"}, 400, "could be adopted"),
        ):
            refused = await world.api.client.post(f"{path}/adopt", json=body)
            assert (refused.status_code, words in refused.json()["detail"]) == (status, True), refused.text
        mark = await _tmux(by_hand["socket"], "display-message", "-p", "-t", shell, "#{@turnkeeper}")
        assert mark == "", "what was refused is let go of"
        await _tmux(by_hand["socket"], "kill-pane", "-t", shell)
        adopted = run("adopt", conversation_id, "--pane", by_hand["pane"], "--socket", by_hand["name"])
        assert (adopted["cli"], adopted["why"]) == ("claude-code", "A CLI that was started by hand.")
        await state(world, path, "idle")
        turn = (await world.api.submit(conversation_id, "hello by hand", "h")).json()["turn_id"]
        assert (await world.api.settled(turn))["state"] == "settled"
        assert "hello by hand" in [entry.get("submit") for entry in world.clis[0].log()]
        await world.api.client.patch(f"/v1/conversations/{conversation_id}", json={"archived": True})
        told = await _tmux(by_hand["socket"], "list-panes", "-a", "-F", "#{pane_dead}")
        assert told == "0", "what a person started is left to them"
    finally:
        await _tmux(by_hand["socket"], "kill-server")


async def _started_by_hand(world: World, tmp_path: Path) -> dict[str, str]:
    """The CLI in a tmux server of the user's own, as `tmux -L NAME new` makes it."""
    name = f"tk-test-{os.getpid()}-{tmp_path.name[:20]}"
    folder = Path(os.environ.get("TMUX_TMPDIR", "/tmp")) / f"tmux-{os.getuid()}"
    cli = world.clis[0]
    env = [f"{key}={value}" for key, value in cli.environment().items()]
    process = await asyncio.create_subprocess_exec(
        "tmux", "-L", name, "-f", "/dev/null", "new-session", "-d", "-x", "180", "-y", "50", "-c", str(cli.cwd),
        "env", *env, *cli.command(), "--session-id", "11111111-2222-4333-8444-555555555555",
    )  # fmt: skip
    assert await process.wait() == 0
    socket = str(folder / name)
    return {
        "name": name,
        "socket": socket,
        "pane": await _tmux(socket, "list-panes", "-a", "-F", "#{pane_id}"),
    }


async def _tmux(socket: str, *words: str) -> str:
    program = shutil.which("tmux")
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        program, "-S", socket, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    told, _ = await process.communicate()
    return told.decode().strip()
