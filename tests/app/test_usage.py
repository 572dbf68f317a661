"""The bill of a turn: nothing that was paid is left out, and what was kept is not bought again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Disposition, Failure, Principal, Usage
from turnkeeper.errors import NotFound
from turnkeeper.projection.spending import Spending, read_spending

AGENTS = """
[agents.main]
script = "script.json"
tools = ["append_file", "echo"]
prices = { input = 10.0, output = 100.0, currency = "EUR" }

[agents.falls]
script = "script.json"
tools = ["append_file", "echo"]
prices = { input = 10.0, output = 100.0 }
fallback = { provider = "scripted", model = "small", script = "script.json", prices = { input = 1.0, output = 1.0 } }

[agents.free]
script = "script.json"
"""
BOUGHT = {"usage": {"input_tokens": 1000, "output_tokens": 100}}


def script(folder: Path) -> Path:
    act = {"name": "append_file", "arguments": {"path": str(folder / "effects"), "text": "x"}}
    rounds = [
        {"tool_calls": [act], **BOUGHT},
        {"text": "half of", "error": {"status": 529}},
        {"text": "done", **BOUGHT},
    ]
    broken = [{"tool_calls": [act], **BOUGHT}, {"error": {"status": 529}}, {"error": {"status": 529}}]
    rules = [
        {"match": "go", "rounds": rounds},
        {"match": "twice", "rounds": [*broken, {"text": "done", **BOUGHT}]},
    ]
    (folder / "script.json").write_text(json.dumps({"rules": rules}))
    agents = folder / "agents.toml"
    agents.write_text(AGENTS)
    return agents


async def bill(folder: Path, agent: str, text: str, *, retries: int = 0) -> tuple[Spending, Keeper]:
    async with await Keeper.open(folder / "data", agents=script(folder)) as keeper:
        conversation = await keeper.create_conversation(OPERATOR, agent, "t")
        made = await keeper.submit(OPERATOR, conversation.conversation_id, key="k", parts=(Text(text),))
        for _ in range(retries):
            assert (await keeper.ended(OPERATOR, made.turn_id)).state == "failed"
            await keeper.retry(OPERATOR, made.turn_id)
        assert (await keeper.ended(OPERATOR, made.turn_id)).state == "settled"
        with pytest.raises(NotFound):
            await keeper.usage(Principal(user_id="mallory", scopes=("read",)), made.turn_id)
        return await keeper.usage(OPERATOR, made.turn_id), keeper


async def test_a_failed_call_is_in_the_sum_and_the_kept_round_is_what_was_saved(tmp_path: Path) -> None:
    found, _ = await bill(tmp_path, "main", "go")
    assert [(call.round, call.end, call.failure) for call in found.calls] == [
        (1, "finished", None),
        (2, "failed", "overloaded"),
        (2, "finished", None),
    ]
    first, failed, last = [call.used for call in found.calls]
    assert first.cost == last.cost == pytest.approx(0.02)
    assert failed.cost is not None
    assert failed.cost > 0
    assert found.total.cost == pytest.approx(0.04 + failed.cost)
    assert found.total.input_tokens == 2000 + failed.input_tokens
    assert found.superseded == failed
    (saved,) = found.saved
    assert (saved.why, saved.rounds, saved.results, saved.used.cost) == ("auto_resumed", 1, 1, first.cost)
    assert found.currency == "EUR"
    assert (tmp_path / "effects").read_text() == "x"


async def test_a_retry_by_a_person_is_another_attempt_of_the_same_bill(tmp_path: Path) -> None:
    found, _ = await bill(tmp_path, "main", "twice", retries=1)
    assert [(one.attempt, one.used.calls) for one in found.attempts] == [(1, 3), (2, 1)]
    assert [(one.why, one.rounds) for one in found.saved] == [("auto_resumed", 1), ("retried", 1)]
    assert found.total.calls == 4
    assert found.superseded.calls == 2
    assert found.total.cost == pytest.approx(sum(one.used.cost or 0 for one in found.attempts))


async def test_the_fallback_model_has_its_own_prices(tmp_path: Path) -> None:
    found, _ = await bill(tmp_path, "falls", "go")
    assert found.calls[2].model == "small"
    assert found.calls[2].used.cost == pytest.approx(0.0011)


async def test_without_prices_no_cost_is_made_up(tmp_path: Path) -> None:
    found, _ = await bill(tmp_path, "free", "hello")
    assert found.total.cost is None
    assert found.total.unpriced == 1
    assert found.total.input_tokens > 0


def read(*bodies: Any) -> Spending:
    events = [
        ev.Event(conversation_id="c", seq=seq, at=0.0, actor="t", turn_id="t", attempt=1, body=body)
        for seq, body in enumerate(bodies, 1)
    ]
    return read_spending(events, turn_id="t", conversation_id="c")


START = ev.TurnStarted(fence=1, owner="o", lease_until=0.0)
USED = Usage(input_tokens=100, output_tokens=10)


def test_a_call_that_died_with_its_process_is_listed_and_a_rescue_saves_what_was_finished() -> None:
    found = read(
        START,
        ev.RoundStarted(1),
        ev.RoundFinished(1, usage=USED, cost=0.5),
        ev.ToolReturned(call_id="a", disposition=Disposition.DONE),
        ev.RoundStarted(2),
        ev.TurnStarted(fence=2, owner="o", lease_until=0.0, why="rescued"),
        ev.RoundStarted(2),
        ev.RoundFinished(2, usage=USED, cost=0.25),
    )
    assert [call.end for call in found.calls] == ["finished", "interrupted", "finished"]
    assert found.total.cost == 0.75
    assert [(one.why, one.rounds, one.results, one.used.cost) for one in found.saved] == [
        ("rescued", 1, 1, 0.5)
    ]


def test_what_was_set_aside_started_over_or_summed_up_was_paid_too() -> None:
    leaked = Failure(kind="leaked", retryable=False, sentence="It leaked.")
    found = read(
        START,
        ev.HistoryCompacted("s", "m", "small", USED, 0.1),
        ev.RoundStarted(1),
        ev.RoundFailed(1, leaked, USED, 0.2),
        ev.RoundStarted(1),
        ev.RoundFinished(1, usage=USED, cost=0.4),
        ev.TurnFailed(leaked),
        ev.TurnStarted(fence=2, owner="o", lease_until=0.0, why="retried"),
        ev.Noticed("started_over", "A person chose to start over."),
        ev.RoundStarted(2),
        ev.RoundFinished(2, usage=USED, cost=0.8),
    )
    assert [(call.kind, call.end) for call in found.calls] == [
        ("summary", "finished"),
        ("round", "superseded"),
        ("round", "superseded"),
        ("round", "finished"),
    ]
    assert found.total.cost == pytest.approx(1.5)
    assert found.superseded.cost == pytest.approx(0.6)
    assert found.saved == []
