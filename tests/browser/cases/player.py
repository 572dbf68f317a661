"""Plays a public delivery case through a real Chromium, against a real server process.

It is the player of the server's cases (`tests/acceptance/delivery/player.py`) with a browser beside it: the verbs
of the cases' README that concern a page are done to a page, by keys and clicks. What each page shows is written
down several times a second of the case, by a script in the page, so that an expectation "at every second" can be
judged; `expectations.py` does that.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, CDPSession, Error, Page, Request, Response, Route

from tests.acceptance.delivery.player import A_USER, Play, Posted, own
from turnkeeper.testing.until import Pace, until

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)

LOOK = """() => {
  // What was done on the way is folded, and drawn when it is opened.
  for (const folded of document.querySelectorAll(".row.progress .steps:not([open])")) folded.open = true;
  const text = (node) => (node ? node.innerText.trim() : "");
  const rows = [...document.querySelectorAll(".timeline article")].map((row) => ({
    kind: row.dataset.kind, turn: row.dataset.turn ?? null, state: row.dataset.state ?? null, key: row.dataset.key,
    text: text(row.querySelector(".markdown, .bubble, .plain") ?? row),
    steps: [...row.querySelectorAll(".step:not(.tool) > p")].map((step) => step.textContent.trim()),
    pictures: row.querySelectorAll(".files li").length,
    fate: text(row.querySelector(".mark")),
    buttons: [...row.querySelectorAll("button")].map((button) => button.innerText),
    top: row.getBoundingClientRect().top,
  })).sort((a, b) => a.top - b.top);
  const composer = document.getElementById("composer");
  return {
    rows,
    composer: composer ? composer.value : null,
    files: [...document.querySelectorAll(".composer .chip")].map(text),
    waits: text(document.querySelector(".waits")),
    banner: text(document.querySelector(".banners")),
    spinner: document.querySelectorAll(".working").length,
    conversation: location.hash.slice(1),
    seq: Number(document.querySelector(".timeline")?.dataset.seq ?? -1),
  };
}"""

STREAMS = """(() => {
  const Real = window.EventSource;
  window.streams = [];
  window.EventSource = class extends Real {
    constructor(...given) { super(...given); window.streams.push(this); }
  };
  window.cutStreams = () => window.streams.splice(0).forEach((one) => {
    one.close();
    one.onerror?.(new Event("error"));
  });
})()"""
"""Closes a page's streams as a server that ends them does: the page is told, and has to come back by itself."""


class Client:
    """One page of one case, and everything that it showed and asked."""

    def __init__(self, context: BrowserContext, page: Page) -> None:
        self.context = context
        self.page = page
        self.looks: list[tuple[float, dict[str, Any]]] = []
        self.requests: list[tuple[float, str, str]] = []
        self.complaints: list[str] = []
        self.times: dict[str, float] = {}
        self.closed = False


