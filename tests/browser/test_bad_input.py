"""What is too long, too much, malformed, late, doubled or lost: the page stays usable and says what is wrong."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import World
from tests.browser.test_page import send, words

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

STREAM = """(() => {
  const Real = window.EventSource;
  window.EventSource = class extends Real {
    set onmessage(tell) {
      let number = 0, kept = null;
      this.addEventListener("message", (event) => {
        number += 1;
        if (number % 5 === 0) return;                       // dropped
        if (number % 3 === 0) { kept = event; return; }      // late
        tell(event);
        tell(event);                                         // doubled
        if (kept) { tell(kept); kept = null; }
      });
    }
  };
})()"""

STORAGE = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }"

CLOCK = """(() => {
  const Real = Date, offset = 5 * 3600 * 1000;
  window.Date = class extends Real {
    constructor(...given) { given.length ? super(...given) : super(Real.now() + offset); }
    static now() { return Real.now() + offset; }
  };
})()"""


async def still_works(page: Page) -> None:
    """A person goes on."""
    await send(page, "and on it goes")
    await expect(page.get_by_text("ok and on it goes")).to_be_visible(timeout=30_000)


async def fill(page: Page, text: str) -> None:
    """Text of any size, as a paste brings it."""
    await page.evaluate(
        """(text) => {
          const box = document.getElementById("composer");
          box.value = text;
          box.dispatchEvent(new Event("input", { bubbles: true }));
        }""",
        text,
    )
    await page.press("#composer", "Enter")


async def test_a_megabyte_is_stored_or_refused_in_words_and_never_lost(world: World) -> None:
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible()
    big = "word " * 200_000
    await fill(page, big)
    kept = page.locator("article.user").nth(1)
    refused = page.get_by_role("alert")
    await expect(kept.or_(refused).first).to_be_visible(timeout=30_000)
    if await refused.count():
        assert await page.input_value("#composer") == big
        await page.fill("#composer", "")
    await still_works(page)


async def test_ten_thousand_lines_of_code_are_drawn_and_copied_exactly(world: World) -> None:
    page = await world.page()
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = "\n".join(f"\tline({number})  # < & >" for number in range(10_000))
    await fill(page, f"code?\n```python\n{code}\n```")
    await expect(page.locator(".row.user pre code")).to_contain_text("line(9999)", timeout=30_000)
    await page.locator(".row.user .copy").click()
    assert await page.evaluate("navigator.clipboard.readText()") == code
    await still_works(page)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("right to left", "שלום עולם، مرحبا بالعالم"),
        ("zero width", "in\u200bvis\u200dible \u202eturned\u202c \ufeffmark"),
        (
            "script tags",
            "<script>window.hacked=1</script><img src=x onerror=window.hacked=1><svg onload=window.hacked=1>",
        ),
        ("broken markdown", "**half [a](b ```\n| a | b\n|--\n> > > <details><div>"),
        ("remote picture", "![spy](https://example.invalid/spy.png) [x](javascript:window.hacked=1)"),
    ],
)
async def test_strange_text_is_shown_and_does_nothing(world: World, name: str, text: str) -> None:
    page = await world.page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await send(page, text)
    await expect(page.locator(".row.answer")).to_have_count(1)
    await expect(page.locator(".row.user .mark")).to_contain_text("answered")
    assert await page.evaluate("window.hacked") is None
    assert [url for url in asked if not url.startswith(world.url)] == []
    assert await page.locator("a[href^='javascript']").count() == 0
    await still_works(page)


async def test_events_that_come_twice_late_or_never_change_nothing(world: World) -> None:
    page = await world.page(script=STREAM)
    said = []
    for number in range(6):
        await send(page, f"n{number}")
        said += [f"n{number}", f"ok n{number}"]
        await expect(page.get_by_text(f"ok n{number}", exact=True)).to_be_visible(timeout=30_000)
    assert await words(page) == said


async def test_a_server_that_answers_with_errors_is_asked_again(world: World) -> None:
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible()
    failing = asyncio.Event()

    async def fail(route: Route) -> None:
        if failing.is_set():
            await route.continue_()
        else:
            await route.fulfill(status=500, body="it broke")

    await page.route(re.compile(r"/timeline"), fail)
    await send(page, "during the trouble")
    await expect(page.get_by_text("Trying again.")).to_be_visible()
    await expect(page.get_by_text("ok begin")).to_be_visible()
    await expect(page.locator("article.user", has_text="during the trouble")).to_be_visible()
    failing.set()
    await expect(page.get_by_text("ok during the trouble")).to_be_visible(timeout=30_000)
    await expect(page.get_by_text("Trying again.")).to_have_count(0)


async def test_a_full_storage_is_said_and_sending_goes_on(world: World) -> None:
    page = await world.page(script=STORAGE)
    await page.fill("#composer", "half a thought")
    await expect(page.get_by_role("alert")).to_contain_text("storage is full")
    await page.press("#composer", "Enter")
    await expect(page.get_by_text("ok half a thought")).to_be_visible()


async def test_a_device_clock_five_hours_off_expires_no_question(world: World) -> None:
    page = await world.page(script=CLOCK)
    await send(page, "please ask me")
    card = page.locator(".card")
    await expect(card).to_contain_text(re.compile(r"\d:\d\d left"))
    await expect(card).not_to_contain_text("5:0")
    await page.get_by_role("button", name="Approve once").click()
    await expect(page.get_by_text("done asking")).to_be_visible()


async def test_a_full_queue_gives_the_words_back(world: World) -> None:
    page = await world.page()
    await send(page, "slow one")
    await expect(page.locator(".row.live")).to_be_visible()
    conversation_id = (await page.evaluate("location.hash")).lstrip("#")
    await page.evaluate(
        """async (id) => {
          for (let n = 0; n < 32; n++) {
            await fetch(`/v1/conversations/${id}/turns`, {
              method: "POST",
              headers: { "content-type": "application/json", "idempotency-key": `q-${n}` },
              body: JSON.stringify({ text: `waits ${n}` }),
            });
          }
        }""",
        conversation_id,
    )
    await expect(page.locator(".waits")).to_have_text("32 waiting")
    await send(page, "one too many")
    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(page.locator("#composer")).to_have_value("one too many")
