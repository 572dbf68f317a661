"""Nothing that a person sends is lost, doubled, or put elsewhere, however slowly the server answers."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Route, expect

from tests.browser.conftest import World
from tests.browser.test_page import send, words

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


async def test_what_is_sent_while_the_conversation_is_being_made_goes_into_it(world: World) -> None:
    """The first message makes the conversation; the next ones do not wait for that and make no other."""
    page = await world.page()
    made = asyncio.Event()

    async def slowly(route: Route) -> None:
        if route.request.method == "POST":
            await made.wait()
        await route.continue_()

    await page.route("**/v1/conversations", slowly)
    for text in ("one", "two", "three"):
        await send(page, text)
    await expect(page.locator(".row.sending")).to_have_count(3)
    await page.fill("#composer", "half a thou")
    made.set()
    await expect(page.get_by_text("ok three")).to_be_visible()
    assert sorted(await words(page)) == sorted(["one", "ok one", "two", "ok two", "three", "ok three"])
    await expect(page.locator("#composer")).to_have_value("half a thou")
    await expect(page.locator(".sidebar li")).to_have_count(1)


async def test_a_first_message_waits_for_the_list_of_agents_and_goes_to_the_first(world: World) -> None:
    """Sent before the list has come, and after it could not be fetched at first."""
    asked: list[int] = []
    chosen: list[str] = []

    async def late(route: Route) -> None:
        asked.append(1)
        if len(asked) < 3:
            await route.fulfill(status=503)
        else:
            await route.fulfill(json={"agents": [{"name": "helper", "runner": "own"}], "next": None})

    async def made(route: Route) -> None:
        if route.request.method == "POST":
            chosen.append(route.request.post_data_json["agent"])  # type: ignore[index]
            await route.continue_(post_data=b'{"agent": "demo"}')
        else:
            await route.continue_()

    page = await world.page(routes={"**/v1/agents": late, "**/v1/conversations": made})
    await send(page, "early")
    await expect(page.get_by_text("ok early")).to_be_visible(timeout=60_000)
    assert chosen == ["helper"]
    assert len(asked) >= 3


async def test_an_answer_that_is_lost_on_its_way_makes_no_second_message(world: World) -> None:
    """The request was stored and its answer never came: the page asks again with the same key."""
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible()
    keys: list[str] = []

    async def lose_the_first(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) == 1:
            await route.fetch()
            await route.abort()
        else:
            await route.continue_()

    await page.route("**/turns", lose_the_first)
    await send(page, "once")
    await expect(page.get_by_text("ok once")).to_be_visible()
    await expect(page.locator("[data-kind=sending]")).to_have_count(0)
    assert len(set(keys)) == 1
    assert await words(page) == ["begin", "ok begin", "once", "ok once"]


async def test_what_a_closed_page_had_sent_is_asked_for_again_by_the_next(world: World) -> None:
    page = await world.page()
    await send(page, "begin")
    await expect(page.get_by_text("ok begin")).to_be_visible()
    hung = asyncio.Event()

    async def hang(route: Route) -> None:
        await hung.wait()

    await page.route("**/turns", hang)
    await send(page, "on its way")
    await expect(page.locator("[data-kind=sending]")).to_have_count(1)
    await page.unroute("**/turns")
    await page.reload()
    hung.set()
    await expect(page.get_by_text("ok on its way")).to_be_visible()
    assert await words(page) == ["begin", "ok begin", "on its way", "ok on its way"]


async def test_a_refused_message_goes_back_to_its_own_conversation_with_its_files(world: World) -> None:
    """Refused while another conversation is open: that one's composer stays empty."""
    page = await world.page()
    await send(page, "first")
    await expect(page.get_by_text("ok first")).to_be_visible()
    refuse_now = asyncio.Event()

    async def refuse(route: Route) -> None:
        await refuse_now.wait()
        await route.fulfill(status=429, json={"title": "Queue full", "detail": "The queue is full."})

    await page.route("**/turns", refuse)
    await page.set_input_files(
        "input[type=file]", [{"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"}]
    )
    await expect(page.locator(".chip")).to_contain_text("a.txt")
    await send(page, "precious words")
    await page.get_by_role("button", name="New", exact=True).click()
    await expect(page.get_by_text("Nothing has been said yet.")).to_be_visible()
    refuse_now.set()
    await expect(page.get_by_role("alert")).to_contain_text("The queue is full.")
    await expect(page.locator("#composer")).to_have_value("")
    await page.get_by_role("button", name="first", exact=True).click()
    await expect(page.locator("#composer")).to_have_value("precious words")
    await expect(page.locator(".chip")).to_contain_text("a.txt")
    await page.reload()
    await expect(page.locator("#composer")).to_have_value("precious words")
    await expect(page.locator(".chip")).to_contain_text("a.txt")


