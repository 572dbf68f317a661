"""A real server, a real Chromium, and a page that is signed in; the console must stay empty."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.async_api import Browser, Page, Route, async_playwright

from tests.needs import NEEDS
from turnkeeper.app import Keeper
from turnkeeper.port.runner import Runner
from turnkeeper.server.application import create_app
from turnkeeper.server.serving import bind
from turnkeeper.settings import Settings

STATIC = Path(__file__).parents[2] / "src" / "turnkeeper" / "server" / "static"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class World:
    """The server and its address; pages are opened with `page`."""

    def __init__(self, browser: Browser, url: str, token: str, folder: Path) -> None:
        self.browser = browser
        self.url = url
        self.token = token
        self.folder = folder
        self.complaints: list[str] = []
        self.keeper: Keeper
        """The server's own, for what no page can do."""

    async def page(
        self,
        *,
        script: str | None = None,
        routes: Mapping[str, Callable[[Route], Awaitable[None]]] | None = None,
        **more: Any,
    ) -> Page:
        """A signed-in page; what the console says is collected.

        `script` runs in it before all else; `routes` stand between it and the server from the start.
        """
        context = await self.browser.new_context(viewport={"width": 1200, "height": 800}, **more)
        await context.add_cookies([self.cookie()])
        if script is not None:
            await context.add_init_script(script)
        page = await context.new_page()
        for where, route in (routes or {}).items():
            await page.route(where, route)
        page.on(
            "console",
            lambda m: (
                self.complaints.append(m.text)
                if m.type == "error" and "Failed to load resource" not in m.text
                else None
            ),
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        await page.goto(self.url)
        await page.wait_for_selector("#composer")
        return page

    def cookie(self) -> Any:
        port = self.url.rsplit(":", 1)[1]
        return {"name": f"turnkeeper_{port}", "value": self.token, "url": self.url, "httpOnly": True}


SCRIPT = {
    "rules": [
        {"match": "slow", "rounds": [{"text": "slowly " * 400, "chars_per_s": 60}]},
        {"match": "fail", "rounds": [{"error": {"status": 401}}]},
        {
            "match": "tools",
            "rounds": [
                {"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]},
                {"text": "two **bold** words"},
            ],
        },
        {
            "match": "code",
            "rounds": [
                {
                    "text": "A turn is kept in **one commit**:\n\n```python\ndef keep(turn: Turn) -> Receipt:\n"
                    "    with store.commit() as batch:\n        batch.add(Submitted(turn))\n"
                    "    return Receipt(turn.id)\n```\n\n| state | shown as |\n| --- | --- |\n| queued | a clock |\n"
                    "| settled | two ticks |\n"
                }
            ],
        },
        {
            "match": "evil",
            "rounds": [
                {"text": "<script>window.hacked=1</script><img src=x onerror=window.hacked=1> <b>shown</b>"}
            ],
        },
        {
            "match": "ask",
            "rounds": [
                {"tool_calls": [{"name": "append_file", "arguments": {"path": "FX", "text": "x"}}]},
                {"text": "done asking"},
            ],
        },
    ]
}


AGENTS = """
[agents.demo]
script = "script.json"
tools = ["echo", "append_file"]
demo_tools = true
policies = { ask = ["append_file"] }
"""


@asynccontextmanager
async def opened(
    folder: Path,
    *,
    agents: str = AGENTS,
    script: dict[str, Any] = SCRIPT,
    arguments: Sequence[str] = (),
    runners: Mapping[str, Runner] | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """A server of this process on a free port, with a Chromium (and more `arguments` for it) beside it.

    `runners` are more agents, by name.
    """
    if not (STATIC / "index.html").is_file():
        pytest.fail("the page is not built: run `make web`")
    chromium = next(need for need in NEEDS if need.mark == "browser").found()
    text = json.dumps(script).replace("FX", str(folder / "effects"))
    (folder / "script.json").write_text(text)
    (folder / "agents.toml").write_text(agents)
    listening = bind("127.0.0.1", 0, remote=False)
    port = listening.getsockname()[1]
    given = {"queue_cap": 32, "sweep_seconds": 0.2, "stop_grace_seconds": 2.0, **settings}
    async with await Keeper.open(
        folder / "data", agents=folder / "agents.toml", settings=Settings(**given), runners=runners
    ) as keeper:
        token, _ = await keeper.create_token()
        config = uvicorn.Config(
            create_app(keeper, port=port), log_level="error", lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=[*ARGUMENTS, *arguments]
            )
            made = World(browser, f"http://127.0.0.1:{port}", token, folder)
            made.keeper = keeper
            try:
                yield made
            finally:
                await browser.close()
                server.should_exit = True
                await serving
    assert made.complaints == [], "the console stays empty"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """The demo agent behind a page, with the rules of `SCRIPT`."""
    async with opened(tmp_path) as made:
        yield made
