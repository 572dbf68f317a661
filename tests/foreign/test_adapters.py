"""Three frameworks, for real: the strict server refuses their sick history, and takes it once it is cleaned."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import openai
import pytest

from turnkeeper.foreign.adapters import CleanSession, clean_langgraph, clean_pydantic_ai
from turnkeeper.testing.model_server import ModelServer

SCRIPT = {"rules": [{"match": "", "rounds": [{"text": "fine"}]}]}
FOREIGN_ID = "gem_" + "x" * 80
"""A call id of another provider, longer than this one takes (wire rule C4)."""


async def test_a_pydantic_ai_agent_goes_on_with_the_ids_of_another_provider() -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.capabilities import ProcessHistory
    from pydantic_ai.exceptions import ModelHTTPError
    from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    history = [
        ModelRequest(parts=[UserPromptPart("write")]),
        ModelResponse(parts=[ToolCallPart("write_file", {}, tool_call_id=FOREIGN_ID)]),
        ModelRequest(parts=[ToolReturnPart("write_file", "written", tool_call_id=FOREIGN_ID)]),
    ]
    async with ModelServer(SCRIPT) as server:
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
        model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
        sick = pydantic_ai.Agent(model)
        with pytest.raises(ModelHTTPError):
            await sick.run("shorter", message_history=history)
        well = pydantic_ai.Agent(model, capabilities=[ProcessHistory(clean_pydantic_ai)])
        answer = await well.run("shorter", message_history=history)
        assert answer.output == "fine"
        assert [seen.status for seen in server.requests] == [400, 200]
        await client.close()


def test_healthy_pydantic_ai_messages_are_the_very_objects() -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

    history = [ModelRequest(parts=[UserPromptPart("a")]), ModelResponse(parts=[TextPart("b")])]
    history.append(ModelRequest(parts=[UserPromptPart("c")]))
    assert [a is b for a, b in zip(clean_pydantic_ai(history), history, strict=True)] == [True] * 3


async def test_a_langgraph_model_goes_on_after_an_open_call() -> None:
    pytest.importorskip("langchain_openai")
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph

    call = {"name": "deploy", "args": {}, "id": "c1", "type": "tool_call"}
    state: dict[str, Any] = {
        "messages": [HumanMessage("go"), AIMessage("", tool_calls=[call]), HumanMessage("well?")]
    }
    async with ModelServer(SCRIPT) as server:
        model = ChatOpenAI(model="m", base_url=f"{server.url}/v1", api_key="any", max_retries=0)  # type: ignore[arg-type]

        def graph(*, cleaned: bool) -> Any:
            async def ask(values: dict[str, Any]) -> dict[str, Any]:
                asked = clean_langgraph(values)["llm_input_messages"] if cleaned else values["messages"]
                return {"messages": [await model.ainvoke(asked)]}

            return StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()

        with pytest.raises(openai.BadRequestError):
            await graph(cleaned=False).ainvoke(state)
        result = await graph(cleaned=True).ainvoke(state)
        assert result["messages"][-1].content == "fine"
        assert [seen.status for seen in server.requests] == [400, 200]
        assert result["messages"][:3] == state["messages"]
        await model.root_async_client.close()


async def test_an_openai_agents_session_goes_on_after_an_open_call(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agents = pytest.importorskip("agents")

    stored = [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "c1", "name": "deploy", "arguments": "{}"},
    ]
    async with ModelServer(SCRIPT) as server:
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
        agents.set_tracing_disabled(True)
        session = agents.SQLiteSession("s", tmp_path / "s.db")
        await session.add_items(stored)
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model="m", input=await session.get_items())
        model = agents.OpenAIResponsesModel("m", client)
        agent = agents.Agent(name="a", model=model)
        answer = await agents.Runner.run(agent, "well?", session=CleanSession(session))
        assert answer.final_output == "fine"
        assert server.requests[0].status == 400
        assert server.requests[-1].status == 200
        assert (await session.get_items())[:2] == stored
        session.close()
        await client.close()
