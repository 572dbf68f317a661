"""What our loop adds to a model call: rounds with everything durable, beside the bare SDK and beside peers.

One turn is two rounds on the loopback model server (in a process of its own): a tool call, its result, an
answer. All variants run in turns, in this process, over real HTTP and real SDKs; ours with SQLite, an fsync
at every commit, ledger, receipts and drafts. Peers keep nothing, unless their row says so: pydantic-ai on DBOS
keeps each model call and each tool call as a step of a workflow in SQLite, openai-agents its messages. A peer that
is not installed is said to be so (pip install "turnkeeper[bench]").
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.parts import Text
from turnkeeper.testing.bench import Row, at_least, at_most, clock, in_turns, median
from turnkeeper.testing.model_server.process import model_server_process

ROUNDS: Final = 2
"""Rounds of one turn."""
SINGLE_TURNS: Final = 20
PARALLEL: Final = 64
REPETITIONS: Final = 5
ANSWER: Final = "It is done, and here is what came of it: " + "word " * 40

RULES: Final = {
    "rules": [
        {
            "match": "",
            "rounds": [{"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]}, {"text": ANSWER}],
        }
    ]
}
SCHEMA: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

ON_DBOS: Final = "pydantic-ai on DBOS with SQLite, chat"

Turn = Callable[[], Awaitable[None]]

AGENTS: Final = """
[agents.anthropic]
provider = "anthropic"
model = "m"
base_url = "{url}"
api_key_env = "TURNKEEPER_BENCH_KEY"
tools = ["echo"]
demo_tools = true

[agents.chat]
provider = "openai-chat"
model = "m"
base_url = "{url}/v1"
api_key_env = "TURNKEEPER_BENCH_KEY"
tools = ["echo"]
demo_tools = true
"""


async def run() -> list[Row]:
    """All rows of the rounds' bench."""
    os.environ["TURNKEEPER_BENCH_KEY"] = "any"
    with tempfile.TemporaryDirectory() as folder:
        async with (
            model_server_process(RULES) as url,
            _keeper(Path(folder), url) as keeper,
            _pydantic_ai_on_dbos(url, Path(folder)) as on_dbos,
        ):
            variants = _variants(url, keeper, Path(folder))
            if on_dbos is not None:
                variants[ON_DBOS] = on_dbos
            for turn in variants.values():
                await turn()
            single = await in_turns({name: _one_by_one(turn) for name, turn in variants.items()}, REPETITIONS)
            many = await in_turns({name: _together(turn) for name, turn in variants.items()}, REPETITIONS)
    return _rows({k: median(v) for k, v in single.items()}, {k: median(v) for k, v in many.items()})


def _rows(single: dict[str, float], many: dict[str, float]) -> list[Row]:
    rows = []
    for wire in ("anthropic", "chat"):
        bare, ours = f"bare SDK, {wire}", f"ours, {wire}"
        rows += [
            Row(name=f"{bare}, one by one", value=single[bare], unit="ms/round"),
            at_most(
                f"{ours}, one by one", single[ours], "ms/round", of="bare SDK", base=single[bare], limit=1.8
            ),
            Row(name=f"{bare}, {PARALLEL} at once", value=many[bare], unit="rounds/s"),
            at_least(
                f"{ours}, {PARALLEL} at once",
                many[ours],
                "rounds/s",
                of="bare SDK",
                base=many[bare],
                limit=0.65,
            ),
        ]
    for peer, limit in (
        ("pydantic-ai, chat", 2.0),
        (ON_DBOS, 5.0),
        ("openai-agents, chat", 1.4),
        ("openai-agents with its SQLiteSession, chat", 2.0),
    ):
        if peer not in many:
            rows.append(Row(name=peer, value=0.0, unit="", note="not installed"))
            continue
        rows.append(
            at_least(
                f"ours beside {peer}, {PARALLEL} at once",
                many["ours, chat"],
                "rounds/s",
                of=peer,
                base=many[peer],
                limit=limit,
            )
        )
    return rows


