"""The feed's rules inside three frameworks, one line each; none of them is imported before it is used.

pydantic-ai      `Agent(model, capabilities=[ProcessHistory(clean_pydantic_ai)])`
LangGraph        `create_react_agent(model, tools, pre_model_hook=clean_langgraph)`
openai-agents    `Runner.run(agent, text, session=CleanSession(SQLiteSession("id", "file.db")))`

What the framework stores stays as it is; only what the model is given is clean. Healthy messages are handed on
as the very objects they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnkeeper.foreign.clean import clean
from turnkeeper.foreign.containers import (
    make_langchain,
    make_pydantic_ai,
    read_langchain,
    read_pydantic_ai,
    rebuild,
)
from turnkeeper.foreign.remint import remint
from turnkeeper.history.feed import build_feed


def clean_pydantic_ai(messages: list[Any]) -> list[Any]:
    """A history processor for pydantic-ai: `ModelMessage` objects in, the same cleaned out."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    reads = read_pydantic_ai(ModelMessagesTypeAdapter.dump_python(messages, mode="json"))
    feed = remint(build_feed(reads))
    healed = rebuild(feed, reads, messages, make_pydantic_ai)
    return [
        ModelMessagesTypeAdapter.validate_python([message])[0] if isinstance(message, dict) else message
        for message in healed
    ]


def clean_langgraph(state: Any) -> dict[str, list[Any]]:
    """A pre-model hook for LangGraph: the state's messages, cleaned, as `llm_input_messages`."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    classes: dict[str, Any] = {
        "human": HumanMessage,
        "ai": AIMessage,
        "tool": ToolMessage,
        "system": SystemMessage,
    }
    messages = list(state["messages"] if isinstance(state, dict) else state.messages)
    reads = read_langchain([message.model_dump() for message in messages])
    feed = remint(build_feed(reads))
    healed = rebuild(feed, reads, messages, make_langchain)
    made = [classes[m["type"]].model_validate(m) if isinstance(m, dict) else m for m in healed]
    return {"llm_input_messages": made}


class CleanSession:
    """A Session of the OpenAI Agents SDK around another one: it gives the other's items cleaned.

    The items end as the history does: the runner puts the new question behind them.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.session_id: str = inner.session_id
        self.session_settings: Any = getattr(inner, "session_settings", None)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The newest `limit` items, cleaned: a cut never parts a call from its result."""
        items: Sequence[Any] = await self.inner.get_items(limit)
        return clean(items, provider="openai-responses", for_request=False)

    async def add_items(self, items: list[Any]) -> None:
        """Store items as they are."""
        await self.inner.add_items(items)

    async def pop_item(self) -> Any:
        """Take the newest stored item away."""
        return await self.inner.pop_item()

    async def clear_session(self) -> None:
        """Forget the session."""
        await self.inner.clear_session()
