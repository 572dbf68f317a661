"""Merging a CLI's record into a conversation: real store, real files, a home folder of the test's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.test_keeper import GatedRunner, ended, say, texts
from tests.transcript.writing import ClaudeSession
from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.app import keeper as keeper_module
from turnkeeper.conversation.events import Draft, HistoryReconciled, SessionBound
from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import Forbidden, NotFound, NotPossible, StoreFull
from turnkeeper.settings import Settings
from turnkeeper.store.sqlite import SQLiteStore
from turnkeeper.transcript.source import Unreadable

WRITER = Principal(user_id="owner", scopes=("read", "write"))


class Home:
    """A home folder with the sessions of Claude Code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / ".claude/projects/-home-ana-demo"
        self.folder.mkdir(parents=True)

    def write(self, session: ClaudeSession) -> str:
        """Returns the id that `find` lists."""
        path = self.folder / f"{session.session_id}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in session.rows))
        return f"claude-code:{session.session_id}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    return Home(tmp_path / "home")


@pytest.fixture
def gated() -> GatedRunner:
    return GatedRunner()


@pytest.fixture
async def keeper(tmp_path: Path, home: Home, gated: GatedRunner) -> AsyncIterator[Keeper]:
    async with await Keeper.open(
        tmp_path / "data", settings=Settings(stop_grace_seconds=1.0), runners={"gated": gated}
    ) as opened:
        yield opened


def told(*pairs: tuple[str, str]) -> ClaudeSession:
    session = ClaudeSession("8a5f1c9e-0000-4000-8000-000000000001")
    for prompt, answer in pairs:
        session.human(prompt)
        session.answer(answer)
        session.duration()
    return session


async def bind(keeper: Keeper, conversation_id: str, native_id: str) -> None:
    bound = SessionBound(cli="claude-code", native_id=native_id, why="new", sentence="The first one.")
    await keeper.dispatcher.append(conversation_id, Draft(bound))


async def merges(keeper: Keeper, conversation_id: str) -> list[HistoryReconciled]:
    events = await keeper.store.events(conversation_id)
    return [event.body for event in events if isinstance(event.body, HistoryReconciled)]


async def test_a_session_is_imported_once_however_often_it_is_asked_for(keeper: Keeper, home: Home) -> None:
    name = home.write(told(("hello", "hi"), ("again", "yes")))
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    first = await keeper.reconcile(OPERATOR, c, name)
    assert (first.added, first.matched, first.stored, first.transcripts) == (4, 0, True, [name])
    assert [row.parts[0]["text"] for row in first.rows] == ["hello", "hi", "again", "yes"]
    assert all(row.seq for row in first.rows)
    assert await texts(keeper, c) == ["u:hello", "a:hi", "u:again", "a:yes"]
    for _ in range(2):
        later = await keeper.reconcile(OPERATOR, c, name)
        assert (later.added, later.matched) == (0, 4)
    assert len(await merges(keeper, c)) == 1


async def test_a_reply_that_the_chat_lost_stands_between_the_prompts_after_a_restart_too(
    keeper: Keeper, home: Home, gated: GatedRunner, tmp_path: Path
) -> None:
    """u1, u2 stored before a1 arrives -> u1, a1, u2, a2 (seed 002)."""
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    for text in ("one", "two"):
        turn = (await say(keeper, c, text)).turn_id
        gated.gate(text).set()
        await ended(keeper, turn)
    session = told(("one", "ok one"), ("one more thing", "which the chat never saw"), ("two", "ok two"))
    await bind(keeper, c, session.session_id)
    home.write(session)
    done = await keeper.reconcile(WRITER, c)
    assert (done.matched, done.added) == (4, 2)
    expected = ["u:one", "a:ok one", "u:one more thing", "a:which the chat never saw", "u:two", "a:ok two"]
    assert await texts(keeper, c) == expected
    drawn = [row.text for row in (await keeper.timeline(OPERATOR, c)).rows if row.text]
    assert drawn == [text[2:] for text in expected]
    await keeper.close()
    async with await Keeper.open(tmp_path / "data", runners={"gated": gated}) as again:
        assert await texts(again, c) == expected
        assert (await again.reconcile(WRITER, c)).added == 0


async def test_a_conversation_without_a_native_session_is_left_alone(keeper: Keeper, home: Home) -> None:
    home.write(told(("hello", "hi")))
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    before = await keeper.store.events(c)
    done = await keeper.reconcile(WRITER, c)
    assert (done.transcripts, done.missing, done.added) == ([], [], 0)
    assert await keeper.store.events(c) == before


