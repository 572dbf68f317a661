"""Web push as a person has it: asked for in the settings, told by the worker, opened at its conversation.

A headless browser has no push service of its own: its subscription is made up here, with the address and keys of
one on loopback, and what the server sends there is opened and handed to the browser's real worker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.app.push_service import PushService
from tests.browser.conftest import opened
from turnkeeper.app import OPERATOR
from turnkeeper.conversation.parts import Text
from turnkeeper.testing.until import until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

SUBSCRIBES = """
const given = GIVEN;
let made = null;
PushManager.prototype.subscribe = async (how) => (made = {
  endpoint: given.endpoint, toJSON: () => given, key: how.applicationServerKey,
  unsubscribe: async () => { made = null; return true; },
});
PushManager.prototype.getSubscription = async () => made;
"""


async def test_a_closed_page_is_told_that_an_answer_is_done(tmp_path: Path) -> None:
    async with (
        PushService() as service,
        opened(tmp_path, private_addresses_allowed=("127.0.0.1",)) as world,
    ):
        script = SUBSCRIBES.replace("GIVEN", json.dumps(service.subscription()))
        page = await world.page(script=script, permissions=["notifications"])
        page.context.set_default_timeout(20_000)
        watched = await page.context.new_cdp_session(page)
        workers: list[Any] = []
        watched.on(
            "ServiceWorker.workerRegistrationUpdated", lambda told: workers.extend(told["registrations"])
        )
        await watched.send("ServiceWorker.enable")
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_role("button", name="Also when the page is closed").click()
        await expect(page.get_by_text("also while this page is closed")).to_be_visible()
        c = (await world.keeper.create_conversation(OPERATOR, "demo")).conversation_id
        await world.keeper.submit(OPERATOR, c, key="k", parts=[Text("hello")])
        await until(lambda: service.came, "the push")
        told = service.opened(service.came[0][1])
        assert told == {"what": "done", "conversation_id": c}
        own = next(one for one in workers if one["scopeURL"] == f"{world.url}/")
        deliver = {"origin": world.url, "registrationId": own["registrationId"], "data": json.dumps(told)}
        shown = """async () => (await (await navigator.serviceWorker.getRegistration("/")).getNotifications())
            .map((one) => [one.title, one.data.address])"""

        await watched.send("ServiceWorker.deliverPushMessage", deliver)
        assert await page.evaluate(shown) == [], "who looks at the page sees it there"
        await page.goto("about:blank")
        await watched.send("ServiceWorker.deliverPushMessage", deliver)
        looking = await page.context.new_page()
        await looking.goto(world.url)

        async def notified() -> Any:
            return await looking.evaluate(shown)

        assert await until(notified, "the notification") == [["An answer is done", f"/#{c}"]]
