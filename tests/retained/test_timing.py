"""The entry of a retained agent in the agents file: its waits, and its driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from turnkeeper.agent.definition import AgentDefinition, Retained
from turnkeeper.app.system import SystemClock, SystemIds
from turnkeeper.app.wiring import Surroundings, check_agent, make_retained_runner, timing_of
from turnkeeper.errors import ConfigError
from turnkeeper.retained.structured.pane import StructuredTerminal
from turnkeeper.settings import Settings


def agent(**timing: float) -> AgentDefinition:
    return AgentDefinition(name="a", runner="retained", cli="pi", retained=Retained(timing=timing))


def test_the_agents_own_wait_comes_before_the_setting_and_the_setting_before_the_default() -> None:
    settings = Settings.load(unsubmitted_seconds=50.0, evidence_gate_seconds=40.0)
    timing = timing_of(agent(unsubmitted_seconds=5.0), settings)
    assert (timing.unsubmitted_seconds, timing.evidence_gate_seconds) == (5.0, 40.0)
    assert timing.stop_seconds == 8.0


@pytest.mark.parametrize(
    ("timing", "words"),
    [
        ({"stop_second": 1.0}, "timing has no 'stop_second'"),
        ({"stop_seconds": -1.0}, "timing.stop_seconds is negative"),
    ],
)
def test_a_wait_that_cannot_be_is_refused_by_name(timing: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        timing_of(agent(**timing), Settings())


@pytest.mark.parametrize(("driver", "kind"), [("pane", object), ("structured", StructuredTerminal)])
def test_the_driver_is_chosen_per_agent(tmp_path: Path, driver: Any, kind: type) -> None:
    definition = AgentDefinition(name="a", runner="retained", cli="claude", retained=Retained(driver=driver))
    terminal = cast("Any", object())
    around = Surroundings(
        keepsakes=cast("Any", None),
        terminal=terminal,
        desk=cast("Any", None),
        ids=SystemIds(),
        folder=tmp_path,
    )
    check_agent(definition, None)
    runner = make_retained_runner(definition, Settings(), SystemClock(), around)
    assert type(runner.terminal) is kind
    assert runner.adapter.NAME == "claude-code"
