"""Histories that are not ours: case files, other frameworks' sessions, plain lists of messages.

- `case`: the case files of `turnkeeper feed`.
- `formats`: readers and writers of other frameworks' messages, as pure functions.
- `clean`: one line for a plain list of messages; `adapters` plug the same into three frameworks.
- `doctor`: which rows of a stored session would be refused, by whom and why, and a healed copy.

All of them go through the one feed builder of `turnkeeper.history`.
"""

from __future__ import annotations
