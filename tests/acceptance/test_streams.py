"""Event streams of a real server: no gap, no double, whatever breaks in between."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.conftest import ESSAY, make_server
from turnkeeper.testing.server_process import Api, Frame, ServerProcess
from turnkeeper.testing.until import until

pytestmark = pytest.mark.process


async def say(api: Api, conversation_id: str, text: str) -> str:
    answer = await api.submit(conversation_id, text, uuid.uuid4().hex)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["turn_id"])


async def spoken(api: Api, messages: int) -> str:
    """A conversation with so many turns, all ended."""
    conversation_id = await api.create()
    for number in range(messages):
        await api.settled(await say(api, conversation_id, f"m{number}"))
    return conversation_id


async def seqs(stream: AsyncIterator[Frame], last: int) -> list[int]:
    """The ids of a stream up to `last`."""
    seen: list[int] = []
    async with aclosing(stream) as frames:  # type: ignore[type-var]
        async for frame in frames:
            if frame.seq is not None:
                seen.append(frame.seq)
                if frame.seq >= last:
                    return seen
    return seen


async def keep(stream: AsyncIterator[Frame], frames: list[Frame]) -> None:
    """Read a stream to its end; what comes is seen in `frames` at once."""
    async for frame in stream:
        frames.append(frame)  # noqa: PERF401 - a comprehension would show nothing before the end


async def test_a_stream_resumes_after_every_id_without_gap_or_double(api: Api) -> None:
    """Delivery cases 045, 046 and 048: cut anywhere, come back with the last id."""
    conversation_id = await spoken(api, 3)
    last = (await api.snapshot(conversation_id))["as_of_seq"]
    assert last > 10
    assert await seqs(api.stream(conversation_id), last) == list(range(1, last + 1))
    for cut in range(last):
        wanted = list(range(cut + 1, last + 1))
        assert await seqs(api.stream(conversation_id, after=cut), last) == wanted
        assert await seqs(api.stream(conversation_id, last_event_id=str(cut)), last) == wanted


async def test_last_event_id_is_stronger_than_after(api: Api) -> None:
    """A browser that reconnects repeats the address it was first given."""
    conversation_id = await spoken(api, 1)
    last = (await api.snapshot(conversation_id))["as_of_seq"]
    stream = api.stream(conversation_id, after=0, last_event_id=str(last - 1))
    assert await seqs(stream, last) == [last]


async def test_a_stream_that_is_open_sees_what_happens_in_order_with_the_text_between(api: Api) -> None:
    conversation_id = await api.create()
    frames: list[Frame] = []

    async def watch() -> None:
        async for frame in api.stream(conversation_id, after=0):
            frames.append(frame)
            if frame.seq is not None and frame.data["kind"] == "TurnSettled":
                return

    watching = asyncio.create_task(watch())
    await until(lambda: frames, "the first event")
    await say(api, conversation_id, "essay please")
    await asyncio.wait_for(watching, 60)
    durable = [frame.seq for frame in frames if frame.seq is not None]
    assert durable == list(range(1, len(durable) + 1))
    deltas = [frame for frame in frames if frame.name == "delta"]
    assert all(frame.seq is None for frame in deltas)
    assert "".join(frame.data["text"] for frame in deltas if frame.data["kind"] == "text") == ESSAY


async def test_a_snapshot_in_mid_answer_and_the_live_text_after_it_are_the_whole_answer(api: Api) -> None:
    """Delivery case 031: a reload shows the answer from its first word."""
    conversation_id = await api.create()
    turn_id = await say(api, conversation_id, "essay please")

    async def begun() -> Any:
        snapshot = await api.snapshot(conversation_id)
        return snapshot if (snapshot["running"] or {}).get("text") else None

    for _ in range(3):
        snapshot = await until(begun, "some text")
        text = snapshot["running"]["text"]
        assert ESSAY.startswith(text)
        async with aclosing(api.stream(conversation_id, after=snapshot["as_of_seq"])) as frames:  # type: ignore[type-var]
            async for frame in frames:
                if frame.name == "delta" and frame.data["kind"] == "text":
                    offset, more = frame.data["offset"], frame.data["text"]
                    assert ESSAY[offset : offset + len(more)] == more
                    assert offset <= len(text) or offset + len(more) <= len(text)
                    text = text[:offset] + more if offset + len(more) > len(text) else text
                    if len(text) > len(snapshot["running"]["text"]) + 200:
                        break
        assert ESSAY.startswith(text)
    await api.settled(turn_id)
    assert (await api.messages(conversation_id))[-1]["parts"][0]["text"] == ESSAY


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"after": "0", "epoch": "another"}, "epoch"),
        ({"after": "99999"}, "ahead"),
        ({"after": "0"}, "too_old"),
    ],
)
async def test_a_cursor_that_means_nothing_here_is_told_to_resync(
    api: Api, query: dict[str, str], reason: str
) -> None:
    conversation_id = await spoken(api, 8 if reason == "too_old" else 1)
    async with api.client.stream(
        "GET", f"/v1/conversations/{conversation_id}/events", params=query
    ) as answer:
        lines = answer.aiter_lines()
        seen = [line async for line in _until_data(lines)]
    assert seen[-2] == "event: resync"
    assert not [line for line in seen if line.startswith("id:")]
    told = json.loads(seen[-1].removeprefix("data: "))
    snapshot = await api.snapshot(conversation_id)
    assert told == {"reason": reason, "as_of_seq": snapshot["as_of_seq"], "epoch": snapshot["epoch"]}


async def _until_data(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line.startswith("data:"):
            return


async def test_after_a_resync_the_stream_goes_on_from_the_snapshot(api: Api) -> None:
    conversation_id = await spoken(api, 8)
    as_of_seq = (await api.snapshot(conversation_id))["as_of_seq"]
    async with aclosing(api.stream(conversation_id, after=0)) as frames:  # type: ignore[type-var]
        resync = await anext(frames)
        assert (resync.name, resync.data["as_of_seq"]) == ("resync", as_of_seq)
        await say(api, conversation_id, "more")
        following = [frame.seq async for frame in _durable(frames, 3)]
    assert following == [as_of_seq + 1, as_of_seq + 2, as_of_seq + 3]


async def _durable(frames: AsyncIterator[Frame], count: int) -> AsyncIterator[Frame]:
    async for frame in frames:
        if frame.seq is not None:
            yield frame
            count -= 1
            if count == 0:
                return


async def test_a_hundred_streams_get_each_event_once(api: Api) -> None:
    conversation_id = await api.create()
    async with httpx2.AsyncClient(
        base_url=api.client.base_url,
        headers=api.client.headers,
        limits=httpx2.Limits(max_connections=200),
        timeout=60,
    ) as client:
        many = Api.__new__(Api)
        many.client = client
        streams = [asyncio.create_task(seqs(many.stream(conversation_id, after=0), 6)) for _ in range(100)]
        await api.settled(await say(api, conversation_id, "hello"))
        assert await asyncio.gather(*streams) == [[1, 2, 3, 4, 5, 6]] * 100


async def test_a_reader_that_stands_still_is_dropped_whole_and_resynced_and_misses_no_event(
    shared: ServerProcess, api: Api
) -> None:
    warm = await api.create()
    await api.settled(await say(api, warm, "flood"))
    before = rss_bytes(shared.pid)
    conversation_id = await api.create()
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.port, limit=1 << 16)
    writer.write(
        f"GET /v1/conversations/{conversation_id}/events?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {shared.token()}\r\n\r\n".encode()
    )
    await reader.readuntil(b"id: 1\n")
    await api.settled(await say(api, conversation_id, "flood"))
    last = (await api.snapshot(conversation_id))["as_of_seq"]
    assert rss_bytes(shared.pid) - before < 30_000_000, "what a reader does not take must not pile up"
    received = b""
    while f"id: {last}\n".encode() not in received:
        received += await asyncio.wait_for(reader.read(1 << 16), 60)
    ids = [
        int(line[4:]) for line in received.decode("utf-8", "replace").split("\n") if line.startswith("id: ")
    ]
    assert ids == list(range(2, last + 1))
    writer.close()


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def test_revoking_a_token_ends_its_streams_within_five_seconds(shared: ServerProcess, api: Api) -> None:
    conversation_id = await spoken(api, 1)
    made = (await api.post("/v1/tokens", {"scopes": ["read"]})).json()
    async with Api(shared.url, made["token"]) as other:
        frames: list[Frame] = []

        watching = asyncio.create_task(keep(other.stream(conversation_id, after=0), frames))
        await until(lambda: frames, "the first event")
        assert (await api.client.delete(f"/v1/tokens/{made['token_id']}")).status_code == 204
        await asyncio.wait_for(watching, 5)
        assert (frames[-1].name, frames[-1].seq, frames[-1].data["code"]) == ("error", None, "unauthorized")


async def test_deleting_a_conversation_leaves_no_stream_waiting_for_ever(api: Api) -> None:
    conversation_id = await spoken(api, 1)
    frames: list[Frame] = []

    watching = asyncio.create_task(keep(api.stream(conversation_id, after=0), frames))
    await until(lambda: frames, "the first event")
    assert (await api.client.delete(f"/v1/conversations/{conversation_id}")).status_code == 200
    await asyncio.wait_for(watching, 20)
    assert "ConversationDeleted" in [frame.data.get("kind") for frame in frames]


async def test_streams_end_at_once_when_the_server_stops_and_resume_when_it_is_back(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    async with server, Api(server.url, server.token()) as api:
        conversation_id = await spoken(api, 1)
        frames: list[Frame] = []

        def watch(after: int) -> asyncio.Task[None]:
            return asyncio.create_task(keep(api.stream(conversation_id, after=after), frames))

        def seen() -> list[int]:
            return [frame.seq for frame in frames if frame.seq is not None]

        last = (await api.snapshot(conversation_id))["as_of_seq"]
        watching = [watch(0) for _ in range(3)]
        await until(lambda: len(seen()) == 3 * last, "all events")
        assert server.process is not None
        server.process.terminate()
        await asyncio.wait_for(asyncio.gather(*watching), 5)
        assert await server.ended(seconds=10) == 0
        await server.start()
        frames.clear()
        back = watch(last)
        await say(api, conversation_id, "again")
        await until(lambda: len(seen()) >= 3, "what happened after the restart")
        assert seen()[:3] == [last + 1, last + 2, last + 3]
        server.kill()
        with pytest.raises(httpx2.TransportError):
            await asyncio.wait_for(back, 10)
        await server.start()
        turn = (await api.get(f"/v1/conversations/{conversation_id}/turns"))["turns"][0]
        await api.settled(turn["turn_id"])
        end = (await api.snapshot(conversation_id))["as_of_seq"]
        cut = seen()[-1]
        assert await seqs(api.stream(conversation_id, after=cut), end) == list(range(cut + 1, end + 1))
