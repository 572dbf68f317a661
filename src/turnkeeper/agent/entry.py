"""The beginning of an attempt: what an earlier one left behind is put in order before anything new is done.

Half a text is kept for the eye. Open calls are decided one by one: by a person's decision where there is
one, else by their effect (DESIGN 5.5). What comes out is either an outcome for the turn, or the calls that
are to be run now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from turnkeeper.agent import texts
from turnkeeper.agent.calls import Job
from turnkeeper.agent.definition import AgentDefinition
from turnkeeper.agent.journal import TurnJournal
from turnkeeper.agent.ledger import CHANGED, DENIED, EXPIRED
from turnkeeper.agent.plan import Treatment, treat
from turnkeeper.agent.so_far import ASKED, GO_ON, START_OVER, STARTED_OVER, Call
from turnkeeper.conversation import events as ev
from turnkeeper.conversation.messages import ASSISTANT, INTERRUPTED, TOOL
from turnkeeper.conversation.parts import Text
from turnkeeper.conversation.turns import Disposition, Effect, Failure
from turnkeeper.port.runner import FailedWith, Needs
from turnkeeper.settings import Settings
from turnkeeper.tool import Outcome, Tool, ask_whether_it_happened
from turnkeeper.tool.contract import DID_NOT_HAPPEN

HAPPENED = "it_happened"
DID_NOT = "it_did_not"
RUN_AGAIN = "run_again"
GIVE_UP = "give_up"
DO_NOT_CONNECT = "do_not_connect"
"""The choice of a person who does not want to sign in."""

ANSWERS_WHAT_HAPPENED = (HAPPENED, DID_NOT, RUN_AGAIN, GIVE_UP)
ANSWERS_OLD_RESULTS = (GO_ON, START_OVER, GIVE_UP)


async def enter(
    journal: TurnJournal, definition: AgentDefinition, tools: Mapping[str, Tool], settings: Settings
) -> FailedWith | Needs | list[Job]:
    """Put in order what earlier attempts of this turn left. The events are added, not yet recorded."""
    _keep_half(journal)
    decisions = journal.so_far.decisions
    if decisions and decisions[-1].get("choice") == GIVE_UP:
        return FailedWith(failure=Failure(kind="interrupted", retryable=False, sentence=texts.gave_up()))
    if journal.so_far.to_start_over:
        _start_over(journal)
    elif question := _ask_about_age(journal, settings):
        return question
    return await _decide_open_calls(journal, definition, tools, settings)


def _keep_half(journal: TurnJournal) -> None:
    """Keep the half-written text of a round that died with its process: to be seen, never fed."""
    so_far = journal.so_far
    if so_far.open_round is not None and so_far.draft.strip():
        half = journal.message(
            ASSISTANT,
            Text(so_far.draft),
            round=so_far.open_round,
            provenance="model",
            replay=False,
            standing=INTERRUPTED,
        )
        journal.add(ev.MessageAppended(half))


def _start_over(journal: TurnJournal) -> None:
    """Leave the earlier rounds of this turn aside: they stay visible and are no longer fed."""
    journal.add(
        ev.Noticed(STARTED_OVER, "A person chose to start this turn over; its earlier rounds are left aside.")
    )
    for message in list(journal.messages):
        if message.turn_id == journal.turn_id and message.role in (ASSISTANT, TOOL) and message.replay:
            journal.add(ev.MessageMarked(message.message_id, replay=False, why=STARTED_OVER))


def _ask_about_age(journal: TurnJournal, settings: Settings) -> Needs | None:
    """A retry by a person, later than the resume window after the newest result: let the person choose."""
    so_far = journal.so_far
    kept = [call.decided_at for call in so_far.kept_results() if call.decided_at is not None]
    if so_far.retried_at is None or not kept or so_far.age_accepted:
        return None
    age = so_far.retried_at - max(kept)
    if age <= settings.resume_window_seconds:
        return None
    return Needs(
        needs={
            "kind": "action_required",
            "question": "old_results",
            "sentence": texts.results_are_old(age, len(kept)),
            "age_seconds": round(age),
            "results": len(kept),
            "choices": list(ANSWERS_OLD_RESULTS),
        }
    )


class _Begin(NamedTuple):
    """A call that is to be begun, and what is first noted of the attempt at it that was open in the ledger.

    Nothing of it is journaled before it is certain that it runs now: a question to a person about another call
    comes first, and an intent without a run would be an unknown outcome of its own.
    """

    call: Call
    tool: Tool
    note: tuple[Disposition, str, str] | None = None


async def _decide_open_calls(
    journal: TurnJournal, definition: AgentDefinition, tools: Mapping[str, Tool], settings: Settings
) -> FailedWith | Needs | list[Job]:
    begins: list[_Begin] = []
    asked: list[Call] = []
    refuses = bool(journal.so_far.decisions) and journal.so_far.decisions[-1].get("choice") == DO_NOT_CONNECT
    for call in journal.so_far.open_calls():
        tool = tools.get(call.call.name)
        if call.connect is not None and not call.intended:
            _decide_sign_in(journal, call, tool, begins, settings, refuses=refuses)
            continue
        if call.approval_id is not None and not call.intended:
            _decide_approval(journal, call, tool, begins, settings)
            continue
        if call.intended and call.answer is not None:
            _obey(journal, call, tool, call.answer, begins)
            continue
        treatment: Treatment | None = treat(
            call,
            exists=tool is not None,
            has_check=tool is not None and tool.did_it_happen is not None,
            policy=definition.policies.crash,
        )
        why = "the agent no longer has that tool" if tool is None else "it may have an effect"
        note = None
        if treatment is Treatment.ASK_TOOL:
            assert tool is not None
            verdict, why = await ask_whether_it_happened(
                tool, call.key, call.call.arguments, clock=journal.turn.clock
            )
            if verdict is False:
                did_not = texts.did_not_happen(call.call.name, why)
                note = (Disposition.FAILED, did_not, DID_NOT_HAPPEN)
            treatment = _after_asking(journal, call, verdict, why, definition)
        if treatment in (Treatment.RUN, Treatment.RUN_AGAIN) and tool is not None:
            begins.append(_Begin(call, tool, note))
        elif treatment is Treatment.RUN:
            journal.refuse(call, texts.unknown_tool(call.call.name, tuple(tools)), "unknown_tool")
        elif treatment is Treatment.CLOSE_UNKNOWN:
            unknown = texts.outcome_unknown(call.call.name, why)
            journal.settle(
                call,
                Outcome(disposition=Disposition.UNKNOWN, content=unknown, is_error=True, why="crash"),
                synthetic=True,
            )
        elif treatment in (Treatment.ASK_PERSON, Treatment.FAIL):
            asked.append(call)
    if asked:
        return _stop_for(journal, asked, definition)
    return [_begin(journal, begin) for begin in begins]


def _begin(journal: TurnJournal, begin: _Begin) -> Job:
    """Have it journaled that a call is about to run, after what is known of its attempt before."""
    call, tool, note = begin
    if note is not None:
        disposition, content, why = note
        journal.add(
            ev.ToolReturned(call_id=call.id, disposition=disposition, result=content, is_error=True, why=why)
        )
    journal.intend(call, tool.effect)
    return Job(call, tool)


def _stop_for(journal: TurnJournal, asked: list[Call], definition: AgentDefinition) -> FailedWith | Needs:
    """Ask a person about calls of unknown outcome, or end the turn, as the policy says."""
    names = tuple(sorted({call.call.name for call in asked}))
    if treat(asked[0], exists=False, has_check=False, policy=definition.policies.crash) is Treatment.FAIL:
        for call in asked:
            unknown = texts.outcome_unknown(call.call.name, "it may have an effect")
            journal.settle(
                call,
                Outcome(disposition=Disposition.UNKNOWN, content=unknown, is_error=True, why="crash"),
                synthetic=True,
            )
        return FailedWith(
            failure=Failure(kind="crash", retryable=True, sentence=texts.crash_policy_fails(names))
        )
    for call in asked:
        if call.disposition is not Disposition.UNKNOWN:
            content = texts.waits_for_answer(call.call.name)
            journal.add(
                ev.ToolReturned(
                    call_id=call.id, disposition=Disposition.UNKNOWN, result=content, is_error=True, why=ASKED
                )
            )
            journal.hold_place(call, content)
    needs: dict[str, Any] = {
        "kind": "action_required",
        "question": "what_happened",
        "sentence": texts.what_happened(names),
        "calls": [
            {"call_id": c.id, "name": c.call.name, "arguments": c.call.arguments, "key": c.key} for c in asked
        ],
        "choices": list(ANSWERS_WHAT_HAPPENED),
    }
    if connects := journal.so_far.connects():
        # Another call waits for a sign-in meanwhile: one that comes in time counts, however late this is answered.
        needs["connects"] = connects
    return Needs(needs=needs, hold=definition.policies.parked == "hold")


def _after_asking(
    journal: TurnJournal, call: Call, verdict: bool | None, why: str, definition: AgentDefinition
) -> Treatment | None:
    """What the tool's own check means for its call."""
    if verdict is None:
        return treat(call, exists=False, has_check=False, policy=definition.policies.crash)
    if not verdict:
        return Treatment.RUN_AGAIN
    done = Outcome(disposition=Disposition.DONE, content=texts.happened(call.call.name, why), why="checked")
    journal.settle(call, done, synthetic=True)
    return None


