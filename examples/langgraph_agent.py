"""A LangGraph graph as an agent of Turnkeeper: no checkpointer is needed, the journal is one.

    [agents.helper]
    runner = "python"
    function = "langgraph_agent:agent"
    tools = ["my_tools:find_order"]

Needs `pip install langgraph langchain-openai`. MODEL_URL and MODEL_NAME say which model; the key is in
OPENAI_API_KEY.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

from httpx2 import AsyncClient
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from turnkeeper.agent.python import Cancel, ToolCaller, Used, as_openai_messages
from turnkeeper.conversation.messages import Message


def make_tool(tools: ToolCaller, name: str, description: str, schema: dict[str, Any]) -> StructuredTool:
    """One of Turnkeeper's tools for LangChain: it runs under the turn's ledger."""

    async def call(**arguments: Any) -> str:
        return (await tools.call(name, arguments)).content

    return StructuredTool.from_function(
        coroutine=call, name=name, description=description, args_schema=schema
    )


def make_graph(made: list[StructuredTool], http: AsyncClient) -> Any:
    """Ask the model, run what it asks for, until it asks for nothing."""
    model = ChatOpenAI(
        model=os.environ["MODEL_NAME"],
        base_url=os.environ["MODEL_URL"],
        http_async_client=http,
        max_retries=0,  # Turnkeeper tries again, from what was done
        streaming=True,
        stream_usage=True,
    )
    asking = model.bind_tools(made) if made else model

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await asking.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(made))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    return graph.compile()


def as_history(feed: Sequence[Message]) -> list[BaseMessage]:
    """The feed in LangChain's words."""
    history: list[BaseMessage] = []
    for message in as_openai_messages(feed):
        content = message.get("content") or ""
        if message["role"] == "assistant":
            calls = [
                {"id": c["id"], "name": c["function"]["name"], "args": json.loads(c["function"]["arguments"])}
                for c in message.get("tool_calls", ())
            ]
            history.append(AIMessage(content, tool_calls=calls))
        elif message["role"] == "tool":
            history.append(ToolMessage(content, tool_call_id=message["tool_call_id"]))
        else:
            history.append(HumanMessage(content))
    return history


async def agent(feed: Sequence[Message], tools: ToolCaller, cancel: Cancel) -> AsyncIterator[str | Used]:
    """What Turnkeeper calls for each turn, and again after a crash or a failure."""
    made = [make_tool(tools, s.name, s.description, s.schema) for s in tools.specs]
    start = {"messages": as_history(feed)}
    async with AsyncClient(timeout=None) as http:
        async for chunk, _ in make_graph(made, http).astream(start, stream_mode="messages"):
            if not isinstance(chunk, AIMessageChunk):
                continue
            if isinstance(chunk.content, str) and chunk.content:
                yield chunk.content
            if chunk.usage_metadata is not None:
                usage = chunk.usage_metadata
                yield Used(input_tokens=usage["input_tokens"], output_tokens=usage["output_tokens"])
