"""What a turn leaves to the garbage collector: nothing. The server's collector comes by seldom (BD146)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.parts import Text

SCRIPT = """{"rules": [
  {"match": "tool", "rounds": [{"text": "looking", "tool_calls": [{"name": "clock", "arguments": {}}]},
                               {"text": "done"}]},
  {"match": "", "rounds": [{"text": "a plain answer"}]}]}"""
AGENTS = '[agents.demo]\nrunner = "model"\nprovider = "scripted"\nscript = "{script}"\n'


@pytest.fixture
def rings() -> Iterator[list[object]]:
    """What the collector finds instead of freeing it."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    found: list[object] = gc.garbage
    found.clear()
    try:
        yield found
    finally:
        gc.set_debug(0)
        found.clear()


@pytest.mark.parametrize("text", ["say something", "use a tool"])
async def test_a_turn_leaves_no_ring_of_objects_behind(
    text: str, tmp_path: Path, rings: list[object]
) -> None:
    script, agents = tmp_path / "script.json", tmp_path / "agents.toml"
    script.write_text(SCRIPT)
    agents.write_text(AGENTS.format(script=script))
    async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
        conversation = await keeper.create_conversation(OPERATOR, "demo")
        for key in ("first", "second"):
            turn = await keeper.submit(OPERATOR, conversation.conversation_id, key=key, parts=[Text(text)])
            await keeper.answer(OPERATOR, turn.turn_id)
            gc.collect()
            ours = {
                type(each).__qualname__ for each in rings if type(each).__module__.startswith("turnkeeper.")
            }
            if key == "first":
                rings.clear()  # what is made once, on first use
                continue
            assert ours == set()
