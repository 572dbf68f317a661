"""Every limit, deadline and switch of Turnkeeper, by name, with its unit at the end and its default.

A value comes from the first of these that gives one: a flag of the command line, the environment
(`TURNKEEPER_QUEUE_CAP=8`), the file `turnkeeper.toml` (in the data folder, else in the current folder,
or the one that TURNKEEPER_CONFIG names), the default below. A name that nobody knows and a value that
cannot be used are refused with one sentence. No secret is ever a setting: the agents file names the
environment variable that holds one.
"""

from __future__ import annotations

import os
import tomllib
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from turnkeeper.errors import SettingInvalid

Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Budget = Annotated[int, Field(ge=0)]
Phrase = Annotated[str, Field(min_length=2, max_length=200)]
"""How often something may happen; 0 switches it off."""


def _network(value: str) -> str:
    """An address or network, as `ipaddress` writes it. Raises ValueError."""
    return str(ip_network(value))


Network = Annotated[str, AfterValidator(_network)]
"""An address such as `127.0.0.1`, or a network such as `10.1.0.0/16`."""

CONFIG_FILE = "turnkeeper.toml"
ENVIRONMENT_PREFIX = "TURNKEEPER_"


class Settings(BaseSettings):
    """The effective settings of one process; they do not change while it runs."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENVIRONMENT_PREFIX,
        use_attribute_docstrings=True,
        env_parse_none_str="none",
    )

    # --- the queue of a conversation

    queue_cap: Count = 32
    """Most messages that may wait in one conversation; one more is answered 429."""
    text_bytes_max: Bytes = 1_000_000
    """Most bytes (UTF-8) of text in one message."""
    parts_max: Count = 100
    """Most parts of one message."""
    options_bytes_max: Bytes = 65_536
    """Most bytes of the `options` of one message, as JSON."""
    options_depth_max: Count = 32
    """Most levels of objects and lists inside the `options` of one message."""
    title_chars_max: Count = 200
    """Most characters of a conversation's title."""
    key_chars_max: Count = 255
    """Most characters of an Idempotency-Key."""
    undo_seconds: Seconds = 30.0
    """How long a deleted conversation can be brought back."""

    # --- one model call

    first_token_seconds: Seconds = 25.0
    """Longest wait for the first data of a model call."""
    stall_seconds: Seconds = 20.0
    """Longest silence after that; only data-bearing events count."""
    total_seconds: Seconds = 180.0
    """Longest model call."""
    reasoning_first_token_seconds: Seconds = 120.0
    """As first_token_seconds, for agents marked as reasoning."""
    reasoning_stall_seconds: Seconds = 90.0
    """As stall_seconds, for agents marked as reasoning."""
    reasoning_total_seconds: Seconds = 1800.0
    """As total_seconds, for agents marked as reasoning."""

    # --- one turn

    rounds_max: Count = 50
    """Most rounds of one turn."""
    max_turn_seconds: Seconds | None = None
    """Hard limit for one turn; none by default."""
    backstop_seconds: Seconds = 1800.0
    """A running turn without any evidence of work for this long is ended as failed."""
    turn_tokens_max: Count | None = None
    """Most tokens, in and out, that one turn may use; none by default."""
    auto_resumes_max: Budget = 1
    """Automatic resumes of a turn after a failure of the provider."""
    rate_limit_waits_max: Budget = 3
    """Waits of a turn for a provider's 429 with Retry-After."""
    rate_limit_wait_seconds: Seconds = 300.0
    """Longest such waits of a turn together."""
    refused_resends_max: Budget = 1
    """Re-sends of a refused request whose feed has changed."""
    compactions_max: Budget = 2
    """Summaries that a turn may have made of a conversation that has grown too long."""
    leak_resamples_max: Budget = 2
    """New samples of a round whose answer leaked inner text."""
    rescues_max: Budget = 2
    """Interruptions after which a turn is still taken up again by itself; the next one parks it."""
    tool_timeout_seconds: Seconds = 120.0
    """Longest run of a tool that names no time of its own."""
    tool_result_bytes_max: Bytes = 60_000
    """Most bytes of a tool result in the feed; more is cut, visibly."""
    tool_stop_grace_seconds: Seconds = 2.0
    """How long tools that run when their turn is stopped may take to give their result."""
    calls_per_round_max: Count = 256
    """Most tool calls of one message that are run; the others are refused, visibly."""
    parallel_calls_max: Count = 16
    """Most tool calls of one turn that run at the same time."""
    arguments_bytes_max: Bytes = 1_000_000
    """Most bytes of the arguments of one tool call."""
    kept_messages_max: Budget = 100_000
    """Most messages that an agent keeps in memory from one turn to the next, over all conversations."""
    kept_chars_max: Budget = 10_000_000
    """... and about how much text they may hold together."""
    draft_interval_seconds: Seconds = 0.5
    """The text of a running answer is journaled at least this often."""
    draft_bytes: Bytes = 4_000
    """... and after at most this much new text."""
    confirmation_expiry_seconds: Seconds = 60.0
    """After this long a dangerous confirmation no longer acts."""
    dangerous_phrases: tuple[Phrase, ...] = ()
    """Phrases of your own by which a person confirms something dangerous; they expire as the built-in ones do."""
    resume_window_seconds: Seconds = 1800.0
    """After an interruption, an answer that was under way is resumed within this time."""
    approval_seconds: Seconds = 600.0
    """How long a question for approval can be answered, where a person is looking."""
    approval_away_seconds: Seconds = 86_400.0
    """The same in turns of webhooks, bots and schedules, where nobody is."""
    connect_seconds: Seconds = 86_400.0
    """How long a call that needs a sign-in waits for it."""

    # --- the lane

    lease_seconds: Seconds = 30.0
    """How long a process holds the lane of a running turn without renewing."""
    lease_renew_seconds: Seconds = 10.0
    """How often it renews."""
    sweep_seconds: Seconds = 5.0
    """How often every lane is looked at again, whatever was or was not announced."""
    idle_lanes_max: Count = 1000
    """Lanes without a turn that are kept in memory; the ones above it are loaded again when they are needed."""
    stop_grace_seconds: Seconds = 10.0
    """How long a stopped turn may take to end by itself; then it is ended without it."""
    shutdown_grace_seconds: Seconds = 5.0
    """How long running turns may take to reach a good point when the server stops; then they are handed back."""

    # --- command-line agents in a terminal

    evidence_gate_seconds: Seconds = 75.0
    """A turn given to a CLI without evidence of delivery for this long is uncertain."""
    pane_check_seconds: Seconds = 5.0
    """How often a pane is looked at."""
    pane_misses_max: Count = 3
    """Looks in a row that must miss a pane before it counts as dead."""
    transcript_ask_seconds: Seconds = 6.0
    """How long after the last Enter the CLI's transcript is asked."""
    unsubmitted_seconds: Seconds = 60.0
    """A message that still stands unsent in the composer after this long has failed."""
    merge_bytes_max: Budget = 4_000_000
    """A CLI's record of at most this many bytes is merged whole after every turn; a longer one only when something
    of it may have been missed."""

    # --- the records of command-line agents, and sessions of other programs

    transcript_line_bytes_max: Bytes = 67_108_864
    """Longest line that is read of a CLI's record; a longer one is counted as malformed and passed over."""
    transcript_unpacked_bytes_max: Bytes = 4_294_967_296
    """Most bytes that are read of one record, unpacked if it is compressed; what comes behind is cut off, visibly."""
    transcript_document_bytes_max: Bytes = 536_870_912
    """Most bytes that are read of a record which is one JSON document and has to be held whole."""
    transcript_copied_bytes_max: Bytes = 2_147_483_648
    """Largest database of a CLI that is copied aside to be read, which one left open by a crash has to be."""
    transcript_busy_seconds: Seconds = 2.0
    """How long a database that a CLI has locked is waited for."""
    transcript_folder_files_max: Count = 4096
    """Most files of a folder that are looked at for one thread."""
    transcript_related_files_max: Count = 64
    """Most files of a folder that are compared with each other to find a fork and its parent."""
    case_bytes_max: Bytes = 536_870_912
    """Largest case that `turnkeeper feed` reads."""
    session_bytes_max: Bytes = 2_147_483_648
    """Largest JSON session of another program that `turnkeeper doctor` reads."""

    # --- what clients are given

    live_tail_rows: Count = 200
    """Rows of the newest page of a timeline."""
    page_rows_max: Count = 500
    """Most rows of one page of any list."""
    resync_events: Count = 10_000
    """A stream that would have to replay more events than this is told to load a snapshot instead."""
    stream_buffer_items: Count = 1_000
    """A reader that falls behind by more live items than this is dropped whole and told to resync."""
    stream_blocked_seconds: Seconds = 60.0
    """A stream whose reader takes nothing for this long is closed."""
    sse_heartbeat_seconds: Seconds = 15.0
    """A silent stream carries a comment this often."""
    sse_retry_ms: Count = 1_000
    """What an event stream tells browsers to wait before they reconnect."""
    token_check_seconds: Seconds = 2.0
    """How often the tokens behind open streams are checked; a revoked one ends them."""

    # --- the server

    host: str = "127.0.0.1"
    """The address to listen on. Other addresses than this machine's own need `remote`."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8_321
    """The port to listen on; 0 takes a free one."""
    remote: bool = False
    """Allow an address that other machines can reach. Everything needs a token or a sign-in all the same."""
    public_url: str | None = None
    """The address under which people reach the server through a proxy, such as `https://chat.example`."""
    allowed_hosts: tuple[str, ...] = ()
    """Further host names under which the server may be called, such as the name of a proxy in front."""
    allowed_origins: tuple[str, ...] = ()
    """Further origins of pages that may call the server, such as `https://chat.example`."""
    sign_in_seconds: Seconds = 900.0
    """How long the printed one-time address can be used."""
    session_seconds: Seconds = 2_592_000.0
    """How long a browser stays signed in."""
    header_bytes_max: Bytes = 65_536
    """Most bytes of a request's address and headers together."""
    body_bytes_max: Bytes = 4_000_000
    """Most bytes of a request body that is not an upload."""
    attachment_bytes_max: Bytes = 50_000_000
    """Most bytes of one uploaded file."""
    connections_max: Count | None = None
    """Most connections at a time; none by default."""

    # --- the store

    busy_timeout_seconds: Seconds = 5.0
    """How long a locked database is waited for."""
    journal_size_bytes_max: Bytes = 67_108_864
    """The write-ahead log is cut back to this size when it is idle."""
    commit_batch_max: Count = 256
    """Most appends that share one transaction."""

    # --- recordings

    transcriber_url: str | None = None
    """Where recordings are written down: an OpenAI-compatible API, such as `https://api.openai.com/v1`; none by default."""
    transcriber_model: str = "whisper-1"
    """The model that is asked there."""
    transcriber_key_env: str | None = None
    """The environment variable that holds the key for it; none for a server that wants no key."""
    transcriber_key_file: str | None = None
    """... or the file that holds it."""
    transcriber_bytes_max: Bytes = 25_000_000
    """Most bytes of a recording that is written down; a longer one stays a file."""
    transcriber_seconds: Seconds = 120.0
    """Longest wait for the words of one recording."""
    transcript_chars_max: Count = 100_000
    """Most characters of them; more is cut."""

    # --- notifications

    push_browsers_max: Count = 10
    """Most browsers of one person that are told by web push; the oldest goes for one more."""
    push_contact: str = "mailto:turnkeeper@localhost"
    """Whom a push service may write to about this server: a `mailto:` or `https:` address."""

    # --- safety

    masking: bool = True
    """Mask secrets (known patterns and every configured one) in journal, logs, exports and evidence."""
    mask_patterns: tuple[str, ...] = ()
    """Further regular expressions of what is secret."""
    private_addresses_allowed: tuple[Network, ...] = ()
    """Private addresses and networks that tools, sign-ins and hooks may reach, such as `127.0.0.1` or `10.1.0.0/16`."""
    outbound_bytes_max: Bytes = 10_000_000
    """Most bytes of one answer from an address that somebody supplied."""
    outbound_seconds: Seconds = 30.0
    """Longest silence of such an address before it is given up."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least weight of what is logged."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then the environment, then the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @classmethod
    def load(cls, file: Path | None = None, **flags: Any) -> Settings:
        """The settings of flags, environment and `file`, in this order; a flag of None was not given.

        Raises SettingInvalid, which names the first setting that cannot be used and says why.
        """
        if file is not None and not file.is_file():
            raise SettingInvalid(name=str(file), why="there is no such file")

        class FromFile(cls):  # type: ignore[valid-type,misc]
            model_config = SettingsConfigDict(toml_file=file)

        try:
            found = FromFile(**{name: v for name, v in flags.items() if v is not None})
        except ValidationError as error:
            raise _refusal(error, file) from None
        except SettingsError as error:
            raise SettingInvalid(name="environment", why=f"{error} (lists are written as JSON)") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingInvalid(name=str(file), why=f"it is not TOML: {error}") from None
        except OSError as error:
            raise SettingInvalid(name=str(file), why=f"it cannot be read: {error}") from None
        return cls.model_construct(**found.model_dump())


def find_file(data: Path | None) -> Path | None:
    """The settings file to use: TURNKEEPER_CONFIG, else the one in `data`, else the one here, else none."""
    named = os.environ.get("TURNKEEPER_CONFIG")
    if named:
        return Path(named)
    places = [Path(CONFIG_FILE)] if data is None else [data / CONFIG_FILE, Path(CONFIG_FILE)]
    return next((place for place in places if _is_there(place)), None)


def _is_there(place: Path) -> bool:
    """Whether a file is there; in a folder that this user may not look into there is none for them."""
    try:
        return place.is_file()
    except PermissionError:
        return False


def names_in(file: Path | None) -> frozenset[str]:
    """The settings that `file` gives, for telling where a value comes from; it was loaded before."""
    if file is None:
        return frozenset()
    with file.open("rb") as stream:
        return frozenset(tomllib.load(stream))


def _refusal(error: ValidationError, file: Path | None) -> SettingInvalid:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(step) for step in first["loc"]) or str(file)
    if first["type"] == "extra_forbidden":
        where = "" if file is None else f" (in {file})"
        return SettingInvalid(name=name, why=f"there is no setting of this name{where}")
    return SettingInvalid(
        name=name, why=f"{first['msg'][:1].lower()}{first['msg'][1:]}, got {first.get('input')!r}"
    )
