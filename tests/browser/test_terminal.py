"""The terminal beside the chat: a real CLI in a real tmux, seen and taken over from a real browser."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from playwright.async_api import Route, async_playwright, expect

from tests.browser.conftest import ARGUMENTS
from tests.browser.test_access import seen
from tests.needs import NEEDS
from tests.retained.cases.world import Cli, World
from turnkeeper.terminal.pane import COLUMNS_DEFAULT
from turnkeeper.testing.scripted_cli.quirks import Quirks
from turnkeeper.testing.until import until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.tmux,
    pytest.mark.process,
    pytest.mark.timeout(240),
]

SCREEN = "[...document.querySelectorAll('.xterm-rows > div')].map((row) => row.textContent).join('\\n')"

DRAWN = "rows => rows.map((row) => [row.dataset.key, row.innerText])"
"""Every row by its identity and words."""


async def test_a_terminal_is_looked_at_taken_over_and_survives_its_end(tmp_path: Path) -> None:
    """BD108: keys for a program that has ended harm nobody, and the page says that it has ended."""
    chromium = next(need for need in NEEDS if need.mark == "browser").found()
    world = World(tmp_path / "world")
    cli = Cli(tmp_path / "cli", "coder", "claude-code", Quirks(), tmp_path / "work", 0.1)
    world.clis.append(cli)
    world.write_agents()
    server = world.server
    await server.start()
    complaints: list[str] = []
    wrong: list[str] = []
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            context = await browser.new_context(viewport={"width": 1400, "height": 900})
            name = f"turnkeeper_{server.port}"
            await context.add_cookies(
                [{"name": name, "value": server.token(), "url": server.url, "httpOnly": True}]
            )
            page = await context.new_page()
            page.on("pageerror", lambda error: complaints.append(str(error)))
            asked: list[int] = []

            async def late(route: Route) -> None:
                asked.append(1)
                await (route.fulfill(status=503) if len(asked) == 1 else route.continue_())

            await page.route("**/v1/agents", late)
            await page.goto(server.url)
            # The list of agents may come long after the page, and not at the first try.
            await page.locator(".agent select").select_option("coder", timeout=60_000)
            await expect(page.get_by_text("Nothing has been said yet.")).to_be_visible()
            await page.fill("#composer", "good morning")
            await page.press("#composer", "Enter")
            await expect(page.locator(".row.answer")).to_be_visible(timeout=60_000)
            await page.get_by_role("button", name="Terminal").click()
            await until(
                lambda: page.evaluate(f"{SCREEN}.includes('good morning')"),
                "the screen in the page",
                seconds=60,
            )
            await expect(page.locator("article.user .mark")).to_contain_text("✓✓ answered", timeout=60_000)
            drawn = await page.locator("article").evaluate_all(DRAWN)
            # Looking: what is typed goes nowhere.
            await expect(page.get_by_text("You are looking.")).to_be_visible()
            wrong = await seen(page, "terminal")
            # Who comes from the terminal to the chat, and goes there again, finds every row as it was.
            await page.locator("[data-conversation]").first.click()
            await page.get_by_role("button", name="Close", exact=True).click()
            await expect(page.locator(".xterm")).to_have_count(0)
            await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            await page.get_by_role("button", name="Terminal").click()
            await expect(page.get_by_text("You are looking.")).to_be_visible()
            assert await page.locator("article").evaluate_all(DRAWN) == drawn
            await until(
                lambda: page.evaluate(f"{SCREEN}.includes('ok good morning')"), "the screen again", seconds=60
            )
            # It has the pane's own size: what the CLI draws from edge to edge is one line.
            across = [
                line for line in (await page.evaluate(SCREEN)).split("\n") if set(line.strip()) == {"─"}
            ]
            assert [len(line.strip()) for line in across] == [COLUMNS_DEFAULT - 1] * 2, (
                "the CLI leaves one free"
            )
            await page.locator(".xterm-place").click()
            await page.keyboard.type("zzz")
            await page.get_by_role("button", name="Take over the keyboard").click()
            await expect(page.get_by_text("has the keyboard")).to_be_visible()
            await page.locator(".xterm-place").click()
            await page.keyboard.type("by hand")
            await until(lambda: page.evaluate(f"{SCREEN}.includes('by hand')"), "typed words", seconds=60)
            assert "zzz" not in await page.evaluate(SCREEN)
            await page.get_by_role("button", name="Give the keyboard back").click()
            await expect(page.get_by_text("You are looking.")).to_be_visible()
            await page.get_by_role("button", name="Take over the keyboard").click()
            await expect(page.get_by_role("button", name="Give the keyboard back")).to_be_visible()
            pid = server.pid
            view = await (await page.request.get(f"{server.url}/v1/sessions")).json()
            cli_pid = view["sessions"][0]["pid"]
            os.kill(cli_pid, signal.SIGKILL)
            await page.locator(".xterm-place").click()
            await page.keyboard.type("ls\rxxxxxxxxxxxxxxxxxxxx")
            await expect(page.get_by_text("The program has ended.")).to_be_visible(timeout=60_000)
            assert server.pid == pid
            assert server.alive
            await browser.close()
    finally:
        if server.alive:
            await server.stop()
        await world.end_panes()
    assert complaints == []
    assert wrong == []
