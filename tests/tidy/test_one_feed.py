"""There is one feed builder, and no request to a model is made without it."""

from __future__ import annotations

import ast

from tests.tidy.tree import ROOT

SOURCE = ROOT / "src" / "turnkeeper"
BUILDERS = ("build_feed", "FeedBuilder")


def files(*rooms: str) -> list[tuple[str, str]]:
    found = [path for room in rooms for path in sorted((SOURCE / room).rglob("*.py"))]
    return [(path.relative_to(SOURCE).as_posix(), path.read_text("utf-8")) for path in found]


def test_only_the_feed_and_its_builder_run_the_rules() -> None:
    users = {where for where, code in files("") if "settle(" in code and "history.rules import" in code}
    assert users == {"history/feed.py", "history/builder.py"}


def test_whoever_encodes_messages_for_a_model_got_them_from_the_feed_builder() -> None:
    """A room above the providers that builds a body takes its messages from a feed, by itself or by its journal."""
    without = []
    for where, code in files("agent", "app", "foreign", "server", "cli"):
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
        encodes = any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr in ("build", "encode")
            and {"instructions", "origin"} & {word.arg for word in call.keywords}
            for call in calls
        )
        if encodes and not any(name in code for name in (*BUILDERS, ".feed()", "feed.messages")):
            without.append(where)
    assert without == []
