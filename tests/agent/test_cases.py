"""The public feed cases that need a runtime, played by our loop: what was fed, what ran, what is shown.

A case's history becomes a journal: of an earlier turn where the case brings a new message, of this very turn
where it goes on with one. Then the loop runs, with the case's script for a model.
"""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.world import PlayedModel, World, call, results, run
from turnkeeper.agent.definition import Policies
from turnkeeper.agent.plan import CrashPolicy
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, ERRORED, TOOL, USER, Message
from turnkeeper.conversation.parts import Part, Text, ToolCall, ToolResult
from turnkeeper.conversation.turns import Disposition, Effect, Failure
from turnkeeper.foreign.case import read_case
from turnkeeper.port.provider import Reply
from turnkeeper.port.runner import Answered, FailedWith, Needs
from turnkeeper.provider.script import parse_script
from turnkeeper.provider.scripted import Scripted
from turnkeeper.testing.turn_port import MemoryTurn
from turnkeeper.tool import Tool

VECTORS = Path(__file__).parents[1] / "vectors" / "feed"

CONTEXT = Failure(kind="context", retryable=False, sentence="Too long.", status=400)


def load(case_id: str) -> dict[str, Any]:
    return json.loads((VECTORS / f"{case_id}.json").read_text("utf-8"))


