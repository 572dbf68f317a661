"""A call that waits for a person's sign-in, as that person sees it: a card, the sign-in, one call, the answer.

A real MCP server with a real authorization server beside it (`tests/mcp/site.py`), and a real browser that goes
there and comes back.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import World, opened
from tests.browser.test_access import seen
from tests.browser.test_page import send, words
from tests.mcp.site import Site, serve
from tests.mcp.test_sign_in import AGENTS, RULES

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@asynccontextmanager
async def beside(folder: Path) -> AsyncIterator[tuple[World, Site]]:
    """A page whose agent uses the tools of a site at which people sign in for themselves."""
    async with serve() as site:
        agents = AGENTS.format(url=site.mcp_url)
        allowed = ("127.0.0.1",)
        async with opened(
            folder, agents=agents, script={"rules": RULES}, private_addresses_allowed=allowed
        ) as world:
            yield world, site


async def test_a_call_waits_for_a_sign_in_and_runs_once_after_it(tmp_path: Path) -> None:
    async with beside(tmp_path) as (world, site):
        page = await world.page()
        await send(page, "act for me")
        card = page.locator(".card")
        await expect(card).to_contain_text("jira", timeout=60_000)
        await expect(page.locator("article.user .mark")).to_contain_text("waits for a person")
        await expect(card).to_contain_text(re.compile(r"jira__act waits for that\. \d+ h \d+ min left"))
        wrong = await seen(page, "connect")
        assert site.acted == []
        async with page.expect_popup() as window:
            await card.get_by_role("link", name="Connect jira").click()
        signing_in = await window.value
        await expect(signing_in.get_by_text("jira is connected.")).to_be_visible(timeout=60_000)
        await signing_in.close()
        await expect(card).to_have_count(0, timeout=60_000)
        await expect(page.get_by_text("done", exact=True).last).to_be_visible(timeout=60_000)
        assert site.acted == ["act a"]
        assert await words(page) == ["act for me", "done"]
        # The next call asks nothing more.
        await send(page, "look around")
        await expect(page.get_by_text("looked", exact=True)).to_be_visible(timeout=60_000)
        assert site.acted == ["act a", "look a"]
        assert wrong == []


async def test_a_person_sees_where_they_are_signed_in_and_signs_out(tmp_path: Path) -> None:
    async with beside(tmp_path) as (world, site):
        page = await world.page()
        await send(page, "act for me")
        await expect(page.locator(".card")).to_have_count(1, timeout=60_000)
        await page.get_by_role("button", name="Settings").click()
        panel = page.locator(".panel")
        await expect(panel).to_contain_text("not connected")
        await expect(panel).to_contain_text("1 call waits for it")
        async with page.expect_popup() as window:
            await panel.get_by_role("link", name="Connect jira").click()
        await expect((await window.value).get_by_text("jira is connected.")).to_be_visible(timeout=60_000)
        await (await window.value).close()
        await expect(panel.get_by_role("button", name="Sign out at jira")).to_be_visible(timeout=60_000)
        await expect(page.locator(".row.answer")).to_contain_text("done", timeout=60_000)
        wrong = await seen(page, "settings")
        await panel.get_by_role("button", name="Sign out at jira").click()
        await expect(panel).to_contain_text("not connected")
        assert site.authority.refresh == {}, "the authority was told"
        await page.keyboard.press("Escape")
        # What comes later waits for a new sign-in; a person who does not want that says so, and can retry.
        await send(page, "act again")
        await expect(page.locator(".card")).to_have_count(1, timeout=60_000)
        await page.get_by_role("button", name="do not connect").click()
        await expect(page.locator(".card")).to_have_count(0, timeout=60_000)
        again = page.locator("article.user").last
        await expect(again.locator(".mark.bad")).to_be_visible()
        await expect(again.get_by_role("button", name="Retry", exact=True)).to_be_visible()
        assert site.acted == ["act a"]
        assert wrong == []