class PagePlay(Play):
    """One run of one case, with pages."""

    def __init__(self, case: dict[str, Any], folder: Path, browser: Browser, scale: float) -> None:
        super().__init__(case, folder, scale)
        self.scale = scale
        self.browser = browser
        self.clients: dict[str, Client] = {}
        self.slack_s = 3.0
        """Real seconds that a busy machine may add to a time that a person would feel."""
        self._contexts: dict[str, BrowserContext] = {}
        self._lookers: list[asyncio.Task[None]] = []
        self._labels: dict[str, str] = {}
        self._begun = False

    # -- pages

    async def _context(self, name: str, user: str) -> BrowserContext:
        if name not in self._contexts:
            context = await self.browser.new_context(viewport={"width": 1100, "height": 1600})
            token = await asyncio.to_thread(self.server.token, user)
            cookie = f"turnkeeper_{self.server.port}"
            await context.add_cookies(
                [{"name": cookie, "value": token, "url": self.server.url, "httpOnly": True}]
            )
            await context.add_init_script(STREAMS)
            self._contexts[name] = context
        return self._contexts[name]

    async def conv(self, name: str, user: str = A_USER) -> str:
        """As the server's; a case that only says what its page shows, or edits in it, has one from the start."""
        made = await super().conv(name, user)
        opens = any("client" in step and step["do"] != "edit_begin" for step in self.steps)
        edits = any(step["do"] == "edit_begin" for step in self.steps)
        if name == "c1" and not self._begun and (edits or not opens):
            self._begun = True
            await self.do_open({"client": "A", "conv": "c1"})
        return made

    async def client(self, step: dict[str, Any], conv: str = "c1") -> Client:
        """The page that a step names; opened at its first mention."""
        name = step.get("client", "A")
        if name not in self.clients:
            await self.do_open({"client": name, "conv": step.get("conv", conv), "at_s": step["at_s"]})
        return self.clients[name]

    async def do_open(self, step: dict[str, Any]) -> None:
        user = step.get("user", A_USER)
        profile = "one profile" if "browser" in step else step["client"]
        conversation_id = await self.conv(own(step["conv"], user), user)
        context = await self._context(profile, user)
        began = self.pace.now
        page = await context.new_page()
        client = self.clients[step["client"]] = Client(context, page)
        page.on("request", lambda request: self._asked(client, request))
        page.on("response", lambda response: asyncio.ensure_future(self._answered(response)))
        page.on("pageerror", lambda error: client.complaints.append(str(error)))
        page.on(
            "console",
            lambda said: (
                client.complaints.append(said.text)
                if said.type == "error" and "Failed to load resource" not in said.text
                else None
            ),
        )
        await page.goto(f"{self.server.url}/#{conversation_id}")
        await page.wait_for_selector("#composer")
        await page.wait_for_selector(".timeline .row, .timeline.blank:not(:has(.working))")
        client.times["open"] = self.pace.now - began
        self._lookers.append(asyncio.ensure_future(self._keep_looking(client)))

    async def _keep_looking(self, client: Client) -> None:
        while not client.closed:
            await self.look(client)
            await self.pace.at(self.pace.now + max(0.5, 0.05 / self.scale))

    async def look(self, client: Client) -> dict[str, Any] | None:
        """Write down what a page shows now. None while it is being loaded."""
        with contextlib.suppress(Error):
            began = self.pace.now
            seen: dict[str, Any] = await client.page.evaluate(LOOK)
            client.looks.append((began, seen))
            return seen
        return None

    def _asked(self, client: Client, request: Request) -> None:
        client.requests.append((self.pace.now, request.method, request.url))
        if request.method != "POST" or not request.url.endswith("/turns"):
            return
        # A message that a page sends is one of the case's: its label is that of the click.
        body = request.post_data_json or {}
        text = "".join(part.get("text", "") for part in body.get("parts", []))
        label = self._labels.get(text, text)
        key = request.headers["idempotency-key"]
        names = {conversation_id: name for name, conversation_id in self.convs.items()}
        conv = names.get(request.url.split("/")[-2], "?")
        if label not in self.posted:
            self.posted[label] = Posted(label, conv, text, key)

    async def _answered(self, response: Response) -> None:
        request = response.request
        if request.method != "POST" or not request.url.endswith("/turns"):
            return
        with contextlib.suppress(Error, ValueError):
            made = await response.json()
            for post in self.posted.values():
                if post.key == request.headers["idempotency-key"]:
                    post.answers.append(Answer(response.status, made))  # type: ignore[arg-type]
                    post.answered_at.append(self.pace.now)

    async def do_reload(self, step: dict[str, Any]) -> None:
        if step["client"] not in self.clients:
            await self.client(step)
            return
        client = self.clients[step["client"]]
        self.results["before the last reload look"] = await self.look(client)
        await client.page.reload()
        await client.page.wait_for_selector(".timeline .row, .timeline.blank:not(:has(.working))")

    async def do_close(self, step: dict[str, Any]) -> None:
        client = self.clients[step["client"]]
        client.closed = True
        await client.page.close()
        if all(each.closed for each in self.clients.values()):
            await super().do_close(step)

    async def do_switch_conv(self, step: dict[str, Any]) -> None:
        client = await self.client(step)
        conversation_id = await self.conv(step["conv"])
        page = client.page
        if "load_s" in step:

            async def slowly(route: Route) -> None:
                await self.pace.at(self.pace.now + step["load_s"])
                with contextlib.suppress(Error):
                    await route.continue_()

            await page.route(f"**/v1/conversations/{conversation_id}/timeline*", slowly)
        row = page.locator(f"[data-conversation='{conversation_id}']")
        if not await row.count():
            # Made a moment ago by another client: the list has not heard of it yet.
            await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await row.click()

    # -- writing and sending

    async def do_click(self, step: dict[str, Any]) -> None:
        client = await self.client(step)
        page = client.page
        if "text" not in step:
            await page.evaluate("document.querySelector('.composer button[type=submit]').click()")
            return
        if "msg" in step:
            self._labels[step["text"]] = step["msg"]
            if any(post.text == step["text"] for post in self.posted.values()):
                # The same words again: a message of its own, with a label of its own.
                self.posted[step["msg"]] = Posted(step["msg"], "c1", step["text"], "")
                self._take_next_key(client, step)
        for name in step.get("files", ()):
            await page.set_input_files(
                ".composer input[type=file]", [{"name": name, "mimeType": "image/png", "buffer": PNG}]
            )
            await page.wait_for_selector(f".chip:has-text('{name}')")
        await page.fill("#composer", step["text"])
        await page.click(".composer button[type=submit]")
        client.times.setdefault("sent", self.pace.now)
        await self.look(client)

    def _take_next_key(self, client: Client, step: dict[str, Any]) -> None:
        def take(request: Request) -> None:
            if request.method == "POST" and request.url.endswith("/turns"):
                self.posted[step["msg"]].key = request.headers["idempotency-key"]
                client.page.remove_listener("request", take)

        client.page.on("request", take)

    async def do_type(self, step: dict[str, Any]) -> None:
        """Type, and measure from each key to the frame after it."""
        client = await self.client(step)
        await client.page.focus("#composer")
        await client.page.evaluate(
            """() => {
              window.keyTimes = [];
              document.getElementById("composer").addEventListener("keydown", () => {
                const at = performance.now();
                requestAnimationFrame(() => setTimeout(() => window.keyTimes.push(performance.now() - at)));
              });
            }"""
        )
        await client.page.keyboard.type(step["text"])
        times = await client.page.evaluate("window.keyTimes")
        self.results["key times"] = sorted(times)

    async def do_press(self, step: dict[str, Any]) -> None:
        client = await self.client(step)
        client.times.setdefault("pressed", len(self._posts(client)))
        await client.page.press("#composer", step["key"])

    async def do_ime(self, step: dict[str, Any]) -> None:
        """A composition as an input method makes it: the candidate is chosen with Enter, then it is in the text."""
        client = await self.client(step)
        await client.page.focus("#composer")
        protocol: CDPSession = await client.context.new_cdp_session(client.page)
        text = step["compose"]
        where = {"selectionStart": len(text), "selectionEnd": len(text)}
        await protocol.send("Input.imeSetComposition", {"text": text, **where})
        enter = {"key": step["key"], "code": step["key"], "windowsVirtualKeyCode": 229}
        await protocol.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **enter})
        await protocol.send("Input.insertText", {"text": text})
        await protocol.send("Input.dispatchKeyEvent", {"type": "keyUp", **enter})
        self._labels[text] = "m1"
        client.times["composed"] = len(self._posts(client))

    def _posts(self, client: Client) -> list[str]:
        return [url for _, method, url in client.requests if method == "POST" and url.endswith("/turns")]

    async def do_post(self, step: dict[str, Any]) -> None:
        await super().do_post(step)
        if any(one["do"] == "edit_begin" and one["msg"] == step["msg"] for one in self.steps):
            # The editor is opened while the message surely waits, however slow the machine.
            client = await self.client({"client": "A", "conv": step["conv"], "at_s": 0})
            row = client.page.locator(f"article[data-turn='{self.posted[step['msg']].turn_id}']")
            await row.get_by_role("button", name="Edit").click()
            await client.page.locator(".change textarea").wait_for()

    async def do_edit_begin(self, step: dict[str, Any]) -> None:
        """Done right after the post."""

    async def do_edit_submit(self, step: dict[str, Any]) -> None:
        """A person who pressed Save just as it was taken: the page has not heard of that yet."""
        client = await self.client(step)
        turn_id = str(self.posted[step["msg"]].turn_id)
        answer: list[Response] = []
        client.page.on("response", lambda each: answer.append(each) if each.url.endswith("/edit") else None)

        async def held(route: Route) -> None:
            await self._started(turn_id)
            await route.continue_()

        await client.page.route("**/edit", held)
        await client.page.locator(".change textarea").fill(step["text"])
        await client.page.get_by_role("button", name="Save").click()
        await until(lambda: bool(answer), "the answer to the edit", seconds=60)
        self.results["edit"] = Answer(answer[0].status, await answer[0].json())
        self.results["edited"] = {"state": (await answer[0].json()).get("state")}

    # -- the net between a page and the server

    async def do_proxy(self, step: dict[str, Any]) -> None:
        client = await self.client(step)
        failed: list[int] = []

        async def between(route: Route) -> None:
            if "fail_next_post" in step and not failed:
                failed.append(1)
                await route.fulfill(status=step["fail_next_post"], body="it broke")
                return
            if "delay_response_of" in step:
                with contextlib.suppress(Error):
                    answer = await route.fetch()
                    await self.pace.at(self.pace.now + step["delay_s"])
                    await route.fulfill(response=answer)
                return
            await route.continue_()

        await client.page.route("**/turns", between)

    async def do_offline(self, step: dict[str, Any]) -> None:
        client = await self.client(step)
        await client.context.set_offline(True)
        await self.pace.at(self.pace.now + step["for_s"])
        await client.context.set_offline(False)

    async def do_force_resync(self, step: dict[str, Any]) -> None:
        client = await self.client(step)
        await client.page.evaluate(
            "window.streams.at(-1).dispatchEvent(Object.assign(new MessageEvent('resync', "
            "{data: JSON.stringify({reason: 'too_slow', as_of_seq: 0, epoch: ''})})))"
        )

    async def do_sse_cut(self, step: dict[str, Any]) -> None:
        client = await self.client(step)
        client.times["cut"] = self.pace.now
        refuse_s = step.get("refuse_for_s", 0)
        ends = self.pace.now + refuse_s

        async def refuse(route: Route) -> None:
            if self.pace.now < ends:
                await route.abort()
            else:
                await route.continue_()

        if refuse_s:
            await client.page.route("**/events?*", refuse)
        await client.page.evaluate("window.cutStreams()")

    async def do_server_close_stream(self, step: dict[str, Any]) -> None:
        await self.do_sse_cut(step)

    async def do_sse_open(self, step: dict[str, Any]) -> None:
        if step["client"] in self.clients:
            return  # a page comes back by itself
        await super().do_sse_open(step)

    async def do_ws_duplicate_listener(self, step: dict[str, Any]) -> None:
        """Every event reaches the page twice."""
        client = await self.client(step)
        await until(lambda: client.page.evaluate("window.streams.length"), "the page's stream")
        await client.page.evaluate(
            """() => {
              const stream = window.streams.at(-1);
              stream.addEventListener("message", (event) => stream.onmessage?.(event));
            }"""
        )

    async def do_clock(self, step: dict[str, Any]) -> None:
        if not str(step.get("who", "")).startswith("client"):
            return
        client = await self.client({"client": step["who"].split()[1], **step})
        offset_ms = step["offset_s"] * 1000
        await client.page.evaluate(
            """(offset) => {
              window.realDate ??= Date;
              const Real = window.realDate;
              window.Date = class extends Real {
                constructor(...given) { given.length ? super(...given) : super(Real.now() + offset); }
                static now() { return Real.now() + offset; }
              };
            }""",
            offset_ms,
        )

    async def do_emit(self, step: dict[str, Any]) -> None:
        """Rows: each a short turn."""
        api = await self.api()
        for number in range(step["events"]):
            answer = await api.submit(
                self.convs["c1"], f"row {step['at_s']} {number}", f"e-{step['at_s']}-{number}"
            )
            answer.raise_for_status()
            await api.drained(self.convs["c1"])

    # -- a history of any length

    async def do_seed_history(self, step: dict[str, Any]) -> None:
        from tests.browser.seeding import seed

        self.watchers[step["conv"]].closed = True
        self.server.kill()
        await seed(self.server.data, self.convs[step["conv"]], step["messages"])
        await self.server.start()

    async def do_scroll(self, step: dict[str, Any]) -> None:
        client = await self.client(step)
        before = len([1 for _, _, url in client.requests if "before=" in url])
        self.results["scroll"] = await client.page.evaluate(
            """async () => {
              const list = document.querySelector(".list");
              const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
              const rows = () => [...document.querySelectorAll(".timeline article")];
              list.dispatchEvent(new WheelEvent("wheel", { deltaY: -10, bubbles: true }));
              await frame();
              list.scrollTop = 300;
              const middle = list.getBoundingClientRect().top + list.clientHeight / 2;
              let under;
              while (!under) {
                await frame();
                under = rows().find((row) => row.getBoundingClientRect().bottom > middle);
              }
              const key = under.dataset.key, top = under.getBoundingClientRect().top;
              let swing = 0, blank = 0;
              const end = performance.now() + 1500;
              while (performance.now() < end) {
                await frame();
                const now = rows().find((row) => row.dataset.key === key);
                if (!now) { swing = 1e9; continue; }
                swing = Math.max(swing, Math.abs(now.getBoundingClientRect().top - top));
                if (!rows().some((row) => row.getBoundingClientRect().bottom > middle)) blank += 1;
              }
              return { swing, blank };
            }"""
        )
        after = [url for _, _, url in client.requests if "before=" in url]
        self.results["older pages"] = len(after) - before

    async def do_compact(self, step: dict[str, Any]) -> None:
        """Feeds begin with a summary from here on; written as the agent writes it."""
        from tests.browser.seeding import compact

        self.server.kill()
        await compact(self.server.data, self.convs[step["conv"]])
        await self.server.start()

    # -- the end

    async def _settle(self) -> None:
        await super()._settle()
        for client in self.clients.values():
            if client.closed:
                continue

            async def calm(client: Client = client) -> bool:
                """Its rows are those of the newest commit, and nothing of it is on its way."""
                seen = await self.look(client)
                if not seen or seen["spinner"]:
                    return False
                names = {conversation_id: name for name, conversation_id in self.convs.items()}
                api = await self.api("u2" if names[seen["conversation"]].endswith("u2") else A_USER)
                newest = (await api.snapshot(seen["conversation"]))["as_of_seq"]
                under_way = [
                    r for r in seen["rows"] if r["kind"] == "sending" and "Resend" not in r["buttons"]
                ]
                if not seen["rows"]:
                    # An empty page has no number: it is right only where nothing has been said.
                    timeline = await api.get(f"/v1/conversations/{seen['conversation']}/timeline")
                    return not under_way and not timeline["rows"]
                return not under_way and seen["seq"] == newest

            await until(calm, "a page that shows the end", seconds=30)

    async def _collect(self) -> None:
        if not any(step["do"] == "seed_history" for step in self.steps):
            # A seeded journal is longer than a stream gives out; what it holds is known.
            await super()._collect()
        self._name_turns()
        wanted = " ".join(self.case["expect"])
        client = self.clients.get("A")
        if client is None or client.closed:
            return
        page = client.page
        if "after reload == ui" in wanted:
            before = await self._texts(client)
            await page.reload()
            await page.wait_for_selector(".timeline .row")
            self.results["before the last reload"] = before

            async def same() -> bool:
                self.results["after the last reload"] = await self._texts(client)
                return bool(self.results["after the last reload"] == before)

            await until(same, "the same rows after a reload")
        if "none twice" in wanted or "still reaches" in wanted:
            rows = await self._scroll_through(client)
            self.results["all rows"] = [key for key, _, _ in rows]
            self.results["all texts"] = [text for _, _, text in rows]
            self.results["all user texts"] = [text for _, kind, text in rows if kind == "user"]
        if "model input" in wanted and "compact" in wanted:
            api = await self.api()
            self.results["feed"] = await api.get(f"/v1/conversations/{self.convs['c1']}/feed")
        if "first page of the API" in wanted:
            answer = await (await self.api()).client.get(f"/v1/conversations/{self.convs['c1']}/timeline")
            self.results["first page bytes"] = len(answer.content)
        if "more switches" in wanted:
            looks = self.results["after switches"] = [await self.look(client)]
            for _ in range(5):
                for name in ("c2", "c1"):
                    await self.do_switch_conv({"client": "A", "conv": name, "at_s": 0})
                    await page.wait_for_function("id => location.hash.slice(1) === id", arg=self.convs[name])
                await page.wait_for_selector(".row.answer")
                looks.append(await self.look(client))
        if "another composer" in wanted:
            await self.conv("c2")
            await self.do_switch_conv({"client": "A", "conv": "c2", "at_s": 0})
            await page.wait_for_function("id => location.hash.slice(1) === id", arg=self.convs["c2"])
            self.results["other composer"] = await page.input_value("#composer")
            await self.do_switch_conv({"client": "A", "conv": "c1", "at_s": 0})
            await page.wait_for_function("id => location.hash.slice(1) === id", arg=self.convs["c1"])
            await self.look(client)
        if "next plain send" in wanted:
            seen = await self.look(client)
            self.results["composer after the edit"] = seen and seen["composer"]
            await page.fill("#composer", "a plain one")
            await page.press("#composer", "Enter")
            await page.wait_for_selector("text=ok a plain one")
            self.results["sent after"] = True

    def _name_turns(self) -> None:
        """A page that was reloaded never read the answer to its post: the journal says which turn came of it."""
        for journal in self.results.get("journal", {}).values():
            turns = {
                event["body"]["key"]: event["body"]["turn_id"]
                for event in journal
                if event["kind"] == "Submitted"
            }
            for post in self.posted.values():
                post.stored_as = post.stored_as or turns.get(post.key)

    async def _texts(self, client: Client) -> list[str]:
        seen = await self.look(client)
        return [f"{row['kind']}: {row['text']}" for row in seen["rows"]] if seen else []

    async def _scroll_through(self, client: Client) -> list[tuple[str, str, str]]:
        """Every row of a conversation, from the newest up."""
        found: list[list[str]] = await client.page.evaluate(
            """async () => {
              const list = document.querySelector(".list");
              const seen = new Map();
              let still = 0;
              list.dispatchEvent(new WheelEvent("wheel", { deltaY: -10, bubbles: true }));
              while (still < 12) {
                const before = seen.size;
                for (const row of document.querySelectorAll(".timeline article")) {
                  seen.set(row.dataset.key, [row.dataset.key, row.dataset.kind, row.innerText]);
                }
                list.scrollTop = Math.max(0, list.scrollTop - list.clientHeight / 2);
                await new Promise((done) => setTimeout(done, 40));
                still = seen.size === before && list.scrollTop === 0 ? still + 1 : 0;
              }
              return [...seen.values()];
            }"""
        )
        return [(key, kind, text) for key, kind, text in found]

    async def close(self) -> None:
        for client in self.clients.values():
            client.closed = True
        for task in self._lookers:
            task.cancel()
        await asyncio.gather(*self._lookers, return_exceptions=True)
        for context in self._contexts.values():
            with contextlib.suppress(Error):
                await context.close()
        await super().close()


class Answer:
    """What the server's expectations read of an answer."""

    def __init__(self, status: int, made: Any) -> None:
        self.status_code = status
        self._made = made
        self.headers: dict[str, str] = {}

    def json(self) -> Any:
        return self._made


__all__ = ["Client", "Pace", "PagePlay"]
