"""The public delivery cases of a coding CLI in which a person looks at a page: BD009 on a phone, BD116 over a reload.

The pane, the CLI and the server are those of `tests/retained/cases`; what stands in the files about `ui` is asked of
a page of a real Chromium.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.acceptance.delivery.player import Posted
from tests.browser.cases.player import Answer
from tests.browser.conftest import ARGUMENTS
from tests.browser.tour import PHONE, WIDE
from tests.needs import NEEDS
from tests.retained.cases.facts import Seen, judge
from tests.retained.cases.play import Play
from tests.retained.cases.world import World
from tests.surroundings import VECTORS
from turnkeeper.testing.until import until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.tmux,
    pytest.mark.process,
    pytest.mark.timeout(400),
]

SCALE = 0.1
PATIENCE_MS = 60_000

FILES = {"BD009": "009-silent-queue-local-owner.json", "BD116": "116-clear-rotates-file.json"}


class PanePlay(Play):
    """A play whose person has a page: what they send goes through it, what they reload is it."""

    page: Page

    async def begin(self, browser: Browser, size: dict[str, int]) -> None:
        """Open the page of the case's conversation."""
        await self._make("c1")
        server = self.world.server
        context = await browser.new_context(viewport=size)  # type: ignore[arg-type]
        token = await asyncio.to_thread(server.token)
        await context.add_cookies(
            [{"name": f"turnkeeper_{server.port}", "value": token, "url": server.url, "httpOnly": True}]
        )
        self.page = await context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        await self.page.goto(f"{server.url}/#{self.convs['c1']}")
        await expect(self.page.get_by_text("Nothing has been said yet.")).to_be_visible(timeout=PATIENCE_MS)

    async def do_post(self, step: dict[str, Any]) -> None:
        if "device" not in step:
            await super().do_post(step)
            return
        await self.page.fill("#composer", step["text"])
        async with self.page.expect_response("**/turns") as asked:
            await self.page.press("#composer", "Enter")
        answer = await asked.value
        key = answer.request.headers["idempotency-key"]
        post = self.posted[step["msg"]] = Posted(step["msg"], step["conv"], step["text"], key)
        post.answers.append(Answer(answer.status, await answer.json()))  # type: ignore[arg-type]
        post.answered_at.append(self.pace.now)

    async def do_reload(self, step: dict[str, Any]) -> None:
        await super().do_reload(step)
        await self.page.reload()

    async def rows(self) -> list[str]:
        """What the page shows, row by row: u: said, a: answered, x: noticed."""
        found: list[str] = await self.page.evaluate(
            """() => [...document.querySelectorAll(".timeline article")].map((row) => {
              const kind = row.dataset.kind;
              const said = row.querySelector(".bubble, .markdown")?.innerText ?? row.innerText;
              return `${{ user: "u", answer: "a", notice: "x" }[kind] ?? kind}:${said.trim()}`;
            })"""
        )
        return found


async def played(case_id: str, folder: Path, size: dict[str, int], then: Any) -> None:
    """Play a case, ask its page, and judge every expectation of its file."""
    case = json.loads((VECTORS / "delivery-panes" / FILES[case_id]).read_text("utf-8"))
    chromium = next(need for need in NEEDS if need.mark == "browser").found()
    world = World(folder / "world")
    play = PanePlay(case, world, SCALE)
    await world.start()
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            await play.begin(browser, size)
            await play.run()
            await then(play)
            seen = Seen(play)
            for each in case["expect"]:
                await until(lambda each=each: judge(each, seen), each, seconds=60)  # type: ignore[misc]
            await browser.close()
        assert play.complaints == []
    finally:
        await play.close()
        await world.api.close()
        if world.server.alive:
            world.server.kill()


async def test_bd009_a_phone_says_why_its_message_waits_while_another_holds_the_terminal(
    tmp_path: Path,
) -> None:
    async def then(play: PanePlay) -> None:
        held = await until(lambda: Seen(play).held("m1"), "held", seconds=60)
        mark = play.page.locator("article.user", has_text="status?").locator(".mark")
        await expect(mark).to_contain_text(held[-1][1]["sentence"], timeout=PATIENCE_MS)
        await expect(mark).to_contain_text("waits")
        await mark.click()
        await expect(play.page.get_by_text("delivery held").first).to_be_visible(timeout=PATIENCE_MS)

    await played("BD009", tmp_path, PHONE, then)


@pytest.mark.long
async def test_bd116_a_page_shows_what_came_after_a_clear_also_when_it_is_opened_anew(
    tmp_path: Path,
) -> None:
    async def then(play: PanePlay) -> None:
        answers = play.page.locator(".row.answer")
        await expect(answers).to_have_count(2, timeout=PATIENCE_MS)
        rows = await play.rows()
        assert [row[:2] for row in rows] == ["u:", "a:", "x:", "u:", "a:"], rows
        assert (rows[0], rows[3]) == ("u:a", "u:b")

    await played("BD116", tmp_path, WIDE, then)
