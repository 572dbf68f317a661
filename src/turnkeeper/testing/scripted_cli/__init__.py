"""A coding CLI for tests: a real program for a real pane, or the same program in memory.

It has a composer with paste placeholders, is busy and idle, queues what is sent while it is busy, shows menus,
writes its own transcript in the dialect of pi, codex or claude-code where the real one would, resumes by
session id, and misbehaves by flag. It answers by itself; words in double brackets say how:

    [[text:hello]]  [[seconds:5]]  [[think:hm]]  [[say:narration]]  [[tool:ls|2|out]]  [[slow:8]]
    [[ask:Bash|rm -rf build]]  [[err:400]]  [[silent]]  [[crash:3]]

`program` is the machine without a terminal (bytes in, lines out, the time handed in), `transcripts` its three
dialects, `quirks` the flags, `__main__` the program for a real pane:

    python -m turnkeeper.testing.scripted_cli pi --session-id 2f1c...   # quirks: TURNKEEPER_SCRIPTED_CLI='{...}'
"""

from __future__ import annotations

from turnkeeper.testing.scripted_cli.program import ScriptedCli
from turnkeeper.testing.scripted_cli.quirks import Quirks

__all__ = ["Quirks", "ScriptedCli"]