class Played:
    """One case, its world, and what came of it."""

    def __init__(self, case_id: str, *steps: Any, policies: Policies | None = None) -> None:
        self.value = load(case_id)
        self.case = read_case(self.value)
        self.expect = self.value["expect"]
        self.executed: list[tuple[str, Any]] = []
        self.asking = {
            part["name"]
            for entry in self.value["history"]
            for part in entry.get("parts", ())
            if part.get("requires_approval")
        } | {step["name"] for step in self.value.get("script", ()) if step.get("requires_approval")}
        names = {p.name for m in self.case.messages for p in m.parts if isinstance(p, ToolCall)}
        names |= {step["name"] for step in self.value.get("script", ()) if step.get("model") == "tool_call"}
        model = PlayedModel(*steps, *self._steps())
        self.world = World(model=model, tools=[self._tool(name) for name in names], policies=policies)
        self.before = list(self.case.messages)

    def _tool(self, name: str) -> Tool:
        outputs = self.value.get("tool_outputs", {})

        async def invoke(arguments: Any, key: str) -> Any:
            self.executed.append((name, arguments))
            return outputs.get(name, "ok")

        return Tool(
            name=name,
            description=name,
            schema={"type": "object"},
            effect=Effect.ACTS,
            invoke=invoke,
            check=lambda arguments: None,
            must_ask=name in self.asking,
        )

    def _steps(self) -> list[Any]:
        steps: list[Any] = []
        for entry in self.value.get("script", ()):
            if entry.get("model") == "text":
                steps.append(entry["text"])
            elif entry.get("model") == "tool_call":
                steps.append([call(entry["name"], entry["arguments"], entry["id"])])
        return steps

    # -- a journal from a history

    def journal(self, turn: MemoryTurn, messages: list[Message], turn_id: str) -> None:
        """Put `messages` into the journal as our own loop would have written them for `turn_id`."""
        number = 0
        for message in messages:
            own = message.turn_id or turn_id
            bodies: list[Any] = []
            if message.role == ASSISTANT:
                number += 1
                bodies.append(ev.RoundStarted(number))
                stored = _replace(message, turn_id=own, round=number, provenance="model")
                bodies.append(ev.MessageAppended(stored))
                if message.standing == ERRORED:
                    stall = Failure(kind="stall", retryable=True, sentence="20 s of silence.")
                    bodies.append(ev.RoundFailed(number, stall))
                    number -= 1
                else:
                    bodies.append(ev.RoundFinished(number))
                    bodies += self._intents(stored, number)
            elif message.role == TOOL:
                for part in message.parts:
                    assert isinstance(part, ToolResult)
                    done = Disposition.FAILED if part.is_error else Disposition.DONE
                    bodies.append(ev.ToolReturned(call_id=part.tool_call_id, disposition=done))
                bodies.append(ev.MessageAppended(_replace(message, turn_id=own)))
            else:
                bodies.append(ev.MessageAppended(_replace(message, turn_id=own)))
            for body in bodies:
                event = turn._event(body, len(turn.journal) + 1, 1)
                turn.journal.append(_replace(event, turn_id=own))

    def _intents(self, message: Message, number: int) -> list[Any]:
        bodies: list[Any] = []
        for part in message.parts:
            if not isinstance(part, ToolCall):
                continue
            if part.name in self.asking:
                bodies.append(
                    ev.ApprovalRequested(
                        approval_id=f"p_{part.id}",
                        call_id=part.id,
                        name=part.name,
                        arguments=part.arguments,
                        expires_at=self.world.clock.now() + 600,
                    )
                )
            else:
                bodies.append(
                    ev.ToolIntended(
                        call_id=part.id,
                        name=part.name,
                        arguments=part.arguments,
                        effect=Effect.ACTS,
                        idempotency_key=part.id,
                        round=number,
                    )
                )
        return bodies

    def new_turn(self, text: str | None = None) -> MemoryTurn:
        """A new turn after the case's history, with its incoming message (or `text`)."""
        parts: tuple[Part, ...] = (Text(text),) if text is not None else ()
        if self.case.incoming is not None and text is None:
            parts = self.case.incoming.parts
        earlier = MemoryTurn(self.world.clock, self.world.ids, text="", turn_id="t_0")
        earlier.journal.clear()
        self.journal(earlier, self.case.messages, "t_0")
        return MemoryTurn(
            self.world.clock, self.world.ids, parts=parts, journal=earlier.journal, turn_id="t_new"
        )

    def going_on(self, why: str, *bodies: Any) -> MemoryTurn:
        """The turn of the history's last request, as a later process finds it."""
        last = max(k for k, m in enumerate(self.case.messages) if m.role == USER)
        request = self.case.messages[last]
        turn = MemoryTurn(self.world.clock, self.world.ids, parts=request.parts, turn_id="t_1")
        own = turn.journal[:1]
        turn.journal.clear()
        self.journal(turn, self.case.messages[:last], "t_0")
        turn.journal.extend(_replace(e, seq=len(turn.journal) + 1) for e in own)
        self.journal(turn, self.case.messages[last:], "t_1")
        return turn.again(why, *bodies)

    # -- what is expected everywhere

    def check(self, turn: MemoryTurn) -> None:
        shown = "\n".join(m.text for m in turn.history() if m.display)
        for words in self.expect.get("display_must_show", ()):
            assert words in shown
        for message in self.before:
            kept = next(m for m in turn.history() if m.message_id == message.message_id)
            assert kept.parts == message.parts, "the display is as it was"
        sent = self.world.model.sent
        if not sent:
            return
        feed = sent[-1]
        whole = json.dumps([_shown(m) for m in feed], ensure_ascii=False)
        for words in self.expect.get("must_appear", ()):
            assert words in whole
        for words in self.expect.get("must_not_appear", ()):
            assert words not in whole
        for words, count in self.expect.get("appear_count", {}).items():
            found = [p.text for m in feed for p in m.parts if isinstance(p, Text)]
            if self.value.get("appear_match") == "whole_part":
                assert found.count(words) == count
            else:
                assert sum(text.count(words) for text in found) == count
        order = [whole.index(words) for words in self.expect.get("feed_order", ())]
        assert order == sorted(order)
        calls = [p.id for m in feed for p in m.parts if isinstance(p, ToolCall)]
        answers = [p.tool_call_id for m in feed for p in m.parts if isinstance(p, ToolResult)]
        assert calls == answers, "each call has exactly one result"
        by_call = {p.tool_call_id: p for m in feed for p in m.parts if isinstance(p, ToolResult)}
        for call_id, wanted in self.expect.get("results", {}).items():
            got = by_call[call_id]
            for words in wanted.get("contains", ()):
                assert words in str(got.content)
            if "is_error" in wanted:
                assert got.is_error == wanted["is_error"]
        for call_id, count in self.expect.get("result_count", {}).items():
            assert answers.count(call_id) == count
        if "feed_roles" in self.expect and len(sent) == 1:
            assert [m.role for m in feed] == self.expect["feed_roles"]
        if "feed_roles_any" in self.expect and len(sent) == 1:
            assert [m.role for m in feed] in self.expect["feed_roles_any"]
        if "executor_calls" in self.expect:
            assert len(self.executed) == self.expect["executor_calls"]
        for wanted in self.expect.get("executor_must_run", ()):
            assert (wanted["name"], wanted["arguments"]) in self.executed
        for wanted in self.expect.get("must_not_rerun", ()):
            assert wanted["name"] not in [name for name, _ in self.executed]
        for name, count in self.expect.get("executor_total", {}).items():
            assert [n for n, _ in self.executed].count(name) == count


