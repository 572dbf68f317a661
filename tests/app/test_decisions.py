"""Questions that a turn asks a person: asked once, decided once, in time, by who may (G11)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.events import ApprovalDecided as Decided
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import ApprovalDecided, BadInput, Forbidden, NotFound, TurnDecided
from turnkeeper.lane import inputs
from turnkeeper.settings import Settings
from turnkeeper.testing.until import until as waited

AGENTS = """
[agents.careful]
script = "script.json"
tools = ["append_file", "echo"]
demo_tools = true
policies = {{ ask = ["append_file"], approval_seconds = {seconds} }}
"""


def world(folder: Path, seconds: float) -> Path:
    call = {"name": "append_file", "arguments": {"path": str(folder / "effects"), "text": "x"}}
    other = {"name": "append_file", "arguments": {"path": str(folder / "effects"), "text": "y"}}
    rules = [
        {"match": "apply both", "rounds": [{"tool_calls": [call, other]}, {"text": "applied"}]},
        {"match": "apply", "rounds": [{"tool_calls": [call]}, {"text": "applied"}]},
    ]
    script = {"rules": rules}
    (folder / "script.json").write_text(json.dumps(script))
    agents = folder / "agents.toml"
    agents.write_text(AGENTS.format(seconds=seconds))
    return agents


@pytest.fixture
def seconds() -> float:
    return 60.0


@pytest.fixture
async def keeper(tmp_path: Path, seconds: float) -> AsyncIterator[Keeper]:
    settings = Settings(sweep_seconds=0.05)
    agents = world(tmp_path, seconds)
    async with await Keeper.open(tmp_path / "data", agents=agents, settings=settings) as opened:
        yield opened


async def until(keeper: Keeper, turn_id: str, *states: str) -> Any:
    turn = await keeper.store.turn(turn_id)
    assert turn is not None
    async for _ in keeper.broadcast.watch(turn.conversation_id, after=0):
        view = await keeper.turn(OPERATOR, turn_id)
        if view.state in states:
            return view
    raise AssertionError


async def ask(keeper: Keeper, key: str = "k") -> tuple[str, str, str]:
    """A turn that waits for approval: (conversation, turn, approval)."""
    c = (await keeper.create_conversation(OPERATOR, "careful")).conversation_id
    turn = (await keeper.submit(OPERATOR, c, key=key, parts=(Text("apply"),))).turn_id
    await until(keeper, turn, "parked")
    (asked,) = await keeper.approvals(OPERATOR)
    assert (asked["name"], asked["turn_id"]) == ("append_file", turn)
    return c, turn, asked["approval_id"]


def effects(tmp_path: Path) -> str:
    file = tmp_path / "effects"
    return file.read_text() if file.exists() else ""


async def test_one_yes_runs_the_call_once_and_a_second_is_told_so(keeper: Keeper, tmp_path: Path) -> None:
    _, turn, approval = await ask(keeper)
    assert effects(tmp_path) == ""
    await keeper.decide_approval(OPERATOR, approval, "approve")
    assert (await until(keeper, turn, "settled")).state == "settled"
    assert effects(tmp_path).count("x") == 1
    for decision in ("approve", "deny"):
        with pytest.raises(ApprovalDecided) as caught:
            await keeper.decide_approval(OPERATOR, approval, decision)
        assert caught.value.facts["state"] == "approved"
    assert effects(tmp_path).count("x") == 1


async def test_a_no_runs_nothing_and_the_turn_ends(keeper: Keeper, tmp_path: Path) -> None:
    _, turn, approval = await ask(keeper)
    await keeper.decide_approval(OPERATOR, approval, "deny")
    await until(keeper, turn, "settled")
    assert effects(tmp_path) == ""


async def test_the_lane_is_free_while_a_question_waits(keeper: Keeper) -> None:
    c, turn, _ = await ask(keeper)
    other = (await keeper.submit(OPERATOR, c, key="other", parts=(Text("hello"),))).turn_id
    assert (await until(keeper, other, "settled")).state == "settled"
    assert (await keeper.turn(OPERATOR, turn)).state == "parked"


async def test_who_may_not_decide_learns_nothing(keeper: Keeper, tmp_path: Path) -> None:
    _, _, approval = await ask(keeper)
    stranger = Principal(user_id="mallory", scopes=("approve", "admin"))
    assert await keeper.approvals(stranger) == []
    for name in (approval, "p_forged.1.1", "nonsense", ""):
        with pytest.raises(NotFound):
            await keeper.decide_approval(stranger, name, "approve")
    with pytest.raises(NotFound):
        await keeper.decide_approval(OPERATOR, approval + "9", "approve")
    with pytest.raises(Forbidden):
        await keeper.decide_approval(Principal("owner", ("read", "write")), approval, "approve")
    with pytest.raises(BadInput):
        await keeper.decide_approval(OPERATOR, approval, "maybe")
    assert effects(tmp_path) == ""


async def test_a_question_survives_a_restart(tmp_path: Path) -> None:
    agents = world(tmp_path, 60.0)
    async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
        _, turn, approval = await ask(keeper)
    async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
        (asked,) = await keeper.approvals(OPERATOR)
        assert asked["approval_id"] == approval
        await keeper.decide_approval(OPERATOR, approval, "approve")
        await until(keeper, turn, "settled")
    assert effects(tmp_path).count("x") == 1


async def test_the_other_question_of_a_turn_that_goes_on_is_put_off_and_asked_again(
    keeper: Keeper, tmp_path: Path
) -> None:
    c = (await keeper.create_conversation(OPERATOR, "careful")).conversation_id
    turn = (await keeper.submit(OPERATOR, c, key="k", parts=(Text("apply both"),))).turn_id
    await until(keeper, turn, "parked")
    first, second = [one["approval_id"] for one in await keeper.approvals(OPERATOR)]
    await keeper.pause(OPERATOR, c)
    await keeper.decide_approval(OPERATOR, first, "approve")
    with pytest.raises(ApprovalDecided) as caught:
        await keeper.decide_approval(OPERATOR, second, "approve")
    assert caught.value.facts["state"] == "put off until its turn asks again"
    await keeper.resume(OPERATOR, c)
    await until(keeper, turn, "parked")
    (asked,) = await keeper.approvals(OPERATOR)
    await keeper.decide_approval(OPERATOR, asked["approval_id"], "approve")
    await until(keeper, turn, "settled")
    assert sorted(effects(tmp_path)) == ["x", "y"]


@pytest.mark.parametrize("seconds", [0.3])
async def test_a_late_yes_is_refused_as_expired_and_nothing_runs(keeper: Keeper, tmp_path: Path) -> None:
    c, turn, approval = await ask(keeper)
    await until(keeper, turn, "settled", "failed")
    with pytest.raises(ApprovalDecided) as caught:
        await keeper.decide_approval(OPERATOR, approval, "approve")
    assert caught.value.facts["state"] == "expired"
    assert effects(tmp_path) == ""
    again = (await keeper.submit(OPERATOR, c, key="again", parts=(Text("apply"),))).turn_id
    await until(keeper, again, "parked")
    asked = [one for one in await keeper.approvals(OPERATOR) if one["turn_id"] == again]
    await keeper.decide_approval(OPERATOR, asked[0]["approval_id"], "approve")
    await until(keeper, again, "settled")
    assert effects(tmp_path).count("x") == 1


async def test_two_answers_at_once_are_one_decision(keeper: Keeper, tmp_path: Path) -> None:
    _, turn, approval = await ask(keeper)
    answers = await asyncio.gather(
        *[keeper.decide_approval(OPERATOR, approval, d) for d in ("approve", "deny", "approve")],
        return_exceptions=True,
    )
    assert sum(isinstance(answer, dict) for answer in answers) == 1
    await until(keeper, turn, "settled")
    assert effects(tmp_path).count("x") <= 1


def in_between(keeper: Keeper, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
    """Have `act` done once between the moment a decision's question is read and the moment it is told."""
    read, acts = keeper._decisions._asked, [act]

    async def slowly(approval_id: str) -> Any:
        found = await read(approval_id)
        if acts:
            await acts.pop()()
        return found

    monkeypatch.setattr(keeper._decisions, "_asked", slowly)


