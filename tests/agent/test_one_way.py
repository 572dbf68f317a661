"""There is one way to a model and one way to a runner: nothing can go round the ledger and the budgets.

Walks the source: seed 003 asks for it, because a later edit that calls the model directly would switch the
resume off in production with every other test green.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "turnkeeper"
PRODUCTION = [path for path in SOURCE.rglob("*.py") if "testing" not in path.parts]


def calls_of(method: str) -> Iterator[tuple[str, str]]:
    """(file, function) of every call of a method of this name in production code."""
    for path in PRODUCTION:
        tree = ast.parse(path.read_text("utf-8"))
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == method
                ):
                    yield str(path.relative_to(SOURCE)), function.name


def makes(name: str) -> set[tuple[str, str]]:
    """(file, function) of every place in the room of our loop, and in the drivers, that makes an event of this name."""
    found = set()
    for path in PRODUCTION:
        if not {"agent", "provider"} & set(path.relative_to(SOURCE).parts):
            continue
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    made = node.func if isinstance(node, ast.Call) else None
                    if name in (getattr(made, "attr", None), getattr(made, "id", None)):
                        found.add((str(path.relative_to(SOURCE)), function.name))
    return found


def test_the_end_of_an_answer_is_announced_in_one_place() -> None:
    """Seed 004: what streams an answer never says that it is finished, for whoever judges it comes after.

    An answer of our loop that stays is announced by `_replied`, one that leaked by `_keep_leaked`, one that broke
    by `keep`, and half of one that died with its process by `_keep_half`; somebody's own agent has the same two ends.
    """
    assert makes("RoundFinished") == {("agent/loop.py", "_replied"), ("agent/python.py", "_finished")}
    assert makes("AttemptSuperseded") == {("agent/loop.py", "_keep_leaked")}
    answers = {
        ("agent/loop.py", "_replied"),
        ("agent/loop.py", "_keep_leaked"),
        ("agent/attempt.py", "keep"),
        ("agent/entry.py", "_keep_half"),
        ("agent/python.py", "_ended"),
        ("agent/python.py", "_open_call"),
    }
    others = {
        ("agent/loop.py", "_sum_up"),
        ("agent/attempt.py", "address_end"),
        ("agent/journal.py", "settle"),
        ("agent/journal.py", "hold_place"),
    }
    assert makes("MessageAppended") == answers | others


def test_a_model_is_called_in_two_places_only() -> None:
    asked = {at for at in calls_of("stream") if at[0].startswith(("agent", "app", "dispatch", "server"))}
    assert asked == {("agent/stream.py", "run"), ("agent/stream.py", "ask_quietly")}


def test_a_round_is_streamed_only_by_the_loop_that_journals_it() -> None:
    using = {path.name for path in PRODUCTION if "RoundStream(" in path.read_text("utf-8")}
    assert using == {"loop.py"}
    source = (SOURCE / "agent" / "loop.py").read_text("utf-8")
    assert source.count("RoundStream(") == 1
    assert source.count("self._call_model()") == 1


def test_an_attempt_is_carried_out_only_by_its_runner_and_a_tool_only_under_the_ledger() -> None:
    assert {at for at in calls_of("carry_out") if at[0].startswith("agent")} == {
        ("agent/loop.py", "run"),
        ("agent/python.py", "run"),
    }
    running = sorted(
        str(path.relative_to(SOURCE)) for path in PRODUCTION if "await run_tool(" in path.read_text("utf-8")
    )
    assert running == ["agent/calls.py", "agent/python.py"]


def test_only_the_dispatcher_runs_a_runner() -> None:
    running = {at for at in calls_of("run") if at[0].startswith(("dispatch", "app", "server", "cli"))}
    runners = {at for at in running if at[0].startswith("dispatch")}
    assert {name for name, _ in runners} == {"dispatch/dispatcher.py"}
