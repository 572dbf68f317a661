"""The scripted provider: rounds by number, faults as failures, deadlines on a clock that is advanced."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Text, Thinking, ToolCall
from turnkeeper.port.provider import Deadlines, ModelCall, ProviderEvent, ProviderFailed, Reply, TextDelta
from turnkeeper.provider.opening import open_provider
from turnkeeper.provider.script import parse_script
from turnkeeper.provider.scripted import Scripted


class Jumping:
    """A clock on which sleeping takes no time."""

    at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def provider(*rounds: dict[str, Any]) -> tuple[Scripted, Jumping]:
    clock = Jumping()
    script = parse_script({"rules": [{"match": "", "rounds": list(rounds)}]}) if rounds else None
    return Scripted(clock, script), clock


async def play(model: Scripted, text: str = "hello", **fields: Any) -> list[ProviderEvent]:
    call = ModelCall(body=b"{}", deadlines=Deadlines(), newest_user_text=text, **fields)
    return [event async for event in model.stream(call)]


async def fail(model: Scripted, **fields: Any) -> ProviderFailed:
    with pytest.raises(ProviderFailed) as caught:
        await play(model, **fields)
    return caught.value


async def test_without_a_script_it_answers_ok_and_the_text() -> None:
    model, _ = provider()
    *deltas, reply = await play(model, "hello")
    assert deltas == [TextDelta("ok hello")]
    assert isinstance(reply, Reply)
    assert reply.message.text == "ok hello"
    assert reply.message.origin == model.origin
    assert reply.stop_reason == "end_turn"


async def test_the_round_played_is_finished_rounds_plus_failed_attempts() -> None:
    model, _ = provider({"text": "a"}, {"text": "b"}, {"text": "c"})
    said = [
        (await play(model, finished_rounds=rounds, failed_attempts=failed))[-1].message.text
        for rounds, failed in ((0, 0), (1, 0), (0, 1), (1, 1))
    ]
    assert said == ["a", "b", "b", "c"]


async def test_thinking_text_and_calls_come_in_this_order_with_unique_ids() -> None:
    model, _ = provider(
        {
            "thinking": "hm",
            "text": "so",
            "tool_calls": [{"name": "a"}, {"name": "b", "raw_arguments": '{"x":'}],
        }
    )
    reply = (await play(model))[-1]
    thinking, text, first, second = reply.message.parts
    assert (thinking, text) == (Thinking("hm"), Text("so"))
    assert (first.name, first.arguments) == ("a", {})
    assert (second.arguments, second.arguments_raw) == (None, '{"x":')
    assert first.id != second.id
    assert reply.stop_reason == "tool_use"


async def test_slow_words_take_their_time_on_the_clock() -> None:
    model, clock = provider({"text": "x" * 400, "chars_per_s": 200})
    events = await play(model)
    assert clock.at == pytest.approx(2.0)
    assert len(events) > 10


@pytest.mark.parametrize(
    ("round_", "kind", "retryable", "seconds", "said"),
    [
        ({"stall_s": 30}, "first_token", True, 25.0, None),
        ({"first_token_silence_s": 26, "text": "late"}, "first_token", True, 25.0, None),
        ({"slow_headers_s": 26, "text": "late"}, "first_token", True, 25.0, None),
        ({"text": "half", "stall_s": 30}, "stall", True, 20.0, "half"),
        ({"text": "x", "chars_per_s": 100, "endless": True}, "total", False, 180.0, "x"),
        ({"error": {"status": 529}}, "overloaded", True, None, None),
        ({"error": {"status": 500}}, "server", True, None, None),
        ({"error": {"status": 400}}, "refused_request", False, None, None),
        ({"error": {"status": 401}}, "credentials", False, None, None),
        ({"error": {"status": 402}}, "quota", False, None, None),
        ({"error": {"status": 413}}, "context", False, None, None),
        ({"error": {"status": 429, "retry_after_s": 7}}, "rate_limit", True, None, None),
        ({"text": "half", "error": {"status": 529}}, "overloaded", True, None, "half"),
        ({"text": "half", "cut": True}, "broken_stream", True, 0.0, "half"),
        ({"text": "half", "garbage": "half_json"}, "broken_stream", True, 0.0, "half"),
    ],
)
async def test_each_fault_is_the_failure_that_a_real_provider_would_make(
    round_: dict[str, Any], kind: str, retryable: bool, seconds: float | None, said: str | None
) -> None:
    model, _ = provider(round_)
    failed = await fail(model)
    assert (failed.failure.kind, failed.failure.retryable) == (kind, retryable)
    assert failed.failure.measured_seconds == seconds
    if said is None:
        assert failed.partial is None
    else:
        assert failed.partial is not None
        assert failed.partial.text.startswith(said)
        assert not failed.partial.replay
    if kind == "rate_limit":
        assert failed.failure.retry_after_seconds == 7


async def test_a_stall_that_is_shorter_than_its_deadline_is_waited_out() -> None:
    model, clock = provider({"stall_s": 24}, {"text": "a", "stall_s": 19})
    assert (await play(model, "hi"))[-1].message.text == "ok hi"
    assert clock.at == 24
    assert (await play(model, finished_rounds=1))[-1].message.text == "a"


async def test_an_exploding_pattern_is_a_failure_of_the_call_and_not_a_hang() -> None:
    model = Scripted(Jumping(), parse_script({"rules": [{"match": r"(a|aa|b?a)+\1+$", "rounds": []}]}))
    failed = await fail(model, text="a" * 5000 + "!")
    assert failed.failure.kind == "config"
    assert not failed.failure.retryable


def test_its_request_is_built_and_judged_like_any_other() -> None:
    model = open_provider("scripted", clock=Jumping())
    feed = [Message(message_id="m", role="user", parts=(Text("hi"), ToolCall("a", "b")))]
    body = model.build(feed, instructions="", tools=[], options={})
    assert b'"text":"hi"' in body
