"""From a case's `cli` step to the scripted CLI that misbehaves so. A field that nothing here knows is an error."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Final

import msgspec

from turnkeeper.testing.scripted_cli.quirks import Burst, MenuSpec, Quirks

PROFILES: Final = {"claude": "claude-code", "claude-code": "claude-code", "codex": "codex", "pi": "pi"}

RENAMED: Final = {"writes_transcript_at_s": "record_s", "enter_newline_s": "enter_newline_ms"}
"""Fields of cases that are quirks under another name."""

SAYS_NOTHING: Final = frozenset(
    {
        "do",
        "at_s",
        "conv",
        "profile",
        "cwd",
        "returns_to_prompt",
        "session_id_in",
        "reflow",
        "tmux_name",
        "attached_by",
    }
)
"""Fields that describe what the scripted CLI always does, or that the player itself sees to."""

PASTES: Final[dict[str, dict[str, Any]]] = {
    "collapse_and_swallow_first_enter": {"collapse_lines": 1, "swallow_enters": 1},
    "collapse": {"collapse_lines": 1},
    "swallow_first_enter": {"swallow_enters": 1},
}


def native(label: str) -> str:
    """The native session that a case calls `label`: CLIs name theirs by UUIDs."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, label))


def menu_of(menu: dict[str, Any], **more: Any) -> MenuSpec:
    """A menu as a case writes it; its times are given by the player."""
    fields = {name: value for name, value in menu.items() if name != "resets_at_s"}
    return msgspec.convert({**fields, **more}, MenuSpec)


def quirks_of(step: dict[str, Any], scale: float) -> Quirks:
    """The quirks of a `cli` step, its seconds scaled. The fake CLI answers after 1 s if nothing else is said."""
    found: dict[str, Any] = {"turn_s": 1.0}
    for name, value in step.items():
        if name in SAYS_NOTHING:
            continue
        if name == "paste":
            found |= PASTES[value]
        elif name == "bracketed":
            found["no_bracketed"] = not value
        elif name == "boot_menu":
            found["boot_menus"] = (menu_of(value),)
        elif name == "boot_menus":
            found["boot_menus"] = tuple(m if isinstance(m, str) else menu_of(m) for m in value)
        elif name == "burst":
            found["burst"] = Burst(**value)
        elif name in {"native_session", "resume_yields"}:
            found[name] = native(value)
        else:
            found[RENAMED.get(name, name)] = value
    for name in [name for name in found if name.endswith("_s") and found[name] is not None]:
        found[name] *= scale
    if "not_steerable_between" in found:
        found["not_steerable_between"] = tuple(at * scale for at in found["not_steerable_between"])
    return msgspec.convert(found, Quirks)


def locate_file(home: Path, native_id: str) -> Path:
    """The file of a native session in a CLI's home."""
    return next(path for path in home.rglob("*.jsonl") if native_id in path.name)