def _one_by_one(turn: Turn) -> Callable[[], Awaitable[float]]:
    async def measure() -> float:
        """Milliseconds of one round at the middle."""
        found = []
        for _ in range(SINGLE_TURNS):
            began = clock()
            await turn()
            found.append(clock() - began)
        return median(found) / ROUNDS * 1000

    return measure


def _together(turn: Turn) -> Callable[[], Awaitable[float]]:
    async def measure() -> float:
        """Rounds a second."""
        began = clock()
        await asyncio.gather(*[turn() for _ in range(PARALLEL)])
        return PARALLEL * ROUNDS / (clock() - began)

    return measure


@contextlib.asynccontextmanager
async def _keeper(folder: Path, url: str) -> AsyncIterator[Keeper]:
    agents = folder / "agents.toml"
    agents.write_text(AGENTS.format(url=url))
    async with await Keeper.open(folder / "data", agents=agents) as keeper:
        yield keeper


def _variants(url: str, keeper: Keeper, folder: Path) -> dict[str, Turn]:
    found = {
        "bare SDK, anthropic": _bare_anthropic(url),
        "ours, anthropic": _ours(keeper, "anthropic"),
        "bare SDK, chat": _bare_chat(url),
        "ours, chat": _ours(keeper, "chat"),
    }
    if find_spec("pydantic_ai") is not None:
        found["pydantic-ai, chat"] = _pydantic_ai(url)
    if find_spec("agents") is not None:
        found["openai-agents, chat"] = _openai_agents(url, None)
        found["openai-agents with its SQLiteSession, chat"] = _openai_agents(url, folder / "session.db")
    return found


def _ours(keeper: Keeper, agent: str) -> Turn:
    async def turn() -> None:
        conversation = await keeper.create_conversation(OPERATOR, agent, "bench")
        conversation_id = conversation.conversation_id
        watching = keeper.watch(OPERATOR, conversation_id, after=conversation.last_seq)
        ended = asyncio.ensure_future(_end(watching))
        await keeper.submit(OPERATOR, conversation_id, key="k", parts=(Text("do it"),))
        await ended

    return turn


async def _end(watching: AsyncIterator[Any]) -> None:
    async for item in watching:
        if b'"TurnFailed"' in item.data:
            msg = f"the bench's turn failed: {item.data!r}"
            raise RuntimeError(msg)
        if b'"TurnSettled"' in item.data:
            return


def _bare_anthropic(url: str) -> Turn:
    from anthropic import AsyncAnthropic

    client: Any = AsyncAnthropic(base_url=url, api_key="any", timeout=120)
    tools = [{"name": "echo", "description": "Echo.", "input_schema": SCHEMA}]

    async def ask(messages: list[Any]) -> list[Any]:
        stream = await client.messages.create(
            model="m", max_tokens=1000, messages=messages, tools=tools, stream=True
        )
        blocks: list[dict[str, Any]] = []
        async for event in stream:
            if event.type == "content_block_start":
                blocks.append({**event.content_block.to_dict(), "json": ""})
            elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                blocks[-1]["json"] += event.delta.partial_json
            elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                blocks[-1]["text"] += event.delta.text
        return blocks

    async def turn() -> None:
        messages: list[Any] = [{"role": "user", "content": "do it"}]
        (block,) = await ask(messages)
        call = {
            "type": "tool_use",
            "id": block["id"],
            "name": block["name"],
            "input": json.loads(block["json"]),
        }
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": "x"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        await ask(messages)

    return turn


