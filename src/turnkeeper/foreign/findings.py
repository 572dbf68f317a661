"""What is sick in a session: which rows, which provider would refuse them, and why.

Two ways to look, and the doctor uses both. The validator of the session's own provider reads the stored list
as it stands (fast, exact for that provider). The replay rules say what they would have to change; a table
tells which providers refuse each of these faults, by the number of the wire rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from turnkeeper.conversation.messages import ASSISTANT, EXPIRED
from turnkeeper.conversation.parts import ToolCall
from turnkeeper.foreign.containers import CONTAINERS
from turnkeeper.foreign.remint import remint
from turnkeeper.foreign.sessions import Session
from turnkeeper.foreign.wires import LOCAL_MODEL, WIRES
from turnkeeper.history.feed import Feed, build_feed, find_compaction, find_expired, find_stale_confirmations
from turnkeeper.history.row import FeedOptions
from turnkeeper.provider.dialects import dialect_named

ALL: Final = ("anthropic", "bedrock", "openai-chat", "openai-responses", "gemini", "mistral")
STRICT_ROLES: Final = ("bedrock", "gemini", "mistral")


class Harm(msgspec.Struct, frozen=True):
    """Who refuses a fault, by which wire rules, and what else it does."""

    refused_by: tuple[str, ...]
    rules: tuple[str, ...] = ()
    what: str = ""


HARMS: Final[dict[str, Harm]] = {
    "results_paired": Harm(ALL, ("A1", "A2", "B2", "C1", "C2", "C3", "O1", "O2", "G2", "G3", "M4")),
    "nothing_empty": Harm(
        ("anthropic", "bedrock", "openai-chat", "openai-responses", "mistral"),
        ("A10", "A11", "A12", "A19", "B5", "C6", "O10"),
    ),
    "arguments_are_objects": Harm(ALL, ("A8", "C5")),
    "calls_have_names": Harm(ALL, ("O9", "B4", "M5")),
    "well_formed_text": Harm(ALL, ("A23",)),
    "calls_last": Harm(("anthropic", "bedrock"), ("A4",)),
    "merge_neighbours": Harm(STRICT_ROLES, ("B1", "C8", "G1")),
    "opened_by_user": Harm(STRICT_ROLES, ("B1", "G1")),
    "system_first": Harm(("anthropic", "bedrock", "gemini"), ("A5", "B1", "G1")),
    "server_calls": Harm(("anthropic", "bedrock"), ("A21",)),
    "parts_in_place": Harm(ALL, ("A3", "C2")),
    "attempts_aside": Harm((), (), "the model takes a broken attempt for its own answer"),
    "leaked_markup": Harm((), (), "the model learns to write calls as text"),
    "expired_confirmation": Harm((), (), "a later message may be read as consent again"),
    "interrupted_results": Harm((), (), "the model may repeat what already took effect"),
    "unfinished_lookups": Harm(ALL, ("A1", "C1", "O1", "G2")),
    "one_summary": Harm((), (), "an old summary is taken for a request"),
    "trailing_duplicate": Harm((), (), "the model reads the same request twice"),
}
"""By rule: what the fault does. Rules that are not here change nothing that anybody would refuse."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One sick row."""

    row: int | None
    """Its place; None when it is the session as a whole."""
    id: str | None = None
    """Its own id, where it has one."""
    rule: str
    refused_by: tuple[str, ...]
    wire_rules: tuple[str, ...]
    why: str


_ROW = re.compile(r"^(?:messages|input|contents)\[(\d+)\]")


def check(session: Session, dialect: str | None = None) -> list[Finding]:
    """What the session's own provider refuses in the list as it stands. Fast; other formats have no such list."""
    wire = WIRES.get(session.format)
    if wire is None or not session.items:
        return []
    name = dialect or wire.name
    body = {
        "model": LOCAL_MODEL,
        wire.field: session.items,
        **({"max_tokens": 1} if wire.name == "anthropic" else {}),
    }
    found: dict[tuple[int | None, str], Finding] = {}
    last = len(session.items) - 1
    for violation in dialect_named(name).validate(body):
        match = _ROW.match(violation.path)
        row = int(match[1]) if match is not None else None
        if violation.rule in _ENDS and row in (None, last):
            continue  # a stored session may end on an answer
        found.setdefault(
            (row, violation.rule),
            Finding(
                row=row,
                rule=f"wire {violation.rule}",
                refused_by=(name,),
                wire_rules=(violation.rule,),
                why=violation.sentence,
            ),
        )
    return list(found.values())


_ENDS: Final = frozenset({"A13", "A14", "G4", "M5", "B1"})


def feed_of(session: Session, now: float | None = None) -> Feed:
    """The session's feed as history: cleaned, and not prepared for a request."""
    messages = session.read()
    expired = find_expired(messages)
    if now is not None:
        expired |= {message_id for message_id, _ in find_stale_confirmations(messages, now, expired=expired)}
    compaction = find_compaction(messages) if session.format == "turnkeeper" else None
    options = FeedOptions(for_request=False, compaction=compaction)
    feed = build_feed(messages, expired=expired, options=options)
    # A UIMessage has a call and its result in one part: its ids are minted where it is healed.
    return remint(feed) if session.format in CONTAINERS and session.format != "vercel" else feed


