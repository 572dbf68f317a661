"""Each rule is needed: switched off, at least one case and one property fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from tests.history.expect import judge
from tests.history.strategies import histories
from tests.history.test_cases import FILES
from tests.history.test_properties import client_calls, expiries, shape_faults
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Attachment, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from turnkeeper.conversation.turns import Effect
from turnkeeper.foreign.case import feed_case
from turnkeeper.history import feed as feed_module
from turnkeeper.history.feed import Feed, build_feed
from turnkeeper.history.leak import find_leak
from turnkeeper.history.pairing import is_interrupted
from turnkeeper.history.row import Rule
from turnkeeper.history.rules import RULES, settle
from turnkeeper.history.tools import effect_of
from turnkeeper.history.wording import EXPIRED_CONFIRMATION

ONCE = tuple(dict.fromkeys(RULES))


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rule], None]:
    """Switch a rule off for the rest of the test."""

    def switch_off(rule: Rule) -> None:
        rules = tuple(r for r in RULES if r is not rule)
        monkeypatch.setattr(feed_module, "settle", partial(settle, rules=rules))

    return switch_off


@pytest.mark.parametrize("rule", ONCE, ids=lambda rule: rule.__name__)
def test_without_the_rule_a_case_fails(rule: Rule, without: Callable[[Rule], None]) -> None:
    without(rule)
    for path in FILES.values():
        case = json.loads(path.read_text("utf-8"))
        try:
            wrong = judge(case, feed_case(case), feed_case)
        except Exception:  # a feed that breaks the report breaks the case too
            return
        if wrong:
            return
    pytest.fail(f"no case needs {rule.__name__}")


def content_faults(history: Sequence[Message], expired: frozenset[str], feed: Feed) -> list[str]:
    """What holds for the content of a feed, whatever the history; its shape is judged elsewhere."""
    faults: list[str] = []
    # A summary speaks from the user's side; an answer that is marked as one is an answer.
    if sum(m.provenance == "summary" and m.role == "user" for m in feed.messages) > 1:
        faults.append("two summaries")
    by_source: dict[str, list[Message]] = {}
    for m, sources in zip(feed.messages, feed.sources, strict=True):
        for source in sources:
            by_source.setdefault(source, []).append(m)
    for message in history:
        fed = by_source.get(message.message_id, [])
        said = [part for m in fed for part in m.parts if m.role == "user"]
        stale = message.message_id in expired and message.role == "user" and message.replay
        if stale and said and EXPIRED_CONFIRMATION not in [p.text for p in said if isinstance(p, Text)]:
            faults.append("an expired confirmation")
        whole = message.replay and message.standing == "complete"
        thoughts = [p for p in message.parts if isinstance(p, Thinking)]
        if message.role == "assistant" and not whole and any(p in m.parts for p in thoughts for m in fed):
            faults.append("an attempt that was set aside")
    asked = "\n".join(m.text for m in history if m.role in ("user", "system", "notice"))
    for message in feed.messages:
        faults += message_faults(message, asked)
    for before, message in zip(feed.messages, feed.messages[1:], strict=False):
        if before.role == "assistant" and message.role == "tool":
            lookups = all(effect_of(c.name, {}) is Effect.READ_ONLY for c in client_calls(before))
            unknown = all(isinstance(p, ToolResult) and p.disposition == "unknown" for p in message.parts)
            if lookups and unknown and client_calls(before):
                faults.append("an unfinished lookup")
    if any(m.role == "system" for m in feed.messages[1:]):
        faults.append("instructions in the middle")
    return faults


def holds_a_block(part: Part) -> bool:
    """Whether it is what a provider gave and we do not know: it may go back to that provider, as it came."""
    return isinstance(part, Opaque) and part.block is not msgspec.UNSET


def message_faults(message: Message, asked: str) -> list[str]:
    faults: list[str] = []
    if message.role == "assistant":
        if find_leak(message, asked=asked) is not None:
            faults.append("a leak")
        answers = {p.tool_call_id for p in message.parts if isinstance(p, ToolResult)}
        if any(isinstance(p, ToolCall) and p.server_side and p.id not in answers for p in message.parts):
            faults.append("a server's call without a result")
    if message.role == "user":
        if not all(isinstance(p, Text | Attachment) or holds_a_block(p) for p in message.parts):
            faults.append("a part out of place")
        texts = [p.text for p in message.parts if isinstance(p, Text)]
        if len(message.parts) == len(texts) == 2 and texts[0] == texts[1] == "hello":
            faults.append("a repeated request")
    if message.role == "tool":
        faults += [
            "an interrupted result" for p in message.parts if isinstance(p, ToolResult) and is_interrupted(p)
        ]
    return faults


ODD = msgspec.Raw(b'{"type": "search_result", "source": "x"}')


@settings(max_examples=150, deadline=None)
@given(histories, expiries)
@example([Message(message_id="m0", role="user", parts=(Opaque("odd", block=ODD),))], frozenset())
@example([Message(message_id="m0", role="user", parts=(Opaque("odd"),))], frozenset())
def test_every_feed_holds_what_it_may_hold(history: list[Message], expired: frozenset[str]) -> None:
    plain = [msgspec.structs.replace(m, parts=m.parts[:1]) if m.role == "user" else m for m in history]
    feed = build_feed(plain, expired=expired)
    assert content_faults(plain, expired, feed) == []


@pytest.mark.parametrize("rule", ONCE, ids=lambda rule: rule.__name__)
def test_without_the_rule_a_property_fails(rule: Rule, without: Callable[[Rule], None]) -> None:
    without(rule)

    @settings(
        max_examples=3000,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(histories, expiries)
    def the_properties(history: list[Message], expired: frozenset[str]) -> None:
        plain = [msgspec.structs.replace(m, parts=m.parts[:1]) if m.role == "user" else m for m in history]
        feed = build_feed(plain, expired=expired)
        assert shape_faults(feed.messages) == []
        assert content_faults(plain, expired, feed) == []
        again = build_feed(feed.messages, expired=expired)
        assert again.messages == feed.messages

    with pytest.raises(Exception):  # noqa: B017 - whatever way a property fails in
        the_properties()
