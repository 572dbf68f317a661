"""What Python makes and the page takes: the vectors that web/test/vectors.test.ts reads too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from turnkeeper.agent.stream import RoundStream
from turnkeeper.conversation.events import KINDS, Event, Submitted
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Mode, Principal, Request, ToolCallRow, Turn
from turnkeeper.lane import Lane, Rules, inputs, step
from turnkeeper.port.provider import ModelCall, TextDelta
from turnkeeper.projection.order import cut_page
from turnkeeper.projection.timeline import queue_rows, timeline_rows
from turnkeeper.projection.view import TurnView, turn_view
from turnkeeper.settings import Settings
from turnkeeper.testing.clock import VirtualClock

FOLDER = Path(__file__).parents[1] / "vectors" / "both"


def read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def events(landmarks: list[Any]) -> list[Event]:
    return [
        Event(
            conversation_id="c",
            seq=one["seq"],
            at=one["at"],
            actor="runner",
            turn_id=one["turn_id"],
            body=msgspec.convert(one["body"], KINDS[one["kind"]]),
        )
        for one in landmarks
    ]


def test_the_rows_of_pages_are_the_rows_of_the_whole() -> None:
    given = read("rows.json")
    messages = msgspec.convert(given["messages"], list[Message])
    turns = msgspec.convert(given["turns"], dict[str, Turn])
    fates = {turn_id: turn_view(turn) for turn_id, turn in turns.items()}
    calls = msgspec.convert(given["calls"], list[ToolCallRow])
    landmarks = events(given["landmarks"])
    waiting = msgspec.to_builtins(queue_rows(msgspec.convert(given["queue"], list[TurnView])))

    def rows(part: list[Message], since: int, before: int | None) -> Any:
        between = [e for e in landmarks if e.seq >= since and (before is None or e.seq < before)]
        return msgspec.to_builtins(timeline_rows(part, fates, landmarks=between, calls=calls))

    assert rows(messages, 0, None) + waiting == given["whole"]
    older, newest = given["pages"]
    page, cursor = cut_page(messages, sum(m.after is None for m in messages[newest["begin"] :]))
    assert (page, cursor) == (messages[newest["begin"] :], newest["next"])
    assert rows(page, newest["next"], None) + waiting == newest["rows"]
    assert rows(messages[: older["end"]], 0, newest["next"]) == older["rows"]


@pytest.mark.parametrize("case", read("fates.json")["cases"], ids=lambda case: case["name"])
def test_a_turn_is_shown_outside_as_the_page_reads_it(case: Any) -> None:
    turn = msgspec.convert(case["turn"], Turn)
    assert msgspec.to_builtins(turn_view(turn, position=case["position"])) == case["view"]


@pytest.mark.parametrize(
    "case", read("moves.json")["cases"], ids=lambda case: f"{case['moved']}-{case['place']}"
)
def test_a_move_of_the_page_is_the_order_of_the_lane(case: Any) -> None:
    lane = Lane(conversation_id="c", rules=Rules())
    request = Request(agent="demo", parts=(Text("x"),), principal=Principal(user_id="u"))
    for turn_id in ["runs", *case["queue"]]:
        body = Submitted(
            submission_id=f"s-{turn_id}", turn_id=turn_id, key=turn_id, fingerprint="f", request=request
        )
        lane, _ = step(lane, inputs.Submit(body=body, mode=Mode.QUEUE, user_id="u"), 1.0)
    lane, _ = step(lane, inputs.Move(turn_id=case["moved"], before=case["before"]), 2.0)
    assert [slot.turn_id for slot in lane.queue] == case["after"]


@pytest.mark.parametrize("case", read("deltas.json")["cases"], ids=lambda case: case["name"])
async def test_live_pieces_say_after_how_many_characters_they_stand(case: Any) -> None:
    shown: list[Any] = []

    class Speaks:
        async def stream(self, call: ModelCall) -> AsyncIterator[TextDelta]:
            for piece in case["pieces"]:
                yield TextDelta(piece["text"])

    turn = SimpleNamespace(
        clock=VirtualClock(),
        settled_chars=len,
        delta=lambda _kind, facts: shown.append({"text": facts["text"], "offset": facts["offset"]}),
    )
    journal: Any = SimpleNamespace(turn=turn)
    stream = RoundStream(journal, Settings(), 1, asked="")
    call: Any = None
    speaks: Any = Speaks()
    streamed = await stream.run(speaks, call)
    assert shown == case["pieces"]
    assert streamed.text == case["whole"]