def is_own_alone(format_name: str, providers: Sequence[str]) -> bool:
    """Whether only the provider is asked about whose shape the stored list has: it judges the list as it stands."""
    return format_name in WIRES and set(providers) == {format_name}


def examine(
    session: Session,
    providers: Sequence[str] = ALL,
    *,
    now: float | None = None,
    feed: Feed | None = None,
    refused: Sequence[Finding] | None = None,
) -> list[Finding]:
    """Everything that is sick in the session, as far as these providers go.

    Of the session's own provider alone its validator says all, and no rule is asked. `refused` is what `check`
    found, where somebody asked already.
    """
    if refused is None:
        refused = check(session) if session.format in providers or session.format not in WIRES else ()
    if is_own_alone(session.format, providers):
        return sorted(refused, key=lambda f: (-1 if f.row is None else f.row, f.rule))
    feed = feed_of(session, now) if feed is None else feed
    places = {message.message_id: i for i, message in enumerate(session.read())}
    found: dict[tuple[int | None, str], Finding] = {}
    for finding in refused:
        found[finding.row, finding.why] = finding
    healthy_here = _own_rows(session, now)
    if session.format in WIRES or session.format in CONTAINERS:
        for finding in _odd_ids(session, providers):
            found.setdefault((finding.row, finding.why), finding)
    for change in feed.changes:
        harm = HARMS.get(change.rule)
        if harm is None or change.message in healthy_here:
            continue
        row = places.get(change.message or "")
        # There one answer is several items: its reasoning, its words and each of its calls.
        items = change.rule == "merge_neighbours" and session.format == "openai-responses"
        if items and row is not None and session.read()[row].role == ASSISTANT:
            continue
        refused_by = tuple(name for name in harm.refused_by if name in providers)
        if harm.refused_by and not refused_by:
            continue
        why = f"{change.why}; {harm.what}" if harm.what else change.why
        key = (row, change.rule)
        if key not in found:
            found[key] = Finding(
                row=row,
                id=None if row is None or session.ids is None else session.ids[row],
                rule=change.rule,
                refused_by=refused_by,
                wire_rules=harm.rules,
                why=why,
            )
    return sorted(found.values(), key=lambda f: (-1 if f.row is None else f.row, f.rule))


def _own_rows(session: Session, now: float | None) -> frozenset[str]:
    """Rows of our own store that are marked as what they are: the feed leaves them out, nothing is sick."""
    if session.format != "turnkeeper":
        return frozenset()
    return frozenset(m.message_id for m in session.read() if not m.replay or m.standing == EXPIRED)


ID_RULES: Final = (
    (re.compile(r"[a-zA-Z0-9_-]+\Z"), ("anthropic", "bedrock"), "A7"),
    (re.compile(r".{1,64}\Z", re.DOTALL), ("anthropic", "bedrock", "openai-responses"), "O6"),
    (re.compile(r".{1,40}\Z", re.DOTALL), ("openai-chat",), "C4"),
)
"""What a call id must match, for whom, by which rule. (Old Mistral models want nine letters or digits, M1: every
adapter mints those, so no stored id is called sick for that.)"""
NAME_RULE: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


def _odd_ids(session: Session, providers: Sequence[str]) -> list[Finding]:
    """Call ids that are used twice, empty or misshapen, and names that no provider takes in a history."""
    found: list[Finding] = []
    used: set[str] = set()
    for row, message in enumerate(session.read()):
        for part in message.parts:
            if not isinstance(part, ToolCall) or part.server_side:
                continue
            shown = part.id if len(part.id) < 60 else f"{part.id[:57]}..."
            if not part.id and session.format == "gemini":
                continue  # calls there need no ids: they pair by their order
            if part.id in used:
                found.append(
                    _odd(
                        row, "call_ids", ALL, ("A6", "B3", "C3", "O5"), f"the call id {shown!r} is used twice"
                    )
                )
            used.add(part.id)
            if not part.id:
                found.append(_odd(row, "call_ids", ALL, ("A7", "C3", "O1"), "a call without an id"))
            else:
                for pattern, refused_by, rule in ID_RULES:
                    if not pattern.match(part.id):
                        found.append(_odd(row, "call_ids", refused_by, (rule,), f"the call id {shown!r}"))
            if part.name and not NAME_RULE.match(part.name):
                why = f"the tool name {part.name[:60]!r}"
                found.append(_odd(row, "calls_have_names", ("bedrock", "mistral"), ("B4", "M5"), why))
    kept = []
    for finding in found:
        asked = tuple(name for name in finding.refused_by if name in providers)
        if asked:
            kept.append(msgspec.structs.replace(finding, refused_by=asked))
    return kept


def _odd(row: int, rule: str, refused_by: tuple[str, ...], wire_rules: tuple[str, ...], why: str) -> Finding:
    return Finding(row=row, rule=rule, refused_by=refused_by, wire_rules=wire_rules, why=why)


def excerpt(session: Session, row: int, width: int = 72) -> str:
    """A row in a few words."""
    message = session.read()[row]
    pieces: list[Any] = []
    for part in message.parts:
        for name in ("text", "content", "name"):
            value = getattr(part, name, None)
            if value:
                pieces.append(value if isinstance(value, str) else str(value)[:width])
                break
    text = " ".join(" ".join(str(piece)[: width * 2].split()) for piece in pieces)
    return text[: width - 1] + "…" if len(text) > width else text
