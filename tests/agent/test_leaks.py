"""Seed 004: an answer whose tool call leaked into its text is sampled again and never teaches the model."""

from __future__ import annotations

import pytest

from tests.agent.test_rounds import Counted
from tests.agent.world import PlayedModel, World, call, kinds, results, run
from tests.history.leak_samples import CONTROLS, LEAKS
from turnkeeper.agent.definition import Policies
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import LEAKED
from turnkeeper.conversation.parts import Text, Thinking
from turnkeeper.history.leak import find_leak, find_leak_in
from turnkeeper.port.runner import Answered, FailedWith, Needs

LEAK = 'Reading.\n<invoke name="read">\n<parameter name="name">a</parameter>\n</invoke>'
STALL_KIND = "stall"


def test_a_leaked_answer_is_resampled_on_the_identical_context() -> None:
    async def main() -> None:
        world = World(LEAK, "done cleanly")
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert world.model.calls[0].body == world.model.calls[1].body
        leaked, good = turn.history()[1:]
        assert leaked.text == LEAK
        assert (leaked.display, leaked.replay, leaked.standing) == (True, False, LEAKED)
        assert leaked.stop_reason == "error"
        assert leaked.error
        assert good.text == "done cleanly"
        assert turn.commits[1] == (
            "MessageAppended",
            "AttemptSuperseded",
            "MessageMarked",
            "RoundFailed",
            "RoundStarted",
        )

    run(main())


def test_the_leak_is_priced_and_fires_no_resume() -> None:
    async def main() -> None:
        world = World(LEAK, "ok")
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert "AutoResumed" not in kinds(turn)
        failed = turn.bodies(ev.RoundFailed)[0]
        assert failed.usage is not None
        assert failed.usage.output_tokens == 10
        assert not failed.failure.retryable

    run(main())


def test_a_later_turn_from_the_store_never_sees_the_leak() -> None:
    async def main() -> None:
        world = World(LEAK, "done", "next")
        turn = world.turn()
        await turn.carry_out(world.runner)
        later = turn.next_turn("again")
        await later.carry_out(world.runner)
        assert b"invoke" not in world.model.calls[-1].body
        assert b"done" in world.model.calls[-1].body

    run(main())


