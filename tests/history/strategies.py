"""Histories for property tests: likely ones, sick ones and plain nonsense."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Attachment, Opaque, Part, Text, Thinking, ToolCall, ToolResult

HERE = Origin("anthropic", "m", "acct")
ORIGINS = (None, HERE, Origin("anthropic", "other", "acct"), Origin("openai-responses", "m", "org"))
WORDS = (
    "hello",
    "and?",
    "yes",
    "",
    "  \n ",
    "Old pond \n",
    "confirm forced reboot",
    "half \ud83d and \0 nul",
    "\ud83d\ude00",
    '<tool_call>\n{"name": "x"}\n</tool_call>',
    "Look: `<tool_call>` is a tag.",
    "確認強制重開機",
    "Continue.",
    "(empty message)",
)
IDS = ("c1", "c2", "c3", "", "call with spaces", "ünï", "x" * 70)
NAMES = ("act", "read_file", "", "a.b/c", "search<|channel|>commentary")
ARGUMENTS = (
    {},
    {"a": 1},
    {"path": "x", "n": [1, {"deep": None}]},
    None,
    [],
    '{"a": 2}',
    "{broken",
    {"k": "\udc00\0"},
    7,
)
CONTENTS = (
    "ok",
    "",
    " ",
    None,
    [],
    [{"type": "text", "text": "words"}],
    {"exit_code": 130, "error": "interrupted"},
    '{"output": "", "exit_code": -1, "status": "interrupted by user"}',
    "exit_code: 1305 interrupt",
    "[command interrupted]",
    "a\udc00b",
    {"rows": 3},
)  # fmt: skip

texts = st.sampled_from(WORDS).map(Text)
thinkings = st.builds(
    Thinking,
    st.sampled_from(("so", "", "let me see")),
    signature=st.sampled_from((None, "sig", "sig2")),
    bound=st.sampled_from((None, {"item_id": "rs_1"})),
)
calls = st.builds(
    ToolCall,
    st.sampled_from(IDS),
    st.sampled_from(NAMES),
    st.sampled_from(ARGUMENTS),
    arguments_raw=st.sampled_from((None, None, '{"a": 3}', '{"cut')),
    server_side=st.sampled_from((False, False, False, True)),
    bound=st.sampled_from((None, None, {"item_id": "fc_1"}, {"thought_signature": "TS"})),
)
results = st.builds(
    ToolResult,
    st.sampled_from(IDS),
    st.sampled_from(CONTENTS),
    is_error=st.booleans(),
    synthetic=st.sampled_from((False, False, True)),
    server_side=st.sampled_from((False, False, False, True)),
)
attachments = st.builds(
    Attachment,
    st.sampled_from(("f1", "f2")),
    name=st.sampled_from(("", "photo.png", "\udc00.txt")),
    media_type=st.sampled_from(("image/png", "text/plain")),
)
opaques = st.builds(
    Opaque,
    kind=st.just("odd"),
    data=st.none(),
    block=st.sampled_from((msgspec.UNSET, msgspec.Raw(b'{"type": "redacted_thinking", "data": "zz"}'))),
)
parts: st.SearchStrategy[Part] = st.one_of(texts, texts, calls, results, thinkings, attachments, opaques)


def messages(
    role: st.SearchStrategy[str], content: st.SearchStrategy[Part], **fields: st.SearchStrategy[object]
) -> st.SearchStrategy[Message]:
    return st.builds(
        Message, message_id=st.just("?"), role=role, parts=st.lists(content, max_size=4).map(tuple), **fields
    )


flags = {
    "replay": st.sampled_from((True, True, True, False)),
    "standing": st.sampled_from(("complete",) * 5 + ("interrupted", "errored", "superseded", "leaked")),
    "origin": st.sampled_from(ORIGINS),
    "provenance": st.sampled_from(("submitted",) * 8 + ("summary", "turnkeeper")),
    "submission_id": st.sampled_from((None, None, None, "s1", "s2")),
}
nonsense = messages(
    st.sampled_from(("user", "assistant", "tool", "system", "notice", "event")), parts, **flags
)
likely = st.one_of(
    messages(st.just("user"), texts, provenance=st.sampled_from(("submitted",) * 3 + ("summary",))),
    messages(st.just("assistant"), st.one_of(texts, calls), origin=st.sampled_from(ORIGINS)),
    messages(st.just("assistant"), st.one_of(thinkings, texts, calls), origin=st.just(HERE)),
    messages(st.just("tool"), results),
)


def number(history: list[Message], start: int = 0) -> list[Message]:
    """The same messages with ids of their own."""
    return [msgspec.structs.replace(m, message_id=f"m{start + i}") for i, m in enumerate(history)]


histories = st.lists(st.one_of(likely, likely, nonsense), max_size=12).map(number)
