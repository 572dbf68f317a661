"""What happened to the requests of each call, for who made the call (see `wire`)."""

from __future__ import annotations

from typing import Final

import msgspec

CALL_KEY: Final = "turnkeeper/call"
"""Member of a call's `_meta`: the call's idempotency key, for the server and for our notes."""

NOTES_MAX: Final = 1_000


class Note(msgspec.Struct):
    """What happened to the last request of a call."""

    status: int = 0
    challenge: str = ""
    """Its WWW-Authenticate header."""
    grant: str = ""
    """The grant it was sent with."""
    not_sent: str = ""
    lost: str = ""

    @property
    def refused(self) -> bool:
        """Whether it was refused for want of a sign-in, or of more rights than that gave."""
        return self.status == 401 or (self.status == 403 and "insufficient_scope" in self.challenge)


class Notes:
    """The notes of one connection, by the key of a call; for requests that are none, by their method."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}

    def begin(self, key: str) -> Note:
        """A new note for a request of this call."""
        self._notes.pop(key, None)  # the newest stands last
        while len(self._notes) >= NOTES_MAX:
            self._notes.pop(next(iter(self._notes)))
        note = self._notes[key] = Note()
        return note

    def of(self, key: str) -> Note:
        """What happened to the last request of this call; an empty note if none was sent."""
        return self._notes.get(key) or Note()

    @property
    def challenge(self) -> str:
        """The newest WWW-Authenticate header of a refusal."""
        refused = [note for note in self._notes.values() if note.refused]
        return refused[-1].challenge if refused else ""
