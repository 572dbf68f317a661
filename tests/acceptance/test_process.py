"""The server process: where it listens, what it prints, how it starts, stops and refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.conftest import make_server
from turnkeeper.testing.server_process import Api, ServerProcess
from turnkeeper.testing.until import until

pytestmark = pytest.mark.process


def refused(*arguments: str, **environment: str) -> str:
    """The one line on stderr of a command line that cannot be used."""
    done = subprocess.run(
        [sys.executable, "-m", "turnkeeper", *arguments],
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("turnkeeper: ")
    return done.stderr


async def test_serve_prints_how_to_chat_and_an_address_that_signs_in_once(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    async with server:
        printed = server.last_words()
        assert f"turnkeeper chat --data {server.data}" in printed
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/\?token=\S+", printed)
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(address)
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            assert (await browser.get(f"{server.url}/v1/session")).json()["user_id"] == "owner"
        async with httpx2.AsyncClient() as second:
            assert (await second.get(address)).status_code == 401
        secret = address.partition("token=")[2]
        assert server.last_words().count(secret) == 1, "the address is printed, and logged nowhere"
        everything = b"".join(path.read_bytes() for path in server.data.iterdir() if path.is_file())
        assert secret.encode() not in everything


async def test_port_zero_takes_a_free_one_and_json_says_which(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "turnkeeper", "serve", "--data", str(tmp_path / "d"), "--port", "0", "--json",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    told = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
    async with httpx2.AsyncClient(base_url=told["url"]) as client:
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.get("/healthz")).json()["ok"] is True
    assert told["pid"] == process.pid
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_the_data_folder_and_the_file_that_names_the_server_are_private(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    async with server:
        assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
        file = server.data / "server.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        told = json.loads(file.read_text())
        assert (told["url"], told["pid"]) == (server.url, server.pid)
        async with Api(server.url, told["token"]) as api:
            assert (await api.get("/v1/session"))["user_id"] == "owner"
        assert await server.stop() == 0
        assert not file.exists()


async def test_the_token_of_a_server_that_was_killed_opens_nothing_after_the_next_start(
    tmp_path: Path,
) -> None:
    server = make_server(tmp_path)
    async with server:
        old = json.loads((server.data / "server.json").read_text())["token"]
        server.kill()
        assert "does not answer" in refused("status", "--data", str(server.data))
        await server.start()
        async with Api(server.url, old) as api:
            assert (await api.client.get("/v1/session")).status_code == 401


async def test_a_second_server_on_one_store_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    async with server:
        line = await asyncio.to_thread(refused, "serve", "--data", str(server.data), "--port", "0")
        assert f"process {server.pid}" in line
        assert "already uses the store" in line
        async with Api(server.url, server.token()) as api:
            assert (await api.get("/v1/session"))["user_id"] == "owner"


def test_a_port_that_is_taken_is_refused_before_the_store_is_opened(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("serve", "--data", str(tmp_path / "d"), "--port", str(port))
    assert f"127.0.0.1:{port}: address already in use" in line
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_others_can_reach_needs_a_decision(tmp_path: Path, host: str) -> None:
    line = refused("serve", "--data", str(tmp_path / "d"), "--port", "0", "--host", host)
    assert "can be reached from other machines" in line
    assert "--remote" in line
    assert not (tmp_path / "d").exists()


async def test_a_remote_server_opens_nothing_without_a_sign_in(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "turnkeeper", "serve", "--data", str(tmp_path / "d"), "--port", "0", "--json",
        "--host", "0.0.0.0", "--remote",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    told = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
    async with httpx2.AsyncClient(base_url=told["url"]) as client:
        for path in ("/v1/conversations", "/v1/status", "/v1/session"):
            assert (await client.get(path)).status_code == 401
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 20) == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[agents.a]\nrunner = 5\n", "agents.a"),
        ("not toml", "agents"),
        ('[agents.a]\nrunner = "model"\nprovider = "scripted"\nscript = "absent.json"\n', "absent.json"),
    ],
)
def test_an_agents_file_that_cannot_be_used_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    agents = tmp_path / "agents.toml"
    agents.write_text(content)
    line = refused("serve", "--data", str(tmp_path / "d"), "--port", "0", "--agents", str(agents))
    assert sentence in line


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ('{"rules": [{"match": "(", "rounds": []}]}', "regular expression"),
        ("{", "script.json"),
        ('{"rules": 1}', "rules"),
    ],
)
def test_a_script_that_cannot_be_used_is_refused_at_the_start(
    tmp_path: Path, script: str, sentence: str
) -> None:
    (tmp_path / "script.json").write_text(script)
    agents = tmp_path / "agents.toml"
    agents.write_text('[agents.demo]\nrunner = "model"\nprovider = "scripted"\nscript = "script.json"\n')
    line = refused("serve", "--data", str(tmp_path / "d"), "--port", "0", "--agents", str(agents))
    assert sentence in line


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (["--port", "99999"], {}, "port"),
        (["--port", "x"], {}, "--port"),
        (["--database", "postgresql://db/x"], {}, "--data instead"),
        (["--config", "absent.toml"], {}, "there is no such file"),
        ([], {"TURNKEEPER_QUEUE_CAP": "0"}, "queue_cap"),
        (["--host", "no.such.name.invalid"], {}, "no.such.name.invalid"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], sentence: str
) -> None:
    line = refused("serve", "--data", str(tmp_path / "d"), *arguments, **environment)
    assert sentence in line


def test_a_store_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "d"
    data.mkdir()
    (data / "turnkeeper.db").write_bytes(b"this is no database" * 100)
    line = refused("serve", "--data", str(data), "--port", "0")
    assert "turnkeeper.db" in line
    assert (data / "turnkeeper.db").read_bytes() == b"this is no database" * 100


async def test_a_graceful_stop_in_mid_turn_hands_it_back_and_costs_it_nothing(tmp_path: Path) -> None:
    server = make_server(tmp_path, shutdown_grace_seconds=1)
    async with server, Api(server.url, server.token()) as api:
        conversation_id = await api.create()
        held = (await api.submit(conversation_id, "essay", "k1")).json()["turn_id"]
        queued = (await api.submit(conversation_id, "hello", "k2")).json()["turn_id"]
        await until(lambda: running(api, conversation_id), "the running turn")
        assert await server.stop() == 0
        await server.start()
        for turn_id in (held, queued):
            assert (await api.settled(turn_id))["state"] == "settled"
        kinds = [event["kind"] for event in await api.events(conversation_id)]
        assert kinds.count("TurnSettled") == 2
        requeued = [e["body"] for e in await api.events(conversation_id) if e["kind"] == "TurnRequeued"]
        assert all(body.get("rescues", 0) == 0 for body in requeued)


async def running(api: Api, conversation_id: str) -> Any:
    return (await api.snapshot(conversation_id))["running"]


async def test_readyz_is_red_until_interrupted_work_is_rescued(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    async with server, Api(server.url, server.token()) as api:
        conversation_id = await api.create()
        turn_id = (await api.submit(conversation_id, "essay", "k1")).json()["turn_id"]
        await until(lambda: running(api, conversation_id), "the running turn")
        server.kill()
        await server.start()
        health = (await api.client.get("/readyz")).json()
        assert health["ready"] is True
        assert health["recovered"] == 1
        assert (await api.settled(turn_id))["state"] == "settled"


async def test_a_client_that_leaves_in_mid_request_harms_nobody(shared: ServerProcess, api: Api) -> None:
    conversation_id = await api.create()
    for half in (b"", b'{"text": "x'):
        _, writer = await asyncio.open_connection("127.0.0.1", shared.port)
        writer.write(
            f"POST /v1/conversations/{conversation_id}/turns HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {shared.token()}\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\n".encode()
            + half
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    assert (await api.submit(conversation_id, "hello", "k")).status_code == 202
    assert "Traceback" not in shared.last_words()


async def test_the_same_key_from_many_connections_at_once_is_one_turn(api: Api) -> None:
    conversation_id = await api.create()
    answers = await asyncio.gather(*(api.submit(conversation_id, "hello", "k1") for _ in range(20)))
    stored = [answer for answer in answers if answer.status_code == 202]
    assert stored
    assert len({answer.content for answer in stored}) == 1
    assert {answer.json()["code"] for answer in answers if answer.status_code != 202} <= {"key_in_flight"}
    assert len((await api.get(f"/v1/conversations/{conversation_id}/turns"))["turns"]) == 1
    again = await api.submit(conversation_id, "hello", "k1")
    assert (again.status_code, again.content) == (202, stored[0].content)


async def test_one_more_than_the_cap_is_refused_with_a_time_to_come_back(api: Api) -> None:
    conversation_id = await api.create()
    await api.submit(conversation_id, "hold", "hold")
    for number in range(32):
        assert (await api.submit(conversation_id, "x", f"k{number}")).status_code == 202
    full = await api.submit(conversation_id, "x", "k32")
    assert (full.status_code, full.json()["code"], full.json()["retryable"]) == (429, "queue_full", True)
    assert int(full.headers["retry-after"]) == full.json()["retry_after_seconds"] > 0
    assert "32" in full.json()["detail"]
    await api.client.delete(f"/v1/conversations/{conversation_id}")
