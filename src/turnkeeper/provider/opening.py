"""Opens the provider that an agent names: which dialect, which address, which key; nothing secret is kept.

Keys come from an environment variable or a file, read when the provider is opened. They never enter an
error, a log, a repr or the journal; of a key only a short fingerprint is kept, as the account that
provider-bound data belongs to.
"""

from __future__ import annotations

from typing import Final

from turnkeeper.errors import ConfigError
from turnkeeper.port.clock import Clock
from turnkeeper.port.provider import Provider
from turnkeeper.provider.build import Report
from turnkeeper.provider.script import Script
from turnkeeper.provider.scripted import Scripted
from turnkeeper.provider.wire import Files

SCRIPTED: Final = "scripted"


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

    Raises ConfigError for an unknown provider, a missing key or a missing model; ScriptInvalid for a script.
    """
    if provider == SCRIPTED:
        return Scripted(clock, script, model=model or SCRIPTED, files=files, report=report)
    raise ConfigError(why=f"there is no provider {provider!r}")
