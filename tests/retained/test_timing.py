"""The entry of a retained agent in the agents file: its waits, and what is not built in."""

from __future__ import annotations

import pytest

from turnkeeper.agent.definition import AgentDefinition, Retained
from turnkeeper.app.wiring import check_agent, timing_of
from turnkeeper.errors import ConfigError
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


def test_a_driver_that_is_not_built_in_is_refused_and_not_replaced_by_another() -> None:
    asked = AgentDefinition(name="a", runner="retained", cli="pi", retained=Retained(driver="structured"))
    with pytest.raises(ConfigError, match="'structured' is not built in"):
        check_agent(asked, None)
