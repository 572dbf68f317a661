"""What happens to a page in a day: dragging, a long queue, a slow server, sleep, a restart, a recording, a phone."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, async_playwright, expect

from tests.browser.conftest import ARGUMENTS, SCRIPT, World, opened
from tests.browser.test_page import send, tab_to, words
from tests.browser.tour import PHONE
from tests.needs import NEEDS
from turnkeeper.app import OPERATOR
from turnkeeper.conversation.parts import Text
from turnkeeper.testing.server_process import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

PATIENCE_MS = 60_000
QUEUED = 500


async def conversation(page: Page) -> str:
    return str(await page.evaluate("location.hash")).lstrip("#")


async def test_a_waiting_message_is_dragged_to_another_place(world: World) -> None:
    page = await world.page()
    await send(page, "slow one")
    await expect(page.locator(".row.live")).to_be_visible(timeout=PATIENCE_MS)
    for text in ("first", "second", "third"):
        await send(page, text)
    queued = page.locator("article.queued")
    await expect(queued).to_have_count(3, timeout=PATIENCE_MS)
    third = queued.filter(has_text="third")
    await expect(third).to_contain_text("waiting, number 3", timeout=PATIENCE_MS)
    key = await third.get_attribute("data-key")
    await expect(third.locator(".grip")).to_be_visible(timeout=PATIENCE_MS)
    await third.locator(".grip").drag_to(queued.filter(has_text="first"))
    await expect(queued.first).to_contain_text("third", timeout=PATIENCE_MS)
    await expect(third).to_contain_text("waiting, number 1")
    assert await third.get_attribute("data-key") == key
    # By keys it goes back to where it was.
    for place in (2, 3):
        await third.focus()
        await page.keyboard.press("Alt+ArrowDown")
        await expect(third).to_contain_text(f"waiting, number {place}", timeout=PATIENCE_MS)
    said = [" ".join(text.split()) for text in await queued.locator(".bubble").all_inner_texts()]
    assert said == ["first", "second", "third"]


@pytest.mark.long
async def test_five_hundred_messages_wait_and_the_page_stays_usable(tmp_path: Path) -> None:
    async with opened(tmp_path, queue_cap=QUEUED) as world:
        page = await world.page()
        await send(page, "slow one")
        await expect(page.locator(".row.live")).to_be_visible(timeout=PATIENCE_MS)
        await send(page, "waits first")
        # However slow the machine, none of them runs meanwhile.
        await page.get_by_role("button", name="Pause", exact=True).click()
        await expect(page.get_by_text("The queue is paused")).to_be_visible(timeout=PATIENCE_MS)
        conversation_id = await conversation(page)

        async def post(number: int) -> None:
            parts = (Text(f"waits {number}"),)
            await world.keeper.submit(OPERATOR, conversation_id, key=f"q-{number}", parts=parts)

        await asyncio.gather(*map(post, range(QUEUED - 2)))
        await post(QUEUED - 2)
        await expect(page.locator(".waits")).to_have_text(f"{QUEUED} waiting", timeout=PATIENCE_MS)
        await page.keyboard.press("Control+End")
        last = page.locator("article.queued", has_text=f"waits {QUEUED - 2}")
        await expect(last).to_contain_text(f"waiting, number {QUEUED}", timeout=PATIENCE_MS)
        assert await page.locator(".timeline article").count() < 60, "only what is in view is mounted"
        await last.get_by_role("button", name="Cancel", exact=True).click()
        await expect(page.locator(".waits")).to_have_text(f"{QUEUED - 1} waiting", timeout=PATIENCE_MS)
        await expect(page.locator("#composer")).to_have_value(f"waits {QUEUED - 2}")


async def test_a_slow_server_delays_nobody_who_writes(world: World) -> None:
    """Every answer of the server takes its time; what is sent is drawn at once and what is written stays."""
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible(timeout=PATIENCE_MS)
    go = asyncio.Event()

    async def slowly(route: Route) -> None:
        await go.wait()
        await route.continue_()

    await page.route("**/v1/**", slowly)
    await send(page, "one")
    await send(page, "two")
    await expect(page.locator(".row.sending")).to_have_count(2)
    await page.fill("#composer", "three, not yet")
    assert await words(page) == ["begin", "ok begin", "one", "two"]
    go.set()
    await expect(page.get_by_text("ok two")).to_be_visible(timeout=PATIENCE_MS)
    await expect(page.locator("#composer")).to_have_value("three, not yet")
    said = await words(page)
    assert sorted(said) == sorted(["begin", "ok begin", "one", "ok one", "two", "ok two"])


async def test_what_is_written_without_a_net_goes_out_when_it_is_back(world: World) -> None:
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible(timeout=PATIENCE_MS)
    await page.context.set_offline(True)
    await send(page, "from the tunnel")
    row = page.locator("article.user", has_text="from the tunnel")
    await expect(row.locator(".mark")).to_contain_text("asking again", timeout=PATIENCE_MS)
    await page.context.set_offline(False)
    await expect(page.get_by_text("ok from the tunnel")).to_be_visible(timeout=PATIENCE_MS)
    await expect(row.locator(".mark")).to_contain_text("answered", timeout=PATIENCE_MS)
    assert await words(page) == ["begin", "ok begin", "from the tunnel", "ok from the tunnel"]


async def test_a_killed_server_that_comes_back_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed in the middle of an answer, with a message waiting and one on its way."""
    (tmp_path / "script.json").write_text(
        '{"rules": [{"match": "slow", "rounds": [{"text": "' + "slowly " * 40 + '", "chars_per_s": 60}]}]}'
    )
    (tmp_path / "agents.toml").write_text('[agents.demo]\nscript = "script.json"\n')
    server = ServerProcess(tmp_path / "data", agents=tmp_path / "agents.toml")
    await server.start()
    chromium = next(need for need in NEEDS if need.mark == "browser").found()
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            world = World(browser, server.url, await asyncio.to_thread(server.token), tmp_path)
            page = await world.page()
            await send(page, "slow one")
            await expect(page.locator(".row.live .markdown")).to_be_visible(timeout=PATIENCE_MS)
            await send(page, "it waits")
            await expect(page.get_by_text("waiting, number 1")).to_be_visible(timeout=PATIENCE_MS)
            server.kill()
            await expect(page.get_by_text("Not connected")).to_be_visible(timeout=PATIENCE_MS)
            await send(page, "sent to nobody")
            await expect(page.locator("article.user")).to_have_count(3)
            await server.start()
            await expect(page.get_by_text("ok sent to nobody")).to_be_visible(timeout=PATIENCE_MS)
            await expect(page.get_by_text("Not connected")).to_have_count(0, timeout=PATIENCE_MS)
            said = [text for text in await words(page) if not text.startswith("slowly")]
            assert said == ["slow one", "it waits", "ok it waits", "sent to nobody", "ok sent to nobody"]
            await browser.close()
        assert world.complaints == []
    finally:
        if server.alive:
            await server.stop()


