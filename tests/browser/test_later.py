"""Parts of the page that come later, from a server that is gone just then."""

from __future__ import annotations

import pytest
from playwright.async_api import Route, expect

from tests.browser.conftest import World

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


async def test_a_waiting_message_is_drawn_while_its_actions_cannot_be_loaded(world: World) -> None:
    """Two tries get no answer; the row stands meanwhile, and has its actions once they have come."""
    failed: list[str] = []

    async def twice(route: Route) -> None:
        if len(failed) < 2:
            failed.append(route.request.url)
            await route.abort()
        else:
            await route.continue_()

    page = await world.page(routes={"**/queue-*.js*": twice})
    for text in ("slow one", "it waits"):
        await page.fill("#composer", text)
        await page.press("#composer", "Enter")
    await expect(page.get_by_text("waiting, number 1")).to_be_visible()
    await expect(page.get_by_role("button", name="Send now")).to_be_visible(timeout=30_000)
    assert len(failed) == 2
    await expect(page.get_by_text("could not be drawn")).to_have_count(0)
