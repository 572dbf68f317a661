"""What an adapter answers: everything that differs between one coding CLI and another, and nothing else.

An adapter is a module with these names (`retained.adapters`); most of them are tables. It knows no clock, no pane and
no conversation: it is asked how to launch, what a row of the transcript means, what a screen shows, which keys do what.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from turnkeeper.retained.signs import Reading, Sign
from turnkeeper.terminal.screen import Screen
from turnkeeper.transcript.place import Roots


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A launch. `session_id` is the native session: given to a CLI that lets us choose, known to one that resumes."""

    command: tuple[str, ...] = ()
    """What to start instead of the CLI's own program (a wrapper, an exact version)."""
    args: tuple[str, ...] = ()
    cwd: str
    session_id: str | None = None
    resume: bool = False
    instructions: str = ""
    model: str = ""
    mcp: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """MCP servers by name, in the shape of the agents file; written anew at each launch."""
    folder: str = ""
    """A private folder for files of this launch."""
    trust_cwd: bool = False


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, what to add to its environment, and which files must lie there before."""

    argv: tuple[str, ...]
    env: dict[str, str] = msgspec.field(default_factory=dict)
    files: dict[str, str] = msgspec.field(default_factory=dict)


class Found(msgspec.Struct, frozen=True):
    """A session file that may belong to a process: its native id and where it lies."""

    native_id: str
    path: Path


class Memory(msgspec.Struct):
    """What an adapter must remember between rows of one transcript."""

    turn: str = ""
    said: bool = False
    items: bool = False
    local: bool = False


LAUNCH: Final = "launch"
INLINE: Final = "inline"
FRESH: Final = "fresh"
"""How changed instructions reach a resumed session: by the launch itself, inline once per session, or never."""


class Adapter(Protocol):
    """A CLI."""

    @property
    def NAME(self) -> str:  # noqa: N802 - modules have constants
        """Its name in the agents file."""
        ...

    @property
    def FORMAT(self) -> str:  # noqa: N802 - modules have constants
        """Its transcript's format (turnkeeper.transcript.formats)."""
        ...

    @property
    def PROGRAM(self) -> str:  # noqa: N802 - modules have constants
        """Its program."""
        ...

    @property
    def TESTED(self) -> str:  # noqa: N802 - modules have constants
        """The version whose behaviour was measured."""
        ...

    @property
    def CHOOSES_ID(self) -> bool:  # noqa: N802 - modules have constants
        """Whether we may give it the id of a new session; else it is harvested, with proof."""
        ...

    @property
    def INSTRUCTIONS(self) -> str:  # noqa: N802 - modules have constants
        """How instructions that changed reach a session that is resumed: launch | inline | fresh."""
        ...

    @property
    def ENTER_DELAY_SECONDS(self) -> float:  # noqa: N802 - modules have constants
        """ENTER_DELAY_SECONDS"""
        ...

    @property
    def CLEAR_KEYS(self) -> tuple[str, ...]:  # noqa: N802 - modules have constants
        """Pressed again and again until the composer is empty; harmless in an empty one."""
        ...

    @property
    def RECALL_KEYS(self) -> tuple[str, ...]:  # noqa: N802 - modules have constants
        """Puts what is queued back into the composer; () if there is no such key."""
        ...

    @property
    def INTERRUPT_KEYS(self) -> tuple[str, ...]:  # noqa: N802 - modules have constants
        """Stops a response; pressed only at a CLI that was seen to be busy just now."""
        ...

    @property
    def ENV_PASSED(self) -> tuple[str, ...]:  # noqa: N802 - modules have constants
        """Names (or beginnings, with `*`) of our own environment that it needs."""
        ...

    @property
    def ENV_SET(self) -> Mapping[str, str]:  # noqa: N802 - modules have constants
        """What its environment always holds."""
        ...

    @property
    def COMMANDS(self) -> frozenset[str]:  # noqa: N802 - modules have constants
        """Commands that may be sent with as_command; with `*`: any that begins so."""
        ...

    @property
    def BYPASS_ARGS(self) -> frozenset[str]:  # noqa: N802 - modules have constants
        """Arguments that switch its own permission questions off."""
        ...

    @property
    def Row(self) -> Any:  # noqa: N802 - modules have constants
        """How a row of its transcript is decoded."""
        ...

    def command(self, plan: Plan) -> Command:
        """How to launch it."""
        ...

    def signs(self, rows: Sequence[Any], offsets: Sequence[int], memory: Memory) -> list[Sign]:
        """What rows of the transcript say, in order."""
        ...

    def read(self, screen: Screen, status: str | None, *, trust: bool) -> Reading:
        """What the screen shows. `status`: the word of its status file, if it keeps one. `trust`: the folder is trusted."""
        ...

    def status(self, pid: int, where: Roots) -> tuple[str, str] | None:
        """(busy | idle | other word, native session) from its own status file for process `pid`."""
        ...

    def normalise(self, text: str) -> str:
        """A text as its transcript will hold it, for comparing; applied to both sides."""
        ...

    def reads_as_command(self, text: str) -> bool:
        """Whether it would take this text for a command, and nothing leaves it unchanged."""
        ...

    def paste_text(self, text: str) -> str:
        """What is pasted for `text`: the same, or with what makes it no command and is not part of what arrives."""
        ...

    def locate(self, native_id: str, where: Roots, cwd: str) -> Path | None:
        """The transcript of a session."""
        ...

    def sessions_since(self, where: Roots, cwd: str, since: float) -> list[Found]:
        """Sessions of folder `cwd` whose files were made at or after `since` (Unix seconds)."""
        ...

    def lost_session(self, words: str) -> bool:
        """Whether the CLI said that the session to be resumed is not there."""
        ...

    def login_words(self, words: str) -> bool:
        """Whether the CLI said, while it ended, that nobody is signed in."""
        ...


TRAILING: Final = re.compile(r"[ \t]+$", re.MULTILINE)
CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PASTE_WRAPPER: Final = re.compile(
    r"\n*<pasted_content(?:\s[^>]*)?>\n?(.*?)(?:\n?</pasted_content(?:\s[^>]*)?>\n?|\Z)", re.DOTALL
)
ESCAPES: Final = re.compile("\x1b\\[[0-9;]*[A-Za-z]")


def normal(text: str) -> str:
    """What CLIs do to a text, undone on both sides: line ends, tabs, controls, outer and trailing blanks, wrappers.

    And the form of accents: claude-code writes `e` with a combining accent as one letter.
    """
    text = unicodedata.normalize("NFC", text)
    if "<pasted_content" in text:
        text = PASTE_WRAPPER.sub(lambda found: ("\n" if found.start() else "") + found.group(1), text)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    text = CONTROL.sub("", text)
    return TRAILING.sub("", text).strip()
