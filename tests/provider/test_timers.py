"""The timers of a model call: silence is the provider's, being late is ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from turnkeeper.port.provider import Deadlines
from turnkeeper.provider.shell import LATE_SECONDS, Expired, Watch

DEADLINES = Deadlines(first_token_seconds=100.0, stall_seconds=50.0, total_seconds=400.0)


class Hour:
    """The loop's own clock, moved by hand: as if the process had been busy, or had had nothing to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        real: Callable[[], float] = loop.time
        self.moved = 0.0
        monkeypatch.setattr(loop, "time", lambda: real() + self.moved)

    async def to(self, seconds: float) -> None:
        """It is so many seconds after the beginning now; timers that are due are seen, then what they did."""
        self.moved = seconds
        for _ in range(5):
            await asyncio.sleep(0)


async def wait_for(what: asyncio.Future[str], *, spoke: bool = False) -> asyncio.Task[str]:
    watch = Watch(DEADLINES)
    if spoke:
        watch.heard()
    waiting = asyncio.ensure_future(watch.wait(what))
    await asyncio.sleep(0)
    return waiting


@pytest.mark.parametrize(
    ("spoke", "seconds", "kind"),
    [(False, 100.0, "first_token"), (True, 50.0, "stall")],
    ids=["first token", "stall"],
)
async def test_what_a_busy_process_reads_late_was_no_silence(
    monkeypatch: pytest.MonkeyPatch, spoke: bool, seconds: float, kind: str
) -> None:
    hour, what = Hour(monkeypatch), asyncio.get_running_loop().create_future()
    waiting = await wait_for(what, spoke=spoke)
    await hour.to(seconds + 30)
    assert not waiting.done(), "30 s late: the socket is looked at for 30 s more"
    await hour.to(seconds + 59)
    what.set_result("data")
    assert await waiting == "data"

    what = asyncio.get_running_loop().create_future()
    hour.moved = 0.0
    waiting = await wait_for(what, spoke=spoke)
    await hour.to(seconds + LATE_SECONDS / 2)
    with pytest.raises(Expired) as silent:
        await waiting
    assert silent.value.kind == kind


async def test_patience_with_oneself_ends_with_the_silence_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hour, what = Hour(monkeypatch), asyncio.get_running_loop().create_future()
    waiting = await wait_for(what)
    await hour.to(101.0)
    assert not waiting.done()
    await hour.to(102.2)
    with pytest.raises(Expired):
        await waiting


async def test_however_late_the_whole_call_has_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    hour, what = Hour(monkeypatch), asyncio.get_running_loop().create_future()
    waiting = await wait_for(what)
    for seconds in (150.0, 260.0, 390.0):
        await hour.to(seconds)
        assert not waiting.done()
    await hour.to(400.5)
    with pytest.raises(Expired):
        await waiting
