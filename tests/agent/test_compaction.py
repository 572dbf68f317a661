"""The context budget: a summary stands for the beginning; nothing open, nothing new, nothing shown is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.test_rounds import Counted
from tests.agent.world import World, call, run
from turnkeeper.agent import texts
from turnkeeper.agent.compaction import choose_cut
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, TOOL, USER, Message
from turnkeeper.conversation.parts import Attachment, Text, ToolCall, ToolResult
from turnkeeper.conversation.turns import Failure
from turnkeeper.port.runner import Answered, FailedWith, Stopped

TOO_LONG = Failure(kind="context", retryable=False, sentence="The conversation is too long.", status=400)
LONG = "word " * 1000


def limited(world: World, tokens: int) -> World:
    world.runner.definition = msgspec.structs.replace(world.runner.definition, context_tokens_max=tokens)
    return world


async def long_talk(world: World, turns: int) -> Any:
    turn = world.turn(f"question 0 {LONG}", turn_id="t_0")
    await turn.carry_out(world.runner)
    for n in range(1, turns):
        turn = turn.next_turn(f"question {n} {LONG}", turn_id=f"t_{n}")
        await turn.carry_out(world.runner)
    return turn


def test_a_conversation_that_has_grown_too_long_is_summed_up_before_the_call() -> None:
    async def main() -> None:
        world = World(*[f"answer {n}" for n in range(5)], "THE SUMMARY", "final answer")
        turn = await long_talk(world, 5)
        limited(world, 3000)
        last = turn.next_turn("CURRENT REQUEST: port the tests", turn_id="t_9")
        assert isinstance(await last.carry_out(world.runner), Answered)
        asked, sent = world.model.sent[-2:]
        assert texts.SUMMARISE in asked[-1].text
        assert "question 0" in str(asked)
        assert "CURRENT REQUEST" not in str(asked[:-1])
        assert "THE SUMMARY" in sent[0].text
        assert "question 0" not in str(sent)
        assert sent[-1].role == "user"
        assert str(sent).count("CURRENT REQUEST: port the tests") == 1
        assert last.history()[-1].text == "final answer"
        assert next(m.text for m in last.history() if m.role == "user").startswith("question 0")
        compacted = last.bodies(ev.HistoryCompacted)[0]
        assert compacted.usage is not None

    run(main())


def test_later_turns_go_on_from_the_summary_with_the_same_bytes() -> None:
    async def main() -> None:
        world = World(*["a"] * 2, "SUMMARY", "b", "c")
        turn = await long_talk(world, 2)
        limited(world, 1_500)
        third = turn.next_turn("third", turn_id="t_3")
        await third.carry_out(world.runner)
        sent = world.model.sent[-1]
        assert "SUMMARY" in sent[0].text
        fourth = third.next_turn("fourth", turn_id="t_4")
        await fourth.carry_out(world.runner)
        later = world.model.sent[-1]
        assert [m.parts for m in later[: len(sent)]] == [m.parts for m in sent]
        assert len(fourth.bodies(ev.HistoryCompacted)) == 1

    run(main())


def test_a_request_that_the_provider_refuses_as_too_long_is_summed_up_and_sent_again() -> None:
    async def main() -> None:
        world = World("a", "b", TOO_LONG, "SUMMARY", "done")
        turn = await long_talk(world, 2)
        last = turn.next_turn("now this", turn_id="t_9")
        assert isinstance(await last.carry_out(world.runner), Answered)
        assert "SUMMARY" in world.model.sent[-1][0].text
        assert "now this" in world.model.sent[-1][-1].text
        assert last.history()[-1].text == "done"

    run(main())


def test_within_one_long_turn_the_request_and_its_attachment_stay_word_for_word() -> None:
    async def main() -> None:
        counted = Counted()
        spoken = (Text("do all of it"), Attachment(attachment_id="f_1", media_type="image/png"))
        steps: list[Any] = [[call("write", {"line": f"{n} {LONG}"}, f"w{n}")] for n in range(4)]
        world = limited(World(*steps, "SUMMARY of the work", "done", tools=counted.tools), 9_000)
        turn = world.turn(parts=spoken)
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert len(counted.ran) == 4
        sent = world.model.sent[-1]
        assert "SUMMARY of the work" in sent[0].text
        assert spoken[0] in sent[0].parts
        assert spoken[1] in sent[0].parts
        calls = [p.id for m in sent for p in m.parts if isinstance(p, ToolCall)]
        answered = [p.tool_call_id for m in sent for p in m.parts if isinstance(p, ToolResult)]
        assert calls == answered

    run(main())


@pytest.mark.parametrize(
    "step",
    ["", TOO_LONG, [call("write", {"line": "x"}, "x")], 'So far.\n<tool_call>\n{"name": "write"}'],
    ids=["empty", "refused", "a call", "a leak"],
)
def test_a_summary_that_fails_is_said_and_the_turn_goes_on_without(step: Any) -> None:
    async def main() -> None:
        counted = Counted()
        world = World("a", "b", step, "done", tools=counted.tools, compactions_max=1)
        turn = await long_talk(world, 2)
        limited(world, 2_000)
        last = turn.next_turn(f"third {LONG}", turn_id="t_9")
        assert isinstance(await last.carry_out(world.runner), Answered)
        notices = [b.code for b in last.bodies(ev.Noticed)]
        assert notices == ["compaction_failed"]
        assert not last.bodies(ev.HistoryCompacted)
        assert counted.ran == []
        assert last.history()[-1].text == "done"

    run(main())


def test_the_budget_of_summaries_is_kept_and_then_the_failure_stands() -> None:
    async def main() -> None:
        world = World("a", TOO_LONG, "S1", TOO_LONG, "S2", TOO_LONG, "S3")
        turn = await long_talk(world, 1)
        last = turn.next_turn("now this", turn_id="t_9")
        outcome = await last.carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure == TOO_LONG
        assert len(last.bodies(ev.HistoryCompacted)) <= 2

    run(main())


def test_a_stop_breaks_the_summary_off() -> None:
    async def main() -> None:
        async def hang() -> str:
            await asyncio.Event().wait()
            return ""

        world = World("a", "b", hang)
        turn = await long_talk(world, 2)
        limited(world, 2_000)
        last = turn.next_turn(f"third {LONG}", turn_id="t_9")
        task = asyncio.ensure_future(last.carry_out(world.runner))
        await asyncio.sleep(1)
        last.stop()
        assert isinstance(await task, Stopped)
        assert not last.bodies(ev.HistoryCompacted)

    run(main())


def message(role: str, *parts: Any, n: int) -> Message:
    return Message(message_id=f"m{n}", role=role, parts=parts)


@st.composite
def dialogues(draw: st.DrawFn) -> list[Message]:
    found: list[Message] = []
    for _ in range(draw(st.integers(1, 6))):
        found.append(message(USER, Text("u" * draw(st.integers(1, 400))), n=len(found)))
        for _ in range(draw(st.integers(0, 3))):
            ids = [f"c{len(found)}_{k}" for k in range(draw(st.integers(1, 3)))]
            found.append(message(ASSISTANT, *[ToolCall(i, "t") for i in ids], n=len(found)))
            for i in draw(st.permutations(ids)):
                found.append(message(TOOL, ToolResult(i, "r" * draw(st.integers(1, 400))), n=len(found)))
        if draw(st.booleans()):
            found.append(message(ASSISTANT, Text("a" * draw(st.integers(1, 400))), n=len(found)))
    return found


@given(dialogues(), st.integers(1, 2000))
def test_a_cut_never_parts_a_call_from_its_result(messages: list[Message], budget: int) -> None:
    cut = choose_cut(messages, budget)
    if cut is None:
        assert not any(m.role == ASSISTANT and not _calls(m) for m in messages) or len(messages) == 0
        return
    covered = messages[:cut]
    calls = {p.id for m in covered for p in m.parts if isinstance(p, ToolCall)}
    results = {p.tool_call_id for m in covered for p in m.parts if isinstance(p, ToolResult)}
    assert calls == results
    assert any(m.role == ASSISTANT for m in covered)
    assert cut == len(messages) or messages[cut].role != TOOL


def _calls(m: Message) -> bool:
    return any(isinstance(p, ToolCall) for p in m.parts)
