"""Nothing that a person sends is lost, doubled, or put elsewhere, however slowly the server answers."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Route, expect

from tests.browser.conftest import World
from tests.browser.test_page import send, words

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


async def test_what_is_sent_while_the_conversation_is_being_made_goes_into_it(world: World) -> None:
    """The first message makes the conversation; the next ones do not wait for that and make no other."""
    page = await world.page()
    made = asyncio.Event()

    async def slowly(route: Route) -> None:
        if route.request.method == "POST":
            await made.wait()
        await route.continue_()

    await page.route("**/v1/conversations", slowly)
    for text in ("one", "two", "three"):
        await send(page, text)
    await expect(page.locator(".row.sending")).to_have_count(3)
    await page.fill("#composer", "half a thou")
    made.set()
    await expect(page.get_by_text("ok three")).to_be_visible()
    assert sorted(await words(page)) == sorted(["one", "ok one", "two", "ok two", "three", "ok three"])
    await expect(page.locator("#composer")).to_have_value("half a thou")
    await expect(page.locator(".sidebar li")).to_have_count(1)
