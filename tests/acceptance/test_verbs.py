"""The verbs of the command line against a real server, as a person and as a script uses them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import ESSAY, make_server
from turnkeeper.testing.server_process import Api, ServerProcess
from turnkeeper.testing.until import until

pytestmark = pytest.mark.process

ARGUMENT_WORDS = {"CONV": "c_unknown", "TURN": "t_unknown", "TOKEN_ID": "k_unknown", "TEXT": "hello"}


class Verbs:
    """The command line on one server."""

    def __init__(self, server: ServerProcess) -> None:
        self.data = ["--data", str(server.data)]

    def run(
        self, *arguments: str, given: str = "", ends: int = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "turnkeeper", *arguments, *self.data],
            input=given,
            env={**os.environ, **environment},
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == ends, done
        return done

    def json(self, *arguments: str, **more: Any) -> Any:
        return json.loads(self.run(*arguments, "--json", **more).stdout)

    def refused(self, *arguments: str, **more: Any) -> str:
        done = self.run(*arguments, ends=2, **more)
        assert done.stdout == ""
        assert done.stderr.startswith("turnkeeper: ")
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr


@pytest.fixture
def verbs(shared: ServerProcess) -> Verbs:
    """The command line on the shared server."""
    return Verbs(shared)


def test_send_and_wait_prints_the_answer_and_nothing_else(verbs: Verbs) -> None:
    assert verbs.run("send", "new", "hello", "--wait").stdout == "ok\n"
    told = verbs.json("send", "new", "hello", "--wait")
    assert (told["state"], told["answer"], told["outcome"]) == ("settled", "ok", "started")


def test_text_can_come_from_stdin_and_be_anything(verbs: Verbs) -> None:
    told = verbs.json("send", "new", "-", "--agent", "plain", "--wait", given="a\x00b\n✓")
    assert told["answer"] == "ok a␀b\n✓"
    page = verbs.json("list", "--limit", "1")
    assert page["conversations"][0]["conversation_id"] == told["conversation_id"]


def test_the_same_key_gives_the_same_turn(verbs: Verbs) -> None:
    first = verbs.json("send", "new", "hello", "--key", "k1")
    again = verbs.json("send", first["conversation_id"], "hello", "--key", "k1")
    assert again == first
    assert "another message" in verbs.refused("send", first["conversation_id"], "other", "--key", "k1")


def test_queue_why_cancel_pause_and_resume_tell_what_is_and_change_it(verbs: Verbs) -> None:
    held = verbs.json("send", "new", "hold")
    conversation_id = held["conversation_id"]
    waiting = [verbs.json("send", conversation_id, f"next {n}") for n in (1, 2)]
    assert [turn["position"] for turn in waiting] == [1, 2]
    shown = verbs.run("queue", conversation_id).stdout.splitlines()
    assert held["turn_id"] in shown[0]
    assert shown[1].split()[0] == "1"
    assert "next 2" in shown[2]
    why = verbs.json("why", waiting[0]["turn_id"])
    assert why["holder"]
    assert why["sentence"] in verbs.run("why", waiting[0]["turn_id"]).stdout
    assert verbs.json("cancel", waiting[1]["turn_id"])["state"] == "cancelled"
    assert "already cancelled" in verbs.refused("cancel", waiting[1]["turn_id"])
    assert verbs.run("cancel", held["turn_id"]).stdout.startswith(("cancelled", "stopping"))
    assert verbs.json("queue", conversation_id)["lane"]["paused"] is not None
    assert "turnkeeper resume" in verbs.run("queue", conversation_id).stdout
    assert verbs.json("resume", conversation_id)["paused"] is None
    assert verbs.json("send", conversation_id, "last", "--wait")["answer"] == "ok"
    assert verbs.json("pause", conversation_id)["paused"] is not None
    assert verbs.json("send", conversation_id, "later")["outcome"] == "queued"


def test_usage_is_the_bill_of_a_turn(verbs: Verbs) -> None:
    told = verbs.json("send", "new", "hello", "--wait")
    bill = verbs.json("usage", told["turn_id"])
    assert [(call["round"], call["end"]) for call in bill["calls"]] == [(1, "finished")]
    assert bill["total"]["input_tokens"] > 0
    shown = verbs.run("usage", told["turn_id"]).stdout
    assert f"in all: {bill['total']['input_tokens']} in" in shown


def test_retry_takes_up_a_failed_turn(verbs: Verbs) -> None:
    failed = verbs.run("send", "new", "break it", "--wait")
    assert failed.stdout == ""
    assert failed.stderr.startswith("failed: ")
    conversation_id = verbs.json("list", "--limit", "1")["conversations"][0]["conversation_id"]
    turn_id = verbs.run("tail", conversation_id, "--no-follow", "--json").stdout
    turn_id = next(json.loads(line)["turn_id"] for line in turn_id.splitlines() if "TurnFailed" in line)
    assert verbs.json("retry", turn_id)["turn_id"] == turn_id


def test_tail_prints_the_whole_story_and_stops_where_it_was_asked_to(verbs: Verbs) -> None:
    told = verbs.json("send", "new", "hello", "--wait")
    lines = verbs.run("tail", told["conversation_id"], "--no-follow").stdout.splitlines()
    assert any(line.endswith("you: hello") for line in lines)
    assert any(line.endswith("agent: ok") for line in lines)
    events = [
        json.loads(line)
        for line in verbs.run("tail", told["conversation_id"], "--no-follow", "--json").stdout.splitlines()
    ]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    rest = verbs.run("tail", told["conversation_id"], "--no-follow", "--json", "--after", "3").stdout
    assert json.loads(rest.splitlines()[0])["seq"] == 4
    assert verbs.run("tail", told["conversation_id"], "--no-follow", "--after", "99").stdout == ""
    assert len(verbs.run("tail", told["conversation_id"], "--no-follow", "--all").stdout.splitlines()) == len(
        events
    )


def test_an_agent_cannot_steer_the_terminal_it_is_printed_on(verbs: Verbs) -> None:
    conversation_id = verbs.json("send", "new", "evil", "--wait")["conversation_id"]
    outputs = [
        verbs.run("send", conversation_id, "evil", "--wait").stdout,
        verbs.run("tail", conversation_id, "--no-follow").stdout,
        verbs.run("chat", conversation_id, given="evil\n").stdout,
        verbs.run("tail", conversation_id, "--no-follow", "--json").stdout,
        verbs.run("export", conversation_id).stdout,
    ]
    for number, output in enumerate(outputs):
        assert "owned" in output, number
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", output), number
    for output in outputs[:-1]:
        assert not re.search(r"[\x80-\x9f\u202a-\u202e]", output)


def test_export_and_backup_write_whole_files_and_never_over_another(verbs: Verbs, tmp_path: Path) -> None:
    told = verbs.json("send", "new", "hello", "--wait")
    file = tmp_path / "talk.jsonl"
    assert (
        verbs.json("export", told["conversation_id"], "--output", str(file))["size_bytes"]
        == file.stat().st_size
    )
    header, *events = [json.loads(line) for line in file.read_text().split("\n") if line]
    assert header["turnkeeper_export"] == 1
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert verbs.run("export", told["conversation_id"]).stdout == file.read_text()
    copy = tmp_path / "copy.db"
    assert "bytes" in verbs.run("backup", str(copy)).stdout
    assert copy.read_bytes()[:15] == b"SQLite format 3"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert "exists already" in verbs.refused("backup", str(copy))
    assert "cannot be written" in verbs.refused("backup", str(tmp_path / "none" / "x.db"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "talk.jsonl"]


async def test_a_backup_opens_as_a_store_with_all_that_was_said_and_another_epoch(
    verbs: Verbs, tmp_path: Path
) -> None:
    told = await asyncio.to_thread(verbs.json, "send", "new", "hello", "--wait")
    (tmp_path / "data").mkdir(mode=0o700)
    await asyncio.to_thread(verbs.run, "backup", str(tmp_path / "data" / "turnkeeper.db"))
    restored = make_server(tmp_path)
    async with restored, Api(restored.url, restored.token()) as api:
        texts = [m["parts"][0]["text"] for m in await api.messages(told["conversation_id"])]
        assert texts == ["hello", "ok"]
        epoch = (await api.snapshot(told["conversation_id"]))["epoch"]
    assert epoch != (await asyncio.to_thread(verbs.json, "status"))["epoch"]


def test_token_prints_only_the_token_and_its_scopes_hold(verbs: Verbs, shared: ServerProcess) -> None:
    token = verbs.run("token", "create", "--user", "ann", "--scopes", "read, write").stdout
    assert re.fullmatch(r"\S+\n", token)
    by_url = Verbs(shared)
    by_url.data = ["--url", shared.url]
    mine = {"TURNKEEPER_TOKEN": token.strip()}
    assert by_url.json("list", **mine) == {"conversations": [], "next": None}
    assert "does not have the right 'operate'" in by_url.refused("status", **mine)
    assert "no scope 'root'" in verbs.refused("token", "create", "--scopes", "root")
    repeated = verbs.json("token", "create", "--user", "ann", "--scopes", "read", "--scopes", "write")
    assert repeated["scopes"] == ["read", "write"]
    made = verbs.json("token", "create", "--user", "ann", "--label", "phone", "--expires-seconds", "3600")
    assert made["scopes"] == ["read", "write", "approve"]
    assert made["expires_at"]
    assert verbs.run("token", "revoke", made["token_id"]).stdout == ""
    assert "No valid token" in by_url.refused("list", TURNKEEPER_TOKEN=made["token"])
    assert verbs.run("token", "link").stdout.startswith(f"{shared.url}/?token=")


def test_token_and_backup_work_without_a_server(tmp_path: Path) -> None:
    verbs = Verbs.__new__(Verbs)
    verbs.data = ["--data", str(tmp_path / "data")]
    token = verbs.run("token", "create").stdout.strip()
    assert token
    verbs.run("backup", str(tmp_path / "copy.db"))
    server = make_server(tmp_path)

    async def use() -> None:
        async with server, Api(server.url, token) as api:
            assert (await api.get("/v1/session"))["user_id"] == "owner"

    asyncio.run(use())


def test_status_is_for_people_and_for_programs(verbs: Verbs) -> None:
    status = verbs.json("status")
    assert {"running", "queued", "parked", "oldest_wait_seconds"} <= status.keys()
    assert "oldest wait seconds" in verbs.run("status").stdout


def test_a_server_that_is_not_there_is_said_in_one_line(tmp_path: Path, shared: ServerProcess) -> None:
    verbs = Verbs.__new__(Verbs)
    verbs.data = ["--data", str(tmp_path)]
    assert "No server runs on the data folder" in verbs.refused("list")
    verbs.data = ["--url", "http://127.0.0.1:1", "--token", "x"]
    assert "does not answer" in verbs.refused("list")
    verbs.data = ["--url", shared.url]
    assert "needs a token" in verbs.refused("list", TURNKEEPER_TOKEN="", TURNKEEPER_DATA=str(tmp_path))
    verbs.data = ["--url", "ftp://x", "--token", "x"]
    assert "is no address of a server" in verbs.refused("list")


@pytest.mark.parametrize(
    "arguments",
    [
        ["queue", "c_unknown"],
        ["why", "t_unknown"],
        ["cancel", "t_unknown"],
        ["retry", "t_unknown"],
        ["pause", "c_unknown"],
        ["resume", "c_unknown"],
        ["tail", "c_unknown"],
        ["export", "c_unknown"],
        ["send", "c_unknown", "x"],
        ["chat", "c_unknown"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_unknown_id_is_one_line(verbs: Verbs, arguments: list[str]) -> None:
    assert "There is no such" in verbs.refused(*arguments)


def test_config_check_shows_what_is_in_force_and_from_where(tmp_path: Path) -> None:
    verbs = Verbs.__new__(Verbs)
    verbs.data = ["--data", str(tmp_path)]
    (tmp_path / "turnkeeper.toml").write_text("queue_cap = 5\n")
    agents = tmp_path / "agents.toml"
    agents.write_text(
        '[agents.helper]\nprovider = "openai-chat"\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
        'api_key_env = "HELPER_KEY"\n[agents.helper.options]\nextra_token = "hush-hush"\n'
    )
    environment = {"TURNKEEPER_UNDO_SECONDS": "7", "HELPER_KEY": "sk-very-secret"}
    found = verbs.json("config", "check", **environment)
    assert found["ok"] is True
    assert found["settings"]["queue_cap"] == {"value": 5, "from": str(tmp_path / "turnkeeper.toml")}
    assert found["settings"]["undo_seconds"] == {"value": 7.0, "from": "environment"}
    assert found["settings"]["port"] == {"value": 8321, "from": "default"}
    assert set(found["agents"]) == {"demo", "helper"}
    printed = verbs.run("config", "check", **environment).stdout + json.dumps(found)
    assert "sk-very-secret" not in printed
    assert "hush-hush" not in printed
    assert "HELPER_KEY" in printed
    missing = verbs.run("config", "check", ends=1)
    assert "HELPER_KEY is not set" in missing.stderr
    assert "absent.toml is no file" in verbs.refused("config", "check", "--agents", "absent.toml")
    agents.write_text("[agents.helper]\nrunner = 1\n")
    broken = verbs.run("config", "check", ends=1)
    assert "agents.toml" in broken.stderr
    assert "queue_cap = 5" in broken.stdout


def test_every_verb_has_help_with_an_example_and_json() -> None:
    from turnkeeper.cli import build

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name, each in getattr(command, "commands", {}).items():
            if getattr(each, "commands", None):
                yield from walk(each, (*path, name))
            else:
                yield (*path, name), each

    import typer

    found = dict(walk(typer.main.get_command(build()), ()))
    assert {("serve",), ("chat",), ("send",), ("token", "create"), ("config", "check")} <= found.keys()
    for path, command in found.items():
        words = " ".join(path)
        assert command.help, words
        assert f"turnkeeper {words}" in (command.epilog or ""), f"{words} has no example"
        assert any("--json" in param.opts for param in command.params), f"{words} has no --json"


# --- chat


def test_chat_without_a_terminal_sends_every_line_and_prints_the_answers_in_order(verbs: Verbs) -> None:
    done = verbs.run("chat", "--agent", "plain", given="one\ntwo\n\nthree\n")
    talk = [line for line in done.stdout.splitlines() if line.startswith(("you", "agent"))]
    assert talk == ["you: one", "agent: ok one", "you: two", "agent: ok two", "you: three", "agent: ok three"]
    (conversation_id,) = re.findall(r"c_\w+", done.stdout)
    again = verbs.run("chat", conversation_id, given="four\n").stdout.splitlines()
    assert again[1:] == [*talk, "you: four", "agent: ok four"]
    events = [
        json.loads(line)
        for line in verbs.run("chat", conversation_id, "--json", given="five\n").stdout.splitlines()
    ]
    assert events[-1]["kind"] == "TurnSettled"


class Terminal:
    """The command line in a real terminal: a tmux of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._socket = str(folder / "tmux.sock")
        command = shlex.join([sys.executable, "-m", "turnkeeper", *arguments])
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40",
            f"{command}; echo \"ended with $?\"; exec cat",
        )  # fmt: skip

    def _tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self._socket, *arguments], check=True, capture_output=True, text=True, timeout=30
        ).stdout

    @property
    def text(self) -> str:
        """Everything that stands and stood on the screen."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-5000")

    async def shows(self, wanted: str) -> None:
        """Wait until it stands there."""

        def there() -> bool:
            return wanted in self.text

        try:
            await until(there, f"{wanted!r} on the screen", seconds=60)
        except TimeoutError as error:
            raise AssertionError(self.text) from error

    def press(self, text: str, *keys: str) -> None:
        if text:
            self._tmux("send-keys", "-l", text)
        for key in keys:
            self._tmux("send-keys", key)

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Makes terminals that end with the test."""
    made: list[Terminal] = []

    def make(*arguments: str) -> Terminal:
        folder = tmp_path / f"terminal{len(made)}"
        folder.mkdir()
        made.append(Terminal(folder, *arguments))
        return made[-1]

    yield make
    for terminal in made:
        terminal.close()


