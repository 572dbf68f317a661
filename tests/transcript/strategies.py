"""Random sessions, for properties."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.transcript.writing import ClaudeSession

TEXTS = st.one_of(
    st.sampled_from(["yes", "continue", "ok", "go on", "нет", "naïve \u2028 line"]),
    st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12).map(
        lambda text: f"say {text}"
    ),
)


@st.composite
def claude_sessions(draw: st.DrawFn, *, rewinds: bool = True, max_turns: int = 6) -> ClaudeSession:
    """A session of the shapes that the CLI really writes."""
    session = ClaudeSession()
    for turn in range(draw(st.integers(1, max_turns))):
        if rewinds and turn and draw(st.integers(0, 5)) == 0:
            session.rewind(draw(st.integers(1, 2)))
        session.human(draw(TEXTS))
        for _ in range(draw(st.integers(0, 2))):
            if draw(st.booleans()):
                session.thinking(draw(TEXTS))
            count = draw(st.integers(1, 3))
            session.tools(
                count,
                narration=draw(st.sampled_from(["", "Looking."])),
                order=draw(st.permutations(range(count))),
            )
            if draw(st.integers(0, 3)) == 0:
                session.absorbed(draw(TEXTS))
        session.answer(draw(TEXTS), pieces=draw(st.integers(1, 2)))
        if draw(st.booleans()):
            session.duration()
        if draw(st.booleans()):
            session.noise()
        if draw(st.integers(0, 6)) == 0:
            session.compact()
    return session
