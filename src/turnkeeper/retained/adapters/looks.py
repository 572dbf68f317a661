"""Reading screens: composers between rules, menus with a cursor, and what a menu is about.

Everything is judged on what was parsed whole, or not at all: a menu whose cursor or options are not clear is a modal
that holds the delivery, never one that gets keys (instar PR#1961: wording, order, default and arrow differ by version).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from turnkeeper.retained.signs import Block, BlockKind, Composer, Menu
from turnkeeper.terminal.screen import Line

RULE_CHARS: Final = r"─━╌╍┄┅┈┉═—–_\-"
RULE: Final = re.compile(
    rf"^[ │|╭╰┌└]*[{RULE_CHARS}]{{2,}}.{{0,80}}?[{RULE_CHARS}]{{16,}}[ │|╮╯┐┘]*$|^ ?[{RULE_CHARS}]{{20,}} ?$"
)
CURSORS: Final = "❯›▶→➤>●"
OPTION: Final = re.compile(rf"^[ │|]*([{CURSORS}])?\s*(\d{{1,2}})[.)]\s+(\S.*?)[ │|]*$")
PLAIN_OPTION: Final = re.compile(rf"^([ │|]*)([{CURSORS}] |  )(?!\d+[.)] )(\S.*?)[ │|]*$")
CONFIRM: Final = re.compile(
    r"\b(enter|return)\b.*\b(confirm|select|continue|choose)\b|\besc\b.*\bcancel\b", re.IGNORECASE
)

KINDS: Final[tuple[tuple[BlockKind, re.Pattern[str]], ...]] = (
    (
        BlockKind.UPDATE,
        re.compile(r"\bupdate\b.*\b(available|now)\b|\bnew version\b|\bupdate now\b", re.IGNORECASE),
    ),
    (BlockKind.SERVERS, re.compile(r"\bMCP servers?\b", re.IGNORECASE)),
    (BlockKind.TRUST, re.compile(r"\btrust\b", re.IGNORECASE)),
    (
        BlockKind.LIMIT,
        re.compile(
            r"\b(usage|rate|plan)[ -]?limit|\blimit\b.*\breset|upgrade your plan|\bquota\b", re.IGNORECASE
        ),
    ),
    (
        BlockKind.LOGIN,
        re.compile(r"\blog ?in\b|\bsign ?in\b|login method|\bapi key\b.*\?|authenticate", re.IGNORECASE),
    ),
    (
        BlockKind.PERMISSION,
        re.compile(
            r"do you want to (?!do\b)|would you like to run|\ballow\b|\bapprove\b|\bproceed\?|\bpermission\b|wants? to (run|edit)",
            re.IGNORECASE,
        ),
    ),
)
"""What a menu is about, by its words; the first that fits."""

YES: Final = re.compile(r"^(yes|allow|approve|proceed|accept|run|trust|continue|use this)\b", re.IGNORECASE)
NO: Final = re.compile(r"^(no|deny|don.t|reject|decline|cancel|exit|skip|stop|quit)\b", re.IGNORECASE)
ALWAYS: Final = re.compile(r"don.t ask|always|all future|for this session|and remember", re.IGNORECASE)
SKIP: Final = re.compile(r"^skip\b(?! until)", re.IGNORECASE)
WITHOUT: Final = re.compile(r"\bwithout\b|^(no|don.t|skip|none)\b", re.IGNORECASE)

SENTENCES: Final[dict[BlockKind, str]] = {
    BlockKind.PERMISSION: "The CLI asks for a permission",
    BlockKind.TRUST: "The CLI asks whether to trust this folder",
    BlockKind.UPDATE: "The CLI offers an update",
    BlockKind.LOGIN: "Nobody is signed in to the CLI",
    BlockKind.SERVERS: "The CLI asks whether to use an MCP server of the project",
    BlockKind.LIMIT: "The CLI has reached a usage limit",
    BlockKind.MENU: "The CLI shows a menu",
    BlockKind.MODAL: "The CLI shows something that takes the keyboard",
}

LIMIT_NOTE: Final = re.compile(
    r"(usage|rate) ?limit ?reached|hit your (usage )?limit|out of (credits|quota)", re.IGNORECASE
)
RESETS: Final = re.compile(
    r"\b(?:resets?|try again|available again)\b(?:\s+(?:at|in|on))?\s*"
    r"(\d{4}-\d\d-\d\dT[\d:.]+Z?|\d{1,2}:\d\d(?::\d\d)?\s*(?:[ap]m)?|\d{1,2}\s*[ap]m"
    r"|\d+\s*(?:h|hours?|m|min(?:ute)?s?|s|sec(?:ond)?s?)\b(?:\s*\d+\s*(?:m|min(?:ute)?s?|s)\b)?)",
    re.IGNORECASE,
)
"""When a limit is over, as CLIs say it: an instant, a time of day, or how long from now."""
SPOKEN: Final = re.compile(r"^ ?[●❯›>•]")
"""Beginnings of what a person or the model said: words about limits, not a limit."""
NOTE_LINES: Final = 8
"""A note about a limit counts only so close above the composer: what stands further up is over."""
BRAILLE: Final = re.compile("[⠀-⣿]")


def is_rule(line: str) -> bool:
    """Whether a line is a horizontal rule, perhaps with a few words in it."""
    return RULE.match(line) is not None


def between_rules(lines: Sequence[Line]) -> tuple[int, int] | None:
    """The last two rules of the screen, as line numbers: the composer stands between them."""
    rules = [number for number, line in enumerate(lines) if is_rule(line.text)]
    for lower in reversed(rules):
        uppers = [upper for upper in rules if upper < lower - 1]
        if uppers:
            return uppers[-1], lower
    return None


def composed(rows: Sequence[str]) -> tuple[Composer, str]:
    """What rows of a composer hold: nothing, blanks only, or text."""
    text = "\n".join(rows)
    if text.strip():
        return Composer.TEXT, text.strip("\n")
    return (Composer.EMPTY if len(rows) <= 1 else Composer.BLANK), ""


def find_menu(lines: Sequence[Line]) -> Menu | None:
    """The last menu on the screen, if its cursor and all its options are clear."""
    found = _numbered(lines) or _plain(lines)
    return None if found is None else _menu(lines, *found)


Options = tuple[int, int, tuple[str, ...], int, bool]


def _numbered(lines: Sequence[Line]) -> Options | None:
    """Options with numbers 1..n, one below the other, exactly one with a cursor."""
    end = len(lines)
    while end > 0:
        last = next((n for n in range(end - 1, -1, -1) if OPTION.match(lines[n].text)), None)
        if last is None:
            return None
        first = last
        options: list[str] = []
        cursors: list[int] = []
        expected: int | None = None
        number = last
        while number >= 0:
            match = OPTION.match(lines[number].text)
            if match is None:
                # An option may run on over further, deeper lines.
                if not lines[number].text.strip() or expected is None or last - number > 40:
                    break
                number -= 1
                continue
            value = int(match[2])
            if expected is not None and value != expected - 1:
                break
            expected = value
            options.insert(0, match[3])
            if match[1]:
                cursors.append(value)
            first = number
            if value == 1:
                break
            number -= 1
        if expected == 1 and len(options) >= 2 and len(cursors) == 1:
            return first, last, tuple(options), cursors[0] - 1, True
        end = first
    return None


def _plain(lines: Sequence[Line]) -> Options | None:
    """Options without numbers: only above a line that says how to confirm, for lists look like that too."""
    confirm = next(
        (n for n in range(len(lines) - 1, max(-1, len(lines) - 12), -1) if CONFIRM.search(lines[n].text)),
        None,
    )
    if confirm is None:
        return None
    last = confirm - 1
    while last >= 0 and not lines[last].text.strip():
        last -= 1
    rows: list[tuple[str, bool]] = []
    number = last
    while number >= 0:
        match = PLAIN_OPTION.match(lines[number].text)
        if match is None:
            break
        rows.insert(0, (match[3], match[2] != "  "))
        number -= 1
    cursors = [index for index, (_, cursor) in enumerate(rows) if cursor]
    if len(rows) < 2 or len(cursors) != 1:
        return None
    return number + 1, last, tuple(text for text, _ in rows), cursors[0], False


def _menu(
    lines: Sequence[Line], first: int, last: int, options: tuple[str, ...], selected: int, numbered: bool
) -> Menu | None:
    above: list[str] = []
    for number in range(first - 1, max(-1, first - 16), -1):
        text = lines[number].text.strip(" │|")
        if is_rule(lines[number].text):
            break
        if text:
            above.insert(0, text)
        elif len(above) >= 6:
            break
    title = above[0] if above else ""
    return Menu(title=title, options=options, selected=selected, body=tuple(above[1:]), numbered=numbered)


def block_of(menu: Menu, *, trust: bool) -> Block:
    """What a menu is about, and which options mean yes and no."""
    words = "\n".join((menu.title, *menu.body))
    kind = next((kind for kind, pattern in KINDS if pattern.search(words)), None)
    if kind is None:
        everything = "\n".join((words, *menu.options))
        kind = next(
            (k for k, pattern in KINDS if k is not BlockKind.PERMISSION and pattern.search(everything)),
            BlockKind.MENU,
        )
    yes = next((n for n, o in enumerate(menu.options) if YES.match(o) and not ALWAYS.search(o)), None)
    no = next((n for n, o in enumerate(menu.options) if NO.match(o)), None)
    auto: int | None = None
    if kind is BlockKind.UPDATE:
        auto = next((n for n, o in enumerate(menu.options) if SKIP.match(o)), None)
    elif kind is BlockKind.TRUST and trust:
        auto = yes
    elif kind is BlockKind.SERVERS:
        # Those of the agents file are given at launch; what a folder brings is used only if somebody names it there.
        auto = next((n for n, o in enumerate(menu.options) if WITHOUT.search(o)), None)
    resets = resets_in("\n".join((words, *menu.options))) if kind is BlockKind.LIMIT else ""
    sentence = f"{SENTENCES[kind]}: {menu.title or ' / '.join(menu.options)}"
    return Block(kind=kind, sentence=sentence, menu=menu, auto=auto, yes=yes, no=no, resets=resets)


def resets_in(words: str) -> str:
    """The words that say when a limit is over; "" if none do."""
    found = RESETS.search(words)
    return "" if found is None else " ".join(found[1].split())


def limit_note(lines: Sequence[Line]) -> Block | None:
    """A limit that the CLI wrote above its composer, if it says when it is over.

    Without that nothing would end the wait: such a note holds nothing, for the provider's refusal will tell.
    """
    near = [line.text for line in lines if line.text.strip()][-NOTE_LINES:]
    for text in reversed(near):
        if LIMIT_NOTE.search(text) and not SPOKEN.match(text):
            resets = resets_in(text)
            if resets:
                sentence = f"{SENTENCES[BlockKind.LIMIT]}: {text.strip()}"
                return Block(kind=BlockKind.LIMIT, sentence=sentence, resets=resets)
    return None


def modal() -> Block:
    """Something that takes the keyboard and was not understood."""
    return Block(kind=BlockKind.MODAL, sentence=SENTENCES[BlockKind.MODAL] + ".")


def keys_for(menu: Menu, option: int) -> tuple[str, ...]:
    """The keys that move the cursor of a parsed menu to an option and choose it."""
    steps = option - menu.selected
    return (("Down",) * steps if steps > 0 else ("Up",) * -steps) + ("Enter",)
