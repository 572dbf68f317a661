"""A leak that is found after words of it went out is taken back in the same stream (seed 004)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.parts import Text
from turnkeeper.projection.view import Durable, Volatile

LEAK = 'Let me look at the file.\n<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>'
AGENTS = '[agents.leaky]\nscript = "script.json"\n'


async def test_words_that_went_out_are_withdrawn_in_the_stream_and_stand_in_no_snapshot(
    tmp_path: Path,
) -> None:
    rounds = [{"text": LEAK, "chars_per_s": 800}, {"text": "Here it is."}]
    (tmp_path / "script.json").write_text(json.dumps({"rules": [{"match": "", "rounds": rounds}]}))
    agents = tmp_path / "agents.toml"
    agents.write_text(AGENTS)
    async with await Keeper.open(tmp_path / "data", agents=agents) as keeper:
        name = (await keeper.create_conversation(OPERATOR, "leaky")).conversation_id
        turn = await keeper.submit(OPERATOR, name, key="k", parts=(Text("look"),))
        seen: list[tuple[str, Any]] = []
        async for item in keeper.broadcast.watch(name, after=0):
            if isinstance(item, Volatile) and item.kind == "text":
                seen.append(("text", json.loads(item.data)))
            elif isinstance(item, Durable):
                event = json.loads(item.data)
                seen.append((event["kind"], event["body"]))
                if event["kind"] == "AttemptSuperseded":
                    snapshot = await keeper.conversation(OPERATOR, name)
                    assert "Let me look" not in str((snapshot.running or {}).get("text"))
                if event["kind"] == "TurnSettled":
                    break
        kinds = [kind for kind, _ in seen]
        withdrawn = kinds.index("AttemptSuperseded")
        before = "".join(body["text"] for kind, body in seen[:withdrawn] if kind == "text")
        after = [body for kind, body in seen[withdrawn:] if kind == "text"]
        assert before.startswith("Let me look")
        assert "<" not in before
        assert "".join(body["text"] for body in after) == "Here it is."
        assert after[0]["offset"] == 0
        assert await keeper.answer(OPERATOR, turn.turn_id) == "Here it is."
        shown = [m for m in (await keeper.messages(OPERATOR, name))[0] if m.role == "assistant"]
        assert sorted((m.replay, m.display) for m in shown) == [(False, True), (True, True)]
