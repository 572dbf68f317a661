"""What every model provider promises, whatever its wire: over the scripted fake and over each real SDK alike.

A kit opens a provider whose model plays the given rounds (`provider/script.py`). Each case calls it and
looks at the deltas, the reply or the failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from turnkeeper.conversation import codec
from turnkeeper.conversation.messages import ASSISTANT, ERRORED, TOOL, USER, Message
from turnkeeper.conversation.parts import Opaque, Text, Thinking, ToolCall, ToolResult
from turnkeeper.port.provider import (
    CallDelta,
    Deadlines,
    ModelCall,
    Provider,
    ProviderEvent,
    ProviderFailed,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
)
from turnkeeper.testing.conformance.script import refused


class ProviderKit(Protocol):
    """Makes a provider for one case."""

    deadlines: Deadlines
    """Patient ones: nothing in a healthy answer comes near them."""
    short: Deadlines
    """What each case of silence takes its one impatient deadline from."""

    async def open(self, *rounds: dict[str, Any]) -> Provider:
        """A provider whose model plays these rounds to any text."""
        ...

    def requests(self) -> int | None:
        """How many requests the model's server has seen; None where there is no server."""
        ...

    def sent(self) -> list[Any] | None:
        """The blocks of the newest answer as the server sent them, apart from reasoning that this provider does
        not take back; None where there is no server."""
        ...

    def sent_back(self, body: bytes) -> list[Any] | None:
        """The blocks of the newest assistant message in a request body; None where there is no wire."""
        ...


Case = Callable[[ProviderKit], Awaitable[None]]
PROVIDER_CASES: list[Case] = []
"""Every promise of a provider."""

ASK: Final = Message(message_id="m1", role=USER, parts=(Text("hello"),))
TOOLS: Final = (
    ToolSpec(name="echo", description="Says it again.", schema={"properties": {"text": {"type": "string"}}}),
    ToolSpec(name="now", description="The time.", schema={}),
)


def provider_case(case: Case) -> Case:
    """Make `case` part of the suite."""
    PROVIDER_CASES.append(case)
    return case


async def played(
    provider: Provider,
    kit: ProviderKit,
    feed: Sequence[Message] = (ASK,),
    *,
    finished_rounds: int = 0,
    failed_attempts: int = 0,
    deadlines: Deadlines | None = None,
) -> list[ProviderEvent]:
    """Everything that one call yields."""
    call = ModelCall(
        body=provider.build(feed, instructions="Be brief.", tools=TOOLS, options={"thinking": True}),
        deadlines=deadlines or kit.deadlines,
        finished_rounds=finished_rounds,
        failed_attempts=failed_attempts,
        newest_user_text="hello",
    )
    return [event async for event in provider.stream(call)]


async def answered(provider: Provider, kit: ProviderKit, *args: Any, **how: Any) -> Reply:
    """The reply of one call."""
    reply = (await played(provider, kit, *args, **how))[-1]
    assert isinstance(reply, Reply)
    return reply


async def failed(provider: Provider, kit: ProviderKit, **how: Any) -> ProviderFailed:
    """The failure of one call."""
    with refused(ProviderFailed) as caught:
        await played(provider, kit, **how)
    error = caught.error
    assert isinstance(error, ProviderFailed)
    assert error.failure.retryable == ("Try again" in error.failure.sentence), error.failure
    return error


def followed(reply: Reply, number: int = 2) -> list[Message]:
    """The feed of the next round: the ask, the reply, a result for each of its calls."""
    answer = msgspec.structs.replace(reply.message, message_id=f"m{number}")
    results = tuple(
        ToolResult(part.id, f"result of {part.name}")
        for part in answer.parts
        if type(part) is ToolCall and not part.server_side
    )
    if not results:
        again = Message(message_id=f"m{number + 1}", role=USER, parts=(Text("hello"),))
        return [ASK, answer, again]
    return [ASK, answer, Message(message_id=f"m{number + 1}", role=TOOL, parts=results)]


def stored(message: Message) -> Message:
    """The message after a trip through the store's encoding."""
    return codec.decode_message(codec.encode(message))


# --- answers


