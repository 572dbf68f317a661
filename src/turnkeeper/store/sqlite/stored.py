"""The stored rows as the writer sees them: those used lately from memory, the others from the tables.

Another process that writes to the same file shows in `PRAGMA data_version`; then everything is read again.
"""

from __future__ import annotations

from typing import Any, Final

import apsw

from turnkeeper.conversation.turns import Conversation
from turnkeeper.store.rows import TurnRow
from turnkeeper.store.sqlite import columns
from turnkeeper.store.sqlite.sql import QUERIES
from turnkeeper.store.unit import Unit

ROWS_KEPT: Final = 8_000
"""Rows of conversations and turns kept in memory before all are let go."""


class StoredRows:
    """The stored rows as the writer sees them: those used lately from memory, the others from the tables."""

    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor
        self._version = -1
        self.last_position = 0
        self._conversations: dict[str, Conversation] = {}
        self._turns: dict[str, TurnRow] = {}

    def refresh(self) -> None:
        """Read again what another process may have changed; inside a transaction."""
        version = self._one("PRAGMA data_version")[0]
        if version != self._version:
            self.forget()
            self._version = version
            self.last_position = self._one(QUERIES["last_position"])[0]

    def forget(self) -> None:
        """Let go of all rows."""
        self._version = -1
        self._conversations.clear()
        self._turns.clear()

    def keep(self, unit: Unit) -> None:
        """Take over what was stored."""
        self.last_position = unit.last_position
        if len(self._conversations) + len(self._turns) > ROWS_KEPT:
            self._conversations.clear()
            self._turns.clear()
        self._conversations |= unit.conversations
        self._turns |= unit.turns

    def conversation_row(self, conversation_id: str) -> Conversation | None:
        """The conversation."""
        found = self._conversations.get(conversation_id)
        if found is None:
            row = self._one(QUERIES["conversation"], columns.text_in(conversation_id))
            if row is None:
                return None
            found = self._conversations[conversation_id] = columns.conversation_out(row)
        return found

    def turn_row(self, turn_id: str) -> TurnRow | None:
        """The turn."""
        found = self._turns.get(turn_id)
        if found is None:
            row = self._one(QUERIES["turn"], columns.text_in(turn_id))
            if row is None:
                return None
            found = self._turns[turn_id] = columns.turn_row_out(row)
        return found

    def _one(self, sql: str, *values: Any) -> Any:
        rows = self._cursor.execute(sql, values).fetchall()
        return rows[0] if rows else None
