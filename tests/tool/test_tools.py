"""Tools: what a function says of itself, and what becomes of calls that go wrong in every way."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from turnkeeper.conversation.turns import Disposition, Effect
from turnkeeper.testing.clock import VirtualClock, run_virtual
from turnkeeper.tool import Outcome, Tool, run_tool, tool, tool_of
from turnkeeper.tool.contract import ArgumentsInvalid
from turnkeeper.tool.demo import DEMO_TOOLS
from turnkeeper.tool.loading import load_function, load_tools
from turnkeeper.tool.running import NO_OUTPUT, cut, text_of, within


class Place(msgspec.Struct):
    x: int


class RealClock:
    """For tools on threads, which know nothing of virtual time."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)


async def outcome_of(
    made: Tool, arguments: dict[str, Any] | None = None, *, limit: int = 1000, clock: Any = None
) -> Outcome:
    clock = clock or VirtualClock()
    return await run_tool(
        made, arguments or {}, "key-1", clock=clock, timeout_seconds=5, result_bytes_max=limit
    )


def run_plain(made: Tool, arguments: dict[str, Any] | None = None) -> Outcome:
    return asyncio.run(outcome_of(made, arguments, clock=RealClock()))


def test_name_schema_and_effect_come_from_the_function() -> None:
    @tool(effect="read_only")
    def find(
        what: str, place: Place, many: Annotated[int, msgspec.Meta(ge=1)] = 3, how: Literal["a", "b"] = "a"
    ) -> str:
        """Find a thing."""
        return f"{what}@{place.x}*{many}{how}"

    made = tool_of(find)
    assert (made.name, made.description, made.effect) == ("find", "Find a thing.", Effect.READ_ONLY)
    assert made.schema["type"] == "object"
    assert made.schema["required"] == ["what", "place"]
    assert made.schema["properties"]["many"] == {"type": "integer", "minimum": 1, "default": 3}
    assert made.schema["properties"]["how"]["enum"] == ["a", "b"]
    assert made.schema["$defs"]["Place"]["required"] == ["x"]
    assert made.spec.schema is made.schema
    assert find("a", Place(1)) == "a@1*3a", "the function stays a function"
    outcome = run_plain(made, {"what": "w", "place": {"x": 2}})
    assert outcome.content == "w@2*3a"


def test_a_tool_without_a_declared_effect_may_act() -> None:
    def plain() -> None: ...

    @tool(read_only=True)
    def reads() -> None: ...

    @tool(idempotent=True, destructive=True)
    def both() -> None: ...

    assert tool_of(plain).effect is Effect.ACTS
    assert tool_of(reads).effect is Effect.READ_ONLY
    assert tool_of(both).effect is Effect.DESTRUCTIVE
    with pytest.raises(ValueError, match="effect 'harmless'"):
        tool(effect="harmless")(plain)


def test_the_key_is_handed_in_and_hidden_from_the_model() -> None:
    @tool
    async def pay(amount: int, *, idempotency_key: str) -> str:
        """Pay."""
        return f"{amount} under {idempotency_key}"

    made = tool_of(pay)
    assert set(made.schema["properties"]) == {"amount"}
    assert run_virtual(outcome_of(made, {"amount": 5})).content == "5 under key-1"
    with pytest.raises(ArgumentsInvalid):
        made.check({"amount": 5, "idempotency_key": "mine"})


@pytest.mark.parametrize("arguments", [{}, {"n": "x"}, {"n": 1, "more": 2}, {"n": None}, {"n": [1]}])
def test_arguments_that_do_not_fit_are_named_before_anything_runs(arguments: dict[str, Any]) -> None:
    @tool
    def count(n: int) -> int:
        """Count."""
        return n

    with pytest.raises(ArgumentsInvalid, match="count"):
        tool_of(count).check(arguments)


@pytest.mark.parametrize("bad", ["has space", " ", "x" * 65, "dots.are.refused"])
def test_names_that_no_provider_takes_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="cannot be called"):
        tool(name=bad)(lambda: None)


def test_parameters_that_no_model_can_fill_are_refused() -> None:
    with pytest.raises(ValueError, match="named parameters"):
        tool(name="many")(lambda *values: values)


