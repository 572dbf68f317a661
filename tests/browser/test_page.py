"""The page as a person uses it: what they send, see, stop, wait for and decide."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import World, opened
from turnkeeper.tool import tool

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


async def send(page: Page, text: str) -> None:
    await page.fill("#composer", text)
    await page.press("#composer", "Enter")


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until what is called so has the focus."""
    for _ in range(60):
        await page.keyboard.press("Tab")
        here = await page.evaluate(
            "document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.innerText"
        )
        if (here or "").strip().startswith(name):
            return
    pytest.fail(f"the keyboard does not come to {name}")


async def words(page: Page) -> list[str]:
    return [
        " ".join(text.split())
        for text in await page.locator(".bubble, .row.answer .markdown").all_inner_texts()
    ]


async def test_a_first_answer_and_the_order_after_a_reload(world: World) -> None:
    page = await world.page()
    for text in ("one", "two", "three"):
        await send(page, text)
    await expect(page.get_by_text("ok three")).to_be_visible()
    order = ["one", "ok one", "two", "ok two", "three", "ok three"]
    assert await words(page) == order
    await page.reload()
    await expect(page.get_by_text("ok three")).to_be_visible()
    assert await words(page) == order


async def test_what_waits_stands_last_with_its_number_and_can_be_taken_back(world: World) -> None:
    page = await world.page()
    await send(page, "slow answer")
    await expect(page.locator(".row.live")).to_be_visible()
    await send(page, "second")
    await send(page, "third")
    await expect(page.get_by_text("waiting, number 2")).to_be_visible()
    queued = page.locator(".row.queued")
    await queued.filter(has_text="third").get_by_role("button", name="Up").click()
    await expect(queued.first).to_contain_text("third")
    await queued.filter(has_text="second").get_by_role("button", name="Cancel").click()
    await expect(queued).to_have_count(1)
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_text("The queue is paused")).to_be_visible()
    await page.get_by_role("button", name="Go on").click()
    await expect(page.get_by_text("ok third")).to_be_visible()


async def test_one_hung_request_delays_no_other(world: World) -> None:
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible()
    hung: asyncio.Event = asyncio.Event()

    async def hang_first(route: Route) -> None:
        if "hangs" in (route.request.post_data or ""):
            await hung.wait()
        await route.continue_()

    await page.route("**/turns", hang_first)
    await send(page, "this one hangs")
    await send(page, "this one goes")
    await expect(page.get_by_text("ok this one goes")).to_be_visible()
    hung.set()
    await expect(page.get_by_text("ok this one hangs")).to_be_visible()


async def test_two_clicks_on_one_draft_are_one_message(world: World) -> None:
    page = await world.page()
    await page.fill("#composer", "only once")
    await page.evaluate("const b = document.querySelector('button[type=submit]'); b.click(); b.click();")
    await expect(page.get_by_text("ok only once")).to_be_visible()
    assert await words(page) == ["only once", "ok only once"]


async def test_a_refused_message_returns_to_the_empty_composer(world: World) -> None:
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible()

    async def refuse(route: Route) -> None:
        body = '{"type":"x","title":"Queue full","detail":"The queue is full.","code":"queue_full","retryable":true}'
        await route.fulfill(status=429, content_type="application/problem+json", body=body)

    await page.route("**/turns", refuse)
    await send(page, "precious words")
    await expect(page.locator("#composer")).to_have_value("precious words")
    await expect(page.get_by_role("alert")).to_contain_text("The queue is full.")
    await page.unroute("**/turns")
    await page.press("#composer", "Enter")
    await expect(page.get_by_text("ok precious words")).to_be_visible()


async def test_a_draft_survives_a_reload(world: World) -> None:
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible()
    await page.fill("#composer", "half a thou")
    await page.reload()
    await expect(page.locator("#composer")).to_have_value("half a thou")


async def test_enter_that_ends_a_composition_sends_nothing(world: World) -> None:
    page = await world.page()
    await page.fill("#composer", "にほん")
    await page.evaluate(
        "document.querySelector('#composer').dispatchEvent("
        "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true}))"
    )
    await expect(page.locator("#composer")).to_have_value("にほん")
    await expect(page.locator(".row")).to_have_count(0)