async def test_history_is_painted_before_live_state_answers_and_twice_changes_nothing(world: World) -> None:
    page = await world.page()
    await send(page, "one")
    await expect(page.get_by_text("ok one")).to_be_visible()
    live = asyncio.Event()
    conversation_id = (await page.evaluate("location.hash")).lstrip("#")

    async def late(route: Route) -> None:
        await live.wait()
        await route.continue_()

    await page.route(f"**/v1/conversations/{conversation_id}", late)
    await page.route("**/events?*", late)
    await page.reload()
    await expect(page.get_by_text("ok one")).to_be_visible()
    live.set()
    for _ in range(3):
        await page.locator(f"[data-conversation='{conversation_id}']").click()
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.get_by_text("✓✓ answered")).to_be_visible()
    assert await words(page) == ["one", "ok one"]


async def test_a_message_is_one_row_from_its_first_to_its_last_state(world: World) -> None:
    """The very same element: what has the focus there keeps it."""
    page = await world.page()
    await send(page, "slow one")
    await expect(page.locator(".row.live")).to_be_visible()
    await send(page, "follower")
    row = page.locator("article.user", has_text="follower")
    await expect(row).to_contain_text("waiting, number 1")
    key = await row.get_attribute("data-key")
    await page.get_by_role("button", name="Stop").click()
    await page.get_by_role("button", name="Go on").click()
    await expect(row).to_contain_text("answered")
    assert await row.get_attribute("data-key") == key
    stopped = page.locator("article.user", has_text="slow one")
    await expect(stopped).to_contain_text("stopped")
    # What had been written by then is kept, folded.
    await expect(page.locator(".row.aside")).to_have_count(1)
    await expect(page.locator(".row.aside details")).not_to_have_attribute("open", "")


async def test_a_failed_message_is_sent_again_whole(world: World) -> None:
    page = await world.page()
    await send(page, "fail now")
    await expect(page.locator(".mark.bad")).to_contain_text("credentials")
    await page.get_by_role("button", name="Resend", exact=True).click()
    await expect(page.locator("article.user")).to_have_count(2)
    assert [text for text in await words(page) if text == "fail now"] == ["fail now", "fail now"]


async def test_a_draft_is_gone_on_with_on_another_device(world: World) -> None:
    desk = await world.page()
    await send(desk, "begin")
    await expect(desk.get_by_text("ok begin")).to_be_visible()
    async with desk.expect_response("**/draft") as kept:
        await desk.fill("#composer", "begun at the desk")
    assert (await kept.value).ok
    phone = await world.page(is_mobile=True)
    await expect(phone.locator("#composer")).to_have_value("begun at the desk")
    async with phone.expect_response("**/draft") as kept:
        await send(phone, "begun at the desk, sent from the phone")
    await kept.value
    await expect(desk.get_by_text("ok begun at the desk, sent from the phone")).to_be_visible()
    await desk.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(desk.locator("#composer")).to_have_value("")
