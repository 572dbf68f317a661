"""The page beside a thread of @assistant-ui/react, on one history in one browser. Prints JSON.

    .venv/bin/python -m tests.browser.bench_beside [MESSAGES]

The other side is built by Vite from `beside/` (its npm packages are pinned there; nothing of it is shipped) into
`.testdata/`, and served as files of this machine with the history as one of them: it needs no server to answer, ours
does. Both are asked the same: first paint, the first message readable, frames while scrolling up at 10,000 px/s, and
the heap after a collection. It mounts every message, as its own thread component does; ours those in view.
"""

from __future__ import annotations

import asyncio
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from tests.browser.bench import SCROLL, SCROLL_SECONDS, WATCH, at, heap_bytes, opened
from tests.browser.conftest import ARGUMENTS
from tests.browser.seeding import rows, seed
from tests.needs import NEEDS
from turnkeeper.conversation.parts import Text
from turnkeeper.testing.server_process import Api, ServerProcess

HERE = Path(__file__).parent / "beside"
ROOT = Path(__file__).parents[2]
BUILT = ROOT / ".testdata" / "beside"
READABLE_MS = 300_000


class Silent(http.server.SimpleHTTPRequestHandler):
    """Files, without a line for each."""

    def log_message(self, *args: Any) -> None:
        pass


def build() -> Path:
    """Install and build the other side, once; the folder that is served."""
    BUILT.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "index.html", "main.jsx"):
        shutil.copy(HERE / name, BUILT / name)
    environment = {**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    for command in (
        ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"],
        ["npx", "vite", "build", "--base", "./", "--target", "es2022", "--logLevel", "error"],
    ):
        subprocess.run(command, cwd=BUILT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return BUILT / "dist"


async def asked(page: Page) -> dict[str, Any]:
    """What is measured of a page whose first message can be read."""
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
    found = {
        "first_contentful_paint_ms": await page.evaluate(paint),
        "history_readable_ms": await page.evaluate("window.readableAt"),
    }
    scrolled = await page.evaluate(SCROLL, SCROLL_SECONDS)
    found["frame_p50_ms"] = at(0.5, scrolled["frames"])
    found["frame_p95_ms"] = at(0.95, scrolled["frames"])
    found["rows_mounted"] = scrolled["rows"]
    found["heap_bytes"] = await heap_bytes(page)
    return found


async def theirs(browser: Browser, url: str) -> dict[str, Any]:
    """The other side, in a fresh profile."""
    context = await browser.new_context(viewport={"width": 1200, "height": 800})
    context.set_default_timeout(READABLE_MS)
    await context.add_init_script(WATCH)
    page = await context.new_page()
    await page.goto(url)
    await page.wait_for_function("() => window.readableAt", timeout=READABLE_MS)
    return await asked(page)


async def measure(messages: int) -> dict[str, Any]:
    """Both."""
    dist = build()
    history = [
        {
            "id": one.message_id,
            "role": str(one.role),
            "text": "".join(p.text for p in one.parts if type(p) is Text),
        }
        for one in rows(messages)
    ]
    (dist / "history.json").write_text(json.dumps(history))
    files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(dist)))
    threading.Thread(target=files.serve_forever, daemon=True).start()
    chromium = next(need for need in NEEDS if need.mark == "browser").found()
    found: dict[str, Any] = {"messages": messages, "load": os.getloadavg()}
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder) / "data")
        await server.start()
        api = Api(server.url, server.token())
        conversation_id = await api.create()
        await server.stop()
        await seed(server.data, conversation_id, messages)
        await server.start()
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            page = await opened(browser, server, conversation_id)
            found["turnkeeper"] = await asked(page)
            await page.context.close()
            found["assistant-ui"] = await theirs(
                browser, f"http://127.0.0.1:{files.server_address[1]}/index.html"
            )
            await browser.close()
        await api.close()
        await server.stop()
    files.shutdown()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)), indent=2))
