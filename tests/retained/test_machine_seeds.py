"""The retained machine in worlds full of faults: 2,000 seeds, and bugs that were planted to see that they are caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from turnkeeper.retained.machine import effects as e
from turnkeeper.retained.machine import hand, table, turn
from turnkeeper.retained.machine import inputs as i
from turnkeeper.retained.machine.state import HandPhase, TurnPhase
from turnkeeper.testing.retained_simulator import Faults, World, simulate

SEEDS = 2_000


def test_no_seed_breaks_a_promise() -> None:
    broken = {seed: found for seed in range(SEEDS) if (found := simulate(seed))}
    assert broken == {}


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_no_seed_of_many_more_breaks_a_promise() -> None:
    broken = {seed: found for seed in range(SEEDS, SEEDS * 20) if (found := simulate(seed))}
    assert broken == {}


def test_worlds_are_the_same_for_the_same_seed() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()
    assert first.log == second.log


def test_the_worlds_hold_what_they_should_hold() -> None:
    """Faults that never strike would prove nothing."""
    seen: set[str] = set()
    for seed in range(300):
        world = World(seed)
        world.run()
        seen |= {f"{one.state}:{one.reason}" for one in world.turns}
        seen |= {"late"} if any(one.late for one in world.turns) else set()
        seen |= {"died"} if world.cli.deaths else set()
        seen |= {"restart"} if any(what == "restart" for _, what in world.log) else set()
        for what in (
            "Hold(",
            "Recall(",
            "Clear(",
            "HandOver(",
            "TakeRider(",
            "Interrupt(",
            "repaste",
            "Trouble",
        ):
            if any(what in line for _, line in world.log):
                seen.add(what)
    assert seen >= {
        "settled:answered",
        "settled:answered_by_previous_response",
        "settled:answered_with",
        "failed:pane",
        "failed:backstop",
        "failed:provider",
        "failed:no_answer",
        "failed:not_submitted",
        "stopped:cancelled",
        "late",
        "died",
        "restart",
        "Hold(",
        "Recall(",
        "Clear(",
        "HandOver(",
        "TakeRider(",
        "Interrupt(",
        "repaste",
        "Trouble",
    }


def test_phantoms_settle_at_the_gate_and_fail_nobody() -> None:
    """Rapid inputs answered by one response (seed 002): the promoted one and the backlog behind it settle."""
    for seed in range(40):
        world = World(seed, Faults(phantoms=True, steers=1.0, answer_seconds=8.0, tools=0.0), turns=3)
        assert world.run() == []
        phantoms = [one for one in world.turns if one.text in world.cli.phantomed]
        assert phantoms
        for one in phantoms:
            assert (one.state, one.reason) == ("settled", "answered_by_previous_response")


# --- planted bugs


Plant = Callable[[pytest.MonkeyPatch], None]


def draft_is_pasted_onto(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hand, "in_the_way", lambda state, item, reading: None)


def one_record_proves_twice(patch: pytest.MonkeyPatch) -> None:
    def proven(items: list, key: str, given_id: str = "") -> tuple:
        return tuple(item for item in items if item.key == key and item.enters > 0)

    patch.setattr(turn, "proven", proven)


def an_error_is_a_miss(patch: pytest.MonkeyPatch) -> None:
    def trouble(state, told, now, effects):
        return turn.missed(state, i.Missed(sentence=told.sentence), now, effects)

    for phase in TurnPhase:
        if (phase, i.Trouble) in table.TURN_TABLE:
            patch.setitem(table.TURN_TABLE, (phase, i.Trouble), trouble)


def the_gate_never_closes(patch: pytest.MonkeyPatch) -> None:
    def tick(state, told, now, effects):
        return state if state.phase is TurnPhase.GATED else turn.tick(state, told, now, effects)

    patch.setitem(table.TURN_TABLE, (TurnPhase.GATED, i.Tick), tick)


def what_comes_after_the_end_is_dropped(patch: pytest.MonkeyPatch) -> None:
    def over(state, effect, effects):
        effects.append(replace(effect, leftover=()))
        return replace(state, phase=TurnPhase.ENDED, hand=None, hold="", leftover=())

    patch.setattr(
        turn,
        "answered",
        lambda state, effects, reason="answered": over(state, e.End(kind="answered", reason=reason), effects),
    )


def an_idle_cli_is_interrupted(patch: pytest.MonkeyPatch) -> None:
    def stopping(state, reading, now, effects):
        return original(state, replace(reading, busy=True), now, effects)

    original = turn._stopping
    patch.setattr(turn, "_stopping", stopping)


def a_restart_pastes_again(patch: pytest.MonkeyPatch) -> None:
    def opened(state, told, now, effects):
        after = turn.opened(state, told, now, effects)
        if after.phase is TurnPhase.DELIVERING and after.own.enters > 0:
            return hand.reach(after.with_item(replace(after.own, enters=0)), after.own, now)
        return after

    patch.setitem(table.TURN_TABLE, (TurnPhase.OPENING, i.Opened), opened)


def enter_is_pressed_blindly(patch: pytest.MonkeyPatch) -> None:
    def blind(state, told, now, effects):
        return hand.press_enter(state, i.Seen(reading=replace(told.reading, block=None)), now, effects)

    patch.setitem(table.HAND_TABLE, (HandPhase.ENTERING, i.Seen), blind)


def a_busy_cli_gets_it_again(patch: pytest.MonkeyPatch) -> None:
    def ask_time(state, told, now, effects):
        held = replace(state, unfinished=False, last_work=0.0, hand=replace(state.hand, busy=False))
        return hand.ask_time(held, told, now, effects)

    patch.setitem(table.HAND_TABLE, (HandPhase.ASKING, i.Tick), ask_time)


def blank_lines_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    """Only the first line of the composer is read (seed 002, 2026-09-24): what is left over is sent along."""

    def look(state, told, now, effects):
        reading = told.reading
        if reading.composer == "blank":
            told = i.Seen(reading=replace(reading, composer="empty"))
        return hand.look(state, told, now, effects)

    patch.setitem(table.HAND_TABLE, (HandPhase.LOOKING, i.Seen), look)


PLANTED: dict[Plant, str] = {
    draft_is_pasted_onto: "hands off",
    one_record_proves_twice: "truth",
    an_error_is_a_miss: "alive",
    the_gate_never_closes: "ends",
    what_comes_after_the_end_is_dropped: "truth",
    an_idle_cli_is_interrupted: "hands off",
    a_restart_pastes_again: "once",
    enter_is_pressed_blindly: "hands off",
    a_busy_cli_gets_it_again: "once",
    blank_lines_are_not_seen: "whole",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        found = simulate(seed)
        if any(line.startswith(PLANTED[plant]) for line in found):
            return
    pytest.fail(f"no seed of {SEEDS} saw it")
