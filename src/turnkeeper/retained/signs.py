"""What can be known of a CLI: signs in its transcript, and readings of its screen.

A sign is one fact that the CLI itself wrote down; it proves deliveries, answers and ends (G14). A reading is what
its screen shows at a moment: it tells where keys would go and whether the CLI is busy, and proves nothing.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from turnkeeper.conversation.parts import Json


class SignKind(StrEnum):
    """What a CLI wrote down."""

    TAKEN = "taken"
    """A person's text reached the model."""
    QUEUED = "queued"
    """The CLI keeps a person's text in a queue of its own: accepted, never delivered."""
    TOOK_BACK = "took_back"
    """A queued text went back into the composer."""
    REMOVED = "removed"
    """Taken off the queue; that alone proves nothing (claude-code#88357)."""
    BEGAN = "began"
    """A turn of the CLI's own began."""
    THOUGHT = "thought"
    SAID = "said"
    """Words of an answer; `final` if nothing follows that would make them narration."""
    CALLED = "called"
    RETURNED = "returned"
    ENDED = "ended"
    """The response is over."""
    FAILED = "failed"
    """The provider refused; some CLIs try again by themselves."""
    INTERRUPTED = "interrupted"
    SUPERSEDED = "superseded"
    """An earlier row (`native_id`) no longer counts: an attempt that was tried again."""
    COMPACTED = "compacted"
    COMMANDED = "commanded"
    """A command of the CLI itself ran."""
    REFUSED = "refused"
    """The CLI did not know the command; the text is lost there."""
    SWITCHED = "switched"
    """The CLI goes on in another native session (`native_id`)."""


WORK = frozenset(
    {
        SignKind.BEGAN,
        SignKind.THOUGHT,
        SignKind.SAID,
        SignKind.CALLED,
        SignKind.RETURNED,
        SignKind.COMPACTED,
        SignKind.COMMANDED,
    }
)
"""Signs that the CLI works at something."""

ENDS = frozenset({SignKind.ENDED, SignKind.FAILED, SignKind.INTERRUPTED})


class Sign(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One fact from a transcript. `native_id` is the row's own id, `offset` the byte at which it begins."""

    kind: SignKind
    text: str = ""
    native_id: str = ""
    final: bool = False
    call_id: str = ""
    name: str = ""
    arguments: Json = None
    is_error: bool = False
    status: int | None = None
    offset: int = -1
    via: str = ""
    """How a text was taken: user | dequeued | absorbed | steered."""
    given_id: str = ""
    """The id under which a text was given to the CLI, where it writes that down."""


class Menu(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A menu as it was parsed from the screen: a title, options, and which one the cursor is on.

    Keys are sent to a menu only if the cursor and all options were parsed.
    """

    title: str
    options: tuple[str, ...]
    selected: int
    body: tuple[str, ...] = ()
    numbered: bool = False

    @property
    def mark(self) -> str:
        """Tells whether it is still the same menu, wherever the cursor is."""
        return "\n".join((self.title, *self.body, *self.options))


class BlockKind(StrEnum):
    """What stands between us and the composer."""

    PERMISSION = "permission"
    TRUST = "trust"
    UPDATE = "update"
    LOGIN = "login"
    SERVERS = "servers"
    """A project brings MCP servers that nobody configured."""
    LIMIT = "limit"
    MENU = "menu"
    """Some other menu."""
    MODAL = "modal"
    """Something that takes the keyboard and was not understood."""


class Block(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Why nothing may be pasted now. `retry_at` is Unix seconds, if the screen says when it is over."""

    kind: BlockKind
    sentence: str
    menu: Menu | None = None
    retry_at: float | None = None
    resets: str = ""
    """The screen's own words for when a limit is over; a shell that knows the time makes `retry_at` of them."""
    auto: int | None = None
    """The option that is chosen by rule, without asking (skip an update)."""
    yes: int | None = None
    """The option that approves, and the one that denies, as far as they were understood."""
    no: int | None = None

    def option(self, decision: str) -> int | None:
        """The option that a decision means: approve, deny, or its number counted from 1."""
        if decision == "approve":
            return self.yes
        if decision == "deny":
            return self.no
        if self.menu is not None and decision.isdigit() and 1 <= int(decision) <= len(self.menu.options):
            return int(decision) - 1
        return None


class Composer(StrEnum):
    """What the composer holds."""

    ABSENT = "absent"
    EMPTY = "empty"
    BLANK = "blank"
    """Nothing but blank lines or spaces: left over, and invisible to who looks at one line (seed 002)."""
    TEXT = "text"


class Reading(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A screen, read."""

    composer: Composer = Composer.ABSENT
    text: str = ""
    """What stands in the composer; a collapsed paste is only its placeholder."""
    placeholder: bool = False
    busy: bool | None = None
    """The CLI's own busy state, from the most trusted source that it has; None: it does not say."""
    busy_source: str = ""
    block: Block | None = None
    queued: tuple[str, ...] = ()
    """First lines of texts that the CLI shows as waiting."""
    person: bool = False
    """Somebody has taken the terminal over."""
