"""Every sentence that a model or a person reads from this room.

A result that no tool gave says so, names the tool, and says whether it can have run: models repeat or
assume otherwise (provider-wire-rules section 2, "synthetic result text matters").
"""

from __future__ import annotations

from datetime import UTC, datetime

from turnkeeper.agent.so_far import Call
from turnkeeper.conversation.turns import Disposition

_OUTCOMES = {
    Disposition.DONE: "it ran",
    Disposition.FAILED: "it ran and failed",
    Disposition.UNKNOWN: "its outcome is unknown",
    Disposition.REFUSED: "it was refused",
    Disposition.INTENDED: "it is running",
    None: "it waits for a decision",
}


def repeated(name: str, earlier: Call) -> str:
    """An identical call was made before in this turn."""
    return (
        f"Not run: this exact call of {name} was made before in this turn "
        f"(call {earlier.id}, round {earlier.round}: {_OUTCOMES[earlier.disposition]}). "
        "Use that result; it stands above. Another call, or other arguments, can be run."
    )


def unknown_tool(name: str, known: tuple[str, ...]) -> str:
    """The model asked for a tool that does not exist."""
    there = ", ".join(known) if known else "none"
    return f"Not run: there is no tool called {name!r}. The tools are: {there}."


def unreadable_arguments(name: str) -> str:
    """The arguments were no JSON object."""
    return f"Not run: the arguments of {name} are not one JSON object. Send the call again with complete arguments."


def giant_arguments(name: str, size_bytes: int, limit_bytes: int) -> str:
    """The arguments were too large."""
    return f"Not run: the arguments of {name} are {size_bytes} bytes; the limit (arguments_bytes_max) is {limit_bytes}."


def too_many(name: str, limit: int) -> str:
    """One message asked for more calls than may run."""
    return (
        f"Not run: one message may ask for {limit} calls (calls_per_round_max), and {name} came after those."
    )


def closing(name: str) -> str:
    """The turn runs no more tools."""
    return f"Not run: no more tools run in this turn, because only repeated calls were asked for. ({name})"


def outcome_unknown(name: str, why: str) -> str:
    """A dead attempt left this call open."""
    return (
        f"The outcome of {name} is unknown: the server stopped while it ran, and {why}. "
        "It may have taken effect. Inspect the state before you repeat it."
    )


def stopped_while_running(name: str, *, reads_only: bool) -> str:
    """The turn was stopped while this call ran."""
    if reads_only:
        return f"{name} was stopped before it gave a result. It only reads, so nothing was changed."
    return f"{name} was running when the turn was stopped. Whether it took effect is unknown: inspect the state before you repeat it."


def never_started(name: str) -> str:
    """The turn was stopped before this call began."""
    return f"Not run: the turn was stopped before {name} began."


def happened(name: str, who: str) -> str:
    """An unknown outcome was found to have happened."""
    return f"{name} did take effect ({who}). Its own result is lost. Do not repeat it."


def did_not_happen(name: str, who: str) -> str:
    """An unknown outcome was found not to have happened."""
    return f"{name} did not take effect ({who}). It may be called again."


def waits_for_approval(name: str) -> str:
    """A call that a person must approve."""
    return f"Not run: {name} waits for a person's approval."


def waits_for_sign_in(name: str, server: str) -> str:
    """A call that waits until its person signs in somewhere."""
    return f"Not run: {name} waits until the person has signed in at {server}."


def sign_in_refused(name: str, server: str) -> str:
    """The person does not want to sign in."""
    return f"Not run: {name} needs a sign-in at {server}, and the person refused it."


def sign_in_expired(name: str, server: str) -> str:
    """Nobody signed in in time; that is no refusal."""
    return f"Not run: {name} needs a sign-in at {server}, and nobody signed in in time. That is not a no."


def not_connected(names: tuple[str, ...], servers: tuple[str, ...], *, refused: bool) -> str:
    """The end of a turn whose calls could not run because a sign-in did not come."""
    what = "the sign-in was refused" if refused else "nobody signed in in time"
    return f"{', '.join(names)} did not run: {what} at {', '.join(servers)}. Connect it and retry."


def tool_changed(name: str) -> str:
    """A yes for a tool that is no longer what it was."""
    return f"Not run: {name} has changed since a person was asked about this call, so the answer no longer counts. Ask again if it is still wanted."


def yes_too_old(name: str) -> str:
    """A yes that waited, for its lane or for a sign-in, for longer than a yes lasts."""
    return f"Not run: the approval of this call of {name} has expired before it could run. That is not a no; ask again if it is still wanted."


def tools_missing(server: str, why: str) -> str:
    """A server of tools cannot be reached."""
    return f"The tools of {server} are not available: {why}."


def waits_for_answer(name: str) -> str:
    """A call of unknown outcome that a person is asked about."""
    return f"The outcome of {name} is unknown: the server stopped while it ran. A person is asked what happened. Do not repeat it."


