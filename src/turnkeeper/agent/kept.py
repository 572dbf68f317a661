"""What one turn of a conversation leaves to the next, so that a turn does not cost what the conversation is long.

A history that was read once is kept with its feed: closed turns stay clean and encoded. It is only ever a shortcut.
The next turn asks the store for everything since the last reading, compares it with what the last turn believed
it had added, message by message, and reads anew if they differ in anything or if something reached back (a
message was marked, rows were placed, a summary was made). So a commit that failed, a secret that was masked on
its way into the store, or another process's work can cost time and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from turnkeeper.agent.reply import call_ids
from turnkeeper.conversation.messages import Message
from turnkeeper.history.builder import FeedBuilder
from turnkeeper.history.feed import Compaction

MESSAGE_CHARS: Final = 500
"""What a message is taken to cost beside its words."""


class KeptHistory(msgspec.Struct, kw_only=True):
    """A history as a turn left it. `messages[base:]` were added since the store was read at `seq`."""

    seq: int
    base: int
    messages: list[Message]
    builder: FeedBuilder
    compaction: Compaction | None
    call_ids: set[str] | None
    measured: int = 0
    chars: int = 0
    """About how long the first `measured` messages are."""

    def size_chars(self) -> int:
        """About how long all of it is; what was measured before is not measured again."""
        if self.measured > len(self.messages):
            self.measured = self.chars = 0
        for message in self.messages[self.measured :]:
            self.chars += MESSAGE_CHARS
            for part in message.parts:
                words = getattr(part, "text", None) or getattr(part, "content", None)
                self.chars += len(words) if isinstance(words, str) else 0
        self.measured = len(self.messages)
        return self.chars

    def grow(self, since: Sequence[Message]) -> bool:
        """Take over what the store has since `seq`; False if that is not what the last turn left."""
        added = self.messages[self.base :]
        if len(added) > len(since):
            return False
        for ours, stored in zip(added, since, strict=False):
            if msgspec.structs.replace(ours, seq=stored.seq) != stored:
                return False
        self.messages[self.base :] = since
        new = since[len(added) :]
        self.builder.extend(new)
        if self.call_ids is not None:
            self.call_ids |= call_ids(new)
        return True


class Histories:
    """Kept histories by conversation, the least recently used forgotten first. Each is taken by one turn at a time."""

    def __init__(self, messages_max: int, chars_max: int) -> None:
        self._kept: OrderedDict[str, KeptHistory] = OrderedDict()
        self._messages_max = messages_max
        self._chars_max = chars_max
        self._messages = 0
        self._chars = 0

    def take(self, conversation_id: str) -> KeptHistory | None:
        """The conversation's history, which is then the caller's alone."""
        kept = self._kept.pop(conversation_id, None)
        if kept is not None:
            self._messages -= kept.measured
            self._chars -= kept.chars
        return kept

    def give(self, conversation_id: str, kept: KeptHistory) -> None:
        """Keep a history for the next turn."""
        self.take(conversation_id)
        self._kept[conversation_id] = kept
        self._chars += kept.size_chars()
        self._messages += kept.measured
        while self._kept and (self._messages > self._messages_max or self._chars > self._chars_max):
            _, forgotten = self._kept.popitem(last=False)
            self._messages -= forgotten.measured
            self._chars -= forgotten.chars

    def __len__(self) -> int:
        return len(self._kept)