@provider_case
async def a_text_comes_in_pieces_and_then_whole(kit: ProviderKit) -> None:
    """One Reply, last; its text is what the deltas said; usage, stop reason and ids are there."""
    text = "Grüße, 漢字 and \U0001f600. " * 30
    provider = await kit.open({"text": text})
    *deltas, reply = await played(provider, kit)
    assert isinstance(reply, Reply)
    assert not any(isinstance(event, Reply) for event in deltas)
    assert "".join(event.text for event in deltas if isinstance(event, TextDelta)) == text
    assert reply.message.text == text
    assert reply.message.role == ASSISTANT
    assert reply.message.origin == provider.origin
    assert reply.message.replay
    assert reply.stop_reason == "end_turn"
    assert reply.request_id
    assert reply.usage is not None
    assert reply.usage.output_tokens > 0
    await provider.close()


@provider_case
async def thinking_is_a_part_of_its_own_and_no_answer(kit: ProviderKit) -> None:
    """It comes before the text and is never in it."""
    provider = await kit.open({"thinking": "let me see ", "text": "Done."})
    *deltas, reply = await played(provider, kit)
    assert isinstance(reply, Reply)
    assert "".join(event.text for event in deltas if isinstance(event, ThinkingDelta)) == "let me see "
    assert "".join(event.text for event in deltas if isinstance(event, TextDelta)) == "Done."
    assert [type(part) for part in reply.message.parts] == [Thinking, Text]
    assert reply.message.text == "Done."
    await provider.close()


@provider_case
async def parallel_calls_come_in_order_with_ids_of_their_own(kit: ProviderKit) -> None:
    """Arguments are objects; nested, odd and empty ones too."""
    odd = {"text": 'a"b\\c\né', "n": 1.5, "deep": {"list": [1, None, True, {}]}}
    provider = await kit.open(
        {"text": "Two.", "tool_calls": [{"name": "echo", "arguments": odd}, {"name": "now"}, {"name": "now"}]}
    )
    *deltas, reply = await played(provider, kit)
    assert isinstance(reply, Reply)
    calls = [part for part in reply.message.parts if type(part) is ToolCall]
    assert [(call.name, call.arguments) for call in calls] == [("echo", odd), ("now", {}), ("now", {})]
    assert len({call.id for call in calls}) == 3
    assert all(calls[0].id for call in calls)
    assert reply.stop_reason == "tool_use"
    assert [event.name for event in deltas if isinstance(event, CallDelta) and event.name] == [
        "echo",
        "now",
        "now",
    ]
    await provider.close()


@provider_case
async def arguments_that_were_cut_are_no_object_and_are_kept_as_they_came(kit: ProviderKit) -> None:
    """None in place of the object says that this call cannot run."""
    raw = '{"text": "half a sen'
    provider = await kit.open(
        {"tool_calls": [{"name": "echo", "raw_arguments": raw}], "stop_reason": "max_tokens"}, {"text": "ok"}
    )
    reply = await answered(provider, kit)
    (call,) = [part for part in reply.message.parts if type(part) is ToolCall]
    assert call.arguments is None
    assert call.arguments_raw == raw
    assert reply.stop_reason == "max_tokens"
    again = await answered(provider, kit, followed(reply), finished_rounds=1)
    assert again.message.text == "ok"
    await provider.close()


@provider_case
async def what_was_received_goes_back_unchanged_after_the_store(kit: ProviderKit) -> None:
    """Thinking, text and calls of three rounds, each through the store's encoding, accepted by the server."""
    provider = await kit.open(
        {"thinking": "first ", "text": "One.", "tool_calls": [{"name": "now"}, {"name": "echo"}]},
        {"thinking": "second ", "tool_calls": [{"name": "echo", "arguments": {"text": "ü"}}]},
        {"thinking": "third ", "text": "Three."},
    )
    feed: list[Message] = [ASK]
    for number in range(3):
        reply = await answered(provider, kit, feed, finished_rounds=number)
        sent = kit.sent()
        step = followed(reply, 10 * (number + 1))[1:]
        feed += [stored(message) for message in step]
        body = provider.build(feed, instructions="Be brief.", tools=TOOLS, options={"thinking": True})
        back = kit.sent_back(body)
        assert back == sent
        assert msgspec.json.encode(back) == msgspec.json.encode(sent)
    await provider.close()


