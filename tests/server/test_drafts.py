"""Drafts over devices: what one device wrote another reads; nobody else does; no secret is kept."""

from __future__ import annotations

from tests.server.world import World

KEY = "sk-test-AAAABBBBCCCCDDDDEEEE"


async def test_a_draft_is_read_by_another_device_of_the_same_person_only(world: World) -> None:
    c = await world.create()
    path = f"/v1/conversations/{c}/draft"
    assert (await world.owner.get(path)).json() == {"text": "", "files": [], "revision": 0}
    kept = await world.owner.post(path, json={"text": "half a thought", "files": [{"attachment_id": "a_1"}]})
    assert kept.json()["revision"] == 1
    phone = await world.client("owner")
    assert (await phone.get(path)).json()["text"] == "half a thought"
    stranger = await world.client("ana")
    assert (await stranger.get(path)).status_code == 404
    assert (await stranger.post(path, json={"text": "mine"})).status_code == 404
    emptied = await phone.post(path, json={"text": ""})
    assert emptied.json() == {"text": "", "files": [], "revision": 2}


async def test_no_secret_is_kept_in_a_draft(world: World) -> None:
    c = await world.create()
    path = f"/v1/conversations/{c}/draft"
    await world.owner.post(path, json={"text": "before"})
    answer = await world.owner.post(path, json={"text": f"use {KEY} for it"})
    assert answer.json() == {"text": "", "files": [], "revision": 2}
    stored = await world.keeper.store.value(f"draft:{c}:owner")
    assert stored is not None
    assert KEY.encode() not in stored


async def test_a_draft_that_is_too_long_or_holds_too_many_files_is_refused(world: World) -> None:
    c = await world.create()
    path = f"/v1/conversations/{c}/draft"
    limit = world.keeper.settings.text_bytes_max
    assert (await world.owner.post(path, json={"text": "x" * limit})).status_code == 200
    assert (await world.owner.post(path, json={"text": "x" * (limit + 1)})).status_code == 413
    files = [{"attachment_id": f"a_{number}"} for number in range(51)]
    assert (await world.owner.post(path, json={"text": "", "files": files[:50]})).status_code == 200
    assert (await world.owner.post(path, json={"text": "", "files": files})).status_code == 400