async def test_sessions_that_are_gone_or_unreadable_are_told_and_hide_no_other(
    keeper: Keeper, home: Home
) -> None:
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    session = told(("hello", "hi"))
    home.write(session)
    (home.folder / "broken.jsonl").mkdir()
    for native_id in ("gone", "broken", session.session_id):
        await bind(keeper, c, native_id)
    done = await keeper.reconcile(WRITER, c)
    assert done.transcripts == [f"claude-code:{session.session_id}"]
    assert sorted([*done.missing, *done.unreadable]) == ["claude-code:broken", "claude-code:gone"]
    assert done.added == 2


async def test_only_who_operates_the_machine_names_a_session(keeper: Keeper, home: Home) -> None:
    name = home.write(told(("hello", "hi")))
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    with pytest.raises(Forbidden):
        await keeper.reconcile(WRITER, c, name)
    with pytest.raises(NotFound):
        await keeper.reconcile(Principal(user_id="else", scopes=("read", "write", "operate")), c, name)
    assert await texts(keeper, c) == []


@pytest.mark.parametrize(
    "name", ["claude-code:nowhere", "claude-code:../../x", "nobody:x", "x", "codex:*", ""]
)
async def test_a_session_that_is_nowhere_is_not_found(keeper: Keeper, name: str) -> None:
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    with pytest.raises(NotFound):
        await keeper.reconcile(OPERATOR, c, name)


async def test_a_named_session_that_cannot_be_read_is_said(
    keeper: Keeper, home: Home, monkeypatch: Any
) -> None:
    name = home.write(told(("hello", "hi")))
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id

    def refuse(*_: Any, **__: Any) -> Any:
        raise Unreadable(path="x", why="no right to read it")

    monkeypatch.setattr("turnkeeper.transcript.claude_code.read", refuse)
    with pytest.raises(Unreadable, match="no right to read it"):
        await keeper.reconcile(OPERATOR, c, name)


async def test_while_a_turn_runs_its_runner_alone_adds_to_history(
    keeper: Keeper, home: Home, gated: GatedRunner
) -> None:
    name = home.write(told(("hello", "hi")))
    c = (await keeper.create_conversation(OPERATOR, "gated")).conversation_id
    turn = (await say(keeper, c, "hello")).turn_id
    with pytest.raises(NotPossible):
        await keeper.reconcile(OPERATOR, c, name)
    gated.gate("hello").set()
    await ended(keeper, turn)
    await keeper.reconcile(OPERATOR, c, name)
    assert await texts(keeper, c) == ["u:hello", "a:ok hello", "a:hi"]


async def test_what_was_found_is_told_even_if_it_cannot_be_stored(
    keeper: Keeper, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = home.write(told(("hello", "hi")))
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id

    async def full(*_: Any) -> Any:
        raise StoreFull

    heard: list[str] = []
    reconcile = keeper_module.reconcile_conversation

    async def listened(*args: Any, **more: Any) -> Any:
        return await reconcile(*args, **{**more, "rows": heard.extend})

    monkeypatch.setattr(keeper_module, "reconcile_conversation", listened)
    with monkeypatch.context() as patch:
        patch.setattr(SQLiteStore, "commit", full)
        done = await keeper.reconcile(OPERATOR, c, name)
    assert (done.stored, done.added, [row.parts[0]["text"] for row in done.rows]) == (
        False,
        2,
        ["hello", "hi"],
    )
    assert done.why == StoreFull().sentence
    assert await texts(keeper, c) == []
    assert heard == [], "what is not stored is not to be passed over by who reads the same file"
    assert (await keeper.reconcile(OPERATOR, c, name)).stored
    assert await texts(keeper, c) == ["u:hello", "a:hi"]
    assert len(heard) >= 2


async def test_secrets_in_a_transcript_are_masked_like_all_others(keeper: Keeper, home: Home) -> None:
    name = home.write(told(("my key is sk-test-AAAABBBBCCCCDDDDEEEE", "I see")))
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    done = await keeper.reconcile(OPERATOR, c, name)
    assert "AAAABBBB" not in json.dumps([row.parts for row in done.rows])
    assert "AAAABBBB" not in "".join(await texts(keeper, c))
    assert (await keeper.reconcile(OPERATOR, c, name)).added == 0


async def test_half_a_character_in_a_transcript_is_read_merged_and_stored(keeper: Keeper, home: Home) -> None:
    """A CLI that cut a text inside an emoji wrote half of it as an escape; nothing may fall over it, nor add it twice."""
    session = told(("cut \ud83d here", "seen"), ("next", "an\udc00swer"))
    session.rows[0]["cwd"] = {"\ud800": "\udfff"}
    name = home.write(session)
    c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
    done = await keeper.reconcile(OPERATOR, c, name)
    assert (done.stored, done.added) == (True, 4)
    assert await texts(keeper, c) == ["u:cut \ud83d here", "a:seen", "u:next", "a:an\udc00swer"]
    again = await keeper.reconcile(OPERATOR, c, name)
    assert (again.stored, again.added) == (True, 0)
