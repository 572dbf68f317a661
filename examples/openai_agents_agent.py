"""An agent of the OpenAI Agents SDK as an agent of Turnkeeper: no session is needed, the journal is one.

    [agents.helper]
    runner = "python"
    function = "openai_agents_agent:agent"
    tools = ["my_tools:find_order"]

Needs `pip install openai-agents`. MODEL_URL and MODEL_NAME say which model; the key is in OPENAI_API_KEY.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agents import Agent, FunctionTool, OpenAIChatCompletionsModel, Runner, Tool, set_tracing_disabled
from agents.tool_context import ToolContext
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent

from turnkeeper.agent.python import Cancel, ToolCaller, Used, as_openai_messages
from turnkeeper.conversation.messages import Message

set_tracing_disabled(True)

MAX_TURNS = 50


def make_tool(tools: ToolCaller, name: str, description: str, schema: dict[str, Any]) -> FunctionTool:
    """One of Turnkeeper's tools for the SDK: it runs under the turn's ledger."""

    async def call(_context: ToolContext[Any], arguments: str) -> str:
        return (await tools.call(name, json.loads(arguments or "{}"))).content

    return FunctionTool(
        name=name,
        description=description,
        params_json_schema=schema,
        on_invoke_tool=call,
        strict_json_schema=False,
    )


def as_items(feed: Sequence[Message]) -> list[Any]:
    """The feed as input items of the SDK."""
    items: list[Any] = []
    for message in as_openai_messages(feed):
        if message["role"] == "tool":
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": message["tool_call_id"],
                    "output": message["content"],
                }
            )
            continue
        if message.get("content"):
            items.append({"role": message["role"], "content": message["content"]})
        items += [
            {"type": "function_call", "call_id": call["id"], **call["function"]}
            for call in message.get("tool_calls", ())
        ]
    return items


async def agent(feed: Sequence[Message], tools: ToolCaller, cancel: Cancel) -> AsyncIterator[str | Used]:
    """What Turnkeeper calls for each turn, and again after a crash or a failure."""
    made: list[Tool] = [make_tool(tools, s.name, s.description, s.schema) for s in tools.specs]
    async with AsyncOpenAI(
        base_url=os.environ["MODEL_URL"], max_retries=0
    ) as client:  # Turnkeeper tries again
        model = OpenAIChatCompletionsModel(os.environ["MODEL_NAME"], client)
        helper = Agent(name="helper", model=model, tools=made)
        result = Runner.run_streamed(helper, as_items(feed), max_turns=MAX_TURNS)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
                yield event.data.delta
    usage = result.context_wrapper.usage
    yield Used(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