@provider_case
async def events_and_blocks_of_an_unknown_kind_are_kept_and_do_no_harm(kit: ProviderKit) -> None:
    """The answer around them is whole."""
    block = {"type": "brand_new_block", "payload": {"n": 1.5}, "odd": None}
    provider = await kit.open(
        {"text": "Before.", "blocks": [block], "garbage": "unknown_event", "usage": {"brand_new_counter": 7}},
        {"text": "ok"},
    )
    reply = await answered(provider, kit)
    assert reply.message.text == "Before."
    kept = [part for part in reply.message.parts if type(part) is Opaque]
    if kept:
        (opaque,) = kept
        assert isinstance(opaque.block, msgspec.Raw)
        assert msgspec.json.decode(opaque.block) == block
    elif kit.sent() is not None:  # a wire without blocks: the fields stand beside the text
        assert isinstance(reply.message.envelope, msgspec.Raw)
        assert b"brand_new_block" in bytes(reply.message.envelope)
    if kit.sent() is not None:
        assert isinstance(reply.message.envelope, msgspec.Raw)
        assert b'"n":1}' in bytes(reply.message.envelope)
    assert stored(reply.message) == reply.message
    await provider.close()


# --- failures


@provider_case
async def each_status_is_the_kind_of_failure_that_it_says(kit: ProviderKit) -> None:
    """And the same call is retryable exactly where its sentence says so."""
    for status, kind, retryable in (
        (400, "refused_request", False),
        (401, "credentials", False),
        (403, "credentials", False),
        (404, "refused_request", False),
        (413, "context", False),
        (429, "rate_limit", True),
        (500, "server", True),
        (502, "server", True),
        (503, "overloaded", True),
        (529, "overloaded", True),
    ):
        provider = await kit.open({"error": {"status": status}})
        failure = (await failed(provider, kit)).failure
        assert (failure.kind, failure.retryable) == (kind, retryable), (status, failure)
        assert failure.status == status
        await provider.close()


@provider_case
async def a_rate_limit_says_how_long_to_wait(kit: ProviderKit) -> None:
    """As the provider said it."""
    provider = await kit.open({"error": {"status": 429, "retry_after_s": 7}})
    failure = (await failed(provider, kit)).failure
    assert failure.retry_after_seconds == 7
    assert "Try again in 7 s" in failure.sentence
    await provider.close()


@provider_case
async def an_error_inside_the_stream_is_known_by_its_name(kit: ProviderKit) -> None:
    """It has no status; what had arrived is kept and not replayed."""
    provider = await kit.open({"text": "half an ans", "error": {"status": 529}})
    failure = await failed(provider, kit)
    assert failure.failure.kind == "overloaded"
    assert failure.failure.status is None
    assert failure.partial is not None
    assert failure.partial.text == "half an ans"
    assert failure.partial.standing == ERRORED
    assert not failure.partial.replay
    await provider.close()


@provider_case
async def a_cut_stream_is_broken_and_its_words_are_kept(kit: ProviderKit) -> None:
    """Also in the middle of a call."""
    provider = await kit.open({"text": "half", "cut": True}, {"tool_calls": [{"name": "now"}], "cut": True})
    failure = await failed(provider, kit)
    assert (failure.failure.kind, failure.failure.retryable) == ("broken_stream", True)
    assert failure.partial is not None
    assert failure.partial.text == "half"
    failure = await failed(provider, kit, failed_attempts=1)
    assert failure.failure.kind == "broken_stream"
    await provider.close()


@provider_case
async def a_stall_is_measured_and_pings_do_not_hide_it(kit: ProviderKit) -> None:
    """Silence is spoken of only here."""
    for pings in (False, True):
        provider = await kit.open({"text": "half", "stall_s": 60, "pings": pings})
        impatient = msgspec.structs.replace(kit.deadlines, stall_seconds=kit.short.stall_seconds)
        failure = await failed(provider, kit, deadlines=impatient)
        assert (failure.failure.kind, failure.failure.retryable) == ("stall", True)
        measured = failure.failure.measured_seconds
        assert measured is not None
        assert kit.short.stall_seconds <= measured < kit.short.stall_seconds + 5
        assert "of silence" in failure.failure.sentence
        assert failure.partial is not None
        assert failure.partial.text == "half"
        await provider.close()


