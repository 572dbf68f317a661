"""A pydantic-ai agent as an agent of Turnkeeper: it streams, and its tools act once.

    [agents.helper]
    runner = "python"
    function = "pydantic_ai_agent:agent"
    tools = ["my_tools:find_order"]

Needs `pip install "pydantic-ai-slim[openai]"`. MODEL_URL and MODEL_NAME say which model; the key is in
OPENAI_API_KEY.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

from openai import AsyncOpenAI
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResultEvent

from turnkeeper.agent.python import Cancel, ToolCaller, Used, as_openai_messages
from turnkeeper.conversation.messages import Message


def make_model(client: AsyncOpenAI) -> OpenAIChatModel:
    """The model."""
    return OpenAIChatModel(os.environ["MODEL_NAME"], provider=OpenAIProvider(openai_client=client))


def make_tool(tools: ToolCaller, name: str, description: str, schema: dict[str, Any]) -> Tool[None]:
    """One of Turnkeeper's tools for pydantic-ai: it runs under the turn's ledger."""

    async def call(**arguments: Any) -> str:
        return (await tools.call(name, arguments)).content

    return Tool.from_schema(call, name=name, description=description, json_schema=schema)


def as_history(feed: Sequence[Message]) -> list[ModelMessage]:
    """The feed in pydantic-ai's words."""
    history: list[ModelMessage] = []
    names: dict[str, str] = {}
    for message in as_openai_messages(feed):
        if message["role"] == "assistant":
            parts: list[Any] = [TextPart(message["content"])] if message.get("content") else []
            for call in message.get("tool_calls", ()):
                function = call["function"]
                names[call["id"]] = function["name"]
                parts.append(
                    ToolCallPart(function["name"], json.loads(function["arguments"]), tool_call_id=call["id"])
                )
            history.append(ModelResponse(parts=parts))
        elif message["role"] == "tool":
            call_id = message["tool_call_id"]
            returned = ToolReturnPart(names[call_id], message["content"], tool_call_id=call_id)
            history.append(ModelRequest(parts=[returned]))
        else:
            history.append(ModelRequest(parts=[UserPromptPart(message["content"])]))
    return history


async def agent(feed: Sequence[Message], tools: ToolCaller, cancel: Cancel) -> AsyncIterator[str | Used]:
    """What Turnkeeper calls for each turn, and again after a crash or a failure."""
    made = [make_tool(tools, spec.name, spec.description, spec.schema) for spec in tools.specs]
    client = AsyncOpenAI(base_url=os.environ["MODEL_URL"], max_retries=0)  # Turnkeeper tries again
    helper = Agent(make_model(client), tools=made, retries=0)
    async with client, helper.run_stream_events(message_history=as_history(feed)) as events:
        async for event in events:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                yield event.part.content
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                yield event.delta.content_delta
            elif isinstance(event, AgentRunResultEvent):
                usage = event.result.usage
                yield Used(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
