"""What the model saw beside what a person sees, from the real store."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.agent.journal import TurnJournal
from turnkeeper.agent.texts import SUMMARY_HEAD
from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.app import keeper as keeper_module
from turnkeeper.conversation.parts import Text
from turnkeeper.errors import BadInput
from turnkeeper.history.feed import Feed, FeedOptions
from turnkeeper.provider.dialects import DIALECTS

PROGRAM = Path(__file__).parent.parent / "mcp" / "programs" / "program.py"


@pytest.mark.parametrize("provider", [None, "any", *sorted(DIALECTS)])
async def test_the_feed_of_a_conversation_in_every_dialect(tmp_path: Path, provider: str | None) -> None:
    async with await Keeper.open(tmp_path / "data") as keeper:
        c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
        turn = await keeper.submit(OPERATOR, c, key="k", parts=(Text("hello"),))
        async for _ in keeper.watch(OPERATOR, c, after=0):
            if (await keeper.turn(OPERATOR, turn.turn_id)).state == "settled":
                break
        await keeper.submit(OPERATOR, c, key="k2", parts=(Text("more"),))
        seen = await keeper.feed(OPERATOR, c, provider)
        assert [row["role"] for row in seen["feed"]][:3] == ["user", "assistant", "user"]
        assert [row["parts"][0]["text"] for row in seen["display"]][:2] == ["hello", "ok hello"]
        assert seen["request"] is not None
        with pytest.raises(BadInput, match="no provider 'ghost'"):
            await keeper.feed(OPERATOR, c, "ghost")


AGENTS = """
[agents.talker]
runner = "model"
script = "talker.json"
context_tokens_max = 1000
tools = ["echo"]
demo_tools = true
"""


async def test_the_feed_that_is_shown_is_the_one_that_the_model_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a compaction too: what was sent for the last round is the beginning of what is shown."""
    given: list[list[tuple[str, list[str]]]] = []
    build = TurnJournal.feed

    def watched(journal: TurnJournal) -> Feed:
        feed = build(journal)
        given.append([(m.role, [p.text for p in m.parts if isinstance(p, Text)]) for m in feed.messages])
        return feed

    monkeypatch.setattr(TurnJournal, "feed", watched)
    (tmp_path / "talker.json").write_text('{"rules": []}', "utf-8")
    (tmp_path / "agents.toml").write_text(AGENTS, "utf-8")
    async with await Keeper.open(tmp_path / "data", agents=tmp_path / "agents.toml") as keeper:
        c = (await keeper.create_conversation(OPERATOR, "talker")).conversation_id
        for number in range(5):
            text = f"question {number} " + "word " * 200
            turn = await keeper.submit(OPERATOR, c, key=f"k{number}", parts=(Text(text),))
            async for _ in keeper.watch(OPERATOR, c, after=0):
                if (await keeper.turn(OPERATOR, turn.turn_id)).state == "settled":
                    break
        seen = await keeper.feed(OPERATOR, c)
        shown = [(row["role"], [part["text"] for part in row["parts"]]) for row in seen["feed"]]
        assert given[-1][0][1][0].startswith(SUMMARY_HEAD)
        assert shown[: len(given[-1])] == given[-1]
        assert any(change["rule"] == "compaction" for change in seen["changes"])
        assert [row["parts"][0]["text"][:10] for row in seen["display"][:1]] == ["question 0"]


WITH_A_SERVER = """
[agents.asker]
runner = "model"
script = "asker.json"
tools = ["mcp:s"]

[mcp.s]
command = [{command}]
"""


async def test_what_tools_of_a_server_may_do_is_known_to_what_is_shown_as_to_what_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the server cannot be asked any more: its list is kept."""
    sent: list[dict[str, str]] = []
    shown: list[dict[str, str]] = []
    build, view = TurnJournal.feed, keeper_module.build_feed

    def watched(journal: TurnJournal) -> Feed:
        sent.append({name: str(effect) for name, effect in journal._effects.items()})
        return build(journal)

    def viewed(*args: Any, options: FeedOptions, **more: Any) -> Feed:
        shown.append({name: str(effect) for name, effect in options.effects.items()})
        return view(*args, options=options, **more)

    monkeypatch.setattr(TurnJournal, "feed", watched)
    monkeypatch.setattr(keeper_module, "build_feed", viewed)
    program = tmp_path / "program.py"
    shutil.copy(PROGRAM, program)
    words = [sys.executable, "-S", str(program), str(tmp_path / "effects")]
    command = ", ".join(json.dumps(word) for word in words)
    (tmp_path / "agents.toml").write_text(WITH_A_SERVER.format(command=command), "utf-8")
    (tmp_path / "asker.json").write_text('{"rules": []}', "utf-8")
    for place in ("running", "gone"):
        async with await Keeper.open(tmp_path / "data", agents=tmp_path / "agents.toml") as keeper:
            c = (await keeper.create_conversation(OPERATOR, "asker")).conversation_id
            turn = await keeper.submit(OPERATOR, c, key=place, parts=(Text("hello"),))
            async for _ in keeper.watch(OPERATOR, c, after=0):
                if (await keeper.turn(OPERATOR, turn.turn_id)).state == "settled":
                    break
            await keeper.feed(OPERATOR, c)
        program.unlink(missing_ok=True)
    assert shown[0]["s__look"] == "read_only"
    assert [known for known in shown if known != sent[-1]] == []
