"""The dialects by name: one place to encode a feed for a provider and to judge a request body.

Names: `anthropic`, `bedrock` (Anthropic with Bedrock's strictness), `openai-chat` (OpenAI itself) and its
variants `deepseek`, `kimi`, `vllm`, `ollama`; `openai-responses`; `gemini`; `mistral` and `mistral-v3`
(tokenizers before V5). Encoding wants a cleaned feed (the history room); it is pure:
the same feed, origin and options give the same bytes, and a longer feed never changes what came before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.errors import BadInput
from turnkeeper.port.provider import ToolSpec
from turnkeeper.provider import anthropic, gemini, mistral, openai_chat, openai_responses
from turnkeeper.provider.wire import Encoded, Files, Violation


class Dialect(msgspec.Struct, frozen=True):
    """The pure functions of one dialect."""

    name: str
    encode: Callable[..., Encoded]
    validate: Callable[..., tuple[Violation, ...]]
    body_fields: tuple[str, ...]
    """The fields of the body that are the request proper: what `turnkeeper feed` prints."""

    @property
    def turns_field(self) -> str:
        """The field of the body that holds the conversation."""
        return next(name for name in self.body_fields if name in ("messages", "input", "contents"))


DIALECTS: Final[dict[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (
        Dialect("anthropic", anthropic.encode, anthropic.validate, ("system", "messages", "thinking")),
        Dialect(
            "bedrock",
            partial(anthropic.encode, bedrock=True),
            partial(anthropic.validate, bedrock=True),
            ("system", "messages", "thinking"),
        ),
        *(
            Dialect(
                "openai-chat" if name == "openai" else name,
                partial(openai_chat.encode, variant=variant),
                partial(openai_chat.validate, variant=name),
                ("messages",),
            )
            for name, variant in openai_chat.VARIANTS.items()
        ),
        Dialect("openai-responses", openai_responses.encode, openai_responses.validate, ("input",)),
        Dialect("gemini", gemini.encode, gemini.validate, ("contents",)),
        Dialect("mistral", mistral.encode, mistral.validate, ("messages",)),
        Dialect(
            "mistral-v3",
            partial(mistral.encode, v3=True),
            partial(mistral.validate, v3=True),
            ("messages",),
        ),
    )
}


def dialect_named(name: str) -> Dialect:
    """The dialect `name`; "any" is anthropic. Raises BadInput for an unknown one."""
    found = DIALECTS.get("anthropic" if name == "any" else name)
    if found is None:
        raise BadInput(f"There is no provider {name!r}. Known: any, {', '.join(sorted(DIALECTS))}.")
    return found


def encode(
    dialect: str,
    feed: Sequence[Message],
    *,
    origin: Origin,
    instructions: str = "",
    tools: Sequence[ToolSpec] = (),
    options: dict[str, Any] | None = None,
    files: Files | None = None,
) -> Encoded:
    """The request of a cleaned feed in `dialect`. See the dialect's own `encode` for its options."""
    return dialect_named(dialect).encode(
        feed, origin=origin, instructions=instructions, tools=tools, options=options, files=files
    )


def validate(dialect: str, body: Any) -> tuple[Violation, ...]:
    """Every wire rule that a request body breaks; empty when the provider would accept it."""
    return dialect_named(dialect).validate(body)