def _decide_approval(
    journal: TurnJournal, call: Call, tool: Tool | None, begins: list[_Begin], settings: Settings
) -> None:
    """Run a call that was approved, close one that was not; one that nobody decided on goes on waiting."""
    assert call.approval_id is not None
    decision = call.decision
    if decision is None and call.expires_at is not None and journal.turn.clock.now() >= call.expires_at:
        decision = "expired"
        journal.add(ev.ApprovalDecided(approval_id=call.approval_id, decision=decision, by="turnkeeper"))
    if decision is None:
        return
    if decision == "approve" and tool is not None:
        _run_approved(journal, call, tool, begins, settings)
    elif decision == "approve":
        journal.refuse(call, texts.unknown_tool(call.call.name, ()), "unknown_tool")
    elif decision == "deny":
        journal.refuse(call, texts.denied(call.call.name), DENIED)
    else:
        journal.refuse(call, texts.approval_expired(call.call.name), EXPIRED)


def _run_approved(
    journal: TurnJournal, call: Call, tool: Tool, begins: list[_Begin], settings: Settings
) -> None:
    """Run an approved call, unless its tool is no longer the one that the person was asked about, or the yes is old.

    A yes counts as long as the question did, and in any case as long as a confirmation does: a turn may wait for
    its lane, or for a sign-in, after it was approved, and consent does not grow fresh by waiting (G11).
    """
    if call.approved_until is not None:
        until = max(call.approved_until, call.approved_at + settings.confirmation_expiry_seconds)
        if journal.turn.clock.now() > until:
            journal.refuse(call, texts.yes_too_old(call.call.name), EXPIRED)
            return
    if call.definition and call.definition != tool.definition:
        journal.refuse(call, texts.tool_changed(call.call.name), CHANGED)
        return
    begins.append(_Begin(call, tool))


