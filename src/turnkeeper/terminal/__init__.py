"""A program in a terminal that outlives us: start it, read its screen, paste, press keys, end it.

Knows nothing of conversations, CLIs or turns. `pane` has the Protocols and values, `tmux` the driver
(control mode over pipes), `control` the wire of tmux, `processes` the ending of whole process trees,
`screen` how a captured screen becomes lines.
"""

from __future__ import annotations

from turnkeeper.terminal.pane import Launch, Look, Pane, PaneIdentity, Pasted, Terminal, clean
from turnkeeper.terminal.screen import Line, Screen

__all__ = [
    "Launch",
    "Line",
    "Look",
    "Pane",
    "PaneIdentity",
    "Pasted",
    "Screen",
    "Terminal",
    "clean",
]
