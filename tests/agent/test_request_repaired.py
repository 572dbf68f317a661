"""A request of ours that breaks a rule of its provider is a bug of ours: repaired, journaled, and said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.agent.world import World, run
from turnkeeper.agent.loop import REQUEST_REPAIRED
from turnkeeper.conversation import events as ev
from turnkeeper.port.runner import Answered, FailedWith
from turnkeeper.provider import build
from turnkeeper.provider.script import Round, Rule, Script
from turnkeeper.provider.scripted import Scripted


@pytest.mark.parametrize("repairable", [True, False])
def test_a_fault_of_the_encoder_is_repaired_and_journaled(
    repairable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted encoder spoils what it builds: the first time only, or every time."""
    real = build.dialect_named("anthropic")
    spoiled: list[Any] = []

    def encode(feed: Any, **given: Any) -> Any:
        encoded = real.encode(feed, **given)
        if not spoiled or not repairable:
            spoiled.append(feed)
            encoded.body["messages"].append({"role": "assistant", "content": [{"type": "text", "text": " "}]})
        return encoded

    planted = msgspec.structs.replace(real, encode=encode)
    monkeypatch.setattr(build, "dialect_named", lambda name: planted)

    async def main() -> None:
        world = World()
        script = Script(rules=(Rule(match="", rounds=(Round(text="fine"),)),))
        world.runner.provider = Scripted(world.clock, script)
        turn = world.turn()
        outcome = await turn.carry_out(world.runner)
        noticed = [body for body in turn.bodies(ev.Noticed) if body.code == REQUEST_REPAIRED]
        facts: Any = noticed[0].facts
        assert facts["provider"] == "anthropic"
        assert {fault["rule"] for fault in facts["broken"]} == {"A10", "A14"}
        assert "report it" in noticed[0].text
        if repairable:
            assert isinstance(outcome, Answered)
            assert turn.history()[-1].text == "fine"
        else:
            assert isinstance(outcome, FailedWith)
            assert outcome.failure.kind == "refused_request"
            assert not outcome.failure.retryable

    run(main())
