"""The drafts of a running answer hold no secret, neither whole nor in pieces, and lose nothing of its words (G17)."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.world import PlayedModel, World, run
from turnkeeper.agent.so_far import read_turn
from turnkeeper.conversation import codec
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.masking import HELD_PATTERN_CHARS_MAX, Masker
from turnkeeper.conversation.messages import INTERRUPTED
from turnkeeper.errors import StoreBusy
from turnkeeper.port.provider import TextDelta
from turnkeeper.testing.turn_port import MemoryTurn

LITERAL = "hunter22!"
"""Shorter than the token that stands in its place."""
KEY_BLOCK = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow" + "Ab9/" * 20 + "\n-----END RSA PRIVATE KEY-----"
SECRETS = [
    "sk-ant-api03-" + "x9" * 20,
    "ghp_" + "A1" * 18,
    "xoxb-123456789012-abcdef",
    "AKIA" + "Z9" * 8,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkw.dozjgNryP4J3jVmNHl0w5N",
    KEY_BLOCK,
    LITERAL,
]


class Masked(MemoryTurn):
    """Masks what is journaled, as the dispatcher does."""

    def _event(self, body: Any, seq: int, attempt: int) -> ev.Event:
        if self.masker is not None:
            body = codec.decode_body(body.kind, self.masker.mask(codec.encode_body(body))[0])
        return super()._event(body, seq, attempt)


class Pieces(PlayedModel):
    """A model whose words come in these pieces, each long enough after the last for a draft; then it hangs."""

    def __init__(self, pieces: list[str]) -> None:
        super().__init__()
        self.pieces = pieces
        self.said = asyncio.Event()

    async def stream(self, call: Any) -> Any:
        for piece in self.pieces:
            yield TextDelta(piece)
            await asyncio.sleep(1)
        self.said.set()
        await asyncio.Event().wait()


async def drafted(pieces: list[str], busy: int = 0, masker: Masker | None = None) -> MemoryTurn:
    """The journal of an answer that was cut by a kill; the store is busy for the first `busy` drafts."""
    model = Pieces(pieces)
    world = World(model=model)
    turn = Masked(world.clock, world.ids, text="hello")
    turn.masker = masker or Masker(secrets=[LITERAL])
    commits = 0

    def visit() -> None:
        nonlocal commits
        commits += 1
        if 1 < commits <= 1 + busy:
            raise StoreBusy

    turn.on_commit = visit
    task = asyncio.ensure_future(turn.carry_out(world.runner))
    await model.said.wait()
    task.cancel()
    return turn


def cut(text: str, places: list[int]) -> list[str]:
    at = [0, *sorted({place % len(text) for place in places} - {0}), len(text)]
    return [text[a:b] for a, b in pairwise(at)]


@given(
    secret=st.sampled_from(SECRETS),
    before=st.sampled_from(["", "the key is ", "x=", "日本", "-----", "-----BEGIN CERTIFICATE-----\n"]),
    places=st.lists(st.integers(0, 10_000), max_size=6),
    busy=st.integers(0, 2),
)
@settings(max_examples=40, deadline=None)
def test_however_an_answer_is_cut_into_drafts_no_secret_is_in_them_and_no_word_is_lost(
    secret: str, before: str, places: list[int], busy: int
) -> None:
    async def main() -> None:
        text = f"{before}{secret} and that is all, no more to say "
        turn = await drafted([*cut(text, places), ". "], busy)
        masker = Masker(secrets=[LITERAL])
        whole = codec.decode(masker.mask(codec.encode(text + ". "))[0], str)
        assert secret not in whole
        assert "".join([b.text for b in turn.bodies(ev.DraftSaved)]) == whole
        assert read_turn(turn.journal).draft == whole

    run(main())


OWN = [r"card( [0-9]{4}){4}", r"pass phrase: [a-z]+( [a-z]+){3}", r"first\\n[a-z]+", r"ø[0-9]+ø"]
"""Patterns that go over spaces, over a line's end as it stands in JSON, and over what is no ASCII."""


@given(
    secret=st.sampled_from(
        ["card 1234 5678 9012 3456", "pass phrase: correct horse battery staple", "first\nsecond", "ø123456ø"]
    ),
    before=st.sampled_from(["", "it is ", "é" * 300, "card 1234 card ", 'a\n"b' * 120]),
    after=st.sampled_from(["", " and more", " more" * 100]),
    places=st.lists(st.integers(0, 10_000), max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_a_secret_of_ones_own_shape_is_in_no_draft_either(
    secret: str, before: str, after: str, places: list[int]
) -> None:
    async def main() -> None:
        masker = Masker(patterns=OWN)
        text = f"{before}{secret}.{after}"
        turn = await drafted([*cut(text, places), "!" * HELD_PATTERN_CHARS_MAX, "."], masker=masker)
        drafts = "".join([b.text for b in turn.bodies(ev.DraftSaved)])
        whole = codec.decode(masker.mask(codec.encode(text))[0], str)
        assert secret not in whole
        assert drafts.rstrip("!") == whole

    run(main())


def test_a_token_longer_than_its_secret_cuts_nothing_off() -> None:
    async def main() -> None:
        turn = await drafted([f"It is {LITERAL} as you know. ", "And this goes on. ", "The end. "])
        later = turn.again("rescued")
        world = World("done")
        await later.carry_out(world.runner)
        half = next(m for m in later.history() if m.standing == INTERRUPTED)
        assert half.text.endswith("as you know. And this goes on. The end. ")
        assert LITERAL not in half.text

    run(main())


@pytest.mark.parametrize(
    "text", ["x" * 5000, "0123456789" * 500, "task-force task-" * 50, "日本語" * 900, "a-b_c." * 300]
)
def test_what_is_no_secret_is_not_held_back(text: str) -> None:
    assert Masker(secrets=[LITERAL]).settled_chars(text + "q") >= len(text) - 4


def test_what_is_held_back_is_bounded() -> None:
    masker = Masker(secrets=[LITERAL], patterns=["acct [0-9]+"])
    assert masker.settled_chars("sk-" + "a" * 50_000) >= 50_003 - 10_100
    assert masker.settled_chars("-----BEGIN PRIVATE KEY-----" + "a\n" * 20_000) >= 40_027 - 10_100
    assert masker.settled_chars("word " + "b" * 1000) == 1005 - 256
