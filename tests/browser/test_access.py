"""The page for those who cannot see it, use no mouse, or get ill from motion."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import World
from tests.browser.test_page import tab_to, words
from tests.browser.tour import PHONE, WIDE, phone_tour, tour

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def violations(page: Page) -> list[str]:
    """What axe finds wrong now: rule, and where."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text("utf-8"))
    found: list[dict[str, Any]] = await page.evaluate("axe.run().then((result) => result.violations)")
    return [f"{one['id']}: {node['html'][:160]}" for one in found for node in one["nodes"]]


async def seen(page: Page, state: str) -> list[str]:
    """What axe finds wrong in this state, light at the desk and dark on a phone; all four with pictures, if wanted."""
    pictures = os.environ.get("TURNKEEPER_PICTURES")
    wrong: list[str] = []
    for size, name in ((PHONE, "phone-"), (WIDE, "")):
        await page.set_viewport_size(size)  # type: ignore[arg-type]
        for scheme in SCHEMES:
            if not pictures and (scheme == "dark") != (size is PHONE):
                continue
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            wrong += [f"{name}{state}, {scheme}: {one}" for one in await violations(page)]
            if pictures:
                await page.screenshot(path=f"{pictures}/page-{name}{state}-{scheme}.png")
    return wrong


@pytest.mark.parametrize("walk", ["desk", "phone"])
async def test_axe_finds_nothing_in_any_main_state_light_or_dark(world: World, walk: str) -> None:
    """With TURNKEEPER_PICTURES=folder it also leaves a picture of each state there."""
    pictures = os.environ.get("TURNKEEPER_PICTURES")
    phone = walk == "phone"
    page = await world.page(
        reduced_motion="reduce", **({"is_mobile": True, "has_touch": True} if phone else {})
    )
    await page.set_viewport_size(PHONE if phone else WIDE)  # type: ignore[arg-type]
    wrong: list[str] = []

    async def at(state: str) -> None:
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            wrong.extend(f"{state}, {scheme}: {one}" for one in await violations(page))
            if pictures:
                await page.screenshot(path=f"{pictures}/page-{state}-{scheme}.png")

    await (phone_tour if phone else tour)(world, page, at)
    assert wrong == []


async def test_everything_is_done_with_the_keyboard_alone(world: World) -> None:
    """From the first words to an old message, stopping, moving, changing and deciding: no mouse."""
    page = await world.page()
    keys = page.keyboard

    await tab_to(page, "Message")
    await keys.type("find me again")
    await keys.press("Enter")
    await expect(page.get_by_text("ok find me again")).to_be_visible()
    await keys.press("Alt+n")
    await expect(page.get_by_text("Nothing has been said yet.")).to_be_visible()
    await expect(page.locator("#composer")).to_be_focused()
    await keys.type("slow work")
    await keys.press("Enter")
    await expect(page.locator(".row.live")).to_be_visible()
    for text in ("second", "third"):
        await keys.type(text)
        await keys.press("Enter")
    await expect(page.get_by_text("waiting, number 2")).to_be_visible()
    await expect(page.get_by_role("button", name="Send now")).to_have_count(2)
    await page.locator("article.queued").last.focus()
    await keys.press("Alt+ArrowUp")
    await expect(page.locator("article.queued").first).to_contain_text("third")
    await expect(page.locator("main > [role=status]")).to_have_text("Now number 1")
    await page.locator("#composer").focus()
    await keys.press("Escape")
    await expect(page.get_by_text("The queue is paused")).to_be_visible()
    await page.locator("body").focus()
    await tab_to(page, "Go on")
    await keys.press("Enter")
    await expect(page.get_by_text("ok third")).to_be_visible()
    await keys.press("Control+k")
    await keys.type("find me")
    await keys.press("Enter")
    await expect(page.get_by_text("ok find me again")).to_be_visible()
    assert await words(page) == ["find me again", "ok find me again"]
    await page.locator("article").first.focus()
    await keys.press("PageDown")
    assert "ok find me again" in await page.evaluate("document.activeElement.innerText")
    await keys.press("?")
    await expect(page.locator(".panel")).to_be_focused()
    await keys.press("Escape")
    await expect(page.locator("article").nth(1)).to_be_focused()


async def test_nothing_moves_for_who_asked_for_stillness(world: World) -> None:
    page = await world.page(reduced_motion="reduce")
    await page.fill("#composer", "slow one")
    await page.press("#composer", "Enter")
    await expect(page.locator(".row.live")).to_be_visible()
    assert await page.evaluate("document.getAnimations().length") == 0
