"""Finding the tools that an agent names: demo tools by name, functions as `module:function`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from turnkeeper.tool.contract import Tool
from turnkeeper.tool.demo import DEMO_TOOLS
from turnkeeper.tool.function import tool_of


def load_function(name: str, *, folder: Path | None = None) -> Callable[..., Any]:
    """The function that `module:function` names; modules are looked for in `folder` first.

    Raises ValueError that says what is missing, or what the module raised when it was imported.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        msg = f"{name!r} is not of the form module:function"
        raise ValueError(msg)
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        msg = f"{name!r}: there is no module {error.name!r}"
        raise ValueError(msg) from error
    except Exception as error:
        msg = f"{name!r}: importing {module_name!r} failed: {type(error).__name__}: {error}"
        raise ValueError(msg) from error
    for step in path.split("."):
        found = getattr(found, step, None)
    if not callable(found):
        msg = f"{name!r}: the module {module_name!r} has no function {path!r}"
        raise ValueError(msg)  # noqa: TRY004 - the name is what cannot be used
    return found  # type: ignore[no-any-return]


def load_tools(names: Iterable[str], *, demo_tools: bool, folder: Path | None = None) -> tuple[Tool, ...]:
    """The tools of an agent, in order. Raises ValueError that names the one that cannot be used, and why."""
    found: dict[str, Tool] = {}
    for name in names:
        if name in DEMO_TOOLS:
            if not demo_tools:
                msg = f"{name!r} is a demo tool: it runs only under provider scripted, or with demo_tools = true"
                raise ValueError(msg)
            made = DEMO_TOOLS[name]
        elif ":" in name:
            made = tool_of(load_function(name, folder=folder))
        else:
            known = ", ".join(DEMO_TOOLS)
            msg = f"there is no tool {name!r}: name a function as module:function, or one of {known}"
            raise ValueError(msg)
        if made.name in found:
            msg = f"two tools are called {made.name!r}"
            raise ValueError(msg)
        found[made.name] = made
    return tuple(found.values())