async def test_a_recording_is_stored_shown_and_sent_again(tmp_path: Path) -> None:
    """Chromium's own fake microphone."""
    fake = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream")
    async with opened(tmp_path, script=SCRIPT, arguments=fake) as world:
        page = await world.page(permissions=["microphone"])
        await page.get_by_role("button", name="Record", exact=True).click()
        await expect(page.get_by_role("button", name="Stop recording (0:01)")).to_be_visible(
            timeout=PATIENCE_MS
        )
        await page.get_by_role("button", name=re.compile("Stop recording")).click()
        await expect(page.locator(".composer .chip")).to_contain_text("recording.webm", timeout=PATIENCE_MS)
        await send(page, "fail with my voice")
        row = page.locator("article.user").first
        await expect(row.locator(".mark.bad")).to_be_visible(timeout=PATIENCE_MS)
        sources = [await row.locator("audio").get_attribute("src")]
        await row.get_by_role("button", name="Resend", exact=True).click()
        again = page.locator("article.user").nth(1)
        await expect(again.locator("audio")).to_have_count(1, timeout=PATIENCE_MS)
        sources.append(await again.locator("audio").get_attribute("src"))
        assert sources[0] == sources[1], "the same recording"
        heard = await page.request.get(f"{world.url}{sources[0]}")
        assert heard.status == 200
        assert (await heard.body())[:4] == b"\x1aE\xdf\xa3", "webm"


async def test_a_phone_is_used_with_the_keyboard_alone(world: World) -> None:
    """From the first load to an answer, to stopping, to an old message."""
    page = await world.page(is_mobile=True)
    await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    keys = page.keyboard

    await tab_to(page, "Message")
    await keys.type("an old message")
    await keys.press("Enter")
    await expect(page.get_by_text("ok an old message")).to_be_visible(timeout=PATIENCE_MS)
    await keys.press("Alt+n")
    await expect(page.get_by_text("Nothing has been said yet.")).to_be_visible(timeout=PATIENCE_MS)
    await keys.type("slow work")
    await keys.press("Enter")
    await expect(page.locator(".row.live")).to_be_visible(timeout=PATIENCE_MS)
    await tab_to(page, "Stop")
    await keys.press("Enter")
    await expect(page.locator("article.user .mark")).to_contain_text("stopped", timeout=PATIENCE_MS)
    await tab_to(page, "Conversations")
    await keys.press("Enter")
    await expect(page.locator(".sidebar.open")).to_be_visible()
    await tab_to(page, "Search titles")
    await keys.type("an old")
    await keys.press("Enter")
    await expect(page.get_by_text("ok an old message")).to_be_visible(timeout=PATIENCE_MS)
    await expect(page.locator(".sidebar.open")).to_have_count(0)
    assert await words(page) == ["an old message", "ok an old message"]