def test_what_is_announced_is_judged_and_announced_once() -> None:
    """A reader of the stream may believe an answer when it comes: none is taken back in a later commit."""
    from tests.agent.test_retry import STALL

    async def main() -> None:
        counted = Counted()
        steps = [
            LEAK,
            LEAK,
            [call("write", {"line": "a"}, "w")],
            LEAK,
            ("cut", "Half of", STALL),
            LEAK,
            "done",
        ]
        world = World(model=PlayedModel(*steps, chunk_seconds=0.2), tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        announced = [b.message for b in turn.bodies(ev.MessageAppended) if b.message.role == "assistant"]
        assert len({m.message_id for m in announced}) == len(announced) == 7
        assert all(m.replay == (find_leak(m) is None and m.standing == "complete") for m in announced)
        assert [(m.round, m.text) for m in announced if m.replay] == [(1, ""), (2, "done")]
        assert [b.round for b in turn.bodies(ev.RoundFinished)] == [1, 2]
        marks = {b.message_id for b in turn.bodies(ev.AttemptSuperseded)}
        assert marks == {m.message_id for m in announced if find_leak(m)}
        for kinds_ in turn.commits:
            assert kinds_.count("AttemptSuperseded") == kinds_.count("MessageMarked")
        drafted = "".join(b.text for b in turn.bodies(ev.DraftSaved))
        assert "invoke" not in drafted

    run(main())


@pytest.mark.parametrize(("budget", "calls"), [(2, 3), (1, 2), (0, 1)])
def test_after_the_budget_the_last_attempt_stays_as_it_is_with_a_warning(budget: int, calls: int) -> None:
    async def main() -> None:
        world = World(*[LEAK] * 9, leak_resamples_max=budget)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert len(world.model.calls) == calls
        last = turn.history()[-1]
        assert (last.text, last.standing, last.replay) == (LEAK, "complete", True)
        assert [b.code for b in turn.bodies(ev.Noticed)] == ["leak_kept"]

    run(main())


def test_the_budget_is_one_of_each_round() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(
            LEAK, LEAK, [call("write", {"line": "a"}, "w")], LEAK, LEAK, "done", tools=counted.tools
        )
        turn = world.turn()
        await turn.carry_out(world.runner)
        assert turn.history()[-1].text == "done"
        assert len(turn.bodies(ev.AttemptSuperseded)) == 4

    run(main())


def test_text_is_held_back_from_the_first_character_that_may_begin_a_marker() -> None:
    async def main() -> None:
        world = World(model=PlayedModel(LEAK, "ok <then> fine", chunk_seconds=0.1))
        turn = world.turn()
        await turn.carry_out(world.runner)
        shown = "".join(data["text"] for kind, data in turn.deltas if kind == "text")
        assert "<invoke" not in shown
        assert shown.startswith("Reading.")
        assert shown.endswith("ok <then> fine ")
        assert all("<invoke" not in b.text for b in turn.bodies(ev.DraftSaved))

    run(main())


def test_markup_beside_a_real_call_in_a_fence_or_asked_for_is_no_leak() -> None:
    async def main() -> None:
        counted = Counted()
        fenced = f"Like this:\n```xml\n{LEAK}\n```\nThat is all."
        world = World([Text(LEAK), call("write", {"line": "a"}, "w")], fenced, tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert not turn.bodies(ev.AttemptSuperseded)
        assert counted.ran
        assert results(turn)["w"].content == "wrote a"

    run(main())


@pytest.mark.parametrize("name", LEAKS)
def test_no_dialect_is_shown_fed_or_run(name: str) -> None:
    """Whatever a model's template writes, letter by letter: nothing of it is shown as an answer, kept for a feed, or run."""

    async def main() -> None:
        world = World(("deltas", [*LEAKS[name]]), "done", "next", tools=Counted().tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        leak = find_leak_in(LEAKS[name])
        assert leak is not None
        shown = "".join(data["text"] for kind, data in turn.deltas if kind == "text")
        assert shown == LEAKS[name][: leak.start] + "done"
        later = turn.next_turn("again")
        await later.carry_out(world.runner)
        assert [m.text for m in world.model.sent[-1]] == ["hello", "done", "again"]
        assert turn.bodies(ev.ToolIntended) == []

    run(main())


@pytest.mark.parametrize("name", [name for name in CONTROLS if CONTROLS[name].strip()])
def test_what_only_looks_like_a_leak_is_shown_whole_and_fed(name: str) -> None:
    async def main() -> None:
        world = World(("deltas", [*CONTROLS[name]]), "next")
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert "".join(data["text"] for kind, data in turn.deltas if kind == "text") == CONTROLS[name]
        await turn.next_turn("again").carry_out(world.runner)
        assert world.model.sent[-1][1].text == CONTROLS[name]

    run(main())


def test_markup_in_a_thought_is_no_answer_and_is_never_run() -> None:
    """A thought is the model's own: it is not judged, and with no word beside it the call failed and is made again."""

    async def main() -> None:
        counted = Counted()
        world = World([Thinking(LEAK)], [Thinking(LEAK), Text("done")], "next", tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert [b.failure.kind for b in turn.bodies(ev.RoundFailed)] == ["empty"]
        assert turn.history()[-1].text == "done"
        assert not turn.bodies(ev.AttemptSuperseded)
        assert counted.ran == []

    run(main())


def test_no_call_is_ever_run_from_text() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(*[LEAK] * 3, tools=counted.tools)
        await world.turn().carry_out(world.runner)
        assert counted.ran == []

    run(main())


def test_a_leak_and_then_a_failure_is_the_failure() -> None:
    from tests.agent.test_retry import WRONG_KEY

    async def main() -> None:
        world = World(LEAK, WRONG_KEY)
        outcome = await world.turn().carry_out(world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure == WRONG_KEY

    run(main())


def healing(*steps: object, tools: object, **policies: object) -> World:
    return World(*steps, tools=tools, policies=Policies(heal_leaks=True, **policies))  # type: ignore[arg-type]


WHOLE = 'I will.\n<tool_call>\n{"name": "write", "arguments": {"line": "a"}}\n</tool_call>'


def test_a_leaked_call_that_fits_is_made_into_a_real_one() -> None:
    async def main() -> None:
        counted = Counted()
        world = healing(WHOLE, "done", tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert counted.ran == [("write", {"line": "a"})]
        assert len(world.model.calls) == 2, "it was not sampled again"
        leaked, healed = [m for m in turn.history() if m.role == "assistant"][:2]
        assert (leaked.text, leaked.standing, leaked.replay, leaked.display) == (WHOLE, LEAKED, False, True)
        assert (healed.text, healed.standing, healed.replay) == ("I will.", "complete", True)
        assert b"tool_call>" not in world.model.calls[-1].body
        assert [b.code for b in turn.bodies(ev.Noticed)] == ["leak_healed"]
        assert [b.usage.output_tokens for b in turn.bodies(ev.RoundFinished)] == [10, 10], "priced once each"
        assert turn.bodies(ev.RoundFailed) == []

    run(main())


@pytest.mark.parametrize(
    "leak",
    [
        WHOLE.replace("write", "no_such_tool"),
        WHOLE.replace('"line": "a"', '"line": 7, "more": 1'),
        WHOLE.replace('"a"', '"a'),
        WHOLE + "\nThere you are.",
        WHOLE.removesuffix("</tool_call>"),
        WHOLE + WHOLE.replace("I will.", "").replace("write", "no_such_tool"),
    ],
    ids=["no such tool", "wrong arguments", "broken", "words after it", "cut", "one of two"],
)
def test_a_leaked_call_that_does_not_fit_is_sampled_again_as_ever(leak: str) -> None:
    async def main() -> None:
        counted = Counted()
        world = healing(leak, "done", tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert counted.ran == []
        assert len(turn.bodies(ev.AttemptSuperseded)) == 1
        assert turn.history()[-1].text == "done"

    run(main())


def test_a_healed_call_asks_for_a_yes_and_is_not_repeated_like_any_other() -> None:
    async def main() -> None:
        counted = Counted()
        asking = healing(WHOLE, tools=counted.tools, ask=("write",))
        outcome = await asking.turn().carry_out(asking.runner)
        assert isinstance(outcome, Needs)
        assert counted.ran == []
        world = healing(WHOLE, WHOLE, "done", tools=counted.tools)
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        assert counted.ran == [("write", {"line": "a"})]

    run(main())


def test_nothing_is_healed_unless_it_is_asked_for() -> None:
    async def main() -> None:
        counted = Counted()
        world = World(WHOLE, "done", tools=counted.tools)
        await world.turn().carry_out(world.runner)
        assert counted.ran == []

    run(main())


WIDE = "\U0001f600 <\uff5cDSML\uff5cinvoke name='read'>\ud83d"


@pytest.mark.parametrize("text", [LEAK, WIDE, LEAK.replace("Reading", "\U0001f4d6")])
def test_markup_that_is_cut_anywhere_also_in_a_character_is_never_shown(text: str) -> None:
    async def main() -> None:
        halves = text.encode("utf-16-le", "surrogatepass")
        pieces = [halves[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(halves), 2)]
        world = World(("deltas", pieces), "done")
        turn = world.turn()
        assert isinstance(await turn.carry_out(world.runner), Answered)
        shown = "".join(data["text"] for kind, data in turn.deltas if kind == "text")
        assert "invoke" not in shown
        assert shown.endswith("done")
        assert len(turn.bodies(ev.AttemptSuperseded)) == 1

    run(main())
