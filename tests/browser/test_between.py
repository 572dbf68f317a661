"""What a person sees between messages: a resume with what it kept, another session and why, a summary; and of a call."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.conftest import World
from turnkeeper.app import OPERATOR
from turnkeeper.conversation.events import AutoResumed, Draft, MessageAppended, SessionBound
from turnkeeper.conversation.messages import NOTICE, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Failure
from turnkeeper.port.store import Batch
from turnkeeper.testing.until import until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


async def between(world: World) -> str:
    """A conversation with an answer that used a tool, then a resume, another session, and a summary."""
    keeper = world.keeper
    c = (await keeper.create_conversation(OPERATOR, "demo", title="What stands between")).conversation_id
    accepted = await keeper.submit(OPERATOR, c, key="k", parts=[Text("tools, please")])

    async def answered() -> bool:
        return (await keeper.turn(OPERATOR, accepted.turn_id)).state == "settled"

    await until(answered, "the turn to be answered")
    stall = Failure(kind="stall", retryable=True, sentence="The model was silent for 20 seconds.")
    told = "The native session 0b1c is gone: a new one begins."
    summary = Message(
        message_id="m_sum", role=NOTICE, parts=(Text("They spoke of tools."),), provenance="summary", created_at=1_764_000_000.0,
        replay=False, through="m_x",
    )  # fmt: skip
    bodies = (
        AutoResumed(stall, kept_rounds=2, kept_results=3, saved_input_tokens=1200, saved_output_tokens=34),
        SessionBound(cli="pi", native_id="77aa", why="lost", sentence=told, previous="0b1c", told=True),
        MessageAppended(summary),
    )
    await keeper.store.commit(Batch(conversation_id=c, drafts=tuple(map(Draft, bodies)), at=1_764_000_000.0))
    return c


async def test_what_stands_between_messages_says_what_happened_and_why(world: World) -> None:
    c = await between(world)
    page = await world.page()
    await page.goto(f"{world.url}/#{c}")
    await expect(page.get_by_text("It went on by itself")).to_be_visible()
    await expect(
        page.get_by_text("Kept: 2 rounds, 3 tool results. 1,234 tokens are not paid again.")
    ).to_be_visible()
    await expect(page.get_by_text("A new session of pi began")).to_be_visible()
    await expect(page.get_by_text("a new one begins. It was given the recent dialogue.")).to_be_visible()
    await page.get_by_text("Older messages were summed up for the model").click()
    await expect(page.get_by_text("They spoke of tools.")).to_be_visible()
    await page.get_by_text("A new session of pi began").click()
    await expect(page.get_by_text("77aa")).to_be_visible()
    kinds = await page.eval_on_selector_all(".row", "rows => rows.map((row) => row.dataset.kind)")
    assert kinds == ["user", "progress", "answer", "resumed", "session", "compacted"]


async def test_a_tool_call_says_what_it_may_do_and_how_long_it_took(world: World) -> None:
    c = await between(world)
    page = await world.page()
    await page.goto(f"{world.url}/#{c}")
    await page.get_by_text("1 tool call").click()
    call = page.locator(".step.tool summary")
    await expect(call).to_contain_text("echo")
    await expect(call.locator(".effect")).to_have_text("reads only")
    await expect(call).to_contain_text("ms")
    await call.click()
    await expect(page.locator(".step.tool pre").first).to_contain_text('"text": "x"')