class Odd:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, NO_OUTPUT),
        ("", NO_OUTPUT),
        (" \n", NO_OUTPUT),
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        (b"raw \xff", "raw \ufffd"),
        ("nul \x00 kept", "nul \x00 kept"),
        (3.5, "3.5"),
        (Place(1), '{"x":1}'),
    ],
)
def test_what_a_tool_returns_is_written_down(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_what_cannot_be_written_as_json_is_said_and_the_tool_counts_as_run() -> None:
    @tool
    def strange() -> Any:
        """Return something strange."""
        return Odd()

    outcome = run_plain(tool_of(strange))
    assert outcome.disposition is Disposition.DONE
    assert outcome.is_error
    assert "ran, but" in outcome.content


class _Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this")


ANY_COLOUR = [ValueError("bad\x00"), KeyError("k"), _Broken(), SystemExit(3)]
ON_A_THREAD = [StopIteration(1), KeyboardInterrupt()]


@pytest.mark.parametrize(
    ("error", "colour"),
    [(e, c) for e in ANY_COLOUR for c in ("plain", "async")] + [(e, "plain") for e in ON_A_THREAD],
)
def test_a_tool_that_raises_is_an_outcome(error: BaseException, colour: str) -> None:
    def plain() -> None:
        raise error

    async def coloured() -> None:
        raise error

    outcome = run_plain(tool_of(plain if colour == "plain" else coloured))
    assert outcome.disposition is Disposition.FAILED
    assert outcome.is_error
    assert "failed" in outcome.content


def test_a_tool_that_cancels_itself_has_failed() -> None:
    async def odd() -> None:
        raise asyncio.CancelledError

    assert run_virtual(outcome_of(tool_of(odd))).disposition is Disposition.FAILED


@pytest.mark.parametrize(
    ("effect", "disposition"),
    [("read_only", Disposition.FAILED), ("acts", Disposition.UNKNOWN), ("destructive", Disposition.UNKNOWN)],
)
def test_a_tool_that_hangs_is_abandoned(effect: str, disposition: Disposition) -> None:
    cancelled = []

    @tool(effect=effect, timeout_seconds=30)
    async def hang() -> None:
        """Hang."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def main() -> Outcome:
        outcome = await outcome_of(tool_of(hang))
        await asyncio.sleep(0)
        return outcome

    outcome = run_virtual(main())
    assert outcome.disposition is disposition
    assert outcome.seconds == 30
    assert "30 s" in outcome.content
    assert cancelled == [1]


def test_a_plain_function_that_hangs_keeps_neither_the_loop_nor_the_process() -> None:
    release = threading.Event()

    @tool(timeout_seconds=0.05)
    def hang() -> str:
        """Hang."""
        release.wait(30)
        return "late"

    async def main() -> Outcome:
        return await run_tool(
            tool_of(hang), {}, "k", clock=RealClock(), timeout_seconds=1, result_bytes_max=100
        )

    outcome = asyncio.run(main())
    assert outcome.disposition is Disposition.UNKNOWN
    threads = [t for t in threading.enumerate() if t.name == "turnkeeper-tool"]
    assert threads
    assert all(t.daemon for t in threads)
    release.set()
    for thread in threads:
        thread.join(5)


def test_a_hundred_megabytes_are_cut_visibly() -> None:
    @tool(effect="read_only")
    async def flood() -> str:
        """Flood."""
        return "ä" * 50_000_000

    outcome = run_virtual(outcome_of(tool_of(flood), limit=1000))
    assert len(outcome.content.encode()) < 1100
    assert "of 100000000 bytes left out by Turnkeeper (limit 1000)" in outcome.content


@pytest.mark.parametrize("size", [9, 10])
def test_the_limit_of_a_result_is_exact(size: int) -> None:
    assert cut("x" * size, 10) == "x" * size
    assert "left out" in cut("x" * 11, 10)
    assert cut("ä" * 5, 10) == "ä" * 5
    assert "left out" in cut("ä" * 5 + "x", 10)


def test_demo_tools_do_what_they_say(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    for _ in range(2):
        outcome = run_virtual(outcome_of(DEMO_TOOLS["append_file"], {"path": str(target), "text": "line\n"}))
        assert outcome.disposition is Disposition.DONE
    assert target.read_text() == "line\nline\n"
    missing = run_virtual(
        outcome_of(DEMO_TOOLS["append_file"], {"path": str(tmp_path / "no" / "x"), "text": "y"})
    )
    assert missing.is_error
    assert run_virtual(outcome_of(DEMO_TOOLS["echo"], {"text": "hi"})).content == "hi"
    assert run_virtual(outcome_of(DEMO_TOOLS["now"])).content.startswith("20")
    assert run_virtual(outcome_of(DEMO_TOOLS["slow"], {"seconds": 60})).seconds == 60
    with pytest.raises(ArgumentsInvalid):
        DEMO_TOOLS["slow"].check({"seconds": -1})


def test_tools_are_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_tools_a.py").write_text("def buy(what: str) -> str:\n    'Buy.'\n    return what\n")
    loaded = load_tools(["echo", "shop_tools_a:buy"], demo_tools=True, folder=tmp_path)
    assert [made.name for made in loaded] == ["echo", "buy"]
    (tmp_path / "shop_tools_b.py").write_text("1/0\n")
    for names, why in {
        ("echo",): "demo tool",
        ("nothing",): "there is no tool 'nothing'",
        ("no_such_module:x",): "no module 'no_such_module'",
        ("shop_tools_a:sell",): "no function 'sell'",
        ("shop_tools_b:x",): "ZeroDivisionError",
        ("shop_tools_a:buy", "shop_tools_a:buy"): "two tools are called 'buy'",
        ("shop_tools_a:",): "module:function",
    }.items():
        with pytest.raises(ValueError, match=why):
            load_tools(names, demo_tools=False, folder=tmp_path)
    assert load_function("shop_tools_a:buy")("x") == "x"


def test_the_error_of_a_tool_that_ends_just_as_its_turn_is_stopped_is_looked_at() -> None:
    async def main() -> None:
        never_retrieved: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: never_retrieved.append(told))
        go = asyncio.Event()

        async def breaks() -> None:
            await go.wait()
            raise ValueError("it broke")

        waiting = asyncio.ensure_future(within(VirtualClock(), 60.0, breaks()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        go.set()
        await asyncio.sleep(0)  # the tool has ended; who waits for it does not know yet
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        del waiting
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()
        assert never_retrieved == []

    run_virtual(main())
