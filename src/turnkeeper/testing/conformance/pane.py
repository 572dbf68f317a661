"""What every terminal must do: the same checks for tmux and for the scripted fake.

Each case is an async function of a `PaneWorld`: how to open a pane with the scripted CLI in it, and how a person
or an accident meddles with it. Each is the remedy of a reported fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

from turnkeeper.errors import CannotStart, PaneDead, PaneGone, TerminalTrouble, TurnkeeperError
from turnkeeper.terminal.pane import ALIVE, COLUMNS_DEFAULT, DEAD, GONE, ROWS_DEFAULT, Look, Pane, Terminal
from turnkeeper.testing.scripted_cli.quirks import Quirks


class PaneWorld(Protocol):
    """Where a terminal is tried out."""

    terminal: Terminal

    async def open(self, name: str = "c1", quirks: Quirks | None = None, cwd: str | None = None) -> Pane:
        """A pane with the scripted CLI (dialect claude-code), when its composer is there."""
        ...

    def log(self, pane: Pane) -> list[dict[str, Any]]:
        """What the program in the pane did so far."""
        ...

    async def settle(self, seconds: float) -> None:
        """Let that much time pass."""
        ...

    async def until(self, pane: Pane, what: str, key: str = "submit") -> None:
        """Wait until the log has an entry `key` that equals `what`; fail after 5 s."""
        ...

    async def kill(self, pane: Pane, signal: int) -> None:
        """End the program."""
        ...

    async def scroll(self, pane: Pane) -> None:
        """A person scrolls in the pane (copy mode)."""
        ...

    async def lose(self, pane: Pane) -> None:
        """The terminal itself goes away."""
        ...


def submits(world: PaneWorld, pane: Pane) -> list[str]:
    """The texts that the program took."""
    return [entry["submit"] for entry in world.log(pane) if "submit" in entry]


PANE_CASES: list[Callable[[PaneWorld], Awaitable[None]]] = []
"""Every promise of a pane."""


def case(function: Callable[[PaneWorld], Awaitable[None]]) -> Callable[[PaneWorld], Awaitable[None]]:
    """A case of the suite."""
    PANE_CASES.append(function)
    return function


@contextlib.contextmanager
def refusal(error: type[TurnkeeperError], words: str = "") -> Iterator[None]:
    """The block must raise `error`, with `words` in its sentence."""
    told: str | None = None
    try:
        yield
    except error as raised:
        told = raised.sentence
    assert told is not None, f"{error.__name__} was not raised"
    assert words in told, told


@case
async def a_text_of_several_lines_arrives_as_one(world: PaneWorld) -> None:
    """A text of several lines arrives as one."""
    pane = await world.open()
    text = "one\n\n  two\tthree\nfour"
    pasted = await pane.paste(text)
    await world.settle(0.1)
    assert submits(world, pane) == [], "a paste alone sends nothing"
    await pane.press("Enter")
    await world.until(pane, text.replace("\t", "    "))
    assert pasted.size_bytes == len(text.encode())
    assert pasted.removed == ()


@case
async def long_texts_arrive_whole_and_in_one_paste(world: PaneWorld) -> None:
    """Long texts arrive whole and in one paste."""
    pane = await world.open()
    line = "0123456789 äöü 日本 é 🙂 "
    sizes = []
    for size in (1_023, 5_000, 60_000):
        text = (line * (size // len(line) + 1))[:size].strip()
        sizes.append(len(text.encode()))
        await pane.paste(text)
        await pane.press("Enter")
        await world.until(pane, text)
        await world.settle(0.5)
    assert [entry["paste"] for entry in world.log(pane) if "paste" in entry] == sizes


@case
async def nothing_in_a_text_acts_on_the_terminal(world: PaneWorld) -> None:
    """Nothing in a text acts on the terminal."""
    pane = await world.open()
    pasted = await pane.paste("a\x1b[201~\rb\r\nc\x00\x07\x1b[31md\x9b201~e")
    await pane.press("Enter")
    await world.until(pane, "a\nb\nc[31mde")
    assert set(pasted.removed) == {"paste mark x2", "NUL x1", "BEL x1", "ESC x1"}


@case
async def an_empty_text_is_refused(world: PaneWorld) -> None:
    """An empty text is refused."""
    pane = await world.open()
    with refusal(TerminalTrouble, "nothing to paste"):
        await pane.paste("\x00\x1b")


@case
async def only_keys_are_keys(world: PaneWorld) -> None:
    """Only keys are keys."""
    pane = await world.open()
    with refusal(TerminalTrouble, "no keys"):
        await pane.press("rm -rf")


@case
async def a_mode_that_a_person_left_open_is_left_first(world: PaneWorld) -> None:
    """A mode that a person left open is left first."""
    pane = await world.open()
    await world.scroll(pane)
    assert (await pane.look()).in_mode
    await pane.paste("hello MIXED case :/?")
    assert not (await pane.look()).in_mode
    await world.scroll(pane)
    await pane.press("Enter")
    await world.until(pane, "hello MIXED case :/?")


@case
async def a_line_that_the_terminal_wrapped_is_one_line(world: PaneWorld) -> None:
    """A line that the terminal wrapped is one line."""
    pane = await world.open()
    await pane.resize(40, 24)
    text = "some long prefix before usage limit reached, resets 6pm"
    await pane.paste(text)
    await pane.press("Enter")
    await world.until(pane, text)
    await world.settle(0.2)
    assert any(text in line.text for line in (await pane.screen()).lines)


@case
async def dim_hints_are_told_from_typed_words(world: PaneWorld) -> None:
    """Dim hints are told from typed words."""
    pane = await world.open()
    await pane.paste("[[seconds:2]] busy")
    await pane.press("Enter")
    await world.until(pane, "[[seconds:2]] busy")
    await pane.paste("queued")
    await pane.press("Enter")
    await world.until(pane, "queued")
    await world.settle(0.2)
    hint = next(line for line in (await pane.screen()).lines if "Press up" in line.text)
    assert hint.typed == "❯"


@case
async def a_look_tells_alive_from_dead_with_the_exit_code(world: PaneWorld) -> None:
    """A look tells alive from dead with the exit code."""
    pane = await world.open()
    look = await pane.look()
    assert (look.state, look.columns, look.rows) == (ALIVE, 200, 50)
    await pane.paste("/quit")
    await pane.press("Enter")
    await world.until(pane, "/quit")
    await world.settle(0.5)
    look = await pane.look()
    assert (look.state, look.exit_code) == (DEAD, 0)


@case
async def a_glance_is_a_look_and_the_screen_of_what_runs(world: PaneWorld) -> None:
    pane = await world.open()
    look, screen = await pane.glance()
    assert look == await pane.look()
    assert screen is not None
    assert screen.text == (await pane.screen()).text
    await world.kill(pane, 9)
    look, screen = await pane.glance()
    assert (look.state, look.signal, screen) == (DEAD, 9, None)
    await world.lose(pane)
    assert await pane.glance() == (Look(state=GONE), None)


@case
async def what_was_laid_ready_is_pasted_once_and_another_text_replaces_it(world: PaneWorld) -> None:
    pane = await world.open()
    await pane.prepare("never pasted")
    await pane.prepare("laid ready")
    for text in ("laid ready", "not laid ready"):
        await pane.paste(text)
        await world.settle(0.1)
        await pane.press("Enter")
        await world.until(pane, text)
        await world.settle(0.6)
    assert submits(world, pane) == ["laid ready", "not laid ready"]


@case
async def a_paste_into_a_dead_pane_is_refused_and_harms_nobody(world: PaneWorld) -> None:
    """A paste into a dead pane is refused and harms nobody."""
    pane = await world.open()
    await world.kill(pane, 9)
    with refusal(PaneDead):
        await pane.paste("too late")
    with refusal(PaneDead):
        await pane.press("Enter")
    look = await pane.look()
    assert (look.state, look.signal) == (DEAD, 9), "the terminal is still there to tell"


@case
async def a_lost_terminal_is_gone_and_not_an_error(world: PaneWorld) -> None:
    """A lost terminal is gone and not an error."""
    pane = await world.open()
    await world.lose(pane)
    assert (await pane.look()).state == GONE
    with refusal(PaneGone):
        await pane.paste("x")
    assert await world.terminal.find(pane.identity) is None


@case
async def a_pane_is_found_again_by_its_identity_only(world: PaneWorld) -> None:
    """A pane is found again by its identity only."""
    pane = await world.open()
    found = await world.terminal.find(pane.identity)
    assert found is not None
    assert found.identity == pane.identity
    other = type(pane.identity)(
        socket=pane.identity.socket,
        pane_id=pane.identity.pane_id,
        pid=pane.identity.pid,
        started=pane.identity.started - 1000,
        mark=pane.identity.mark,
    )
    assert await world.terminal.find(other) is None, "the same number, another program"


@case
async def two_places_know_nothing_of_each_other(world: PaneWorld) -> None:
    """Two places know nothing of each other."""
    one = await world.open("tk-c1")
    two = await world.open("tk-c1-2")
    await two.paste("for two")
    await two.press("Enter")
    await world.until(two, "for two")
    await one.stop(1.0)
    assert (await one.look()).state == GONE
    assert (await two.look()).state == ALIVE
    assert submits(world, one) == []


@case
async def stop_ends_the_program(world: PaneWorld) -> None:
    """Stop ends the program."""
    pane = await world.open(quirks=Quirks(ignores_sighup=True, ignores_sigterm=True))
    ended = await pane.stop(0.3)
    assert pane.identity.pid in ended
    assert (await pane.look()).state == GONE


@case
async def a_missing_folder_or_program_is_said(world: PaneWorld) -> None:
    """A missing folder or program is said."""
    with refusal(CannotStart, "does not exist"):
        await world.open(cwd="/nowhere/at/all")


@case
async def a_view_begins_with_the_whole_screen_and_ends_with_the_program(world: PaneWorld) -> None:
    """A view begins with the whole screen and ends with the program."""
    pane = await world.open()
    await pane.paste("before the view")
    await world.settle(0.2)
    frames: list[Any] = []
    async for frame in pane.view():
        frames.append(frame)
        if len(frames) == 1:
            assert frame.kind == "seed"
            assert b"before the view" in frame.data
            assert (frame.columns, frame.rows) == (COLUMNS_DEFAULT, ROWS_DEFAULT)
            await pane.press("Enter")
        elif frame.kind == "output" and b"ok before the view" in b"".join(f.data for f in frames):
            await world.kill(pane, 9)
    assert frames[-1].kind == "ended"


@case
async def output_is_counted_and_can_be_waited_for(world: PaneWorld) -> None:
    """Output is counted and can be waited for."""
    pane = await world.open()
    await world.settle(0.3)
    seen = pane.output_seen
    assert not await pane.wait_output(seen, 0.2)
    await pane.paste("x")
    assert await pane.wait_output(seen, 2.0)
