"""Short ways to write journals, for suites and tests: a conversation whose turns are played step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from turnkeeper.conversation.events import (
    Body,
    ConversationCreated,
    Draft,
    Event,
    MessageAppended,
    Submitted,
    TurnStarted,
    Unknown,
)
from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Part, Text
from turnkeeper.conversation.turns import Mode, Principal, Request
from turnkeeper.port.store import Batch, Fence, Store

E = TypeVar("E", bound=BaseException)


class Refusal:
    """What `refused` caught."""

    error: BaseException


@contextmanager
def refused(kind: type[BaseException]) -> Iterator[Refusal]:
    """Fail unless the block raises `kind`."""
    refusal = Refusal()
    try:
        yield refusal
    except kind as error:
        refusal.error = error
    else:
        msg = f"{kind.__name__} was not raised"
        raise AssertionError(msg)


def request(text: str = "hello", *, parts: tuple[Part, ...] | None = None, **more: Any) -> Request:
    """A complete request of user u1."""
    more.setdefault("principal", Principal("u1", ("read", "write"), "k1"))
    return Request(agent="demo", parts=(Text(text),) if parts is None else parts, **more)


class Script:
    """One conversation of a store. Times are whole seconds that grow by one with every commit."""

    def __init__(self, store: Store, conversation_id: str = "c1") -> None:
        self.store = store
        self.conversation_id = conversation_id
        self.at = 1000.0

    async def commit(
        self,
        *bodies: Body | Unknown,
        turn: str | None = None,
        attempt: int = 0,
        version: int | None = None,
        fence: Fence | None = None,
    ) -> tuple[Event, ...]:
        """Store `bodies` as events of `turn`; a Submitted is one of its own turn."""
        self.at += 1.0
        drafts = tuple(
            Draft(body, body.turn_id if isinstance(body, Submitted) else turn, attempt, "user:u1")
            for body in bodies
        )
        return await self.store.commit(
            Batch(
                conversation_id=self.conversation_id,
                drafts=drafts,
                at=self.at,
                lane_version=version,
                fence=fence,
            )
        )

    async def create(self, owner: str = "u1", title: str = "") -> tuple[Event, ...]:
        """Begin the conversation."""
        return await self.commit(ConversationCreated(owner, "demo", title))

    async def submit(self, name: str, *bodies: Body, text: str = "hello", **more: Any) -> tuple[Event, ...]:
        """Submit turn t-NAME by submission s-NAME with key k-NAME, and store `bodies` with it."""
        return await self.commit(submitted(name, text=text, **more), *bodies, turn=f"t-{name}")

    async def start(self, name: str, fence: int = 1, until: float = 5000.0) -> Fence:
        """Let turn t-NAME run."""
        await self.commit(TurnStarted(fence, "me", until), turn=f"t-{name}", attempt=1)
        return Fence(f"t-{name}", fence)

    async def say(self, name: str, text: str, role: str = "user", **more: Any) -> tuple[Event, ...]:
        """Append message m-NAME."""
        return await self.commit(said(name, text, role, **more))


def submitted(
    name: str,
    *,
    key: str | None = None,
    text: str = "hello",
    mode: Mode = Mode.QUEUE,
    place: int = 0,
    parent: str | None = None,
    answer: dict[str, Any] | None = None,
    **more: Any,
) -> Submitted:
    """The event that makes turn t-NAME by submission s-NAME."""
    return Submitted(
        submission_id=f"s-{name}",
        turn_id=f"t-{name}",
        key=f"k-{name}" if key is None else key,
        fingerprint=f"f-{text}",
        request=request(text, mode=mode, **more),
        place=place,
        parent=parent,
        answer=answer,
    )


def said(name: str, text: str, role: str = "user", **more: Any) -> MessageAppended:
    """The event that appends message m-NAME."""
    return MessageAppended(
        Message(message_id=f"m-{name}", role=role, parts=(Text(text),), created_at=7.0, **more)
    )
