"""Seed 003, assertion by assertion: what holds, and what is seen in its place once its fix is taken away.

Goal: no assertion about retries that could not fail. Method: each row of `FIXES` plays one small story twice, as it
is and with one thing taken out of the code, and names what is seen in both. The model of the stories is honest: it
asks for the write as long as it is not shown that the write was done.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent import test_one_way
from tests.agent.test_retry import RETRIED, STALL, WRONG_KEY, write
from tests.agent.test_rounds import Counted
from tests.agent.world import World, call, results, run
from tests.provider.test_failures import test_retryable_says_what_the_sentence_tells_the_person as verdicts
from turnkeeper.agent import attempt, entry, journal, so_far
from turnkeeper.agent.kept import Histories
from turnkeeper.agent.ledger import find_earlier
from turnkeeper.agent.plan import Again
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Attachment, ToolResult
from turnkeeper.conversation.turns import Disposition
from turnkeeper.port.runner import Answered, FailedWith
from turnkeeper.provider import failures
from turnkeeper.testing.turn_port import MemoryTurn
from turnkeeper.tool import tool, tool_of

Patch = pytest.MonkeyPatch
SPOKEN = (Attachment(attachment_id="f_1", media_type="audio/ogg", transcript="add a line, please"),)
SPOKEN_AGAIN = (Attachment(attachment_id="f_2", media_type="audio/ogg", transcript="please add that line"),)


def honest(world: World) -> Callable[[], Any]:
    """A step of a model that asks for the write until it sees that it is done."""

    def step() -> Any:
        seen = [part for message in world.model.sent[-1] for part in message.parts]
        return "Added." if any(isinstance(part, ToolResult) for part in seen) else write(id_="w2")

    return step


def story(*first: Any, **settings: Any) -> tuple[World, Counted]:
    """The write, then `first`, then the honest model."""
    counted = Counted()
    world = World(tools=counted.tools, **settings)
    world.model.steps = [write(), *first, *[honest(world)] * 4]
    return world, counted


# -- the stories, and what is seen in each


async def one_stall(patch: Patch, *, whole: bool) -> int:
    """How often the write ran. With the resume taken out the turn is simply tried again, from its request."""
    if not whole:
        resume = attempt.Attempt._resume

        def from_the_request(self: attempt.Attempt, failure: Any) -> None:
            resume(self, failure)
            self.journal._read([message for message in self.journal.messages if message.role == "user"])
            self.journal.so_far = so_far.TurnSoFar(auto_resumes=1)

        patch.setattr(attempt.Attempt, "_resume", from_the_request)
    world, counted = story(STALL)
    turn = world.turn("add a line")
    assert isinstance(await turn.carry_out(world.runner), Answered)
    return len(counted.ran)


async def spoken(patch: Patch, *, whole: bool) -> tuple[int, bool]:
    """How often the write ran, and whether the model was given the recording that was sent first.

    Without a retry of the stored request the person speaks again, never in the same words, and all begins anew.
    """
    world, counted = story(STALL, STALL)
    turn = world.turn(parts=SPOKEN)
    assert isinstance(await turn.carry_out(world.runner), FailedWith)
    if whole:
        await turn.again("retried", RETRIED, attempt=2).carry_out(world.runner)
    else:
        await world.turn(parts=SPOKEN_AGAIN, turn_id="t_2").carry_out(world.runner)
    return len(counted.ran), world.model.sent[-1][0].parts == SPOKEN


async def retried(patch: Patch, *, whole: bool) -> int:
    """How often the write ran over a person's retry, where the kept rounds are not read: the request alone is."""
    world, counted = story(STALL, STALL)
    turn = world.turn("add a line")
    assert isinstance(await turn.carry_out(world.runner), FailedWith)
    if not whole:
        read = MemoryTurn.messages

        async def request_only(self: MemoryTurn) -> list[Message]:
            return [message for message in await read(self) if message.role == "user"]

        patch.setattr(MemoryTurn, "messages", request_only)
        patch.setattr(journal, "read_turn", lambda events: so_far.TurnSoFar())
        world.runner.histories = Histories(0, 0)
    await turn.again("retried", RETRIED, attempt=2).carry_out(world.runner)
    return len(counted.ran)


async def asked_again(patch: Patch, *, whole: bool) -> int:
    """How often the write ran, where the model asks for it again although it was shown its result."""
    if not whole:
        patch.setattr(attempt, "find_earlier", lambda *given: None)
    counted = Counted()
    world = World(write(), STALL, write(id_="w2"), "Added.", tools=counted.tools)
    await world.turn().carry_out(world.runner)
    return len(counted.ran)


async def failed_result(patch: Patch, *, whole: bool) -> int:
    """How often a call ran that failed, where only what succeeded is kept."""
    if not whole:

        def done_only(*given: Any) -> Any:
            found = find_earlier(*given)
            return found if found is None or found.disposition is Disposition.DONE else None

        patch.setattr(attempt, "find_earlier", done_only)
    ran: list[int] = []

    @tool
    async def breaks() -> str:
        """Break."""
        ran.append(1)
        raise OSError("no such host")

    steps = [[call("breaks", {}, "b1")], STALL, [call("breaks", {}, "b2")], "sorry"]
    world = World(*steps, tools=[tool_of(breaks)])
    turn = world.turn()
    await turn.carry_out(world.runner)
    assert "no such host" in str(results(turn)["b1"].content)
    return len(ran)