def _bare_chat(url: str) -> Turn:
    from openai import AsyncOpenAI

    client: Any = AsyncOpenAI(base_url=f"{url}/v1", api_key="any", timeout=120)
    tools = [{"type": "function", "function": {"name": "echo", "description": "Echo.", "parameters": SCHEMA}}]

    async def ask(messages: list[Any]) -> dict[str, str]:
        stream = await client.chat.completions.create(
            model="m",
            messages=messages,
            tools=tools,
            stream=True,
            stream_options={"include_usage": True},
        )
        found = {"id": "", "arguments": "", "text": ""}
        async for chunk in stream:
            for choice in chunk.choices:
                found["text"] += choice.delta.content or ""
                for call in choice.delta.tool_calls or ():
                    found["id"] = call.id or found["id"]
                    found["arguments"] += call.function.arguments or ""
        return found

    async def turn() -> None:
        messages: list[Any] = [{"role": "user", "content": "do it"}]
        call = await ask(messages)
        function = {"name": "echo", "arguments": call["arguments"]}
        messages += [
            {
                "role": "assistant",
                "tool_calls": [{"id": call["id"], "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call["id"], "content": "x"},
        ]
        await ask(messages)

    return turn


async def _echo(text: str) -> str:
    """Echo."""
    return text


def _pydantic_agent(url: str, echo: Any, *capabilities: Any) -> Any:
    from importlib import import_module

    pydantic_ai: Any = import_module("pydantic_ai")
    models: Any = import_module("pydantic_ai.models.openai")
    providers: Any = import_module("pydantic_ai.providers.openai")
    provider = providers.OpenAIProvider(base_url=f"{url}/v1", api_key="any")
    tool = pydantic_ai.Tool(echo, name="echo", takes_ctx=False)
    model = models.OpenAIChatModel("m", provider=provider)
    return pydantic_ai.Agent(model, name="bench", tools=[tool], capabilities=list(capabilities))


@contextlib.asynccontextmanager
async def _pydantic_ai_on_dbos(url: str, folder: Path) -> AsyncIterator[Turn | None]:
    """A turn is a workflow, its model calls (streamed, as ours are) and its tool call are steps, kept in SQLite.

    In an event loop of its own: DBOS gives each loop that it works in its own threads, and ends them with itself.
    """
    if find_spec("pydantic_ai") is None or find_spec("dbos") is None:
        yield None
        return
    from importlib import import_module

    dbos: Any = import_module("dbos").DBOS
    durable: Any = import_module("pydantic_ai.durable_exec.dbos")
    database = f"sqlite:///{folder / 'dbos.sqlite'}"
    dbos(
        config={"name": "bench", "system_database_url": database, "log_level": "ERROR", "enable_otlp": False}
    )

    async def look(_context: Any, events: AsyncIterator[Any]) -> None:
        async for _ in events:
            pass

    durability = durable.DBOSDurability(event_stream_handler=look)
    agent = _pydantic_agent(url, dbos.step(name="echo")(_echo), durability)

    @dbos.workflow(name="turn")  # type: ignore[untyped-decorator]
    async def workflow() -> None:
        await agent.run("do it")

    dbos.launch()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="dbos", daemon=True)
    thread.start()

    async def turn() -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(workflow(), loop))

    try:
        yield turn
    finally:
        await asyncio.to_thread(dbos.destroy, destroy_registry=True)
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()


def _pydantic_ai(url: str) -> Turn:
    agent = _pydantic_agent(url, _echo)

    async def turn() -> None:
        async with agent.run_stream_events("do it") as events:
            async for _ in events:
                pass

    return turn


def _openai_agents(url: str, session: Path | None) -> Turn:
    from importlib import import_module

    from openai import AsyncOpenAI

    agents: Any = import_module("agents")
    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="any", timeout=120)

    async def echo(_context: Any, arguments: str) -> str:
        return str(json.loads(arguments)["text"])

    tool = agents.FunctionTool(
        name="echo",
        description="Echo.",
        params_json_schema=SCHEMA,
        on_invoke_tool=echo,
        strict_json_schema=False,
    )
    agent = agents.Agent(name="a", model=agents.OpenAIChatCompletionsModel("m", client), tools=[tool])
    count = 0

    async def turn() -> None:
        nonlocal count
        count += 1
        kept = None if session is None else agents.SQLiteSession(f"s{count}", session)
        result = agents.Runner.run_streamed(agent, "do it", session=kept)
        async for _ in result.stream_events():
            pass

    return turn