def _replace(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)


def _shown(message: Message) -> Any:
    return [p.text if isinstance(p, Text) else str(getattr(p, "content", p)) for p in message.parts]


# --- an earlier turn's history, and a new message


@pytest.mark.parametrize(
    "case_id",
    [
        "R001-tail-single",
        "R069-verbatim-rerun-after-answer",
        "R070-trailing-identical-after-premature-exit",
        "R073-two-legitimate-yes",
        "R076-prompt-dropped-on-interrupted-resume",
    ],
)
def test_a_new_message_reaches_the_model_and_is_answered(case_id: str) -> None:
    async def main() -> None:
        played = Played(case_id, "answered")
        turn = played.new_turn()
        assert isinstance(await turn.carry_out(played.world.runner), Answered)
        assert len(played.world.model.calls) == 1
        assert turn.history()[-1].text == "answered"
        played.check(turn)

    run(main())


def test_r081_a_late_outcome_is_a_notice_after_what_was_said() -> None:
    async def main() -> None:
        played = Played("R081-late-completion-after-interrupt", "seen")
        incoming = played.value["incoming"]
        late = ToolResult(tool_call_id=incoming["tool_call_id"], content=incoming["content"])
        played.case.messages.append(Message(message_id="late", role=TOOL, parts=(late,)))
        turn = played.new_turn("go on")
        await turn.carry_out(played.world.runner)
        played.check(turn)

    run(main())


def test_r089_a_later_message_is_not_blocked_by_an_open_question() -> None:
    async def main() -> None:
        played = Played("R089-pending-approval-blocks-chat", "It is noon.")
        turn = played.new_turn()
        assert isinstance(await turn.carry_out(played.world.runner), Answered)
        assert played.executed == []
        played.check(turn)

    run(main())


# --- compaction


@pytest.mark.parametrize("case_id", ["R077-compact-deletes-queued", "R118-unanswered-request-survives"])
def test_a_compaction_never_loses_the_open_request(case_id: str) -> None:
    async def main() -> None:
        played = Played(case_id, CONTEXT, "THE SUMMARY", "answered")
        turn = played.new_turn() if played.case.incoming else played.going_on("promoted")
        assert isinstance(await turn.carry_out(played.world.runner), Answered)
        assert len(turn.bodies(ev.HistoryCompacted)) == 1
        feed = played.world.model.sent[-1]
        assert "THE SUMMARY" in feed[0].text
        assert feed[-1].role == "user"
        played.check(turn)

    run(main())


# --- a turn that goes on


