"""What became of a message: each fate stands on the message's own row, from first to last, and opens its evidence.

A runner of the test's own says through the runners' seam what a coding CLI would say: taken, not proved, proved
late, answered by the answer before. Everything behind it (lane, journal, projection, page) is the real thing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import World, opened
from tests.browser.test_access import seen
from tests.browser.test_page import send, words
from turnkeeper.conversation.events import MessageAppended, ReceiptMoved
from turnkeeper.conversation.messages import ASSISTANT, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Failure, ReceiptState
from turnkeeper.port.runner import Answered, FailedWith, Needs, Outcome, Stopped, TurnPort
from turnkeeper.port.store import Draft

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

PATIENCE_MS = 30_000
TALL = {"width": 1200, "height": 2400}

AGENTS = """
[agents.demo]
script = "script.json"
tools = ["echo", "append_file"]
demo_tools = true
policies = { ask = ["append_file"], expiry = { append_file = 3 } }
"""


class Fates:
    """Does with a message what its words say, one step for each time that the test opens the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(0)

    async def run(self, turn: TurnPort) -> Outcome:
        text = "".join(part.text for part in turn.offer.request.parts if isinstance(part, Text))
        steps = asyncio.ensure_future(self._steps(turn, text))
        stop = asyncio.ensure_future(turn.wait_stopping())
        await asyncio.wait({steps, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if steps.done():
            return steps.result()
        steps.cancel()
        return Stopped()

    async def _steps(self, turn: TurnPort, text: str) -> Outcome:
        await self.gate.acquire()
        if text == "wait for a decision" and turn.offer.why != "continued":
            needs = {"kind": "action_required", "sentence": "The disk is full.", "choices": ["retry"]}
            return Needs(needs=needs)
        await turn.record(accepted={"via": "enter"})
        await self.gate.acquire()
        if text == "nobody knows":
            await turn.record(uncertain={"via": "gate", "seconds": 75})
            await self.gate.acquire()
            await turn.record(confirmed={"via": "record", "record": "r-7"})
            await self.gate.acquire()
        if text == "never heard of":
            sentence = "There was no sign of it."
            return FailedWith(failure=Failure(kind="backstop", retryable=True, sentence=sentence))
        if text == "said with the one before":
            return Answered(reason="answered_by_previous_response")
        for rider in turn.riders():
            await turn.take(rider)
        answer = Message(
            message_id=turn.ids.make("m"),
            role=ASSISTANT,
            parts=(Text(f"ok {text}"),),
            created_at=turn.clock.now(),
            turn_id=turn.offer.turn.turn_id,
            provenance="model",
        )
        return Answered(bodies=(MessageAppended(answer),))

    async def close(self) -> None:
        return


@pytest.fixture
async def fates(tmp_path: Path) -> AsyncIterator[tuple[World, Page, Fates]]:
    """A page that has a conversation with `Fates` open."""
    runner = Fates()
    async with opened(tmp_path, agents=AGENTS, runners={"fates": runner}) as world:
        page = await world.page()
        # All rows are in view, and so in the document.
        await page.set_viewport_size(TALL)  # type: ignore[arg-type]
        await page.locator(".agent select").select_option("fates")
        await expect(page.get_by_text("Nothing has been said yet.")).to_be_visible(timeout=PATIENCE_MS)
        yield world, page, runner


async def evidence(page: Page, row: Locator, *chain: str) -> None:
    """The mark opens what is known: these events stand there in this order."""
    await row.locator(".mark").click()
    in_order = re.compile(".*".join(chain), re.DOTALL)
    await expect(page.locator(".chain")).to_contain_text(in_order, timeout=PATIENCE_MS)
    await page.keyboard.press("Escape")
    await expect(page.locator(".panel")).to_have_count(0)


async def test_a_fate_stands_on_its_own_row_from_first_to_last(fates: tuple[World, Page, Fates]) -> None:
    world, page, runner = fates
    rows = page.locator("article.user")

    async def told(text: str) -> tuple[Locator, str]:
        await send(page, text)
        row = rows.filter(has_text=text)
        await expect(row).to_have_count(1)
        return row, str(await row.get_attribute("data-key"))

    async def shows(row: Locator, key: str, fate: str) -> None:
        await expect(row.locator(".mark")).to_contain_text(fate, timeout=PATIENCE_MS)
        assert await row.get_attribute("data-key") == key

    # Not proved, and proved in the end.
    row, key = await told("nobody knows")
    runner.gate.release()
    await shows(row, key, "✓ taken")
    runner.gate.release()
    await shows(row, key, "? delivery uncertain")
    await evidence(page, row, "submitted", "turn started", "receipt moved")
    runner.gate.release()
    await shows(row, key, "✓✓ being answered")
    runner.gate.release()
    await shows(row, key, "✓✓ answered")
    await evidence(page, row, "submitted", "turn started", "receipt moved", "turn settled")

    # Merged: the answer before has said it already.
    row, key = await told("said with the one before")
    runner.gate.release()
    runner.gate.release()
    await shows(row, key, "✓✓ answered by the previous response")
    await evidence(page, row, "submitted", "turn settled")

    # Taken along by the running turn.
    first, first_key = await told("the one that runs")
    runner.gate.release()
    await shows(first, first_key, "✓ taken")
    await page.fill("#composer", "on top of it")
    await page.press("#composer", "Control+Enter")
    row = rows.filter(has_text="on top of it")
    await expect(row.locator(".mark")).to_contain_text("travels with the running turn", timeout=PATIENCE_MS)
    key = str(await row.get_attribute("data-key"))
    runner.gate.release()
    await shows(first, first_key, "✓✓ answered")
    await shows(row, key, "✓✓ answered along with the turn")
    await evidence(page, row, "submitted", "turn settled")

    # Parked until a person decides.
    row, key = await told("wait for a decision")
    runner.gate.release()
    await shows(row, key, "waits for a person")
    card = page.locator(".card")
    await expect(card).to_contain_text("A turn needs you. The disk is full.")
    assert await card.get_by_role("button").all_inner_texts() == ["Retry", "Give up"]
    wrong = await seen(page, "decision")
    await page.set_viewport_size(TALL)  # type: ignore[arg-type]
    await evidence(page, row, "submitted", "turn parked")
    await card.get_by_role("button", name="retry").click()
    await expect(card).to_have_count(0, timeout=PATIENCE_MS)
    runner.gate.release()
    runner.gate.release()
    runner.gate.release()
    await shows(row, key, "✓✓ answered")
    await evidence(page, row, "turn parked", "turn continued", "turn settled")

    # Given up, and heard of after all.
    row, key = await told("never heard of")
    runner.gate.release()
    runner.gate.release()
    await shows(row, key, "! There was no sign of it.")
    await evidence(page, row, "submitted", "turn failed")
    turn_id = str(await row.get_attribute("data-turn"))
    moved = ReceiptMoved(ReceiptState.CONFIRMED, {"via": "late", "record": "r-9"})
    conversation_id = (await page.evaluate("location.hash")).lstrip("#")
    await world.keeper.dispatcher.append(conversation_id, Draft(moved, turn_id=turn_id, actor="runner"))
    await shows(row, key, "✓✓ taken late")
    await evidence(page, row, "turn failed", "receipt moved")

    # Edited while it waits: one message, with its new words, in its old place.
    await told("the last that runs")
    row, key = await told("half a thougt")
    await shows(row, key, "waiting, number 1")
    await row.get_by_role("button", name="Edit").click()
    await page.locator(".change textarea").fill("a whole thought")
    await page.keyboard.press("Enter")
    row = rows.filter(has_text="a whole thought")
    await shows(row, key, "waiting, number 1")
    await evidence(page, row, "submitted", "turn edited")
    for _ in range(4):
        runner.gate.release()
    await shows(row, key, "✓✓ answered")
    said = await words(page)
    assert [text for text in said if not text.startswith("ok ")] == [
        "nobody knows",
        "said with the one before",
        "the one that runs",
        "on top of it",
        "wait for a decision",
        "never heard of",
        "the last that runs",
        "a whole thought",
    ]
    await page.reload()
    await expect(page.get_by_text("ok a whole thought")).to_be_visible(timeout=PATIENCE_MS)
    assert await words(page) == said, "a reload changes nothing"
    assert wrong == []


async def test_a_question_that_nobody_answers_expires_and_does_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, agents=AGENTS) as world:
        page = await world.page()
        await send(page, "please ask me")
        card = page.locator(".card")
        await expect(card).to_contain_text(re.compile(r"0:0\d left"), timeout=PATIENCE_MS)
        row = page.locator("article.user")
        key = await row.get_attribute("data-key")
        await expect(card).to_have_count(0, timeout=PATIENCE_MS)
        await expect(page.get_by_text("done asking")).to_be_visible(timeout=PATIENCE_MS)
        await expect(row.locator(".mark")).to_contain_text("answered")
        assert await row.get_attribute("data-key") == key
        await evidence(page, row, "turn parked", "approval decided", "turn settled")
        assert not (tmp_path / "effects").exists()
