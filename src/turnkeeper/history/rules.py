"""The replay rules in the order in which they run, again and again until none of them changes anything.

Each rule is one function with its origin in its docstring. It takes the rows of a conversation and a run, gives
the rows as they go on, and gives the very same list when it has nothing to do. Two stand twice: neighbours
have to be one before calls and results are paired, and pairing makes new neighbours.
"""

from __future__ import annotations

from typing import Final

from turnkeeper.history.attempts import leave_out_leaks, set_attempts_aside
from turnkeeper.history.confirmations import put_sentinels
from turnkeeper.history.look import look
from turnkeeper.history.pairing import (
    pair_results,
    say_that_interrupted_is_unknown,
    strip_unfinished_lookups,
)
from turnkeeper.history.row import Rows, Rule, Run
from turnkeeper.history.shape import (
    end_with_the_user,
    feed_repeated_request_once,
    fill_or_drop_the_empty,
    keep_one_summary,
    keep_server_calls_answered,
    keep_system_messages_first,
    leave_out_what_is_only_shown,
    merge_neighbours,
    open_with_the_user,
    put_calls_last,
    put_parts_in_their_place,
)
from turnkeeper.history.values import keep_text_well_formed, make_arguments_objects, name_every_call

RULES: Final[tuple[Rule, ...]] = (
    leave_out_what_is_only_shown,
    set_attempts_aside,
    leave_out_leaks,
    keep_one_summary,
    put_sentinels,
    keep_system_messages_first,
    keep_server_calls_answered,
    put_parts_in_their_place,
    make_arguments_objects,
    name_every_call,
    keep_text_well_formed,
    fill_or_drop_the_empty,
    feed_repeated_request_once,
    merge_neighbours,
    pair_results,
    say_that_interrupted_is_unknown,
    strip_unfinished_lookups,
    feed_repeated_request_once,
    merge_neighbours,
    put_calls_last,
    open_with_the_user,
    end_with_the_user,
)

PASSES_MAX: Final = 10
"""More passes than any history needs: each rule only ever removes what another may find."""


def run_once(rows: Rows, run: Run, rules: tuple[Rule, ...] = RULES) -> Rows:
    """One pass of `rules`; the very same list if none of them changed anything."""
    look(rows, run)
    for rule in rules:
        rows = rule(rows, run)
    return rows


def settle(rows: Rows, run: Run, rules: tuple[Rule, ...] = RULES) -> Rows:
    """The fixed point of `rules` over `rows`: a whole pass in which no rule changed anything."""
    for _ in range(PASSES_MAX):
        before = rows
        rows = run_once(rows, run, rules)
        if rows is before:
            break
    return rows
