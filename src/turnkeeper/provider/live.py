"""One tiny call to each configured model, and what came of it: `turnkeeper config check --live`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from turnkeeper.conversation.messages import USER, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.errors import ConfigError
from turnkeeper.port.clock import Clock
from turnkeeper.port.provider import Deadlines, ModelCall, ProviderFailed, Reply
from turnkeeper.provider.opening import open_provider

LIVE_DEADLINES: Final = Deadlines(first_token_seconds=30.0, stall_seconds=15.0, total_seconds=45.0)
LIVE_TOKENS_MAX: Final = 16
"""The most tokens that one check may cost in output: the smallest number that every provider takes."""
AT_ONCE_MAX: Final = 4

QUESTION: Final = "Reply with the word ok."


class LiveCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What one call showed."""

    name: str
    """Whose model this is: the agent's name, as configured."""
    provider: str
    model: str
    works: bool
    sentence: str
    """What works, or what is wrong and what to do."""
    seconds: float = 0.0
    kind: str | None = None
    """The failure's kind."""


async def check_live(
    models: Mapping[str, Mapping[str, Any]],
    *,
    clock: Clock,
    deadlines: Deadlines = LIVE_DEADLINES,
) -> tuple[LiveCheck, ...]:
    """Call every model once. `models` maps a name to the arguments of `open_provider`; never raises for one."""
    gate = asyncio.Semaphore(AT_ONCE_MAX)

    async def check(name: str, fields: Mapping[str, Any]) -> LiveCheck:
        async with gate:
            return await _check(name, fields, clock, deadlines)

    return tuple(await asyncio.gather(*(check(name, fields) for name, fields in models.items())))


async def _check(name: str, fields: Mapping[str, Any], clock: Clock, deadlines: Deadlines) -> LiveCheck:
    provider, model = str(fields.get("provider", "")), str(fields.get("model", ""))
    began = time.monotonic()

    def result(works: bool, sentence: str, kind: str | None = None) -> LiveCheck:
        return LiveCheck(
            name=name,
            provider=provider,
            model=model,
            works=works,
            sentence=sentence,
            seconds=round(time.monotonic() - began, 3),
            kind=kind,
        )

    try:
        opened = open_provider(clock=clock, **fields)
    except ConfigError as error:
        return result(False, error.sentence, "config")
    try:
        ask = Message(message_id="m1", role=USER, parts=(Text(QUESTION),))
        body = opened.build([ask], instructions="", tools=(), options={"max_tokens": LIVE_TOKENS_MAX})
        call = ModelCall(body=body, deadlines=deadlines, newest_user_text=QUESTION)
        async for event in opened.stream(call):
            if isinstance(event, Reply):
                words = event.message.text.strip()[:40]
                return result(True, f"answered {words!r}" if words else "answered")
    except ProviderFailed as error:
        return result(False, error.failure.sentence, error.failure.kind)
    finally:
        await opened.close()
    return result(False, "The call ended without an answer.", "unknown")
