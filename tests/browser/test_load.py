"""What a browser is given before a conversation can be read and written: at most 60 kB, packed."""

from __future__ import annotations

import re

import httpx2
import pytest

from tests.browser.conftest import World

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

FIRST_LOAD_BYTES_MAX = 60_000


async def test_the_first_load_is_small_and_the_rest_comes_when_it_is_opened(world: World) -> None:
    page = await world.page()
    names: list[str] = await page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    wanted = [world.url + "/", *[name for name in names if re.search(r"\.(js|css)$", name)]]
    assert len(wanted) >= 3
    sizes = {}
    async with httpx2.AsyncClient(headers={"accept-encoding": "gzip"}) as client:
        for url in wanted:
            async with client.stream("GET", url) as answer:
                assert answer.headers["content-encoding"] == "gzip"
                sizes[url] = sum([len(piece) async for piece in answer.aiter_raw()])
    assert sum(sizes.values()) <= FIRST_LOAD_BYTES_MAX, sizes
    lazy = ("panel", "settings", "terminal", "voice", "queue", "change", "cards")
    assert not [url for url in wanted if any(f"/{name}-" in url for name in lazy)]
