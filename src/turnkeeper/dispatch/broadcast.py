"""Live fan-out inside one process: who watches a conversation is woken and reads by cursor.

Durable events are never pushed: a watcher is told that there is more, and takes what follows its cursor
from the channel's recent events, or from the store where those do not reach. So there is no gap and no
double whatever is lost in between. Each event is encoded once, for all watchers. Volatile items (deltas)
are handed to who is there; a watcher that falls behind loses all of those it has not taken, and is told.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from turnkeeper.conversation import codec
from turnkeeper.conversation.events import Event
from turnkeeper.port.store import Store
from turnkeeper.projection.view import Durable, Resync, StreamItem, Volatile, event_view

RECENT_EVENTS = 256
"""Encoded events a channel keeps for watchers that are nearly up to date."""


def encode_event(event: Event) -> Durable:
    """An event as it goes out."""
    return Durable(event.seq, codec.wire(event_view(event)))


class Watcher:
    """One open stream's place in a channel."""

    __slots__ = ("dropped", "limit", "volatile", "wake")

    def __init__(self, limit: int) -> None:
        self.wake = asyncio.Event()
        self.volatile: deque[Volatile] = deque()
        self.limit = limit
        self.dropped = False


class Channel:
    """What is live of one conversation."""

    __slots__ = ("ended", "last_seq", "recent", "watchers")

    def __init__(self) -> None:
        self.recent: OrderedDict[int, Event | Durable] = OrderedDict()
        self.watchers: set[Watcher] = set()
        self.last_seq = 0
        self.ended = False

    def encoded(self, seq: int) -> Durable | None:
        """The recent event of this seq, encoded at most once."""
        item = self.recent.get(seq)
        if isinstance(item, Event):
            item = self.recent[seq] = encode_event(item)
        return item


class Broadcast:
    """The channels of one process."""

    def __init__(self, store: Store, *, buffer_items: int = 1000, resync_events: int = 10_000) -> None:
        self._store = store
        self._channels: dict[str, Channel] = {}
        self._buffer_items = buffer_items
        self._resync_events = resync_events
        self.hearers: list[Callable[[str, Sequence[Event]], None]] = []
        """Who is told of every committed event of every conversation, at once; they only take note."""

    @property
    def open_streams(self) -> int:
        """How many watchers there are."""
        return sum(len(channel.watchers) for channel in self._channels.values())

    def watched(self, conversation_id: str) -> bool:
        """Whether anybody watches."""
        return conversation_id in self._channels

    def publish(self, conversation_id: str, events: Sequence[Event]) -> None:
        """Tell watchers of committed events."""
        for hear in self.hearers:
            hear(conversation_id, events)
        channel = self._channels.get(conversation_id)
        if channel is None:
            return
        for event in events:
            channel.recent[event.seq] = event
            channel.last_seq = max(channel.last_seq, event.seq)
        while len(channel.recent) > RECENT_EVENTS:
            channel.recent.popitem(last=False)
        for watcher in channel.watchers:
            watcher.wake.set()

    def end(self, conversation_id: str) -> None:
        """Let who watches have what was published, and no more: the conversation is gone."""
        channel = self._channels.pop(conversation_id, None)
        if channel is not None:
            channel.ended = True
            for watcher in channel.watchers:
                watcher.wake.set()

    def show(self, conversation_id: str, kind: str, data: dict[str, Any]) -> None:
        """Hand something volatile to who watches."""
        channel = self._channels.get(conversation_id)
        if channel is None or not channel.watchers:
            return
        item = Volatile(kind, codec.wire(data))
        for watcher in channel.watchers:
            if len(watcher.volatile) >= watcher.limit:
                watcher.volatile.clear()
                watcher.dropped = True
            else:
                watcher.volatile.append(item)
            watcher.wake.set()

    async def watch(
        self, conversation_id: str, *, after: int | None, epoch: str | None = None
    ) -> AsyncGenerator[StreamItem, None]:
        """Every event after `after` (None: from now on), then live ones and volatile items, until `end`."""
        channel = self._channels.setdefault(conversation_id, Channel())
        watcher = Watcher(self._buffer_items)
        channel.watchers.add(watcher)
        try:
            conversation = await self._store.conversation(conversation_id)
            last_seq = 0 if conversation is None else conversation.last_seq
            channel.last_seq = max(channel.last_seq, last_seq)
            cursor = last_seq if after is None else after
            if epoch is not None and epoch != self._store.epoch:
                yield Resync("epoch", last_seq, self._store.epoch)
                cursor = last_seq
            elif cursor > channel.last_seq:
                yield Resync("ahead", last_seq, self._store.epoch)
                cursor = last_seq
            elif channel.last_seq - cursor > self._resync_events:
                yield Resync("too_old", last_seq, self._store.epoch)
                cursor = last_seq
            while True:
                watcher.wake.clear()
                while cursor < channel.last_seq:
                    item = channel.encoded(cursor + 1)
                    if item is not None:
                        cursor = item.seq
                        yield item
                        continue
                    stored = await self._store.events(conversation_id, after=cursor, limit=500)
                    if not stored:
                        break
                    for event in stored:
                        cursor = event.seq
                        yield encode_event(event)
                if channel.ended:
                    return
                if watcher.dropped:
                    watcher.dropped = False
                    yield Resync("too_slow", cursor, self._store.epoch)
                while watcher.volatile:
                    yield watcher.volatile.popleft()
                if not watcher.wake.is_set():
                    await watcher.wake.wait()
        finally:
            channel.watchers.discard(watcher)
            if not channel.watchers and self._channels.get(conversation_id) is channel:
                del self._channels[conversation_id]
