"""Histories of any length, written into the store of a server that is down."""

from __future__ import annotations

from pathlib import Path

from turnkeeper.app import Keeper
from turnkeeper.conversation.events import Draft, HistoryCompacted, MessageAppended
from turnkeeper.conversation.messages import ASSISTANT, NOTICE, USER, Message
from turnkeeper.conversation.parts import Text
from turnkeeper.history.shape import SUMMARY
from turnkeeper.port.store import Batch

PER_COMMIT = 500

ANSWER = """Here is what I found for question {n}.

- the first point is short
- the second one has `some code` in it

```python
def answer_{n}(x: int) -> int:
    return x * {n}
```

And a paragraph after it, long enough to take more than one line of the page on most screens, as answers do."""


def rows(count: int) -> list[Message]:
    """`count` messages, question and answer in turn."""
    made = []
    for number in range(count):
        asks = number % 2 == 0
        text = f"question {number // 2}" if asks else ANSWER.format(n=number // 2)
        made.append(
            Message(
                message_id=f"m_seed_{number:06d}",
                role=USER if asks else ASSISTANT,
                parts=(Text(text),),
                created_at=1_700_000_000.0 + number,
                provenance="inferred",
            )
        )
    return made


async def seed(data: Path, conversation_id: str, count: int) -> None:
    """Append `count` messages to a conversation."""
    async with await Keeper.open(data) as keeper:
        made = rows(count)
        for begin in range(0, count, PER_COMMIT):
            drafts = tuple(Draft(MessageAppended(message)) for message in made[begin : begin + PER_COMMIT])
            await keeper.store.commit(
                Batch(conversation_id=conversation_id, drafts=drafts, at=1_700_000_000.0 + begin)
            )


async def compact(data: Path, conversation_id: str) -> None:
    """Feeds of the conversation begin with a summary of all that was said."""
    async with await Keeper.open(data) as keeper:
        messages = await keeper.store.messages(conversation_id, before=None, limit=1)
        through = messages[-1].message_id
        notice = Message(
            message_id="m_summary",
            role=NOTICE,
            parts=(Text("SUMMARY OF IT ALL"),),
            created_at=1_700_000_000.0,
            provenance=SUMMARY,
            replay=False,
            through=through,
        )
        drafts = (
            Draft(HistoryCompacted(summary="SUMMARY OF IT ALL", through_message_id=through)),
            Draft(MessageAppended(notice)),
        )
        await keeper.store.commit(Batch(conversation_id=conversation_id, drafts=drafts, at=1_700_000_000.0))