def test_r078_a_stall_after_tools_keeps_the_result_and_refuses_the_reissue() -> None:
    async def main() -> None:
        played = Played("R078-stall-after-tools")
        turn = played.going_on("rescued")
        assert isinstance(await turn.carry_out(played.world.runner), Answered)
        first = played.world.model.sent[0]
        assert [m.role for m in first] == played.expect["feed_roles"]
        assert "Half of the ans" not in str(first)
        assert played.executed == []
        assert results(turn)["w1b"].is_error
        assert "w1" in str(results(turn)["w1b"].content)
        assert turn.history()[-1].text == "Added."
        played.check(turn)

    run(main())


def test_r082_a_call_that_came_before_the_stream_broke_runs_once() -> None:
    async def main() -> None:
        played = Played("R082-provider-resends-same-call")
        resent = played.world.model.steps
        broken = Failure(kind="broken_stream", retryable=True, sentence="The connection broke.")
        partial = Message(message_id="", role=ASSISTANT, parts=tuple(resent[0]))
        played.world.model.steps = [("partial", partial, broken), *resent[1:]]
        turn = played.world.turn("run job")
        played.before = []
        assert isinstance(await turn.carry_out(played.world.runner), Answered)
        played.check(turn)

    run(main())


def decided(played: Played, call_id: str, decision: str = "approve") -> MemoryTurn:
    approval_id = f"p_{call_id}"
    return played.going_on(
        "continued",
        ev.ApprovalDecided(approval_id=approval_id, decision=decision),
        ev.TurnContinued({"approval_id": approval_id, "decision": decision}, 0),
    )


@pytest.mark.parametrize(
    "case_id",
    ["R012-approval-mixed-batch", "R028-reopened-approval-keeps-call", "R090-approval-survives-restart"],
)
def test_an_approved_call_runs_once_in_its_place(case_id: str) -> None:
    async def main() -> None:
        played = Played(case_id, "done")
        turn = decided(played, played.value["incoming"]["tool_call_id"])
        assert isinstance(await turn.carry_out(played.world.runner), Answered)
        played.check(turn)

    run(main())


def test_r091_one_yes_approves_one_call() -> None:
    async def main() -> None:
        played = Played("R091-one-yes-approves-all")
        turn = decided(played, "it1")
        outcome = await turn.carry_out(played.world.runner)
        assert isinstance(outcome, Needs)
        assert len(outcome.needs["approvals"]) == played.expect["pending_approvals"]
        assert outcome.needs["approvals"][0]["call_id"] == "it2"
        played.check(turn)

    run(main())


# --- leaks


@pytest.mark.parametrize(
    "case_id",
    ["R095-invoke-tags-no-block", "R098-kimi-partial-markup", "R101-naked-function-tag"],
)
def test_leaked_markup_is_set_aside_and_sampled_again(case_id: str) -> None:
    async def main() -> None:
        played = Played(case_id)
        leaked = played.case.messages.pop()
        reply = Reply(message=leaked, stop_reason=played.value["history"][-1]["stop_reason"])
        played.world.model.steps.insert(0, reply)
        played.before.pop()
        turn = played.going_on("promoted")
        assert isinstance(await turn.carry_out(played.world.runner), Answered)
        stored = next(m for m in turn.history() if m.text == leaked.text)
        assert (stored.replay, stored.stop_reason) == (False, "error")
        assert stored.display
        assert not turn.bodies(ev.AutoResumed)
        assert len(turn.bodies(ev.AttemptSuperseded)) == 1
        assert all(name in str(played.value["script"]) for name, _ in played.executed)
        played.check(turn)

    run(main())


def test_r099_a_marker_that_is_split_across_chunks_is_never_shown() -> None:
    async def main() -> None:
        played = Played("R099-marker-split-across-chunks")
        deltas = [step["text"] for step in played.value["script"] if step.get("event") == "delta"]
        played.world.model.steps.insert(0, ("deltas", deltas))
        turn = played.going_on("promoted")
        assert isinstance(await turn.carry_out(played.world.runner), Answered)
        shown = "".join(data["text"] for kind, data in turn.deltas if kind == "text")
        for words in played.expect["streamed_to_client_must_not_contain"]:
            assert words not in shown
        assert len(turn.bodies(ev.AttemptSuperseded)) == 1
        assert turn.history()[-1].text == "hello"

    run(main())