def denied(name: str) -> str:
    """A person said no."""
    return f"Not run: a person denied this call of {name}."


def approval_expired(name: str) -> str:
    """Nobody decided in time; that is no refusal."""
    return f"Not run: nobody decided on this call of {name} in time. That is not a no; ask again if it is still wanted."


def late_outcome(name: str, call_id: str, content: str) -> str:
    """An outcome that came after the conversation had gone on."""
    return (
        f"[Turnkeeper] The call of {name} ({call_id}), which had been waiting, now has an outcome:\n{content}"
    )


def rounds_used_up(limit: int) -> str:
    """The limit on rounds."""
    return f"The agent took {limit} rounds (rounds_max) without coming to an answer. Retry it to go on from here."


def only_repeats() -> str:
    """The loop guard ended the turn."""
    return "The agent asked only for calls that had been made before in this turn, so it was ended. Send a new message to go on."


def results_are_old(age_seconds: float, count: int) -> str:
    """A retry long after the results that it would build on."""
    results = "1 tool result" if count == 1 else f"{count} tool results"
    return f"This turn has {results} from {age_seconds / 60:.0f} minutes ago. Go on with them, or start over?"


def what_happened(names: tuple[str, ...]) -> str:
    """The question about calls of unknown outcome."""
    return f"The server stopped while {', '.join(names)} ran. Did it happen?"


def gave_up() -> str:
    """A person chose to end the turn."""
    return "The turn was given up by a person after an interruption."


def crash_policy_fails(names: tuple[str, ...]) -> str:
    """The agent's crash policy is `fail`."""
    return f"The server stopped while {', '.join(names)} ran, and this agent's policy is to end the turn then (crash = fail). Whether it took effect is unknown."


def go_on(asked: str) -> str:
    """A turn that goes on after other turns came in between."""
    words = f" It was:\n{asked}" if asked.strip() else ""
    return f"[Turnkeeper] An earlier request of this conversation is still to be finished. Go on with it now.{words}"


def broke(what: str) -> str:
    """The loop itself met an error that it does not know."""
    return f"The agent stopped with an error of its own: {what}"


def leaked() -> str:
    """A tool call came as text."""
    return "A tool call leaked into the text of this answer; it was set aside and another one was asked for."


def leak_kept() -> str:
    """The budget for other samples is spent."""
    return "Every sample of this answer had a tool call leaked into its text; the last one is kept as it is."


def leak_healed(names: list[str]) -> str:
    """Leaked calls were made into real ones."""
    return (
        f"A call of {', '.join(names)} had leaked into the text of this answer; it was made into a real one."
    )


def request_repaired(rules: list[str]) -> str:
    """A request that we built broke a rule of its provider."""
    return (
        f"The request that was built here broke a rule of its provider ({', '.join(rules)}); it was built again without "
        "what is bound to one provider. This is a fault of Turnkeeper: please report it."
    )


def no_output() -> str:
    """A tool of the agent's own gave nothing."""
    return "(the tool returned nothing)"


def run_again(name: str) -> str:
    """A person chose to run a call of unknown outcome again."""
    return f"The outcome of {name} was unknown, and a person chose to run it again."


SUMMARISE = (
    "[Turnkeeper] The conversation above has grown too long for you to be given whole. Write the summary that "
    "will stand for it from now on; you will see nothing else of it. Keep, as far as they matter for what is "
    "still to come: what the person wants, with open requests word for word; what was decided and why; names, "
    "numbers, paths and ids exactly; which tools were run with what outcome, above all what changed something "
    "and what is unknown; what remains to be done. Write the summary only. Call no tool."
)
SUMMARY_HEAD = "[Turnkeeper] Summary of the earlier part of this conversation, which is not included:\n\n"


def compaction_failed(why: str) -> str:
    """A summary could not be made."""
    return f"The conversation could not be summed up ({why}); it goes on as it is."


def tokens_used_up(used: int, limit: int) -> str:
    """The limit on tokens of a turn."""
    return f"The turn has used {used} tokens; the limit (turn_tokens_max) is {limit}. Retry it to go on from here."


def waits(seconds: float) -> str:
    """The provider asked to wait."""
    return f"The model's provider asked to wait {seconds:.0f} s. The turn goes on by itself then."


def waits_for_reset(at: float) -> str:
    """A usage limit was reached, and the agent carries on when it resets. `at`: Unix seconds."""
    until = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"The model's usage limit is reached. The turn carries on by itself when it resets, at {until}. Stop it if you do not want that."


def resumed(sentence: str, rounds: int, results: int) -> str:
    """The automatic resume."""
    kept = f"{rounds} rounds and {results} tool results were kept" if rounds else "there was nothing to keep"
    return f"{sentence} The turn went on by itself; {kept}."
