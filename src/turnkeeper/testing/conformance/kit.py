"""The kit that a store is tested with, and how a case is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from turnkeeper.conversation.events import (
    Body,
    Draft,
)
from turnkeeper.conversation.turns import (
    Failure,
    Turn,
)
from turnkeeper.port.store import (
    Store,
)
from turnkeeper.testing.conformance.script import Script


class StoreKit(Protocol):
    """Makes stores for the suite. Each case gets a kit of its own, over nothing stored yet."""

    async def open(self) -> Store:
        """The store under test."""
        ...

    async def reopen(self, store: Store) -> Store:
        """Stop `store` properly and open its data again."""
        ...

    async def crash(self, store: Store) -> Store:
        """Kill `store` without any farewell and open its data again."""
        ...

    def backup_path(self) -> str:
        """A file that does not exist yet."""
        ...

    async def restore(self, path: str) -> Store:
        """Open a backup."""
        ...

    async def tables(self, store: Store) -> dict[str, list[Any]]:
        """The projection tables, rows in a stable order."""
        ...

    async def rebuild(self, store: Store) -> None:
        """Throw the projection tables away and derive them from the journal."""
        ...


Case = Callable[[StoreKit], Awaitable[None]]
C = TypeVar("C", bound=Case)

CASES: list[Case] = []
"""Every case, in the order in which they were made."""

FAILURE = Failure("stall", True, "No data for 20 s.", 20.0)


def store_case(function: C) -> C:
    """Add a case to the suite."""
    CASES.append(function)
    return function


async def begun(kit: StoreKit) -> Script:
    """A store with the conversation c1."""
    script = Script(await kit.open())
    await script.create()
    return script


async def running(kit: StoreKit) -> Script:
    """A store with the conversation c1, whose turn t-a runs under token 1."""
    script = await begun(kit)
    await script.submit("a")
    await script.start("a")
    return script


async def turn_of(script: Script, name: str) -> Turn:
    """The row of turn t-NAME."""
    turn = await script.store.turn(f"t-{name}")
    assert turn is not None
    return turn


def draft(body: Body, turn_id: str) -> Draft:
    """An event by the runner of a first attempt."""
    return Draft(body, turn_id, 1, "runner")