# --- failures of the provider, as the scripted provider plays them


def scripted(played: Played, *rounds: dict[str, Any]) -> None:
    script = parse_script({"rules": [{"match": "", "rounds": list(rounds)}]})
    played.world.runner.provider = Scripted(played.world.clock, script)


def test_r102_what_cannot_be_retried_is_tried_once() -> None:
    async def main() -> None:
        played = Played("R102-non-retryable-404-401")
        error = {"error": {"status": 404, "type": "not_found_error"}}
        scripted(played, error, {"text": "never"})
        turn = played.going_on("promoted")
        outcome = await turn.carry_out(played.world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure.retryable is played.expect["retryable"]
        assert len(turn.bodies(ev.RoundStarted)) == played.expect["provider_calls"]

    run(main())


def test_r104_an_open_stream_that_says_nothing_more_is_a_stall() -> None:
    async def main() -> None:
        played = Played("R104-stalled-open-stream")
        scripted(played, *[{"text": "Let me", "stall_s": 600}] * 3)
        turn = played.going_on("promoted")
        began = played.world.clock.monotonic()
        outcome = await turn.carry_out(played.world.runner)
        assert isinstance(outcome, FailedWith)
        assert outcome.failure.kind == "stall"
        assert outcome.failure.measured_seconds == pytest.approx(20, abs=0.5)
        assert len(turn.bodies(ev.AutoResumed)) == 1
        assert played.world.clock.monotonic() - began < played.expect["stall_detected_within_ms"] / 1000

    run(main())


def test_r107_many_boots_add_no_notice_and_no_resume() -> None:
    async def main() -> None:
        played = Played("R107-unbounded-boot-recovery", policies=Policies(crash=CrashPolicy.RESUME))
        turn = played.going_on("promoted")
        boots = [step for step in played.value["script"] if step["event"] == "boot"]
        for _ in boots:
            turn = turn.again("rescued")
            await _begin_and_die(played, turn)
        turn = turn.again("rescued")
        played.world.model.steps = ["done"]
        await turn.carry_out(played.world.runner)
        feed = played.world.model.sent[-1]
        notices = [m for m in feed if "[Turnkeeper]" in m.text or "[Notice]" in m.text]
        assert len(notices) <= played.expect["notices_in_feed_max"]
        assert len(turn.bodies(ev.AutoResumed)) <= played.expect["auto_resume_attempts_max"]
        assert [m.role for m in feed] == ["user"]

    run(main())


async def _begin_and_die(played: Played, turn: MemoryTurn) -> None:
    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    played.world.model.steps = [hang]
    before = len(played.world.model.calls)
    task = asyncio.ensure_future(turn.carry_out(played.world.runner))
    while len(played.world.model.calls) == before:
        await asyncio.sleep(0)
    task.cancel()


def test_r108_rate_limits_are_waited_for_as_asked_and_then_the_turn_fails() -> None:
    async def main() -> None:
        played = Played("R108-retry-storm-large-context")
        rounds = [
            {"error": {"status": step["status"], "retry_after_s": step["retry_after_s"]}}
            for step in played.value["script"]
        ]
        scripted(played, *rounds)
        turn = played.going_on("promoted")
        outcome = await turn.carry_out(played.world.runner)
        assert isinstance(outcome, FailedWith)
        starts = [e.at for e in turn.journal if e.kind == "RoundStarted"]
        assert len(starts) <= played.expect["provider_calls_max"]
        gaps = [later - earlier for earlier, later in pairwise(starts)]
        assert all(gap >= 30 for gap in gaps)
        assert gaps == sorted(gaps)

    run(main())
