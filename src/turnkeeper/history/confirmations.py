"""Confirmations of dangerous acts, typed as plain text: which are stale, and what a feed holds in their place.

A phrase such as "confirm forced reboot" is consent for one moment. If the process dies before its answer is
stored, the phrase stands at the end of the history, and the next harmless hello is read as consent again
(seed 001; github.com/NousResearch/hermes-agent/issues/59607). `find_stale_confirmations` tells which messages
have grown stale; the agent journals each as an event, and from then on every feed holds a sentinel of the
same role in its place. Deleting it would leave two answers in a row.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from turnkeeper.conversation.messages import ASSISTANT, USER, Message
from turnkeeper.conversation.parts import Part, Text
from turnkeeper.history import wording
from turnkeeper.history.phrases import BUILT_IN, Confirmations
from turnkeeper.history.row import REPLACED, Rows, Run, with_parts

EXPIRY_SECONDS: Final = 60.0
"""Older than this is stale; exactly this old is not. The same span ahead of the clock is the most that a
confirmation may lie in the future."""

SHORT_CHARS_MAX: Final = 200
"""A text of at most so many characters is replaced whole; of a longer one only the sentence that confirms."""

SCANNED_CHARS_MAX: Final = 100_000
"""How much of a message is searched: consent does not hide behind a hundred thousand characters."""

_SENTENCE = re.compile(r"[^.!?。！？\n]*[.!?。！？\n]?")


def normalise(text: str) -> str:
    """`text` in one width, one case and single spaces, so that a phrase is found however it was typed."""
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split())


def find_confirmation(text: str, patterns: Confirmations = BUILT_IN) -> str | None:
    """The pattern by which `text` confirms something dangerous, or None. Its time is linear in the text."""
    if not text or text.isspace():
        return None
    for sentence in _sentences(text[:SCANNED_CHARS_MAX]):
        found = _confirms(sentence, patterns)
        if found is not None:
            return found
    return None


def _sentences(text: str) -> list[str]:
    return [match.group() for match in _SENTENCE.finditer(text) if match.group().strip()]


def _confirms(sentence: str, patterns: Confirmations) -> str | None:
    words = normalise(sentence)
    for phrase in patterns.phrases:
        wanted = normalise(phrase)
        if wanted and wanted in words:
            return phrase
    if words.endswith("?"):
        return None  # a question confirms nothing
    for language in patterns.languages:
        match = language.pattern.search(words)
        if match is not None:
            return f"{language.name}: {match.group()}"
    return None


def find_stale_confirmations(
    messages: Sequence[Message],
    now: float,
    *,
    expiry_seconds: float = EXPIRY_SECONDS,
    patterns: Confirmations = BUILT_IN,
    expired: frozenset[str] = frozenset(),
    restarted: bool = False,
    after_seq: int = 0,
) -> tuple[tuple[str, str], ...]:
    """The user's messages that confirm something dangerous and are stale: (message id, pattern).

    `now` is Unix time in seconds. `expired` are messages already known as such. `restarted` says that the
    process was restarted after the last message. Messages up to `after_seq` were judged before and are
    skipped. A message without a time (0) is stale when a restart or an answer lies between it and now; one
    whose time lies ahead of `now` by more than the expiry is stale too (a wrong clock keeps nothing fresh).
    """
    found: list[tuple[str, str]] = []
    answered = restarted
    for message in reversed(messages):
        if message.role == ASSISTANT:
            answered = True
            continue
        if message.role != USER or message.message_id in expired:
            continue
        if message.seq and message.seq <= after_seq:
            break
        if message.created_at and abs(now - message.created_at) <= expiry_seconds:
            continue
        if not message.created_at and not answered:
            continue
        for part in message.parts:
            pattern = find_confirmation(part.text, patterns) if type(part) is Text else None
            if pattern is not None:
                found.append((message.message_id, pattern))
                break
    return tuple(reversed(found))


def find_fresh_confirmations(
    messages: Sequence[Message], *, patterns: Confirmations = BUILT_IN, expired: frozenset[str] = frozenset()
) -> tuple[tuple[int, str], ...]:
    """The user's messages that confirm something dangerous and were not found stale: (index, pattern)."""
    found: list[tuple[int, str]] = []
    for index, message in enumerate(messages):
        if message.role != USER or not message.replay or message.message_id in expired:
            continue
        for part in message.parts:
            pattern = find_confirmation(part.text, patterns) if type(part) is Text else None
            if pattern is not None:
                found.append((index, pattern))
                break
    return tuple(found)


def proposal_of(messages: Sequence[Message], index: int) -> Message | None:
    """What the message at `index` can have confirmed: the last that the assistant had said before it."""
    for message in reversed(messages[:index]):
        if message.role == ASSISTANT:
            return message
    return None


def put_sentinels(rows: Rows, run: Run) -> Rows:
    """An expired confirmation is replaced by a sentinel of the same role, which says that it expired (seed 001)."""
    if not run.expired:
        return rows
    out: Rows | None = None
    for i, row in run.suspects(rows):
        if row.message.role != USER or row.message.message_id not in run.expired:
            continue
        if any(type(p) is Text and wording.EXPIRED_CONFIRMATION in p.text for p in row.message.parts):
            continue  # done before; what merged with it since is not stale
        parts = _with_sentinel(row.message.parts, run)
        if out is None:
            out = list(rows)
        out[i] = with_parts(row, parts)
        run.note(row, "expired_confirmation", REPLACED, "the confirmation is stale")
    return rows if out is None else out


def _with_sentinel(parts: tuple[Part, ...], run: Run) -> tuple[Part, ...]:
    """Texts that confirm give way to the sentinel; if none is recognised, every text does."""
    new = tuple(
        _sentinel_for(part, run.options.confirmations) if type(part) is Text else part for part in parts
    )
    if any(type(part) is Text and wording.EXPIRED_CONFIRMATION in part.text for part in new):
        return new
    rest = tuple(part for part in parts if type(part) is not Text)
    return (Text(wording.EXPIRED_CONFIRMATION), *rest)


def _sentinel_for(part: Text, patterns: Confirmations) -> Text:
    if find_confirmation(part.text, patterns) is None:
        return part
    if len(part.text) <= SHORT_CHARS_MAX:
        return Text(wording.EXPIRED_CONFIRMATION)
    pieces: list[str] = []
    for match in _SENTENCE.finditer(part.text):
        sentence = match.group()
        if sentence.strip() and _confirms(sentence, patterns) is not None:
            tail = "\n" if sentence.endswith("\n") else " "
            pieces.append(wording.EXPIRED_CONFIRMATION + tail)
        else:
            pieces.append(sentence)
    return Text("".join(pieces))
