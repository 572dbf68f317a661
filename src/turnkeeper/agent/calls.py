"""Running the calls of one round side by side; each outcome is journaled as it comes.

Outcomes that came while another was being written share the next commit, and the last ones wait for
whatever the loop journals next: the start of the following round, or the end of the turn.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from turnkeeper.agent import texts
from turnkeeper.agent.journal import TurnJournal
from turnkeeper.agent.so_far import Call
from turnkeeper.conversation.parts import Attachment
from turnkeeper.conversation.turns import Disposition, Effect
from turnkeeper.errors import TurnkeeperError
from turnkeeper.failpoint import failpoint
from turnkeeper.port.runner import TurnPort
from turnkeeper.settings import Settings
from turnkeeper.tool import Outcome, Tool, run_tool
from turnkeeper.tool.contract import DID_NOT_HAPPEN


class StopAsked(Exception):
    """The turn was asked to stop; what is known has been added to the journal."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Job(msgspec.Struct, frozen=True):
    """A call whose intent is journaled, and the tool that carries it out."""

    call: Call
    tool: Tool


async def run_calls(
    journal: TurnJournal, jobs: list[Job], settings: Settings, stop: asyncio.Task[str]
) -> None:
    """Run the jobs; afterwards every outcome is recorded or pending. Raises StopAsked if the turn is stopped."""
    slots = asyncio.Semaphore(settings.parallel_calls_max)
    began: set[str] = set()

    async def run(job: Job) -> Outcome:
        async with slots:
            began.add(job.call.id)
            outcome = await run_tool(
                job.tool,
                journal.revealed(job.call.call.arguments),
                job.call.key,
                clock=journal.turn.clock,
                timeout_seconds=settings.tool_timeout_seconds,
                result_bytes_max=settings.tool_result_bytes_max,
            )
            return await with_files_kept(journal.turn, outcome)

    running = {asyncio.create_task(run(job)): job for job in jobs}
    try:
        while running:
            watched: set[asyncio.Future[Any]] = {*running, stop}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            _settle_finished(journal, running, settings)
            if stop.done():
                await _stop(journal, running, began, settings, stop.result())
            elif running:
                failpoint("agent.before_outcome_commit")
                await journal.record()
                failpoint("agent.after_outcome_commit")
    finally:
        for task in running:
            task.cancel()


async def with_files_kept(turn: TurnPort, outcome: Outcome) -> Outcome:
    """`outcome` with its files kept beside the journal, and with a word on each that could not be."""
    if not outcome.files:
        return outcome
    kept: list[Attachment] = []
    lost: list[str] = []
    for file in outcome.files:
        why = "it is too large to be kept"
        try:
            attachment = await turn.keep_file(file.name, file.data)
        except TurnkeeperError as error:  # a full disk costs the picture, not what the tool did
            attachment, why = None, error.sentence
        if attachment is None:
            lost.append(f"[the file {file.name} of {len(file.data)} bytes was left out: {why}]")
        else:
            kept.append(attachment)
    return msgspec.structs.replace(
        outcome, files=(), attachments=tuple(kept), content="\n".join([outcome.content, *lost])
    )


def settle_or_park(journal: TurnJournal, call: Call, outcome: Outcome, settings: Settings) -> None:
    """Have an outcome journaled; a call that its server refused until somebody signs in goes on waiting."""
    if outcome.sign_in is None:
        journal.settle(call, outcome)
    else:
        journal.park(call, outcome, journal.turn.clock.now() + settings.connect_seconds)


def _settle_finished(
    journal: TurnJournal, running: dict[asyncio.Task[Outcome], Job], settings: Settings
) -> None:
    for task in [task for task in running if task.done()]:
        settle_or_park(journal, running.pop(task).call, task.result(), settings)


async def _stop(
    journal: TurnJournal,
    running: dict[asyncio.Task[Outcome], Job],
    began: set[str],
    settings: Settings,
    reason: str,
) -> None:
    """Give what runs a moment to end, then say what is known of the rest.

    When the server stops as planned nothing is said of calls that had begun: they stay open, and whoever
    takes the turn up decides by their effect.
    """
    if running:
        grace = asyncio.ensure_future(journal.turn.clock.sleep(settings.tool_stop_grace_seconds))
        try:
            while running and not grace.done():
                waited: set[asyncio.Future[Any]] = {*running, grace}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                _settle_finished(journal, running, settings)
        finally:
            grace.cancel()
    for task, job in list(running.items()):
        task.cancel()
        running.pop(task)
        started = job.call.id in began
        if reason != "shutdown" or not started:
            journal.settle(job.call, _stopped(job, started=started), synthetic=True)
    raise StopAsked(reason)


def _stopped(job: Job, *, started: bool) -> Outcome:
    name = job.tool.name
    if not started:
        return Outcome(
            disposition=Disposition.FAILED,
            content=texts.never_started(name),
            is_error=True,
            why=DID_NOT_HAPPEN,
        )
    return stopped_outcome(name, reads_only=job.call.effect is Effect.READ_ONLY)


def stopped_outcome(name: str, *, reads_only: bool) -> Outcome:
    """The outcome of a call that ran when its turn was stopped."""
    return Outcome(
        disposition=Disposition.FAILED if reads_only else Disposition.UNKNOWN,
        content=texts.stopped_while_running(name, reads_only=reads_only),
        is_error=True,
        why="stopped",
    )
