"""How fast the page is, measured in a real Chromium against a server process. Prints JSON.

    .venv/bin/python -m tests.browser.bench [MESSAGES] [ANSWERS]

History: MESSAGES (10,000) messages without turns, questions and answers of about 500 characters with code. Times are
from the start of the navigation in a fresh browser profile; the server has been started before. Scrolling is up
through the history at 10,000 px/s, older pages coming in on the way. Memory is the page's heap after a collection,
while ANSWERS (1,000) turns are answered one after another in a conversation that is followed.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from tests.browser.conftest import ARGUMENTS
from tests.browser.seeding import seed
from tests.needs import NEEDS
from turnkeeper.testing.server_process import Api, ServerProcess

LOADS = 5
SCROLL_SECONDS = 4

WATCH = """(() => {
  const look = () => {
    const row = document.querySelector(".timeline article");
    if (row && row.getBoundingClientRect().height > 0) window.readableAt = performance.now();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""

SCROLL = """async (seconds) => {
  const list = document.querySelector(".list");
  const frames = [];
  let last = await new Promise(requestAnimationFrame);
  const end = last + seconds * 1000;
  while (last < end) {
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    list.scrollTop -= (now - last) * 10;
    last = now;
  }
  return { frames, rows: document.querySelectorAll(".timeline article").length };
}"""


def at(share: float, values: list[float]) -> float:
    """The value below which that share of them lies."""
    return round(sorted(values)[min(len(values) - 1, int(len(values) * share))], 1)


async def opened(browser: Browser, server: ServerProcess, conversation_id: str) -> Page:
    """A fresh profile that opens a conversation."""
    context = await browser.new_context(viewport={"width": 1200, "height": 800})
    cookie = {
        "name": f"turnkeeper_{server.port}",
        "value": server.token(),
        "url": server.url,
        "httpOnly": True,
    }
    await context.add_cookies([cookie])  # type: ignore[list-item]
    await context.add_init_script(WATCH)
    page = await context.new_page()
    await page.goto(f"{server.url}/#{conversation_id}")
    await page.wait_for_function("() => window.readableAt")
    return page


async def heap_bytes(page: Page) -> int:
    """The page's heap after a collection."""
    protocol = await page.context.new_cdp_session(page)
    await protocol.send("HeapProfiler.collectGarbage")
    return int((await protocol.send("Runtime.getHeapUsage"))["usedSize"])


async def measure(messages: int, answers: int) -> dict[str, Any]:
    """All numbers."""
    chromium = next(need for need in NEEDS if need.mark == "browser").found()
    found: dict[str, Any] = {"messages": messages, "answers": answers}
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder) / "data")
        await server.start()
        api = Api(server.url, server.token())
        long, short = await api.create(), await api.create()
        await server.stop()
        await seed(server.data, long, messages)
        await server.start()
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            paints, readable = [], []
            for _ in range(LOADS):
                page = await opened(browser, server, long)
                paints.append(
                    await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
                )
                readable.append(await page.evaluate("window.readableAt"))
                await page.context.close()
            found["first_contentful_paint_ms"] = round(statistics.median(paints))
            found["history_readable_ms"] = round(statistics.median(readable))
            page = await opened(browser, server, long)
            scrolled = await page.evaluate(SCROLL, SCROLL_SECONDS)
            found["frame_p50_ms"] = at(0.5, scrolled["frames"])
            found["frame_p95_ms"] = at(0.95, scrolled["frames"])
            found["rows_mounted"] = scrolled["rows"]
            await page.context.close()
            await api.submit(short, "begin", "begin")
            await api.drained(short)
            page = await opened(browser, server, short)
            heaps = {}
            for number in range(1, answers + 1):
                await api.submit(short, f"question {number}", f"k-{number}")
                await api.drained(short)
                if number in (answers // 10, answers // 2, answers):
                    await page.get_by_text(f"ok question {number}", exact=True).wait_for()
                    heaps[number] = await heap_bytes(page)
            found["heap_bytes_after_answers"] = heaps
            await browser.close()
        await api.close()
        await server.stop()
    return found


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    print(json.dumps(asyncio.run(measure(*(given or [10_000, 1_000]))), indent=2))
