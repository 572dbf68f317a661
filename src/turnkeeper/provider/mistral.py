"""The Mistral dialect: Chat Completions with an order of roles and call ids of its own. Pure.

Call ids have nine letters and digits, which every tokenizer version takes (M1). Between a tool message and
a user message stands an assistant message (M3: the hosted API refuses a user there). Tokenizers before V5
get words and calls in two messages (M2): provider `mistral-v3`. The rules stand in `mistral_rules`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from turnkeeper.provider import openai_chat
from turnkeeper.provider.mistral_rules import validate
from turnkeeper.provider.openai_chat import AFTER_TOOL, Variant
from turnkeeper.provider.wire import Encoded

__all__ = ["VARIANTS", "encode", "validate"]

DIALECT: Final = "mistral"

VARIANTS: Final[dict[str, Variant]] = {
    "mistral": Variant(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        key_name="MISTRAL_API_KEY",
        id_keep=r"[a-zA-Z0-9]{9}\Z",
        id_length=9,
        stream_usage=False,
        after_tool=AFTER_TOOL,
    )
}
VARIANTS["mistral-v3"] = msgspec.structs.replace(VARIANTS["mistral"], name="mistral-v3", split_calls=True)


def encode(*args: Any, v3: bool = False, **kwargs: Any) -> Encoded:
    """The request for a cleaned feed; the arguments are those of `openai_chat.encode`."""
    variant = VARIANTS["mistral-v3" if v3 else "mistral"]
    return msgspec.structs.replace(openai_chat.encode(*args, variant=variant, **kwargs), dialect=DIALECT)
