"""Files: whole or not at all, given out only to those who may read the conversation, and never run."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.world import BASE, World
from turnkeeper.app import Keeper
from turnkeeper.server.application import create_app
from turnkeeper.server.routes.attachments import plain_name
from turnkeeper.settings import Settings

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 20
HTML = b"<html><script>alert(1)</script></html>"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A Keeper on a folder: files need one."""
    keeper = await Keeper.open(tmp_path / "data", settings=Settings(attachment_bytes_max=1000))
    made = World(keeper, create_app(keeper, port=8321))
    made.owner = await made.client("owner")
    try:
        yield made
    finally:
        await made.close()


async def upload(world: World, content: bytes, name: str = "a.png") -> httpx2.Response:
    return await world.owner.post("/v1/attachments", content=content, params={"name": name})


async def held(world: World, attachment_id: str) -> tuple[str, str]:
    """A conversation that holds the file, and the file's path in it."""
    conversation_id = await world.create()
    answer = await world.owner.post(
        f"/v1/conversations/{conversation_id}/turns",
        json={
            "parts": [
                {"type": "text", "text": "look"},
                {"type": "attachment", "attachment_id": attachment_id},
            ]
        },
        headers={"idempotency-key": uuid.uuid4().hex},
    )
    assert answer.status_code == 202, answer.text
    await world.ended(answer.json()["turn_id"])
    return conversation_id, f"/v1/conversations/{conversation_id}/attachments/{attachment_id}"


@pytest.mark.parametrize(
    ("content", "name", "shown"),
    [
        (PNG, "a.png", True),
        (PNG, "a.html", True),
        (HTML, "a.png", False),
        (SVG, "a.svg", False),
        (b"text", "a.txt", False),
        (b"\x00\x01", "a.bin", False),
    ],
)
async def test_bytes_decide_what_a_browser_does(world: World, content: bytes, name: str, shown: bool) -> None:
    stored = (await upload(world, content, name)).json()
    assert stored["size_bytes"] == len(content)
    _, path = await held(world, stored["attachment_id"])
    answer = await world.owner.get(path)
    assert answer.content == content
    assert answer.headers["content-type"] == ("image/png" if shown else "application/octet-stream")
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith("inline" if shown else "attachment")
    assert name in disposition
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


async def test_a_file_is_read_only_through_a_conversation_that_holds_it_by_who_may_read_that(
    world: World,
) -> None:
    stored = (await upload(world, PNG)).json()
    other = await world.create()
    _, path = await held(world, stored["attachment_id"])
    elsewhere = await world.owner.get(f"/v1/conversations/{other}/attachments/{stored['attachment_id']}")
    unknown = await world.owner.get(f"/v1/conversations/{other}/attachments/f_unknown")
    assert elsewhere.status_code == unknown.status_code == 404
    assert elsewhere.content == unknown.content
    stranger = await world.client("stranger")
    assert (await stranger.get(path)).status_code == 404
    stolen = await stranger.post("/v1/conversations", json={"agent": "demo"})
    answer = await stranger.post(
        f"/v1/conversations/{stolen.json()['conversation_id']}/turns",
        json={"parts": [{"type": "attachment", "attachment_id": stored["attachment_id"]}]},
        headers={"idempotency-key": "k"},
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "part_invalid")
    assert answer.json()["index"] == 0


async def in_pieces(content: bytes) -> Any:
    for start in range(0, len(content), 7):
        yield content[start : start + 7]


async def test_a_form_brings_a_file_too(world: World) -> None:
    answer = await world.owner.post(
        "/v1/attachments", data={"note": "x"}, files={"file": ("ümlaut.png", PNG, "text/html")}
    )
    assert answer.status_code == 201, answer.text
    assert (answer.json()["name"], answer.json()["media_type"]) == ("ümlaut.png", "image/png")
    assert answer.json()["size_bytes"] == len(PNG)


async def test_a_form_may_come_in_small_pieces(world: World) -> None:
    whole = httpx2.Request("POST", BASE, files={"file": ("a.png", PNG)})
    answer = await world.owner.post(
        "/v1/attachments",
        content=in_pieces(whole.read()),
        headers={"content-type": whole.headers["content-type"]},
    )
    assert (answer.status_code, answer.json()["size_bytes"]) == (201, len(PNG))


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        (b"", "multipart/form-data", "the form has no boundary"),
        (b"--x--\r\n", "multipart/form-data; boundary=x", "the form holds no file"),
        (b"", "multipart/form-data; boundary=x", "the form holds no file"),
        (b"garbage", "multipart/form-data; boundary=x", "the form cannot be read"),
        (
            b'--x\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\nhalf',
            "multipart/form-data; boundary=x",
            "the form breaks off",
        ),
    ],
)
async def test_a_broken_form_is_refused_and_leaves_nothing(
    world: World, body: bytes, kind: str, sentence: str
) -> None:
    answer = await world.owner.post("/v1/attachments", content=body, headers={"content-type": kind})
    assert answer.status_code == 400, answer.text
    assert sentence in answer.json()["detail"]
    assert world.keeper.data is not None
    assert [path for path in (world.keeper.data / "attachments").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("form", [False, True])
@pytest.mark.parametrize("declared", [False, True])
async def test_a_file_at_the_limit_is_taken_and_one_byte_more_refused(
    world: World, form: bool, declared: bool
) -> None:
    async def send(size: int) -> httpx2.Response:
        content = b"x" * size
        headers = {}
        if form:
            request = httpx2.Request("POST", BASE, files={"file": ("a", content)})
            content, headers = request.read(), {"content-type": request.headers["content-type"]}
        return await world.owner.post(
            "/v1/attachments", content=content if declared else in_pieces(content), headers=headers
        )

    assert (await send(1000)).status_code == 201
    for size in (1001, 50_000):
        over = await send(size)
        assert (over.status_code, over.json()["code"]) == (413, "body_too_large")
        assert "attachment_bytes_max" in over.json()["detail"]
        assert "1000 bytes" in over.json()["detail"]


def test_a_name_is_only_a_name() -> None:
    assert plain_name("../../etc/passwd") == "passwd"
    assert plain_name("C:\\temp\\a.png") == "a.png"
    assert plain_name("a\r\nSet-Cookie: x") == "aSet-Cookie: x"
    assert plain_name("x" * 300 + ".png").endswith(".png")
    assert len(plain_name("x" * 300)) == 255


@pytest.mark.parametrize("name", ["a\r\nX: 1.png", 'a".png', "ünïcode 你好.png", "", "a;b.png"])
async def test_a_strange_name_breaks_no_header(world: World, name: str) -> None:
    stored = (await upload(world, PNG, name)).json()
    _, path = await held(world, stored["attachment_id"])
    answer = await world.owner.get(path)
    assert answer.status_code == 200
    assert "x" not in answer.headers
    assert answer.content == PNG


async def test_a_part_of_a_file_can_be_asked_for(world: World) -> None:
    stored = (await upload(world, PNG)).json()
    _, path = await held(world, stored["attachment_id"])
    answer = await world.owner.get(path, headers={"range": "bytes=0-7"})
    assert (answer.status_code, answer.content) == (206, PNG[:8])
