"""Scripts: what a scripted model says, as a JSON file. `scripted` and the loopback model server play them.

    {"rules": [{"match": "regex searched in the newest user text", "rounds": [
        {"text": "...", "chars_per_s": 200},
        {"tool_calls": [{"name": "echo", "arguments": {"text": "hi"}}]},
        {"stall_s": 30},
        {"error": {"status": 529}},
        {"text": "...", "cut": true}]}]}

The first rule that matches wins; without one the answer is `ok <text>`. A round is played in the order of
the fields in `Round`. Round n of a turn answers its n-th model call (finished rounds plus failed attempts);
behind the last round, a fault is repeated and anything else is answered `ok <text>`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import regex

from turnkeeper.errors import ScriptInvalid

PATTERN_SECONDS_MAX: Final = 0.25
"""How long one pattern may search; a longer one is an error that names it."""
SCRIPT_BYTES_MAX: Final = 10_000_000


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. `raw_arguments` is sent as it is, however broken; `id` is made up when absent."""

    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None
    raw_arguments: str | None = None


class ScriptedError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error of the provider. As the first thing of a round it is an HTTP error, later one in the stream."""

    status: int = 500
    type: str | None = None
    """The provider's own word for it; None: the usual one for the status."""
    message: str | None = None
    retry_after_s: float | None = None

    @property
    def word(self) -> str:
        """The provider's own word for it."""
        return (
            self.type
            or ERROR_TYPES.get(self.status)
            or ("api_error" if self.status >= 500 else "invalid_request_error")
        )


ERROR_TYPES: Final[dict[int, str]] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
"""What an error of a status is called, as Anthropic does."""


class Round(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One model call's answer, played from top to bottom."""

    slow_headers_s: float = 0.0
    """Seconds before the response's first byte."""
    first_token_silence_s: float = 0.0
    """Seconds between the start of the stream and its first word."""
    thinking: str | None = None
    text: str | None = None
    chars_per_s: float | None = None
    """How fast words come; None: at once."""
    blocks: list[dict[str, Any]] | None = None
    """Blocks in the provider's own shape, sent as they are: unknown and server-side ones."""
    tool_calls: tuple[ScriptedCall, ...] = ()
    stall_s: float = 0.0
    """Seconds of silence after what was said."""
    pings: bool = False
    """Whether pings fill the silences."""
    endless: bool = False
    """The words are repeated for ever."""
    garbage: str | None = None
    """Nonsense at this point of the stream; one of GARBAGE."""
    raw: str | None = None
    """Sent as it is at this point of the stream, each character one byte (latin-1)."""
    error: ScriptedError | None = None
    cut: bool = False
    """The connection breaks here, without an end."""
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None

    @property
    def is_fault(self) -> bool:
        """Whether this round ends in a failure rather than an answer."""
        odd = self.raw is not None or self.garbage not in (None, "unknown_event")
        return odd or self.error is not None or self.cut or self.endless or self.stall_s > 0

    @property
    def says_something(self) -> bool:
        """Whether anything stands before the fault."""
        return bool(self.text or self.thinking or self.tool_calls or self.blocks)


GARBAGE: Final = (
    "html",
    "not_json",
    "half_json",
    "invalid_utf8",
    "unknown_event",
    "wrong_order",
    "wrong_types",
    "empty",
    "huge_delta",
)
"""Kinds of nonsense: a web page, no JSON, half a JSON, bytes that are no UTF-8, an event of an unknown kind
(harmless), events in a senseless order, fields of wrong types, no event at all, one delta of 10 MB."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is said to a user text that `match` is found in."""

    match: str
    rounds: tuple[Round, ...]


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules in order; the first that matches wins."""

    rules: tuple[Rule, ...] = ()
    path: str = "script"

    def round(self, text: str, index: int) -> Round:
        """The round to play as answer number `index` (from 0) to `text`.

        Raises ScriptInvalid when a pattern needs longer than PATTERN_SECONDS_MAX on this text.
        """
        for number, rule in enumerate(self.rules, 1):
            try:
                found = regex.search(rule.match, text, timeout=PATTERN_SECONDS_MAX)
            except TimeoutError:
                why = (
                    f"rule {number}: the pattern {rule.match!r} needs more than {PATTERN_SECONDS_MAX} s on a message of "
                    f"{len(text)} characters. Write it without nested repetitions"
                )
                raise ScriptInvalid(path=self.path, why=why) from None
            if found is not None:
                if index < len(rule.rounds):
                    return rule.rounds[index]
                if rule.rounds and rule.rounds[-1].is_fault:
                    return rule.rounds[-1]
                break
        return Round(text=f"ok {text}")


def load_script(path: str | Path) -> Script:
    """The script in the file `path`. Raises ScriptInvalid: what is wrong, in which rule, and what to do."""
    file = Path(path)
    try:
        if file.stat().st_size > SCRIPT_BYTES_MAX:
            raise ScriptInvalid(path=str(path), why=f"it is larger than {SCRIPT_BYTES_MAX} bytes. Split it")
        data = file.read_bytes()
    except OSError as error:
        why = f"it cannot be read ({error.strerror or error}). Check the path and its permissions"
        raise ScriptInvalid(path=str(path), why=why) from error
    return parse_script(data, str(path))


def parse_script(data: bytes | str | dict[str, Any], path: str = "script") -> Script:
    """A script from JSON text or a JSON object. Raises ScriptInvalid."""
    value: Any = data
    if not isinstance(data, dict):
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ScriptInvalid(path=path, why=f"it is not JSON ({error}). Correct it there") from error
    if not isinstance(value, dict) or not isinstance(value.get("rules"), list):
        why = 'it must be an object with a list of rules: {"rules": [{"match": "...", "rounds": [...]}]}'
        raise ScriptInvalid(path=path, why=why)
    if extra := sorted(set(value) - {"rules"}):
        raise ScriptInvalid(path=path, why=f"unknown field {extra[0]!r} beside rules. Remove it")
    rules = tuple(_rule(rule, number, path) for number, rule in enumerate(value["rules"], 1))
    return Script(rules, path)


def _rule(value: Any, number: int, path: str) -> Rule:
    if isinstance(value, dict) and isinstance(value.get("rounds"), list):
        for at, item in enumerate(value["rounds"], 1):
            _check(item, Round, f"rule {number}, round {at}", path)
    rule: Rule = _check(value, Rule, f"rule {number}", path)
    try:
        regex.compile(rule.match)
    except (regex.error, OverflowError, RecursionError) as error:
        why = f"rule {number}: the pattern {rule.match!r} is not a regular expression ({error}). Correct it"
        raise ScriptInvalid(path=path, why=why) from error
    return rule


def _check(value: Any, kind: Any, place: str, path: str) -> Any:
    try:
        checked = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__)
        raise ScriptInvalid(path=path, why=f"{place}: {error}. Known fields: {known}") from error
    if isinstance(checked, Round):
        if checked.raw is not None and not checked.raw.isascii() and max(checked.raw) > "\xff":
            raise ScriptInvalid(
                path=path, why=f"{place}: raw may hold characters up to U+00FF only, one per byte"
            )
        if checked.garbage is not None and checked.garbage not in GARBAGE:
            why = f"{place}: unknown garbage {checked.garbage!r}. Known: {', '.join(GARBAGE)}"
            raise ScriptInvalid(path=path, why=why)
        seconds = (checked.stall_s, checked.first_token_silence_s, checked.slow_headers_s)
        if min(seconds) < 0 or (checked.chars_per_s is not None and checked.chars_per_s <= 0):
            raise ScriptInvalid(path=path, why=f"{place}: times and chars_per_s must be positive")
    return checked