@pytest.mark.parametrize("which", ["the one that was decided", "the other one"])
async def test_a_decision_is_about_the_question_that_was_read_also_if_the_turn_waits_anew(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    c = (await keeper.create_conversation(OPERATOR, "careful")).conversation_id
    turn = (await keeper.submit(OPERATOR, c, key="k", parts=(Text("apply both"),))).turn_id
    await until(keeper, turn, "parked")
    first, second = [one["approval_id"] for one in await keeper.approvals(OPERATOR)]

    async def go_on_and_wait_again() -> None:
        await keeper.decide_approval(OPERATOR, first, "approve")
        await waited(lambda: [*effects(tmp_path)] == ["x"], "the first call")
        await until(keeper, turn, "parked")

    in_between(keeper, monkeypatch, go_on_and_wait_again)
    if which == "the one that was decided":
        with pytest.raises(ApprovalDecided) as caught:
            await keeper.decide_approval(OPERATOR, first, "deny")
        assert caught.value.facts["state"] == "approved"
        assert (await keeper.turn(OPERATOR, turn)).state == "parked", "it waits for the other"
    else:
        assert (await keeper.decide_approval(OPERATOR, second, "approve"))["state"] == "approve"
        await until(keeper, turn, "settled")
    decided = [
        (e.body.approval_id, e.body.decision)
        for e in await keeper.store.events(c, limit=1000)
        if isinstance(e.body, Decided)
    ]
    assert decided == [(first, "approve"), (second, "approve")][: len(decided)]
    assert len(decided) == (1 if which == "the one that was decided" else 2)


async def test_a_choice_is_never_taken_for_a_later_question(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, turn, _ = await ask(keeper)
    stale = await keeper.store.turn(turn)
    assert stale is not None
    told = inputs.Decide(turn_id=turn, decision={"choice": "x"}, fence=stale.fence - 1)
    with pytest.raises(TurnDecided):
        await keeper.dispatcher.change(stale, told)
    assert (await keeper.turn(OPERATOR, turn)).state == "parked"


async def test_who_is_named_to_approve_decides_and_the_owner_does_not(tmp_path: Path) -> None:
    agents = world(tmp_path, 60.0)
    agents.write_text(agents.read_text().replace("policies = { ", 'policies = { approver = "boss", '))
    boss = Principal("boss", ("read", "approve"))
    async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
        c = (await keeper.create_conversation(OPERATOR, "careful")).conversation_id
        turn = (await keeper.submit(OPERATOR, c, key="k", parts=(Text("apply"),))).turn_id
        await until(keeper, turn, "parked")
        assert await keeper.approvals(OPERATOR) == []
        assert await keeper.approvals(Principal("mallory", ("read", "approve"))) == []
        (asked,) = await keeper.approvals(boss)
        for other in (OPERATOR, Principal("mallory", ("read", "approve"))):
            with pytest.raises(NotFound):
                await keeper.decide_approval(other, asked["approval_id"], "approve")
        (stuck,) = (await keeper.status(OPERATOR))["parked"]
        assert [one["who"] for one in stuck["waits_for"]] == ["boss"], "status says for whom it waits"
        await keeper.decide_approval(boss, asked["approval_id"], "approve")
        await until(keeper, turn, "settled")
        decided = [e.body.by for e in await keeper.store.events(c, limit=1000) if isinstance(e.body, Decided)]
        assert decided == ["boss"]
    assert effects(tmp_path) == "x"


async def test_a_restart_between_the_yes_and_the_run_runs_it_once(tmp_path: Path) -> None:
    agents = world(tmp_path, 60.0)
    async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
        c, turn, approval = await ask(keeper)
        await keeper.pause(OPERATOR, c)
        await keeper.decide_approval(OPERATOR, approval, "approve")
    assert effects(tmp_path) == ""
    async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
        assert await keeper.approvals(OPERATOR) == []
        with pytest.raises(ApprovalDecided):
            await keeper.decide_approval(OPERATOR, approval, "deny")
        await keeper.resume(OPERATOR, c)
        await until(keeper, turn, "settled")
    async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
        assert (await keeper.turn(OPERATOR, turn)).state == "settled"
    assert effects(tmp_path) == "x"