async def consumed(patch: Patch, *, whole: bool) -> int:
    """How many calls an outage costs, where the resume is announced and not counted."""
    if not whole:
        patch.setitem(so_far._FOLDS, ev.AutoResumed, lambda *given: None)
    world = World(*[STALL] * 6, WRONG_KEY)
    await world.turn().carry_out(world.runner)
    return len(world.model.calls)


async def not_retryable(patch: Patch, *, whole: bool) -> int:
    """How many calls a wrong key costs, where every failure is taken for one that passes."""
    if not whole:
        plan = attempt.after_failure

        def hopeful(told: Any, *given: Any, **named: Any) -> Any:
            asked = plan(told, *given, **named)
            return Again(why="auto_resume") if told.auto_resumes < 1 else asked

        patch.setattr(attempt, "after_failure", hopeful)
    world = World(*[WRONG_KEY] * 6)
    await world.turn().carry_out(world.runner)
    return len(world.model.calls)


async def too_old(patch: Patch, *, whole: bool) -> int:
    """How many calls are made by a retry one second after the window, where nobody asks how old the results are."""
    if not whole:
        patch.setattr(entry, "_ask_about_age", lambda *given: None)
    world, _ = story(STALL, STALL)
    turn = world.turn()
    await turn.carry_out(world.runner)
    before = len(world.model.calls)
    await asyncio.sleep(world.runner.settings.resume_window_seconds + 1)
    await turn.again("retried", RETRIED, attempt=2).carry_out(world.runner)
    return len(world.model.calls) - before


async def announced(patch: Patch, *, whole: bool) -> tuple[int, ...]:
    """The rounds and results that the event says were kept, where it is made before they are counted."""
    if not whole:
        patch.setattr(so_far.TurnSoFar, "kept_results", lambda self: [])
    world, _ = story(STALL)
    turn = world.turn()
    await turn.carry_out(world.runner)
    return tuple([b.kept_results for b in turn.bodies(ev.AutoResumed)])


Story = Callable[..., Awaitable[Any]]
FIXES: dict[str, tuple[Story, Any, Any]] = {
    "the write runs once over a stall": (one_stall, 1, 2),
    "a spoken turn goes on from its recording": (spoken, (1, True), (2, False)),
    "a retry reads the kept rounds": (retried, 1, 2),
    "an identical call is not run again": (asked_again, 1, 2),
    "a failed result is kept too": (failed_result, 1, 2),
    "the resume is consumed": (consumed, 2, 7),
    "what cannot be retried is returned at once": (not_retryable, 1, 2),
    "old results are asked about": (too_old, 0, 1),
    "the event says what was kept": (announced, (1,), (0,)),
}
"""Per assertion: its story, what is seen, and what is seen without the fix."""


@pytest.mark.parametrize("name", FIXES)
def test_an_assertion_holds_and_fails_once_its_fix_is_taken_away(name: str, monkeypatch: Patch) -> None:
    play, seen, seen_without = FIXES[name]
    assert run(play(monkeypatch, whole=True)) == seen
    assert run(play(monkeypatch, whole=False)) == seen_without


def test_a_verdict_that_differs_from_its_sentence_is_found(monkeypatch: Patch) -> None:
    """One entry makes both; a text that says the other thing is what could still part them."""
    verdicts("credentials")
    told = msgspec.structs.replace(failures.KINDS["credentials"], do="Try again later")
    monkeypatch.setitem(failures.KINDS, "credentials", told)
    with pytest.raises(AssertionError):
        verdicts("credentials")


@pytest.mark.parametrize(
    ("where", "line", "guard"),
    [
        ("agent", "return provider.stream(call)", "test_a_model_is_called_in_two_places_only"),
        ("dispatch", "return agent.run(turn)", "test_only_the_dispatcher_runs_a_runner"),
        ("agent", "return turn.carry_out()", "test_an_attempt_is_carried_out_only_by_its_runner"),
    ],
)
def test_a_second_way_to_a_model_is_found(
    tmp_path: Path, monkeypatch: Patch, where: str, line: str, guard: str
) -> None:
    for room in ("agent", "dispatch"):
        shutil.copytree(test_one_way.SOURCE / room, tmp_path / room)
    monkeypatch.setattr(test_one_way, "SOURCE", tmp_path)
    monkeypatch.setattr(test_one_way, "PRODUCTION", [*tmp_path.rglob("*.py")])
    (walk,) = [found for name, found in vars(test_one_way).items() if name.startswith(guard)]
    walk()
    beside = tmp_path / where / "beside.py"
    beside.write_text(f"def go_round(provider, agent, turn, call):\n    {line}\n")
    monkeypatch.setattr(test_one_way, "PRODUCTION", [*tmp_path.rglob("*.py")])
    with pytest.raises(AssertionError):
        walk()
