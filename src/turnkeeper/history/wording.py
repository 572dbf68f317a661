"""Every sentence that the feed itself puts before a model.

The text of a synthetic result decides what a model does next (provider-wire-rules section 2): it must say that
the outcome is unknown, name the tool, and tell whether it can have run. All sentences are constants of
their arguments, so that the bytes of a feed never move.
"""

from __future__ import annotations

from typing import Final

from turnkeeper.conversation.turns import Effect
from turnkeeper.history.row import OpenCall

EXPIRED_CONFIRMATION: Final = (
    "[Confirmation EXPIRED] A confirmation that the user gave here is no longer valid. Do nothing because of it. "
    "Before any destructive action, ask the user again and wait for the new answer."
)
EMPTY_USER: Final = "(empty message)"
EMPTY_RESULT: Final = "(no output)"
UNNAMED_TOOL: Final = "unnamed_tool"
OPENING: Final = "(The beginning of this conversation is not included.)"
TOO_DEEP: Final = "(a value that is nested too deep to be sent)"
CONTINUE: Final = "Continue."
SYSTEM_NOTE: Final = "[Note of the system] "


_UNKNOWN: Final = "Outcome unknown, inspect before repeating:"
_INTERRUPTED: Final = "Interrupted:"
ALREADY_SAID: Final = (_UNKNOWN, _INTERRUPTED)
"""How the results that were replaced begin: they are not replaced again."""


def synthetic_result(name: str, effect: Effect, known: OpenCall | None) -> tuple[str, str]:
    """The text of a result that no tool gave, and the disposition it stands for."""
    tool = f"`{name}`" if name else "the tool"
    why = f" {known.why}" if known is not None and known.why else ""
    state = "unknown" if known is None else known.state
    if state == "waiting":
        return f"Not run: waits for{why or ' a decision of a person'}. Nothing was done by {tool}.", "waiting"
    if state == "approved":
        return f"Not run yet: {tool} was approved and runs next.", "waiting"
    if state == "refused":
        return f"Not run: {tool} was refused{why}. Nothing was done.", "refused"
    if state == "not_started":
        return f"Not run: {tool} was never started{why}. Nothing was done.", "refused"
    if effect is Effect.READ_ONLY:
        return (
            f"{_INTERRUPTED} no result of {tool} was recorded. It only reads; call it again if you need it.",
            "unknown",
        )
    text = (
        f"{_UNKNOWN} no result of {tool} was recorded. The call was interrupted "
        "and may have taken effect, whole or in part. Find out what it did before you do it again."
    )
    return text, "unknown"


def interrupted_result(name: str, effect: Effect, output: str) -> str:
    """What stands for the result of a call that was interrupted while it ran. `output` is kept."""
    tail = f"\nOutput before the interruption:\n{output}" if output.strip() else ""
    tool = f"`{name}`" if name else "the tool"
    if effect is Effect.READ_ONLY:
        return f"{_INTERRUPTED} {tool} did not finish. It only reads; call it again if you need it.{tail}"
    return (
        f"{_UNKNOWN} {tool} was interrupted while it ran and may have taken "
        f"effect, whole or in part. Find out what it did before you do it again.{tail}"
    )


def late_result(name: str, call_id: str, content: str, *, is_error: bool) -> str:
    """A notice of a result that came after its call had been closed."""
    tool = f"`{name}`" if name else "a tool"
    kind = "failed late with" if is_error else "finished late with the result"
    which = f" {call_id}" if call_id else ""
    return f"[Notice] The earlier call{which} of {tool} {kind}:\n{content}"
