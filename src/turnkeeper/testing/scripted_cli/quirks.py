"""The flags of the scripted CLI: each is a fault that somebody reported of a real one, off by default.

Times are seconds of the program's own clock; a test that scales time scales them too.
"""

from __future__ import annotations

import msgspec


class Burst(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Codex: `chars` typed within `gap_ms` count as a paste; Enter is a newline for a while after it."""

    chars: int = 3
    gap_ms: float = 8.0
    enter_is_newline_ms: float = 120.0


class MenuSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A menu that stands in front of the composer."""

    title: str
    options: tuple[str, ...]
    cursor: str = "❯"
    selected: int = 0
    on_enter: str = "close"
    """What choosing the first option does: close | exit."""
    resets_at_s: float | None = None
    """It goes by itself at this second of the program's life."""
    body: tuple[str, ...] = ()
    numbered: bool = True


class Quirks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How this copy of the CLI differs from a well-behaved one."""

    # -- start
    boot_s: float = 0.05
    boot_menus: tuple[str | MenuSpec, ...] = ()
    """Menus before the composer: the names trust, mcp_servers, update, login, or a menu of one's own."""
    native_session: str | None = None
    """The id of the first new session in this home, where the CLI chooses it."""
    resume_yields: str | None = None
    """Resuming goes on under this new id."""
    no_bracketed: bool = False
    alternate_screen: bool = False
    children: int = 0
    """Processes started at once that live on (real program only); `wrapper` setsid puts them in a session of
    their own."""
    wrapper: str = ""
    ignores_sighup: bool = False
    ignores_sigterm: bool = False
    exits_at_s: float | None = None
    exit_code: int = 0

    # -- a turn
    turn_s: float = 0.3
    record_s: float = 0.02
    """When the user's row is written, after Enter."""
    record_lost_times: int = 0
    """So often the text vanishes at Enter without a row, and two blank lines stay in the composer (seed 002)."""
    records_nothing: bool = False
    """No transcript at all."""
    alters_texts: bool = False
    """Writes another text down than the one that it took."""
    silent_think_s: float = 0.0
    """Shows no sign of work on the screen for so long."""
    omit_end_event: bool = False
    end_signal_at_s: float | None = None
    """The screen looks idle at this second of the turn, before the transcript is flushed."""
    flush_at_s: float | None = None
    final_text: str | None = None
    previous_block: str | None = None
    dies_at_s: float | None = None
    """Ends (exit code 9) at this second of each turn."""
    compact_s: float = 1.0
    compact_emits_turn_end: bool = True
    answers_merged: bool = True
    """claude: all that was queued is answered by one response."""
    phantom_riders: bool = False
    """What is queued while busy is answered by the running response, and never gets a row."""

    # -- input
    last_poll_at_s: float | None = None
    """pi: what is queued after this second of a turn is not seen at its end."""
    not_steerable_between: tuple[float, float] | None = None
    steer_ack: str = "accept"
    """accept | refuse: Enter while busy does nothing, the text stays in the composer."""
    swallow_enters: int = 0
    """So many Enters right after a paste do nothing."""
    enter_newline_ms: float = 0.0
    """gemini: Enter so soon after a paste becomes a newline."""
    burst: Burst | None = None
    read_chunk: int = 65_536
    drops_first_chunk_when_unbracketed: bool = False
    ctrl_c_idle: str = "twice"
    """twice: two C-c end an idle CLI; exit: one does."""
    restores_prompt_on_escape: bool = False
    """After an interruption the prompt stands in the composer again."""
    slash_menu: bool = False

    # -- screen
    composer_rule_char: str = "─"
    collapse_lines: int = 10
    collapse_chars: int = 1_000
    idle_repaint_s: float | None = None
    busy_title: bool = True


def decode(text: str | bytes) -> Quirks:
    """Quirks from JSON; an unknown name is an error."""
    return msgspec.json.decode(text, type=Quirks)
