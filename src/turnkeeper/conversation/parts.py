"""The parts of a message: text, thinking, tool calls and results, attachments, and blocks we do not know.

`block` holds, word for word, the provider's own block that a part was read from. It is bound to the
message's `origin` (provider + model + account) and is sent back only there; it is UNSET where the part's own
fields rebuild that block byte for byte. `bound` holds single provider-bound values (signature,
thought_signature, item_id, encrypted_content) where no whole block exists.
"""

from __future__ import annotations

from typing import Any

import msgspec

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict of the same."""


class Text(msgspec.Struct, frozen=True, tag="text", tag_field="type", omit_defaults=True):
    """Words."""

    text: str
    bound: dict[str, Json] | None = None
    block: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Thinking(msgspec.Struct, frozen=True, tag="thinking", tag_field="type", omit_defaults=True):
    """A model's reasoning; never an answer, never the end of a turn."""

    text: str
    signature: str | None = None
    bound: dict[str, Json] | None = None
    block: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", tag_field="type", omit_defaults=True):
    """What the model asked a tool to do.

    `arguments` is the object that was executed (or would be). `arguments_raw` is the text as it was
    streamed, kept when it differs or could not be read. `server_side` marks a call that the provider
    runs itself.
    """

    id: str
    name: str
    arguments: Json = msgspec.field(default_factory=dict)
    arguments_raw: str | None = None
    server_side: bool = False
    bound: dict[str, Json] | None = None
    block: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", tag_field="type", omit_defaults=True):
    """What came back. `content` is text, or a list of parts as the tool gave them.

    `synthetic` marks a result that Turnkeeper wrote because no tool did; `disposition` is done, failed,
    unknown or refused.
    """

    tool_call_id: str
    content: Json = ""
    is_error: bool = False
    synthetic: bool = False
    name: str | None = None
    disposition: str | None = None
    server_side: bool = False
    bound: dict[str, Json] | None = None
    block: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Attachment(msgspec.Struct, frozen=True, tag="attachment", tag_field="type", omit_defaults=True):
    """A file: content-addressed, beside the database. `media_type` comes from its bytes."""

    attachment_id: str
    name: str = ""
    media_type: str = "application/octet-stream"
    size_bytes: int = 0
    sha256: str = ""
    transcript: str | None = None
    """The words of a recording, once they are known."""


class Opaque(msgspec.Struct, frozen=True, tag="opaque", tag_field="type", omit_defaults=True):
    """A block of a kind that this version does not know: kept, shown, sent back to its origin only."""

    kind: str
    data: Json = None
    block: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


Part = Text | Thinking | ToolCall | ToolResult | Attachment | Opaque


def plain_text(parts: tuple[Part, ...]) -> str:
    """The words of `parts`, without thinking and tools, as a person would read them."""
    return "".join([p.text for p in parts if type(p) is Text])