@provider_case
async def a_late_first_word_is_its_own_kind_of_failure(kit: ProviderKit) -> None:
    """Whether the headers, the first event or the first word is late."""
    for round_ in (
        {"slow_headers_s": 60, "text": "late"},
        {"first_token_silence_s": 60, "text": "late"},
        {"first_token_silence_s": 60, "text": "late", "pings": True},
        {"stall_s": 60},
    ):
        provider = await kit.open(round_)
        impatient = msgspec.structs.replace(kit.deadlines, first_token_seconds=kit.short.first_token_seconds)
        failure = await failed(provider, kit, deadlines=impatient)
        assert failure.failure.kind == "first_token"
        assert "silence" not in failure.failure.sentence
        assert failure.partial is None
        await provider.close()


@provider_case
async def an_endless_answer_ends_at_the_total_and_will_not_be_retried(kit: ProviderKit) -> None:
    """Each word resets the stall, none the total."""
    provider = await kit.open({"text": "more and ", "endless": True})
    impatient = msgspec.structs.replace(kit.deadlines, total_seconds=kit.short.total_seconds)
    failure = await failed(provider, kit, deadlines=impatient)
    assert (failure.failure.kind, failure.failure.retryable) == ("total", False)
    measured = failure.failure.measured_seconds
    assert measured is not None
    assert kit.short.total_seconds <= measured < kit.short.total_seconds + 5
    await provider.close()


@provider_case
async def nonsense_is_a_failure_and_nothing_worse(kit: ProviderKit) -> None:
    """Each kind of it, at the start and in the middle."""
    for garbage, kinds in (
        ("html", {"not_an_api"}),
        ("not_json", {"broken_stream"}),
        ("half_json", {"broken_stream"}),
        ("invalid_utf8", {"broken_stream"}),
        ("wrong_order", {"broken_stream"}),
        ("wrong_types", {"broken_stream"}),
        ("empty", {"broken_stream"}),
        ("huge_delta", {"oversized"}),
    ):
        provider = await kit.open({"garbage": garbage}, {"text": "half", "garbage": garbage})
        failure = await failed(provider, kit)
        assert failure.failure.kind in kinds, (garbage, failure.failure)
        if garbage not in ("empty", "huge_delta"):
            failure = await failed(provider, kit, failed_attempts=1)
            assert failure.failure.kind == "broken_stream", (garbage, failure.failure)
        await provider.close()


@provider_case
async def one_call_is_one_request(kit: ProviderKit) -> None:
    """A provider never retries by itself."""
    for round_ in ({"error": {"status": 503}}, {"error": {"status": 429}}, {"text": "x", "cut": True}):
        provider = await kit.open(round_)
        await failed(provider, kit)
        assert kit.requests() in (None, 1)
        await provider.close()


# --- use


@provider_case
async def a_call_that_is_broken_off_leaves_the_provider_usable(kit: ProviderKit) -> None:
    """By closing the stream, and by cancelling who reads it."""
    provider = await kit.open({"text": "words " * 50, "chars_per_s": 4000})
    body = provider.build([ASK], instructions="", tools=(), options={})
    call = ModelCall(body=body, deadlines=kit.deadlines, newest_user_text="hello")
    stream = provider.stream(call)
    first = await anext(stream)
    assert isinstance(first, TextDelta)
    await stream.aclose()  # type: ignore[attr-defined]

    heard = asyncio.Event()

    async def read() -> None:
        async for _ in provider.stream(call):
            heard.set()
            await asyncio.Event().wait()

    reading = asyncio.create_task(read())
    await heard.wait()
    reading.cancel()
    await asyncio.wait({reading})
    assert reading.cancelled()
    reply = await answered(provider, kit)
    assert reply.message.text == "words " * 50
    await provider.close()


@provider_case
async def many_calls_at_once_do_not_mix(kit: ProviderKit) -> None:
    """64 of them."""
    provider = await kit.open({"text": "a " * 100, "tool_calls": [{"name": "now"}]})
    replies = await asyncio.gather(*(answered(provider, kit) for _ in range(64)))
    assert {reply.message.text for reply in replies} == {"a " * 100}
    ids = {part.id for reply in replies for part in reply.message.parts if type(part) is ToolCall}
    assert len(ids) == 64
    await provider.close()
