"""Conversations that go on for long: what a page keeps of them, and that nothing of them is out of reach."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.bench import heap_bytes
from tests.browser.cases.player import STREAMS
from tests.browser.conftest import World
from tests.browser.test_page import send
from turnkeeper.app import OPERATOR
from turnkeeper.conversation.events import Draft, MessageAppended
from turnkeeper.conversation.messages import ASSISTANT, USER, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.port.store import Batch

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

PIECE = 40
"""Messages that come between two looks of the page; fewer than a page of the timeline, so that the two meet."""
PIECES = 8
"""With the last of them there are more than are kept."""

WALK = """async () => {
  const list = document.querySelector(".list");
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const said = new Map();
  list.scrollTop = 0;
  for (;;) {
    for (let wait = 0; wait < 3; wait++) await frame();
    for (const row of [...document.querySelectorAll(".timeline article")].sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top))
      if (!said.has(row.dataset.key)) said.set(row.dataset.key, row.querySelector(".bubble, .markdown").innerText.trim());
    if (list.scrollTop + list.clientHeight >= list.scrollHeight - 2) return [...said.values()];
    list.scrollTop += list.clientHeight / 2;
  }
}"""
"""Everything that is shown from the first row to the last, as a person scrolls through it."""


AT_END = """() => {
  const list = document.querySelector(".list");
  return list.scrollTop + list.clientHeight >= list.scrollHeight - 2;
}"""


async def conversation(page: Page) -> str:
    return str(await page.evaluate("location.hash")).lstrip("#")


async def test_who_follows_for_long_keeps_the_newest_rows_and_finds_all_others_again(world: World) -> None:
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible()
    conversation_id = await conversation(page)
    older: list[str] = []
    page.on("request", lambda request: older.append(request.url) if "before=" in request.url else None)
    said = ["begin", "ok begin"]
    full = 0
    for piece in range(PIECES):
        texts = [f"said {piece * PIECE + number}" for number in range(PIECE)]
        messages = [
            Message(
                message_id=f"m_{text.replace(' ', '_')}",
                role=USER if number % 2 == 0 else ASSISTANT,
                parts=(Text(text),),
                created_at=1_700_000_000.0 + number,
                provenance="inferred",
            )
            for number, text in enumerate(texts)
        ]
        drafts = tuple(Draft(MessageAppended(message)) for message in messages)
        await world.keeper.store.commit(Batch(conversation_id=conversation_id, drafts=drafts, at=1.0))
        said += texts
        full = max(full, await page.evaluate("document.querySelector('.list').scrollHeight"))
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await expect(page.get_by_text(texts[-1], exact=True)).to_be_visible(timeout=30_000)
    # Old rows went, and the newest one is still what is looked at.
    await page.wait_for_function(
        "full => document.querySelector('.list').scrollHeight < full", arg=full * 0.8, timeout=30_000
    )
    await page.wait_for_function(AT_END, timeout=30_000)
    await expect(page.get_by_text(said[-1], exact=True)).to_be_in_viewport()
    assert older == [], "who follows the end asks for nothing old"
    await page.hover(".list")
    for _ in range(200):
        if await page.get_by_text("ok begin").count():
            break
        await page.mouse.wheel(0, -4000)
    await expect(page.get_by_text("ok begin")).to_be_visible(timeout=30_000)
    assert older, "what was let go of is loaded again"
    assert await page.evaluate(WALK) == said
    # Back at the end it goes on as before.
    await send(page, "and on")
    await expect(page.get_by_text("ok and on")).to_be_visible(timeout=30_000)


async def test_who_follows_sees_the_newest_row_while_what_stands_around_the_rows_grows_and_shrinks(
    world: World,
) -> None:
    """A banner that comes and goes and a composer of many lines change the height of the list: nobody scrolled."""
    page = await world.page(script=STREAMS)
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible()
    conversation_id = await conversation(page)
    refused = True

    async def events(route: Route) -> None:
        await (route.abort() if refused else route.continue_())

    await page.route("**/events?*", events)

    async def say(text: str) -> None:
        await world.keeper.submit(OPERATOR, conversation_id, key=text.replace(" ", "-"), parts=[Text(text)])

    for number in range(12):
        await say(f"row {number}")
    await expect(page.get_by_text("ok row 11", exact=True)).to_be_visible(timeout=30_000)
    for broken in range(2):
        refused = True
        await page.evaluate("window.cutStreams()")
        await expect(page.get_by_text("Not connected")).to_be_visible()
        await page.wait_for_function(AT_END)
        await say(f"unheard {broken}")
        refused = False
        newest = page.get_by_text(f"ok unheard {broken}", exact=True)
        await expect(newest).to_be_in_viewport(timeout=30_000)
        await expect(page.get_by_text("Not connected")).to_be_hidden()
        await page.wait_for_function(AT_END)
    await page.fill("#composer", "a line\n" * 12)
    await page.wait_for_function(AT_END)
    await page.fill("#composer", "")
    await page.wait_for_function(AT_END)
    await page.hover(".list")
    await page.mouse.wheel(0, -400)
    await expect(page.get_by_role("button", name="newest")).to_be_visible()
    await page.fill("#composer", "a line\n" * 12)
    await say("not looked for")
    await expect(page.get_by_text("not looked for", exact=True)).not_to_be_in_viewport()
    assert not await page.evaluate(AT_END), "who scrolled away stays there"


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_thousand_answers_leave_the_memory_of_a_page_where_it_was(world: World) -> None:
    """The heap after 300 answers (as many rows as are kept) and after 1,000, each after a collection."""
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible()
    conversation_id = await conversation(page)
    heaps = {}
    for number in range(1, 1001):
        answer = await page.request.post(
            f"{world.url}/v1/conversations/{conversation_id}/turns",
            data={"text": f"question {number}"},
            headers={"idempotency-key": f"k-{number}", "origin": world.url},
        )
        assert answer.status == 202
        if number % 10 == 0:
            await expect(page.get_by_text(f"ok question {number}", exact=True)).to_be_visible(timeout=60_000)
        if number in (300, 1000):
            heaps[number] = await heap_bytes(page)
    assert heaps[1000] < heaps[300] * 1.15, heaps
