"""Spoken messages: a recording is written down once, and its words go with every message that holds it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.parts import Attachment
from turnkeeper.conversation.rights import USER_SCOPES
from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import (
    AddressRefused,
    NotARecording,
    NotFound,
    RecordingTooLong,
    SettingInvalid,
    TranscriberFailed,
    TranscriberMissing,
)
from turnkeeper.settings import Settings
from turnkeeper.testing.memory_store import MemoryStore
from turnkeeper.testing.model_server import ModelServer
from turnkeeper.testing.until import until

WEBM = b"\x1aE\xdf\xa3" + bytes(200)
KEY = "sk-test-9f8e7d6c5b4a39281706"
SPOKEN = {"rules": [{"match": "recording", "rounds": [{"text": "book a table"}, {"text": "paid twice"}]}]}


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(SPOKEN, key=KEY) as made:
        yield made


def settings(server: ModelServer, **more: Any) -> Settings:
    given = {
        "transcriber_url": f"{server.url}/v1",
        "transcriber_key_env": "SPEECH_KEY",
        "private_addresses_allowed": ("127.0.0.1",),
    }
    return Settings(**{**given, **more})


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def uploaded(keeper: Keeper, data: bytes = WEBM, name: str = "recording.webm") -> str:
    return str((await keeper.put_attachment(OPERATOR, name, pieces(data)))["attachment_id"])


async def opened(tmp_path: Path, given: Settings) -> Keeper:
    return await Keeper.open(tmp_path, store=MemoryStore(), settings=given)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEECH_KEY", KEY)


async def test_words_are_asked_for_once_and_go_with_every_message_that_holds_the_recording(
    server: ModelServer, tmp_path: Path
) -> None:
    """Two questions at a time, a message, one sent again, a retry: one request, and the model is given the words."""
    async with await opened(tmp_path, settings(server)) as keeper:
        recording = await uploaded(keeper)
        first = await keeper.recordings.write_down(OPERATOR, recording)
        assert first == "book a table"
        assert await keeper.recordings.write_down(OPERATOR, recording) == first
        c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id

        async def sent(key: str, **more: Any) -> str:
            parts = [Attachment(attachment_id=recording, transcript="words that the sender made up")]
            turn_id = (await keeper.submit(OPERATOR, c, key=key, parts=parts, **more)).turn_id

            async def ended() -> bool:
                return (await keeper.turn(OPERATOR, turn_id)).state in ("settled", "failed")

            await until(ended, "the turn's end")
            return turn_id

        turn_id = await sent("one")
        await sent("two", resend_of=turn_id)
        rows = (await keeper.timeline(OPERATOR, c)).rows
        spoken = [row.attachments[0]["transcript"] for row in rows if row.kind == "user"]
        assert spoken == ["book a table", "book a table"]
        feed = await keeper.feed(OPERATOR, c, provider="any")
        assert "book a table" in str(feed["request"])
        assert len(server.requests) == 1
    assert KEY.encode() not in server.requests[0].body


@pytest.mark.parametrize(
    ("data", "given", "error", "says"),
    [
        (b"%PDF-1.7 no sound", {}, NotARecording, "application/pdf"),
        (WEBM, {"transcriber_bytes_max": len(WEBM) - 1}, RecordingTooLong, "transcriber_bytes_max"),
        (WEBM, {"transcriber_url": "http://127.0.0.1:9/v1"}, TranscriberFailed, "cannot be reached"),
        (WEBM, {"private_addresses_allowed": ()}, AddressRefused, "private_addresses_allowed"),
        (WEBM, {"transcriber_url": None}, TranscriberMissing, "transcriber_url"),
    ],
)
async def test_what_cannot_be_written_down_says_why_and_stays_a_file(
    server: ModelServer, tmp_path: Path, data: bytes, given: dict[str, Any], error: type, says: str
) -> None:
    async with await opened(tmp_path, settings(server, **given)) as keeper:
        recording = await uploaded(keeper, data)
        with pytest.raises(error, match=says):
            await keeper.recordings.write_down(OPERATOR, recording)
        assert await keeper.store.attachment(recording) is not None
        assert len(server.requests) == 0


async def test_a_recording_of_just_the_longest_length_is_written_down(
    server: ModelServer, tmp_path: Path
) -> None:
    given = settings(server, transcriber_bytes_max=len(WEBM), transcript_chars_max=4)
    async with await opened(tmp_path, given) as keeper:
        assert await keeper.recordings.write_down(OPERATOR, await uploaded(keeper)) == "book"


@pytest.mark.parametrize(
    ("round_", "says"),
    [({"error": {"status": 500}}, "answered 500"), ({"stall_s": 30}, "no answer within 0.3 s")],
)
async def test_a_failure_is_not_kept_and_the_next_try_asks_again(
    tmp_path: Path, round_: dict[str, Any], says: str
) -> None:
    script = {"rules": [{"match": "recording", "rounds": [round_, {"text": "at last"}]}]}
    async with (
        ModelServer(script) as server,
        await opened(tmp_path, settings(server, transcriber_seconds=0.3)) as keeper,
    ):
        recording = await uploaded(keeper)
        with pytest.raises(TranscriberFailed, match=says):
            await keeper.recordings.write_down(OPERATOR, recording)
        assert len(server.requests) == 1
        keeper.recordings._transcriber._seconds = 30.0  # type: ignore[union-attr]
        assert await keeper.recordings.write_down(OPERATOR, recording) == "at last"


async def test_nobody_has_the_recording_of_another_written_down(server: ModelServer, tmp_path: Path) -> None:
    async with await opened(tmp_path, settings(server)) as keeper:
        recording = await uploaded(keeper)
        other = Principal(user_id="mallory", scopes=USER_SCOPES)
        with pytest.raises(NotFound):
            await keeper.recordings.write_down(other, recording)


async def test_a_key_that_is_named_and_missing_is_said_at_the_start(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPEECH_KEY")
    with pytest.raises(SettingInvalid, match="SPEECH_KEY"):
        await opened(tmp_path, settings(server))
