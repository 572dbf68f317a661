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

CLICKED = """async (told) => {
  // Only a person's own click may bring a window to the front: here it stays where it is.
  WindowClient.prototype.focus = async function () { return this; };
  const waits = [];
  const tell = (event) => {
    event.waitUntil = (work) => waits.push(work);
    self.dispatchEvent(event);
    return Promise.all(waits);
  };
  const all = clients.matchAll.bind(clients);
  clients.matchAll = async () => [];
  await tell(Object.assign(new Event("push"), { data: { json: () => JSON.parse(told) } }));
  clients.matchAll = all;
  const shown = (await registration.getNotifications()).filter((one) => one.data.address.includes(JSON.parse(told).conversation_id));
  for (const notification of shown) await tell(Object.assign(new Event("notificationclick"), { notification }));
  return shown.map((one) => one.title);
}"""
"""In the browser's own worker: a push that comes while nobody looks, and a person's click on what it shows."""


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

        # A question is told as one, and a click on it brings the open page to its conversation.
        asks = (await world.keeper.create_conversation(OPERATOR, "demo")).conversation_id
        await world.keeper.submit(OPERATOR, asks, key="k", parts=[Text("please ask me")])
        await until(lambda: service.came[1:], "the second push")
        needs = service.opened(service.came[1][1])
        assert needs == {"what": "needs", "conversation_id": asks}
        (worker,) = page.context.service_workers
        assert await worker.evaluate(CLICKED, json.dumps(needs)) == ["A turn needs you"]
        await looking.wait_for_url(f"{world.url}/#{asks}")
        await expect(looking.get_by_role("button", name="Approve once")).to_be_visible()
