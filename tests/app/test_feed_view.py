"""What the model saw beside what a person sees, from the real store."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnkeeper.app import OPERATOR, Keeper
from turnkeeper.conversation.parts import Text
from turnkeeper.errors import BadInput
from turnkeeper.provider.dialects import DIALECTS


@pytest.mark.parametrize("provider", [None, "any", *sorted(DIALECTS)])
async def test_the_feed_of_a_conversation_in_every_dialect(tmp_path: Path, provider: str | None) -> None:
    async with await Keeper.open(tmp_path / "data") as keeper:
        c = (await keeper.create_conversation(OPERATOR, "demo")).conversation_id
        turn = await keeper.submit(OPERATOR, c, key="k", parts=(Text("hello"),))
        async for _ in keeper.watch(OPERATOR, c, after=0):
            if (await keeper.turn(OPERATOR, turn.turn_id)).state == "settled":
                break
        await keeper.submit(OPERATOR, c, key="k2", parts=(Text("more"),))
        seen = await keeper.feed(OPERATOR, c, provider)
        assert [row["role"] for row in seen["feed"]][:3] == ["user", "assistant", "user"]
        assert [row["parts"][0]["text"] for row in seen["display"]][:2] == ["hello", "ok hello"]
        assert seen["request"] is not None
        with pytest.raises(BadInput, match="no provider 'ghost'"):
            await keeper.feed(OPERATOR, c, "ghost")
