"""The embedded form: a Keeper inside another program, as the tutorial and the README show it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surroundings import CHECKOUT
from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.parts import Text
from turnkeeper.errors import NotAnswered, StoreInUse


async def test_a_turn_is_answered_inside_another_program(tmp_path: Path) -> None:
    async with await Keeper.open(tmp_path / "data") as keeper:
        conversation = await keeper.create_conversation(OPERATOR, "demo")
        turn = await keeper.submit(
            OPERATOR, conversation.conversation_id, key="greeting-1", parts=[Text("hello")]
        )
        assert await keeper.answer(OPERATOR, turn.turn_id) == "ok hello"


async def test_an_answer_is_still_there_after_reopening_and_needs_no_waiting(tmp_path: Path) -> None:
    async with await Keeper.open(tmp_path / "data") as keeper:
        conversation = await keeper.create_conversation(OPERATOR, "demo")
        turn = await keeper.submit(OPERATOR, conversation.conversation_id, key="k", parts=[Text("hello")])
        await keeper.answer(OPERATOR, turn.turn_id)
    async with await Keeper.open(tmp_path / "data") as keeper:
        assert await keeper.answer(OPERATOR, turn.turn_id) == "ok hello"
        again = await keeper.submit(OPERATOR, conversation.conversation_id, key="k", parts=[Text("hello")])
        assert (again.turn_id, again.replayed) == (turn.turn_id, True)


async def test_a_turn_that_was_stopped_says_that_it_has_no_answer(tmp_path: Path) -> None:
    script = tmp_path / "s.json"
    script.write_text('{"rules": [{"match": "", "rounds": [{"stall_s": 600}]}]}')
    agents = tmp_path / "agents.toml"
    agents.write_text(f'[agents.demo]\nrunner = "model"\nprovider = "scripted"\nscript = "{script}"\n')
    async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
        conversation = await keeper.create_conversation(OPERATOR, "demo")
        turn = await keeper.submit(OPERATOR, conversation.conversation_id, key="k", parts=[Text("hello")])
        waiting = asyncio.ensure_future(keeper.answer(OPERATOR, turn.turn_id))
        await keeper.cancel(OPERATOR, turn.turn_id)
        with pytest.raises(NotAnswered, match="cancelled"):
            await waiting


async def test_a_second_keeper_on_one_folder_is_refused_by_name(tmp_path: Path) -> None:
    async with await Keeper.open(tmp_path / "data"):
        with pytest.raises(StoreInUse, match=re.escape(str(tmp_path / "data"))):
            await Keeper.open(tmp_path / "data")


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_program_that_a_page_shows_runs_as_it_stands(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (CHECKOUT / page).read_text("utf-8"), re.DOTALL)
    (program,) = (block for block in blocks if "Keeper.open" in block)
    if "asyncio.run" not in program:
        body = "".join(
            f"    {line}\n" if not line.startswith("from") else "" for line in program.splitlines()
        )
        imports = "".join(f"{line}\n" for line in program.splitlines() if line.startswith("from"))
        program = f"import asyncio\n{imports}\nasync def main():\n{body}\nasyncio.run(main())\n"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(CHECKOUT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "ok hello\n"), ended.stderr