async def test_markup_of_a_model_is_shown_and_does_nothing(world: World) -> None:
    page = await world.page()
    await send(page, "evil please")
    await expect(page.get_by_text("shown")).to_be_visible()
    assert await page.evaluate("window.hacked") is None


async def test_a_failure_says_why_and_can_be_retried_and_resent(world: World) -> None:
    page = await world.page()
    await send(page, "fail now")
    await expect(page.locator(".mark.bad")).to_contain_text("credentials")
    await page.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.get_by_role("button", name="Resend", exact=True)).to_be_visible()


async def test_tool_calls_are_folded_and_the_evidence_opens(world: World) -> None:
    page = await world.page()
    await send(page, "use tools")
    await expect(page.get_by_text("two bold words")).to_be_visible()
    await page.get_by_text("1 tool call").click()
    await page.locator(".step.tool summary").click()
    await expect(page.locator(".step.tool pre").first).to_contain_text('"text": "x"')
    await page.locator(".mark.good").click()
    await expect(page.get_by_text("What is known of this message")).to_be_visible()
    await expect(page.get_by_text("turn settled")).to_be_visible()


async def test_an_approval_is_asked_and_one_yes_runs_one_call(world: World) -> None:
    page = await world.page()
    await send(page, "ask me")
    await page.get_by_role("button", name="Approve once").click()
    await expect(page.get_by_text("done asking")).to_be_visible()
    assert (world.folder / "effects").read_text().count("x") == 1


async def test_a_second_tab_shows_the_same_live(world: World) -> None:
    first = await world.page()
    await send(first, "begin")
    await expect(first.get_by_text("ok begin")).to_be_visible()
    second = await world.page()
    await expect(second.get_by_text("ok begin")).to_be_visible()
    await send(second, "from the other tab")
    await expect(first.get_by_text("ok from the other tab")).to_be_visible()
    assert await words(first) == await words(second)


async def test_a_deleted_conversation_comes_back_on_undo(world: World) -> None:
    page = await world.page()
    await send(page, "keep me")
    await expect(page.get_by_text("ok keep me")).to_be_visible()
    await page.locator(".menu summary").first.click()
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_text("ok keep me")).to_be_visible()


async def test_the_phone_has_the_list_behind_a_button_and_nothing_sticks_out(world: World) -> None:
    page = await world.page(is_mobile=True)
    await page.set_viewport_size({"width": 375, "height": 700})
    await send(page, "a" * 300 + " b")
    await expect(page.get_by_text("ok aaa")).to_be_visible()
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 375
    await page.get_by_role("button", name="Conversations").click()
    await expect(page.get_by_role("button", name="New", exact=True)).to_be_visible()


DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool(effect="read_only")
async def look() -> list[object]:
    """Give a picture, as MCP servers do."""
    data = base64.b64encode(DOT).decode()
    return [{"type": "text", "text": "a dot"}, {"type": "image", "data": data, "mimeType": "image/png"}]


async def test_a_picture_that_a_tool_gave_is_shown_with_its_call(tmp_path: Path) -> None:
    agents = '[agents.demo]\nscript = "script.json"\ntools = ["tests.browser.test_page:look"]\n'
    rounds = [{"tool_calls": [{"name": "look", "arguments": {}}]}, {"text": "seen"}]
    script = {"rules": [{"match": "look", "rounds": rounds}]}
    async with opened(tmp_path, agents=agents, script=script) as world:
        page = await world.page()
        await send(page, "look")
        await expect(page.get_by_text("seen")).to_be_visible()
        await page.locator(".row.progress details.steps > summary").click()
        await page.locator(".step.tool > details > summary").click()
        await expect(page.locator(".step.tool pre").last).to_contain_text("a dot")
        picture = page.locator(".step.tool .files img")
        await expect(picture).to_be_visible()
        assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
        assert world.complaints == []
