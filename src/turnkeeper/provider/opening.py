"""Opens the provider that an agent names: which dialect, which address, which key; nothing secret is kept.

Keys come from an environment variable or a file, read when the provider is opened. They never enter an
error, a log, a repr or the journal; of a key only a short fingerprint is kept, as the account that
provider-bound data belongs to.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from turnkeeper.conversation.messages import Origin
from turnkeeper.errors import ConfigError
from turnkeeper.port.clock import Clock
from turnkeeper.port.provider import Provider
from turnkeeper.provider import mistral, sdk_anthropic, sdk_gemini
from turnkeeper.provider.build import Report
from turnkeeper.provider.openai_chat import VARIANTS
from turnkeeper.provider.openai_chat_stream import ChatReader
from turnkeeper.provider.openai_responses_stream import ResponsesReader
from turnkeeper.provider.script import Script
from turnkeeper.provider.scripted import Scripted
from turnkeeper.provider.sdk_openai import OpenAIProvider
from turnkeeper.provider.wire import Files

SCRIPTED: Final = "scripted"
KEY_BYTES_MAX: Final = 10_000


ALL_VARIANTS: Final = {**VARIANTS, **mistral.VARIANTS}


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What opening a provider of one name takes."""

    dialect: str
    base_url: str
    key_name: str = ""
    """The environment variable that holds the key unless the agent names another; "" when none is needed."""


OPENINGS: Final[dict[str, Opening]] = {
    "anthropic": Opening(
        dialect="anthropic", base_url=sdk_anthropic.BASE_URL, key_name=sdk_anthropic.KEY_NAME
    ),
    "bedrock": Opening(dialect="bedrock", base_url=sdk_anthropic.BASE_URL, key_name=sdk_anthropic.KEY_NAME),
    "openai-responses": Opening(
        dialect="openai-responses",
        base_url=VARIANTS["openai"].base_url,
        key_name=VARIANTS["openai"].key_name,
    ),
    "gemini": Opening(dialect="gemini", base_url=sdk_gemini.BASE_URL, key_name=sdk_gemini.KEY_NAME),
    **{
        ("openai-chat" if name == "openai" else name): Opening(
            dialect="openai-chat" if name == "openai" else name,
            base_url=variant.base_url,
            key_name=variant.key_name,
        )
        for name, variant in ALL_VARIANTS.items()
    },
}


def provider_names() -> tuple[str, ...]:
    """Every provider that an agent may name."""
    return (SCRIPTED, *OPENINGS)


def open_provider(
    provider: str,
    *,
    clock: Clock,
    model: str = "",
    base_url: str | None = None,
    api_key_env: str | None = None,
    api_key_file: str | None = None,
    account: str | None = None,
    script: Script | str | None = None,
    files: Files | None = None,
    report: Report | None = None,
) -> Provider:
    """The provider `provider` with one model and one account.

    `account` names the account that provider-bound data belongs to; without it a fingerprint of the key
    stands for it. Raises ConfigError for an unknown provider, a missing model or key; ScriptInvalid.
    """
    if provider == SCRIPTED:
        return Scripted(clock, script, model=model or SCRIPTED, files=files, report=report)
    opening = OPENINGS.get(provider)
    if opening is None:
        raise ConfigError(why=f"there is no provider {provider!r}. Known: {', '.join(provider_names())}")
    if not model:
        raise ConfigError(why=f"an agent with provider {provider!r} must name its model")
    address = base_url or opening.base_url
    if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
        raise ConfigError(why="base_url must be a whole address such as https://host/v1")
    key = read_key(opening, address, provider, api_key_env, api_key_file)
    origin = Origin(provider, model, account or account_of(key, address, opening))
    shared: dict[str, Any] = {
        "origin": origin,
        "key": key,
        "base_url": address,
        "dialect": opening.dialect,
        "files": files,
        "report": report,
    }
    if opening.dialect in ("anthropic", "bedrock"):
        return sdk_anthropic.AnthropicProvider(**shared)
    if opening.dialect == "gemini":
        return sdk_gemini.GeminiProvider(**shared)
    own = base_url is None and provider in ("openai-chat", "openai-responses")
    if opening.dialect == "openai-responses":
        return OpenAIProvider(
            path="/responses",
            make_reader=ResponsesReader,
            fields={"stream": True},
            own_account=own,
            **shared,
        )
    variant = ALL_VARIANTS["openai" if provider == "openai-chat" else provider]
    usage = {"stream_options": {"include_usage": True}} if variant.stream_usage else {}
    return OpenAIProvider(
        path="/chat/completions",
        make_reader=ChatReader,
        fields={"stream": True, **usage},
        own_account=own,
        **shared,
    )


def read_key(
    opening: Opening, address: str, provider: str, api_key_env: str | None, api_key_file: str | None
) -> str:
    """The key, or "" where none is needed. Raises ConfigError naming the variable or file, never the key."""
    if api_key_file is not None:
        where = f"the file {api_key_file} (api_key_file)"
        try:
            key = key_in_file(api_key_file)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigError(why=f"the key cannot be read from {where}: {reason}") from None
    else:
        name = api_key_env or opening.key_name
        where = f"the environment variable {name}"
        key = os.environ.get(name, "").strip() if name else ""
        named = api_key_env is not None
        if not key and (named or (opening.key_name and address == opening.base_url)):
            why = f"provider {provider!r} needs a key: set {where}, or name another with api_key_env or api_key_file"
            raise ConfigError(why=why)
        if not named and address != opening.base_url:
            key = ""  # the key of the provider's own address is not shown to another one
    if api_key_file is not None and not key:
        raise ConfigError(why=f"{where} is empty")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(why=f"{where} holds characters that no key has")
    return key


def key_in_file(path: str) -> str:
    """The key that a file holds. Raises OSError, UnicodeDecodeError."""
    with Path(path).expanduser().open("rb") as file:
        return file.read(KEY_BYTES_MAX).decode().strip()


def account_of(key: str, address: str, opening: Opening) -> str:
    """Which account provider-bound data belongs to: the address, unless usual, and a fingerprint of the key."""
    parts = []
    if address != opening.base_url:
        parts.append(urlsplit(address).netloc.rpartition("@")[2])
    if key:
        parts.append(hashlib.blake2b(key.encode(), digest_size=4, person=b"tk-account").hexdigest())
    return "/".join(parts)