def _decide_sign_in(
    journal: TurnJournal,
    call: Call,
    tool: Tool | None,
    begins: list[_Begin],
    settings: Settings,
    *,
    refuses: bool,
) -> None:
    """Run a call whose person has signed in, close one whose person will not; any other goes on waiting."""
    assert call.connect is not None
    name, server, now = call.call.name, call.connect, journal.turn.clock.now()
    if call.connect_outcome is None:
        late = call.expires_at is not None and now >= call.expires_at
        if not (refuses or late):
            return
        journal.add(
            ev.ConnectDecided(
                server=server,
                person=call.connect_person,
                outcome="refused" if refuses else "expired",
                by="person" if refuses else "turnkeeper",
            )
        )
    if call.connect_outcome == "refused":
        journal.refuse(call, texts.sign_in_refused(name, server), "sign_in_refused")
    elif call.connect_outcome == "expired":
        journal.refuse(call, texts.sign_in_expired(name, server), "sign_in_expired")
    elif tool is None:
        journal.refuse(call, texts.unknown_tool(name, ()), "unknown_tool")
    else:
        _run_approved(journal, call, tool, begins, settings)


def _obey(journal: TurnJournal, call: Call, tool: Tool | None, choice: str, begins: list[_Begin]) -> None:
    """Do with a call of unknown outcome what a person said."""
    name = call.call.name
    if choice == RUN_AGAIN and tool is not None:
        begins.append(_Begin(call, tool, (Disposition.UNKNOWN, texts.run_again(name), RUN_AGAIN)))
        return
    if choice == HAPPENED:
        known = Outcome(
            disposition=Disposition.DONE, content=texts.happened(name, "a person says so"), why="person"
        )
    elif choice == DID_NOT:
        known = Outcome(
            disposition=Disposition.FAILED,
            content=texts.did_not_happen(name, "a person says so"),
            is_error=True,
            why=DID_NOT_HAPPEN,
        )
    else:
        known = Outcome(
            disposition=Disposition.UNKNOWN,
            content=texts.outcome_unknown(name, "nobody could say what happened"),
            is_error=True,
            why="crash",
        )
    journal.settle(call, known, synthetic=True)


def needs_approval(tool: Tool, definition: AgentDefinition) -> bool:
    """Whether each call of `tool` must be approved by a person."""
    policies = definition.policies
    if tool.must_ask or tool.name in policies.ask or "*" in policies.ask:
        return True
    return tool.effect is Effect.DESTRUCTIVE and tool.name not in policies.trust