@pytest.mark.tmux
async def test_chat_on_a_terminal_streams_queues_stops_and_resumes(
    verbs: Verbs, terminals: Callable[..., Terminal]
) -> None:
    terminal = terminals("chat", *verbs.data)
    await terminal.shows("idle")
    terminal.press("hello", "Enter")
    await terminal.shows("agent: ok")
    terminal.press("hold it", "Enter")
    await terminal.shows("working")
    terminal.press("next", "Enter")
    await terminal.shows("(queued, position 1)")
    await terminal.shows("1. next")
    terminal.press("", "C-c")
    await terminal.shows("queue paused")
    terminal.press("/queue", "Enter")
    await terminal.shows("\n1. next")
    terminal.press("/nonsense", "Enter")
    await terminal.shows("there is no command /nonsense")
    terminal.press("/resume", "Enter")
    await terminal.shows("you: next\nagent: ok")
    terminal.press("/etc/hosts is a file", "Enter")
    await terminal.shows("you: /etc/hosts is a file\nagent: ok")
    terminal.press("evil", "Enter")
    await terminal.shows("agent: ␛]0;owned␇ and \\x9b2J \\u202egnp")
    terminal.press("/quit", "Enter")
    await terminal.shows("ended with 0")


@pytest.mark.tmux
async def test_chat_comes_back_by_itself_and_sends_what_was_typed_while_the_server_was_away(
    tmp_path: Path, terminals: Callable[..., Terminal]
) -> None:
    server = make_server(tmp_path)
    async with server:
        terminal = terminals("chat", "--url", server.url, "--token", server.token())
        await terminal.shows("idle")
        terminal.press("essay", "Enter")
        await terminal.shows("word5 ")
        server.kill()
        await terminal.shows("connection lost")
        terminal.press("typed while away", "Enter")
        await terminal.shows("sending 1")
        await server.start()
        await terminal.shows("(connected)")
        await terminal.shows("word399")
        await terminal.shows("you: typed while away\nagent: ok")
        terminal.press("", "C-d")
        await terminal.shows("ended with 0")
        async with Api(server.url, server.token()) as api:
            (row,) = (await api.get("/v1/conversations"))["conversations"]
            texts = [
                m["parts"][0]["text"]
                for m in await api.messages(row["conversation_id"])
                if m["standing"] == "complete"
            ]
            assert texts == ["essay", ESSAY, "typed while away", "ok"]


async def test_tail_comes_back_after_a_kill_and_shows_every_event_once(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    async with server, Api(server.url, server.token()) as api:
        conversation_id = await api.create()
        tail = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "turnkeeper", "tail", conversation_id, "--json", "--data", str(server.data),
            "--url", server.url, "--token", server.token(),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert tail.stdout is not None
        seen: list[int] = []

        async def read() -> None:
            assert tail.stdout is not None
            async for line in tail.stdout:
                seen.append(json.loads(line)["seq"])  # noqa: PERF401 - seen by others while it grows

        reading = asyncio.create_task(read())
        await until(lambda: seen, "the first event")
        for number in range(3):
            turn = (await api.submit(conversation_id, "hello", f"k{number}")).json()
            await api.settled(turn["turn_id"])
            server.kill()
            await server.start()
        last = (await api.snapshot(conversation_id))["as_of_seq"]
        await until(lambda: seen and seen[-1] >= last, "all events")
        assert seen == list(range(1, last + 1))
        tail.kill()
        await tail.wait()
        await reading
