"""A walk through every main state of the page, as a person would come to it. Each state is shown to `at`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from playwright.async_api import Page, expect

from tests.browser.conftest import World

At = Callable[[str], Awaitable[None]]

WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 780}


async def say(page: Page, text: str) -> None:
    await page.fill("#composer", text)
    await page.press("#composer", "Enter")


async def tour(world: World, page: Page, at: At) -> None:
    """Needs a fresh server: the states stand in an order in which one leads to the next."""
    await expect(page.get_by_text("Write something to begin.")).to_be_visible()
    await at("empty")
    await say(page, "Show me tools and a table")
    await expect(page.get_by_text("two bold words")).to_be_visible()
    await say(page, "code please")
    await expect(page.get_by_text("def keep(")).to_be_visible()
    await page.locator(".steps > summary").first.click()
    await page.locator(".step.tool summary").first.click()
    await at("answered")
    await page.locator(".steps > summary").first.click()
    await page.locator(".mark.good").first.click()
    await expect(page.get_by_text("turn settled")).to_be_visible()
    await at("evidence")
    await page.get_by_role("button", name="Close", exact=True).click()
    await page.get_by_role("button", name="What the model sees").click()
    await expect(page.locator(".beside")).to_be_visible()
    await at("feed")
    await page.keyboard.press("Escape")
    await say(page, "slow, please: write about the keeper")
    await expect(page.locator(".row.live .markdown")).to_be_visible()
    await say(page, "then summarise it")
    await say(page, "and translate the summary")
    await expect(page.get_by_text("waiting, number 2")).to_be_visible()
    await expect(page.get_by_role("button", name="Send now")).to_have_count(2)
    await at("working")
    await page.get_by_role("button", name="Edit", exact=True).first.click()
    await expect(page.locator(".change textarea")).to_be_focused()
    await at("editing")
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_text("The queue is paused")).to_be_visible()
    await expect(page.locator(".row.aside")).to_be_visible()
    await at("paused")
    await page.get_by_role("button", name="Go on").click()
    await expect(page.get_by_text("ok and translate the summary")).to_be_visible()
    await say(page, "this will fail")
    await expect(page.locator(".mark.bad")).to_be_visible()
    await at("failed")
    await page.get_by_role("button", name="New", exact=True).click()
    await expect(page.get_by_text("Nothing has been said yet.")).to_be_visible()
    await say(page, "please ask before you write")
    await expect(page.get_by_role("button", name="Approve once")).to_be_visible()
    await at("approval")
    await page.get_by_role("button", name="Approve once").click()
    await expect(page.get_by_text("done asking")).to_be_visible()
    await page.get_by_role("button", name="Keys").click()
    await expect(page.get_by_text("this sheet")).to_be_visible()
    await at("keys")
    await page.keyboard.press("Escape")


async def phone_tour(world: World, page: Page, at: At) -> None:
    """The same on a phone, where the list is behind a button."""
    await say(page, "Show me tools and a table")
    await expect(page.get_by_text("two bold words")).to_be_visible()
    await at("phone-answered")
    await say(page, "slow, please: write about the keeper")
    await expect(page.locator(".row.live .markdown")).to_be_visible()
    await say(page, "then summarise it")
    await say(page, "and translate the summary")
    await expect(page.get_by_role("button", name="Send now")).to_have_count(2)
    await at("phone-working")
    await page.get_by_role("button", name="Conversations").click()
    await expect(page.get_by_role("button", name="New", exact=True)).to_be_visible()
    await at("phone-list")
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_text("The queue is paused")).to_be_visible()
    await page.locator("article.user .mark").first.click()
    await expect(page.get_by_text("What is known of this message")).to_be_visible()
    await at("phone-evidence")
