"""A spoken message: recorded in the browser, written down once, sent with its words, and sent again with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import opened
from turnkeeper.testing.model_server import ModelServer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

FAKE_MICROPHONE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
SPOKEN = {"rules": [{"match": "recording", "rounds": [{"text": "book a table"}, {"text": "paid twice"}]}]}


async def test_a_recording_shows_its_words_and_is_sent_again_with_them(tmp_path: Path) -> None:
    async with (
        ModelServer(SPOKEN) as server,
        opened(
            tmp_path,
            arguments=FAKE_MICROPHONE,
            transcriber_url=f"{server.url}/v1",
            private_addresses_allowed=("127.0.0.1",),
        ) as world,
    ):
        page = await world.page(permissions=["microphone"])
        await page.get_by_role("button", name="Record").click()
        await page.get_by_role("button", name="Stop recording").click()
        await expect(page.locator(".composer .files q")).to_have_text("book a table")
        await page.fill("#composer", "this will fail")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.locator("article.user .transcript")).to_have_text("book a table")
        await expect(page.locator("article.user audio")).to_have_count(1)
        await page.get_by_role("button", name="Resend").click()
        await expect(page.locator("article.user .transcript")).to_have_count(2)
        assert len(server.requests) == 1, "a recording is written down once"
